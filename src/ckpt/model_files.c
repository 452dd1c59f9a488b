#include "ckpt/model_files.h"

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
                                    "chat_template.json",
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

/* --- in memory -------------------------------------------------------------------------------- */

static hp_status read_one(const char *dir, const char *name, model_files *m) {
  str path = {0};
  model_file f = {.name = name};
  bool there = false;
  hp_status st = path_join(&path, dir, name);
  if (!st) st = path_look(path.at, &there);
  there = there && file_exists(path.at);
  if (there) st = file_read(path.at, MODEL_FILE_BYTES_MAX, &f.bytes, &f.len);
  if (there && !st) m->file[m->n++] = f;
  str_free(&path);
  return st;
}

hp_status model_files_read(const char *dir, model_files *out) {
  model_files m = {.n = 0};
  hp_status st = HP_OK;
  for (int i = 0; i < NAMES && !st; i++) st = read_one(dir, names[i], &m);
  if (st) model_files_free(&m);
  else *out = m;
  return st;
}

void model_files_free(model_files *m) {
  for (size_t i = 0; i < m->n; i++) mem_free(m->file[i].bytes);
  *m = (model_files){.n = 0};
}

void model_files_put(model_files *m, const char *name, char *bytes, size_t len) {
  size_t i = 0;
  while (i < m->n && strcmp(m->file[i].name, name)) i++;
  HP_ASSERT(i < MODEL_FILES_MAX);
  if (i == m->n) m->n++;
  else mem_free(m->file[i].bytes);
  m->file[i] = (model_file){name, bytes, len};
}

hp_status model_files_write(const model_files *m, const char *dir) {
  str path = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; i < m->n && !st; i++) {
    st = path_join(&path, dir, m->file[i].name);
    if (!st) st = file_write(path.at, m->file[i].bytes, m->file[i].len);
  }
  str_free(&path);
  return st;
}

hp_status model_files_copy(const char *from, const char *to) {
  model_files m;
  HP_TRY(model_files_read(from, &m));
  hp_status st = model_files_write(&m, to);
  model_files_free(&m);
  return st;
}
