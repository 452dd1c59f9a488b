# tests/run.sh on runners that are made up: what it sums, and what it does when one dies.
. "$(dirname "$0")/lib.sh"

mkdir -p tree/tests/cli tree/tests/torture tree/tests/fuzz/corpus/x tree/build
cp "$ROOT/tests/run.sh" tree/tests/
fake() { # FILE: standard input becomes that command
  { echo '#!/bin/sh'; cat; } > "tree/$1"
  chmod +x "tree/$1"
}
runner() { run_cmd env B=build HYPER_DATA=/nowhere HYPER_QUICK="${quick-}" tree/tests/run.sh "$@"; }
last_is() { [ "$(tail -n 1 out)" = "$1" ] || { fail "the last line is not \"$1\""; t_show; }; }
printf 'echo "5 passed, 0 failed, 2 skipped"\necho "$@" > unit-args\n' | fake build/test-unit
echo 'echo "3 passed, 0 failed, 1 skipped"' > tree/tests/cli/test_a.sh
echo 'echo "7 passed, 0 failed, 0 skipped"' > tree/tests/cli/test_slow_b.sh
: > tree/tests/fuzz/fuzz_x.c
echo '[ "$1" = tests/fuzz/corpus/x ] && echo "4 passed, 0 failed"' | fake build/replay_x

it "sums all runners in one closing line"
runner
exit_is 0
last_is "19 passed, 0 failed, 3 skipped"
out_has "no /nowhere"

it "leaves out slow scripts when asked for the quick tests"
quick=1
runner
quick=
exit_is 0
last_is "12 passed, 0 failed, 3 skipped"

it "hands filters to the unit tests"
runner unit arena pool
last_is "5 passed, 0 failed, 2 skipped"
[ "$(cat tree/unit-args)" = "arena pool" ] || fail "filters did not arrive"

it "fails when a test fails"
echo 'echo "FAIL x"; echo "1 passed, 1 failed, 0 skipped"; exit 1' > tree/tests/cli/test_a.sh
runner
exit_is 1
last_is "17 passed, 1 failed, 2 skipped"
out_has "FAIL x"

it "counts a runner that dies without its count as a failure"
echo 'echo "halfway"; kill -9 $$' > tree/tests/cli/test_a.sh
runner
exit_is 1
last_is "16 passed, 1 failed, 2 skipped"
out_has "FAIL test_a"
out_has "halfway"

it "runs scripts next to each other, but alone those that say so"
meets() { # SCRIPT OTHER: waits until the other has begun, for 5 s at most
  cat >"tree/tests/cli/test_$1.sh" <<END
echo "$1" >>"$WORK/begun"
for i in 1 2 3 4 5 6 7 8 9 10; do grep -q '^$2$' "$WORK/begun" || sleep 0.5; done
echo "$1 ended" >>"$WORK/begun"
echo "1 passed, 0 failed"
END
}
meets a slow_b
meets slow_b a
printf '# Runs alone: why\necho alone >>"%s/begun"\necho "1 passed, 0 failed"\n' "$WORK" >tree/tests/cli/test_0.sh
run_cmd env B=build HYPER_DATA=/nowhere HYPER_JOBS=2 tree/tests/run.sh cli
exit_is 0
last_is "3 passed, 0 failed, 0 skipped"
[ "$(sed -n '1,2p' begun | sort | tr '\n' ' ')" = "a slow_b " ] || fail "not together: $(cat begun)"
[ "$(tail -n 1 begun)" = alone ] || fail "not alone: $(cat begun)"

it "shows what each runner says as a whole, in the same order whichever ends first"
speaks() { # SCRIPT SECONDS
  printf 'echo "%s begins"\nsleep %s\necho "%s ends"\necho "1 passed, 0 failed"\n' "$1" "$2" "$1" >"tree/tests/cli/test_$1.sh"
}
rm tree/tests/cli/test_*.sh
speaks a 1
speaks b 0.5
speaks c 0
run_cmd env B=build HYPER_DATA=/nowhere HYPER_JOBS=3 tree/tests/run.sh cli
exit_is 0
[ "$(sed -n '1,9p' out | grep -v '^==' | tr '\n' ' ')" = "a begins a ends b begins b ends c begins c ends " ] ||
  { fail "another order"; t_show; }

it "a signal ends all that runs"
printf 'echo $$ >"%s/pids"\nsleep 60 &\necho $! >>"%s/pids"\nwait\n' "$WORK" "$WORK" >tree/tests/cli/test_a.sh
env B=build HYPER_DATA=/nowhere HYPER_JOBS=3 tree/tests/run.sh cli >out 2>err </dev/null &
runner=$!
for i in $(seq 100); do [ "$(cat pids 2>/dev/null | wc -l)" = 2 ] || sleep 0.1; done
kill -TERM $runner
status=0 t_cmd="tests/run.sh cli, ended by SIGTERM"
wait $runner || status=$?
exit_is 130
for pid in $(cat pids); do
  for i in $(seq 100); do ! kill -0 "$pid" 2>/dev/null || sleep 0.1; done
  ! kill -0 "$pid" 2>/dev/null || fail "process $pid still runs"
done

it "fails when nothing passed"
echo 'echo "0 passed, 0 failed, 9 skipped"' | fake build/test-unit
runner unit
exit_is 1

it "marks a script that stops early as failed"
printf '. "%s/tests/cli/lib.sh"\nit "never ends"\nexit 3\n' "$ROOT" > early.sh
run_cmd sh early.sh
exit_is 1
out_has "FAIL early: never ends"

it "marks what fails inside a pipe as failed"
printf '. "%s/tests/cli/lib.sh"\nit "pipes"\necho a | { read -r x; fail "in here"; }\n' "$ROOT" > pipe.sh
run_cmd sh pipe.sh
exit_is 1
out_has "0 passed, 1 failed, 0 skipped"

it "unit tests leave the user's cache alone"
run_cmd env -u HYPER_CACHE -u XDG_CACHE_HOME HOME="$WORK/home" "$B/test-unit" what_goes_between_devices_is_told
exit_is 0
no_file home
