/* hyperparallel.h: devices and the params on them. */
#include "rt/learn.h"
#include "api/api_call.h"
#include "base/dtype.h"
#include "comm/world.h"
#include "rt/params.h"
#include "rt/replicas.h"
#include "rt/stage_meshes.h"
#include "sched/pipe_generate.h"

#include <string.h>

/* --- processes ----------------------------------------------------------------------------- */

HP_API hp_status hp_world(int *rank, int *size) {
  API_CALL;
  API_NEED(rank);
  API_NEED(size);
  HP_TRY(world_begin());
  *rank = world_get()->rank;
  *size = world_get()->size;
  return HP_OK;
}
HP_API hp_status hp_world_max(int64_t mine, int64_t *max) {
  API_CALL;
  API_NEED(max);
  return api_result(__func__, world_max(mine, max));
}

HP_API hp_status hp_world_agree(bool mine, bool *all) {
  API_CALL;
  API_NEED(all);
  return api_result(__func__, world_agree(mine, all));
}

HP_API hp_status hp_world_broadcast(void *data, size_t bytes) {
  API_CALL;
  if (bytes) API_NEED(data);
  return api_result(__func__, world_broadcast(data, bytes));
}

HP_API hp_status hp_world_gather(const void *mine, size_t bytes, void *all) {
  API_CALL;
  if (bytes) API_NEED(mine);
  if (bytes) API_NEED(all);
  return api_result(__func__, world_gather(mine, bytes, all));
}

/* --- devices ------------------------------------------------------------------------------- */

static hp_status check_job(const char *function, const hp_device_options *o) {
  if (o->threads < 0)
    return api_refuse(function, "threads is %d; expected 1 or more, or 0 for all", o->threads);
  if (o->n_layouts < 0)
    return api_refuse(function, "n_layouts is %d; expected 0 or more", o->n_layouts);
  if (o->n_layouts && !o->layouts)
    return api_refuse(function, "layouts is NULL, n_layouts %d", o->n_layouts);
  if (o->job && (o->backend || o->threads || o->interpret || o->engine || o->memory_limit))
    return api_refuse(function,
                      "backend, threads, interpret, engine and memory_limit are those of the job");
  if (o->job && (o->plan_only || o->job->plan_only))
    return api_refuse(function, "a job that makes plans only has one mesh");
  return HP_OK;
}

static hp_status check_offload(const char *function, const hp_device_options *o) {
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) {
    if (!o->offload[k]) continue;
    if (o->job) return api_refuse(function, "offload is that of the job");
    if (o->offload[k] > HP_OFFLOAD_FLASH)
      return api_refuse(function, "offload[%d] is %d; expected HP_OFFLOAD_NONE to HP_OFFLOAD_FLASH",
                        k, o->offload[k]);
    if (o->offload[k] == HP_OFFLOAD_FLASH && !o->n_flash && !o->plan_only)
      return api_refuse(function, "offload[%d] is HP_OFFLOAD_FLASH, and flash names no folder", k);
  }
  return HP_OK;
}

static hp_status check_tiers(const char *function, const hp_device_options *o) {
  HP_TRY(check_offload(function, o));
  if (o->offload_policy < HP_PLAN_BEST || o->offload_policy > HP_PLAN_FULL_RECOMPUTE)
    return api_refuse(function,
                      "offload_policy is %d; expected HP_PLAN_BEST to HP_PLAN_FULL_RECOMPUTE",
                      o->offload_policy);
  if (o->job && o->offload_policy) return api_refuse(function, "offload_policy is that of the job");
  if (o->job && (o->n_flash || o->flash_limit || o->host_limit))
    return api_refuse(function, "flash, flash_limit and host_limit are those of the job");
  if (o->n_flash < 0) return api_refuse(function, "n_flash is %d; expected 0 or more", o->n_flash);
  if (o->n_flash && !o->flash) return api_refuse(function, "flash is NULL, n_flash %d", o->n_flash);
  if (!o->n_flash && o->flash_limit && !o->plan_only)
    return api_refuse(function, "flash_limit is %llu, and flash names no folder",
                      (unsigned long long)o->flash_limit);
  return HP_OK;
}

