#!/bin/sh
# Disks that take long under `hyper launch`: a process that is stuck before its first program is found
# and named with what it does; a save that waits for its disk is not ended as a hang.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

it "a process that is stuck before its first program is named with what it does"
if ! command -v mpirun >/dev/null || [ ! -e "$B/hyper_mpi.so" ]; then
  skip "no mpirun, or no mpicc when hyper was built"
  exit 0
fi
"${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o hang.so "$ROOT/tests/torture/preload_hang.c" -ldl || exit 1
make_job job </dev/null
run train job/job.yaml strategy=dp=2,zero=1 output_dir=alone
exit_is 0

# with VARIABLE=VALUE... -- COMMAND: of the job's processes alone
with() {
  while [ "$1" != -- ]; do
    export "$1"
    shift
  done
  shift
  write starter <<END
#!/bin/sh
[ "\$1" != --version ] || exec mpirun --version
exec mpirun -x LD_PRELOAD="$WORK/hang.so" "\$@"
END
  chmod +x starter
  run launch -n 2 --starter "$WORK/starter" "$@"
  unset HANG SLOW
}
with HANG_RANK=1 HANG=model/config.json -- --watchdog 2 --max-restarts 0 -- \
  train job/job.yaml strategy=dp=2,zero=1 output_dir=stuck
exit_is 1
err_has "process 1 ($(hostname), pid "
err_has "it has been before its first program, hashing samples and the model's files (it has 20 s there; "
no_orphan "stuck before the first program"

it "a save that waits for its disk for longer than other pauses is no hang"
with HANG_RANK=1 SLOW=model-part SLOW_S=25 -- --watchdog 2 --max-restarts 0 -- \
  train job/job.yaml strategy=dp=2,zero=1 output_dir=slow save_steps=20
exit_is 0
[ "$status" = 0 ] || sed "1,12d; s/^/    stderr: /" err
same_file alone/model.safetensors slow/model.safetensors
