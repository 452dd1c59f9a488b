#include "shard/layout_text.h"

#include "base/vec.h"

#include <ctype.h>
#include <string.h>

/* --- from names ------------------------------------------------------------------------------- */

static hp_status unknown_axis(const mesh *m, const char *name) {
  str all = {0};
  mesh_names(m, &all);
  hp_status st = err_set(HP_ERR_LAYOUT, __FILE__, __LINE__,
                         "layout: \"%.60s\" is not an axis of the mesh; its axes are %s", name,
                         all.at ? all.at : "");
  str_free(&all);
  return st;
}

hp_status layout_split_dim(const mesh *m, layout *l, int dim, const char *const *name, int n) {
  for (int i = 0; i < n; i++) {
    if (!strcmp(name[i], "None")) continue;
    int axis = mesh_axis(m, name[i], strlen(name[i]));
    if (axis < 0) return unknown_axis(m, name[i]);
    int other = layout_dim_of(l, axis);
    if (other >= 0)
      HP_FAIL(HP_ERR_LAYOUT, "layout: axis \"%s\" splits dim %d and dim %d; it can split one",
              name[i], other, dim);
    if (l->partial[axis])
      HP_FAIL(HP_ERR_LAYOUT,
              "layout: the tensor is partial (%s) over axis \"%s\", so it cannot split dim %d",
              name[i], partial_op_name(l->partial[axis]), dim);
    layout_append(l, dim, axis);
  }
  return HP_OK;
}

hp_status layout_set_partial(const mesh *m, layout *l, const char *name, const char *op) {
  int axis = mesh_axis(m, name, strlen(name));
  partial_op p = partial_op_find(op, strlen(op));
  if (axis < 0) return unknown_axis(m, name);
  if (!p)
    HP_FAIL(HP_ERR_LAYOUT,
            "layout: \"%.60s\" is not a reduction; expected sum, avg, max, min, prod or all", op);
  int dim = layout_dim_of(l, axis);
  if (dim >= 0)
    HP_FAIL(HP_ERR_LAYOUT,
            "layout: axis \"%s\" splits dim %d, so no tensor with it can be partial over it", name,
            dim);
  if (l->partial[axis] && l->partial[axis] != p)
    HP_FAIL(HP_ERR_LAYOUT, "layout: axis \"%s\" is partial (%s) already, not %s", name,
            partial_op_name(l->partial[axis]), op);
  l->partial[axis] = (uint8_t)p;
  return HP_OK;
}

/* "S(1)", "P(sum)": the text between the parentheses; false for another form. */
static bool argument(const char *text, char kind, char out[MESH_NAME]) {
  size_t n = strlen(text);
  if (n < 4 || n >= MESH_NAME || text[0] != kind || text[1] != '(' || text[n - 1] != ')')
    return false;
  memcpy(out, text + 2, n - 3);
  out[n - 3] = 0;
  return true;
}

static hp_status place(const mesh *m, int axis, const char *text, layout *l) {
  char word[MESH_NAME];
  int64_t dim;
  if (!strcmp(text, "R")) return HP_OK;
  if (argument(text, 'P', word)) return layout_set_partial(m, l, m->name[axis], word);
  if (!argument(text, 'S', word) || !str_to_i64(word, &dim))
    HP_FAIL(HP_ERR_LAYOUT, "placement \"%.40s\" of axis \"%s\": expected S(dim), R or P(op)", text,
            m->name[axis]);
  if (dim < -l->rank || dim >= l->rank)
    HP_FAIL(HP_ERR_LAYOUT, "placement \"%s\" of axis \"%s\": the tensor has %d dims", text,
            m->name[axis], l->rank);
  const char *name = m->name[axis];
  return layout_split_dim(m, l, (int)(dim < 0 ? dim + l->rank : dim), &name, 1);
}

hp_status layout_from_placements(const mesh *m, const char *const *placement, int n, int rank,
                                 layout *out) {
  layout l = {.rank = rank};
  if (rank < 0 || rank > LAYOUT_DIMS)
    HP_FAIL(HP_ERR_LAYOUT, "placements for a tensor of %d dims; expected 0 to %d", rank,
            LAYOUT_DIMS);
  if (n != m->axes)
    HP_FAIL(HP_ERR_LAYOUT, "%d placements, the mesh has %d axes; give each one", n, m->axes);
  for (int a = 0; a < n; a++) HP_TRY(place(m, a, placement[a] ? placement[a] : "", &l));
  *out = l;
  return HP_OK;
}

