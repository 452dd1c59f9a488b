"""hyper next to its peers and the machine's limits.

  compare.py [--rounds N] [--steps N] [--threads N] [--without PEER] [--isa ISA] [WHAT ...]

WHAT: gemm, op, compile, memory, tune, load, sweep (figures.py), or train, prefill, decode or any part of a row's name, as
llama-110m-B4-T256-bf16; without it all but the load, which makes 19 GB of files, and the sweep.  The sides of a row
take turns (A B A B), each turn some steps after 2 for warm-up; figures are medians.  A JSON object a row is appended
to build/compare/KIND.jsonl, of which page.py makes tables: KIND-ISA.jsonl with --isa, which holds hyper and PyTorch's
libraries to fewer instructions than the processor has, to stand in for one that has no more (llama.cpp is built for
this one, and left out).
"""
import argparse
import datetime
import json
import os
import statistics
import sys
import time

import figures
import page
import sides

# What keeps hyper, and PyTorch's own code and libraries, to an instruction set.
HELD_TO = {
    "avx512": {"HYPER_ISA": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
               "ATEN_CPU_CAPABILITY": "avx512", "OPENBLAS_CORETYPE": "SkylakeX"},
    "avx2": {"HYPER_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
             "ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
}


class Row:
    def __init__(self, kind, model, batch, seq, dtype):
        self.kind, self.model, self.batch, self.seq, self.dtype = kind, model, batch, seq, dtype
        self.name = f"{kind}-{model}-B{batch}-T{seq}-{dtype}"

    def peers(self):
        """Those that can do it: llama.cpp has no gradient of layer norms, nor of bf16 weights."""
        words = (self.kind, sides.model(self.model), self.batch, self.seq, self.dtype)
        yield "eager", lambda threads: sides.torch(words[0], "eager", *words[1:], threads)
        if self.kind != "decode":
            yield "compile", lambda threads: sides.torch(words[0], "compile", *words[1:], threads)
        trains = self.dtype == "f32" and self.model.startswith("llama")
        if sides.LLAMA and (self.kind != "train" or trains):
            yield "llama", lambda threads: sides.llama(*words, threads)

    def tokens(self):
        return self.batch * (1 if self.kind == "decode" else self.seq)


def rows():
    for dtype in ("f32", "bf16"):
        for model in ("llama-110m", "gpt2-124m"):
            yield Row("train", model, 4, 256, dtype)
            yield Row("train", model, 1, 1024, dtype)
        yield Row("train", "llama-15m", 4, 256, dtype)
    for dtype in ("f32", "bf16"):
        for seq in (256, 1024):
            yield Row("prefill", "llama-110m", 1, seq, dtype)
    for dtype in ("f32", "bf16"):
        for batch in (1, 8):
            yield Row("decode", "llama-110m", batch, 256, dtype)


def turn_of_hyper(row, a, steps):
    kind = "step" if row.kind == "train" else row.kind
    return sides.hyper(kind, "--model", sides.model(row.model), "--batch", row.batch, "--seq", row.seq,
                       "--dtype", row.dtype, "--threads", a.threads, "--steps", steps)[0]


def take_turns(row, a):
    """Lines of hyper's turns, and by peer its times and its last answer; why a peer is left out."""
    steps = a.steps * (8 if row.kind == "decode" else 1)
    peers, ours, seconds, last, failed = {}, [], {}, {}, {}
    for name, start in row.peers():
        if name in a.without:
            continue
        try:
            peers[name] = start(a.threads)
            before = time.perf_counter()
            peers[name].ask(sides.WARM_UP)
            last[name] = {"first_s": time.perf_counter() - before, "about": peers[name].about}
            seconds[name] = []
        except sides.Failed as e:
            failed[name] = str(e)
            peers.pop(name, None)
    for _ in range(a.rounds):
        ours.append(turn_of_hyper(row, a, steps))
        for name, peer in peers.items():
            answer = peer.ask(steps)
            seconds[name] += answer.pop("step_s")
            last[name].update(answer)
    for peer in peers.values():
        peer.close()
    return ours, seconds, last, failed


def median_of(lines, key):
    return statistics.median(line[key] for line in lines)


def compare(row, a):
    ours, seconds, last, failed = take_turns(row, a)
    step = median_of(ours, "step_s")
    line = {"bench": "compare", "row": row.name, "kind": row.kind, "model": row.model, "batch": row.batch,
            "seq": row.seq, "dtype": row.dtype, "machine": ours[0]["machine"], "isa": ours[0]["isa"],
            "threads": a.threads, "rounds": a.rounds, "tokens_per_s": row.tokens() / step, "step_s": step,
            "limit_s": median_of(ours, "limit_s"), "of_limit": median_of(ours, "of_limit"), "rss_bytes": max(o["rss_bytes"] for o in ours)}
    for key in ("loss", "compile_s", "peak_bytes"):
        if key in ours[0]:
            line[key] = ours[0][key]
    for name, times in seconds.items():
        line[f"{name}_step_s"] = statistics.median(times)
        line[f"over_{name}"] = line[f"{name}_step_s"] / step
        line[f"{name}_rss_bytes"] = last[name]["rss_bytes"]
        line[f"{name}_result"] = last[name]["result"]
        line[f"{name}_first_s"] = last[name]["first_s"]
        line[f"{name}_about"] = last[name]["about"]
    for name, why in failed.items():
        line[f"{name}_failed"] = why
    return line


def measure(kind, lines, isa=None):
    """Keeps the lines as they come, and prints their table."""
    made, kind = [], f"{kind}-{isa}" if isa else kind
    today, commit = datetime.date.today().isoformat(), os.popen("git rev-parse --short HEAD").read().strip()
    for line in lines:
        made.append(dict(line, date=today, commit=commit))
        with open(f"{sides.BUILD}/{kind}.jsonl", "a") as f:
            f.write(json.dumps(made[-1]) + "\n")
        print(line["row"], file=sys.stderr, flush=True)
    print(page.table(kind, made) + "\n", flush=True)


def main():
    others = ("gemm", "op", "compile", "memory", "tune", "load", "sweep")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--without", action="append", default=[], choices=["eager", "compile", "llama", "llamafactory"],
                   help="leave a peer out")
    p.add_argument("--isa", choices=HELD_TO, help="hold all sides to it")
    p.add_argument("what", nargs="*")
    a = p.parse_args()
    if not sides.LLAMAFACTORY:
        a.without.append("llamafactory")
    if a.isa:
        os.environ.update(HELD_TO[a.isa])
        a.without.append("llama")
    chosen = [r for r in rows() if not a.what or any(w in r.name for w in a.what if w not in others)]
    for kind in ("train", "prefill", "decode"):
        if any(r.kind == kind for r in chosen):
            measure(kind, (compare(r, a) for r in chosen if r.kind == kind), a.isa)
    for kind in others:
        if kind in a.what or (not a.what and kind not in ("load", "sweep")):
            measure(kind, getattr(figures, kind)(a), a.isa)
    if not chosen and not set(a.what) & set(others):
        sys.exit(f"no row has {' or '.join(a.what)} in its name; there are " + ", ".join(r.name for r in rows()))


if __name__ == "__main__":
    main()
