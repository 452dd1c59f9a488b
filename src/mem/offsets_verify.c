#include "mem/offsets_items.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Independent of how offsets are found: time is swept, and a segment tree over the addresses in
 * use counts the live items on each.  An item that is defined on s is compared with the count of
 * those defined on t that are not dead for s. */

typedef struct {
  uint64_t at;
  uint8_t tier;
} address;

typedef struct {
  uint32_t *add,
      *max; /* [4 * addresses] items on all of the node; most items on an address of it */
} counter;

typedef struct {
  const offsets_items *items;
  const uint64_t *offset; /* of items */
  address *line;          /* sorted ends of all items */
  uint32_t n_line;
  uint32_t *from, *to; /* [items] indices into line */
  counter on[2];       /* live items defined on the first and on the second stream of the pair */
  uint32_t *born0, *born, *died0, *died; /* per stream of the pair and time: items */
} sweep;

static int compare_address(const void *a, const void *b) {
  const address *x = a, *y = b;
  if (x->tier != y->tier) return x->tier < y->tier ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

static uint32_t index_of(const sweep *w, uint64_t at, uint8_t tier) {
  address key = {at, tier};
  uint32_t lo = 0, n = w->n_line;
  while (n) {
    uint32_t half = n / 2;
    if (compare_address(&w->line[lo + half], &key) < 0) lo += half + 1, n -= half + 1;
    else n = half;
  }
  return lo;
}

static void count_add(counter *c, uint32_t node, uint32_t lo, uint32_t hi, uint32_t from,
                      uint32_t to, uint32_t by) {
  if (to <= lo || hi <= from) return;
  if (from <= lo && hi <= to) {
    c->add[node] += by; /* -1 wraps around and back */
    c->max[node] += by;
    return;
  }
  uint32_t mid = lo + (hi - lo) / 2, l = 2 * node, r = l + 1;
  count_add(c, l, lo, mid, from, to, by);
  count_add(c, r, mid, hi, from, to, by);
  c->max[node] = c->add[node] + (c->max[l] > c->max[r] ? c->max[l] : c->max[r]);
}

static bool any_on(const counter *c, uint32_t node, uint32_t lo, uint32_t hi, uint32_t from,
                   uint32_t to) {
  if (to <= lo || hi <= from || !c->max[node]) return false;
  if (c->add[node] || (from <= lo && hi <= to)) return true;
  uint32_t mid = lo + (hi - lo) / 2;
  return any_on(c, 2 * node, lo, mid, from, to) || any_on(c, 2 * node + 1, mid, hi, from, to);
}

static hp_status fail_overlap(const sweep *w, uint32_t b) {
  const offsets_items *t = w->items;
  for (uint32_t a = 0; a < t->n; a++) {
    const offsets_item *x = &t->item[a], *y = &t->item[b];
    if (a == b || x->tier != y->tier || w->offset[a] >= w->offset[b] + y->size ||
        w->offset[b] >= w->offset[a] + x->size || !x->size || !offsets_items_conflict(t, a, b))
      continue;
    HP_FAIL(HP_ERR_INTERNAL,
            "buffers %u and %u of tier %u are live together but overlap: %llu bytes at %llu and "
            "%llu bytes at %llu",
            x->name, y->name, x->tier, (unsigned long long)x->size,
            (unsigned long long)w->offset[a], (unsigned long long)y->size,
            (unsigned long long)w->offset[b]);
  }
  HP_FAIL(HP_ERR_INTERNAL, "buffer %u overlaps one that is live with it", t->item[b].name);
}

/* Counting sort of the items of streams t and s (side 0 and 1) by definition and by death; a
 * side uses the death seen by the other stream. */
static void sort_events(sweep *w, uint32_t t, uint32_t s) {
  const offsets_items *i = w->items;
  uint32_t sides = t == s ? 1 : 2, slots = i->points + 1;
  memset(w->born0, 0, 2 * ((size_t)slots + 1) * sizeof *w->born0);
  memset(w->died0, 0, 2 * ((size_t)slots + 1) * sizeof *w->died0);
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t side = 0; side < sides; side++)
      for (uint32_t k = 0; k < i->n; k++) {
        uint32_t first = i->first[(size_t)k * i->streams + (side ? s : t)];
        uint32_t dead = i->dead[(size_t)k * i->streams + (side ? t : s)];
        if (first == OFFSETS_NEVER || !i->item[k].size) continue;
        if (pass == 0) {
          w->born0[2 * first + side + 1]++;
          w->died0[2 * dead + side + 1]++;
        } else {
          w->born[w->born0[2 * first + side]++] = k;
          w->died[w->died0[2 * dead + side]++] = k;
        }
      }
    if (pass == 0)
      for (size_t x = 0; x < 2 * (size_t)slots; x++) {
        w->born0[x + 1] += w->born0[x];
        w->died0[x + 1] += w->died0[x];
      }
  }
}

