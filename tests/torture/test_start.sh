#!/bin/sh
# Kills and stops at instants of the first second of a job: a rank, mpirun or the launcher.  What dies
# or stands still is found, the job goes on to the same bits, and no process is left.
# STEP: seconds between two instants (0.1).
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

it "a start that is killed or stopped at any instant is watched"
if ! command -v mpirun >/dev/null || [ ! -e "$B/hyper_mpi.so" ]; then
  skip "no mpirun, or no mpicc when hyper was built"
  exit 0
fi
make_job job </dev/null
set -- -n 3 --watchdog 6 --max-restarts 2 -- train job/job.yaml strategy=dp=3,zero=1
run launch "$@" output_dir=whole
exit_is 0

starter_of() { # process id of mpirun, once it is there
  while kill -0 "$launcher" 2>/dev/null; do
    for p in $(cat "/proc/$launcher/task/$launcher/children" 2>/dev/null); do
      [ "$(cat "/proc/$p/comm" 2>/dev/null)" = mpirun ] && { echo "$p"; return; }
    done
    sleep 0.01
  done
}
victim() {
  case $1 in
    launcher) echo "$launcher" ;;
    mpirun) starter_of ;;
    *) pid_of "$1" ;;
  esac
}

# hit SIGNAL WHO SECONDS COMMAND...: what became of it is in $status
hit() {
  how=$1 who=$2 at=$3
  shift 3
  rm -rf job/out
  "$HYPER" launch "$@" >out 2>err </dev/null &
  launcher=$!
  sleep "$at"
  v=$(victim "$who")
  [ -z "$v" ] || kill -"$how" "$v" 2>/dev/null
  status=0
  { wait $launcher || status=$?; } 2>/dev/null
  t_cmd="$how $who at $at s: launch $*"
  no_orphan "$t_cmd"
  hits=$((hits + 1))
  if grep -q 'starting the job again' err; then restarts=$((restarts + 1)); fi
}
went_on() {
  exit_is 0
  same_file whole/model.safetensors job/out/model.safetensors
  same_history whole job/out
}

hits=0 restarts=0
for at in $(seq 0 "${STEP:-0.1}" 1); do
  for who in 0 1 2; do
    hit KILL $who "$at" "$@"
    went_on
    hit STOP $who "$at" "$@"
    went_on
  done
  hit KILL mpirun "$at" "$@"
  went_on
  hit KILL launcher "$at" "$@"
  exit_is 137
done
echo "  $hits times, $restarts of which began again"
[ $restarts -gt $((hits / 2)) ] || fail "too few began again: the instants do not hit"
