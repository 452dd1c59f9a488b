#!/bin/sh
# No activation is replicated over an axis that cuts its batch: models of real widths, two layers of
# them, by every kind of strategy of docs/parallel.md.  Plans only; nothing runs.  ROWS=all: by more strategies.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job <<END
bf16: true
END
sed -i 's/^cutoff_len.*/cutoff_len: 1024/; s/^per_device_train_batch_size.*/per_device_train_batch_size: 16/' job/job.yaml

# config NAME: a folder with the config.json on standard input
config() {
  mkdir -p "$1"
  cp job/model/tokenizer* "$1"
  write "$1/config.json"
}
shared='"num_hidden_layers": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
 "hidden_act": "silu"'
config llama <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
 "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8, $shared}
END
config qwen3 <<END
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120, "head_dim": 128,
 "intermediate_size": 25600, "num_attention_heads": 64, "num_key_value_heads": 8, $shared}
END
config gpt2 <<END
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50257, "n_embd": 1600, "n_layer": 2, "n_head": 25,
 "n_positions": 1024, "attn_pdrop": 0.0}
END
mkdir dropped && sed 's/"attn_pdrop": 0.0/"attn_pdrop": 0.1/' gpt2/config.json >dropped/config.json
cp job/model/tokenizer* dropped
config mixtral <<END
{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
 "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
 "num_experts_per_tok": 2, "sliding_window": null, $shared}
END
config qwen3_moe <<END
{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
 "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4,
 "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
 "mlp_only_layers": [], $shared}
END
config deepseek <<END
{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
 "intermediate_size": 18432, "num_attention_heads": 128, "num_key_value_heads": 128, "first_k_dense_replace": 1,
 "kv_lora_rank": 512, "q_lora_rank": 1536, "moe_intermediate_size": 2048, "n_group": 8, "topk_group": 4,
 "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_experts_per_tok": 8,
 "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "routed_scaling_factor": 2.5,
 "scoring_func": "sigmoid", "topk_method": "noaux_tc", $shared}
END

# plan MODEL WHAT STRATEGY
plan() {
  run explain job/job.yaml "$2" "model_name_or_path=$1" "strategy=$3" hyper_parallel.cluster=dgx-h100
  exit_is 0
}
findings() { sed -n '/^replicated although/,$p' out; }
nothing_replicated() { # MODEL STRATEGIES
  for s in $2; do
    plan "$1" layouts "$s"
    grep -q '^output' out || fail "$1 by $s: no layouts"
    findings | grep . && fail "$1 by $s"
  done
}

rows="dp=8,zero=1 dp=8,zero=3:4 dp=4,tp=4,sp,zero=3 dp=2,tp=2,tp_y=2,zero=3"
sequences="cp=4:ulysses,dp=2 cp=4:hybrid,dp=4,tp=2,sp,zero=1"
gathered="cp=4:ring,dp=2,zero=3 cp=4:hybrid,dp=4,tp=2,sp,zero=3"
experts="dp=8,ep=8,zero=3 dp=4,ep=2,etp=2,zero=1 cp=4:ulysses,dp=2,ep=4,zero=3 cp=2,dp=2,tp=2,sp,ep=4,etp=2,zero=3"
brief="dp=8,zero=3 cp=4:ring,dp=2,zero=1"
if [ "${ROWS:-some}" = all ]; then
  rows="$rows dp=8 dp=8,zero=2 dp=8,zero=3 dp=4,tp=2,zero=3 tp=8 tp=8,sp dp=4,tp=2
   dp=4,tp=2,zero=1 dp=2,tp=4,sp dp=4,tp=4,sp,zero=1 tp=2,tp_y=2 dp=2,tp=2,tp_y=2
   dp=2,tp=2,tp_y=2,zero=1 dp=2,tp=2,tp_y=2,sp,zero=3"
  sequences="$sequences cp=4:ring,dp=2,zero=1 cp=4 cp=4:ring,dp=2 cp=4:hybrid,dp=2 cp=2,tp=2"
  gathered="$gathered cp=4:ulysses,dp=2,zero=3 cp=4:hybrid,dp=2,zero=3
   cp=4:ring,dp=2,tp=2,sp,zero=3 cp=4:ulysses,dp=2,tp=2,sp,zero=3"
  experts="$experts dp=4,ep=2,tp=2,sp,zero=1 dp=4,tp=2,etp=2 cp=4:ring,dp=2,ep=8
   ep=4 dp=4,ep=4 dp=8,ep=8 dp=8,ep=8,zero=1 dp=8,ep=4,zero=3 ep=2,etp=2 dp=4,ep=2,etp=2
   dp=4,ep=2,etp=2,zero=3 dp=4,etp=2 dp=2,tp=2,ep=2,etp=2 dp=4,ep=2,tp=2,sp,zero=3 dp=4,tp=2,ep=4,etp=2,sp,zero=3
   cp=2,dp=2,ep=4 cp=2:ring,dp=2,ep=2 cp=4:ring,dp=2,ep=4,zero=3 cp=4:hybrid,dp=2,ep=4,zero=3
   cp=2,dp=2,ep=2,etp=2,zero=1 tp=2,tp_y=2,ep=2 dp=2,tp=2,tp_y=2,ep=2,zero=3"
  brief="$rows $sequences $gathered"
fi

it "rows stay where they are: nothing is replicated that the batch's axes cut"
nothing_replicated llama "$rows $sequences $gathered"

it "nor of other families, with biases, tied embeddings and heads that no degree divides"
nothing_replicated qwen3 "$rows $sequences"
nothing_replicated gpt2 "$rows $sequences $gathered"

it "nor where experts are cut, whole or each, with every other axis"
nothing_replicated mixtral "$brief $experts"
nothing_replicated qwen3_moe "$experts"

it "nor where heads were cut by an axis of the batch on the way"
nothing_replicated deepseek "$brief $experts"

it "nor where weights of attention are dropped"
nothing_replicated dropped "$rows"

it "few rows of a large table go to the table, and come back at once"
for s in $gathered; do
  plan qwen3 layouts "$s"
  findings | grep -v '^replicated although' | grep . | grep -v ' embedding .*model.embed_tokens$' && fail "qwen3 by $s"
done

it "what a declared layout brings together is no finding"
nothing_replicated llama "cp=4:allgather,dp=2,zero=3"
grep -q 'layers.0.k  .*(dp,None,None,None)' out || fail "keys are not gathered"

it "zero=3 gathers params, and takes about the time of zero=1"
predicted() { "$B/test-json" out run_s; }
plan llama comm.json dp=16,tp=8,zero=1,sp
one=$(predicted)
plan llama comm.json dp=16,tp=8,zero=3,sp
three=$(predicted)
awk -v a="$one" -v b="$three" 'BEGIN { exit !(a > 0 && b > 0 && b <= 1.1 * a) }' ||
  fail "zero=1 $one s, zero=3 $three s"
if grep '"collective": *"all_to_all"' out; then fail "rows are moved"; fi
