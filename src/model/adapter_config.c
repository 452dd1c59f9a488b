/* adapter_config.json. */
#include "base/json.h"
#include "model/adapter_files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keys that change what is computed, and are built with this value only. */
static hp_status refuse_others(const tree_node *root) {
  static const char *const key[] =
      {"lora_bias",         "use_qalora",   "alora_invocation_tokens", "layer_replication",
       "target_parameters", "arrow_config", "trainable_token_indices", "megatron_config"};
  for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
    const tree_node *n = tree_get(root, key[i]);
    bool nothing = !n || n->kind == TREE_NULL || (n->kind == TREE_BOOL && !n->boolean) ||
                   ((n->kind == TREE_MAP || n->kind == TREE_LIST) && !n->len);
    if (!nothing) TREE_FAIL(n, "%s is not built", tree_what(n).text);
  }
  return HP_OK;
}

static hp_status need_word(const tree_node *root, const char *key, const char *absent,
                           const char *built) {
  const char *word;
  HP_TRY(tree_opt_string(root, key, absent, &word));
  if (!strcmp(word, built)) return HP_OK;
  if (!tree_get(root, key)) TREE_FAIL(root, "%s is missing; expected %s", key, built);
  TREE_FAIL(tree_get(root, key), "\"%s\" is not built; expected %s", word, built);
}

/* A list of names, or nothing. */
static hp_status read_names(const tree_node *root, const char *key, arena *mem,
                            adapter_names *out) {
  const tree_node *n;
  HP_TRY(tree_opt_list(root, key, &n));
  *out = (adapter_names){0};
  if (!n) return HP_OK;
  const char **at = arena_alloc(mem, n->len ? n->len : 1, sizeof *at);
  HP_TRY_MEM(at);
  for (uint32_t i = 0; i < n->len; i++) HP_TRY(tree_as_string(n->child[i], &at[i]));
  *out = (adapter_names){at, n->len};
  return HP_OK;
}

/* A key that may be missing, but not null: peft has no value for it then. */
static hp_status read_number(const tree_node *root, const char *key, double absent, double *out) {
  const tree_node *n = tree_get(root, key);
  *out = absent;
  if (!n) return HP_OK;
  HP_TRY(tree_as_double(n, out));
  if (!isfinite(*out)) TREE_FAIL(n, "%g; expected a finite number", *out);
  return HP_OK;
}

/* Adapters that go with what was left of the weights when they were made. */
static hp_status refuse_residual(const tree_node *root) {
  static const char *const inits[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};
  const tree_node *n = tree_get(root, "init_lora_weights");
  for (size_t i = 0; n && n->kind == TREE_STRING && i < sizeof inits / sizeof *inits; i++)
    if (!strncmp(n->string, inits[i], strlen(inits[i])))
      TREE_FAIL(
          n,
          "the adapter belongs to the rest of weights from which \"%s\" took a part, and not to "
          "the model; expected a plain adapter: train with pissa_convert: true and use the "
          "folder pissa_converted in its output_dir",
          n->string);
  return HP_OK;
}