/* Is item k, defined on stream `on`, among the live ones of that side at a time?  If both
 * definitions are at that time, only the side that comes first has it already. */
static bool is_counted(const sweep *w, uint32_t k, uint32_t on, uint32_t other, uint32_t time,
                       bool later) {
  size_t row = (size_t)k * w->items->streams;
  uint32_t first = w->items->first[row + on], dead = w->items->dead[row + other];
  return first != OFFSETS_NEVER && time < dead && (first < time || (first == time && !later));
}

static hp_status sweep_pair(sweep *w, uint32_t t, uint32_t s) {
  uint32_t last = w->n_line, b = 0, d = 0;
  sort_events(w, t, s); /* stores in born0[2 x + side] the end of that time and side */
  for (uint32_t side = 0; side < 2; side++) {
    memset(w->on[side].add, 0, 4 * (size_t)last * sizeof(uint32_t));
    memset(w->on[side].max, 0, 4 * (size_t)last * sizeof(uint32_t));
  }
  for (uint32_t x = 0; x < 2 * w->items->points; x++) {
    for (; d < w->died0[x | 1] && !(x & 1); d++) {
      uint32_t k = w->died[d];
      count_add(&w->on[d >= w->died0[x]], 1, 0, last, w->from[k], w->to[k], UINT32_MAX);
    }
    for (; b < w->born0[x]; b++) {
      uint32_t k = w->born[b], side = x & 1, other = t == s ? 0 : !side;
      /* a group that is defined on both streams does not conflict with itself */
      bool self = t != s && is_counted(w, k, other ? s : t, other ? t : s, x / 2, !side);
      if (self) count_add(&w->on[other], 1, 0, last, w->from[k], w->to[k], UINT32_MAX);
      if (any_on(&w->on[other], 1, 0, last, w->from[k], w->to[k])) return fail_overlap(w, k);
      if (self) count_add(&w->on[other], 1, 0, last, w->from[k], w->to[k], 1);
      count_add(&w->on[side], 1, 0, last, w->from[k], w->to[k], 1);
    }
  }
  return HP_OK;
}

static hp_status sweep_create(sweep *w) {
  size_t n = w->items->n, slots = 2 * ((size_t)w->items->points + 2);
  w->line = mem_calloc(2 * n, sizeof *w->line);
  w->from = mem_calloc(n, sizeof *w->from);
  w->to = mem_calloc(n, sizeof *w->to);
  w->born0 = mem_calloc(slots, sizeof *w->born0);
  w->died0 = mem_calloc(slots, sizeof *w->died0);
  w->born = mem_calloc(2 * n, sizeof *w->born);
  w->died = mem_calloc(2 * n, sizeof *w->died);
  if (!w->line || !w->from || !w->to || !w->born0 || !w->died0 || !w->born || !w->died)
    return HP_ERR_OOM;
  for (size_t k = 0; k < n; k++) {
    uint8_t tier = w->items->item[k].tier;
    w->line[2 * k] = (address){w->offset[k], tier};
    w->line[2 * k + 1] = (address){w->offset[k] + w->items->item[k].size, tier};
  }
  qsort(w->line, 2 * n, sizeof *w->line, compare_address);
  for (size_t k = 0; k < 2 * n; k++)
    if (!k || compare_address(&w->line[k], &w->line[w->n_line - 1]))
      w->line[w->n_line++] = w->line[k];
  for (size_t k = 0; k < n; k++) {
    w->from[k] = index_of(w, w->offset[k], w->items->item[k].tier);
    w->to[k] = index_of(w, w->offset[k] + w->items->item[k].size, w->items->item[k].tier);
  }
  for (int side = 0; side < 2; side++) {
    w->on[side].add = mem_calloc(4 * (size_t)w->n_line, sizeof(uint32_t));
    w->on[side].max = mem_calloc(4 * (size_t)w->n_line, sizeof(uint32_t));
    if (!w->on[side].add || !w->on[side].max) return HP_ERR_OOM;
  }
  return HP_OK;
}

