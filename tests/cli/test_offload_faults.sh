#!/bin/sh
# What befalls the flash tier while a run trains with it: the run ends within seconds, with the tensor
# and the path, on one device, several and several processes; its last checkpoint goes on with the
# same bits.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

if ! "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o fault.so "$ROOT/tests/torture/preload_fault.c" -ldl 2>err; then
  it "a flash tier that fails ends a run"
  skip "no compiler"
  exit 0
fi
mkdir fla.sh
tiers="offload=weights=host,optimizer=flash flash=fla.sh flash_limit=8MiB host_limit=8MiB"
make_job job <<END
threads: 1
END
fix_batch job/job.yaml

# by WAY: $how trains with $keys, and ./whole is the run that nothing befalls
by() {
  how=$HYPER keys=$tiers
  case $1 in
    four) keys="$tiers strategy=dp=2,tp=2" ;;
    processes) how="$HYPER launch -n 2 --max-restarts 0 --" keys="$tiers strategy=dp=2,zero=1" ;;
  esac
  rm -rf whole
  run_cmd $how train job/job.yaml output_dir=whole $keys
  exit_is 0
}

# The last checkpoint before the fault is there, and the run goes on from it.
goes_on() {
  is_file hurt/checkpoint-5/MANIFEST.json
  no_file hurt/model.safetensors
  run_cmd $how train job/job.yaml output_dir=hurt $keys
  exit_is 0
  err_has "continuing from hurt/checkpoint-"
  same_file hurt/model.safetensors whole/model.safetensors
  for f in hurt/checkpoint-20/*.safetensors; do same_file "$f" "whole/checkpoint-20/${f##*/}"; done
  same_history hurt whole
  [ -z "$(ls -A fla.sh)" ] || fail "left in the folder: $(ls -A fla.sh)"
}

# ends CODE TEXT...: so it ended, with one message that has the tensor, the path and these words
ends() {
  exit_is "$1"
  shift
  grep -q '"[mv]\.model\.[a-z0-9_.]*" on tier flash, path "fla.sh"' err || { fail "no tensor and path"; t_show; }
  for t_word; do err_has "$t_word"; done
}

