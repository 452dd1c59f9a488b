# Whatever instant the power fails at, and whatever part of what was not yet on the disk is lost, a
# run finds a good checkpoint again.  EVERY: looks at every so many instants only.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

EVERY=${EVERY:-1}

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
train() { recorded "$HYPER" train job/job.yaml output_dir=$OUT "$@"; }
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
look_at_states "$EVERY"
sed 's/^/  /' out
exit_is 0
out_has " 0 bad"

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
