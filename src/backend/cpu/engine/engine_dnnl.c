/* oneDNN 2.x, loaded if it is installed: matmul in f32, and in bf16 if the CPU has the
 * instructions.  It sums blocks of k in an order of its own.
 *
 * The library's OpenMP never starts a thread: each of the pool's threads runs a share, with
 * OpenMP set to one thread.  Primitives come from the library's cache; it allocates freely. */
#include "backend/cpu/engine/engine_dnnl.h"
#include "backend/cpu/engine/engine_table.h"

#if ENGINE_HAS_DNNL
#include "backend/cpu/engine/engine_split.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define CALLS(X)                                                                                   \
  X(engine_create)                                                                                 \
  X(stream_create)                                                                                 \
  X(stream_wait)                                                                                   \
  X(stream_destroy)                                                                                \
  X(memory_desc_init_by_strides)                                                                   \
  X(memory_create)                                                                                 \
  X(memory_destroy)                                                                                \
  X(matmul_desc_init)                                                                              \
  X(primitive_attr_create)                                                                         \
  X(primitive_attr_destroy)                                                                        \
  X(primitive_attr_set_output_scales)                                                              \
  X(primitive_attr_set_post_ops)                                                                   \
  X(post_ops_create)                                                                               \
  X(post_ops_append_sum)                                                                           \
  X(post_ops_destroy)                                                                              \
  X(primitive_desc_create)                                                                         \
  X(primitive_desc_destroy)                                                                        \
  X(primitive_create)                                                                              \
  X(primitive_execute)                                                                             \
  X(primitive_destroy)                                                                             \
  X(version)

#define MEMBER(name) __typeof__(&dnnl_##name) name;

/* The loaded library, written once; engine is NULL if there is none. */
static struct {
  pthread_once_t once;
  dnnl_engine_t engine;
  void (*omp_set_num_threads)(int);
  char text[32];
  CALLS(MEMBER)
} lib = {.once = PTHREAD_ONCE_INIT};

#define FIND(name)                                                                                 \
  *(void **)&lib.name = dlsym(so, "dnnl_" #name);                                                  \
  found = found && lib.name;

static void load_library(void) {
  void *so = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!so) return;
  bool found = true;
  CALLS(FIND)
  *(void **)&lib.omp_set_num_threads = dlsym(so, "omp_set_num_threads");
  if (!found || lib.version()->major != DNNL_VERSION_MAJOR ||
      lib.engine_create(&lib.engine, dnnl_cpu, 0) != dnnl_success) {
    lib.engine = NULL;
    return;
  }
  const dnnl_version_t *v = lib.version();
  snprintf(lib.text, sizeof lib.text, "%d.%d.%d", v->major, v->minor, v->patch);
}

static bool is_available(void) {
  pthread_once(&lib.once, load_library);
  return lib.engine;
}

static const char *get_version(void) { return lib.text; }

static bool supports_query(const gemm_query *query) {
  gemm_query transposed = engine_row_major(query, NULL), *q = &transposed;
  bool f32 = q->a_type == HP_F32 && q->c_type == HP_F32;
  bool bf16 = q->a_type == HP_BF16 && q->c_type != HP_F16 && cpu_best_isa() == ISA_AVX512_BF16;
  return !q->b_pack && q->a_type == q->b_type && (f32 || bf16) && q->m > 0 && q->n > 0 &&
         q->k > 0 && (q->a_m == 1 || q->a_k == 1) && (q->b_k == 1 || q->b_n == 1) && q->c_n == 1 &&
         q->n_batch + 2 <= DNNL_MAX_NDIMS && !(q->bias && q->alpha != 1);
}

static size_t get_no_workspace(const gemm_query *q, int threads) {
  (void)q, (void)threads;
  return 0;
}

typedef enum { IN_A, IN_B, IN_C, IN_BIAS, OPERANDS } operand;

/* Objects of a call that must be destroyed. */
typedef struct {
  dnnl_memory_desc_t desc[OPERANDS];
  dnnl_memory_t memory[OPERANDS];
  dnnl_primitive_attr_t attr;
  dnnl_post_ops_t post;
  dnnl_primitive_desc_t pd;
  dnnl_primitive_t primitive;
  dnnl_stream_t stream;
} call;

static dnnl_data_type_t to_dnnl_type(hp_dtype t) { return t == HP_F32 ? dnnl_f32 : dnnl_bf16; }

