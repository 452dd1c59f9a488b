/* hyperparallel.h: devices and the params on them. */
#include "base/dtype.h"
#include "comm/world.h"
#include "rt/params.h"
#include "rt/replicas.h"

#include <string.h>

#define HP_API __attribute__((visibility("default")))

/* --- processes ----------------------------------------------------------------------------- */

HP_API hp_status hp_world(int *rank, int *size) {
  HP_TRY(world_begin());
  *rank = world_get()->rank;
  *size = world_get()->size;
  return HP_OK;
}
HP_API hp_status hp_world_most(int64_t mine, int64_t *most) { return world_most(mine, most); }

HP_API hp_status hp_world_gather(const void *mine, size_t bytes, void *all) {
  if (bytes && (!mine || !all))
    HP_FAIL(HP_ERR_ARG, "hp_world_gather: %s is NULL", mine ? "all" : "mine");
  return world_gather(mine, bytes, all);
}

/* --- devices ------------------------------------------------------------------------------- */

HP_API hp_status hp_device_open(const hp_device_options *o, hp_device **out) {
  static const hp_device_options usual;
  return group_open(o ? o : &usual, out);
}
HP_API void hp_device_close(hp_device *d) { group_close(d); }
HP_API hp_status hp_device_layout(hp_device *d, const char *pattern, const char *entries,
                                  bool where_divides) {
  return group_rule(d, pattern, entries, where_divides);
}
HP_API const char *hp_device_describe(const hp_device *d) { return d->about; }
HP_API int hp_device_threads(const hp_device *d) {
  int threads = 0;
  for (int i = 0; i < d->own; i++) threads += d->part[i]->backend->threads(d->part[i]->dev);
  return threads;
}
HP_API uint64_t hp_device_param_bytes(const hp_device *d) { return d->part[0]->state_bytes; }

HP_API void hp_device_set_memory_limit(hp_device *d, uint64_t bytes) {
  for (int i = 0; i < d->own; i++) d->part[i]->limit = bytes;
}

HP_API const char *hp_device_engine(const hp_device *d) {
  return d->part[0]->backend->engine(d->part[0]->dev);
}
/* Picks first: of a text that is none, or names what is not here, nothing is taken. */
HP_API hp_status hp_device_set_engine(hp_device *d, const char *name, const char *picks) {
  for (int i = 0; i < d->own && picks; i++)
    HP_TRY(d->part[i]->backend->set_picks(d->part[i]->dev, picks));
  return group_set_engine(d, name);
}
HP_API hp_status hp_device_picks(const hp_device *d, char **text) {
  str s = {0};
  d->part[0]->backend->picks(d->part[0]->dev, &s);
  *text = str_take(&s);
  return *text ? HP_OK : HP_ERR_OOM;
}

HP_API hp_status hp_device_measure(hp_device *d, hp_limits *out) {
  HP_TRY(device_measure(d->part[0]));
  *out = d->part[0]->limits;
  return HP_OK;
}

static hp_status type_of(const char *name, hp_dtype t, const hp_shape *s, ir_value *v) {
  *v = (ir_value){.dtype = (uint8_t)t, .rank = (uint8_t)s->rank};
  if (s->rank < 0 || s->rank > HP_MAX_RANK || (unsigned)t >= HP_DTYPE_COUNT)
    HP_FAIL(HP_ERR_ARG, "param \"%s\": %d dims of dtype %d; at most %d dims", name, s->rank, (int)t,
            HP_MAX_RANK);
  for (int i = 0; i < s->rank; i++) {
    if (s->dim[i] < 0) HP_FAIL(HP_ERR_ARG, "param \"%s\": dim %d is negative", name, i);
    v->dim[i] = s->dim[i];
  }
  if (!value_fits(v)) HP_FAIL(HP_ERR_ARG, "param \"%s\" is too large", name);
  return HP_OK;
}

