#!/bin/sh
# A disk that is full or fails while a run goes on: what can be done without it is done.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

if ! "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o fault.so "$ROOT/tests/torture/preload_fault.c" -ldl 2>err; then
  it "a disk that is full ends no run"
  skip "no compiler"
  exit 0
fi
make_job job <<END
save_total_limit: 2
END
sed -i 's/^max_steps: 20/max_steps: 60/; s/^save_steps: 5/save_steps: 10/' job/job.yaml
run train job/job.yaml output_dir=whole
exit_is 0

# fails "CALL ERRNO TIMES PATH" KEY=VALUE...: trains while so many calls on files of that path fail
fails() {
  set -- $1 "$@"
  fault="FAULT_CALL=$1 FAULT_ERRNO=$2 FAULT_AT=1 FAULT_FOR=$3 FAULT_PATH=$4"
  shift 5
  rm -rf out1
  run_cmd env LD_PRELOAD="$WORK/fault.so" $fault "$HYPER" train job/job.yaml output_dir=out1 "$@"
}
same_end() {
  exit_is 0
  same_file whole/model.safetensors out1/model.safetensors
  for f in model optimizer; do same_file whole/checkpoint-60/$f.safetensors out1/checkpoint-60/$f.safetensors; done
  same_history whole out1
  [ -z "$(ls -A out1 | grep '^\.')" ] || fail "left behind: $(ls -A out1)"
}

it "a save that fails is told and tried again, and the run ends as if nothing had been"
for fault in "write 28 1 .tmp-checkpoint" "fsync 5 1 optimizer" "rename 122 1 .tmp-checkpoint" "write 5 2 MANIFEST"; do
  fails "$fault"
  err_has "checkpoint-10 could not be written: out1/.tmp-checkpoint-10"
  err_has "training continues, the next try is in 1 s, the newest checkpoint is none yet (failure 1 in a row, max_failed_saves: 10)"
  err_has "is written, after "
  same_end
done

it "a best checkpoint that could not be written is not called one"
fails "write 28 1 .tmp-checkpoint-2" val_size=0.1 eval_strategy=steps eval_steps=2 metric_for_best_model=loss \
  greater_is_better=true max_steps=4 save_steps=2
exit_is 0
json_is out1/trainer_state.json best_global_step 2
json_is out1/trainer_state.json best_model_checkpoint null
no_file out1/checkpoint-2

it "max_failed_saves in a row end the run, and the checkpoints before them stay"
fails "write 28 1000000 .tmp-checkpoint-30" max_failed_saves=1
refused "checkpoint-30 could not be written: out1/.tmp-checkpoint-30" "free some space" "max_failed_saves: 1"
[ "$(ls -d out1/.tmp* out1/checkpoint-* 2>/dev/null | tr '\n' ' ')" = "out1/checkpoint-10 out1/checkpoint-20 " ] || fail "$(ls -A out1)"
run train job/job.yaml output_dir=out1
err_has "continuing from out1/checkpoint-20"
same_file whole/model.safetensors out1/model.safetensors

it "what the log cannot take waits for the disk, and is there in the end"
fails "write 28 7 trainer_log.jsonl"
err_has "out1/trainer_log.jsonl: cannot be written: No space left on device; training continues"
err_has "out1/trainer_log.jsonl: is written again, and complete"
[ "$(grep -c "cannot be written" err)" = 1 ] || { fail "not told once"; t_show; }
same_end
fails "write 28 7 events.out" report_to=tensorboard
err_has "is written again, and complete"
same_end

