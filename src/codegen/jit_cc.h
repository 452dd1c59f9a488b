/* The system's C compiler: finding it, its version, running it without a shell. */
#ifndef CODEGEN_JIT_CC_H
#define CODEGEN_JIT_CC_H

#include "base/str.h"
#include "base/vec.h"

typedef struct {
  VEC(char *) word; /* program (a path) and the arguments that $CC may hold; mem_free each */
  char *version;    /* what --version says */
} jit_cc;

/* `want` if not NULL, else $CC, else the first of cc, gcc, clang on $PATH.  A value that is not
 * the name of a program is split at blanks ("ccache gcc").  HP_ERR_UNSUPPORTED if there is none. */
hp_status jit_cc_find(const char *want, jit_cc *out);
void jit_cc_free(jit_cc *cc);

/* One file to compile: `source` to the shared object `object`, the compiler's messages to
 * `words`. */
typedef struct {
  const char *source, *object, *words;
  bool done;
} jit_unit;

/* Compiles the units with the flags (NULL-terminated), at most `jobs` at once; sets done for
 * those that succeeded.  Fails only if nothing could be started. */
hp_status jit_cc_compile(const jit_cc *cc, const char *const *flags, jit_unit *unit, int n,
                         int jobs);

#endif
