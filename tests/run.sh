#!/bin/sh
# Runs what is built under $B (default build) and sums it up in one closing line:
#   N passed, N failed, N skipped
# usage: tests/run.sh [unit|fuzz|cli|torture]... [part of a unit test's name]...
# No kind means unit, fuzz and cli.  HYPER_DATA (default ../shared/data) is where tests find real
# models; tests that need what is not there are skipped and say so.  HYPER_QUICK=1 leaves out the
# slow scripts (tests/cli/test_slow_*.sh).  Scripts of cli run HYPER_JOBS (twice the cores: many
# wait for a clock or a disk) at once.
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

logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM
at_once=${HYPER_JOBS:-$((2 * $(nproc 2>/dev/null || echo 2)))}
passed=0 failed=0 skipped=0

# Adds up what a runner left in its log: its last line is its count.
add() { # NAME
  sum=$(tail -n 1 "$logs/$1" |
    sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed\(, \([0-9]*\) skipped\)*$/\1 \2 \4/p')
  if [ -z "$sum" ]; then
    tail -n 1 "$logs/$1"
    echo "FAIL $1: ended without a count"
    sum='0 1'
  fi
  read -r p f s <<END
$sum
END
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
  echo "== $1: $(tail -n 1 "$logs/$1")"
}

# Runs a command and shows what it says as it comes.
count() { # NAME COMMAND...
  what=$1
  shift
  "$@" 2>&1 | tee "$logs/$what" | sed '$d'
  add "$what"
}

# Runs the scripts in the file "scripts", so many at once; shows what each said when it ends.
count_scripts() { # AT_ONCE
  xargs -r -P "$1" -n 1 sh -c '
    name=$(basename "$1" .sh)
    sh "$1" >"$0/$name" 2>&1
    flock "$0/scripts" sed "\$d" "$0/$name"' "$logs" <"$logs/scripts"
  while read -r script; do add "$(basename "$script" .sh)"; done <"$logs/scripts"
}

# Lists the scripts of a kind in the file "scripts": those that may run beside others, or those that
# watch a clock, and say so in a line "# Runs alone".  The longest come first, so that none is left for
# the end.
scripts_of() { # KIND beside|alone
  : >"$logs/scripts"
  for script in $(ls -S tests/"$1"/test_*.sh 2>/dev/null); do
    case $HYPER_QUICK:$script in 1:*/test_slow_*) continue ;; esac
    which=beside
    grep -q '^# Runs alone' "$script" && which=alone
    [ $which = "$2" ] && echo "$script" >>"$logs/scripts"
  done
}

# Scripts of a kind, one after the other.
one_by_one() { # KIND beside|alone
  scripts_of "$1" "$2"
  while read -r script; do
    count "$(basename "$script" .sh)" sh "$script" </dev/null
  done <"$logs/scripts"
}

for kind in $kinds; do
  case $kind in
    unit) count unit "$B/test-unit" $filters ;;
    fuzz)
      for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .c)
        count "$name" "$B/replay_${name#fuzz_}" "tests/fuzz/corpus/${name#fuzz_}"
      done ;;
    cli)
      scripts_of cli beside
      count_scripts "$at_once"
      one_by_one cli alone ;;
    torture)
      count torture_unit "$B/test-unit" torture_
      one_by_one torture beside
      one_by_one torture alone ;;
  esac
done

[ -d "$HYPER_DATA" ] || echo "no $HYPER_DATA: tests with real models and references were skipped"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
