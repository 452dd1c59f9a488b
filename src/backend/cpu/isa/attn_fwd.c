/* Attention, forward, on tiles: 32 query rows are the lanes, keys go by in blocks of 64.  Scores
 * are kept turned, s[key][row], so that maximum and sum of a row are vertical and both products
 * have the shape of a matrix kernel.  The blocks are outermost: a packed block serves 8 tiles. */
#include "backend/cpu/isa/attn_tile.h"

typedef struct {
  tile_rows rows;
  float m[ATTN_LANES], l[ATTN_LANES];         /* running softmax of the segment */
  float m_all[ATTN_LANES], l_all[ATTN_LANES]; /* and of the segments before it */
  float *q;                                   /* [steps of D][LANES] */
  float *sum, *sum_all;                       /* [Dvp][LANES] of p v */
} fwd_tile;

/* s[from..to) becomes p = 2^(s - m) with the new running maximum m; l and scale (of what was summed
 * before) follow.  Sums: 16 chains by key mod 16, then a fixed tree, as in a vector of keys. */
static void softmax_block(fwd_tile *t, float *s, int64_t kb, int from, int to, float *scale) {
  bool all = tile_sees_all(&t->rows, kb, from, to);
  for (int v = 0; v < t->rows.vecs; v++, s += 16) {
    v16f m = v16_load(t->m + 16 * v), top[4] = {m, m, m, m};
    for (int i = from; i < to; i += 4)
      for (int k = 0; k < 4; k++) {
        float *at = s + (i + k) * ATTN_LANES;
        v16f x = v16_load(at);
        if (!all) {
          x = v16_select(tile_hidden(&t->rows, v, kb + i + k), v16_set1(-INFINITY), x);
          v16_store(at, x);
        }
        top[k] = v16_max(x, top[k]);
      }
    v16f new_m = v16_max(v16_max(top[0], top[1]), v16_max(top[2], top[3]));
    for (int i = from; i < to; i++) {
      float *at = s + i * ATTN_LANES;
      v16_store(at, tile_exp2(v16_sub(v16_load(at), new_m)));
    }
    for (int i = 0; i < from; i++) v16_store(s + i * ATTN_LANES, v16_zero());
    for (int i = to; i < ATTN_BLOCK; i++) v16_store(s + i * ATTN_LANES, v16_zero());
    v16f part[16];
    for (int i = 0; i < 16; i++) {
      part[i] = v16_load(s + i * ATTN_LANES);
      for (int k = i + 16; k < ATTN_BLOCK; k += 16)
        part[i] = v16_add(part[i], v16_load(s + k * ATTN_LANES));
    }
    for (int w = 8; w; w /= 2)
      for (int i = 0; i < w; i++) part[i] = v16_add(part[i], part[i + w]);
    v16f a = tile_exp2(v16_sub(m, new_m));
    v16_store(t->l + 16 * v, v16_fma(v16_load(t->l + 16 * v), a, part[0]));
    v16_store(t->m + 16 * v, new_m);
    v16_store(scale + 16 * v, a);
  }
}

static void tile_block(const attn_job *j, fwd_tile *t, int64_t kb, const float *kt, const float *vr,
                       float *s) {
  int from, to, lanes = 16 * t->rows.vecs;
  float scale[ATTN_LANES];
  if (!tile_keys(&t->rows, kb, &from, &to)) return;
  tile_product(to - from, lanes, FROM_ZERO, 1, tile_steps(j->s->D), kt + from, ATTN_BLOCK, t->q,
               ATTN_LANES, s + from * ATTN_LANES, ATTN_LANES, NULL, j->s->scale * 0x1.715476p0f);
  softmax_block(t, s, kb, from, to, scale);
  if (j->s->dropout.p > 0) {
    float mask[ATTN_BLOCK * ATTN_LANES];
    tile_mask(&j->s->dropout, &t->rows, kb, from, to, mask);
    tile_drop(&t->rows, mask, from, to, s);
  }
  join_rows(s, from, to, ATTN_LANES, j->half);
  int64_t first = tile_steps(from);
  tile_product(attn_round_up(j->s->Dv, 4), lanes, FROM_SCALED, 1, tile_steps(to - from),
               vr + first * j->Dvp, j->Dvp, s + first * ATTN_LANES, ATTN_LANES, t->sum, ATTN_LANES,
               scale, 1);
}

static void segment_start(const attn_job *j, fwd_tile *t) {
  for (int i = 0; i < ATTN_LANES; i++) t->m[i] = ATTN_NO_MAX, t->l[i] = 0;
  memset(t->sum, 0, sizeof(float) * (size_t)(j->Dvp * ATTN_LANES));
}

static void segment_join(const attn_job *j, fwd_tile *t) {
  for (int v = 0; v < t->rows.vecs; v++) {
    int x = 16 * v;
    v16f m = v16_load(t->m_all + x), l = v16_load(t->l_all + x), a, b;
    softmax_join(&m, &l, v16_load(t->m + x), v16_load(t->l + x), &a, &b);
    v16_store(t->m_all + x, m);
    v16_store(t->l_all + x, l);
    for (int64_t i = 0; i < j->s->Dv; i++) {
      float *all = t->sum_all + i * ATTN_LANES + x;
      v16f old = v16_mul(v16_load(all), a);
      v16_store(all, v16_fma(v16_load(t->sum + i * ATTN_LANES + x), b, old));
    }
  }
}