# Files of the tier of the processes that are stopped or wait: nameless, but open.
flash_files() {
  for p in $(job_processes | cut -d' ' -f1); do
    for f in /proc/"$p"/fd/*; do
      case $(readlink "$f") in */fla.sh/*deleted*) echo "$f" ;; esac
    done
  done
}

stopped() {
  for p in $(job_processes | cut -d' ' -f1); do
    ! grep -q '^State:.T' "/proc/$p/status" 2>/dev/null || echo "$p"
  done
}

# befalls COMMAND: a run that stops itself after its 8th step goes on when the command, given the
# files of the tier, has been at them; it must end within 30 s.
befalls() {
  rm -rf hurt
  env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=write FAULT_PATH=hurt/trainer_log FAULT_AT=8 FAULT_STOP=1 \
    timeout -k 1 60 $how train job/job.yaml output_dir=hurt $keys >out 2>err </dev/null &
  launcher=$! t_cmd="$how train $keys, $*"
  while [ -z "$(stopped)" ] && kill -0 $launcher 2>/dev/null; do sleep 0.05; done
  files=$(flash_files)
  [ -n "$files" ] || fail "no file of the tier was found"
  for f in $files; do "$@" "$f" 2>said || fail "$*: $(cat said)"; done
  began=$(date +%s)
  while kill -0 $launcher 2>/dev/null; do # one that is started again stops again
    for p in $(stopped); do kill -CONT "$p"; done
    sleep 0.05
  done
  status=0
  wait $launcher || status=$?
  [ $(($(date +%s) - began)) -lt 30 ] || fail "it ended after $(($(date +%s) - began)) s only"
}
overwrite() { dd if=/dev/urandom of="$1" bs=64k count=128 conv=notrunc; }

# fails "CALL ERRNO FROM" ...: a run in which calls on files of the tier fail, from one on
fails() {
  set -- $1
  rm -rf hurt
  run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=$1 FAULT_ERRNO=$2 FAULT_AT=$3 FAULT_FOR=1000000 FAULT_PATH=fla.sh \
    FAULT_CALLS=1 FAULT_ROOM=1 timeout -k 1 60 $how train job/job.yaml output_dir=hurt $keys
}
# How many calls a process of such a run makes on files of the tier.
count_calls() {
  run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_PATH=fla.sh FAULT_CALLS=1 FAULT_ROOM=1 FAULT_COUNT="$WORK/count.$1" \
    $how train job/job.yaml output_dir=counted.$1 $keys
  exit_is 0
}

truncated() {
  it "$way: a flash file that is truncated is named"
  befalls truncate -s 4096
  ends 1 "another program has truncated it"
  goes_on
}
overwritten() {
  it "$way: what another program writes there is found"
  befalls overwrite
  ends 1 "are not those that were written (checksum)"
  goes_on
}
disk_fails() { # "CALL ERRNO"...
  for fault; do
    it "$way: a disk on which a call fails is named ($fault)"
    n=$(sed -n "s/^${fault% *} //p" "count.$way")
    fails "$fault $((n / 2))"
    word="Input/output error"
    [ "$fault" != "write 28" ] || word="No space left on device"
    ends 1 "cannot be" "$word"
    goes_on
  done
}
full() {
  it "$way: a disk that is too full for the tier is told before anything runs"
  run_cmd env LD_PRELOAD="$WORK/fault.so" FAULT_CALL=room FAULT_ERRNO=28 FAULT_AT=1 FAULT_PATH=fla.sh \
    $how train job/job.yaml output_dir=none $keys
  exit_is 2
  err_has "flash path \"fla.sh\": "
  err_has " bytes cannot be taken: No space left on device"
  err_has "lower flash_limit"
  no_file none/checkpoint-5
}
# Each of them by two ways at most: what is told is one function's.
for way in one four processes; do
  by $way
  if [ $way = processes ]; then cp count.one count.$way; else count_calls $way; fi
  case $way in
    one) truncated; overwritten; disk_fails "read 5" "write 5" "write 28"; full ;;
    four) truncated; disk_fails "write 28" ;;
    processes) overwritten; disk_fails "read 5"; full ;;
  esac
done

# While a job is stopped in the middle, another one names the same folder.
second_job() {
  status=0
  "$HYPER" train job/job.yaml output_dir=second $tiers >second.out 2>second.err </dev/null || status=$?
  [ $status = 2 ] || fail "exit code $status of the second job"
  grep -q 'flash path "fla.sh": another job' second.err || fail "$(cat second.err)"
}
for way in one processes; do
  it "$way: a second job on the same folder is refused, and the first goes on"
  by $way
  befalls second_job
  exit_is 0
  same_file hurt/model.safetensors whole/model.safetensors
done

it "a rank that is killed is named, the job starts again, and nothing of its memory is left"
by processes
how="$HYPER launch -n 2 --max-restarts 1 --restart-pause 0.1 --"
kill_rank() { # once: by the file of the second
  victim=$(job_processes | awk '$2 == 1 { print $1 }')
  ls -l "/proc/$victim/fd" | grep -q hyper-shared-memory || fail "the ranks share no memory"
  case $1 in /proc/"$victim"/*) kill -9 "$victim" ;; esac
}
befalls kill_rank
exit_is 0
err_has "continuing from hurt/checkpoint-5"
err_has "process 1 ($(hostname), pid $victim) was ended by signal 9"
same_file hurt/model.safetensors whole/model.safetensors
same_history hurt whole
no_orphan "the killed job"
[ -z "$(ls -A fla.sh)" ] || fail "left in the folder: $(ls -A fla.sh)"
