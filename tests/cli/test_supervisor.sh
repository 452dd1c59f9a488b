#!/bin/sh
# `hyper launch` as the supervisor of a job: processes that die, stop or hang, signals, a full disk.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

# A starter that is none: answers as Open MPI's does, then runs what standard input says.
fake_starter() { # NAME
  { echo '#!/bin/sh'
    echo 'if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi'
    cat; } >"$1"
  chmod +x "$1"
}
lives() { grep -q "^State:.[^ZX]" "/proc/$1/status" 2>/dev/null; }
launch_with() { # STARTER [LAUNCH-OPTIONS...]: a training run that is never begun
  starter=$1
  shift
  rm -f started
  run_cmd env HYPER_MPI="$WORK/lib.sh" "$HYPER" launch -n 2 --restart-pause 0.2 --starter "$WORK/$starter" "$@" -- train nothing.yaml
}
echo >lib.sh

it "processes that are not heard within the patience, from the start, are named"
fake_starter sleeps <<'END'
echo $$ >>started
exec sleep 1000
END
launch_with sleeps --watchdog 0.6 --max-restarts 1
exit_is 1
err_has "processes 0, 1 of 2 have not been heard within 0.6 s of the start"
err_has "(restart 1 of 1 without a newer one)"
err_has "the job is not started again"
[ "$(wc -l <started)" = 2 ] || fail "started $(wc -l <started) times, not twice"
for p in $(cat started); do ! lives "$p" || fail "the starter $p is still there"; done

it "a death before the first heartbeat is a death, and restarts that bring nothing are counted"
fake_starter dies <<'END'
echo >>started
exit 137
END
launch_with dies --max-restarts 2
exit_is 1
err_has "a process, before it was heard, was ended by signal 9"
err_has "(restart 1 of 2 without a newer one), in 0.2 s"
err_has "(restart 2 of 2 without a newer one), in 0.4 s"
[ "$(wc -l <started)" = 3 ] || fail "started $(wc -l <started) times, not 3"

it "a job that is asked to end while it pauses is not started again"
rm -f started err
HYPER_MPI="$WORK/lib.sh" "$HYPER" launch -n 2 --starter "$WORK/dies" -- train nothing.yaml >out 2>err </dev/null &
launcher=$!
while kill -0 $launcher 2>/dev/null && ! grep -qs ", in 2 s" err; do sleep 0.02; done
kill -TERM $launcher
status=0 t_cmd="launch, SIGTERM in a pause"
{ wait $launcher || status=$?; } 2>/dev/null
exit_is 1
err_has "(restart 1 of 3 without a newer one), in 1 s" # what --help says
err_has "; the job had been told to stop"
[ "$(wc -l <started)" = 2 ] || fail "started $(wc -l <started) times, not twice"

it "what cannot be started is not started again"
fake_starter fails <<'END'
echo >>started
exit 1
END
launch_with fails
exit_is 1
err_has "the processes were not started (exit code 1)"
[ "$(wc -l <started)" = 1 ] || fail "started $(wc -l <started) times"

it "what the starter prints is all there, each stream on its own, before the launcher's last words"
fake_starter prints <<'END'
i=0
while [ $((i += 1)) -le 3000 ]; do
  echo "line $i of standard output"
  echo "line $i of standard error" >&2
done
exit 1
END
launch_with prints
exit_is 1
seq -f 'line %.0f of standard output' 3000 | cmp -s - out || fail "standard output differs"
grep "^line" err >lines
seq -f 'line %.0f of standard error' 3000 | cmp -s - lines || fail "standard error differs"
tail -n 1 err | grep -q "the processes were not started (exit code 1)" || fail "ends with: $(tail -n 1 err)"

it "output that a full disk does not take is told, once"
HYPER_MPI="$WORK/lib.sh" "$HYPER" launch -n 2 --starter "$WORK/prints" -- train nothing.yaml >/dev/full 2>err </dev/null
[ "$(grep -c "standard output of the job cannot be written: No space left on device" err)" = 1 ] || { fail "not told once"; t_show; }
[ "$(grep -c "^line" err)" = 3000 ] || fail "standard error suffers, too"

