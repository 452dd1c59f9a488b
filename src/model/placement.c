#include "model/placement.h"

hp_status placement_parse(const char *text, int64_t devices, placement *out) {
  placement_group all = {.name = "strategy"};
  HP_TRY(strategy_parse(text, devices, &all.by));
  *out = (placement){.group = {all}, .groups = 1};
  return HP_OK;
}

group_stages placement_stages(const placement *p, int i, int64_t layers, int stages) {
  const placement_group *g = &p->group[i];
  group_stages s = {.layers = layers, .stages = stages};
  if (p->groups == 1) return s;
  s = (group_stages){g->first, g->layers, 0, (int)g->by.pp};
  for (int k = 0; k < i; k++) s.stage += (int)p->group[k].by.pp;
  return s;
}

int placement_meshes(const placement *p) {
  int n = 0;
  for (int i = 0; i < p->groups; i++) n += (int)p->group[i].by.pp;
  return n;
}

int64_t placement_devices(const placement *p) {
  int64_t n = 0;
  for (int i = 0; i < p->groups; i++) n += strategy_devices(&p->group[i].by);
  return n;
}

int64_t placement_replicas(const placement *p) {
  int64_t most = 1;
  for (int i = 0; i < p->groups; i++)
    if (p->group[i].by.dp > most) most = p->group[i].by.dp;
  return most;
}

int64_t placement_batch_shards(const placement *p) {
  int64_t all = 1;
  for (int i = 0; i < p->groups; i++) {
    int64_t each = all;
    while (all % p->group[i].by.dp) all += each;
  }
  return all;
}

/* "@2,3": n ranks; those that follow the meshes before them are not written. */
static void add_ranks(const int64_t *rank, int64_t n, int64_t next, str *text) {
  bool follow = true;
  for (int64_t i = 0; i < n; i++) follow &= rank[i] == next + i;
  for (int64_t i = 0; !follow && i < n; i++)
    str_printf(text, i ? ",%lld" : "@%lld", (long long)rank[i]);
}

hp_status placement_mesh(const placement *p, str *text, const char **out) {
  int64_t devices = 0;
  *out = NULL;
  if (placement_devices(p) == 1) return HP_OK;
  for (int i = 0; i < p->groups; i++) {
    const placement_group *g = &p->group[i];
    int64_t each = strategy_devices(&g->by) / g->by.pp;
    for (int64_t stage = 0; stage < g->by.pp; stage++, devices += each) {
      if (devices) str_add(text, ";");
      strategy_add_mesh(&g->by, text);
      if (g->rank) add_ranks(g->rank + stage * each, each, devices, text);
    }
  }
  *out = text->at;
  return str_status(text);
}
