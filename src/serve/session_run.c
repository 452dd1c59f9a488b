#include "serve/session_state.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum { CHUNKS = 5, SHORT = 1, T_MAX = 1024, ROWS_MAX = 2048, PROGRAMS_MAX = 16 };
static const int64_t chunk_size[CHUNKS] = {1, 16, 64, 256, T_MAX};

/* --- programs --------------------------------------------------------------------------------- */

void session_free_programs(session *s) {
  for (size_t i = 0; i < s->part.len; i++) hp_program_free(s->part.at[i].p);
  vec_free(&s->part);
  s->last = NULL;
}

/* The program for chunks of T tokens: logits of the row that the input `row` names, of each
 * sequence. */
static hp_status compile(session *s, int64_t B, int64_t T, hp_program **out) {
  model_build b;
  int64_t width = s->m->c.hidden, tokens = s->blocks * CACHE_BLOCK;
  HP_TRY(lm_graph_begin(s->m, B, T, s->blocks, tokens, &b));
  hp_tensor row = hp_input(b.g, "row", HP_I32, (hp_shape){2, {B, 1}});
  hp_tensor h = hp_reshape(b.g, s->m->c.family->hidden(&b), (hp_shape){2, {B * T, width}});
  hp_output(b.g, "logits", lm_head(&b, hp_embedding(b.g, h, row, -1)));
  hp_status st = hp_graph_status(b.g);
  if (!st && b.failed) st = HP_ERR_OOM;
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
  HP_TRY(lm_graph_begin(s->m, s->groups, 1, s->blocks, s->blocks * CACHE_BLOCK, &b));
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

static hp_status find_program(session *s, int64_t rows, int64_t T, hp_program **out) {
  session_part *x = NULL;
  for (size_t i = 0; i < s->part.len; i++)
    if (s->part.at[i].rows == rows && s->part.at[i].T == T) x = &s->part.at[i];
  if (!x) {
    hp_program *p;
    HP_TRY(compile(s, s->groups * rows, T, &p));
    x = find_place(s);
    if (!x) {
      hp_program_free(p);
      return HP_ERR_OOM;
    }
    *x = (session_part){rows, T, p, 0};
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

typedef struct {
  int64_t B, T;
  int32_t *ids, *positions, *span, *table, *at, *copy, *row;
} batch;

/* A batch of padding: no keys are visible, no rows written. */
static hp_status begin_batch(session *s, int64_t B, int64_t T, batch *x) {
  size_t n = (size_t)(B * T), all = 4 * n + (size_t)(B * s->blocks) + 3 * (size_t)B;
  if (all > s->input.len && !vec_reserve(&s->input, all - s->input.len)) return HP_ERR_OOM;
  int32_t *ids = s->input.at, *table = ids + 4 * n, *at = table + B * s->blocks;
  *x = (batch){B, T, ids, ids + n, ids + 2 * n, table, at, at + B, at + 2 * B};
  memset(ids, 0, 4 * n * sizeof *ids);
  for (size_t i = 0; i < n; i++) x->span[2 * i + 1] = -1;
  memset(table, -1, (size_t)(B * s->blocks) * sizeof *table);
  for (int64_t i = 0; i < B; i++) x->at[i] = 0, x->copy[i] = -1, x->row[i] = (int32_t)(i * T);
  return HP_OK;
}

/* n tokens of a sequence; padding stands where the last of them does. */
static void put_sequence(batch *x, int64_t blocks, int64_t i, const sequence *q, const int32_t *ids,
                         int64_t n) {
  memcpy(x->ids + i * x->T, ids, (size_t)n * sizeof *ids);
  memcpy(x->table + i * blocks, q->block.at, q->block.len * sizeof *x->table);
  x->at[i] = (int32_t)q->length;
  x->copy[i] = q->copy;
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
      put_sequence(x, s->blocks, w->row[i], q, next_ids(w, i), n);
    }
  return st;
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

static hp_status run(session *s, const batch *x, hp_program *p, float *logits) {
  size_t size = sizeof(int32_t), n = (size_t)(x->B * x->T) * size, B = (size_t)x->B * size;
  hp_io io[] = {{"ids", x->ids, n},
                {"positions", x->positions, n},
                {"span", x->span, 2 * n},
                {"table", x->table, B * (size_t)s->blocks},
                {"cache_at", x->at, B},
                {"cache_copy", x->copy, B},
                {"row", x->row, B},
                {"logits", logits, (size_t)(x->B * s->m->c.vocab) * sizeof *logits}};
  HP_TRY(hp_run(p, io, (int)(sizeof io / sizeof *io)));
  s->last = p;
  return HP_OK;
}

hp_status session_run_chunk(session *s, session_work *w, float *logits) {
  int64_t rows, T = choose_chunk(s, w, &rows);
  size_t V = (size_t)s->m->c.vocab;
  hp_program *p;
  batch x;
  HP_TRY(find_program(s, rows, T, &p));
  HP_TRY(begin_batch(s, s->groups * rows, T, &x));
  hp_status st = place_sequences(s, w, rows, &x);
  float *out = st ? NULL : find_logits(s, w, &x, logits);
  if (!st) st = out ? run(s, &x, p, out) : HP_ERR_OOM;
  for (int64_t i = 0; i < w->n; i++) {
    sequence *q = &s->all.at[w->t[i].sequence];
    if (w->row[i] < 0) continue;
    if (st) {
      sequence_undo(q, s->pool[q->group]);
      continue;
    }
    int64_t n = tokens_of(w, i, T);
    sequence_commit(q, s->pool[q->group], next_ids(w, i), n, s->shares);
    w->left[i] -= n;
    if (out != logits && !w->left[i])
      memcpy(logits + (size_t)i * V, out + (size_t)w->row[i] * V, V * sizeof *logits);
  }
  return st;
}
