/* Files of conversations. */
#include "dataset/csv.h"
#include "dataset/dataset.h"

#include "base/io.h"
#include "base/milestone.h"

#include <string.h>

enum {
#define COLUMN(name) COLUMN_##name,
#define TAG(name)
#include "dataset/chat_columns.def"
#undef COLUMN
  COLUMNS
};

typedef struct {
  json_reader in;
  const char *path; /* lives as long as the data set */
  chat_format format;
  int64_t record; /* from 1 */
  bool seen[COLUMNS];
  dataset *d;
} reading;

static void list_columns(const chat_format *f, const char *name[COLUMNS]) {
#define COLUMN(column) name[COLUMN_##column] = f->column;
#include "dataset/chat_columns.def"
#undef COLUMN
#undef TAG
}

static hp_status add_record(reading *r, const tree_node *record) {
  chat c, *kept;
  const char *name[COLUMNS];
  milestone_count_work();
  HP_TRY(tree_expect(record, TREE_MAP));
  HP_TRY(chat_format_guess(record, &r->format));
  list_columns(&r->format, name);
  for (int i = 0; i < COLUMNS; i++) r->seen[i] |= name[i] && tree_get(record, name[i]);
  HP_TRY(chat_align(&r->format, record, &r->d->mem, &c));
  c.path = r->path;
  c.record = r->record;
  kept = arena_alloc(&r->d->mem, 1, sizeof *kept);
  HP_TRY_MEM(kept);
  *kept = c;
  dataset_sample s = {.chat = kept};
  return vec_push(&r->d->sample, s) ? HP_OK : HP_ERR_OOM;
}

/* Names that were given must be of some record. */
static hp_status check_columns(const reading *r) {
  const char *name[COLUMNS];
  list_columns(&r->format, name);
  for (int i = 0; i < COLUMNS && r->record && r->format.columns; i++)
    if (name[i] && !r->seen[i])
      HP_FAIL(HP_ERR_INPUT,
              "%s: no record has \"%s\", which \"columns\" of dataset_info.json names; write the "
              "name as it is in the file, or leave the column out",
              r->path, name[i]);
  return HP_OK;
}

static hp_status open_reading(reading *r, const char *path, const chat_format *f, dataset *d) {
  *r = (reading){.path = arena_strdup(&d->mem, path), .format = *f, .d = d};
  return r->path ? HP_OK : HP_ERR_OOM;
}

/* A record behind its opening brace: the text of it alone becomes a tree. */
static hp_status read_record(void *ctx) {
  reading *r = ctx;
  json_token open = {.kind = JSON_T_OPEN_MAP};
  json_reader start = r->in;
  tree record = {0};
  start.at--;
  r->record++;
  HP_TRY(json_skip(&r->in, &open));
  HP_TRY(json_parse_between(&start, r->in.at, &record));
  hp_status st = add_record(r, record.root);
  tree_free(&record);
  return st;
}

static hp_status read_json(const char *bytes, size_t len, const char *path, const chat_format *f,
                           int64_t max, dataset *d) {
  reading r;
  HP_TRY(open_reading(&r, path, f, d));
  r.in = (json_reader){.name = r.path, .text = bytes, .len = len};
  hp_status st = dataset_each_record(&r.in, max, read_record, &r);
  if (!st) st = check_columns(&r);
  json_reader_free(&r.in);
  return st;
}

/* --- CSV -------------------------------------------------------------------------------------- */

/* A row as a map from the names of the heading to texts; an empty field is null. */
static hp_status row_tree(const csv *r, const tree_node *heading, tree *out) {
  tree_node *m = tree_new(&out->mem, TREE_MAP, r->path, r->line, 1);
  tree_node **field = arena_alloc(&out->mem, heading->len ? heading->len : 1, sizeof *field);
  if (!m || !field) return HP_ERR_OOM;
  for (uint32_t i = 0; i < heading->len; i++) {
    dataset_text x = csv_get(r, i);
    tree_node *v = tree_new(&out->mem, x.len ? TREE_STRING : TREE_NULL, r->path, r->line, i + 1);
    HP_TRY_MEM(v);
    if (x.len > UINT32_MAX) HP_FAIL(HP_ERR_INPUT, "%s:%zu: a field of 4 GiB", r->path, r->line);
    v->key = heading->child[i]->string;
    v->key_len = heading->child[i]->len;
    v->len = (uint32_t)x.len;
    if (x.len) v->string = arena_strndup(&out->mem, x.at, x.len);
    if (x.len && !v->string) return HP_ERR_OOM;
    v->parent = m;
    field[i] = v;
  }
  out->root = m;
  return tree_adopt(&out->mem, m, field, heading->len);
}

/* The heading as a list of names. */
static hp_status read_heading(csv *r, tree *out) {
  bool more;
  HP_TRY(csv_row(r, &more));
  if (!more) HP_FAIL(HP_ERR_INPUT, "%s: is empty; expected a heading and rows", r->path);
  size_t n = r->field.len;
  tree_node *list = tree_new(&out->mem, TREE_LIST, r->path, 1, 1);
  tree_node **name = arena_alloc(&out->mem, n, sizeof *name);
  if (!list || !name) return HP_ERR_OOM;
  for (size_t i = 0; i < n; i++) {
    dataset_text x = csv_get(r, i);
    name[i] = tree_new(&out->mem, TREE_STRING, r->path, 1, i + 1);
    char *text = arena_strndup(&out->mem, x.at, x.len);
    if (!name[i] || !text) return HP_ERR_OOM;
    name[i]->string = text;
    name[i]->len = (uint32_t)x.len;
  }
  out->root = list;
  return tree_adopt(&out->mem, list, name, n);
}

static hp_status read_rows(reading *r, csv *in, const tree_node *heading, int64_t max) {
  for (bool more; max < 0 || r->record < max;) {
    tree row = {0};
    HP_TRY(csv_row(in, &more));
    if (!more) return HP_OK;
    r->record++;
    if (in->field.len != heading->len)
      HP_FAIL(HP_ERR_INPUT, "%s:%zu: record %lld has %zu fields, the heading has %u", r->path,
              in->line, (long long)r->record, in->field.len, heading->len);
    hp_status st = row_tree(in, heading, &row);
    if (!st) st = add_record(r, row.root);
    tree_free(&row);
    HP_TRY(st);
  }
  return HP_OK;
}

static hp_status read_csv(const char *bytes, size_t len, const char *path, const chat_format *f,
                          int64_t max, dataset *d) {
  reading r;
  tree heading = {0};
  HP_TRY(open_reading(&r, path, f, d));
  csv in = {.bytes = bytes, .path = r.path, .len = len, .line = 1};
  if (len >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3)) in.at = 3; /* byte order mark */
  hp_status st = read_heading(&in, &heading);
  if (!st) st = read_rows(&r, &in, heading.root, max);
  if (!st) st = check_columns(&r);
  tree_free(&heading);
  csv_free(&in);
  return st;
}

hp_status dataset_read_chats(const char *path, const chat_format *f, int64_t max, dataset *d) {
  HP_TRY(dataset_check_ending(path, true));
  file_map m;
  HP_TRY(file_map_open(path, &m));
  size_t n = strlen(path);
  bool rows = n > 4 && !strcmp(path + n - 4, ".csv");
  hp_status st = (rows ? read_csv : read_json)((const char *)m.at, m.len, path, f, max, d);
  file_map_close(&m);
  return st;
}
