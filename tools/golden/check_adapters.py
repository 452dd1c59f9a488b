"""Holds the command to peft: adapters that peft makes, merged and applied here; adapters of a run, in peft.

usage: check_adapters.py HYPER MODELS WORK [part of a name]...
       check_adapters.py HYPER MODELS WORK --trained MODEL ADAPTER
       check_adapters.py HYPER MODELS tests/golden/adapters --write     the committed ones anew
MODELS is a folder of Hugging Face folders, such as tests/golden/cases.  Needs torch, transformers and peft.
"""
import json, os, subprocess, sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HYPER, MODELS, WORK = sys.argv[1:4]
PARTS = sys.argv[4:]
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
TOLERANCE = 1e-5

KINDS = {
    "lora": dict(r=4, lora_alpha=8),
    "rslora": dict(r=3, lora_alpha=5, use_rslora=True),
    "saved": dict(r=2, lora_alpha=4, modules_to_save=["embed_tokens", "lm_head"]),
    "norms": dict(r=2, lora_alpha=4, modules_to_save=["norm"]),
    "dora": dict(r=4, lora_alpha=8, use_dora=True),
}


def load(path, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()


def linears(model):
    names = set()
    for name, module in model.named_modules():
        if type(module).__name__ in ("Linear", "Conv1D") and "lm_head" not in name:
            names.add(name.split(".")[-1])
    return sorted(names)


def make_adapter(path, out, kind):
    """An adapter of all linear layers, with values as after training."""
    model = load(path)
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=linears(model), **KINDS[kind])
    adapted = get_peft_model(model, config)
    draw = torch.Generator().manual_seed(7)
    for name, w in adapted.named_parameters():
        if not w.requires_grad:
            continue
        noise = torch.randn(w.shape, generator=draw)
        if "lora_B" in name:
            w.data = 0.05 * noise
        elif "lora_A" in name:
            w.data = 0.2 * noise
        else:
            w.data = w.data * (1 + 0.1 * noise)
    adapted.save_pretrained(out)


def run(*words):
    r = subprocess.run([HYPER, *words], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(f"{' '.join(words)}: {r.stderr.strip()}")


def ours(model, adapter, work):
    words = ["--adapter", adapter] if adapter else []
    run("logits", "--model", model, *words, "--tokens", ",".join(map(str, TOKENS)), "--out", f"{work}/l.st")
    return load_file(f"{work}/l.st")["logits"]


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


def told(name, worst, bound):
    print(f"{name:40} {worst:.2e} {'ok' if worst <= bound else 'FAILS'}")
    return worst <= bound


def apart(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def key_of(name):
    """Of a parameter of peft, as in files, without the prefix."""
    name = name.removeprefix("base_model.model.").replace(".default", "").replace("modules_to_save.", "")
    return name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


COMMITTED = [("qwen2-window-old", "lora"), ("gpt2-base-names", "dora"), ("llama-odd-heads", "saved"),
             ("qwen3-bias-tied", "rslora")]


def write_committed():
    """MODEL-KIND/: peft's files, and logits and gradients of TOKENS, computed in double precision."""
    for case, kind in COMMITTED:
        out = f"{WORK}/{case}-{kind}"
        make_adapter(f"{MODELS}/{case}", out, kind)
        os.remove(f"{out}/README.md")
        model = PeftModel.from_pretrained(load(f"{MODELS}/{case}"), out, is_trainable=True).double().eval()
        ids = torch.tensor([TOKENS])
        result = model(ids, labels=ids)
        result.loss.backward()
        expect = {"logits": result.logits[0].detach().float(), "loss": result.loss.detach().float().reshape(1)}
        for name, w in model.named_parameters():
            if w.grad is not None:
                expect["grad." + key_of(name)] = w.grad.float()
        save_file(expect, f"{out}/expect.safetensors")


def check_gradients(path, adapter, work, name):
    """Of the loss, for A and B (and m) of an adapter that is trained on."""
    model = PeftModel.from_pretrained(load(path), adapter, is_trainable=True)
    ids = torch.tensor([TOKENS])
    loss = model(ids, labels=ids).loss
    loss.backward()
    run("grads", "--model", path, "--adapter", adapter, "--tokens", ",".join(map(str, TOKENS)), "--out", f"{work}/g.st")
    got = load_file(f"{work}/g.st")
    worst, n = 0, 0
    for key, w in model.named_parameters():
        if w.grad is None:
            continue
        worst, n = max(worst, apart(got["grad." + key_of(key)], w.grad)), n + 1
    assert n == len(got) - 1, (n, len(got))
    return told(name + " gradients", worst, 1e-4)


def check_export(path, adapter, work, name, merged):
    with open(f"{work}/export.yaml", "w") as f:
        json.dump(dict(model_name_or_path=path, adapter_name_or_path=adapter, export_dir=f"{work}/merged"), f)
    run("export", f"{work}/export.yaml")
    written, want = load(f"{work}/merged", "auto").state_dict(), merged.state_dict()
    worst = max(apart(written[k].float(), w.float()) for k, w in want.items())
    half = any(w.dtype != torch.float32 for w in want.values())  # a sum may be rounded to the neighbour
    good = told(name + " export", worst, 4e-3 if half else 1e-6)
    got, want = logits_of(load(f"{work}/merged")), logits_of(merged.float())
    return told(name + " export's logits", apart(got, want), 1e-2 if half else TOLERANCE) and good


def check(case, kind):
    path, work = f"{MODELS}/{case}", f"{WORK}/{case}-{kind}"
    name = f"{case} {kind}"
    os.makedirs(work, exist_ok=True)
    adapter = f"{work}/adapter"
    make_adapter(path, adapter, kind)
    want = logits_of(PeftModel.from_pretrained(load(path), adapter).eval())
    good = told(name + " logits", apart(ours(path, adapter, work), want), TOLERANCE)
    good &= check_gradients(path, adapter, work, name)
    if json.load(open(f"{path}/config.json")).get("tie_word_embeddings") and kind == "saved":
        return good
    merged = PeftModel.from_pretrained(load(path, "auto"), adapter).merge_and_unload()
    return good & check_export(path, adapter, work, name, merged)


def check_trained(model, adapter):
    """An adapter that a run here has written, in peft and here."""
    want = logits_of(PeftModel.from_pretrained(load(model), adapter).eval())
    os.makedirs(WORK, exist_ok=True)
    return told(f"{adapter} in peft", apart(ours(model, adapter, WORK), want), TOLERANCE)


def main():
    good = True
    if PARTS == ["--write"]:
        write_committed()
        return True
    if PARTS[:1] == ["--trained"]:
        return check_trained(*PARTS[1:3])
    for case in sorted(os.listdir(MODELS)):
        if not os.path.exists(f"{MODELS}/{case}/config.json"):
            continue
        for kind in KINDS:
            if PARTS and not any(p in f"{case} {kind}" for p in PARTS):
                continue
            good &= check(case, kind)
    return good


sys.exit(0 if main() else 1)