HP_API hp_status hp_device_open(const hp_device_options *o, hp_device **out) {
  static const hp_device_options usual;
  API_CALL;
  API_NEED(out);
  if (!o) o = &usual;
  HP_TRY(check_job(__func__, o));
  HP_TRY(check_tiers(__func__, o));
  HP_TRY(api_result(__func__, stage_meshes_open(o, out)));
  for (int i = 0; i < stage_meshes_count(*out); i++) learn_open(stage_mesh(*out, i), o);
  if (is_pipeline(*out)) learn_open(*out, o);
  return HP_OK;
}
HP_API void hp_device_close(hp_device *d) {
  for (int i = 0; d && i < stage_meshes_count(d); i++) learn_close(stage_mesh(d, i));
  stage_meshes_close(d);
}
HP_API hp_status hp_device_layout(hp_device *d, const char *pattern, const char *entries,
                                  bool where_divides) {
  API_CALL;
  API_NEED(d);
  API_NEED(pattern);
  API_NEED(entries);
  for (int i = 0; i < stage_meshes_count(d); i++)
    HP_TRY(
        api_result(__func__, device_mesh_rule(stage_mesh(d, i), pattern, entries, where_divides)));
  return HP_OK;
}
HP_API hp_status hp_device_stage_layout(hp_device *d, int stage, const char *pattern,
                                        const char *entries, bool where_divides) {
  API_CALL;
  API_NEED(d);
  API_NEED(pattern);
  API_NEED(entries);
  if (stage < 0 || stage >= hp_device_stages(d))
    API_REFUSE("stage is %d; the device has stages 0 to %d", stage, hp_device_stages(d) - 1);
  device_mesh *on = stage_mesh(d, is_pipeline(d) ? d->mesh_of[stage] : 0);
  return api_result(__func__, device_mesh_rule(on, pattern, entries, where_divides));
}
HP_API hp_status hp_device_stage(hp_device *d, const char *name, int stage) {
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  return is_pipeline(d) ? api_result(__func__, stage_meshes_rule(d, name, stage)) : HP_OK;
}
HP_API hp_status hp_device_home(hp_device *d, const char *pattern, int offload) {
  API_CALL;
  API_NEED(d);
  API_NEED(pattern);
  if (!*pattern) API_REFUSE("pattern is empty");
  if (offload < HP_OFFLOAD_NONE || offload > HP_OFFLOAD_FLASH)
    API_REFUSE("offload is %d; expected HP_OFFLOAD_NONE to HP_OFFLOAD_FLASH", offload);
  if (offload == HP_OFFLOAD_FLASH && !d->plan_only && !d->job->flash)
    API_REFUSE("pattern \"%s\" is HP_OFFLOAD_FLASH, and the device has no folders of tier flash",
               pattern);
  DEVICE_MESH_HOLD(d);
  for (int i = 0; i < stage_meshes_count(d); i++)
    HP_TRY(
        api_result(__func__, device_mesh_home_rule(stage_mesh(d, i), pattern, (uint8_t)offload)));
  return HP_OK;
}
HP_API int hp_device_stages(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, 1);
  return is_pipeline(d) ? d->stages : 1;
}
HP_API hp_status hp_device_check_microbatches(const hp_device *d, int64_t n) {
  API_CALL;
  API_NEED(d);
  return api_result(__func__, stage_meshes_check_microbatches(d, n));
}
HP_API const char *hp_device_describe(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, "");
  return d->about;
}
HP_API int hp_device_threads(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, 0);
  int threads = 0;
  for (int i = 0; i < d->own; i++) threads += d->member[i]->backend->threads(d->member[i]->dev);
  return threads;
}
HP_API uint64_t hp_device_param_bytes(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, 0);
  uint64_t most = 0;
  for (int i = 0; i < stage_meshes_count(d); i++) {
    uint64_t sum = 0;
    for (int t = 0; t < TIER_COUNT; t++) sum += stage_mesh(d, i)->member[0]->state_bytes[t];
    if (sum > most) most = sum;
  }
  return most;
}

HP_API uint64_t hp_device_memory_limit(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, 0);
  return d->member[0]->job->limit[TIER_DEVICE];
}

