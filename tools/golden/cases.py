"""Model cases: CASES[name] is what make.py turns into a checkpoint and its reference.

Keys of a case, all optional but `type`:
  type     model_type
  config   keyword arguments of the configuration, over the tiny base of the family
  old      write config.json as Transformers 4 did: rope_theta, rope_scaling, torch_dtype
  edit     function on config.json as a dict, before Transformers reads it back
  lengths  of the two sequences
  holds    {place: id} put into sequence 0
  dtype    of the file: float32 (default), bfloat16, float16
  shards   number of weight files (default 1)
  fused    experts in the files as in the memory of Transformers 5: gate and up of all in one tensor
  strip    prefix taken off the tensor names, as base models are saved
  seed     where to start looking for weights without close decisions
"""

LLAMA = dict(vocab_size=64, hidden_size=16, intermediate_size=28, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
BASE = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": dict(LLAMA, head_dim=8),
    "mixtral": dict(LLAMA, num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": dict(LLAMA, head_dim=8, moe_intermediate_size=12, num_experts=6, num_experts_per_tok=2,
                      norm_topk_prob=True, mlp_only_layers=[]),
    "deepseek_v3": dict(LLAMA, num_key_value_heads=4, moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=3,
                        n_group=4, topk_group=2, n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=10,
                        kv_lora_rank=6, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, num_mtp_layers=0),
    "gpt2": dict(vocab_size=64, n_embd=16, n_layer=2, n_head=4, n_positions=48,
                 bos_token_id=None, eos_token_id=None, pad_token_id=None),
}


