#!/bin/sh
# Meshes of some of a job's processes: each compiles, runs and saves while the others do something else.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
${CC:-cc} -std=c11 -I"$ROOT/include" -o two_meshes "$ROOT/tests/cli/two_meshes.c" "$B/libhyperparallel.so" \
  -Wl,-rpath,"$B" -Wl,-rpath,"$PWD" || { it "compiles"; fail "not compiled"; }
four() { run_cmd timeout 60 mpirun -q --oversubscribe --bind-to none $root -n 4 ./two_meshes "$@"; }

check_meshes() {
  mkdir -p saved
  four run saved
  exit_is 0
  [ "$(grep -c '^low: 0x' out)$(grep -c '^high: 0x' out)" = 11 ] || { fail "not both meshes are done"; t_show; }
  sort out > "$1"
  grep -q '"mesh": "(2)(x)@0,1"' saved/low.parts.json || fail "low has no ranks: $(cat saved/low.parts.json)"
  grep -q '"mesh": "(2)(x)@3,2"' saved/high.parts.json || fail "high has no ranks: $(cat saved/high.parts.json)"
  rm -r saved
}
it "two meshes of a job compile, run and save unlike programs"
check_meshes first

it "programs of a mesh that do not match name both instructions, on both ranks"
mkdir -p saved
four differ saved
[ "$status" != 0 ] && [ "$status" != 124 ] || fail "exit code $status"
grep '^rank [01]: ' out | sed 's/^rank .: //' > said
[ -s said ] || { fail "nobody says why"; t_show; }
grep -q 'at all_reduce f32.*op=.*the sum' said && grep -q 'at all_reduce f32.*the maximum' said ||
  { fail "not both instructions are named"; t_show; }
! grep -qv 'do not match\|cannot go on without it' said || fail "another reason: $(cat said)"
rm -r saved

it "two meshes run over MPI with the same bits"
if over_mpi; then
  HYPER_MPI=$B/hyper_mpi.so
  export HYPER_MPI
  check_meshes second
  same_file first second
fi
