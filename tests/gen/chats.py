"""Writes tests/golden/chats: a tokenizer with the special tokens of all templates, conversations, and the digests of
the samples that LlamaFactory makes of them.

Run by hand when a template or a conversation changes: python tests/gen/chats.py tests/golden/chats
(needs llamafactory 0.9.5)."""
import copy
import datetime
import hashlib
import json
import logging
import os
import sys

os.environ["DISABLE_VERSION_CHECK"] = "1"
import llamafactory.data.tool_utils as tool_utils
from llamafactory.data import template as templates
from llamafactory.data.converter import get_dataset_converter
from llamafactory.data.parser import DatasetAttr
from llamafactory.data.processor import (FeedbackDatasetProcessor, PackedSupervisedDatasetProcessor,
                                         PairwiseDatasetProcessor, SupervisedDatasetProcessor)
from llamafactory.hparams import DataArguments
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
import xxhash

logging.disable(logging.CRITICAL)
OUT = sys.argv[1]
TEMPLATES = copy.deepcopy(templates.TEMPLATES)
SLOTS = ("format_user", "format_assistant", "format_system", "format_function", "format_observation", "format_prefix")


class OneDay(datetime.datetime):
    """The date of tool prompts, SOURCE_DATE_EPOCH of the test."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


tool_utils.datetime = OneDay


def said(role, text):
    return {"from": role, "value": text}


TOOLS = [
    {"name": "look", "description": "Looks up.", "parameters": {"type": "object", "properties": {
        "q": {"type": "string", "description": "what", "enum": ["a", "b"]},
        "n": {"type": "array", "items": {"type": "integer"}, "description": "n"},
        "x": {"type": ["string", "null"]}}, "required": ["q"]}},
    {"type": "function", "function": {"name": "add", "description": "Adds é 你好.", "parameters": {
        "type": "object", "properties": {"a": {"type": "number"}}}, "response": {"description": "r", "type": "object"}}}]
TEXT_TOOLS = json.dumps(TOOLS, ensure_ascii=False)
ARGUMENTS = {"q": "a", "n": [1, 2], "x": None, "f": 1.5, "b": True, "d": {"z": 1, "y": "t"}}


def chats():
    h, g = (lambda t: said("human", t)), (lambda t: said("gpt", t))
    f, o = (lambda t: said("function_call", t)), (lambda t: said("observation", t))
    call = json.dumps({"name": "look", "arguments": ARGUMENTS})
    rows = [
        ([h("Hi"), g("<think>\nI greet.\n</think>\n\nHello."), h("2+2?"), g("<think>\nEasy.\n</think>\n\n4"), h("Bye"), g("Bye.")], "", ""),
        ([h("Grüße — 你好 🌍"), g("Ça va."), h("2+2?"), g("<think>Easy.</think>4<think>more</think>\n5")], "S", ""),
        ([h("look up x"), f(call), o('{"r": 1}'), g("Found.")], "", TEXT_TOOLS),
        ([h("x"), g("y")], "", "[]"),
        ([h("x"), g("")], "", ""),
        ([h("x")], "", ""),
        ([g("x"), h("y")], "", ""),
        ([h("x {{content}} y"), g("a <|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>final<|message|> b")], "", ""),
        ([h("How do rivers reach the sea? " * 3), g("They run down to it, as everybody knows. " * 4)], "", "")]
    return [{"conversations": c, "system": s, "tools": t} for c, s, t in rows]


def calls():
    """Calls with text around them, which some templates cannot take."""
    h, g = (lambda t: said("human", t)), (lambda t: said("gpt", t))
    f, o = (lambda t: said("function_call", t)), (lambda t: said("observation", t))
    call = json.dumps({"name": "look", "arguments": ARGUMENTS})
    rows = [
        ([h("look up x"), f("<think>\nhm\n</think>\n\n" + call), o('{"r": 1}'), g("Found.")], "Sys", TEXT_TOOLS),
        ([h("x"), f('pre <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call> post'), o("3"), g("3")], "", TEXT_TOOLS)]
    return [{"conversations": c, "system": s, "tools": t} for c, s, t in rows]


def pairs():
    h, g = (lambda t: said("human", t)), (lambda t: said("gpt", t))
    return [{"conversations": [h("Hi"), g("<think>\na\n</think>\n\nHello."), h("How?")],
             "chosen": g("<think>\nwell\n</think>\n\nFine."), "rejected": g("Bad.")},
            {"conversations": [h("Hi")], "chosen": g("A good answer that is long " * 5), "rejected": g("No")},
            {"conversations": [h("A question that is long " * 5)], "chosen": g("Yes"), "rejected": g("No, not at all")}]


def judged():
    return [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}], "label": good}
            for q, a, good in (("Hi", "Hello.", True), ("2+2?", "5", False), ("3+3?", "6", True))]


def openai():
    call = {"type": "function", "function": {"name": "w", "arguments": {"c": "Paris"}}}
    m = lambda role, content, **more: dict(role=role, content=content, **more)
    return [{"messages": [m("system", "Be kind."), m("user", "Hi"), m("assistant", "Hello")], "tools": None},
            {"messages": [m("user", "Weather?"), m("assistant", None, tool_calls=[call]), m("tool", "sun"), m("assistant", "Sunny")], "tools": TOOLS[:1]},
            {"messages": [m("user", "Two?"), m("assistant", "", tool_calls=[call]), m("tool", "sun"), m("tool", "rain"), m("assistant", "Mixed"), m("user", "ok"), m("assistant", "fine")], "tools": None},
            {"messages": [m("system", "detailed thinking on"), m("user", "Hi"), m("assistant", "Hello")], "tools": None}]


def alpaca():
    return [{"instruction": f"Question {i} " * (i % 4 + 1), "input": "more" if i % 3 == 0 else "", "output": f"Answer {i}. " * (i % 5 + 1),
             "history": [["before", "after"]] if i % 4 == 1 else [], "system": "Sys." if i == 2 else None} for i in range(14)]


INFO = {
    "chats": {"file_name": "chats.json", "formatting": "sharegpt", "columns": {"messages": "conversations", "system": "system", "tools": "tools"}},
    "calls": {"file_name": "calls.json", "formatting": "sharegpt", "columns": {"messages": "conversations", "system": "system", "tools": "tools"}},
    "pairs": {"file_name": "pairs.json", "formatting": "sharegpt", "ranking": True, "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}},
    "judged": {"file_name": "judged.json", "formatting": "sharegpt", "columns": {"messages": "messages", "kto_tag": "label"},
               "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}},
    "openai": {"file_name": "openai.json", "formatting": "openai", "columns": {"messages": "messages", "tools": "tools"},
               "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
                        "observation_tag": "tool", "function_tag": "function", "system_tag": "system"}},
    "alpaca": {"file_name": "alpaca.json", "columns": {"prompt": "instruction", "query": "input", "response": "output", "history": "history", "system": "system"}}}
DATA = {"chats": chats(), "calls": calls(), "pairs": pairs(), "judged": judged(), "openai": openai(), "alpaca": alpaca()}
# stage, data set, keys
EVERY = [("sft", "chats", {}), ("sft", "chats", {"mask_history": True, "cutoff_len": 120}), ("sft", "chats", {"enable_thinking": False}),
         ("sft", "calls", {}), ("rm", "pairs", {"cutoff_len": 100})]
SOME = [("sft", "chats", {"train_on_prompt": True}), ("sft", "chats", {"enable_thinking": None}),
        ("sft", "chats", {"mask_history": True, "preserve_thinking": True}), ("sft", "chats", {"default_system": "Be_brief."}),
        ("kto", "judged", {}), ("sft", "openai", {}), ("sft", "alpaca", {"packing": True, "cutoff_len": 300}),
        ("sft", "alpaca", {"neat_packing": True, "cutoff_len": 200})]
TOOL_FORMATS = [("sft", "chats", {"tool_format": f}) for f in tool_utils.TOOLS]


def write_tokenizer():
    special = {"<|bos|>", "<|eos|>"}
    for t in TEMPLATES.values():
        special |= set(t.stop_words)
        for slot in (s for f in SLOTS for s in getattr(t, f).slots):
            if isinstance(slot, dict):
                special.add(slot["token"])
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator([json.dumps(DATA)], trainers.BpeTrainer(vocab_size=360, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<|bos|>", eos_token="<|eos|>")
    fast.add_special_tokens({"additional_special_tokens": sorted(special)})
    fast.backend_tokenizer.save(OUT + "/tokenizer.json", pretty=False)
    with open(OUT + "/tokenizer_config.json", "w") as f:
        json.dump({"bos_token": "<|bos|>", "eos_token": "<|eos|>", "tokenizer_class": "PreTrainedTokenizerFast"}, f)
        f.write("\n")


def write_jinja():
    """Digests of the Jinja templates that LlamaFactory makes, with a begin token and without."""
    with open(OUT + "/jinja.txt", "w") as f:
        print("# XXH3 of the chat template of LlamaFactory 0.9.5 with <|bos|> and without; -: there is none", file=f)
        for name in sorted(TEMPLATES):
            templates.TEMPLATES[name] = copy.deepcopy(TEMPLATES[name])
            digests = []
            for bos in ("<|bos|>", None):
                tok = AutoTokenizer.from_pretrained(OUT)
                if bos is None:
                    tok.bos_token = None
                templates.get_template_and_fix_tokenizer(tok, DataArguments(template=name))
                digests.append(xxhash.xxh3_64_hexdigest(tok.chat_template.encode()) if tok.chat_template else "-")
            print(name, *digests, *["replaces"] * TEMPLATES[name].replace_jinja_template, file=f)


def samples(name, stage, dataset, keys):
    templates.TEMPLATES[name] = copy.deepcopy(TEMPLATES[name])
    templates.TEMPLATES[name].mm_plugin = templates.get_mm_plugin("base")
    tok = AutoTokenizer.from_pretrained(OUT)
    args = DataArguments(template=name, dataset=dataset, dataset_dir=OUT, **{"cutoff_len": 1024, **keys})
    t = templates.get_template_and_fix_tokenizer(tok, args)
    attr = DatasetAttr("file", dataset_name=dataset)
    attr.join(INFO[dataset])
    convert = get_dataset_converter(attr.formatting, attr, args)
    rows = [convert(r) for r in DATA[dataset]]
    packs = args.packing
    kind = {"sft": PackedSupervisedDatasetProcessor if packs else SupervisedDatasetProcessor,
            "rm": PairwiseDatasetProcessor, "kto": FeedbackDatasetProcessor}[stage]
    made = kind(template=t, tokenizer=tok, processor=None, data_args=args).preprocess_dataset({k: [r[k] for r in rows] for k in rows[0]})
    names = [k for k in ("input_ids", "position_ids", "labels", "chosen_input_ids", "chosen_labels", "rejected_input_ids",
                         "rejected_labels", "kl_input_ids", "kl_labels", "kto_tags") if k in made]
    return [{k: made[k][i] for k in names} for i in range(len(made[names[0]]))]


def main():
    for name, rows in DATA.items():
        with open(f"{OUT}/{name}.json", "w") as f:
            f.write("[" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "]\n")
    with open(OUT + "/dataset_info.json", "w") as f:
        json.dump(INFO, f, indent=1)
        f.write("\n")
    write_tokenizer()
    write_jinja()
    with open(OUT + "/digests.txt", "w") as f:
        print("# MD5 of the samples of LlamaFactory 0.9.5 as lines of JSON, template, stage, data set, keys", file=f)
        for i, name in enumerate(sorted(TEMPLATES)):
            cases = EVERY + (SOME if name in ("alpaca", "llama3", "mistral", "qwen3", "glm4", "gpt_oss") else [])
            for stage, dataset, keys in cases + (TOOL_FORMATS if name == "llama3" else []):
                try:
                    lines = "".join(json.dumps(s) + "\n" for s in samples(name, stage, dataset, keys))
                except (RuntimeError, ValueError):
                    continue  # LlamaFactory refuses: train_on_prompt with some templates
                words = " ".join(f"{k}={json.dumps(v) if not isinstance(v, str) else v}" for k, v in keys.items())
                print(hashlib.md5(lines.encode()).hexdigest(), name, stage, dataset, words, file=f)


main()
