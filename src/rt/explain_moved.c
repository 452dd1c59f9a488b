#include "rt/explain_moved.h"

#include "base/tier.h"
#include "base/units.h"
#include "mem/timeline.h"
#include "prog/tier_check.h"
#include "rt/memory_use.h"
#include "sim/cost.h"
#include "sim/predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a class on a tier: named tensors, and work memory at its peak; copied from and to it. */
typedef struct {
  uint64_t held, moved;
} share;

/* A value that has copies. */
typedef struct {
  uint64_t bytes;
  uint32_t value;
} moved_value;

typedef struct {
  chain_view v;
  moved_value *moved; /* the largest first */
  size_t n;
  share of[MEM_CLASS_COUNT][TIER_COUNT];
  double plan_s, compute_s, bound_s; /* by the costs of the plan; bound 0: not known */
} moves;

/* --- what is there ------------------------------------------------------------------------------
 */

static int class_of(const prog_buffer *f) {
  return f->class < MEM_CLASS_COUNT ? f->class : MEM_OTHER;
}

static hp_status count_held(moves *m) {
  const program *p = m->v.p;
  timeline_span *s;
  timeline t;
  HP_TRY(memory_spans(p, &s));
  hp_status st = timeline_build(s, p->buffers.len, p->insts.len ? p->insts.len : 1, TIER_COUNT, &t);
  mem_free(s);
  HP_TRY(st);
  for (int c = 0; c < MEM_CLASS_COUNT; c++)
    for (int k = 0; k < TIER_COUNT; k++) m->of[c][k].held = t.peak_by_class[k][c];
  timeline_free(&t);
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->place == PLACE_STATE && f->root == b)
      m->of[class_of(f)][f->tier].held += memory_round(f->bytes);
  }
  return HP_OK;
}

static void count_moved(moves *m) {
  const program *p = m->v.p;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (!(op_flags((op_id)n->op) & OPF_MOVE)) continue;
    tier_copy c = tier_copy_of(p, n);
    const prog_buffer *value = c.list < 0 ? c.from : program_arg(p, n, 0);
    int class = class_of(&p->buffers.at[value->root]);
    m->of[class][c.from->tier].moved += c.bytes;
    if (c.to->tier != c.from->tier) m->of[class][c.to->tier].moved += c.bytes;
  }
}

static int largest_first(const void *a, const void *b) {
  const moved_value *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->value < y->value ? -1 : x->value > y->value;
}

static hp_status list_moved(moves *m) {
  const value_chains *c = &m->v.c;
  m->moved = mem_calloc(c->values, sizeof *m->moved);
  HP_TRY_MEM(m->moved);
  for (uint32_t i = 0; i < c->values; i++)
    if (c->value[i].fetches + c->value[i].offloads)
      m->moved[m->n++] = (moved_value){m->v.p->buffers.at[c->value[i].buffer].bytes, i};
  if (m->n) qsort(m->moved, m->n, sizeof *m->moved, largest_first);
  return HP_OK;
}

static const value_chain *moved_at(const moves *m, size_t i) {
  return &m->v.c.value[m->moved[i].value];
}

static hp_status predict_plan(moves *m, const device *d) {
  double exposed_s;
  m->bound_s = m->v.p->bound_s;
  for (size_t i = 0; i < m->v.p->insts.len; i++) {
    const prog_inst *n = program_inst(m->v.p, i);
    if (n->stream == STREAM_COMPUTE) m->compute_s += cost_inst(d->cluster, d->mesh, m->v.p, n);
  }
  return predict_totals(d->cluster, d->mesh, m->v.p, &m->plan_s, &exposed_s);
}

static hp_status moves_make(const program *p, const device *d, const inst_times *t, moves *m) {
  *m = (moves){.n = 0};
  HP_TRY(chain_view_make(p, d->mesh, t, &m->v));
  HP_TRY(list_moved(m));
  HP_TRY(count_held(m));
  count_moved(m);
  return predict_plan(m, d);
}

static void moves_free(moves *m) {
  chain_view_free(&m->v);
  mem_free(m->moved);
}

