#include "rt/explain.h"

#include "ir/print.h"
#include "mem/timeline.h"
#include "rt/explain_comm.h"
#include "sched/predict.h"

#include <string.h>

/* --- time ------------------------------------------------------------------------------------ */

hp_status explain_times(const program *p, device *d, const exec *e, op_times *out) {
  HP_TRY(device_know_limits(d));
  if (!e || !(exec_last_seconds(e) > 0)) return op_times_make(p, d, NULL, 0, NULL, out);
  double *seconds = mem_calloc(p->insts.len, sizeof *seconds);
  HP_TRY_MEM(seconds);
  double run_s = exec_recent(e, seconds);
  hp_status st = op_times_make(p, d, seconds, run_s, exec_last_seen(e), out);
  mem_free(seconds);
  return st;
}

static hp_status print_ops(const program *p, device *d, const exec *e, bool json, str *out) {
  op_times t;
  HP_TRY(explain_times(p, d, e, &t));
  (json ? op_times_print_json : op_times_print)(t.at, (int)t.len, &d->limits, out);
  vec_free(&t);
  return str_status(out);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* First and last instruction that touches each root buffer of the device tier. */
static timeline_span *spans_of(const program *p, size_t *count) {
  size_t n = p->buffers.len;
  timeline_span *s = mem_calloc(n, sizeof *s);
  bool *seen = mem_calloc(n, 1);
  uint32_t end = p->insts.len ? (uint32_t)p->insts.len - 1 : 0;
  if (!s || !seen) {
    mem_free(s);
    mem_free(seen);
    return NULL;
  }
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *d = program_inst(p, i);
    for (int k = 0; k <= d->n_in + d->n_out; k++) {
      uint32_t b = k < d->n_in + d->n_out ? program_args(p, d)[k] : d->workspace;
      if (b == PROG_NONE) continue;
      b = p->buffers.at[b].root;
      if (!seen[b]) s[b].first = i;
      seen[b] = true;
      s[b].last = i;
    }
  }
  for (size_t b = 0; b < n; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->flags & BUFFER_INPUT) s[b].first = 0;
    if (f->flags & BUFFER_OUTPUT) s[b].last = end;
    if (f->root == b && f->place == PLACE_WORK && f->tier == TIER_DEVICE) s[b].bytes = f->bytes;
    s[b].class = f->class;
  }
  mem_free(seen);
  *count = n;
  return s;
}

void explain_timeline(const program *p, uint64_t *live, int n) {
  size_t count;
  timeline t;
  memset(live, 0, (size_t)n * sizeof *live);
  timeline_span *s = spans_of(p, &count);
  if (!s || !p->insts.len || timeline_build(s, count, p->insts.len, 1, &t)) {
    err_clear();
    mem_free(s);
    return;
  }
  for (int i = 0; i < n; i++) live[i] = t.live[(size_t)i * p->insts.len / (size_t)n];
  timeline_free(&t);
  mem_free(s);
}

static hp_status print_memory(const program *p, str *out) {
  size_t count;
  timeline t;
  timeline_span *s = spans_of(p, &count);
  HP_TRY_MEM(s);
  hp_status st = timeline_build(s, count, p->insts.len ? p->insts.len : 1, 1, &t);
  if (st) {
    mem_free(s);
    return st;
  }
  uint64_t planned = p->arena[TIER_DEVICE], bound = p->bound[TIER_DEVICE];
  str_printf(out, "work memory: planned %llu bytes, lower bound %llu, gap %.2f %%\n",
             (unsigned long long)planned, (unsigned long long)bound,
             bound ? 100.0 * (double)(planned - bound) / (double)bound : 0.0);
  if (p->order) str_printf(out, "order, to stay under the memory limit: %s\n", p->order);
  str_printf(out, "fullest at instruction %u of %zu; live there by class:\n", t.peak_at[0],
             p->insts.len);
  for (int c = 0; c < MEM_CLASS_COUNT; c++)
    if (t.peak_by_class[0][c])
      str_printf(out, "  %-10s %14llu bytes\n", mem_class_name((mem_class)c),
                 (unsigned long long)t.peak_by_class[0][c]);
  uint32_t id[16];
  size_t n = timeline_largest(s, count, 0, t.peak_at[0], id, 16);
  str_add(out, "largest there:\n");
  for (size_t i = 0; i < n; i++) {
    str_printf(out, "  b%-6u %14llu bytes  ", id[i], (unsigned long long)s[id[i]].bytes);
    value_print(&p->buffers.at[id[i]].type, out);
    str_printf(out, "  instructions %u..%u\n", s[id[i]].first, s[id[i]].last);
  }
  timeline_free(&t);
  mem_free(s);
  if (p->notes.len) str_printf(out, "large values:\n%s", p->notes.at);
  return str_status(out);
}

/* Of the last run; before one, as the cluster's figures make it. */
static hp_status print_comm(const program *p, const device *d, const exec *e, str *out) {
  if (e && exec_last_seconds(e) > 0) return explain_comm(p, d->mesh, exec_last_times(e), true, out);
  inst_times *t = mem_calloc(p->insts.len, sizeof *t);
  HP_TRY_MEM(t);
  hp_status st = predict_run(d->cluster, d->mesh, p, t);
  if (!st) st = explain_comm(p, d->mesh, t, false, out);
  mem_free(t);
  return st;
}

hp_status explain_print(const program *p, device *d, const exec *e, const char *what, str *out) {
  if (!strcmp(what, "memory")) return print_memory(p, out);
  if (!strcmp(what, "schedule")) return program_print(p, out);
  if (!strcmp(what, "comm")) return print_comm(p, d, e, out);
  bool json = !strcmp(what, "ops.json");
  if (!json && strcmp(what, "ops"))
    HP_FAIL(HP_ERR_ARG, "\"%s\": expected memory, schedule, comm, ops or ops.json", what);
  return print_ops(p, d, e, json, out);
}

/* --- trace ------------------------------------------------------------------------------------ */

static void trace_inst(const program *p, const inst_times *t, size_t i, int number, str *out) {
  const prog_inst *n = program_inst(p, i);
  str_printf(out,
             ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"name\":\"%s\",\"cat\":\"%s\",\"ts\":%.3f,"
             "\"dur\":%.3f,\"args\":{\"at\":",
             number, n->stream, op_table[n->op].name,
             n->phase == PHASE_FORWARD    ? "forward"
             : n->phase == PHASE_BACKWARD ? "backward"
                                          : "update",
             t[i].start_s * 1e6, (t[i].end_s - t[i].start_s) * 1e6);
  graph_print_string(program_str(p, n->loc), out);
  str_printf(out, ",\"instruction\":%zu,\"flops\":%.0f,\"bytes\":%.0f", i, n->flops, n->bytes);
  if (op_flags((op_id)n->op) & OPF_MEETS)
    str_printf(out, ",\"received_bytes\":%.0f,\"met_us\":%.3f", predict_received(p, n),
               t[i].met_s * 1e6);
  str_add(out, "}}");
}

void explain_trace(const exec *e, int number, str *out) {
  const program *p = exec_program(e);
  for (uint32_t s = 0; s < STREAM_COUNT; s++)
    str_printf(out,
               "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"name\":\"thread_name\","
               "\"args\":{\"name\":\"%s\"}}",
               number || s ? ",\n" : "", number, s, stream_name(s));
  for (size_t i = 0; i < p->insts.len; i++) trace_inst(p, exec_last_times(e), i, number, out);
}
