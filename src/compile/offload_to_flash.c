#include "compile/offload_to_flash.h"

#include <stdlib.h>

typedef struct {
  uint32_t item;
  uint8_t choice;
  uint64_t bytes;
  double cost_s; /* of a byte: its copies in a run, if it is away between all of its touches */
} candidate;

/* The first goes first: optimizer state, then what costs least for each byte, then large ones. */
static int by_cost(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->choice != y->choice) return x->choice > y->choice ? -1 : 1;
  if (x->cost_s < y->cost_s || x->cost_s > y->cost_s) return x->cost_s < y->cost_s ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->item < y->item ? -1 : 1;
}

static candidate make_candidate(const offload_items *x, uint32_t i) {
  const offload_item *it = &x->item[i];
  const offload_link *l = &x->problem.link[TIER_FLASH - TIER_HOST];
  candidate c = {.item = i, .choice = x->choice[i], .bytes = it->bytes};
  for (uint32_t k = 0; k < it->touches; k++) {
    uint8_t access = x->touch[it->touch0 + k].access;
    double bytes = (double)it->bytes;
    if (access & OFFLOAD_READ) c.cost_s += l->latency_s + bytes / l->in_bytes_s;
    if (access & OFFLOAD_WRITE) c.cost_s += l->latency_s + bytes / l->out_bytes_s;
  }
  c.cost_s /= (double)(it->bytes ? it->bytes : 1);
  return c;
}

/* The least of those from `from` on, of one choice, that has as many bytes as are left: the last to
 * go need not be the largest. */
static size_t find_enough(const candidate *c, size_t n, size_t from, uint64_t left) {
  size_t best = from;
  for (size_t i = from; i < n && c[i].choice == c[from].choice; i++)
    if (c[i].bytes >= left && c[i].bytes < c[best].bytes) best = i;
  return best;
}

/* The slices of a tensor go together: the first stands for all.  first[root]: 1 + that item. */
static size_t list_candidates(const offload_items *x, uint32_t *first, candidate *c) {
  size_t n = 0;
  for (uint32_t i = 0; i < x->problem.items; i++) {
    uint32_t b = x->state[i];
    if (x->choice[i] == ON_ITS_TIER) continue;
    c[n++] = make_candidate(x, i);
    if (b == PROG_NONE || !offload_is_slice(x, b)) continue;
    uint32_t *leader = &first[offload_root(x->p, b)];
    if (*leader) {
      n--;
      continue;
    }
    *leader = i + 1;
    c[n - 1].bytes = offload_padded(x->p->buffers.at[offload_root(x->p, b)].bytes);
  }
  return n;
}

static void move_slices(offload_items *x, const uint32_t *first) {
  for (uint32_t i = 0; i < x->problem.items; i++) {
    uint32_t b = x->state[i], leader = b == PROG_NONE ? 0 : first[offload_root(x->p, b)];
    if (leader) x->item[i].tier = x->item[leader - 1].tier;
  }
}

hp_status offload_to_flash(offload_items *x, uint64_t bytes) {
  candidate *c = mem_calloc(x->problem.items, sizeof *c);
  uint32_t *first = mem_calloc(x->p->buffers.len, sizeof *first);
  size_t n = c && first ? list_candidates(x, first, c) : 0;
  if (n) qsort(c, n, sizeof *c, by_cost);
  for (size_t i = 0; i < n && bytes; i++) {
    size_t k = c[i].bytes >= bytes ? find_enough(c, n, i, bytes) : i;
    x->item[c[k].item].tier = TIER_FLASH - TIER_HOST;
    bytes -= c[k].bytes < bytes ? c[k].bytes : bytes;
  }
  bool made = c && first;
  if (made) move_slices(x, first);
  mem_free(c);
  mem_free(first);
  return made ? HP_OK : HP_ERR_OOM;
}
