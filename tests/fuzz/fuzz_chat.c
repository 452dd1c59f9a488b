/* Conversations: three parts divided by bytes 0xFF.  Behind a byte that chooses, the name of a
 * template (and, behind a space, of a tool format); an entry of dataset_info.json, or nothing; the
 * records, as JSON or CSV.  What is read has the form of dataset/chat.h and is encoded twice to the
 * same tokens, its rows keep to the cutoff, and calls that are found in its messages lie in them.
 */
#include "fuzz.h"

#include "base/json.h"
#include "base/log.h"
#include "dataset/answer_calls.h"
#include "dataset/dataset.h"
#include "folder.h"
#include "train/chat_rows.h"

#include <stdio.h>
#include <string.h>

/* A token for each byte, and those that templates write as tokens. */
static tokenizer *byte_tokenizer(void) {
  static tokenizer *t;
  static const char *const more[] = {"<|user|>",        "<|assistant|>",    "<|system|>",
                                     "<|observation|>", "[gMASK]",          "sop",
                                     "<|im_start|>",    "<|im_end|>",       "<|start_header_id|>",
                                     "<|eot_id|>",      "<|end_header_id|>"};
  str json = {0};
  if (t) return t;
  str_add(&json, "{\"added_tokens\": [");
  for (int i = 0; i < (int)(sizeof more / sizeof *more); i++)
    str_printf(&json, "%s{\"id\": %d, \"content\": \"%s\", \"special\": true}", i ? ", " : "",
               259 + i, more[i]);
  str_add(&json, "], \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"unk_token\": "
                 "\"<unk>\", \"merges\": [], \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2");
  for (int i = 0; i < 256; i++) str_printf(&json, ", \"<0x%02X>\": %d", (unsigned)i, 3 + i);
  str_add(&json, "}}}");
  HP_ASSERT(!str_status(&json) && !tokenizer_parse("fuzz", json.at, json.len, &t));
  str_free(&json);
  return t;
}

static void is_within(void *ctx, const char *name, size_t name_n, const char *arguments, size_t n) {
  const dataset_text *text = ctx;
  size_t sum = n;
  for (size_t i = 0; i < name_n; i++) sum += (unsigned char)name[i];
  for (size_t i = 0; i < n; i++) sum += (unsigned char)arguments[i];
  HP_ASSERT(text->len && sum <= 256 * (name_n + n));
}

static void find_calls(const chat *c) {
  tree tools = {0};
  if (json_parse(c->tools.at ? c->tools.at : "[]", c->tools.at ? c->tools.len : 2, "tools", &tools))
    err_clear();
  for (size_t i = 0; i < c->n; i++) {
    dataset_text text = c->message[i].text;
    if (answer_find_calls(text.at, text.len, tools.root, is_within, &text)) err_clear();
  }
  tree_free(&tools);
}

static void check_row(const chat_row *row, const chat_rules *r) {
  HP_ASSERT(row->ids.len == row->labels.len && (int64_t)row->ids.len <= r->cutoff);
  for (size_t i = 0; i < row->ids.len; i++) {
    HP_ASSERT(row->ids.at[i] >= 0);
    HP_ASSERT(row->labels.at[i] == row->ids.at[i] || row->labels.at[i] == LABEL_NONE);
  }
}

/* Each record as it has responses: none, one or two. */
static hp_status make_rows(const chat_rules *r, const chat *c, chat_row row[2]) {
  switch (c->n - c->prompt) {
  case 0: return chat_row_of_answer(r, c, row);
  case 1: return chat_row_of_turns(r, c, row);
  default: return chat_rows_of_pair(r, c, row);
  }
}

static void use(const chat *c, const chat_rules *r) {
  chat_row one[2] = {0}, two[2] = {0};
  if (c->left_out) return;
  HP_ASSERT(c->prompt <= c->n && c->n - c->prompt <= 2);
  find_calls(c);
  hp_status st = make_rows(r, c, one);
  err_clear();
  HP_ASSERT(make_rows(r, c, two) == st);
  err_clear();
  for (int i = 0; i < 2; i++) {
    HP_ASSERT(st || one[i].ids.len == two[i].ids.len);
    for (size_t k = 0; k < one[i].ids.len && !st; k++)
      HP_ASSERT(one[i].ids.at[k] == two[i].ids.at[k]);
    if (!st) check_row(&one[i], r);
    chat_row_free(&one[i]);
    chat_row_free(&two[i]);
  }
}

static void read_and_use(const char *path, const chat_format *f, const chat_encoder *e,
                         unsigned chosen) {
  dataset d = {0};
  const chat_rules rules = {.e = e,
                            .cutoff = chosen & 2 ? 24 : 512,
                            .learns_prompt = chosen & 4,
                            .last_answer = chosen & 8};
  if (!dataset_read_chats(path, f, 20, &d))
    for (size_t i = 0; i < d.sample.len; i++) use(d.sample.at[i].chat, &rules);
  err_clear();
  dataset_free(&d);
}

/* Reads the entry; nothing: the format is guessed. */
static hp_status read_format(const str *text, tree *entry, chat_format *f) {
  if (text->len) HP_TRY(json_parse(text->at, text->len, "dataset_info.json", entry));
  return chat_format_read(entry->root, f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  const uint8_t *at = bytes + 1, *end = bytes + n;
  char path[300];
  chat_format f;
  chat_encoder e = {0};
  tree entry = {0};
  if (!n) return 0;
  log_set_level(LOG_ERROR);
  const char *file = bytes[0] & 1 ? "chats.csv" : "chats.json";
  snprintf(path, sizeof path, "%s/%s", folder_fresh(), file);
  str name = folder_part(&at, end), text = folder_part(&at, end);
  folder_write(file, at, (size_t)(end - at));
  char *space = name.len ? memchr(name.at, ' ', name.len) : NULL;
  if (space) *space = 0;
  const chat_options o = {.tool_format = space ? space + 1 : NULL,
                          .thinks = (bytes[0] >> 4) % 3 - 1,
                          .keeps_thoughts = bytes[0] & 64};
  if (!read_format(&text, &entry, &f) &&
      !chat_encoder_create(byte_tokenizer(), name.len ? name.at : "empty", NULL, 2, &o, &e))
    read_and_use(path, &f, &e, bytes[0]);
  err_clear();
  chat_encoder_free(&e);
  tree_free(&entry);
  str_free(&text);
  str_free(&name);
  return 0;
}
