/* tokenizer_config.json, special_tokens_map.json and the older vocab.json + merges.txt. */
#include "tok/tok_internal.h"

#include "base/io.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 64 << 20, VOCAB_MAX = 512 << 20 };

static const char *const role_key[TOK_ROLES] =
    {[TOKEN_BOS] = "bos_token",  [TOKEN_EOS] = "eos_token", [TOKEN_PAD] = "pad_token",
     [TOKEN_UNK] = "unk_token",  [TOKEN_SEP] = "sep_token", [TOKEN_CLS] = "cls_token",
     [TOKEN_MASK] = "mask_token"};

/* Reads a JSON file of the folder that need not be there: root is NULL then. */
static hp_status read_file(const char *dir, const char *name, size_t max, tree *out) {
  str path = {0};
  *out = (tree){0};
  hp_status st = path_join(&path, dir, name);
  if (!st && path_exists(path.at)) {
    st = json_load(path.at, max, out);
    if (!st && (st = tree_expect(out->root, TREE_MAP))) tree_free(out);
  }
  if (st) *out = (tree){0};
  str_free(&path);
  return st;
}

/* --- added tokens ----------------------------------------------------------------------- */

typedef struct {
  int64_t id;
  const tree_node *node;
} numbered;

static int compare_id(const void *a, const void *b) {
  int64_t x = ((const numbered *)a)->id, y = ((const numbered *)b)->id;
  return (x > y) - (x < y);
}

static hp_status add_numbered(tokenizer *t, const numbered *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const tree_node *node = list[i].node;
    tok_added_token x;
    HP_TRY(tok_added_parse(node, &x));
    HP_TRY(tok_added_add(&t->added, &x, list[i].id, &t->model.vocab, t->normalizer, node->source,
                         node->line));
  }
  return HP_OK;
}

/* {"32000": {"content": ...}, ...}, taken in the order of the ids. */
static hp_status read_added_decoder(tokenizer *t, const tree_node *config) {
  const tree_node *tokens;
  HP_TRY(tree_opt_map(config, "added_tokens_decoder", &tokens));
  if (!tokens) return HP_OK;
  size_t n = tokens->len;
  numbered *list = mem_calloc(n, sizeof *list);
  HP_TRY_MEM(list);
  hp_status st = HP_OK;
  for (size_t i = 0; i < n && !st; i++) {
    list[i].node = tokens->child[i];
    if (!str_to_i64(list[i].node->key, &list[i].id) || list[i].id < 0)
      st = tree_error(list[i].node, __FILE__, __LINE__, "the key must be an id");
  }
  qsort(list, n, sizeof *list, compare_id);
  if (!st) st = add_numbered(t, list, n);
  mem_free(list);
  return st;
}

/* A special token, written as its text or as an object with "content"; added when it is new. */
static hp_status add_special(tokenizer *t, const tree_node *node, int32_t *id) {
  tok_added_token x = {.content = {node->kind == TREE_STRING ? node->string : NULL, node->len}};
  if (!x.content.at) HP_TRY(tok_added_parse(node, &x));
  if (!x.content.len) return HP_OK;
  if (!tok_added_find(&t->added, x.content.at, x.content.len)) {
    x.special = true;
    HP_TRY(
        tok_added_add(&t->added, &x, -1, &t->model.vocab, t->normalizer, node->source, node->line));
  }
  const tok_added_token *a = tok_added_find(&t->added, x.content.at, x.content.len);
  if (a) *id = a->id;
  return HP_OK;
}

