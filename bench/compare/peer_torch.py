"""PyTorch as a peer: peer_torch.py train|prefill|decode|gemm eager|compile MODEL_DIR BATCH SEQ DTYPE THREADS

Every line on standard input asks for that many steps; the answer is their times, one JSON object.  A step is what it is
in `hyper bench`, on Transformers' own model with SDPA: in bf16 training is autocast over f32 weights, inference has bf16
weights.  gemm: MODEL_DIR is a file with [layout, m, k, n] of products; the answer is flops per second of each.
"""
import contextlib
import json
import os
import resource
import sys
import time

import torch


def tokens(vocab, n):
    """The tokens of `hyper bench`."""
    return ((torch.arange(n, dtype=torch.int64) * 2654435761 % 2**32) >> 8) % vocab


def load(folder):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    for share in ("embd_pdrop", "resid_pdrop", "attn_pdrop", "attention_dropout"):  # hyper bench has no dropout
        if hasattr(config, share):
            setattr(config, share, 0.0)
    return AutoModelForCausalLM.from_pretrained(folder, config=config, attn_implementation="sdpa", dtype=torch.float32)


class Job:
    """prepare() comes before every turn, step() is what is timed; what it returns is for checks."""

    def prepare(self):
        pass


class Train(Job):
    def __init__(self, a):
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        model = load(a.model).train()
        self.params = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.params, lr=1e-4, weight_decay=0.0, fused=True)
        ids = tokens(model.config.vocab_size, a.batch * a.seq)
        self.labels = ids.roll(-1).view(a.batch, a.seq)[: a.batch // self.world]
        self.ids = ids.view(a.batch, a.seq)[: a.batch // self.world]
        self.bf16 = a.dtype == "bf16"
        self.model = torch.compile(model) if a.how == "compile" else model
        if self.world > 1:
            torch.distributed.init_process_group("gloo")
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)

    def step(self):
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.bf16 else contextlib.nullcontext():
            # shift_labels: the labels are those of the next tokens already
            loss = self.model(input_ids=self.ids, labels=self.labels, shift_labels=self.labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


class Prefill(Job):
    def __init__(self, a):
        self.model = load(a.model).eval()
        if a.dtype == "bf16":
            self.model = self.model.to(torch.bfloat16)
        self.ids = tokens(self.model.config.vocab_size, a.batch * a.seq).view(a.batch, a.seq)
        self.run = torch.compile(self.model) if a.how == "compile" else self.model

    @torch.inference_mode()
    def step(self):
        # the keys and values are kept, the logits of the last token are what is wanted
        return self.run(input_ids=self.ids, use_cache=True, logits_to_keep=1).logits[0, -1, 0].item()


class Decode(Prefill):
    def prepare(self):
        with torch.inference_mode():
            self.cache = self.model(input_ids=self.ids, use_cache=True, logits_to_keep=1).past_key_values

    @torch.inference_mode()
    def step(self):
        return self.run(input_ids=self.ids[:, :1], past_key_values=self.cache, use_cache=True).logits[0, -1, 0].item()


class Gemm(Job):
    def __init__(self, a):
        t = torch.bfloat16 if a.dtype == "bf16" else torch.float32
        self.products = []
        for layout, m, k, n in json.load(open(a.model)):
            x = torch.rand((k, m) if layout[0] == "t" else (m, k), dtype=t)
            y = torch.rand((n, k) if layout[1] == "t" else (k, n), dtype=t)
            x, y = x.t() if layout[0] == "t" else x, y.t() if layout[1] == "t" else y
            self.products.append((x, y, torch.empty((m, n), dtype=t), 2 * m * k * n))

    def step(self):
        rates = []
        for x, y, out, flops in self.products:
            start, n = time.perf_counter(), 0
            while time.perf_counter() - start < 5e-3 or n < 2:
                torch.mm(x, y, out=out)
                n += 1
            rates.append(n * flops / (time.perf_counter() - start))
        return rates


KINDS = {"train": Train, "prefill": Prefill, "decode": Decode, "gemm": Gemm}


class Args:
    def __init__(self, kind, how, model, batch, seq, dtype, threads):
        self.kind, self.how, self.model, self.dtype = kind, how, model, dtype
        self.batch, self.seq, self.threads = int(batch), int(seq), int(threads)


def main():
    a = Args(*sys.argv[1:])
    torch.set_num_threads(a.threads)
    job = KINDS[a.kind](a)
    print(json.dumps({"peer": "torch " + torch.__version__}), flush=True)
    for line in sys.stdin:
        answer = {"step_s": []}
        job.prepare()
        for _ in range(int(line)):
            start = time.perf_counter()
            answer["result"] = job.step()
            answer["step_s"].append(time.perf_counter() - start)
        answer["rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
