/* Filters of lists and dicts. */
#include "jinja/jinja_call.h"
#include "jinja/jinja_strings.h"

#include <string.h>

#define FILTER(name)                                                                               \
  hp_status jinja_filter_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,        \
                                jinja_value *out);                                                 \
  hp_status jinja_filter_##name(jinja_run *r, const jinja_value *self, const jinja_args *a,        \
                                jinja_value *out)

/* --- attributes -------------------------------------------------------------------------- */

static bool all_digits(const char *s, size_t n) {
  size_t i = 0;
  while (i < n && s[i] >= '0' && s[i] <= '9') i++;
  return n > 0 && n < 18 && i == n;
}

/* The attribute "a.b.0" of a value; path MISSING or NONE: the value itself.  absent is put for
 * what is undefined, unless it is MISSING. */
static hp_status get_path(jinja_run *r, const jinja_value *v, const jinja_value *path,
                          const jinja_value *absent, jinja_value *out) {
  *out = *v;
  if (path->kind == JINJA_MISSING || path->kind == JINJA_NONE) return HP_OK;
  if (path->kind != JINJA_STRING) return jinja_get_item(r, v, path, out);
  for (size_t at = 0; at <= path->len;) {
    const char *from = path->text + at,
               *dot = path->len > at ? memchr(from, '.', path->len - at) : NULL;
    size_t n = dot ? (size_t)(dot - from) : path->len - at;
    jinja_value key = jinja_string(from, n);
    if (all_digits(from, n)) {
      int64_t number = 0;
      for (size_t i = 0; i < n; i++) number = 10 * number + from[i] - '0';
      key = jinja_int(number);
    }
    HP_TRY(jinja_get_item(r, out, &key, out));
    if (out->kind == JINJA_UNDEFINED && absent->kind != JINJA_MISSING) *out = *absent;
    at += n + 1;
  }
  return HP_OK;
}

/* What values are sorted and compared by: an attribute, in lower case unless case matters. */
typedef struct {
  const jinja_value *attribute;
  bool keep_case;
} sort_key;

static hp_status get_key(jinja_run *r, const jinja_value *v, const sort_key *key,
                         jinja_value *out) {
  static const jinja_value missing = {.kind = JINJA_MISSING};
  HP_TRY(get_path(r, v, key->attribute, &missing, out));
  if (out->kind == JINJA_STRING && !key->keep_case)
    return jinja_change_case(r, out, JINJA_LOWER, false, out);
  return HP_OK;
}

/* --- sorting ----------------------------------------------------------------------------- */

typedef struct {
  jinja_value key, value;
} keyed;

/* Stable merge sort of at[0..n); room is as large. */
static hp_status sort_keyed(jinja_run *r, keyed *at, keyed *room, size_t n, bool reverse) {
  if (n < 2) return HP_OK;
  size_t half = n / 2, i = 0, j = half, k = 0;
  HP_TRY(sort_keyed(r, at, room, half, reverse));
  HP_TRY(sort_keyed(r, at + half, room, n - half, reverse));
  while (i < half && j < n) {
    int order;
    HP_TRY(jinja_compare(r, &at[j].key, &at[i].key, &order));
    room[k++] = order == (reverse ? 1 : -1) ? at[j++] : at[i++];
  }
  while (i < half) room[k++] = at[i++];
  memcpy(at, room, k * sizeof *at);
  return HP_OK;
}

static hp_status sort_values(jinja_run *r, const jinja_value *at, uint32_t n, const sort_key *key,
                             bool reverse, jinja_value *out) {
  keyed *all, *room;
  jinja_value list;
  JINJA_NEW(r, all, n);
  JINJA_NEW(r, room, n);
  for (uint32_t i = 0; i < n; i++) {
    all[i].value = at[i];
    HP_TRY(get_key(r, &at[i], key, &all[i].key));
  }
  HP_TRY(sort_keyed(r, all, room, n, reverse));
  HP_TRY(jinja_new_seq(r, JINJA_LIST, n, &list));
  for (uint32_t i = 0; i < n; i++) list.seq->at[i] = all[i].value;
  *out = list;
  return HP_OK;
}

