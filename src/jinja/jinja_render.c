/* Statements, run; renderings. */
#include "jinja/jinja_eval.h"
#include "jinja/jinja_ops.h"

#include <string.h>

/* How a body ended. */
typedef enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static hp_status run_nodes(jinja_run *r, const jinja_nodes *nodes, flow *f);

/* A body's output as a string. */
static hp_status capture(jinja_run *r, const jinja_nodes *nodes, jinja_value *out) {
  size_t start = r->buffer.len;
  flow f;
  HP_TRY(run_nodes(r, nodes, &f));
  return jinja_take(r, start, out);
}

/* A body in a scope of its own. */
static jinja_scope *open_scope(jinja_run *r, jinja_scope *scope) {
  jinja_scope *outer = r->scope;
  scope->parent = outer;
  r->scope = scope;
  return outer;
}

static hp_status new_scope(jinja_run *r, jinja_scope *parent, jinja_scope **out) {
  jinja_scope *s;
  JINJA_NEW(r, s, 1);
  s->parent = parent;
  *out = s;
  return HP_OK;
}

/* --- set --------------------------------------------------------------------------------- */

static hp_status set_member(jinja_run *r, const jinja_node *target, const jinja_value *v) {
  jinja_value space;
  size_t n;
  HP_TRY(jinja_get_variable(r, target->name, &space));
  const char *text = jinja_name(r->t, target->name, &n);
  if (space.kind != JINJA_NAMESPACE)
    JINJA_FAIL(r, "attributes can be set of a namespace only, and '%s' is a %s", text,
               jinja_type(&space));
  text = jinja_name(r->t, target->attribute, &n);
  const jinja_value key = jinja_string(text, n);
  return jinja_dict_set(r, space.dict, &key, v);
}

static hp_status assign(jinja_run *r, const jinja_node *target, const jinja_value *v) {
  r->at = target;
  if (target->kind == JINJA_N_NAME) return jinja_set_variable(r, target->name, v);
  if (target->kind == JINJA_N_MEMBER) return set_member(r, target, v);
  const jinja_value *at;
  uint32_t n;
  if (v->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, v);
  HP_TRY(jinja_iterate(r, v, &at, &n));
  if (n != target->list.len)
    JINJA_FAIL(r, "%u values for %u variables", (unsigned)n, (unsigned)target->list.len);
  for (uint32_t i = 0; i < n; i++) HP_TRY(assign(r, target->list.at[i], &at[i]));
  return HP_OK;
}

static hp_status run_set(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_value v;
  (void)f;
  HP_TRY(jinja_eval(r, n->b, &v));
  return assign(r, n->a, &v);
}

/* Sets in the block stay in it. */
static hp_status capture_filtered(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_scope *inner = NULL;
  HP_TRY(new_scope(r, r->scope, &inner));
  jinja_scope *outer = open_scope(r, inner);
  HP_TRY(capture(r, &n->list, out));
  r->scope = outer;
  if (!n->b) return HP_OK;
  r->piped = *out;
  return jinja_eval(r, n->b, out);
}

static hp_status run_set_block(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_value v;
  (void)f;
  HP_TRY(capture_filtered(r, n, &v));
  return assign(r, n->a, &v);
}

static hp_status run_filtered(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_value v;
  (void)f;
  HP_TRY(capture_filtered(r, n, &v));
  return jinja_add_str(r, &v);
}

/* --- text, output, if -------------------------------------------------------------------- */

static hp_status run_text(jinja_run *r, const jinja_node *n, flow *f) {
  (void)f;
  return jinja_add(r, n->constant.text, n->constant.len);
}

static hp_status run_print(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_value v;
  (void)f;
  HP_TRY(jinja_eval(r, n->a, &v));
  r->at = n;
  return jinja_add_str(r, &v);
}

static hp_status run_if(jinja_run *r, const jinja_node *n, flow *f) {
  for (uint32_t i = 0; i < n->list.len; i++) {
    const jinja_node *branch = n->list.at[i];
    bool truth = true;
    if (branch->a) HP_TRY(jinja_eval_truth(r, branch->a, &truth));
    if (truth) return run_nodes(r, &branch->list, f);
  }
  return HP_OK;
}

static hp_status run_generation(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_scope *inner = NULL;
  HP_TRY(new_scope(r, r->scope, &inner));
  jinja_scope *outer = open_scope(r, inner);
  HP_TRY(run_nodes(r, &n->list, f));
  r->scope = outer;
  return HP_OK;
}

static hp_status run_jump(jinja_run *r, const jinja_node *n, flow *f) {
  (void)r;
  *f = n->kind == JINJA_N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
  return HP_OK;
}