HP_API bool hp_device_runs_ahead(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, false);
  const job_device *j = d->member[0]->job;
  return is_pipeline(d) && pipe_schedule_splits(d->pipeline) && !j->limit[TIER_DEVICE] &&
         !job_device_must_offload(j);
}

HP_API void hp_device_set_memory_limit(hp_device *d, uint64_t bytes) {
  API_GET;
  API_NEED_OR(d, );
  DEVICE_MESH_HOLD(d);
  for (int i = 0; i < d->own; i++) d->member[i]->job->limit[TIER_DEVICE] = bytes;
}

HP_API const char *hp_device_engine(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, "");
  DEVICE_MESH_HOLD(d);
  return d->member[0]->backend->engine(d->member[0]->dev);
}
static hp_status set_tuning(hp_device *d, const char *tuning) {
  for (int i = 0; i < d->own; i++)
    HP_TRY(d->member[i]->backend->set_tuning(d->member[i]->dev, tuning));
  return HP_OK;
}

/* A name that is none changes nothing, and neither do tuning that are none: the first device
 * refuses them, and the engine is as it was. */
HP_API hp_status hp_device_set_engine(hp_device *d, const char *name, const char *tuning) {
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  DEVICE_MESH_HOLD(d);
  const char *before = d->member[0]->backend->engine(d->member[0]->dev);
  hp_status st = HP_OK;
  for (int i = 0; !st && i < stage_meshes_count(d); i++)
    st = device_mesh_set_engine(stage_mesh(d, i), name);
  if (!st && tuning) {
    st = set_tuning(d, tuning);
    for (int i = 0; st && i < d->own; i++)
      HP_ASSERT(!d->member[i]->backend->set_engine(d->member[i]->dev, before));
  }
  return api_result(__func__, st);
}
HP_API hp_status hp_device_tuning(const hp_device *d, char **text) {
  API_CALL;
  API_NEED(d);
  API_NEED(text);
  DEVICE_MESH_HOLD(d);
  str s = {0};
  d->member[0]->backend->tuning(d->member[0]->dev, &s);
  return api_text(__func__, HP_OK, &s, text);
}

HP_API hp_status hp_device_measure(hp_device *d, hp_limits *out) {
  API_CALL;
  API_NEED(d);
  API_NEED(out);
  DEVICE_MESH_HOLD(d);
  HP_TRY(device_measure(d->member[0]));
  *out = d->member[0]->limits;
  return HP_OK;
}

/* --- params -------------------------------------------------------------------------------- */

static hp_status type_of(const char *name, hp_dtype t, const hp_shape *s, ir_value *v) {
  *v = (ir_value){.dtype = (uint8_t)t, .rank = (uint8_t)s->rank};
  if (s->rank < 0 || s->rank > HP_MAX_RANK)
    HP_FAIL(HP_ERR_ARG, "param \"%s\": s has %d dims; expected 0 to %d", name, s->rank,
            HP_MAX_RANK);
  if ((unsigned)t >= HP_DTYPE_COUNT)
    HP_FAIL(HP_ERR_ARG, "param \"%s\": t is %d; expected a dtype, from HP_F32 to HP_BOOL", name,
            (int)t);
  for (int i = 0; i < s->rank; i++) {
    if (s->dim[i] < 0) HP_FAIL(HP_ERR_ARG, "param \"%s\": dim %d is negative", name, i);
    v->dim[i] = s->dim[i];
  }
  if (!value_fits(v)) HP_FAIL(HP_ERR_ARG, "param \"%s\" is too large", name);
  return HP_OK;
}

static hp_status create(hp_device *d, const char *name, const ir_value *v) {
  uint32_t index;
  for (int i = 0; i < stage_meshes_count(d); i++) {
    bool holds;
    HP_TRY(stage_meshes_holds(d, name, i, &holds));
    if (holds) HP_TRY(device_mesh_state_of(stage_mesh(d, i), name, v, TIER_DEVICE, &index));
  }
  return HP_OK;
}

HP_API hp_status hp_param_create(hp_device *d, const char *name, hp_dtype t, hp_shape s) {
  ir_value v;
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  if (!*name) API_REFUSE("name is empty");
  DEVICE_MESH_HOLD(d);
  HP_TRY(type_of(name, t, &s, &v));
  return api_result(__func__, create(d, name, &v));
}

