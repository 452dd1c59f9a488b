/* Attention, backward.  An item walks the tiles of a key head in order, four at a time, and for
 * each block of keys recomputes p = exp(s - lse) and forms the five products while the block is in
 * cache: s = q k^T   dp = do v^T   dv += p^T do   ds = p (dp - delta)   dk += ds^T q   dq += ds k.
 * Dropout's mask multiplies dp before, and p after ds is formed; delta, the sum of o do, is what it
 * was: o has the mask in it.
 * With few key heads and many threads the keys (for dk, dv) and the tiles (for dq) are split over
 * items, which costs two products more and gives the same bits: each sum stays one chain. */
#include "backend/cpu/isa/attn_tile.h"

enum { BWD_ASK_KEYS = 256 };

typedef struct {
  tile_rows rows;
  float lse[ATTN_LANES], delta[ATTN_LANES]; /* lse in base 2 */
  float *q, *d_o;                           /* [steps of LANES][Dp], [steps of LANES][Dvp] */
  float *q_transposed, *d_o_transposed,
      *dq; /* [steps of Dp][LANES], [steps of Dvp][LANES], [Dp][LANES] */
} bwd_tile;

typedef struct {
  const attn_job *j;
  prefetch_list *prefetch;
  int64_t b, kv;
  int64_t first, step; /* its tiles */
  int64_t from, to;    /* keys, whole blocks */
  bool want_kv, want_q;
  float *k, *kt, *vt, *dk, *dv; /* of keys `from` on; per block k [steps of 64][Dp], kt and vt
                                   [steps of Dp][64], [steps of Dvp][64] */
  float *p, *ds, *ds_across;    /* [64][LANES]; ds as steps of sums over keys */
} bwd_keys;

/* From s and dp of keys from..to: p and ds, times the mask unless that is NULL, as steps of sums
 * over lanes, and ds as those of sums over keys. */
static void score_grads(const bwd_keys *w, const bwd_tile *t, int64_t kb, int from, int to,
                        const float *mask) {
  const bool all = tile_sees_all(&t->rows, kb, from, to), round = w->j->half;
  v16f lse[2], delta[2];
  for (int v = 0; v < 2; v++)
    lse[v] = v16_load(t->lse + 16 * v), delta[v] = v16_load(t->delta + 16 * v);
  for (int k = from; k < to; k += 2) {
    v16f p[2][2], ds[2][2];
    for (int i = 0; i < 2; i++)
      for (int v = 0; v < 2; v++) {
        int at = (k + i) * ATTN_LANES + 16 * v;
        v16f x = tile_exp2(v16_sub(v16_load(w->p + at), lse[v])), y = v16_load(w->ds + at);
        if (mask) y = v16_mul(y, v16_load(mask + at));
        y = v16_mul(x, v16_sub(y, delta[v]));
        if (mask) x = v16_mul(x, v16_load(mask + at));
        if (!all) {
          v16m hidden = tile_hidden(&t->rows, v, kb + k + i);
          x = v16_select(hidden, v16_zero(), x);
          y = v16_select(hidden, v16_zero(), y);
        }
        p[i][v] = x, ds[i][v] = y;
      }
    for (int i = 0; i < 2; i++) {
      steps_along(w->p, k + i, p[i][0], p[i][1], round);
      steps_along(w->ds, k + i, ds[i][0], ds[i][1], round);
    }
    for (int v = 0; v < 2 && TILE_PAIRS; v++)
      steps_across(w->ds_across + 16 * v, k, ds[0][v], ds[1][v], round);
  }
}