FILTER(sort) {
  const jinja_value *at;
  uint32_t n;
  const sort_key key = {&a->at[2], jinja_truth(&a->at[1])};
  if (key.attribute->kind == JINJA_STRING && key.attribute->len &&
      memchr(key.attribute->text, ',', key.attribute->len))
    JINJA_FAIL(r, "sort by several attributes is not supported");
  HP_TRY(jinja_iterate(r, self, &at, &n));
  return sort_values(r, at, n, &key, jinja_truth(&a->at[0]), out);
}

static hp_status pairs_of(jinja_run *r, const jinja_value *v, const char *who, jinja_value *out) {
  if (v->kind != JINJA_DICT) JINJA_FAIL(r, "%s needs a dict, not a %s", who, jinja_type(v));
  const jinja_row *items = jinja_find_row(jinja_methods, JINJA_DICT, "items", 5);
  return jinja_call_row(r, items, "method", v, &(const jinja_args){0}, out);
}

FILTER(dictsort) {
  jinja_value items, number = jinja_int(0);
  const jinja_value *by = &a->at[1];
  if (by->kind != JINJA_MISSING && !jinja_is(by, "key")) {
    if (!jinja_is(by, "value")) JINJA_FAIL(r, "dictsort sorts by \"key\" or \"value\"");
    number = jinja_int(1);
  }
  const sort_key key = {&number, jinja_truth(&a->at[0])};
  HP_TRY(pairs_of(r, self, "dictsort", &items));
  return sort_values(r, items.seq->at, items.seq->len, &key, jinja_truth(&a->at[2]), out);
}

/* The least or the greatest: order is -1 or 1. */
static hp_status extreme(jinja_run *r, const jinja_value *self, const jinja_args *a, int wanted,
                         jinja_value *out) {
  const jinja_value *at;
  uint32_t n;
  const sort_key key = {&a->at[1], jinja_truth(&a->at[0])};
  jinja_value best, one;
  HP_TRY(jinja_iterate(r, self, &at, &n));
  *out = jinja_undefined(JINJA_NOTE, "the list is empty", 17);
  for (uint32_t i = 0; i < n; i++) {
    int order = wanted;
    HP_TRY(get_key(r, &at[i], &key, &one));
    if (i) HP_TRY(jinja_compare(r, &one, &best, &order));
    if (order != wanted) continue;
    best = one;
    *out = at[i];
  }
  return HP_OK;
}
FILTER(min) { return extreme(r, self, a, -1, out); }
FILTER(max) { return extreme(r, self, a, 1, out); }

FILTER(unique) {
  const jinja_value *at;
  uint32_t n;
  const sort_key key = {&a->at[1], jinja_truth(&a->at[0])};
  jinja_value seen;
  HP_TRY(jinja_iterate(r, self, &at, &n));
  HP_TRY(jinja_new_dict(r, JINJA_DICT, n, &seen));
  for (uint32_t i = 0; i < n; i++) {
    jinja_value k;
    const jinja_value *before;
    HP_TRY(get_key(r, &at[i], &key, &k));
    HP_TRY(jinja_dict_get(r, seen.dict, &k, &before));
    if (!before) HP_TRY(jinja_dict_set(r, seen.dict, &k, &at[i]));
  }
  HP_TRY(jinja_new_seq(r, JINJA_ITERATOR, seen.dict->len, out));
  for (uint32_t i = 0; i < seen.dict->len; i++) out->seq->at[i] = seen.dict->at[i].value;
  return HP_OK;
}

/* --- one of the values, or all of them --------------------------------------------------- */

FILTER(first) {
  const jinja_value *at;
  uint32_t n;
  (void)a;
  HP_TRY(jinja_iterate(r, self, &at, &n));
  if (n && self->kind == JINJA_ITERATOR) self->seq->next -= n - 1;
  *out = n ? *at : jinja_undefined(JINJA_NOTE, "the first value of an empty list", 32);
  return HP_OK;
}

FILTER(last) {
  const jinja_value *at;
  uint32_t n;
  (void)a;
  if (self->kind == JINJA_ITERATOR) JINJA_FAIL(r, "last needs a list: make one by the filter list");
  HP_TRY(jinja_iterate(r, self, &at, &n));
  *out = n ? at[n - 1] : jinja_undefined(JINJA_NOTE, "the last value of an empty list", 31);
  return HP_OK;
}

FILTER(list) {
  (void)a;
  return jinja_make_seq(r, JINJA_LIST, self, out);
}

