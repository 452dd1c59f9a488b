#!/bin/sh
# pissa_init: adapters that begin with the leading singular vectors of the weights.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

runs_follow pissa follows

make_job base </dev/null
"$HYPER" train base/job.yaml max_steps=4 >/dev/null 2>&1 || exit 1
mkdir job
sed '/^train_from_scratch/d; s|base/model|base/out|; s/^finetuning_type: .*/finetuning_type: lora/; s|^output_dir: .*|output_dir: job/out|
     s/^max_steps: .*/max_steps: 8/; s/^save_steps: .*/save_steps: 4/' base/job.yaml > job/job.yaml
cat >> job/job.yaml <<'END'
lora_rank: 4
pissa_init: true
pissa_convert: true
val_size: 8
eval_strategy: steps
eval_steps: 8
END
fix_batch job/job.yaml
evals() { sed -n 's/.*"eval_loss": \([0-9.]*\),*/\1/p' "$1/trainer_state.json"; }
close() { awk -v a="$1" -v b="$2" -v tol="$3" 'BEGIN { d = a - b; exit !(a > 0 && d * d <= tol * tol * b * b) }' || fail "$1 and $2 are more than $3 apart"; }

it "the model begins as it was, and what is trained is also a plain adapter of it"
run train job/job.yaml eval_on_start=true
exit_is 0
run train job/job.yaml output_dir=plain pissa_init=false pissa_convert=false eval_on_start=true
exit_is 0
close "$(evals job/out | head -n 1)" "$(evals plain | head -n 1)" 1e-6
[ "$(json job/out/pissa_converted/adapter_config.json r)" = 8 ] || fail "the plain adapter has not twice the rank"
[ "$(json job/out/pissa_converted/adapter_config.json lora_alpha)" = 16 ] || fail "nor twice the alpha"
run train job/job.yaml output_dir=judge do_train=false pissa_init=false pissa_convert=false \
  adapter_name_or_path=job/out/pissa_converted
exit_is 0
close "$(sed -n 's/.*"eval_loss": \([0-9.]*\),*/\1/p' judge/all_results.json)" "$(evals job/out | tail -n 1)" 1e-5

it "a run that goes on has the bits of one that was not interrupted"
run train job/job.yaml output_dir=again resume_from_checkpoint=job/out/checkpoint-4
exit_is 0
same_file again/adapter_model.safetensors job/out/adapter_model.safetensors
same_file again/pissa_converted/adapter_model.safetensors job/out/pissa_converted/adapter_model.safetensors
run train job/job.yaml output_dir=again2 resume_from_checkpoint=job/out/checkpoint-4 pissa_iter=4
exit_is 2
err_has "pissa_iter 16 -> 4"

it "on several devices, in bf16, with exact vectors and with rslora too"
for s in dp=2,zero=1 tp=2,sp pp=2; do
  run train job/job.yaml "output_dir=s_$s" "strategy=$s"
  exit_is 0
  close_losses job/out/trainer_log.jsonl "s_$s/trainer_log.jsonl" 1e-5
done
run launch -n 2 -- train job/job.yaml output_dir=ranks strategy=dp=2,zero=3
exit_is 0
close_losses job/out/trainer_log.jsonl ranks/trainer_log.jsonl 1e-5
[ -s ranks/pissa_converted/adapter_model.safetensors ] || fail "two processes write no plain adapter"
run train job/job.yaml output_dir=threads threads=1
same_file threads/adapter_model.safetensors job/out/adapter_model.safetensors
run train job/job.yaml output_dir=half bf16=true
exit_is 0
close_losses job/out/trainer_log.jsonl half/trainer_log.jsonl 2e-2
run train job/job.yaml output_dir=exact pissa_iter=-1 use_rslora=true
exit_is 0
run train job/job.yaml output_dir=judge2 do_train=false pissa_init=false pissa_convert=false \
  adapter_name_or_path=exact/pissa_converted
exit_is 0
close "$(sed -n 's/.*"eval_loss": \([0-9.]*\),*/\1/p' judge2/all_results.json)" "$(evals exact | tail -n 1)" 1e-5

it "weights that are stored the other way round, as GPT-2's, too"
make_job turned </dev/null
write turned/model/config.json <<'END'
{"model_type": "gpt2", "vocab_size": 512, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
 "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": null, "eos_token_id": 0}
END
run train turned/job.yaml max_steps=2
exit_is 0
set -- train job/job.yaml model_name_or_path=turned/out eval_on_start=true
run "$@" output_dir=turned/plain pissa_init=false pissa_convert=false
run "$@" output_dir=turned/split
exit_is 0
close "$(evals turned/split | head -n 1)" "$(evals turned/plain | head -n 1)" 1e-6
json_is turned/plain/adapter_config.json fan_in_fan_out true
json_is turned/split/pissa_converted/adapter_config.json fan_in_fan_out true
run "$@" output_dir=turned/judge do_train=false pissa_init=false pissa_convert=false \
  adapter_name_or_path=turned/split/pissa_converted
exit_is 0
close "$(sed -n 's/.*"eval_loss": \([0-9.]*\),*/\1/p' turned/judge/all_results.json)" "$(evals turned/split | tail -n 1)" 1e-5

it "the adapter without the weights that it belongs to is refused, with what to use in its place"
run generate --model base/out --adapter job/out --prompt "Once"
exit_is 2
err_has "adapter_config.json"
err_has "use the folder pissa_converted in its output_dir"
run generate --model base/out --adapter job/out/pissa_converted --prompt "Once" --max-new-tokens 4
exit_is 0

it "keys that contradict it are refused"
while read -r keys says; do
  run train job/job.yaml output_dir=bad $(echo "$keys" | tr '|' ' ')
  exit_is 2
  err_has "$says"
done <<'END'
finetuning_type=full it belongs to finetuning_type lora
pissa_init=false it belongs to pissa_init: true
use_dora=true it makes an adapter of A and B alone
adapter_name_or_path=job/out/pissa_converted the adapter is that of adapter_name_or_path
pissa_iter=-2 out of range
stage=dpo|template=qwen stage dpo compares with the model without its adapter
stage=kto|template=qwen stage kto compares with the model without its adapter
END