/* The state of one segment, row by row, to `partial`. */
static void write_partial(const attn_job *j, fwd_tile *t, int64_t head, int64_t segment,
                          float *stage) {
  for (int v = 0; v < t->rows.vecs; v++) {
    for (int64_t c = 0; c < j->Dvp; c += 16)
      transpose_rows(stage + c, j->Dvp, t->sum + c * ATTN_LANES + 16 * v, ATTN_LANES, 16);
    for (int i = 16 * v; i < t->rows.n && i < 16 * v + 16; i++) {
      int64_t row = t->rows.head[i] * j->s->Tq + t->rows.t[i];
      float *to = j->partial + ((head * j->segments + segment) * j->rows + row) * (16 + j->Dvp);
      to[0] = t->m[i], to[1] = t->l[i];
      memcpy(to + 16, stage + (i - 16 * v) * j->Dvp, sizeof(float) * (size_t)j->Dvp);
    }
  }
}

static void write_rows(const attn_job *j, fwd_tile *t, int64_t b, int64_t kv, float *stage) {
  float lse[ATTN_LANES];
  for (int v = 0; v < t->rows.vecs; v++) {
    v16f m = v16_load(t->m_all + 16 * v), l = v16_load(t->l_all + 16 * v), s = softmax_scale(l);
    v16_store(lse + 16 * v, softmax_lse(m, l));
    for (int64_t i = 0; i < j->s->Dv; i++) {
      float *at = t->sum_all + i * ATTN_LANES + 16 * v;
      v16_store(at, v16_mul(v16_load(at), s));
    }
  }
  tile_store(j, &j->o, &t->rows, b, kv, j->s->Dv, j->Dvp, t->sum_all, stage, 1.0f);
  for (int i = 0; j->lse_out && i < t->rows.n; i++) j->lse_out[t->rows.row[i]] = lse[i];
}

static void tile_start_up(const attn_job *j, fwd_tile *t, int64_t b, int64_t kv, int64_t index,
                          float *stage, float *at) {
  t->q = at, t->sum = at + j->Dp * ATTN_LANES, t->sum_all = t->sum + j->Dvp * ATTN_LANES;
  tile_setup(j, b, kv, index, &t->rows);
  tile_load(j, &j->q, &t->rows, b, kv, j->s->D, j->Dp, stage, t->q);
  segment_start(j, t);
  for (int i = 0; i < ATTN_LANES; i++) t->m_all[i] = ATTN_NO_MAX, t->l_all[i] = 0;
  memset(t->sum_all, 0, sizeof(float) * (size_t)(j->Dvp * ATTN_LANES));
}

/* Keys that any of the tiles sees, limited to a segment (-1: all). */
static void blocks_of(const fwd_tile *t, int n, int64_t segment, int64_t *from, int64_t *to) {
  *from = INT32_MAX, *to = 0;
  for (int i = 0; i < n; i++) {
    if (t[i].rows.first > t[i].rows.last) continue;
    if (t[i].rows.first < *from) *from = t[i].rows.first;
    if (t[i].rows.last >= *to) *to = t[i].rows.last + 1;
  }
  if (segment >= 0) {
    if (*from < segment * ATTN_SEGMENT) *from = segment * ATTN_SEGMENT;
    if (*to > (segment + 1) * ATTN_SEGMENT) *to = (segment + 1) * ATTN_SEGMENT;
  }
  *from -= *from % ATTN_BLOCK;
}

void ISA_NAME(attn_tiles)(const attn_job *j, int64_t item, float *work) {
  int64_t segment = j->split ? item % j->segments : -1;
  if (j->split) item /= j->segments;
  int64_t chunk = item % j->chunks, head = item / j->chunks, b = head / j->s->KV,
          kv = head % j->s->KV, big = j->Dp > j->Dvp ? j->Dp : j->Dvp, from, to;
  float *kt = work, *vr = kt + ATTN_BLOCK * j->Dp, *s = vr + ATTN_BLOCK * big,
        *stage = s + ATTN_BLOCK * ATTN_LANES, *tiles = stage + ATTN_LANES * big;
  fwd_tile tile[ATTN_FWD_TILES];
  int n = 0;
  for (int64_t i = chunk; i < j->tiles; i += j->chunks, n++)
    tile_start_up(j, &tile[n], b, kv, i, stage, tiles + n * ATTN_LANES * (j->Dp + 2 * j->Dvp));
  blocks_of(tile, n, segment, &from, &to);
  for (int64_t kb = from; kb < to; kb += ATTN_BLOCK) {
    if (segment < 0 && kb > from && kb % ATTN_SEGMENT == 0)
      for (int i = 0; i < n; i++) segment_join(j, &tile[i]), segment_start(j, &tile[i]);
    pack_block(&j->k, b, kb, j->s->Tk, kv, j->s->D, j->Dp, vr, kt);
    pack_block(&j->v, b, kb, j->s->Tk, kv, j->s->Dv, j->Dvp, vr, NULL);
    join_rows(vr, 0, ATTN_BLOCK, j->Dvp, false);
    for (int i = 0; i < n; i++) tile_block(j, &tile[i], kb, kt, vr, s);
  }
  for (int i = 0; i < n; i++) {
    if (segment >= 0) {
      write_partial(j, &tile[i], head, segment, stage);
    } else {
      segment_join(j, &tile[i]);
      write_rows(j, &tile[i], b, kv, stage);
    }
  }
}
