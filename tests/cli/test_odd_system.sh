#!/bin/sh
# A system within its rights: calls that are interrupted or do a part of what they are asked, and a clock
# that is set back.  A run and one that goes on end with the same bits.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

if ! "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o odd.so "$ROOT/tests/cli/preload_odd.c" -ldl 2>err; then
  it "calls that are interrupted change nothing"
  skip "no compiler"
  exit 0
fi
make_job job </dev/null
run train job/job.yaml output_dir=whole report_to=tensorboard
exit_is 0

odd() { run_cmd env LD_PRELOAD="$WORK/odd.so" "$@"; } # VARIABLE=VALUE... COMMAND
same_end() {
  exit_is 0
  same_file whole/model.safetensors out1/model.safetensors
  for f in model.safetensors optimizer.safetensors trainer_state.json; do
    same_file whole/checkpoint-20/$f out1/checkpoint-20/$f
  done
  same_history whole out1
  [ "$(ls -A out1)" = "$(ls -A whole)" ] || fail "there is: $(ls -A out1)"
}

it "reads and writes that are short or interrupted (EINTR) change nothing"
odd ODD="$WORK/" "$HYPER" train job/job.yaml output_dir=out1 report_to=tensorboard
err_lacks "warning"
same_end
rm -r out1/checkpoint-20 out1/checkpoint-15 out1/train_results.json
odd ODD="$WORK/" "$HYPER" train job/job.yaml output_dir=out1 report_to=tensorboard
err_has "continuing from out1/checkpoint-10"
same_end

it "nor does a clock that is set back"
rm -rf out1
odd CLOCK=1 "$HYPER" train job/job.yaml output_dir=out1 report_to=tensorboard
same_end
rm -r out1/checkpoint-20 out1/checkpoint-15 out1/train_results.json
odd CLOCK=1 "$HYPER" train job/job.yaml output_dir=out1 report_to=tensorboard
err_has "continuing from out1/checkpoint-10"
same_end
grep -q '"elapsed_time": "-' out1/trainer_log.jsonl && fail "time ran backwards: $(tail -n 1 out1/trainer_log.jsonl)"

it "nor when a save fails meanwhile"
rm -rf out1
"${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o fault.so "$ROOT/tests/torture/preload_fault.c" -ldl
run_cmd env LD_PRELOAD="$WORK/fault.so:$WORK/odd.so" CLOCK=1 FAULT_CALL=write FAULT_ERRNO=28 FAULT_AT=1 FAULT_FOR=1 \
  FAULT_PATH=.tmp-checkpoint-20 "$HYPER" train job/job.yaml output_dir=out1 report_to=tensorboard
err_has "is written, after 1 tries that failed"
same_end
