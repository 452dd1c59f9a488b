#include "serve/session.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum { CHUNKS = 3 };
static const int64_t chunk_size[CHUNKS] = {1, 16, 128};

struct session {
  lm *m;
  int64_t capacity, slots; /* tokens wanted; keys in the cache, with room for a padded chunk */
  int64_t length;
  bool tables; /* dynamic scaling: the tables are for this prompt */
  hp_program *program[CHUNKS];
  hp_program *last; /* that ran */
};

/* Bytes that a token in the cache takes: its keys and values, and its row of the rotary tables. */
static uint64_t token_bytes(const lm *m) {
  const model_config *c = &m->c;
  uint64_t keys = (uint64_t)(2 * c->layers * c->kv_heads * c->head_dim) * dtype_size(m->compute);
  return keys + (c->rope.theta ? (uint64_t)c->head_dim * sizeof(float) : 0);
}

hp_status session_create(lm *m, int64_t capacity, session **out) {
  if (capacity < 1 || capacity > INT32_MAX / 2)
    HP_FAIL(HP_ERR_ARG, "room for %lld tokens was asked for; expected 1 to %d", (long long)capacity,
            INT32_MAX / 2);
  uint64_t have = mem_physical(), fit = have / token_bytes(m);
  if ((uint64_t)capacity > fit)
    HP_FAIL(
        HP_ERR_OOM,
        "room for %lld tokens was asked for; their keys and values would take %.1f GiB, and the "
        "machine has %.1f: at most %llu tokens fit; lower max_new_tokens",
        (long long)capacity, (double)capacity * (double)token_bytes(m) / 0x1p30,
        (double)have / 0x1p30, (unsigned long long)fit);
  if (capacity > m->c.max_length) {
    if (!m->c.rope.theta)
      HP_FAIL(HP_ERR_ARG, "%lld tokens in all: %s has learned positions for %lld only",
              (long long)capacity, m->path, (long long)m->c.max_length);
    log_warn("%lld tokens in all are beyond the model's max_position_embeddings %lld",
             (long long)capacity, (long long)m->c.max_length);
  }
  session *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  *s = (session){.m = m, .capacity = capacity, .slots = capacity + chunk_size[CHUNKS - 1]};
  *out = s;
  return HP_OK;
}

void session_free(session *s) {
  if (!s) return;
  for (int i = 0; i < CHUNKS; i++) hp_program_free(s->program[i]);
  mem_free(s);
}

void session_reset(session *s) {
  s->length = 0;
  s->tables = false;
}

int64_t session_length(const session *s) { return s->length; }

/* The program for chunks of T tokens: logits of the row that the input `row` names. */
static hp_status make_program(session *s, int k, int64_t prompt) {
  model_build b;
  int64_t T = chunk_size[k], width = s->m->c.hidden;
  HP_TRY(lm_graph_begin(s->m, 1, T, s->slots, s->slots, &b));
  hp_tensor row = hp_input(b.g, "row", HP_I32, (hp_shape){2, {1, 1}});
  hp_tensor h = hp_reshape(b.g, s->m->c.family->hidden(&b), (hp_shape){2, {T, width}});
  hp_output(b.g, "logits", lm_head(&b, hp_embedding(b.g, h, row, -1)));
  hp_status st = hp_graph_status(b.g);
  if (!st && b.failed) st = HP_ERR_OOM;
  if (!st) st = lm_make_buffers(s->m, &b, prompt);
  if (!st) st = hp_compile(b.g, s->m->d, NULL, &s->program[k]);
  lm_graph_end(&b);
  if (st != HP_ERR_OOM) return st;
  err_report why;
  err_take(st, &why);
  HP_FAIL(st, "%s (with room for %lld tokens; fewer new tokens need less)", why.message,
          (long long)s->capacity);
}

/* Dynamic scaling turns the tokens of a prompt for its whole length. */
static hp_status make_tables(session *s, int64_t prompt) {
  model_build b;
  if (s->tables || s->m->c.rope.kind != ROPE_DYNAMIC) return HP_OK;
  HP_TRY(lm_graph_begin(s->m, 1, 1, s->slots, s->slots, &b));
  s->m->c.family->hidden(&b);
  hp_status st = lm_make_buffers(s->m, &b, prompt);
  lm_graph_end(&b);
  s->tables = !st;
  return st;
}

static hp_status run_chunk(session *s, int k, const int32_t *ids, int64_t n, float *logits) {
  enum { T_MAX = 128 };
  int32_t id[T_MAX] = {0}, position[T_MAX], span[T_MAX][2], at = (int32_t)s->length,
          row = (int32_t)n - 1;
  int64_t T = chunk_size[k];
  memcpy(id, ids, (size_t)n * sizeof *id);
  for (int64_t t = 0; t < T; t++) { /* padding stands where the last token does */
    position[t] = (int32_t)(s->length + (t < n ? t : row));
    span[t][0] = 0;
    span[t][1] = position[t];
  }
  size_t bytes = (size_t)T * sizeof *id;
  hp_io io[] = {{"ids", id, bytes},
                {"positions", position, bytes},
                {"span", span, 2 * bytes},
                {"cache_at", &at, sizeof at},
                {"row", &row, sizeof row},
                {"logits", logits, (size_t)s->m->c.vocab * sizeof *logits}};
  HP_TRY(hp_run(s->program[k], io, 6));
  s->last = s->program[k];
  s->length += n;
  return HP_OK;
}

hp_program *session_program(const session *s) { return s->last; }

hp_status session_feed(session *s, const int32_t *ids, int64_t n, float *logits) {
  if (n < 1) HP_FAIL(HP_ERR_ARG, "no tokens to feed; at least one is needed");
  if (s->length + n > s->capacity)
    HP_FAIL(HP_ERR_ARG, "%lld tokens do not fit: room is for %lld, %lld are taken", (long long)n,
            (long long)s->capacity, (long long)s->length);
  for (int64_t i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= s->m->c.vocab)
      HP_FAIL(HP_ERR_ARG, "token id %d at place %lld is not in 0..%lld, the vocabulary of %s",
              ids[i], (long long)i, (long long)s->m->c.vocab - 1, s->m->path);
  HP_TRY(make_tables(s, s->length + n));
  while (n > 0) {
    int k = 0;
    while (k + 1 < CHUNKS && chunk_size[k] < n) k++;
    int64_t take = n < chunk_size[k] ? n : chunk_size[k];
    if (!s->program[k]) HP_TRY(make_program(s, k, s->length + n));
    HP_TRY(run_chunk(s, k, ids, take, logits));
    ids += take;
    n -= take;
  }
  return HP_OK;
}
