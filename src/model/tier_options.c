#include "model/tier_options.h"

#include "base/str.h"

#include <string.h>

static const struct {
  const char *name;
  int class;
} classes[] = {{"weights", HP_MEMORY_PARAMS},
               {"optimizer", HP_MEMORY_OPTIMIZER},
               {"activations", HP_MEMORY_ACTIVATIONS},
               {"gradients", HP_MEMORY_GRADIENTS},
               {"kv", HP_MEMORY_OTHER}};
enum { CLASSES = sizeof classes / sizeof *classes, WORDS = 4 };
static const char *const words[WORDS] = {[HP_OFFLOAD_NONE] = "none",
                                         [HP_OFFLOAD_AUTO] = "auto",
                                         [HP_OFFLOAD_HOST] = "host",
                                         [HP_OFFLOAD_FLASH] = "flash"};

void tier_options_init(tier_options *o) {
  *o = (tier_options){0};
  memset(o->offload, HP_OFFLOAD_AUTO, sizeof o->offload);
}

void tier_options_free(tier_options *o) {
  vec_free(&o->homes);
  vec_free(&o->flash);
  arena_free(&o->mem);
}

int tier_options_find_class(const char *name) {
  for (int i = 0; i < CLASSES; i++)
    if (!strcmp(classes[i].name, name)) return classes[i].class;
  return -1;
}

int tier_options_find_word(const char *word) {
  for (int i = 0; i < WORDS; i++)
    if (!strcmp(words[i], word)) return i;
  return -1;
}

const char *tier_options_word(int offload) { return words[offload]; }

static hp_status refuse_word(const char *name, const char *word) {
  const char *near = str_nearest(word, words, WORDS);
  HP_FAIL(HP_ERR_ARG, "%.80s: \"%.80s\" is not known; expected auto, none, host or flash%s%s%s",
          name, word, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static hp_status refuse_name(const char *name) {
  const char *known[CLASSES];
  for (int i = 0; i < CLASSES; i++) known[i] = classes[i].name;
  const char *near = str_nearest(name, known, CLASSES);
  HP_FAIL(HP_ERR_ARG,
          "\"%.80s\" is no class of memory; expected weights, optimizer, activations, gradients, "
          "kv, or a pattern of tensors' names, as \"*.mlp.*\"%s%s%s",
          name, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

hp_status tier_options_set(tier_options *o, const char *name, const char *word) {
  int class = tier_options_find_class(name), offload = tier_options_find_word(word);
  if (class < 0 && !strpbrk(name, "*?[.")) return refuse_name(name);
  if (offload < 0) return refuse_word(name, word);
  if (class >= 0) {
    o->offload[class] = (uint8_t)offload;
    return HP_OK;
  }
  tier_home home = {arena_strdup(&o->mem, name), offload};
  return home.pattern && vec_push(&o->homes, home) ? HP_OK : HP_ERR_OOM;
}

/* Cuts text at the first of these characters. */
static char *cut(char *text, const char *at) {
  text += strcspn(text, at);
  if (*text) *text++ = 0;
  return text;
}

hp_status tier_options_parse(tier_options *o, const char *text) {
  int all = tier_options_find_word(text);
  if (all == HP_OFFLOAD_NONE || all == HP_OFFLOAD_AUTO) {
    memset(o->offload, all, sizeof o->offload);
    return HP_OK;
  }
  char *at = arena_strdup(&o->mem, text);
  HP_TRY_MEM(at);
  if (!strchr(text, '='))
    HP_FAIL(HP_ERR_ARG,
            "\"%.80s\" is not known; expected auto, none, or as weights=host,optimizer=flash",
            text);
  while (*at) {
    char *name = at, *word;
    at = cut(at, ",");
    word = cut(name, "=");
    HP_TRY(tier_options_set(o, name, word));
  }
  return HP_OK;
}

hp_status tier_options_add_flash(tier_options *o, const char *paths) {
  char *at = arena_strdup(&o->mem, paths);
  HP_TRY_MEM(at);
  do {
    char *path = at;
    at = cut(at, ",");
    if (!*path) HP_FAIL(HP_ERR_ARG, "the path of a folder is empty");
    for (size_t i = 0; i < o->flash.len; i++)
      if (!strcmp(o->flash.at[i], path)) HP_FAIL(HP_ERR_ARG, "\"%.200s\" is given twice", path);
    if (!vec_push(&o->flash, path)) return HP_ERR_OOM;
  } while (*at);
  return HP_OK;
}

hp_status tier_options_set_policy(tier_options *o, const char *word) {
  enum { POLICIES = HP_PLAN_FULL_RECOMPUTE + 1 };
  static const char *const policy[POLICIES] = {[HP_PLAN_BEST] = "auto",
                                               [HP_PLAN_ZERO_OFFLOAD] = "zero_offload",
                                               [HP_PLAN_LAYER_AHEAD] = "layer_ahead",
                                               [HP_PLAN_FULL_RECOMPUTE] = "full_recompute"};
  for (int i = 0; i < POLICIES; i++)
    if (!strcmp(policy[i], word)) {
      o->policy = i;
      return HP_OK;
    }
  const char *near = str_nearest(word, policy, POLICIES);
  HP_FAIL(
      HP_ERR_ARG,
      "\"%.80s\" is not known; expected auto, zero_offload, layer_ahead or full_recompute%s%s%s",
      word, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

/* A policy decides what leaves, so that nothing else may. */
static hp_status check_policy(const tier_options *o) {
  bool is_auto = !o->homes.len;
  for (int i = 0; i < CLASSES; i++) is_auto &= o->offload[classes[i].class] == HP_OFFLOAD_AUTO;
  if (o->policy && !is_auto)
    HP_FAIL(HP_ERR_ARG, "offload_policy decides what leaves the device: offload must be auto");
  return HP_OK;
}

/* What is to be on flash; NULL: nothing. */
static const char *find_on_flash(const tier_options *o) {
  for (int i = 0; i < CLASSES; i++)
    if (o->offload[classes[i].class] == HP_OFFLOAD_FLASH) return classes[i].name;
  for (size_t i = 0; i < o->homes.len; i++)
    if (o->homes.at[i].offload == HP_OFFLOAD_FLASH) return o->homes.at[i].pattern;
  return NULL;
}

hp_status tier_options_check(const tier_options *o) {
  const char *what = find_on_flash(o);
  HP_TRY(check_policy(o));
  if (what && !o->flash.len)
    HP_FAIL(HP_ERR_ARG,
            "%.80s: flash needs folders for it (flash) and the bytes to take there "
            "(flash_limit)",
            what);
  if (o->flash.len && !o->flash_limit)
    HP_FAIL(HP_ERR_ARG, "flash \"%.200s\" needs flash_limit: the bytes to take there, as 64GiB",
            o->flash.at[0]);
  if (!o->flash.len && o->flash_limit)
    HP_FAIL(HP_ERR_ARG, "flash_limit needs flash: the folders to take the bytes in");
  return HP_OK;
}

void tier_options_fill(const tier_options *o, hp_device_options *out) {
  memcpy(out->offload, o->offload, sizeof out->offload);
  out->flash = o->flash.at;
  out->n_flash = (int)o->flash.len;
  out->flash_limit = o->flash_limit;
  out->host_limit = o->host_limit;
  out->offload_policy = o->policy;
}

hp_status tier_options_apply(const tier_options *o, hp_device *d) {
  for (size_t i = 0; i < o->homes.len; i++)
    HP_TRY(hp_device_home(d, o->homes.at[i].pattern, o->homes.at[i].offload));
  return HP_OK;
}
