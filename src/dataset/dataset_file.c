/* A file of records into samples, by its ending; JSON is read token by token, so that a record and
 * not the file is what is held. */
#include "dataset/dataset.h"

#include "base/io.h"
#include "base/json.h"
#include "base/log.h"

#include <string.h>

/* --- one JSON value --------------------------------------------------------------------------- */

/* What a column can be of in a record. */
typedef struct {
  bool seen; /* the key is there, and not null */
  bool filled;
  str text;
} cell;

typedef struct {
  json_reader in;
  dataset *d;
  const char *path;
  dataset_columns columns;
  cell prompt, query, first_turn;
  int64_t record;                   /* from 1 */
  int64_t no_prompt, first_without; /* records without the prompt column */
  int64_t responses;                /* records with a response */
} records;

/* What a value that begins with such a token is; NULL when none does. */
static const char *kind_name(json_kind k) {
  switch (k) {
  case JSON_T_OPEN_LIST: return "a list";
  case JSON_T_OPEN_MAP: return "a map";
  case JSON_T_BOOL: return "true or false";
  case JSON_T_INT:
  case JSON_T_FLOAT: return "a number";
  case JSON_T_STRING: return "text";
  default: return NULL;
  }
}

static hp_status take_text(records *r, json_token t, const char *key, cell *out) {
  if (t.kind == JSON_T_NULL) return HP_OK;
  if (kind_name(t.kind) == NULL) return json_unexpected(&r->in, &t, "a value");
  if (t.kind != JSON_T_STRING)
    HP_FAIL(HP_ERR_INPUT, "%s:%zu:%zu: record %lld: \"%s\" is %s, expected text", r->path, t.line,
            t.column, (long long)r->record, key, kind_name(t.kind));
  out->seen = out->filled = true;
  str_clear(&out->text);
  str_add_n(&out->text, t.text, t.len);
  return str_status(&out->text);
}

/* What follows the first value of a list, and its end. */
static hp_status skip_rest_of_list(records *r) {
  for (json_token t;;) {
    HP_TRY(json_next(&r->in, &t));
    if (t.kind == JSON_T_CLOSE_LIST) return HP_OK;
    if (t.kind != JSON_T_COMMA) return json_unexpected(&r->in, &t, "\",\" or \"]\"");
    HP_TRY(json_next(&r->in, &t));
    HP_TRY(json_skip(&r->in, &t));
  }
}

/* history: [[user, assistant], ...]: the first user's text. */
static hp_status take_history(records *r, json_token t) {
  if (t.kind == JSON_T_NULL) return HP_OK;
  json_token inner = t;
  if (t.kind == JSON_T_OPEN_LIST) HP_TRY(json_next(&r->in, &inner));
  if (t.kind == JSON_T_OPEN_LIST && inner.kind == JSON_T_CLOSE_LIST) return HP_OK;
  if (t.kind != JSON_T_OPEN_LIST && !kind_name(t.kind))
    return json_unexpected(&r->in, &t, "a value");
  if (t.kind != JSON_T_OPEN_LIST || inner.kind != JSON_T_OPEN_LIST)
    HP_FAIL(HP_ERR_INPUT,
            "%s:%zu:%zu: record %lld: \"%s\" is not a list of [user, assistant] pairs", r->path,
            t.line, t.column, (long long)r->record, r->columns.history);
  HP_TRY(json_next(&r->in, &inner));
  HP_TRY(take_text(r, inner, r->columns.history, &r->first_turn));
  r->first_turn.filled = true;
  HP_TRY(skip_rest_of_list(r));
  return skip_rest_of_list(r);
}

/* Notes whether a record has a response, which stage pt does not use. */
static hp_status note_response(records *r, json_token t) {
  bool any = (t.kind == JSON_T_STRING && t.len) || t.kind == JSON_T_OPEN_LIST;
  HP_TRY(json_skip(&r->in, &t));
  r->responses += any;
  return HP_OK;
}

/* A key is compared whole: it may hold a NUL, at which C's functions end it. */
static bool is_key(dataset_text key, const char *want) {
  return want && key.len == strlen(want) && !memcmp(key.at, want, key.len);
}

