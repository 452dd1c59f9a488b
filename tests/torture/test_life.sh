#!/bin/sh
# Kills at random instants of the whole life of a job, from exec to exit: whatever is killed, and when,
# the job that is begun again ends with the same bits, leaves no process and no file behind.
# KILLS: of all forms together (200).
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

KILLS=${KILLS:-200}

now() { date +%s.%N; }
# A number from 0 to $1 as $random, another at each call: not to be called in $(...), which forgets.
draw() {
  drawn=$((drawn + 1))
  random=$(awk -v s="$drawn" -v t="$1" 'BEGIN { srand(s); print rand() * t }')
}
drawn=0
# Files of a folder, without those that only time decides.  A signal that comes before a kill makes
# the run save at another step.
files_of() {
  (cd "$1" && find . -type f | grep -v '/runs/' | sed 's/checkpoint-[0-9]*/checkpoint-N/' | sort)
}
same_end() {
  same_file whole/model.safetensors job/out/model.safetensors
  same_history whole job/out
  files_of whole >files.1
  files_of job/out >files.2
  comm -13 files.1 files.2 >left
  [ ! -s left ] || fail "files are left behind: $(cat left)"
  # what a run tells of its times is lost with the process that measured them
  comm -23 files.1 files.2 | grep -v 'op_times.json\|report.html' >missing
  [ ! -s missing ] || fail "files are missing: $(cat missing)"
}

# victim FORM RANK: a process to kill, which is there by now
victim() {
  case $1 in
    launcher) echo "$job" ;;
    rank) job_processes | awk -v r="$2" '$2 == int(r) { print $1 }' | head -n 1 ;;
    *) echo "$job" ;;
  esac
}

# life NAME KILLS FORM COMMAND...: begins the job until it has been killed so often and has ended
life() {
  name=$1 kills=$2 form=$3
  shift 3
  killed=0 tries=0 ended=0
  rm -rf job/out
  while [ $killed -lt "$kills" ] || [ $ended = 0 ]; do
    tries=$((tries + 1))
    [ $tries -lt $((4 * kills + 20)) ] || { fail "$name: did not end in $tries tries"; return; }
    "$@" >out 2>err </dev/null &
    job=$!
    if [ $killed -lt "$kills" ]; then
      draw "$seconds"
      sleep "$random"
      draw 4
      v=$(victim "$form" "$random")
      if [ -n "$v" ] && kill -9 "$v" 2>/dev/null; then killed=$((killed + 1)); fi
    fi
    code=0
    wait $job || code=$?
    no_orphan "$name, kill $killed"
    ended=0
    case $code in
      0) ended=1; same_end; [ $killed -ge "$kills" ] || rm -rf job/out ;;
      137) ;;
      *) [ "$form" = rank ] && grep -q 'not started again' err ||
           { status=$code t_cmd="$*"; t_show; tail -n 3 err; fail "$name: ended with $code"; return; } ;;
    esac
  done
  echo "  $name: $killed kills in $tries tries"
}

make_job job <<END
save_total_limit: 2
END
sed -i 's/^max_steps: 20/max_steps: 60/' job/job.yaml

# whole COMMAND...: the job left alone, which says how long one takes
whole() {
  rm -rf whole
  start=$(now)
  run_cmd "$@" output_dir=whole
  exit_is 0
  seconds=$(echo "$start $(now)" | awk '{ print ($2 - $1) * 1.1 }')
}

it "one process, one device"
whole "$HYPER" train job/job.yaml
life one $((KILLS * 3 / 10)) all "$HYPER" train job/job.yaml
it "one process, four devices"
whole "$HYPER" train job/job.yaml strategy=dp=2,tp=2,zero=1
life four $((KILLS * 2 / 10)) all "$HYPER" train job/job.yaml strategy=dp=2,tp=2,zero=1

it "four processes: one of them is killed, and the launcher begins again"
if ! command -v mpirun >/dev/null || [ ! -e "$B/hyper_mpi.so" ]; then
  skip "no mpirun, or no mpicc when hyper was built"
  exit 0
fi
set -- "$HYPER" launch -n 4 --max-restarts 20 -- train job/job.yaml strategy=dp=2,tp=2,zero=1
whole "$@"
life ranks $((KILLS * 3 / 10)) rank "$@"
it "four processes: the launcher is killed, and all go with it"
life launcher $((KILLS * 2 / 10)) launcher "$@"
