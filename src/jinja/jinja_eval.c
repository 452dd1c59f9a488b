#include "jinja/jinja_eval.h"

#include "jinja/jinja_call.h"
#include "jinja/jinja_format.h"
#include "jinja/jinja_ops.h"

#include <string.h>

/* --- variables --------------------------------------------------------------------------- */

hp_status jinja_set_variable(jinja_run *r, uint32_t name, const jinja_value *value) {
  jinja_scope *s = r->scope;
  if (!s) {
    r->global[name] = *value;
    return HP_OK;
  }
  HP_TRY(jinja_charge(r, s->len / 8));
  for (uint32_t i = 0; i < s->len; i++) {
    if (s->at[i].name != name) continue;
    s->at[i].value = *value;
    return HP_OK;
  }
  if (s->len == s->cap) {
    jinja_variable *at;
    uint32_t cap = s->cap ? 2 * s->cap : 8;
    JINJA_NEW(r, at, cap);
    if (s->len) memcpy(at, s->at, s->len * sizeof *at);
    s->at = at;
    s->cap = cap;
  }
  s->at[s->len++] = (jinja_variable){name, *value};
  return HP_OK;
}

hp_status jinja_get_variable(jinja_run *r, uint32_t name, jinja_value *out) {
  for (const jinja_scope *s = r->scope; s; s = s->parent) {
    HP_TRY(jinja_charge(r, s->len / 8));
    for (uint32_t i = 0; i < s->len; i++) {
      if (s->at[i].name != name) continue;
      *out = s->at[i].value;
      return HP_OK;
    }
  }
  size_t n;
  const char *text = jinja_name(r->t, name, &n);
  *out = r->global[name];
  if (out->kind != JINJA_MISSING) return HP_OK;
  const jinja_row *row = jinja_find_row(jinja_functions, 0, text, n);
  *out = row ? (jinja_value){.kind = JINJA_FUNCTION, .function = row} : jinja_undefined(0, text, n);
  return HP_OK;
}

/* --- values and containers --------------------------------------------------------------- */

static hp_status eval_seq(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value seq;
  HP_TRY(jinja_new_seq(r, n->kind == JINJA_N_LIST ? JINJA_LIST : JINJA_TUPLE, n->list.len, &seq));
  for (uint32_t i = 0; i < n->list.len; i++) HP_TRY(jinja_eval(r, n->list.at[i], &seq.seq->at[i]));
  *out = seq;
  return HP_OK;
}

static hp_status eval_dict(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value dict, key, value;
  HP_TRY(jinja_new_dict(r, JINJA_DICT, n->list.len / 2, &dict));
  for (uint32_t i = 0; i < n->list.len; i += 2) {
    HP_TRY(jinja_eval(r, n->list.at[i], &key));
    HP_TRY(jinja_eval(r, n->list.at[i + 1], &value));
    r->at = n;
    HP_TRY(jinja_dict_set(r, dict.dict, &key, &value));
  }
  *out = dict;
  return HP_OK;
}

static hp_status eval_attribute(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value v;
  size_t len;
  HP_TRY(jinja_eval(r, n->a, &v));
  r->at = n;
  const char *name = jinja_name(r->t, n->name, &len);
  return jinja_get_attribute(r, &v, name, len, out);
}

static hp_status eval_item(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value v, key;
  HP_TRY(jinja_eval(r, n->a, &v));
  HP_TRY(jinja_eval(r, n->b, &key));
  r->at = n;
  return jinja_get_item(r, &v, &key, out);
}

static hp_status eval_slice(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value v, part[3];
  HP_TRY(jinja_eval(r, n->a, &v));
  for (int i = 0; i < 3; i++) {
    part[i] = jinja_none();
    if (n->list.at[i]) HP_TRY(jinja_eval(r, n->list.at[i], &part[i]));
  }
  r->at = n;
  return jinja_slice(r, &v, part, out);
}

/* --- calls ------------------------------------------------------------------------------- */

/* caller: one more named argument; may be NULL. */
static hp_status eval_arguments(jinja_run *r, const jinja_node *n, const jinja_value *caller,
                                jinja_args *a) {
  jinja_value *at, *named, *name;
  JINJA_NEW(r, at, n->list.len);
  JINJA_NEW(r, named, n->more.len + 1);
  JINJA_NEW(r, name, n->more.len + 1);
  for (uint32_t i = 0; i < n->list.len; i++) HP_TRY(jinja_eval(r, n->list.at[i], &at[i]));
  for (uint32_t i = 0; i < n->more.len; i++) {
    size_t len;
    const char *text = jinja_name(r->t, n->more.at[i]->name, &len);
    name[i] = jinja_string(text, len);
    HP_TRY(jinja_eval(r, n->more.at[i]->a, &named[i]));
  }
  *a = (jinja_args){at, named, name, n->list.len, n->more.len};
  if (caller) {
    named[a->n_named] = *caller;
    name[a->n_named++] = jinja_string("caller", 6);
  }
  r->at = n;
  return HP_OK;
}

hp_status jinja_eval_call(jinja_run *r, const jinja_node *n, const jinja_value *caller,
                          jinja_value *out) {
  jinja_value f;
  jinja_args a;
  HP_TRY(jinja_eval(r, n->a, &f));
  HP_TRY(eval_arguments(r, n, caller, &a));
  switch (f.kind) {
  case JINJA_METHOD: return jinja_call_row(r, f.bound->method, "method", &f.bound->self, &a, out);
  case JINJA_FUNCTION: return jinja_call_row(r, f.function, "function", NULL, &a, out);
  case JINJA_MACRO: return f.macro->call(r, f.macro, &a, out);
  case JINJA_UNDEFINED: return jinja_undefined_error(r, &f);
  default: JINJA_FAIL(r, "a %s cannot be called", jinja_type(&f));
  }
}