/* The values are computed outside of the scope that they are set in. */
static hp_status run_with(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_scope *inner = NULL;
  jinja_value *v;
  JINJA_NEW(r, v, n->more.len);
  for (uint32_t i = 0; i < n->more.len; i++) HP_TRY(jinja_eval(r, n->more.at[i]->b, &v[i]));
  HP_TRY(new_scope(r, r->scope, &inner));
  jinja_scope *outer = open_scope(r, inner);
  for (uint32_t i = 0; i < n->more.len; i++) HP_TRY(assign(r, n->more.at[i]->a, &v[i]));
  HP_TRY(run_nodes(r, &n->list, f));
  r->scope = outer;
  return HP_OK;
}

/* --- for --------------------------------------------------------------------------------- */

/* An empty scope for the next iteration: the same again, unless a macro has kept it. */
static hp_status next_scope(jinja_run *r, jinja_scope **scope) {
  jinja_scope *parent = (*scope)->parent;
  if ((*scope)->kept) HP_TRY(new_scope(r, parent, scope));
  (*scope)->len = 0;
  r->scope = *scope;
  return HP_OK;
}

/* The values whose condition holds. */
static hp_status filter_values(jinja_run *r, const jinja_node *n, jinja_scope **scope,
                               const jinja_value **at, uint32_t *len) {
  jinja_value kept;
  uint32_t k = 0;
  HP_TRY(jinja_new_seq(r, JINJA_LIST, *len, &kept));
  for (uint32_t i = 0; i < *len; i++) {
    bool truth;
    HP_TRY(next_scope(r, scope));
    HP_TRY(assign(r, n->a, &(*at)[i]));
    HP_TRY(jinja_eval_truth(r, n->c, &truth));
    if (truth) kept.seq->at[k++] = (*at)[i];
  }
  *at = kept.seq->at;
  *len = k;
  return HP_OK;
}

static hp_status run_iterations(jinja_run *r, const jinja_node *n, jinja_scope **scope,
                                jinja_loop *loop, uint32_t loop_name) {
  const jinja_value self = {.kind = JINJA_LOOP, .loop = loop};
  for (uint32_t i = 0; i < loop->len; i++) {
    flow f = FLOW_ON;
    loop->index = i;
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(next_scope(r, scope));
    if (loop_name) HP_TRY(jinja_set_variable(r, loop_name, &self));
    HP_TRY(assign(r, n->a, &loop->at[i]));
    HP_TRY(run_nodes(r, &n->list, &f));
    if (f == FLOW_BREAK) break;
  }
  return HP_OK;
}

static hp_status run_for(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_value v;
  jinja_scope *scope = NULL, *outer;
  jinja_loop *loop;
  const jinja_value *at;
  uint32_t len;
  HP_TRY(jinja_eval(r, n->b, &v));
  r->at = n;
  HP_TRY(jinja_iterate(r, &v, &at, &len));
  HP_TRY(new_scope(r, r->scope, &scope));
  outer = open_scope(r, scope);
  if (n->c) HP_TRY(filter_values(r, n, &scope, &at, &len));
  JINJA_NEW(r, loop, 1);
  *loop = (jinja_loop){.at = at, .len = len};
  HP_TRY(run_iterations(r, n, &scope, loop, r->loop_name));
  if (!len) {
    HP_TRY(next_scope(r, &scope));
    HP_TRY(run_nodes(r, &n->more, f));
  }
  r->scope = outer;
  return HP_OK;
}

/* --- macros ------------------------------------------------------------------------------ */

static const jinja_value *argument_named(const jinja_args *a, const char *name, size_t n) {
  for (uint32_t i = 0; i < a->n_named; i++)
    if (a->name[i].len == n && !memcmp(a->name[i].text, name, n)) return &a->named[i];
  return NULL;
}

/* Every name of an argument is one of a parameter without a value yet. */
static hp_status check_names(jinja_run *r, const jinja_node *macro, const jinja_args *a) {
  size_t len;
  const char *name = jinja_name(r->t, macro->name, &len);
  if (a->n > macro->more.len)
    JINJA_FAIL(r, "the macro '%s' takes %u arguments, %u are given", name,
               (unsigned)macro->more.len, (unsigned)a->n);
  for (uint32_t i = 0; i < a->n_named; i++) {
    uint32_t k = a->n;
    if (jinja_is(&a->name[i], "caller")) continue;
    for (; k < macro->more.len; k++) {
      size_t n;
      const char *param = jinja_name(r->t, macro->more.at[k]->name, &n);
      if (n == a->name[i].len && !memcmp(param, a->name[i].text, n)) break;
    }
    if (k == macro->more.len)
      JINJA_FAIL(r, "the macro '%s' has no argument '%.*s' to set", name, (int)a->name[i].len,
                 a->name[i].text);
  }
  return HP_OK;
}

