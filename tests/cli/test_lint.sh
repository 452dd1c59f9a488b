# make lint: a small clean tree passes; each thing that it forbids is planted once and must be found.
. "$(dirname "$0")/lib.sh"

mkdir -p include src/base src/mem src/ir tests docs/internals build tools
cp "$ROOT"/tools/lint "$ROOT"/tools/lint.awk "$ROOT"/tools/circles.awk "$ROOT"/tools/layers.txt \
  "$ROOT"/tools/case-allow.txt "$ROOT"/tools/globals-allow.txt tools/
cp "$ROOT/.clang-format" .
write include/hyperparallel.h <<'END'
#ifndef HYPERPARALLEL_H
#define HYPERPARALLEL_H

/* One. */
int hp_one(void);

#endif
END
write src/base/one.c <<'END'
#include "hyperparallel.h"

/* Words in comments and strings are not code: malloc(1), case OP_ADD. */
int hp_one(void) { return sizeof "system(1) { {" > 3 && '"' != '{'; }
END
write src/base/two.h <<'END'
/* Nothing yet. */
END
write src/ir/graph.h <<'END'
/* Nothing yet. */
END
write src/mem/plan.c <<'END'
#include "base/two.h"
END
echo "Files: one.c, two.h" > docs/internals/base.md
echo "Files: graph.h" > docs/internals/ir.md
echo "Files: plan.c" > docs/internals/mem.md
CC=${CC:-gcc}
link() { $CC -shared -fPIC -Iinclude -o build/libhyperparallel.so "$@"; }
lint() { run_cmd env B=build CC="$CC" sh tools/lint; }

# Lint must find $1 (a part of its line), given what the caller planted.
found() {
  lint
  exit_is 1
  out_has "$1"
}
# Plants standard input as a file, wants $2 to be found there, and takes it away again.
plant() { # FILE FINDING
  write "$1"
  found "$2"
  out_has "$1"
  rm "$1"
}
many() { awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) print text }'; }

it "passes a clean tree"
link src/base/one.c
lint
exit_is 0
out_has "lint: clean"

it "finds an include that goes up the layers"
echo '#include "ir/graph.h"' | plant src/mem/plan.c "mem may not include ir"
write src/mem/plan.c </dev/null

it "finds a folder without a row in layers.txt"
mkdir src/extra
echo "Files: a.c" > docs/internals/extra.md
echo 'int x;' | plant src/extra/a.c "folder extra has no row"
rm -r src/extra docs/internals/extra.md

it "finds a layer row that names a higher layer"
sed 's/^mem$/mem rt/' "$ROOT/tools/layers.txt" > tools/layers.txt
found "mem may not include rt: rows go from the lowest layer up"
cp "$ROOT/tools/layers.txt" tools/

it "finds a long file"
many 801 '/**/' | plant tests/long.c "file of 801 lines"

it "finds a long function"
echo "Files: one.c, two.h, long" > docs/internals/base.md
{ echo 'void f(void) {'; many 79 '  g();'; echo '}'; } > long
plant src/base/long.c "f has 81 lines, at most 80" < long
mv long tests/long.c # tests may be longer
lint
out_lacks "f has"
rm tests/long.c

it "finds a complex function"
{ echo 'void f(int a) {'; many 10 '  if (a && a) a++;'; echo '}'; } |
  plant src/base/long.c "f has complexity 21"

it "counts a switch as one, whatever its cases"
{ echo 'void f(int a) {'; echo '  switch (a) {'; many 40 '  case 1: a++; break;'; echo '  }'; echo '}'; } \
  > src/base/long.c
lint
out_lacks complexity
rm src/base/long.c

it "finds banned calls"
for call in 'strcpy(a, b)' 'sprintf(a, b)' 'atoi(a)' 'rand()' 'system(a)' 'strtok(a, b)' 'gets(a)' 'ctime(a)'; do
  echo "void f(char *a) { $call; }" | plant src/base/long.c "${call%%(*} is banned"
done

it "finds heap calls outside base/mem.c"
for call in 'malloc(1)' 'calloc(1, 1)' 'realloc(p, 1)' 'free(p)' 'strdup(p)'; do
  echo "void f(char *p) { $call; }" | plant src/base/long.c "${call%%(*}: heap memory only through"
done
echo "void f(char *p) { free(p); }" > src/base/mem.c
echo "Files: one.c, two.h, mem.c" > docs/internals/base.md
lint
exit_is 0
rm src/base/mem.c
echo "Files: one.c, two.h, long" > docs/internals/base.md

it "finds abort and assert"
echo "void f(void) { abort(); }" | plant src/base/long.c "caught by HP_ASSERT"
echo "void f(void) { assert(1); }" | plant src/base/long.c "caught by HP_ASSERT"

