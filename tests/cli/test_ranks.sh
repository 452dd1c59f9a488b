#!/bin/sh
# What the ranks of a job do with each other, as processes: rendezvous by communicator and sequence
# number, transfers by peer and tag, and calls of all processes.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root
ranks() { # N CASE
  run_cmd timeout 60 mpirun -q --oversubscribe --bind-to none $root -n "$1" "$B/stand-in/ranks" "$2"
}
host_ranks() { # N CASE
  run_cmd timeout 60 mpirun -q --oversubscribe --bind-to none $root -n "$1" "$B/stand-in/host_ranks" "$2"
}
passes() {
  ranks "$@"
  exit_is 0
}
# fails N CASE TEXT: no hang; a rank says the text, and each that says anything says that or that another failed.
fails() {
  ranks "$1" "$2"
  exit_is 1
  grep '^rank' out > said
  grep -qF "$3" said || { fail "nobody says \"$3\""; t_show; }
  ! grep -vF "$3" said | grep -qv 'cannot go on without it' || fail "another reason: $(cat said)"
}

over() { # WAY
  it "ranks have different numbers of rendezvous with each other, over $1"
  passes 3 communicators

  it "transfers are matched by peer and tag, over $1"
  passes 2 transfers

  it "maximum, agreement and broadcast of all processes, over $1"
  passes 3 world

  it "two instructions that differ are named, over $1"
  fails 2 unlike_calls "the programs of ranks"
  grep -q 'all_gather f32\[4\]' said && grep -q 'all_reduce f32\[8\]' said || fail "not both are named"

  it "an instruction whose data are longer than expected is named, over $1"
  for i in 1 2 3; do
    fails 2 longer_data "the programs of ranks"
    grep -q 'all_gather f32\[25000\]' said && grep -q 'all_reduce f32\[2\]' said || fail "not both are named"
  done

  it "ranks that wait for each other are told so, over $1"
  fails 3 waits_in_circle "do not match: each waits for the other"
  grep -q 'rank \([0-9]\) at sum of \1 and its next, and rank \([0-9]\) at sum of \2 and its next' said || fail "not both are named"
  fails 2 waits_for_all "do not match: each waits for the other"
  grep -q 'sum of 0 and 1' said && grep -q 'a call of all processes' said || fail "not both are named"

  it "a rank that has ended is not waited for, over $1"
  fails 2 one_ends "rank 0 is at sum of 0 and 1 again, to which rank 1 does not come: it has ended"
  ranks 2 one_exits
  exit_is 1
  out_has "rank 0 is at sum of 0 and 1 again, to which rank 1 does not come: it has ended"

  it "unlike instructions in which ranks exchange nothing are named, over $1"
  fails 3 no_exchange "do not match: rank 0 is at permute by 2, and rank 2 at permute by 1"

  it "a rank that is late is waited for, over $1"
  passes 3 late_rank

  it "a transfer between unlike instructions is refused, over $1"
  fails 2 unlike_transfers "with tag 3 rank 1 receives 16 bytes at i32[4] in stage 1, and rank 0 sends 8 bytes at f32[2] in stage 0"

  it "a transfer of more messages than there are is refused at its header, over $1"
  fails 2 long_transfer "with tag 3 rank 1 receives 1073741832 bytes at numbers, and rank 0 sends 8 bytes at numbers"

  mkdir -p disk
  it "processes read shards of a tensor that is on flash, over $1"
  run_cmd timeout 60 mpirun -q --oversubscribe --bind-to none $root -n 2 "$B/stand-in/flash_ranks" disk
  exit_is 0
  [ -z "$(ls -A disk)" ] || fail "left in the folder: $(ls -A disk)"

  it "a shard on flash that cannot be read is named, and no process waits for it, over $1"
  run_cmd timeout 60 mpirun -q --oversubscribe --bind-to none $root -n 2 "$B/stand-in/flash_ranks" disk damaged
  exit_is 1
  grep -q '^rank 1: "w" on tier flash, path "disk": the 4096 bytes at 4096 are not' out || { fail "not named"; t_show; }
  ! grep '^rank 0' out | grep -qv 'process 1 cannot read its shard\|cannot go on without it' || fail "another reason"

  for n in 2 4; do
    it "$n processes of a machine share a limit of host memory, over $1"
    host_ranks $n shares
    exit_is 0

    it "a process may have several devices, each with host memory of its own, over $1"
    host_ranks $n again
    exit_is 0

    it "their copies take turns on an emulated link, over $1"
    write turns.yaml <<END
devices_per_node: $n
device: {flops: 1e11, bandwidth_gb_s: 30}
links: [{name: memory, bandwidth_gb_s: 10, latency_us: 1}]
tiers: [{name: host, read_gb_s: 0.1048576, write_gb_s: 0.1048576, latency_us: 2000, shared_by: node}]
emulate: true
END
    host_ranks $n turns
    exit_is 0

    it "one that is killed leaves none of that memory behind, over $1"
    ls -A /dev/shm >before
    host_ranks $n killed
    [ "$status" != 0 ] || fail "nothing came of it"
    [ -z "$(grep -lzxF "HYPER_TEST_MARK=$WORK" /proc/[0-9]*/environ 2>/dev/null | xargs -r -n 1 dirname |
      xargs -r -I{} sh -c 'ls -l {}/fd 2>/dev/null' | grep hyper-shared-memory)" ] || fail "somebody has it still"
    ls -A /dev/shm | grep -v '^vader_segment' >after
    grep -v '^vader_segment' before | cmp -s - after || fail "left behind: $(cat after)"
  done

  it "processes whose devices the host cannot address read tensors and outputs of each other, over $1"
  run_cmd timeout 60 mpirun -q --oversubscribe --bind-to none $root -n 2 "$B/stand-in/flash_ranks" disk far
  exit_is 0

  it "a failure ends waits of other communicators, also later, over $1"
  fails 3 failure_stays "process 2 failed, and the others cannot go on without it"
}

over_sockets
over sockets
if over_mpi; then
  HYPER_MPI=$B/hyper_mpi.so
  export HYPER_MPI
  over MPI
fi
