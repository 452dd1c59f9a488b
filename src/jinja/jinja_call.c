/* Rows are found and called, arguments bound; attributes and items of values. */
#include "jinja/jinja_call.h"

#include "jinja/jinja_ops.h"

#include <stdio.h>
#include <string.h>

const jinja_row *jinja_find_row(const jinja_row *table, jinja_kind kind, const char *name,
                                size_t n) {
  for (const jinja_row *row = table; row->name; row++)
    if (row->kind == kind && strlen(row->name) == n && !memcmp(row->name, name, n)) return row;
  return NULL;
}

/* --- arguments --------------------------------------------------------------------------- */

/* The number of a name in a list with spaces; -1: it is not there. */
static int param_number(const char *params, const jinja_value *name) {
  int k = 0;
  for (const char *at = params; *at; k++) {
    size_t n = strcspn(at, " ");
    if (n == name->len && !memcmp(at, name->text, n)) return k;
    at += n + (at[n] == ' ');
  }
  return -1;
}

static uint32_t param_count(const char *params) {
  uint32_t n = *params != 0;
  for (; *params; params++) n += *params == ' ';
  return n;
}

hp_status jinja_bind(jinja_run *r, const char *who, const char *params, unsigned least,
                     const jinja_args *a, jinja_value *slot, uint32_t *n) {
  *n = param_count(params);
  HP_ASSERT(*n <= JINJA_PARAMS_MAX);
  if (a->n > *n)
    JINJA_FAIL(r, "%s takes %u arguments, %u are given", who, (unsigned)*n, (unsigned)a->n);
  for (uint32_t i = 0; i < *n; i++)
    slot[i] = i < a->n ? a->at[i] : (jinja_value){.kind = JINJA_MISSING};
  for (uint32_t i = 0; i < a->n_named; i++) {
    const jinja_value *name = &a->name[i];
    int k = param_number(params, name);
    if (k < 0)
      JINJA_FAIL(r, "%s has no argument '%.*s'; it has: %s", who, (int)name->len, name->text,
                 *params ? params : "none");
    if (slot[k].kind != JINJA_MISSING)
      JINJA_FAIL(r, "%s gets its argument '%.*s' twice", who, (int)name->len, name->text);
    slot[k] = a->named[i];
  }
  for (unsigned i = 0; i < least; i++)
    if (slot[i].kind == JINJA_MISSING)
      JINJA_FAIL(r, "%s needs %u arguments: %s", who, least, params);
  return HP_OK;
}

/* Strings that a call reads count as steps. */
static hp_status charge_call(jinja_run *r, const jinja_value *self, const jinja_args *a) {
  uint64_t bytes = self && self->kind == JINJA_STRING ? self->len : 0;
  for (uint32_t i = 0; i < a->n; i++)
    if (a->at[i].kind == JINJA_STRING) bytes += a->at[i].len;
  return jinja_charge(r, 1 + bytes / 32);
}

hp_status jinja_call_row(jinja_run *r, const jinja_row *row, const char *sort,
                         const jinja_value *self, const jinja_args *a, jinja_value *out) {
  char who[64];
  jinja_value slot[JINJA_PARAMS_MAX], result = jinja_none();
  jinja_args bound = {.at = slot};
  snprintf(who, sizeof who, "the %s %s", sort, row->name);
  if (!row->fn) JINJA_FAIL(r, "%s is not supported", who);
  HP_TRY(charge_call(r, self, a));
  if (*row->params == '*') {
    HP_TRY(row->fn(r, self, a, &result));
  } else {
    HP_TRY(jinja_bind(r, who, row->params, row->least, a, slot, &bound.n));
    HP_TRY(row->fn(r, self, &bound, &result));
  }
  *out = result;
  return HP_OK;
}

/* --- attributes and items ---------------------------------------------------------------- */

