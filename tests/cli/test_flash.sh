#!/bin/sh
# A model whose weights and optimizer state are three times what its process may have of memory
# trains from flash, with the bits of the resident run.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

# peak_of WORD...: $peak is the most memory, in bytes, that the command has had at any time.
peak_of() {
  t_cmd=$*
  status=0 peak=0
  "$@" >out 2>err </dev/null &
  while kb=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/$!/status 2>/dev/null) && [ "$kb" ]; do
    peak=$((kb * 1024))
    sleep 0.01
  done
  wait $! || status=$?
  exit_is 0
}
within() { # NAME
  [ "$peak" -gt 0 ] && [ "$peak" -le "$room" ] || fail "$1 takes $peak bytes, and has $room"
}

make_job job <<END
packing: true
save_strategy: "no"
threads: 2
END
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' job/model/config.json)
write job/model/config.json <<END
{"model_type": "llama", "vocab_size": $vocab, "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 6,
 "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 64, "tie_word_embeddings": false}
END
sed -i 's/^max_steps: .*/max_steps: 3/; s/^per_device_train_batch_size: .*/per_device_train_batch_size: 1/; /^save_steps/d' job/job.yaml
mkdir disk

it "training, saving and resuming a model stay within a third of its weights and optimizer state"
run train job/job.yaml output_dir=whole save_strategy=steps save_steps=2
exit_is 0
run explain job/job.yaml --json
state=$(($(json out parameter_bytes) + $(json out optimizer_bytes)))
room=$((state / 3))
limits="memory_limit=$((room - 40000000)) offload=weights=flash,optimizer=flash,gradients=flash flash=disk flash_limit=512MiB"
peak_of "$HYPER" train job/job.yaml output_dir=small save_strategy=steps save_steps=2 $limits
within "the run"
same_file small/model.safetensors whole/model.safetensors
same_history small whole
rm small/model.safetensors small/train_results.json
peak_of "$HYPER" train job/job.yaml output_dir=small save_strategy=steps save_steps=2 $limits
within "the resumed run"
err_has "continuing from"
same_file small/model.safetensors whole/model.safetensors

it "and so does one that begins with saved weights"
peak_of "$HYPER" train job/job.yaml output_dir=next model_name_or_path=whole/checkpoint-2 train_from_scratch=false max_steps=1 $limits
within "the run"

it "a benchmark of steps tells what they read from flash and write there"
run bench step --json --model job/model/config.json --batch 1 --seq 16 --steps 1 --memory-limit $((room - 40000000)) \
  --offload weights=flash,optimizer=flash,gradients=flash --flash disk --flash-limit 512MiB
exit_is 0
for way in read written; do
  json out "flash_${way}_bytes" | awk -v least="$state" '{ bytes = $1 } END { exit !(bytes > least / 2) }' || fail "flash_${way}_bytes: $(json out "flash_${way}_bytes")"
done
