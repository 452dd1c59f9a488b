#!/bin/sh
# Products of the parallel dimensions: 20 training steps by each of them on each of three models give
# the losses of one device, to 1e-5.  PRODUCTS="tp=2,sp ..." tries those alone.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

# One device; each dimension alone; two; three; four and five together; odd degrees among them.
PRODUCTS=${PRODUCTS:-"dp=2 dp=3,zero=1 dp=2,zero=2 dp=4,zero=3 dp=4,zero=3:2 dp=4,zero=1:2,tp=2 tp=2 tp=3 tp=7 tp=2,sp tp_y=2 tp_y=3
  cp=2:ring cp=3:ring cp=2:allgather cp=2:ulysses cp=4:hybrid cp=5:allgather
  dp=2,zero=3 dp=2,tp=2 dp=2,tp=2,zero=1 dp=3,tp=3,zero=1 dp=2,tp=3,sp dp=3,cp=2:ring
  dp=2,cp=2:ulysses,zero=3 dp=2,tp_y=2,zero=1
  tp=2,tp_y=2 tp=3,tp_y=2 tp=2,tp_y=3,zero=3 tp=4,tp_y=2 tp=2,cp=2:ring tp=2,sp,cp=2:ring
  tp=2,sp,cp=3:allgather tp=2,cp=2:ulysses tp=2,cp=4:hybrid,sp tp=3,sp,cp=2:ring
  dp=2,tp=2,cp=2:ring dp=2,tp=2,sp,cp=2:ring dp=2,tp=2,sp,cp=2:allgather,zero=3
  dp=2,tp=2,cp=2:ulysses,zero=1 dp=3,tp=2,sp,cp=2:ring,zero=2 dp=2,tp=2,tp_y=2 dp=2,tp=2,tp_y=2,zero=3
  tp=2,tp_y=2,cp=2:ring tp=2,tp_y=2,cp=2:ulysses dp=2,tp=2,tp_y=2,cp=2:ring dp=2,tp=2,tp_y=2,cp=2:allgather,zero=3
  tp=2,tp_y=2,cp=4:hybrid dp=1,tp=5,sp dp=5,zero=3 dp=16,zero=1 tp=2,sp,cp=8:hybrid"}
EXPERTS="ep=2 ep=3 ep=3,etp=2,zero=3 dp=2,ep=2,tp=2,sp,zero=1 cp=2,dp=2,ep=4 ep=2,etp=2
  tp=2,ep=2 tp=2,sp,ep=2,etp=2 dp=2,ep=2,zero=3 dp=4,ep=2,zero=1 tp=2,tp_y=2,ep=2
  tp=2,tp_y=2,ep=4 cp=2:ring,ep=2 dp=2,cp=2:allgather,ep=4 dp=2,tp=2,sp,cp=2:ring,ep=4,etp=2 dp=3,tp=2,sp,ep=6
  dp=2,tp=2,tp_y=2,ep=2,etp=4 dp=2,tp=2,cp=2:ulysses,ep=3,zero=3"

try() { # MODEL PRODUCT...
  model=$1
  shift
  for s; do
    it "$model by $s"
    run train "$model/job.yaml" output_dir=many "strategy=$s" overwrite_output_dir=true
    exit_is 0
    close_losses "$model-one/trainer_log.jsonl" many/trainer_log.jsonl 1e-5
  done
}

# NAME, and what sed makes of the configuration
prepare() {
  make_job "$1" <<END
save_strategy: "no"
END
  fix_batch "$1/job.yaml"
  sed -i "$2" "$1/model/config.json"
  run train "$1/job.yaml" "output_dir=$1-one"
  exit_is 0
}

it "one device"
prepare llama ''
prepare qwen3_moe 's/LlamaForCausalLM/Qwen3MoeForCausalLM/; s/"llama"/"qwen3_moe"/
  s/"hidden_size": 32,/"hidden_size": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20,/'
prepare deepseek_v3 's/LlamaForCausalLM/DeepseekV3ForCausalLM/; s/"llama"/"deepseek_v3"/; s/"num_key_value_heads": 2/"num_key_value_heads": 4/
  s/"hidden_size": 32,/"hidden_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 12, "q_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "num_nextn_predict_layers": 0,/'
try llama $PRODUCTS
try qwen3_moe $PRODUCTS $EXPERTS
try deepseek_v3 $PRODUCTS $EXPERTS
