/* The collectives of a program, as text and as JSON. */
#include "base/json.h"
#include "base/units.h"
#include "rt/explain_comm.h"
#include "rt/inst_name.h"
#include "sim/cost.h"

/* The contents of both forms. */
typedef struct {
  const program *p;
  const mesh *m;
  const inst_times *t;
  bool measured;
  comm_time *each, sum; /* each: by instruction */
  double run_s, bytes, moved;
  bool by_rows; /* what moves in a run may differ from what is expected */
  comm_kind kind[COMM_KINDS];
  int kinds;
} comm_facts;

static hp_status comm_look(const program *p, const mesh *m, const inst_times *t, bool measured,
                           comm_facts *v) {
  *v = (comm_facts){.p = p, .m = m, .t = t, .measured = measured};
  v->each = mem_calloc(p->insts.len, sizeof *v->each);
  HP_TRY_MEM(v->each);
  hp_status st = comm_times(p, t, v->each, &v->sum);
  if (!st) v->kinds = comm_kinds(p, m, t, v->each, v->kind);
  v->run_s = inst_times_end(t, p->insts.len);
  for (int k = 0; k < v->kinds; k++) {
    v->bytes += v->kind[k].bytes;
    v->moved += v->kind[k].moved;
    v->by_rows |= measured && (v->kind[k].op == OP_DISPATCH || v->kind[k].op == OP_COMBINE);
  }
  return st;
}

/* --- text ------------------------------------------------------------------------------------- */

/* Omits a column of times that would only hold 0. */
static void print_times(const comm_facts *v, const comm_time *t, str *out) {
  units_put_seconds(out, 12, t->comm_s);
  if (v->sum.can_overlap_s > 0) units_put_seconds(out, 13, t->can_overlap_s);
  if (v->sum.overlapped_s > 0) units_put_seconds(out, 13, t->overlapped_s);
}

static void print_times_head(const comm_facts *v, str *out) {
  str_printf(out, "%12s", "time");
  if (v->sum.can_overlap_s > 0) str_printf(out, "%13s", "can overlap");
  if (v->sum.overlapped_s > 0) str_printf(out, "%13s", "overlapped");
}

/* Of rows of experts it is known after a run how many moved. */
static void print_bytes(const comm_facts *v, double expected, double moved, str *out) {
  units_put_bytes(out, 12, expected);
  if (v->by_rows) units_put_bytes(out, 13, moved);
}

static void print_bytes_head(const comm_facts *v, str *out) {
  str_printf(out, "%12s", v->by_rows ? "expected" : "received");
  if (v->by_rows) str_printf(out, "%13s", "received");
}

static void print_kinds(const comm_facts *v, str *out) {
  str_printf(out, "%-16s %-12s %6s ", "collective", "over", "count");
  print_bytes_head(v, out);
  print_times_head(v, out);
  for (int k = 0; k < v->kinds; k++) {
    const comm_kind *kind = &v->kind[k];
    str_printf(out, "\n%-16s %-12s %6d ", op_table[kind->op].name, kind->axes, kind->count);
    print_bytes(v, kind->bytes, kind->moved, out);
    print_times(v, &kind->time, out);
  }
  str_printf(out, "\n%-16s %-12s %6s ", "all", "", "");
  print_bytes(v, v->bytes, v->moved, out);
}

static void print_sum(const comm_facts *v, str *out) {
  const comm_time *s = &v->sum;
  str_add(out, v->measured ? "\n\nmeasured: " : "\n\npredicted: ");
  units_add_seconds(out, s->comm_s);
  if (s->can_overlap_s > 0) {
    str_add(out, "; ");
    units_add_seconds(out, s->can_overlap_s);
    str_add(out, " of it can be overlapped with computation, ");
    units_add_seconds(out, s->overlapped_s);
    str_printf(out, " is (%.1f %%)", 100 * s->overlapped_s / s->can_overlap_s);
  } else {
    str_add(out, "; nothing of it can be overlapped with computation");
  }
  str_add(out, "; ");
  units_add_seconds(out, s->comm_s - s->overlapped_s);
  str_add(out, " of a run of ");
  units_add_seconds(out, v->run_s);
  str_add(out, " is exposed\n");
}

