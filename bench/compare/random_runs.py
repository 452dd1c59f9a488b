"""Runs with random keys by LlamaFactory and by hyper: does each logged number agree?

  build/compare/llamafactory/bin/python bench/compare/random_runs.py FIRST LAST [FOLDER]

The environment is that of `make compare WHAT=tune`. Runs FIRST to LAST - 1, each from its number alone, on the tiny
model and data of golden/llamafactory in HYPER_DATA: stages, finetuning types, templates, mixed data sets, packing,
optimizers, schedules, evaluations, losses of preferences. A line a run: the largest relative differences, or what the
two said in ending. Adapters begin from one that peft makes, for random numbers are each side's own.
"""
import json
import os
import random
import shutil
import subprocess
import sys

import sides

GOLDEN = os.path.abspath(os.environ.get("HYPER_DATA", "../shared/data") + "/golden/llamafactory")
FOLDER = os.path.abspath(sys.argv[3] if len(sys.argv) > 3 else sides.BUILD + "/random_runs")
BASE = {"model_name_or_path": GOLDEN + "/model", "dataset_dir": GOLDEN + "/data", "do_train": True, "overwrite_cache": True,
        "logging_steps": 1, "save_strategy": "no", "overwrite_output_dir": True, "report_to": "none"}
SFT = ["alpaca", "tools", "alpaca_history", "samples_one_call", "alpaca,tools", "tools,alpaca_history,alpaca"]
DATA = {"sft": SFT, "pt": ["corpus", "alpaca"], "dpo": ["dpo"], "rm": ["dpo"], "kto": ["kto"]}
TEMPLATES = ("llama3 qwen qwen3 chatml default alpaca gemma mistral deepseek3 phi vicuna yi llama2 zephyr granite3 cohere "
             "intern2 gpt_oss fewshot empty solar falcon bailing openchat").split()
SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup", "cosine_with_restarts", "polynomial", "inverse_sqrt")
# What the two may log otherwise: times, and what LlamaFactory does not count.
NOT_COMPARED = ("runtime", "per_second", "total_flos", "perplexity")
NEAR = 1e-4  # losses of preferences are differences of sums that agree to 3e-7
# Differences, and sums of either sign, of numbers of hundreds: told, and judged by 1e-2.
LOOSE = ("rewards", "logits", "kl")


def add_data(r, c):
    c["dataset"] = r.choice(DATA[c["stage"]])
    c["template"] = r.choice(TEMPLATES)
    c["cutoff_len"] = r.choice([64, 96, 160, 256, 400])  # neat_packing of LlamaFactory needs multiples of 8
    names = c["dataset"].count(",") + 1
    if names > 1 and r.random() < .7:
        c["mix_strategy"] = r.choice(["concat", "interleave_under", "interleave_over"])
        if c["mix_strategy"] != "concat" and r.random() < .6:
            c["interleave_probs"] = {2: "0.3,0.7", 3: "0.2,0.5,0.3"}[names]


def add_steps(r, c):
    c["seed"] = r.choice([1, 42, 1234, 7])
    c["per_device_train_batch_size"] = r.choice([2, 3] if c["stage"] == "kto" else [1, 2, 3])
    c["gradient_accumulation_steps"] = r.choice([1, 1, 2, 3])
    if r.random() < .5:
        c["max_steps"] = r.choice([5, 7, 9])
    else:
        c["num_train_epochs"], c["max_samples"] = r.choice([1.0, 0.6, 1.5]), r.choice([10, 17, 25])
    c["learning_rate"] = r.choice([1e-3, 5e-4, 1e-4])
    c["lr_scheduler_type"] = r.choice(SCHEDULES)
    if r.random() < .5:
        c["warmup_ratio"] = r.choice([.1, .25])
    for key, share, values in (("weight_decay", .3, [.1, .01]), ("max_grad_norm", .3, [.3, 2.0]), ("adam_beta2", .2, [.95]),
                               ("adam_epsilon", .2, [1e-6])):
        if r.random() < share:
            c[key] = r.choice(values)
    kind = r.choice([None, None, None, "sgd", "adafactor", "muon"])  # lion needs bitsandbytes there
    c.update({"use_muon": True} if kind == "muon" else {"optim": kind} if kind else {})


def add_stage(r, c):
    stage = c["stage"]
    if stage == "sft":
        c.update(r.choice([{}, {}, {"packing": True}, {"neat_packing": True}]))
        c.update(r.choice([{}, {}, {"mask_history": True}, {"train_on_prompt": True}]))
        for key, values in (("label_smoothing_factor", [.05, .1]), ("default_system", ["You are terse."]),
                            ("enable_thinking", [True, False]), ("tool_format", ["qwen", "llama3", "default", "mistral"])):
            if r.random() < .2:
                c[key] = r.choice(values)
    if stage in ("sft", "pt", "kto") and r.random() < .25:
        c["train_sampling_strategy"] = "group_by_length"
    if stage == "dpo":
        c["pref_loss"], c["pref_beta"] = r.choice(["sigmoid", "orpo", "simpo", "ipo", "hinge"]), r.choice([.1, .3, 1.0])
        if c["pref_loss"] == "sigmoid" and r.random() < .3:
            c["dpo_label_smoothing"] = .1
        if r.random() < .3:
            c["ld_alpha"] = r.choice([.5, .8])
    if stage in ("dpo", "kto") and r.random() < .3:
        c["pref_ftx"] = .5
    if stage == "kto" and r.random() < .3:
        c["kto_rejected_weight"] = .8
    if stage != "pt" and r.random() < .3:
        c.update(val_size=r.choice([.2, 5]), eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=r.choice([1, 2, 3]))


