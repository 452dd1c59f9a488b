#include "mem/offsets_items.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN_MAX (UINT64_C(1) << 40)

void offsets_items_free(offsets_items *t) {
  mem_free(t->item);
  mem_free(t->position);
  mem_free(t->first);
  mem_free(t->dead);
  mem_free(t->of);
  *t = (offsets_items){0};
}

static hp_status check_buffer(const offsets_problem *p, size_t i, uint32_t streams) {
  const offsets_buffer *b = &p->buffer[i];
  if (b->align & (b->align - 1) || b->align > ALIGN_MAX)
    HP_FAIL(HP_ERR_ARG, "buffer %zu: alignment %llu; expected a power of two up to 2^40", i,
            (unsigned long long)b->align);
  if (b->tier >= OFFSETS_TIERS || b->stream >= streams)
    HP_FAIL(HP_ERR_ARG,
            "buffer %zu: tier %u, stream %u; expected tiers below %d and streams below %u", i,
            b->tier, b->stream, OFFSETS_TIERS, streams);
  if (b->first > b->last || b->last >= OFFSETS_NEVER - 1)
    HP_FAIL(HP_ERR_ARG,
            "buffer %zu: defined at %u, last used at %u; expected first <= last < 2^32 - 2", i,
            b->first, b->last);
  for (uint32_t s = 0; streams > 1 && s < streams; s++)
    if (p->dead[i * streams + s] <= b->last)
      HP_FAIL(HP_ERR_ARG, "buffer %zu: dead on stream %u at %u, but last used at %u", i, s,
              p->dead[i * streams + s], b->last);
  uint64_t align = b->align ? b->align : OFFSETS_ALIGN;
  if (b->size > OFFSETS_MAX_BYTES || (b->fixed && b->offset > OFFSETS_MAX_BYTES))
    HP_FAIL(HP_ERR_OOM, "buffer %zu: %llu bytes at offset %llu; an arena has at most 2^62", i,
            (unsigned long long)b->size, (unsigned long long)(b->fixed ? b->offset : 0));
  if (b->fixed && b->offset % align)
    HP_FAIL(HP_ERR_ARG,
            "buffer %zu: fixed at offset %llu, which is no multiple of its alignment %llu", i,
            (unsigned long long)b->offset, (unsigned long long)align);
  return HP_OK;
}

/* Makes buffer i a member of item k (a new one when it is the item's first buffer). */
static hp_status add_member(const offsets_problem *p, offsets_items *t, size_t i, uint32_t k) {
  const offsets_buffer *b = &p->buffer[i];
  offsets_item *m = &t->item[k];
  uint64_t align = b->align ? b->align : OFFSETS_ALIGN;
  uint32_t *first = t->first + (size_t)k * t->streams, *dead = t->dead + (size_t)k * t->streams;
  if (k == t->n) {
    *m = (offsets_item){.align = align,
                        .offset = b->offset,
                        .fixed = b->fixed,
                        .tier = b->tier,
                        .name = (uint32_t)i,
                        .tied = OFFSETS_NEVER};
    for (uint32_t s = 0; s < t->streams; s++) first[s] = OFFSETS_NEVER, dead[s] = 0;
    t->n++;
  }
  if (m->tier != b->tier)
    HP_FAIL(HP_ERR_ARG, "buffers %u and %zu are aliases (group %u) but in tiers %u and %u", m->name,
            i, b->alias, m->tier, b->tier);
  if (m->fixed && b->fixed && m->offset != b->offset)
    HP_FAIL(HP_ERR_ARG, "buffers %u and %zu are aliases (group %u) but fixed at %llu and %llu",
            m->name, i, b->alias, (unsigned long long)m->offset, (unsigned long long)b->offset);
  if (b->fixed) m->fixed = true, m->offset = b->offset;
  if (align > m->align) m->align = align;
  if (b->size > m->size) m->size = b->size;
  if (b->first < first[b->stream]) first[b->stream] = b->first;
  for (uint32_t s = 0; s < t->streams; s++) {
    uint32_t d = t->streams > 1 ? p->dead[i * t->streams + s] : b->last + 1;
    if (d > dead[s]) dead[s] = d;
  }
  t->of[i] = k;
  return HP_OK;
}

static hp_status gather_items(const offsets_problem *p, offsets_items *t) {
  map group = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; i < p->n; i++) {
    uint32_t k = (uint32_t)t->n, id = p->buffer[i].alias;
    HP_TRY_GOTO(check_buffer(p, i, t->streams), st);
    if (id && !map_get(&group, &id, sizeof id, &k))
      HP_TRY_GOTO(map_set(&group, &id, sizeof id, k), st);
    HP_TRY_GOTO(add_member(p, t, i, k), st);
  }
done:
  map_free(&group);
  return st;
}

/* Rounds sizes; refuses tiers whose buffers add up to more than an arena can have, so that no sum
 * of sizes and paddings overflows later. */
