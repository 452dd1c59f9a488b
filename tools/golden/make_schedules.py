"""Writes tests/unit/schedule_cases.h: learning rates of Transformers' get_scheduler, for many kinds,
arguments, lengths and warm-ups.  Needs torch and transformers; `python make_schedules.py > FILE`."""
import math
import torch
from transformers.optimization import get_scheduler

LENGTHS = [(10, 0), (50, 5), (1000, 100), (7, 3), (997, 10), (5, 5)]
CASES = [
    ("linear", {}), ("cosine", {}), ("cosine", {"num_cycles": 1.25}), ("cosine_with_restarts", {}),
    ("cosine_with_restarts", {"num_cycles": 3}), ("polynomial", {}),
    ("polynomial", {"power": 2.5, "lr_end": 1e-5}), ("constant", {}), ("constant_with_warmup", {}),
    ("inverse_sqrt", {}), ("inverse_sqrt", {"timescale": 37}), ("cosine_with_min_lr", {"min_lr": 3e-5}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.1, "num_cycles": 1}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", {"min_lr": 1e-5, "warmup_lr_rate": 0.01}),
    ("warmup_stable_decay", {}), ("warmup_stable_decay", {"num_decay_steps": 2}),
    ("warmup_stable_decay", {"num_stable_steps": 3, "min_lr_ratio": 0.2}),
    ("warmup_stable_decay", {"num_decay_steps": 4, "num_stable_steps": 3, "min_lr_ratio": 0.1,
                             "warmup_type": "cosine", "decay_type": "linear"}),
    ("warmup_stable_decay", {"num_decay_steps": 5, "min_lr_ratio": 0.05, "warmup_type": "1-sqrt",
                             "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", {"num_decay_steps": 300, "decay_type": "cosine", "num_cycles": 1.5}),
]
METRIC = [
    ("reduce_lr_on_plateau", {}), ("reduce_lr_on_plateau", {"patience": 1, "factor": 0.5}),
    ("reduce_lr_on_plateau", {"mode": "max", "patience": 0, "cooldown": 2, "threshold_mode": "abs",
                              "threshold": 0.01, "min_lr": 1e-5}),
    ("greedy", {"min_lr": 1e-5}), ("greedy", {"patience": 1, "min_lr": 1e-4, "max_lr": 0.01, "factor": 0.7}),
    ("greedy", {"patience": 0, "min_lr": 4e-4, "factor": 0.5, "smooth": True, "window_size": 3,
                "cooldown": 1, "warmup": 1, "reset_start": 2, "threshold_mode": "rel"}),
    ("greedy", {"mode": "max", "patience": 2, "min_lr": 1e-4}),
]


def fmt(args):
    row = []
    for k, v in args.items():
        row.append(f'{{"{k}", "{v}", 0}}' if isinstance(v, str) else f'{{"{k}", NULL, {float(v)!r}}}')
    return "{" + ", ".join(row) + "}" if row else "{{0}}"


def steps_of(total, warmup):
    want = {0, 1, warmup - 1, warmup, warmup + 1, total // 3, total // 2, total - 2, total - 1}
    return sorted(s for s in want if 0 <= s < total)


def filled(name, args, total, warmup):
    """The defaults that LlamaFactory gives warmup_stable_decay."""
    if name != "warmup_stable_decay":
        return dict(args)
    stable = (total - warmup) // 3
    return {"num_stable_steps": stable, "num_decay_steps": total - warmup - stable} | args


def metric(i):
    return 3.0 + math.sin(i * 0.7) * (0.3 if i > 12 else 0.05) - 0.02 * (i % 19)


print("/* Made by tools/golden/make_schedules.py with Transformers. */")
print("static const schedule_case cases[] = {")
for name, args in CASES:
    for total, warmup in LENGTHS:
        for lr in (1e-3, 3.7e-4) if total == 50 else (1e-3,):
            opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
            sched = get_scheduler(name, opt, warmup, total, scheduler_specific_kwargs=filled(name, args, total, warmup))
            want, steps = [], steps_of(total, warmup)
            for s in range(total):
                if s in steps:
                    want.append(sched.get_last_lr()[0])
                opt.step()
                if s + 1 < total:
                    sched.step()
            pairs = ", ".join(f"{{{s}, {float(v)!r}}}" for s, v in zip(steps, want))
            print(f'    {{"{name}", {lr!r}, {warmup}, {total}, {fmt(args)}, {len(args)}, {{{pairs}}}, {len(steps)}}},')
print("};")
print("static const metric_case metric_cases[] = {")
for name, args in METRIC:
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    sched = get_scheduler(name, opt, scheduler_specific_kwargs=dict(args))
    got = []
    for i in range(METRICS := 60):
        sched.step(metric(i))
        got.append(float(opt.param_groups[0]["lr"]))
    print(f'    {{"{name}", {fmt(args)}, {len(args)}, {{{", ".join(map(repr, got))}}}}},')
print("};")
print("static const double metrics[] = {" + ", ".join(repr(metric(i)) for i in range(60)) + "};")
