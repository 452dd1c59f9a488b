/* Attention, backward.  An item walks the tiles of a key head in order, four at a time, and for
 * each block of keys recomputes p = exp(s - lse) and forms the five products while the block is in
 * cache: s = q k^T   dp = do v^T   dv += p^T do   ds = p (dp - delta)   dk += ds^T q   dq += ds k.
 * Dropout's mask multiplies dp before, and p after ds is formed; delta, the sum of o do, is what it
 * was: o has the mask in it.
 * With few key heads and many threads the keys (for dk, dv) and the tiles (for dq) are split over
 * items, which costs two products more and gives the same bits: each sum stays one chain. */
#include "backend/cpu/isa/attn_tile.h"

typedef struct {
  tile_rows rows;
  float lse[ATTN_LANES], delta[ATTN_LANES]; /* lse in base 2 */
  float *q, *d_o;                           /* [steps of LANES][Dp], [steps of LANES][Dvp] */
  float *q_turned, *d_o_turned, *dq; /* [steps of Dp][LANES], [steps of Dvp][LANES], [Dp][LANES] */
} bwd_tile;

typedef struct {
  const attn_job *j;
  int64_t b, kv;
  int64_t from, to; /* keys, whole blocks */
  bool want_kv, want_q;
  float *k, *kt, *vt, *dk, *dv; /* of keys `from` on; per block k [steps of 64][Dp], kt and vt
                                   [steps of Dp][64], [steps of Dvp][64] */
  float *p, *ds, *ds_joined, *stage;
} bwd_keys;

/* p and ds, in place of s and dp, for rows from..to of the block. */
static void score_grads(const bwd_keys *w, const bwd_tile *t, int64_t kb, int from, int to) {
  bool all = tile_sees_all(&t->rows, kb, from, to);
  for (int v = 0; v < t->rows.vecs; v++) {
    v16f lse = v16_load(t->lse + 16 * v), delta = v16_load(t->delta + 16 * v);
    for (int i = from; i < to; i++) {
      float *p = w->p + i * ATTN_LANES + 16 * v, *ds = w->ds + i * ATTN_LANES + 16 * v;
      v16f x = tile_exp2(v16_sub(v16_load(p), lse)), y = v16_load(ds);
      y = v16_mul(x, v16_sub(y, delta));
      if (!all) {
        v16m hidden = tile_hidden(&t->rows, v, kb + i);
        x = v16_select(hidden, v16_zero(), x);
        y = v16_select(hidden, v16_zero(), y);
      }
      v16_store(p, x);
      v16_store(ds, y);
    }
  }
}

/* Rows from..to of [64][LANES], in place, as operands of sums over their lanes. */
static void join_lanes(float *x, int from, int to, bool round) {
  for (int i = from; i < to; i++) {
    float *row = x + i * ATTN_LANES;
#if defined(__AVX512BF16__)
    (void)round;
    v16_store(row, pairs_along(v16_load(row), v16_load(row + 16)));
#else
    for (int v = 0; round && v < ATTN_LANES; v += 16)
      v16_store(row + v, round_bf16(v16_load(row + v)));
#endif
  }
}

