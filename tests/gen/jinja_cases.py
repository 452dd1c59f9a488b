"""Writes tests/unit/jinja_cases.h: small templates of our own, and what Python renders of them.

    python tests/gen/jinja_cases.py > tests/unit/jinja_cases.h      (needs jinja2 3.1)

The environment is that of Transformers' apply_chat_template.  A template that Python refuses is an
error here; those are tested by hand in test_jinja.c."""
import json
import sys

from jinja_compare import environment

CONTEXT = {
    "name": "Ada", "empty": "", "zero": 0, "n": 7, "neg": -7, "x": 2.5, "yes": True, "no": False, "nil": None,
    "text": "  Hello, World! \n", "uni": "Zürich – ñandú 🌧", "html": "<a href=\"x\">&'</a>",
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "pairs": [["k", 1], ["l", 2]], "nested": [[1, 2], [3], []],
    "dict": {"b": 1, "a": {"z": [1, None, True], "y": "ü\n\"q\"\\"}, "items": 5, "k-1": 2.0},
    "people": [{"name": "Bo", "age": 30, "ok": True}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30, "ok": False}],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo", "extra": {"a": 1}},
                 {"role": "user", "content": "Bye"}]}

TEMPLATES = r"""
text only
  leading and trailing  
{{ name }}
{{name}}{{ n }}{{ x }}{{ yes }}{{ no }}{{ nil }}[{{ missing }}]
a {{- name }} b {{ name -}} c {{- name -}} d {{+ name }} e
{% if yes %}X{% endif %}Y¶Z
¶{% if yes %}¶  X¶  {% endif %}¶  Y
  {% if yes %}  X  {% endif %}  Y
  {%+ if yes %}X{% endif +%}¶Y
a¶   {# comment #}¶b{#- trimmed -#}   c
a {#- x #}¶ b {# y -#}¶ c{# z +#}¶d
{%- for x in list -%} {{ x }} {%- endfor -%}
  {%- if yes %} a {%- endif %} b
line¶{%- if yes -%}¶  in¶{%- endif -%}¶out
{% raw %}{{ name }} {% if %}{% endraw %}|
a {%- raw -%}  {{ x }}  {%- endraw -%} b
{{ "a" "b" 'c' }}{{ 'it''s' }}
{{ "\n\t\\ \" \x41 \u00e9 \U0001F327 \101 \q \a" }}|
{{ 'single "quotes"' }} {{ "double 'quotes'" }}
{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }} {{ 2E-2 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.123 }} {{ 0.1 + 0.2 }} {{ 1e400 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}
{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 5 % 2.5 }} {{ 1 / 4 }} {{ 4 / 2 }} {{ -2 ** 2 }} {{ 2.0 ** 0.5 }}
{{ yes + 1 }} {{ yes + yes }} {{ -yes }} {{ +n }} {{ - - n }} {{ yes * 2.5 }}
{{ "a" + "b" }} {{ "ab" * 3 }} {{ 3 * "ab" }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }} {{ "a" * -1 }}|
{{ "a" ~ 1 ~ nil ~ 2.0 ~ missing ~ [1] }} {{ 1 ~ (2 + 3) }}
{{ 1 == 1.0 }} {{ 1 == true }} {{ "1" == 1 }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }} {{ {"a": 1} == {"a": 1.0} }} {{ nil == none }} {{ missing == missing2 }}
{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ 2 >= 2 }} {{ 2 != 3 }} {{ "Z" < "a" }} {{ (1, "b") > (1, "a") }} {{ 1.5 <= 1 }}
{{ 1 in list }} {{ 9 in list }} {{ 9 not in list }} {{ "ell" in text }} {{ "b" in dict }} {{ "z" in dict }} {{ "x" in missing }} {{ 2 in (1, 2) }} {{ not 1 in list }}
{{ yes and name }} {{ no or "else" }} {{ no and name }} {{ not no }} {{ not missing }} {{ yes or boom.x }} {{ empty or zero or nil or "last" }}
{{ "a" if yes else "b" }} {{ "a" if no else "b" }} {{ "a" if no }}| {{ 1 if no else 2 if no else 3 }}
{{ list[0] }} {{ list[-1] }} {{ list[9] }}| {{ dict["b"] }} {{ dict.a.z[1] }} {{ dict["k-1"] }} {{ name[0] }} {{ uni[1] }} {{ pairs.0.1 }} {{ dict["items"] }}
{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[::2] }} {{ name[1:] }} {{ name[::-1] }} {{ uni[1:4] }} {{ list[5:] }} {{ list[-2:] }} {{ (1,2,3)[1:] }} {{ uni[::-2] }} {{ list[2:0:-1] }} {{ list[nil:2] }}
{{ [] }} {{ [1, "a", none, true, 1.0] }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ {} }} {{ {"a": [1], 2: "b"} }} {{ 1, 2 }} {{ [1, 2,] }} {{ {"a": 1,} }}
{{ ["it's", 'say "x"', "both ' and \"", "tab\t", "nl\n", "back\\", "ü", "\x01\x7f\u200b"] }}
{{ dict }} {{ people }}
{{ dict.missing }}| {{ dict.missing is defined }} {{ missing is undefined }} {{ nil is defined }}
{% for x in list %}{{ x }}{% endfor %} {% for x in [] %}a{% else %}none{% endfor %} {% for x in missing %}a{% else %}none{% endfor %}
{% for x in list %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.depth0 }} {% endfor %}
{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}{% for x in list %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}
{% for x in list if x != 1 %}{{ loop.index }}:{{ x }}:{{ loop.last }} {% endfor %}
{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in pairs %}{{ k }}{{ v }}{% endfor %}{% for k in dict %}{{ k }},{% endfor %}
{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for c in "añb" %}{{ c }}.{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}
{% for x in list %}{% for y in list %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }} {% endfor %}
{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %} {% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}
{% for x in list %}{{ loop.cycle("odd", "even") }}{{ loop.changed(x > 1) }} {% endfor %}
{% for m in messages %}{% if loop.first and m.role == "user" %}[{{ m["content"] }}]{% elif m.role == "user" %}({{ m.content }}){% else %}<{{ m.content }}>{% endif %}{% endfor %}
{% set a = 1 %}{{ a }}{% set a, b = 2, 3 %}{{ a }}{{ b }}{% set c = [1, 2] %}{{ c }}{% set t = 1, %}{{ t }}
{% set a = 1 %}{% for x in list %}{{ a }}{% set a = x %}{{ a }} {% endfor %}{{ a }}
{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}
{% set ns = namespace(a=1, b="x") %}{% for x in list %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}| {{ ns["a"] }} {{ ns }}
{% set ns = namespace({"p": 1}, q=2) %}{{ ns.p }}{{ ns.q }}{% set ns.r = [ns.p] %}{{ ns.r }} {{ ns.r is defined }} {{ ns.s is defined }}
{% set x %}block {{ name }}{% endset %}[{{ x }}] {% set y | upper %}shout{% endset %}{{ y }} {% set z | replace("a", "b") | upper %}aaa{% endset %}{{ z }}
{% filter upper %}loud {{ name }}{% endfilter %} {% filter replace("o", "0") | indent(2) %}o¶o{% endfilter %}
{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(b=1, a=2) }}{{ m() }}
{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * fact(k - 1) | int }}{% endif %}{% endmacro %}{{ fact(10) }}
{% set v = 1 %}{% macro m() %}{{ v }}{% set v = 9 %}{{ v }}{% endmacro %}{{ m() }}{{ v }}{% set v = 2 %}{{ m() }}
{% macro outer() %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% macro m() %}a{% endmacro %}{{ m() ~ m() }} {{ m() | upper }} {{ m is callable }} {{ (m() + "b") | length }}
{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% generation %}{{ name }}{% set gen = 1 %}{% endgeneration %}{{ gen }}|{% generation -%}  x  {%- endgeneration %}
{{ text | trim }}| {{ "xxaxx" | trim("x") }} {{ missing | trim }}| {{ 5 | trim }} {{ nil | trim }}
{{ name | upper }} {{ name | lower }} {{ "hello wORLD foo-bar (baz" | title }} {{ "hELLO ñ" | capitalize }} {{ "straße" | upper }} {{ 5 | upper }} {{ uni | upper }} {{ "ÀÉ" | lower }}
{{ list | length }} {{ uni | length }} {{ dict | count }} {{ missing | length }} {{ "" | length }}
{{ missing | default("d") }} {{ nil | default("d") }} {{ nil | default("d", true) }} {{ empty | d("e", boolean=true) }} {{ name | default("d") }} {{ missing | default }}|
{{ list | join }} {{ list | join(", ") }} {{ people | join("/", attribute="name") }} {{ [1, none, true] | join("-") }} {{ "abc" | join(".") }} {{ words | join(d=" ") }}
{{ list | first }} {{ list | last }} {{ [] | first }}| {{ [] | last }}| {{ "abc" | first }} {{ "abc" | last }} {{ dict | first }}
{{ list | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ list | sort(reverse=true) }} {{ people | sort(attribute="age") | map(attribute="name") | list }} {{ people | sort(true, attribute="age") | map(attribute="name") | list }}
{{ list | reverse | list }} {{ "abc" | reverse }} {{ words | unique | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ people | map(attribute="age") | unique | list }}
{{ words | map("upper") | list }} {{ people | map(attribute="name") | join }} {{ people | map(attribute="ok", default="?") | list }} {{ ["a.b"] | map("replace", ".", "-") | list }} {{ nested | map("length") | list }} {{ nested | map(attribute=0) | list }}
{{ list | select("gt", 1) | list }} {{ list | reject("odd") | list }} {{ [0, 1, "", "a", none] | select | list }} {{ [0, 1] | reject | list }} {{ list | select("in", [1, 2]) | list }}
{{ people | selectattr("ok") | map(attribute="name") | list }} {{ people | rejectattr("ok") | map(attribute="name") | list }} {{ people | selectattr("age", "equalto", 30) | list | length }} {{ people | selectattr("ok", "defined") | list | length }} {{ messages | selectattr("role", "eq", "user") | map(attribute="content") | join("+") }} {{ nil | selectattr("a") | list }}
{{ dict | dictsort }} {{ {"b": 1, "A": 3, "a": 2} | dictsort(true) }} {{ {"x": 2, "y": 1} | dictsort(by="value") }} {{ {"x": 2, "y": 1} | dictsort(false, "value", true) }}
{% for k, v in dict | items %}{{ k }} {% endfor %}{{ missing | items | list }} {{ dict | list }} {{ "ab" | list }} {{ (1, 2) | list }}
{{ "a-b-c" | replace("-", "+") }} {{ "aaa" | replace("a", "b", 2) }} {{ "abc" | replace("", "-") }} {{ 101 | replace(1, 2) }} {{ "aaa".replace("a", "b", 1) }} {{ "aaa".replace("a", "") }}|
{{ "a\nb\n\nc" | indent }} {{ "a\nb" | indent(2, true) }} {{ "a\n\nb" | indent(1, blank=true) }} {{ "a\nb" | indent("> ", first=true) }} {{ "" | indent }}| {{ "a\n" | indent(2) }}|
{{ "42" | int }} {{ "4.9" | int }} {{ "x" | int }} {{ "x" | int(-1) }} {{ 4.9 | int }} {{ -4.9 | int }} {{ true | int }} {{ "0x1f" | int(0, 16) }} {{ " 7 " | int }} {{ nil | int }} {{ "1_000" | int }} {{ "1e3" | int }} {{ "101" | int(base=2) }} {{ "ff" | int(base=16) }}
{{ "4.5" | float }} {{ 3 | float }} {{ "x" | float }} {{ "x" | float(1.5) }} {{ "inf" | float }} {{ "-1e-3" | float }} {{ "nan" | float }} {{ nil | float }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(method="ceil") }} {{ 2.9 | round(0, "floor") }} {{ 7 | round }} {{ 1234.5 | round(-2) }} {{ 42.55 | round(1, "floor") }} {{ -0.4 | round }}
{{ -3 | abs }} {{ neg | abs }} {{ -2.5 | abs }} {{ list | sum }} {{ people | sum(attribute="age") }} {{ [1.5, 2] | sum(start=10) }} {{ list | min }} {{ list | max }} {{ words | min }} {{ people | max(attribute="age") }} {{ [] | min }}|
{{ nil | string }} {{ [1] | string }} {{ 1.0 | string }} {{ "a" | string }} {{ true | string | lower }}
{{ range(3) }} {{ range(1, 4) }} {{ range(0, 6, 2) | list }} {{ range(3)[1] }} {{ range(0) | list }} {{ 2 in range(3) }} {{ range(3) | length }} {{ range(5)[1:3] }} {{ range(5)[::-1] | list }} {{ range(-3, 3, 4) | list }}
{{ dict | tojson }}
{{ dict | tojson(indent=2) }}
{{ [] | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ {"a": [], "b": {}} | tojson(indent=1) }} {{ [1, [2]] | tojson(indent="--") }} {{ [1] | tojson(indent=0) }}
{{ "é\u2028🌧\x7f\x1f/" | tojson }} {{ "é🌧" | tojson(ensure_ascii=true) }} {{ dict | tojson(sort_keys=true) }} {{ dict | tojson(separators=(",", ":")) }} {{ html | tojson }}
{{ [1.0, 1e20, 0.1, none, true, "a"] | tojson }} {{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }} {{ (1, 2) | tojson }} {{ "1e999" | float | tojson }} {{ 5 | tojson }}
{{ html | e }} {{ html | escape | escape }} {{ html | safe }} {{ "<" | safe + "<" }} {{ "<b>" + ("&" | safe) }} {{ ("<" | safe) ~ "<" }} {{ ("<" | safe) * 2 }} {{ [("<" | safe), "<"] | join("&") }} {{ ["<" | safe] }} {{ ("<" | safe).upper() + ">" }} {{ dict | tojson | safe + "\n" }}
{{ nil is none }} {{ 1 is number }} {{ 1.0 is float }} {{ 1 is integer }} {{ true is integer }} {{ true is number }} {{ true is boolean }} {{ "a" is string }} {{ dict is mapping }} {{ list is sequence }} {{ list is iterable }} {{ 5 is iterable }} {{ dict is sequence }} {{ "a" is sequence }} {{ nil is mapping }} {{ missing is iterable }} {{ missing is sequence }}
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne(2) }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 2 is in [1, 2] }} {{ 2 is not in [1] }} {{ "abc" is lower }} {{ "ABC" is upper }} {{ "1" is upper }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ nil is sameas none }} {{ 1 is sameas true }}
{{ x is defined and x is number }} {{ missing is defined or yes }} {{ not missing is defined }} {{ nil is not none }} {{ dict.a is mapping and "z" in dict.a }} {{ missing is not defined and 1 }}
{{ "a,b,c".split(",") }} {{ " a  b ".split() }} {{ "a,b,c".split(",", 1) }} {{ "a,b,c".rsplit(",", 1) }} {{ "a  b c".split(" ") }} {{ " a b  c ".split(none, 1) }} {{ " a b  c ".rsplit(none, 1) }} {{ "".split() }} {{ "".split(",") }} {{ "a\u00a0b\u3000c".split() }} {{ "abab".rsplit("ab") }} {{ "a--b".split(sep="--") }} {{ "a b c d".rsplit(maxsplit=2) }}
{{ "  a ".strip() }}| {{ "  a ".lstrip() }}| {{ "  a ".rstrip() }}| {{ "xyaxy".strip("yx") }} {{ "--a-".lstrip("-") }} {{ "a\n\n".rstrip("\n") }}| {{ "ñañ".strip("ñ") }} {{ "\u3000a\u00a0".strip() }}|
{{ "abc".startswith("ab") }} {{ "abc".endswith("bc") }} {{ "abc".startswith(("x", "a")) }} {{ "abc".endswith("x") }} {{ "abc".startswith("") }} {{ "".startswith("a") }}
{{ "abcb".find("b") }} {{ "abcb".rfind("b") }} {{ "abc".find("x") }} {{ "ñbñ".find("ñ", 1) }} {{ "abcb".count("b") }} {{ "aaa".count("aa") }} {{ "abc".count("") }} {{ "abc".index("c") }} {{ "abc".find("") }} {{ "abc".rfind("") }} {{ "abc".find("a", -1) }} {{ "abc".find("", 9) }}
{{ "aBc".upper() }} {{ "aBc".lower() }} {{ "hello world's x1a".title() }} {{ "hELLO".capitalize() }} {{ ",".join(["a", "b"]) }} {{ "".join(words) }} {{ "a=b=c".partition("=") }} {{ "a=b=c".rpartition("=") }} {{ "ab".partition("x") }} {{ "ab".rpartition("x") }}
{{ "a\nb\r\nc\rd\n".splitlines() }} {{ "a\nb".splitlines(true) }} {{ "".splitlines() }} {{ "a1".isalnum() }} {{ "a1".isalpha() }} {{ "12".isdigit() }} {{ "".isdigit() }} {{ " \n".isspace() }} {{ "aB".islower() }} {{ "AB1".isupper() }} {{ "prefix-a".removeprefix("prefix-") }} {{ "a.txt".removesuffix(".txt") }}
{{ dict.get("b") }} {{ dict.get("q") }} {{ dict.get("q", 3) }} {{ dict.keys() }} {{ dict.values() | list | length }} {{ {"a": 1}.items() }} {{ {"a": 1}.values() }} {{ dict.keys() | list }} {{ {"a": 1}.copy() }} {{ {"a": 1}.items() | list }} {{ dict.keys() | length }} {{ "b" in dict.keys() }}
{{ list.index(2) }} {{ list.count(1) }} {{ (1, 1).count(1) }} {{ [1, 2].copy() }} {{ range(5).count(2) }} {{ range(5).index(3) }} 
{{ missing ~ "x" }} {{ missing | upper }}| {{ missing | list }} {{ missing | join(",") }}| {{ [missing] }} {{ missing is none }} {{ missing | string }}| {{ missing | replace("a", "b") }}|
{{ messages[0].role }} {{ messages[-1]["content"] }} {{ messages[1:] | length }} {{ messages[1].extra.a }} {{ messages | map(attribute="extra.a", default="-") | list }} {{ messages[1]["extra"]["b"] }}|
{% set messages = messages[1:] %}{{ messages | length }}{% if messages[0]["role"] != "system" and "content" in messages[0] %}ok{% endif %}
{% if missing %}a{% elif nil %}b{% elif 0 %}c{% elif "" %}d{% elif [] %}e{% elif {} %}f{% elif 0.0 %}g{% else %}h{% endif %}
{% if list | select("gt", 9) %}generators are true{% endif %} {% set g = list | select("gt", 1) %}{{ g | list }}{{ g | list }} {% set h = list | map("string") %}{{ h | first }}{{ h | list }}
{{ strftime_now("%Y-%m-%d %%") }}
{{ loop is defined }}{% for x in [1] %}{{ loop is defined }}{% endfor %}
{{ (1, 2) | list + [3] }} {{ -list[0] }} {{ -2 | abs }} {{ not yes == no }} {{ (1 + 1) ~ "a" }} {{ "%" ~ 5 }} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ "a" in "abc" and "b" not in "xyz" }} {{ [1, 2] | length > 1 }} {{ 1 if yes else 2 + 3 }}
{{ {"a": {"b": {}}} }} {{ {'x': 1}['x'] }} {{ {"a": 1}.a }} {{ [[1, 2], [3]][0][1] }} {{ ("a" ~ "b")[0] }} {{ "abc"[1:][0] }} {{ {"a": "}}"}.a }} {{ "%}" }} {{ '{{' }}
{% if "}}" == '}}' %}{{ "{% x %}" }}{% endif %}{# {{ }} {% %} #}{{ "#}" }}
{{ words | batch(2) | list }} {{ words | batch(3, "-") | list }} {{ [] | batch(2) | list }}
{{ true.x is defined }} {{ 5 .x is defined }} {{ name.x is defined }} {{ name.upper is defined }} {{ dict.items is defined }} {{ list.append is defined }} {{ "role" in messages[0] }} {{ nil.x is defined }}
{%- set first = true -%}{%- for m in messages if m.role == "user" -%}{%- if not loop.first %}, {% endif -%}{{ m.content }}{%- endfor -%}{{ first }}
{% set a = {"k": [1, 2]} %}{% set b = a.k + [3] %}{{ a }}{{ b }}{{ a.k | last }}
{% macro show(x, depth=0) %}{% if x is mapping %}{% for k, v in x.items() %}{{ "  " * depth }}{{ k }}:¶{{ show(v, depth + 1) }}{% endfor %}{% elif x is iterable and x is not string %}{% for v in x %}{{ show(v, depth + 1) }}{% endfor %}{% else %}{{ "  " * depth ~ x }}¶{% endif %}{% endmacro %}{{ show(dict) }}
{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }} {{ 1e15 }} {{ 1e22 }} {{ 123456789012345680.0 }} {{ 5e-324 }} {{ -0.0 }} {{ 100000000000000000000.0 }} {{ 1.0 }}
{{ "a" "b" | upper }} {{ "x" | upper ~ "y" }} {{ ("x" ~ "y") | upper }} {{ [1, 2, 3] | last | string | length }} {{ 1 | string + "a" }}
{%set a=1%}{%if a==1%}{{a}}{%endif%}{%-for x in[1,2]-%}{{x}}{%-endfor-%}
{{ "%s-%d-%5.2f|%-6s|%06d|%x %X %o|%+d|%r|%%" % (name, 7.9, 2.5, "ab", -42, 255, 255, 8, 3, "q") }} {{ "%s" % 5 }} {{ "%(a)s/%(b)03d" % {"a": 1, "b": 2} }} {{ "%s %s" | format("a", 1) }} {{ "%(x)s" | format(x=2) }} {{ "%e %g %G %.0f %#x %#o % d" % (12345.678, 1e-10, 1e20, 2.5, 255, 8, 5) }} {{ "%.2s|%5s|%-5s|%05d|%5.1f|%-8.3e|" % ("äbc", "ä", "ä", 42, 3.14159, 1.0) }}
{{ "{} {}".format("a", 1) }} {{ "{1}{0}".format(1, 2) }} {{ "{x}={y!r}".format(x=1, y="q") }} {{ "{:>6}|{:<6}|{:^6}|{:*^7}".format("ab", "ab", "ab", "ab") }} {{ "{:05d} {:+} {:,} {:_} {:x} {:#x} {:b} {:o}".format(42, 3, 1234567, 1234567, 255, 255, 5, 8) }} {{ "{:.2f} {:10.3f}| {:e} {:g} {:%} {:.1%} {:,.2f}".format(2.567, 3.14159, 12345.0, 0.0001, 0.25, 0.5, 1234567.891) }} {{ "{{}} {}".format(nil) }} {{ "{0[a]} {0[b][0]} {1.a}".format({"a": 1, "b": [2]}, {"a": 5}) }} {{ "{:.3}|{:>4}|{:<4}|{:6.2f}|{:06.2f}|{:<06d}|{:=+6d}".format("abcdef", 1, 2, 3.14159, -2.5, 42, 7) }} {{ "{}{}".format(2.0, true) }} {{ "{:d}".format(true) }}
{{ "ab".center(7, "*") }} {{ "ab".center(6, "*") }} {{ "abc".center(6, "*") }} {{ "abc".center(8, "*") }} {{ "ab".ljust(5, ".") }} {{ "ab".rjust(5) }} {{ "-7".zfill(5) }} {{ "7".zfill(3) }} {{ "aBcÉ".swapcase() }} {{ "ab".isascii() }} {{ "é".isascii() }} {{ "abab".rindex("b") }} {{ "ab" | center(6) }}| {{ "abc" | center(6) }}| {{ "a b_c, d-e" | wordcount }} {{ words | slice(3) | list }} {{ words | slice(3, "x") | list }} {{ html | safe | forceescape }}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a }}{{ c }} {% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% with %}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}{% for x in list %}{% with y = x %}{% if y == 1 %}{% continue %}{% endif %}{{ y }}{% endwith %}{% endfor %}
{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box("a") %}body {{ name }}{% endcall %} {% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i=0) each(list) %}<{{ v }}/{{ i }}>{% endcall %} {% macro maybe() %}{{ caller is defined }}{% if caller is defined %}{{ caller() }}{% endif %}{% endmacro %}{{ maybe() }}{% call maybe() %}x{% endcall %}
a¶¶{% if yes %}¶¶b¶¶{% endif %}¶¶c¶
{% for x in list %}¶- {{ x }}¶{% endfor %}¶¶end¶¶
	{% if yes %}	tab{% endif %}
{{ name }}¶{{ name }}¶   {{ name }}   ¶x
"""


def quote(s):
    out = []
    for b in s.encode():
        c = chr(b)
        out.append("\\n" if c == "\n" else "\\t" if c == "\t" else "\\" + c if c in "\"\\?" else c if 32 <= b < 127 else f"\\{b:03o}")
    return '"' + "".join(out) + '"'


def main():
    env, text = environment(), json.dumps(CONTEXT, ensure_ascii=False)
    print("/* Made by tests/gen/jinja_cases.py with jinja2 3.1.6: do not edit. */")
    print(f"static const char jinja_context[] =\n    {quote(text)};")
    print("static const struct {\n  const char *text, *want;\n} jinja_cases[] = {")
    for t in TEMPLATES.strip("\n").split("\n"):
        t = t.replace("¶", "\n")
        try:
            want = env.from_string(t).render(**CONTEXT)
        except Exception as e:
            sys.exit(f"{t}\n{type(e).__name__}: {e}")
        print(f"    {{{quote(t)},\n     {quote(want)}}},")
    print("};")


if __name__ == "__main__":
    main()
