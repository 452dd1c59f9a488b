#!/bin/sh
# Models larger than the memory limit: what is not in use is on the host or on flash, with the same
# bits; the full table is tests/torture/test_offload_table.sh.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

for family in llama qwen3_moe deepseek_v3; do
  it "$family trains with the same bits under any limit"
  family_job $family
  same_under "50 0"
done

it "so it does with several micro-batches, on four devices"
family_job llama
same_under "35" gradient_accumulation_steps=2 strategy=dp=2,tp=2 per_device_train_batch_size=2

it "one byte less than the least limit is refused"
limits_of
run train job/job.yaml output_dir=less memory_limit=$((least - 1))
refused "also with offloading" "set memory_limit to $least bytes"
no_file less

it "updates that are left to the next step are done before what is evaluated, saved or exported"
rm -rf whole next
keep="save_steps=2 eval_strategy=steps eval_steps=3 val_size=0.1 verify_replicas_steps=5"
run train job/job.yaml output_dir=whole $keep
exit_is 0
run train job/job.yaml output_dir=next $keep memory_limit=$((resident / 2)) hyper_parallel.update=next_step
exit_is 0
err_has "params are updated just before their next use"
same_history next whole
for at in model.safetensors checkpoint-4/model.safetensors checkpoint-4/optimizer.safetensors; do
  same_file next/$at whole/$at
done
run train job/job.yaml output_dir=none hyper_parallel.update=later
refused "update" "next_step"

it "so they are where the first step, or the last update alone, has room for tensors that the steps between keep on the host"
slow_cluster
more="per_device_train_batch_size=16 hyper_parallel.cluster=slow.yaml hyper_parallel.recompute=full"
run train job/job.yaml output_dir=wide $more
exit_is 0
limits_of $more
run train job/job.yaml output_dir=left $more hyper_parallel.update=next_step memory_limit=$((resident * 6 / 5))
exit_is 0
err_has "params are updated just before their next use"
same_file left/model.safetensors wide/model.safetensors
limits_of

it "weights and optimizer state may be where the configuration says, whatever the limit"
mkdir disk
rm -rf whole
run train job/job.yaml output_dir=whole
exit_is 0
cat >tiers.yaml <<END
$(cat job/job.yaml)
hyper_parallel:
  offload: {weights: host, optimizer: flash, activations: none, "*.mlp.*": none}
  flash: [disk]
  flash_limit: 16MiB
END
run train tiers.yaml output_dir=tiers
exit_is 0
same_file tiers/model.safetensors whole/model.safetensors
same_history tiers whole

it "a DeepSpeed file says the same"
cat >ds.json <<END
{"zero_optimization": {"stage": 2, "overlap_comm": true, "offload_optimizer": {"device": "nvme", "nvme_path": "disk"},
                       "offload_param": {"device": "cpu", "pin_memory": true}},
 "train_batch_size": "auto", "gradient_accumulation_steps": 1, "steps_per_prin": 10}
END
run train job/job.yaml output_dir=ds deepspeed=ds.json flash_limit=16MiB
exit_is 0
err_has "deepspeed: without effect: zero_optimization.overlap_comm"
err_has "steps_per_prin (did you mean \"steps_per_print\"?)"
same_file ds/model.safetensors whole/model.safetensors
run explain job/job.yaml --json deepspeed=ds.json flash_limit=16MiB
[ "$(json out tiers.flash.moved_bytes)" -gt 0 ] || fail "nothing is on flash"
run train job/job.yaml output_dir=ds deepspeed=ds.json
refused "ds.json" "flash_limit"
run train job/job.yaml output_dir=ds deepspeed=ds.json flash_limit=16MiB strategy=dp=2,zero=1
refused "ds.json:1:" "stage 2 contradicts zero=1"

it "a tier that is too small is refused by name"
run train job/job.yaml output_dir=none memory_limit="$least" host_limit=1MiB
refused "host_limit 1048576 bytes is too small" "set host_limit to " ", or give folders of disks (flash, flash_limit)"
no_file none/checkpoint-6
run train job/job.yaml output_dir=none offload=optimizer=flash flash=disk flash_limit=1MiB
refused "flash_limit 1048576 bytes is too small" "of tier flash" "set flash_limit to "
run train job/job.yaml output_dir=none offload=optimizer=flash flash=nowhere flash_limit=1MiB
refused "there is no folder \"nowhere\""
run train job/job.yaml output_dir=none offload=weigths=host
refused "did you mean \"weights\""

