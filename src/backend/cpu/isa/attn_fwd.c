/* Attention, forward, on tiles: 32 query rows are the lanes, keys go by in blocks of 64.  Scores
 * are kept transposed, s[key][row], so that maximum and sum of a row are vertical and both products
 * have the shape of a matrix kernel.  The blocks are outermost: a packed block serves 8 tiles. */
#include "backend/cpu/isa/attn_tile.h"

typedef struct {
  tile_rows rows;
  float m[ATTN_LANES], l[ATTN_LANES];         /* running softmax of the segment */
  float m_all[ATTN_LANES], l_all[ATTN_LANES]; /* and of the segments before it */
  bool met, joined;     /* the segment has met a block; there are some before */
  float *q;             /* [steps of D][LANES] */
  float *sum, *sum_all; /* [Dvp][LANES] of p v */
} fwd_tile;

/* The new running maximum of each row, from its scores of keys from..to; what a row does not see
 * becomes -inf. */
SIMD void block_max(const fwd_tile *t, float *s, int64_t kb, int from, int to, v16f m[2]) {
  const bool all = tile_sees_all(&t->rows, kb, from, to);
  v16f top[2][4];
  for (int v = 0; v < 2; v++)
    for (int i = 0; i < 4; i++) top[v][i] = v16_load(t->m + 16 * v);
  for (int k = from; k < to; k += 4)
    for (int i = 0; i < 4; i++)
      for (int v = 0; v < 2; v++) {
        float *at = s + (k + i) * ATTN_LANES + 16 * v;
        v16f x = v16_load(at);
        if (!all) {
          x = v16_select(tile_hidden(&t->rows, v, kb + k + i), v16_set1(-INFINITY), x);
          v16_store(at, x);
        }
        top[v][i] = v16_max(x, top[v][i]);
      }
  for (int v = 0; v < 2; v++)
    m[v] = v16_max(v16_max(top[v][0], top[v][1]), v16_max(top[v][2], top[v][3]));
}

/* p = 2^(s - m) of keys from..to with the new running maximum m, times the mask unless that is
 * NULL, as steps of a sum over keys; l and scale (of what was summed before) follow.  Sums: 16
 * chains by key mod 16, then a fixed tree, as in a vector of keys. */
static void update_softmax_block(fwd_tile *t, float *s, int64_t kb, int from, int to,
                                 const float *mask, bool round, float *p, float *scale) {
  v16f m[2], part[16][2];
  block_max(t, s, kb, from, to, m);
  for (int c = 0; c < 16; c += 2) {
    v16f sum[2][2] = {{v16_zero(), v16_zero()}, {v16_zero(), v16_zero()}};
    for (int k = from + ((c - from) & 15); k < to; k += 16) {
      v16f x[2][2];
      for (int i = 0; i < 2; i++)
        for (int v = 0; v < 2; v++) {
          int at = (k + i) * ATTN_LANES + 16 * v;
          x[i][v] = tile_exp2(v16_sub(v16_load(s + at), m[v]));
          sum[i][v] = v16_add(sum[i][v], x[i][v]);
          if (mask) x[i][v] = v16_mul(x[i][v], v16_load(mask + at));
        }
      for (int v = 0; v < 2; v++) steps_across(p + 16 * v, k, x[0][v], x[1][v], round);
    }
    for (int i = 0; i < 2; i++)
      for (int v = 0; v < 2; v++) part[c + i][v] = sum[i][v];
  }
  for (int w = 8; w; w /= 2)
    for (int i = 0; i < w; i++)
      for (int v = 0; v < 2; v++) part[i][v] = v16_add(part[i][v], part[i + w][v]);
  for (int v = 0; v < 2; v++) {
    float *l = t->l + 16 * v, *old = t->m + 16 * v;
    v16f a = tile_exp2(v16_sub(v16_load(old), m[v]));
    v16_store(l, v16_fma(v16_load(l), a, part[0][v]));
    v16_store(old, m[v]);
    v16_store(scale + 16 * v, a);
  }
}

