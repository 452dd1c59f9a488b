#!/bin/sh
# What is recomputed in the backward pass: all layers, the first of them, or some modules, by the key
# recompute or by the plan for a memory limit.  The bits are those of a run that keeps everything.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

family_job llama
sed -i "s/^per_device_train_batch_size: .*/per_device_train_batch_size: 16/" job/job.yaml
run train job/job.yaml output_dir=kept hyper_parallel.recompute=none

# The memory that the step with this recompute takes.
bytes_with() {
  run explain job/job.yaml --json "hyper_parallel.recompute=$1"
  exit_is 0
  json out planned_bytes
}

it "the first layers, or modules by name, give the bits of all activations kept"
exit_is 0
for how in 1 "[mlp]" '["model.layers.0","*.self_attn"]'; do
  run train job/job.yaml output_dir=some overwrite_output_dir=true "hyper_parallel.recompute=$how"
  exit_is 0
  err_has "activations recomputed"
  same_file some/model.safetensors kept/model.safetensors
done

it "so they do in the stages of a pipeline"
run train job/job.yaml output_dir=piped hyper_parallel.recompute=1 strategy=pp=2
exit_is 0
same_file piped/model.safetensors kept/model.safetensors

it "more layers take less memory, one module less than all and more than none"
none=$(bytes_with none) one=$(bytes_with 1) all=$(bytes_with full) mlp=$(bytes_with "[mlp]")
[ "$all" -lt "$one" ] && [ "$one" -lt "$none" ] || fail "full $all, 1 layer $one, none $none"
[ "$all" -lt "$mlp" ] && [ "$mlp" -lt "$none" ] || fail "full $all, mlp $mlp, none $none"
[ "$(bytes_with 0)" = "$none" ] || fail "0 layers are not as none"
[ "$(bytes_with "$LAYERS")" = "$all" ] || fail "$LAYERS layers are not as full"

it "what the model does not have is refused with what it has"
refuse() {
  run train job/job.yaml output_dir=refused "hyper_parallel.recompute=$1"
  shift
  refused "$@"
}
refuse $((LAYERS + 1)) "recompute" "$((LAYERS + 1)) layers, but the model has $LAYERS"
refuse -1 "recompute" "from 0 on"
refuse "[mpl]" "recompute" 'matches "mpl"' 'did you mean "mlp"'
refuse "[lm_head]" "recompute" 'matches "lm_head"'
refuse "[]" "recompute" "empty list"
refuse fulll "recompute" "a list of modules" 'did you mean "full"'
refuse "{mlp: full}" "recompute" "a list of modules"

it "where the key is in a file, its line is told"
lines=$(wc -l <job/job.yaml)
for how in 99 "[mpl]" "[]" fulll; do
  { cat job/job.yaml; echo "hyper_parallel: {recompute: $how}"; } >bad.yaml
  run train bad.yaml output_dir=refused
  refused "bad.yaml:$((lines + 1)):" "recompute: "
done

it "a key that says otherwise is named"
run train job/job.yaml output_dir=refused hyper_parallel.recompute=1 gradient_checkpointing=true
refused "recompute" "contradicts" "gradient_checkpointing"
run train job/job.yaml output_dir=refused "hyper_parallel.recompute=[mlp]" disable_gradient_checkpointing=true
refused "recompute" "contradicts" "disable_gradient_checkpointing"

# --- by the plan for a memory limit ---------------------------------------------------------------

slow_cluster

limits_of hyper_parallel.cluster=slow.yaml
it "under a memory limit some layers are recomputed where that is predicted to be faster, with the same bits"
limit="memory_limit=$((resident * 8 / 10)) hyper_parallel.cluster=slow.yaml"
run train job/job.yaml output_dir=limited $limit
exit_is 0
err_has "memory_limit: activations of the first 2 layers are recomputed"
same_file limited/model.safetensors kept/model.safetensors

it "no other choice is predicted to be faster, and recompute: none and full are obeyed"
predicted() {
  run explain job/job.yaml --json $limit "hyper_parallel.recompute=$1"
  exit_is 0
  json out step_s
}
auto=$(predicted auto)
for how in none full 1 2 3 "[mlp]"; do
  at=$(predicted "$how")
  awk -v a="$auto" -v b="$at" 'BEGIN { exit !(a > 0 && b > 0 && a <= b * 1.01) }' || fail "auto $auto s, $how $at s"
  err_lacks "activations of the first"
done

it "a quarter of the layers, or three, where copies take less time, by the limit"
sed -i "s/0\.02,/0.035,/g" slow.yaml
for want in "65 first layer" "43 first 3 layers"; do
  run explain job/job.yaml --json memory_limit=$((resident * ${want%% *} / 100)) hyper_parallel.cluster=slow.yaml
  exit_is 0
  err_has "activations of the ${want#* } are recomputed"
done