def add_type(r, c, number):
    c["finetuning_type"] = r.choice(["full", "full", "lora", "lora", "freeze"])
    if c["finetuning_type"] == "lora":
        c.update(lora_rank=r.choice([4, 8]), adapter_name_or_path=f"{FOLDER}/adapter{number}",
                 lora_target=r.choice(["all", "q_proj,v_proj", "gate_proj,down_proj,k_proj"]))
        for key, share, values in (("lora_alpha", .4, [8, 32]), ("use_rslora", .2, [True]), ("use_dora", .15, [True]),
                                   ("loraplus_lr_ratio", .2, [4.0]), ("additional_target", .2, ["embed_tokens", "norm"])):
            if r.random() < share and not (key == "loraplus_lr_ratio" and "use_muon" in c):
                c[key] = r.choice(values)
    if c["finetuning_type"] == "freeze":
        c["freeze_trainable_layers"] = r.choice([1, -1, 2])
        if r.random() < .3:
            c["freeze_trainable_modules"] = r.choice(["mlp", "self_attn"])


def keys_of(number):
    r = random.Random(number)
    c = dict(BASE, stage=r.choice(["sft", "sft", "sft", "pt", "dpo", "dpo", "kto", "rm"]))
    add_data(r, c)
    add_steps(r, c)
    add_stage(r, c)
    add_type(r, c, number)
    return c


def make_adapter(c):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    all_of = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    target = (all_of if c["lora_target"] == "all" else c["lora_target"]).split(",")
    whole = [c["additional_target"]] if "additional_target" in c else None
    torch.manual_seed(c["seed"])
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(c["model_name_or_path"], dtype=torch.float32), LoraConfig(
        r=c["lora_rank"], lora_alpha=c.get("lora_alpha", 2 * c["lora_rank"]), target_modules=target, modules_to_save=whole,
        use_rslora=c.get("use_rslora", False), use_dora=c.get("use_dora", False), task_type="CAUSAL_LM"))
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=.02)
    model.save_pretrained(c["adapter_name_or_path"])
    if c["stage"] == "rm":
        shutil.copy(c["model_name_or_path"] + "/value_head.safetensors", c["adapter_name_or_path"])


def run(command, c, number, side, env):
    out = f"{FOLDER}/{side}{number}"
    with open(out + ".yaml", "w") as f:
        json.dump(dict(c, output_dir=out), f, indent=1)
    done = subprocess.run([command, "train", out + ".yaml"], capture_output=True, text=True, env=env)
    with open(out + ".log", "w") as f:
        f.write(done.stdout + done.stderr)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [""])[-1][:200]
    with open(out + "/trainer_state.json") as f:
        return json.load(f)["log_history"], None


def is_loose(key):
    return any(part in key for part in LOOSE)


def differences(theirs, ours):
    """By key the largest relative difference, and what is logged by one side alone."""
    worst, alone = {}, set() if len(theirs) == len(ours) else {f"{len(theirs)} and {len(ours)} entries"}
    for x, y in zip(theirs, ours):
        compared = [k for k in {**x, **y} if not any(part in k for part in NOT_COMPARED)]
        alone |= {k for k in compared if k not in x or k not in y}
        for k in compared:
            if k in x and k in y:
                least = 1e-2 if is_loose(k) else 1e-6
                worst[k] = max(worst.get(k, 0), abs(x[k] - y[k]) / max(abs(x[k]), least))
    return worst, alone


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        c = keys_of(number)
        if "adapter_name_or_path" in c:
            make_adapter(c)
        theirs, failed = run(sides.LLAMAFACTORY or os.path.dirname(sys.executable) + "/llamafactory-cli", c, number, "theirs",
                             sides.environment(1, DISABLE_VERSION_CHECK="1"))
        ours, refused = run(sides.HYPER, c, number, "ours", dict(os.environ))
        about = " ".join(str(c[k]) for k in ("stage", "finetuning_type", "template", "dataset"))
        if failed or refused:
            print(f"{number} ended: {about} | LlamaFactory: {failed or 'done'} | hyper: {refused or 'done'}", flush=True)
            continue
        worst, alone = differences(theirs, ours)
        near = 1e-3 if c.get("use_muon") else NEAR  # LlamaFactory rounds Muon's products to bf16
        ok = not alone and all(v <= (1e-2 if is_loose(k) else near) for k, v in worst.items())
        most = ", ".join(f"{k} {v:.1e}" for k, v in sorted(worst.items(), key=lambda x: -x[1])[:4])
        print(f"{number} {'agree' if ok else 'DIFFER'}: {about}: {most} {' '.join(sorted(alone))}", flush=True)


if __name__ == "__main__":
    main()
