#!/bin/sh
# What a run that goes on from a checkpoint may change: other data or numbers are refused by name, or
# taken, told and noted where resume_override says so.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job </dev/null
sed -i 's/^max_steps: 20/max_steps: 6/; s/^save_steps: 5/save_steps: 3/' job/job.yaml
run train job/job.yaml output_dir=whole
exit_is 0

# The run as it was at step 3, in the folder b.
back_to_3() {
  rm -rf b && cp -r whole b
  rm -r b/checkpoint-6 b/model.safetensors b/*_results.json
}
# noted PATH VALUE: what the manifest of the last checkpoint has there; its last line is its hash.
noted() {
  sed '$d' b/checkpoint-6/MANIFEST.json > manifest.json
  json_is manifest.json "state.$1" "$2"
}
goes_on() { # KEY=VALUE...
  back_to_3
  run train job/job.yaml output_dir=b "$@"
  exit_is 0
  err_has "continuing from b/checkpoint-3"
}
is_refused() { # WORDS KEY=VALUE...
  words=$1
  shift
  back_to_3
  run train job/job.yaml output_dir=b "$@"
  refused "b/checkpoint-3/MANIFEST.json" "$words"
  no_file b/checkpoint-6
}

it "the same run goes on to the same bits, and nothing is noted"
goes_on
same_file whole/model.safetensors b/model.safetensors
noted changes "[]"
err_lacks "other than in the checkpoint"

it "other data of the same size are refused"
sed '1!G;h;$!d' stories.jsonl > reversed.jsonl
is_refused "the data has changed (dataset reversed.jsonl: " dataset=reversed.jsonl
err_has "dataset stories.jsonl -> reversed.jsonl"
err_has "resume_override: [data]"
cp stories.jsonl kept.jsonl
cp reversed.jsonl stories.jsonl
is_refused "the data has changed (dataset stories.jsonl: "
err_has "by the same keys"
cp kept.jsonl stories.jsonl

it "the same data under another name are not"
goes_on dataset=kept.jsonl

it "another order, rate, optimizer setting or dtype is refused, each by its name and both values"
while read -r name then now keys; do
  is_refused "$name $then -> $now" $keys
  err_has "resume_override: [$name]"
done <<END
disable_shuffling false true disable_shuffling=true
disable_shuffling false true train_sampling_strategy=sequential
seed 42 43 seed=43
data_seed null 7 data_seed=7
dataloader_drop_last false true dataloader_drop_last=true
learning_rate 0.001 0.002 learning_rate=0.002
lr_scheduler_type cosine linear lr_scheduler_type=linear
lr_scheduler_kwargs none num_cycles: lr_scheduler_kwargs={"num_cycles":2}
warmup_steps 0.1 0.2 warmup_ratio=0.2
weight_decay 0.1 0.0 weight_decay=0
adam_beta1 0.9 0.8 adam_beta1=0.8
adam_beta2 0.999 0.99 adam_beta2=0.99
adam_epsilon 1e-08 1e-07 adam_epsilon=1e-7
max_grad_norm 1.0 0.5 max_grad_norm=0.5
moe_aux_loss_coef null 0.1 moe_aux_loss_coef=0.1
dtype f32 bf16 bf16=true
END
is_refused "another optim" optim=sgd

it "when and how a run evaluates is compared where its schedule follows that"
goes_on eval_delay=1 # cosine does not
mv whole cosine
set -- lr_scheduler_type=reduce_lr_on_plateau 'lr_scheduler_kwargs={"patience":0,"threshold":10}' val_size=0.2 \
  eval_strategy=steps
run train job/job.yaml output_dir=whole "$@" eval_steps=3
exit_is 0
is_refused "eval_steps 3.0 -> 1.0" "$@" eval_steps=1
err_has "resume_override: [eval_steps]"
is_refused "eval_delay 0.0 -> 2.0" "$@" eval_steps=3 eval_delay=2
is_refused "per_device_eval_batch_size 8 -> 1" "$@" eval_steps=3 per_device_eval_batch_size=1
is_refused "eval_strategy steps -> epoch" "$@" eval_steps=3 eval_strategy=epoch
goes_on "$@" eval_steps=3
same_file whole/model.safetensors b/model.safetensors
goes_on "$@" eval_steps=1 resume_override=eval_steps
rm -r whole && mv cosine whole

it "all of them are told at once"
is_refused "learning_rate 0.001 -> 0.002; weight_decay 0.1 -> 0.0; the data has changed" learning_rate=0.002 weight_decay=0 cutoff_len=16
err_has "cutoff_len 32 -> 16"
err_has "resume_override: [learning_rate, weight_decay, data]"

it "resume_override takes a change, tells it, and the next checkpoint notes it"
goes_on learning_rate=0.002 resume_override=learning_rate
err_has "resume_override: learning_rate 0.001 -> 0.002, from step 4 on"
noted changes.0.name learning_rate
noted changes.0.step 3
noted changes.0.now 0.002
! cmp -s whole/model.safetensors b/model.safetensors || fail "another rate gave the same weights"
is_refused "the data has changed" learning_rate=0.002 dataset=reversed.jsonl resume_override=learning_rate
goes_on learning_rate=0.002 dataset=reversed.jsonl 'resume_override=[data, learning_rate]' save_steps=4
err_has "the data has changed"
mv b/checkpoint-4 kept
rm -r b/checkpoint-6 b/model.safetensors b/*_results.json
mv kept b/checkpoint-4
run train job/job.yaml output_dir=b learning_rate=0.002 dataset=reversed.jsonl weight_decay=0 resume_override=weight_decay
exit_is 0
noted changes.2.name weight_decay

it "another model is refused by the key of its config.json"
cp -r job/model kept
sed -i 's/"rms_norm_eps": [0-9e.-]*/"rms_norm_eps": 0.001/' job/model/config.json
is_refused "rms_norm_eps of the model's config.json"
err_has "resume_override: [model]"
goes_on resume_override=model
rm -r job/model && mv kept job/model

it "what changes no number may change, and what lengthens a run or moves it is told"
goes_on save_steps=2 logging_steps=2 threads=1 per_device_eval_batch_size=2
err_lacks "other than in the checkpoint"
goes_on max_steps=8
err_has "other than in the checkpoint: steps 6 -> 8"
goes_on strategy=tp=2
err_has "other than in the checkpoint: mesh one device -> (2)(tp)"
noted changes.0.name mesh
goes_on hyper_parallel.deterministic=layout hyper_parallel.interleave=2
err_has "other than in the checkpoint: deterministic run -> layout"
err_has "other than in the checkpoint: interleave 1 -> 2"

it "of ten evaluation sets each one that changes is told"
sets=
for i in 0 1 2 3 4 5 6 7 8 9; do
  head -n 4 stories.jsonl >eval$i.jsonl
  sets=$sets${sets:+,}eval$i.jsonl
done
set -- "eval_dataset=$sets" eval_on_each_dataset=true eval_strategy=steps eval_steps=6
mv whole kept
run train job/job.yaml output_dir=whole "$@"
exit_is 0
goes_on "$@"
err_lacks "other than in the checkpoint"
tail -n 4 stories.jsonl >eval9.jsonl
goes_on "$@"
err_has "other than in the checkpoint: eval_data.9 13 samples, "
err_lacks "other than in the checkpoint: eval_data.8 "
noted changes.0.name eval_data.9
rm -rf whole && mv kept whole

it "another batch is taken where it is named"
is_refused "4 samples in a step" per_device_train_batch_size=2
goes_on per_device_train_batch_size=2 resume_override=global_batch_size
err_has "global_batch_size 4 -> 2"

it "a name that means nothing is refused"
run train job/job.yaml output_dir=nowhere resume_override=lerning_rate
refused "resume_override" 'did you mean "learning_rate"'
