#!/bin/sh
# Groups of devices: answers, pairs and bf16 are those of one device; jobs whose processes are killed or told to
# end go on to the same bits.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

chats=$ROOT/tests/golden/chats
make_job job <<END
gradient_accumulation_steps: 2
END
family_job llama
fix_batch job/job.yaml
cp job/job.yaml texts.yaml
cp -r job/model texts
sed -i 's|^model_name_or_path: .*|model_name_or_path: texts|' texts.yaml
cp "$chats"/tokenizer* job/model/
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 600/' job/model/config.json
sed -i "s/^stage: pt/stage: sft/; s/^max_steps: .*/max_steps: 3/; s/^cutoff_len: .*/cutoff_len: 64/
  s|^dataset: .*|dataset: chats|" job/job.yaml
cat >>job/job.yaml <<END
dataset_dir: $chats
template: qwen
END

groups="a: {devices: [0, 2], module: model.layers.0, strategy: dp=2}, b: {devices: [1, 3, 4], module: [model.layers.1-3, lm_head], strategy: tp=3}"

# on_both KEY=VALUE...: the run with deterministic: layout, on one device and on groups, of two replicas, into one and g.
on_both() {
  rm -rf one g
  run train job/job.yaml output_dir=one deterministic=layout per_device_eval_batch_size=6 "$@"
  exit_is 0
  run train job/job.yaml output_dir=g deterministic=layout per_device_eval_batch_size=3 "hyper_parallel.groups={$groups}" "$@"
  exit_is 0
  same_history g one
}

it "answers to an evaluation set"
on_both eval_dataset=alpaca predict_with_generate=true do_predict=true do_sample=false max_new_tokens=12
same_file g/generated_predictions.jsonl one/generated_predictions.jsonl
same_file g/model.safetensors one/model.safetensors

it "pairs of answers, with an adapter and without"
on_both stage=dpo dataset=pairs
same_file g/model.safetensors one/model.safetensors
on_both stage=dpo dataset=pairs finetuning_type=lora lora_target=all
same_file g/adapter_model.safetensors one/adapter_model.safetensors

it "bf16, an evaluation, and micro-batches of 3 samples, which no group divides"
evaluated="do_eval=true eval_strategy=steps eval_steps=2"
on_both bf16=true global_batch_size=6 eval_dataset=alpaca $evaluated
same_file g/model.safetensors one/model.safetensors

# --- processes ------------------------------------------------------------------------------------

sed -i 's/^max_steps: .*/max_steps: 200/; s/^save_steps: .*/save_steps: 50/' texts.yaml
groups="a: {devices: [0, 2], module: model.layers.0, strategy: dp=2}, b: {devices: 1, module: model.layers.1-3}"
three() { # LAUNCH-OPTIONS: in the background, as $launcher
  rm -rf several
  "$HYPER" launch -n 3 --restart-pause 0.2 "$@" -- train texts.yaml output_dir=several "hyper_parallel.groups={$groups}" >out 2>err </dev/null &
  launcher=$!
  t_cmd="launch -n 3 $*"
}
run train texts.yaml output_dir=alone "hyper_parallel.groups={$groups}"
exit_is 0

it "after kill -9 of a process of any group the job goes on to the same bits"
goes_on_after_kill three 0 1

it "SIGTERM writes a checkpoint after the step, and the run goes on from there"
three
wait_for several/checkpoint-50
kill -TERM "$launcher"
ended
exit_is 0
err_has "SIGTERM: writing a checkpoint at step"
no_orphan "after SIGTERM"
no_file several/model.safetensors
run train texts.yaml output_dir=several "hyper_parallel.groups={$groups}"
exit_is 0
err_has "continuing from several/checkpoint-"
same_file alone/model.safetensors several/model.safetensors

it "a limit that is too small is refused on all processes, and the one that is named is enough"
run launch -n 3 -- train texts.yaml output_dir=nowhere max_steps=2 memory_limit=1000 "hyper_parallel.groups={$groups}"
exit_is 2
least=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
run launch -n 3 -- train texts.yaml output_dir=limited max_steps=2 "memory_limit=${least:-0}" "hyper_parallel.groups={$groups}"
exit_is 0

it "bad input is refused once, by all processes"
refused_by_all() { # GROUPS MESSAGE [KEY=VALUE...]
  groups=$1 message=$2
  shift 2
  run launch -n 3 -- train texts.yaml output_dir=nowhere "hyper_parallel.groups={$groups}" "$@"
  refused "$message"
  [ "$(grep -c '^hyper: ' err)" = 1 ] || fail "not said once"
}
refused_by_all "a: {devices: 0-2, module: model.layers, strategy: pp=3}" "adds up to 5 layers" "hyper_parallel.pipeline={cut: [1, 3, 1]}"
refused_by_all "a: {devices: 0-1, module: model.layers.0}, b: {devices: 2, module: model.layer.1-3}" "did you mean"
refused_by_all "a: {devices: 0-1, module: model.layers.0-2}, b: {devices: 2, module: model.layers.2-3}" "model.layers.2 is of groups.a, too"
refused_by_all "a: {devices: 0-1, module: model.layers.0}, b: {devices: 3, module: model.layers.1-3}" "device 2 is in no group"
refused_by_all "a: {devices: [0, 0, 1], module: model.layers.0}, b: {devices: 2, module: model.layers.1-3}" "device 0 is named twice"
two="a: {devices: 0-1, module: model.layers.0}, b: {devices: 2, module: model.layers.1-3}"
printf 'placement 0 1\n0 F 0\n1 F 0\n' >rows.txt # for other micro-batches
refused_by_all "$two" "2 rows; expected" "hyper_parallel.pipeline={schedule: rows.txt}"
head -c 70000 /dev/zero | tr '\0' F >long.txt
refused_by_all "$two" "expected stages, microbatches, placement" "hyper_parallel.pipeline={schedule: long.txt}"
no_file nowhere
