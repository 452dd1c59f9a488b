/* Shape of what is printed (docs/internals/codegen.md has a whole kernel):
 *   - element loops are plain loops over contiguous or strided elements that the compiler turns
 *     into vector code; `IVDEP` tells it that elements do not depend on each other (an output that
 *     is also an input has the same access, so an element only meets itself);
 *   - maps and rows go in chunks that stay in L1.  A chunk is several short loops over arrays zN:
 *     elements of 16 bits are widened, random numbers drawn, each dear value (an exp) has a loop of
 *     its own, and what is to be stored is narrowed.  Every loop then works on lanes of 32 bits,
 * and its dependences are short enough that the processor overlaps many elements;
 *   - results that go past the caches are streamed: their chunk is computed aside and copied;
 *   - a row reduction pads the array of its argument to whole lanes with the identity and joins it
 *     to 16 lanes: the element expression vectorises whatever it is;
 *   - what is dear (an exp) and needed again in a later loop over the same row is kept on the stack
 *     for the first elements of the row, and computed again for the others;
 *   - a column reduction keeps one chain per column in an array that a vector loop updates.
 * Names: vN value, aN and oN address of the access of value or store N, xN its inner stride. */
#include "codegen/loop_c_print.h"

#include "base/dtype.h"
#include "codegen/loop_expr.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK = LOOP_C_CHUNK, COLS_AT_ONCE = 256 };
/* Values kept at most, and the work that makes a value dear. */
enum { KEPT_VALUES = 4, DEAR = 16 };

typedef struct {
  char at[56];
} name;

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

static const char *type_of(const plan_value *v) { return loop_expr_type(v->v.cls); }

/* --- parameters ----------------------------------------------------------------------------- */

/* Which numbers of a path are parameters: those that the code cannot do without. */
static bool has_inner_param(const plan_path *path) { return path->inner != 0 && path->inner != 1; }

static bool path_params(const loop_plan *p, const plan_path *path, loop_params *out) {
  if (!vec_push(out, path->offset)) return false;
  for (int d = 0; d < p->outer; d++)
    if (!vec_push(out, path->outer[d])) return false;
  if (has_inner_param(path) && !vec_push(out, path->inner)) return false;
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
    if (is_walk(v)) ok = ok && path_params(p, &v->path, out);
    if (v->v.what == LOOP_UNIFORM) ok = ok && vec_push(out, v->v.i64);
  }
  for (int i = 0; i < p->stores; i++) ok = ok && path_params(p, &p->store[i].path, out);
  return ok ? HP_OK : HP_ERR_OOM;
}

/* Does an input walk rows that lie one after the other?  The next is fetched beside the last loop
 * over this one, for the loops before it find theirs in cache. */
static bool has_next(const loop_c_printer *w, const plan_value *v) {
  const loop_plan *p = w->p;
  return v->v.what == LOOP_IN && p->kind == LOOP_ROW && !p->split && p->stages > 0 &&
         p->outer == 1 && v->path.inner == 1 && v->path.outer[0] != 0;
}

/* Declares where an access starts for this part: `base` is in + operand or the like, or NULL for an
 * iota or random number, whose path is the index itself.  *k is the next parameter. */
static void print_path(loop_c_printer *w, char letter, int n, const char *element, const char *base,
                       const plan_path *path, int *k, const char *first) {
  str s = {0};
  str_printf(&s, "p[%d]", (*k)++);
  for (int d = 0; d < w->p->outer; d++) str_printf(&s, " + i%d * p[%d]", d, (*k)++);
  if (has_inner_param(path)) loop_c_line(w, "const int64_t x%c%d = p[%d];", letter, n, (*k)++);
  if (w->p->kind == LOOP_COL && path->reduced)
    loop_c_line(w, "const int64_t y%c%d = p[%d];", letter, n, (*k)++);
  if (path->inner == 1) str_printf(&s, " + %s", first);
  if (has_inner_param(path)) str_printf(&s, " + %s * x%c%d", first, letter, n);
  if (!str_status(&s)) {
    if (base) loop_c_line(w, "%s %c%d = (%s)%s + %s;", element, letter, n, element, base, s.at);
    else loop_c_line(w, "const int64_t %c%d = %s;", letter, n, s.at);
  } else {
    w->out->failed = true;
  }
  str_free(&s);
}

