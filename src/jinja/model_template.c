#include "jinja/model_template.h"

#include "base/io.h"
#include "base/json.h"

#include <string.h>

enum { CONFIG_MAX = 64 << 20 };

void model_template_free(model_template *t) {
  jinja_free(t->plain);
  jinja_free(t->tools);
  *t = (model_template){0};
}

/* --- loading ----------------------------------------------------------------------------- */

/* Parses a file of the folder; *out stays NULL if it is not there. */
static hp_status load_file(const char *dir, const char *name, jinja **out) {
  str path = {0};
  char *text = NULL;
  size_t n;
  bool there = false;
  hp_status st = path_join(&path, dir, name);
  if (!st) st = path_look(path.at, &there);
  if (!st && there) st = file_read(path.at, JINJA_TEXT_MAX, &text, &n);
  if (!st && there) st = jinja_parse(path.at, text, n, out);
  mem_free(text);
  str_free(&path);
  return st;
}

/* Messages name the file and the key, and lines of the template. */
static hp_status parse_node(const tree_node *node, jinja **out) {
  HP_TRY(tree_expect(node, TREE_STRING));
  return jinja_parse(tree_where(node).text, node->string, node->len, out);
}

static hp_status find_named(const tree_node *list, const char *name, const tree_node **out) {
  *out = NULL;
  for (uint32_t i = 0; i < list->len; i++) {
    const char *text;
    HP_TRY(tree_need_string(list->child[i], "name", &text));
    if (!strcmp(text, name)) return tree_need(list->child[i], "template", out);
  }
  return HP_OK;
}

static hp_status parse_list(const tree_node *list, model_template *out) {
  const tree_node *plain, *tools;
  HP_TRY(find_named(list, "default", &plain));
  HP_TRY(find_named(list, "tool_use", &tools));
  if (!plain) TREE_FAIL(list, "none of the templates has the name \"default\"");
  HP_TRY(parse_node(plain, &out->plain));
  return tools ? parse_node(tools, &out->tools) : HP_OK;
}

/* The key chat_template of a JSON file that may be missing. */
static hp_status load_key(const char *dir, const char *name, model_template *out) {
  str path = {0};
  tree config = {0};
  bool there = false;
  hp_status st = path_join(&path, dir, name);
  if (!st) st = path_look(path.at, &there);
  if (!st && there) {
    st = json_load(path.at, CONFIG_MAX, &config);
    if (!st) st = tree_expect(config.root, TREE_MAP);
    const tree_node *node = st ? NULL : tree_get(config.root, "chat_template");
    if (node && node->kind == TREE_LIST) st = parse_list(node, out);
    else if (node && node->kind != TREE_NULL) st = parse_node(node, &out->plain);
    tree_free(&config);
  }
  str_free(&path);
  return st;
}

static hp_status load_any(const char *dir, model_template *out) {
  HP_TRY(load_file(dir, "chat_template.jinja", &out->plain));
  if (out->plain) return load_file(dir, "additional_chat_templates/tool_use.jinja", &out->tools);
  HP_TRY(load_key(dir, "tokenizer_config.json", out));
  return out->plain ? HP_OK : load_key(dir, "chat_template.json", out);
}

hp_status model_template_load(const char *dir, model_template *out) {
  model_template t = {0};
  hp_status st = load_any(dir, &t);
  if (st) model_template_free(&t);
  else *out = t;
  return st;
}

/* --- rendering --------------------------------------------------------------------------- */

static hp_status new_child(tree *t, tree_kind kind, const char *key, tree_node **out) {
  tree_node *n = tree_new(&t->mem, kind, t->root->source, 0, 0);
  HP_TRY_MEM(n);
  n->key = key;
  n->key_len = (uint32_t)strlen(key);
  *out = n;
  return HP_OK;
}

/* Makes {"messages": list} of a list. */
static hp_status wrap_list(tree *t) {
  tree_node *list = t->root;
  tree_node *map = tree_new(&t->mem, TREE_MAP, list->source, list->line, list->column);
  HP_TRY_MEM(map);
  list->key = "messages";
  list->key_len = 8;
  t->root = map;
  return tree_adopt(&t->mem, map, &list, 1);
}

static hp_status set_missing(tree *t, const char *key) {
  tree_node *n;
  if (tree_get(t->root, key)) return HP_OK;
  HP_TRY(new_child(t, TREE_NULL, key, &n));
  return tree_set(&t->mem, t->root, n);
}

static hp_status check_messages(const tree_node *root) {
  const tree_node *list;
  const char *role;
  HP_TRY(tree_need_list(root, "messages", &list));
  if (!list->len) TREE_FAIL(list, "a conversation without a message");
  for (uint32_t i = 0; i < list->len; i++) {
    HP_TRY(tree_expect(list->child[i], TREE_MAP));
    HP_TRY(tree_need_string(list->child[i], "role", &role));
  }
  return HP_OK;
}

static hp_status add_variables(tree *t, const template_variable *variables, size_t n,
                               bool generate) {
  tree_node *node;
  for (size_t i = 0; i < n; i++) {
    if (tree_get(t->root, variables[i].name)) continue;
    const template_variable *v = &variables[i];
    HP_TRY(new_child(t, v->text ? TREE_STRING : TREE_BOOL, v->name, &node));
    if (!v->text) node->boolean = v->boolean;
    else node->string = v->text, node->len = (uint32_t)v->len;
    HP_TRY(tree_set(&t->mem, t->root, node));
  }
  HP_TRY(set_missing(t, "tools"));
  HP_TRY(set_missing(t, "documents"));
  HP_TRY(new_child(t, TREE_BOOL, "add_generation_prompt", &node));
  node->boolean = generate;
  return tree_set(&t->mem, t->root, node);
}

hp_status model_template_render(const model_template *t, tree *conversation,
                                const template_variable *variables, size_t n, bool generate,
                                str *out) {
  if (conversation->root->kind == TREE_LIST) HP_TRY(wrap_list(conversation));
  HP_TRY(tree_expect(conversation->root, TREE_MAP));
  HP_TRY(check_messages(conversation->root));
  HP_TRY(add_variables(conversation, variables, n, generate));
  const tree_node *tools = tree_get(conversation->root, "tools");
  const jinja *j = t->tools && tools->kind != TREE_NULL ? t->tools : t->plain;
  return jinja_render(j, conversation->root, NULL, out);
}
