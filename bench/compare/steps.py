"""Training steps of hyper and of PyTorch eager (Transformers' own model, SDPA, fused AdamW, clip 1.0) on the
same shapes, alternating, medians and ratios.  One JSON object a line on stdout, a table on stderr."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

DEFAULT = [("examples/demo/model/config.json", 8, 256)]


def hyper_step(config, batch, seq, dtype, threads, steps, launch=(), more=()):
    out = subprocess.run(
        ["build/hyper", *launch, "bench", "step", "--model", config, "--batch", str(batch), "--seq", str(seq), "--dtype",
         dtype, "--threads", str(threads), "--steps", str(steps), "--json", *more],
        capture_output=True, text=True, check=True).stdout
    return json.loads(out)


PEER = r"""
import json, sys, time, statistics, os
config, batch, seq, dtype, threads, steps = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4], *map(int, sys.argv[5:7])
import torch
from transformers import AutoConfig, AutoModelForCausalLM
torch.set_num_threads(threads)
torch.manual_seed(0)
c = AutoConfig.for_model(**json.load(open(config)))
c._attn_implementation = "sdpa"
for share in ("embd_pdrop", "resid_pdrop", "attn_pdrop", "attention_dropout"):  # hyper bench steps without dropout
    if hasattr(c, share): setattr(c, share, 0.0)
m = AutoModelForCausalLM.from_config(c).float().train()
o = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)
world = int(os.environ.get("WORLD_SIZE", "1"))
run = m
if world > 1:
    torch.distributed.init_process_group("gloo")
    run = torch.nn.parallel.DistributedDataParallel(m)
ids = torch.randint(0, c.vocab_size, (batch // world, seq))
times = []
for i in range(steps + 2):
    start = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
        loss = run(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    o.step()
    o.zero_grad(set_to_none=True)
    if i >= 2: times.append(time.perf_counter() - start)
import resource
print(json.dumps({"step_s": statistics.median(times), "torch": torch.__version__, "loss": loss.item(),
                  "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""


def torch_step(config, batch, seq, dtype, threads, steps):
    env = dict(os.environ, OMP_PROC_BIND="true", OMP_PLACES="cores", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    out = subprocess.run([sys.executable, "-c", PEER, config, str(batch), str(seq), dtype, str(threads), str(steps)],
                         capture_output=True, text=True, env=env)
    if out.returncode:
        sys.exit(out.stderr[-2000:])
    return json.loads(out.stdout.strip().splitlines()[-1])


def compare(config, batch, seq, args):
    ours, theirs = [], []
    for _ in range(args.rounds):  # A B A B
        ours.append(hyper_step(config, batch, seq, args.dtype, args.threads, args.steps))
        theirs.append(torch_step(config, batch, seq, args.dtype, args.threads, args.steps))
    a = statistics.median(x["step_s"] for x in ours)
    b = statistics.median(x["step_s"] for x in theirs)
    row = {"bench": "compare_step", "config": config, "batch": batch, "seq": seq, "dtype": args.dtype,
           "device": ours[0]["device"], "torch": theirs[0]["torch"], "rounds": args.rounds,
           "tokens_per_s": batch * seq / a, "torch_tokens_per_s": batch * seq / b, "step_s": a, "torch_step_s": b,
           "ratio": b / a, "limit_s": statistics.median(x["limit_s"] for x in ours),
           "of_limit": statistics.median(x["of_limit"] for x in ours), "compile_s": ours[0]["compile_s"],
           "rss_bytes": max(x["rss_bytes"] for x in ours), "torch_rss_bytes": max(x["rss_bytes"] for x in theirs)}
    print(json.dumps(row), flush=True)
    print(f"{os.path.basename(config):24} B{batch} T{seq} {args.dtype}: hyper {row['tokens_per_s']:9.1f} tok/s, torch eager "
          f"{row['torch_tokens_per_s']:9.1f}, ratio {row['ratio']:.2f}, of the limit {row['of_limit']:.2f}; memory "
          f"{row['rss_bytes'] / 2**30:.2f} / {row['torch_rss_bytes'] / 2**30:.2f} GiB", file=sys.stderr, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    p.add_argument("shape", nargs="*", help="CONFIG.json BATCH SEQ ...")
    args = p.parse_args()
    if len(args.shape) % 3:
        p.error("shapes are given as CONFIG.json BATCH SEQ")
    shapes = [(args.shape[i], int(args.shape[i + 1]), int(args.shape[i + 2])) for i in range(0, len(args.shape), 3)]
    data = os.environ.get("HYPER_DATA", "../shared/data")
    if not shapes:
        shapes = list(DEFAULT)
        for name, batch, seq in (("llama-110m", 4, 256), ("llama-15m", 4, 256), ("gpt2-124m", 4, 256)):
            path = f"{data}/configs/{name}.json"
            if os.path.exists(path):
                shapes.append((path, batch, seq))
            else:
                print(f"skipped: no {path}", file=sys.stderr)
    for config, batch, seq in shapes:
        compare(config, batch, seq, args)


if __name__ == "__main__":
    main()
