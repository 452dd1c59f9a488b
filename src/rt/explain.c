#include "rt/explain.h"

#include "ir/print.h"
#include "rt/explain_chain.h"
#include "rt/explain_comm.h"
#include "rt/explain_memory.h"
#include "rt/explain_moved.h"
#include "rt/explain_schedule.h"
#include "rt/explain_timeline.h"
#include "rt/memory_picture.h"
#include "rt/inst_name.h"
#include "sim/cost.h"
#include "sim/predict.h"

#include <stdlib.h>
#include <string.h>

/* --- time ------------------------------------------------------------------------------------ */

hp_status explain_times(const program *p, device *d, const exec *e, op_times *out) {
  HP_TRY(device_know_limits(d));
  if (!e || !(exec_last_seconds(e) > 0)) return op_times_make(p, d, NULL, NULL, out);
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  visible_keys *visible = mem_calloc(p->insts.len, sizeof *visible);
  hp_status st = t && visible ? HP_OK : HP_ERR_OOM;
  if (!st) {
    exec_recent(e, t);
    exec_last_visible_keys(e, visible);
    st = op_times_make(p, d, t, visible, out);
  }
  mem_free(t);
  mem_free(visible);
  return st;
}

static hp_status print_ops(const program *p, device *d, const exec *e, const hp_memory *m,
                           bool json, str *out) {
  op_times t;
  HP_TRY(explain_times(p, d, e, &t));
  if (json) op_times_print_json(t.at, (int)t.len, &d->limits, m, out);
  else op_times_print(t.at, (int)t.len, &d->limits, out);
  vec_free(&t);
  return str_status(out);
}

/* --- readers of times ------------------------------------------------------------------------- */

/* Times of recent runs; before the first run, predictions for the cluster. */
typedef hp_status (*times_reader)(const program *p, const device *d, const inst_times *t,
                                  bool measured, str *out);

static hp_status print_comm(const program *p, const device *d, const inst_times *t, bool measured,
                            str *out) {
  return explain_comm(p, d->mesh, t, measured, out);
}
static hp_status put_comm(const program *p, const device *d, const inst_times *t, bool measured,
                          str *out) {
  return explain_comm_json(p, d->mesh, t, measured, out);
}
static hp_status put_schedule(const program *p, const device *d, const inst_times *t, bool measured,
                              str *out) {
  return explain_schedule_json(p, d->mesh, t, measured, out);
}
static hp_status draw_timeline(const program *p, const device *d, const inst_times *t,
                               bool measured, str *out) {
  return explain_timeline_svg(p, d->mesh, t, measured, out);
}
static hp_status draw_mesh(const program *p, const device *d, const inst_times *t, bool measured,
                           str *out) {
  (void)measured;
  return explain_mesh_svg(p, d->mesh, d->cluster, t, out);
}

static bool is_measured(const exec *e) { return e && exec_last_seconds(e) > 0; }

static hp_status find_times(const program *p, const device *d, const exec *e, inst_times *t) {
  if (!is_measured(e)) return predict_run(d->costs, d->mesh, p, t);
  exec_recent(e, t);
  return HP_OK;
}

static hp_status read_times(const program *p, const device *d, const exec *e, times_reader read,
                            str *out) {
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  HP_TRY_MEM(t);
  hp_status st = find_times(p, d, e, t);
  if (!st) st = read(p, d, t, is_measured(e), out);
  mem_free(t);
  return st;
}

/* --- views ------------------------------------------------------------------------------------ */

/* The inputs of a view besides the program. */
typedef struct {
  const program *p;
  device *d;
  const exec *e;
  const hp_memory *m;
} subject;

static hp_status print_moved(const program *p, const device *d, const inst_times *t, bool measured,
                             str *out) {
  return explain_moved(p, d, t, measured, out);
}
static hp_status view_memory(const subject *s, str *out) {
  HP_TRY(explain_memory(s->p, s->d->mesh, s->m, out));
  if (!s->d->costs) return HP_OK; /* nothing tells times */
  return read_times(s->p, s->d, s->e, print_moved, out);
}
static hp_status view_totals(const subject *s, str *out) {
  if (s->m) memory_print(s->m, 0, out);
  return str_status(out);
}
static hp_status view_memory_json(const subject *s, str *out) {
  inst_times *t = mem_calloc(s->p->insts.len, sizeof *t);
  HP_TRY_MEM(t);
  hp_status st = find_times(s->p, s->d, s->e, t);
  if (!st) st = explain_memory_json(s->p, s->d, s->m, t, out);
  mem_free(t);
  return st;
}
static hp_status view_schedule(const subject *s, str *out) {
  return explain_schedule(s->p, s->d->mesh, out);
}
static hp_status view_schedule_json(const subject *s, str *out) {
  return read_times(s->p, s->d, s->e, put_schedule, out);
}
static hp_status view_ops(const subject *s, str *out) {
  return print_ops(s->p, s->d, s->e, s->m, false, out);
}
static hp_status view_ops_json(const subject *s, str *out) {
  return print_ops(s->p, s->d, s->e, s->m, true, out);
}
static hp_status view_comm(const subject *s, str *out) {
  return read_times(s->p, s->d, s->e, print_comm, out);
}
static hp_status view_comm_json(const subject *s, str *out) {
  return read_times(s->p, s->d, s->e, put_comm, out);
}
static hp_status view_timeline(const subject *s, str *out) {
  return read_times(s->p, s->d, s->e, draw_timeline, out);
}
/* Memory over the run as predicted, and as it was if there was one. */
static hp_status view_memory_svg(const subject *s, str *out) {
  inst_times *predicted = mem_calloc(s->p->insts.len, sizeof *predicted), *measured = NULL;
  hp_status st = predicted ? HP_OK : HP_ERR_OOM;
  if (!st) st = predict_run(s->d->costs, s->d->mesh, s->p, predicted);
  if (!st && is_measured(s->e)) {
    measured = mem_calloc(s->p->insts.len, sizeof *measured);
    if (measured) exec_recent(s->e, measured);
    else st = HP_ERR_OOM;
  }
  if (!st) st = memory_picture(s->p, s->d->mesh, predicted, measured, s->m, s->e != NULL, out);
  mem_free(predicted);
  mem_free(measured);
  return st;
}
static hp_status view_mesh(const subject *s, str *out) {
  return read_times(s->p, s->d, s->e, draw_mesh, out);
}

