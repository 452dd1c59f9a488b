#!/bin/sh
# Runs what is built under $B (default build) and sums it up in one closing line:
#   N passed, N failed, N skipped
# usage: tests/run.sh [unit|fuzz|cli|torture]... [part of a unit test's name]...
# No kind means unit, fuzz and cli.  HYPER_DATA (default ../shared/data) is where tests find real
# models; tests that need what is not there are skipped and say so.  HYPER_QUICK=1 leaves out the
# slow scripts (tests/cli/test_slow_*.sh).  With scripts of cli, HYPER_JOBS runners (twice the cores:
# many wait for a clock or a disk) work at once: a script is one, and so are all unit tests.  What
# each says is shown as a whole and in a fixed order.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
HYPER=${HYPER:-$PWD/$B/hyper}
HYPER_DATA=${HYPER_DATA:-../shared/data}
HYPER_QUICK=${HYPER_QUICK:-}
# The user's cache is left alone: kernels are kept next to the build, records of costs and engines not.
if [ -z "${HYPER_CACHE:-}" ]; then
  case $B in /*) HYPER_CACHE=$B/cache ;; *) HYPER_CACHE=$PWD/$B/cache ;; esac
  rm -f "$HYPER_CACHE"/*.costs "$HYPER_CACHE"/*.engines
fi
export B HYPER HYPER_DATA HYPER_QUICK HYPER_CACHE

kinds= filters=
for a; do
  case $a in
    unit | fuzz | cli | torture) kinds="$kinds $a" ;;
    *) filters="$filters $a" ;;
  esac
done
kinds=${kinds:- unit fuzz cli}

# The scripts that take longest, by the clock, are started first.
long="full_disk supervisor agree launch out_of_memory explain replicas examples signals
 slow_pipeline_processes slow_groups offload preferences pipeline optimizers groups train verify
 deterministic strategy bench engine"
# Processor seconds that a script may take: CONTRIBUTING.md.  Those that take more are named at the end.
limit_s=20

logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
pool=
stop() {
  [ -z "$pool" ] || kill -s TERM -- "-$pool" 2>/dev/null
  exit 130
}
trap stop INT TERM
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
  echo "== $1: $(tail -n 1 "$logs/$1")$(processor_time "$1")"
}

# What a runner took of the processor, user and system; empty: not known.
processor_time() { # NAME
  [ ! -s "$logs/.times-$1" ] || awk 'NR == 2 { # of what the shell has run
    gsub("m", " "); gsub("s", " "); $0 = $0
    printf " (cpu %.1f s)", 60 * ($1 + $3) + $2 + $4
  }' "$logs/.times-$1"
}

# Scripts above the limit; the unit tests are one runner, and name their own.
over_limit() {
  for times in "$logs"/.times-*; do
    name=${times##*/.times-}
    [ -e "$times" ] && [ "$name" != unit ] || continue
    processor_time "$name" | awk -v name="$name" -v limit=$limit_s '$2 > limit { printf " %s (%s s)", name, $2 }'
  done
}

# Runs a command and shows what it says as it comes.
count() { # NAME COMMAND...
  what=$1
  shift
  "$@" 2>&1 | tee "$logs/$what" | sed '$d'
  add "$what"
}

# Runners of a kind, a line each: NAME COMMAND.  Of the scripts those that may run next to others, or
# those that need the machine for themselves, and say so in a line "# Runs alone: why".
runners_of() { # KIND [together|alone]
  case $1 in
    unit) echo "unit $B/test-unit$filters" ;;
    fuzz)
      for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .c)
        echo "$name $B/replay_${name#fuzz_} tests/fuzz/corpus/${name#fuzz_}"
      done ;;
    *)
      for script in $(for s in $long; do echo "tests/$1/test_$s.sh"; done) tests/"$1"/test_*.sh; do
        [ -e "$script" ] || continue
        case $HYPER_QUICK:$script in 1:*/test_slow_*) continue ;; esac
        which=together
        grep -q '^# Runs alone' "$script" && which=alone
        [ $which != "$2" ] || echo "$(basename "$script" .sh) sh $script"
      done | awk '!seen[$0]++' ;;
  esac
}

# The runners of the list, one after the other.
one_by_one() {
  while read -r name command; do
    # shellcheck disable=SC2086
    count "$name" $command </dev/null
  done <"$logs/.list"
}

# The runners of the list, so many at once, the last first: it takes longest.  Each is shown when it
# and those before it have ended.  They are a process group, which a signal ends as a whole.  A shell
# has what it runs in the background ignore the signals of the keyboard, which some scripts are about.
all_at_once() { # AT_ONCE
  awake=
  env --default-signal=INT true 2>/dev/null && awake='env --default-signal=INT,QUIT'
  { tail -n 1 "$logs/.list"; sed '$d' "$logs/.list"; } >"$logs/.starts"
  $awake setsid xargs -r -P "$1" -L 1 sh -c '
    name=$1
    shift
    "$@" >"$0/$name" 2>&1
    times >"$0/.times-$name"
    : >"$0/.ended-$name"' "$logs" <"$logs/.starts" &
  pool=$!
  while read -r name command; do
    while [ ! -e "$logs/.ended-$name" ] && kill -0 "$pool" 2>/dev/null; do sleep 0.1; done
    touch "$logs/$name"
    sed '$d' "$logs/$name"
    add "$name"
  done <"$logs/.list"
  wait "$pool"
  pool=
}

wants() { case " $kinds " in *" $1 "*) ;; *) false ;; esac }
if wants cli; then
  {
    runners_of cli together
    if wants fuzz; then runners_of fuzz; fi
    if wants unit; then runners_of unit; fi
  } >"$logs/.list"
  all_at_once "$at_once"
  runners_of cli alone >"$logs/.list"
else
  {
    if wants unit; then runners_of unit; fi
    if wants fuzz; then runners_of fuzz; fi
  } >"$logs/.list"
fi
one_by_one
if wants torture; then
  {
    echo "torture_unit $B/test-unit torture_"
    runners_of torture together
    runners_of torture alone
  } >"$logs/.list"
  one_by_one
fi

over=$(over_limit)
[ -z "$over" ] || echo "above $limit_s processor seconds:$over"
[ -d "$HYPER_DATA" ] || echo "no $HYPER_DATA: tests with real models and references were skipped"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
