/* tokenizer_config.json, special_tokens_map.json and the older vocab.json + merges.txt. */
#include "data/tok_internal.h"

#include "base/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 64 << 20, VOCAB_MAX = 512 << 20 };

static const char *const role_key[TOK_ROLES] = {
    [TOKEN_BOS] = "bos_token", [TOKEN_EOS] = "eos_token", [TOKEN_PAD] = "pad_token",
    [TOKEN_UNK] = "unk_token", [TOKEN_SEP] = "sep_token", [TOKEN_CLS] = "cls_token",
    [TOKEN_MASK] = "mask_token"};

/* A JSON file of the folder that need not be there: root is NULL then. */
typedef struct {
  str path;
  char *bytes;
  tj_doc doc;
  const tj_node *root;
} json_file;

static hp_status read_file(const char *dir, const char *name, size_t max, json_file *out) {
  size_t n;
  *out = (json_file){0};
  HP_TRY(path_join(&out->path, dir, name));
  if (!file_exists(out->path.at)) return HP_OK;
  HP_TRY(file_read(out->path.at, max, &out->bytes, &n));
  HP_TRY(tj_doc_parse(out->path.at, out->bytes, n, &out->doc));
  out->root = &out->doc.root;
  if (out->root->kind != TJ_MAP)
    HP_FAIL(HP_ERR_INPUT, "%s: the file holds %s; expected an object", out->path.at,
            tj_kind_name(out->root->kind));
  return HP_OK;
}

static void close_file(json_file *f) {
  if (f->bytes) tj_doc_free(&f->doc);
  mem_free(f->bytes);
  str_free(&f->path);
}

/* Whether the key is there, be it null. */
static bool has_key(const tj_node *object, const char *key) {
  size_t n = strlen(key);
  for (size_t i = 0; object && i < object->items.n; i++)
    if (object->items.at[i].key_len == n && !memcmp(object->items.at[i].key, key, n)) return true;
  return false;
}

/* --- added tokens ----------------------------------------------------------------------- */

typedef struct {
  int64_t id;
  const tj_node *node;
} numbered;

static int by_id(const void *a, const void *b) {
  int64_t x = ((const numbered *)a)->id, y = ((const numbered *)b)->id;
  return (x > y) - (x < y);
}

static hp_status add_numbered(tokenizer *t, const char *file, const numbered *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    tok_added_token x;
    HP_TRY(tok_added_parse(file, list[i].node, &x));
    HP_TRY(tok_added_add(&t->added, &x, list[i].id, &t->model.vocab, t->normalizer, file,
                         list[i].node->line));
  }
  return HP_OK;
}

/* {"32000": {"content": ...}, ...}, taken in the order of the ids. */
static hp_status read_added_decoder(tokenizer *t, const json_file *f) {
  const tj_node *map_node = tj_find(f->root, "added_tokens_decoder");
  tj_reader r = {f->path.at, "the file", f->root};
  if (!map_node) return HP_OK;
  HP_TRY(tj_get_kind(&r, "added_tokens_decoder", TJ_MAP, &map_node));
  size_t n = map_node->items.n;
  numbered *list = mem_calloc(n, sizeof *list);
  HP_TRY_MEM(list);
  hp_status st = HP_OK;
  for (size_t i = 0; i < n; i++) {
    const tj_node *node = &map_node->items.at[i];
    char digits[24] = {0};
    if (node->key_len < sizeof digits) memcpy(digits, node->key, node->key_len);
    list[i].node = node;
    if (!str_to_i64(digits, &list[i].id) || list[i].id < 0)
      HP_FAIL_GOTO(st, HP_ERR_INPUT, "%s:%u: key \"%.*s\" of \"added_tokens_decoder\"; expected an id",
                   f->path.at, node->line, node->key_len > 40 ? 40 : (int)node->key_len, node->key);
  }
  qsort(list, n, sizeof *list, by_id);
  st = add_numbered(t, f->path.at, list, n);
done:
  mem_free(list);
  return st;
}

/* A special token, written as its text or as an object with "content"; added when it is new. */
static hp_status add_special(tokenizer *t, const char *file, const tj_node *node, int32_t *id) {
  tok_added_token x;
  if (node->kind == TJ_TEXT) {
    if (node->text.len > UINT32_MAX / 2) HP_FAIL(HP_ERR_INPUT, "%s:%u: a token that long", file, node->line);
    x = (tok_added_token){.content = {node->text.at, (uint32_t)node->text.len}};
  } else {
    HP_TRY(tok_added_parse(file, node, &x));
  }
  if (!x.content.len) return HP_OK;
  if (!tok_added_find(&t->added, x.content.at, x.content.len)) {
    if (node->kind == TJ_TEXT) x.normalized = false;
    x.special = true;
    HP_TRY(tok_added_add(&t->added, &x, -1, &t->model.vocab, t->normalizer, file, node->line));
  }
  const tok_added_token *a = tok_added_find(&t->added, x.content.at, x.content.len);
  if (a) *id = a->id;
  return HP_OK;
}