static hp_status bind_macro(jinja_run *r, const jinja_node *macro, const jinja_args *a) {
  for (uint32_t i = 0; i < macro->more.len; i++) {
    const jinja_node *param = macro->more.at[i];
    size_t n;
    const char *name = jinja_name(r->t, param->name, &n);
    const jinja_value *given = i < a->n ? &a->at[i] : argument_named(a, name, n);
    jinja_value v = jinja_undefined(0, name, n);
    if (given) v = *given;
    else if (param->a) HP_TRY(jinja_eval(r, param->a, &v));
    HP_TRY(jinja_set_variable(r, param->name, &v));
  }
  const jinja_value *caller = argument_named(a, "caller", 6);
  return caller && r->caller_name ? jinja_set_variable(r, r->caller_name, caller) : HP_OK;
}

static hp_status call_macro(jinja_run *r, const jinja_macro *m, const jinja_args *a,
                            jinja_value *out) {
  jinja_scope *caller = r->scope;
  HP_TRY(jinja_enter(r));
  HP_TRY(jinja_charge(r, (uint64_t)a->n_named * m->node->more.len / 8));
  HP_TRY(check_names(r, m->node, a));
  HP_TRY(new_scope(r, m->scope, &r->scope));
  HP_TRY(bind_macro(r, m->node, a));
  HP_TRY(capture(r, &m->node->list, out));
  r->scope = caller;
  r->depth--;
  return HP_OK;
}

static hp_status new_macro(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_macro *m;
  JINJA_NEW(r, m, 1);
  *m = (jinja_macro){n, r->scope, call_macro};
  for (jinja_scope *s = r->scope; s && !s->kept; s = s->parent) s->kept = true;
  *out = (jinja_value){.kind = JINJA_MACRO, .macro = m};
  return HP_OK;
}

static hp_status run_macro(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_value v;
  (void)f;
  HP_TRY(new_macro(r, n, &v));
  return jinja_set_variable(r, n->name, &v);
}

static hp_status run_call_block(jinja_run *r, const jinja_node *n, flow *f) {
  jinja_value caller, v;
  (void)f;
  HP_TRY(new_macro(r, n, &caller));
  HP_TRY(jinja_eval_call(r, n->a, &caller, &v));
  return jinja_add_str(r, &v);
}

/* --- templates --------------------------------------------------------------------------- */

static hp_status run_nodes(jinja_run *r, const jinja_nodes *nodes, flow *f) {
  static hp_status (*const fn[])(jinja_run *, const jinja_node *,
                                 flow *) = {[JINJA_N_TEXT] = run_text,
                                            [JINJA_N_PRINT] = run_print,
                                            [JINJA_N_IF] = run_if,
                                            [JINJA_N_FOR] = run_for,
                                            [JINJA_N_SET] = run_set,
                                            [JINJA_N_SET_BLOCK] = run_set_block,
                                            [JINJA_N_MACRO] = run_macro,
                                            [JINJA_N_FILTERED] = run_filtered,
                                            [JINJA_N_GENERATION] = run_generation,
                                            [JINJA_N_BREAK] = run_jump,
                                            [JINJA_N_CONTINUE] = run_jump,
                                            [JINJA_N_WITH] = run_with,
                                            [JINJA_N_CALL_BLOCK] = run_call_block};
  *f = FLOW_ON;
  for (uint32_t i = 0; i < nodes->len && *f == FLOW_ON; i++) {
    r->at = nodes->at[i];
    HP_TRY(jinja_enter(r));
    HP_TRY(fn[nodes->at[i]->kind](r, nodes->at[i], f));
    r->depth--;
  }
  return HP_OK;
}

/* The context's values of the names that the template uses. */
static hp_status read_context(jinja_run *r, const tree_node *context) {
  size_t n = r->t->names.len;
  JINJA_NEW(r, r->global, n + 1);
  for (uint32_t id = 1; id <= n; id++) {
    size_t len;
    const char *name = jinja_name(r->t, id, &len);
    const tree_node *node = tree_get_n(context, name, len);
    if (node) HP_TRY(jinja_from_tree(r, node, &r->global[id]));
    if (len == 4 && !memcmp(name, "loop", 4)) r->loop_name = id;
    if (len == 6 && !memcmp(name, "caller", 6)) r->caller_name = id;
  }
  return HP_OK;
}

hp_status jinja_render(const jinja *t, const tree_node *context, const jinja_options *options,
                       str *out) {
  const jinja_options o = options ? *options : (jinja_options){0};
  jinja_run r = {.t = t, .now = o.now, .most = o.steps ? o.steps : JINJA_STEPS_MAX};
  flow f;
  hp_status st = tree_expect(context, TREE_MAP);
  if (!st) st = read_context(&r, context);
  if (!st) st = run_nodes(&r, &t->body, &f);
  if (!st) {
    size_t before = out->len;
    str_add_n(out, r.buffer.at ? r.buffer.at : "", r.buffer.len);
    if ((st = str_status(out))) {
      str_clear(out);
      out->len = before;
    }
  }
  str_free(&r.buffer);
  arena_free(&r.mem);
  return st;
}
