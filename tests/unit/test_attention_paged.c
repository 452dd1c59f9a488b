/* Attention to keys and values in pages has the bits of attention to rows, wherever the pages lie
 * and whatever else is in them. */
#include "rounded.h"
#include "test.h"

#include "backend/cpu/attn/attention.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  attn_spec s; /* Tk: room of the rows */
  attn_pages g;
  hp_dtype dtype;
  size_t size;
  int64_t *length; /* keys of each sequence */
  int32_t *span, *table;
  char *q, *k, *v, *o;           /* rows */
  char *pool_k, *pool_v, *paged; /* the same in pages; what they give */
} problem;

static void *zeroed(int64_t n, size_t size) {
  void *p = mem_calloc((size_t)(n ? n : 1), size);
  CHECK(p);
  return p;
}

static char *random_values(int64_t n, uint64_t stream, hp_dtype t) {
  float *x = zeroed(n, sizeof *x);
  char *y = zeroed(n, dtype_size(t));
  memcpy(x, shared_normals(11, stream, n), (size_t)n * sizeof *x);
  CHECK_OK(dtype_convert(t, y, HP_F32, x, (size_t)n));
  mem_free(x);
  return y;
}

/* Blocks of the sequences in an order without order, none twice; sequence 1 of a group shares its
 * first block with sequence 0. */
static void deal_blocks(problem *p) {
  int64_t each = p->s.B / p->g.groups, n = p->g.blocks;
  for (int64_t b = 0; b < p->s.B; b++) {
    int64_t used = (p->length[b] + ATTN_PAGE - 1) / ATTN_PAGE;
    for (int64_t i = 0; i < p->g.width; i++) {
      int64_t index = (b % each) * p->g.width + i;
      p->table[b * p->g.width + i] = i < used ? (int32_t)((index * 7 + 3) % n) : -1;
    }
  }
}

/* Moves the rows of a sequence into its pages; all else there is NaN. */
static void fill_pages(problem *p) {
  const attn_spec *s = &p->s;
  int64_t each = s->B / p->g.groups, n = p->g.groups * p->g.blocks * s->KV * ATTN_PAGE;
  memset(p->pool_k, 0xff, (size_t)(n * s->D) * p->size);
  memset(p->pool_v, 0xff, (size_t)(n * s->Dv) * p->size);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t t = 0; t < p->length[b]; t++)
      for (int64_t h = 0; h < s->KV; h++) {
        int64_t block = b / each * p->g.blocks + p->table[b * p->g.width + t / ATTN_PAGE];
        int64_t page = block * s->KV + h, row = (b * s->Tk + t) * s->KV + h, in = t % ATTN_PAGE;
        for (int64_t d = 0; d < s->D; d++)
          memcpy(p->pool_k + (size_t)((page * s->D + d) * ATTN_PAGE + in) * p->size,
                 p->k + (size_t)(row * s->D + d) * p->size, p->size);
        memcpy(p->pool_v + (size_t)((page * ATTN_PAGE + in) * s->Dv) * p->size,
               p->v + (size_t)(row * s->Dv) * p->size, (size_t)s->Dv * p->size);
      }
}

/* B sequences with lengths from 0 to `most`; the queries of each are its last tokens. */
static problem make(attn_spec s, int64_t groups, int64_t most, hp_dtype t) {
  problem p = {.s = s, .dtype = t, .size = dtype_size(t)};
  p.g = (attn_pages){groups, 0, (most + ATTN_PAGE - 1) / ATTN_PAGE + 1, NULL, NULL};
  p.g.blocks = s.B / groups * p.g.width + 3;
  while (p.g.blocks % 7 == 0) p.g.blocks++;
  p.s.Tk = p.g.width * ATTN_PAGE;
  p.length = zeroed(s.B, sizeof *p.length);
  p.span = zeroed(s.B * s.Tq * 2, sizeof *p.span);
  p.g.table = p.table = zeroed(s.B * p.g.width, sizeof *p.table);
  for (int64_t b = 0; b < s.B; b++) {
    p.length[b] = b == 0   ? most
                  : b == 1 ? 0
                           : (int64_t)(philox_uniform(3, 5, (uint64_t)b) * (float)most);
    for (int64_t i = 0; i < s.Tq; i++) {
      int64_t hi = p.length[b] - s.Tq + i;
      int32_t *at = p.span + 2 * (b * s.Tq + i);
      at[0] = i % 5 == 4 ? 3 : 0, at[1] = (int32_t)hi; /* negative: none */
    }
  }
  deal_blocks(&p);
  p.s.span = p.span;
  p.q = random_values(s.B * s.Tq * s.H * s.D, 1, t);
  p.k = random_values(s.B * p.s.Tk * s.KV * s.D, 2, t);
  p.v = random_values(s.B * p.s.Tk * s.KV * s.Dv, 3, t);
  p.o = zeroed(s.B * s.Tq * s.H * s.Dv, p.size);
  p.paged = zeroed(s.B * s.Tq * s.H * s.Dv, p.size);
  p.pool_k = zeroed(groups * p.g.blocks * s.KV * ATTN_PAGE * s.D, p.size);
  p.pool_v = zeroed(groups * p.g.blocks * s.KV * ATTN_PAGE * s.Dv, p.size);
  fill_pages(&p);
  return p;
}

