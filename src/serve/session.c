#include "serve/session.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/round.h"
#include "serve/session_state.h"
#include "model/lm_eval.h"

#include <stdio.h>
#include <string.h>

enum { SEQUENCES_MAX = 1 << 16 };

/* --- the cache -------------------------------------------------------------------------------- */

/* Bytes of a block in all layers, from the smallest graph. */
static hp_status find_block_bytes(session *s) {
  model_build b;
  const model_cache one = {.blocks = 1, .width = 1};
  HP_TRY(lm_graph_begin(s->m, s->groups, 1, &one, 1, &b));
  s->m->c.family->hidden(&b);
  hp_status st = hp_graph_status(b.g);
  s->block_bytes = (uint64_t)b.cache_bytes;
  lm_graph_end(&b);
  return st;
}

static hp_status check_expected(const session_options *o) {
  if (o->tokens < 1 || o->tokens > INT32_MAX / 2)
    HP_FAIL(HP_ERR_ARG, "capacity of %lld tokens; expected 1 to %d", (long long)o->tokens,
            INT32_MAX / 2);
  if (o->sequences < 1 || o->sequences > SEQUENCES_MAX)
    HP_FAIL(HP_ERR_ARG, "%lld sequences side by side; expected 1 to %d", (long long)o->sequences,
            SEQUENCES_MAX);
  return HP_OK;
}

/* Of a group: by number, by bytes, or as many as the tokens expected need. */
static hp_status choose_blocks(session *s, const session_options *o) {
  int64_t each = div_up(o->tokens, CACHE_BLOCK), need = div_up(o->sequences, s->groups) * each;
  uint64_t block = s->block_bytes * (uint64_t)s->groups, have = mem_physical();
  double fit = (double)have / (double)block, kib = (double)s->block_bytes / 0x1p10;
  s->blocks = need;
  if (o->blocks) s->blocks = o->blocks / s->groups;
  else if (o->bytes)
    s->blocks = (int64_t)(o->bytes / block < INT32_MAX ? o->bytes / block : INT32_MAX);
  if (s->blocks < each)
    HP_FAIL(HP_ERR_OOM,
            "%lld tokens need %lld blocks of %.1f KiB, %.1f MiB, of the cache of keys and values; "
            "it has %lld: give it more, or ask for fewer tokens",
            (long long)o->tokens, (long long)each, kib, (double)each * kib / 0x1p10,
            (long long)s->blocks);
  bool in_memory = o->offload != HP_OFFLOAD_FLASH;
  if ((in_memory && (double)s->blocks > fit) || s->blocks > INT32_MAX / 2 / CACHE_BLOCK)
    HP_FAIL(HP_ERR_OOM,
            "capacity of %lld tokens: their keys and values would take %.1f GiB, and the "
            "machine has %.1f: at most %.0f tokens fit; lower max_new_tokens",
            (long long)(s->blocks == need ? o->tokens : s->blocks * CACHE_BLOCK),
            (double)s->blocks * (double)block / 0x1p30, (double)have / 0x1p30,
            fit * CACHE_BLOCK * (double)s->groups / (double)o->sequences);
  return HP_OK;
}

static hp_status create_pools(session *s) {
  s->pool = mem_calloc((size_t)s->groups, sizeof(block_pool *));
  HP_TRY_MEM(s->pool);
  for (int64_t g = 0; g < s->groups; g++)
    HP_TRY(block_pool_create(s->blocks, CACHE_BLOCK, &s->pool[g]));
  return HP_OK;
}

hp_status session_create(lm *m, const session_options *o, session **out) {
  session *s = mem_calloc(1, sizeof *s);
  HP_TRY_MEM(s);
  s->m = m;
  s->groups = m->groups ? m->groups : 1;
  s->window = m->c.window;
  for (int64_t i = 0; i < m->c.layers; i++)
    if (!m->c.windowed || !m->c.windowed[i]) s->window = 0;
  s->shares = !rope_depends_on_length(&m->c.rope);
  hp_status st = check_expected(o);
  if (!st) st = find_block_bytes(s);
  if (!st) st = choose_blocks(s, o);
  if (!st) st = lm_check_length(m, o->tokens);
  if (!st) st = session_choose_tier(s, o);
  if (!st && o->sequences > 1 && !lm_shares_rope(m, o->tokens))
    st = err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__,
                 "%s turns its tokens by the length of their prompt: generate one sequence at a "
                 "time",
                 m->path);
  if (!st) st = create_pools(s);
  if (st) session_free(s);
  else *out = s;
  return st;
}

/* The next session may have a cache of another size. */
static void free_cache(const session *s) {
  int n = hp_param_count(s->m->d);
  for (int i = n; i-- > 0;) {
    const char *name;
    hp_dtype t;
    hp_shape shape;
    if (hp_param_info(s->m->d, i, &name, &t, &shape) || strncmp(name, "cache.", 6)) continue;
    char copy[64];
    snprintf(copy, sizeof copy, "%s", name);
    if (hp_param_free(s->m->d, copy)) err_clear(); /* there is no program that uses it */
  }
}

