#!/bin/sh
# Updates by the processors of the host: the bits of updates on the device, and where plans use them.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

LAYERS=2
family_job llama
run train job/job.yaml output_dir=resident

# A slow link, and how much the host updates in a second.
cluster() {
  cat > "$1" <<END
name: die
device: {flops: 1e11, bandwidth_gb_s: 50}
links: [{name: none, bandwidth_gb_s: 1, latency_us: 1}]
tiers: [{name: host, read_gb_s: 0.5, write_gb_s: 0.5, latency_us: 1$2}]
END
}
cluster plain.yaml ""
cluster fast.yaml ", update_gb_s: 20"

it "updates by the host give the bits of the device: at the end, in the next step, on several devices"
exit_is 0
for how in "hyper_parallel.update=end" "hyper_parallel.update=next_step" \
  "hyper_parallel.update=next_step gradient_accumulation_steps=2" \
  "strategy=dp=2,zero=3"; do
  # shellcheck disable=SC2086 # a list of words
  set -- $how
  run train job/job.yaml output_dir=host overwrite_output_dir=true memory_limit=60% "$@" \
    hyper_parallel.host_update=always
  exit_is 0
  err_has "the host updates what is in its memory"
  case $how in
    strategy* | *accumulation*)
      run train job/job.yaml output_dir=same overwrite_output_dir=true "$@"
      same_file host/model.safetensors same/model.safetensors ;;
    *) same_file host/model.safetensors resident/model.safetensors ;;
  esac
done

it "each stage of a pipeline updates by its host"
how="gradient_accumulation_steps=2 strategy=pp=2"
# shellcheck disable=SC2086 # a list of words
run train job/job.yaml output_dir=host overwrite_output_dir=true memory_limit=70% $how hyper_parallel.host_update=always
exit_is 0
err_has "the host updates what is in its memory"
# shellcheck disable=SC2086
run train job/job.yaml output_dir=same overwrite_output_dir=true $how
same_file host/model.safetensors same/model.safetensors

it "a run goes on with them from a checkpoint without them"
run train job/job.yaml output_dir=later max_steps=2 save_steps=2
run train job/job.yaml output_dir=later resume_from_checkpoint=later/checkpoint-2 memory_limit=60% hyper_parallel.host_update=always
exit_is 0
same_file later/model.safetensors resident/model.safetensors

# Seconds of a step by the plan.
planned() {
  run explain job/job.yaml --json memory_limit=60% "$@"
  exit_is 0
  json out step_s
}

it "a plan uses them if the cluster file says how fast they are, and they are faster"
run explain job/job.yaml memory_limit=60% hyper_parallel.cluster=plain.yaml
err_lacks "the host updates"
run explain job/job.yaml memory_limit=60% hyper_parallel.cluster=fast.yaml
err_has "the host updates what is in its memory"
run explain job/job.yaml memory_limit=60% hyper_parallel.cluster=fast.yaml hyper_parallel.host_update=never
err_lacks "the host updates"
with=$(planned hyper_parallel.cluster=fast.yaml) without=$(planned hyper_parallel.cluster=plain.yaml)
awk "BEGIN { exit !($with < $without) }" || fail "$with s with them, $without without"

it "without a limit, or with optimizer state on flash, there are none"
run explain job/job.yaml hyper_parallel.cluster=fast.yaml hyper_parallel.host_update=always
exit_is 0
err_has "host_update: always has no effect here"
err_lacks "the host updates"
mkdir -p disk
run explain job/job.yaml hyper_parallel.cluster=fast.yaml hyper_parallel.host_update=always memory_limit=60% \
  "hyper_parallel.offload={optimizer: flash}" "flash=[disk]" flash_limit=64MiB
exit_is 0
err_lacks "the host updates"

it "the picture has a lane of the host, the program its stream"
run explain job/job.yaml memory --svg memory.svg memory_limit=60% hyper_parallel.host_update=always \
  hyper_parallel.update=end hyper_parallel.recompute=none
exit_is 0
grep -q ">host<" memory.svg || fail "no lane of the host"
run explain job/job.yaml schedule memory_limit=60% hyper_parallel.host_update=always
out_has "host"

it "another word is refused with what is accepted"
run train job/job.yaml output_dir=refused hyper_parallel.host_update=allways
refused "host_update" 'did you mean "always"'

