/* What attention.c hands to its kernels: shapes, tiles, and where work memory lies.  A kernel runs
 * one item of work; which thread runs it, and when, changes no bit. */
#ifndef ATTN_JOB_H
#define ATTN_JOB_H

#include "backend/cpu/attn/attention.h"
#include "base/round.h"

#include <stdatomic.h>

enum {
  ATTN_BLOCK = 64,    /* keys of one online-softmax step */
  ATTN_SEGMENT = 256, /* keys whose running softmax starts anew, so that threads can share a row */
  ATTN_LANES = 32,    /* query rows of a tile */
  ATTN_FWD_TILES = 8, /* tiles that share a packed block of keys */
  ATTN_BWD_TILES = 4,
  ATTN_FEW = 8,     /* up to so many rows of a key head go without tiles: decoding */
  ATTN_ABREAST = 4, /* key heads that these take at a time */
  ATTN_MAX_DIM = 512
};

typedef struct attn_job attn_job;
/* An item that a thread has claimed; past the last: there is none.  prefetched: its first rows have
 * been prefetched. */
typedef struct {
  int64_t item;
  bool prefetched;
} attn_claimed;
/* Runs an item and returns the thread's next, which may have been claimed meanwhile. */
typedef attn_claimed attn_item_fn(attn_job *j, attn_claimed claimed, float *work);
struct attn_job {
  const attn_spec *s;
  attn_view q, k, v, o, d_o, dq, dk, dv;
  const float *lse_in;
  float *lse_out;
  bool half;               /* q, k, v are bf16: weights are rounded to it before they meet values */
  int64_t group, rows;     /* query heads of a key head; query rows of a key head */
  int64_t Dp, Dvp;         /* D and Dv rounded up to 16 */
  int64_t tiles, per_head; /* tiles of a key head; of one query head, 0 where tiles span heads */
  int64_t chunks;  /* forward: items that the tiles of a key head, or, with few rows, the key heads
                      of a sequence are dealt to */
  int64_t abreast; /* with few rows: key heads that are dealt together */
  int64_t segment0, segments; /* with few rows, those alone that hold keys which a row sees */
  bool split;                 /* forward: an item does one segment; its state goes to `partial` */
  float *partial;             /* [B, KV, segments, rows, 16 + Dvp]: m, l, ..., sums over v */
  const attn_pages *pages;    /* of keys and values; NULL: they are rows */
  const float *before;        /* attn_part; NULL: nothing */
  float *after;               /* attn_part; NULL: o is written */
  /* With few rows in pages sequences have as many segments as they have keys: items are those of
   * sequences from first_b on, and segment i of sequence b is segment0_of[b] + i of its keys, and
   * has number first_of[b] + i. */
  int64_t first_b, *first_of;
  int32_t *segment0_of;
  int64_t kv_items, q_items; /* backward, per key head: items for dk and dv, items for dq;
                                1 and 0: one item does everything */
  attn_item_fn *run;
  int64_t items, threads;
  atomic_llong next;
  char *work;
  size_t work_each; /* bytes per thread */
};

static inline attn_claimed attn_claim(attn_job *j) {
  return (attn_claimed){atomic_fetch_add(&j->next, 1), false};
}
/* Are there so many that none of the threads is left without one when another claims ahead? */
static inline bool attn_many_left(attn_job *j) {
  return atomic_load(&j->next) + j->threads <= j->items;
}