it "the starter ends when its launcher is killed"
rm -f started
HYPER_MPI="$WORK/lib.sh" "$HYPER" launch -n 2 --starter "$WORK/sleeps" -- train nothing.yaml >out 2>err </dev/null &
launcher=$!
while [ ! -s started ] && kill -0 $launcher; do sleep 0.01; done
kill -9 $launcher
{ wait $launcher; } 2>/dev/null
victim=$(cat started)
for i in 1 2 3 4 5 6 7 8 9; do ! lives "$victim" || sleep 0.2; done
! lives "$victim" || fail "the starter outlives its launcher"

it "and when it does not listen to SIGTERM, or is stopped"
fake_starter deaf <<'END'
trap '' TERM
echo $$ >>started
while :; do sleep 0.1; done
END
for how in CONT STOP; do
  rm -f started
  HYPER_MPI="$WORK/lib.sh" "$HYPER" launch -n 2 --starter "$WORK/deaf" -- train nothing.yaml >out 2>err </dev/null &
  launcher=$!
  while [ ! -s started ] && kill -0 $launcher; do sleep 0.01; done
  victim=$(cat started)
  kill -$how "$victim"
  kill -9 $launcher
  { wait $launcher; } 2>/dev/null
  for i in 1 2 3 4 5 6 7 8 9; do ! lives "$victim" || sleep 1; done
  ! lives "$victim" || fail "after SIG$how the starter outlives its launcher"
  no_orphan "$how"
done

