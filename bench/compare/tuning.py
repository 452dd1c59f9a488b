"""Fine-tuning by the same YAML in hyper and in LlamaFactory, a run each in turn: seconds a step, and peak memory.

A step is the time between two lines of trainer_log.jsonl, which both write. What hyper computes once before training,
the log-probabilities by the reference model, is added to its steps: one epoch has every sample once.
"""
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import sides

MODEL, BATCH, SEQ = "llama-110m", 4, 256
TOKENIZER = "examples/demo/model"
POLL_S = 0.02  # both sides use all cores: watching must not take one

LORA = {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "all"}
ROWS = {  # what differs from BASE
    "pt": {"stage": "pt", "dataset": "texts"},
    "sft": {"stage": "sft", "packing": True, "dataset": "answers"},
    "lora": {"stage": "sft", "packing": True, "dataset": "answers", **LORA},
    "dpo": {"stage": "dpo", "dataset": "pairs"},
    "dpo-lora": {"stage": "dpo", "dataset": "pairs", **LORA},
}
# Without LlamaFactory's recomputation, which is for memory alone.
BASE = {"do_train": True, "finetuning_type": "full", "template": "default", "cutoff_len": SEQ, "overwrite_cache": True,
        "logging_steps": 1, "save_strategy": "no", "report_to": "none", "per_device_train_batch_size": BATCH,
        "learning_rate": 1e-4, "lr_scheduler_type": "constant", "disable_gradient_checkpointing": True, "seed": 1}
DATASETS = {
    "texts": {"file_name": "texts.jsonl", "columns": {"prompt": "text"}},
    "answers": {"file_name": "answers.jsonl", "columns": {"prompt": "instruction", "response": "output"}},
    "pairs": {"file_name": "pairs.jsonl", "ranking": True,
              "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}},
}


def model_with_tokenizer():
    folder = f"{sides.BUILD}/models/{MODEL}-text"
    os.makedirs(folder, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        path = f"{folder}/{name}"
        if not os.path.lexists(path):
            os.symlink(os.path.abspath(f"{sides.model(MODEL)}/{name}"), path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{TOKENIZER}/{name}", folder)
    return folder


def write_data(folder, samples):
    """Each sample is longer than SEQ, and cut to it."""
    stories = subprocess.run(["awk", "-v", f"n={samples * 16}", "-v", "seed=1", "-f", "examples/demo/stories.awk"],
                             capture_output=True, text=True, check=True).stdout.splitlines()
    texts = [json.loads(line)["text"] for line in stories]
    texts = [" ".join(texts[i:i + 8]) for i in range(0, len(texts), 8)]
    with open(f"{folder}/dataset_info.json", "w") as f:
        json.dump(DATASETS, f)
    lines = {"texts": [{"text": x} for x in texts],
             "answers": [{"instruction": "Tell a story.", "output": x} for x in texts],
             "pairs": [{"instruction": "Tell a story.", "chosen": x, "rejected": y}
                       for x, y in zip(texts[:samples], texts[samples:])]}
    for name, of in lines.items():
        with open(f"{folder}/{name}.jsonl", "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in of)


def logged_steps(log):
    if not os.path.exists(log):
        return 0
    with open(log) as f:
        return sum('"loss"' in line and line.endswith("\n") for line in f)


def watch(process, log):
    """When each step appears in the log, until the process ends, and its peak memory."""
    times, ended = [], 0
    while not ended:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        times += [time.perf_counter()] * (logged_steps(log) - len(times))
        time.sleep(POLL_S)
    process.returncode = os.waitstatus_to_exitcode(status)
    return times, usage.ru_maxrss * 1024


def run(command, config, folder, env):
    """A run of its own: seconds of each step after the warm-up, peak memory, what it printed, its folder."""
    out, path = f"{folder}/out", f"{folder}/run.yaml"
    shutil.rmtree(out, ignore_errors=True)
    with open(path, "w") as f:
        json.dump(dict(config, output_dir=out), f)
    with open(f"{folder}/said", "w+") as said:
        process = subprocess.Popen([command, "train", path], stdout=said, stderr=said, env=env)
        times, rss = watch(process, f"{out}/trainer_log.jsonl")
        said.seek(0)
        text = said.read()
    if process.returncode or len(times) != config["max_steps"]:
        raise sides.Failed(" ".join(text.split())[-300:])
    return [b - a for a, b in zip(times, times[1:])][sides.WARM_UP - 1:], rss, text, out


def reference_seconds(text):
    """What the reference model took before training, in seconds: every sample counts in one epoch."""
    for line in text.splitlines():
        if "by the reference model in" in line:
            return float(line.split()[-2])
    return 0.0


def turn_of_hyper(config, folder, threads):
    steps, rss, text, out = run(sides.HYPER, dict(config, threads=threads), folder, dict(os.environ))
    with open(f"{out}/op_times.json") as f:
        limit = json.load(f)["limit_s"]
    once = reference_seconds(text) / config["max_steps"]
    return [s + once for s in steps], rss, limit


def turn_of_llamafactory(config, folder, threads):
    env = sides.environment(threads, DISABLE_VERSION_CHECK="1")
    return run(sides.LLAMAFACTORY, config, folder, env)[:2]


def row(name, folder, a):
    steps = sides.WARM_UP + a.steps
    config = dict(BASE, **ROWS[name], model_name_or_path=model_with_tokenizer(), dataset_dir=folder, max_steps=steps)
    line = {"row": f"{name}-{MODEL}-B{BATCH}-T{SEQ}-f32", "tuning": name, "dtype": "f32", "rounds": a.rounds}
    ours, theirs = [], []
    for _ in range(a.rounds):
        times, line["rss_bytes"], line["limit_s"] = turn_of_hyper(config, folder, a.threads)
        ours += times
        if "llamafactory" not in a.without:
            times, line["llamafactory_rss_bytes"] = turn_of_llamafactory(config, folder, a.threads)
            theirs += times
    line["step_s"] = statistics.median(ours)
    if theirs:
        line["llamafactory_step_s"] = statistics.median(theirs)
    return line


def rows(a):
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder, BATCH * (sides.WARM_UP + a.steps))
        for name in ROWS:
            yield row(name, folder, a)
