# Whatever instant the power fails at, and whatever part of what was not yet on the disk is lost, a
# run finds a good checkpoint again.  EVERY: looks at every so many instants only; KEEP, PARTS: below.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

EVERY=${EVERY:-1}
KEEP=${KEEP:-400} # in one state in so many a run is started
PARTS=${PARTS:-1} # of the runs in parts only so many times fewer instants are looked at

"${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o record.so "$ROOT/tests/torture/preload_record.c" -ldl 2>err ||
  { cat err; exit 1; }
make_job job <<END
save_total_limit: 2
END
sed -i 's/^save_steps: 5/save_steps: 2/; s/^max_steps: 20/max_steps: 6/' job/job.yaml
mkdir root
states=$WORK/states # in memory, where there is some
[ ! -w /dev/shm ] || states=$(mktemp -d /dev/shm/hyper-power-loss-XXXXXX)
mkdir -p "$states"
trap 'rm -rf "$states"; t_finish' EXIT
OUT=root/deep/out

recorded() {
  RECORD_ROOT=$WORK/root RECORD_LOG=$WORK/log LD_PRELOAD=$WORK/record.so "$@" >out 2>err </dev/null ||
    { status=$? t_cmd=$*; t_show; fail "a recorded command failed"; }
}
# starter: of several processes, and not recorded itself
train() { recorded $starter "$HYPER" train job/job.yaml output_dir=$OUT "$@"; }
starter=
# In each state that was kept a run goes on from the checkpoint that was found there.
start_in_states() {
  n=0
  for state in "$states"/kept-*; do
    [ -d "$state" ] || continue
    step=${state##*-} n=$((n + 1))
    case $state in *--1) step=-1 ;; esac
    # a state that has no folder of the run yet begins one
    run train job/job.yaml "output_dir=$state/deep/out" max_steps=9 $more
    exit_is 0
    if [ "$step" = -1 ]; then err_lacks "continuing from"
    else err_has "continuing from $state/deep/out/checkpoint-$step (step $step of 9)"; fi
    [ -s "$state/deep/out/checkpoint-9/MANIFEST.json" ] || fail "$state: no checkpoint at the end"
    rm -rf "$state"
  done
  echo "  a run was started in $n of the states"
  [ $n -gt 0 ] || fail "no run was started"
}
more=
# Looks at the states of the log; $1 instants apart.
look_at_states() {
  status=0 t_cmd="crash-states, every $1"
  "$B/crash-states" log deep/out "$states" "$@" >out 2>err || status=$?
}

it "a run that saves, exports, goes on, rewinds and begins anew loses nothing to a power failure"
train
train max_steps=8
# damaged: its place is taken by a new one
printf x | recorded dd of=$OUT/checkpoint-8/model.safetensors bs=1 seek=9000 conv=notrunc
train max_steps=8
train max_steps=8 resume_from_checkpoint=$OUT/checkpoint-6
train max_steps=2 overwrite_output_dir=true
look_at_states "$EVERY" "$KEEP"
sed 's/^/  /' out
exit_is 0
out_has " 0 bad"

it "a run starts in what is left, at the checkpoint that was found"
start_in_states

# parts NAME: a run of two devices that saves its parts, goes on and prunes
parts() {
  mv log "log.$1"
  rm -rf root/deep
  train $more max_steps=6
  train $more max_steps=8
  [ "$(ls -d $OUT/checkpoint-* | tr '\n' ' ')" = "$OUT/checkpoint-6 $OUT/checkpoint-8 " ] || fail "not pruned: $(ls $OUT)"
  is_file $OUT/checkpoint-8/optimizer-part-00001.safetensors
  look_at_states "$((EVERY * PARTS))" "$KEEP"
  sed 's/^/  /' out
  exit_is 0
  out_has " 0 bad"
  start_in_states
}
it "nor does a run whose checkpoints are in parts, of two devices in one process"
more="strategy=dp=2,zero=1 per_device_train_batch_size=2"
parts one

it "or of two processes"
if command -v mpirun >/dev/null && [ -e "$B/hyper_mpi.so" ]; then
  starter="env RECORD_PROGRAM=hyper mpirun -q --oversubscribe --bind-to none"
  [ "$(id -u)" = 0 ] && starter="$starter --allow-run-as-root"
  parts two
  starter=
else skip "no mpirun"
fi
rm -f log
mv log.one log
more=

it "a checkpoint that takes the place of one of the same step is there at any instant"
mv log log.1
# also where the file system cannot swap two names
for no_swap in "" RECORD_NO_SWAP=1; do
  rm -rf log root/same
  for text in old new newer; do recorded env $no_swap "$B/crash-states" save root/same 4 $text; done
  status=0
  "$B/crash-states" log same "$states" >out 2>err || status=$?
  sed 's/^/  /' out
  exit_is 0
done
mv log.1 log

it "a disk that only says that it has synced is noticed"
look_at_states 97 lying
exit_is 1
out_has "missing: operation"
