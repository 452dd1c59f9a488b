/* hyperparallel.h: a cache of keys and values in blocks. */
#include "api/api_paged.h"

#include "api/api_call.h"
#include "ops/ops.h"

#include <math.h>

/* Operands q, keys, values, table and span, and the attributes that all such ops begin with. */
static bool put_operands(hp_graph *g, const val in[3], const hp_attention_options *o, val all[5],
                         attr_record *a) {
  for (int i = 0; i < 3; i++) all[i] = in[i];
  all[3] = api_value(g, o->table, "o->table");
  all[4] = api_value(g, o->span, "o->span");
  if (g->failure.code) return false;
  const ir_value *q = graph_value(g, in[0]);
  attr_put_float(a, o->scale != 0 || q->rank != 4 ? o->scale : 1 / sqrt((double)q->dim[3]));
  attr_put_int(a, o->window);
  if (o->dropout != 0) ops_refuse(g, OP_PAGED_ATTENTION, "there is no dropout of a cache");
  return !g->failure.code;
}

hp_tensor api_attend_pages(hp_graph *g, const val in[3], const hp_attention_options *o) {
  val all[5];
  attr_record a = {0};
  if (!put_operands(g, in, o, all, &a)) return HP_NONE;
  return api_tensor(g, ops_add(g, OP_PAGED_ATTENTION, all, 5, &a));
}

HP_API hp_tensor hp_paged_part(hp_graph *g, hp_tensor q, hp_tensor k, hp_tensor v,
                               const hp_attention_options *o, int64_t first, bool end,
                               hp_tensor state) {
  API_BUILD(g, "q k v", HP_NONE);
  const val in[3] = {API_VALUE(g, q), API_VALUE(g, k), API_VALUE(g, v)};
  val all[6] = {0};
  attr_record a = {0};
  if (!api_need_given(g, o, "o")) return HP_NONE;
  all[5] = api_value_or_none(g, state, "state");
  if (!put_operands(g, in, o, all, &a)) return HP_NONE;
  attr_put_int(&a, first);
  attr_put_int(&a, end);
  return api_tensor(g, ops_add(g, OP_PAGED_PART, all, all[5] ? 6 : 5, &a));
}

HP_API hp_tensor hp_paged_update(hp_graph *g, hp_tensor cache, hp_tensor x, hp_tensor table,
                                 hp_tensor at, hp_tensor copy, bool transposed) {
  API_BUILD(g, "cache x table at copy", HP_NONE);
  val in[5] = {API_VALUE(g, cache), API_VALUE(g, x), API_VALUE(g, table), API_VALUE(g, at),
               API_VALUE(g, copy)};
  attr_record a = {0};
  attr_put_int(&a, transposed);
  return api_tensor(g, ops_add(g, OP_PAGED_UPDATE, in, 5, &a));
}
/* HP_OFFLOAD_* as the attribute of an op. */
static bool put_tier(hp_graph *g, int op, int tier, attr_record *a) {
  if (tier != HP_OFFLOAD_HOST && tier != HP_OFFLOAD_FLASH) {
    ops_refuse(g, op, "tier is %d; HP_OFFLOAD_HOST or HP_OFFLOAD_FLASH was expected", tier);
    return false;
  }
  attr_put_int(a, tier == HP_OFFLOAD_HOST ? TIER_HOST : TIER_FLASH);
  return true;
}

HP_API hp_tensor hp_paged_fetch(hp_graph *g, hp_tensor cache, hp_tensor list, int tier,
                                int64_t first, int64_t slots, bool split) {
  API_BUILD(g, "cache list", HP_NONE);
  const val in[2] = {API_VALUE(g, cache), API_VALUE(g, list)};
  attr_record a = {0};
  if (!put_tier(g, OP_PAGED_FETCH, tier, &a)) return HP_NONE;
  attr_put_int(&a, first);
  attr_put_int(&a, slots);
  attr_put_int(&a, split);
  return api_tensor(g, ops_add(g, OP_PAGED_FETCH, in, 2, &a));
}

HP_API hp_tensor hp_paged_store(hp_graph *g, hp_tensor cache, hp_tensor slots, hp_tensor list,
                                int tier) {
  API_BUILD(g, "cache slots list", HP_NONE);
  const val in[3] = {API_VALUE(g, cache), API_VALUE(g, slots), API_VALUE(g, list)};
  attr_record a = {0};
  if (!put_tier(g, OP_PAGED_STORE, tier, &a)) return HP_NONE;
  return api_tensor(g, ops_add(g, OP_PAGED_STORE, in, 3, &a));
}

HP_API hp_tensor hp_paged_bounds(hp_graph *g, hp_tensor bounds, hp_tensor x, hp_tensor table,
                                 hp_tensor at, hp_tensor copy, hp_tensor span) {
  API_BUILD(g, "bounds x table at copy span", HP_NONE);
  const val in[6] = {API_VALUE(g, bounds), API_VALUE(g, x),    API_VALUE(g, table),
                     API_VALUE(g, at),     API_VALUE(g, copy), API_VALUE(g, span)};
  attr_record a = {0};
  return api_tensor(g, ops_add(g, OP_PAGED_BOUNDS, in, 6, &a));
}

HP_API hp_tensor hp_paged_select(hp_graph *g, hp_tensor q, hp_tensor bounds, hp_tensor table,
                                 hp_tensor at, hp_tensor copy, int64_t n, bool slots,
                                 hp_tensor *store, hp_tensor *last) {
  API_BUILD(g, "q bounds table at copy", HP_NONE);
  const val in[5] = {API_VALUE(g, q), API_VALUE(g, bounds), API_VALUE(g, table), API_VALUE(g, at),
                     API_VALUE(g, copy)};
  attr_record a = {0};
  if (!api_need_given(g, store, "store") || !api_need_given(g, last, "last")) return HP_NONE;
  attr_put_int(&a, n);
  attr_put_int(&a, slots);
  val list = ops_add(g, OP_PAGED_SELECT, in, 5, &a);
  if (list) *store = api_tensor(g, list + 1), *last = api_tensor(g, list + 2);
  return api_tensor(g, list);
}
