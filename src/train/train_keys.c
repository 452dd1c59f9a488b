/* The schema: a row for each key, and the choices that keys have. */
#include "train/train_config.h"

#include <stddef.h>
#include <string.h>

#define USED(group, name, type, otherwise, least, most, choices, help)                             \
  {#name, TRAIN_USED, GROUP_##group, TRAIN_##type, otherwise,                                      \
   least, most,       choices,       help,         offsetof(train_config, name)},
#define NEUTRAL(name, type, otherwise, why)                                                        \
  {#name, TRAIN_NEUTRAL, GROUP_NONE, TRAIN_##type, otherwise, 0, 0, "", why, 0},
#define REFUSED(name, type, otherwise, instead)                                                    \
  {#name, TRAIN_REFUSED, GROUP_NONE, TRAIN_##type, otherwise, 0, 0, "", instead, 0},
#define SYNONYM(name, means)                                                                       \
  {#name, TRAIN_SYNONYM, GROUP_NONE, TRAIN_NODE, "", 0, 0, "", #means, 0},

/* A separator stands before each word, to be skipped before the first. */
static const char stage_choices[] =
#define LOSS(stage, ...)       "|" #stage
#define PREFERENCE(stage, ...) "|" #stage
#define NOT_BUILT(stage)       "|!" #stage
#include "train/losses.def"
#undef LOSS
#undef PREFERENCE
#undef NOT_BUILT
    ;
static const char stage_help[] =
#define LOSS(stage, data, samples, each, metric, metric_of, help) "; " #stage ": " help
#define PREFERENCE(stage, data, samples, kind, scores, help)      "; " #stage ": " help
#define NOT_BUILT(stage)
#include "train/losses.def"
#undef LOSS
#undef PREFERENCE
#undef NOT_BUILT
    ;
#define STAGE_CHOICES (stage_choices + 1)
#define STAGE_HELP    (stage_help + 2)

static const train_key keys[] = {
#include "train/train_keys.def"
#undef USED
#define USED(group, name, type, otherwise, least, most, choices, help)                             \
  {#name, TRAIN_USED, GROUP_##group, TRAIN_##type, otherwise,                                      \
   least, most,       choices,       help,         offsetof(train_config, parallel.name)},
#include "train/parallel_keys.def"
};

const train_key *train_key_get(int key) { return &keys[key]; }

int train_key_find(const char *name, bool block) {
  for (int k = block ? KEY_TOP_COUNT : 0; k < (block ? KEY_COUNT : KEY_TOP_COUNT); k++)
    if (!strcmp(keys[k].name, name)) return k;
  return -1;
}

const char *train_key_next_choice(const char **at, size_t *len, bool *built) {
  const char *word = *at + (**at == '!');
  *built = **at != '!';
  *len = strcspn(word, "|");
  *at = word + *len + (word[*len] == '|');
  return word;
}

int train_key_find_choice(const char *choices, const char *word, size_t n) {
  size_t len;
  bool built;
  for (int i = 0; *choices; i++) {
    const char *one = train_key_next_choice(&choices, &len, &built);
    if (len == n && !strncmp(one, word, n)) return i;
  }
  return -1;
}

const char *train_key_choice(const char *choices, int i, size_t *len) {
  bool built;
  const char *one = choices;
  for (*len = 0; i >= 0; i--) one = train_key_next_choice(&choices, len, &built);
  return one;
}
