"""hyper next to an older hyper on the rows of compare.py, in turns: is a change slower?

  bench/compare/run before OLD_HYPER [WHAT ...] [--rounds N] [--steps N] [--threads N]

OLD_HYPER: the program `hyper` of another commit, built in a working tree of its own.  WHAT: train, prefill, decode or any
part of a row's name.  The two change places after every round (A B, B A).  A JSON object a row on stdout, a line on
stderr: `ratio` is the new median over the old one, below 1 is faster.
"""
import argparse
import json
import os
import statistics
import sys

import compare
import sides


def step_s(binary, row, a):
    sides.HYPER = binary
    kind = "step" if row.kind == "train" else row.kind
    steps = a.steps * (8 if row.kind == "decode" else 1)
    return sides.hyper(kind, "--model", f"{sides.CONFIGS}/{row.model}.json", "--batch", row.batch, "--seq", row.seq,
                       "--dtype", row.dtype, "--threads", a.threads, "--steps", steps)[0]["step_s"]


def compare_row(row, a):
    new, old = os.path.abspath(sides.HYPER), os.path.abspath(a.old)
    seconds = {new: [], old: []}
    for turn in range(a.rounds):
        for binary in (old, new) if turn % 2 == 0 else (new, old):
            seconds[binary].append(step_s(binary, row, a))
    sides.HYPER = new
    line = {"bench": "compare_before", "row": row.name, "threads": a.threads, "rounds": a.rounds,
            "old_step_s": statistics.median(seconds[old]), "step_s": statistics.median(seconds[new]),
            "old_least_s": min(seconds[old]), "least_s": min(seconds[new])}
    return dict(line, ratio=line["step_s"] / line["old_step_s"], least_ratio=line["least_s"] / line["old_least_s"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("old", metavar="OLD_HYPER")
    p.add_argument("what", nargs="*", metavar="WHAT")
    a = p.parse_args()
    chosen = [r for r in compare.rows() if not a.what or any(w in r.name for w in a.what)]
    if not os.access(a.old, os.X_OK) or sides.HYPER == a.old:
        sys.exit(f"{a.old} is not a program that can run, or HYPER itself ({sides.HYPER})")
    if not chosen:
        sys.exit(f"no row has {' or '.join(a.what)} in its name; there are " + ", ".join(r.name for r in compare.rows()))
    for row in chosen:
        line = compare_row(row, a)
        print(json.dumps(line), flush=True)
        print(f"{line['row']:34} {1e3 * line['old_step_s']:9.2f} ms before, {1e3 * line['step_s']:9.2f} now: "
              f"{line['ratio']:.3f} (least {line['least_ratio']:.3f})", file=sys.stderr, flush=True)


main()