it "finds open work and words that promise it"
for word in TO""DO FIX""ME X""XX; do
  echo "/* $word: later */" | plant tests/later.c "open work is noted in docs/STATUS.md"
done
for word in "for"" now" "not"" implemented" "st""ub"; do
  echo "/* $word */" | plant src/base/long.c "words that promise work left undone"
done

it "finds a switch on the op kind, except in the files that are listed"
printf 'void f(int a) {\n  switch (a) {\n  case OP_ADD: return;\n  }\n}\n' > src/base/long.c
found "switch on the op kind"
echo src/base/long.c >> tools/case-allow.txt
lint
out_lacks "op kind"
cp "$ROOT/tools/case-allow.txt" tools/
rm src/base/long.c

it "finds tabs, spaces at the end and long lines"
printf 'int\tx;\n' | plant tests/a.c "tests/a.c:1: tab"
printf 'int x; \n' | plant tests/a.c "space at the end"
{ printf '/*'; many 101 x | tr -d '\n'; echo '*/'; } | plant tests/a.c "longer than 100 columns"

it "finds an op row without its line of words; such rows may be long"
{ echo 'OP(ADD, "add", "a + b")'; printf '/*'; many 101 x | tr -d '\n'; echo '*/'; } > src/ir/ops.def
echo "Files: graph.h, ops.def" > docs/internals/ir.md
lint
exit_is 0
echo 'OP(ADD, "add", "")' > src/ir/ops.def
found "src/ir/ops.def:1: an op row ends with"
rm src/ir/ops.def
echo "Files: graph.h" > docs/internals/ir.md

it "finds two files of one name"
mkdir tests/unit
echo '/* */' > tests/unit/two.h
found "another file is called two.h"
rm tests/unit/two.h

it "finds an exported name that is not hp_"
echo 'int loose(void) { return 1; }' > build/loose.c
link src/base/one.c build/loose.c
found "exports loose"

it "finds a public function that the library does not have"
link build/loose.c
found "hp_one is not in the library"
link src/base/one.c

it "finds a mutable global, not a constant table"
printf 'static int counter;\nint *hp_c(void) { return &counter; }\n' > build/c.c
printf 'static const char *const word[] = {"a", "b"};\nconst char *hp_w(int i) { return word[i]; }\n' > build/w.c
$CC -fPIC -c -o build/c.o build/c.c && $CC -fPIC -c -o build/w.o build/w.c &&
  ar rcs build/libhyperparallel.a build/c.o build/w.o
found "c.o:0: mutable global counter"
out_lacks word
rm build/libhyperparallel.a

it "finds files that call each other in a circle, not those named by a table"
cc_object() { # FILE, whose text is read; adds it to the library
  $CC -fPIC -x c -c -o "build/$1.o" - && ar rcs build/libhyperparallel.a "build/$1.o"
}
echo 'int b(void); int a(void) { return b(); }' | cc_object a
echo 'int c(void); int b(void) { return c(); }' | cc_object b
echo 'int c(void) { return 3; }' | cc_object c
echo 'int t_one(void); int (*const table[])(void) = {t_one};' | cc_object table
echo 'extern int (*const table[])(void); int t_one(void) { return table[0](); }' | cc_object t_one
lint
exit_is 0
echo 'int a(void); int c(void) { return a(); }' | cc_object c
found "3 files use each other in a circle"
out_has "c -> a (a)"
out_lacks table
rm build/libhyperparallel.a

it "finds a public function without a contract"
cp include/hyperparallel.h good.h
sed 's|^/\* One. \*/$||' good.h > include/hyperparallel.h
found "a public function without a contract"

it "finds a public header that does not stand alone"
sed 's|int hp_one(void);|int hp_one(uint32_t x);|' good.h > include/hyperparallel.h
found "not C11 by itself"
{ cat good.h; many 440 '/**/'; } > include/hyperparallel.h
found "at most 440"
cp good.h include/hyperparallel.h

it "finds a module without a page, and a page that is not true"
rm docs/internals/ir.md
found "docs/internals/ir.md:0: missing"
echo "Nothing." > docs/internals/ir.md
found "does not name graph.h"
echo "Files: graph.h, gone.c" > docs/internals/ir.md
found "names gone.c, which is not there"
echo "Files: graph.h" > docs/internals/ir.md

it "finds words about how the code was made"
echo "see /wo""rk/notes" > docs/a.md
found "docs/a.md:1: speaks of"
rm docs/a.md

it "finds a script that does not parse"
printf '#!/bin/sh\nif true; then\n' > tools/broken
found "tools/broken:1:"
rm tools/broken

it "finds bad format where the formatter is there"
if command -v clang-format-14 >/dev/null; then
  echo 'int   x;' | plant tests/a.c "not formatted"
else skip "no clang-format-14"; fi

it "is clean again at the end"
echo "Files: one.c, two.h" > docs/internals/base.md
lint
exit_is 0
