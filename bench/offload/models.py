"""Sizes of 20 public models, as their config.json has them, and where they differ from its family's defaults."""


def llama(hidden, mlp, layers, heads, kv, vocab, **more):
    return {"model_type": "llama", "hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab,
            "max_position_embeddings": 4096, "tie_word_embeddings": False} | more


def qwen2(*sizes, **more):
    return llama(*sizes, **({"model_type": "qwen2"} | more))


def qwen3(*sizes, **more):
    return llama(*sizes, **({"model_type": "qwen3", "head_dim": 128} | more))


def gpt2(hidden, layers, heads):
    return {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 1024,
            "n_ctx": 1024, "vocab_size": 50257}


MOE = {"model_type": "qwen3_moe", "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True}
MODELS = {
    "gpt2": gpt2(768, 12, 12),
    "gpt2-medium": gpt2(1024, 24, 16),
    "gpt2-large": gpt2(1280, 36, 20),
    "gpt2-xl": gpt2(1600, 48, 25),
    "tinyllama-1.1b": llama(2048, 5632, 22, 32, 4, 32000),
    "llama-2-7b": llama(4096, 11008, 32, 32, 32, 32000),
    "llama-2-13b": llama(5120, 13824, 40, 40, 40, 32000),
    "llama-3.2-1b": llama(2048, 8192, 16, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "llama-3.2-3b": llama(3072, 8192, 28, 24, 8, 128256, head_dim=128, tie_word_embeddings=True),
    "llama-3.1-8b": llama(4096, 14336, 32, 32, 8, 128256),
    "llama-3.1-70b": llama(8192, 28672, 80, 64, 8, 128256),
    "mistral-7b": llama(4096, 14336, 32, 32, 8, 32000, model_type="mistral", sliding_window=None),
    "qwen2.5-0.5b": qwen2(896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True),
    "qwen2.5-7b": qwen2(3584, 18944, 28, 28, 4, 152064),
    "qwen2.5-32b": qwen2(5120, 27648, 64, 40, 8, 152064),
    "qwen3-8b": qwen3(4096, 12288, 36, 32, 8, 151936),
    "qwen3-32b": qwen3(5120, 25600, 64, 64, 8, 151936),
    "qwen3-30b-a3b": llama(2048, 6144, 48, 32, 4, 151936, moe_intermediate_size=768, **MOE),
    "qwen3-235b-a22b": llama(4096, 12288, 94, 64, 4, 151936, moe_intermediate_size=1536, **MOE),
    "mixtral-8x7b": llama(4096, 14336, 32, 32, 8, 32000, model_type="mixtral", num_local_experts=8,
                          num_experts_per_tok=2, sliding_window=None),
}
