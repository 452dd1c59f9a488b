#!/bin/sh
# No activation is replicated over an axis that cuts its batch: models of real widths, two layers of
# them, by every kind of strategy of docs/parallel.md.  Plans only; nothing runs.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job <<END
bf16: true
END
sed -i 's/^cutoff_len.*/cutoff_len: 1024/; s/^per_device_train_batch_size.*/per_device_train_batch_size: 16/' job/job.yaml

# model NAME KEYS: a folder with a config.json of Llama 3 70B's widths, and KEYS
model() {
  mkdir -p "$1"
  cp job/model/tokenizer* "$1"
  write "$1/config.json" <<END
{"vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 2,
 "num_attention_heads": 64, "num_key_value_heads": $2, "max_position_embeddings": 4096,
 "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "hidden_act": "silu", $3}
END
}
model llama 8 '"architectures": ["LlamaForCausalLM"], "model_type": "llama"'
model mixtral 8 '"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
 "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null'
model deepseek 64 '"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
 "first_k_dense_replace": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "moe_intermediate_size": 2048,
 "n_group": 8, "topk_group": 4, "n_routed_experts": 16, "n_shared_experts": 1, "norm_topk_prob": true,
 "num_experts_per_tok": 4, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
 "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc"'

# plan MODEL WHAT STRATEGY
plan() {
  run explain job/job.yaml "$2" "model_name_or_path=$1" "strategy=$3" hyper_parallel.cluster=dgx-h100
  exit_is 0
}
nothing_replicated() {
  for s in $2; do
    plan "$1" layouts "$s"
    grep -q '^output' out || fail "$1 by $s: no layouts"
    sed -n '/^replicated although/,$p' out | grep . && fail "$1 by $s"
  done
}

it "rows stay where they are: nothing is replicated that the batch's axes cut"
nothing_replicated llama "dp=8 dp=8,zero=1 dp=8,zero=2 dp=8,zero=3 dp=8,zero=3:4 dp=4,tp=2,zero=3
  dp=4,tp=4,sp,zero=3 dp=2,tp=2,tp_y=2,zero=3 cp=4:ring,dp=2,zero=3 cp=4:ulysses,dp=2,zero=3
  cp=4:hybrid,dp=4,tp=2,sp,zero=3"
nothing_replicated mixtral "dp=8,zero=3 dp=4,tp=2,zero=3 cp=4:ring,dp=2,zero=3 dp=8,ep=8,zero=3
  dp=4,ep=2,tp=2,sp,zero=1"

it "nor where heads were cut by an axis of the batch on the way"
nothing_replicated deepseek "dp=8,zero=3 dp=4,tp=4,sp,zero=3 dp=8,ep=8,zero=3"

it "what a declared layout brings together is no finding"
nothing_replicated llama "cp=4:allgather,dp=2,zero=3"
grep -q 'layers.0.k  .*(dp,None,None,None)' out || fail "keys are not gathered"

it "zero=3 gathers params, and takes about the time of zero=1"
predicted() { sed -n 's/^predicted: .* of a run of \([0-9.]*\) s.*/\1/p' out; }
plan llama comm dp=16,tp=8,zero=1,sp
one=$(predicted)
plan llama comm dp=16,tp=8,zero=3,sp
three=$(predicted)
awk -v a="$one" -v b="$three" 'BEGIN { exit !(a > 0 && b > 0 && b <= 1.1 * a) }' ||
  fail "zero=1 $one s, zero=3 $three s"
if grep '^all_to_all' out; then fail "rows are moved"; fi
