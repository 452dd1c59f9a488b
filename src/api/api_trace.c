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

double api_trace_origin(const hp_program *p) {
  const hp_program *part;
  double first_s = INFINITY;
  for (int k = 0; (part = part_of(p, k)); k++)
    for (int i = 0; i < part->r.d->own; i++) first_s = fmin(first_s, exec_began_s(part->r.e[i]));
  return first_s;
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

/* When the first of all processes began, by the clock of this one.  Clocks are compared right
 * behind a gather, which all leave at about the same time. */
static hp_status find_origin(const device_mesh *d, double own_s, double *out) {
  double began_s[COMM_MAX], now_s[COMM_MAX], mine = own_s;
  HP_TRY(device_mesh_gather(d, &mine, sizeof mine, began_s));
  mine = time_now_s();
  HP_TRY(device_mesh_gather(d, &mine, sizeof mine, now_s));
  const int64_t me = d->member[0]->position;
  *out = own_s;
  for (int i = 0; i < d->n; i++) *out = fmin(*out, began_s[i] - now_s[i] + now_s[me]);
  return HP_OK;
}

/* Events of all processes, on the first. */
static hp_status gather_events(const device_mesh *d, str *events) {
  int64_t mine = (int64_t)events->len, bytes[COMM_MAX];
  char wants[COMM_MAX] = {1};
  const bool leads = d->member[0]->position == 0;
  HP_TRY(str_status(events));
  HP_TRY(device_mesh_gather(d, &mine, sizeof mine, bytes));
  for (int i = 1; i < d->n; i++) {
    char *from = leads ? mem_calloc((size_t)bytes[i] + 1, 1) : events->at;
    if (leads) HP_TRY_MEM(from);
    hp_status st = device_mesh_send(d, i, wants, from, (size_t)bytes[i]);
    if (!st && leads) str_printf(events, ",\n%s", from);
    if (leads) mem_free(from);
    HP_TRY(st);
  }
  return str_status(events);
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
  const device_mesh *d = p->r.d;
  const bool several = d->own < d->n;
  double origin_s = api_trace_origin(p);
  str events = {0};
  hp_status st = several ? find_origin(d, origin_s, &origin_s) : HP_OK;
  if (!st) print_own(p, origin_s, &events);
  if (!st && several) st = gather_events(d, &events);
  if (!st) st = str_status(&events);
  if (!st && (!several || d->member[0]->position == 0)) st = write_file(&events, file);
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
