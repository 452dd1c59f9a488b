#include "train/train_tiers.h"

#include <stdio.h>
#include <string.h>

/* Failure of the last call, told at n; a lack of memory stays one. */
static hp_status at(const tree_node *n, hp_status st) {
  char why[ERR_MESSAGE_MAX];
  if (!st || st == HP_ERR_OOM) return st;
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  TREE_FAIL(n, "%s", why);
}

/* The key of the file, else that of the block. */
static const tree_node *value_of(const train_config *c, int key, int block_key) {
  return c->at[key] ? c->at[key] : c->at[block_key];
}

static hp_status check_twins(const train_config *c, int key, int block_key) {
  str a = {0}, b = {0};
  if (!c->at[key] || !c->at[block_key]) return HP_OK;
  train_config_print_value(c, key, &a);
  train_config_print_value(c, block_key, &b);
  bool equal = a.at && b.at && !strcmp(a.at, b.at);
  str_free(&a);
  str_free(&b);
  if (equal) return HP_OK;
  TREE_FAIL(c->at[block_key], "differs from %s; keep one of them", tree_where(c->at[key]).text);
}

/* A map's value says auto, none, host or flash of a class or a pattern. */
static hp_status read_entry(const tree_node *v, tier_options *o) {
  const char *word;
  HP_TRY(tree_as_string(v, &word));
  return at(v, tier_options_set(o, v->key, word));
}

static hp_status read_offload(const tree_node *v, tier_options *o) {
  const char *text;
  if (!v) return HP_OK;
  if (v->kind != TREE_MAP) {
    HP_TRY(tree_as_string(v, &text));
    return at(v, tier_options_parse(o, text));
  }
  for (uint32_t i = 0; i < v->len; i++) HP_TRY(read_entry(v->child[i], o));
  return HP_OK;
}

static hp_status read_flash(const tree_node *v, tier_options *o) {
  const char *path;
  if (!v) return HP_OK;
  if (v->kind != TREE_LIST) {
    HP_TRY(tree_as_string(v, &path));
    return at(v, tier_options_add_flash(o, path));
  }
  for (uint32_t i = 0; i < v->len; i++) {
    HP_TRY(tree_as_string(v->child[i], &path));
    HP_TRY(at(v->child[i], tier_options_add_flash(o, path)));
  }
  return HP_OK;
}

/* Does `offload` say it of the class? */
static bool says(const tree_node *offload, const char *class) {
  if (!offload) return false;
  if (offload->kind == TREE_MAP) return tree_get(offload, class) != NULL;
  return offload->kind == TREE_STRING && strcmp(offload->string, "auto");
}

/* What a DeepSpeed file says of a class. */
static hp_status add_synonym(const train_config *c, const char *class, int offload,
                             const tree_node *where, tier_options *o) {
  const tree_node *own = value_of(c, KEY_offload, KEY_PARALLEL_offload);
  int k = tier_options_find_class(class);
  if (offload < 0) return HP_OK;
  if (says(own, class) && o->offload[k] != offload)
    TREE_FAIL(where, "contradicts %s; keep one of them", tree_where(own).text);
  o->offload[k] = (uint8_t)offload;
  return HP_OK;
}

static hp_status add_deepspeed(const train_config *c, tier_options *o) {
  const train_deepspeed *d = &c->is.deepspeed;
  HP_TRY(add_synonym(c, "optimizer", d->optimizer, d->optimizer_at, o));
  HP_TRY(add_synonym(c, "weights", d->weights, d->weights_at, o));
  if (!d->nvme_path) return HP_OK;
  if (!o->flash.len) return at(d->path_at, tier_options_add_flash(o, d->nvme_path));
  for (size_t i = 0; i < o->flash.len; i++)
    if (!strcmp(o->flash.at[i], d->nvme_path)) return HP_OK;
  TREE_FAIL(d->path_at, "\"%s\" is none of the folders of flash (%s); keep one of them",
            d->nvme_path, tree_where(value_of(c, KEY_flash, KEY_PARALLEL_flash)).text);
}

/* Where to tell what is missing: at the key that asks for it. */
static const tree_node *asks(const train_config *c) {
  static const int key[] = {KEY_offload,     KEY_PARALLEL_offload,
                            KEY_flash,       KEY_PARALLEL_flash,
                            KEY_flash_limit, KEY_PARALLEL_flash_limit,
                            KEY_deepspeed,   KEY_PARALLEL_offload_policy};
  if (c->is.deepspeed.path_at && !value_of(c, KEY_flash, KEY_PARALLEL_flash))
    return c->is.deepspeed.path_at;
  for (size_t i = 0; i < sizeof key / sizeof *key; i++)
    if (c->at[key[i]]) return c->at[key[i]];
  return c->root;
}

hp_status train_tiers_decide(train_config *c) {
  tier_options *o = &c->is.tiers;
  tier_options_free(o);
  tier_options_init(o);
  HP_TRY(check_twins(c, KEY_offload, KEY_PARALLEL_offload));
  HP_TRY(check_twins(c, KEY_flash, KEY_PARALLEL_flash));
  HP_TRY(check_twins(c, KEY_flash_limit, KEY_PARALLEL_flash_limit));
  HP_TRY(check_twins(c, KEY_host_limit, KEY_PARALLEL_host_limit));
  HP_TRY(read_offload(value_of(c, KEY_offload, KEY_PARALLEL_offload), o));
  HP_TRY(read_flash(value_of(c, KEY_flash, KEY_PARALLEL_flash), o));
  o->flash_limit = c->flash_limit ? c->flash_limit : c->parallel.flash_limit;
  o->host_limit = c->host_limit ? c->host_limit : c->parallel.host_limit;
  HP_TRY(add_deepspeed(c, o));
  const tree_node *policy = c->at[KEY_PARALLEL_offload_policy];
  if (policy) HP_TRY(at(policy, tier_options_set_policy(o, c->parallel.offload_policy)));
  return at(asks(c), tier_options_check(o));
}
