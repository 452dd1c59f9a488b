#include "train/chat_files.h"

#include "base/json.h"
#include "base/log.h"
#include "dataset/chat_jinja.h"

#include <string.h>

static const char config_name[] = "tokenizer_config.json";

/* Parses tokenizer_config.json; a model without has a NULL root. */
static hp_status parse_config(const model_files *files, tree *out) {
  *out = (tree){0};
  for (size_t i = 0; i < files->n; i++) {
    const model_file *f = &files->file[i];
    if (strcmp(f->name, config_name)) continue;
    HP_TRY(json_parse(f->bytes, f->len, config_name, out));
    return tree_expect(out->root, TREE_MAP);
  }
  return HP_OK;
}

static bool has_template(const model_files *files, const tree_node *config) {
  const tree_node *own = config ? tree_get(config, "chat_template") : NULL;
  if (own && own->kind != TREE_NULL) return true;
  for (size_t i = 0; i < files->n; i++)
    if (!strncmp(files->file[i].name, "chat_template.", strlen("chat_template."))) return true;
  return false;
}

/* The end token's text, which a tokenizer without gets from LlamaFactory. */
static const char *find_eos(const chat_template *of, const tokenizer *t) {
  int32_t own = tokenizer_role(t, TOKEN_EOS);
  if (of->replaces_eos) return of->stop[0];
  return own < 0 ? "<|endoftext|>" : tokenizer_token(t, own, NULL);
}

static hp_status put_text(model_files *files, const char *name, str *text) {
  HP_TRY(str_status(text));
  size_t n = text->len;
  model_files_put(files, name, str_take(text), n);
  return HP_OK;
}

static hp_status put_template(const chat_template *of, const tokenizer *t, model_files *files) {
  int32_t bos = tokenizer_role(t, TOKEN_BOS);
  str text = {0};
  if (!chat_jinja_print(of, bos < 0 ? NULL : tokenizer_token(t, bos, NULL), find_eos(of, t),
                        &text)) {
    log_info("template %s cannot be written as Jinja: no chat_template.jinja is saved", of->name);
    return HP_OK;
  }
  hp_status st = put_text(files, "chat_template.jinja", &text);
  str_free(&text);
  return st;
}

static hp_status put_eos(const tree_node *config, const char *eos, model_files *files) {
  str text = {0};
  json_writer w = {.out = &text, .indent = 2, .utf8 = true};
  bool told = false;
  json_open_map(&w);
  for (uint32_t i = 0; i < config->len; i++) {
    const tree_node *n = config->child[i];
    bool is_eos = !strcmp(n->key, "eos_token");
    json_put_key(&w, n->key);
    if (is_eos) json_put_string(&w, eos);
    else json_put_tree(&w, n);
    told |= is_eos;
  }
  if (!told) json_key_string(&w, "eos_token", eos);
  json_close(&w);
  str_add_char(&text, '\n');
  hp_status st = put_text(files, config_name, &text);
  str_free(&text);
  return st;
}

/* An end token that the tokenizer has not would be a new id, for which the model has no row. */
static hp_status check_eos(const chat_template *of, const tokenizer *t) {
  const char *eos = of->stop[0];
  if (!of->replaces_eos || tokenizer_find(t, eos, strlen(eos)) >= 0) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "template %s ends texts with %s, which is no token of the tokenizer; take the template "
          "that belongs to the model",
          of->name, eos);
}

hp_status chat_files_complete(const char *name, const tokenizer *t, model_files *files) {
  chat_template of;
  tree config;
  HP_TRY(chat_template_find(name, &of));
  HP_TRY(check_eos(&of, t));
  hp_status st = parse_config(files, &config);
  if (!st && (of.replaces_jinja || !has_template(files, config.root)))
    st = put_template(&of, t, files);
  if (!st && of.replaces_eos && config.root) st = put_eos(config.root, of.stop[0], files);
  tree_free(&config);
  return st;
}