static hp_status take_value(records *r, dataset_text key) {
  json_token t;
  const dataset_columns *c = &r->columns;
  HP_TRY(json_next(&r->in, &t));
  if (is_key(key, c->prompt)) return take_text(r, t, c->prompt, &r->prompt);
  if (is_key(key, c->query)) return take_text(r, t, c->query, &r->query);
  if (is_key(key, c->history)) return take_history(r, t);
  if (is_key(key, c->response)) return note_response(r, t);
  return json_skip(&r->in, &t);
}

/* --- records ---------------------------------------------------------------------------------- */

/* The members of a record after its opening brace; each key goes to `each`. */
static hp_status read_members(records *r, hp_status (*each)(records *, dataset_text, void *),
                              void *ctx) {
  json_token t;
  str key = {0};
  hp_status st = HP_OK;
  HP_TRY(json_next(&r->in, &t));
  while (t.kind != JSON_T_CLOSE_MAP) {
    if (t.kind != JSON_T_STRING) HP_TRY_GOTO(json_unexpected(&r->in, &t, "a key"), st);
    str_clear(&key);
    str_add_n(&key, t.text, t.len);
    HP_TRY_GOTO(str_status(&key), st);
    HP_TRY_GOTO(json_next(&r->in, &t), st);
    if (t.kind != JSON_T_COLON) HP_TRY_GOTO(json_unexpected(&r->in, &t, "\":\" after the key"), st);
    HP_TRY_GOTO(each(r, (dataset_text){key.at, key.len}, ctx), st);
    HP_TRY_GOTO(json_next(&r->in, &t), st);
    if (t.kind == JSON_T_CLOSE_MAP) break;
    if (t.kind != JSON_T_COMMA) HP_TRY_GOTO(json_unexpected(&r->in, &t, "\",\" or \"}\""), st);
    HP_TRY_GOTO(json_next(&r->in, &t), st);
    if (t.kind != JSON_T_STRING) HP_TRY_GOTO(json_unexpected(&r->in, &t, "a key"), st);
  }
done:
  str_free(&key);
  return st;
}

static hp_status take_member(records *r, dataset_text key, void *ctx) {
  (void)ctx;
  return take_value(r, key);
}

typedef struct {
  arena mem;
  VEC(const char *) key;
} key_list;

static hp_status list_member(records *r, dataset_text key, void *ctx) {
  key_list *l = ctx;
  json_token t;
  bool name = key.len && !memchr(key.at, 0, key.len); /* no column has a NUL in its name */
  const char *copy = name ? arena_strndup(&l->mem, key.at, key.len) : "";
  if (!copy || (name && !vec_push(&l->key, copy))) return HP_ERR_OOM;
  HP_TRY(json_next(&r->in, &t));
  return json_skip(&r->in, &t);
}

/* Looks at the keys of the first record to find its columns, and goes back to its start. */
static hp_status guess_columns(records *r) {
  json_reader before = r->in;
  before.scratch = (str){0};
  key_list l = {0};
  hp_status st = read_members(r, list_member, &l);
  if (!st) st = dataset_guess(r->path, l.key.at, l.key.len, &r->columns);
  vec_free(&l.key);
  arena_free(&l.mem);
  str scratch = r->in.scratch;
  r->in = before;
  r->in.scratch = scratch;
  return st;
}

static hp_status read_record(void *ctx) {
  records *r = ctx;
  dataset *d = r->d;
  cell *c[] = {&r->prompt, &r->query, &r->first_turn};
  for (int i = 0; i < 3; i++) {
    c[i]->seen = c[i]->filled = false;
    str_clear(&c[i]->text);
  }
  r->record++;
  if (r->columns.guess && !r->columns.prompt) HP_TRY(guess_columns(r));
  HP_TRY(read_members(r, take_member, NULL));
  if (!r->prompt.seen && !r->no_prompt++) r->first_without = r->record;
  if (r->first_turn.filled)
    return dataset_add(d, (dataset_text){r->first_turn.text.at, r->first_turn.text.len},
                       (dataset_text){0});
  return dataset_add(d, (dataset_text){r->prompt.text.at, r->prompt.text.len},
                     (dataset_text){r->query.text.at, r->query.text.len});
}

