#include "cli/chat_config.h"

#include "train/train_tuning.h"

#include <string.h>

enum { INFER_FLOAT16 = 1, INFER_BFLOAT16 }; /* places in the choices of infer_dtype */

/* Keys of devices are options of the verb. */
static hp_status refuse_device_keys(const train_config *c) {
  for (int k = 0; k < KEY_COUNT; k++) {
    train_group of = train_key_get(k)->group;
    if ((of != GROUP_DEVICE && of != GROUP_PARALLEL) || !c->at[k]) continue;
    TREE_FAIL(c->at[k], "hyper chat takes devices and memory as options (hyper chat --help): leave "
                        "it out, and write the option");
  }
  return HP_OK;
}

static hp_status check_keys(const train_config *c) {
  HP_TRY(refuse_device_keys(c));
  HP_TRY(train_tuning_check(c));
  if (c->num_beams > 1)
    TREE_FAIL(c->at[KEY_num_beams], "beam search is not built; write num_beams: 1");
  if (!c->skip_special_tokens)
    TREE_FAIL(c->at[KEY_skip_special_tokens],
              "special tokens are not shown; write skip_special_tokens: true");
  if (c->infer_dtype == INFER_FLOAT16)
    TREE_FAIL(c->at[KEY_infer_dtype],
              "products in float16 are not built; write float32 or bfloat16");
  return HP_OK;
}

/* All adapters, each with the folder inside of it, as --adapter has them. */
static hp_status join_adapters(train_config *c, arena *text, const char **out) {
  str one = {0}, all = {0};
  HP_TRY(train_config_split(c, c->adapter_name_or_path, &c->is.adapters));
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < c->is.adapters.n; i++) {
    st = train_tuning_folder(c, i, &one);
    if (!st) str_printf(&all, "%s%s", i ? "," : "", one.at);
  }
  if (!st) st = str_status(&all);
  if (!st && all.len && !(*out = arena_strdup(text, all.at))) st = HP_ERR_OOM;
  str_free(&one);
  str_free(&all);
  return st;
}

static void apply_sampling(const train_config *c, chat_settings *s) {
  bool draws = c->do_sample && c->temperature > 0;
  if (s->temperature == CHAT_UNSAID_NUM) s->temperature = draws ? c->temperature : 0;
  if (s->top_p == CHAT_UNSAID_NUM) s->top_p = c->top_p;
  if (s->top_k == CHAT_UNSAID) s->top_k = c->top_k;
  if (s->max_new_tokens == CHAT_UNSAID) s->max_new_tokens = c->max_new_tokens;
  if (s->repetition_penalty == CHAT_UNSAID_NUM) s->repetition_penalty = c->repetition_penalty;
}

hp_status chat_config_apply(train_config *c, arena *text, chat_settings *s) {
  conversation_options *talk = &s->talk;
  HP_TRY(check_keys(c));
  if (!s->m.model) s->m.model = c->model_name_or_path;
  if (!s->m.adapter) HP_TRY(join_adapters(c, text, &s->m.adapter));
  if (!s->m.dtype && c->infer_dtype == INFER_BFLOAT16) s->m.dtype = "bf16";
  if (!talk->template) talk->template = c->template;
  if (!talk->tool_format) talk->tool_format = c->tool_format;
  talk->default_system = c->default_system;
  talk->keeps_thoughts = c->preserve_thinking;
  if (talk->thinks == THINKS_UNSAID && c->at[KEY_enable_thinking])
    talk->thinks = c->enable_thinking == 1;
  apply_sampling(c, s);
  return HP_OK;
}
