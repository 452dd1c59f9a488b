#!/bin/sh
# output_dir while a run goes on: deleted, taken by another run, without its lock.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job </dev/null
sed -i 's/^max_steps: 20/max_steps: 60/; s/^save_steps: 5/save_steps: 10/' job/job.yaml
run train job/job.yaml output_dir=whole
exit_is 0

# Begins a run of many steps in out1, which is stopped when it has the checkpoint of step $first.
first=10
begin() { # KEY=VALUE...
  rm -rf out1
  "$HYPER" train job/job.yaml output_dir=out1 max_steps=100000 save_total_limit=2 "$@" >out.1 2>err.1 </dev/null &
  pid=$!
  while [ ! -e out1/checkpoint-$first ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
  kill -STOP $pid
}
# A save that has looked at the lock already may still make its folder: saves are far apart.
begin_between_saves() {
  first=300
  begin save_steps=300
  first=10
}
wakes_up() { # until it ends
  t_cmd="train, which was stopped"
  kill -CONT $pid
  status=0
  wait $pid || status=$?
  mv out.1 out
  mv err.1 err
}
same_run() {
  same_file whole/model.safetensors out1/model.safetensors
  same_history whole out1
  [ "$(ls -A out1)" = "$(ls -A whole)" ] || fail "$(ls -A out1)"
}

it "a second run is refused while the first is stopped, and named"
begin
run train job/job.yaml output_dir=out1
refused "out1/run.lock: another run (process $pid on $(hostname))"
kill -9 $pid
wait $pid 2>/dev/null

it "a run whose folder was deleted and taken by another ends, and touches nothing of it"
begin_between_saves
rm -rf out1
run train job/job.yaml output_dir=out1
exit_is 0
wakes_up
refused "out1: another run has begun there"
same_run

it "so does one whose lock was lost, when it wakes up while the other goes on"
begin_between_saves
rm -rf out1
"$HYPER" train job/job.yaml output_dir=out1 max_steps=1000000 save_steps=1000000 >out.2 2>err.2 </dev/null &
other=$!
while [ ! -s out1/trainer_log.jsonl ] && kill -0 $other 2>/dev/null; do sleep 0.01; done
wakes_up
refused "out1/run.lock: another run (process $other on $(hostname))"
is_file out1/run.lock
run train job/job.yaml output_dir=out1
refused "another run (process $other"
kill -TERM $other
wait $other
[ "$(ls -d out1/*checkpoint-* | wc -l)" = 1 ] || fail "$(ls -A out1)"

# Begins a run in out1 that stops within its first save: it has looked at run.lock, and has not made
# the folder of the checkpoint.
begin_within_a_save() {
  rm -rf out1
  LD_PRELOAD=$PWD/fault.so FAULT_STOP=1 FAULT_CALL=mkdir FAULT_PATH=.tmp-checkpoint- FAULT_AT=1 \
    "$HYPER" train job/job.yaml output_dir=out1 max_steps=600 >out.1 2>err.1 </dev/null &
  pid=$!
  until grep -q '^State:.T' /proc/$pid/status 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
}
if "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o fault.so "$ROOT/tests/torture/preload_fault.c" -ldl 2>err; then
  it "a run that is stopped within a save commits no checkpoint to the folder that another run has taken"
  begin_within_a_save
  rm -rf out1
  run train job/job.yaml output_dir=out1
  exit_is 0
  wakes_up
  refused "out1: another run has begun there"
  same_run
  it "nor when the other goes on"
  begin_within_a_save
  rm -rf out1
  "$HYPER" train job/job.yaml output_dir=out1 max_steps=1000000 save_steps=1000000 >out.2 2>err.2 </dev/null &
  other=$!
  while [ ! -s out1/trainer_log.jsonl ] && kill -0 $other 2>/dev/null; do sleep 0.01; done
  wakes_up
  refused "out1/run.lock: another run (process $other on $(hostname))"
  ! ls -dA out1/*checkpoint-* out1/.*checkpoint-* >left 2>/dev/null || fail "$(cat left)"
  kill -TERM $other
  wait $other
fi

it "a run whose folder is gone waits for it, and goes on when it is there again"
begin max_steps=60
mv out1 away
kill -CONT $pid
while kill -0 $pid 2>/dev/null && ! grep -q "could not be written" err.1; do sleep 0.02; done
mv away out1
wakes_up
exit_is 0
err_has "is written, after "
same_file whole/model.safetensors out1/model.safetensors
same_history whole out1

it "or when it is made anew, empty"
begin max_steps=60
rm -rf out1
kill -CONT $pid
while kill -0 $pid 2>/dev/null && ! grep -q "could not be written" err.1; do sleep 0.02; done
mkdir out1
wakes_up
exit_is 0
err_has "out1/run.lock: was gone while the run went on; it is taken again"
same_file whole/model.safetensors out1/model.safetensors
is_file out1/checkpoint-60/MANIFEST.json
is_file out1/run.line
no_file out1/run.lock

it "a lock that was removed by hand is taken again, and holds"
begin
rm out1/run.lock
kill -CONT $pid
while kill -0 $pid 2>/dev/null && [ ! -s out1/run.lock ]; do sleep 0.01; done
run train job/job.yaml output_dir=out1
refused "another run (process $pid"
kill -TERM $pid
wakes_up
exit_is 0
err_has "is taken again"
no_file out1/run.lock
