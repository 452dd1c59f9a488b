#include "mem/offload_peaks.h"

#include "base/mem.h"

/* No sum of needs exceeds PEAK_TREE_MOST, so that a larger cap makes no difference. */
static hp_status create_trees(const uint64_t *need, uint32_t n, uint64_t cap, offload_peaks *p) {
  int64_t *excess = mem_calloc(n, sizeof *excess), *less = mem_calloc(n, sizeof *less);
  hp_status st = excess && less ? HP_OK : HP_ERR_OOM;
  if (cap > PEAK_TREE_MOST) cap = PEAK_TREE_MOST;
  for (uint32_t i = 0; !st && i < n; i++) {
    excess[i] = (int64_t)need[i] - (int64_t)cap;
    less[i] = -excess[i];
  }
  if (!st) st = peak_tree_create(excess, n, &p->high);
  if (!st) st = peak_tree_create(less, n, &p->low);
  for (uint32_t i = 0; !st && i < n; i++)
    if (excess[i] > 0) index_set_add(&p->over, i);
    else peak_tree_remove(&p->low, i);
  mem_free(excess);
  mem_free(less);
  return st;
}

hp_status offload_peaks_create(const uint64_t *need, const double *step_s, uint32_t n, uint64_t cap,
                               offload_peaks *p) {
  *p = (offload_peaks){.step_s = step_s, .over_s = mem_calloc(n, sizeof *p->over_s)};
  HP_TRY_MEM(p->over_s);
  HP_TRY(index_set_create(n, &p->over));
  return create_trees(need, n, cap, p);
}

void offload_peaks_free(offload_peaks *p) {
  peak_tree_free(&p->high);
  peak_tree_free(&p->low);
  index_set_free(&p->over);
  mem_free(p->over_s);
  *p = (offload_peaks){0};
}

void offload_peaks_longer(offload_peaks *p, uint32_t i) {
  if (i < p->known) p->known = i;
}

void offload_peaks_drop(offload_peaks *p, uint32_t from, uint32_t until, uint64_t bytes) {
  peak_tree_add(&p->high, from, until, -(int64_t)bytes);
  peak_tree_add(&p->low, from, until, (int64_t)bytes);
  while (peak_tree_most(&p->low) >= 0) {
    uint32_t i = peak_tree_first(&p->low);
    peak_tree_remove(&p->low, i);
    index_set_remove(&p->over, i);
    offload_peaks_longer(p, i);
  }
}

uint32_t offload_peaks_find(const offload_peaks *p) {
  return peak_tree_most(&p->high) > 0 ? peak_tree_first(&p->high) : p->high.n;
}

void offload_peaks_give_up(offload_peaks *p, uint32_t i) { peak_tree_remove(&p->high, i); }

int64_t offload_peaks_excess(const offload_peaks *p, uint32_t i) {
  return peak_tree_at(&p->high, i);
}

/* What is added to each keeps the score of what is away during steps of no time above 0. */
double offload_peaks_over_s(offload_peaks *p, uint32_t i) {
  uint32_t last = index_set_last(&p->over, i);
  if (last == INDEX_SET_NONE) return 0;
  if (last < p->known) return p->over_s[last];
  uint32_t before = index_set_last(&p->over, p->known), k = index_set_next(&p->over, p->known);
  double sum = before == INDEX_SET_NONE ? 0 : p->over_s[before];
  for (; k <= last; k = index_set_next(&p->over, k + 1)) p->over_s[k] = sum += p->step_s[k] + 1e-12;
  p->known = last + 1;
  return sum;
}
