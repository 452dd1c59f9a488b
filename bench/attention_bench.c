/* Time of attention, forward and backward:
 *   attention_bench [B T H KV D causal(0|1) threads] */
#include "backend/cpu/attention.h"
#include "base/mem.h"
#include "base/philox.h"

#include <stdio.h>
#include <stdlib.h>

static attn_view make(int64_t B, int64_t T, int64_t heads, int64_t D, uint64_t stream) {
  size_t n = (size_t)(B * T * heads * D);
  float *x = mem_map(n * sizeof *x);
  for (size_t i = 0; x && i < n; i++) x[i] = philox_normal(1, stream, i);
  return (attn_view){x, HP_F32, T * heads * D, heads * D, D};
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct {
  attn_spec s;
  attn_grad g;
  float *lse;
  pool *threads;
  cpu_isa isa;
  void *work;
} bench;

static void forward(bench *b) {
  if (attn_forward(b->isa, b->threads, &b->s, &b->g.q, &b->g.k, &b->g.v, &b->g.o, b->lse, b->work))
    exit(1);
}
static void backward(bench *b) {
  if (attn_backward(b->isa, b->threads, &b->s, &b->g, b->work)) exit(1);
}

/* Median of 15 calls after 3. */
static double time_of(void (*fn)(bench *), bench *b) {
  double t[15];
  for (int i = -3; i < 15; i++) {
    double from = time_now_s();
    fn(b);
    if (i >= 0) t[i] = time_now_s() - from;
  }
  qsort(t, 15, sizeof *t, by_value);
  return t[7];
}

int main(int argc, char **argv) {
  int64_t a[7] = {4, 256, 12, 12, 64, 1, 0};
  for (int i = 1; i < argc && i <= 7; i++) a[i - 1] = strtoll(argv[i], NULL, 10);
  bench b = {.s = {a[0], a[1], a[1], a[2], a[3], a[4], a[4], 0.125f, a[5] != 0, 0, NULL}};
  b.isa = cpu_best_isa();
  size_t forward_bytes, backward_bytes;
  if (pool_create((int)a[6], true, &b.threads) ||
      attn_forward_work(&b.s, pool_size(b.threads), &forward_bytes) ||
      attn_backward_work(&b.s, pool_size(b.threads), &backward_bytes)) {
    fprintf(stderr, "%s\n", err_message());
    return 2;
  }
  b.work = mem_map(forward_bytes > backward_bytes ? forward_bytes : backward_bytes);
  attn_view *q[] = {&b.g.q, &b.g.o, &b.g.d_o, &b.g.dq}, *k[] = {&b.g.k, &b.g.v, &b.g.dk, &b.g.dv};
  for (uint64_t i = 0; i < 4; i++) {
    *q[i] = make(a[0], a[1], a[2], a[4], i);
    *k[i] = make(a[0], a[1], a[3], a[4], 4 + i);
  }
  b.g.lse = b.lse = mem_map((size_t)(a[0] * a[1] * a[2]) * sizeof(float));
  if (!b.work || !b.lse) return 1;
  double f = time_of(forward, &b), w = time_of(backward, &b);
  double flops = 4.0 * (double)(a[0] * a[1] * a[1] * a[2] * a[4]) * (a[5] ? 0.5 : 1);
  printf("%s, %d threads, B %ld T %ld H %ld KV %ld D %ld %s: forward %.2f ms (%.0f GF/s), backward "
         "%.2f ms (%.0f GF/s), together %.2f ms\n",
         cpu_isa_name(b.isa), pool_size(b.threads), (long)a[0], (long)a[1], (long)a[2], (long)a[3],
         (long)a[4], a[5] ? "causal" : "full", f * 1e3, flops / f * 1e-9, w * 1e3,
         2.5 * flops / w * 1e-9, (f + w) * 1e3);
  return 0;
}
