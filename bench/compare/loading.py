"""Checkpoints of random weights in bf16, and the time to load one next to that of reading its files."""
import glob
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import sides

SHARD = 4 << 30
MODELS = (("llama-3.2-1b", "bf16"), ("llama-3.2-1b", "f32"), ("llama-3.1-8b", "bf16"))


def tensors(config):
    """Names and shapes of Transformers' own model, which takes no memory on the device "meta"."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    return [(name, list(p.shape)) for name, p in model.named_parameters()]


def shards(of):
    """The tensors file by file, as (name, shape, bytes)."""
    files, filled = [[]], 0
    for name, shape in of:
        size = 2
        for n in shape:
            size *= n
        if filled and filled + size > SHARD:
            files.append([])
            filled = 0
        files[-1].append((name, shape, size))
        filled += size
    return files


def write_shard(path, some, numbers):
    header, at = {}, 0
    for name, shape, size in some:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, size in some:
            for at in range(0, size, len(numbers)):
                f.write(numbers[:size - at])
        f.flush()
        os.fsync(f.fileno())  # pages that are not on the disk yet would not leave memory


def make(name, to):
    """A folder with model-0000i-of-0000n.safetensors: the same 64 MiB of numbers over and over."""
    import numpy as np

    with open(f"{sides.CONFIGS}/{name}.json") as f:
        config = json.load(f)
    files = shards(tensors(config))
    need = sum(size for some in files for _, _, size in some)
    if shutil.disk_usage(os.path.dirname(to)).free < need + (4 << 30):
        raise sides.Failed(f"{name} needs {need / 1e9:.0f} GB of disk")
    numbers = np.random.default_rng(0).standard_normal(32 << 20, dtype=np.float32) * 0.02
    numbers = (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    os.makedirs(to)
    where = {}
    for i, some in enumerate(files):
        file = f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        where.update({name: file for name, _, _ in some})
        write_shard(f"{to}/{file}", some, numbers)
    with open(f"{to}/model.safetensors.index.json", "w") as f:
        json.dump({"metadata": {"total_size": need}, "weight_map": where}, f)
    with open(f"{to}/config.json", "w") as f:  # last: what has it is whole
        json.dump(config, f)


def folder(name):
    to = f"{sides.BUILD}/models/{name}-bf16"
    if not os.path.exists(f"{to}/config.json"):
        print(f"making {to}", file=sys.stderr)
        shutil.rmtree(to, ignore_errors=True)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        make(name, to)
    return to


def leave_memory(files):
    for file in files:
        with open(file, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_s(files):
    """As `dd bs=8M of=/dev/null` reads them."""
    room, start = bytearray(8 << 20), time.perf_counter()
    for file in files:
        with open(file, "rb", buffering=0) as f:
            while f.readinto(room):
                pass
    return time.perf_counter() - start


def load(of, dtype, threads):
    """What `hyper generate` says of a token after one, and the most memory that it had."""
    words = [sides.HYPER, "generate", "--model", of, "--tokens", "1", "--max-new-tokens", "1", "--dtype", dtype,
             "--threads", str(threads), "--json"]
    with tempfile.TemporaryFile("w+") as why:
        p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=why, text=True)
        said = p.stdout.read()
        _, status, used = os.wait4(p.pid, 0)
        why.seek(0)
        if status:
            raise sides.Failed(why.read().strip())
    return dict(json.loads(said), rss_bytes=used.ru_maxrss * 1024)


def compare(name, dtype, a):
    of = folder(name)
    files = sorted(glob.glob(of + "/*.safetensors"))
    read, cold, warm = [], [], []
    for _ in range(a.rounds):
        leave_memory(files)
        read.append(read_s(files))
        leave_memory(files)
        cold.append(load(of, dtype, a.threads))
        warm.append(load(of, dtype, a.threads))
    middle = lambda lines, key: statistics.median(l[key] for l in lines)
    return {"bench": "compare_load", "row": f"{name}-{dtype}", "file_bytes": sum(map(os.path.getsize, files)),
            "rounds": a.rounds, "read_s": statistics.median(read), "cold_s": middle(cold, "load_s"),
            "warm_s": middle(warm, "load_s"), "first_token_s": middle(cold, "first_token_s"),
            "rss_bytes": max(l["rss_bytes"] for l in cold + warm)}


def rows(a):
    """Where disk or memory do not do for a model, it is left out, and told."""
    for name, dtype in MODELS:
        try:
            yield compare(name, dtype, a)
        except sides.Failed as e:
            print(f"load-{name}-{dtype}: left out: {e}", file=sys.stderr)
