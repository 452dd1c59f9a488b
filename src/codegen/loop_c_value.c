/* The lines of a kernel: values, the values that a loop needs, and the steps of reductions. */
#include "codegen/loop_c_print.h"

#include "base/dtype.h"
#include "codegen/loop_expr.h"

#include <stdio.h>
#include <string.h>

bool loop_c_has_step(const plan_path *path) { return path->inner != 0 && path->inner != 1; }

void loop_c_line(loop_c_printer *w, const char *fmt, ...) {
  va_list ap;
  if (*fmt == '}') w->indent--; /* "} else {" too */
  for (int i = 0; i < w->indent; i++) str_add(w->out, "  ");
  va_start(ap, fmt);
  str_vprintf(w->out, fmt, ap);
  va_end(ap);
  str_add_char(w->out, '\n');
  if (w->out->len > 1 && w->out->at && w->out->at[w->out->len - 2] == '{') w->indent++;
}

const char *loop_c_type(const plan_value *v) { return loop_expr_type(v->v.cls); }

/* --- values --------------------------------------------------------------------------------- */

/* Index of an access in the innermost loop, relative to its address. */
static loop_c_name element_index(const loop_c_printer *w, char letter, int n,
                                 const plan_path *path) {
  loop_c_name s = {"0"};
  const char *j = w->p->kind == LOOP_COL ? "c" : "j";
  char inner[24] = "", reduced[24] = "";
  if (path->inner == 1) snprintf(inner, sizeof inner, "%s", j);
  if (loop_c_has_step(path)) snprintf(inner, sizeof inner, "%s * x%c%d", j, letter, n);
  if (w->p->kind == LOOP_COL && path->reduced)
    snprintf(reduced, sizeof reduced, "i * y%c%d", letter, n);
  if (*inner || *reduced)
    snprintf(s.at, sizeof s.at, "%s%s%s", reduced, *inner && *reduced ? " + " : "", inner);
  return s;
}

loop_c_name loop_c_value_name(const loop_c_printer *w, int n) {
  loop_c_name s;
  bool column = w->p->kind == LOOP_COL && w->p->value[n].varies == VARY_INNER;
  snprintf(s.at, sizeof s.at, column ? "v%d[c]" : "v%d", n);
  return s;
}

static void print_expression(loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  loop_c_name arg[3] = {{""}, {""}, {""}};
  for (int k = 0; k < 3; k++)
    if (v->v.arg[k] >= 0) arg[k] = loop_c_value_name(w, v->v.arg[k]);
  loop_c_name at = element_index(w, 'a', n, &v->path);
  char text[80];
  switch ((loop_what)v->v.what) {
  case LOOP_IN:
    snprintf(text, sizeof text, "a%d[%s]", n, at.at);
    loop_expr_load((hp_dtype)v->v.type, text, w->out);
    break;
  case LOOP_IOTA: str_printf(w->out, "a%d + %s", n, at.at); break;
  case LOOP_UNIFORM:
    str_printf(w->out, "hp_uniform(%s, stream%d, a%d + %s)", arg[0].at, n, n, at.at);
    break;
  case LOOP_CONST: loop_expr_const(v->v.f32, w->out); break;
  case LOOP_INTEGER: loop_expr_int(v->v.i64, w->out); break;
  case LOOP_CAST:
    loop_expr_cast((hp_dtype)v->v.type, (loop_class)w->p->value[v->v.arg[0]].v.cls, arg[0].at,
                   w->out);
    break;
  case LOOP_OP:
    loop_expr_print(v->v.op, (const char *const[]){arg[0].at, arg[1].at, arg[2].at}, false, w->out);
    break;
  case LOOP_REDUCE: break; /* declared where it is reduced */
  }
}

void loop_c_print_value(loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  loop_c_name s = loop_c_value_name(w, n);
  bool stored = strchr(s.at, '[') != NULL;
  for (int i = 0; i < w->indent; i++) str_add(w->out, "  ");
  if (!stored) str_printf(w->out, "const %s ", loop_c_type(v));
  str_printf(w->out, "%s = ", s.at);
  print_expression(w, n);
  str_add(w->out, ";\n");
}

void loop_c_print_drawn(loop_c_printer *w, int n) {
  loop_c_line(w, "float room%d[HP_ROOM(%d)];", n, LOOP_C_CHUNK);
  loop_c_line(w, "float *z%d = hp_uniforms(room%d, %s, stream%d, a%d + j0, m);", n, n,
              loop_c_value_name(w, w->p->value[n].v.arg[0]).at, n, n);
}

