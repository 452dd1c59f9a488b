/* Loops over vectors: what a chunk does when all its values are floats that lie in runs.  A group
 * is eight vectors of 16 elements, EACH a loop over them that is unrolled: all are loaded, all are
 * computed, all are stored.  So nothing keeps the compiler from computing them side by side, and
 * no chain of dependences is waited for; a value of 16 bits is widened and narrowed on the way,
 * which a loop over elements would need arrays for.
 * A group that is not whole is loaded from and stored to a place aside, and what is beyond its end
 * is the identity of its reductions.  A group is rounded as a whole, two vectors an instruction: at
 * a rounding EACH ends, and another goes on with what it left in arrays.
 * Names, besides those of loop_c.c: xN where a value is loaded from, eN loaded values, gN what goes
 * from one EACH to the next, tN arguments of reductions, kN what is kept, wN what is stored, each
 * an array of eight vectors; yN the four vectors of lanes. */
#include "base/dtype.h"
#include "codegen/loop_c_print.h"
#include "codegen/loop_expr.h"

#include <stdio.h>

enum { GROUP = 128 }; /* elements */
_Static_assert(PLAN_LANES == 64, "lanes are four vectors");

static bool is_found_kept(const loop_c_printer *w, int n, int stage) {
  return w->kept[n] && w->kept[n] < stage;
}

static bool is_loaded(const loop_c_printer *w, int n, int stage) {
  return loop_has_strides(&w->p->value[n].v) || is_found_kept(w, n, stage);
}

static bool is_wide_type(uint8_t type) { return type == HP_F32 || type == HP_BF16; }

/* An op that vectors have; what chooses is one truth value an element. */
static bool is_wide_op(const loop_c_printer *w, const loop_value *v) {
  bool wide = loop_expr_is_wide(v->op);
  for (int k = 0; k < 3 && wide; k++) {
    const plan_value *x = v->arg[k] >= 0 ? &w->p->value[v->arg[k]] : NULL;
    wide = !x || x->v.cls == LOOP_FLOAT || x->varies & plan_loop_bit(w->p);
  }
  return wide;
}

static bool is_wide_value(const loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  switch ((loop_what)v->v.what) {
  case LOOP_IN: return v->path.inner == 1 && is_wide_type(v->v.type);
  case LOOP_OP: return is_wide_op(w, &v->v);
  case LOOP_CAST: return v->v.type == HP_BF16 && w->p->value[v->v.arg[0]].v.cls == LOOP_FLOAT;
  case LOOP_UNIFORM: return v->path.inner == 1;
  case LOOP_IOTA:
  case LOOP_CONST:
  case LOOP_INTEGER:
  case LOOP_REDUCE: break;
  }
  return false;
}

/* Can an element be joined to the chains of a fold as a vector? */
static bool is_wide_fold(const loop_c_printer *w, int n) {
  const loop_store *s = &w->p->store[n].s;
  return s->fold && w->p->value[s->value].v.cls == LOOP_FLOAT &&
         (s->reduce == LOOP_SUM || s->reduce == LOOP_PROD);
}

bool loop_c_is_wide(const loop_c_printer *w, int stage, const bool *need) {
  const loop_plan *p = w->p;
  bool wide = true;
  for (int n = 0; n < p->values; n++) {
    if (need[n]) wide &= is_found_kept(w, n, stage) || is_wide_value(w, n);
    if (loop_c_is_reduced_at(w, n, stage)) wide &= p->value[n].v.cls == LOOP_FLOAT;
  }
  for (int i = 0; i < p->stores && stage > p->stages; i++)
    if (loop_c_is_element_store(w, i))
      wide &= is_wide_fold(w, i) || (loop_c_is_run_store(w, i) && is_wide_type(p->store[i].s.type));
  return wide;
}