static void tile_block(const bwd_keys *w, bwd_tile *t, int64_t kb) {
  const attn_job *j = w->j;
  int from, to, lanes = 16 * t->rows.vecs;
  if (!tile_keys(&t->rows, kb, &from, &to)) return;
  int64_t Dp = j->Dp, Dvp = j->Dvp, at = kb - w->from, n = to - from, first = tile_steps(from);
  float *p = w->p + from * ATTN_LANES, *ds = w->ds + from * ATTN_LANES;
  tile_product(n, lanes, FROM_ZERO, 1, tile_steps(j->s->D), w->kt + at * Dp + from, ATTN_BLOCK,
               t->q_turned, ATTN_LANES, p, ATTN_LANES, NULL, j->s->scale * 0x1.715476p0f);
  tile_product(n, lanes, FROM_ZERO, 1, tile_steps(j->s->Dv), w->vt + at * Dvp + from, ATTN_BLOCK,
               t->d_o_turned, ATTN_LANES, ds, ATTN_LANES, NULL, 1);
  if (j->s->dropout.p > 0) {
    float mask[ATTN_BLOCK * ATTN_LANES];
    tile_mask(&j->s->dropout, &t->rows, kb, from, to, mask);
    tile_drop(&t->rows, mask, from, to, w->ds);
    score_grads(w, t, kb, from, to);
    tile_drop(&t->rows, mask, from, to, w->p);
  } else {
    score_grads(w, t, kb, from, to);
  }
  if (w->want_q) {
    memcpy(w->ds_joined + from * ATTN_LANES, ds, sizeof *ds * (size_t)(n * ATTN_LANES));
    join_rows(w->ds_joined, from, to, ATTN_LANES, j->half);
    tile_product(attn_round_up(j->s->D, 4), lanes, FROM_C, 1, tile_steps(n),
                 w->k + at * Dp + first * Dp, Dp, w->ds_joined + first * ATTN_LANES, ATTN_LANES,
                 t->dq, ATTN_LANES, NULL, 1);
  }
  if (!w->want_kv) return;
  join_lanes(w->p, from, to, j->half);
  join_lanes(w->ds, from, to, j->half);
  at += from;
  tile_product(n, Dvp, FROM_C, ATTN_LANES, tile_steps(t->rows.n), p, 1, t->d_o, Dvp,
               w->dv + at * Dvp, Dvp, NULL, 1);
  tile_product(n, Dp, FROM_C, ATTN_LANES, tile_steps(t->rows.n), ds, 1, t->q, Dp, w->dk + at * Dp,
               Dp, NULL, 1);
}

/* Sum of o * do of a row: 16 chains by column mod 16, then the fixed tree. */
static float row_delta(const float *o, const float *d_o, int64_t n) {
  v16f acc = v16_zero();
  for (int64_t i = 0; i < n; i += 16) acc = v16_fma(v16_load(o + i), v16_load(d_o + i), acc);
  return v16_sum(acc);
}

static void load_tile(const bwd_keys *w, bwd_tile *t, int64_t index, float *at) {
  const attn_job *j = w->j;
  int64_t Dp = j->Dp, Dvp = j->Dvp;
  t->q = at, t->q_turned = t->q + ATTN_LANES * Dp, t->dq = t->q_turned + ATTN_LANES * Dp;
  t->d_o = t->dq + ATTN_LANES * Dp, t->d_o_turned = t->d_o + ATTN_LANES * Dvp;
  tile_setup(j, w->b, w->kv, index, &t->rows);
  tile_load(j, &j->q, &t->rows, w->b, w->kv, j->s->D, Dp, t->q, t->q_turned);
  tile_load(j, &j->d_o, &t->rows, w->b, w->kv, j->s->Dv, Dvp, t->d_o, t->d_o_turned);
  tile_load(j, &j->o, &t->rows, w->b, w->kv, j->s->Dv, Dvp, w->stage, NULL);
  for (int i = 0; i < ATTN_LANES; i++) {
    bool row = i < t->rows.n;
    t->lse[i] = row ? j->lse_in[t->rows.row[i]] * 0x1.715476p0f : 0;
    t->delta[i] = row ? row_delta(w->stage + i * Dvp, t->d_o + i * Dvp, Dvp) : 0;
  }
  join_rows(t->q, 0, ATTN_LANES, Dp, false);
  join_rows(t->d_o, 0, ATTN_LANES, Dvp, false);
  if (w->want_q) memset(t->dq, 0, sizeof(float) * (size_t)(ATTN_LANES * Dp));
}

