#include "serve/session_state.h"

#include "base/log.h"
#include "base/mem.h"
#include "serve/slot_map.h"

#include <string.h>

enum { CHUNKS = 5, SHORT = 1, T_MAX = 1024, ROWS_MAX = 2048, PROGRAMS_MAX = 16 };
static const int64_t chunk_size[CHUNKS] = {1, 16, 64, 256, T_MAX};

/* --- programs --------------------------------------------------------------------------------- */

void session_free_programs(session *s) {
  for (size_t i = 0; i < s->part.len; i++) hp_program_free(s->part.at[i].p);
  vec_free(&s->part);
  s->last = NULL;
}

/* The graph for chunks of T tokens: logits of the row that the input `row` names, of each
 * sequence.  End it with lm_graph_end, also after failures. */
static hp_status begin_chunk(const session *s, const session_shape *x, model_build *b) {
  int64_t B = s->groups * x->rows, T = x->T;
  HP_TRY(lm_graph_begin(s->m, B, T, &x->cache, s->blocks * CACHE_BLOCK, b));
  hp_tensor row = hp_input(b->g, "row", HP_I32, (hp_shape){2, {B, 1}});
  hp_shape flat = {2, {B * T, s->m->c.hidden}};
  hp_tensor h = hp_reshape(b->g, s->m->c.family->hidden(b), flat);
  hp_output(b->g, "logits", lm_head(b, hp_embedding(b->g, h, row, -1)));
  hp_status st = hp_graph_status(b->g);
  return !st && b->failed ? HP_ERR_OOM : st;
}

static hp_status compile(session *s, const session_shape *x, hp_program **out) {
  model_build b = {0};
  int64_t tokens = s->blocks * CACHE_BLOCK;
  hp_status st = begin_chunk(s, x, &b);
  if (!st) st = lm_make_buffers(s->m, &b, s->prompt);
  if (!st) st = hp_compile(b.g, s->m->d, NULL, out);
  lm_graph_end(&b);
  if (st != HP_ERR_OOM) return st;
  err_report why;
  err_take(st, &why);
  HP_FAIL(st, "%s (with a cache for %lld tokens; fewer need less)", why.message,
          (long long)(tokens * s->groups));
}

hp_status session_make_tables(session *s, int64_t length) {
  model_build b;
  s->prompt = length;
  if (!s->part.len) return HP_OK; /* the first program makes them */
  const model_cache cache = {.blocks = s->blocks, .width = s->blocks};
  HP_TRY(lm_graph_begin(s->m, s->groups, 1, &cache, s->blocks * CACHE_BLOCK, &b));
  s->m->c.family->hidden(&b);
  hp_status st = lm_make_buffers(s->m, &b, length);
  lm_graph_end(&b);
  return st;
}

/* The part of least recent use gives its place. */
static session_part *find_place(session *s) {
  session_part *oldest = s->part.at;
  if (s->part.len < PROGRAMS_MAX) {
    session_part none = {0};
    return vec_push(&s->part, none) ? &s->part.at[s->part.len - 1] : NULL;
  }
  for (size_t i = 1; i < s->part.len; i++)
    if (s->part.at[i].used < oldest->used) oldest = &s->part.at[i];
  if (s->last == oldest->p) s->last = NULL;
  hp_program_free(oldest->p);
  *oldest = (session_part){0};
  return oldest;
}

static bool same_shape(const session_shape *x, const session_shape *y) {
  const model_cache *a = &x->cache, *b = &y->cache;
  return x->rows == y->rows && x->T == y->T && a->width == b->width && a->tail == b->tail &&
         a->slots == b->slots && a->parts == b->parts;
}

static hp_status find_program(session *s, const session_shape *shape, hp_program **out) {
  session_part *x = NULL;
  for (size_t i = 0; i < s->part.len; i++)
    if (same_shape(&s->part.at[i].shape, shape)) x = &s->part.at[i];
  if (!x) {
    hp_program *p;
    HP_TRY(compile(s, shape, &p));
    x = find_place(s);
    if (!x) {
      hp_program_free(p);
      return HP_ERR_OOM;
    }
    *x = (session_part){*shape, p, 0};
  }
  x->used = ++s->runs;
  *out = x->p;
  return HP_OK;
}

/* --- the batch of a chunk --------------------------------------------------------------------- */

