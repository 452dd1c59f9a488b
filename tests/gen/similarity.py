#!/usr/bin/env python3
"""Writes tests/unit/similarity_cases.h: words of jieba 0.42.1, scores of rouge_chinese 1.0.3 and
nltk 3.10.4 as LlamaFactory 0.9.5 combines them, and NumPy's means of them.

    pip install jieba rouge-chinese nltk numpy
    python tests/gen/similarity.py [number of random pairs] > tests/unit/similarity_cases.h
"""
import random
import sys

import jieba
import numpy as np
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_chinese import Rouge

PAIRS = [
    ("", ""), ("", "a"), ("a", ""), (" \n", "a"), ("a", "a"), ("ab", "ab"), ("abc", "abcd"),
    ("a b c d", "a b c d"), ("the the the", "the cat"), ("the cat sat", "the cat sat on the mat"),
    ("Paris is the capital of France.", "The capital of France is Paris."),
    ("Is it? Yes. No!", "Is it? No."), ("? ? ?", "?"), ("a?\n\nb", "a?\n \nb"), ("\n a \n\n b", "a b"),
    ("wait...... what", "wait ......."), ("............", "......x"), ("it is......-so", "so......"),
    ("line\r\nline", "line\nline"), ("\r\r\n\t", "x"), ("3.14 and 50%", "3.14 and 5.0%"),
    ("v1.2.3-rc_4", "v1.2.4"), ("a--b a_b a+b", "a-b"), ("x" * 300, "x" * 10),
    ("C++ and C# at AT&T", "c++ or c#, AT&T"), ("ABC++x xAT&T1", "C++C#"), ("&%#", "&%#."),
    ("caf\u00e9 na\u00efve", "cafe naive"), ("\u3046\u3048\u3042\u3044", "\u3042\u3044\u3046"),
    ("\u201cquoted?\u201d said \u2019he", "\u201cquoted?\u201d"), ("what\uff1f\u201d yes\uff01no", "what\uff1f yes"),
    ("\u2026\u2026 so", "\u2026\u2026"), ("\U0001f600 smile \U0001f600", "\U0001f600"), ("a\u3000b\u00a0c\x1cd", "a b c d"),
    ("\x00nul \x01", "\x00nul"), ("\ufffd\ufffd x", "\ufffd"), ("\u017elu\u0165ou\u010dk\u00fd k\u016f\u0148", "\u017elut\u00fd k\u016f\u0148"),
    ("1,000,000.5", "1,000,000"), ("user@mail.com", "mail.com"), ("e.g. this", "i.e. this"),
]
PIECES = ["the", "cat", "cats", "sat", "on", "a", "mat", "C++", "c#", "AT&T", "3.5", "7%", "v1.2.3", " ", " ", " ", " ",
          "\n", "\n\n", "\r\n", ".", "?", "!", ",", "......", "...", "-", "_", "+", "&", "#", "'s", "\u201d", "\u2019",
          "\uff1f", "\u3002", "\u2026\u2026", "\u00e9", "\u3042", "\t", "\u3000", "(", ")", "X", "10", "%"]


def scores(pred, label):
    """LlamaFactory's train/sft/metric.py."""
    hypothesis, reference = list(jieba.cut(pred)), list(jieba.cut(label))
    if not " ".join(hypothesis).split() or not " ".join(reference).split():
        result = {k: {"f": 0.0} for k in ("rouge-1", "rouge-2", "rouge-l")}
    else:
        result = Rouge().get_scores(" ".join(hypothesis), " ".join(reference))[0]
    bleu = sentence_bleu([list(label)], list(pred), smoothing_function=SmoothingFunction().method3)
    return [round(v["f"] * 100, 4) for v in result.values()] + [round(bleu * 100, 4)]


def quote(text):
    """A C string, and its bytes."""
    b = text.encode()
    body = "".join(chr(c) if 32 <= c < 127 and chr(c) not in '"\\?' else "\\%03o" % c for c in b)
    return '{"%s", %d}' % (body, len(b))


def main():
    r = random.Random(1)
    text = lambda: "".join(r.choice(PIECES) for _ in range(r.randrange(1, 25)))
    pairs = PAIRS + [(text(), text()) for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 130)]
    print("/* Made by tests/gen/similarity.py with jieba, rouge_chinese and nltk: do not edit. */")
    print("static const struct {\n  test_text prediction, label, words; /* of the prediction */\n  double score[4];\n} pairs[] = {")
    all_scores = []
    for pred, label in pairs:
        s = scores(pred, label)
        all_scores.append(s)
        words = quote(" ".join(jieba.cut(pred)))
        print("    {%s, %s, %s, {%s}}," % (quote(pred), quote(label), words, ", ".join(map(repr, s))))
    print("};")
    print("/* Means of the first n pairs. */\nstatic const struct {\n  size_t n;\n  double score[4];\n} means[] = {")
    for n in [1, 7, 8, 9, 40, 127, 128, 129, 160, 1000, len(pairs)]:
        if n <= len(pairs):
            print("    {%d, {%s}}," % (n, ", ".join(repr(float(np.mean([s[k] for s in all_scores[:n]]))) for k in range(4))))
    print("};")


main()
