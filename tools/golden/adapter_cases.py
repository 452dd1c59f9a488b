"""Writes tests/unit/adapter_cases.h: which modules peft gives an adapter for keys of adapter_config.json, and the scale of each.

usage: adapter_cases.py > tests/unit/adapter_cases.h          Needs torch, transformers and peft.
"""
import json, sys

from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

MODEL = LlamaConfig(hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1,
                    num_hidden_layers=3, vocab_size=16, max_position_embeddings=16)
USUAL = dict(r=2, lora_alpha=6, target_modules=["q_proj", "k_proj", "up_proj", "lm_head"])
CASES = [
    dict(),
    dict(target_modules=["k_proj"]),
    dict(target_modules=["self_attn.q_proj", "model.layers.1.mlp.up_proj", "proj"]),
    dict(target_modules=r".*layers\.[02]\..*(q|up)_proj"),
    dict(target_modules=r"layers\.1\..*_proj"),
    dict(target_modules=r".*?(?:self_attn|mlp).*?(?:q_proj|up_proj)"),
    dict(target_modules=r"model\.layers\.\d+\.mlp\.(?!up)\w+_proj"),
    dict(exclude_modules=["k_proj"]),
    dict(exclude_modules=r".*\.0\..*"),
    dict(layers_to_transform=1),
    dict(layers_to_transform=[0, 2]),
    dict(layers_to_transform=[]),
    dict(layers_to_transform=[2], layers_pattern="layers"),
    dict(layers_to_transform=[2], layers_pattern=["h", "model", "layers"]),
    dict(layers_to_transform=[2], layers_pattern="lay.*"),
    dict(layers_to_transform=[2], layers_pattern="h"),
    dict(layers_to_transform=[1], target_modules=["q_proj", "lm_head", "model.layers.0.self_attn.k_proj"]),
    dict(modules_to_save=["lm_head"]),
    dict(modules_to_save=["mlp"]),
    dict(alpha_pattern={"q_proj": 3, "model.layers.1.self_attn.k_proj": 16}),
    dict(alpha_pattern={"^model.layers.0.*": 1, "up": 9, ".*_proj": 5}),
    dict(alpha_pattern={"layers.1.mlp.up_proj": 2.5}, use_rslora=True),
    dict(fan_in_fan_out=True),
]


def modules_of(keys):
    try:
        model = get_peft_model(LlamaForCausalLM(MODEL), LoraConfig(task_type="CAUSAL_LM", **keys))
    except ValueError:  # no module matches
        return ""
    of = {n.removeprefix("base_model.model."): m for n, m in model.named_modules() if hasattr(m, "lora_A")}
    return " ".join(f"{n}:{m.scaling['default']:.6g}" for n, m in of.items())


def quoted(text):
    return json.dumps(text)


print("/* Written by tools/golden/adapter_cases.py: keys of adapter_config.json, and what peft 0.18.1 makes of them. */")
for case in CASES:
    keys = dict(USUAL, **case)
    text = json.dumps(dict(peft_type="LORA", **keys))
    print(f"{{{quoted(text)},\n {quoted(modules_of(keys))}}},")