static void drop(problem *p) {
  void *all[] = {p->length, p->span, p->table, p->q,      p->k,
                 p->v,      p->o,    p->paged, p->pool_k, p->pool_v};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) mem_free(all[i]);
}

static attn_view rows(void *at, hp_dtype t, int64_t T, int64_t heads, int64_t D) {
  return (attn_view){at, t, T * heads * D, heads * D, D};
}

static void *aligned_work(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
  CHECK(p);
  memset(p, 0xff, bytes);
  return p;
}

static void run_rows(problem *p) {
  const attn_spec *s = &p->s;
  pool *threads;
  size_t bytes;
  attn_view q = rows(p->q, p->dtype, s->Tq, s->H, s->D),
            o = rows(p->o, p->dtype, s->Tq, s->H, s->Dv);
  attn_view k = rows(p->k, p->dtype, s->Tk, s->KV, s->D),
            v = rows(p->v, p->dtype, s->Tk, s->KV, s->Dv);
  CHECK_OK(pool_create(2, false, &threads));
  CHECK_OK(attn_forward_work(s, 2, &bytes));
  void *work = aligned_work(bytes);
  CHECK_OK(attn_forward(cpu_best_isa(), threads, s, &q, &k, &v, &o, NULL, work));
  free(work);
  pool_free(threads);
}

static hp_status run_pages(problem *p, cpu_isa isa, int n) {
  const attn_spec *s = &p->s;
  pool *threads;
  size_t bytes;
  attn_view q = rows(p->q, p->dtype, s->Tq, s->H, s->D);
  attn_view o = rows(p->paged, p->dtype, s->Tq, s->H, s->Dv);
  int64_t head_k = s->D * ATTN_PAGE, head_v = s->Dv * ATTN_PAGE;
  attn_view k = {p->pool_k, p->dtype, s->KV * head_k, ATTN_PAGE, head_k};
  attn_view v = {p->pool_v, p->dtype, s->KV * head_v, s->Dv, head_v};
  CHECK_OK(pool_create(n, false, &threads));
  CHECK_OK(attn_paged_work(s, &p->g, n, &bytes));
  void *work = aligned_work(bytes);
  hp_status st = attn_paged(isa, threads, s, &p->g, &q, &k, &v, &o, work);
  free(work);
  pool_free(threads);
  return st;
}

static void check_case(attn_spec s, int64_t groups, int64_t most, hp_dtype t) {
  problem p = make(s, groups, most, t);
  size_t n = (size_t)(s.B * s.Tq * s.H * s.Dv) * p.size;
  run_rows(&p);
  for (int isa = ISA_COUNT; isa-- > 0;)
    for (int threads = 1; threads <= 16 && cpu_has_isa((cpu_isa)isa);
         threads += threads == 1 ? 2 : 13) {
      if (isa == ISA_PLAIN && threads > 1) continue;
      memset(p.paged, 0x55, n);
      CHECK_OK(run_pages(&p, (cpu_isa)isa, threads));
      if (memcmp(p.o, p.paged, n))
        test_fail(__FILE__, __LINE__,
                  "B%d T%d H%d/%d D%d/%d window %d %s: other bits, %s, %d threads", (int)s.B,
                  (int)s.Tq, (int)s.H, (int)s.KV, (int)s.D, (int)s.Dv, (int)s.window, dtype_name(t),
                  cpu_isa_name((cpu_isa)isa), threads);
    }
  drop(&p);
}

