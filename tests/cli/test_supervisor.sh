#!/bin/sh
# Runs alone: its processes are to be heard from in seconds.
# `hyper launch` as the supervisor of a job: processes that die, stop or hang, signals, a full disk.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

if ! command -v mpirun >/dev/null || [ ! -e "$B/hyper_mpi.so" ]; then
  it "a process that dies, stops or hangs is named, and the job begun again"
  skip "no mpirun, or no mpicc when hyper was built; tools/bootstrap mpi installs them"
  exit 0
fi

make_job job </dev/null
sed -i 's/^max_steps: 20/max_steps: 400/; s/^save_steps: 5/save_steps: 50/' job/job.yaml
export HYPER_TEST_MARK="$WORK" # by which this script's processes are known

begin() { # LAUNCH-OPTIONS -- VERB ...: in the background, as $launcher
  rm -rf several
  "$HYPER" launch "$@" >out 2>err </dev/null &
  launcher=$!
  t_cmd="launch $*"
}
ended() { # waits for it
  status=0
  wait "$launcher" || status=$?
}
pid_of() { # process id of a rank, once it is there
  while kill -0 "$launcher" 2>/dev/null; do
    for p in $(grep -lzxF "HYPER_TEST_MARK=$WORK" /proc/[0-9]*/environ 2>/dev/null |
      xargs grep -lzx "OMPI_COMM_WORLD_RANK=$1" 2>/dev/null | sed 's|/proc/\([0-9]*\)/.*|\1|'); do
      [ "$(cat "/proc/$p/comm" 2>/dev/null)" != hyper ] || { echo "$p"; return; }
    done
    sleep 0.01
  done
}
wait_for() { # a path, while the job runs
  while [ ! -e "$1" ] && kill -0 "$launcher" 2>/dev/null; do sleep 0.01; done
}
two() { begin -n 2 "$@" -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several; }

run train job/job.yaml strategy=dp=2,zero=1 output_dir=alone
exit_is 0

it "after kill -9 of a process the job goes on to the same bits"
for rank in 0 1; do
  two --max-restarts 1
  victim=$(pid_of $rank)
  wait_for several/checkpoint-50
  kill -9 "$victim"
  ended
  exit_is 0
  err_has "process $rank ($(hostname), pid $victim) was ended by signal 9"
  err_has "starting the job again from its last checkpoint (1 of 1)"
  err_has "continuing from several/checkpoint-"
  same_file alone/model.safetensors several/model.safetensors
  same_history alone several
done

it "a job that was to begin anew goes on from what it wrote, not from before"
begin -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several overwrite_output_dir=true
victim=$(pid_of 1)
wait_for several/checkpoint-50
kill -9 "$victim"
ended
exit_is 0
err_has "continuing from several/checkpoint-"
same_file alone/model.safetensors several/model.safetensors

it "a process that is stopped is found and named, and the job goes on to the same bits"
two --watchdog 1
victim=$(pid_of 1)
wait_for several/checkpoint-50
kill -STOP "$victim"
ended
exit_is 0
err_has "process 1 ($(hostname), pid $victim) has not been heard of for 1 s"
err_has "process 0 waits for it"
same_file alone/model.safetensors several/model.safetensors

it "a process that hangs is named with its stream and its instruction"
printf 'device: {flops: 1e10, bandwidth_gb_s: 10}\nlinks: [{bandwidth_gb_s: 1, latency_us: 1e9}]\nemulate: true\n' >slow.yaml
begin -n 2 --watchdog 0.5 --max-restarts 0 -- train job/job.yaml strategy=dp=2 output_dir=several hyper_parallel.cluster=slow.yaml
ended
exit_is 1
err_has " hangs: for "
err_has "in stream comm, instruction "
err_has "comm: b"
err_has "all_reduce"
err_has "the job is not started again"

it "a signal to one process saves and ends all, and is no reason to start again"
two
victim=$(pid_of 1)
wait_for several/checkpoint-50
kill -TERM "$victim"
ended
exit_is 0
err_has "SIGTERM: writing a checkpoint"
err_lacks "starting the job again"
no_file several/model.safetensors

it "so does Ctrl-C at the launcher, and the run can be continued"
two
wait_for several/checkpoint-50
kill -INT "$launcher"
ended
exit_is 0
err_has "SIGINT: writing a checkpoint"
run launch -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several
exit_is 0
same_file alone/model.safetensors several/model.safetensors

it "a full disk on one process costs no job that goes on until there is space again"
if command -v prlimit >/dev/null; then
  two
  victim=$(pid_of 1)
  wait_for several/checkpoint-50
  prlimit --pid "$victim" --fsize=1000:unlimited
  while kill -0 "$launcher" 2>/dev/null && ! grep -q "could not be written" err; do sleep 0.02; done
  prlimit --pid "$victim" --fsize=unlimited:unlimited 2>/dev/null
  ended
  exit_is 0
  err_has "File too large"
  err_has "training goes on, the next try is in 1 s"
  err_lacks "starting the job again"
  same_file alone/model.safetensors several/model.safetensors
  same_history alone several

  it "and ends the job with its message after max_failed_saves"
  begin -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several max_failed_saves=2
  victim=$(pid_of 1)
  wait_for several/checkpoint-50
  prlimit --pid "$victim" --fsize=1000
  ended
  exit_is 2
  err_has "process 1 on $(hostname): "
  err_has "File too large"
  err_lacks "starting the job again"
  is_file several/checkpoint-50/MANIFEST.json
else
  skip "no prlimit"
fi

it "what is no training is not started again"
begin -n 2 -- train job/job.yaml strategy=dp=2 output_dir=nowhere/job.yaml/x max_steps=nonsense
ended
exit_is 2
err_lacks "again"
run launch -n 2 --starter mpirun -- eval --model job/model --tokens 1,2,3 --strategy dp=2
exit_is 2
err_lacks "again"
run launch -n 2 --hostfile nowhere -- doctor
exit_is 1
err_has "the processes were not started"
