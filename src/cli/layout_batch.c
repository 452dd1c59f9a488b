/* `hyper layout --batch`: a question a line in the form of the vectors of the original HyperShard,
 * an answer a line under the same names.  A question that is refused gets an "error". */
#include "base/io.h"
#include "base/vec.h"
#include "cli/layout_answer.h"
#include "shard/layout_text.h"
#include "cli/operator.h"

#include <stdio.h>
#include <string.h>

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct {
  int64_t *at;
  int64_t n;
} integers;

/* A list of whole numbers; n is -1 when the key is missing or null.  mem_free(out->at). */
static hp_status read_integers(const tree_node *q, const char *key, integers *out) {
  const tree_node *list;
  *out = (integers){.n = -1};
  HP_TRY(tree_opt_list(q, key, &list));
  if (!list) return HP_OK;
  out->at = mem_calloc((size_t)list->len + 1, sizeof *out->at);
  HP_TRY_MEM(out->at);
  out->n = list->len;
  hp_status st = HP_OK;
  for (uint32_t i = 0; i < list->len && !st; i++) st = tree_as_int(list->child[i], &out->at[i]);
  if (st) mem_free(out->at);
  return st;
}

static hp_status make_mesh(const tree_node *q, const integers *size, const integers *rank,
                           mesh *out) {
  const tree_node *names;
  const char *name[MESH_AXES];
  HP_TRY(tree_need_list(q, "names", &names));
  if (size->n < 1 || size->n > MESH_AXES)
    HP_FAIL(HP_ERR_LAYOUT, "mesh: expected a list of 1 to %d sizes", MESH_AXES);
  if ((int64_t)names->len != size->n)
    HP_FAIL(HP_ERR_LAYOUT, "mesh: %lld sizes and %u names; give every axis one name",
            (long long)size->n, names->len);
  for (int64_t a = 0; a < size->n; a++) HP_TRY(tree_as_string(names->child[a], &name[a]));
  return mesh_init(size->at, name, (int)size->n, rank->n < 0 ? NULL : rank->at, rank->n, out);
}

static hp_status read_mesh(const tree_node *q, mesh *out) {
  integers size, rank;
  HP_TRY(read_integers(q, "mesh", &size));
  hp_status st = read_integers(q, "rank_list", &rank);
  if (!st) {
    st = make_mesh(q, &size, &rank, out);
    mem_free(rank.at);
  }
  mem_free(size.at);
  return st;
}

/* "dp", "None" or a list of names. */
static hp_status read_entry(const tree_node *n, const mesh *m, layout *l, int dim) {
  const char *name;
  if (n->kind != TREE_LIST) {
    HP_TRY(tree_as_string(n, &name));
    return layout_split_dim(m, l, dim, &name, 1);
  }
  for (uint32_t i = 0; i < n->len; i++) {
    HP_TRY(tree_as_string(n->child[i], &name));
    HP_TRY(layout_split_dim(m, l, dim, &name, 1));
  }
  return HP_OK;
}

static hp_status read_layout(const tree_node *list, const mesh *m, layout *out) {
  layout l = {0};
  if (list->len > LAYOUT_DIMS)
    TREE_FAIL(list, "%u dims; a tensor has at most %d", list->len, LAYOUT_DIMS);
  for (uint32_t d = 0; d < list->len; d++) HP_TRY(read_entry(list->child[d], m, &l, l.rank++));
  *out = l;
  return HP_OK;
}

/* {"tp": "sum"} */
static hp_status read_partial(const tree_node *q, const mesh *m, layout *l) {
  const tree_node *p;
  HP_TRY(tree_opt_map(q, "partial", &p));
  for (uint32_t i = 0; p && i < p->len; i++) {
    const char *op;
    HP_TRY(tree_as_string(p->child[i], &op));
    HP_TRY(layout_set_partial(m, l, p->child[i]->key, op));
  }
  return HP_OK;
}

/* The shape, when there is one: as many sizes as the layout has dims. */
static hp_status check_shape(const integers *shape, const layout *l) {
  int64_t all = 1;
  if (shape->n >= 0 && shape->n != l->rank)
    HP_FAIL(HP_ERR_SHAPE, "the tensor has %lld dims, its layout %d", (long long)shape->n, l->rank);
  for (int64_t d = 0; d < shape->n; d++)
    if (shape->at[d] < 0 || __builtin_mul_overflow(all, shape->at[d] ? shape->at[d] : 1, &all))
      HP_FAIL(HP_ERR_SHAPE, "the shape is negative, or has more elements than can be counted");
  return HP_OK;
}

/* --- answering -------------------------------------------------------------------------------- */

