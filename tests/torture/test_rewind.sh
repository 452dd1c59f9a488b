#!/bin/sh
# A run that goes back to a checkpoint is killed at each call that changes its folder, until its first
# save: whatever that was, either nothing has happened, or the next run goes on from where it went back to.
# EVERY: each so many of the calls (1).
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

EVERY=${EVERY:-1}
it "a rewind that is killed has not begun, or goes on"
if ! command -v strace >/dev/null; then
  skip "no strace"
  exit 0
fi
make_job job </dev/null
run train job/job.yaml output_dir=first
exit_is 0
line() { sed -n 's/^{"format": 1, "line": "\([0-9a-f]*\)".*/\1/p' "$1/run.line"; }
checkpoints() { (cd "$1" && ls -d checkpoint-* | sort -t- -k2n | tr '\n' ' '); }
old=$(line first)

points=0 begun=0
for call in rename mkdir unlinkat symlink fsync; do
  at=1
  while :; do
    rm -rf a && cp -r first a
    status=0
    strace -f -o /dev/null -e trace=$call -e inject=$call:signal=SIGKILL:when=$at "$HYPER" train job/job.yaml \
      output_dir=a resume_from_checkpoint=a/checkpoint-5 >out 2>err </dev/null || status=$?
    t_cmd="a rewind killed at $call number $at"
    [ $status = 137 ] || break
    ! grep -q "'loss'" out || break # once it trains, test_kill.sh and test_life.sh kill it
    points=$((points + 1))
    if [ "$(line a)" = "$old" ]; then
      [ "$(checkpoints a)" = "checkpoint-5 checkpoint-10 checkpoint-15 checkpoint-20 " ] || { fail "checkpoints were moved before the line began"; t_show; }
    else
      begun=$((begun + 1))
      run train job/job.yaml output_dir=a max_steps=7
      exit_is 0
      err_has "continuing from a/checkpoint-5 "
      [ "$(checkpoints a)" = "checkpoint-5 checkpoint-7 " ] || fail "after $t_cmd: $(checkpoints a)"
      for n in 10 15 20; do
        run inspect a/abandoned-*/checkpoint-$n
        exit_is 0
      done
    fi
    at=$((at + EVERY))
  done
done
echo "  $points kills, $begun of which after the new line had begun"
[ $begun -gt 2 ] || fail "too few kills after the line had begun"