static bool uses_tier(const moves *m, int tier) {
  for (int c = 0; c < MEM_CLASS_COUNT; c++)
    if (m->of[c][tier].held || m->of[c][tier].moved) return true;
  return false;
}

static bool has_class(const moves *m, int class) {
  for (int t = 0; t < TIER_COUNT; t++)
    if (m->of[class][t].held || m->of[class][t].moved) return true;
  return false;
}

/* --- text ---------------------------------------------------------------------------------------
 */

static void put_seconds(const char *before, double s, str *out) {
  str_add(out, before);
  units_add_seconds(out, s);
}

static void print_times(const moves *m, bool measured, str *out) {
  put_seconds(measured ? "a run takes " : "a run is predicted to take ", m->v.c.run_s, out);
  put_seconds("; copies between tiers ", m->v.c.copy_s, out);
  put_seconds(", of which ", m->v.c.exposed_s, out);
  str_add(out, " exposed\n");
  if (!(m->bound_s > 0)) return;
  put_seconds("plan ", m->plan_s, out);
  put_seconds(", lower bound ", m->bound_s, out);
  str_printf(out, ", gap %.2f %%: no plan under this memory limit is faster than the bound\n",
             100 * (m->plan_s - m->bound_s) / m->bound_s);
}

static void print_classes(const moves *m, str *out) {
  str_add(out, "bytes of named tensors and of work memory at its peak; moved in a run:\n"
               "               ");
  for (int t = 0; t < TIER_COUNT; t++)
    if (uses_tier(m, t)) str_printf(out, "%10s      moved ", tier_name(t));
  str_add_char(out, '\n');
  for (int c = 0; c < MEM_CLASS_COUNT; c++) {
    if (!has_class(m, c)) continue;
    str_printf(out, "  %-13s", mem_class_name((mem_class)c));
    for (int t = 0; t < TIER_COUNT; t++) {
      if (!uses_tier(m, t)) continue;
      units_put_bytes(out, 10, (double)m->of[c][t].held);
      units_put_bytes(out, 11, (double)m->of[c][t].moved);
      str_add_char(out, ' ');
    }
    str_add_char(out, '\n');
  }
}

static void print_value(const moves *m, const value_chain *c, str *out) {
  const prog_buffer *f = &m->v.p->buffers.at[c->buffer];
  str decision = {0};
  chain_print_decision(&m->v, c, &decision);
  units_put_bytes(out, 10, (double)f->bytes);
  str_printf(out, "  %-11s %5u  ", mem_class_name((mem_class)f->class), c->uses);
  if (c->make_s >= 0) units_put_seconds(out, 9, c->make_s);
  else str_add(out, "        -");
  str_add_char(out, ' ');
  units_put_bytes(out, 10, (double)c->moved_bytes);
  units_put_seconds(out, 10, c->copy_s);
  units_put_seconds(out, 10, c->exposed_s);
  str_printf(out, "  %-27s  ", decision.at ? decision.at : "");
  chain_print_name(&m->v, c, out);
  str_add_char(out, '\n');
  out->failed |= decision.failed;
  str_free(&decision);
}

static void print_rest(const moves *m, size_t from, const char *name, str *out) {
  uint64_t bytes = 0, moved = 0;
  double copy_s = 0, exposed_s = 0;
  for (size_t i = from; i < m->n; i++) {
    const value_chain *c = moved_at(m, i);
    bytes += m->v.p->buffers.at[c->buffer].bytes;
    moved += c->moved_bytes;
    copy_s += c->copy_s;
    exposed_s += c->exposed_s;
  }
  units_put_bytes(out, 10, (double)bytes);
  str_printf(out, "  %-28s ", name);
  units_put_bytes(out, 10, (double)moved);
  units_put_seconds(out, 10, copy_s);
  units_put_seconds(out, 10, exposed_s);
  str_add_char(out, '\n');
}

