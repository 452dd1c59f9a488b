/* Addresses of a work item: its parameters, its indices in the outer dims, the start addresses
 * of accesses, and its numbers in scratch memory. */
#include "codegen/loop_c_print.h"

#include "codegen/loop_expr.h"

#include <stdio.h>

bool loop_c_has_next(const loop_c_printer *w, const plan_value *v) {
  const loop_plan *p = w->p;
  return v->v.what == LOOP_IN && p->kind == LOOP_ROW && !p->split && p->stages > 0 &&
         p->outer == 1 && v->path.inner == 1 && v->path.outer[0] != 0;
}

static bool fill_path_params(const loop_plan *p, const plan_path *path, loop_params *out) {
  if (!vec_push(out, path->offset)) return false;
  for (int d = 0; d < p->outer; d++)
    if (!vec_push(out, path->outer[d])) return false;
  if (loop_c_has_step(path) && !vec_push(out, path->inner)) return false;
  return p->kind != LOOP_COL || !path->reduced || vec_push(out, path->reduced);
}

static bool is_walk(const plan_value *v) {
  return loop_has_strides(&v->v) || v->v.what == LOOP_IOTA;
}

hp_status loop_c_params(const loop_plan *p, loop_params *out) {
  bool ok = vec_push(out, p->inner) && vec_push(out, p->reduced) && vec_push(out, p->outer_count);
  for (int d = 0; d < p->outer; d++) ok = ok && vec_push(out, p->dim[d]);
  for (int i = 0; i < p->values; i++) {
    const plan_value *v = &p->value[i];
    if (is_walk(v)) ok = ok && fill_path_params(p, &v->path, out);
    if (v->v.what == LOOP_UNIFORM) ok = ok && vec_push(out, v->v.i64);
  }
  for (int i = 0; i < p->stores; i++) ok = ok && fill_path_params(p, &p->store[i].path, out);
  return ok ? HP_OK : HP_ERR_OOM;
}

/* Declares the start of an access for this part: `base` is in + operand or similar, or NULL for
 * an iota or random number, whose path is the index itself.  *k is the next parameter. */
static void print_path(loop_c_printer *w, char letter, int n, const char *element, const char *base,
                       const plan_path *path, int *k, const char *first) {
  str s = {0};
  str_printf(&s, "p[%d]", (*k)++);
  for (int d = 0; d < w->p->outer; d++) str_printf(&s, " + i%d * p[%d]", d, (*k)++);
  if (loop_c_has_step(path)) loop_c_line(w, "const int64_t x%c%d = p[%d];", letter, n, (*k)++);
  if (w->p->kind == LOOP_COL && path->reduced)
    loop_c_line(w, "const int64_t y%c%d = p[%d];", letter, n, (*k)++);
  if (path->inner == 1) str_printf(&s, " + %s", first);
  if (loop_c_has_step(path)) str_printf(&s, " + %s * x%c%d", first, letter, n);
  if (!str_status(&s)) {
    if (base) loop_c_line(w, "%s %c%d = (%s)%s + %s;", element, letter, n, element, base, s.at);
    else loop_c_line(w, "const int64_t %c%d = %s;", letter, n, s.at);
  } else {
    w->out->failed = true;
  }
  str_free(&s);
}

void loop_c_print_paths(loop_c_printer *w, const char *first) {
  const loop_plan *p = w->p;
  const int ahead = p->folds ? LOOP_C_ROWS : 1;
  int k = 3 + p->outer;
  char element[48], base[32];
  for (int i = 0; i < p->values; i++) {
    const plan_value *v = &p->value[i];
    if (!is_walk(v)) continue;
    snprintf(element, sizeof element, "const %s *", loop_expr_element((hp_dtype)v->v.type));
    snprintf(base, sizeof base, "in[%d]", v->v.operand);
    print_path(w, 'a', i, element, v->v.what == LOOP_IN ? base : NULL, &v->path, &k, first);
    if (loop_c_has_next(w, v))
      loop_c_line(w, "%s next%d = u + %d < to ? a%d + %d * p[%d] : a%d;", element, i, ahead, i,
                  ahead, k - 1, i);
    if (v->v.what == LOOP_UNIFORM) loop_c_line(w, "const int64_t stream%d = p[%d];", i, k++);
  }
  for (int i = 0; i < p->stores; i++) {
    const plan_store *s = &p->store[i];
    snprintf(element, sizeof element, "%s *", loop_expr_element((hp_dtype)s->s.type));
    snprintf(base, sizeof base, "out[%d]", s->s.operand);
    print_path(w, 'o', i, element, base, &s->path, &k, first);
  }
}

void loop_c_print_outer(loop_c_printer *w) {
  for (int d = w->p->outer - 1; d > 0; d--) {
    loop_c_line(w, "const int64_t i%d = t %% p[%d];", d, 3 + d);
    loop_c_line(w, "t /= p[%d];", 3 + d);
  }
  if (w->p->outer) loop_c_line(w, "const int64_t i0 = t;");
}

void loop_c_print_scratch(loop_c_printer *w, const char *to, const char *type, int k,
                          const char *element) {
  loop_c_line(w, "%s *%s = (%s *)((int64_t *)scratch + %d * numbers) + %s;", type, to, type, k,
              element);
}