/* B, groups, longest, Tq, H, KV, D, Dv, window */
static const int shapes[][9] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},       {4, 1, 300, 1, 12, 12, 64, 64, 0},
    {6, 2, 90, 1, 6, 2, 40, 24, 0},    {3, 1, 700, 1, 8, 2, 128, 128, 0},
    {2, 1, 1300, 1, 7, 7, 72, 88, 50}, {3, 3, 600, 1, 5, 5, 17, 31, 100},
    {2, 1, 65, 4, 2, 1, 33, 47, 0},    {2, 2, 333, 7, 3, 3, 16, 16, 20},
    {3, 1, 200, 33, 4, 2, 64, 64, 0},  {2, 1, 640, 130, 3, 1, 24, 20, 70},
    {1, 1, 1200, 20, 2, 1, 19, 35, 0}, {4, 2, 150, 150, 2, 2, 192, 128, 0},
    {2, 1, 40, 9, 1, 1, 512, 300, 0},
};

TEST(attention_to_pages_has_the_bits_of_attention_to_rows) {
  static const hp_dtype types[] = {HP_F32, HP_BF16, HP_F16};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int t = 0; t < 3; t++) {
      const int *x = shapes[i];
      attn_spec s = {x[0], x[3], 0, x[4], x[5], x[6], x[7], 0.2f, false, x[8], NULL, {.p = 0}};
      check_case(s, x[1], x[2], types[t]);
    }
}

/* The blocks of a part, copied from the pool: segment i of every sequence, then segment i + 1, as
 * many blocks as the part has, and the table of all of them. */
static void deal_parts(problem *whole, problem *p, int64_t slots) {
  enum { SEGMENT = 8 };
  const attn_spec *s = &p->s;
  size_t k = (size_t)(s->KV * s->D * ATTN_PAGE) * p->size;
  size_t v = (size_t)(s->KV * s->Dv * ATTN_PAGE) * p->size;
  int64_t width = p->g.width, each = s->B / p->g.groups, parts = 0;
  int64_t room = each * (width + SEGMENT) + slots;
  p->table = zeroed(s->B * width, sizeof *p->table);
  p->pool_k = zeroed(p->g.groups * room, k);
  p->pool_v = zeroed(p->g.groups * room, v);
  for (int64_t g = 0; g < p->g.groups; g++) {
    int64_t next = 0;
    for (int64_t i = 0; i < width; i += SEGMENT)
      for (int64_t b = g * each; b < (g + 1) * each; b++) {
        if (i * ATTN_PAGE >= p->length[b]) continue;
        for (int64_t n = i; n < i + SEGMENT && n < width; n++) {
          int32_t from = whole->table[b * width + n];
          p->table[b * width + n] = (int32_t)(next + n - i);
          if (from < 0) continue;
          int64_t to =
              (next + n - i) / slots * p->g.groups * slots + g * slots + (next + n - i) % slots;
          memcpy(p->pool_k + (size_t)to * k, whole->pool_k + (size_t)(g * p->g.blocks + from) * k,
                 k);
          memcpy(p->pool_v + (size_t)to * v, whole->pool_v + (size_t)(g * p->g.blocks + from) * v,
                 v);
        }
        next += SEGMENT;
      }
    if ((next + slots - 1) / slots > parts) parts = (next + slots - 1) / slots;
  }
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t n = (p->length[b] + ATTN_PAGE * SEGMENT - 1) / (ATTN_PAGE * SEGMENT) * SEGMENT;
         n < width; n++)
      p->table[b * width + n] = -1;
  p->g.table = p->table;
  p->g.blocks = slots;
  p->length[0] = parts; /* for the caller */
}