static hp_status read_more_specials(tokenizer *t, const json_file *f, const char *key) {
  const tj_node *list = tj_find(f->root, key);
  int32_t id;
  if (!list || (list->kind != TJ_LIST && list->kind != TJ_MAP)) return HP_OK;
  for (size_t i = 0; i < list->items.n; i++)
    HP_TRY(add_special(t, f->path.at, &list->items.at[i], &id));
  return HP_OK;
}

static hp_status read_roles(tokenizer *t, const json_file *config, const json_file *map_file) {
  for (int i = 0; i < TOK_ROLES; i++) {
    const json_file *f = has_key(config->root, role_key[i]) ? config : map_file;
    const tj_node *node = tj_find(f->root, role_key[i]);
    if (node) HP_TRY(add_special(t, f->path.at, node, &t->role[i]));
  }
  return HP_OK;
}

/* "add_bos_token" and "add_eos_token" replace the post-processor, as in Transformers 5. */
static hp_status read_bos_eos(tokenizer *t, const json_file *f) {
  tj_reader r = {f->path.at, "the file", f->root};
  bool bos = false, eos = false, ok = true;
  if (!has_key(f->root, "add_bos_token") && !has_key(f->root, "add_eos_token")) return HP_OK;
  HP_TRY(tj_get_flag(&r, "add_bos_token", false, &bos));
  HP_TRY(tj_get_flag(&r, "add_eos_token", false, &eos));
  t->post.item.len = 0;
  if (bos && t->role[TOKEN_BOS] >= 0) ok = vec_push(&t->post.item, t->role[TOKEN_BOS]);
  ok = ok && vec_push(&t->post.item, TOK_POST_TEXT);
  if (eos && t->role[TOKEN_EOS] >= 0) ok = ok && vec_push(&t->post.item, t->role[TOKEN_EOS]);
  return ok ? HP_OK : HP_ERR_OOM;
}

static hp_status apply(tokenizer *t, const json_file *config, const json_file *map_file) {
  tj_reader r = {config->path.at, "the file", config->root};
  HP_TRY(read_added_decoder(t, config));
  HP_TRY(read_roles(t, config, map_file));
  HP_TRY(read_more_specials(t, config, "additional_special_tokens"));
  HP_TRY(read_more_specials(t, config, "extra_special_tokens"));
  if (!config->root) return HP_OK;
  HP_TRY(tj_get_flag(&r, "split_special_tokens", false, &t->split_special));
  return read_bos_eos(t, config);
}

static hp_status read_config(tokenizer *t, const char *dir, const json_file *config) {
  json_file map_file;
  hp_status st = read_file(dir, "special_tokens_map.json", CONFIG_MAX, &map_file);
  if (!st) st = apply(t, config, &map_file);
  close_file(&map_file);
  return st;
}

hp_status tok_read_config(tokenizer *t, const char *dir) {
  json_file config;
  hp_status st = read_file(dir, "tokenizer_config.json", CONFIG_MAX, &config);
  if (!st) st = read_config(t, dir, &config);
  close_file(&config);
  return st;
}

/* --- vocab.json and merges.txt ---------------------------------------------------------- */

/* The parts that a class brings along, as tokenizer.json would have them; %s is add_prefix_space.
 * Roles that the configuration does not speak of are played by `token`. */
typedef struct {
  const char *name, *model_type, *parts, *token;
  bool roles[TOK_ROLES];
} tok_class;

static const tok_class classes[] = {
    {"GPT2Tokenizer", "gpt2",
     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s},"
     "\"decoder\":{\"type\":\"ByteLevel\"}}",
     "<|endoftext|>",
     {[TOKEN_BOS] = true, [TOKEN_EOS] = true, [TOKEN_UNK] = true}},
    {"Qwen2Tokenizer", "qwen",
     "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
     "{\"type\":\"Split\",\"pattern\":{\"Regex\":"
     "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
     "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
     "\"behavior\":\"Isolated\",\"invert\":false},"
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":false}]},"
     "\"decoder\":{\"type\":\"ByteLevel\"}}",
     "<|endoftext|>",
     {[TOKEN_EOS] = true, [TOKEN_PAD] = true, [TOKEN_UNK] = true}},
};

static bool begins(const tj_node *text, const char *with) {
  size_t n = strlen(with);
  return text && text->kind == TJ_TEXT && text->text.len >= n && !memcmp(text->text.at, with, n);
}