it "what the host has no room for is on flash, optimizer state first, and the bits are the same"
run train job/job.yaml output_dir=both memory_limit="$least" host_limit=400KiB flash=disk flash_limit=16MiB
exit_is 0
grep -q "memory_limit: .* on host.* on flash (.*optimizer " err || { fail "the tiers are not told"; t_show; }
same_file both/model.safetensors whole/model.safetensors
rm -rf both
run train job/job.yaml output_dir=both memory_limit="$least" host_limit=1MiB flash=disk flash_limit=16MiB \
  strategy=dp=2,zero=3 per_device_train_batch_size=2
exit_is 0
grep -q " on flash (.*optimizer " err || { fail "nothing is on flash"; t_show; }
close_losses both/trainer_log.jsonl whole/trainer_log.jsonl 1e-3
run train job/job.yaml output_dir=none memory_limit="$least" host_limit=1KiB flash=disk flash_limit=16MiB
refused "host_limit 1024 bytes is too small" "the rest is on flash already"

it "what is not to leave is refused as before"
run train job/job.yaml output_dir=none memory_limit=$((resident / 2)) offload=none
refused "params and optimizer state take"
run train job/job.yaml output_dir=none memory_limit=$((resident / 2)) offload=optimizer=none,weights=none
refused "besides" "that stay on the device"

it "a run under a limit that is killed goes on with the same bits, with another limit too"
run train job/job.yaml output_dir=cut memory_limit=$((resident / 2)) max_steps=6 save_steps=3
exit_is 0
rm -rf cut/checkpoint-6 cut/model.safetensors
run train job/job.yaml output_dir=cut memory_limit="$least" max_steps=6 save_steps=3
exit_is 0
same_file cut/model.safetensors whole/model.safetensors
rm -rf cut
"$HYPER" train job/job.yaml output_dir=cut memory_limit="$least" save_steps=1 >out 2>&1 &
until [ -d cut/checkpoint-1 ] || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
kill -s KILL $! 2>/dev/null
wait $! 2>/dev/null
[ ! -e cut/model.safetensors ] || fail "it had ended before it was killed"
run train job/job.yaml output_dir=cut memory_limit="$least" save_steps=1
exit_is 0
same_file cut/model.safetensors whole/model.safetensors

it "recompute and offload may be chosen by hand, and the choice is told"
for keys in "recompute: none" "recompute: full" "recompute: full, offload: {activations: none}"; do
  cat >hand.yaml <<END
$(cat job/job.yaml)
hyper_parallel: {$keys}
END
  run train hand.yaml output_dir=hand overwrite_output_dir=true memory_limit=$((resident / 2))
  exit_is 0
  err_has "memory_limit: "
  err_has " (predicted), "
  same_file hand/model.safetensors whole/model.safetensors
done

# --- generation -----------------------------------------------------------------------------------

tokens() { json out tokens | tr -d '[] '; }
prompt=$(awk 'BEGIN { for (i = 0; i < 40; i++) printf i ? ",%d" : "%d", (i * 7 + 3) % 500 }')
generate() { run generate --model trained --tokens "$prompt" --json --max-new-tokens 16 --temperature 0 "$@"; }

for family in llama qwen3_moe deepseek_v3; do
  it "$family generates the same tokens under any limit, on one device and two"
  family_job $family
  rm -rf trained
  run train job/job.yaml output_dir=trained max_steps=2 save_strategy=no
  exit_is 0
  bytes=$(wc -c <trained/model.safetensors)
  for by in "" "--strategy tp=2"; do
    generate $by
    want=$(tokens)
    generate --memory-limit 1 $by
    refused "also with offloading"
    need=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
    for limit in $((bytes / 2)) $((bytes / 4)) "$need"; do
      [ "$limit" -ge "$need" ] || continue
      generate --memory-limit "$limit" $by
      exit_is 0
      [ "$(tokens)" = "$want" ] || fail "under $limit: $(tokens), want $want"
    done
  done
