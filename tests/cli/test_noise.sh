#!/bin/sh
# neftune_noise_alpha: noise on the embeddings, in training alone.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job <<'END'
val_size: 4
eval_strategy: steps
eval_steps: 10
gradient_accumulation_steps: 2
END
fix_batch job/job.yaml
evals() { grep eval_loss "$1/trainer_state.json" | head -n "$2"; }

it "it changes training, and 0 and null do not"
run train job/job.yaml output_dir=plain eval_on_start=true
exit_is 0
for alpha in 0 null; do
  run train job/job.yaml output_dir=zero overwrite_output_dir=true neftune_noise_alpha=$alpha eval_on_start=true
  exit_is 0
  same_file plain/model.safetensors zero/model.safetensors
done
run train job/job.yaml neftune_noise_alpha=5 output_dir=some eval_on_start=true
exit_is 0
! cmp -s plain/model.safetensors some/model.safetensors || fail "noise made no difference"

it "evaluations have none"
evals plain 1 > eval.1
evals some 1 > eval.2
same_file eval.1 eval.2
run train job/job.yaml neftune_noise_alpha=1000 output_dir=loud max_steps=1 learning_rate=0 eval_on_start=true eval_steps=1
[ "$(evals loud 3 | sort -u | wc -l)" = 1 ] || fail "the evaluation changed with noise of training"

it "its bits depend on neither threads nor recomputation nor a memory limit"
for how in "threads=1 hyper_parallel.recompute=full" "threads=3 memory_limit=90%" "threads=3 memory_limit=96%"; do
  run train job/job.yaml neftune_noise_alpha=5 output_dir=how overwrite_output_dir=true eval_on_start=true $how
  exit_is 0
  same_file how/model.safetensors some/model.safetensors
done

it "a run that goes on has the bits of one that was not interrupted"
run train job/job.yaml neftune_noise_alpha=5 output_dir=again eval_on_start=true resume_from_checkpoint=some/checkpoint-10
exit_is 0
same_file again/model.safetensors some/model.safetensors
run train job/job.yaml neftune_noise_alpha=6 output_dir=again2 resume_from_checkpoint=some/checkpoint-10
exit_is 2
err_has "neftune_noise_alpha 5.0 -> 6.0"

it "several devices have the noise of one"
for s in dp=2,zero=1 cp=2,tp=2,sp pp=2; do
  run train job/job.yaml neftune_noise_alpha=5 "output_dir=s_$s" "strategy=$s" eval_on_start=true
  exit_is 0
  close_losses some/trainer_log.jsonl "s_$s/trainer_log.jsonl" 1e-5
done

it "adapters have it, over embeddings that are frozen"
for alpha in 0 5; do
  run train job/job.yaml neftune_noise_alpha=$alpha output_dir=lora$alpha finetuning_type=lora lora_rank=4 lora_dropout=0.5 max_steps=4 learning_rate=0.1
  exit_is 0
done
! cmp -s lora0/adapter_model.safetensors lora5/adapter_model.safetensors || fail "noise made no difference"

it "pairs have it, without the dropout that trl leaves out"
cp -r job drops
cp "$ROOT"/tests/golden/chats/tokenizer* drops/model/
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 600/; s/"attention_bias"/"attention_dropout": 0.2, "attention_bias"/' drops/model/config.json
set -- model_name_or_path=drops/model stage=dpo dataset_dir="$ROOT/tests/golden/chats" dataset=pairs template=qwen cutoff_len=64 \
  max_steps=2 eval_strategy=no val_size=0
run train drops/job.yaml "$@" output_dir=quiet
exit_is 0
run train drops/job.yaml "$@" output_dir=noisy neftune_noise_alpha=5
exit_is 0
! cmp -s quiet/model.safetensors noisy/model.safetensors || fail "noise made no difference"
run train drops/job.yaml "$@" output_dir=faint neftune_noise_alpha=1e-30
exit_is 0
close_losses quiet/trainer_log.jsonl faint/trainer_log.jsonl 1e-6
for stage in "dpo dataset=pairs" "kto dataset=judged"; do # of the model and of an adapter
  for drop in 0.2 0; do
    sed -i "s/\"attention_dropout\": [0-9.]*/\"attention_dropout\": $drop/" drops/model/config.json
    run train drops/job.yaml "$@" stage=$stage output_dir=drop$drop overwrite_output_dir=true finetuning_type=lora lora_rank=4 lora_dropout=$drop
    exit_is 0
  done
  same_file drop0.2/adapter_model.safetensors drop0/adapter_model.safetensors
done

it "a negative one is refused"
run train job/job.yaml neftune_noise_alpha=-1 output_dir=bad
exit_is 2
err_has "neftune_noise_alpha"