static hp_status read_more_specials(tokenizer *t, const tree_node *config, const char *key) {
  const tree_node *list = tok_get(config, key);
  if (!list || (list->kind != TREE_LIST && list->kind != TREE_MAP)) return HP_OK;
  for (size_t i = 0; i < list->len; i++) {
    int32_t id = -1;
    HP_TRY(add_special(t, list->child[i], &id));
    if (list->kind == TREE_LIST && id >= 0 && !vec_push(&t->extra, id)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status read_roles(tokenizer *t, const tree_node *config, const tree_node *specials) {
  for (int i = 0; i < TOK_ROLES; i++) {
    const tree_node *from = tree_get(config, role_key[i]) ? config : specials;
    const tree_node *node = tok_get(from, role_key[i]);
    if (node) HP_TRY(add_special(t, node, &t->role[i]));
  }
  return HP_OK;
}

/* "add_bos_token" and "add_eos_token" make the post-processor where there is no tokenizer.json,
 * which has its own (Transformers 5 does not look at them then). */
static hp_status read_bos_eos(tokenizer *t, const tree_node *config) {
  bool bos = false, eos = false, ok = true;
  if (!config) return HP_OK;
  HP_TRY(tree_opt_bool(config, "add_bos_token", false, &bos));
  HP_TRY(tree_opt_bool(config, "add_eos_token", false, &eos));
  if (bos && t->role[TOKEN_BOS] >= 0) ok = vec_push(&t->post.item, t->role[TOKEN_BOS]);
  ok = ok && vec_push(&t->post.item, TOK_POST_TEXT);
  if (eos && t->role[TOKEN_EOS] >= 0) ok = ok && vec_push(&t->post.item, t->role[TOKEN_EOS]);
  return ok ? HP_OK : HP_ERR_OOM;
}

static hp_status apply_config(tokenizer *t, const tree_node *config, const tree_node *specials) {
  if (config) HP_TRY(read_added_decoder(t, config));
  HP_TRY(read_roles(t, config, specials));
  HP_TRY(read_more_specials(t, config, "additional_special_tokens"));
  HP_TRY(read_more_specials(t, config, "extra_special_tokens"));
  if (!config) return HP_OK;
  HP_TRY(tree_opt_bool(config, "clean_up_tokenization_spaces", false, &t->cleans_up));
  return tree_opt_bool(config, "split_special_tokens", false, &t->split_special);
}

static hp_status read_config(tokenizer *t, const char *dir, const tree_node *config) {
  tree specials;
  HP_TRY(read_file(dir, "special_tokens_map.json", CONFIG_MAX, &specials));
  hp_status st = apply_config(t, config, specials.root);
  tree_free(&specials);
  return st;
}

hp_status tok_read_config(tokenizer *t, const char *dir) {
  tree config;
  HP_TRY(read_file(dir, "tokenizer_config.json", CONFIG_MAX, &config));
  hp_status st = read_config(t, dir, config.root);
  tree_free(&config);
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
    {"GPT2Tokenizer",
     "gpt2",
     "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s},"
     "\"decoder\":{\"type\":\"ByteLevel\"}}",
     "<|endoftext|>",
     {[TOKEN_BOS] = true, [TOKEN_EOS] = true, [TOKEN_UNK] = true}},
    {"Qwen2Tokenizer",
     "qwen",
     "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
     "\"pretokenizers\":["
     "{\"type\":\"Split\",\"pattern\":{\"Regex\":"
     "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
     "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
     "\"behavior\":\"Isolated\",\"invert\":false},"
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":false}]},"
     "\"decoder\":{\"type\":\"ByteLevel\"}}",
     "<|endoftext|>",
     {[TOKEN_EOS] = true, [TOKEN_PAD] = true, [TOKEN_UNK] = true}},
};

static bool starts_with(const tree_node *text, const char *with) {
  size_t n = strlen(with);
  return text && text->kind == TREE_STRING && text->len >= n && !memcmp(text->string, with, n);
}

/* By tokenizer_class, or by config.json's model_type when there is none. */
static hp_status find_class(const char *dir, const tree_node *config, const tok_class **out) {
  tree model;
  const tree_node *name = tok_get(config, "tokenizer_class");
  HP_TRY(read_file(dir, "config.json", CONFIG_MAX, &model));
  const tree_node *type = tok_get(model.root, "model_type");
  *out = NULL;
  for (size_t i = 0; !*out && i < sizeof classes / sizeof *classes; i++)
    if (name ? starts_with(name, classes[i].name) : starts_with(type, classes[i].model_type))
      *out = &classes[i];
  tree_free(&model);
  if (*out) return HP_OK;
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "%s: vocab.json and merges.txt, but tokenizer_class is %s; known are GPT2Tokenizer and "
          "Qwen2Tokenizer: write that in tokenizer_config.json, or save tokenizer.json with "
          "Transformers",
          dir, name ? tree_what(name).text : "not given");
}

static hp_status read_parts(tokenizer *t, const tok_class *c, bool prefix) {
  char json[1024];
  tree parts;
  int n = snprintf(json, sizeof json, c->parts, prefix ? "true" : "false");
  HP_ASSERT(n > 0 && (size_t)n < sizeof json);
  HP_TRY(json_parse(json, (size_t)n, c->name, &parts));
  hp_status st = tok_normalizer_parse(tok_get(parts.root, "normalizer"), &t->normalizer);
  if (!st) st = tok_pretokenizer_parse(tok_get(parts.root, "pre_tokenizer"), &t->pretokenizer);
  if (!st) st = tok_decoder_parse(tok_get(parts.root, "decoder"), &t->decoder);
  tree_free(&parts);
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
      HP_FAIL(HP_ERR_INPUT, "%s:%u: \"%.*s\"; expected two tokens with one space between", path,
              line, len > 80 ? 80 : (int)len, at);
    HP_TRY(tok_bpe_add_merge(b, at, (size_t)(space - at), space + 1, (size_t)(stop - space - 1),
                             TOK_RANK_NEXT, line));
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
  if (!path_exists(path.at))
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
  tree vocab;
  HP_TRY(read_file(dir, "vocab.json", VOCAB_MAX, &vocab));
  hp_status st = tok_model_parse_vocab(vocab.root, &t->model);
  tree_free(&vocab);
  return st ? st : read_merges(t, dir);
}

static hp_status set_default_roles(tokenizer *t, const tok_class *c, const tree_node *config) {
  tree_node token = {.kind = TREE_STRING,
                     .string = c->token,
                     .len = (uint32_t)strlen(c->token),
                     .source = c->name};
  for (int i = 0; i < TOK_ROLES; i++)
    if (c->roles[i] && t->role[i] < 0 && !tree_get(config, role_key[i]))
      HP_TRY(add_special(t, &token, &t->role[i]));
  return HP_OK;
}

static hp_status read_vocab_merges(tokenizer *t, const char *dir, const tree_node *config) {
  const tok_class *c;
  bool prefix = false;
  HP_TRY(find_class(dir, config, &c));
  if (config) HP_TRY(tree_opt_bool(config, "add_prefix_space", false, &prefix));
  HP_TRY(read_parts(t, c, prefix));
  HP_TRY(read_model(t, dir));
  HP_TRY(read_config(t, dir, config));
  HP_TRY(set_default_roles(t, c, config));
  return read_bos_eos(t, config);
}

hp_status tok_read_vocab_merges(tokenizer *t, const char *dir) {
  tree config;
  HP_TRY(read_file(dir, "tokenizer_config.json", CONFIG_MAX, &config));
  hp_status st = read_vocab_merges(t, dir, config.root);
  tree_free(&config);
  return st;
}
