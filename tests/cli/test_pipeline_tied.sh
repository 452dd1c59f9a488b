#!/bin/sh
# A tied embedding on a pipeline: the last stage reads what the first one has.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

make_job job <<END
gradient_accumulation_steps: 6
END
family_job llama
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/; s/"num_hidden_layers": [0-9]*/"num_hidden_layers": 6/' \
  job/model/config.json
sed -i 's/^max_steps: .*/max_steps: 3/; s/^per_device_train_batch_size: .*/per_device_train_batch_size: 1/' job/job.yaml
run train job/job.yaml output_dir=one
exit_is 0
run train job/job.yaml output_dir=two strategy=pp=2
exit_is 0

it "the weights are those of one device"
same_history two one
same_file two/model.safetensors one/model.safetensors

it "all pipelines have the same bits, also where one device has the first stage and the last"
for schedule in gpipe zb-h1 zbv dualpipe-v; do
  rm -rf p
  run train job/job.yaml output_dir=p strategy=pp=3 "hyper_parallel.pipeline={schedule: $schedule}"
  exit_is 0
  same_file p/model.safetensors two/model.safetensors
done
run train job/job.yaml output_dir=q strategy=pp=2 hyper_parallel.recompute=full
exit_is 0
same_file q/model.safetensors two/model.safetensors

it "the embedding crosses once a step, and the sum of the head's gradients, without a copy of them"
run explain job/job.yaml schedule strategy=pp=2
exit_is 0
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' job/model/config.json)
times=$(sed -n '/^mesh 1/,$p' out | grep -c "= recv {.*shape=\[$vocab,64\]}")
[ "$times" = 1 ] || fail "the last stage receives the embedding $times times"
times=$(sed -n '/^mesh 0/,/^mesh 1/p' out | grep -c "= recv {.*shape=\[$vocab,64\]}")
[ "$times" = 1 ] || fail "the first stage receives gradients of the head $times times"
out_lacks "= copy"