/* Rows of a group in a program for n sequences: batches of most sizes share programs. */
static int64_t round_rows(int64_t n, int64_t T) {
  int64_t rows = 1;
  if (T > chunk_size[SHORT]) return n; /* rows of padding would take time */
  while (rows < n && rows < 8) rows *= 2;
  return rows < n ? (n + 7) / 8 * 8 : rows;
}

static int64_t find_longest(const session_work *w) {
  int64_t longest = 0;
  for (int64_t i = 0; i < w->n; i++)
    if (w->left[i] > longest) longest = w->left[i];
  return longest;
}

/* Sequences with far fewer tokens than the chunk has wait for one of their size. */
static int64_t find_least(const session_work *w, int64_t T) {
  int64_t longest = find_longest(w);
  return (longest < T ? longest : T) / 4;
}

/* Sequences of a group that take part in chunks of T, the most of all groups. */
static int64_t count_rows(const session *s, const session_work *w, int64_t T) {
  int64_t most = 0, least = find_least(w, T);
  for (int64_t g = 0; g < s->groups; g++) {
    int64_t rows = 0;
    for (int64_t i = 0; i < w->n; i++)
      rows += s->all.at[w->t[i].sequence].group == g && w->left[i] > least;
    if (rows > most) most = rows;
  }
  return most;
}

/* The largest chunk that what is left of the longest fills, of no more rows than ROWS_MAX where
 * there is a choice; what is less than a short one is padded to it. */
static int64_t choose_chunk(const session *s, const session_work *w, int64_t *rows) {
  int64_t longest = find_longest(w);
  int k = longest > 1 ? SHORT : 0;
  while (k + 1 < CHUNKS && chunk_size[k + 1] <= longest) k++;
  while (k > SHORT && s->groups * count_rows(s, w, chunk_size[k]) * chunk_size[k] > ROWS_MAX) k--;
  *rows = round_rows(count_rows(s, w, chunk_size[k]), chunk_size[k]);
  return chunk_size[k];
}

/* Blocks before the tails of the sequences that take part, the most of all groups. */
static int64_t count_before(const session *s, const session_work *w, int64_t T) {
  int64_t most = 0, least = find_least(w, T);
  for (int64_t g = 0; g < s->groups; g++) {
    int64_t blocks = 0;
    for (int64_t i = 0; i < w->n; i++) {
      const sequence *q = &s->all.at[w->t[i].sequence];
      if (q->group == g && w->left[i] > least)
        blocks += slot_map_before(q->length) - slot_map_dropped(q);
    }
    if (blocks > most) most = blocks;
  }
  return most;
}

/* The most blocks that one of them has had before its tail. */
static int64_t find_longest_before(const session *s, const session_work *w, int64_t T) {
  int64_t most = 0, least = find_least(w, T);
  for (int64_t i = 0; i < w->n; i++) {
    int64_t before = slot_map_before(s->all.at[w->t[i].sequence].length);
    if (w->left[i] > least && before > most) most = before;
  }
  return most;
}

static void choose_cache(const session *s, const session_work *w, session_shape *x) {
  x->cache = (model_cache){.blocks = s->blocks, .width = s->blocks, .tier = s->tier};
  x->cache.sparse = s->sparse;
  if (!s->tier) return;
  if (s->sparse && x->T == 1) {
    x->cache.width = 1; /* the device chooses the slots */
    return;
  }
  int64_t each = slot_map_tail(x->T);
  slot_map_plan(count_before(s, w, x->T), s->slots_max, &x->cache);
  x->cache.tail = x->rows * each;
  x->cache.width = slot_map_round(find_longest_before(s, w, x->T)) + each;
}

/* The program for the chunk.  On a tier, parts of attention become smaller until it fits. */
static hp_status choose_program(session *s, const session_work *w, session_shape *x,
                                hp_program **out) {
  x->T = choose_chunk(s, w, &x->rows);
  for (;;) {
    choose_cache(s, w, x);
    hp_status st = find_program(s, x, out);
    bool smaller = s->tier && x->cache.parts && x->cache.slots > CACHE_SEGMENT;
    if (st != HP_ERR_OOM || !s->tier) return st;
    if (!smaller) return session_too_small(s, x);
    err_clear();
    s->slots_max = x->cache.slots / 2;
  }
}

static hp_status plan_shape(const session *s, const session_work *w, session_shape *x,
                            hp_memory *out) {
  model_build b = {0};
  hp_program_stats stats;
  choose_cache(s, w, x);
  hp_status st = begin_chunk(s, x, &b);
  if (!st) st = hp_plan(b.g, s->m->d, NULL, &stats);
  lm_graph_end(&b);
  if (!st && stats.memory.planned_bytes > out->planned_bytes) *out = stats.memory;
  return st;
}

