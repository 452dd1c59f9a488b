"""Training runs of LlamaFactory with several processes, for tests/cli/test_replicas.sh.

    python tools/golden/make_replicas.py SHARED/data/golden/llamafactory tests/golden/replicas

A case is the run `pt` of that folder with other keys, begun by torchrun on CPU (gloo).  Written is NAME.txt: the case's
keys, and a line "STEP NAME VALUE" for each number of its history that is no time.
Needs llamafactory 0.9.5, transformers 5.6.0, accelerate 1.11.0, datasets 4.0.0, torch.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROWS = {
    "max_steps": None,
    "num_train_epochs": 2,
    "packing": False,
    "cutoff_len": 50,
    "max_samples": 37,
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 2,
    "disable_shuffling": False,
    "include_num_input_tokens_seen": "all",
    "val_size": 9,
    "per_device_eval_batch_size": 2,
    "eval_strategy": "epoch",
}
# name: processes, keys in place of those of pt/config.yaml
CASES = {
    # as it is: the end of an epoch is not reached
    "pt": (2, {}),
    # two epochs of 235 blocks in steps of 24, shuffled: the last micro-batch is filled up
    "epochs": (2, {"max_steps": None, "num_train_epochs": 2, "per_device_train_batch_size": 3,
                   "gradient_accumulation_steps": 4, "disable_shuffling": False,
                   "include_num_input_tokens_seen": "all"}),
    # rows of different lengths, padded by each process alone; evaluation, its last batch filled up
    "rows": (2, ROWS),
    "three": (3, ROWS),
    "drop_last": (2, {**ROWS, "dataloader_drop_last": True, "include_num_input_tokens_seen": "non_padding"}),
    # fewer samples than a batch: they are taken again and again
    "few": (2, {"max_steps": 6, "packing": False, "cutoff_len": 50, "max_samples": 5, "disable_shuffling": False}),
}
TIMES = ("runtime", "per_second")


def text_of(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def config(base, name, keys):
    keys = {**keys, "output_dir": f"saves/{name}"}
    lines = [line for line in base.splitlines() if line.split(":")[0] not in keys]
    return "\n".join(lines + [f"{k}: {text_of(v)}" for k, v in keys.items() if v is not None]) + "\n"


def run(folder, processes, file):
    import llamafactory.launcher

    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
           "DISABLE_VERSION_CHECK": "1"}
    command = ["torchrun", "--nproc_per_node", str(processes), "--master_port", "29617",
               llamafactory.launcher.__file__, file]
    subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)


def history(folder, name):
    state = json.loads((folder / "saves" / name / "trainer_state.json").read_text())
    for entry in state["log_history"]:
        for key in sorted(entry):
            if key != "step" and not any(t in key for t in TIMES):
                yield f"{entry['step']} {key} {entry[key]!r}"


def main(source, out):
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp) / "run"
        shutil.copytree(source, folder)
        base = (folder / "pt/config.yaml").read_text()
        for name, (processes, keys) in CASES.items():
            (folder / f"{name}.yaml").write_text(config(base, name, keys))
            run(folder, processes, f"{name}.yaml")
            head = [f"# LlamaFactory 0.9.5, torchrun --nproc_per_node {processes}"]
            head += [f"# key {k}={'null' if v is None else text_of(v)}" for k, v in keys.items()]
            lines = head + list(history(folder, name))
            (pathlib.Path(out) / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