/* All accesses; `first` is the first element of the part along the inner dim. */
static void print_paths(loop_c_printer *w, const char *first) {
  const loop_plan *p = w->p;
  int k = 3 + p->outer;
  char element[48], base[32];
  for (int i = 0; i < p->values; i++) {
    const plan_value *v = &p->value[i];
    if (!is_walk(v)) continue;
    snprintf(element, sizeof element, "const %s *", loop_expr_element((hp_dtype)v->v.type));
    snprintf(base, sizeof base, "in[%d]", v->v.operand);
    print_path(w, 'a', i, element, v->v.what == LOOP_IN ? base : NULL, &v->path, &k, first);
    if (has_next(w, v))
      loop_c_line(w, "%s next%d = u + 1 < to ? a%d + p[%d] : a%d;", element, i, i, k - 1, i);
    if (v->v.what == LOOP_UNIFORM) loop_c_line(w, "const int64_t stream%d = p[%d];", i, k++);
  }
  for (int i = 0; i < p->stores; i++) {
    const plan_store *s = &p->store[i];
    snprintf(element, sizeof element, "%s *", loop_expr_element((hp_dtype)s->s.type));
    snprintf(base, sizeof base, "out[%d]", s->s.operand);
    print_path(w, 'o', i, element, base, &s->path, &k, first);
  }
}

/* i0.. from the number t of a place in the outer dims. */
static void print_outer(loop_c_printer *w) {
  for (int d = w->p->outer - 1; d > 0; d--) {
    loop_c_line(w, "const int64_t i%d = t %% p[%d];", d, 3 + d);
    loop_c_line(w, "t /= p[%d];", 3 + d);
  }
  if (w->p->outer) loop_c_line(w, "const int64_t i0 = t;");
}

/* --- values --------------------------------------------------------------------------------- */

/* Index of an access in the innermost loop, relative to its address. */
static name element_index(const loop_c_printer *w, char letter, int n, const plan_path *path) {
  name s = {"0"};
  const char *j = w->p->kind == LOOP_COL ? "c" : "j";
  char inner[24] = "", reduced[24] = "";
  if (path->inner == 1) snprintf(inner, sizeof inner, "%s", j);
  if (has_inner_param(path)) snprintf(inner, sizeof inner, "%s * x%c%d", j, letter, n);
  if (w->p->kind == LOOP_COL && path->reduced)
    snprintf(reduced, sizeof reduced, "i * y%c%d", letter, n);
  if (*inner || *reduced)
    snprintf(s.at, sizeof s.at, "%s%s%s", reduced, *inner && *reduced ? " + " : "", inner);
  return s;
}

/* How a value is called where it is used: column values live in arrays. */
static name value_name(const loop_c_printer *w, int n) {
  name s;
  bool column = w->p->kind == LOOP_COL && w->p->value[n].varies == VARY_INNER;
  snprintf(s.at, sizeof s.at, column ? "v%d[c]" : "v%d", n);
  return s;
}