hp_status session_plan_work(const session *s, const session_work *w, hp_memory *out) {
  session_shape prompt = {0}, token = {.rows = round_rows(count_rows(s, w, 1), 1), .T = 1};
  prompt.T = choose_chunk(s, w, &prompt.rows);
  HP_TRY(plan_shape(s, w, &prompt, out));
  return plan_shape(s, w, &token, out);
}

typedef struct {
  int64_t B, T, width, lists; /* lists: slots of a group */
  int32_t *ids, *positions, *span, *table, *at, *copy, *row, *fetch, *store, *blocks, *kv_copy;
} batch;

/* A batch of padding: no keys are visible, no rows written. */
static hp_status begin_batch(session *s, const session_shape *shape, batch *x) {
  const model_cache *c = &shape->cache;
  int64_t B = s->groups * shape->rows, T = shape->T, width = c->width;
  int64_t slots = c->tail + c->parts * c->slots;
  size_t n = (size_t)(B * T), lists = (size_t)(s->groups * (slots + c->tail));
  size_t of_blocks = c->sparse ? (size_t)(B * (s->blocks + 1)) : 0;
  size_t all = 4 * n + (size_t)(B * width) + 3 * (size_t)B + lists + of_blocks;
  if (all > s->input.len && !vec_reserve(&s->input, all - s->input.len)) return HP_ERR_OOM;
  if (!vec_reserve(&s->in_row, (size_t)B)) return HP_ERR_OOM;
  int32_t *ids = s->input.at, *table = ids + 4 * n, *at = table + B * width, *fetch = at + 3 * B;
  *x = (batch){.B = B,
               .T = T,
               .width = width,
               .lists = slots,
               .ids = ids,
               .positions = ids + n,
               .span = ids + 2 * n,
               .table = table,
               .at = at,
               .copy = at + B,
               .row = at + 2 * B,
               .fetch = fetch,
               .store = fetch + s->groups * slots};
  memset(ids, 0, 4 * n * sizeof *ids);
  for (size_t i = 0; i < n; i++) x->span[2 * i + 1] = -1;
  memset(table, -1, (size_t)(B * width) * sizeof *table);
  memset(fetch, -1, (lists + of_blocks) * sizeof *fetch);
  if (c->sparse) x->blocks = fetch + lists, x->kv_copy = x->blocks + B * s->blocks;
  for (int64_t i = 0; i < B; i++) x->at[i] = 0, x->copy[i] = -1, x->row[i] = (int32_t)(i * T);
  for (int64_t i = 0; i < B; i++) s->in_row.at[i] = NULL;
  return HP_OK;
}

/* n tokens of a sequence; padding stands where the last of them does. */
static void put_sequence(session *s, batch *x, int64_t i, const sequence *q, const int32_t *ids,
                         int64_t n) {
  memcpy(x->ids + i * x->T, ids, (size_t)n * sizeof *ids);
  s->in_row.at[i] = q;
  x->at[i] = (int32_t)q->length;
  if (s->sparse) {
    memcpy(x->blocks + i * s->blocks, q->block.at, q->block.len * sizeof *x->blocks);
    x->kv_copy[i] = q->copy;
  }
  if (!s->tier) {
    memcpy(x->table + i * x->width, q->block.at, q->block.len * sizeof *x->table);
    x->copy[i] = q->copy;
  }
  x->row[i] = (int32_t)(i * x->T + n - 1);
  for (int64_t t = 0; t < x->T; t++) {
    int64_t to = i * x->T + t;
    x->positions[to] = (int32_t)(q->length + (t < n ? t : n - 1));
    if (t < n) x->span[2 * to + 1] = x->positions[to];
  }
}

static int64_t tokens_of(const session_work *w, int64_t i, int64_t T) {
  return w->left[i] < T ? w->left[i] : T;
}
static const int32_t *next_ids(const session_work *w, int64_t i) {
  return w->t[i].ids + w->t[i].n - w->left[i];
}

