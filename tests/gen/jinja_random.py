"""Random templates, rendered here and by Python: `python tests/gen/jinja_random.py COUNT [SEED]`.

What Python renders must be the same text; what it refuses must be refused.  Refusals of what we do
not support are counted apart.  Needs jinja2 and a built build/libhyperparallel.a."""
import copy
import json
import random
import re
import subprocess
import sys

from jinja_cases import CONTEXT
from jinja_compare import build, environment

ATOMS = ["name", "empty", "zero", "n", "neg", "x", "yes", "no", "nil", "text", "uni", "html", "list", "words", "pairs",
         "nested", "dict", "people", "messages", "missing", "1", "0", "-1", "2", "3", "2.5", "'a'", "'b'", "'A b-c'", "''",
         "true", "none", "[]", "{}", "()", "[1, 'a']", "{'a': 1, 'b': [2]}", "(1, 2)", "range(4)", "messages[0]",
         "people|first", "'a,b,,c'", "' x  y '", "'5'", "'1.5'", "'line\\nnext\\n'", "'%s|%5d'", "'%-6.2f%%'", "'{:>6}|{x!r}'", "'{:06.2f}'", "ns", "m", "m(1)", "dict.items()",
         "words|map('upper')", "'<b>'|safe", "loop"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "strip('a ')", "split()",
           "split(',')", "split(',', 1)", "rsplit(',', 1)", "rsplit(none, 1)", "replace('a', 'bb')", "replace('', '.')",
           "startswith('a')", "endswith('c')", "find('b')", "rfind('b')", "count('a')", "get('a')", "get('q', 1)", "items()",
           "keys()", "values()", "index(1)", "join(words)", "splitlines()", "partition(',')", "rpartition(',')", "isdigit()",
           "islower()", "a", "b", "role", "q", "0", "items", "name", "append(1)", "pop()", "copy()", "isalpha()", "isupper()",
           "format(n, x=1)", "center(9, '*')", "ljust(4)", "zfill(5)", "swapcase()", "rindex('b')", "isascii()"]
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "count", "default('d')", "d('d', true)", "join", "join(',')",
           "first", "last", "list", "string", "int", "float", "replace('a', 'b')", "replace('a', 'b', 1)", "unique|list", "sort",
           "sort(reverse=true)", "sort(case_sensitive=true)", "dictsort", "reverse", "reverse|list", "indent", "indent(2, true)",
           "round", "round(1)", "abs", "safe", "e", "tojson", "tojson(indent=2)", "map('upper')|list", "map(attribute='a')|list",
           "map(attribute='name')|list", "select|list", "reject|list", "select('odd')|list", "selectattr('role')|list",
           "selectattr('role', 'eq', 'user')|list", "rejectattr('a')|list", "items|list", "sum", "min", "max", "batch(2)|list",
           "map('int')|list", "select('string')|list", "map('first')|list", "map('length')|list", "items", "unique", "map('trim')",
           "format(n, 2)", "format(x)", "center(8)", "wordcount", "slice(2)|list", "slice(3, 0)|list"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence",
         "odd", "even", "divisibleby(2)", "in list", "eq 1", "ne('a')", "lt 2", "true", "false", "lower", "upper", "callable",
         "sameas none", "ge 1"]
SUBSCRIPTS = ["[0]", "[-1]", "['a']", "[1:]", "[:-1]", "[::-1]", "[::2]", "['items']", "[5]", "[n]", "[:2]", "[-2:]", "[name]"]


def expression(r, depth):
    k = r.random()
    if depth <= 0 or k < 0.2:
        return r.choice(ATOMS)
    a = expression(r, depth - 1)
    if k < 0.4:
        return f"({a}) {r.choice(BINARY)} ({expression(r, depth - 1)})"
    if k < 0.55:
        return f"({a}).{r.choice(METHODS)}"
    if k < 0.78:
        return f"({a})|{r.choice(FILTERS)}"
    if k < 0.85:
        return f"({a}) is {r.choice(['', 'not '])}{r.choice(TESTS)}"
    if k < 0.95:
        return f"({a}){r.choice(SUBSCRIPTS)}"
    return f"({a}) if ({expression(r, depth - 1)}) else ({expression(r, depth - 1)})"


