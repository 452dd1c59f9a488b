#!/bin/sh
# Signals to `hyper train` and `hyper launch -- train` once there are steps: a checkpoint, an exit code,
# a word, and nothing left behind.  test_train_ends.sh has those that come before the first step.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

# Waits in every fsync of a file whose path has $SLOW in it until the file `go` is there.
write slow.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd) {
  char link[64], path[4096];
  const char *part = getenv("SLOW");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = part ? readlink(link, path, sizeof path - 1) : 0;
  path[n > 0 ? n : 0] = 0;
  for (int i = 0; n > 0 && strstr(path, part) && access("go", F_OK) && i < 2000; i++) {
    if (!i) fclose(fopen("waits", "w"));
    usleep(10000);
  }
  return (int)syscall(SYS_fsync, fd);
}
END
"${CC:-cc}" -shared -fPIC -o slow.so slow.c || exit 1

make_job job </dev/null
sed -i 's/^max_steps: 20/max_steps: 200/; s/^save_steps: 5/save_steps: 50/' job/job.yaml
run train job/job.yaml output_dir=whole
exit_is 0

begin() { # COMMAND...: in the background, as $pid, in a process group of its own
  rm -rf out1 go waits
  t_cmd=$*
  setsid "$@" >out 2>err </dev/null &
  pid=$! launcher=$!
}
train() { begin "$HYPER" train job/job.yaml output_dir=out1 "$@"; }
wait_for() { # a path, while it runs
  while [ ! -e "$1" ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
}
ended() {
  status=0
  { wait $pid || status=$?; } 2>/dev/null # where a shell tells of signals
}
# It ended with its newest checkpoint, the one of the step that it tells, and nothing else.
saved_by() { # SIGNAL
  exit_is 0
  step=$(sed -n "s/.*$1: writing a checkpoint at step \([0-9]*\), then ending.*/\1/p" err)
  [ -n "$step" ] || { fail "no word of $1"; t_show; return; }
  is_file out1/checkpoint-$step/MANIFEST.json
  nothing_left
}
nothing_left() {
  no_file out1/run.lock
  no_file out1/model.safetensors
  [ -z "$(ls -A out1 | grep '^\.\|\.tmp\.')" ] || fail "left behind: $(ls -A out1)"
}
goes_on() { # COMMAND...: begun again it ends as if it had been left alone
  run "$@"
  exit_is 0
  err_has "continuing from out1/checkpoint-$step"
  same_file whole/model.safetensors out1/model.safetensors
  same_history whole out1
}

it "SIGTERM, SIGINT, SIGUSR1 and SIGHUP write a checkpoint after the step, and the run goes on from there"
for sig in TERM INT USR1 HUP; do
  train
  wait_for out1/checkpoint-50
  kill -$sig $pid
  ended
  saved_by SIG$sig
done
goes_on train job/job.yaml output_dir=out1

it "so does a terminal that is closed"
if command -v script >/dev/null; then
  rm -rf out1 && mkfifo never
  script -qc "'$HYPER' train job/job.yaml output_dir=out1; echo \$? >code" /dev/null <>never >screen &
  pid=$!
  wait_for out1/checkpoint-50
  kill -9 $pid
  { wait $pid; } 2>/dev/null
  for i in $(seq 100); do [ -e out1/run.lock ] && sleep 0.1; done
  nothing_left
  step=$(ls out1 | sed -n 's/^checkpoint-//p' | sort -n | tail -n 1)
  goes_on train job/job.yaml output_dir=out1
else
  skip "no script"
fi

it "under nohup the terminal may go"
rm -rf out1
begin sh -c 'trap "" HUP; exec "$@"' sh "$HYPER" train job/job.yaml output_dir=out1
wait_for out1/checkpoint-50
kill -HUP $pid
ended
exit_is 0
err_lacks SIGHUP
same_file whole/model.safetensors out1/model.safetensors

it "a signal while a checkpoint is written waits for it, and no other is written"
LD_PRELOAD=$PWD/slow.so SLOW=checkpoint-100 train
wait_for waits
kill -TERM $pid
: >go
ended
saved_by SIGTERM
[ "$step" = 100 ] || fail "saved at step $step"
[ "$(ls -d out1/checkpoint-* | tr '\n' ' ')" = "out1/checkpoint-100 out1/checkpoint-50 " ] || fail "$(ls out1)"

it "a second Ctrl-C ends at once, and what was being written is no checkpoint"
LD_PRELOAD=$PWD/slow.so SLOW=checkpoint-100 train
wait_for waits
kill -INT $pid
sleep 0.3 # two at once would be one
kill -INT $pid
ended
exit_is 130
no_file out1/checkpoint-100
is_file out1/checkpoint-50/MANIFEST.json
step=50
goes_on train job/job.yaml output_dir=out1
no_file "$(ls -d out1/.tmp-* 2>/dev/null)"

it "but not the second SIGHUP of a terminal that closes, nor another signal"
for second in HUP TERM; do
  LD_PRELOAD=$PWD/slow.so SLOW=checkpoint-100 train
  wait_for waits
  kill -HUP $pid
  sleep 0.1
  kill -$second $pid
  : >go
  ended
  saved_by SIG$second
  [ "$step" = 100 ] || fail "saved at step $step"
done

it "several devices of one process save, too"
train strategy=dp=2,zero=1
wait_for out1/checkpoint-50
kill -INT $pid
ended
saved_by SIGINT

over_sockets
job() { begin "$HYPER" launch -n 2 "$@" -- train job/job.yaml strategy=dp=2,zero=1 output_dir=out1; }
run train job/job.yaml strategy=dp=2,zero=1 output_dir=whole overwrite_output_dir=true
exit_is 0

it "a job of several processes ends by SIGUSR1 to its launcher"
job
wait_for out1/checkpoint-50
kill -USR1 $pid
ended
saved_by SIGUSR1
err_lacks "starting the job again"
no_orphan SIGUSR1

it "and by Ctrl-C of a terminal, which all of the launcher's group get"
job
wait_for out1/checkpoint-50
kill -INT -$pid
ended
saved_by SIGINT
err_lacks "starting the job again"
no_orphan "Ctrl-C"
goes_on launch -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=out1

it "and by a terminal that closes, which says so twice, but not under nohup"
job
wait_for out1/checkpoint-50
kill -HUP -$pid
sleep 0.2
kill -HUP $pid 2>/dev/null
ended
saved_by SIGHUP
err_lacks "starting the job again"
no_orphan SIGHUP
begin nohup "$HYPER" launch -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=out1
wait_for out1/checkpoint-50
kill -HUP $pid
ended
exit_is 0
err_lacks "SIGHUP"
same_file whole/model.safetensors out1/model.safetensors

it "a signal before its first step is no reason to start again, and leaves no process"
job
while [ -z "$(job_processes | awk '$2 == 1')" ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
kill -INT $pid
ended
err_lacks "starting the job again"
no_orphan "at the start"

it "a second Ctrl-C ends all of it at once"
export LD_PRELOAD="$PWD/slow.so" SLOW=checkpoint-100
job
unset LD_PRELOAD SLOW
wait_for waits
kill -INT $pid
sleep 0.3
kill -INT $pid
ended
[ "$status" != 0 ] || fail "exit code 0"
no_file out1/checkpoint-100
is_file out1/checkpoint-50/MANIFEST.json
no_orphan "second Ctrl-C"
step=50
goes_on launch -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=out1
[ -z "$(ls -d out1/.tmp-* 2>/dev/null)" ] || fail "left behind: $(ls -A out1)"

it "a process that is stopped for less than the patience is no alarm"
job --watchdog 10
victim=$(pid_of 1)
wait_for out1/checkpoint-50
kill -STOP "$victim"
sleep 2
kill -CONT "$victim"
ended
exit_is 0
err_lacks "has not been heard"
err_lacks "starting the job again"
same_file whole/model.safetensors out1/model.safetensors
