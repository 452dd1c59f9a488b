#include "tok/tok_llama2c.h"

#include "base/vec.h"
#include "tok/tok_vocab.h"
#include "tok/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BOS = 1, EOS = 2, FIRST_BYTE = 3 };
static const float least_score = -1e10f; /* llama2.c merges nothing below */

typedef struct {
  int32_t left, right;
  float score;
} merge;

typedef struct {
  const char *name;
  tok_vocab vocab;
  VEC(float) score; /* by id */
  VEC(merge) merge;
} model;

static hp_status read_tokens(model *m, const char *bytes, size_t n) {
  size_t at = sizeof(int32_t);
  if (n < at) HP_FAIL(HP_ERR_INPUT, "%s: %zu bytes; expected a llama2.c tokenizer", m->name, n);
  while (at < n) {
    float score;
    int32_t len;
    size_t id = m->score.len;
    if (n - at < sizeof score + sizeof len)
      HP_FAIL(HP_ERR_INPUT, "%s: token %zu is truncated at byte %zu", m->name, id, n);
    memcpy(&score, bytes + at, sizeof score);
    memcpy(&len, bytes + at + sizeof score, sizeof len);
    at += sizeof score + sizeof len;
    if (len < 0 || (size_t)len > n - at)
      HP_FAIL(HP_ERR_INPUT, "%s: token %zu says %d bytes, but %zu are left", m->name, id, len,
              n - at);
    if (isnan(score)) HP_FAIL(HP_ERR_INPUT, "%s: the score of token %zu is no number", m->name, id);
    if (utf8_valid(bytes + at, (size_t)len) < (size_t)len)
      HP_FAIL(HP_ERR_INPUT, "%s: token %zu is not UTF-8", m->name, id);
    bool named = id == BOS || id == EOS; /* "\n<s>\n" in the file */
    const char *text = named ? (id == BOS ? "<s>" : "</s>") : bytes + at;
    HP_TRY(tok_vocab_add(&m->vocab, text, named ? strlen(text) : (size_t)len, (int64_t)id, m->name,
                         (unsigned)id));
    if (!vec_push(&m->score, score)) return HP_ERR_OOM;
    at += (size_t)len;
  }
  return HP_OK;
}

static hp_status check_bytes(const model *m) {
  for (int i = 0; i < 256; i++) {
    char want[8];
    tok_text t = tok_vocab_get(&m->vocab, FIRST_BYTE + i);
    snprintf(want, sizeof want, "<0x%02X>", (unsigned)i);
    if (!t.at || t.len != 6 || memcmp(t.at, want, 6))
      HP_FAIL(HP_ERR_INPUT, "%s: token %d is \"%s\"; expected %s: not a llama2.c tokenizer",
              m->name, FIRST_BYTE + i, t.at ? t.at : "not there", want);
  }
  return HP_OK;
}

/* All ways to cut each token in two tokens.  The names of bos and eos are ours, not the file's. */
static hp_status find_merges(model *m) {
  for (size_t id = 0; id < m->score.len; id++) {
    tok_text t = m->vocab.token[id];
    if (id == BOS || id == EOS || !(m->score.at[id] > least_score)) continue;
    for (size_t cut = 1; cut < t.len; cut++) {
      merge x = {.score = m->score.at[id]};
      if (((unsigned char)t.at[cut] & 0xC0) == 0x80) continue;
      if (!tok_vocab_find(&m->vocab, t.at, cut, &x.left) ||
          !tok_vocab_find(&m->vocab, t.at + cut, t.len - cut, &x.right))
        continue;
      if (x.left == BOS || x.left == EOS || x.right == BOS || x.right == EOS) continue;
      if (!vec_push(&m->merge, x)) return HP_ERR_OOM;
    }
  }
  return HP_OK;
}

static int by_score(const void *a, const void *b) {
  const merge *x = a, *y = b;
  if (x->score != y->score) return x->score < y->score ? 1 : -1;
  if (x->left != y->left) return x->left < y->left ? -1 : 1;
  return (x->right > y->right) - (x->right < y->right);
}

static void add_quoted(str *out, tok_text t) {
  str_add_char(out, '"');
  for (uint32_t i = 0; i < t.len; i++) {
    unsigned char c = (unsigned char)t.at[i];
    if (c == '"' || c == '\\') str_printf(out, "\\%c", c);
    else if (c < 0x20) str_printf(out, "\\u%04x", c);
    else str_add_char(out, (char)c);
  }
  str_add_char(out, '"');
}

static void add_head(str *out) {
  static const char *const special[] = {"<unk>", "<s>", "</s>"};
  str_add(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
               "  \"added_tokens\": [");
  for (int i = 0; i < 3; i++)
    str_printf(
        out,
        "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
        "\"rstrip\": false, \"normalized\": false, \"special\": true}",
        i ? "," : "", i, special[i]);
  str_add(
      out,
      "\n  ],\n"
      "  \"normalizer\": {\"type\": \"Prepend\", \"prepend\": \" \"},\n"
      "  \"pre_tokenizer\": null,\n"
      "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
      "    \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": "
      "{\"id\": "
      "\"A\", \"type_id\": 0}}],\n"
      "    \"pair\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": "
      "{\"id\": "
      "\"A\", \"type_id\": 0}},\n"
      "      {\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 1}}, {\"Sequence\": {\"id\": \"B\", "
      "\"type_id\": 1}}],\n"
      "    \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": "
      "[\"<s>\"]}}},\n"
      "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, "
      "{\"type\": "
      "\"Fuse\"},\n"
      "    {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},\n");
}

static void add_model(const model *m, str *out) {
  str_add(out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
               "    \"unk_token\": \"<unk>\",\n    \"continuing_subword_prefix\": null,\n"
               "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": true,\n"
               "    \"byte_fallback\": true,\n    \"ignore_merges\": false,\n    \"vocab\": {");
  for (size_t i = 0; i < m->score.len; i++) {
    str_add(out, i ? ",\n      " : "\n      ");
    add_quoted(out, m->vocab.token[i]);
    str_printf(out, ": %zu", i);
  }
  str_add(out, "\n    },\n    \"merges\": [");
  for (size_t i = 0; i < m->merge.len; i++) {
    str_add(out, i ? ",\n      [" : "\n      [");
    add_quoted(out, m->vocab.token[m->merge.at[i].left]);
    str_add(out, ", ");
    add_quoted(out, m->vocab.token[m->merge.at[i].right]);
    str_add(out, "]");
  }
  str_add(out, "\n    ],\n    \"merge_ranks\": [");
  for (size_t i = 0, rank = 0; i < m->merge.len; i++) {
    if (i && m->merge.at[i].score != m->merge.at[i - 1].score) rank++;
    str_printf(out, "%s%zu", i ? ", " : "", rank);
  }
  str_add(out, "]\n  }\n}\n");
}

hp_status tok_llama2c_to_json(const char *name, const void *bytes, size_t n, str *json) {
  model m = {.name = name};
  hp_status st;
  HP_TRY_GOTO(read_tokens(&m, bytes, n), st);
  HP_TRY_GOTO(check_bytes(&m), st);
  HP_TRY_GOTO(find_merges(&m), st);
  if (m.merge.len) qsort(m.merge.at, m.merge.len, sizeof *m.merge.at, by_score);
  add_head(json);
  add_model(&m, json);
  st = str_status(json);
done:
  tok_vocab_free(&m.vocab);
  vec_free(&m.score);
  vec_free(&m.merge);
  return st;
}
