/* Values: made, compared, failures and memory of a rendering. */
#include "jinja/jinja_value.h"

#include "jinja/jinja_node.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- failures and limits ----------------------------------------------------------------- */

hp_status jinja_error(const jinja_run *r, const char *file, int line, const char *fmt, ...) {
  char text[2048];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return err_set(HP_ERR_INPUT, file, line, "%s:%u:%u: %s", r->t->name,
                 r->at ? (unsigned)r->at->line : 1, r->at ? (unsigned)r->at->column : 1, text);
}

hp_status jinja_undefined_error(const jinja_run *r, const jinja_value *v) {
  const int n = v->len > 100 ? 100 : (int)v->len;
  if (!v->owner) JINJA_FAIL(r, "'%.*s' is undefined", n, v->text);
  if (v->owner == JINJA_NOTE) JINJA_FAIL(r, "%.*s", n, v->text);
  const jinja_value owner = {.kind = v->owner};
  bool number = n && (v->text[n - 1] >= '0' && v->text[n - 1] <= '9') &&
                strspn(v->text, "-0123456789") >= (size_t)n;
  JINJA_FAIL(r, "'%s object' has no %s '%.*s'", jinja_type(&owner),
             number ? "element" : "attribute", n, v->text);
}

hp_status jinja_charge(jinja_run *r, uint64_t n) {
  r->steps += n;
  if (r->steps > r->most)
    JINJA_FAIL(r, "the template takes more than %llu steps", (unsigned long long)r->most);
  return HP_OK;
}

hp_status jinja_enter(jinja_run *r) {
  if (r->depth >= JINJA_DEPTH_MAX)
    JINJA_FAIL(r, "more than %d evaluations in each other: does a macro call itself without end?",
               JINJA_DEPTH_MAX);
  r->depth++;
  return jinja_charge(r, 1);
}

/* --- memory ------------------------------------------------------------------------------ */

static hp_status check_memory(const jinja_run *r, size_t n, size_t size) {
  size_t bytes;
  if (!size_mul(n, size, &bytes) || bytes > JINJA_MEMORY_MAX ||
      r->mem.used > JINJA_MEMORY_MAX - bytes)
    JINJA_FAIL(r, "the values of the template take more than %d MiB", JINJA_MEMORY_MAX >> 20);
  return HP_OK;
}

void *jinja_alloc(jinja_run *r, size_t n, size_t size) {
  void *p = NULL;
  r->refused = check_memory(r, n, size);
  if (!r->refused && !(p = arena_alloc(&r->mem, n, size))) r->refused = HP_ERR_OOM;
  return p;
}

hp_status jinja_add(jinja_run *r, const char *text, size_t n) {
  if (n > JINJA_OUTPUT_MAX || r->buffer.len > JINJA_OUTPUT_MAX - n)
    JINJA_FAIL(r, "the output has more than %d MiB", JINJA_OUTPUT_MAX >> 20);
  HP_TRY(jinja_charge(r, n / 64));
  str_add_n(&r->buffer, text, n);
  return str_status(&r->buffer);
}

hp_status jinja_take(jinja_run *r, size_t start, jinja_value *out) {
  size_t n = r->buffer.len - start;
  char *text;
  JINJA_NEW(r, text, n + 1);
  if (n) memcpy(text, r->buffer.at + start, n);
  if (r->buffer.at) r->buffer.at[start] = 0;
  r->buffer.len = start;
  *out = jinja_string(text, n);
  return HP_OK;
}

/* --- values ------------------------------------------------------------------------------ */

jinja_value jinja_none(void) { return (jinja_value){.kind = JINJA_NONE}; }
jinja_value jinja_bool(bool x) { return (jinja_value){.kind = JINJA_BOOL, .boolean = x}; }
jinja_value jinja_int(int64_t x) { return (jinja_value){.kind = JINJA_INT, .integer = x}; }
jinja_value jinja_float(double x) { return (jinja_value){.kind = JINJA_FLOAT, .number = x}; }

jinja_value jinja_string(const char *text, size_t n) {
  return (jinja_value){.kind = JINJA_STRING, .text = text, .len = (uint32_t)n};
}

jinja_value jinja_undefined(unsigned owner, const char *name, size_t n) {
  return (jinja_value){.kind = JINJA_UNDEFINED,
                       .owner = (uint8_t)owner,
                       .text = name,
                       .len = (uint32_t)n};
}

hp_status jinja_new_seq(jinja_run *r, jinja_kind kind, size_t n, jinja_value *out) {
  jinja_seq *seq;
  JINJA_NEW(r, seq, 1);
  JINJA_NEW(r, seq->at, n);
  HP_TRY(jinja_charge(r, n / 8));
  seq->len = (uint32_t)n;
  *out = (jinja_value){.kind = (uint8_t)kind, .seq = seq};
  return HP_OK;
}