/* By tokenizer_class, or by config.json's model_type when there is none. */
static hp_status find_class(const char *dir, const json_file *config, const tok_class **out) {
  json_file model;
  const tj_node *name = tj_find(config->root, "tokenizer_class");
  hp_status st = read_file(dir, "config.json", CONFIG_MAX, &model);
  const tj_node *type = tj_find(model.root, "model_type");
  *out = NULL;
  for (size_t i = 0; !st && !*out && i < sizeof classes / sizeof *classes; i++)
    if (name ? begins(name, classes[i].name) : begins(type, classes[i].model_type)) *out = &classes[i];
  close_file(&model);
  HP_TRY(st);
  if (*out) return HP_OK;
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "%s: vocab.json and merges.txt of tokenizer class \"%.*s\"; known are GPT2Tokenizer and "
          "Qwen2Tokenizer (\"tokenizer_class\" in tokenizer_config.json): write that, or save "
          "tokenizer.json with Transformers",
          dir, name && name->kind == TJ_TEXT ? (int)name->text.len : 7,
          name && name->kind == TJ_TEXT ? name->text.at : "unknown");
}

static hp_status read_parts(tokenizer *t, const tok_class *c, bool prefix) {
  char json[1024];
  tj_doc doc;
  int n = snprintf(json, sizeof json, c->parts, prefix ? "true" : "false");
  HP_ASSERT(n > 0 && (size_t)n < sizeof json);
  HP_TRY(tj_doc_parse(c->name, json, (size_t)n, &doc));
  hp_status st = tok_normalizer_parse(c->name, tj_find(&doc.root, "normalizer"), &t->normalizer);
  if (!st)
    st = tok_pretokenizer_parse(c->name, tj_find(&doc.root, "pre_tokenizer"), &t->pretokenizer);
  if (!st) st = tok_decoder_parse(c->name, tj_find(&doc.root, "decoder"), &t->decoder);
  tj_doc_free(&doc);
  return st;
}

/* Lines "left right"; "#version" and empty lines are passed over, CRLF is as good as LF. */
static hp_status add_merges(tok_bpe *b, const char *path, const char *text, size_t n) {
  unsigned line = 0;
  for (const char *at = text, *end = text + n, *next; at < end; at = next) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline ? newline : end;
    next = newline ? newline + 1 : end;
    line++;
    if (stop > at && stop[-1] == '\r') stop--;
    size_t len = (size_t)(stop - at);
    if (!len || (len >= 8 && !memcmp(at, "#version", 8))) continue;
    const char *space = memchr(at, ' ', len);
    if (!space || memchr(space + 1, ' ', (size_t)(stop - space - 1)))
      HP_FAIL(HP_ERR_INPUT, "%s:%u: \"%.*s\"; expected two tokens with one space between", path, line,
              len > 80 ? 80 : (int)len, at);
    HP_TRY(tok_bpe_add_merge(b, at, (size_t)(space - at), space + 1, (size_t)(stop - space - 1), line));
  }
  return HP_OK;
}

static hp_status read_merges(tokenizer *t, const char *dir) {
  str path = {0};
  char *text = NULL;
  size_t n;
  tok_bpe_options o = {0};
  hp_status st;
  HP_TRY_GOTO(path_join(&path, dir, "merges.txt"), st);
  if (!file_exists(path.at))
    HP_FAIL_GOTO(st, HP_ERR_INPUT, "%s: is not there; vocab.json needs it", path.at);
  HP_TRY_GOTO(file_read(path.at, VOCAB_MAX, &text, &n), st);
  HP_TRY_GOTO(tok_bpe_create(&t->model.vocab, path.at, &o, &t->model.bpe), st);
  HP_TRY_GOTO(add_merges(t->model.bpe, path.at, text, n), st);
done:
  mem_free(text);
  str_free(&path);
  return st;
}

static hp_status read_model(tokenizer *t, const char *dir) {
  json_file vocab;
  hp_status st = read_file(dir, "vocab.json", VOCAB_MAX, &vocab);
  if (!st) st = tok_model_parse_vocab(vocab.path.at, vocab.root, &t->model);
  close_file(&vocab);
  return st ? st : read_merges(t, dir);
}

static hp_status default_roles(tokenizer *t, const tok_class *c, const json_file *config) {
  tj_node token = {.kind = TJ_TEXT, .text = {c->token, strlen(c->token)}};
  for (int i = 0; i < TOK_ROLES; i++)
    if (c->roles[i] && t->role[i] < 0 && !has_key(config->root, role_key[i]))
      HP_TRY(add_special(t, c->name, &token, &t->role[i]));
  return HP_OK;
}

hp_status tok_read_vocab_merges(tokenizer *t, const char *dir) {
  json_file config;
  const tok_class *c;
  bool prefix = false;
  hp_status st;
  HP_TRY_GOTO(read_file(dir, "tokenizer_config.json", CONFIG_MAX, &config), st);
  HP_TRY_GOTO(find_class(dir, &config, &c), st);
  tj_reader r = {config.path.at, "the file", config.root};
  if (config.root) HP_TRY_GOTO(tj_get_flag(&r, "add_prefix_space", false, &prefix), st);
  HP_TRY_GOTO(read_parts(t, c, prefix), st);
  HP_TRY_GOTO(read_model(t, dir), st);
  HP_TRY_GOTO(read_config(t, dir, &config), st);
  HP_TRY_GOTO(default_roles(t, c, &config), st);
done:
  close_file(&config);
  return st;
}
