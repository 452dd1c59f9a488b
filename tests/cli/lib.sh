# Helpers of the command line tests; a script sources this first and looks like
#
#   . "$(dirname "$0")/lib.sh"
#   it "refuses an unknown key and names the nearest"
#   write bad.yaml <<END
#   lerning_rate: 1e-4
#   END
#   run train bad.yaml
#   exit_is 2
#   err_has "learning_rate"
#
# Every `it` is one test: it prints `ok NAME`, or `FAIL NAME` with what did not hold.  The script
# runs in a folder of its own, removed at its end; $ROOT is the repository, $HYPER the command.
set -u
# Begun with nohup it ignores SIGHUP, and so would all that it tests.
case $(sed -n 's/^SigIgn:.*\(.\)$/\1/p' /proc/$$/status) in
  [13579bdf])
    if [ -z "${HYPER_HUP:-}" ] && env --default-signal=HUP true 2>/dev/null; then
      HYPER_HUP=told exec env --default-signal=HUP sh "$0" "$@"
    fi ;;
esac
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
B=${B:-build}
case $B in /*) ;; *) B=$ROOT/$B ;; esac
HYPER=${HYPER:-$B/hyper}
export HYPER_CACHE="${HYPER_CACHE:-$B/cache}" # the user's is left alone
# Kernels of so small models take longer to optimize than to run.  Unit tests are about optimized ones.
compile_quickly() { export TEST_CC="${TEST_CC:-${CC:-cc}}" CC="$ROOT/tests/cli/quick_cc"; }
DATA=${HYPER_DATA:-../shared/data}
case $DATA in /*) ;; *) DATA=$ROOT/$DATA ;; esac
SCRIPT=$(basename "$0" .sh)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/hyper-$SCRIPT-XXXXXX") || exit 1
cd "$WORK" || exit 1
t_passed=0 t_failed=0 t_skipped=0 t_name= t_state=
t_mark=$WORK.failed # a file, so that a failure inside a pipe counts too

t_end() { # closes the test that is open
  [ ! -e "$t_mark" ] || t_state=fail
  rm -f "$t_mark"
  case $t_name:$t_state in
    :*) ;;
    *:ok) t_passed=$((t_passed + 1)); echo "ok   $SCRIPT: $t_name" ;;
    *:skip) t_skipped=$((t_skipped + 1)) ;;
    *) t_failed=$((t_failed + 1)); echo "FAIL $SCRIPT: $t_name" ;;
  esac
  t_name=
}
t_finish() { # on every way out: a script that dies has failed
  code=$?
  [ $code = 0 ] || [ -e "$t_mark" ] || fail "the script ended with exit code $code"
  t_end
  cd / && rm -rf "$WORK"
  echo "$t_passed passed, $t_failed failed, $t_skipped skipped"
  [ $t_failed = 0 ] && exit 0
  exit 1
}
trap t_finish EXIT
trap 'exit 130' INT TERM

it() { t_end; t_name=$1 t_state=ok; }
fail() {
  [ "$t_state" = skip ] && return 0
  : > "$t_mark"
  echo "  $*"
}
skip() { # leaves out the rest of this test
  t_state=skip
  echo "skip $SCRIPT: $t_name ($*)"
}
# Path of a file under HYPER_DATA in $data; without it the test is skipped and this is false.
need_data() {
  data=$DATA/$1
  [ -e "$data" ] && return 0
  skip "no $data"
  return 1
}
write() { cat > "$1"; } # standard input to a file

# Runs hyper; its exit code is $status, its output in the files out and err.
run() { run_cmd "$HYPER" "$@"; }
run_cmd() {
  t_cmd=$*
  status=0
  "$@" >out 2>err </dev/null || status=$?
}
t_show() { # what the command said, for a failure
  echo "    command: $t_cmd"
  sed -n '1,12s/^/    stdout: /p' out
  sed -n '1,12s/^/    stderr: /p' err
}
exit_is() { [ "$status" = "$1" ] || { fail "exit code $status, want $1"; t_show; }; }
out_has() { grep -qF -e "$1" out || { fail "no \"$1\" on stdout"; t_show; }; }
err_has() { grep -qF -e "$1" err || { fail "no \"$1\" on stderr"; t_show; }; }
out_lacks() { ! grep -qF -e "$1" out || { fail "\"$1\" on stdout"; t_show; }; }
err_lacks() { ! grep -qF -e "$1" err || { fail "\"$1\" on stderr"; t_show; }; }
out_is() { # the whole of stdout, a last newline aside
  [ "$(cat out)" = "$1" ] || { fail "stdout is not \"$1\""; t_show; }
}
# stderr without a notice that depends on what other tests do: that they compile in the same cache.
own_err() { grep -vF "another process compiles there" err || :; }
nothing_on_stderr() { [ -z "$(own_err)" ] || { fail "something on stderr"; t_show; }; }
# One message, not a page: what a user gets for bad input.
one_message() { [ "$(own_err | wc -l)" -le "${1:-3}" ] || { fail "more than ${1:-3} lines on stderr"; t_show; }; }
# Exit 2 with a message that has all these words, and nothing left behind by this name.
refused() {
  exit_is 2
  for t_word; do err_has "$t_word"; done
}
is_file() { [ -s "$1" ] || fail "$1 is missing or empty"; }
no_file() { [ ! -e "$1" ] || fail "$1 is there and should not be"; }
same_file() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

# Value at a path in a JSON file, as text: json FILE a.b.0 -> stdout.  With several lines in the
# file, an index first: json trainer_log.jsonl -1.loss
json() { "$B/test-json" "$1" "$2"; }
json_is() { # FILE PATH VALUE
  t_value=$(json "$1" "$2" 2>&1) || { fail "$1: $t_value"; return; }
  [ "$t_value" = "$3" ] || fail "$1: $2 is $t_value, want $3"
}
json_near() { # FILE PATH VALUE RELATIVE-TOLERANCE
  t_value=$(json "$1" "$2" 2>&1) || { fail "$1: $t_value"; return; }
  near "$t_value" "$3" "$4" || fail "$1: $2 is $t_value, want $3 within $4"
}
near() { # A B TOLERANCE: is |A - B| <= TOLERANCE * |B| ?
  awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN {
    if (a !~ /^[-+0-9.eE]+$/ || b !~ /^[-+0-9.eE]+$/) exit 1
    d = a - b; if (d < 0) d = -d; m = b < 0 ? -b : b
    exit !(d <= t * m) }'
}