void loop_c_print_needed(loop_c_printer *w, const bool *need, int varies) {
  for (int i = 0; i < w->p->values; i++)
    if (need[i] && w->p->value[i].varies == varies) loop_c_print_value(w, i);
}

/* --- what a loop needs ----------------------------------------------------------------------- */

void loop_c_need_value(const loop_c_printer *w, int value, int stage, bool *need) {
  const plan_value *v = &w->p->value[value];
  if (need[value] || !(v->varies & plan_loop_bit(w->p))) return;
  need[value] = true;
  if (w->held[value] || (w->kept[value] && w->kept[value] < stage)) return;
  for (int k = 0; k < 3; k++)
    if (v->v.arg[k] >= 0) loop_c_need_value(w, v->v.arg[k], stage, need);
}

bool loop_c_is_element_store(const loop_c_printer *w, int n) {
  return (w->p->store[n].varies & plan_loop_bit(w->p)) != 0;
}

bool loop_c_is_half(uint8_t type) { return type == HP_BF16 || type == HP_F16; }

bool loop_c_is_run_store(const loop_c_printer *w, int n) {
  const plan_store *s = &w->p->store[n];
  return w->p->kind != LOOP_COL && loop_c_is_element_store(w, n) && !s->s.fold &&
         s->path.inner == 1 && loop_class_of((hp_dtype)s->s.type) == LOOP_FLOAT;
}

int loop_c_stored_value(const loop_c_printer *w, int n) {
  const loop_store *s = &w->p->store[n].s;
  const loop_value *v = &w->p->value[s->value].v;
  bool again = loop_c_is_run_store(w, n) && loop_c_is_half(s->type) && v->what == LOOP_CAST &&
               v->type == s->type && w->p->value[v->arg[0]].v.cls == LOOP_FLOAT;
  return again ? v->arg[0] : s->value;
}

void loop_c_need_stage(const loop_c_printer *w, int stage, bool *need) {
  const loop_plan *p = w->p;
  memset(need, 0, LOOP_VALUES_MAX * sizeof *need);
  for (int n = 0; n < p->values; n++)
    if (p->value[n].v.what == LOOP_REDUCE && p->value[n].stage == stage)
      loop_c_need_value(w, p->value[n].v.arg[0], stage, need);
  for (int i = 0; i < p->stores && stage > p->stages; i++)
    if (loop_c_is_element_store(w, i)) loop_c_need_value(w, loop_c_stored_value(w, i), stage, need);
}

void loop_c_print_store(loop_c_printer *w, int n) {
  const plan_store *s = &w->p->store[n];
  loop_c_name at = element_index(w, 'o', n, &s->path), v = loop_c_value_name(w, s->s.value);
  if (s->s.fold) {
    snprintf(at.at, sizeof at.at, "f%d[j]", n);
    loop_c_print_fold(w, n, at.at, v.at);
    return;
  }
  for (int i = 0; i < w->indent; i++) str_add(w->out, "  ");
  str_printf(w->out, "o%d[%s] = ", n, at.at);
  loop_expr_store((hp_dtype)s->s.type, v.at, w->out);
  str_add(w->out, ";\n");
}

/* --- reductions ----------------------------------------------------------------------------- */

bool loop_c_is_reduced_at(const loop_c_printer *w, int n, int stage) {
  return w->p->value[n].v.what == LOOP_REDUCE && w->p->value[n].stage == stage;
}

static void print_join(loop_c_printer *w, int reduce, int cls, const char *a, const char *b) {
  for (int i = 0; i < w->indent; i++) str_add(w->out, "  ");
  str_printf(w->out, "%s = ", a);
  loop_expr_join((loop_reduction)reduce, (loop_class)cls, a, b, w->out);
  str_add(w->out, ";\n");
}

void loop_c_print_join(loop_c_printer *w, int n, const char *a, const char *b) {
  const loop_value *v = &w->p->value[n].v;
  print_join(w, v->reduce, v->cls, a, b);
}

void loop_c_print_fold(loop_c_printer *w, int n, const char *a, const char *b) {
  const loop_store *s = &w->p->store[n].s;
  print_join(w, s->reduce, w->p->value[s->value].v.cls, a, b);
}

const char *loop_c_identity(const plan_value *v) {
  return loop_expr_identity((loop_reduction)v->v.reduce, (loop_class)v->v.cls);
}

loop_c_name loop_c_lanes_name(const loop_c_printer *w, int n) {
  const loop_value *v = &w->p->value[n].v;
  loop_c_name s;
  snprintf(s.at, sizeof s.at, "%s_%c", loop_reduction_name[v->reduce],
           v->cls == LOOP_FLOAT ? 'f' : 'i');
  return s;
}