static hp_status eval_call(jinja_run *r, const jinja_node *n, jinja_value *out) {
  return jinja_eval_call(r, n, NULL, out);
}

static hp_status eval_row(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value v = r->piped;
  jinja_args a;
  if (n->a) HP_TRY(jinja_eval(r, n->a, &v));
  HP_TRY(eval_arguments(r, n, NULL, &a));
  return jinja_call_row(r, n->row, n->kind == JINJA_N_FILTER ? "filter" : "test", &v, &a, out);
}

/* --- operators --------------------------------------------------------------------------- */

static hp_status eval_sign(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value v;
  HP_TRY(jinja_eval(r, n->a, &v));
  r->at = n;
  return jinja_negate(r, &v, n->kind == JINJA_N_NEG, out);
}

static hp_status eval_not(jinja_run *r, const jinja_node *n, jinja_value *out) {
  bool truth;
  HP_TRY(jinja_eval_truth(r, n->a, &truth));
  *out = jinja_bool(!truth);
  return HP_OK;
}

/* `and` and `or` give one of their operands; the second is only computed if it is needed. */
static hp_status eval_logic(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value v;
  HP_TRY(jinja_eval(r, n->a, &v));
  if (jinja_truth(&v) == (n->kind == JINJA_N_AND)) return jinja_eval(r, n->b, out);
  *out = v;
  return HP_OK;
}

static hp_status eval_binary(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value a, b;
  HP_TRY(jinja_eval(r, n->a, &a));
  HP_TRY(jinja_eval(r, n->b, &b));
  r->at = n;
  if (n->op == JINJA_MOD && a.kind == JINJA_STRING) return jinja_format_percent(r, &a, &b, out);
  return jinja_binary(r, (jinja_op)n->op, &a, &b, out);
}

/* a < b < c is a < b and b < c. */
static hp_status eval_compare(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value a, b;
  bool holds = true;
  HP_TRY(jinja_eval(r, n->a, &a));
  for (uint32_t i = 0; i < n->list.len && holds; i++, a = b) {
    HP_TRY(jinja_eval(r, n->list.at[i]->a, &b));
    r->at = n->list.at[i];
    HP_TRY(jinja_relation(r, (jinja_op)n->list.at[i]->op, &a, &b, &holds));
  }
  *out = jinja_bool(holds);
  return HP_OK;
}

static hp_status eval_concat(jinja_run *r, const jinja_node *n, jinja_value *out) {
  jinja_value *v;
  JINJA_NEW(r, v, n->list.len);
  for (uint32_t i = 0; i < n->list.len; i++) HP_TRY(jinja_eval(r, n->list.at[i], &v[i]));
  r->at = n;
  size_t start = r->buffer.len;
  for (uint32_t i = 0; i < n->list.len; i++) HP_TRY(jinja_add_str(r, &v[i]));
  return jinja_take(r, start, out);
}

static hp_status eval_if_else(jinja_run *r, const jinja_node *n, jinja_value *out) {
  static const char none[] = "the condition of an inline if is false, and it has no else";
  bool truth;
  HP_TRY(jinja_eval_truth(r, n->a, &truth));
  if (truth) return jinja_eval(r, n->b, out);
  if (n->c) return jinja_eval(r, n->c, out);
  *out = jinja_undefined(JINJA_NOTE, none, sizeof none - 1);
  return HP_OK;
}

static hp_status eval_leaf(jinja_run *r, const jinja_node *n, jinja_value *out) {
  if (n->kind != JINJA_N_CONST) return jinja_get_variable(r, n->name, out);
  *out = n->constant;
  return HP_OK;
}

hp_status jinja_eval(jinja_run *r, const jinja_node *n, jinja_value *out) {
  static hp_status (*const fn[])(jinja_run *, const jinja_node *, jinja_value *) =
      {[JINJA_N_CONST] = eval_leaf,    [JINJA_N_NAME] = eval_leaf,
       [JINJA_N_LIST] = eval_seq,      [JINJA_N_TUPLE] = eval_seq,
       [JINJA_N_DICT] = eval_dict,     [JINJA_N_ATTR] = eval_attribute,
       [JINJA_N_ITEM] = eval_item,     [JINJA_N_SLICE] = eval_slice,
       [JINJA_N_CALL] = eval_call,     [JINJA_N_FILTER] = eval_row,
       [JINJA_N_TEST] = eval_row,      [JINJA_N_NOT] = eval_not,
       [JINJA_N_NEG] = eval_sign,      [JINJA_N_POS] = eval_sign,
       [JINJA_N_AND] = eval_logic,     [JINJA_N_OR] = eval_logic,
       [JINJA_N_BINARY] = eval_binary, [JINJA_N_COMPARE] = eval_compare,
       [JINJA_N_CONCAT] = eval_concat, [JINJA_N_IF_ELSE] = eval_if_else};
  r->at = n;
  HP_TRY(jinja_enter(r));
  HP_TRY(fn[n->kind](r, n, out));
  r->depth--;
  return HP_OK;
}

hp_status jinja_eval_truth(jinja_run *r, const jinja_node *n, bool *out) {
  jinja_value v;
  HP_TRY(jinja_eval(r, n, &v));
  *out = jinja_truth(&v);
  return HP_OK;
}
