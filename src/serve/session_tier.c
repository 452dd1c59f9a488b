#include "serve/session_state.h"

#include "base/log.h"

#include <stdio.h>

/* Of one layer, in the blocks of a group of sequences. */
static uint64_t layer_bytes(const session *s) {
  return s->block_bytes / (uint64_t)(s->m->c.layers > 0 ? s->m->c.layers : 1) + 1;
}

static bool is_pipeline(const session *s) { return hp_device_stages(s->m->d) > 1; }

/* Under `auto` the cache leaves the device if it does not fit next to the weights; not that of a
 * pipeline. */
static int choose_tier(const session *s, const session_options *o) {
  uint64_t limit = hp_device_memory_limit(s->m->d), params = hp_device_param_bytes(s->m->d);
  double need = (double)params + (double)s->block_bytes * (double)s->blocks;
  if (o->offload != HP_OFFLOAD_AUTO) return o->offload == HP_OFFLOAD_NONE ? 0 : o->offload;
  return limit && need > (double)limit && !is_pipeline(s) ? HP_OFFLOAD_HOST : 0;
}

/* Of the mesh, by the plan of next to nothing. */
static hp_status count_devices(hp_device *d, int *out) {
  hp_graph *g;
  hp_program_stats stats = {0};
  HP_TRY(hp_graph_create(&g));
  hp_output(g, "one", hp_const(g, HP_F32, 1));
  hp_status st = hp_plan(g, d, NULL, &stats);
  hp_graph_free(g);
  *out = stats.memory.devices;
  return st;
}

static hp_status check_sparse(const session *s, const session_options *o) {
  const model_config *c = &s->m->c;
  int devices;
  if (!o->sparse) return HP_OK;
  if (o->sparse < 2 || o->sparse > INT32_MAX / CACHE_BLOCK)
    HP_FAIL(HP_ERR_ARG,
            "attention to %lld blocks: expected 2 or more, since the first and the last are always "
            "among them",
            (long long)o->sparse);
  for (int64_t i = 0; i < c->layers; i++)
    if (c->window && c->windowed[i])
      HP_FAIL(HP_ERR_UNSUPPORTED,
              "%s has layers with a sliding window, which see few blocks anyway: leave out the "
              "number of blocks",
              s->m->path);
  HP_TRY(count_devices(s->m->d, &devices));
  if (devices > 1)
    HP_FAIL(HP_ERR_UNSUPPORTED, "attention to some blocks runs on one device, not on several");
  return HP_OK;
}

hp_status session_choose_tier(session *s, const session_options *o) {
  enum { SLOTS_MOST = 1 << 16, SHARE = 2 * CACHE_PARTS }; /* half of what the weights leave */
  uint64_t limit = hp_device_memory_limit(s->m->d), params = hp_device_param_bytes(s->m->d);
  HP_TRY(check_sparse(s, o));
  s->sparse = o->sparse;
  s->tier = choose_tier(s, o);
  if (s->sparse) HP_TRY(hp_device_home(s->m->d, "cache.*.bounds", HP_OFFLOAD_NONE));
  if (!s->tier) return HP_OK;
  if (is_pipeline(s))
    HP_FAIL(HP_ERR_UNSUPPORTED, "keys and values of a pipeline stay on its devices");
  uint64_t room = limit > params ? limit - params : limit;
  uint64_t slots = limit ? room / SHARE / layer_bytes(s) : SLOTS_MOST;
  s->slots_max = o->slots ? o->slots : slots < SLOTS_MOST ? (int64_t)slots : SLOTS_MOST;
  /* the class of the cache is that of tables as well, which every layer reads */
  HP_TRY(hp_device_home(s->m->d, "rope.*", HP_OFFLOAD_AUTO));
  return HP_OK;
}

hp_status session_too_small(const session *s, const session_shape *x) {
  const model_cache *c = &x->cache;
  int64_t blocks = c->tail + (c->parts ? CACHE_PARTS * c->slots : 0);
  double bytes = (double)blocks * (double)layer_bytes(s);
  err_report why;
  err_take(HP_ERR_OOM, &why);
  HP_FAIL(HP_ERR_OOM,
          "%s (the cache of keys and values is on tier %s; the device keeps %lld of its blocks, "
          "%.0f bytes, for the layer at work: raise memory_limit, or decode fewer sequences)",
          why.message, s->tier == HP_OFFLOAD_HOST ? "host" : "flash", (long long)blocks, bytes);
}
