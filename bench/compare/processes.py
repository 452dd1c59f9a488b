"""One training step on all cores, as one process with a thread a core and as one process a core: hyper's threads,
hyper's processes over MPI (data parallel, optimizer sharded) and PyTorch DDP over gloo, taking turns.  One JSON object on
stdout, a line on stderr."""
import argparse
import json
import os
import socket
import statistics
import sys

import sides


def hyper_step(shape, n, steps, launch, more):
    config, batch, seq, dtype = shape
    return sides.hyper("step", "--model", config, "--batch", batch, "--seq", seq, "--dtype", dtype, "--threads", n,
                       "--steps", steps, *more, launch=launch)[0]["step_s"]


def ddp_step(model, shape, n, steps):
    _, batch, seq, dtype = shape
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    peers = [sides.torch("train", "eager", model, batch, seq, dtype, 1, WORLD_SIZE=str(n), RANK=str(r),
                         MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)) for r in range(n)]
    for count in (sides.WARM_UP, steps):
        for peer in peers:
            peer.tell(count)
        answers = [peer.answer() for peer in peers]
    for peer in peers:
        peer.close()
    return statistics.median(answers[0]["step_s"])


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--processes", type=int, default=os.cpu_count())
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    p.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    p.add_argument("shape", nargs="*", help="CONFIG.json BATCH SEQ")
    a = p.parse_args()
    config, batch, seq = a.shape or (sides.CONFIGS + "/llama-110m.json", 8, 256)
    shape, n = (config, int(batch), int(seq), a.dtype), a.processes
    seconds = {"threads": [], "processes": [], "torch_ddp": []}
    load = []
    for _ in range(a.rounds):
        load.append(os.getloadavg()[0])
        seconds["threads"].append(hyper_step(shape, n, a.steps, [], []))
        seconds["processes"].append(hyper_step(shape, n, a.steps, ["launch", "-n", str(n), "--"],
                                               ["--strategy", f"dp={n},zero=1"]))
        if not a.no_torch:
            seconds["torch_ddp"].append(ddp_step(sides.model(os.path.basename(config)[:-5]), shape, n, a.steps))
    step = {k: statistics.median(v) for k, v in seconds.items() if v}
    row = {"bench": "compare_processes", "config": config, "batch": shape[1], "seq": shape[2], "dtype": a.dtype,
           "processes": n, "rounds": a.rounds, "load_before": load, **{f"{k}_step_s": v for k, v in step.items()},
           "all_step_s": seconds, "of_threads": step["threads"] / step["processes"]}
    if "torch_ddp" in step:
        row["of_torch_ddp"] = step["torch_ddp"] / step["processes"]
    print(json.dumps(row))
    print(f"{os.path.basename(config)} B{batch} T{seq} {a.dtype}, {n} processes: " +
          ", ".join(f"{k} {v:.3f} s" for k, v in step.items()) + f"; processes reach {row['of_threads']:.3f} of threads",
          file=sys.stderr)


main()
