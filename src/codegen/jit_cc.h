/* The system's C compiler: found, asked for its version, run without a shell. */
#ifndef CODEGEN_JIT_CC_H
#define CODEGEN_JIT_CC_H

#include "base/str.h"
#include "base/vec.h"

typedef struct {
  VEC(char *) word; /* program (a path) and the arguments that $CC may hold; mem_free each */
  char *version;    /* what --version says */
} jit_cc;

/* `want` if not NULL, else $CC, else the first of cc, gcc, clang on $PATH.  A value that names no
 * program as a whole is split at blanks ("ccache gcc").  HP_ERR_UNSUPPORTED when there is none. */
hp_status jit_cc_find(const char *want, jit_cc *out);
void jit_cc_free(jit_cc *cc);

/* One file to compile: `source` to the shared object `object`, words of the compiler to `words`. */
typedef struct {
  const char *source, *object, *words;
  bool done;
} jit_unit;

/* Compiles the units with the flags (NULL-terminated), at most `jobs` at once; sets done where
 * the compiler succeeded.  Fails only when nothing could be started. */
hp_status jit_cc_compile(const jit_cc *cc, const char *const *flags, jit_unit *unit, int n,
                         int jobs);

#endif