void session_free(session *s) {
  if (!s) return;
  if (s->pool) session_reset(s);
  session_free_programs(s);
  if (s->m->d) free_cache(s);
  for (int64_t g = 0; s->pool && g < s->groups; g++) block_pool_free(s->pool[g]);
  mem_free(s->pool);
  vec_free(&s->all);
  vec_free(&s->input);
  vec_free(&s->in_row);
  vec_free(&s->logits);
  mem_free(s);
}

session_cache session_cache_get(const session *s) {
  session_cache c = {s->blocks * s->groups, 0, s->block_bytes};
  for (int64_t g = 0; g < s->groups; g++) c.free_blocks += block_pool_available(s->pool[g]);
  return c;
}

hp_program *session_program(const session *s) { return s->last; }

/* --- sequences -------------------------------------------------------------------------------- */

static bool is_sequence(const session *s, int64_t i) {
  return i >= 0 && i < (int64_t)s->all.len && s->all.at[i].used;
}

static hp_status check_sequence(const session *s, int64_t i) {
  if (!is_sequence(s, i))
    HP_FAIL(HP_ERR_ARG, "there is no sequence %lld: it ended, or was never added", (long long)i);
  return HP_OK;
}

static int64_t count_sequences(const session *s, int64_t group) {
  int64_t n = 0;
  for (size_t i = 0; i < s->all.len; i++)
    n += s->all.at[i].used && (group < 0 || s->all.at[i].group == group);
  return n;
}

/* The group with the fewest sequences, so that devices have the same work. */
static int64_t find_group(const session *s) {
  int64_t best = 0;
  for (int64_t g = 1; g < s->groups; g++)
    if (count_sequences(s, g) < count_sequences(s, best)) best = g;
  return best;
}

static hp_status find_number(session *s, int64_t *out) {
  size_t i = 0;
  while (i < s->all.len && s->all.at[i].used) i++;
  if (i == SEQUENCES_MAX)
    HP_FAIL(HP_ERR_ARG, "%d sequences are open: end some first", SEQUENCES_MAX);
  sequence none = {.copy = -1};
  if (i == s->all.len && !vec_push(&s->all, none)) return HP_ERR_OOM;
  *out = (int64_t)i;
  return HP_OK;
}

hp_status session_add(session *s, int64_t *out) {
  int64_t i;
  HP_TRY(find_number(s, &i));
  s->all.at[i] = (sequence){.group = find_group(s), .copy = -1};
  s->all.at[i].used = true;
  *out = i;
  return HP_OK;
}

hp_status session_fork(session *s, int64_t of, int64_t *out) {
  int64_t i;
  HP_TRY(check_sequence(s, of));
  HP_TRY(find_number(s, &i));
  sequence *to = &s->all.at[i];
  *to = (sequence){.copy = -1};
  HP_TRY(sequence_fork(&s->all.at[of], s->pool[s->all.at[of].group], to));
  to->used = true;
  *out = i;
  return HP_OK;
}

void session_end(session *s, int64_t i) {
  if (!is_sequence(s, i)) return;
  sequence *q = &s->all.at[i];
  sequence_clear(q, s->pool[q->group]);
  q->used = false;
}

void session_reset(session *s) {
  for (size_t i = 0; i < s->all.len; i++) session_end(s, (int64_t)i);
}

int64_t session_length(const session *s, int64_t i) {
  return is_sequence(s, i) ? s->all.at[i].length : 0;
}

/* --- feeding ---------------------------------------------------------------------------------- */

static hp_status check_one(const session *s, const session_tokens *t) {
  const lm *m = s->m;
  HP_TRY(check_sequence(s, t->sequence));
  int64_t length = s->all.at[t->sequence].length;
  if (t->n < 1) HP_FAIL(HP_ERR_ARG, "no tokens to feed; at least one is needed");
  if (t->n > s->blocks * CACHE_BLOCK - length)
    HP_FAIL(
        HP_ERR_OOM,
        "%lld tokens do not fit: the cache has room for %lld, and %lld of the sequence are in it",
        (long long)t->n, (long long)(s->blocks * CACHE_BLOCK), (long long)length);
  if (!m->c.rope.theta && length + t->n > m->c.max_length)
    HP_FAIL(HP_ERR_ARG, "%lld tokens in all: %s has learned positions for %lld only",
            (long long)(length + t->n), m->path, (long long)m->c.max_length);
  if (count_sequences(s, -1) > 1 && !lm_shares_rope(m, length + t->n))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s turns the tokens of %lld by the length of their prompt: generate one such sequence "
            "at a time",
            m->path, (long long)(length + t->n));
  for (int64_t k = 0; k < t->n; k++)
    if (t->ids[k] < 0 || t->ids[k] >= m->c.vocab)
      HP_FAIL(HP_ERR_ARG, "token id %d at place %lld is not in 0..%lld, the vocabulary of %s",
              t->ids[k], (long long)k, (long long)m->c.vocab - 1, m->path);
  return HP_OK;
}

