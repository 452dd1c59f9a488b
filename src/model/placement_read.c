/* Groups of devices, as a configuration has them. */
#include "base/vec.h"
#include "model/placement.h"

#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 1 << 20 };

typedef struct {
  int group;           /* the last that has the device, + 1; 0: none has it */
  const tree_node *at; /* where it is listed */
} owner;

typedef struct {
  arena *mem;
  placement *p;
  VEC(owner) device; /* by rank */
  int64_t devices;   /* of all groups */
} reading;

/* "2" or "2-7" */
static hp_status read_range(const tree_node *n, int64_t *from, int64_t *to) {
  char text[48];
  const char *word;
  if (n->kind == TREE_INT) {
    *from = *to = n->integer;
  } else {
    if (n->kind != TREE_STRING)
      TREE_FAIL(n, "expected devices: a number, a range, such as 2-7, or a list of these");
    HP_TRY(tree_as_string(n, &word));
    snprintf(text, sizeof text, "%s", word);
    char *dash = strchr(text, '-');
    if (dash) *dash++ = 0;
    if (!dash || strlen(word) >= sizeof text || !str_to_i64(text, from) || !str_to_i64(dash, to))
      TREE_FAIL(n, "\"%s\" names no devices; expected a number or a range, such as 2-7", word);
  }
  if (*from < 0 || *to < *from || *to >= RANKS_MAX)
    TREE_FAIL(n, "devices %lld to %lld; expected a range that does not fall, of 0 to %d",
              (long long)*from, (long long)*to, RANKS_MAX - 1);
  return HP_OK;
}

static hp_status take_device(reading *r, const tree_node *n, int64_t rank) {
  while ((int64_t)r->device.len <= rank)
    if (!vec_push(&r->device, ((owner){0}))) return HP_ERR_OOM;
  owner *o = &r->device.at[rank];
  if (o->group == r->p->groups)
    TREE_FAIL(n, "device %lld is named twice in the group", (long long)rank);
  if (o->group)
    TREE_FAIL(n, "device %lld is of %s, too (%s); expected each device in one group",
              (long long)rank, r->p->group[o->group - 1].name, tree_where(o->at).text);
  *o = (owner){r->p->groups, n};
  r->devices++;
  return HP_OK;
}

/* A range, or a list of them. */
static hp_status read_devices(reading *r, const tree_node *list) {
  uint32_t n = list->kind == TREE_LIST ? list->len : 1;
  if (!n) TREE_FAIL(list, "is empty; expected devices, such as 0-1");
  for (uint32_t i = 0; i < n; i++) {
    const tree_node *one = list->kind == TREE_LIST ? list->child[i] : list;
    int64_t from, to;
    HP_TRY(read_range(one, &from, &to));
    for (int64_t rank = from; rank <= to; rank++) HP_TRY(take_device(r, one, rank));
  }
  return HP_OK;
}

/* Their names are compared with the model's when that is there. */
static hp_status check_modules(const tree_node *list) {
  const char *name;
  if (list->kind != TREE_LIST) return tree_as_string(list, &name);
  if (!list->len) TREE_FAIL(list, "is empty; expected modules, such as model.layers.0-2");
  for (uint32_t i = 0; i < list->len; i++) HP_TRY(tree_as_string(list->child[i], &name));
  return HP_OK;
}

static hp_status read_strategy(const tree_node *group, int64_t devices, strategy *out) {
  const char *text;
  char why[512];
  HP_TRY(tree_opt_string(group, "strategy", NULL, &text));
  hp_status st = strategy_parse(text, devices, out);
  if (!st) return HP_OK;
  const tree_node *at = text ? tree_get(group, "strategy") : tree_get(group, "devices");
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  TREE_FAIL(at, "%s", why);
}

static hp_status read_group(reading *r, const tree_node *n) {
  static const char *const known[] = {"devices", "module", "strategy"};
  const tree_node *devices, *module;
  int64_t before = r->devices;
  HP_TRY(tree_expect(n, TREE_MAP));
  HP_TRY(tree_check_keys(n, known, 3));
  HP_TRY(tree_need(n, "devices", &devices));
  HP_TRY(tree_need(n, "module", &module));
  placement_group *g = &r->p->group[r->p->groups++];
  *g = (placement_group){.name = arena_printf(r->mem, "groups.%s", n->key), .at = n};
  HP_TRY_MEM(g->name);
  HP_TRY(read_devices(r, devices));
  HP_TRY(check_modules(module));
  return read_strategy(n, r->devices - before, &g->by);
}

/* The devices of each group, by rank. */
static hp_status list_ranks(const reading *r, const tree_node *groups) {
  int64_t *rank[PLACEMENT_GROUPS], n[PLACEMENT_GROUPS] = {0};
  for (int i = 0; i < r->p->groups; i++) {
    rank[i] = arena_alloc(r->mem, (size_t)strategy_devices(&r->p->group[i].by), sizeof(int64_t));
    HP_TRY_MEM(rank[i]);
    r->p->group[i].rank = rank[i];
  }
  for (size_t k = 0; k < r->device.len; k++) {
    int i = r->device.at[k].group - 1;
    if (i < 0)
      TREE_FAIL(groups, "device %zu is in no group; expected each of the devices 0 to %zu in one",
                k, r->device.len - 1);
    rank[i][n[i]++] = (int64_t)k;
  }
  return HP_OK;
}

static hp_status read_all(reading *r, const tree_node *groups) {
  HP_TRY(tree_expect(groups, TREE_MAP));
  if (!groups->len || groups->len > PLACEMENT_GROUPS)
    TREE_FAIL(groups,
              "%u groups; expected 1 to %d, such as first: {devices: 0-1, module: "
              "model.layers.0-2}",
              groups->len, PLACEMENT_GROUPS);
  for (uint32_t i = 0; i < groups->len; i++) HP_TRY(read_group(r, groups->child[i]));
  if (placement_meshes(r->p) > STRATEGY_PIPELINE)
    TREE_FAIL(groups, "%d stages; at most %d are possible", placement_meshes(r->p),
              STRATEGY_PIPELINE);
  return list_ranks(r, groups);
}

hp_status placement_read(const tree_node *groups, arena *mem, placement *out) {
  reading r = {.mem = mem, .p = out};
  *out = (placement){.groups = 0};
  hp_status st = read_all(&r, groups);
  vec_free(&r.device);
  return st;
}
