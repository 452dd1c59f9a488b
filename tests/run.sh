#!/bin/sh
# Runs what is built under $B (default build) and sums it up in one closing line:
#   N passed, N failed, N skipped
# usage: tests/run.sh [unit|fuzz|cli|torture]... [part of a unit test's name]...
# No kind means unit, fuzz and cli.  HYPER_DATA (default ../shared/data) is where tests find real
# models; tests that need what is not there are skipped and say so.  HYPER_QUICK=1 leaves out the
# slow scripts (tests/cli/test_slow_*.sh).
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
HYPER=${HYPER:-$PWD/$B/hyper}
HYPER_DATA=${HYPER_DATA:-../shared/data}
HYPER_QUICK=${HYPER_QUICK:-}
export B HYPER HYPER_DATA HYPER_QUICK

kinds= filters=
for a; do
  case $a in
    unit | fuzz | cli | torture) kinds="$kinds $a" ;;
    *) filters="$filters $a" ;;
  esac
done
kinds=${kinds:- unit fuzz cli}

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0

# Runs a command whose last line is its count, and adds that up.
count() {
  what=$1
  shift
  "$@" 2>&1 | tee "$log" | sed '$d'
  sum=$(tail -n 1 "$log" |
    sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed\(, \([0-9]*\) skipped\)*$/\1 \2 \4/p')
  if [ -z "$sum" ]; then
    tail -n 1 "$log"
    echo "FAIL $what: ended without a count"
    sum='0 1'
  fi
  read -r p f s <<END
$sum
END
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
  echo "== $what: $(tail -n 1 "$log")"
}

for kind in $kinds; do
  case $kind in
    unit) count "unit$filters" "$B/test-unit" $filters ;;
    fuzz)
      for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .c)
        count "$name" "$B/replay_${name#fuzz_}" "tests/fuzz/corpus/${name#fuzz_}"
      done ;;
    cli)
      for script in tests/cli/test_*.sh; do
        [ -e "$script" ] || continue
        case $HYPER_QUICK:$script in 1:*/test_slow_*) continue ;; esac
        count "$(basename "$script" .sh)" sh "$script"
      done ;;
    torture)
      count 'unit torture_' "$B/test-unit" torture_
      for script in tests/torture/*.sh; do
        [ -e "$script" ] && count "$(basename "$script" .sh)" sh "$script"
      done ;;
  esac
done

[ -d "$HYPER_DATA" ] || echo "no $HYPER_DATA: tests with real models and references were skipped"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
