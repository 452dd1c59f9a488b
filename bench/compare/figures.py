"""What `make compare` measures besides the rows of whole models: each function gives JSON lines."""
import json
import math
import statistics
import tempfile

import loading
import sides
import tuning

MODELS = ("llama-110m", "gpt2-124m", "llama-15m")


def gemm(a):
    """Products of the models' weights at B4 T256 by the engines of `hyper bench gemm` and by PyTorch (MKL in f32).
    Held to AVX2 PyTorch takes minutes for one in bf16: f32 alone."""
    for dtype in ("f32",) if a.isa == "avx2" else ("f32", "bf16"):
        turns = []
        for r in range(a.rounds):
            lines = {}
            for model in MODELS:
                for line in sides.hyper("gemm", "--model", sides.model(model), "--batch", 4, "--seq", 256,
                                        "--dtype", dtype, "--threads", a.threads, "--steps", a.steps):
                    lines[line["layout"], line["m"], line["k"], line["n"]] = line
            if not turns:
                with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                    json.dump(list(lines), f)
                    f.flush()
                    peer = sides.torch("gemm", "eager", f.name, 0, 0, dtype, a.threads)
                    peer.ask(1)
            turns.append((lines, peer.ask(1)["result"]))
        peer.close()
        for i, key in enumerate(turns[0][0]):
            line = dict(turns[0][0][key], bench="compare_gemm", row="{}-{}-{}x{}x{}".format(dtype, *key))
            for name in [k for k in line if k.endswith("_flops")]:
                line[name] = statistics.median(lines[key][name] for lines, _ in turns)
            line["torch_flops"] = statistics.median(rates[i] for _, rates in turns)
            ours = ("peak_flops", "packed_flops")
            others = [line[k] for k in line if k.endswith("_flops") and k not in ours]
            line["of_peak"] = line["packed_flops"] / line["peak_flops"]
            line["over_best"] = line["packed_flops"] / max(others)
            yield line


def op(a):
    """Ops on tensors larger than caches next to the bytes that they must move."""
    for dtype in ("f32", "bf16"):
        for line in sides.hyper("op", "--dtype", dtype, "--threads", a.threads, "--steps", a.steps):
            yield dict(line, bench="compare_op", row=f"{dtype}-{line['op']}")


def machine(a):
    """What `hyper bench gemm` says of the machine."""
    line = sides.hyper("gemm", "--shape", "8x8x8", "--dtype", "f32", "--threads", a.threads, "--steps", 1)[0]
    return {key: line[key] for key in ("machine", "isa", "threads")}


def compile(a):
    """A training step of Llama 110 M made from nothing: with nothing kept from before, with what the first run kept,
    and the first step of torch.compile."""
    words = ["--model", sides.CONFIGS + "/llama-110m.json", "--batch", 4, "--seq", 256]
    with tempfile.TemporaryDirectory() as cache:
        cold = sides.hyper("compile", *words, HYPER_CACHE=cache)[0]
        warm = [sides.hyper("compile", *words, HYPER_CACHE=cache)[0]["total_s"] for _ in range(a.rounds)]
    line = dict(cold, bench="compare_compile", row="llama-110m-B4-T256", cold_s=cold["total_s"],
                warm_s=statistics.median(warm), **machine(a))
    if "compile" not in a.without:
        with tempfile.TemporaryDirectory() as cache:
            peer = sides.torch("train", "compile", sides.model("llama-110m"), 4, 256, "f32", a.threads,
                               TORCHINDUCTOR_CACHE_DIR=cache)
            first = peer.ask(1)["step_s"][0]
            line["torch_compile_s"] = first - statistics.median(peer.ask(2)["step_s"])
            peer.close()
    yield line


def memory(a):
    """Peak resident memory of a process that trains Llama 110 M in f32."""
    for batch, seq in ((4, 256), (8, 1024)):
        ours = sides.hyper("step", "--model", sides.model("llama-110m"), "--batch", batch, "--seq", seq,
                           "--threads", a.threads, "--steps", 1)[0]
        line = {key: ours[key] for key in ("machine", "isa", "threads", "dtype", "rss_bytes", "peak_bytes")}
        line.update(bench="compare_memory", row=f"llama-110m-B{batch}-T{seq}")
        if "eager" not in a.without:
            peer = sides.torch("train", "eager", sides.model("llama-110m"), batch, seq, "f32", a.threads)
            line["torch_rss_bytes"] = peer.ask(2)["rss_bytes"]
            line["ratio"] = line["rss_bytes"] / line["torch_rss_bytes"]
            peer.close()
        yield line


def load(a):
    """Checkpoints of bf16 loaded, next to reading their files once."""
    about = machine(a)
    for line in loading.rows(a):
        yield dict(line, **about)


def tune(a):
    """Stages and adapters by the same YAML in LlamaFactory, next to the machine's limit."""
    about = machine(a)
    for line in tuning.rows(a):
        yield dict(line, bench="compare_tune", **about)


# One size at a time of this Llama changes.
SIZES = {"layers": 4, "width": 512, "seq": 256, "vocab": 8192}
SWEEP = {"layers": (2, 4, 8, 16, 32, 48), "width": (128, 256, 512, 1024, 2048),
         "seq": (128, 256, 512, 1024, 2048, 4096, 8192), "vocab": (1024, 8192, 32768, 131072)}


def sweep(a):
    """Training steps of a Llama whose sizes change one at a time, of about 1024 tokens, next to their limit."""
    for name, values in SWEEP.items():
        for value in values:
            size = dict(SIZES, **{name: value})
            heads, ffn = size["width"] // 64, math.ceil(size["width"] * 8 / 3 / 64) * 64
            config = {"model_type": "llama", "hidden_size": size["width"], "num_hidden_layers": size["layers"],
                      "num_attention_heads": heads, "num_key_value_heads": heads, "intermediate_size": ffn,
                      "vocab_size": size["vocab"], "max_position_embeddings": 8192, "tie_word_embeddings": True}
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                json.dump(config, f)
                f.flush()
                for dtype in ("f32", "bf16"):
                    line = sides.hyper("step", "--model", f.name, "--batch", max(1, 1024 // size["seq"]), "--seq",
                                       size["seq"], "--dtype", dtype, "--threads", a.threads, "--steps", a.steps)[0]
                    yield dict(line, bench="compare_sweep", row=f"{dtype}-{name}-{value}", model=f"{name} {value}")