static void print_expression(loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  name arg[3] = {{""}, {""}, {""}};
  for (int k = 0; k < 3; k++)
    if (v->v.arg[k] >= 0) arg[k] = value_name(w, v->v.arg[k]);
  name at = element_index(w, 'a', n, &v->path);
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

/* The definition of a value as a line; in a loop over columns a column value goes to its array. */
static void print_value(loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  name s = value_name(w, n);
  bool stored = strchr(s.at, '[') != NULL;
  for (int i = 0; i < w->indent; i++) str_add(w->out, "  ");
  if (!stored) str_printf(w->out, "const %s ", type_of(v));
  str_printf(w->out, "%s = ", s.at);
  print_expression(w, n);
  str_add(w->out, ";\n");
}

/* Values that are known once `stage` reductions are done and that vary with exactly `varies`. */
static bool is_due(const loop_c_printer *w, int n, int stage, int varies) {
  const plan_value *v = &w->p->value[n];
  return v->v.what != LOOP_REDUCE && v->stage == stage && v->varies == varies;
}

/* What is known before the loops of the next stage. */
static void print_known(loop_c_printer *w, int stage) {
  const loop_plan *p = w->p;
  bool columns = false;
  for (int i = 0; i < p->values; i++) {
    if (is_due(w, i, stage, 0)) print_value(w, i);
    if (p->kind != LOOP_COL || !is_due(w, i, stage, VARY_INNER)) continue;
    loop_c_line(w, "%s v%d[COLS];", type_of(&p->value[i]), i);
    columns = true;
  }
  if (!columns) return;
  loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  for (int i = 0; i < p->values; i++)
    if (is_due(w, i, stage, VARY_INNER)) print_value(w, i);
  loop_c_line(w, "}");
}

/* The values of need[] that vary with exactly the bits. */
static void print_needed(loop_c_printer *w, const bool *need, int varies) {
  for (int i = 0; i < w->p->values; i++)
    if (need[i] && w->p->value[i].varies == varies) print_value(w, i);
}

/* --- what a loop needs ----------------------------------------------------------------------- */

/* As plan_need, for the loop of a stage (the final one is stages + 1) that finds kept values and
 * those that are held. */
static void need_value(const loop_c_printer *w, int value, int stage, bool *need) {
  const plan_value *v = &w->p->value[value];
  if (need[value] || !(v->varies & plan_loop_bit(w->p))) return;
  need[value] = true;
  if (w->held[value] || (w->kept[value] && w->kept[value] < stage)) return;
  for (int k = 0; k < 3; k++)
    if (v->v.arg[k] >= 0) need_value(w, v->v.arg[k], stage, need);
}

bool loop_c_is_element_store(const loop_c_printer *w, int n) {
  return (w->p->store[n].varies & plan_loop_bit(w->p)) != 0;
}

static bool is_half(uint8_t type) { return type == HP_BF16 || type == HP_F16; }

bool loop_c_is_run_store(const loop_c_printer *w, int n) {
  const plan_store *s = &w->p->store[n];
  return w->p->kind != LOOP_COL && loop_c_is_element_store(w, n) && s->path.inner == 1 &&
         loop_class_of((hp_dtype)s->s.type) == LOOP_FLOAT;
}

int loop_c_stored_value(const loop_c_printer *w, int n) {
  const loop_store *s = &w->p->store[n].s;
  const loop_value *v = &w->p->value[s->value].v;
  bool again = loop_c_is_run_store(w, n) && is_half(s->type) && v->what == LOOP_CAST &&
               v->type == s->type && w->p->value[v->arg[0]].v.cls == LOOP_FLOAT;
  return again ? v->arg[0] : s->value;
}

/* What the loop of a stage starts from: arguments of its reductions, or stored elements. */
static void need_stage(const loop_c_printer *w, int stage, bool *need) {
  const loop_plan *p = w->p;
  memset(need, 0, LOOP_VALUES_MAX * sizeof *need);
  for (int n = 0; n < p->values; n++)
    if (p->value[n].v.what == LOOP_REDUCE && p->value[n].stage == stage)
      need_value(w, p->value[n].v.arg[0], stage, need);
  for (int i = 0; i < p->stores && stage > p->stages; i++)
    if (loop_c_is_element_store(w, i)) need_value(w, loop_c_stored_value(w, i), stage, need);
}

static bool is_dear(const plan_value *v) {
  return v->v.what == LOOP_OP && v->v.cls == LOOP_FLOAT && loop_expr_row(v->v.op)->work >= DEAR;
}

/* Decides what is kept, users before what they are computed from. */
static void choose_kept(loop_c_printer *w) {
  const loop_plan *p = w->p;
  bool need[LOOP_VALUES_MAX];
  int count = 0;
  if (p->kind != LOOP_ROW || p->split) return;
  for (int n = p->values - 1; n >= 0 && count < KEPT_VALUES; n--) {
    int loops = 0, first = 0;
    if (!is_dear(&p->value[n])) continue;
    for (int stage = p->stages + 1; stage > 0; stage--) {
      need_stage(w, stage, need);
      if (!need[n]) continue;
      loops++;
      first = stage;
    }
    if (loops < 2) continue;
    w->kept[n] = (uint8_t)first;
    count++;
  }
}

/* True when the loop of a stage finds one of the values that it needs kept. */
static bool finds_kept(const loop_c_printer *w, int stage) {
  bool need[LOOP_VALUES_MAX], found = false;
  need_stage(w, stage, need);
  for (int n = 0; n < w->p->values; n++) found |= need[n] && w->kept[n] && w->kept[n] < stage;
  return found;
}

static void print_store(loop_c_printer *w, int n) {
  const plan_store *s = &w->p->store[n];
  name at = element_index(w, 'o', n, &s->path), v = value_name(w, s->s.value);
  for (int i = 0; i < w->indent; i++) str_add(w->out, "  ");
  str_printf(w->out, "o%d[%s] = ", n, at.at);
  loop_expr_store((hp_dtype)s->s.type, v.at, w->out);
  str_add(w->out, ";\n");
}

/* --- reductions ----------------------------------------------------------------------------- */

static bool is_reduced_at(const loop_c_printer *w, int n, int stage) {
  return w->p->value[n].v.what == LOOP_REDUCE && w->p->value[n].stage == stage;
}

/* "a = join(a, b);" of reduction n */
static void print_join(loop_c_printer *w, int n, const char *a, const char *b) {
  const loop_value *v = &w->p->value[n].v;
  for (int i = 0; i < w->indent; i++) str_add(w->out, "  ");
  str_printf(w->out, "%s = ", a);
  loop_expr_join((loop_reduction)v->reduce, (loop_class)v->cls, a, b, w->out);
  str_add(w->out, ";\n");
}

static const char *identity(const plan_value *v) {
  return loop_expr_identity((loop_reduction)v->v.reduce, (loop_class)v->v.cls);
}

/* "sum_f" for hp_join_sum_f and hp_lanes_sum_f of the preamble */
static name lanes_name(const loop_c_printer *w, int n) {
  const loop_value *v = &w->p->value[n].v;
  name s;
  snprintf(s.at, sizeof s.at, "%s_%c", loop_reduction_name[v->reduce],
           v->cls == LOOP_FLOAT ? 'f' : 'i');
  return s;
}

#define EACH_REDUCTION(w, n, stage_)                                                               \
  for (int n = 0; n < (w)->p->values; n++)                                                         \
    if (is_reduced_at(w, n, stage_))

/* --- chunks ---------------------------------------------------------------------------------- */

/* A loop over the elements of a chunk begins: the values of need[], those that are held from their
 * arrays. */
static void print_chunk_loop(loop_c_printer *w, const bool *need) {
  loop_c_line(w, "IVDEP for (int64_t k = 0; k < m; k++) {");
  loop_c_line(w, "const int64_t j = j0 + k;");
  for (int n = 0; n < w->p->values; n++) {
    if (need[n] && w->held[n]) loop_c_line(w, "const float v%d = z%d[k];", n, n);
    else if (need[n]) print_value(w, n);
  }
}

/* What the stage reads in runs and not as it is: elements of 16 bits, random numbers. */
static void print_runs(loop_c_printer *w, const bool *need) {
  for (int n = 0; n < w->p->values; n++) {
    const plan_value *v = &w->p->value[n];
    if (!need[n] || w->held[n] || !loop_has_strides(&v->v) || v->path.inner != 1) continue;
    if (v->v.what == LOOP_UNIFORM) {
      loop_c_line(w, "float room%d[HP_ROOM(%d)];", n, CHUNK);
      loop_c_line(w, "float *z%d = hp_uniforms(room%d, %s, stream%d, a%d + j0, m);", n, n,
                  value_name(w, v->v.arg[0]).at, n, n);
    } else if (is_half(v->v.type)) {
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

/* Dear values, each in a loop of its own; not one that is only stored. */
static void print_dear(loop_c_printer *w, int stage, const bool *all) {
  bool final = stage > w->p->stages;
  for (int n = 0; n < w->p->values; n++) {
    bool need[LOOP_VALUES_MAX] = {false};
    if (!all[n] || w->held[n] || !is_dear(&w->p->value[n])) continue;
    if (final && !is_argument(w, n, all)) continue;
    need_value(w, n, stage, need);
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

/* The arguments of the reductions of a stage, joined to the lanes lN. */
static void print_joins(loop_c_printer *w, int stage) {
  bool need[LOOP_VALUES_MAX], any = false;
  EACH_REDUCTION(w, n, stage) {
    const int arg = w->p->value[n].v.arg[0];
    any |= !w->held[arg];
    if (w->held[arg]) loop_c_line(w, "float *t%d = z%d;", n, arg);
    else loop_c_line(w, "%s t%d[%d];", type_of(&w->p->value[n]), n, CHUNK);
  }
  if (any) {
    need_stage(w, stage, need);
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
                identity(&w->p->value[n]));
    loop_c_line(w, "hp_join_%s(l%d, t%d, whole);", lanes_name(w, n).at, n, n);
  }
}

/* The elements that are stored: runs of floats to wN, which is the output itself where nothing is
 * to be done with them any more. */
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
  need_stage(w, p->stages + 1, need);
  print_chunk_loop(w, need);
  for (int i = 0; i < p->stores; i++) {
    if (loop_c_is_run_store(w, i)) loop_c_line(w, "w%d[k] = v%d;", i, loop_c_stored_value(w, i));
    else if (loop_c_is_element_store(w, i)) print_store(w, i);
  }
  loop_c_line(w, "}");
  for (int i = 0; i < p->stores; i++) {
    const loop_store *s = &p->store[i].s;
    if (loop_c_is_run_store(w, i))
      loop_c_line(w, "hp_write_%s(o%d + j0, w%d, m, stream >> %d & 1);",
                  dtype_name((hp_dtype)s->type), i, i, s->operand);
  }
}

static bool draws(const loop_c_printer *w) {
  bool any = false;
  for (int n = 0; n < w->p->values; n++) any |= w->p->value[n].v.what == LOOP_UNIFORM;
  return any;
}

/* What a map that draws random numbers reads for the next chunk: it comes while numbers are drawn,
 * which takes as long and reads nothing. */
static void print_ahead(loop_c_printer *w) {
  for (int i = 0; i < w->p->values && w->p->kind == LOOP_MAP && draws(w); i++) {
    const plan_value *v = &w->p->value[i];
    if (v->v.what == LOOP_IN && v->path.inner == 1)
      loop_c_line(w, "hp_fetch(a%d + j0 + %d, m * (int64_t)sizeof *a%d);", i, CHUNK, i);
  }
}

/* Each loop over a row fetches its share of the next row, so that memory is busy all the time. */
static void print_fetches(loop_c_printer *w, int stage) {
  const int loops = w->p->stages + 1;
  for (int i = 0; i < w->p->values; i++)
    if (has_next(w, &w->p->value[i]))
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
  print_ahead(w);
  for (int n = 0; n < w->p->values && !from_kept; n++)
    if (w->kept[n] < stage) w->kept[n] = 0;
  need_stage(w, stage, need);
  const bool wide = loop_c_is_wide(w, stage, need);
  if (wide) {
    loop_c_line(w, "#ifdef HP_WIDE");
    loop_c_print_wide(w, stage, need);
    loop_c_line(w, "#else");
  }
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

/* The loop of a stage over elements from .. to, names of variables. */
static void print_chunks(loop_c_printer *w, int stage, const char *from, const char *to) {
  loop_c_line(w, "for (int64_t j1 = %s; j1 < %s; j1 += %d) {", from, to, CHUNK);
  loop_c_line(w, "int64_t j0 = j1, m = %s - j0 < %d ? %s - j0 : %d;", to, CHUNK, to, CHUNK);
  if (finds_kept(w, stage)) {
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

/* Elements s0 .. s1 of a row into qN: a chain of blocks of lanes. */
static void print_row_segment(loop_c_printer *w, int stage) {
  EACH_REDUCTION(w, n, stage)
  loop_c_line(w, "%s q%d = %s;", type_of(&w->p->value[n]), n, identity(&w->p->value[n]));
  loop_c_line(w, "for (int64_t b = s0; b < s1; b += %d) {", PLAN_ROW_BLOCK);
  loop_c_line(w, "const int64_t e = s1 - b < %d ? s1 : b + %d;", PLAN_ROW_BLOCK, PLAN_ROW_BLOCK);
  EACH_REDUCTION(w, n, stage) {
    loop_c_line(w, "%s l%d[%d];", type_of(&w->p->value[n]), n, PLAN_LANES);
    loop_c_line(w, "for (int i = 0; i < %d; i++) l%d[i] = %s;", PLAN_LANES, n,
                identity(&w->p->value[n]));
  }
  print_chunks(w, stage, "b", "e");
  EACH_REDUCTION(w, n, stage) {
    char a[24], b[24];
    snprintf(a, sizeof a, "q%d", n);
    snprintf(b, sizeof b, "r%d", n);
    loop_c_line(w, "const %s %s = hp_lanes_%s(l%d);", type_of(&w->p->value[n]), b,
                lanes_name(w, n).at, n);
    print_join(w, n, a, b);
  }
  loop_c_line(w, "}");
}

/* Rows s0 .. s1 of the columns into qN[]: chains of blocks of rows. */
static void print_col_segment(loop_c_printer *w, int stage) {
  bool need[LOOP_VALUES_MAX];
  need_stage(w, stage, need);
  EACH_REDUCTION(w, n, stage) {
    const plan_value *v = &w->p->value[n];
    loop_c_line(w, "%s q%d[COLS], l%d[COLS];", type_of(v), n, n);
    loop_c_line(w, "for (int64_t c = 0; c < w; c++) q%d[c] = %s;", n, identity(v));
  }
  loop_c_line(w, "for (int64_t b = s0; b < s1; b += %d) {", PLAN_COL_BLOCK);
  loop_c_line(w, "const int64_t e = s1 - b < %d ? s1 : b + %d;", PLAN_COL_BLOCK, PLAN_COL_BLOCK);
  EACH_REDUCTION(w, n, stage)
  loop_c_line(w, "for (int64_t c = 0; c < w; c++) l%d[c] = %s;", n, identity(&w->p->value[n]));
  loop_c_line(w, "for (int64_t i = b; i < e; i++) {");
  print_needed(w, need, VARY_REDUCED);
  loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  print_needed(w, need, VARY_INNER | VARY_REDUCED);
  EACH_REDUCTION(w, n, stage) {
    char a[24];
    snprintf(a, sizeof a, "l%d[c]", n);
    print_join(w, n, a, value_name(w, w->p->value[n].v.arg[0]).at);
  }
  loop_c_line(w, "}");
  loop_c_line(w, "}");
  EACH_REDUCTION(w, n, stage) {
    char a[24], b[24];
    snprintf(a, sizeof a, "q%d[c]", n);
    snprintf(b, sizeof b, "l%d[c]", n);
    loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
    print_join(w, n, a, b);
    loop_c_line(w, "}");
  }
  loop_c_line(w, "}");
}

static void print_segment(loop_c_printer *w, int stage) {
  if (w->p->kind == LOOP_ROW) print_row_segment(w, stage);
  else print_col_segment(w, stage);
}

/* vN = join(vN, b), for every column of a column kernel. */
static void print_chain(loop_c_printer *w, int n, const char *b) {
  char a[24];
  bool col = w->p->kind == LOOP_COL;
  snprintf(a, sizeof a, col ? "v%d[c]" : "v%d", n);
  if (col) loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  print_join(w, n, a, b);
  if (col) loop_c_line(w, "}");
}

static void print_start(loop_c_printer *w, int n) {
  const plan_value *v = &w->p->value[n];
  if (w->p->kind == LOOP_ROW) {
    loop_c_line(w, "%s v%d = %s;", type_of(v), n, identity(v));
    return;
  }
  loop_c_line(w, "%s v%d[COLS];", type_of(v), n);
  loop_c_line(w, "for (int64_t c = 0; c < w; c++) v%d[c] = %s;", n, identity(v));
}

/* The reductions of a stage, whole, in one part: segment after segment. */
static void print_reduce(loop_c_printer *w, int stage) {
  EACH_REDUCTION(w, n, stage) print_start(w, n);
  loop_c_line(w, "for (int64_t s0 = 0; s0 < p[1]; s0 += SEGMENT) {");
  loop_c_line(w, "const int64_t s1 = p[1] - s0 < SEGMENT ? p[1] : s0 + SEGMENT;");
  print_segment(w, stage);
  EACH_REDUCTION(w, n, stage) {
    char b[24];
    snprintf(b, sizeof b, w->p->kind == LOOP_COL ? "q%d[c]" : "q%d", n);
    print_chain(w, n, b);
  }
  loop_c_line(w, "}");
}

/* The same over parts that are segments: phase stage - 1 leaves qN in the scratch memory, later
 * phases chain what lies there.  A segment has `width` numbers of 8 bytes. */
static void print_reduce_split(loop_c_printer *w, int stage) {
  bool col = w->p->kind == LOOP_COL;
  int k = 0;
  for (int n = 0; n < w->p->values; n++)
    k += w->p->value[n].v.what == LOOP_REDUCE && w->p->value[n].stage < stage;
  loop_c_line(w, "if (phase == %d) {", stage - 1);
  print_segment(w, stage);
  int at = k;
  EACH_REDUCTION(w, n, stage) {
    const char *type = type_of(&w->p->value[n]);
    loop_c_line(w, "%s *z%d = (%s *)((int64_t *)scratch + (%d * places * segments + u) * %d);",
                type, n, type, at++, col ? PLAN_COLS : 1);
    if (col) loop_c_line(w, "for (int64_t c = 0; c < w; c++) z%d[c] = q%d[c];", n, n);
    else loop_c_line(w, "*z%d = q%d;", n, n);
  }
  loop_c_line(w, "continue;");
  loop_c_line(w, "}");
  EACH_REDUCTION(w, n, stage) {
    const char *type = type_of(&w->p->value[n]);
    print_start(w, n);
    loop_c_line(w, "for (int64_t h = 0; h < segments; h++) {");
    loop_c_line(w,
                "const %s *z = (const %s *)((const int64_t *)scratch + (%d * places * segments + "
                "u / segments * segments + h) * %d);",
                type, type, k++, col ? PLAN_COLS : 1);
    print_chain(w, n, col ? "z[c]" : "z[0]");
    loop_c_line(w, "}");
  }
}

/* --- kernels -------------------------------------------------------------------------------- */

/* The loop that stores elements, after all reductions: an output that is an input of the kernel is
 * overwritten only when nothing reads it any more. */
static void print_final(loop_c_printer *w) {
  const loop_plan *p = w->p;
  bool need[LOOP_VALUES_MAX], any = false;
  for (int i = 0; i < p->stores; i++) any |= loop_c_is_element_store(w, i);
  if (!any) return;
  if (p->kind != LOOP_COL) {
    print_chunks(w, p->stages + 1, "s0", "s1");
    return;
  }
  need_stage(w, p->stages + 1, need);
  loop_c_line(w, "for (int64_t i = s0; i < s1; i++) {");
  print_needed(w, need, VARY_REDUCED);
  loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  print_needed(w, need, VARY_INNER | VARY_REDUCED);
  for (int i = 0; i < p->stores; i++)
    if (loop_c_is_element_store(w, i)) print_store(w, i);
  loop_c_line(w, "}");
  loop_c_line(w, "}");
}

/* Stores of what is one per row or column, last, for the same reason. */
static void print_scalar_stores(loop_c_printer *w) {
  const loop_plan *p = w->p;
  bool any = false;
  for (int i = 0; i < p->stores; i++) any |= !loop_c_is_element_store(w, i);
  if (!any) return;
  /* a phase of its own: parts of the same row still read what this may overwrite */
  if (p->split) loop_c_line(w, "if (phase == %d && u %% segments == 0) {", p->stages + 1);
  if (p->kind == LOOP_COL) loop_c_line(w, "IVDEP for (int64_t c = 0; c < w; c++) {");
  for (int i = 0; i < p->stores; i++)
    if (!loop_c_is_element_store(w, i)) print_store(w, i);
  if (p->kind == LOOP_COL) loop_c_line(w, "}");
  if (p->split) loop_c_line(w, "}");
}

static void print_map(loop_c_printer *w) {
  loop_c_line(w, "const int64_t blocks = (p[0] + %d) / %d;", PLAN_MAP_BLOCK - 1, PLAN_MAP_BLOCK);
  loop_c_line(w, "for (int64_t u = from; u < to; u++) {");
  loop_c_line(w, "const int64_t first = u %% blocks * %d;", PLAN_MAP_BLOCK);
  loop_c_line(w, "const int64_t s0 = 0, s1 = p[0] - first < %d ? p[0] - first : %d;",
              PLAN_MAP_BLOCK, PLAN_MAP_BLOCK);
  loop_c_line(w, "int64_t t = u / blocks;");
  print_outer(w);
  print_paths(w, "first");
  print_known(w, 0);
  print_final(w);
  print_scalar_stores(w); /* a map of one element */
  loop_c_line(w, "(void)t;");
  loop_c_line(w, "}");
}

static void print_stages(loop_c_printer *w) {
  const loop_plan *p = w->p;
  print_known(w, 0);
  for (int stage = 1; stage <= p->stages; stage++) {
    if (p->split) print_reduce_split(w, stage);
    else print_reduce(w, stage);
    print_known(w, stage);
  }
  if (!p->split) loop_c_line(w, "const int64_t s0 = 0, s1 = p[1];");
  if (p->split) loop_c_line(w, "if (phase == %d) {", p->stages);
  print_final(w);
  if (p->split) loop_c_line(w, "}");
  print_scalar_stores(w);
  loop_c_line(w, "(void)s0, (void)s1, (void)t;");
}

/* Bounds of the segment that a part of a split kernel is. */
static void print_split_bounds(loop_c_printer *w) {
  loop_c_line(w, "const int64_t s0 = u %% segments * SEGMENT;");
  loop_c_line(w, "const int64_t s1 = p[1] - s0 < SEGMENT ? p[1] : s0 + SEGMENT;");
}

static void print_row(loop_c_printer *w) {
  bool split = w->p->split;
  loop_c_line(w, "enum { SEGMENT = %d };", PLAN_ROW_SEGMENT);
  choose_kept(w);
  for (int n = 0; n < w->p->values; n++)
    if (w->kept[n]) loop_c_line(w, "float kept%d[%d];", n, LOOP_C_KEPT);
  if (split) {
    loop_c_line(w, "const int64_t segments = (p[1] + SEGMENT - 1) / SEGMENT;");
    loop_c_line(w, "const int64_t places = p[2];");
  }
  loop_c_line(w, "for (int64_t u = from; u < to; u++) {");
  loop_c_line(w, split ? "int64_t t = u / segments;" : "int64_t t = u;");
  if (split) print_split_bounds(w);
  print_outer(w);
  print_paths(w, "0");
  print_stages(w);
  loop_c_line(w, "}");
}

static void print_col(loop_c_printer *w) {
  bool split = w->p->split;
  loop_c_line(w, "enum { SEGMENT = %d, COLS = %d };", PLAN_COL_SEGMENT,
              split ? PLAN_COLS : COLS_AT_ONCE);
  loop_c_line(w, "const int64_t blocks = (p[0] + %d) / %d;", PLAN_COLS - 1, PLAN_COLS);
  if (split) {
    loop_c_line(w, "const int64_t segments = (p[1] + SEGMENT - 1) / SEGMENT;");
    loop_c_line(w, "const int64_t places = p[2] * blocks;");
    loop_c_line(w, "for (int64_t u = from; u < to; u++) {");
    loop_c_line(w, "const int64_t place = u / segments;");
    print_split_bounds(w);
  } else {
    loop_c_line(w, "for (int64_t u = from, done; u < to; u += done) {");
    loop_c_line(w, "const int64_t place = u;");
  }
  loop_c_line(w, "const int64_t first = place %% blocks * %d;", PLAN_COLS);
  loop_c_line(w, "int64_t w = p[0] - first < COLS ? p[0] - first : COLS;");
  if (!split) {
    /* several parts of the same outer place in one go: longer runs of memory */
    loop_c_line(w, "w = w < (to - u) * %d ? w : (to - u) * %d;", PLAN_COLS, PLAN_COLS);
    loop_c_line(w, "done = (w + %d) / %d;", PLAN_COLS - 1, PLAN_COLS);
  }
  loop_c_line(w, "int64_t t = place / blocks;");
  print_outer(w);
  print_paths(w, "first");
  print_stages(w);
  loop_c_line(w, "}");
}

void loop_c_print(const loop_plan *p, str *out) {
  loop_c_printer w = {.p = p, .out = out};
  loop_c_line(&w, "(const void *const *in, void *const *out, const int64_t *p, void *scratch, "
                  "int64_t phase, int64_t stream, int64_t from, int64_t to) {");
  loop_c_line(&w, "(void)in, (void)out, (void)scratch, (void)phase, (void)stream;");
  if (p->kind == LOOP_MAP) print_map(&w);
  else if (p->kind == LOOP_ROW) print_row(&w);
  else print_col(&w);
  loop_c_line(&w, "if (stream) hp_streamed();");
  loop_c_line(&w, "}");
}
