"""Holds a `hyper` command to reference cases, from outside: logits --batch, grads, generate --json.

  python check.py build/hyper FOLDER [part of a name]...

FOLDER holds case folders as make.py writes them.  Prints one line a case and ends with 1 when one
is off: 1e-5 of the largest element on logits and gradients, 1e-6 on the loss, greedy tokens equal.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file


def error(a, b, largest=None):
    assert a.shape == b.shape, f"shape {a.shape}, want {b.shape}"
    d = float(np.abs(a.astype(float) - b).max())
    return d / (largest or float(np.abs(b).max())) if d else 0.0


def until_end(tokens, config):
    """The command stops at an end token, which the reference does not."""
    end = config.get("eos_token_id")
    end = set(end if isinstance(end, list) else [end])
    return tokens[: next((i + 1 for i, t in enumerate(tokens) if t in end), len(tokens))]


def check(hyper, case, tmp):
    tokens = json.loads((case / "tokens.json").read_text())
    expect = load_file(case / "expect.safetensors")
    one, two = tokens["sequences"]
    batch, out = tmp / "batch.json", tmp / "out.safetensors"
    batch.write_text(json.dumps(tokens["sequences"]))

    def run(*args):
        p = subprocess.run([hyper, args[0], "--model", case, *args[1:]], capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(p.stderr.strip())
        return p.stdout

    run("logits", "--batch", batch, "--out", out)
    found = load_file(out)
    logits = max(error(found[f"logits.{i}"], expect[f"logits.{i}"]) for i in range(2))
    run("grads", "--tokens", ",".join(map(str, one)), "--out", out)
    found = load_file(out)
    loss = abs(float(found["loss"][0]) / float(expect["loss.0"][0]) - 1)
    names = {k for k in expect if k.startswith("grad.")}
    mine = {k if k in names else "grad." + k[5:].split(".", 1)[1]: v for k, v in found.items() if k != "loss"}
    assert set(mine) == names, f"gradients differ: {sorted(set(mine) ^ names)}"
    largest = max(float(np.abs(expect[k]).max()) for k in names)
    zero = {"grad." + k for k in tokens["zero_gradient"]}
    grads = {k: error(mine[k], expect[k], 10 * largest if k in zero else None) for k in names}
    worst = max(grads, key=grads.get)
    text = json.loads(run("generate", "--tokens", ",".join(map(str, two)), "--json", "--temperature", "0",
                          "--repetition-penalty", "1", "--max-new-tokens", "16"))
    same = text["tokens"] == until_end(tokens["greedy"], json.loads((case / "config.json").read_text()))
    good = logits <= 1e-5 and loss <= 1e-6 and grads[worst] <= 1e-5 and same
    print(f"{'ok  ' if good else 'FAIL'} {case.name}: logits {logits:.1e}, loss {loss:.1e}, "
          f"gradients {grads[worst]:.1e} ({worst}), greedy {'equal' if same else 'differs'}")
    return good


def main():
    hyper, root, parts = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        for case in sorted(p.parent for p in root.glob("*/tokens.json")):
            if parts and not any(x in case.name for x in parts):
                continue
            try:
                bad += not check(hyper, case, pathlib.Path(tmp))
            except (RuntimeError, AssertionError) as e:
                bad += 1
                print(f"FAIL {case.name}: {e}")
    sys.exit(bad != 0)


main()
