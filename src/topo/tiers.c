#include "topo/tiers.h"

#include <stddef.h>
#include <string.h>

static const double SMALL = 1e-30;

/* The numbers of a row, by their keys. */
static const struct {
  const char *key;
  size_t at;
  bool may_be_0;
} numbers[] = {{"memory_gb", offsetof(cluster_tier, memory_gb), false},
               {"read_gb_s", offsetof(cluster_tier, read_gb_s), false},
               {"write_gb_s", offsetof(cluster_tier, write_gb_s), false},
               {"latency_us", offsetof(cluster_tier, latency_us), true},
               {"update_gb_s", offsetof(cluster_tier, update_gb_s), false}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static double *number_of(const cluster_tier *t, int i) {
  return (double *)(uintptr_t)((const char *)t + numbers[i].at);
}

/* --- reading ---------------------------------------------------------------------------------- */

static hp_status read_tier(const tree_node *m, int after, int *out) {
  const char *name, *known[TIER_COUNT - 1];
  for (int t = TIER_HOST; t < TIER_COUNT; t++) known[t - 1] = tier_name(t);
  HP_TRY(tree_need_string(m, "name", &name));
  for (int t = TIER_HOST; t < TIER_COUNT; t++) {
    if (strcmp(name, tier_name(t)) != 0) continue;
    if (t == after) TREE_FAIL(tree_get(m, "name"), "there is a row of tier %s before", name);
    if (t < after)
      TREE_FAIL(tree_get(m, "name"),
                "tier %s is nearer than %s; expected the tiers from near to far", name,
                tier_name(after));
    *out = t;
    return HP_OK;
  }
  const char *near = str_nearest(name, known, TIER_COUNT - 1);
  TREE_FAIL(tree_get(m, "name"), "\"%.100s\" is no tier; expected host or flash%s%s%s", name,
            near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static hp_status read_shared_by(const tree_node *m, int64_t devices_per_node, int64_t *out) {
  const tree_node *n = tree_get(m, "shared_by");
  if (n && n->kind == TREE_STRING && !strcmp(n->string, "node")) {
    *out = devices_per_node;
    return HP_OK;
  }
  HP_TRY(tree_opt_int(m, "shared_by", 0, out));
  if (n && n->kind != TREE_NULL && (*out < 1 || *out > devices_per_node))
    TREE_FAIL(n, "%lld is out of range; expected 1 to %lld, the devices_per_node", (long long)*out,
              (long long)devices_per_node);
  return HP_OK;
}

static hp_status read_row(const tree_node *m, int64_t devices_per_node, int *tier,
                          cluster_tier out[TIER_COUNT]) {
  const char *keys[NUMBERS + 2] = {"name", "shared_by"};
  cluster_tier t = {.shared_by = 0};
  for (int i = 0; i < NUMBERS; i++) keys[i + 2] = numbers[i].key;
  HP_TRY(tree_expect(m, TREE_MAP));
  HP_TRY(tree_check_keys(m, keys, NUMBERS + 2));
  HP_TRY(read_tier(m, *tier, tier));
  for (int i = 0; i < NUMBERS; i++)
    if (tree_get(m, numbers[i].key))
      HP_TRY(
          tree_need_number(m, numbers[i].key, numbers[i].may_be_0 ? 0 : SMALL, number_of(&t, i)));
  if (t.update_gb_s > 0 && *tier != TIER_HOST)
    TREE_FAIL(tree_get(m, "update_gb_s"), "tier %s updates nothing; expected this key of tier host",
              tier_name(*tier));
  HP_TRY(read_shared_by(m, devices_per_node, &t.shared_by));
  out[*tier] = t;
  return HP_OK;
}

hp_status tiers_read(const tree_node *n, int64_t devices_per_node, cluster_tier out[TIER_COUNT]) {
  int tier = TIER_DEVICE;
  for (int t = 0; t < TIER_COUNT; t++) out[t] = (cluster_tier){.shared_by = 0};
  if (!n) return HP_OK;
  HP_TRY(tree_expect(n, TREE_LIST));
  for (uint32_t i = 0; i < n->len; i++) HP_TRY(read_row(n->child[i], devices_per_node, &tier, out));
  return HP_OK;
}

/* --- printing --------------------------------------------------------------------------------- */

static bool is_given(const cluster_tier *t) {
  for (int i = 0; i < NUMBERS; i++)
    if (*number_of(t, i) > 0) return true;
  return t->shared_by > 0;
}

void tiers_print(const cluster_tier tier[TIER_COUNT], str *out) {
  bool begun = false;
  for (int t = TIER_HOST; t < TIER_COUNT; t++) {
    if (!is_given(&tier[t])) continue;
    str_printf(out, "%s- {name: %s", begun ? "" : "tiers:\n", tier_name(t));
    for (int i = 0; i < NUMBERS; i++) {
      double x = *number_of(&tier[t], i);
      if (!(x > 0)) continue;
      str_printf(out, ", %s: ", numbers[i].key);
      str_add_double(out, x);
    }
    if (tier[t].shared_by) str_printf(out, ", shared_by: %lld", (long long)tier[t].shared_by);
    str_add(out, "}\n");
    begun = true;
  }
}