static void compute_tile_block(const attn_job *j, fwd_tile *t, int64_t kb, const float *kt,
                               const float *vr, float *s, float *p) {
  int from, to, lanes = 16 * t->rows.vecs;
  float scale[ATTN_LANES], mask[ATTN_BLOCK * ATTN_LANES];
  bool drops = j->s->dropout.p > 0;
  if (!tile_keys(&t->rows, kb, &from, &to)) return;
  tile_product(to - from, lanes, FROM_ZERO, 1, tile_steps(j->s->D), kt + from, ATTN_BLOCK, t->q,
               ATTN_LANES, s + from * ATTN_LANES, ATTN_LANES, NULL, j->s->scale * 0x1.715476p0f);
  if (drops) tile_mask(&j->s->dropout, &t->rows, kb, from, to, mask);
  update_softmax_block(t, s, kb, from, to, drops ? mask : NULL, j->half, p, scale);
  int64_t first = tile_steps(from), rows = round_up(j->s->Dv, 4);
  const float *v = vr + first * j->Dvp;
  p += first * ATTN_LANES;
  if (t->met)
    tile_product(rows, lanes, FROM_SCALED, 1, tile_steps(to - from), v, j->Dvp, p, ATTN_LANES,
                 t->sum, ATTN_LANES, scale, 1);
  else
    tile_product(rows, lanes, FROM_ZERO, 1, tile_steps(to - from), v, j->Dvp, p, ATTN_LANES, t->sum,
                 ATTN_LANES, NULL, 1);
  t->met = true;
}

static void segment_start(fwd_tile *t) {
  for (int i = 0; i < ATTN_LANES; i++) t->m[i] = ATTN_NO_MAX, t->l[i] = 0;
  t->met = false;
}

/* Adds the segment to those before it; the first is them. */
static void segment_join(const attn_job *j, fwd_tile *t) {
  if (!t->met) return;
  float *sum = t->sum_all;
  for (int v = 0; v < t->rows.vecs; v++) {
    int x = 16 * v;
    v16f m = v16_load(t->m_all + x), l = v16_load(t->l_all + x), a, b;
    softmax_join(&m, &l, v16_load(t->m + x), v16_load(t->l + x), &a, &b);
    v16_store(t->m_all + x, m);
    v16_store(t->l_all + x, l);
    for (int64_t i = 0; t->joined && i < j->s->Dv; i++) {
      float *all = t->sum_all + i * ATTN_LANES + x;
      v16f old = v16_mul(v16_load(all), a);
      v16_store(all, v16_fma(v16_load(t->sum + i * ATTN_LANES + x), b, old));
    }
  }
  if (!t->joined) t->sum_all = t->sum, t->sum = sum;
  t->joined = true;
  segment_start(t);
}

/* Row i of a tile among those of its key head. */
static int64_t row_of(const attn_job *j, const fwd_tile *t, int i) {
  return t->rows.head[i] * j->s->Tq + t->rows.t[i];
}

/* The state of one segment, row by row, to `partial`. */
static void write_partial(const attn_job *j, fwd_tile *t, int64_t head, int64_t segment) {
  void *row[ATTN_LANES];
  float one[ATTN_LANES];
  for (int i = 0; i < ATTN_LANES; i++) one[i] = 1;
  for (int i = 0; i < t->rows.n; i++) {
    int64_t at = (head * j->segments + segment) * j->rows + row_of(j, t, i);
    float *to = j->partial + at * (16 + j->Dvp);
    to[0] = t->m[i], to[1] = t->l[i];
    row[i] = to + 16;
  }
  tile_store(&t->rows, row, HP_F32, j->Dvp, t->sum, one);
}

/* What the rows have of earlier parts. */
static void read_state(const attn_job *j, fwd_tile *t, int64_t b, int64_t kv) {
  for (int i = 0; i < t->rows.n; i++) {
    const float *from = j->before + state_at(j, b, kv, row_of(j, t, i));
    if (from[1] == 0) continue;
    t->m_all[i] = from[0], t->l_all[i] = from[1];
    for (int64_t d = 0; d < j->s->Dv; d++) t->sum_all[d * ATTN_LANES + i] = from[ATTN_STATE + d];
  }
  t->joined = true;
}