it "the port is bound to what the processes reach, and its key is in no argument"
fake_starter shows <<'END'
echo "$@" >arguments
env >environment
exit 1
END
launch_with shows
said() { sed -n 's/^HYPER_SUPERVISOR=//p' environment; }
key=$(said | cut -d: -f3)
[ ${#key} = 64 ] || fail "no key of 64 digits in $(said)"
[ "$(said | cut -d: -f1)" = 127.0.0.1 ] || fail "listens at $(said | cut -d: -f1)"
! grep -qF "$key" arguments err || fail "the key is told"
grep -qF -e "-x HYPER_SUPERVISOR" arguments || fail "its name is not"
grep -q "^-q --bind-to none .*-n 2 .*/hyper train nothing.yaml$" arguments ||
  fail "processes that share the cores out themselves are started with: $(cat arguments)"
sed 's/4\.1\.4/5.0.3/' shows >shows5 # which has no -q
chmod +x shows5
launch_with shows5
grep -q "^--bind-to none .*-n 2 " arguments || fail "Open MPI 5 is started with: $(cat arguments)"
echo "localhost slots=2 # this one" >hosts
launch_with shows --hostfile hosts
[ "$(said | cut -d: -f1)" = 127.0.0.1 ] || fail "with this machine alone listens at $(said)"
[ "$(said | cut -d: -f3)" != "$key" ] || fail "the key is that of another job"
launch_with shows --interface lo
[ "$(said | cut -d: -f1)" = 127.0.0.1 ] || fail "at interface lo listens at $(said)"
launch_with shows --interface nosuch0
refused "--interface nosuch0: no such interface" "lo (127.0.0.1)"
if command -v ip >/dev/null && own=$(ip -4 route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p') && [ -n "$own" ]; then
  printf '# two\nlocalhost:2\n\n 192.0.2.1 slots=2\n' >hosts
  launch_with shows --hostfile hosts
  [ "$(said | cut -d: -f1)" = "$own" ] || fail "for 192.0.2.1 listens at $(said), not $own"
  export SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=127.0.0.1,192.0.2.[001-2,7]
  launch_with shows
  [ "$(said | cut -d: -f1)" = "$own" ] || fail "for the nodes of a Slurm job listens at $(said)"
  SLURM_JOB_NODELIST=127.0.0.[1-2,7]
  launch_with shows
  [ "$(said | cut -d: -f1)" = 127.0.0.1 ] || fail "for nodes that are this one listens at $(said)"
  for bad in node[x] node[99999999999999999999] node[1-99999999999999999999] node[1234567890] node[1-] \
    node[1-+4] node[4-1] node[1-9999]; do
    SLURM_JOB_NODELIST=$bad
    launch_with shows
    refused "$bad: expected names such as node[1-4,7]"
  done
  export SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=192.0.2.1
  launch_with shows
  [ "$(said | cut -d: -f1)" = "$own" ] || fail "for one node that is another listens at $(said)"
  unset SLURM_JOB_ID SLURM_JOB_NUM_NODES SLURM_JOB_NODELIST
fi

it "the time without options is a minute, as --help says"
launch_with shows
[ "$(said | cut -d: -f4-)" = 1000:60001 ] || fail "heartbeats and patience in ms are $(said | cut -d: -f4-)"
launch_with shows --watchdog 4
[ "$(said | cut -d: -f4-)" = 500:4001 ] || fail "with --watchdog 4 they are $(said | cut -d: -f4-)"
run launch --help
tr -s ' \n' '  ' <out >help
grep -q -e "--max-restarts K .*(default: 3) --restart-pause SECONDS .*(default: 1; .* --watchdog SECONDS .*(default: 60;" help ||
  fail "--help has other defaults"

it "numbers in the names of Slurm's nodes keep their zeros"
for nodes in nosuch..[009-011]=nosuch..009 nosuch..[7,012]x=nosuch..7x nosuch..1,nosuch..[2]=nosuch..1; do
  run_cmd env SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST="${nodes%%=*}" HYPER_MPI="$WORK/lib.sh" \
    "$HYPER" launch -n 2 --starter "$WORK/shows" -- train nothing.yaml
  refused "no address is known of ${nodes#*=}:"
done

it "a new build in the program's place is what the next try runs"
mkdir -p new
cp "$HYPER" new/hyper
fake_starter replaces <<'END'
shift $(($# - 3))
echo "$1" >>started
cp new/hyper new/next
mv new/next new/hyper
exit 137
END
rm -f started
run_cmd env HYPER_MPI="$WORK/lib.sh" new/hyper launch -n 2 --restart-pause 0 --starter "$WORK/replaces" --max-restarts 1 -- train nothing.yaml
[ "$(sort -u started)" = "$(cd new && pwd -P)/hyper" ] || fail "was started as: $(cat started)"
rm -rf new

it "what is missing is told before anything is started"
launch_with shows
rm arguments
launch_with shows --restart-pause 31
refused "--restart-pause: expected 0 to 30 seconds"
launch_with shows --hostfile nosuch
refused "--hostfile nosuch: " "No such file" "node1 slots=8"
one_message 1
mkdir folder
launch_with shows --hostfile folder
refused "--hostfile folder: "
echo "# nobody" >hosts
launch_with shows --hostfile hosts
refused "names no machine"
run_cmd env HYPER_MPI=/nowhere.so "$HYPER" launch -n 2 --starter "$WORK/shows" -- train nothing.yaml
refused "/nowhere.so is not there" "tools/bootstrap mpi" "make builds the plugin"
one_message 1
mkdir bin
cp "$HYPER" bin/hyper
run_cmd env -u HYPER_MPI LD_LIBRARY_PATH= bin/hyper launch -n 2 --starter "$WORK/shows" -- train nothing.yaml
refused "hyper_mpi.so is not there" "tools/bootstrap mpi"
no_file arguments

over_sockets
make_job job </dev/null
sed -i 's/^max_steps: 20/max_steps: 200/; s/^save_steps: 5/save_steps: 50/' job/job.yaml

begin() { # LAUNCH-OPTIONS -- VERB ...: in the background, as $launcher
  rm -rf several
  "$HYPER" launch "$@" >out 2>err </dev/null &
  launcher=$!
  t_cmd="launch $*"
}
two() { begin -n 2 --restart-pause 0.2 "$@" -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several; }

run train job/job.yaml strategy=dp=2,zero=1 output_dir=alone
exit_is 0

it "the example for Slurm trains, with an srun that stands in for Slurm's"
write bin/srun <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo "slurm 23.02.7"; exit; }
echo "srun $*" >>srun.said
while [ "$1" != -n ]; do shift; done
shift
n=$1
shift
exec mpirun -q --oversubscribe --bind-to none --allow-run-as-root -n "$n" "$@"
END
chmod +x bin/srun
run_cmd env PATH="$WORK/bin:$PATH" HYPER="$HYPER" SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=1 SLURM_NTASKS=2 \
  SLURM_CPUS_PER_TASK=1 sh "$ROOT/examples/slurm/train.sbatch" job/job.yaml output_dir=several
exit_is 0
grep -q "^srun --cpu-bind=none --kill-on-bad-exit=1 \(--overcommit \)*-n 2 " srun.said || fail "srun is given: $(cat srun.said)"
same_file alone/model.safetensors several/model.safetensors

saves_when_interrupted() {
  two
  wait_for several/checkpoint-50
  kill -INT "$launcher"
  ended
  exit_is 0
  err_has "SIGINT: writing a checkpoint"
  run launch -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several
  exit_is 0
  same_file alone/model.safetensors several/model.safetensors
}

it "after kill -9 of a process the job goes on to the same bits"
goes_on_after_kill two 0 1

it "a job whose output nobody reads any more goes on to its end"
rm -rf several
{ "$HYPER" launch -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several 2>err </dev/null; echo $? >code; } | head -n 1 >out
[ "$(cat code)" = 0 ] || fail "exit code $(cat code)"
[ -s out ] || fail "no output"
err_lacks "SIGPIPE"
same_file alone/model.safetensors several/model.safetensors

it "a process that dies while it starts is no reason to give up"
two --max-restarts 1
victim=$(pid_of 1)
kill -9 "$victim"
ended
exit_is 0
err_has "was ended by signal 9"
err_has "(restart 1 of 1 without a newer one)"
same_file alone/model.safetensors several/model.safetensors

it "a starter that ends before its processes is a death, whatever its exit code"
fake_starter leaves <<'END'
rm -rf several
mpirun "$@" &
while [ ! -s several/trainer_log.jsonl ] && kill -0 $!; do sleep 0.02; done
exit "$(cat code)"
END
for code in 0 1 137; do
  echo $code >code
  begin -n 2 --restart-pause 0.2 --starter "$WORK/leaves" --max-restarts 1 -- train job/job.yaml strategy=dp=2 output_dir=several \
    max_steps=1000000 save_steps=1000000
  ended
  exit_is 1
  err_has "was still running when $WORK/leaves, which had started it, ended (exit code $code)"
  err_has "(restart 1 of 1 without a newer one)"
  no_orphan "starter ended with $code"
done

it "one that is stopped while it starts is found, and named"
two --watchdog 6 --max-restarts 1
victim=$(pid_of 0)
kill -STOP "$victim"
ended
exit_is 0
err_has "heard"
err_has "process 0 "
err_has "(restart 1 of 1 without a newer one)"
same_file alone/model.safetensors several/model.safetensors
! lives "$victim" || fail "the process that was stopped is still there"

it "restarts are counted from the last one that brought a newer checkpoint"
two --max-restarts 1
for step in 50 100; do
  wait_for several/checkpoint-$step
  kill -9 "$(pid_of 1)"
done
ended
exit_is 0
[ "$(grep -c "(restart 1 of 1 without a newer one)" err)" = 2 ] || { fail "not two restarts"; t_show; }
[ "$(grep -c "without a newer one)$" err)" = 2 ] || { fail "a pause after progress"; t_show; }
same_file alone/model.safetensors several/model.safetensors

it "no process outlives a launcher that is killed"
two
wait_for several/checkpoint-50
kill -9 "$launcher"
ended
no_orphan "launcher killed"

it "a job that was to begin anew goes on from what it wrote, not from before"
begin -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several overwrite_output_dir=true
victim=$(pid_of 1)
wait_for several/checkpoint-50
kill -9 "$victim"
ended
exit_is 0
err_has "continuing from several/checkpoint-"
same_file alone/model.safetensors several/model.safetensors

it "a job that goes back to a checkpoint does so again when it dies before its first save"
rm -rf several && cp -r alone several
: >out
"$HYPER" launch -n 2 -- train job/job.yaml strategy=dp=2,zero=1 output_dir=several \
  resume_from_checkpoint=several/checkpoint-50 save_steps=100000 >out 2>err </dev/null &
launcher=$!
t_cmd="launch, back to checkpoint-50"
victim=$(pid_of 1)
while kill -0 "$launcher" 2>/dev/null && ! grep -q "'loss'" out; do sleep 0.01; done
kill -9 "$victim"
ended
exit_is 0
err_has "starting the job again"
[ "$(grep -c "continuing from several/checkpoint-50 " err)" = 2 ] || { fail "not twice from checkpoint-50"; t_show; }
is_file several/abandoned-*/checkpoint-200/MANIFEST.json
same_file alone/model.safetensors several/model.safetensors

it "a process that is stopped is found and named, and the job goes on to the same bits"
goes_on_after_stop two 1 0

it "a process that hangs is named with its stream and its instruction"
printf 'device: {flops: 1e10, bandwidth_gb_s: 10}\nlinks: [{bandwidth_gb_s: 1, latency_us: 1e9}]\nemulate: true\n' >slow.yaml
begin -n 2 --watchdog 6 --max-restarts 0 -- train job/job.yaml strategy=dp=2 output_dir=several hyper_parallel.cluster=slow.yaml
ended
exit_is 1
err_has " hangs: for "
err_has "(it has 6 s there; --watchdog 12 gives a longer time)"
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
saves_when_interrupted

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
  err_has "training continues, the next try is in 1 s"
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
  grep -qE "hyper: process 1 on $(hostname): checkpoint-[0-9]* could not be written: .*File too large" err || { fail "no such line"; t_show; }
  err_lacks "starting the job again"
  is_file several/checkpoint-50/MANIFEST.json
else
  skip "no prlimit"
fi

it "bad input that one process alone has, a file that is cut, is refused and not tried again"
"${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o cut.so "$ROOT/tests/cli/preload_cut.c" -ldl || fail "cut.so"
mkdir start && cp alone/*.json start/ && cp alone/model.safetensors start/
cp -r start start0 && cp -r start start1
export HYPER
fake_starter cuts <<'END'
for word; do
  shift
  case $word in */hyper) word=./cut_in_1 ;; esac
  set -- "$@" "$word"
done
exec mpirun "$@"
END
write cut_in_1 <<'END'
#!/bin/sh
r=$OMPI_COMM_WORLD_RANK
[ "$r" != 1 ] || export LD_PRELOAD="$PWD/cut.so" CUT=start1/model.safetensors CUT_TO=4096
exec "$HYPER" "$@" model_name_or_path=start$r train_from_scratch=false
END
chmod +x cut_in_1
begin -n 2 --starter "$WORK/cuts" -- train job/job.yaml strategy=dp=2 output_dir=several
ended
exit_is 2
err_has "hyper: start1/model.safetensors: became shorter while it was read"
err_lacks "starting the job again"
no_orphan "a file that was cut"

it "what is no training is not started again"
begin -n 2 -- train job/job.yaml strategy=dp=2 output_dir=nowhere/job.yaml/x max_steps=nonsense
ended
exit_is 2
err_lacks "again"
run launch -n 2 --starter mpirun -- eval --model job/model --tokens 1,2,3 --strategy dp=2
exit_is 2
err_lacks "again"

it "over MPI, too: processes are killed, stopped and interrupted, and none is left behind"
if over_mpi; then
  goes_on_after_kill two 1
  goes_on_after_stop two 0 1
  saves_when_interrupted
  two
  wait_for several/checkpoint-50
  kill -9 "$launcher"
  ended
  no_orphan "launcher killed"
fi
