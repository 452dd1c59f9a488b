#!/bin/sh
# Replicas are compared while a run goes on: a bit that flips in the memory of one process ends it,
# with the tensor's name.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

${CC:-cc} -O1 -o flip_bit "$ROOT/tests/cli/flip_bit.c"
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
W=model.layers.1.mlp.up_proj.weight

# With a rate of 0 the weights stay those of the first checkpoint, so that they are found in memory.
make_job job </dev/null
sed -i 's/^learning_rate: .*/learning_rate: 0/; s/^weight_decay: .*/weight_decay: 0/; s/^max_steps: .*/max_steps: 1000000/
  s/^save_steps: .*/save_steps: 1000000/; s/^logging_steps: .*/logging_steps: 10/' job/job.yaml
run train job/job.yaml output_dir=first max_steps=1
exit_is 0

# Of the job's processes the one of that rank, once there are steps.
rank_pid() {
  for try in $(seq 1 3000); do
    [ -s out_$1/trainer_log.jsonl ] && break
    sleep 0.01
  done
  for p in $(pgrep -f "train job/job.yaml output_dir=out_$1"); do
    tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" || continue
    [ "$(cat "/proc/$p/comm")" = hyper ] && echo "$p"
  done
}
# flips NAME N RANK: a job of N processes, in one of which a bit flips; then $status.
flips() {
  mpirun -q --oversubscribe --bind-to none $root -n "$2" "$HYPER" train job/job.yaml "output_dir=out_$1" "strategy=dp=$2" \
    verify_replicas_steps=5 disable_tqdm=true >out 2>err </dev/null &
  job=$!
  t_cmd="train on $2 processes"
  victim=$(rank_pid "$1" "$3")
  ./flip_bit "$victim" first/model.safetensors $W ALL >found 2>why || { kill $job; wait $job; return 1; }
  status=0
  wait $job || status=$?
}

it "a flipped bit in one of two processes ends the run with the tensor's name"
if flips two 2 1; then
  exit_is 1
  err_has "\"$W\""
  err_has "process 1 and 0 hold different bits"
  err_has "after step "
  no_file out_two/model.safetensors
else skip "$(cat why)"
fi

it "of three the odd one is named"
if flips three 3 2; then
  exit_is 1
  err_has "\"$W\": process 2 holds other bits than 0, 1"
else skip "$(cat why)"
fi

it "a supervised job is started again, and goes on from its last checkpoint"
"$HYPER" launch -n 2 --max-restarts 1 -- train job/job.yaml output_dir=out_again strategy=dp=2 verify_replicas_steps=5 \
  disable_tqdm=true save_steps=50 max_steps=1000 save_total_limit=2 >out 2>err </dev/null &
job=$!
victim=$(rank_pid again 1)
if ./flip_bit "$victim" first/model.safetensors $W ALL >found 2>why; then
  status=0
  wait $job || status=$?
  exit_is 0
  err_has "a device of the job failed"
  err_has "starting the job again"
  same_file first/model.safetensors out_again/model.safetensors
else
  kill $job
  wait $job
  skip "$(cat why)"
fi

it "so it is with devices of one process"
"$HYPER" train job/job.yaml output_dir=out_local strategy=dp=3 verify_replicas_steps=5 disable_tqdm=true >out 2>err </dev/null &
job=$!
for try in $(seq 1 3000); do
  [ -s out_local/trainer_log.jsonl ] && break
  sleep 0.01
done
if ./flip_bit $job first/model.safetensors $W ONE >found 2>why; then
  status=0
  wait $job || status=$?
  exit_is 1
  err_has "\"$W\": device "
else
  kill $job
  wait $job
  skip "$(cat why)"
fi

# flips_one NAME KEY=VALUE...: a run of two devices is stopped while a bit of one flips, and goes on.
flips_one() {
  name=$1
  shift
  "$HYPER" train job/job.yaml "output_dir=out_$name" strategy=dp=2 verify_replicas_steps=1000000 disable_tqdm=true "$@" \
    >out 2>err </dev/null &
  job=$!
  t_cmd="train $*"
  for try in $(seq 1 3000); do
    [ -s "out_$name/trainer_log.jsonl" ] && break
    sleep 0.01
  done
  kill -STOP $job
  ./flip_bit $job first/model.safetensors $W ONE >found 2>why || { kill -9 $job; wait $job; skip "$(cat why)"; return 1; }
  kill -CONT $job
}
it "nothing is saved of replicas that differ, however seldom they are looked at"
if flips_one save save_steps=500 max_steps=1500; then
  status=0
  wait $job || status=$?
  exit_is 1
  err_has "\"$W\": device "
  no_file out_save/checkpoint-1500
fi
if flips_one signal; then
  kill -TERM $job
  status=0
  wait $job || status=$?
  exit_is 1
  err_has "\"$W\": device "
  [ -z "$(ls -d out_signal/checkpoint-* 2>/dev/null)" ] || fail "saved: $(ls -d out_signal/checkpoint-*)"
fi

it "the default is told, and equal replicas are no reason to end"
run train --help
tr -s ' \n' '  ' <out >help
grep -q "verify_replicas_steps .*0: never \[500\]" help || fail "no default in --help"
run train job/job.yaml output_dir=fine max_steps=20 save_steps=10 strategy=dp=2,tp=2 verify_replicas_steps=1
exit_is 0