static void print_loads(loop_c_printer *w, int stage, const bool *need) {
  for (int n = 0; n < w->p->values; n++) {
    if (!need[n] || !is_loaded(w, n, stage)) continue;
    loop_c_line(w, "hp_v e%d[8];", n);
    if (is_found_kept(w, n, stage)) {
      loop_c_line(w, "EACH e%d[i] = hw_load_f32(kept%d + j0, i);", n, n);
      continue;
    }
    if (w->p->value[n].v.what == LOOP_UNIFORM) {
      loop_c_line(w, "EACH e%d[i] = hw_load_f32(z%d + j0 - j1, i);", n, n);
      continue;
    }
    const hp_dtype type = (hp_dtype)w->p->value[n].v.type;
    const char *name = dtype_name(type), *element = loop_expr_element(type);
    loop_c_line(w, "%s pad%d[%d];", element, n, GROUP);
    loop_c_line(w, "const %s *x%d = hw_group_%s(pad%d, a%d + j0, m);", element, n, name, n, n);
    if (!w->p->stages) loop_c_line(w, "hp_fetch(a%d + j0 + %d, sizeof pad%d);", n, LOOP_C_CHUNK, n);
    loop_c_line(w, "EACH e%d[i] = hw_load_%s(x%d, i);", n, name, n);
  }
}

static bool is_rounding(const loop_c_printer *w, int n, int stage) {
  return w->p->value[n].v.what == LOOP_CAST && !is_loaded(w, n, stage);
}

/* How many roundings lie between each value and what is loaded; the most of them. */
static int find_depths(const loop_c_printer *w, int stage, const bool *need, uint8_t *depth) {
  int most = 0;
  for (int n = 0; n < w->p->values; n++) {
    depth[n] = 0;
    if (!need[n] || is_loaded(w, n, stage)) continue;
    for (int k = 0; k < 3; k++) {
      const int arg = w->p->value[n].v.arg[k];
      if (arg >= 0 && depth[arg] > depth[n]) depth[n] = depth[arg];
    }
    depth[n] += is_rounding(w, n, stage);
    most = depth[n] > most ? depth[n] : most;
  }
  return most;
}

/* A truth value of 16 elements is a mask. */
static const char *get_type(const loop_c_printer *w, int n) {
  return w->p->value[n].v.cls == LOOP_FLOAT ? "hp_v" : "uint16_t";
}

static void print_value(loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  char arg[3][16] = {"", "", ""};
  str text = {0};
  for (int k = 0; k < 3; k++)
    if (v->v.arg[k] >= 0) snprintf(arg[k], sizeof arg[k], "v%d", v->v.arg[k]);
  loop_expr_print(v->v.op, (const char *const[]){arg[0], arg[1], arg[2]}, true, &text);
  if (str_status(&text)) w->out->failed = true;
  else loop_c_line(w, "const %s v%d = %s;", get_type(w, n), n, text.at);
  str_free(&text);
}

/* The values with d roundings behind them; what later ones need goes to its array. */
static void print_depth(loop_c_printer *w, int stage, const bool *need, const uint8_t *depth, int d,
                        int last) {
  for (int n = 0; n < w->p->values; n++) {
    if (!need[n] || depth[n] > d) continue;
    const bool loaded = is_loaded(w, n, stage), rounded = is_rounding(w, n, stage);
    if (loaded || rounded || depth[n] < d)
      loop_c_line(w, "const %s v%d = %c%d[i];", get_type(w, n), n, loaded ? 'e' : 'g', n);
    else print_value(w, n);
    if (depth[n] == d && w->kept[n] == stage) loop_c_line(w, "k%d[i] = v%d;", n, n);
    if (depth[n] == d && !loaded && !rounded && d < last) loop_c_line(w, "g%d[i] = v%d;", n, n);
  }
}

/* The roundings that follow depth d: their arguments, or the roundings themselves. */
static void print_roundings(loop_c_printer *w, int stage, const bool *need, const uint8_t *depth,
                            int d, bool arguments) {
  for (int n = 0; n < w->p->values; n++) {
    if (!need[n] || depth[n] != d + 1 || !is_rounding(w, n, stage)) continue;
    if (arguments) loop_c_line(w, "g%d[i] = hw_all(v%d);", n, w->p->value[n].v.arg[0]);
    else loop_c_line(w, "hw_rounds_bf16(g%d);", n);
  }
}