/* The meshes that have the tensor, one after the other, from *i on: its index there. */
static bool next_with(const hp_device *d, const char *name, int *i, uint32_t *index) {
  for (; *i < stage_meshes_count(d); ++*i)
    if (map_get(&stage_mesh(d, *i)->state_of, name, strlen(name), index)) return true;
  return false;
}

/* The first of them; the others have copies. */
static hp_status find(const hp_device *d, const char *name, device_mesh **on, uint32_t *index) {
  int i = stage_meshes_where(d, name, index);
  if (i < 0) HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  *on = stage_mesh(d, i);
  return HP_OK;
}

HP_API hp_status hp_param_free(hp_device *d, const char *name) {
  device_mesh *on;
  uint32_t index;
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  DEVICE_MESH_HOLD(d);
  HP_TRY(find(d, name, &on, &index));
  for (int i = 0; next_with(d, name, &i, &index); i++)
    HP_TRY(api_result(__func__, device_mesh_free_state(stage_mesh(d, i), name)));
  return HP_OK;
}

static hp_status rename_all(hp_device *d, const char *name, const char *to) {
  device_mesh *on;
  uint32_t index;
  int stage = stage_meshes_find(d, name);
  HP_TRY(find(d, name, &on, &index));
  for (int i = 0; next_with(d, name, &i, &index); i++)
    HP_TRY(device_mesh_rename_state(stage_mesh(d, i), name, to));
  return stage == STAGE_UNKNOWN ? HP_OK : stage_meshes_rule(d, to, stage);
}

HP_API hp_status hp_param_rename(hp_device *d, const char *name, const char *to) {
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  API_NEED(to);
  if (!*to) API_REFUSE("to is empty");
  DEVICE_MESH_HOLD(d);
  return api_result(__func__, rename_all(d, name, to));
}

static hp_status check_not_partial(const device_mesh_state *s, const char *name) {
  for (int a = 0; a < LAYOUT_AXES; a++)
    if (s->l.partial[a])
      HP_FAIL(HP_ERR_LAYOUT, "param \"%s\" is a partial sum; only programs read it", name);
  return HP_OK;
}

static hp_status check_bytes(const device_mesh_state *s, const char *name, size_t bytes) {
  uint64_t want = (uint64_t)value_bytes(&s->type);
  if (bytes != want)
    HP_FAIL(HP_ERR_ARG, "param \"%s\" has %llu bytes, %zu are given", name,
            (unsigned long long)want, bytes);
  return check_not_partial(s, name);
}

HP_API hp_status hp_write(hp_device *d, const char *name, const void *data, size_t bytes) {
  device_mesh *on;
  uint32_t index;
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  if (bytes) API_NEED(data);
  DEVICE_MESH_HOLD(d);
  HP_TRY(find(d, name, &on, &index));
  HP_TRY(check_bytes(&on->states.at[index], name, bytes));
  for (int i = 0; next_with(d, name, &i, &index); i++)
    HP_TRY(api_result(__func__, device_mesh_write(stage_mesh(d, i), index, data)));
  return HP_OK;
}

/* A fill of the caller's, and what it is called for. */
typedef struct {
  hp_fill_fn fill;
  void *context;
  const char *name;
} filler;
typedef struct {
  const filler *f;
  int64_t first, n;
  void *to;
} filled;

static hp_status call_fill(void *context) {
  const filled *x = context;
  return x->f->fill(x->f->context, x->first, x->n, x->to);
}

static hp_status fill_chunk(void *context, int64_t first, int64_t n, void *to) {
  filled x = {context, first, n, to};
  err_report why;
  hp_status st = err_outside(call_fill, &x, &why);
  if ((unsigned)st > HP_ERR_INTERNAL)
    HP_FAIL(HP_ERR_ARG, "hp_fill: the fill of param \"%s\" returned %d, which is no hp_status",
            x.f->name, (int)st);
  if (st && !*why.message)
    HP_FAIL(st, "hp_fill: the fill of param \"%s\" returned \"%s\" for %lld elements from %lld on",
            x.f->name, err_name(st), (long long)n, (long long)first);
  return err_give(&why);
}