static hp_status check_feed(session *s, const session_tokens *t, int64_t n) {
  if (n < 1) HP_FAIL(HP_ERR_ARG, "no tokens to feed; at least one is needed");
  for (int64_t i = 0; i < n; i++) HP_TRY(check_one(s, &t[i]));
  hp_status st = HP_OK;
  for (int64_t i = 0; i < n; i++) {
    bool *fed = &s->all.at[t[i].sequence].fed;
    if (*fed && !st)
      st = err_set(HP_ERR_ARG, __FILE__, __LINE__, "sequence %lld is fed twice",
                   (long long)t[i].sequence);
    *fed = true;
  }
  for (int64_t i = 0; i < n; i++) s->all.at[t[i].sequence].fed = false;
  return st;
}

/* Every group has free blocks for all tokens that are left. */
static hp_status check_blocks(const session *s, const session_work *w) {
  for (int64_t g = 0; g < s->groups; g++) {
    int64_t need = 0, have = block_pool_available(s->pool[g]);
    for (int64_t i = 0; i < w->n; i++) {
      const sequence *q = &s->all.at[w->t[i].sequence];
      if (q->group == g) need += sequence_count_needed(q, s->pool[g], w->left[i]);
    }
    if (need > have)
      HP_FAIL(HP_ERR_OOM,
              "the tokens need %lld more blocks of the cache, %.1f MiB; %lld of its %lld blocks of "
              "%.1f KiB are free: end sequences, or give the cache more memory",
              (long long)need, (double)need * (double)s->block_bytes / 0x1p20, (long long)have,
              (long long)s->blocks, (double)s->block_bytes / 0x1p10);
  }
  return HP_OK;
}

/* Sequences without tokens hold the blocks of equal beginnings; after a failure they have none
 * again. */
static hp_status match_beginnings(session *s, session_work *w) {
  hp_status st = HP_OK;
  for (int64_t i = 0; i < w->n; i++) {
    sequence *q = &s->all.at[w->t[i].sequence];
    w->left[i] = w->t[i].n;
    if (st || q->length || !s->shares) continue;
    st = sequence_match(q, s->pool[q->group], w->t[i].ids, w->t[i].n);
    w->left[i] -= q->length;
  }
  if (!st) st = check_blocks(s, w);
  for (int64_t i = 0; st && i < w->n; i++) {
    sequence *q = &s->all.at[w->t[i].sequence];
    if (w->left[i] != w->t[i].n) sequence_clear(q, s->pool[q->group]);
  }
  return st;
}

/* Tables that depend on the length of a prompt are those of a sequence's first tokens. */
static hp_status prepare_tables(session *s, const session_work *w) {
  int64_t longest = 0;
  for (int64_t i = 0; i < w->n; i++)
    if (!s->all.at[w->t[i].sequence].length && w->t[i].n > longest) longest = w->t[i].n;
  bool depends = rope_depends_on_length(&s->m->c.rope);
  return depends && longest && longest != s->prompt ? session_make_tables(s, longest) : HP_OK;
}

hp_status session_feed(session *s, const session_tokens *t, int64_t n, float *logits) {
  HP_TRY(check_feed(s, t, n));
  session_work w = {.t = t, .n = n};
  w.left = mem_calloc((size_t)n, 2 * sizeof *w.left);
  HP_TRY_MEM(w.left);
  w.row = w.left + n;
  hp_status st = prepare_tables(s, &w);
  if (!st) st = match_beginnings(s, &w);
  for (bool more = !st; more && !st;) {
    st = session_run_chunk(s, &w, logits);
    more = false;
    for (int64_t i = 0; i < n; i++) more |= w.left[i] > 0;
  }
  mem_free(w.left);
  return st;
}

hp_status session_plan(lm *m, const session_options *o, int64_t prompt, hp_memory *out) {
  session *s = NULL;
  session_options on_device = *o;
  int64_t n = o->sequences;
  on_device.offload = HP_OFFLOAD_NONE;
  *out = (hp_memory){0};
  HP_TRY(session_create(m, &on_device, &s));
  session_tokens *t = mem_calloc((size_t)n, sizeof *t);
  session_work w = {.t = t, .n = n, .left = mem_calloc((size_t)n, sizeof *w.left)};
  hp_status st = t && w.left ? HP_OK : HP_ERR_OOM;
  for (int64_t i = 0; !st && i < n; i++) {
    st = session_add(s, &t[i].sequence);
    w.left[i] = prompt;
  }
  if (!st) st = session_plan_work(s, &w, out);
  mem_free(t);
  mem_free(w.left);
  session_free(s);
  return st;
}

hp_status session_skip(session *s, int64_t i, int64_t n) {
  HP_TRY(check_sequence(s, i));
  sequence *q = &s->all.at[i];
  block_pool *p = s->pool[q->group];
  if (n < 0 || sequence_count_needed(q, p, n) > block_pool_available(p))
    HP_FAIL(HP_ERR_OOM, "the cache has no room for %lld tokens that are skipped", (long long)n);
  HP_TRY(sequence_grow(q, p, n));
  for (int64_t k = 0; k < n; k++) sequence_commit(q, p, &(int32_t){0}, 1, false);
  return HP_OK;
}