static void compute_tile_block(const bwd_keys *w, bwd_tile *t, int64_t kb) {
  const attn_job *j = w->j;
  int from, to, lanes = 16 * t->rows.vecs;
  if (!tile_keys(&t->rows, kb, &from, &to)) return;
  int64_t Dp = j->Dp, Dvp = j->Dvp, at = kb - w->from, n = to - from, first = tile_steps(from);
  float *p = w->p + from * ATTN_LANES, *ds = w->ds + from * ATTN_LANES;
  float mask[ATTN_BLOCK * ATTN_LANES];
  bool drops = j->s->dropout.p > 0;
  tile_product(n, lanes, FROM_ZERO, 1, tile_steps(j->s->D), w->kt + at * Dp + from, ATTN_BLOCK,
               t->q_transposed, ATTN_LANES, p, ATTN_LANES, NULL, j->s->scale * 0x1.715476p0f);
  prefetch_some(w->prefetch);
  tile_product(n, lanes, FROM_ZERO, 1, tile_steps(j->s->Dv), w->vt + at * Dvp + from, ATTN_BLOCK,
               t->d_o_transposed, ATTN_LANES, ds, ATTN_LANES, NULL, 1);
  prefetch_some(w->prefetch);
  if (drops) tile_mask(&j->s->dropout, &t->rows, kb, from, to, mask);
  score_grads(w, t, kb, from, to, drops ? mask : NULL);
  prefetch_some(w->prefetch);
  if (w->want_q)
    tile_product(round_up(j->s->D, 4), lanes, FROM_C, 1, tile_steps(n), w->k + at * Dp + first * Dp,
                 Dp, w->ds_across + first * ATTN_LANES, ATTN_LANES, t->dq, ATTN_LANES, NULL, 1);
  prefetch_some(w->prefetch);
  if (!w->want_kv) return;
  at += from;
  tile_product(n, Dvp, FROM_C, ATTN_LANES, tile_steps(t->rows.n), p, 1, t->d_o, Dvp,
               w->dv + at * Dvp, Dvp, NULL, 1);
  prefetch_some(w->prefetch);
  tile_product(n, Dp, FROM_C, ATTN_LANES, tile_steps(t->rows.n), ds, 1, t->q, Dp, w->dk + at * Dp,
               Dp, NULL, 1);
}

/* Sum of o * do of a row: 16 chains by column mod 16, then the fixed tree. */
static float compute_row_delta(const attn_job *j, const void *o, const void *d_o) {
  v16f acc = v16_zero();
  for (int64_t n = j->s->Dv, i = 0; i < n; i += 16)
    acc = v16_fma(v16_load_as(j->o.dtype, o, i, v16_left(n, i)),
                  v16_load_as(j->d_o.dtype, d_o, i, v16_left(n, i)), acc);
  return v16_sum(acc);
}

static void load_tile(const bwd_keys *w, bwd_tile *t, float *at) {
  const attn_job *j = w->j;
  const void *row[ATTN_LANES], *o[ATTN_LANES];
  int64_t Dp = j->Dp, Dvp = j->Dvp;
  t->q = at, t->q_transposed = t->q + ATTN_LANES * Dp, t->dq = t->q_transposed + ATTN_LANES * Dp;
  t->d_o = t->dq + ATTN_LANES * Dp, t->d_o_transposed = t->d_o + ATTN_LANES * Dvp;
  int lanes = 16 * t->rows.vecs;
  tile_in(j, &j->q, &t->rows, w->b, w->kv, row);
  rows_transpose(t->q_transposed, ATTN_LANES, row, lanes, j->q.dtype, j->s->D);
  rows_join(t->q, row, lanes, j->q.dtype, j->s->D, Dp);
  tile_in(j, &j->d_o, &t->rows, w->b, w->kv, row);
  rows_transpose(t->d_o_transposed, ATTN_LANES, row, lanes, j->d_o.dtype, j->s->Dv);
  rows_join(t->d_o, row, lanes, j->d_o.dtype, j->s->Dv, Dvp);
  tile_in(j, &j->o, &t->rows, w->b, w->kv, o);
  for (int i = 0; i < ATTN_LANES; i++) {
    bool is_row = i < t->rows.n;
    t->lse[i] = is_row ? j->lse_in[t->rows.row[i]] * 0x1.715476p0f : 0;
    t->delta[i] = is_row ? compute_row_delta(j, o[i], row[i]) : 0;
  }
  if (w->want_q) memset(t->dq, 0, sizeof(float) * (size_t)(ATTN_LANES * Dp));
}