HP_API hp_status hp_fill(hp_device *d, const char *name, hp_fill_fn fill, void *context) {
  device_mesh *on;
  uint32_t index;
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  if (!fill) return api_null(__func__, "fill", "a function");
  DEVICE_MESH_HOLD(d);
  HP_TRY(find(d, name, &on, &index));
  HP_TRY(check_not_partial(&on->states.at[index], name));
  filler f = {fill, context, name};
  for (int i = 0; next_with(d, name, &i, &index); i++)
    HP_TRY(api_result(__func__, device_mesh_fill(stage_mesh(d, i), index, fill_chunk, &f)));
  return HP_OK;
}

HP_API hp_status hp_read(const hp_device *d, const char *name, void *data, size_t bytes) {
  device_mesh *on;
  uint32_t i;
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  if (bytes && d->own == d->n) API_NEED(data);
  DEVICE_MESH_HOLD(d);
  HP_TRY(find(d, name, &on, &i));
  HP_TRY(check_bytes(&on->states.at[i], name, bytes));
  return api_result(__func__, stage_meshes_read(d, stage_meshes_where(d, name, &i), i, data));
}

HP_API int hp_param_count(const hp_device *d) {
  API_GET;
  API_NEED_OR(d, 0);
  return stage_meshes_params(d);
}

static void tell_type(const device_mesh_state *x, hp_dtype *t, hp_shape *s) {
  *t = (hp_dtype)x->type.dtype;
  s->rank = x->type.rank;
  memcpy(s->dim, x->type.dim, sizeof s->dim);
}

HP_API hp_status hp_param_info(const hp_device *d, int i, const char **name, hp_dtype *t,
                               hp_shape *s) {
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  API_NEED(t);
  API_NEED(s);
  int k;
  uint32_t index;
  if (i < 0 || !stage_meshes_param(d, i, &k, &index))
    API_REFUSE("i is %d; the device has %d params, counted from 0", i, stage_meshes_params(d));
  const device_mesh *on = stage_mesh(d, k);
  *name = intern_get(&on->names, on->states.at[index].name, NULL);
  tell_type(&on->states.at[index], t, s);
  return HP_OK;
}

HP_API hp_status hp_param_find(const hp_device *d, const char *name, hp_dtype *t, hp_shape *s) {
  device_mesh *on;
  uint32_t i;
  API_CALL;
  API_NEED(d);
  API_NEED(name);
  API_NEED(t);
  API_NEED(s);
  HP_TRY(find(d, name, &on, &i));
  tell_type(&on->states.at[i], t, s);
  return HP_OK;
}

/* Names of params: no more than there are, so that a count that is none is not believed. */
static hp_status check_names(const char *function, const hp_device *d, const char *const *name,
                             int n) {
  if (n < 0 || n > stage_meshes_params(d))
    return api_refuse(function, "n is %d; the device has %d params", n, stage_meshes_params(d));
  if (n && !name) return api_null(function, "name", "names");
  for (int i = 0; i < n; i++)
    if (!name[i]) return api_refuse(function, "name[%d] is NULL", i);
  return HP_OK;
}

/* Params from or to a folder. */
static hp_status
move_params(const char *function, hp_device *d, const char *folder, const char *const *name, int n,
            hp_status (*move)(device_mesh *, const char *, const char *const *, int)) {
  if (!folder) return api_null(function, "path", "a path");
  HP_TRY(check_names(function, d, name, n));
  return api_result(function, move(d, folder, name, n));
}

HP_API hp_status hp_params_save(hp_device *d, const char *to, const char *const *name, int n) {
  API_CALL;
  API_NEED(d);
  DEVICE_MESH_HOLD(d);
  return move_params(__func__, d, to, name, n, params_save);
}

HP_API hp_status hp_params_load(hp_device *d, const char *from, const char *const *name, int n) {
  API_CALL;
  API_NEED(d);
  DEVICE_MESH_HOLD(d);
  return move_params(__func__, d, from, name, n, params_load);
}

HP_API hp_status hp_params_verify(const hp_device *d) {
  API_CALL;
  API_NEED(d);
  DEVICE_MESH_HOLD(d);
  for (int i = 0; i < stage_meshes_count(d); i++)
    HP_TRY(api_result(__func__, replicas_verify(stage_mesh(d, i))));
  return HP_OK;
}
