#!/bin/sh
# train_sampling_strategy: group_by_length, which draws all orders of a run from one generator.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job <<'END'
packing: false
max_samples: 60
max_steps: -1
num_train_epochs: 2
train_sampling_strategy: group_by_length
gradient_accumulation_steps: 2
val_size: 11
per_device_eval_batch_size: 2
eval_strategy: steps
eval_steps: 3
END
sed -i '/^max_steps: 20/d; s/^cutoff_len: .*/cutoff_len: 256/' job/job.yaml

it "a resume has the samples of the run that it goes on from, in the middle of an epoch too"
run train job/job.yaml deterministic=layout output_dir=one
exit_is 0
for from in 5 10; do
  run train job/job.yaml deterministic=layout output_dir=again resume_from_checkpoint=one/checkpoint-$from 
  exit_is 0
  same_file one/model.safetensors again/model.safetensors
  rm -r again
done

it "so has one on another mesh, whose replicas have other batches"
run train job/job.yaml deterministic=layout output_dir=two resume_from_checkpoint=one/checkpoint-5 strategy=dp=2 \
  per_device_train_batch_size=2
exit_is 0
same_file one/model.safetensors two/model.safetensors

it "and with a memory limit, planned for the batches of every evaluation"
run train job/job.yaml deterministic=layout output_dir=less memory_limit=95%
exit_is 0
same_file one/model.safetensors less/model.safetensors

it "other evaluations would change the order, and are refused"
run train job/job.yaml output_dir=three resume_from_checkpoint=one/checkpoint-5 eval_steps=2
exit_is 2
err_has "eval_steps 3.0 -> 2.0"
run train job/job.yaml output_dir=three resume_from_checkpoint=one/checkpoint-5 train_sampling_strategy=random
exit_is 2
err_has "disable_shuffling group_by_length -> false"

it "pairs have no one length, in Transformers too"
run train job/job.yaml stage=dpo template=qwen
exit_is 2
err_has "those of stage dpo are pairs"

it "batches have less padding than in an order by chance"
padded() { sed -n 's/.*"num_input_tokens_seen": \([0-9]*\).*/\1/p' "$1/trainer_state.json" | tail -n 1; }
run train job/job.yaml output_dir=grouped eval_strategy=no val_size=0 include_num_input_tokens_seen=all
run train job/job.yaml output_dir=random eval_strategy=no val_size=0 include_num_input_tokens_seen=all train_sampling_strategy=random
exit_is 0
[ "$(padded grouped)" -lt "$(padded random)" ] || fail "$(padded grouped) tokens, by chance $(padded random)"
