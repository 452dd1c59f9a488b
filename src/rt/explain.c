#include "rt/explain.h"

#include "ir/print.h"
#include "rt/explain_comm.h"
#include "rt/explain_memory.h"
#include "rt/explain_timeline.h"
#include "rt/inst_name.h"
#include "sched/predict.h"

#include <stdlib.h>
#include <string.h>

/* --- time ------------------------------------------------------------------------------------ */

hp_status explain_times(const program *p, device *d, const exec *e, op_times *out) {
  HP_TRY(device_know_limits(d));
  if (!e || !(exec_last_seconds(e) > 0)) return op_times_make(p, d, NULL, NULL, out);
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  HP_TRY_MEM(t);
  exec_recent(e, t);
  hp_status st = op_times_make(p, d, t, exec_last_seen(e), out);
  mem_free(t);
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

/* --- all of it -------------------------------------------------------------------------------- */

/* --- schedule --------------------------------------------------------------------------------- */

/* Behind the line of a buffer its name, behind that of a loop what it does, as comments. */
static void name_line(const program *p, const mesh *m, const uint32_t *maker, const char *line,
                      size_t *inst, str *out) {
  char *end;
  uint32_t b = *line == 'b' ? (uint32_t)strtoul(line + 1, &end, 10) : 0;
  if (!strncmp(line, "arena ", 6)) return;
  if (*line == 'b' && end > line + 1 && b < p->buffers.len) {
    if (p->buffers.at[b].name) return; /* the line has it */
    str_add(out, "  # ");
    buffer_print_name(p, m, maker, b, out);
    return;
  }
  const prog_inst *n = *inst < p->insts.len ? program_inst(p, (*inst)++) : NULL;
  if (!n || n->op != OP_FUSED) return;
  str_add(out, "  # ");
  inst_print_name(p, m, n, out);
}

static hp_status print_schedule(const program *p, const mesh *m, str *out) {
  uint32_t *maker;
  str text = {0};
  size_t inst = 0;
  HP_TRY(buffer_makers(p, &maker));
  hp_status st = program_print(p, &text);
  for (const char *line = text.at; !st && line && *line;) {
    size_t n = strcspn(line, "\n");
    str_add_n(out, line, n);
    name_line(p, m, maker, line, &inst, out);
    str_add_char(out, '\n');
    line += n + (line[n] == '\n');
  }
  str_free(&text);
  mem_free(maker);
  return st ? st : str_status(out);
}

/* Readers of times: those of recent runs; before one, as the cluster's figures make them. */
typedef hp_status (*times_reader)(const program *p, const device *d, const inst_times *t,
                                  bool measured, str *out);

static hp_status print_comm(const program *p, const device *d, const inst_times *t, bool measured,
                            str *out) {
  return explain_comm(p, d->mesh, t, measured, out);
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

static hp_status read_times(const program *p, const device *d, const exec *e, times_reader read,
                            str *out) {
  bool measured = e && exec_last_seconds(e) > 0;
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  HP_TRY_MEM(t);
  if (measured) exec_recent(e, t);
  hp_status st = measured ? HP_OK : predict_run(d->cluster, d->mesh, p, t);
  if (!st) st = read(p, d, t, measured, out);
  mem_free(t);
  return st;
}

hp_status explain_print(const program *p, device *d, const exec *e, const hp_memory *m,
                        const char *what, str *out) {
  if (!strcmp(what, "memory")) return explain_memory(p, d->mesh, m, out);
  if (m && !strcmp(what, "memory.totals")) {
    memory_print(m, 0, out);
    return str_status(out);
  }
  if (!strcmp(what, "schedule")) return print_schedule(p, d->mesh, out);
  if (!strcmp(what, "comm")) return read_times(p, d, e, print_comm, out);
  if (!strcmp(what, "timeline.svg")) return read_times(p, d, e, draw_timeline, out);
  if (!strcmp(what, "mesh.svg")) return read_times(p, d, e, draw_mesh, out);
  bool json = !strcmp(what, "ops.json");
  if (!json && strcmp(what, "ops"))
    HP_FAIL(HP_ERR_ARG,
            "what is \"%.100s\"; expected memory, memory.totals, schedule, ops, ops.json, comm, "
            "timeline.svg or mesh.svg%s",
            what, e ? "" : ", or of a plan layouts or layouts.svg");
  return print_ops(p, d, e, m, json, out);
}

/* --- trace ------------------------------------------------------------------------------------ */

static void trace_inst(const program *p, const mesh *m, const inst_times *t, size_t i, int number,
                       str *out) {
  static const char *const phase[] = {"forward", "backward", "update"};
  const prog_inst *n = program_inst(p, i);
  str name = {0};
  hp_op_time row;
  inst_print_name(p, m, n, &name);
  inst_describe(p, m, n, NULL, &row);
  str_printf(out, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"name\":", number, n->stream);
  graph_print_string(name.at ? name.at : "", out);
  str_printf(out, ",\"cat\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"kind\":", phase[n->phase],
             t[i].start_s * 1e6, (t[i].end_s - t[i].start_s) * 1e6);
  graph_print_string(row.kind, out);
  str_add(out, ",\"shape\":");
  graph_print_string(row.shape, out);
  str_add(out, ",\"at\":");
  graph_print_string(program_str(p, n->loc), out);
  if (inst_layer(p, n) >= 0) str_printf(out, ",\"layer\":%d", inst_layer(p, n));
  str_printf(out, ",\"op\":\"%s\",\"instruction\":%zu,\"flops\":%.0f,\"bytes\":%.0f",
             op_table[n->op].name, i, n->flops, n->bytes);
  if (op_flags((op_id)n->op) & OPF_MEETS)
    str_printf(out, ",\"received_bytes\":%.0f,\"met_us\":%.3f", predict_received(p, n),
               t[i].met_s * 1e6);
  str_add(out, "}}");
  out->failed |= name.failed;
  str_free(&name);
}

void explain_trace(const exec *e, const mesh *m, int number, str *out) {
  const program *p = exec_program(e);
  for (uint32_t s = 0; s < STREAM_COUNT; s++)
    str_printf(out,
               "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"name\":\"thread_name\","
               "\"args\":{\"name\":\"%s\"}}",
               number || s ? ",\n" : "", number, s, stream_name(s));
  for (size_t i = 0; i < p->insts.len; i++) trace_inst(p, m, exec_last_times(e), i, number, out);
}