hp_status dataset_each_record(json_reader *in, int64_t max, hp_status (*each)(void *ctx),
                              void *ctx) {
  json_token t;
  int64_t n = 0;
  HP_TRY(json_next(in, &t));
  bool list = t.kind == JSON_T_OPEN_LIST;
  if (list) HP_TRY(json_next(in, &t));
  while (t.kind != (list ? JSON_T_CLOSE_LIST : JSON_T_END)) {
    if (t.kind != JSON_T_OPEN_MAP)
      return json_unexpected(in, &t, "a record, as {\"text\": \"...\"}");
    if (max >= 0 && n++ == max) return HP_OK;
    HP_TRY(each(ctx));
    HP_TRY(json_next(in, &t));
    if (!list || t.kind == JSON_T_CLOSE_LIST) continue;
    if (t.kind != JSON_T_COMMA) return json_unexpected(in, &t, "\",\" or \"]\"");
    HP_TRY(json_next(in, &t));
    if (t.kind == JSON_T_CLOSE_LIST) return json_unexpected(in, &t, "a record");
  }
  if (!list) return HP_OK;
  HP_TRY(json_next(in, &t));
  return t.kind == JSON_T_END ? HP_OK : json_unexpected(in, &t, "the end of the file");
}

static hp_status check_missing(const records *r) {
  dataset_tell_responses(r->path, &r->columns, r->responses, r->record);
  if (!r->no_prompt) return HP_OK;
  if (r->no_prompt == r->record)
    HP_FAIL(HP_ERR_INPUT,
            "%s: no record has \"%s\"; name the column in dataset_info.json: \"columns\": "
            "{\"prompt\": ...}",
            r->path, r->columns.prompt);
  log_warn("%s: %lld of %lld records have no \"%s\" (the first is record %lld): each is an empty "
           "text, as in LlamaFactory",
           r->path, (long long)r->no_prompt, (long long)r->record, r->columns.prompt,
           (long long)r->first_without);
  return HP_OK;
}

hp_status dataset_read_json(const char *bytes, size_t len, const char *path,
                            const dataset_columns *c, int64_t max, dataset *d) {
  records r = {.in = {.name = path, .text = bytes, .len = len},
               .d = d,
               .path = path,
               .columns = *c};
  hp_status st = dataset_each_record(&r.in, max, read_record, &r);
  if (!st) st = check_missing(&r);
  json_reader_free(&r.in);
  str_free(&r.prompt.text);
  str_free(&r.query.text);
  str_free(&r.first_turn.text);
  return st;
}

/* --- by ending -------------------------------------------------------------------------------- */

static const char *find_ending(const char *path) {
  const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
  return dot ? dot + 1 : "";
}

hp_status dataset_check_ending(const char *path, bool chats) {
  const char *end = find_ending(path);
  if (!strcmp(end, "parquet") || !strcmp(end, "arrow"))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: .%s files are not read; convert it: python3 -c \"import datasets; "
            "datasets.load_dataset('%s', data_files='%s', split='train').to_json('data.jsonl')\"",
            path, end, end, path);
  bool known = !strcmp(end, "json") || !strcmp(end, "jsonl") || !strcmp(end, "csv");
  if (known || (!strcmp(end, "txt") && !chats)) return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "%s: expected a file that ends in %s.json, .jsonl or .csv", path,
          chats ? "" : ".txt, ");
}

hp_status dataset_read_file(const char *path, const dataset_columns *c, int64_t max, dataset *d) {
  HP_TRY(dataset_check_ending(path, false));
  file_map f;
  HP_TRY(file_map_open(path, &f));
  const char *bytes = (const char *)f.at, *end = find_ending(path);
  hp_status st;
  if (!strcmp(end, "txt")) st = dataset_read_lines(bytes, f.len, path, max, d);
  else if (!strcmp(end, "csv")) st = dataset_read_csv(bytes, f.len, path, c, max, d);
  else st = dataset_read_json(bytes, f.len, path, c, max, d);
  file_map_close(&f);
  return st;
}
