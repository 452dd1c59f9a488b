#!/bin/sh
# Data-parallel replicas: the numbers of as many processes of LlamaFactory, step by step; and how many
# samples make up a step.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

for case in pt epochs rows three drop_last few; do
  it "the numbers of LlamaFactory's processes, step by step: $case"
  need_data golden/llamafactory || continue
  golden=$ROOT/tests/golden/replicas/$case.txt
  n=$(sed -n '1s/.*nproc_per_node //p' "$golden")
  run_cmd sh -c 'cd "$1" && shift && exec "$@"' - "$data" "$HYPER" train pt/config.yaml threads=1 "strategy=dp=$n" \
    output_dir="$WORK/$case" save_strategy=no plot_loss=false $(sed -n 's/^# key //p' "$golden")
  exit_is 0
  numbers_of $case/trainer_state.json > numbers
  follows "$golden"
  json_is $case/trainer_state.json num_input_tokens_seen "$(awk '$2 == "num_input_tokens_seen" { n = $3 } END { print n + 0 }' "$golden")"
done

make_job job </dev/null
make_job each </dev/null

it "the batch of each replica, and the product, are told and written"
run train job/job.yaml strategy=dp=3 output_dir=told max_steps=5 gradient_accumulation_steps=2
exit_is 0
err_has "24 samples in a step: per_device_train_batch_size 4 x 3 data-parallel replicas x gradient_accumulation_steps 2"
json_is told/trainer_state.json train_batch_size 4
for line in "train_batch_size: 4" "num_devices: 3" "gradient_accumulation_steps: 2" "total_train_batch_size: 24" \
  "eval_batch_size: 8" "total_eval_batch_size: 24"; do
  grep -qxF -e "- $line" told/README.md || fail "the model card has no $line"
done
run explain job/job.yaml strategy=dp=2,tp=2
out_has "8 x 32 tokens"

it "global_batch_size gives the numbers of one device on every mesh, at the end of an epoch too"
fix_batch job/job.yaml
run train job/job.yaml global_batch_size=24 output_dir=one num_train_epochs=1 max_steps=-1
exit_is 0
for how in "strategy=dp=2" "strategy=dp=3 per_device_train_batch_size=2" "strategy=dp=2,tp=2 gradient_accumulation_steps=3" \
  "strategy=dp=5"; do
  run train job/job.yaml global_batch_size=24 output_dir=s num_train_epochs=1 max_steps=-1 $how overwrite_output_dir=true
  exit_is 0
  close_losses one/trainer_log.jsonl s/trainer_log.jsonl 1e-5
done
err_has "padded to 25"

it "keys that contradict each other are refused with the numbers"
run train job/job.yaml output_dir=nowhere global_batch_size=16 per_device_train_batch_size=4 gradient_accumulation_steps=1 strategy=dp=2
refused "global_batch_size: 16, but per_device_train_batch_size 4" "x 2 data-parallel replicas"
err_has "= 8;"
run train job/job.yaml output_dir=nowhere global_batch_size=20 per_device_train_batch_size=4 strategy=dp=2
refused "global_batch_size: 16 or 24"
run train job/job.yaml output_dir=nowhere global_batch_size=20 gradient_accumulation_steps=3
refused "global_batch_size: 18 or 21"
run train job/job.yaml output_dir=nowhere average_tokens_across_devices=false strategy=dp=2
refused "average_tokens_across_devices"
for key in per_device_train_batch_size per_device_eval_batch_size; do
  run train each/job.yaml output_dir=nowhere strategy=dp=2 $key=1000000000 val_size=5 do_eval=true
  refused "$key: batches of 2000000000 samples"
done
no_file nowhere

# The run in $1 as it was at step 5, in the folder $2.
back_to_5() {
  rm -rf "$2" && cp -r "$1" "$2"
  rm -r "$2"/checkpoint-1[05] "$2"/checkpoint-20 "$2/model.safetensors" "$2"/*_results.json
}

it "a run that goes on on another mesh keeps the checkpoint's global batch, and says so"
run train each/job.yaml num_train_epochs=1.1 max_steps=-1 strategy=dp=2 output_dir=two packing=false
exit_is 0
steps=$(json two/trainer_state.json max_steps)
while read -r s micro accumulation; do
  rm -rf b && cp -r two b
  for c in b/checkpoint-*; do [ $c = b/checkpoint-5 ] || rm -r $c; done
  rm b/model.safetensors b/*_results.json
  run train each/job.yaml num_train_epochs=1.1 max_steps=-1 "strategy=$s" output_dir=b packing=false
  exit_is 0
  err_has "8 samples in a step of the checkpoint (per_device_train_batch_size 4 x 2"
  err_has "are kept: $micro x ${s##*=} x $accumulation"
  json_is b/trainer_state.json max_steps "$steps"
  close_losses two/trainer_log.jsonl b/trainer_log.jsonl 1e-5
done <<END
dp=1 4 2
tp=2,dp=4 2 1
dp=8 1 1
END
run train each/job.yaml num_train_epochs=1.1 max_steps=-1 strategy=dp=3 output_dir=b packing=false \
  resume_from_checkpoint=two/checkpoint-5
refused "8 samples in a step, which 3 data-parallel replicas do not divide" "global_batch_size: 8"
run train each/job.yaml num_train_epochs=1.1 max_steps=-1 strategy=dp=2 output_dir=b packing=false \
  resume_from_checkpoint=two/checkpoint-5 per_device_train_batch_size=2
refused "8 samples in a step (per_device_train_batch_size 4 x 2" "has 4 (2 x 2 x 1)"
