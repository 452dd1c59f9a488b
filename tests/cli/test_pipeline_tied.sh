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

it "the predicted step has the time in which they cross"
cat >slow.yaml <<'END'
name: slow
device: {flops: 1e12, bandwidth_gb_s: 1000}
links: [{name: net, bandwidth_gb_s: 0.001, latency_us: 1}]
END
once() { # KEY=VALUE...: milliseconds of what crosses once a step
  run explain job/job.yaml pipeline --json strategy=pp=2 hyper_parallel.cluster=slow.yaml hyper_parallel.pipeline.cut=[3,3] "$@"
  exit_is 0
  awk -v s="$(json out once_s)" 'BEGIN { printf "%.0f", 1e3 * s }'
}
# Each way takes vocab x 64 x 4 bytes.  The rows hide none of the way back, and little of the other.
one_way=$((vocab * 64 * 4 / 1000)) both=$(once)
[ "$both" -gt $((one_way * 3 / 2)) ] && [ "$both" -le $((one_way * 2 + 1)) ] ||
  fail "$both ms of twice $one_way ms"
awk -v all="$(json out step_s)" -v rows="$(json out rows_s)" -v ms="$both" \
  'BEGIN { exit !(all - rows >= (ms - 1) / 1e3) }' || fail "the step has not the $both ms"
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' job/model/config.json
alone=$(once)
[ "$alone" = 0 ] || fail "$alone ms without a tied embedding"
