/* hyperparallel.h - write a model as if the supernode were one computer: build a tensor
 * graph, compile it to a flat program with a static memory plan, run it.  This is the
 * whole public API.
 *
 *   errors     a call that can fail returns hp_status; HP_OK is 0.  The reason, in words,
 *              is in hp_last_error() of the calling thread: what failed, where in the
 *              model or file, what was expected, what to do.  On failure outputs are
 *              untouched.  Op builders return a tensor id; a bad call returns HP_NONE and
 *              poisons its graph, so a model is written without checks and hp_compile (or
 *              hp_graph_status) reports the FIRST error.
 *   ownership  create/free pair up; free accepts NULL.  A graph owns its tensors, a program
 *              its work memory, a state the parameters that programs share.  `const char *`
 *              results live as long as their object; `char **` results go to hp_free.
 *   threads    a graph, a state and the programs that share it belong to one thread at a
 *              time.  hp_run uses the threads of the device itself.
 *   bits       same graph, seed and layout: the same bits on every run.  In f32 on CPU they
 *              do not depend on threads or on the instruction set.
 */
#ifndef HYPERPARALLEL_H
#define HYPERPARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HP_MAX_RANK 6 /* dims of a tensor */

typedef enum {
  HP_OK,
  HP_ERR_ARG,         /* a call, flag or configuration value that makes no sense        */
  HP_ERR_INPUT,       /* a file or request that is damaged or is not what it should be  */
  HP_ERR_SHAPE,       /* operands of an op do not fit                                   */
  HP_ERR_LAYOUT,      /* a layout or strategy that cannot be                            */
  HP_ERR_OOM,         /* a memory limit, or the machine's memory, is too small          */
  HP_ERR_IO,          /* the operating system refused: no such file, disk full, ...     */
  HP_ERR_COMM,        /* a peer or a link failed                                        */
  HP_ERR_DEVICE,      /* the device failed                                              */
  HP_ERR_NUMERIC,     /* a value that must be finite is not                             */
  HP_ERR_UNSUPPORTED, /* known, but not built                                           */
  HP_ERR_INTERNAL     /* our bug                                                        */
} hp_status;

typedef enum { HP_F32, HP_BF16, HP_F16, HP_I32, HP_I64, HP_U8, HP_BOOL, HP_DTYPE_COUNT } hp_dtype;

typedef struct {
  int rank;
  int64_t dim[HP_MAX_RANK];
} hp_shape;

typedef struct hp_graph hp_graph;     /* SSA tensor graph                                */
typedef struct hp_state hp_state;     /* named tensors that outlive a run: parameters, ... */
typedef struct hp_program hp_program; /* flat instruction list and its memory plan       */
typedef uint32_t hp_tensor;           /* a value of its graph; HP_NONE is none           */
#define HP_NONE ((hp_tensor)0)

/* --- errors, version ------------------------------------------------------------------ */

/* The first failure of the calling thread since the last success, one line; "" if none. */
const char *hp_last_error(void);
/* The same with the back trace of the calls it passed through, one line each. */
const char *hp_error_trace(void);
const char *hp_status_name(hp_status s);
const char *hp_version(void);
void hp_free(void *p);

#ifdef __cplusplus
}
#endif
#endif
