"""Tables of what `make compare` measured: page.py [FILE]

In FILE (docs/benchmarks.md) what stands between `<!-- KIND -->` and `<!-- end -->` becomes the table of
build/compare/KIND.jsonl: the last line of each row counts.  KIND-ISA: with all sides held to those instructions.
"""
import json
import math
import os
import re
import sys

BUILD = os.environ.get("COMPARE_BUILD", "build/compare")

# What the ratios are to reach: (at least, wanted).
TRAIN = {"f32": {"eager": (1.25, 1.4), "compile": (1.15, 1.3), "llama": (5, 5), "limit": (0.88, 0.94)},
         "bf16": {"eager": (1.3, 1.5), "compile": (1.2, 1.35), "limit": (0.80, 0.90)}}
WITHOUT_BF16 = {"eager": (3, 3), "compile": (3, 3), "limit": (0.80, 0.80)}  # where PyTorch emulates its instructions
SMALL = {"f32": {"eager": (1.5, 1.8), "compile": (1.2, 1.2), "llama": (5, 5), "limit": (0.80, 0.80)}, "bf16": {}}
PREFILL = {"eager": (1.3, 1.3), "compile": (1.2, 1.2), "llama": (1.4, 1.4), "limit": (0.85, 0.85)}
DECODE = {1: {"eager": (1.5, 1.5), "llama": (1.1, 1.1), "limit": (0.85, 0.85)},
          8: {"eager": (1.5, 1.5), "llama": (1.2, 1.2)}}


def goals(line):
    if line["kind"] == "train" and line["dtype"] == "bf16" and not line["isa"].endswith("bf16"):
        return WITHOUT_BF16
    if line["kind"] == "train":
        return (SMALL if line["model"] == "llama-15m" else TRAIN)[line["dtype"]]
    return PREFILL if line["kind"] == "prefill" else DECODE[line["batch"]]


def mark(value, goal):
    """A ratio: bold where it is what is wanted, with a * where it is less than what is asked."""
    if value is None:
        return "-"
    text = f"{value:.2f}"
    if not goal:
        return text
    return f"**{text}**" if value >= goal[1] else text if value >= goal[0] else text + " *"


def gib(n):
    return f"{n / 2**30:.2f}"


def whole_models(lines):
    yield ["row", "hyper", "eager", "compile", "llama.cpp", "limit", "/ eager", "/ compile", "/ llama.cpp", "of limit",
           "GiB (of eager's)"]
    for l in lines:
        rate = lambda key: f"{l['tokens_per_s'] * l['step_s'] / l[key]:.0f}" if key in l else "-"
        share = f" ({l['rss_bytes'] / l['eager_rss_bytes']:.2f})" if "eager_rss_bytes" in l else ""
        goal = goals(l)
        sides = ("", "eager_", "compile_", "llama_")
        yield [l["row"].split("-", 1)[1].replace("-", " "), *(rate(p + "step_s") for p in sides), rate("limit_s"),
               *(mark(l.get("over_" + p), goal.get(p)) for p in ("eager", "compile", "llama")),
               mark(l["of_limit"], goal.get("limit")), gib(l["rss_bytes"]) + share]


def gemm(lines):
    yield ["product", "peak", "ours", "oneDNN", "OpenBLAS", "PyTorch", "of peak", "of the best other"]
    for dtype in ("f32", "bf16"):
        some = [l for l in lines if l["dtype"] == dtype]
        for l in some:
            rate = lambda key: f"{l[key] / 1e9:.0f}" if key in l else "-"
            sides = ("peak", "packed", "onednn", "openblas", "torch")
            yield [l["row"].replace("-", " "), *(rate(k + "_flops") for k in sides),
                   f"{l['of_peak']:.2f}", mark(l["over_best"], (0.9, 1.0))]
        if some:
            mean = math.exp(sum(math.log(l["over_best"]) for l in some) / len(some))
            yield [f"{dtype}, geometric mean; worst", *[""] * 6,
                   mark(mean, (1.0, 1.0)) + "; " + mark(min(l["over_best"] for l in some), (0.9, 0.9))]


def op(lines):
    yield ["op", "GB/s", "memory reads, GB/s", "of the limit"]
    for l in lines:
        goal = None if "attention" in l["op"] else (1 / 1.2,) * 2 if l["op"] == "adamw" else (1 / 1.3,) * 2
        yield [f"{l['op']} {l['dtype']}", f"{l['bytes_per_s'] / 1e9:.0f}", f"{l['read_bytes_per_s'] / 1e9:.0f}",
               mark(l["of_limit"], goal)]


def compile(lines):
    yield ["training step", "nothing kept, s", "kernels kept, s", "torch.compile, s"]
    for l in lines:
        yield [l["row"].replace("-", " "), f"{l['cold_s']:.2f}", f"{l['warm_s']:.2f}",
               f"{l['torch_compile_s']:.0f}" if "torch_compile_s" in l else "-"]