hp_status jinja_new_dict(jinja_run *r, jinja_kind kind, size_t cap, jinja_value *out) {
  jinja_dict *d;
  JINJA_NEW(r, d, 1);
  JINJA_NEW(r, d->at, cap);
  d->cap = (uint32_t)cap;
  *out = (jinja_value){.kind = (uint8_t)kind, .dict = d};
  return HP_OK;
}

static hp_status find_pair(jinja_run *r, const jinja_dict *d, const jinja_value *key,
                           jinja_pair **out) {
  *out = NULL;
  if (key->kind == JINJA_LIST || key->kind == JINJA_DICT)
    JINJA_FAIL(r, "a %s cannot be a key of a dict", jinja_type(key));
  HP_TRY(jinja_charge(r, d->len / 8));
  for (uint32_t i = 0; i < d->len; i++) {
    const jinja_value *k = &d->at[i].key;
    bool same = k->kind == JINJA_STRING && key->kind == JINJA_STRING && k->len == key->len &&
                !memcmp(k->text, key->text, k->len);
    if (!same && (k->kind != JINJA_STRING || key->kind != JINJA_STRING))
      HP_TRY(jinja_equal(r, k, key, &same));
    if (!same) continue;
    *out = &d->at[i];
    break;
  }
  return HP_OK;
}

hp_status jinja_dict_get(jinja_run *r, const jinja_dict *d, const jinja_value *key,
                         const jinja_value **out) {
  jinja_pair *pair;
  HP_TRY(find_pair(r, d, key, &pair));
  *out = pair ? &pair->value : NULL;
  return HP_OK;
}

hp_status jinja_dict_set(jinja_run *r, jinja_dict *d, const jinja_value *key,
                         const jinja_value *value) {
  jinja_pair *pair;
  HP_TRY(find_pair(r, d, key, &pair));
  if (pair) {
    pair->value = *value;
    return HP_OK;
  }
  if (d->len == d->cap) {
    jinja_pair *at;
    uint32_t cap = d->cap < 4 ? 8 : 2 * d->cap;
    JINJA_NEW(r, at, cap);
    if (d->len) memcpy(at, d->at, d->len * sizeof *at);
    d->at = at;
    d->cap = cap;
  }
  d->at[d->len++] = (jinja_pair){*key, *value};
  return HP_OK;
}

static hp_status from_map(jinja_run *r, const tree_node *n, jinja_value *out) {
  HP_TRY(jinja_new_dict(r, JINJA_DICT, n->len, out));
  for (uint32_t i = 0; i < n->len; i++) {
    jinja_pair *pair = &out->dict->at[i];
    pair->key = jinja_string(n->child[i]->key, n->child[i]->key_len);
    HP_TRY(jinja_from_tree(r, n->child[i], &pair->value));
    out->dict->len++;
  }
  return HP_OK;
}

hp_status jinja_from_tree(jinja_run *r, const tree_node *n, jinja_value *out) {
  HP_TRY(jinja_charge(r, 1));
  switch (n->kind) {
  case TREE_NULL: *out = jinja_none(); break;
  case TREE_BOOL: *out = jinja_bool(n->boolean); break;
  case TREE_INT: *out = jinja_int(n->integer); break;
  case TREE_FLOAT: *out = jinja_float(n->number); break;
  case TREE_STRING: *out = jinja_string(n->string, n->len); break;
  case TREE_LIST:
    HP_TRY(jinja_new_seq(r, JINJA_LIST, n->len, out));
    for (uint32_t i = 0; i < n->len; i++) HP_TRY(jinja_from_tree(r, n->child[i], &out->seq->at[i]));
    break;
  case TREE_MAP: return from_map(r, n, out);
  }
  return HP_OK;
}

bool jinja_is(const jinja_value *v, const char *text) {
  return v->kind == JINJA_STRING && v->len == strlen(text) && !memcmp(v->text, text, v->len);
}

const char *jinja_type(const jinja_value *v) {
  static const char *const name[] = {[JINJA_MISSING] = "missing",
                                     [JINJA_UNDEFINED] = "Undefined",
                                     [JINJA_NONE] = "NoneType",
                                     [JINJA_BOOL] = "bool",
                                     [JINJA_INT] = "int",
                                     [JINJA_FLOAT] = "float",
                                     [JINJA_STRING] = "str",
                                     [JINJA_LIST] = "list",
                                     [JINJA_TUPLE] = "tuple",
                                     [JINJA_RANGE] = "range",
                                     [JINJA_ITEMS] = "dict_items",
                                     [JINJA_KEYS] = "dict_keys",
                                     [JINJA_VALUES] = "dict_values",
                                     [JINJA_ITERATOR] = "generator",
                                     [JINJA_DICT] = "dict",
                                     [JINJA_NAMESPACE] = "Namespace",
                                     [JINJA_LOOP] = "LoopContext",
                                     [JINJA_MACRO] = "Macro",
                                     [JINJA_FUNCTION] = "function",
                                     [JINJA_METHOD] = "method"};
  return name[v->kind];
}

