# For scripts that start jobs of several processes, and look for those processes.  Sourced after
# lib.sh.

export HYPER_TEST_MARK="$WORK" # by which they are known

# From here on jobs are processes over sockets, with the mpirun of the tests; or over MPI, where there
# is one: else the test is skipped, and that is false.
own_path=$PATH
over_sockets() {
  PATH=$B/stand-in:$own_path HYPER_MPI=$B/stand-in/hyper_sockets.so
  export PATH HYPER_MPI
}
over_mpi() {
  PATH=$own_path
  unset HYPER_MPI
  command -v mpirun >/dev/null || { skip "no mpirun; tools/bootstrap mpi installs it"; return 1; }
  [ -e "$B/hyper_mpi.so" ] || { skip "no hyper_mpi.so: there was no mpicc when hyper was built"; return 1; }
  case $(mpirun --version) in *"(Open MPI) "[5-9]*) mpirun_without_q ;; esac
}
# Scripts say mpirun -q, which Open MPI has up to version 4.
mpirun_without_q() {
  mkdir -p "$WORK/without-q"
  printf '#!/bin/sh\n[ "$1" != -q ] || shift\nexec %s "$@"\n' "$(command -v mpirun)" >"$WORK/without-q/mpirun"
  chmod +x "$WORK/without-q/mpirun"
  PATH=$WORK/without-q:$own_path
}

# Processes of this script's jobs that are alive, with their ranks, and who started them: "PID RANK".
job_processes() {
  for p in $(grep -lzxF "HYPER_TEST_MARK=$WORK" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
    case $(cat "/proc/$p/comm" 2>/dev/null) in hyper | mpirun) ;; *) continue ;; esac
    case $(sed -n 's/^State:\t//p' "/proc/$p/status" 2>/dev/null) in Z* | '') continue ;; esac
    echo "$p $(cat "/proc/$p/environ" 2>/dev/null | tr '\0' '\n' |
      sed -n 's/^OMPI_COMM_WORLD_RANK=//p; s/^PMI_RANK=//p; s/^SLURM_PROCID=//p' | head -n 1)"
  done
}
no_orphan() { # within 10 s
  i=0
  while [ -n "$(job_processes)" ] && [ $i -lt 100 ]; do
    sleep 0.1
    i=$((i + 1))
  done
  [ -z "$(job_processes)" ] || { fail "$1: left running: $(job_processes)"; job_processes | cut -d' ' -f1 | xargs kill -9; }
}
# Process id of a rank of the job whose launcher is $launcher, once it is there.
pid_of() {
  while kill -0 "$launcher" 2>/dev/null; do
    found=$(job_processes | awk -v r="$1" '$2 == r { print $1 }' | head -n 1)
    [ -z "$found" ] || { echo "$found"; return; }
    sleep 0.01
  done
}

# --- a job in the background, $launcher, that writes into several, and its run without failures, alone

ended() { # waits for it
  status=0
  { wait "$launcher" || status=$?; } 2>/dev/null # where a shell tells of signals
}
wait_for() { # a path, while the job runs
  while [ ! -e "$1" ] && kill -0 "$launcher" 2>/dev/null; do sleep 0.01; done
}
goes_on_after_kill() { # START RANK ...: a function that starts the job with options of launch
  start=$1
  shift
  for rank; do
    "$start" --max-restarts 1
    victim=$(pid_of "$rank")
    wait_for several/checkpoint-50
    kill -9 "$victim"
    ended
    exit_is 0
    err_has "process $rank ($(hostname), pid $victim) was ended by signal 9"
    err_has "starting the job again from its last checkpoint (restart 1 of 1 without a newer one)"
    err_has "continuing from several/checkpoint-"
    same_file alone/model.safetensors several/model.safetensors
    same_history alone several
  done
}
goes_on_after_stop() { # START, RANK, RANK that waits for it
  "$1" --watchdog 6
  victim=$(pid_of "$2")
  wait_for several/checkpoint-50
  kill -STOP "$victim"
  ended
  exit_is 0
  err_has "process $2 ($(hostname), pid $victim) has not been heard of for 6 s"
  err_has "process $3 waits for it"
  same_file alone/model.safetensors several/model.safetensors
}
