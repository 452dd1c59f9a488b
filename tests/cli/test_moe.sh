#!/bin/sh
# Models with experts: trained on one device and several, continued, exported.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job </dev/null
fix_batch job/job.yaml
sed -i "s|^max_steps: .*|max_steps: 8|; s|^save_steps: .*|save_steps: 4|" job/job.yaml
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' job/model/config.json)

# model_of FAMILY: config.json of a small one into job/model, of odd sizes.
model_of() {
  case $1 in
    mixtral) more='"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 6' ;;
    qwen3_moe) more='"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 10, "head_dim": 6,
      "norm_topk_prob": true, "mlp_only_layers": [1]' ;;
    deepseek_v3) more='"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "n_shared_experts": 2,
      "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "q_lora_rank": 11, "kv_lora_rank": 9,
      "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 7, "num_nextn_predict_layers": 0' ;;
  esac
  kv=2
  [ "$1" = deepseek_v3 ] && kv=4
  cat >job/model/config.json <<END
{"model_type": "$1", "vocab_size": $vocab, "hidden_size": 28, "intermediate_size": 22, "num_hidden_layers": 3,
 "num_attention_heads": 4, "num_key_value_heads": $kv, "max_position_embeddings": 64, "tie_word_embeddings": false,
 "initializer_range": 0.1, $more}
END
}

for family in mixtral qwen3_moe deepseek_v3; do
  model_of $family

  it "$family learns, and exports each expert under its own name"
  run train job/job.yaml output_dir=$family
  exit_is 0
  first=$(sed -n '1s/.*"loss": \([0-9.e+-]*\).*/\1/p' $family/trainer_log.jsonl)
  last=$(sed -n '8s/.*"loss": \([0-9.e+-]*\).*/\1/p' $family/trainer_log.jsonl)
  awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a) }' || fail "the loss went from $first to $last"
  run inspect $family --all
  exit_is 0
  case $family in
    mixtral) out_has "model.layers.2.block_sparse_moe.experts.4.w2.weight" ;;
    qwen3_moe) out_has "model.layers.2.mlp.experts.6.up_proj.weight" ;;
    deepseek_v3)
      out_has "model.layers.2.mlp.experts.5.gate_proj.weight"
      out_has "model.layers.2.mlp.gate.e_score_correction_bias"
      ;;
  esac
  run logits --model $family --tokens 1,2,3 --out l.safetensors
  exit_is 0

  it "$family gives the same bits on 1 and 2 threads, and continued from a checkpoint"
  run train job/job.yaml output_dir=again threads=1
  exit_is 0
  same_file $family/model.safetensors again/model.safetensors
  rm -r again/checkpoint-8 again/model.safetensors again/all_results.json
  run train job/job.yaml output_dir=again
  exit_is 0
  err_has "checkpoint-4"
  same_file $family/model.safetensors again/model.safetensors
  rm -r again

  it "$family on several devices gives one device's losses"
  for s in dp=2 tp=2 dp=2,tp=2,zero=3; do
    run train job/job.yaml output_dir=s "strategy=$s" overwrite_output_dir=true
    exit_is 0
    close_losses $family/trainer_log.jsonl s/trainer_log.jsonl 1e-5
  done
done

it "uneven use of experts is part of the loss when it is asked for, on several devices too"
model_of mixtral
run train job/job.yaml output_dir=even moe_aux_loss_coef=0.5
exit_is 0
first() { sed -n '1s/.*"loss": \([0-9.e+-]*\).*/\1/p' "$1/trainer_log.jsonl"; }
awk -v a="$(first mixtral)" -v b="$(first even)" 'BEGIN { exit !(b > a + 0.9 && b < a + 1.5) }' ||
  fail "the first loss is $(first even) with it, $(first mixtral) without"
for s in dp=2 tp=2,dp=2; do
  run train job/job.yaml output_dir=s moe_aux_loss_coef=0.5 "strategy=$s" overwrite_output_dir=true
  exit_is 0
  close_losses even/trainer_log.jsonl s/trainer_log.jsonl 1e-5
done
sed -i 's/"model_type"/"output_router_logits": true, "router_aux_loss_coef": 0.5, "model_type"/' job/model/config.json
run train job/job.yaml output_dir=config
exit_is 0
same_file even/model.safetensors config/model.safetensors

it "noise on what experts see is refused, and the loss told where a family has none"
sed -i 's/"model_type"/"router_jitter_noise": 0.1, "model_type"/' job/model/config.json
run train job/job.yaml output_dir=noise
refused "router_jitter_noise 0.1"
model_of deepseek_v3
run train job/job.yaml output_dir=none moe_aux_loss_coef=0.5 max_steps=1
exit_is 0
err_has "moe_aux_loss_coef is ignored"