FILTER(items) {
  (void)a;
  if (self->kind == JINJA_UNDEFINED) return jinja_new_seq(r, JINJA_ITERATOR, 0, out);
  HP_TRY(pairs_of(r, self, "items", out));
  out->kind = JINJA_ITERATOR;
  return HP_OK;
}

FILTER(reverse) {
  static const jinja_value back[] = {{.kind = JINJA_NONE},
                                     {.kind = JINJA_NONE},
                                     {.kind = JINJA_INT, .integer = -1}};
  (void)a;
  if (self->kind == JINJA_STRING) return jinja_slice(r, self, back, out);
  jinja_value list;
  bool generator = self->kind == JINJA_ITERATOR;
  HP_TRY(jinja_make_seq(r, JINJA_LIST, self, &list));
  HP_TRY(jinja_slice(r, &list, back, out));
  if (!generator) out->kind = JINJA_ITERATOR;
  return HP_OK;
}

FILTER(join) {
  const jinja_value *at;
  uint32_t n;
  static const jinja_value missing = {.kind = JINJA_MISSING};
  HP_TRY(jinja_iterate(r, self, &at, &n));
  size_t start = r->buffer.len;
  for (uint32_t i = 0; i < n; i++) {
    jinja_value v;
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(get_path(r, &at[i], &a->at[1], &missing, &v));
    if (i && a->at[0].kind != JINJA_MISSING) HP_TRY(jinja_add_str(r, &a->at[0]));
    HP_TRY(jinja_add_str(r, &v));
  }
  return jinja_take(r, start, out);
}

FILTER(sum) {
  const jinja_value *at;
  uint32_t n;
  static const jinja_value missing = {.kind = JINJA_MISSING};
  jinja_value total = a->at[1].kind == JINJA_MISSING ? jinja_int(0) : a->at[1], v;
  HP_TRY(jinja_iterate(r, self, &at, &n));
  for (uint32_t i = 0; i < n; i++) {
    HP_TRY(jinja_charge(r, 1));
    HP_TRY(get_path(r, &at[i], &a->at[0], &missing, &v));
    HP_TRY(jinja_binary(r, JINJA_ADD, &total, &v, &total));
  }
  *out = total;
  return HP_OK;
}

FILTER(batch) {
  const jinja_value *at, *fill = &a->at[1];
  uint32_t n;
  int64_t size;
  HP_TRY(jinja_opt_int(r, &a->at[0], 0, &size));
  if (size < 1) JINJA_FAIL(r, "batch needs a size from 1 on");
  HP_TRY(jinja_iterate(r, self, &at, &n));
  size_t batches = n ? (size_t)((n - 1) / size) + 1 : 0;
  bool fills = fill->kind != JINJA_MISSING && fill->kind != JINJA_NONE;
  HP_TRY(jinja_new_seq(r, JINJA_ITERATOR, batches, out));
  for (size_t b = 0; b < batches; b++) {
    size_t left = n - b * (size_t)size, len = left < (size_t)size ? left : (size_t)size;
    jinja_value *list = &out->seq->at[b];
    HP_TRY(jinja_new_seq(r, JINJA_LIST, fills ? (size_t)size : len, list));
    for (size_t i = 0; i < list->seq->len; i++)
      list->seq->at[i] = i < len ? at[b * (size_t)size + i] : *fill;
  }
  return HP_OK;
}

/* So many lists, the first ones longer by one; fill makes all as long. */
FILTER(slice) {
  const jinja_value *at, *fill = &a->at[1];
  uint32_t n;
  int64_t count;
  HP_TRY(jinja_opt_int(r, &a->at[0], 0, &count));
  HP_TRY(jinja_iterate(r, self, &at, &n));
  if (count < 1) JINJA_FAIL(r, "slice needs a number from 1 on");
  HP_TRY(jinja_charge(r, (uint64_t)count));
  HP_TRY(jinja_new_seq(r, JINJA_ITERATOR, (size_t)count, out));
  const uint32_t each = (uint32_t)(n / count), longer = (uint32_t)(n % count);
  const bool fills = fill->kind != JINJA_MISSING && fill->kind != JINJA_NONE;
  for (uint32_t s = 0, from = 0; s < out->seq->len; s++) {
    const uint32_t len = each + (s < longer), filled = fills && s >= longer;
    jinja_value *list = &out->seq->at[s];
    HP_TRY(jinja_new_seq(r, JINJA_LIST, len + filled, list));
    if (len) memcpy(list->seq->at, at + from, len * sizeof *at);
    if (filled) list->seq->at[len] = *fill;
    from += len;
  }
  return HP_OK;
}