static void write_state(const attn_job *j, fwd_tile *t, int64_t b, int64_t kv) {
  void *row[ATTN_LANES];
  float one[ATTN_LANES];
  for (int i = 0; i < ATTN_LANES; i++) one[i] = 1;
  for (int i = 0; i < t->rows.n; i++) {
    float *to = j->after + state_at(j, b, kv, row_of(j, t, i));
    memset(to, 0, sizeof(float) * ATTN_STATE);
    to[0] = t->m_all[i], to[1] = t->l_all[i];
    row[i] = to + ATTN_STATE;
  }
  tile_store(&t->rows, row, HP_F32, j->Dvp, t->sum_all, one);
}

static void write_rows(const attn_job *j, fwd_tile *t, int64_t b, int64_t kv) {
  void *row[ATTN_LANES];
  float lse[ATTN_LANES], scale[ATTN_LANES];
  prefetch_tile(j, &j->o, &t->rows, b, kv, j->s->Dv);
  for (int v = 0; v < t->rows.vecs; v++) {
    v16f m = v16_load(t->m_all + 16 * v), l = v16_load(t->l_all + 16 * v);
    v16_store(lse + 16 * v, softmax_lse(m, l));
    v16_store(scale + 16 * v, softmax_scale(l));
  }
  tile_out(j, &j->o, &t->rows, b, kv, row);
  tile_store(&t->rows, row, j->o.dtype, j->s->Dv, t->sum_all, scale);
  for (int i = 0; j->lse_out && i < t->rows.n; i++) j->lse_out[t->rows.row[i]] = lse[i];
}

static void tile_start_up(const attn_job *j, fwd_tile *t, int64_t b, int64_t kv, float *at) {
  const void *row[ATTN_LANES];
  t->q = at, t->sum = at + j->Dp * ATTN_LANES, t->sum_all = t->sum + j->Dvp * ATTN_LANES;
  tile_in(j, &j->q, &t->rows, b, kv, row);
  rows_transpose(t->q, ATTN_LANES, row, 16 * t->rows.vecs, j->q.dtype, j->s->D);
  segment_start(t);
  t->joined = false;
  for (int i = 0; i < ATTN_LANES; i++) t->m_all[i] = ATTN_NO_MAX, t->l_all[i] = 0;
  memset(t->sum, 0, sizeof(float) * (size_t)(2 * j->Dvp * ATTN_LANES));
  if (j->before) read_state(j, t, b, kv);
}

/* Keys from..to - 1 that any of the tiles sees, limited to a segment (-1: all). */
static void find_keys(const fwd_tile *t, int n, int64_t segment, int64_t *from, int64_t *to) {
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
}

/* A block of keys and of values, for all tiles of an item. */
static void pack_block(const attn_job *j, int64_t b, int64_t kb, int64_t kv, float *kt, float *vr) {
  const void *row[ATTN_BLOCK];
  block_rows(&j->k, b, kb, j->s->Tk, kv, j->s->D, row);
  rows_transpose(kt, ATTN_BLOCK, row, ATTN_BLOCK, j->k.dtype, j->s->D);
  block_rows(&j->v, b, kb, j->s->Tk, kv, j->s->Dv, row);
  rows_join(vr, row, ATTN_BLOCK, j->v.dtype, j->s->Dv, j->Dvp);
}

/* 16 keys of a page, transposed there, as steps of a sum over D for 16 keys of a block. */
SIMD void transpose_page(float *to, const hp_dtype t, const char *page, int64_t D) {
  for (int64_t d = 0; d < D; d += TILE_PAIRS ? 2 : 1, to += ATTN_BLOCK) {
    v16f x = v16_load_as(t, page, d * ATTN_PAGE, 16);
#if defined(__AVX512BF16__)
    v16f y = d + 1 < D ? v16_load_as(t, page, (d + 1) * ATTN_PAGE, 16) : v16_zero();
    x = v16i_as_f(v16i_or(v16_as_i(x), v16i_shr(v16_as_i(y), 16)));
#endif
    v16_store(to, x);
  }
}

/* The same of a block in pages: only keys that a tile sees, from first to `to` - 1, have a page,
 * and rows of other values are 0, whatever the pages hold. */