/* Part by part, with the state of each handed to the next. */
static void check_parts(attn_spec s, int64_t groups, int64_t most, hp_dtype t, int64_t slots) {
  problem p = make(s, groups, most, t), x = p;
  int64_t first = p.length[0], state = s.B * s.Tq * s.H * (ATTN_STATE + (s.Dv + 15) / 16 * 16);
  size_t n = (size_t)(s.B * s.Tq * s.H * s.Dv) * p.size;
  size_t k = (size_t)(groups * slots * s.KV * s.D * ATTN_PAGE) * p.size;
  size_t v = (size_t)(groups * slots * s.KV * s.Dv * ATTN_PAGE) * p.size;
  float *kept = zeroed(state, sizeof *kept);
  CHECK_OK(run_pages(&p, cpu_best_isa(), 2));
  memcpy(p.o, p.paged, n);
  deal_parts(&p, &x, slots);
  int64_t parts = p.length[0];
  p.length[0] = first;
  for (int isa = 0; isa < ISA_COUNT; isa++) {
    if (!cpu_has_isa((cpu_isa)isa)) continue;
    problem y = x;
    memset(p.paged, 0x55, n);
    for (int64_t i = 0; i < parts; i++) {
      const attn_part part = {i * slots, i ? kept : NULL, i + 1 < parts ? kept : NULL};
      y.g.part = &part;
      CHECK_OK(run_pages(&y, (cpu_isa)isa, 2));
      y.pool_k += k, y.pool_v += v;
    }
    if (memcmp(p.o, p.paged, n))
      test_fail(__FILE__, __LINE__, "B%d T%d H%d/%d %s, parts of %d blocks: other bits, %s",
                (int)s.B, (int)s.Tq, (int)s.H, (int)s.KV, dtype_name(t), (int)slots,
                cpu_isa_name((cpu_isa)isa));
  }
  mem_free(x.table);
  mem_free(x.pool_k);
  mem_free(x.pool_v);
  mem_free(kept);
  drop(&p);
}

TEST(attention_in_parts_has_the_bits_of_attention_to_all) {
  static const hp_dtype types[] = {HP_F32, HP_BF16};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int t = 0; t < 2; t++)
      for (int64_t slots = t ? 16 : 8; slots <= 32; slots *= 4) {
        const int *x = shapes[i];
        attn_spec s = {x[0], x[3], 0, x[4], x[5], x[6], x[7], 0.2f, false, x[8], NULL, {.p = 0}};
        check_parts(s, x[1], x[2], types[t], slots);
      }
}

/* Many sequences that share all their blocks have more segments than the pool. */
TEST(sequences_may_share_more_pages_than_there_are) {
  attn_spec s = {9, 1, 0, 4, 2, 16, 16, 0.2f, false, 0, NULL, {.p = 0}};
  problem p = make(s, 1, 900, HP_F32);
  p.g.blocks = p.g.width; /* and so the states have little room */
  for (int64_t b = 0; b < s.B; b++) {
    p.length[b] = 900;
    p.span[2 * b + 1] = 899;
    for (int64_t i = 0; i < p.g.width; i++) p.table[b * p.g.width + i] = (int32_t)i;
    memcpy(p.k + (size_t)(b * p.s.Tk * s.KV * s.D) * p.size, p.k,
           (size_t)(p.s.Tk * s.KV * s.D) * p.size);
    memcpy(p.v + (size_t)(b * p.s.Tk * s.KV * s.Dv) * p.size, p.v,
           (size_t)(p.s.Tk * s.KV * s.Dv) * p.size);
  }
  fill_pages(&p);
  run_rows(&p);
  CHECK_OK(run_pages(&p, cpu_best_isa(), 3));
  CHECK(!memcmp(p.o, p.paged, (size_t)(s.B * s.H * s.Dv) * p.size));
  drop(&p);
}

TEST(a_visible_key_needs_a_block_of_the_pool) {
  attn_spec s = {2, 1, 0, 2, 1, 8, 8, 0.2f, false, 0, NULL, {.p = 0}};
  problem p = make(s, 1, 40, HP_F32);
  p.table[1] = -1;
  CHECK_FAILS(run_pages(&p, cpu_best_isa(), 1), "sequence 0 sees key 32, which is in block -1");
  p.table[1] = (int32_t)p.g.blocks;
  CHECK_FAILS(run_pages(&p, cpu_best_isa(), 1), "the pool has blocks");
  p.span[1] = 31; /* hidden: it need not be there */
  CHECK_OK(run_pages(&p, cpu_best_isa(), 1));
  p.g.groups = 3;
  size_t bytes;
  CHECK_FAILS(attn_paged_work(&p.s, &p.g, 1, &bytes), "whole number of sequences a group");
  drop(&p);
}
