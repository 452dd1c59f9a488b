#include "tok/tok_vocab.h"

#include "base/hash.h"

#include <string.h>

/* Open addressing; a slot keeps 32 bits of the hash, so that a miss rarely touches the text. */
static struct tok_slot *find_slot(const tok_vocab *v, const char *at, size_t len, uint32_t hash) {
  for (size_t i = hash & (v->cap - 1);; i = (i + 1) & (v->cap - 1)) {
    struct tok_slot *s = &v->slot[i];
    if (!s->id1) return s;
    if (s->hash != hash) continue;
    const tok_text *t = &v->token[s->id1 - 1];
    if (t->len == len && !memcmp(t->at, at, len)) return s;
  }
}

hp_status tok_vocab_reserve(tok_vocab *v, size_t n) {
  size_t cap = v->cap ? v->cap : 64;
  if (n > SIZE_MAX / 4) HP_FAIL(HP_ERR_OOM, "a vocabulary of %zu tokens", n);
  while (cap < n * 2) cap *= 2;
  if (cap == v->cap) return HP_OK;
  struct tok_slot *slot = mem_calloc(cap, sizeof *slot);
  HP_TRY_MEM(slot);
  for (size_t i = 0; i < v->cap; i++) {
    if (!v->slot[i].id1) continue;
    size_t j = v->slot[i].hash & (cap - 1);
    while (slot[j].id1) j = (j + 1) & (cap - 1);
    slot[j] = v->slot[i];
  }
  mem_free(v->slot);
  v->slot = slot;
  v->cap = cap;
  return HP_OK;
}

static hp_status reserve_id(tok_vocab *v, size_t id) {
  if (id < v->n) return HP_OK;
  if (id >= v->n_cap) {
    size_t cap = v->n_cap ? v->n_cap : 64;
    while (cap <= id) cap *= 2;
    tok_text *token = mem_realloc(v->token, cap, sizeof *token);
    HP_TRY_MEM(token);
    memset(token + v->n_cap, 0, (cap - v->n_cap) * sizeof *token);
    v->token = token;
    v->n_cap = cap;
  }
  v->n = id + 1;
  return HP_OK;
}

hp_status tok_vocab_add(tok_vocab *v, const char *at, size_t len, int64_t id, const char *file,
                        unsigned line) {
  int shown = len > 80 ? 80 : (int)len;
  if (id < 0 || id > TOK_ID_MAX)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: token \"%.*s\" has id %lld; expected 0 to %d", file, line, shown,
            at, (long long)id, TOK_ID_MAX);
  if (len > UINT32_MAX / 2) HP_FAIL(HP_ERR_INPUT, "%s:%u: a token of %zu bytes", file, line, len);
  HP_TRY(tok_vocab_reserve(v, v->count + 1));
  tok_text taken = tok_vocab_get(v, id);
  if (taken.at)
    HP_FAIL(HP_ERR_INPUT,
            "%s:%u: tokens \"%.*s\" and \"%.*s\" both have id %lld; every token needs its own",
            file, line, taken.len > 80 ? 80 : (int)taken.len, taken.at, shown, at, (long long)id);
  uint32_t hash = (uint32_t)hash_bytes(at, len);
  struct tok_slot *s = find_slot(v, at, len, hash);
  if (s->id1)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: token \"%.*s\" is there twice, with ids %u and %lld", file, line,
            shown, at, s->id1 - 1, (long long)id);
  HP_TRY(reserve_id(v, (size_t)id));
  const char *copy = arena_strndup(&v->mem, at, len);
  HP_TRY_MEM(copy);
  v->token[id] = (tok_text){copy, (uint32_t)len};
  *s = (struct tok_slot){hash, (uint32_t)id + 1};
  v->count++;
  if (len > v->longest) v->longest = len;
  return HP_OK;
}

bool tok_vocab_find(const tok_vocab *v, const char *at, size_t len, int32_t *id) {
  if (!v->cap || len > v->longest) return false;
  const struct tok_slot *s = find_slot(v, at, len, (uint32_t)hash_bytes(at, len));
  if (!s->id1) return false;
  *id = (int32_t)(s->id1 - 1);
  return true;
}

tok_text tok_vocab_get(const tok_vocab *v, int64_t id) {
  return id >= 0 && (uint64_t)id < v->n ? v->token[id] : (tok_text){0};
}

void tok_vocab_free(tok_vocab *v) {
  mem_free(v->slot);
  mem_free(v->token);
  arena_free(&v->mem);
  *v = (tok_vocab){0};
}
