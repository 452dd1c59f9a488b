#!/bin/sh
# The processes of a job agree on configuration, model, tokenizer and data before they train.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
make_job job </dev/null
cp stories.jsonl same.jsonl
sed '1!G;h;$!d' stories.jsonl > other.jsonl
cp -r job/model model1

# each N KEY=VALUE...: N processes, of which each has the keys with its own rank in place of RANK.
each() {
  n=$1
  shift
  run_cmd mpirun -q --oversubscribe --bind-to none $root -n "$n" sh -c '
    for a; do set -- "$@" "$(echo "$a" | sed "s/RANK/$OMPI_COMM_WORLD_RANK/g")"; shift; done
    exec '"$HYPER"' train job/job.yaml output_dir=job/run max_steps=2 "$@"' - strategy=dp="$n" "$@"
}
differ() { # WORDS N KEY=VALUE...
  words=$1
  shift
  each "$@"
  [ "$status" = 2 ] || fail "exit code $status, want 2"
  err_has "the processes differ in $words"
  [ "$(grep -c "the processes differ" err)" = 1 ] || fail "not said once"
  no_file job/run
}

it "another value of a key is named, with both and who has them"
differ "learning_rate: 0.01 (process 0), 0.011 (process 1);" 2 learning_rate=0.01RANK
differ "seed: 40 (process 0), 41 (process 1), 42 (process 2)" 3 seed=4RANK

it "another cluster is named, though its file is called the same"
for r in 0 1; do
  mkdir -p site$r
  printf 'device: {flops: 1e1%d, bandwidth_gb_s: 30}\nlinks: [{bandwidth_gb_s: 10, latency_us: 1}]\n' $r >site$r/c.yaml
done
differ "hyper_parallel.cluster: 8" 2 hyper_parallel.cluster=siteRANK/c.yaml
err_has "of site0/c.yaml (process 0)"
err_has "of site1/c.yaml (process 1)"

it "all keys that differ are named"
differ "" 2 learning_rate=0.01RANK weight_decay=0.RANK
err_has "; weight_decay: 0.0 (process 0), 0.1 (process 1)"

it "other data are named by their data sets"
ln -sf stories.jsonl data0.jsonl
ln -sf other.jsonl data1.jsonl
differ "the training data: " 2 dataset=dataRANK.jsonl
err_has "of data0.jsonl (process 0)"
err_has "of data1.jsonl (process 1)"
differ "the evaluation data: " 2 eval_dataset=dataRANK.jsonl
err_has "of data0.jsonl (process 0)"
err_has "of data1.jsonl (process 1)"
differ "more evaluation data: " 2 eval_dataset=same.jsonl,dataRANK.jsonl eval_on_each_dataset=true

it "another model or tokenizer is named by its file"
run train job/job.yaml max_steps=1 output_dir=first
ln -sfn "$PWD/first" model0
cp -r first kept && rm -rf model1 && cp -r first model1
printf '\001' | dd of=model1/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
differ "model.safetensors: " 2 model_name_or_path=modelRANK train_from_scratch=false
rm -rf model1 && cp -r first model1
sed -i 's/"rms_norm_eps": [0-9e.-]*/"rms_norm_eps": 0.002/' model1/config.json
differ "config.json: " 2 model_name_or_path=modelRANK train_from_scratch=false
rm -rf model1 && cp -r first model1
echo ' ' >> model1/tokenizer_config.json
differ "tokenizer_config.json: " 2 model_name_or_path=modelRANK train_from_scratch=false

it "the same things in other places, and other threads, are no difference"
rm -rf model1 && cp -r first model1
ln -sf same.jsonl data1.jsonl
cp site0/c.yaml site1/c.yaml
each 2 dataset=dataRANK.jsonl model_name_or_path=modelRANK train_from_scratch=false threads=1 \
  hyper_parallel.cluster=siteRANK/c.yaml
exit_is 0
is_file job/run/model.safetensors

it "a checkpoint that is another one in each process's folder is refused, with both"
for r in 0 1; do
  mkdir -p machine$r
  run train job/job.yaml output_dir="machine$r/run" max_steps=5 save_steps=5 seed=4$r
  exit_is 0
done
rm machine?/run/train_results.json
resume() { # MACHINE KEY=VALUE...: of each process
  machine=$1
  shift
  run_cmd mpirun -q --oversubscribe --bind-to none $root -n 2 sh -c '
    job=$PWD/job/job.yaml
    cd machine'"$machine"' && exec '"$HYPER"' train "$job" max_steps=6 seed=40 strategy=dp=2 \
      model_name_or_path='"$PWD/job/model"' dataset_dir='"$PWD"' "$@"' - "$@"
}
resume '$OMPI_COMM_WORLD_RANK' output_dir="$PWD/both" resume_from_checkpoint=run/checkpoint-5
exit_is 2
err_has "the processes differ in the checkpoint to go on from: step 5, MANIFEST.json with hash "
err_has "in $PWD/machine0/run/checkpoint-5 (process 0), step 5, MANIFEST.json with hash "
err_has "in $PWD/machine1/run/checkpoint-5 (process 1)"
[ "$(grep -c "the processes differ" err)" = 1 ] || fail "not said once"
no_file machine0/run/checkpoint-6 machine1/run/checkpoint-6 both
resume 0 output_dir=run
exit_is 0
err_has "continuing from run/checkpoint-5"

it "an output_dir that not all processes share is refused at the start, and who does not is named"
ls -A machine1/run >before
resume '$OMPI_COMM_WORLD_RANK' output_dir=run
exit_is 2
err_has "output_dir \"run\": process 1 ($(hostname)) does not see what process 0 ($(hostname)) writes there"
err_has "must be on a file system that all of them share"
[ "$(grep -c "does not see" err)" = 1 ] || fail "not said once"
ls -A machine1/run | same_file before /dev/stdin
for f in machine0/run/*.tmp.* machine0/run/run.lock; do no_file "$f"; done
resume '$OMPI_COMM_WORLD_RANK' output_dir=fresh
exit_is 2
err_has "process 1 ($(hostname)) does not see"
no_file machine0/fresh
no_file machine1/fresh

it "of the processes of a machine one reads what all have"
run_cmd mpirun -q --oversubscribe --bind-to none $root -n 4 "$B/test-unit" -v several_processes_read_a_file_once_a_machine
exit_is 0
[ "$(grep -c "1 passed, 0 failed" out)" = 4 ] || { fail "not four times"; t_show; }