static void store_tile(const bwd_keys *w, const bwd_tile *t) {
  const attn_job *j = w->j;
  void *row[ATTN_LANES];
  float scale[ATTN_LANES];
  for (int i = 0; i < ATTN_LANES; i++) scale[i] = j->s->scale;
  tile_out(j, &j->dq, &t->rows, w->b, w->kv, row);
  tile_store(&t->rows, row, j->dq.dtype, j->s->D, t->dq, scale);
}

/* Blocks of keys that the tile meets. */
static int64_t count_key_blocks(const bwd_keys *w, const tile_rows *t) {
  int64_t first = t->first > w->from ? t->first : w->from;
  int64_t last = t->last < w->to - 1 ? t->last : w->to - 1;
  return last < first ? 0 : last / ATTN_BLOCK - first / ATTN_BLOCK + 1;
}

/* How many tiles go together from `first` on: first, first + step, ... */
static int count_tiles(const bwd_keys *w, int64_t first) {
  int64_t n = div_up(w->j->tiles - first, w->step);
  return n < ATTN_BWD_TILES ? (int)n : ATTN_BWD_TILES;
}

static void prefetch_add_tiles(const bwd_keys *w, int64_t first) {
  const attn_job *j = w->j;
  for (int i = 0; i < count_tiles(w, first); i++) {
    prefetch_add_tile(w->prefetch, j, &j->q, w->b, w->kv, first + i * w->step, j->s->D);
    prefetch_add_tile(w->prefetch, j, &j->d_o, w->b, w->kv, first + i * w->step, j->s->Dv);
    prefetch_add_tile(w->prefetch, j, &j->o, w->b, w->kv, first + i * w->step, j->s->Dv);
  }
}

/* What an item reads first: keys, as many as caches keep next to what is at work, and tiles. */
static void prefetch_add_item(const bwd_keys *w) {
  const attn_job *j = w->j;
  int64_t keys = (w->to < j->s->Tk ? w->to : j->s->Tk) - w->from;
  if (keys > BWD_ASK_KEYS) keys = BWD_ASK_KEYS;
  prefetch_add(w->prefetch, &j->v, w->b, w->from, w->kv, keys, j->s->Dv);
  prefetch_add(w->prefetch, &j->k, w->b, w->from, w->kv, keys, j->s->D);
  prefetch_add_tiles(w, w->first);
}

/* The tiles that go together from `first` on. */
static void run_tiles(const bwd_keys *w, int64_t first, float *at) {
  const attn_job *j = w->j;
  bwd_tile tile[ATTN_BWD_TILES];
  int n = count_tiles(w, first);
  int64_t blocks = 0;
  for (int i = 0; i < n; i++) {
    tile_setup(j, w->b, w->kv, first + i * w->step, &tile[i].rows);
    blocks += count_key_blocks(w, &tile[i].rows);
  }
  prefetch_pace(w->prefetch, blocks * (2 + w->want_q + 2 * w->want_kv));
  for (int i = 0; i < n; i++)
    load_tile(w, &tile[i], at + i * ATTN_LANES * (3 * j->Dp + 2 * j->Dvp));
  for (int64_t kb = w->from; kb < w->to; kb += ATTN_BLOCK)
    for (int i = 0; i < n; i++) compute_tile_block(w, &tile[i], kb);
  for (int i = 0; i < n && w->want_q; i++) store_tile(w, &tile[i]);
  prefetch_all(w->prefetch);
}