static void print_rows(const comm_facts *v, str *out) {
  str_printf(out, "\n%-11s %-16s %-12s ", "instruction", "collective", "over");
  print_bytes_head(v, out);
  str_printf(out, " %12s", "begins");
  print_times_head(v, out);
  str_add(out, "  at\n");
  for (size_t i = 0; i < v->p->insts.len; i++) {
    const prog_inst *n = program_inst(v->p, i);
    char axes[64];
    if (!comm_is_collective(n)) continue;
    comm_name_axes(v->p, v->m, n, axes);
    str_printf(out, "%-11zu %-16s %-12s ", i, op_table[n->op].name, axes);
    print_bytes(v, cost_received(v->p, n), v->t[i].received, out);
    units_put_seconds(out, 13, v->t[i].arrived_s);
    print_times(v, &v->each[i], out);
    str_printf(out, "  %s\n", program_str(v->p, n->loc));
  }
}

hp_status explain_comm(const program *p, const mesh *m, const inst_times *t, bool measured,
                       str *out) {
  comm_facts v;
  hp_status st = comm_look(p, m, t, measured, &v);
  if (!st && !v.kinds) str_add(out, "devices exchange no data\n");
  if (!st && v.kinds) {
    print_kinds(&v, out);
    print_sum(&v, out);
    print_rows(&v, out);
  }
  mem_free(v.each);
  return st ? st : str_status(out);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_times(json_writer *w, const comm_time *t) {
  json_key_double(w, "time_s", t->comm_s);
  json_key_double(w, "can_overlap_s", t->can_overlap_s);
  json_key_double(w, "overlapped_s", t->overlapped_s);
}

static void put_kind(json_writer *w, const comm_kind *k) {
  json_open_map(w);
  json_key_string(w, "collective", op_table[k->op].name);
  json_key_string(w, "over", k->axes);
  json_key_int(w, "count", k->count);
  json_key_int(w, "received_bytes", (int64_t)k->moved);
  json_key_int(w, "expected_bytes", (int64_t)k->bytes);
  put_times(w, &k->time);
  json_close(w);
}

static void put_collective(json_writer *w, const comm_facts *v, size_t i) {
  const prog_inst *n = program_inst(v->p, i);
  char axes[64], layer[PLACE_LAYER];
  comm_name_axes(v->p, v->m, n, axes);
  inst_name_layer(v->p, n, layer);
  json_open_map(w);
  json_key_int(w, "instruction", (int64_t)i);
  json_key_string(w, "collective", op_table[n->op].name);
  json_key_string(w, "over", axes);
  json_key_string(w, "at", program_str(v->p, n->loc));
  json_key_string(w, "layer", layer);
  json_key_int(w, "received_bytes", (int64_t)v->t[i].received);
  json_key_int(w, "expected_bytes", (int64_t)cost_received(v->p, n));
  json_key_double(w, "begins_s", v->t[i].arrived_s);
  put_times(w, &v->each[i]);
  json_close(w);
}

static void put_comm(json_writer *w, const comm_facts *v) {
  json_open_map(w);
  json_key_bool(w, "measured", v->measured);
  json_key_double(w, "run_s", v->run_s);
  json_key_int(w, "received_bytes", (int64_t)v->moved);
  json_key_int(w, "expected_bytes", (int64_t)v->bytes);
  put_times(w, &v->sum);
  json_key_double(w, "exposed_s", v->sum.comm_s - v->sum.overlapped_s);
  json_put_key(w, "kinds");
  json_open_list(w);
  for (int k = 0; k < v->kinds; k++) put_kind(w, &v->kind[k]);
  json_close(w);
  json_put_key(w, "collectives");
  json_open_list(w);
  for (size_t i = 0; i < v->p->insts.len; i++)
    if (comm_is_collective(program_inst(v->p, i))) put_collective(w, v, i);
  json_close(w);
  json_close(w);
}

hp_status explain_comm_json(const program *p, const mesh *m, const inst_times *t, bool measured,
                            str *out) {
  json_writer w = {.out = out};
  comm_facts v;
  hp_status st = comm_look(p, m, t, measured, &v);
  if (!st) put_comm(&w, &v);
  str_add_char(out, '\n');
  mem_free(v.each);
  return st ? st : str_status(out);
}