/* Rows for the sequences of this chunk, and blocks for their tokens. */
static hp_status place_sequences(session *s, session_work *w, int64_t rows, batch *x) {
  hp_status st = HP_OK;
  int64_t least = find_least(w, x->T);
  for (int64_t i = 0; i < w->n; i++) w->row[i] = -1;
  for (int64_t g = 0; g < s->groups; g++)
    for (int64_t i = 0, next = g * rows; !st && i < w->n; i++) {
      sequence *q = &s->all.at[w->t[i].sequence];
      if (q->group != g || w->left[i] <= least) continue;
      int64_t n = tokens_of(w, i, x->T);
      st = sequence_grow(q, s->pool[g], n);
      if (st) break;
      w->row[i] = next++;
      put_sequence(s, x, w->row[i], q, next_ids(w, i), n);
    }
  return st;
}

/* On a tier: the slots of all blocks. */
static void place_blocks(const session *s, const session_shape *shape, const batch *x) {
  const model_cache *c = &shape->cache;
  bool chosen = !s->tier || (s->sparse && shape->T == 1); /* on the device */
  for (int64_t g = 0; !chosen && g < s->groups; g++) {
    int64_t row = g * shape->rows;
    slot_map m = {.cache = c,
                  .rows = shape->rows,
                  .in_row = s->in_row.at + row,
                  .table = x->table + row * c->width,
                  .fetch = x->fetch + g * x->lists,
                  .store = x->store + g * c->tail};
    slot_map_fill(&m);
  }
}

/* --- a chunk ---------------------------------------------------------------------------------- */

/* Where the program's logits go: to the caller's if its rows are all of them, in their order. */
static float *find_logits(session *s, const session_work *w, const batch *x, float *logits) {
  size_t n = (size_t)(x->B * s->m->c.vocab);
  bool same = x->B == w->n;
  for (int64_t i = 0; i < w->n && same; i++) same = w->row[i] == i && w->left[i] <= x->T;
  if (same) return logits;
  return n <= s->logits.len || vec_reserve(&s->logits, n - s->logits.len) ? s->logits.at : NULL;
}

static hp_status run(session *s, const session_shape *shape, const batch *x, hp_program *p,
                     float *logits) {
  size_t size = sizeof(int32_t), n = (size_t)(x->B * x->T) * size, B = (size_t)x->B * size;
  hp_io io[] = {{"ids", x->ids, n},
                {"positions", x->positions, n},
                {"span", x->span, 2 * n},
                {"table", x->table, B * (size_t)x->width},
                {"cache_at", x->at, B},
                {"cache_copy", x->copy, B},
                {"row", x->row, B},
                {"logits", logits, (size_t)(x->B * s->m->c.vocab) * sizeof *logits},
                {0},
                {0},
                {0},
                {0}};
  int n_io = (int)(sizeof io / sizeof *io) - 4;
  if (s->tier) {
    io[n_io++] = (hp_io){"kv_fetch", x->fetch, (size_t)(s->groups * x->lists) * size};
    io[n_io++] = (hp_io){"kv_store", x->store, (size_t)(s->groups * shape->cache.tail) * size};
  }
  if (s->sparse) {
    io[n_io++] = (hp_io){"kv_blocks", x->blocks, B * (size_t)s->blocks};
    io[n_io++] = (hp_io){"kv_copy", x->kv_copy, B};
  }
  HP_TRY(hp_run(p, io, n_io));
  s->last = p;
  return HP_OK;
}

hp_status session_run_chunk(session *s, session_work *w, float *logits) {
  size_t V = (size_t)s->m->c.vocab;
  session_shape shape;
  hp_program *p = NULL;
  batch x;
  HP_TRY(choose_program(s, w, &shape, &p));
  HP_TRY(begin_batch(s, &shape, &x));
  hp_status st = place_sequences(s, w, shape.rows, &x);
  if (!st) place_blocks(s, &shape, &x);
  float *out = st ? NULL : find_logits(s, w, &x, logits);
  if (!st) st = out ? run(s, &shape, &x, p, out) : HP_ERR_OOM;
  for (int64_t i = 0; i < w->n; i++) {
    sequence *q = &s->all.at[w->t[i].sequence];
    if (w->row[i] < 0) continue;
    if (st) {
      sequence_undo(q, s->pool[q->group]);
      continue;
    }
    int64_t n = tokens_of(w, i, shape.T);
    sequence_commit(q, s->pool[q->group], next_ids(w, i), n, s->shares);
    if (s->window) sequence_drop(q, s->pool[q->group], q->length - s->window + 1);
    w->left[i] -= n;
    if (out != logits && !w->left[i])
      memcpy(logits + (size_t)i * V, out + (size_t)w->row[i] * V, V * sizeof *logits);
  }
  return st;
}