hp_status adapter_read_config(adapter *a) {
  const tree_node *root = a->config.root;
  adapter_options *o = &a->o;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(need_word(root, "peft_type", "", "LORA"));
  HP_TRY(need_word(root, "bias", "none", "none"));
  HP_TRY(refuse_others(root));
  HP_TRY(refuse_residual(root));
  o->rank = 8;
  if (tree_get(root, "r")) HP_TRY(tree_as_int(tree_get(root, "r"), &o->rank));
  HP_TRY(read_number(root, "lora_alpha", 8, &o->alpha));
  HP_TRY(read_number(root, "lora_dropout", 0, &o->dropout));
  HP_TRY(tree_opt_bool(root, "use_dora", false, &o->dora));
  HP_TRY(tree_opt_bool(root, "use_rslora", false, &o->rslora));
  if (o->rank < 1 || o->rank > INT32_MAX)
    TREE_FAIL(tree_get(root, "r"), "%lld; expected a rank of 1 or more", (long long)o->rank);
  if (!(o->dropout >= 0 && o->dropout < 1))
    TREE_FAIL(tree_get(root, "lora_dropout"), "%g; expected 0 or more, and less than 1",
              o->dropout);
  return read_names(root, "modules_to_save", &a->mem, &o->whole);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_names(json_writer *w, const char *key, const adapter_names *names) {
  json_put_key(w, key);
  if (!names->n) {
    json_put_null(w);
    return;
  }
  json_open_list(w);
  for (size_t i = 0; i < names->n; i++) json_put_string(w, names->at[i]);
  json_close(w);
}

/* The last components of the modules' names, each once. */
static hp_status put_targets(json_writer *w, const adapter *a) {
  map seen = {0};
  hp_status st = HP_OK;
  json_put_key(w, "target_modules");
  json_open_list(w);
  for (size_t i = 0; !st && i < a->modules.len; i++) {
    const char *dot = strrchr(a->modules.at[i].name, '.');
    const char *last = dot ? dot + 1 : a->modules.at[i].name;
    uint32_t yes;
    if (map_get(&seen, last, strlen(last), &yes)) continue;
    st = map_set(&seen, last, strlen(last), 1);
    json_put_string(w, last);
  }
  json_close(w);
  map_free(&seen);
  return st;
}

/* As it was read, but for where the base model is. */
static void print_again(const tree_node *root, const char *base, json_writer *w) {
  json_open_map(w);
  for (uint32_t i = 0; i < root->len; i++) {
    const tree_node *n = root->child[i];
    json_put_key(w, n->key);
    if (!strcmp(n->key, "base_model_name_or_path")) json_put_string(w, base);
    else if (!strcmp(n->key, "inference_mode")) json_put_bool(w, true);
    else json_put_tree(w, n);
  }
  json_close(w);
}

static void put_start(json_writer *w, const adapter *a) {
  char name[40] = "pissa";
  if (a->o.pissa_iter >= 0)
    snprintf(name, sizeof name, "pissa_niter_%lld", (long long)a->o.pissa_iter);
  if (a->o.pissa) json_key_string(w, "init_lora_weights", name);
  else json_key_bool(w, "init_lora_weights", true);
}

static hp_status print_anew(const adapter *a, const char *base, bool transposed, json_writer *w) {
  bool all = a->o.target.n == 1 && !strcmp(a->o.target.at[0], "all");
  hp_status st = HP_OK;
  json_open_map(w);
  json_put_key(w, "alpha_pattern"), json_open_map(w), json_close(w);
  json_put_key(w, "auto_mapping"), json_put_null(w);
  json_key_string(w, "base_model_name_or_path", base);
  json_key_string(w, "bias", "none");
  json_key_bool(w, "fan_in_fan_out", transposed);
  json_key_bool(w, "inference_mode", true);
  put_start(w, a);
  json_put_key(w, "lora_alpha");
  if (a->o.alpha == floor(a->o.alpha)) json_put_int(w, (int64_t)a->o.alpha);
  else json_put_double(w, a->o.alpha);
  json_key_double(w, "lora_dropout", a->o.dropout);
  put_names(w, "modules_to_save", &a->o.whole);
  json_key_string(w, "peft_type", "LORA");
  json_key_int(w, "r", a->o.rank);
  json_put_key(w, "rank_pattern"), json_open_map(w), json_close(w);
  json_put_key(w, "revision"), json_put_null(w);
  if (all) st = put_targets(w, a);
  else put_names(w, "target_modules", &a->o.target);
  json_key_string(w, "task_type", "CAUSAL_LM");
  json_key_bool(w, "use_dora", a->o.dora);
  json_key_bool(w, "use_rslora", a->o.rslora);
  json_close(w);
  return st;
}

hp_status adapter_print_config(const adapter *a, const char *base, bool transposed, str *out) {
  json_writer w = {.out = out, .indent = 2};
  hp_status st = HP_OK;
  if (a->config.root) print_again(a->config.root, base, &w);
  else st = print_anew(a, base, transposed, &w);
  str_add_char(out, '\n');
  return st ? st : str_status(out);
}
