#include "mem/offload_kept.h"

#include <string.h>

/* About 40 plans of a model of 80 layers; beyond that all are forgotten. */
enum { BYTES_KEPT = 32 << 20 };

/* What a plan depends on: of the problem, of each item and of each touch. */
typedef struct {
  uint64_t n, items, touches, cap, arrays, hosts, before, needs;
  offload_link link[OFFLOAD_TIERS];
} key_head;
typedef struct {
  uint64_t bytes;
  uint32_t touch0, touches, flags, tier, from_host, padding;
} key_item;
typedef struct {
  uint32_t step, access;
} key_touch;

void offload_kept_free(offload_kept *k) {
  map_free(&k->plan_of);
  for (size_t i = 0; i < k->plan.len; i++) offload_plan_free(&k->plan.at[i]);
  vec_free(&k->plan);
  k->bytes = 0;
}

static hp_status hash_problem(const offload_problem *p, hash128 *out) {
  key_head head = {.n = p->n,
                   .items = p->items,
                   .touches = p->touches,
                   .cap = p->cap,
                   .arrays = (p->workspace ? 1 : 0) | (p->from ? 2 : 0) | (p->wait_s ? 4 : 0),
                   .hosts = p->hosts,
                   .before = p->before,
                   .needs = p->needs};
  hash_stream *s;
  HP_TRY(hash_stream_create(&s));
  memcpy(head.link, p->link, sizeof head.link);
  hash_stream_add(s, &head, sizeof head);
  hash_stream_add(s, p->duration_s, p->n * sizeof *p->duration_s);
  if (p->wait_s) hash_stream_add(s, p->wait_s, p->n * sizeof *p->wait_s);
  if (p->workspace) hash_stream_add(s, p->workspace, p->n * sizeof *p->workspace);
  if (p->from) hash_stream_add(s, p->from, p->touches * sizeof *p->from);
  for (size_t x = 0; x < p->items; x++) {
    const offload_item *it = &p->item[x];
    const key_item row = {it->bytes,     it->touch0, it->touches, it->flags, it->tier,
                          it->from_host, 0};
    hash_stream_add(s, &row, sizeof row);
  }
  if (p->hosts) hash_stream_add(s, p->host, p->hosts * sizeof *p->host);
  if (p->needs) hash_stream_add(s, p->need, p->needs * sizeof *p->need);
  for (size_t k = 0; k < p->touches; k++) {
    const key_touch row = {p->touch[k].step, p->touch[k].access};
    hash_stream_add(s, &row, sizeof row);
  }
  *out = hash_stream_get(s);
  hash_stream_free(s);
  return HP_OK;
}

static size_t bytes_of(const offload_problem *p, const offload_plan *plan) {
  return plan->copies * sizeof *plan->copy + p->n * (sizeof *plan->start_s + sizeof *plan->after) +
         p->touches * sizeof *plan->stay + p->items * sizeof *plan->carried;
}

static void *copy_array(const void *from, size_t n, size_t size) {
  void *to = mem_calloc(n, size);
  if (to && n) memcpy(to, from, n * size);
  return to;
}

static hp_status copy_plan(const offload_problem *p, const offload_plan *from, offload_plan *out) {
  offload_plan to = *from;
  to.copy = copy_array(from->copy, from->copies, sizeof *to.copy);
  to.start_s = copy_array(from->start_s, p->n, sizeof *to.start_s);
  to.after = copy_array(from->after, p->n, sizeof *to.after);
  to.stay = copy_array(from->stay, p->touches, sizeof *to.stay);
  to.carried = copy_array(from->carried, p->items, sizeof *to.carried);
  bool made = to.copy && to.start_s && to.after && to.stay && to.carried;
  if (made) *out = to;
  else offload_plan_free(&to);
  return made ? HP_OK : HP_ERR_OOM;
}

static hp_status keep(offload_kept *k, const hash128 *key, const offload_problem *p,
                      const offload_plan *plan) {
  offload_plan own;
  size_t bytes = bytes_of(p, plan);
  if (bytes > BYTES_KEPT) return HP_OK;
  if (k->bytes + bytes > BYTES_KEPT) offload_kept_free(k);
  HP_TRY(copy_plan(p, plan, &own));
  if (!vec_push(&k->plan, own)) {
    offload_plan_free(&own);
    return HP_ERR_OOM;
  }
  k->bytes += bytes;
  return map_set(&k->plan_of, key, sizeof *key, (uint32_t)k->plan.len - 1);
}

hp_status offload_kept_make(offload_kept *k, const offload_problem *p, offload_plan *out) {
  hash128 key;
  uint32_t i;
  if (!k) return offload_plan_make(p, out);
  HP_TRY(hash_problem(p, &key));
  if (map_get(&k->plan_of, &key, sizeof key, &i)) return copy_plan(p, &k->plan.at[i], out);
  HP_TRY(offload_plan_make(p, out));
  hp_status st = keep(k, &key, p, out);
  if (st) offload_plan_free(out);
  return st;
}
