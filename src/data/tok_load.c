/* tokenizer.json into a tokenizer. */
#include "data/tok_internal.h"

#include "base/io.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 512 << 20 };

hp_status tok_added_parse(const char *file, const tj_node *node, tok_added_token *out) {
  tj_reader r = {file, "an added token", node};
  const tj_node *content;
  if (node->kind != TJ_MAP)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: an added token is %s; expected an object", file, node->line,
            tj_kind_name(node->kind));
  HP_TRY(tj_get_text(&r, "content", true, &content));
  if (content->text.len > UINT32_MAX / 2)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: an added token of %zu bytes", file, node->line, content->text.len);
  *out = (tok_added_token){.content = {content->text.at, (uint32_t)content->text.len}};
  HP_TRY(tj_get_flag(&r, "single_word", false, &out->single_word));
  HP_TRY(tj_get_flag(&r, "lstrip", false, &out->lstrip));
  HP_TRY(tj_get_flag(&r, "rstrip", false, &out->rstrip));
  HP_TRY(tj_get_flag(&r, "special", false, &out->special));
  out->normalized = !out->special;
  return tj_get_flag(&r, "normalized", false, &out->normalized);
}

static hp_status read_added(tokenizer *t, const char *file, const tj_node *root) {
  const tj_node *list = tj_find(root, "added_tokens");
  tj_reader top = {file, "the file", root};
  if (!list) return HP_OK;
  HP_TRY(tj_get_kind(&top, "added_tokens", TJ_LIST, &list));
  for (size_t i = 0; i < list->items.n; i++) {
    const tj_node *node = &list->items.at[i];
    tok_added_token x;
    size_t id;
    tj_reader r = {file, "an added token", node};
    HP_TRY(tok_added_parse(file, node, &x));
    HP_TRY(tj_get_count(&r, "id", true, &id));
    HP_TRY(tok_added_add(&t->added, &x, (int64_t)id, &t->model.vocab, t->normalizer, file, node->line));
  }
  return HP_OK;
}

static hp_status read_root(tokenizer *t, const char *file, const tj_node *root) {
  tj_reader top = {file, "the file", root};
  const tj_node *model, *version = NULL;
  if (root->kind != TJ_MAP)
    HP_FAIL(HP_ERR_INPUT, "%s: the file holds %s; expected the object of a tokenizer.json", file,
            tj_kind_name(root->kind));
  HP_TRY(tj_get_text(&top, "version", false, &version));
  if (version && !tj_is(version, "1.0"))
    HP_FAIL(HP_ERR_UNSUPPORTED, "%s:%u: version \"%.*s\" of the format; expected \"1.0\"", file,
            version->line, version->text.len > 40 ? 40 : (int)version->text.len, version->text.at);
  HP_TRY(tj_get_kind(&top, "model", TJ_MAP, &model));
  HP_TRY(tok_normalizer_parse(file, tj_find(root, "normalizer"), &t->normalizer));
  HP_TRY(tok_pretokenizer_parse(file, tj_find(root, "pre_tokenizer"), &t->pretokenizer));
  HP_TRY(tok_post_parse(file, tj_find(root, "post_processor"), &t->post));
  HP_TRY(tok_decoder_parse(file, tj_find(root, "decoder"), &t->decoder));
  HP_TRY(tok_model_parse(file, model, &t->model));
  return read_added(t, file, root);
}

hp_status tok_read_json(tokenizer *t, const char *file, const char *json, size_t n) {
  tj_doc doc;
  HP_TRY(tj_doc_parse(file, json, n, &doc));
  hp_status st = read_root(t, file, &doc.root);
  tj_doc_free(&doc);
  return st;
}

static bool same_text(tok_text a, tok_text b) { return a.len == b.len && !memcmp(a.at, b.at, a.len); }

hp_status tok_finish(tokenizer *t) {
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
    if (!same_text(a->pattern, a->content)) t->entry[a->id].special = false;
  }
  t->takes_bytes = tok_normalizer_takes_bytes(t->normalizer) ||
                   tok_pretokenizer_takes_bytes(t->pretokenizer) || tok_model_takes_bytes(&t->model);
  return HP_OK;
}

static hp_status create(tokenizer **out) {
  tokenizer *t = mem_calloc(1, sizeof *t);
  HP_TRY_MEM(t);
  for (int i = 0; i < TOK_ROLES; i++) t->role[i] = -1;
  *out = t;
  return HP_OK;
}

hp_status tokenizer_parse(const char *name, const char *json, size_t n, tokenizer **out) {
  tokenizer *t;
  hp_status st;
  HP_TRY(create(&t));
  HP_TRY_GOTO(tok_read_json(t, name, json, n), st);
  HP_TRY_GOTO(tok_finish(t), st);
done:
  if (st) tokenizer_free(t);
  else *out = t;
  return st;
}

static hp_status read_json_file(tokenizer *t, const char *path) {
  char *json;
  size_t n;
  HP_TRY(file_read(path, FILE_MAX, &json, &n));
  hp_status st = tok_read_json(t, path, json, n);
  mem_free(json);
  return st;
}

static hp_status read_dir(tokenizer *t, const char *dir, str *path) {
  HP_TRY(path_join(path, dir, "tokenizer.json"));
  if (file_exists(path->at)) {
    HP_TRY(read_json_file(t, path->at));
    return tok_read_config(t, dir);
  }
  HP_TRY(path_join(path, dir, "vocab.json"));
  if (file_exists(path->at)) return tok_read_vocab_merges(t, dir);
  HP_TRY(path_join(path, dir, "tokenizer.model"));
  if (file_exists(path->at))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: a SentencePiece model; save the tokenizer once with Transformers, which writes "
            "tokenizer.json beside it",
            path->at);
  HP_FAIL(HP_ERR_INPUT, "%s: no tokenizer there; expected tokenizer.json, or vocab.json and merges.txt",
          dir);
}

hp_status tokenizer_load(const char *path, tokenizer **out) {
  tokenizer *t;
  str work = {0};
  hp_status st;
  HP_TRY(create(&t));
  if (dir_exists(path)) HP_TRY_GOTO(read_dir(t, path, &work), st);
  else HP_TRY_GOTO(read_json_file(t, path), st);
  HP_TRY_GOTO(tok_finish(t), st);
done:
  str_free(&work);
  if (st) tokenizer_free(t);
  else *out = t;
  return st;
}
