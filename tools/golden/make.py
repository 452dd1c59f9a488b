"""Makes references of tiny random models with Transformers: checkpoints and what they compute.

  python make.py OUT [part of a name]...     writes OUT/<case>/ for the cases of cases.py
  python make.py OUT --committed             those of tests/golden/cases
  python make.py --list

A case folder is in the form of the golden cases: config.json, model.safetensors (or shards and their
index), tokens.json, expect.safetensors.  See README.md next to this file.
"""
import argparse
import copy
import json
import pathlib

import torch
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForCausalLM, __version__ as transformers_version

from cases import BASE, CASES, COMMITTED

NEW_TOKENS, MARGIN, ROUTING_MARGIN, TRIES = 16, 1e-3, 1e-4, 60


class Double(TorchFunctionMode):
    """Inside, float32 does not exist: what a model does in float32 whatever its dtype (norms,
    softmax, rotary tables) is done in float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        swap = lambda x: torch.float64 if x is torch.float32 else x
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(swap, args), **{k: swap(v) for k, v in (kwargs or {}).items()})


# --- the checkpoint ---------------------------------------------------------------------------


def old_spelling(config):
    """config.json as Transformers 4 wrote it."""
    config["torch_dtype"] = config.pop("dtype", "float32")
    rope = config.pop("rope_parameters", None)
    if rope:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["transformers_version"] = "4.44.0"


def write_config(case, folder):
    kind = case["type"]
    config = AutoConfig.for_model(kind, **{**BASE[kind], **case.get("config", {})})
    config.architectures = [AutoModelForCausalLM._model_mapping[type(config)].__name__]
    config.dtype = case.get("dtype", "float32")
    config.save_pretrained(folder)
    path = folder / "config.json"
    data = json.loads(path.read_text())
    if case.get("old"):
        old_spelling(data)
    case.get("edit", lambda _: None)(data)
    path.write_text(json.dumps(data, indent=2) + "\n")
    return AutoConfig.from_pretrained(folder)  # what Transformers makes of the file


def build(config, dtype, state=None):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                             experts_implementation="eager", dtype=dtype).eval()
    if state is not None:
        model.load_state_dict({k: v.to(dtype) for k, v in state.items()})
    return model


def randomize(model, generator):
    """Weights with logits far enough from each other, and no parameter at a special value."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float64).float()
        if p.ndim > 1 and ("embed" in name or "wte" in name or "wpe" in name):
            p.data = 0.6 * noise
        elif p.ndim > 1:
            fan_in = p.shape[0] if ".c_" in name else p.shape[-1]
            p.data = noise * 1.3 / fan_in**0.5
        else:
            p.data = (0 if name.endswith("bias") else 1) + 0.2 * noise
    for name, p in fixed(model).items():
        p.copy_(0.2 * torch.randn(p.shape, generator=generator, dtype=torch.float64))


def fixed(model):
    """Buffers that are saved: corrections of routers."""
    return {k: v for k, v in model.state_dict().items() if k not in dict(model.named_parameters(remove_duplicate=False))}


def hub_names(kind, tensors):
    """Tensors by the names they have in files as a rule: there an expert has tensors of its own."""
    mixtral = kind == "mixtral"
    each = dict(gate="w1", up="w3", down="w2") if mixtral else dict(gate="gate_proj", up="up_proj", down="down_proj")
    out = {}
    for name, x in tensors.items():
        if mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        head, _, last = name.rpartition(".experts.")
        if not head:
            out[name] = x
            continue
        halves = x.chunk(2, dim=1) if last == "gate_up_proj" else [x]
        for what, half in zip(("gate", "up") if len(halves) == 2 else ("down",), halves):
            out.update({f"{head}.experts.{i}.{each[what]}.weight": w for i, w in enumerate(half)})
    return out


