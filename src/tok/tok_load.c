/* tokenizer.json into a tokenizer. */
#include "tok/tok_internal.h"

#include "base/io.h"
#include "base/json.h"
#include "base/milestone.h"
#include "ckpt/manifest.h"

#include <string.h>

enum { FILE_MAX = 512 << 20 };

static hp_status read_added(tokenizer *t, const tree_node *root) {
  const tree_node *list;
  HP_TRY(tree_opt_list(root, "added_tokens", &list));
  for (size_t i = 0; list && i < list->len; i++) {
    const tree_node *node = list->child[i];
    tok_added_token x;
    size_t id;
    HP_TRY(tok_added_parse(node, &x));
    HP_TRY(tok_need_count(node, "id", &id));
    HP_TRY(tok_added_add(&t->added, &x, (int64_t)id, &t->model.vocab, t->normalizer, node->source,
                         node->line));
  }
  return HP_OK;
}

static hp_status read_root(tokenizer *t, const tree_node *root) {
  const tree_node *model, *version = NULL;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(tok_opt_text(root, "version", &version));
  if (version && !tok_is(version, "1.0"))
    HP_FAIL(HP_ERR_UNSUPPORTED, "%s: %s of tokenizer.json; expected \"1.0\"",
            tree_where(version).text, tree_what(version).text);
  HP_TRY(tree_need_map(root, "model", &model));
  HP_TRY(tok_normalizer_parse(tok_get(root, "normalizer"), &t->normalizer));
  HP_TRY(tok_pretokenizer_parse(tok_get(root, "pre_tokenizer"), &t->pretokenizer));
  HP_TRY(tok_post_parse(tok_get(root, "post_processor"), &t->post));
  HP_TRY(tok_decoder_parse(tok_get(root, "decoder"), &t->decoder));
  HP_TRY(tok_model_parse(model, &t->model));
  return read_added(t, root);
}

static bool is_same_text(tok_text a, tok_text b) {
  return a.len == b.len && !memcmp(a.at, b.at, a.len);
}

/* Builds what encoding and decoding look things up in, once all parts and tokens are there. */
static hp_status finish(tokenizer *t) {
  HP_TRY(tok_added_link(&t->added));
  t->n = t->model.vocab.n;
  if (t->added.token.len && (size_t)t->added.largest >= t->n) t->n = (size_t)t->added.largest + 1;
  t->entry = mem_calloc(t->n, sizeof *t->entry);
  HP_TRY_MEM(t->entry);
  for (size_t i = 0; i < t->model.vocab.n; i++)
    t->entry[i].text = t->entry[i].name = t->model.vocab.token[i];
  for (size_t i = 0; i < t->added.token.len; i++) {
    const tok_added_token *a = &t->added.token.at[i];
    t->entry[a->id] = (tok_entry){a->pattern, a->content, a->special};
    if (!is_same_text(a->pattern, a->content)) t->entry[a->id].special = false;
  }
  t->takes_bytes = tok_normalizer_takes_bytes(t->normalizer) ||
                   tok_pretokenizer_takes_bytes(t->pretokenizer) ||
                   tok_model_takes_bytes(&t->model);
  return HP_OK;
}

static hp_status create_tokenizer(tokenizer **out) {
  tokenizer *t = mem_calloc(1, sizeof *t);
  HP_TRY_MEM(t);
  for (int i = 0; i < TOK_ROLES; i++) t->role[i] = -1;
  *out = t;
  return HP_OK;
}

/* Takes the tree over. */
static hp_status read_tree(tokenizer *t, tree *json) {
  hp_status st = read_root(t, json->root);
  tree_free(json);
  return st;
}

hp_status tokenizer_parse(const char *name, const char *json, size_t n, tokenizer **out) {
  tokenizer *t;
  tree parsed;
  hp_status st;
  HP_TRY(create_tokenizer(&t));
  HP_TRY_GOTO(json_parse(json, n, name, &parsed), st);
  HP_TRY_GOTO(read_tree(t, &parsed), st);
  HP_TRY_GOTO(finish(t), st);
done:
  if (st) tokenizer_free(t);
  else *out = t;
  return st;
}

static hp_status read_json_file(tokenizer *t, const char *path) {
  tree parsed;
  HP_TRY(json_load(path, FILE_MAX, &parsed));
  return read_tree(t, &parsed);
}

static hp_status read_dir(tokenizer *t, const char *dir, str *path) {
  HP_TRY(manifest_verify_texts(dir));
  HP_TRY(path_join(path, dir, "tokenizer.json"));
  if (path_exists(path->at)) {
    HP_TRY(read_json_file(t, path->at));
    return tok_read_config(t, dir);
  }
  HP_TRY(path_join(path, dir, "vocab.json"));
  if (path_exists(path->at)) return tok_read_vocab_merges(t, dir);
  HP_TRY(path_join(path, dir, "tokenizer.model"));
  if (path_exists(path->at))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: a SentencePiece model; save the tokenizer once with Transformers, which writes "
            "tokenizer.json next to it",
            path->at);
  HP_FAIL(HP_ERR_INPUT,
          "%s: no tokenizer there; expected tokenizer.json, or vocab.json and merges.txt", dir);
}

bool tokenizer_is_in(const char *dir) {
  static const char *const file[] = {"tokenizer.json", "vocab.json"};
  str path = {0};
  bool found = false;
  for (int i = 0; i < 2 && !found; i++)
    found = !path_join(&path, dir, file[i]) && path_exists(path.at);
  str_free(&path);
  return found;
}

hp_status tokenizer_load(const char *path, tokenizer **out) {
  tokenizer *t;
  str work = {0};
  hp_status st;
  HP_TRY(create_tokenizer(&t));
  const char *before = milestone_set_activity("loading the tokenizer");
  if (dir_exists(path)) HP_TRY_GOTO(read_dir(t, path, &work), st);
  else HP_TRY_GOTO(read_json_file(t, path), st);
  HP_TRY_GOTO(finish(t), st);
done:
  milestone_set_activity(before);
  str_free(&work);
  if (st) tokenizer_free(t);
  else *out = t;
  return st;
}