static void print_values(const moves *m, str *out) {
  char name[48];
  if (!m->n) return;
  str_add(out, "values that move, the largest first:\n"
               "      size  class        uses  recompute      moved    copies   exposed  where"
               "                        name\n");
  for (size_t i = 0; i < m->n && i < MOVED_SHOWN; i++) print_value(m, moved_at(m, i), out);
  if (m->n > MOVED_SHOWN) {
    snprintf(name, sizeof name, "%zu others", m->n - MOVED_SHOWN);
    print_rest(m, MOVED_SHOWN, name, out);
  }
  snprintf(name, sizeof name, "total of %zu", m->n);
  print_rest(m, 0, name, out);
}

hp_status explain_moved(const program *p, const device *d, const inst_times *t, bool measured,
                        str *out) {
  moves m;
  hp_status st = moves_make(p, d, t, &m);
  if (!st && (m.n || uses_tier(&m, TIER_HOST) || uses_tier(&m, TIER_FLASH))) {
    print_times(&m, measured, out);
    print_classes(&m, out);
    print_values(&m, out);
  }
  moves_free(&m);
  return st ? st : str_status(out);
}

/* --- JSON ---------------------------------------------------------------------------------------
 */

static void put_str(json_writer *w, const char *key, str *text) {
  w->out->failed |= text->failed;
  json_key_string(w, key, text->at ? text->at : "");
  str_free(text);
}

static void put_value(json_writer *w, const moves *m, const value_chain *c) {
  const prog_buffer *f = &m->v.p->buffers.at[c->buffer];
  str name = {0}, decision = {0};
  chain_print_name(&m->v, c, &name);
  chain_print_decision(&m->v, c, &decision);
  json_open_map(w);
  put_str(w, "name", &name);
  json_key_string(w, "class", mem_class_name((mem_class)f->class));
  json_key_string(w, "tier", tier_name(c->tier));
  json_key_int(w, "size_bytes", (int64_t)f->bytes);
  json_key_int(w, "uses", c->uses);
  json_put_key(w, "recompute_s");
  if (c->make_s >= 0) json_put_double(w, c->make_s);
  else json_put_null(w);
  json_key_int(w, "fetches", c->fetches);
  json_key_int(w, "offloads", c->offloads);
  json_key_int(w, "moved_bytes", (int64_t)c->moved_bytes);
  json_key_double(w, "copy_s", c->copy_s);
  json_key_double(w, "exposed_copy_s", c->exposed_s);
  json_key_int(w, "gaps", value_gaps(c));
  json_key_int(w, "gaps_away", value_gaps_away(&m->v.c, c));
  put_str(w, "decision", &decision);
  json_close(w);
}

static void put_classes(json_writer *w, const moves *m) {
  json_put_key(w, "classes");
  json_open_list(w);
  for (int c = 0; c < MEM_CLASS_COUNT; c++)
    for (int t = 0; t < TIER_COUNT; t++) {
      if (!m->of[c][t].held && !m->of[c][t].moved) continue;
      json_open_map(w);
      json_key_string(w, "class", mem_class_name((mem_class)c));
      json_key_string(w, "tier", tier_name(t));
      json_key_int(w, "planned_bytes", (int64_t)m->of[c][t].held);
      json_key_int(w, "moved_bytes", (int64_t)m->of[c][t].moved);
      json_close(w);
    }
  json_close(w);
}

hp_status put_moved(json_writer *w, const program *p, const device *d, const inst_times *t) {
  moves m;
  hp_status st = moves_make(p, d, t, &m);
  if (!st) {
    json_key_double(w, "plan_s", m.plan_s);
    json_key_double(w, "compute_s", m.compute_s);
    json_put_key(w, "lower_bound_s");
    if (m.bound_s > 0) json_put_double(w, m.bound_s);
    else json_put_null(w);
    json_key_double(w, "copy_s", m.v.c.copy_s);
    json_key_double(w, "exposed_s", m.v.c.exposed_s);
    put_classes(w, &m);
    json_key_int(w, "moved_values", (int64_t)m.n);
    json_put_key(w, "moved");
    json_open_list(w);
    for (size_t i = 0; i < m.n && i < MOVED_LISTED; i++) put_value(w, &m, moved_at(&m, i));
    json_close(w);
  }
  moves_free(&m);
  return st;
}