/* --- parsing ---------------------------------------------------------------------------------- */

typedef struct {
  const char *text, *at;
} reader;

static hp_status bad(const reader *r, const char *wanted) {
  HP_FAIL(HP_ERR_LAYOUT, "layout \"%.200s\", character %td: expected %s", r->text,
          r->at - r->text + 1, wanted);
}

static char next_char(reader *r) {
  while (isspace((unsigned char)*r->at)) r->at++;
  return *r->at;
}

static bool take(reader *r, char c) {
  if (next_char(r) != c) return false;
  r->at++;
  return true;
}

static hp_status word(reader *r, const char *wanted, char out[MESH_NAME]) {
  next_char(r);
  size_t n = strcspn(r->at, "(),+:@ \t\r\n");
  if (!n || n >= MESH_NAME) return bad(r, wanted);
  memcpy(out, r->at, n);
  out[n] = 0;
  r->at += n;
  return HP_OK;
}

static hp_status number(reader *r, int64_t *out) {
  char text[MESH_NAME];
  reader before = *r;
  HP_TRY(word(r, "a number", text));
  if (!str_to_i64(text, out)) return bad(&before, "a number");
  return HP_OK;
}

/* "(2,2,2)" */
static hp_status sizes(reader *r, int64_t *size, int *n) {
  *n = 0;
  if (!take(r, '(')) return bad(r, "\"(\" and the device matrix");
  do {
    if (*n == MESH_AXES) return bad(r, "at most 8 axes");
    HP_TRY(number(r, &size[(*n)++]));
  } while (take(r, ','));
  return take(r, ')') ? HP_OK : bad(r, "\",\" or \")\"");
}

/* "(dp,sp,mp)" */
static hp_status names(reader *r, char name[MESH_AXES][MESH_NAME], int *n) {
  *n = 0;
  if (!take(r, '(')) return bad(r, "\"(\" and the names of the axes");
  do {
    if (*n == MESH_AXES) return bad(r, "at most 8 names");
    HP_TRY(word(r, "the name of an axis", name[(*n)++]));
  } while (take(r, ','));
  return take(r, ')') ? HP_OK : bad(r, "\",\" or \")\"");
}

static hp_status one_name(reader *r, const mesh *m, layout *l, int dim) {
  char name[MESH_NAME];
  const char *p = name;
  HP_TRY(word(r, "the name of an axis, or None", name));
  return layout_split_dim(m, l, dim, &p, 1);
}

/* "mp" or "(sp,dp)" or "None" */
static hp_status entry_axes(reader *r, const mesh *m, layout *l, int dim) {
  if (!take(r, '(')) return one_name(r, m, l, dim);
  do HP_TRY(one_name(r, m, l, dim));
  while (take(r, ','));
  return take(r, ')') ? HP_OK : bad(r, "\",\" or \")\"");
}

/* The axes, then ":64". */
static hp_status entry(reader *r, const mesh *m, layout *l, int dim) {
  int64_t size = 0;
  HP_TRY(entry_axes(r, m, l, dim));
  if (!take(r, ':')) return HP_OK;
  reader before = *r;
  HP_TRY(number(r, &size));
  if (size < 1 || size > INT32_MAX) return bad(&before, "the length of a shard, at least 1");
  l->shard_size[dim] = (int32_t)size;
  return HP_OK;
}

static hp_status read_partials(reader *r, const mesh *m, layout *l) {
  while (take(r, '+')) {
    char op[MESH_NAME], axis[MESH_NAME];
    HP_TRY(word(r, "a reduction", op));
    if (!take(r, ':')) return bad(r, "\":\" and the axis of the reduction");
    HP_TRY(word(r, "the name of an axis", axis));
    HP_TRY(layout_set_partial(m, l, axis, op));
  }
  return HP_OK;
}

static hp_status tensor_map(reader *r, const mesh *m, layout *l) {
  *l = (layout){0};
  if (!take(r, '(')) return bad(r, "\"(\" and an entry for every dim of the tensor");
  while (next_char(r) != ')') {
    if (l->rank == LAYOUT_DIMS) return bad(r, "at most 8 dims");
    HP_TRY(entry(r, m, l, l->rank++));
    if (!take(r, ',')) break;
  }
  if (!take(r, ')')) return bad(r, "\",\" or \")\"");
  return read_partials(r, m, l);
}

