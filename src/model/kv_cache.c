#include "model/kv_cache.h"

#include "base/status.h"

#include <stdio.h>

/* The pool of a layer's keys ('k') or values ('v'); x: new ones, or any of their heads and width.
 */
static hp_tensor find_pool(model_build *b, int64_t layer, char what, hp_shape x) {
  char name[64];
  bool keys = what == 'k';
  int64_t heads = x.dim[2], width = x.dim[3];
  snprintf(name, sizeof name, "cache.%lld.%c", (long long)layer, what);
  hp_tensor pool = hp_graph_find(b->g, name);
  if (pool != HP_NONE) return pool;
  err_clear();
  hp_shape s = {5, {b->groups, b->cache.blocks, heads, CACHE_BLOCK, width}};
  if (keys) s.dim[3] = width, s.dim[4] = CACHE_BLOCK;
  b->cache_bytes += heads * width * CACHE_BLOCK * (b->compute == HP_F32 ? 4 : 2);
  return hp_param(b->g, name, b->compute, s);
}

/* --- on the device ---------------------------------------------------------------------------- */

/* The layer's keys (or values), updated with the T new ones; keys are transposed in their blocks.
 */
static hp_tensor update_pool(model_build *b, int layer, char what, hp_tensor x) {
  hp_tensor pool = find_pool(b, layer, what, hp_shape_of(b->g, x));
  hp_tensor all = hp_paged_update(b->g, pool, x, b->table, b->cache_at, b->cache_copy, what == 'k');
  hp_assign(b->g, pool, all);
  return all;
}

/* --- on a farther tier --------------------------------------------------------------------------
 *
 * The blocks of a part are fetched into slots.  While attention works on one part, those of the
 * next ones come, of the next layer after the last: which they are depends on no computation.  The
 * link never waits for attention as long as what is on its way takes longer than the computation
 * between two parts. */

typedef struct {
  hp_shape k, v; /* of new ones */
} kv_shapes;

static int64_t count_parts(const model_build *b) { return b->cache.parts + 1; }

/* Part `number` of all layers' is a tail: new tokens go to it. */
static bool is_tail(const model_build *b, int64_t number) { return number % count_parts(b) == 0; }

static int64_t slots_of(const model_build *b, int64_t number) {
  return is_tail(b, number) ? b->cache.tail : b->cache.slots;
}

static hp_tensor fetch(model_build *b, int64_t number, char what, hp_shape x) {
  int64_t layer = (number - 1) / count_parts(b), part = (number - 1) % count_parts(b);
  int64_t first = is_tail(b, number) ? 0 : b->cache.tail + part * b->cache.slots;
  return hp_paged_fetch(b->g, find_pool(b, layer, what, x), b->kv_fetch, b->cache.tier, first,
                        slots_of(b, number), false);
}

/* Parts after `number` that may be on the device while attention works on it: the next one, and
 * others as long as all are no more than CACHE_PARTS times the slots of a part. */
static int64_t find_last_ahead(const model_build *b, int64_t number) {
  int64_t all = b->c->layers * count_parts(b), last = number + 1;
  int64_t held = slots_of(b, number) + slots_of(b, last);
  for (; last + 1 < number + CACHE_FETCHED; last++) {
    held += slots_of(b, last + 1);
    if (held > CACHE_PARTS * b->cache.slots) break;
  }
  return last < all ? last : all;
}

/* Part `part` of the layer; the next ones are on their way.  All layers have keys and values of one
 * shape. */
static kv_part take_part(model_build *b, int layer, int64_t part, const kv_shapes *x) {
  int64_t number = layer * count_parts(b) + part + 1, last = find_last_ahead(b, number);
  while (b->kv_fetched < last) {
    int64_t next = ++b->kv_fetched;
    b->kv[next % CACHE_FETCHED] = (kv_part){fetch(b, next, 'k', x->k), fetch(b, next, 'v', x->v)};
  }
  return b->kv[number % CACHE_FETCHED];
}

static void store_tail(model_build *b, int layer, char what, hp_tensor slots, hp_shape x) {
  hp_tensor pool = find_pool(b, layer, what, x);
  hp_assign(b->g, pool, hp_paged_store(b->g, pool, slots, b->kv_store, b->cache.tier));
}

/* The parts come in the order of tokens, and end with segments, so that sums are added in the same
 * order as with all blocks on the device.  The last part gets the new tokens. */
static hp_tensor attend_parts(model_build *b, int layer, hp_tensor q, hp_tensor k, hp_tensor v,
                              const hp_attention_options *o) {
  const model_cache *c = &b->cache;
  const kv_shapes x = {hp_shape_of(b->g, k), hp_shape_of(b->g, v)};
  hp_tensor state = HP_NONE;
  for (int64_t i = 0; i < c->parts; i++) {
    kv_part p = take_part(b, layer, i, &x);
    state = hp_paged_part(b->g, q, p.k, p.v, o, c->tail + i * c->slots, false, state);
  }
  kv_part tail = take_part(b, layer, c->parts, &x);
  hp_tensor ks = hp_paged_update(b->g, tail.k, k, b->table, b->cache_at, b->cache_copy, true);
  hp_tensor vs = hp_paged_update(b->g, tail.v, v, b->table, b->cache_at, b->cache_copy, false);
  hp_tensor out = hp_paged_part(b->g, q, ks, vs, o, 0, true, state);
  store_tail(b, layer, 'k', ks, x.k);
  store_tail(b, layer, 'v', vs, x.v);
  return out;
}