static hp_status loop_attribute(const jinja_loop *l, const char *name, size_t n, jinja_value *out) {
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {{"index", (int64_t)l->index + 1},
                 {"index0", l->index},
                 {"revindex", (int64_t)l->len - l->index},
                 {"revindex0", (int64_t)l->len - l->index - 1},
                 {"length", l->len},
                 {"depth", 1},
                 {"depth0", 0}};
  const jinja_value text = jinja_string(name, n);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (!jinja_is(&text, numbers[i].name)) continue;
    *out = jinja_int(numbers[i].value);
    return HP_OK;
  }
  if (jinja_is(&text, "first")) *out = jinja_bool(l->index == 0);
  else if (jinja_is(&text, "last")) *out = jinja_bool(l->index + 1 == l->len);
  else if (jinja_is(&text, "previtem") && l->index) *out = l->at[l->index - 1];
  else if (jinja_is(&text, "nextitem") && l->index + 1 < l->len) *out = l->at[l->index + 1];
  else *out = jinja_undefined(JINJA_LOOP, name, n);
  return HP_OK;
}

static hp_status bind_method(jinja_run *r, const jinja_value *v, const jinja_row *row,
                             jinja_value *out) {
  static const char no[] = "lists and dicts cannot be changed: templates run in a sandbox";
  jinja_bound *bound;
  if (*row->params == *JINJA_CHANGES) {
    *out = jinja_undefined(JINJA_NOTE, no, sizeof no - 1);
    return HP_OK;
  }
  JINJA_NEW(r, bound, 1);
  *bound = (jinja_bound){*v, row};
  *out = (jinja_value){.kind = JINJA_METHOD, .bound = bound};
  return HP_OK;
}

hp_status jinja_get_attribute(jinja_run *r, const jinja_value *v, const char *name, size_t n,
                              jinja_value *out) {
  const jinja_value self = *v, key = jinja_string(name, n);
  if (self.kind == JINJA_UNDEFINED) return jinja_undefined_error(r, &self);
  const jinja_row *row = jinja_find_row(jinja_methods, (jinja_kind)self.kind, name, n);
  if (row) return bind_method(r, &self, row, out);
  *out = jinja_undefined(self.kind, name, n);
  if (self.kind == JINJA_LOOP) return loop_attribute(self.loop, name, n, out);
  if (self.kind == JINJA_MACRO) JINJA_FAIL(r, "attributes of macros are not supported");
  if (self.kind != JINJA_DICT && self.kind != JINJA_NAMESPACE) return HP_OK;
  const jinja_value *value;
  HP_TRY(jinja_dict_get(r, self.dict, &key, &value));
  if (value) *out = *value;
  return HP_OK;
}

hp_status jinja_get_item(jinja_run *r, const jinja_value *v, const jinja_value *key,
                         jinja_value *out) {
  const jinja_value self = *v, index = *key;
  if (self.kind == JINJA_UNDEFINED) return jinja_undefined_error(r, &self);
  bool found = false;
  if (self.kind == JINJA_DICT && index.kind != JINJA_LIST && index.kind != JINJA_DICT) {
    const jinja_value *value;
    HP_TRY(jinja_dict_get(r, self.dict, &index, &value));
    if ((found = value != NULL)) *out = *value;
  } else if (index.kind == JINJA_INT || index.kind == JINJA_BOOL) {
    HP_TRY(jinja_item_at(r, &self, jinja_as_int(&index), &found, out));
  }
  if (found) return HP_OK;
  if (index.kind == JINJA_STRING) {
    const jinja_row *row =
        jinja_find_row(jinja_methods, (jinja_kind)self.kind, index.text, index.len);
    if (row) return bind_method(r, &self, row, out);
    if (self.kind != JINJA_DICT) return jinja_get_attribute(r, &self, index.text, index.len, out);
  }
  size_t start = r->buffer.len;
  jinja_value name;
  HP_TRY(jinja_add_str(r, &index));
  HP_TRY(jinja_take(r, start, &name));
  *out = jinja_undefined(self.kind, name.text, name.len);
  return HP_OK;
}