def write_weights(case, folder, model):
    dtype, strip = getattr(torch, case.get("dtype", "float32")), case.get("strip", "")
    named = dict(model.named_parameters())
    if not case.get("fused"):
        named = hub_names(case["type"], named)
    tensors = {name.removeprefix(strip): p.detach().to(dtype).contiguous() for name, p in named.items()}
    tensors.update({name.removeprefix(strip): p.float() for name, p in fixed(model).items()})
    shards = case.get("shards", 1)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names, where = list(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = names[i * len(names) // shards : (i + 1) * len(names) // shards]
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
        where.update({n: file for n in part})
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


# --- what it computes -------------------------------------------------------------------------


def margin(logits):
    best = logits.double().topk(2, dim=-1).values
    return (best[..., 0] - best[..., 1]).min().item()


def routing_margin(config, logits):
    """The closest choice that a router made by these numbers [tokens, experts]."""
    k, groups = config.num_experts_per_tok, getattr(config, "n_group", 1)
    chosen = lambda x, n: float("inf") if n == x.shape[-1] else (lambda v: (v[..., n - 1] - v[..., n]).min().item())(
        x.sort(dim=-1, descending=True).values)
    if groups == 1:
        return chosen(logits, k)
    best = logits.unflatten(-1, (groups, -1))
    of_groups = best.topk(2, dim=-1).values.sum(-1)
    open_ = torch.zeros_like(of_groups).scatter(-1, of_groups.topk(config.topk_group, dim=-1).indices, 1)
    left = best.masked_fill(open_[..., None] == 0, float("-inf")).flatten(-2)
    return min(chosen(of_groups, config.topk_group), chosen(left, k))


def watch_routers(model, found):
    """Appends the margin of every routing decision to `found`."""
    def watch(module, _, out):
        bias = getattr(module, "e_score_correction_bias", None)
        scores = out[0].softmax(-1) if bias is None else out[0].sigmoid() + bias
        found.append(routing_margin(model.config, scores.detach().reshape(-1, scores.shape[-1])))
    for module in model.modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            module.register_forward_hook(watch)
    return model


def run(model, sequences):
    """Logits of both sequences, loss and gradients of the first.  A model with dynamic scaling
    remembers the longest sequence it saw, so each computation starts from a copy."""
    logits = [copy.deepcopy(model)(torch.tensor([s]), use_cache=False).logits[0].detach() for s in sequences]
    own = copy.deepcopy(model)
    ids = torch.tensor([sequences[0]])
    if getattr(model.config, "output_router_logits", False):  # with the loss for uneven use of experts
        loss = own(ids, labels=ids, use_cache=False).loss
    else:
        loss = torch.nn.functional.cross_entropy(own(ids, use_cache=False).logits[0, :-1], ids[0, 1:])
    loss.backward()
    grad = {name: p.grad.detach() for name, p in own.named_parameters() if p.grad is not None}
    return dict(logits=logits, loss=loss.detach(), grad=grad)


def greedy(model, prompt):
    """Greedy continuation as generate() makes it, through the cache; with the closest decision."""
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False,
                         eos_token_id=None, return_dict_in_generate=True, output_logits=True)
    tokens = out.sequences[0, len(prompt):].tolist()
    assert len(tokens) == NEW_TOKENS
    return tokens, margin(torch.cat(out.logits))


def far(a, b):
    a, b = a.double(), b.double()
    return (a - b).abs().max().item(), ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()


def noise(found, exact, zero):
    logits = [far(a, b) for a, b in zip(found["logits"], exact["logits"])]
    grads = [far(found["grad"][k], g) for k, g in exact["grad"].items() if k not in zero]
    return dict(logits_abs=max(x[0] for x in logits), logits_rel=max(x[1] for x in logits),
                loss_abs=abs(found["loss"].double().item() - exact["loss"].item()),
                grad_abs=max(x[0] for x in grads), grad_rel=max(x[1] for x in grads))


def sequences_of(case, vocab, seed):
    g = torch.Generator().manual_seed(seed + 1)
    two = [torch.randint(0, vocab, (n,), generator=g).tolist() for n in case.get("lengths", (23, 7))]
    for place, token in case.get("holds", {}).items():
        two[0][place] = token
    return two


def make(name, case, out, seed):
    """One attempt; False when a decision is too close to be decided in float32."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    config = write_config(case, folder)
    model = build(config, torch.float32)
    randomize(model, torch.Generator().manual_seed(seed))
    write_weights(case, folder, model)
    stored = getattr(torch, case.get("dtype", "float32"))
    state = {k: v.to(stored) for k, v in model.state_dict().items()}
    two = sequences_of(case, config.vocab_size, seed)
    torch.set_default_dtype(torch.float64)
    routed = []
    with Double():
        exact = run(watch_routers(build(config, torch.float64, state), routed), two)
        tokens, closest = greedy(watch_routers(build(config, torch.float64, state), routed), two[1])
    torch.set_default_dtype(torch.float32)
    assert all(g.dtype == torch.float64 for g in exact["grad"].values())
    closest = min([closest] + [margin(x) for x in exact["logits"]])
    if closest < MARGIN or min(routed, default=1) < ROUTING_MARGIN:
        return False
    in32, in16 = (run(build(config, t, state), two) for t in (torch.float32, torch.bfloat16))
    for found in (exact, in32, in16):
        found["grad"] = {k: g for k, g in hub_names(case["type"], found["grad"]).items() if g.numel()}
    largest = max(g.abs().max().item() for g in exact["grad"].values())
    zero = [k for k, g in exact["grad"].items() if g.abs().max().item() < 1e-13 * largest]
    json.dump({
        "sequences": two, "greedy": tokens, "loss_0": exact["loss"].item(),
        "without_gradient": list(fixed(model)),
        "zero_gradient": zero, "greedy_margin": closest, "routing_margin": min(routed, default=None),
        "float32_noise": noise(in32, exact, zero), "bfloat16_noise": noise(in16, exact, zero),
        "made_with": {"transformers": transformers_version, "torch": torch.__version__.split("+")[0]},
    }, open(folder / "tokens.json", "w"), indent=1)
    expect = {"loss.0": exact["loss"].reshape(1), **{f"logits.{i}": x for i, x in enumerate(exact["logits"])}}
    strip = case.get("strip", "")
    for k, g in exact["grad"].items():
        expect["grad." + k.removeprefix(strip)] = torch.zeros_like(g) if k in zero else g
    save_file({k: v.float().contiguous() for k, v in expect.items()}, folder / "expect.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)
    return True


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", nargs="?", type=pathlib.Path)
    p.add_argument("part", nargs="*", help="only cases whose name has one of these in it")
    p.add_argument("--committed", action="store_true")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    if a.list or not a.out:
        print("\n".join(CASES))
        return
    torch.set_num_threads(1)
    for name, case in CASES.items():
        if a.part and not any(x in name for x in a.part) or a.committed and name not in COMMITTED:
            continue
        try:
            seed = next(s for s in range(case.get("seed", 1), TRIES) if make(name, case, a.out, s))
            print(f"{name}: seed {seed}", flush=True)
        except Exception as e:  # one case that Transformers refuses must not end the others
            print(f"{name}: not made, {type(e).__name__}: {e}", flush=True)


main()