static hp_status check_sizes(offsets_items *t) {
  uint64_t total[OFFSETS_TIERS] = {0};
  for (size_t k = 0; k < t->n; k++) {
    offsets_item *m = &t->item[k];
    m->size = (m->size + m->align - 1) & ~(m->align - 1);
    total[m->tier] += m->size;
    if (total[m->tier] > OFFSETS_MAX_BYTES || (m->fixed && m->offset + m->size > OFFSETS_MAX_BYTES))
      HP_FAIL(HP_ERR_OOM,
              "buffer %u of %llu bytes: the buffers of tier %u add up to more than 2^62 bytes",
              m->name, (unsigned long long)m->size, m->tier);
    if (m->fixed && m->offset % m->align)
      HP_FAIL(HP_ERR_ARG, "buffer %u: fixed at offset %llu, but an alias of it has alignment %llu",
              m->name, (unsigned long long)m->offset, (unsigned long long)m->align);
  }
  return HP_OK;
}

/* Chains the items whose buffers are tied. */
static hp_status tie_items(const offsets_problem *p, offsets_items *t) {
  map last = {0}; /* by group: the item at its end */
  hp_status st = HP_OK;
  for (size_t i = 0; i < p->n; i++) {
    uint32_t id = p->buffer[i].tie, k = t->of[i], end;
    if (!id) continue;
    if (map_get(&last, &id, sizeof id, &end)) {
      offsets_item *x = &t->item[end], *y = &t->item[k];
      bool alike = x->size == y->size && x->align == y->align && x->tier == y->tier;
      if (!alike || x->fixed || y->fixed || y->follows || y->tied != OFFSETS_NEVER || k <= end ||
          offsets_items_conflict(t, end, k))
        HP_FAIL_GOTO(st, HP_ERR_ARG,
                     "buffers %u and %zu are tied (group %u); expected one size, tier and "
                     "alignment, no fixed offset, and that they never live together",
                     x->name, i, id);
      x->tied = k;
      y->follows = true;
    }
    HP_TRY_GOTO(map_set(&last, &id, sizeof id, k), st);
  }
done:
  map_free(&last);
  return st;
}

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

/* The number of values below x in a sorted array. */
static uint32_t rank_of(const uint32_t *at, uint32_t n, uint32_t x) {
  uint32_t lo = 0;
  while (n) {
    uint32_t half = n / 2;
    if (at[lo + half] < x) lo += half + 1, n -= half + 1;
    else n = half;
  }
  return lo;
}

/* Positions become ranks among the positions of definitions. */
static hp_status compress_positions(offsets_items *t) {
  size_t cells = t->n * t->streams, n = 0;
  t->position = mem_calloc(cells, sizeof *t->position);
  HP_TRY_MEM(t->position);
  bool sorted = true;
  for (size_t c = 0; c < cells; c++) {
    if (t->first[c] == OFFSETS_NEVER) continue;
    sorted = sorted && (!n || t->position[n - 1] <= t->first[c]);
    t->position[n++] = t->first[c];
  }
  if (!sorted) qsort(t->position, n, sizeof *t->position, by_value);
  for (size_t i = 0; i < n; i++)
    if (!i || t->position[i] != t->position[t->points - 1])
      t->position[t->points++] = t->position[i];
  for (size_t c = 0; c < cells; c++) {
    if (t->first[c] != OFFSETS_NEVER) t->first[c] = rank_of(t->position, t->points, t->first[c]);
    t->dead[c] = rank_of(t->position, t->points, t->dead[c]);
  }
  return HP_OK;
}

hp_status offsets_items_build(const offsets_problem *p, offsets_items *out) {
  uint32_t streams = p->streams ? p->streams : 1;
  if (streams > OFFSETS_STREAMS)
    HP_FAIL(HP_ERR_ARG, "%u streams: at most %d are possible", streams, OFFSETS_STREAMS);
  if (p->n >= OFFSETS_NEVER) HP_FAIL(HP_ERR_ARG, "%zu buffers are too many", p->n);
  if (streams > 1 && !p->dead && p->n)
    HP_FAIL(HP_ERR_ARG, "%u streams, but no table of when buffers are dead on each", streams);
  offsets_items t = {.streams = streams};
  hp_status st = HP_ERR_OOM;
  t.item = mem_calloc(p->n, sizeof *t.item);
  t.first = mem_calloc(p->n * streams, sizeof *t.first);
  t.dead = mem_calloc(p->n * streams, sizeof *t.dead);
  t.of = mem_calloc(p->n, sizeof *t.of);
  if (!t.item || !t.first || !t.dead || !t.of) goto done;
  HP_TRY_GOTO(gather_items(p, &t), st);
  HP_TRY_GOTO(check_sizes(&t), st);
  HP_TRY_GOTO(compress_positions(&t), st);
  HP_TRY_GOTO(tie_items(p, &t), st);
  *out = t;
  return HP_OK;
done:
  offsets_items_free(&t);
  return st;
}