/* Tiles of query rows against keys: item = (b, kv head, chunk of tiles [, segment]). */
attn_item_fn attn_tiles_plain, attn_tiles_avx2, attn_tiles_avx512;
attn_item_fn attn_tiles_dot; /* of `half`, by bf16 dot instructions */
/* Few rows against one segment of keys: item = (b, chunk of kv heads, segment). */
attn_item_fn attn_few_plain, attn_few_avx2, attn_few_avx512;
/* The same of keys and values in pages: item = (segment of a sequence, chunk of kv heads). */
attn_item_fn attn_page_plain, attn_page_avx2, attn_page_avx512;
/* Joins the segments of a key head's rows in `partial` and writes o: item = (b, kv head). */
attn_item_fn attn_join_plain, attn_join_avx2, attn_join_avx512;
attn_item_fn attn_page_join_plain, attn_page_join_avx2, attn_page_join_avx512;
/* Gradients: item = (b, kv head, part). */
attn_item_fn attn_grads_plain, attn_grads_avx2, attn_grads_avx512;
attn_item_fn attn_grads_dot;

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* What attention.c and attn_paged.c share: checks; all that follows from the shapes; how tiles are
 * dealt to threads; whether a call goes without tiles, and whether weights are rounded to bf16;
 * *total += n * each * floats, in bytes; the kernel of tiles; and running items. */
hp_status attn_check(const attn_spec *s);
void attn_plan_shapes(const attn_spec *s, attn_job *j);
void attn_plan_forward(attn_job *j, int threads);
bool attn_is_few(const attn_job *j);
bool attn_is_half(const attn_job *j);
hp_status attn_add_bytes(size_t *total, int64_t n, int64_t each, int64_t floats);
attn_item_fn *attn_tiles_for(const attn_job *j, cpu_isa isa);
void attn_run(pool *p, attn_job *j, attn_item_fn *run, int64_t items);

static inline void keys_of_row(const attn_spec *s, int64_t b, int64_t t, int32_t *lo_out,
                               int32_t *hi_out) {
  int64_t pos = t + s->Tk - s->Tq, anchor = pos, lo = 0, hi = s->Tk - 1;
  if (s->span) {
    const int32_t *at = s->span + 2 * (b * s->Tq + t);
    lo = at[0], anchor = hi = at[1];
  } else if (s->causal) {
    hi = pos;
  }
  if (s->window > 0 && s->window <= anchor - lo) lo = anchor - s->window + 1;
  if (lo < 0) lo = 0;
  if (hi > s->Tk - 1) hi = s->Tk - 1;
  *lo_out = hi < lo ? INT32_MAX : (int32_t)lo;
  *hi_out = hi < lo ? -1 : (int32_t)hi;
}

/* Where the block of key j of sequence b lies: elements from the beginning of a pool. */
static inline int64_t page_at(const attn_job *j, const attn_view *x, int64_t b, int64_t key) {
  const attn_pages *g = j->pages;
  int64_t block0 = b / (j->s->B / g->groups) * g->blocks;
  int64_t block = g->table[b * g->width + key / ATTN_PAGE] - (g->part ? g->part->first : 0);
  return (block0 + block) * x->sb;
}

/* The first number of a row's state (attn_part); row: of a key head. */
static inline int64_t state_at(const attn_job *j, int64_t b, int64_t kv, int64_t row) {
  int64_t h = kv * j->group + row / j->s->Tq, t = row % j->s->Tq;
  return ((b * j->s->Tq + t) * j->s->H + h) * (ATTN_STATE + j->Dvp);
}

/* Floats of work memory that one item needs. */
static inline int64_t attn_tiles_floats(int64_t Dp, int64_t Dvp) {
  int64_t keys = ATTN_BLOCK * (Dp + Dvp), scores = 2 * ATTN_BLOCK * ATTN_LANES;
  return keys + scores + ATTN_FWD_TILES * ATTN_LANES * (Dp + 2 * Dvp);
}
static inline int64_t attn_few_floats(int64_t heads, int64_t Dp, int64_t Dvp) {
  return heads * ATTN_FEW * (3 + Dp + Dvp + ATTN_BLOCK);
}
static inline int64_t attn_grads_floats(int64_t Tk, int64_t Dp, int64_t Dvp) {
  int64_t keys = round_up(Tk, ATTN_BLOCK) * (3 * Dp + 2 * Dvp);
  int64_t scores = 3 * ATTN_BLOCK * ATTN_LANES;
  return keys + scores + ATTN_BWD_TILES * ATTN_LANES * (3 * Dp + 2 * Dvp);
}

#endif