static void pack_pages(const attn_job *j, int64_t b, int64_t kb, int64_t kv, int64_t first,
                       int64_t to, float *kt, float *vr) {
  const int64_t size = (int64_t)dtype_size(j->k.dtype);
  const void *row[ATTN_BLOCK];
  for (int i = 0; i < ATTN_BLOCK; i += 16) {
    int64_t key = kb + i, in = key % ATTN_PAGE;
    bool seen = key < to && key + 16 > first;
    for (int r = 0; r < 16; r++) row[i + r] = no_row;
    if (!seen) continue;
    const char *k = (const char *)j->k.at + (page_at(j, &j->k, b, key) + kv * j->k.sh + in) * size;
    const char *v = (const char *)j->v.at + (page_at(j, &j->v, b, key) + kv * j->v.sh) * size;
    for (int r = 0; r < 16; r++)
      if (key + r >= first && key + r < to) row[i + r] = v + (in + r) * j->v.st * size;
    if (TILE_PAIRS || j->k.dtype == HP_BF16) transpose_page(kt + i, HP_BF16, k, j->s->D);
    else transpose_page(kt + i, j->k.dtype, k, j->s->D);
  }
  rows_join(vr, row, ATTN_BLOCK, j->v.dtype, j->s->Dv, j->Dvp);
}

/* The i-th tile in the order of distribution, in which the heads of a group are adjacent. */
static int64_t find_tile(const attn_job *j, int64_t i) {
  return j->per_head ? i % j->group * j->per_head + i / j->group : i;
}

attn_claimed ISA_NAME(attn_tiles)(attn_job *j, attn_claimed claimed, float *work) {
  int64_t item = claimed.item, segment = j->split ? item % j->segments : -1;
  if (j->split) item /= j->segments;
  /* under a causal mask the last rows have most to do: they go first */
  int64_t chunk = j->chunks - 1 - item % j->chunks, head = item / j->chunks, b = head / j->s->KV,
          kv = head % j->s->KV, first = j->tiles * chunk / j->chunks, seen, from, to;
  float *kt = work, *vr = kt + ATTN_BLOCK * j->Dp, *s = vr + ATTN_BLOCK * j->Dvp,
        *p = s + ATTN_BLOCK * ATTN_LANES, *tiles = p + ATTN_BLOCK * ATTN_LANES;
  fwd_tile tile[ATTN_FWD_TILES];
  int n = (int)(j->tiles * (chunk + 1) / j->chunks - first);
  for (int i = 0; i < n; i++) {
    tile_setup(j, b, kv, find_tile(j, first + i), &tile[i].rows);
    prefetch_tile(j, &j->q, &tile[i].rows, b, kv, j->s->D);
  }
  find_keys(tile, n, segment, &seen, &to);
  from = seen - seen % ATTN_BLOCK;
  if (!j->pages) {
    prefetch_block(&j->k, b, from, j->s->Tk, kv, j->s->D);
    prefetch_block(&j->v, b, from, j->s->Tk, kv, j->s->Dv);
  }
  for (int i = 0; i < n; i++)
    tile_start_up(j, &tile[i], b, kv, tiles + i * ATTN_LANES * (j->Dp + 2 * j->Dvp));
  for (int64_t kb = from; kb < to; kb += ATTN_BLOCK) {
    if (segment < 0 && kb > from && kb % ATTN_SEGMENT == 0)
      for (int i = 0; i < n; i++) segment_join(j, &tile[i]);
    if (j->pages) pack_pages(j, b, kb, kv, seen, to, kt, vr);
    else pack_block(j, b, kb, kv, kt, vr);
    for (int i = 0; i < n; i++) compute_tile_block(j, &tile[i], kb, kt, vr, s, p);
  }
  for (int i = 0; i < n; i++) {
    if (segment >= 0) {
      write_partial(j, &tile[i], head, segment);
    } else {
      segment_join(j, &tile[i]);
      if (j->after) write_state(j, &tile[i], b, kv);
      else write_rows(j, &tile[i], b, kv);
    }
  }
  return attn_claim(j);
}