/* Batch dims with stride 0 are of size 1: the library broadcasts them. */
static dnnl_status_t describe_operand(const gemm_query *q, operand which, dnnl_memory_desc_t *out) {
  dnnl_dims_t dim, stride;
  int n = 0;
  for (; n < q->n_batch; n++) {
    const gemm_batch *b = &q->batch[n];
    int64_t s = which == IN_A ? b->a : which == IN_B ? b->b : which == IN_C ? b->c : 0;
    dim[n] = s ? b->size : 1;
    stride[n] = s ? s : 1;
  }
  const int64_t rows[] = {q->m, q->k, q->m, 1}, cols[] = {q->k, q->n, q->n, q->n};
  const int64_t s_row[] = {q->a_m, q->b_k, q->c_m, q->n}, s_col[] = {q->a_k, q->b_n, q->c_n, 1};
  const hp_dtype type[] = {q->a_type, q->b_type, q->c_type, HP_F32};
  dim[n] = rows[which], stride[n++] = s_row[which];
  dim[n] = cols[which], stride[n++] = s_col[which];
  return lib.memory_desc_init_by_strides(out, n, dim, to_dnnl_type(type[which]), stride);
}

static dnnl_status_t make_attr(const gemm_query *q, call *c) {
  dnnl_status_t s = lib.primitive_attr_create(&c->attr);
  if (!s && q->alpha != 1) s = lib.primitive_attr_set_output_scales(c->attr, 1, 0, &q->alpha);
  if (s || !q->accumulate) return s;
  if ((s = lib.post_ops_create(&c->post))) return s;
  if ((s = lib.post_ops_append_sum(c->post, 1))) return s;
  return lib.primitive_attr_set_post_ops(c->attr, c->post);
}

static dnnl_status_t make_call(const gemm_query *q, const gemm_args *args, call *c) {
  const void *const at[] = {args->a, args->b, args->c, args->bias};
  dnnl_status_t s = dnnl_success;
  int operands = q->bias ? OPERANDS : IN_BIAS;
  for (operand i = 0; i < (operand)operands && !s; i++) {
    if ((s = describe_operand(q, i, &c->desc[i]))) return s;
    s = lib.memory_create(&c->memory[i], &c->desc[i], lib.engine, (void *)(uintptr_t)at[i]);
  }
  dnnl_matmul_desc_t m;
  if (s || (s = make_attr(q, c))) return s;
  s = lib.matmul_desc_init(&m, &c->desc[IN_A], &c->desc[IN_B], q->bias ? &c->desc[IN_BIAS] : NULL,
                           &c->desc[IN_C]);
  if (s || (s = lib.primitive_desc_create(&c->pd, &m, c->attr, lib.engine, NULL))) return s;
  if ((s = lib.primitive_create(&c->primitive, c->pd))) return s;
  return lib.stream_create(&c->stream, lib.engine, dnnl_stream_default_flags);
}

static void free_call(call *c) {
  if (c->stream) lib.stream_destroy(c->stream);
  if (c->primitive) lib.primitive_destroy(c->primitive);
  if (c->pd) lib.primitive_desc_destroy(c->pd);
  if (c->post) lib.post_ops_destroy(c->post);
  if (c->attr) lib.primitive_attr_destroy(c->attr);
  for (int i = 0; i < OPERANDS; i++)
    if (c->memory[i]) lib.memory_destroy(c->memory[i]);
}

static hp_status run_share(const gemm_query *q, const gemm_args *args, int thread) {
  (void)thread;
  if (lib.omp_set_num_threads) lib.omp_set_num_threads(1); /* a per-thread setting */
  call c = {0};
  dnnl_status_t s = make_call(q, args, &c);
  if (!s) {
    const dnnl_exec_arg_t arg[] = {{DNNL_ARG_SRC, c.memory[IN_A]},
                                   {DNNL_ARG_WEIGHTS, c.memory[IN_B]},
                                   {DNNL_ARG_DST, c.memory[IN_C]},
                                   {DNNL_ARG_BIAS, c.memory[IN_BIAS]}};
    s = lib.primitive_execute(c.primitive, c.stream, q->bias ? 4 : 3, arg);
    if (!s) s = lib.stream_wait(c.stream);
  }
  free_call(&c);
  if (s)
    HP_FAIL(HP_ERR_DEVICE,
            "oneDNN refused a %lldx%lldx%lld matmul (status %d); use the engine \"packed\"",
            (long long)q->m, (long long)q->n, (long long)q->k, (int)s);
  return HP_OK;
}

static hp_status run_product(const gemm_query *q, const gemm_args *args, pool *threads,
                             void *work) {
  (void)work;
  return engine_split_run(q, args, threads, run_share);
}

const gemm_engine engine_onednn = {
    .name = "onednn",
    .about = "oneDNN, f32 and bf16",
    .available = is_available,
    .version = get_version,
    .supports = supports_query,
    .workspace = get_no_workspace,
    .run = run_product,
};
#endif