def rope(kind, theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


def without(*keys):
    def edit(config):
        for key in keys:
            config.pop(key, None)
    return edit


def put(**pairs):
    return lambda config: config.update(pairs)


def scaling_type(config):  # the oldest spelling of the kind
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")


CASES = {
    # shapes
    "llama-one-layer": dict(type="llama", config=dict(num_hidden_layers=1, hidden_size=18,
                            num_attention_heads=3, num_key_value_heads=1, vocab_size=61)),
    "llama-odd-heads": dict(type="llama", config=dict(num_attention_heads=5, num_key_value_heads=5,
                            hidden_size=20, intermediate_size=23, tie_word_embeddings=True), dtype="float16"),
    "llama-one-head": dict(type="llama", config=dict(num_attention_heads=1, num_key_value_heads=1)),
    "llama-wide-head": dict(type="llama", config=dict(head_dim=6, num_attention_heads=4,
                            num_key_value_heads=1, rms_norm_eps=1e-3), lengths=(65, 1)),
    "llama-qkv-bias": dict(type="llama", config=dict(attention_bias=True)),
    "llama-mlp-bias": dict(type="llama", config=dict(mlp_bias=True, hidden_act="gelu")),
    "llama-gelu-tanh": dict(type="llama", config=dict(hidden_act="gelu_pytorch_tanh", num_hidden_layers=3)),
    "llama-defaults": dict(type="llama", edit=without(
        "head_dim", "num_key_value_heads", "rms_norm_eps", "hidden_act", "rope_parameters",
        "attention_bias", "mlp_bias", "tie_word_embeddings", "max_position_embeddings", "initializer_range"),
        config=dict(num_key_value_heads=4)),
    "llama-nulls": dict(type="llama", config=dict(num_key_value_heads=4), old=True,
                        edit=put(head_dim=None, num_key_value_heads=None, rope_scaling=None)),
    "llama-eps": dict(type="llama", config=dict(rms_norm_eps=0.05)),
    # rotary embedding
    "llama-theta-old": dict(type="llama", config=rope("default", 500000.0), old=True),
    "llama-theta-int": dict(type="llama", config=rope("default", 1000000.0), edit=put(
        rope_parameters=dict(rope_type="default", rope_theta=1000000))),
    "llama-partial": dict(type="llama", edit=put(partial_rotary_factor=0.5)),
    "llama-linear": dict(type="llama", config=rope("linear", factor=2.5)),
    "llama-linear-old": dict(type="llama", config=rope("linear", factor=4.0), old=True, edit=scaling_type),
    "llama-dynamic": dict(type="llama", lengths=(29, 19), config=dict(
        rope("dynamic", factor=2.0), max_position_embeddings=12, intermediate_size=20, tie_word_embeddings=True)),
    "llama-dynamic-crossing": dict(type="llama", lengths=(12, 9), old=True, edit=scaling_type,
                                   config=dict(rope("dynamic", factor=3.0), max_position_embeddings=16)),
    "llama-llama3": dict(type="llama", lengths=(50, 20), config=dict(rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32), head_dim=16, tie_word_embeddings=True)),
    "llama-llama3-outside": dict(type="llama", config=dict(rope(
        "llama3", 500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0,
        original_max_position_embeddings=16), original_max_position_embeddings=24, head_dim=16)),
    "llama-yarn-factor": dict(type="llama", config=dict(rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, attention_factor=0.8), head_dim=12)),
    "llama-yarn-mscale": dict(type="llama", config=dict(rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=1.3), head_dim=12)),
    "llama-yarn-one-mscale": dict(type="llama", config=dict(rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7), head_dim=12)),
    "llama-yarn-betas": dict(type="llama", config=dict(rope(
        "yarn", 200.0, factor=6.0, original_max_position_embeddings=24, beta_fast=4.0, beta_slow=0.5,
        truncate=False), head_dim=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=20,
        num_hidden_layers=1, tie_word_embeddings=True), lengths=(70, 11)),
    "llama-yarn-old": dict(type="llama", config=dict(rope("yarn", factor=3.0), head_dim=12), old=True,
                           edit=scaling_type),
    "llama-yarn-no-factor": dict(type="llama", config=dict(rope(
        "yarn", factor=4.0, original_max_position_embeddings=16), head_dim=12),
        edit=lambda c: c["rope_parameters"].update(factor=None)),
    "llama-longrope": dict(type="llama", lengths=(29, 11), config=dict(rope(
        "longrope", original_max_position_embeddings=16, short_factor=[1.0, 1.1, 1.3, 2.0],
        long_factor=[1.5, 2.5, 4.0, 7.0]), head_dim=8, num_hidden_layers=1, intermediate_size=20,
        tie_word_embeddings=True)),
    "llama-longrope-factor": dict(type="llama", lengths=(16, 9), config=dict(rope(
        "longrope", factor=3.0, original_max_position_embeddings=16, short_factor=[1.0, 1.1, 1.3, 2.0],
        long_factor=[1.5, 2.5, 4.0, 7.0]), head_dim=8)),
    "qwen3-longrope-attention": dict(type="qwen3", lengths=(40, 9), config=dict(rope(
        "longrope", factor=3.0, attention_factor=1.2, original_max_position_embeddings=32, short_factor=[1, 1, 1, 2],
        long_factor=[1.5, 2.5, 4.0, 7.0]), head_dim=8)),
    # special tokens
    "llama-pad": dict(type="llama", config=dict(pad_token_id=7), holds={3: 7, 11: 7}),
    "llama-pad-tied": dict(type="llama", config=dict(pad_token_id=7, tie_word_embeddings=True), holds={3: 7, 11: 7}),
    "llama-pad-negative": dict(type="llama", config=dict(pad_token_id=-1), holds={3: 63, 11: 63}),
    "llama-eos-list": dict(type="llama", config=dict(bos_token_id=1, eos_token_id=[2, 5])),
    # files
    "llama-f16": dict(type="llama", dtype="float16"),
    "llama-bf16-shards": dict(type="llama", dtype="bfloat16", shards=3, holds={3: 7, 11: 7},
                              config=dict(tie_word_embeddings=True, pad_token_id=7)),
    "llama-base-names": dict(type="llama", strip="model.", config=dict(tie_word_embeddings=True)),
    # mistral
    "mistral-window": dict(type="mistral", config=dict(sliding_window=5, head_dim=6, intermediate_size=20,
                                                  tie_word_embeddings=True)),
    "mistral-window-two": dict(type="mistral", config=dict(sliding_window=2)),
    "mistral-no-window": dict(type="mistral", config=dict(sliding_window=None, tie_word_embeddings=True), old=True),
    "mistral-defaults": dict(type="mistral", config=dict(num_attention_heads=8, num_key_value_heads=8),
                             edit=without("sliding_window", "num_key_value_heads", "head_dim")),
    "mistral-layer-types": dict(type="mistral", config=dict(sliding_window=4), edit=put(
        layer_types=["full_attention", "sliding_attention"])),  # Transformers reads it as ministral
    # qwen2
    "qwen2-window": dict(type="qwen2", config=dict(use_sliding_window=True, sliding_window=6,
                         max_window_layers=1, num_hidden_layers=3)),
    "qwen2-window-old": dict(type="qwen2", config=dict(use_sliding_window=True, sliding_window=6,
                             max_window_layers=1, intermediate_size=20), old=True, edit=without("layer_types")),
    "qwen2-layer-types": dict(type="qwen2", config=dict(use_sliding_window=True, sliding_window=4, num_hidden_layers=3,
                              layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "qwen2-window-off": dict(type="qwen2", old=True, edit=put(sliding_window=4, max_window_layers=0, layer_types=None),
                             config=dict(tie_word_embeddings=True, pad_token_id=9), holds={0: 9}),
    "qwen2-one-kv": dict(type="qwen2", config=dict(num_attention_heads=7, num_key_value_heads=1, hidden_size=28)),
    # qwen3
    "qwen3-layer-types": dict(type="qwen3", config=dict(use_sliding_window=True, sliding_window=3,
                              layer_types=["full_attention", "sliding_attention"])),
    "qwen3-bias-tied": dict(type="qwen3", config=dict(attention_bias=True, tie_word_embeddings=True,
                            num_attention_heads=3, num_key_value_heads=3), dtype="bfloat16", old=True),
    "qwen3-head-default": dict(type="qwen3", config=dict(head_dim=128, num_attention_heads=3, num_key_value_heads=1),
                               edit=without("head_dim")),
    "qwen3-yarn": dict(type="qwen3", config=rope("yarn", 1000000.0, factor=4.0, original_max_position_embeddings=16),
                       lengths=(60, 30), old=True),
    # mixtral
    "mixtral-plain": dict(type="mixtral"),
    "mixtral-one-of-three": dict(type="mixtral", config=dict(num_local_experts=3, num_experts_per_tok=1, hidden_size=20,
                                 intermediate_size=17, num_attention_heads=5, num_key_value_heads=5)),
    "mixtral-all": dict(type="mixtral", config=dict(num_local_experts=3, num_experts_per_tok=3, vocab_size=61)),
    "mixtral-window": dict(type="mixtral", config=dict(sliding_window=4, num_attention_heads=8, head_dim=6)),
    "mixtral-fused": dict(type="mixtral", fused=True, config=dict(num_local_experts=5, intermediate_size=13)),
    "mixtral-old": dict(type="mixtral", old=True, config=dict(tie_word_embeddings=True, num_local_experts=5,
                        num_experts_per_tok=3), edit=without("head_dim", "sliding_window")),
    "mixtral-defaults": dict(type="mixtral", config=dict(num_attention_heads=8, num_key_value_heads=8, num_local_experts=8),
                             edit=without("num_local_experts", "num_experts_per_tok", "num_key_value_heads",
                                          "rms_norm_eps", "rope_parameters", "head_dim")),
    "mixtral-other-name": dict(type="mixtral", edit=lambda c: c.update(num_experts=c.pop("num_local_experts"))),
    "mixtral-pad": dict(type="mixtral", config=dict(pad_token_id=7, num_hidden_layers=1), holds={3: 7, 11: 7}, dtype="bfloat16", seed=7),
    "mixtral-yarn-shards": dict(type="mixtral", shards=3, lengths=(60, 30), config=dict(rope(
        "yarn", factor=4.0, original_max_position_embeddings=16), head_dim=12, num_local_experts=7)),
    "mixtral-many": dict(type="mixtral", lengths=(64, 20), config=dict(num_local_experts=33, num_experts_per_tok=5, hidden_act="gelu")),
    "mixtral-balance": dict(type="mixtral", config=dict(output_router_logits=True, router_aux_loss_coef=0.5)),
    # qwen3_moe
    "qwen3moe-plain": dict(type="qwen3_moe"),
    "qwen3moe-unnormed": dict(type="qwen3_moe", config=dict(norm_topk_prob=False, num_experts=5, num_experts_per_tok=3,
                              moe_intermediate_size=11)),
    "qwen3moe-one": dict(type="qwen3_moe", config=dict(num_experts_per_tok=1, num_experts=7, tie_word_embeddings=True)),
    "qwen3moe-one-unnormed": dict(type="qwen3_moe", config=dict(num_experts_per_tok=1, num_experts=4, norm_topk_prob=False)),
    "qwen3moe-all": dict(type="qwen3_moe", config=dict(num_experts=4, num_experts_per_tok=4)),
    "qwen3moe-step": dict(type="qwen3_moe", config=dict(decoder_sparse_step=2, num_hidden_layers=4, intermediate_size=19)),
    "qwen3moe-mlp-only": dict(type="qwen3_moe", config=dict(mlp_only_layers=[0, 2], num_hidden_layers=3,
                              attention_bias=True, intermediate_size=21)),
    "qwen3moe-fused": dict(type="qwen3_moe", fused=True, config=dict(num_experts=3, attention_bias=True)),
    "qwen3moe-window": dict(type="qwen3_moe", config=dict(use_sliding_window=True, sliding_window=5, max_window_layers=1,
                            num_attention_heads=3, num_key_value_heads=1)),
    "qwen3moe-old": dict(type="qwen3_moe", old=True, dtype="bfloat16", config=rope("default", 1000000.0),
                         edit=lambda c: c.update(num_experts=c.pop("num_local_experts", c.get("num_experts")))),
    "qwen3moe-defaults": dict(type="qwen3_moe", config=dict(num_attention_heads=4, num_key_value_heads=4, head_dim=4,
                              num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=False,
                              num_hidden_layers=1), edit=without(
        "head_dim", "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
        "decoder_sparse_step", "mlp_only_layers", "rms_norm_eps")),
    "qwen3moe-odd": dict(type="qwen3_moe", lengths=(61, 33), config=dict(hidden_size=19, num_attention_heads=6,
                         num_key_value_heads=3, head_dim=10, num_experts=17, num_experts_per_tok=5, vocab_size=59), seed=33),
    "qwen3moe-balance": dict(type="qwen3_moe", config=dict(output_router_logits=True, router_aux_loss_coef=3.0,
                             num_hidden_layers=3, mlp_only_layers=[1])),
    # deepseek_v3
    "deepseekv3-plain": dict(type="deepseek_v3"),
    "deepseekv3-one-group": dict(type="deepseek_v3", config=dict(n_group=1, topk_group=1, n_routed_experts=5)),
    "deepseekv3-all-groups": dict(type="deepseek_v3", config=dict(n_group=2, topk_group=2, n_routed_experts=6,
                                  num_experts_per_tok=6)),
    "deepseekv3-one": dict(type="deepseek_v3", config=dict(num_experts_per_tok=1, topk_group=1)),
    "deepseekv3-unnormed": dict(type="deepseek_v3", config=dict(norm_topk_prob=False, routed_scaling_factor=0.7)),
    "deepseekv3-no-shared": dict(type="deepseek_v3", config=dict(n_shared_experts=0, first_k_dense_replace=0)),
    "deepseekv3-two-shared": dict(type="deepseek_v3", config=dict(n_shared_experts=2, num_hidden_layers=3, moe_intermediate_size=7)),
    "deepseekv3-no-q-rank": dict(type="deepseek_v3", config=dict(q_lora_rank=None, attention_bias=True)),
    "deepseekv3-bias": dict(type="deepseek_v3", config=dict(attention_bias=True, num_attention_heads=3, num_key_value_heads=3,
                            hidden_size=21, rms_norm_eps=1e-2)),
    "deepseekv3-halves": dict(type="deepseek_v3", config=dict(rope_interleave=False, qk_rope_head_dim=8)),
    "deepseekv3-wide-values": dict(type="deepseek_v3", config=dict(v_head_dim=23, tie_word_embeddings=True)),
    "deepseekv3-yarn": dict(type="deepseek_v3", lengths=(60, 30), old=True, edit=scaling_type, config=dict(rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0, beta_fast=32, beta_slow=1),
        qk_rope_head_dim=8, tie_word_embeddings=True, n_routed_experts=6, n_group=3)),
    "deepseekv3-yarn-mscale": dict(type="deepseek_v3", lengths=(60, 30), config=dict(rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=1.3), qk_rope_head_dim=8)),
    "deepseekv3-dense-only": dict(type="deepseek_v3", config=dict(first_k_dense_replace=2)),
    "deepseekv3-fused": dict(type="deepseek_v3", fused=True, dtype="bfloat16", config=dict(moe_intermediate_size=9)),
    # gpt2
    "gpt2-plain": dict(type="gpt2"),
    "gpt2-base-names": dict(type="gpt2", strip="transformer.", config=dict(n_head=1, n_inner=24, n_positions=32)),
    "gpt2-relu-inner": dict(type="gpt2", config=dict(activation_function="relu", n_inner=23)),
    "gpt2-gelu-untied": dict(type="gpt2", config=dict(activation_function="gelu", tie_word_embeddings=False,
                             n_layer=1, layer_norm_epsilon=1e-3)),
    "gpt2-pad": dict(type="gpt2", config=dict(pad_token_id=7, n_head=2), holds={3: 7, 11: 7}, dtype="float16"),
    "gpt2-layer-scale": dict(type="gpt2", config=dict(scale_attn_by_inverse_layer_idx=True, n_layer=3)),
    "gpt2-full-length": dict(type="gpt2", lengths=(48, 32)),
    "gpt2-no-scale": dict(type="gpt2", config=dict(scale_attn_weights=False)),
}

# Those in tests/golden/cases: `make.py ../../tests/golden/cases --committed`.
COMMITTED = ("llama-dynamic", "llama-yarn-betas", "llama-longrope", "llama-bf16-shards", "llama-odd-heads", "mistral-window",
             "qwen2-window-old", "qwen3-bias-tied", "gpt2-base-names", "mixtral-pad", "qwen3moe-fused", "deepseekv3-yarn")
