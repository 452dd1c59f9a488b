#!/bin/sh
# One of several processes has no memory for what the others send it: all learn it, and try again.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

it "an export for which one process has no memory is tried again by all"
"${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o oom.so "$ROOT/tests/cli/preload_oom.c" 2>err || { skip "no compiler"; exit 0; }
root=
[ "$(id -u)" = 0 ] && root=--allow-run-as-root

# Of each up_proj, [4112,32] in f32, a process has half: nothing else that is sent has so many bytes.
make_job job </dev/null
sed -i 's/"intermediate_size": 48/"intermediate_size": 4112/' job/model/config.json
train() { # FOLDER RANK TIMES
  t_cmd="train output_dir=$1, without memory in process $2, $3 times" status=0
  OOM_RANK=$2 OOM_TIMES=$3 OOM_BYTES=263168 LD_PRELOAD=$WORK/oom.so timeout 60 \
    mpirun -q --oversubscribe --bind-to none $root -n 2 "$HYPER" train job/job.yaml "output_dir=$1" strategy=tp=2 \
    max_steps=2 save_strategy=no disable_tqdm=true >out 2>err </dev/null || status=$?
}
train whole 9 0
exit_is 0
train once 0 1
exit_is 0
err_has "cannot allocate 263168 x 1 bytes; trying again in 1 s (try 1 of 4 failed)"
same_file whole/model.safetensors once/model.safetensors
no_file "$(ls -d once/*.tmp.* 2>/dev/null || echo nothing)"

it "where it never has it, all end with its message"
train never 0 1000
exit_is 2
err_has "cannot allocate 263168 x 1 bytes"
no_file never/model.safetensors