bool jinja_truth(const jinja_value *v) {
  switch (v->kind) {
  case JINJA_MISSING:
  case JINJA_UNDEFINED:
  case JINJA_NONE: return false;
  case JINJA_BOOL: return v->boolean;
  case JINJA_INT: return v->integer != 0;
  case JINJA_FLOAT: return v->number != 0;
  case JINJA_STRING: return v->len != 0;
  case JINJA_DICT: return v->dict->len != 0;
  case JINJA_ITERATOR: return true; /* whatever is in it */
  default: return !jinja_is_seq(v) || v->seq->len != 0;
  }
}

int64_t jinja_as_int(const jinja_value *v) {
  return v->kind == JINJA_BOOL ? v->boolean : v->integer;
}

double jinja_as_float(const jinja_value *v) {
  return v->kind == JINJA_FLOAT ? v->number : (double)jinja_as_int(v);
}

/* --- comparison -------------------------------------------------------------------------- */

/* As jinja_compare; numbers of unlike types are compared by their exact values. */
static int compare_numbers(const jinja_value *a, const jinja_value *b) {
  if (a->kind != JINJA_FLOAT && b->kind != JINJA_FLOAT) {
    int64_t x = jinja_as_int(a), y = jinja_as_int(b);
    return (x > y) - (x < y);
  }
  long double x = a->kind == JINJA_FLOAT ? (long double)a->number : (long double)jinja_as_int(a);
  long double y = b->kind == JINJA_FLOAT ? (long double)b->number : (long double)jinja_as_int(b);
  return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static int compare_texts(const jinja_value *a, const jinja_value *b) {
  size_t n = a->len < b->len ? a->len : b->len;
  int order = n ? memcmp(a->text, b->text, n) : 0;
  return order ? (order > 0) - (order < 0) : (a->len > b->len) - (a->len < b->len);
}

static hp_status equal_seqs(jinja_run *r, const jinja_seq *a, const jinja_seq *b, bool *out) {
  *out = a->len == b->len;
  for (uint32_t i = 0; *out && i < a->len; i++) {
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(jinja_equal(r, &a->at[i], &b->at[i], out));
  }
  return HP_OK;
}

static hp_status equal_dicts(jinja_run *r, const jinja_dict *a, const jinja_dict *b, bool *out) {
  *out = a->len == b->len;
  for (uint32_t i = 0; *out && i < a->len; i++) {
    const jinja_value *other;
    HP_TRY(jinja_dict_get(r, b, &a->at[i].key, &other));
    *out = other != NULL;
    if (other) HP_TRY(jinja_equal(r, &a->at[i].value, other, out));
  }
  return HP_OK;
}

hp_status jinja_equal(jinja_run *r, const jinja_value *a, const jinja_value *b, bool *out) {
  *out = false;
  if (jinja_is_number(a) && jinja_is_number(b)) {
    *out = compare_numbers(a, b) == 0;
    return HP_OK;
  }
  if (a->kind != b->kind) return HP_OK;
  HP_TRY(jinja_enter(r));
  switch (a->kind) {
  case JINJA_UNDEFINED:
  case JINJA_NONE: *out = true; break;
  case JINJA_STRING:
    HP_TRY(jinja_charge(r, a->len / 64));
    *out = !compare_texts(a, b);
    break;
  case JINJA_LIST:
  case JINJA_TUPLE:
  case JINJA_RANGE: HP_TRY(equal_seqs(r, a->seq, b->seq, out)); break;
  case JINJA_DICT: HP_TRY(equal_dicts(r, a->dict, b->dict, out)); break;
  default: *out = a->seq == b->seq; /* one and the same */
  }
  r->depth--;
  return HP_OK;
}

static hp_status compare_seqs(jinja_run *r, const jinja_seq *a, const jinja_seq *b, int *out) {
  for (uint32_t i = 0; i < a->len && i < b->len; i++) {
    bool same;
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(jinja_equal(r, &a->at[i], &b->at[i], &same));
    if (!same) return jinja_compare(r, &a->at[i], &b->at[i], out);
  }
  *out = (a->len > b->len) - (a->len < b->len);
  return HP_OK;
}

hp_status jinja_compare(jinja_run *r, const jinja_value *a, const jinja_value *b, int *out) {
  if (a->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, a);
  if (b->kind == JINJA_UNDEFINED) return jinja_undefined_error(r, b);
  HP_TRY(jinja_enter(r));
  if (jinja_is_number(a) && jinja_is_number(b)) *out = compare_numbers(a, b);
  else if (a->kind == JINJA_STRING && b->kind == JINJA_STRING) *out = compare_texts(a, b);
  else if (a->kind == b->kind && (a->kind == JINJA_LIST || a->kind == JINJA_TUPLE))
    HP_TRY(compare_seqs(r, a->seq, b->seq, out));
  else JINJA_FAIL(r, "'%s' and '%s' have no order", jinja_type(a), jinja_type(b));
  r->depth--;
  return HP_OK;
}