static const struct {
  const char *what;
  hp_status (*print)(const subject *s, str *out);
} views[] = {{"memory", view_memory},
             {"memory.totals", view_totals},
             {"memory.json", view_memory_json},
             {"memory.svg", view_memory_svg},
             {"schedule", view_schedule},
             {"schedule.json", view_schedule_json},
             {"ops", view_ops},
             {"ops.json", view_ops_json},
             {"comm", view_comm},
             {"comm.json", view_comm_json},
             {"timeline.svg", view_timeline},
             {"mesh.svg", view_mesh}};
enum { VIEWS = sizeof views / sizeof *views };

/* "memory, ops or comm" */
static void list_views(str *out) {
  for (int i = 0; i < VIEWS; i++)
    str_printf(out, "%s%s", i == 0 ? "" : i + 1 < VIEWS ? ", " : " or ", views[i].what);
}

/* The chains of the values that match a pattern: "memory PATTERN", "memory.json PATTERN". */
static hp_status view_chains(const subject *s, bool json, const char *pattern, str *out) {
  inst_times *t = mem_calloc(s->p->insts.len, sizeof *t);
  HP_TRY_MEM(t);
  hp_status st = find_times(s->p, s->d, s->e, t);
  if (!st) st = (json ? explain_chains_json : explain_chains)(s->p, s->d->mesh, t, pattern, out);
  mem_free(t);
  return st;
}

hp_status explain_print(const program *p, device *d, const exec *e, const hp_memory *m,
                        const char *what, str *out) {
  static const char text[] = "memory ", json[] = "memory.json ";
  const subject s = {p, d, e, m};
  if (!strncmp(what, text, sizeof text - 1))
    return view_chains(&s, false, what + sizeof text - 1, out);
  if (!strncmp(what, json, sizeof json - 1))
    return view_chains(&s, true, what + sizeof json - 1, out);
  for (int i = 0; i < VIEWS; i++)
    if (!strcmp(what, views[i].what)) return views[i].print(&s, out);
  str list = {0};
  list_views(&list);
  hp_status st = str_status(&list);
  if (!st)
    st = err_set(HP_ERR_ARG, __FILE__, __LINE__, "what is \"%.100s\"; expected %s%s", what, list.at,
                 e ? "" : ", or of a plan layouts, layouts.json or layouts.svg");
  str_free(&list);
  return st;
}

/* --- trace ------------------------------------------------------------------------------------ */

static void trace_inst(const program *p, const mesh *m, const inst_times *t, size_t i, int number,
                       double from_s, str *out) {
  static const char *const phase[] = {"forward", "backward", "update"};
  const prog_inst *n = program_inst(p, i);
  str name = {0};
  hp_op_time row;
  inst_print_name(p, m, n, &name);
  inst_describe(p, m, n, NULL, &row);
  str_printf(out, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"name\":", number, n->stream);
  graph_print_string(name.at ? name.at : "", out);
  str_printf(out, ",\"cat\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"kind\":", phase[n->phase],
             (from_s + t[i].start_s) * 1e6, (t[i].end_s - t[i].start_s) * 1e6);
  graph_print_string(row.kind, out);
  str_add(out, ",\"shape\":");
  graph_print_string(row.shape, out);
  str_add(out, ",\"at\":");
  graph_print_string(program_str(p, n->loc), out);
  if (inst_layer(p, n) >= 0) str_printf(out, ",\"layer\":%d", inst_layer(p, n));
  str_printf(out, ",\"op\":\"%s\",\"instruction\":%zu,\"flops\":%.0f,\"bytes\":%.0f",
             op_table[n->op].name, i, n->flops, n->bytes);
  if (op_flags((op_id)n->op) & OPF_RENDEZVOUS)
    str_printf(out, ",\"received_bytes\":%.0f,\"met_us\":%.3f", cost_received(p, n),
               (from_s + t[i].arrived_s) * 1e6);
  str_add(out, "}}");
  out->failed |= name.failed;
  str_free(&name);
}

void explain_trace(const exec *e, const mesh *m, int number, double from_s, str *out) {
  const program *p = exec_program(e);
  str_printf(out,
             "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"device "
             "%d\"}}",
             out->len ? ",\n" : "", number, number);
  for (uint32_t s = 0; s < STREAM_COUNT; s++)
    str_printf(out,
               ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"name\":\"thread_name\","
               "\"args\":{\"name\":\"%s\"}}",
               number, s, stream_name(s));
  for (size_t i = 0; i < p->insts.len; i++)
    trace_inst(p, m, exec_last_times(e), i, number, from_s, out);
}