done

it "a cache on host or flash gives the same tokens, also to as many blocks as there are"
long=$(awk 'BEGIN { for (i = 0; i < 400; i++) printf i ? ",%d" : "%d", (i * 7 + 3) % 500 }')
long() { run generate --model trained --tokens "$long" --json --max-new-tokens 16 --temperature 0 "$@"; }
long
want=$(tokens)
for how in "kv=host" "kv=flash --flash disk --flash-limit 16MiB" "kv=host --kv-sparse 14"; do
  long --offload $how
  exit_is 0
  [ "$(tokens)" = "$want" ] || fail "$how: $(tokens), want $want"
done
long --kv-sparse 1
refused "expected 2 or more"

it "weights and cache may be on host and flash"
generate
want=$(tokens)
generate --offload weights=host,kv=flash --flash disk --flash-limit 16MiB
exit_is 0
[ "$(tokens)" = "$want" ] || fail "$(tokens), want $want"
generate --offload none --memory-limit $((bytes / 2))
refused "does not fit next to"

it "eval and logits have the same figures under a limit"
for verb in "eval --tokens $prompt" "logits --tokens $prompt --out l"; do
  run $verb --model trained
  cp out want
  [ ! -e l ] || cp l l.want
  run $verb --model trained --memory-limit 1
  need=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
  run $verb --model trained --memory-limit "$need"
  exit_is 0
  same_file out want
done
same_file l l.want

it "a limit may be a share of what is needed without one, whose bytes are told"
share_is() { # PERCENT: sets $bytes to those that are told, of $resident
  line=$(grep '^memory_limit: .*resident bytes' err) || { fail "no share is told"; t_show; return; }
  resident=$(echo "$line" | sed 's/.*% of \([0-9]*\) .*/\1/')
  bytes=$(echo "$line" | sed 's/.* are \([0-9]*\) bytes$/\1/')
  [ "$bytes" = $((resident * $1 / 100)) ] || fail "not $1 % of it: $line"
}
run explain job/job.yaml memory --json
whole=$(json out resident_bytes)
run explain job/job.yaml memory --json memory_limit=50%
share_is 50
[ "$resident" = "$whole" ] || fail "$resident bytes are resident, and $whole"
json_is out resident_bytes "$whole"
json_is out limit_bytes "$bytes"
rm -rf limited whole
run train job/job.yaml output_dir=whole
run train job/job.yaml output_dir=limited --memory-limit=50%
exit_is 0
share_is 50
[ "$resident" = "$(json whole/op_times.json memory.planned_bytes)" ] || fail "of $resident bytes"
json_is limited/op_times.json memory.limit_bytes "$bytes"
same_file limited/model.safetensors whole/model.safetensors
run train job/job.yaml output_dir=only do_train=false do_eval=true val_size=0.1 memory_limit=80% \
  model_name_or_path=trained train_from_scratch=false
exit_is 0
share_is 80
[ "$resident" -lt $((whole / 2)) ] || fail "an evaluation is no step: $resident bytes"
for verb in "eval" "logits --out l" "grads --out l" "generate --temperature 0 --max-new-tokens 8" \
  "generate --temperature 0 --max-new-tokens 8 --strategy tp=2"; do
  run $verb --tokens $prompt --model trained
  cp out want
  [ ! -e l ] || cp l l.want
  run $verb --tokens $prompt --model trained --memory-limit 50%
  exit_is 0
  share_is 50
  same_file out want
  [ ! -e l ] || same_file l l.want
  run $verb --tokens $prompt --model trained --memory-limit "$bytes"
  exit_is 0 # and the same in bytes
done
for kind in step prefill decode compile; do
  run bench $kind --model trained --batch 1 --seq 16 --steps 1 --memory-limit 50%
  exit_is 0
  share_is 50
done
run bench limits --memory-limit 50%
refused "no model runs" "write bytes"
for limit in 0% 101% "50 %%" x%; do
  run eval --tokens $prompt --model trained --memory-limit "$limit"
  refused "--memory-limit" "1% to 100%"
  run train job/job.yaml output_dir=none memory_limit="$limit"
  refused "memory_limit" "from 1% to 100%"
done