def memory(lines):
    yield ["training step, f32", "hyper, GiB", "PyTorch, GiB", "ratio"]
    for l in lines:
        goal = 0.6 if "T256" in l["row"] else 0.4
        theirs = gib(l["torch_rss_bytes"]) if "ratio" in l else "-"
        yield [l["row"].replace("-", " "), gib(l["rss_bytes"]), theirs,
               f"{l['ratio']:.2f}{'' if l['ratio'] <= goal else ' *'}" if "ratio" in l else "-"]


def load(lines):
    yield ["checkpoint, loaded as", "GB", "reading its files, s", "cold, s", "of reading", "warm, s", "first token after, s",
           "peak memory, GB"]
    for l in lines:
        model, dtype = l["row"].rsplit("-", 1)
        yield [f"{model}, {dtype}", f"{l['file_bytes'] / 1e9:.1f}", *(f"{l[k]:.2f}" for k in ("read_s", "cold_s")),
               f"{l['cold_s'] / l['read_s']:.2f}", *(f"{l[k]:.2f}" for k in ("warm_s", "first_token_s")),
               f"{l['rss_bytes'] / 1e9:.1f}"]


def sweep(lines):
    yield ["size", "B x T", *(f"{t}: {c}" for t in ("f32", "bf16") for c in ("step, ms", "of its limit", "widest gap"))]
    by = {}
    for l in lines:
        by.setdefault(l["model"], {})[l["dtype"]] = l
    for name, l in by.items():
        first = next(iter(l.values()))
        cells = [c for t in ("f32", "bf16") for c in (sweep_cells(l[t]) if t in l else ("-",) * 3)]
        yield [name, f"{first['batch']:.0f} x {first['seq']:.0f}", *cells]


def sweep_cells(l):
    gap = f"{l['widest_gap']}: {100 * l['widest_gap_share']:.0f} %" if "widest_gap" in l else "-"
    return f"{1e3 * l['step_s']:.0f}", mark(l["of_limit"], (0.6, 1)), gap


def tune(lines):
    yield ["step", "hyper, s", "LlamaFactory, s", "limit, s", "/ LlamaFactory", "of limit", "of the full step", "GiB (of LlamaFactory's)",
           "of the full step's memory"]
    by = {l["tuning"]: l for l in lines}
    for l in lines:
        full = by.get({"lora": "sft", "dpo-lora": "dpo", "sft": "pt"}.get(l["tuning"]))
        theirs = l.get("llamafactory_step_s")
        share = f" ({l['rss_bytes'] / l['llamafactory_rss_bytes']:.2f})" if theirs else ""
        goal = None if l["tuning"] in ("pt", "sft") else (1.8, 1.8)
        yield [l["row"].replace("-", " "), f"{l['step_s']:.2f}", f"{theirs:.2f}" if theirs else "-", f"{l['limit_s']:.2f}",
               mark(theirs / l["step_s"] if theirs else None, goal), f"{l['limit_s'] / l['step_s']:.2f}",
               f"{l['step_s'] / full['step_s']:.2f}" if full else "-", gib(l["rss_bytes"]) + share,
               f"{l['rss_bytes'] / full['rss_bytes']:.2f}" if full else "-"]


TABLES = {"train": whole_models, "prefill": whole_models, "decode": whole_models, "gemm": gemm, "op": op,
          "compile": compile, "memory": memory, "load": load, "tune": tune, "sweep": sweep}


def table(kind, lines):
    rows = list(TABLES[kind.split("-")[0]](lines))
    return "\n".join("| " + " | ".join(r) + " |" for r in [rows[0], ["---"] * len(rows[0])] + rows[1:])


def last_lines(kind):
    rows = {}
    with open(f"{BUILD}/{kind}.jsonl") as f:
        for text in f:
            line = json.loads(text)
            rows.pop(line["row"], None)
            rows[line["row"]] = line
    return list(rows.values())


def section(kind):
    lines = last_lines(kind)
    dates = sorted({l["date"] for l in lines})
    about = lines[0]
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    isa = f", {about['isa']}" if "isa" in about else ""
    threads = f", {about['threads']} threads" if "threads" in about else ""
    kind, _, held_to = kind.partition("-")
    what = f'"--isa {held_to} {kind}"' if held_to else kind
    return f"`make compare WHAT={what}`: {about['machine']}{isa}{threads}, {when}.\n\n{table(kind, lines)}"


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "docs/benchmarks.md"
    with open(path) as f:
        text = f.read()
    for kind in re.findall("<!-- ([a-z0-9-]+) -->", text):
        if os.path.exists(f"{BUILD}/{kind}.jsonl"):
            new = f"<!-- {kind} -->\n{section(kind)}\n<!-- end -->"
            text = re.sub(f"<!-- {kind} -->.*?<!-- end -->", lambda _: new, text, flags=re.S)
    with open(path, "w") as f:
        f.write(text)


if __name__ == "__main__":
    main()