/* "@0,1,2": to *rank (mem_free), in the order of the text. */
static hp_status ranks(const reader *from, int64_t **rank, int64_t *n) {
  VEC(int64_t) all = {0};
  reader r = *from;
  hp_status st = HP_OK;
  do {
    int64_t one;
    HP_TRY_GOTO(number(&r, &one), st);
    if (!vec_push(&all, one)) st = HP_ERR_OOM;
  } while (!st && take(&r, ','));
  if (!st && next_char(&r)) HP_TRY_GOTO(bad(&r, "the end of the layout"), st);
done:
  if (st) vec_free(&all);
  *rank = all.at;
  *n = (int64_t)all.len;
  return st;
}

/* Reads the mesh; its rank list is at the end of the text. */
static hp_status read_mesh(reader *r, mesh *m) {
  int64_t size[MESH_AXES], *rank = NULL, n_ranks = 0;
  char name[MESH_AXES][MESH_NAME];
  const char *pointer[MESH_AXES];
  int n_sizes, n_names;
  HP_TRY(sizes(r, size, &n_sizes));
  HP_TRY(names(r, name, &n_names));
  if (n_sizes != n_names)
    HP_FAIL(HP_ERR_LAYOUT, "layout \"%.200s\": %d sizes and %d names; give every axis one name",
            r->text, n_sizes, n_names);
  for (int a = 0; a < n_names; a++) pointer[a] = name[a];
  const char *list = strchr(r->at, '@');
  reader at = {r->text, list ? list + 1 : NULL};
  if (list) HP_TRY(ranks(&at, &rank, &n_ranks));
  hp_status st = mesh_init(size, pointer, n_sizes, rank, n_ranks, m);
  mem_free(rank);
  return st;
}

hp_status layout_parse(const char *text, mesh *m, layout *l, bool *called) {
  reader r = {text, text};
  mesh made;
  HP_TRY(read_mesh(&r, &made));
  *l = (layout){0};
  *called = next_char(&r) == '(';
  hp_status st = *called ? tensor_map(&r, &made, l) : HP_OK;
  if (!st && next_char(&r) && *r.at != '@') st = bad(&r, "the end of the layout");
  if (st) mesh_free(&made);
  else *m = made;
  return st;
}

hp_status layout_parse_on(const char *text, const mesh *m, layout *l) {
  reader r = {text, text};
  HP_TRY(tensor_map(&r, m, l));
  return next_char(&r) ? bad(&r, "the end of the layout") : HP_OK;
}

/* --- printing --------------------------------------------------------------------------------- */

void mesh_print(const mesh *m, str *out) {
  for (int a = 0; a < m->axes; a++) str_printf(out, a ? ",%lld" : "(%lld", (long long)m->size[a]);
  for (int a = 0; a < m->axes; a++) str_printf(out, a ? ",%s" : ")(%s", m->name[a]);
  str_add(out, ")");
}

void layout_print_on(const mesh *m, const layout *l, str *out) {
  str_add(out, "(");
  for (int d = 0; d < l->rank; d++) {
    if (d) str_add(out, ",");
    if (!l->n[d]) str_add(out, "None");
    if (l->n[d] > 1) str_add(out, "(");
    for (int i = 0; i < l->n[d]; i++) str_printf(out, i ? ",%s" : "%s", m->name[l->axis[d][i]]);
    if (l->n[d] > 1) str_add(out, ")");
    if (l->shard_size[d]) str_printf(out, ":%d", l->shard_size[d]);
  }
  str_add(out, ")");
  for (int a = 0; a < m->axes; a++)
    if (l->partial[a]) str_printf(out, "+%s:%s", partial_op_name(l->partial[a]), m->name[a]);
}

void mesh_print_ranks(const mesh *m, str *out) {
  for (int64_t p = 0; m->rank && p < m->devices; p++)
    str_printf(out, p ? ",%lld" : "@%lld", (long long)m->rank[p]);
}

void layout_print(const mesh *m, const layout *l, str *out) {
  mesh_print(m, out);
  layout_print_on(m, l, out);
  mesh_print_ranks(m, out);
}