/* --- some blocks --------------------------------------------------------------------------------
 *
 * Each head of keys of each sequence is a sequence of its own, which has the chosen blocks alone:
 * keys hold their positions, so that it does not matter which places they have. */

typedef struct {
  int64_t units, heads, n; /* sequences times heads of keys; query heads of each; its blocks */
  hp_tensor list, store, at;
  hp_attention_options o;
} selected;

static hp_tensor bounds_of_layer(model_build *b, int layer, hp_tensor k) {
  char name[64];
  hp_shape x = hp_shape_of(b->g, k);
  snprintf(name, sizeof name, "cache.%d.bounds", layer);
  hp_tensor bounds = hp_param(b->g, name, b->compute,
                              (hp_shape){5, {b->groups, b->cache.blocks, x.dim[2], 2, x.dim[3]}});
  hp_tensor all = hp_paged_bounds(b->g, bounds, k, b->kv_blocks, b->cache_at, b->kv_copy, b->span);
  hp_assign(b->g, bounds, all);
  return all;
}

static selected select_blocks(model_build *b, hp_tensor q, hp_tensor bounds,
                              const hp_attention_options *o) {
  int64_t kv = hp_shape_of(b->g, bounds).dim[2];
  selected s = {b->B * kv, hp_shape_of(b->g, q).dim[2] / kv, b->cache.sparse, .o = *o};
  s.list = hp_paged_select(b->g, q, bounds, b->kv_blocks, b->cache_at, b->kv_copy, s.n,
                           b->cache.tier != 0, &s.store, &s.at);
  hp_tensor last = hp_reshape(b->g, s.at, (hp_shape){3, {s.units, 1, 1}});
  hp_tensor span[2] = {hp_sub(b->g, last, last), last};
  s.o.span = hp_concat(b->g, span, 2, 2);
  s.o.window = 0;
  return s;
}

/* [B,1,heads of keys times n,D] <-> [units,1,n,D] */
static hp_tensor split_heads(model_build *b, hp_tensor x, int64_t units, int64_t n) {
  int64_t width = hp_shape_of(b->g, x).dim[3];
  return hp_reshape(b->g, x, (hp_shape){4, {units, 1, n, width}});
}

/* A pool on the device, with heads of blocks as blocks. */
static hp_tensor split_pool(model_build *b, hp_tensor pool) {
  hp_shape s = hp_shape_of(b->g, pool);
  s.dim[1] *= s.dim[2];
  s.dim[2] = 1;
  return hp_reshape(b->g, pool, s);
}

/* The chosen blocks of a pool on a tier, with the new token, in slots; they are stored, too. */
static hp_tensor fetch_selected(model_build *b, const selected *s, int layer, char what,
                                hp_tensor x) {
  int64_t slots = s->units / b->groups * s->n;
  hp_shape rows = {2, {b->groups, slots}}, all = {2, {s->units, s->n}};
  hp_tensor pool = find_pool(b, layer, what, hp_shape_of(b->g, x));
  hp_tensor table = hp_reshape(b->g, hp_iota(b->g, HP_I32, rows, 1), all);
  hp_tensor none = hp_broadcast(b->g, hp_const(b->g, HP_I32, -1), (hp_shape){1, {s->units}});
  hp_tensor have =
      hp_paged_fetch(b->g, pool, hp_reshape(b->g, s->list, rows), b->cache.tier, 0, slots, true);
  have =
      hp_paged_update(b->g, have, split_heads(b, x, s->units, 1), table, s->at, none, what == 'k');
  hp_assign(b->g, pool,
            hp_paged_store(b->g, pool, have, hp_reshape(b->g, s->store, rows), b->cache.tier));
  return have;
}

static hp_tensor attend_selected(model_build *b, int layer, hp_tensor q, hp_tensor k, hp_tensor v,
                                 hp_tensor bounds, const hp_attention_options *o) {
  selected s = select_blocks(b, q, bounds, o);
  int64_t heads = hp_shape_of(b->g, q).dim[2], width = hp_shape_of(b->g, v).dim[3];
  hp_tensor keys, values;
  s.o.table = s.list;
  if (b->cache.tier) {
    hp_shape rows = {2, {b->groups, s.units / b->groups * s.n}};
    s.o.table = hp_reshape(b->g, hp_iota(b->g, HP_I32, rows, 1), (hp_shape){2, {s.units, s.n}});
    keys = fetch_selected(b, &s, layer, 'k', k);
    values = fetch_selected(b, &s, layer, 'v', v);
  } else {
    keys = split_pool(b, update_pool(b, layer, 'k', k));
    values = split_pool(b, update_pool(b, layer, 'v', v));
  }
  hp_tensor out = hp_attention(b->g, split_heads(b, q, s.units, s.heads), keys, values, &s.o);
  return hp_reshape(b->g, out, (hp_shape){4, {b->B, 1, heads, width}});
}

hp_tensor build_cached_attention(model_build *b, int layer, hp_tensor q, hp_tensor k, hp_tensor v,
                                 const hp_attention_options *o) {
  hp_attention_options paged = *o;
  paged.table = b->table;
  hp_tensor bounds = b->cache.sparse ? bounds_of_layer(b, layer, k) : HP_NONE;
  if (b->cache.sparse && b->T == 1) return attend_selected(b, layer, q, k, v, bounds, &paged);
  if (b->cache.tier) return attend_parts(b, layer, q, k, v, &paged);
  hp_tensor keys = update_pool(b, layer, 'k', k), values = update_pool(b, layer, 'v', v);
  return hp_attention(b->g, q, keys, values, &paged);
}
