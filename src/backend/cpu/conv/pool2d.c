#include "backend/cpu/conv/pool2d.h"

#include "backend/cpu/conv/conv_plan.h"
#include "base/dtype.h"
#include "base/mem.h"

#include <stdatomic.h>

typedef struct {
  const pool_spec *s;
  pool_plane_fn *plane;
  const conv_kernels *own;
  const gemm_kernels *gemm;
  const char *a, *b;
  char *out, *work;
  int64_t a_n, b_n, out_n; /* elements of a plane */
  atomic_llong next;
} job;

static int64_t count_pixels(const int64_t *size) { return size[0] * size[1]; }

/* Floats that a thread needs: a row, and, for 16-bit types, the planes. */
static int64_t count_floats(const pool_spec *s) {
  int64_t wide = s->type == HP_F32 ? 0 : 2 * count_pixels(s->size) + count_pixels(s->result);
  return (s->size[1] + wide + 15) / 16 * 16;
}

hp_status pool_work(const pool_spec *s, int threads, size_t *bytes) {
  if (!size_mul((size_t)count_floats(s) * sizeof(float), (size_t)threads, bytes))
    HP_FAIL(HP_ERR_OOM, "the pooling needs more work memory than can be addressed");
  return HP_OK;
}

/* Plane i of `from`, as floats; 16-bit ones go to *room. */
static const float *widen_plane(const job *j, const char *from, int64_t i, int64_t n,
                                float **room) {
  if (!from) return NULL;
  from += i * n * (int64_t)dtype_size(j->s->type);
  if (j->s->type == HP_F32) return (const float *)(const void *)from;
  float *to = *room;
  j->own->widen(to, from, j->s->type, n, 1);
  *room += n;
  return to;
}

static void run_thread(void *ctx, int64_t thread) {
  job *j = ctx;
  const pool_spec *s = j->s;
  float *row = (float *)(void *)j->work + thread * count_floats(s);
  for (int64_t i; (i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < s->planes;) {
    float *room = row + s->size[1];
    char *to = j->out + i * j->out_n * (int64_t)dtype_size(s->type);
    const float *a = widen_plane(j, j->a, i, j->a_n, &room),
                *b = widen_plane(j, j->b, i, j->b_n, &room);
    float *out = s->type == HP_F32 ? (float *)(void *)to : room;
    j->plane(s, a, b, out, row);
    if (s->type != HP_F32)
      j->gemm->finish(out, j->out_n, 1, j->out_n, 1, NULL, NULL, to, s->type, j->out_n, 1);
  }
}

void pool_planes(cpu_isa isa, pool *threads, const pool_spec *s, const void *a, const void *b,
                 void *out, void *work) {
  static pool_plane_fn *const plane[ISA_COUNT] = ISA_TABLE(pool_plane);
  conv_shape kernels = {0};
  conv_kernels_of(isa, &kernels);
  bool forward = s->kind == POOL_MAX || s->kind == POOL_AVG;
  job j = {.s = s, .plane = plane[isa], .own = kernels.own, .gemm = kernels.gemm};
  j.a = a;
  j.b = s->kind == POOL_MAX_DX ? b : NULL;
  j.out = out;
  j.work = work;
  j.a_n = count_pixels(forward ? s->size : s->result);
  j.b_n = count_pixels(s->size);
  j.out_n = count_pixels(forward ? s->result : s->size);
  if (s->planes > 0 && j.out_n > 0)
    pool_run(threads, conv_least(pool_size(threads), s->planes), run_thread, &j);
}
