/* hyperparallel.h: the trace of a run. */
#include "api/api_trace.h"

#include "api/api_pipeline.h"
#include "base/io.h"
#include "base/thread.h"
#include "rt/explain.h"

#include <math.h>
#include <string.h>

/* The programs of one mesh, or of each mesh of a pipeline that has a device of this process. */
static const hp_program *part_of(const hp_program *p, int k) {
  if (p->pipeline) return api_pipeline_part(p->pipeline, k);
  return k ? NULL : p;
}

static double own_origin(const hp_program *p) {
  const hp_program *part;
  double first_s = INFINITY;
  for (int k = 0; (part = part_of(p, k)); k++)
    for (int i = 0; i < part->r.d->own; i++) first_s = fmin(first_s, exec_began_s(part->r.e[i]));
  return first_s;
}

static bool is_of_several(const hp_program *p) { return p->r.d->own < p->r.d->n; }

/* Clocks are compared right behind a gather, which all leave at about the same time. */
hp_status api_trace_origin(const hp_program *p, double *out) {
  const device_mesh *d = p->r.d;
  double began_s[COMM_MAX], now_s[COMM_MAX], own_s = own_origin(p), mine = own_s;
  *out = own_s;
  if (!is_of_several(p)) return HP_OK;
  HP_TRY(device_mesh_gather(d, &mine, sizeof mine, began_s));
  mine = time_now_s();
  HP_TRY(device_mesh_gather(d, &mine, sizeof mine, now_s));
  const int64_t me = d->member[0]->position;
  for (int i = 0; i < d->n; i++) *out = fmin(*out, began_s[i] - now_s[i] + now_s[me]);
  return HP_OK;
}

hp_status api_trace_gather(const hp_program *p, const char *between, str *all) {
  const device_mesh *d = p->r.d;
  int64_t mine = (int64_t)all->len, bytes[COMM_MAX];
  char wants[COMM_MAX] = {1};
  const bool leads = d->member[0]->position == 0;
  HP_TRY(str_status(all));
  if (!is_of_several(p)) return HP_OK;
  HP_TRY(device_mesh_gather(d, &mine, sizeof mine, bytes));
  for (int i = 1; i < d->n; i++) {
    char *from = leads ? mem_calloc((size_t)bytes[i] + 1, 1) : all->at;
    if (leads) HP_TRY_MEM(from);
    hp_status st = device_mesh_send(d, i, wants, from, (size_t)bytes[i]);
    if (!st && leads) str_add(all, between), str_add_n(all, from, (size_t)bytes[i]);
    if (leads) mem_free(from);
    HP_TRY(st);
  }
  return str_status(all);
}

/* Events of the devices of this process, numbered by their ranks. */
static void print_own(const hp_program *p, double origin_s, str *out) {
  const hp_program *part;
  for (int k = 0; (part = part_of(p, k)); k++)
    for (int i = 0; i < part->r.d->own; i++) {
      const device_mesh *d = part->r.d;
      int rank = (int)mesh_rank(&d->m, d->member[i]->position);
      explain_trace(part->r.e[i], &d->m, rank, exec_began_s(part->r.e[i]) - origin_s, out);
    }
}

static hp_status write_file(const str *events, const char *file) {
  str s = {0};
  str_add(&s, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  str_add(&s, events->at ? events->at : "");
  str_add(&s, "\n]}\n");
  hp_status st = str_status(&s);
  if (!st) st = file_write(file, s.at, s.len);
  str_free(&s);
  return st;
}

static hp_status write_trace(const hp_program *p, const char *file) {
  double origin_s;
  str events = {0};
  HP_TRY(api_trace_origin(p, &origin_s));
  print_own(p, origin_s, &events);
  hp_status st = api_trace_gather(p, ",\n", &events);
  if (!st && p->r.d->member[0]->position == 0) st = write_file(&events, file);
  str_free(&events);
  return st;
}

HP_API hp_status hp_trace(const hp_program *p, const char *file) {
  API_CALL;
  API_NEED(p);
  if (!file) return api_null(__func__, "path", "a path");
  DEVICE_MESH_HOLD(p->r.d);
  return api_result(__func__, write_trace(p, file));
}
