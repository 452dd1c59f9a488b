#!/bin/sh
# The engine of matrix products: named or measured, in plans, checkpoints and processes.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

export HYPER_CACHE="$WORK/cache"
make_job job </dev/null
# Few tokens: some runs are by the engine that is hundreds of times slower.
sed -i 's/batch_size: 4/batch_size: 1/; s/cutoff_len: 32/cutoff_len: 16/' job/job.yaml
FAST=hyper_parallel.engine=fastest
# What a checkpoint says of the run under a key; the last line of the file is a hash.
state_of() { sed '$d' "$1/MANIFEST.json" > manifest.json && json manifest.json "state.$2"; }
tuning_of() { state_of "$1" engine_picks; }
state_is() { [ "$(state_of "$1" "$2")" = "$3" ] || fail "$1: $2 is $(state_of "$1" "$2"), want $3"; }
# Has the checkpoint the engine that was planted?
tuned_to() { tuning_of "$1" | grep -q " = $2\$" || fail "$1: nothing runs by $2: $(tuning_of "$1")"; }
same_tuning() { [ "$(tuning_of "$1")" = "$(tuning_of "$2")" ] || fail "$1 and $2: other tuning"; }
# Makes every engine in the cached tuning record that one.
plant() { sed -i "s/ = .*/ = $1/" "$HYPER_CACHE"/*.engines; }
# A folder with the kernels of the cache and no tuning record.
new_cache() { cp -r "$HYPER_CACHE" "$1" && rm -rf "$1"/*.engines; }
# Only where a library is there is anything measured.
need_libraries() {
  "$HYPER" doctor | grep -q '^ok *on*ednn\|^ok *openblas' || { skip "neither oneDNN nor OpenBLAS"; return 1; }
}

it "an engine that is none, or that fixed bits exclude, is refused by its key"
run train job/job.yaml hyper_parallel.engine=fastes
refused engine 'did you mean "fastest"?'
run train job/job.yaml engine=fastest hyper_parallel.engine=packed
refused "differs from"
for e in fastest onednn; do
  run explain job/job.yaml --engine $e --deterministic layout
  refused engine "$e rounds differently" "deterministic requires fixed bits" "write engine: packed"
done
run train job/job.yaml $FAST full_determinism=true
refused "full_determinism requires fixed bits"
run explain job/job.yaml --engine scalar full_determinism=true
exit_is 0
run logits --model "$CASES/llama-odd-heads" --tokens 1,2 --out o --engine mkl
refused 'no gemm engine is named "mkl"; there are: packed, onednn' "and fastest"
run logits --model "$CASES/llama-odd-heads" --tokens 1,2 --out o --engine fastest --deterministic layout
refused "for the same bits on every mesh use packed"
no_file o

it "an engine that is named is in the plan, where it is not ours"
run explain job/job.yaml schedule engine=scalar
exit_is 0
out_has " engine=scalar"
run explain job/job.yaml ops --engine scalar
out_has "f32                 scalar model"
run explain job/job.yaml schedule
out_lacks "engine="

it "the fastest are measured once, and told by plan, checkpoint and report"
if need_libraries; then
  run explain job/job.yaml $FAST
  exit_is 0
  ls "$HYPER_CACHE"/*.engines >/dev/null || fail "nothing is kept"
  plant scalar
  run train job/job.yaml $FAST
  exit_is 0
  tuned_to job/out/checkpoint-20 scalar
  state_is job/out/checkpoint-20 engine fastest
  run report job/out
  out_has "f32                 scalar model"
  run explain job/job.yaml schedule --engine fastest
  out_has " engine=scalar"
fi

it "ours is what runs unless an engine is asked for"
run train job/job.yaml output_dir=ours
exit_is 0
state_is ours/checkpoint-20 engine packed
state_is ours/checkpoint-20 engine_picks ""

# The run in $1 as it was at step 5, in the folder $2.
back_to_5() {
  rm -rf "$2" && cp -r "$1" "$2"
  rm -r "$2"/checkpoint-1[05] "$2"/checkpoint-20 "$2/model.safetensors" "$2"/*_results.json
}

it "a run goes on with the engines of its checkpoint, whatever is asked for or measured by then"
if need_libraries; then
  for how in $FAST engine=packed; do
    back_to_5 job/out b
    plant packed
    run train job/job.yaml $how output_dir=b
    exit_is 0
    same_tuning job/out/checkpoint-20 b/checkpoint-20
    same_file job/out/model.safetensors b/model.safetensors
  done
  err_has "going on with the engine of the checkpoint, fastest, in place of packed"
  back_to_5 ours b
  run train job/job.yaml $FAST output_dir=b
  err_has "going on with the engine of the checkpoint, packed, in place of fastest"
  state_is b/checkpoint-20 engine packed
fi

it "a library that is missing is named, and the run goes on"
if "$HYPER" doctor | grep -q '^ok *openblas'; then
  run explain job/job.yaml $FAST
  plant openblas
  run train job/job.yaml $FAST output_dir=blas
  exit_is 0
  tuned_to blas/checkpoint-20 openblas
  mkdir -p none && : > none/libopenblas.so.0
  for how in $FAST engine=packed; do
    back_to_5 blas b
    run_cmd env LD_LIBRARY_PATH="$WORK/none" "$HYPER" train job/job.yaml $how output_dir=b
    exit_is 0
    err_has 'gemm engine "openblas" (OpenBLAS, f32) is not on this machine'
    err_has "going on with ${how#*=}, whose bits differ"
    case $(tuning_of b/checkpoint-20) in *openblas*) fail "an engine that is not there was chosen" ;; esac
  done
  run_cmd env LD_LIBRARY_PATH="$WORK/none" "$HYPER" train job/job.yaml engine=openblas output_dir=c
  refused 'gemm engine "openblas" (OpenBLAS, f32) is not on this machine: install its library'
  run_cmd env LD_LIBRARY_PATH="$WORK/none" "$HYPER" doctor
  out_has "OpenBLAS, f32 (not on this machine"
else
  skip "no OpenBLAS"
fi

it "a damaged cache is measured anew"
if need_libraries; then
  new_cache damaged
  export HYPER_CACHE="$WORK/damaged"
  run explain job/job.yaml $FAST
  file=$(ls "$HYPER_CACHE"/*.engines)
  for damage in 'head -c 100' 'sed s/isa/isb/' 'sed s/=.*/=/' 'head -c 999 /dev/urandom'; do # more: fuzz_tuning.c
    cp "$file" keep
    $damage < keep > "$file"
    run explain job/job.yaml $FAST
    exit_is 0
    grep -q ' = ' "$file" || fail "$damage: nothing new is kept"
  done
  rm "$file" && mkdir "$file"
  run explain job/job.yaml $FAST
  exit_is 0
  rmdir "$file" && mkfifo "$file"
  run explain job/job.yaml $FAST
  exit_is 0
fi

it "processes run the engines that the first has measured"
if ! need_libraries; then :
elif ! command -v mpirun >/dev/null || [ ! -e "$B/hyper_mpi.so" ]; then skip "no MPI"
else
  root= && [ "$(id -u)" != 0 ] || root=--allow-run-as-root
  new_cache first
  new_cache second
  one="-n 1 env HYPER_CACHE=$WORK/first $HYPER train job/job.yaml strategy=dp=2 $FAST output_dir=two threads=2"
  run_cmd mpirun -q --oversubscribe --bind-to none $root $one : $(echo "$one" | sed 's,/first,/second,')
  exit_is 0
  ls first/*.engines >/dev/null || fail "the first has measured nothing"
  ls second/*.engines >/dev/null 2>&1 && fail "the second has measured as well"
  [ -n "$(tuning_of two/checkpoint-20)" ] || fail "no tuning in the checkpoint"
fi
