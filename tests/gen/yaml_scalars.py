"""Writes tests/unit/yaml_scalar_cases.h: plain YAML scalars and what OmegaConf reads them as.

Run by hand when the list changes: python tests/gen/yaml_scalars.py > tests/unit/yaml_scalar_cases.h
(needs omegaconf >= 2.4)."""
import random

from omegaconf import OmegaConf

WORDS = """yes Yes YES yES no No NO nO on On ON oN off Off OFF true True TRUE tRUE false False FALSE
y n Y N t f ~ null Null NULL nULL None none NONE auto nan inf NaN Infinity .inf .Inf .INF -.inf +.inf
.nan .NaN .NAN -.nan .iNF 2024-01-01 2001-12-14t21:59:43 12:30:45.5 1:30 1:60 1:5 01:30 0:30
-1:30 +190:20:30 1:30.5 1:30. 190:20:30.15 1:1:1:1:1 0x 0x10 0xFF -0xff 0xfg 0X10 0x_1 0b 0b1 0b101
-0b11 0b12 0B1 0o17 0o8 0 00 0_ 007 012 -012 +012 08 09 018 0_7 -0 +0 1 +1 -1 42 1_000 1__000 1_ _1
1_000_000 9223372036854775807 -9223372036854775808 0x7fffffffffffffff 0777777777777777777777
1e5 1e-5 1E-5 1e+5 1.e5 1.5e5 1.5e+5 +1e3 -1e3 5e8 3e-6 1.0e-5 2e-3 1e400 -1e400 1e-400 1e 1e+ 1e5.0
e5 .e5 1_0e5 1__0e5 1_e5 1_000.5 1__0.5 1_. 1._ 1._5 1_0.5e5 1__0.5e5 1__0.5e+5 . .. ... ._ ._1 .1 .1_
.1_0 .5e5 .5e+5 .5e-5 -.5 +.5 -.5e-5 0.1 0.0 -0.0 00.5 1.2.3 1.5.0 1,000 1%  50% 16GiB 4k 10M
3.14159265358979 123456789012345678.0 1.7976931348623157e308 4.9e-324 2.2250738585072014e-308 +-1 --1
1-2 1/2 0.1f 1L 1h ??? *.q_proj.weight cosine qwen3_nothink alpaca,identity ./data a=b http://x:8000/v1 =x
<<x a#b sys:rank 1+1 1e5e5 0x1p3 infinity +nan ٣""".split()


def main():
    rnd = random.Random(7)
    words = list(dict.fromkeys(w for w in WORDS if w[0] not in "*?-%" or len(w) > 1))
    while len(words) < 420:
        w = "".join(rnd.choice("0123456789_.:eE+-x") for _ in range(rnd.randint(2, 7)))
        words.append(w)
    print("/* Made by tests/gen/yaml_scalars.py with OmegaConf 2.4.0: do not edit. */")
    print("static const struct {\n  const char *text;\n  tree_kind kind;\n  int64_t integer;")
    print("  double number;\n} scalars[] = {")
    for w in words:
        try:
            v = OmegaConf.to_container(OmegaConf.create(f"k: [{w}]\n"))["k"][0]
            if OmegaConf.to_container(OmegaConf.create(f"k: {w}\n"))["k"] != v and v == v:
                continue
        except Exception:
            continue
        q = '"' + w.replace("\\", "\\\\").replace('"', '\\"').replace("???", "?\\?\\?") + '"'
        if v is None:
            print(f"    {{{q}, TREE_NULL, 0, 0}},")
        elif isinstance(v, bool):
            print(f"    {{{q}, TREE_BOOL, {int(v)}, 0}},")
        elif isinstance(v, int) and -(2**63) < v < 2**63:
            print(f"    {{{q}, TREE_INT, {v}, 0}},")
        elif isinstance(v, float):
            c = "NAN" if v != v else ("-INFINITY" if v < 0 else "INFINITY") if v in (float("inf"), -float("inf")) else v.hex()
            print(f"    {{{q}, TREE_FLOAT, 0, {c}}},")
        elif isinstance(v, str) and v == w:
            print(f"    {{{q}, TREE_STRING, 0, 0}},")
    print("};")


main()
