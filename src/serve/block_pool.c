#include "serve/block_pool.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

/* A content is named by a serial number: blocks of equal tokens after equal contents have the same
 * one, and a number is never used again, so what follows a forgotten content is not found. */
typedef struct {
  int64_t holders;
  int32_t next, prev;      /* in the queue of free blocks, -1: none */
  int32_t chain;           /* the next block in the same bucket */
  bool listed;             /* in a bucket: found by its content */
  uint64_t serial, before; /* of its content and of what precedes it; 0: none */
} block;

struct block_pool {
  int64_t n, tokens, available;
  block *at;
  int32_t *content;    /* [n, tokens] */
  int32_t *bucket;     /* [buckets]: first block, -1: none */
  uint64_t buckets;    /* a power of two */
  int32_t first, last; /* of the queue: the first was released longest ago */
  uint64_t serials;
};

/* Appends a block to the queue; removes one from it. */
static void queue_add(block_pool *p, int32_t i) {
  p->at[i].prev = p->last, p->at[i].next = -1;
  if (p->last >= 0) p->at[p->last].next = i;
  else p->first = i;
  p->last = i;
  p->available++;
}
static void queue_remove(block_pool *p, int32_t i) {
  const block *b = &p->at[i];
  if (b->prev >= 0) p->at[b->prev].next = b->next;
  else p->first = b->next;
  if (b->next >= 0) p->at[b->next].prev = b->prev;
  else p->last = b->prev;
  p->available--;
}

hp_status block_pool_create(int64_t blocks, int64_t tokens, block_pool **out) {
  HP_ASSERT(blocks >= 0 && blocks < INT32_MAX && tokens > 0);
  block_pool *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  *p = (block_pool){.n = blocks, .tokens = tokens, .buckets = 16, .first = -1, .last = -1};
  while (p->buckets < (uint64_t)blocks) p->buckets *= 2;
  size_t elements;
  p->at = mem_calloc((size_t)blocks + 1, sizeof *p->at);
  if (size_mul((size_t)blocks + 1, (size_t)tokens, &elements))
    p->content = mem_calloc(elements, sizeof *p->content);
  p->bucket = mem_calloc((size_t)p->buckets, sizeof *p->bucket);
  if (!p->at || !p->content || !p->bucket) {
    block_pool_free(p);
    HP_TRY_MEM(NULL);
  }
  for (uint64_t i = 0; i < p->buckets; i++) p->bucket[i] = -1;
  for (int64_t i = 0; i < blocks; i++) queue_add(p, (int32_t)i);
  *out = p;
  return HP_OK;
}

void block_pool_free(block_pool *p) {
  if (!p) return;
  mem_free(p->at);
  mem_free(p->content);
  mem_free(p->bucket);
  mem_free(p);
}

int64_t block_pool_blocks(const block_pool *p) { return p->n; }
int64_t block_pool_available(const block_pool *p) { return p->available; }
int64_t block_pool_holders(const block_pool *p, int32_t i) { return p->at[i].holders; }

/* --- contents --------------------------------------------------------------------------------- */

static int32_t *content_of(const block_pool *p, int32_t i) { return p->content + i * p->tokens; }

static int32_t *bucket_of(const block_pool *p, uint64_t before, const int32_t *tokens) {
  uint64_t h = hash_bytes(tokens, (size_t)p->tokens * sizeof *tokens);
  h ^= before * 0x9e3779b97f4a7c15u;
  return &p->bucket[(h ^ h >> 32) & (p->buckets - 1)];
}

static int32_t find(const block_pool *p, uint64_t before, const int32_t *tokens) {
  size_t bytes = (size_t)p->tokens * sizeof *tokens;
  for (int32_t i = *bucket_of(p, before, tokens); i >= 0; i = p->at[i].chain)
    if (p->at[i].before == before && !memcmp(content_of(p, i), tokens, bytes)) return i;
  return -1;
}

static uint64_t serial_of(const block_pool *p, int32_t i) { return i < 0 ? 0 : p->at[i].serial; }

bool block_pool_is_filled(const block_pool *p, int32_t i) { return serial_of(p, i) != 0; }

int32_t block_pool_find(const block_pool *p, int32_t before, const int32_t *tokens) {
  return before >= 0 && !serial_of(p, before) ? -1 : find(p, serial_of(p, before), tokens);
}

void block_pool_fill(block_pool *p, int32_t i, int32_t before, const int32_t *tokens) {
  block *b = &p->at[i];
  HP_ASSERT(b->holders > 0 && !b->serial && (before < 0 || serial_of(p, before)));
  b->before = serial_of(p, before);
  int32_t same = find(p, b->before, tokens), *bucket = bucket_of(p, b->before, tokens);
  b->serial = same < 0 ? ++p->serials : p->at[same].serial;
  b->listed = same < 0;
  memcpy(content_of(p, i), tokens, (size_t)p->tokens * sizeof *tokens);
  if (!b->listed) return;
  b->chain = *bucket;
  *bucket = i;
}

static void forget(block_pool *p, int32_t i) {
  block *b = &p->at[i];
  if (b->listed) {
    int32_t *at = bucket_of(p, b->before, content_of(p, i));
    while (*at != i) at = &p->at[*at].chain;
    *at = b->chain;
  }
  b->listed = false;
  b->serial = b->before = 0;
}

/* --- holders ---------------------------------------------------------------------------------- */

int32_t block_pool_take(block_pool *p) {
  int32_t i = p->first;
  if (i < 0) return -1;
  queue_remove(p, i);
  forget(p, i);
  p->at[i].holders = 1;
  return i;
}

void block_pool_hold(block_pool *p, int32_t i) {
  if (!p->at[i].holders++) queue_remove(p, i);
}

void block_pool_release(block_pool *p, int32_t i) {
  HP_ASSERT(p->at[i].holders > 0);
  if (!--p->at[i].holders) queue_add(p, i);
}
