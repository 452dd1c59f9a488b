#include "data/model_files.h"

#include "base/dtype.h"
#include "base/io.h"
#include "base/json.h"

#include <string.h>

static const char *const names[] = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "added_tokens.json",
                                    "tokenizer.model",
                                    "chat_template.jinja",
                                    "generation_config.json"};
enum { NAMES = sizeof names / sizeof *names };
_Static_assert((int)NAMES <= (int)MODEL_FILES_MAX, "room for every name");

hp_status model_files_list(const char *dir, arena *mem, const char *path[MODEL_FILES_MAX],
                           size_t *n) {
  *n = 0;
  for (int i = 0; i < NAMES; i++) {
    const char *p = arena_printf(mem, "%s/%s", dir, names[i]);
    HP_TRY_MEM(p);
    if (file_exists(p)) path[(*n)++] = p;
  }
  return HP_OK;
}

hp_status model_file_copy(const char *path, const char *dir) {
  file_map m;
  str to = {0};
  const char *slash = strrchr(path, '/');
  HP_TRY(file_map_open(path, &m));
  hp_status st = path_join(&to, dir, slash ? slash + 1 : path);
  if (!st) st = file_write(to.at, m.at, m.len);
  file_map_close(&m);
  str_free(&to);
  return st;
}

void model_config_print(const tree_node *root, hp_dtype weights, str *out) {
  json_writer w = {.out = out, .indent = 2};
  const char *word = dtype_long_name(weights);
  bool told = false;
  json_open_map(&w);
  for (uint32_t i = 0; i < root->len; i++) {
    const tree_node *n = root->child[i];
    bool dtype = !strcmp(n->key, "dtype") || !strcmp(n->key, "torch_dtype");
    json_put_key(&w, n->key);
    if (dtype) json_put_string(&w, word);
    else json_put_tree(&w, n);
    told |= dtype;
  }
  if (!told) {
    json_put_key(&w, "dtype");
    json_put_string(&w, word);
  }
  json_close(&w);
  str_add_char(out, '\n');
}

hp_status model_config_copy(const char *path, hp_dtype weights, const char *dir) {
  tree config;
  str text = {0}, to = {0};
  HP_TRY(json_load(path, 0, &config));
  hp_status st = tree_expect(config.root, TREE_MAP);
  if (!st) model_config_print(config.root, weights, &text);
  if (!st) st = str_status(&text);
  if (!st) st = path_join(&to, dir, "config.json");
  if (!st) st = file_write(to.at, text.at, text.len);
  tree_free(&config);
  str_free(&text);
  str_free(&to);
  return st;
}

hp_status model_files_copy(const char *from, const char *to) {
  arena mem = {0};
  const char *path[MODEL_FILES_MAX];
  size_t n;
  hp_status st = model_files_list(from, &mem, path, &n);
  for (size_t i = 0; i < n && !st; i++) st = model_file_copy(path[i], to);
  arena_free(&mem);
  return st;
}