HP_API hp_status hp_param_create(hp_device *d, const char *name, hp_dtype t, hp_shape s) {
  ir_value v;
  uint32_t index;
  HP_TRY(type_of(name, t, &s, &v));
  return group_state_of(d, name, &v, &index);
}

static hp_status find(const hp_device *d, const char *name, uint32_t *index) {
  if (!map_get(&d->state_of, name, strlen(name), index))
    HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  return HP_OK;
}

static hp_status check_whole(const group_state *s, const char *name) {
  for (int a = 0; a < LAYOUT_AXES; a++)
    if (s->l.pending[a])
      HP_FAIL(HP_ERR_LAYOUT, "param \"%s\" is a sum that is pending; only programs read it", name);
  return HP_OK;
}

static hp_status check_bytes(const group_state *s, const char *name, size_t bytes) {
  uint64_t want = (uint64_t)value_bytes(&s->type);
  if (bytes != want)
    HP_FAIL(HP_ERR_ARG, "param \"%s\" has %llu bytes, %zu are given", name,
            (unsigned long long)want, bytes);
  return check_whole(s, name);
}

HP_API hp_status hp_write(hp_device *d, const char *name, const void *data, size_t bytes) {
  uint32_t i;
  HP_TRY(find(d, name, &i));
  HP_TRY(check_bytes(&d->states.at[i], name, bytes));
  return group_write(d, i, data);
}

HP_API hp_status hp_fill(hp_device *d, const char *name, hp_fill_fn fill, void *context) {
  uint32_t i;
  if (!fill) HP_FAIL(HP_ERR_ARG, "param \"%s\": there is no function to fill it", name);
  HP_TRY(find(d, name, &i));
  HP_TRY(check_whole(&d->states.at[i], name));
  return group_fill(d, i, fill, context);
}

HP_API hp_status hp_read(const hp_device *d, const char *name, void *data, size_t bytes) {
  uint32_t i;
  HP_TRY(find(d, name, &i));
  HP_TRY(check_bytes(&d->states.at[i], name, bytes));
  return group_read(d, i, data);
}

HP_API int hp_param_count(const hp_device *d) { return (int)d->states.len; }

HP_API hp_status hp_param_info(const hp_device *d, int i, const char **name, hp_dtype *t,
                               hp_shape *s) {
  if (i < 0 || (size_t)i >= d->states.len) HP_FAIL(HP_ERR_ARG, "param %d of %zu", i, d->states.len);
  const group_state *x = &d->states.at[i];
  *name = intern_get(&d->names, x->name, NULL);
  *t = (hp_dtype)x->type.dtype;
  s->rank = x->type.rank;
  memcpy(s->dim, x->type.dim, sizeof s->dim);
  return HP_OK;
}

HP_API hp_status hp_param_find(const hp_device *d, const char *name, hp_dtype *t, hp_shape *s) {
  uint32_t i;
  const char *same;
  HP_TRY(find(d, name, &i));
  return hp_param_info(d, (int)i, &same, t, s);
}

static hp_status check_files(const char *files, const char *const *name, int n) {
  if (!files) HP_FAIL(HP_ERR_ARG, "params to files: the path is missing");
  if (n < 0 || (n && !name)) HP_FAIL(HP_ERR_ARG, "params to files: %d names are missing", n);
  return HP_OK;
}

HP_API hp_status hp_params_save(hp_device *d, const char *files, const char *const *name, int n) {
  HP_TRY(check_files(files, name, n));
  return params_save(d, files, name, n);
}

HP_API hp_status hp_params_load(hp_device *d, const char *files, const char *const *name, int n) {
  HP_TRY(check_files(files, name, n));
  return params_load(d, files, name, n);
}

HP_API hp_status hp_params_verify(const hp_device *d) {
  if (!d) HP_FAIL(HP_ERR_ARG, "hp_params_verify: the device is NULL");
  return replicas_verify(d);
}
