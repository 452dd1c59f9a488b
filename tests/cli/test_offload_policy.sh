#!/bin/sh
# Rules of other systems in place of the planner's own decisions: they change times, no bit.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

family_job llama

it "steps by a policy have the bits of the resident step"
run train job/job.yaml output_dir=whole
exit_is 0
limits_of
limit=$((resident / 2))
for policy in zero_offload layer_ahead full_recompute; do
  run train job/job.yaml output_dir=$policy memory_limit=$limit hyper_parallel.offload_policy=$policy
  exit_is 0
  same_file $policy/model.safetensors whole/model.safetensors
  same_history $policy whole
done

it "its optimizer state is where the policy says, whatever the limit"
run explain job/job.yaml memory --json hyper_parallel.offload_policy=zero_offload
exit_is 0
[ "$(json out optimizer_bytes)" -eq 0 ] || fail "optimizer state stays on the device"
tr -d ' ' <out | grep -q '"class":"parameters","tier":"device","planned_bytes":[0-9]*,"moved_bytes":0}' || fail "weights move"

it "with full_recompute activations are recomputed"
run train job/job.yaml output_dir=full memory_limit=$limit hyper_parallel.offload_policy=full_recompute
exit_is 0
err_has "activations recomputed"
run train job/job.yaml output_dir=full hyper_parallel.offload_policy=full_recompute hyper_parallel.recompute=none
refused "contradicts"

it "no policy is faster than the plan"
cat >die.yaml <<END # not this machine, whose costs are learned while other tests run
name: die
device: {flops: 4e10, bandwidth_gb_s: 2.7}
links: [{name: none, bandwidth_gb_s: 1, latency_us: 1}]
tiers: [{name: host, read_gb_s: 1, write_gb_s: 1, latency_us: 20}]
END
run explain job/job.yaml --json memory_limit=$limit hyper_parallel.cluster=die.yaml
exit_is 0
planned=$(json out step_s)
for policy in zero_offload layer_ahead full_recompute; do
  run explain job/job.yaml --json memory_limit=$limit hyper_parallel.cluster=die.yaml hyper_parallel.offload_policy=$policy
  exit_is 0
  awk -v a="$planned" -v b="$(json out step_s)" 'BEGIN { exit !(a <= b * 1.001) }' ||
    fail "$policy takes $(json out step_s) s, the plan $planned"
done

it "other policies, and other rules besides one, are refused"
run train job/job.yaml output_dir=none hyper_parallel.offload_policy=zero_ofload
refused "did you mean \"zero_offload\"" "layer_ahead or full_recompute"
run train job/job.yaml output_dir=none hyper_parallel.offload_policy=layer_ahead offload=optimizer=host
refused "offload must be auto"
no_file none
run bench step --model "$ROOT/examples/demo/model" --offload-policy=fastest
refused "--offload-policy" "expected auto, zero_offload"
