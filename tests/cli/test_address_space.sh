#!/bin/sh
# A limit of address space (ulimit -v): what is reserved for tensors leaves room for everything else.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

# Address space of an instrumented program is its sanitizer's.
if grep -q fsanitize "$B/flags" 2>/dev/null; then it "a run under ulimit -v"; skip "sanitizer"; exit 0; fi

make_job job </dev/null
train() { # FOLDER LIMIT-KB KEY=VALUE...
  to=$1 kb=$2 t_cmd="train under ulimit -v $2" status=0
  shift 2
  (ulimit -v "$kb" && exec "$HYPER" train job/job.yaml max_steps=2 output_dir="$to" "$@") >out 2>err </dev/null || status=$?
}

it "a run needs no luck under ulimit -v: with one limit that is enough, larger ones are"
train whole unlimited
exit_is 0
for mb in 900 1100 1800 3400; do
  train out1 ${mb}000 overwrite_output_dir=true
  exit_is 0
  same_file whole/model.safetensors out1/model.safetensors
done

it "nor do several devices of a process"
for mb in 1800 3400; do
  train out2 ${mb}000 overwrite_output_dir=true strategy=dp=2 per_device_train_batch_size=2
  exit_is 0
done

it "a limit that is too small is told"
train out3 200000
exit_is 2
err_has "ulimit -v"