static void sweep_free(sweep *w) {
  mem_free(w->line);
  mem_free(w->from);
  mem_free(w->to);
  mem_free(w->born0);
  mem_free(w->died0);
  mem_free(w->born);
  mem_free(w->died);
  for (int side = 0; side < 2; side++) mem_free(w->on[side].add), mem_free(w->on[side].max);
}

/* Offsets of the items, after checks of each buffer by itself. */
static hp_status collect_offsets(const offsets_problem *p, const offsets_items *t,
                                 const uint64_t *offset, uint64_t *of_item) {
  for (size_t k = 0; k < t->n; k++) of_item[k] = offset[t->item[k].name];
  for (size_t i = 0; i < p->n; i++) {
    const offsets_item *m = &t->item[t->of[i]];
    unsigned long long at = offset[i];
    if (of_item[t->of[i]] != offset[i])
      HP_FAIL(HP_ERR_INTERNAL, "buffers %u and %zu are aliases but lie at %llu and %llu", m->name,
              i, (unsigned long long)of_item[t->of[i]], at);
    if (m->fixed && m->offset != offset[i])
      HP_FAIL(HP_ERR_INTERNAL, "buffer %zu is fixed at %llu but lies at %llu", i,
              (unsigned long long)m->offset, at);
    if (at % m->align || at > OFFSETS_MAX_BYTES || m->size > OFFSETS_MAX_BYTES - at)
      HP_FAIL(HP_ERR_INTERNAL, "buffer %zu of %llu bytes lies at %llu; expected a multiple of %llu",
              i, (unsigned long long)m->size, at, (unsigned long long)m->align);
  }
  return HP_OK;
}

static hp_status check_ties(const offsets_items *t, const uint64_t *offset) {
  for (uint32_t k = 0; k < t->n; k++) {
    uint32_t next = t->item[k].tied;
    if (next != OFFSETS_NEVER && t->item[k].size && offset[next] != offset[k])
      HP_FAIL(HP_ERR_INTERNAL, "buffers %u and %u are tied but lie at %llu and %llu",
              t->item[k].name, t->item[next].name, (unsigned long long)offset[k],
              (unsigned long long)offset[next]);
  }
  return HP_OK;
}

hp_status offsets_verify(const offsets_problem *p, const uint64_t *offset) {
  offsets_items t = {0};
  sweep w = {0};
  hp_status st;
  HP_TRY(offsets_items_build(p, &t));
  uint64_t *of_item = mem_calloc(t.n, sizeof *of_item);
  if (!of_item) HP_TRY_GOTO(HP_ERR_OOM, st);
  HP_TRY_GOTO(collect_offsets(p, &t, offset, of_item), st);
  HP_TRY_GOTO(check_ties(&t, of_item), st);
  w.items = &t;
  w.offset = of_item;
  HP_TRY_GOTO(sweep_create(&w), st);
  for (uint32_t a = 0; a < t.streams; a++)
    for (uint32_t b = a; b < t.streams; b++) HP_TRY_GOTO(sweep_pair(&w, a, b), st);
done:
  sweep_free(&w);
  mem_free(of_item);
  offsets_items_free(&t);
  return st;
}

bool offsets_conflict(const offsets_problem *p, uint32_t a, uint32_t b) {
  const offsets_buffer *x = &p->buffer[a], *y = &p->buffer[b];
  if (a == b || x->tier != y->tier || !x->size || !y->size || (x->alias && x->alias == y->alias))
    return false;
  if (p->streams <= 1) return x->first <= y->last && y->first <= x->last;
  return y->first < p->dead[(size_t)a * p->streams + y->stream] &&
         x->first < p->dead[(size_t)b * p->streams + x->stream];
}