/* tensor_map as it was called: a list stays one, and "None" in it is -1 too. */
static void put_called_map(json_writer *w, const mesh *m, const tree_node *entry) {
  if (entry->kind == TREE_LIST) {
    json_open_list(w);
    for (uint32_t i = 0; i < entry->len; i++) put_called_map(w, m, entry->child[i]);
    json_close(w);
    return;
  }
  int axis = mesh_axis(m, entry->string, entry->len);
  json_put_int(w, axis < 0 ? -1 : m->axes - 1 - axis);
}

static hp_status ask_layout(json_writer *w, const tree_node *q, const mesh *m,
                            const integers *shape) {
  const tree_node *call;
  layout l;
  HP_TRY(tree_opt_list(q, "call", &call));
  if (!call) { /* a mesh alone */
    json_put_key(w, "devices");
    json_put_int(w, m->devices);
    return HP_OK;
  }
  HP_TRY(read_layout(call, m, &l));
  HP_TRY(read_partial(q, m, &l));
  HP_TRY(check_shape(shape, &l));
  json_put_key(w, "tensor_map");
  put_called_map(w, m, call);
  return answer_layout(w, m, &l, shape->n < 0 ? NULL : shape->at);
}

static hp_status ask_path(json_writer *w, const tree_node *q, const mesh *m,
                          const integers *shape) {
  const tree_node *list;
  layout from, to;
  path p;
  HP_TRY(tree_need_list(q, "from", &list));
  HP_TRY(read_layout(list, m, &from));
  HP_TRY(read_partial(q, m, &from));
  HP_TRY(tree_need_list(q, "to", &list));
  HP_TRY(read_layout(list, m, &to));
  if (shape->n < 0) HP_FAIL(HP_ERR_SHAPE, "a path from one layout to another needs the shape");
  HP_TRY(check_shape(shape, &from));
  HP_TRY(path_find(&(path_request){.mesh = m, .shape = shape->at, .element_bytes = 4}, &from, &to,
                   &p));
  return answer_path(w, m, &p);
}

/* --- derivation ------------------------------------------------------------------------------- */

typedef struct {
  rule r;
  dims shape[RULE_TENSORS];
  layout in[RULE_TENSORS], need[RULE_TENSORS], out[RULE_TENSORS];
  int n;
} derive_question;

static hp_status read_operand(const tree_node *n, const mesh *m, dims *shape, layout *l) {
  const tree_node *list;
  *shape = (dims){.rank = -1};
  if (n->kind == TREE_NULL) return HP_OK;
  HP_TRY(tree_need_list(n, "shape", &list));
  if (list->len > LAYOUT_DIMS) TREE_FAIL(list, "more than %d dims", LAYOUT_DIMS);
  shape->rank = (int)list->len;
  for (int d = 0; d < shape->rank; d++) {
    HP_TRY(tree_as_int(list->child[d], &shape->dim[d]));
    if (shape->dim[d] < 0 || shape->dim[d] > INT32_MAX)
      TREE_FAIL(list->child[d], "is no size of a dim");
  }
  HP_TRY(tree_need_list(n, "layout", &list));
  HP_TRY(read_layout(list, m, l));
  if (l->rank != shape->rank)
    TREE_FAIL(list, "%d entries for a tensor of %d dims", l->rank, shape->rank);
  return read_partial(n, m, l);
}

static bool has_same_cuts(const layout *a, const layout *b) {
  return !memcmp(a->n, b->n, sizeof a->n) && !memcmp(a->axis, b->axis, sizeof a->axis);
}

/* Operands that are only to be cut further: done locally, from what they hold. */
static void put_slice_inputs(json_writer *w, const derive_question *d) {
  bool any = false;
  for (int i = 0; i < d->n; i++) {
    if (d->r.in[i].absent || has_same_cuts(&d->in[i], &d->need[i])) continue;
    if (!any) {
      json_put_key(w, "slice_inputs");
      json_open_list(w);
    }
    any = true;
    json_put_int(w, i);
  }
  if (any) json_close(w);
}

/* The result's dims as a device has them. */
static void put_local_shape(json_writer *w, const derive_question *d, const mesh *m) {
  json_put_key(w, "local_shape");
  json_open_list(w);
  for (int i = 0; i < d->out[0].rank; i++)
    json_put_int(w, layout_shard_size(m, &d->out[0], i, rule_dim_size(&d->r, &d->r.out[0], i)));
  json_close(w);
}