it "the last checkpoint waits for the disk as long as max_failed_saves allows"
fails "write 28 3 .tmp-checkpoint-60" save_strategy=no max_failed_saves=0
err_has "checkpoint-60 could not be written: out1/.tmp-checkpoint-60"
err_has "the run is done and waits, the next try is in 3 s, the newest checkpoint is none yet (failure 2 in a row, max_failed_saves: 0)"
err_has "checkpoint-60 is written, after "
exit_is 0
same_file whole/model.safetensors out1/model.safetensors
fails "write 28 1000000 .tmp-checkpoint-60" save_strategy=no max_failed_saves=2
refused "checkpoint-60 could not be written" "after every max_failed_saves: 2 failures"
[ "$(grep -c "the run is done and waits" err)" = 1 ] || { fail "not tried twice"; t_show; }
began=$(date +%s%N)
fails "write 28 1000000 .tmp-checkpoint-60" max_failed_saves=2 # after the last step, and once more
refused "checkpoint-60 could not be written" "failure 1 in a row" "after every max_failed_saves: 2 failures"
[ $(($(date +%s%N) - began)) -gt 1000000000 ] || fail "it did not wait for a second"
is_file out1/checkpoint-50/MANIFEST.json

it "from a signal on it waits no longer than there is time"
rm -rf out1
env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=write FAULT_ERRNO=28 FAULT_AT=1 FAULT_FOR=3 FAULT_PATH=.tmp-checkpoint-60 \
  "$HYPER" train job/job.yaml output_dir=out1 save_strategy=no max_failed_saves=0 >out 2>err </dev/null &
pid=$! t_cmd="train, ended while it waits"
while kill -0 $pid 2>/dev/null && ! grep -q "failure 2 in a row" err; do sleep 0.05; done
kill -TERM $pid
status=0
wait $pid || status=$?
exit_is 0
err_has "told to stop: trying the checkpoint 4 more times"
err_has "trying again in 1 s (try 1 of 4 failed)"
is_file out1/checkpoint-60/MANIFEST.json

it "a checkpoint that cannot be read is not taken for a damaged one"
rm -rf read && cp -r whole read && rm read/train_results.json
reads() { # CALL AT TIMES FILE: trains on, while so many calls on files of the newest checkpoint fail, from one on
  run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=$1 FAULT_ERRNO=5 FAULT_AT=$2 FAULT_FOR=$3 FAULT_PATH=read/checkpoint-60/$4 \
    "$HYPER" train job/job.yaml output_dir=read max_steps=61
}
none_lost() {
  [ "$(ls -d read/checkpoint-* | tr '\n' ' ')" = "read/checkpoint-50 read/checkpoint-60 " ] || fail "$(ls read)"
}
reads open 1 1000000 MANIFEST.json
exit_is 1
err_has "read/checkpoint-60/MANIFEST.json: cannot open: Input/output error"
err_has "no older one is taken in its place"
none_lost

it "nor one that cannot be looked at for none"
reads look 1 1000000 MANIFEST.json
exit_is 1
err_has "read/checkpoint-60/MANIFEST.json: cannot be looked at: Input/output error"
err_has "no older one is taken in its place"
none_lost
run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=look FAULT_ERRNO=5 FAULT_AT=1 FAULT_FOR=1000 \
  FAULT_PATH=read/checkpoint-60/MANIFEST.json "$HYPER" logits --model read/checkpoint-60 --tokens 1,2 --out l.safetensors
exit_is 2
err_has "MANIFEST.json: cannot be looked at: Input/output error"
no_file l.safetensors

it "one that cannot be read after it was found is a failure of the machine"
# the first open is the one that verifies; weights are looked into before they are mapped
for call in "open 2 1000 config.json" "open 2 1000 trainer_state.json" "open 3 1000 optimizer" "mmap 1 1000 model.safetensors" \
  "look 1 1000 model.parts" "look 1 1000 optimizer.parts"; do
  reads $call
  exit_is 1
  err_has "input/output failure: read/checkpoint-60/"
  err_has "Input/output error"
  none_lost
done

