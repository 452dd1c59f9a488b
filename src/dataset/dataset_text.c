/* .txt and .csv into samples. */
#include "dataset/csv.h"
#include "dataset/dataset.h"

#include "base/log.h"
#include "base/milestone.h"
#include "base/str.h"

#include <string.h>

hp_status dataset_add(dataset *d, dataset_text prompt, dataset_text query) {
  bool both = prompt.len && query.len;
  size_t len;
  milestone_count_work();
  if (!size_add(prompt.len, query.len, &len) || !size_add(len, both, &len)) len = SIZE_MAX;
  char *at = arena_alloc(&d->mem, len ? len : 1, 1);
  HP_TRY_MEM(at);
  if (prompt.len) memcpy(at, prompt.at, prompt.len);
  if (both) at[prompt.len] = '\n';
  if (query.len) memcpy(at + prompt.len + both, query.at, query.len);
  dataset_sample s = {.text = {at, len}};
  return vec_push(&d->sample, s) ? HP_OK : HP_ERR_OOM;
}

void dataset_tell_responses(const char *path, const dataset_columns *c, int64_t n,
                            int64_t records) {
  if (!n) return;
  log_warn(
      "%s: %lld of %lld samples have a response (column \"%s\"), which stage pt leaves out: it "
      "trains on the text of \"%s\"%s%s%s alone.  To learn from responses, "
      "write stage: sft; to have them in pt, write prompt and response into one column",
      path, (long long)n, (long long)records, c->response, c->prompt, c->query ? " and \"" : "",
      c->query ? c->query : "", c->query ? "\"" : "");
}

/* The column of responses where none is named: LlamaFactory's, or what others call it. */
static const char *guess_response(const char *const *key, size_t n) {
  static const char *const name[] = {"output", "response", "completion", "answer"};
  for (size_t k = 0; k < sizeof name / sizeof *name; k++)
    for (size_t i = 0; i < n; i++)
      if (!strcmp(key[i], name[k])) return name[k];
  return NULL;
}

hp_status dataset_guess(const char *path, const char *const *key, size_t n, dataset_columns *c) {
  for (size_t i = 0; i < n; i++) {
    if (!strcmp(key[i], "text")) {
      *c = (dataset_columns){.prompt = "text", .response = guess_response(key, n)};
      return HP_OK;
    }
    if (!strcmp(key[i], "instruction"))
      *c = (dataset_columns){.prompt = "instruction",
                             .query = "input",
                             .response = guess_response(key, n)};
  }
  if (c->prompt) return HP_OK;
  str list = {0};
  for (size_t i = 0; i < n && i < 20; i++) str_printf(&list, "%s\"%s\"", i ? ", " : "", key[i]);
  hp_status st =
      err_set(HP_ERR_INPUT, __FILE__, __LINE__,
              "%s: record 1 has neither \"text\" nor \"instruction\"; it has %s; name the "
              "column in dataset_info.json: \"columns\": {\"prompt\": ...}",
              path, list.len ? list.at : "no keys");
  str_free(&list);
  return st;
}

hp_status dataset_read_lines(const char *bytes, size_t len, const char *path, int64_t max,
                             dataset *d) {
  size_t line = 1;
  for (size_t at = 0; at < len && (max < 0 || line <= (uint64_t)max); line++) {
    size_t end = at;
    while (end < len && bytes[end] != '\n' && bytes[end] != '\r') end++;
    HP_TRY(csv_check_utf8(bytes + at, end - at, path, line));
    HP_TRY(dataset_add(d, (dataset_text){bytes + at, end - at}, (dataset_text){0}));
    at = end + (end < len) + (end + 1 < len && bytes[end] == '\r' && bytes[end + 1] == '\n');
  }
  return HP_OK;
}

/* --- CSV -------------------------------------------------------------------------------------- */

static hp_status csv_column(const char *path, const char *const *key, size_t n, const char *want,
                            bool needed, size_t *out) {
  *out = SIZE_MAX;
  for (size_t i = 0; want && i < n; i++)
    if (!strcmp(key[i], want)) *out = i;
  if (*out != SIZE_MAX || !needed) return HP_OK;
  const char *near = str_nearest(want, key, n);
  HP_FAIL(HP_ERR_INPUT, "%s:1: there is no column \"%s\" in the heading%s%s%s", path, want,
          near ? "; the nearest is \"" : "", near ? near : "", near ? "\"" : "");
}

static hp_status csv_heading(csv *r, dataset *d, dataset_columns *c, size_t column[3], size_t *n) {
  bool more;
  HP_TRY(csv_row(r, &more));
  if (!more) HP_FAIL(HP_ERR_INPUT, "%s: is empty; expected a heading and rows", r->path);
  *n = r->field.len;
  const char **key = arena_alloc(&d->mem, *n, sizeof *key);
  HP_TRY_MEM(key);
  for (size_t i = 0; i < *n; i++) {
    const char *name = r->value.at + r->field.at[i];
    bool whole = strlen(name) == r->length.at[i]; /* no column has a NUL in its name */
    key[i] = arena_strdup(&d->mem, whole ? name : "");
    HP_TRY_MEM(key[i]);
  }
  if (c->guess) HP_TRY(dataset_guess(r->path, key, *n, c));
  HP_TRY(csv_column(r->path, key, *n, c->prompt, true, &column[0]));
  HP_TRY(csv_column(r->path, key, *n, c->response, false, &column[2]));
  return csv_column(r->path, key, *n, c->query, false, &column[1]);
}

static hp_status csv_rows(csv *r, const dataset_columns *given, int64_t max, dataset *d) {
  dataset_columns c = *given;
  size_t column[3], n = 0;
  int64_t record = 1, responses = 0;
  HP_TRY(csv_heading(r, d, &c, column, &n));
  for (; max < 0 || record <= max; record++) {
    bool more;
    HP_TRY(csv_row(r, &more));
    if (!more) break;
    if (r->field.len != n)
      HP_FAIL(HP_ERR_INPUT, "%s:%zu: record %lld has %zu fields, the heading has %zu", r->path,
              r->line, (long long)record, r->field.len, n);
    HP_TRY(dataset_add(d, csv_get(r, column[0]), csv_get(r, column[1])));
    responses += csv_get(r, column[2]).len > 0;
  }
  dataset_tell_responses(r->path, &c, responses, record - 1);
  return HP_OK;
}

hp_status dataset_read_csv(const char *bytes, size_t len, const char *path,
                           const dataset_columns *c, int64_t max, dataset *d) {
  csv r = {.bytes = bytes, .path = path, .len = len, .line = 1};
  if (len >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3)) r.at = 3; /* byte order mark */
  hp_status st = csv_rows(&r, c, max, d);
  csv_free(&r);
  return st;
}
