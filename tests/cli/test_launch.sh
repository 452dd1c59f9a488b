#!/bin/sh
# Several processes as one: what they compute, bit for bit, and what they say.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

launch() { # N VERB ...
  launch_n=$1
  shift
  run launch -n "$launch_n" -- "$@"
}
# What process 0 says; the line that shows the command goes first.
said() { sed 1d err; }
said_once() { [ "$(said | grep -cF -e "$1")" = 1 ] || { fail "not said once: \"$1\""; t_show; }; }

make_job job <<END
gradient_accumulation_steps: 2
END
fix_batch job/job.yaml
M=$CASES/llama-odd-heads
ids=$(ids llama-odd-heads sequences.1)

as_processes() { # PROCESSES:STRATEGY ...: trains as one process, and as several
  for s; do
    run train job/job.yaml output_dir=one "strategy=${s#*:}" overwrite_output_dir=true max_steps=6
    exit_is 0
    launch "${s%%:*}" train job/job.yaml output_dir=several "strategy=${s#*:}" overwrite_output_dir=true max_steps=6
    exit_is 0
    same_file one/model.safetensors several/model.safetensors
    for f in one/checkpoint-6/optimizer*part*; do same_file "$f" "several/${f#*/}"; done
    same_history one several
  done
}
collectives() { # of so many processes
  root=
  [ "$(id -u)" != 0 ] || root=--allow-run-as-root
  # shellcheck disable=SC2086
  run_cmd mpirun -q --oversubscribe --bind-to none $root -n "$1" "$B/test-unit" -v job_of_processes
  exit_is 0
  out_has "process $(($1 - 1)) of $1"
}

it "training as 2, 3, 4 and 7 processes gives the bits of as many devices of one"
as_processes 2:tp=2,zero=0 3:dp=3,zero=3 4:tp=2,sp,cp=2,zero=1 7:dp=7,zero=1
err_has "7 devices (a process each)"
run explain job/job.yaml memory --json
json_is several/op_times.json memory.device_memory_bytes $(($(json out device_memory_bytes) / 7))

it "over MPI, too: training and collectives of 3 processes, and a message that is told once"
if over_mpi; then
  as_processes 3:dp=3,zero=3
  collectives 3
  launch 3 train job/job.yaml strategy=dp=3 lerning_rate=1
  refused lerning_rate
  said_once lerning_rate
fi
over_sockets

it "logits, gradients, perplexity and text do too"
for s in 2:dp=2,zero=3 3:tp=3; do
  set -- "${s%%:*}" --model "$M" --strategy "${s#*:}"
  n=$1
  shift
  for what in "logits --tokens $ids --out" "grads --tokens $ids --out"; do
    run $what one.safetensors "$@"
    exit_is 0
    cp out out.one
    launch "$n" $what several.safetensors "$@"
    exit_is 0
    same_file one.safetensors several.safetensors
    same_file out out.one
  done
  for what in "eval --tokens $ids --json" "generate --tokens $ids --max-new-tokens 6 --temperature 0.7"; do
    run $what "$@"
    cp out out.one
    launch "$n" $what "$@"
    exit_is 0
    same_file out out.one
  done
done

it "every collective computes what the reference does, on odd sizes"
collectives 3
collectives 4

it "a run goes on from its checkpoint on another number of processes"
rm -rf several
launch 3 train job/job.yaml output_dir=several strategy=dp=3,zero=1
exit_is 0
rm -r several/checkpoint-1[05] several/checkpoint-20 several/model.safetensors several/all_results.json
launch 2 train job/job.yaml output_dir=several strategy=tp=2
exit_is 0
err_has "checkpoint-5"
run train job/job.yaml output_dir=one overwrite_output_dir=true
close_losses one/trainer_log.jsonl several/trainer_log.jsonl 1e-5
echo x >>several/checkpoint-10/model-part-00001.safetensors
launch 2 train job/job.yaml output_dir=several strategy=tp=2 resume_from_checkpoint=several/checkpoint-10
refused "several/checkpoint-10/model-part-00001.safetensors: has"
said_once model-part-00001

it "bad input is refused once, and by all"
echo 'lerning_rate: 1' >>job/job.yaml
launch 3 train job/job.yaml strategy=dp=3
refused lerning_rate
said_once lerning_rate
for late in 0 1; do # the others fail before it has joined them
  export HYPER_TEST_LATE_RANK=$late
  launch 3 train job/job.yaml strategy=dp=3
  unset HYPER_TEST_LATE_RANK
  refused lerning_rate
  said_once lerning_rate
done
sed -i '$d' job/job.yaml
cp job/job.yaml long.yaml
for i in $(seq 100 140); do echo "a_name_that_no_key_of_a_configuration_has_$i: 1"; done >>long.yaml
launch 2 train long.yaml strategy=dp=2
refused "41 errors" "41. " "a_name_that_no_key_of_a_configuration_has_140: unknown key"
launch 3 train job/job.yaml output_dir=nowhere strategy=dp=2
refused "3 processes were started, and the mesh has 2 devices: start 2 processes, or use a mesh (a strategy) of 3 devices, as dp=3"
said_once "3 processes"
no_file nowhere
launch 2 logits --model "$M" --tokens 1 --out o
refused "the mesh has 1 device: start 1 process,"
launch 2 nonsense
refused '"nonsense" is not a verb'
launch 2 train job/job.yaml output_dir=job/job.yaml strategy=dp=2
exit_is 2
[ "$(said | wc -l)" -le 3 ] || { fail "more than one message"; t_show; }

it "how it is started is refused by name"
run launch -- train job/job.yaml
refused "how many processes? Write -n N"
run launch -n 0 -- train job/job.yaml
refused "-n 0: expected 1 to 1024 processes"
run launch -n two -- train job/job.yaml
refused '-n: expected a whole number, found "two"'

it "the number of processes is spelled as other options are"
for n in "-n 2" "-n=2" n=2 "--n 2" --processes=2 processes=2; do
  # shellcheck disable=SC2086
  run launch $n --starter /bin/true -- train job/job.yaml
  refused "--starter /bin/true"
done

it "a launch without a verb is refused"
run launch -n 2
refused "what shall be run?"
run launch -n 2 --starter /bin/true -- train job/job.yaml
refused "--starter /bin/true"

it "processes without the plugin say what is missing"
run_cmd env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 HYPER_MPI=/nowhere.so "$HYPER" doctor
refused "2 processes were started as one job" "/nowhere.so" "tools/bootstrap mpi"
run_cmd env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 HYPER_MPI=/nowhere.so "$HYPER" doctor
exit_is 2
one_message 0
