/* Loop IR: the body of one fused kernel, straight-line SSA over an iteration space.
 *
 *   row [4096,768]                  map: no reduction; row: reductions over the last dim;
 *   %0 = in 0 f32 [768,1]           col: reductions over the first dim.  Sizes, rank 1..6.
 *   %1 = in 1 bf16 [0,1] +16        operand, its type, elements to step per dim, first element
 *   %2 = mul %0 %1                  an elementwise op of expr.def
 *   %3 = sum %2                     sum prod max min; used later, it is one value per row (column)
 *   %4 = const 0.5                  also `int 3`, `iota 1 +10` (index along dim 1, from 10),
 *   %5 = mul %3 %4                  `cast bf16 %2` (rounded to that type)
 *   %6 = uniform 7 [768,1] +0 %9    random in [0,1): stream 7, seed %9 (base/philox.h); the element
 *                                   that is drawn has steps and a first, as those of an operand
 *   out 0 f32 [1,0] %5              a store; a reduced value has stride 0 on the reduced dim
 *   out 1 f32 [0,1] sum %2          a fold, of row: all dims but the last are reduced, as by col
 *
 * Lines end with a newline or ';'.  Value numbers count up from 0.  Float types compute in f32,
 * i32 i64 u8 bool in int64; loads widen, stores round to nearest even (or wrap).  Any strides:
 * broadcasts (0), transposes and slices cost nothing.  An operand may be read, and an output
 * written, several times with different accesses; two stores must not meet in one element.  An
 * output may be the same buffer as an input that is read with the same type, strides and offset
 * only; otherwise operands must not overlap.
 *
 * Bits: a reduction has one fixed order, which depends on the sizes alone (docs/internals/
 * codegen.md), so compiled and interpreted kernels, every instruction set, every split into parts
 * and every thread count give the same bits; only the payload of a NaN is free. */
#ifndef CODEGEN_LOOP_H
#define CODEGEN_LOOP_H

#include "base/hash.h"
#include "base/str.h"
#include "base/thread.h"
#include "base/vec.h"

enum { LOOP_VALUES_MAX = 256, LOOP_STORES_MAX = 64, LOOP_OPERANDS_MAX = 64 };

typedef enum { LOOP_MAP, LOOP_ROW, LOOP_COL } loop_kind;
typedef enum { LOOP_FLOAT, LOOP_INT } loop_class; /* f32 or int64 */
typedef enum {
  LOOP_IN,      /* load of operand `operand` through `at`        */
  LOOP_CONST,   /* a.f32                                         */
  LOOP_INTEGER, /* a.i64                                         */
  LOOP_IOTA,    /* index along dim `dim`, plus at.offset         */
  LOOP_UNIFORM, /* number `at` of stream i64 with seed arg[0]    */
  LOOP_CAST,    /* arg[0] rounded to `type`                      */
  LOOP_OP,      /* row `op` of expr.def                          */
  LOOP_REDUCE   /* `reduce` of arg[0]                            */
} loop_what;
typedef enum { LOOP_SUM, LOOP_PROD, LOOP_MAX, LOOP_MIN, LOOP_REDUCE_COUNT } loop_reduction;

/* Element (i0, i1, ...) of the space is element offset + sum(i * stride) of the operand. */
typedef struct {
  int64_t stride[HP_MAX_RANK], offset;
} loop_access;

typedef struct {
  uint8_t what, cls, type, reduce; /* loop_what, loop_class, hp_dtype of LOOP_IN and LOOP_CAST */
  uint16_t op, operand;            /* row of expr.def; number of the input */
  int16_t arg[3];                  /* value numbers; -1 = none */
  uint16_t dim;
  float f32;
  int64_t i64;
  loop_access at;
} loop_value;

/* A fold combines all values that are stored to one element. */
typedef struct {
  uint16_t operand;
  uint8_t type, reduce; /* loop_reduction of a fold */
  bool fold;
  int16_t value;
  loop_access at;
} loop_store;

/* Made by loop_begin or loop_parse; freed by loop_free.  A zeroed loop may be freed. */
typedef struct {
  loop_kind kind;
  hp_shape space;
  VEC(loop_value) value;
  VEC(loop_store) store;
  hp_status failed; /* of the first bad call; its message is in err_message() */
} loop;

/* --- building ------------------------------------------------------------------------------ */

/* Starts a kernel over `space`.  An invalid builder call returns -1 and poisons the loop: build
 * without checks and call loop_status once.  Builders return value numbers. */
void loop_begin(loop *l, loop_kind kind, const hp_shape *space);
void loop_free(loop *l);
/* Load of input `operand`; stride has space.rank entries. */
int loop_in(loop *l, int operand, hp_dtype type, const int64_t *stride, int64_t offset);
int loop_const(loop *l, float x);
int loop_int(loop *l, int64_t x);
int loop_iota(loop *l, int dim, int64_t from);
/* Uniform random numbers; `seed` is an integer that is constant over the loop. */
int loop_uniform(loop *l, int seed, int64_t stream, const int64_t *stride, int64_t offset);
int loop_cast(loop *l, hp_dtype type, int a);
/* An elementwise op by name ("add", "exp", "select", ...); unused b and c are -1. */
int loop_op(loop *l, const char *name, int a, int b, int c);
/* "sum", "prod", "max", "min" over the reduced dim. */
int loop_reduce(loop *l, const char *name, int a);
void loop_out(loop *l, int operand, hp_dtype type, const int64_t *stride, int64_t offset,
              int value);