static void print_arrays(loop_c_printer *w, int stage, const bool *need, bool any_rounding) {
  const loop_plan *p = w->p;
  for (int n = 0; n < p->values; n++) {
    if (loop_c_is_reduced_at(w, n, stage)) loop_c_line(w, "hp_v t%d[8];", n);
    if (need[n] && w->kept[n] == stage) loop_c_line(w, "hp_v k%d[8];", n);
    if (need[n] && any_rounding && !is_loaded(w, n, stage))
      loop_c_line(w, "%s g%d[8];", get_type(w, n), n);
  }
  for (int i = 0; i < p->stores && stage > p->stages; i++)
    if (loop_c_is_element_store(w, i)) loop_c_line(w, "hp_v w%d[8];", i);
}

/* The group's values, and what becomes of them in arrays. */
static void print_values(loop_c_printer *w, int stage, const bool *need) {
  const loop_plan *p = w->p;
  uint8_t depth[LOOP_VALUES_MAX];
  const int last = find_depths(w, stage, need, depth);
  print_arrays(w, stage, need, last > 0);
  for (int d = 0; d < last; d++) {
    loop_c_line(w, "EACH {");
    print_depth(w, stage, need, depth, d, last);
    print_roundings(w, stage, need, depth, d, true);
    loop_c_line(w, "}");
    print_roundings(w, stage, need, depth, d, false);
  }
  loop_c_line(w, "EACH {");
  print_depth(w, stage, need, depth, last, last);
  for (int n = 0; n < p->values; n++)
    if (loop_c_is_reduced_at(w, n, stage))
      loop_c_line(w, "t%d[i] = hw_all(v%d);", n, p->value[n].v.arg[0]);
  for (int i = 0; i < p->stores && stage > p->stages; i++)
    if (loop_c_is_element_store(w, i))
      loop_c_line(w, "w%d[i] = hw_all(v%d);", i, loop_c_stored_value(w, i));
  loop_c_line(w, "}");
}

static void print_results(loop_c_printer *w, int stage, const bool *need) {
  const loop_plan *p = w->p;
  for (int n = 0; n < p->values; n++) {
    if (loop_c_is_reduced_at(w, n, stage))
      loop_c_line(w, "hw_join_%s_f(y%d, t%d, m);", loop_reduction_name[p->value[n].v.reduce], n, n);
    if (need[n] && w->kept[n] == stage)
      loop_c_line(w, "if (j0 < %d) hw_write_f32(kept%d + j0, k%d, %d, 0);", LOOP_C_KEPT, n, n,
                  GROUP);
  }
  for (int i = 0; i < p->stores && stage > p->stages; i++) {
    const loop_store *s = &p->store[i].s;
    if (s->fold)
      loop_c_line(w, "hw_fold_%s(f%d + j0, w%d, m);", loop_reduction_name[s->reduce], i, i);
    else if (loop_c_is_run_store(w, i))
      loop_c_line(w, "hw_write_%s(o%d + j0, w%d, m, stream >> %d & 1);",
                  dtype_name((hp_dtype)s->type), i, i, s->operand);
  }
}

/* yN from the lanes, or back to them. */
static void print_lanes(loop_c_printer *w, int stage, const char *fmt) {
  for (int n = 0; n < w->p->values; n++)
    if (loop_c_is_reduced_at(w, n, stage)) loop_c_line(w, fmt, n, n);
}

void loop_c_print_wide(loop_c_printer *w, int stage, const bool *need) {
  print_lanes(w, stage, "hp_v y%d[4];");
  print_lanes(w, stage, "LANES y%d[i] = hw_load_f32(l%d, i);");
  for (int n = 0; n < w->p->values; n++)
    if (need[n] && w->p->value[n].v.what == LOOP_UNIFORM) loop_c_print_drawn(w, n);
  loop_c_line(w, "for (; m > 0; j0 += %d, m -= %d) {", GROUP, GROUP);
  print_loads(w, stage, need);
  print_values(w, stage, need);
  print_results(w, stage, need);
  loop_c_line(w, "}");
  print_lanes(w, stage, "LANES *(hp_line *)(l%d + 16 * i) = y%d[i];");
}
