/* Chunks of maps and rows: the short loops over arrays described in loop_c.c. */
#include "codegen/loop_c_print.h"

#include "base/dtype.h"
#include "codegen/loop_expr.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK = LOOP_C_CHUNK };
/* The largest number of kept values, and the work that makes a value expensive. */
enum { KEPT_VALUES = 4, DEAR = 16 };

static bool is_dear(const plan_value *v) {
  return v->v.what == LOOP_OP && v->v.cls == LOOP_FLOAT && loop_expr_row(v->v.op)->work >= DEAR;
}

void loop_c_choose_kept(loop_c_printer *w) {
  const loop_plan *p = w->p;
  bool need[LOOP_VALUES_MAX];
  int count = 0;
  if (p->kind != LOOP_ROW || p->split) return;
  for (int n = p->values - 1; n >= 0 && count < KEPT_VALUES; n--) {
    int loops = 0, first = 0;
    if (!is_dear(&p->value[n])) continue;
    for (int stage = p->stages + 1; stage > 0; stage--) {
      loop_c_need_stage(w, stage, need);
      if (!need[n]) continue;
      loops++;
      first = stage;
    }
    if (loops < 2) continue;
    w->kept[n] = (uint8_t)first;
    count++;
  }
}

/* Does the loop of a stage need a value that is kept? */
static bool uses_kept_value(const loop_c_printer *w, int stage) {
  bool need[LOOP_VALUES_MAX], found = false;
  loop_c_need_stage(w, stage, need);
  for (int n = 0; n < w->p->values; n++) found |= need[n] && w->kept[n] && w->kept[n] < stage;
  return found;
}

/* --- chunks ---------------------------------------------------------------------------------- */

/* Begins a loop over the elements of a chunk: the values of need[], those in arrays from there. */
static void print_chunk_loop(loop_c_printer *w, const bool *need) {
  loop_c_line(w, "IVDEP for (int64_t k = 0; k < m; k++) {");
  loop_c_line(w, "const int64_t j = j0 + k;");
  for (int n = 0; n < w->p->values; n++) {
    if (need[n] && w->held[n]) loop_c_line(w, "const float v%d = z%d[k];", n, n);
    else if (need[n]) loop_c_print_value(w, n);
  }
}

/* Contiguous inputs of the stage that need conversion: 16-bit elements, random numbers. */
static void print_runs(loop_c_printer *w, const bool *need) {
  for (int n = 0; n < w->p->values; n++) {
    const plan_value *v = &w->p->value[n];
    if (!need[n] || w->held[n] || !loop_has_strides(&v->v) || v->path.inner != 1) continue;
    if (v->v.what == LOOP_UNIFORM) {
      loop_c_print_drawn(w, n);
    } else if (loop_c_is_half(v->v.type)) {
      loop_c_line(w, "float z%d[%d];", n, CHUNK);
      loop_c_line(w, "hp_read_%s(z%d, a%d + j0, m);", dtype_name((hp_dtype)v->v.type), n, n);
    } else {
      continue;
    }
    w->held[n] = true;
  }
}

static bool is_argument(const loop_c_printer *w, int value, const bool *need) {
  bool found = false;
  for (int n = 0; n < w->p->values; n++)
    for (int k = 0; k < 3; k++) found |= need[n] && w->p->value[n].v.arg[k] == value;
  return found;
}

/* Expensive values, each in a loop of its own, except values that are only stored. */
static void print_dear(loop_c_printer *w, int stage, const bool *all) {
  bool final = stage > w->p->stages;
  for (int n = 0; n < w->p->values; n++) {
    bool need[LOOP_VALUES_MAX] = {false};
    if (!all[n] || w->held[n] || !is_dear(&w->p->value[n])) continue;
    if (final && !is_argument(w, n, all)) continue;
    loop_c_need_value(w, n, stage, need);
    if (w->kept[n] == stage)
      loop_c_line(w, "float z_beyond%d[%d], *z%d = j0 < %d ? kept%d + j0 : z_beyond%d;", n, CHUNK,
                  n, LOOP_C_KEPT, n, n);
    else loop_c_line(w, "float z%d[%d];", n, CHUNK);
    print_chunk_loop(w, need);
    loop_c_line(w, "z%d[k] = v%d;", n, n);
    loop_c_line(w, "}");
    w->held[n] = true;
  }
}

/* The arguments of the reductions of a stage, combined with the lanes lN. */
static void print_joins(loop_c_printer *w, int stage) {
  bool need[LOOP_VALUES_MAX], any = false;
  EACH_REDUCTION(w, n, stage) {
    const int arg = w->p->value[n].v.arg[0];
    any |= !w->held[arg];
    if (w->held[arg]) loop_c_line(w, "float *t%d = z%d;", n, arg);
    else loop_c_line(w, "%s t%d[%d];", loop_c_type(&w->p->value[n]), n, CHUNK);
  }
  if (any) {
    loop_c_need_stage(w, stage, need);
    print_chunk_loop(w, need);
    EACH_REDUCTION(w, n, stage) {
      const int arg = w->p->value[n].v.arg[0];
      if (!w->held[arg]) loop_c_line(w, "t%d[k] = v%d;", n, arg);
    }
    loop_c_line(w, "}");
  }
  loop_c_line(w, "const int64_t whole = (m + %d) / %d * %d;", PLAN_LANES - 1, PLAN_LANES,
              PLAN_LANES);
  EACH_REDUCTION(w, n, stage) {
    loop_c_line(w, "for (int64_t k = m; k < whole; k++) t%d[k] = %s;", n,
                loop_c_identity(&w->p->value[n]));
    loop_c_line(w, "hp_join_%s(l%d, t%d, whole);", loop_c_lanes_name(w, n).at, n, n);
  }
}

