#include "mem/peak_tree.h"

#include "base/mem.h"

static const int64_t removed = -(INT64_C(1) << 62); /* far below all others, also with additions */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void update(peak_tree *t, uint32_t node) {
  t->most[node] = larger(t->most[2 * node], t->most[2 * node + 1]) + t->add[node];
}

hp_status peak_tree_create(const int64_t *value, uint32_t n, peak_tree *t) {
  *t = (peak_tree){.n = n, .leaves = 1};
  while (t->leaves < n) t->leaves *= 2;
  t->most = mem_calloc(2 * (size_t)t->leaves, sizeof *t->most);
  t->add = mem_calloc(2 * (size_t)t->leaves, sizeof *t->add);
  HP_TRY_MEM(t->most && t->add);
  for (uint32_t i = 0; i < t->leaves; i++) t->most[t->leaves + i] = i < n ? value[i] : removed;
  for (uint32_t node = t->leaves - 1; node; node--) update(t, node);
  return HP_OK;
}

void peak_tree_free(peak_tree *t) {
  mem_free(t->most);
  mem_free(t->add);
  *t = (peak_tree){0};
}

static void update_above(peak_tree *t, uint32_t node) {
  while (node /= 2) update(t, node);
}

static void add_at(peak_tree *t, uint32_t node, int64_t more) {
  t->most[node] += more;
  t->add[node] += more;
}

/* Whole nodes of the range, from its ends towards the root. */
void peak_tree_add(peak_tree *t, uint32_t from, uint32_t until, int64_t more) {
  if (from >= until) return;
  uint32_t low = from + t->leaves, high = until + t->leaves;
  for (; low < high; low /= 2, high /= 2) {
    if (low & 1) add_at(t, low++, more);
    if (high & 1) add_at(t, --high, more);
  }
  update_above(t, from + t->leaves);
  update_above(t, until - 1 + t->leaves);
}

void peak_tree_remove(peak_tree *t, uint32_t i) {
  t->most[i + t->leaves] = removed;
  update_above(t, i + t->leaves);
}

int64_t peak_tree_at(const peak_tree *t, uint32_t i) {
  uint32_t node = i + t->leaves;
  int64_t x = t->most[node];
  while (node /= 2) x += t->add[node];
  return x;
}

int64_t peak_tree_most(const peak_tree *t) { return t->most[1]; }

uint32_t peak_tree_first(const peak_tree *t) {
  uint32_t node = 1;
  if (t->most[1] < -PEAK_TREE_MOST) return t->n;
  while (node < t->leaves) node = 2 * node + (t->most[2 * node + 1] > t->most[2 * node]);
  return node - t->leaves;
}