/* Up to ATTN_BWD_TILES tiles: first, first + step, ... */
static void run_tiles(const bwd_keys *w, int64_t first, int64_t step, int n, float *at) {
  const attn_job *j = w->j;
  bwd_tile tile[ATTN_BWD_TILES];
  for (int i = 0; i < n; i++)
    load_tile(w, &tile[i], first + i * step, at + i * ATTN_LANES * (3 * j->Dp + 2 * j->Dvp));
  for (int64_t kb = w->from; kb < w->to; kb += ATTN_BLOCK)
    for (int i = 0; i < n; i++) tile_block(w, &tile[i], kb);
  for (int i = 0; i < n && w->want_q; i++)
    tile_store(j, &j->dq, &tile[i].rows, w->b, w->kv, j->s->D, j->Dp, tile[i].dq, w->stage,
               j->s->scale);
}

static void load_keys(const bwd_keys *w) {
  const attn_job *j = w->j;
  for (int64_t kb = w->from; kb < w->to; kb += ATTN_BLOCK) {
    int64_t at = kb - w->from;
    /* dv is scratch here: it holds a block of values on their way to vt, and is cleared below */
    pack_block(&j->v, w->b, kb, j->s->Tk, w->kv, j->s->Dv, j->Dvp, w->dv, w->vt + at * j->Dvp);
    pack_block(&j->k, w->b, kb, j->s->Tk, w->kv, j->s->D, j->Dp, w->k + at * j->Dp,
               w->kt + at * j->Dp);
    join_rows(w->k + at * j->Dp, 0, ATTN_BLOCK, j->Dp, false);
  }
  if (!w->want_kv) return;
  memset(w->dk, 0, sizeof(float) * (size_t)((w->to - w->from) * j->Dp));
  memset(w->dv, 0, sizeof(float) * (size_t)((w->to - w->from) * j->Dvp));
}

/* Lays out work memory for the keys and returns what is left of it. */
static float *place(bwd_keys *w, float *at) {
  int64_t Dp = w->j->Dp, Dvp = w->j->Dvp, keys = w->to - w->from;
  w->k = at, w->kt = w->k + keys * Dp, w->dk = w->kt + keys * Dp, w->vt = w->dk + keys * Dp;
  w->dv = w->vt + keys * Dvp, w->p = w->dv + keys * Dvp;
  w->ds = w->p + ATTN_BLOCK * ATTN_LANES, w->ds_joined = w->ds + ATTN_BLOCK * ATTN_LANES;
  w->stage = w->ds_joined + ATTN_BLOCK * ATTN_LANES;
  return w->stage + ATTN_LANES * (Dp > Dvp ? Dp : Dvp);
}

void ISA_NAME(attn_grads)(const attn_job *j, int64_t item, float *work) {
  int64_t parts = j->kv_items + j->q_items, part = item % parts, head = item / parts;
  int64_t blocks = attn_div_up(j->s->Tk, ATTN_BLOCK), first = 0, step = 1;
  bwd_keys w = {.j = j, .b = head / j->s->KV, .kv = head % j->s->KV};
  w.want_kv = part < j->kv_items;
  w.want_q = !w.want_kv || !j->q_items;
  w.to = blocks * ATTN_BLOCK;
  if (w.want_kv) {
    w.from = blocks * part / j->kv_items * ATTN_BLOCK;
    w.to = blocks * (part + 1) / j->kv_items * ATTN_BLOCK;
  } else {
    first = part - j->kv_items, step = j->q_items;
  }
  float *tiles = place(&w, work);
  load_keys(&w);
  for (int64_t i = first; i < j->tiles; i += ATTN_BWD_TILES * step) {
    int64_t n = attn_div_up(j->tiles - i, step);
    run_tiles(&w, i, step, n < ATTN_BWD_TILES ? (int)n : ATTN_BWD_TILES, tiles);
  }
  for (int64_t i = w.from; w.want_kv && i < w.to && i < j->s->Tk; i++) {
    row_store(row_at(&j->dk, w.b, i, w.kv), j->dk.dtype, w.dk + (i - w.from) * j->Dp, j->s->D,
              j->s->scale);
    row_store(row_at(&j->dv, w.b, i, w.kv), j->dv.dtype, w.dv + (i - w.from) * j->Dvp, j->s->Dv,
              1.0f);
  }
}