/* Stores "sum", "prod", "max" or "min" of a value over all dims but the last, of a row kernel. */
void loop_fold(loop *l, const char *name, int operand, hp_dtype type, const int64_t *stride,
               int64_t offset, int value);
/* HP_OK if the loop is complete and valid: every rule above holds, and every index is in range. */
hp_status loop_status(const loop *l);

loop_class loop_class_of(hp_dtype type);

/* Is it accessed by strides, like a load? */
static inline bool loop_has_strides(const loop_value *v) {
  return v->what == LOOP_IN || v->what == LOOP_UNIFORM;
}

/* --- text ---------------------------------------------------------------------------------- */

/* Canonical text; `sep` between lines: "\n" for people, "; " as an attribute. */
void loop_print(const loop *l, const char *sep, str *out);
/* Reads it back; `where` is its name in messages.  HP_ERR_INPUT with the line on errors. */
hp_status loop_parse(const char *text, size_t n, const char *where, loop *out);

/* --- questions ----------------------------------------------------------------------------- */

int loop_inputs(const loop *l); /* 1 + the largest input number; 0 without inputs */
int loop_outputs(const loop *l);
/* Lowest and highest touched element of an input or output, and its type; false if the operand
 * is unused or the space is empty.  The caller that runs a loop must check its buffers against
 * this. */
bool loop_extent(const loop *l, bool output, int operand, hp_dtype *type, int64_t *low,
                 int64_t *high);
/* Cost: machine operations (an exp counts 24), and the least bytes to be moved. */
void loop_cost(const loop *l, double *flops, double *bytes);

/* A short name of its computation: "adamw", "norm", else its first ops: "mul+add+sum". */
void loop_title(const loop *l, char *text, size_t size);

/* --- compiling and running ----------------------------------------------------------------- */

typedef enum {
  LOOP_ISA_BEST,
  LOOP_ISA_PLAIN,
  LOOP_ISA_AVX2,
  LOOP_ISA_AVX512,
  LOOP_ISA_AVX512_BF16
} loop_isa;

typedef struct {
  loop_isa isa;          /* zero: the best of this machine */
  bool interpret;        /* never compile */
  int jobs;              /* compilers at once; 0 = cores */
  const char *cc;        /* NULL: $CC, else cc, gcc or clang of $PATH */
  const char *cache_dir; /* NULL: $HYPER_CACHE, $XDG_CACHE_HOME/hyperparallel, ~/.cache/... */
  int lock_ms;           /* time to wait for another process that compiles; 0: two seconds */
} loop_options;

/* Kernels of one program or of several.  Kernels of equal structure share code, for any sizes. */
typedef struct loop_module loop_module;
typedef struct loop_kernel loop_kernel;

/* o may be NULL. */
hp_status loop_module_create(const loop_options *o, loop_module **out);
/* One more owner: it is freed when each of them has called loop_module_free.  Owners add and build
 * one at a time; kernels that are built run meanwhile. */
loop_module *loop_module_share(loop_module *m);
/* Frees the kernels too; compiled code stays mapped until the process ends. */
void loop_module_free(loop_module *m);
/* Adds a kernel; the loop is not kept.  *out belongs to the module and runs after the build. */
hp_status loop_module_add(loop_module *m, const loop *l, loop_kernel **out);
/* The kernel of a loop in text form, the same one when the text is asked for again; `where` is its
 * name in messages. */
hp_status loop_module_add_text(loop_module *m, const char *text, size_t n, const char *where,
                               loop_kernel **out);
/* loop_inputs, loop_outputs and loop_extent of its loop. */
int loop_kernel_inputs(const loop_kernel *k);
int loop_kernel_outputs(const loop_kernel *k);
bool loop_kernel_extent(const loop_kernel *k, bool output, int operand, hp_dtype *type,
                        int64_t *low, int64_t *high);
/* Finds or compiles the added kernels.  Without a working compiler, kernels are interpreted
 * (same bits, slow), with one warning; that is no failure. */
hp_status loop_module_build(loop_module *m);
/* Numbers of kernels and of structures, and the origin of the code. */
typedef struct {
  int kernels, structures, compiled, cached, interpreted;
  int printed; /* kernels whose C text was made */
  double compile_s;
} loop_module_stats;
loop_module_stats loop_module_report(const loop_module *m);

/* A kernel runs in phases, one after the other (mostly one); each is divided into work items
 * (parts) that may run at the same time, in any order, on any thread. */
int loop_phases(const loop_kernel *k);
int64_t loop_parts(const loop_kernel *k, int phase);
/* Bytes of 64-byte aligned work memory shared by all parts of a run; 0 for most kernels. */
size_t loop_scratch(const loop_kernel *k);
/* Parts from..to-1.  in and out: base addresses by operand number, aligned to their type. */
void loop_run_parts(const loop_kernel *k, int phase, const void *const *in, void *const *out,
                    void *scratch, int64_t from, int64_t to);
/* All of it, on a pool (NULL: the calling thread). */
void loop_run(const loop_kernel *k, const void *const *in, void *const *out, void *scratch,
              pool *p);

#endif
