"""Compares renderings of chat templates with those of Python, as Transformers renders them.

    python tests/gen/jinja_compare.py FOLDER [-v]

FOLDER holds templates, *.jinja; each is rendered for every conversation below.  Needs jinja2 and a
built build/libhyperparallel.a.  A difference prints both texts from where they begin to differ.
What Python refuses must be refused."""
import datetime
import glob
import json
import os
import subprocess
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1764230400


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return env


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather <now> & \"here\"\nof a city",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "e.g. Zürich"},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": ["integer", "null"], "minimum": 1},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["city", "unit"]},
    "return": {"type": "object", "properties": {"t": {"type": "number"}}}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Finds pages", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


U, A, S = "user", "assistant", "system"
HELLO = [{"role": U, "content": "Hello, <world> & 'all' \"of\" you\n"}]
ANSWER = {"role": A, "content": " Hi there. "}
CITY = {"city": "Zürich 🌧", "days": 2, "exact": True, "none": None, "x": 1.5, "list": [1, "a"]}
TOOLS = [
    {"role": S, "content": "You call tools."},
    {"role": U, "content": "Weather in Zürich?"},
    {"role": A, "content": None, "tool_calls": [call("get_weather", CITY, id="call00001")]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"t\": 7.5}"},
    {"role": A, "content": "7.5 degrees"},
    {"role": U, "content": "And tomorrow?"}]
TWO_CALLS = TOOLS + [
    {"role": A, "content": "Let me see.", "reasoning_content": "Two calls.\n", "tool_calls": [
        call("get_weather", {"city": "Bern"}, id="call00002"), call("search", {}, id="call00003")]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00002", "content": "rain"},
    {"role": "tool", "name": "search", "tool_call_id": "call00003", "content": "<b>nothing</b>"}]
THOUGHT = [
    {"role": U, "content": "2+2?"},
    {"role": A, "content": "<think>\nadd\n</think>\n\n4"},
    {"role": U, "content": "3+3?"},
    {"role": A, "content": "6", "reasoning_content": "add again\n", "thinking": "add again", "reasoning": "r"},
    {"role": U, "content": "and 4+4?"}]
PARTS = [
    {"role": S, "content": [{"type": "text", "text": "Look well."}]},
    {"role": U, "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
    {"role": A, "content": [{"type": "text", "text": "A cat."}]},
    {"role": U, "content": [{"type": "text", "text": "Sure?"}, {"type": "text", "text": " Really?"}]}]
STRINGS = [m if not m.get("tool_calls") else {**m, "content": "", "tool_calls": [
    call(c["function"]["name"], json.dumps(c["function"]["arguments"]), id=c.get("id", "x"))
    for c in m["tool_calls"]]} for m in TWO_CALLS]

CASES = {
    "hello": dict(messages=HELLO, add_generation_prompt=True),
    "hello-closed": dict(messages=HELLO + [ANSWER]),
    "system": dict(messages=[{"role": S, "content": "  Be brief. "}] + HELLO + [ANSWER] + HELLO, add_generation_prompt=True),
    "multi": dict(messages=(HELLO + [ANSWER]) * 3),
    "developer": dict(messages=[{"role": "developer", "content": "Be nice."}] + HELLO, add_generation_prompt=True),
    "think": dict(messages=THOUGHT, add_generation_prompt=True),
    "think-on": dict(messages=THOUGHT, add_generation_prompt=True, enable_thinking=True, thinking=True, reasoning_effort="high"),
    "think-off": dict(messages=THOUGHT, add_generation_prompt=True, enable_thinking=False, thinking=False, reasoning_effort="low"),
    "think-end": dict(messages=THOUGHT[:-1]),
    "tools": dict(messages=HELLO, tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "tools-system": dict(messages=TOOLS[:2], tools=[WEATHER], add_generation_prompt=True, enable_thinking=False),
    "calls": dict(messages=TOOLS, tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "calls-now": dict(messages=TOOLS[:4], tools=[WEATHER], add_generation_prompt=True, enable_thinking=True),
    "two-calls": dict(messages=TWO_CALLS, tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "two-calls-text": dict(messages=STRINGS, tools=[WEATHER, SEARCH], add_generation_prompt=True),
    "calls-without-tools": dict(messages=TWO_CALLS),
    "parts": dict(messages=PARTS, add_generation_prompt=True),
    "documents": dict(messages=HELLO, add_generation_prompt=True, documents=[{"title": "One", "text": "Text of one."}]),
    "wrong-order": dict(messages=[ANSWER] + HELLO + HELLO),
    "empty": dict(messages=[]),
    "extras": dict(messages=TWO_CALLS, tools=[SEARCH], builtin_tools=["browser", "python"], keep_cot=True,
                   model_identity="I am one.", date_string="1 Jan 2026", custom_tools=None, clear_thinking=False,
                   preserve_thinking=True, tools_in_user_message=False, custom_instructions="Short.",
                   add_generation_prompt=True, xml_tools=[SEARCH], python_tools=[], controls={"length": "short"}),
}


def build():
    libs = subprocess.check_output("pkg-config --libs yaml-0.1 libpcre2-8 libutf8proc libxxhash cairo", shell=True, text=True).strip()
    program = "build/render_jinja"
    subprocess.check_call(
        f"cc -std=c11 -D_GNU_SOURCE -Iinclude -Isrc tests/gen/render_jinja.c build/libhyperparallel.a {libs} -ldl -lm -lpthread -o {program}",
        shell=True)
    return program


def main():
    folder, verbose = sys.argv[1], "-v" in sys.argv
    env, jobs = environment(), []
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        text = open(path, encoding="utf-8", newline="").read()
        try:
            template, broken = env.from_string(text), None
        except jinja2.TemplateError as e:
            broken = e
        for case, context in CASES.items():
            context = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "tools": None,
                       "documents": None, "add_generation_prompt": False, **context}
            try:
                want = broken or template.render(**context)
            except Exception as e:
                want = e
            jobs.append((os.path.basename(path), case, context, text, want))
    lines = "".join(json.dumps({"name": f, "template": t, "context": c, "now": NOW}) + "\n" for f, _, c, t, _ in jobs)
    got = subprocess.run([build()], input=lines, capture_output=True, text=True, check=True).stdout.rstrip("\n").split("\n")
    bad, rendered = set(), 0
    for (file, case, _, _, want), line in zip(jobs, got, strict=True):
        have = json.loads(line)
        error, refused = have.get("error"), isinstance(want, Exception)
        rendered += not refused
        if refused == bool(error) and (refused or have["output"] == want):
            if verbose and refused:
                print(f"{file} {case}: both refuse: {error}   PYTHON {type(want).__name__}: {want}")
            continue
        bad.add(file)
        if refused or error:
            print(f"{file} {case}: {error or have['output'][-100:]!r}   PYTHON {want!r:.300}")
        else:
            a, b = have["output"], want
            n = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            print(f"{file} {case}: differs at {n}: {a[max(0, n - 20):n + 60]!r}   PYTHON {b[max(0, n - 20):n + 60]!r}")
    files = {f for f, *_ in jobs}
    print(f"{len(files)} templates, {len(jobs)} renderings, {rendered} of them texts; {len(files) - len(bad)} templates agree")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