/* The stored elements: contiguous floats to wN, which is the output itself if no conversion is
 * needed. */
static void print_stores(loop_c_printer *w) {
  const loop_plan *p = w->p;
  bool need[LOOP_VALUES_MAX];
  for (int i = 0; i < p->stores; i++) {
    const loop_store *s = &p->store[i].s;
    if (!loop_c_is_run_store(w, i)) continue;
    loop_c_line(w, "float aside%d[%d];", i, CHUNK);
    if (s->type == HP_F32)
      loop_c_line(w, "float *w%d = stream >> %d & 1 ? aside%d : o%d + j0;", i, s->operand, i, i);
    else loop_c_line(w, "float *w%d = aside%d;", i, i);
  }
  loop_c_need_stage(w, p->stages + 1, need);
  print_chunk_loop(w, need);
  for (int i = 0; i < p->stores; i++) {
    if (loop_c_is_run_store(w, i)) loop_c_line(w, "w%d[k] = v%d;", i, loop_c_stored_value(w, i));
    else if (loop_c_is_element_store(w, i)) loop_c_print_store(w, i);
  }
  loop_c_line(w, "}");
  for (int i = 0; i < p->stores; i++) {
    const loop_store *s = &p->store[i].s;
    if (loop_c_is_run_store(w, i))
      loop_c_line(w, "hp_write_%s(o%d + j0, w%d, m, stream >> %d & 1);",
                  dtype_name((hp_dtype)s->type), i, i, s->operand);
  }
}

static bool draws_random(const loop_c_printer *w) {
  bool any = false;
  for (int n = 0; n < w->p->values; n++) any |= w->p->value[n].v.what == LOOP_UNIFORM;
  return any;
}

/* Prefetches the inputs of a map with random numbers for the next chunk: generating the numbers
 * takes as long and reads nothing. */
static void print_ahead(loop_c_printer *w) {
  for (int i = 0; i < w->p->values && w->p->kind == LOOP_MAP && draws_random(w); i++) {
    const plan_value *v = &w->p->value[i];
    if (v->v.what == LOOP_IN && v->path.inner == 1)
      loop_c_line(w, "hp_fetch(a%d + j0 + %d, m * (int64_t)sizeof *a%d);", i, CHUNK, i);
  }
}

/* Each loop over a row prefetches its share of the next row, so that memory is always busy. */
static void print_fetches(loop_c_printer *w, int stage) {
  const int loops = w->p->stages + 1;
  for (int i = 0; i < w->p->values; i++)
    if (loop_c_has_next(w, &w->p->value[i]))
      loop_c_line(w, "hp_fetch(next%d + (%d * p[1] + j0) / %d, m * (int64_t)sizeof *next%d / %d);",
                  i, stage - 1, loops, i, loops);
}

/* One chunk, elements j0 .. j0 + m, of the loop of a stage. */
static void print_chunk(loop_c_printer *w, int stage, bool from_kept) {
  bool need[LOOP_VALUES_MAX];
  uint8_t kept[LOOP_VALUES_MAX];
  memset(w->held, 0, sizeof w->held);
  memcpy(kept, w->kept, sizeof kept);
  print_fetches(w, stage);
  for (int n = 0; n < w->p->values && !from_kept; n++)
    if (w->kept[n] < stage) w->kept[n] = 0;
  loop_c_need_stage(w, stage, need);
  const bool wide = loop_c_is_wide(w, stage, need);
  if (wide) {
    loop_c_line(w, "#ifdef HP_WIDE");
    loop_c_print_wide(w, stage, need);
    loop_c_line(w, "#else");
  }
  print_ahead(w);
  for (int n = 0; n < w->p->values; n++) {
    if (!need[n] || !w->kept[n] || w->kept[n] >= stage) continue;
    loop_c_line(w, "float *z%d = kept%d + j0;", n, n);
    w->held[n] = true;
  }
  print_runs(w, need);
  print_dear(w, stage, need);
  if (stage > w->p->stages) print_stores(w);
  else print_joins(w, stage);
  if (wide) loop_c_line(w, "#endif");
  memset(w->held, 0, sizeof w->held);
  memcpy(w->kept, kept, sizeof kept);
}

void loop_c_print_chunks(loop_c_printer *w, int stage, const char *from, const char *to) {
  loop_c_line(w, "for (int64_t j1 = %s; j1 < %s; j1 += %d) {", from, to, CHUNK);
  loop_c_line(w, "int64_t j0 = j1, m = %s - j0 < %d ? %s - j0 : %d;", to, CHUNK, to, CHUNK);
  if (uses_kept_value(w, stage)) {
    loop_c_line(w, "if (j0 < %d) {", LOOP_C_KEPT);
    print_chunk(w, stage, true);
    loop_c_line(w, "} else {");
    print_chunk(w, stage, false);
    loop_c_line(w, "}");
  } else {
    print_chunk(w, stage, false);
  }
  loop_c_line(w, "}");
}