it "a folder that cannot be listed is not an empty one"
lists() { # FROM TIMES: trains on, while so many entries of the run's folder cannot be read, from one on
  run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=list FAULT_ERRNO=5 FAULT_AT=$1 FAULT_FOR=$2 FAULT_PATH=$WORK/read \
    "$HYPER" train job/job.yaml output_dir=read max_steps=61
}
lists 1 1000000 # leftovers of earlier runs are looked for first
exit_is 1
err_has "read: cannot read the folder: Input/output error"
err_has "which checkpoints it holds cannot be known"
none_lost
entries=$(ls -a read | wc -l)
lists $(((entries + 2) * 2 + 1)) 1000000 # then the newest
exit_is 1
err_has "read: cannot read the folder: Input/output error"
err_has "which checkpoints it holds cannot be known"
none_lost
mkdir texts
for i in 1 2 3; do cp stories.jsonl texts/$i.jsonl; done
run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=list FAULT_ERRNO=5 FAULT_AT=4 FAULT_PATH=$WORK/texts \
  "$HYPER" train job/job.yaml output_dir=fewer dataset=texts
refused "texts: cannot read the folder: Input/output error"

it "and is tried again while it is looked for"
reads read 1 1 optimizer
exit_is 0
err_has "trying again in 1 s (try 1 of 4 failed)"
err_has "continuing from read/checkpoint-60"

it "tokenizer files are those of the start, whatever becomes of the model's folder"
rm -rf out1
cp -r job/model model
env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=write FAULT_ERRNO=28 FAULT_AT=1 FAULT_FOR=2 FAULT_PATH=.tmp-checkpoint-60 \
  "$HYPER" train job/job.yaml output_dir=out1 model_name_or_path=model save_strategy=no >out 2>err </dev/null &
pid=$! t_cmd="train, whose model's folder changes while it waits"
while kill -0 $pid 2>/dev/null && ! grep -q "the next try is in" err; do sleep 0.05; done
rm -rf model && mkdir model && echo '{"another": "tokenizer"}' >model/tokenizer.json
status=0
wait $pid || status=$?
exit_is 0
err_has "the run is done and waits"
for f in tokenizer.json tokenizer_config.json; do
  same_file job/model/$f out1/$f
  same_file job/model/$f out1/checkpoint-60/$f
done
# another run is never told by the number of a process, which containers give out again and again
err_has ".tmp-checkpoint-60-"
err_lacks ".tmp-checkpoint-60-$pid/"

it "what a dead run left and cannot be removed forbids no run"
rm -rf out1 && mkdir -p out1/.tmp-checkpoint-3-77/x
echo x >out1/trainer_log.jsonl.tmp.999999999-0123abcd
fails_here() { run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=unlink FAULT_ERRNO=1 FAULT_AT=1 FAULT_FOR=1000 FAULT_PATH=$1 \
  "$HYPER" train job/job.yaml output_dir=out1 max_steps=2; }
fails_here .tmp-checkpoint-3-77
exit_is 0
err_has "what a dead run left there stays"
err_has "out1/trainer_log.jsonl.tmp.999999999-0123abcd: removed"
echo x >out1/trainer_log.jsonl.tmp.999999999-0123abcd
rm -r out1/.tmp* out1/train_results.json
fails_here 999999999
exit_is 0
err_has "cannot be removed: Operation not permitted; it stays"

it "the model and the results are tried for several times"
for fault in "write 5 2 out1/model.safetensors" "write 28 1 train_results" "rename 5 1 out1/report.html" "fsync 5 1 out1/tokenizer.json"; do
  fails "$fault" save_strategy=no
  exit_is 0
  err_has "trying again in 1 s (try 1 of 4 failed)"
  same_file whole/model.safetensors out1/model.safetensors
  for f in train_results.json report.html tokenizer.json trainer_state.json; do same_file whole/tokenizer.json out1/tokenizer.json; is_file out1/$f; done
done

it "a report that cannot be written costs the report"
fails "write 28 1000000 report.html" max_steps=3
exit_is 0
err_has "report.html was not written: out1/report.html: write failed"
is_file out1/train_results.json