/* Attributes that a device's own part needs: of reshape and slice. */
static hp_status put_local(json_writer *w, const char *op, const tree_node *attrs,
                           const derive_question *d, const mesh *m) {
  if (!strcmp(op, "reshape")) {
    json_put_key(w, "local");
    json_open_map(w);
    put_local_shape(w, d, m);
    json_close(w);
  }
  if (strcmp(op, "slice")) return HP_OK;
  const tree_node *begin, *end;
  HP_TRY(tree_need_list(attrs, "begin", &begin));
  HP_TRY(tree_need_list(attrs, "end", &end));
  json_put_key(w, "local");
  json_open_map(w);
  json_put_key(w, "begin");
  json_put_tree(w, begin);
  json_put_key(w, "end");
  json_open_list(w);
  for (uint32_t i = 0; i < end->len; i++) {
    bool cut = d->out[0].n[i] > 0; /* then it is taken whole */
    json_put_int(w, cut ? layout_shard_size(m, &d->out[0], (int)i, end->child[i]->integer)
                        : end->child[i]->integer);
  }
  json_close(w);
  json_close(w);
  return HP_OK;
}

static hp_status derive_layouts(json_writer *w, const tree_node *q, const mesh *m,
                                derive_question *d) {
  const char *name;
  const tree_node *attrs, *inputs;
  HP_TRY(tree_need_string(q, "op", &name));
  HP_TRY(tree_need_map(q, "attrs", &attrs));
  HP_TRY(tree_need_list(q, "inputs", &inputs));
  if (inputs->len > RULE_TENSORS) TREE_FAIL(inputs, "more than %d operands", RULE_TENSORS);
  d->n = (int)inputs->len;
  for (int i = 0; i < d->n; i++) HP_TRY(read_operand(inputs->child[i], m, &d->shape[i], &d->in[i]));
  HP_TRY(operator_rule(name, attrs, d->shape, d->n, &d->r));
  HP_TRY(rule_derive(m, &d->r, d->in, d->need, d->out));
  json_put_key(w, "outputs");
  json_open_list(w);
  for (int o = 0; o < d->r.n_out; o++) {
    json_open_map(w);
    answer_entries(w, m, &d->out[o]);
    json_close(w);
  }
  json_close(w);
  put_slice_inputs(w, d);
  return put_local(w, name, attrs, d, m);
}

static hp_status ask_derive(json_writer *w, const tree_node *q, const mesh *m) {
  derive_question *d = mem_calloc(1, sizeof *d);
  HP_TRY_MEM(d);
  hp_status st = derive_layouts(w, q, m, d);
  mem_free(d);
  return st;
}

static hp_status answer_question(json_writer *w, const tree_node *q, const mesh *m) {
  integers shape;
  if (tree_get(q, "op")) return ask_derive(w, q, m);
  HP_TRY(read_integers(q, "shape", &shape));
  hp_status st = tree_get(q, "from") ? ask_path(w, q, m, &shape) : ask_layout(w, q, m, &shape);
  mem_free(shape.at);
  return st;
}

static void put_id(json_writer *w, const tree_node *q) {
  const tree_node *id = tree_get(q, "id");
  json_open_map(w);
  if (!id) return;
  json_put_key(w, "id");
  json_put_tree(w, id);
}

static hp_status answer_into(str *out, const tree_node *q) {
  json_writer w = {.out = out};
  mesh m;
  put_id(&w, q);
  HP_TRY(tree_expect(q, TREE_MAP));
  HP_TRY(read_mesh(q, &m));
  hp_status st = answer_question(&w, q, &m);
  if (!st) json_close(&w);
  mesh_free(&m);
  return st;
}

static hp_status answer_line(const char *line, size_t n, const char *file, size_t number) {
  tree t = {0};
  str out = {0};
  hp_status st = json_parse_line(line, n, file, number, &t);
  if (!st) st = answer_into(&out, t.root);
  if (st == HP_ERR_OOM) return st;
  if (st) {
    str_clear(&out);
    json_writer w = {.out = &out};
    put_id(&w, t.root);
    json_put_key(&w, "error");
    json_put_string(&w, err_message());
    json_close(&w);
    err_clear();
  }
  st = str_status(&out);
  if (!st) puts(out.at);
  str_free(&out);
  tree_free(&t);
  return st;
}

hp_status layout_batch(const char *file) {
  char *bytes;
  size_t n, number = 1;
  HP_TRY(file_read(file, 0, &bytes, &n));
  hp_status st = HP_OK;
  for (const char *at = bytes, *end = bytes + n; at < end && !st; number++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    if (strspn(at, " \t\r") < (size_t)(stop - at))
      st = answer_line(at, (size_t)(stop - at), file, number);
    at = stop + 1;
  }
  mem_free(bytes);
  return st;
}