static void load_keys(const bwd_keys *w) {
  const attn_job *j = w->j;
  const int64_t Tk = j->s->Tk;
  const void *row[ATTN_BLOCK];
  for (int64_t kb = w->from; kb < w->to; kb += ATTN_BLOCK) {
    int64_t at = kb - w->from;
    block_rows(&j->v, w->b, kb, Tk, w->kv, j->s->Dv, row);
    rows_transpose(w->vt + at * j->Dvp, ATTN_BLOCK, row, ATTN_BLOCK, j->v.dtype, j->s->Dv);
    block_rows(&j->k, w->b, kb, Tk, w->kv, j->s->D, row);
    rows_transpose(w->kt + at * j->Dp, ATTN_BLOCK, row, ATTN_BLOCK, j->k.dtype, j->s->D);
    rows_join(w->k + at * j->Dp, row, ATTN_BLOCK, j->k.dtype, j->s->D, j->Dp);
  }
  if (!w->want_kv) return;
  memset(w->dk, 0, sizeof(float) * (size_t)((w->to - w->from) * j->Dp));
  memset(w->dv, 0, sizeof(float) * (size_t)((w->to - w->from) * j->Dvp));
}

/* Lays out work memory for the keys and returns what is left of it. */
static float *place_keys(bwd_keys *w, float *at) {
  int64_t Dp = w->j->Dp, Dvp = w->j->Dvp, keys = w->to - w->from;
  w->k = at, w->kt = w->k + keys * Dp, w->dk = w->kt + keys * Dp, w->vt = w->dk + keys * Dp;
  w->dv = w->vt + keys * Dvp, w->p = w->dv + keys * Dvp;
  w->ds = w->p + ATTN_BLOCK * ATTN_LANES, at = w->ds + ATTN_BLOCK * ATTN_LANES;
  w->ds_across = TILE_PAIRS ? at : w->ds; /* without pairs they are the same */
  return at + ATTN_BLOCK * ATTN_LANES;
}

static bwd_keys find_item(const attn_job *j, int64_t item, prefetch_list *prefetch) {
  int64_t parts = j->kv_items + j->q_items, part = item % parts, head = item / parts;
  int64_t blocks = div_up(j->s->Tk, ATTN_BLOCK);
  bwd_keys w = {.j = j,
                .prefetch = prefetch,
                .b = head / j->s->KV,
                .kv = head % j->s->KV,
                .step = 1};
  w.want_kv = part < j->kv_items;
  w.want_q = !w.want_kv || !j->q_items;
  w.to = blocks * ATTN_BLOCK;
  if (w.want_kv) {
    w.from = blocks * part / j->kv_items * ATTN_BLOCK;
    w.to = blocks * (part + 1) / j->kv_items * ATTN_BLOCK;
  } else {
    w.first = part - j->kv_items, w.step = j->q_items;
  }
  return w;
}

/* Claims the next item and adds what it reads first to the list. */
static attn_claimed claim_next_item(attn_job *j, prefetch_list *prefetch) {
  attn_claimed next = attn_claim(j);
  if (next.item >= j->items) return next;
  bwd_keys w = find_item(j, next.item, prefetch);
  prefetch_add_item(&w);
  return (attn_claimed){next.item, true};
}

attn_claimed ISA_NAME(attn_grads)(attn_job *j, attn_claimed claimed, float *work) {
  prefetch_list prefetch = {0};
  bwd_keys w = find_item(j, claimed.item, &prefetch);
  attn_claimed next = {-1, false};
  if (!claimed.prefetched) prefetch_add_item(&w);
  prefetch_all(&prefetch);
  float *tiles = place_keys(&w, work);
  load_keys(&w);
  for (int64_t i = w.first, more; i < j->tiles; i = more) {
    more = i + ATTN_BWD_TILES * w.step;
    prefetch.runs = prefetch.now = 0;
    if (more < j->tiles) prefetch_add_tiles(&w, more);
    else if (attn_many_left(j)) next = claim_next_item(j, &prefetch);
    run_tiles(&w, i, tiles);
  }
  for (int64_t i = w.from; w.want_kv && i < w.to && i < j->s->Tk; i++) {
    row_store(row_at(&j->dk, w.b, i, w.kv), j->dk.dtype, w.dk + (i - w.from) * j->Dp, j->s->D,
              j->s->scale);
    row_store(row_at(&j->dv, w.b, i, w.kv), j->dv.dtype, w.dv + (i - w.from) * j->Dvp, j->s->Dv,
              1.0f);
  }
  return next.item < 0 ? attn_claim(j) : next;
}