def text(r):
    return r.choice(["a", " ", "\n", "  \n", " x\n ", "\t", "b \n\n", "", "é\u00a0", "\n  "])


def tag(r, open_, body, close):
    return open_ + r.choice(["", "-", "", "+" if open_ != "{{" else ""]) + " " + body + " " + r.choice(["", "-", ""]) + close


def block(r, body):
    return tag(r, "{%", body, "%}")


def statement(r, depth):
    k, e = r.random(), expression(r, 2)
    inner = "".join(statement(r, depth - 1) for _ in range(r.randint(0, 2))) if depth > 0 else text(r)
    if k < 0.35 or depth <= 0:
        return text(r) + tag(r, "{{", e, "}}") + text(r)
    if k < 0.5:
        return block(r, f"if {e}") + inner + block(r, "else") + text(r) + block(r, "endif")
    if k < 0.68:
        body = inner + tag(r, "{{", r.choice(["v", "loop.index", "loop.last", "loop.previtem", "loop.nextitem", "loop.length"]), "}}")
        if r.random() < 0.2:
            body = block(r, "if loop.index > 1") + block(r, r.choice(["break", "continue"])) + block(r, "endif") + body
        test = f" if {expression(r, 1)}" if r.random() < 0.2 else ""
        return block(r, f"for {r.choice(['v', 'v', 'k, v'])} in {e}{test}") + body + block(r, "else") + text(r) + block(r, "endfor")
    if k < 0.8:
        return block(r, f"set {r.choice(['v', 'name', 'ns.a', 'list'])} = {e}") + inner
    if k < 0.86:
        return block(r, "set v") + inner + block(r, "endset") + tag(r, "{{", "v", "}}")
    if k < 0.93:
        return block(r, f"macro m(a, b={r.choice(ATOMS[:30])})") + inner + tag(r, "{{", "a ~ b", "}}") + block(r, "endmacro") + tag(
            r, "{{", r.choice(["m(1)", "m(b=2)", "m(name, 3)", "m()"]), "}}")
    if k < 0.97:
        return r.choice(["{# c #}", "{#- c -#}", "{# c\n #}\n"]) + inner
    return block(r, "filter upper") + inner + block(r, "endfilter")


def main():
    count, r = int(sys.argv[1]), random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    env, jobs = environment(), []
    while len(jobs) < count:
        t = "{% set ns = namespace(a=1) %}{% macro m(a) %}<{{ a }}>{% endmacro %}" if r.random() < 0.7 else ""
        t += "".join(statement(r, 2) for _ in range(r.randint(1, 2)))
        try:
            want = env.from_string(t).render(**copy.deepcopy(CONTEXT))
        except RecursionError:
            continue
        except Exception as e:
            want = e
        # addresses of objects
        if isinstance(want, str) and re.search(r"0x[0-9a-f]{6,}|<(?!/?b>|a href|\d|Namespace)|gener|LoopC", want):
            continue
        jobs.append((t, want))
    lines = "".join(json.dumps({"name": "t", "template": t, "context": CONTEXT}) + "\n" for t, _ in jobs)
    got = subprocess.run([build()], input=lines, capture_output=True, text=True, check=True).stdout.rstrip("\n").split("\n")
    same = refused = unsupported = bad = 0
    for (t, want), line in zip(jobs, got, strict=True):
        have = json.loads(line)
        error = have.get("error")
        if isinstance(want, Exception) and error:
            refused += 1
        elif not error and have["output"] == want:
            same += 1
        elif error and "not supported" in error:
            unsupported += 1
        else:
            bad += 1
            print(f"TEMPLATE {t!r}\n  HAVE   {error or have['output']!r}\n  PYTHON {want!r}")
    print(f"{count} templates: {same} the same text, {refused} refused by both, {unsupported} not supported, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
