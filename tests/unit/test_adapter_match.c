/* Which modules adapter_config.json means, against peft. */
#include "base/json.h"
#include "model/adapter_match.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Text of the file, and "module:scale ..." in peft. */
static const struct {
  const char *config, *modules;
} cases[] = {
#include "unit/adapter_cases.h"
};

enum { LAYERS = 3, LINEARS = 7 };
static const char *const linears[LINEARS] = {"self_attn.q_proj", "self_attn.k_proj",
                                             "self_attn.v_proj", "self_attn.o_proj",
                                             "mlp.gate_proj",    "mlp.up_proj",
                                             "mlp.down_proj"};

static hp_status parse(const char *text, tree *config, adapter_match **out) {
  CHECK_OK(json_parse(text, strlen(text), "adapter_config.json", config));
  return adapter_match_create(config->root, out);
}

/* Adds "module:scale " if the module has an adapter. */
static void add_module(adapter_match *m, const tree_node *root, const char *name, str *out) {
  double rank, alpha;
  bool meant, rslora;
  CHECK_OK(adapter_match_target(m, name, &meant));
  if (!meant) return;
  CHECK_OK(tree_need_double(root, "r", &rank));
  CHECK_OK(tree_need_double(root, "lora_alpha", &alpha));
  CHECK_OK(tree_opt_bool(root, "use_rslora", false, &rslora));
  CHECK_OK(adapter_match_values(m, name, &rank, &alpha));
  str_printf(out, "%s%s:%.6g", out->len ? " " : "", name, alpha / (rslora ? sqrt(rank) : rank));
}

TEST(modules_and_scales_are_those_of_peft) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tree config;
    adapter_match *m;
    char name[64];
    str found = {0};
    str_add(&found, "");
    CHECK_OK(parse(cases[i].config, &config, &m));
    for (int k = 0; k < LAYERS * LINEARS; k++) {
      snprintf(name, sizeof name, "model.layers.%d.%s", k / LINEARS, linears[k % LINEARS]);
      add_module(m, config.root, name, &found);
    }
    add_module(m, config.root, "lm_head", &found);
    if (strcmp(found.at, cases[i].modules))
      test_fail(__FILE__, __LINE__, "%s: found %s, peft has %s", cases[i].config, found.at,
                cases[i].modules);
    str_free(&found);
    adapter_match_free(m);
    tree_free(&config);
  }
}

TEST(keys_that_peft_refuses_are_refused_by_name) {
  static const struct {
    const char *config, *why;
  } bad[] = {{"{}", "target_modules is missing"},
             {"{\"target_modules\": null}", "target_modules is missing"},
             {"{\"target_modules\": 3}", "target_modules: expected a list"},
             {"{\"target_modules\": [3]}", "target_modules[0]: expected a string"},
             {"{\"target_modules\": \"(q\"}", "target_modules: bad regular expression"},
             {"{\"target_modules\": [\"q\"], \"layers_pattern\": \"h\"}",
              "it goes with layers_to_transf"},
             {"{\"target_modules\": \"q\", \"layers_to_transform\": 1}",
              "it goes with names in target_m"},
             {"{\"target_modules\": [\"q\"], \"layers_to_transform\": [\"1\"]}",
              "layers_to_transform[0]: expected an integer"},
             {"{\"target_modules\": [\"q\"], \"alpha_pattern\": [1]}",
              "alpha_pattern: expected a map"},
             {"{\"target_modules\": [\"q\"], \"alpha_pattern\": {\"q\": null}}",
              "alpha_pattern.q: expected a number"},
             {"{\"target_modules\": [\"q\"], \"rank_pattern\": {\"q(\": 2}}",
              "bad regular expression"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tree config;
    adapter_match *m;
    err_clear();
    CHECK_EQ(parse(bad[i].config, &config, &m), HP_ERR_INPUT);
    if (!strstr(err_message(), bad[i].why))
      test_fail(__FILE__, __LINE__, "\"%s\" is not in: %s", bad[i].why, err_message());
    tree_free(&config);
  }
}