/* --- map and select ---------------------------------------------------------------------- */

/* What is false, e.g. none, has no values. */
static hp_status iterate_true(jinja_run *r, const jinja_value *v, const jinja_value **at,
                              uint32_t *n) {
  static const jinja_value nothing = {.kind = JINJA_UNDEFINED};
  return jinja_iterate(r, jinja_truth(v) ? v : &nothing, at, n);
}

/* A row by the name that is the argument number i. */
static hp_status row_of(jinja_run *r, const jinja_row *table, const char *sort, const jinja_args *a,
                        uint32_t i, const jinja_row **out) {
  HP_TRY(jinja_need_string(r, &a->at[i], sort));
  const int n = a->at[i].len > 60 ? 60 : (int)a->at[i].len;
  *out = jinja_find_row(table, 0, a->at[i].text, a->at[i].len);
  if (!*out) JINJA_FAIL(r, "there is no %s \"%.*s\"", sort, n, a->at[i].text);
  return HP_OK;
}

static hp_status map_attribute(jinja_run *r, const jinja_value *at, uint32_t n, const jinja_args *a,
                               jinja_value *out) {
  jinja_value slot[JINJA_PARAMS_MAX];
  uint32_t n_slots;
  HP_TRY(jinja_bind(r, "the filter map", "attribute default", 1, a, slot, &n_slots));
  HP_TRY(jinja_new_seq(r, JINJA_ITERATOR, n, out));
  for (uint32_t i = 0; i < n; i++)
    HP_TRY(get_path(r, &at[i], &slot[0], &slot[1], &out->seq->at[i]));
  return HP_OK;
}

FILTER(map) {
  const jinja_value *at;
  const jinja_row *row;
  uint32_t n;
  HP_TRY(iterate_true(r, self, &at, &n));
  if (!a->n && a->n_named) return map_attribute(r, at, n, a, out);
  if (!a->n) JINJA_FAIL(r, "map needs the name of a filter, or an attribute");
  HP_TRY(row_of(r, jinja_filters, "filter", a, 0, &row));
  const jinja_args rest = {a->at + 1, a->named, a->name, a->n - 1, a->n_named};
  HP_TRY(jinja_new_seq(r, JINJA_ITERATOR, n, out));
  HP_TRY(jinja_enter(r));
  for (uint32_t i = 0; i < n; i++)
    HP_TRY(jinja_call_row(r, row, "filter", &at[i], &rest, &out->seq->at[i]));
  r->depth--;
  return HP_OK;
}

/* The values, or those whose attribute, that pass a test, or fail it; without a test: that are
 * true. */
static hp_status choose(jinja_run *r, const jinja_value *self, const jinja_args *a, bool attribute,
                        bool wanted, jinja_value *out) {
  static const jinja_value missing = {.kind = JINJA_MISSING};
  const jinja_value *at;
  const jinja_row *row = NULL;
  uint32_t n, skip = attribute, kept = 0;
  HP_TRY(iterate_true(r, self, &at, &n));
  if (attribute && !a->n) JINJA_FAIL(r, "the filter needs the name of an attribute");
  if (a->n > skip) HP_TRY(row_of(r, jinja_tests, "test", a, skip, &row));
  const jinja_args rest = {a->at + skip + 1, a->named, a->name, row ? a->n - skip - 1 : 0,
                           a->n_named};
  HP_TRY(jinja_new_seq(r, JINJA_ITERATOR, n, out));
  for (uint32_t i = 0; i < n; i++) {
    jinja_value v, passes;
    HP_TRY(get_path(r, &at[i], attribute ? &a->at[0] : &missing, &missing, &v));
    passes = v;
    if (row) HP_TRY(jinja_call_row(r, row, "test", &v, &rest, &passes));
    HP_TRY(jinja_charge(r, 1));
    if (jinja_truth(&passes) == wanted) out->seq->at[kept++] = at[i];
  }
  out->seq->len = kept;
  return HP_OK;
}
FILTER(select) { return choose(r, self, a, false, true, out); }
FILTER(reject) { return choose(r, self, a, false, false, out); }
FILTER(selectattr) { return choose(r, self, a, true, true, out); }
FILTER(rejectattr) { return choose(r, self, a, true, false, out); }
