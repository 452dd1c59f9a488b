#include "train/report_settings.h"

static hp_status fill(const train_config *c, int key, arena *a, report_setting *out) {
  const train_key *k = train_key_get(key);
  str value = {0};
  train_config_print_value(c, key, &value);
  hp_status st = str_status(&value);
  *out = (report_setting){.help = k->help, .given = c->at[key] != NULL};
  if (!st) out->value = arena_strdup(a, value.at ? value.at : "");
  str_free(&value);
  HP_TRY(st);
  out->name = key >= KEY_TOP_COUNT ? arena_printf(a, "hyper_parallel.%s", k->name) : k->name;
  return out->value && out->name ? HP_OK : HP_ERR_OOM;
}

hp_status report_settings_list(const train_config *c, arena *a, const report_setting **list,
                               int *n) {
  report_setting *at = arena_alloc(a, KEY_COUNT, sizeof *at);
  HP_TRY_MEM(at);
  *list = at;
  *n = 0;
  for (int k = 0; k < KEY_COUNT; k++) {
    if (train_key_get(k)->status != TRAIN_USED || k == KEY_hyper_parallel) continue;
    HP_TRY(fill(c, k, a, &at[*n]));
    ++*n;
  }
  return HP_OK;
}
