/* Megatron's keys of recomputation against the values of recompute that they mean. */
#include "test.h"

#include "base/yaml.h"
#include "config_text.h"

#define FULL    "recompute_granularity: full\n"
#define SOME    "recompute_granularity: selective\n"
#define BLOCK   FULL "recompute_method: block\n"
#define UNIFORM FULL "recompute_method: uniform\n"

static const struct {
  const char *keys;
  train_recompute what;
  int layers;
  const char *modules; /* separated by spaces */
} means[] = {
    {"", RECOMPUTE_AUTO, 0, ""},
    {"recompute_granularity: null\nrecompute_method: null\nrecompute_num_layers: null\n"
     "recompute_modules: null\n",
     RECOMPUTE_AUTO, 0, ""},
    {"recompute_granularity: none\nhyper_parallel: {recompute: full}\n", RECOMPUTE_FULL, 0, ""},
    {BLOCK "recompute_num_layers: 3\n", RECOMPUTE_SOME, 3, ""},
    {UNIFORM "recompute_num_layers: 1\n", RECOMPUTE_FULL, 0, ""},
    {UNIFORM "recompute_num_layers: 4\n", RECOMPUTE_FULL, 0, ""},
    {SOME, RECOMPUTE_SOME, 0, "core_attn "},
    {SOME "recompute_modules: [moe, layernorm]\n", RECOMPUTE_SOME, 0, "moe layernorm "},
    {SOME "recompute_modules: mlp, core_attn\n", RECOMPUTE_SOME, 0, "mlp core_attn "},
    /* with other keys that say the same */
    {BLOCK "recompute_num_layers: 3\nhyper_parallel: {recompute: 3}\n", RECOMPUTE_SOME, 3, ""},
    {UNIFORM "recompute_num_layers: 1\nhyper_parallel: {recompute: full}\n", RECOMPUTE_FULL, 0, ""},
    {UNIFORM "recompute_num_layers: 1\ngradient_checkpointing: true\n", RECOMPUTE_FULL, 0, ""},
    {BLOCK "recompute_num_layers: 2\nhyper_parallel: {recompute: auto}\n", RECOMPUTE_SOME, 2, ""},
};

static void check_means(const train_config *c, size_t i) {
  str modules = {0};
  for (size_t k = 0; k < c->is.recompute_modules.n; k++)
    str_printf(&modules, "%s ", c->is.recompute_modules.at[k]);
  if (c->is.recompute != means[i].what || c->is.recompute_blocks != means[i].layers ||
      strcmp(modules.at ? modules.at : "", means[i].modules))
    test_fail(__FILE__, __LINE__, "%s: %d, %d layers, modules %s", means[i].keys, c->is.recompute,
              c->is.recompute_blocks, modules.at ? modules.at : "none");
  str_free(&modules);
}

TEST(megatron_keys_of_recomputation_are_read_and_printed) {
  for (size_t i = 0; i < sizeof means / sizeof *means; i++) {
    train_config c, again;
    tree source, t;
    str text = {0};
    CHECK_OK(config_text_parse(means[i].keys, &source, &c));
    check_means(&c, i);
    train_config_print(&c, &text);
    CHECK_OK(yaml_parse(text.at, text.len, "printed.yaml", &t));
    CHECK_OK(train_config_parse(t.root, &again));
    check_means(&again, i);
    train_config_free(&again);
    train_config_free(&c);
    tree_free(&t);
    tree_free(&source);
    str_free(&text);
  }
}

TEST(a_chunk_of_several_layers_is_told_to_be_single_layers) {
  for (int n = 1; n <= 2; n++) {
    train_config c;
    tree source;
    CHECK_OK(config_text_parse(n == 1 ? UNIFORM "recompute_num_layers: 1\n"
                                      : UNIFORM "recompute_num_layers: 2\n",
                               &source, &c));
    bool told = false;
    for (size_t i = 0; i < c.notes.len; i++)
      told |=
          strstr(c.notes.at[i], "all layers are recomputed, each as a chunk of its own") != NULL;
    CHECK_EQ(told, n > 1);
    train_config_free(&c);
    tree_free(&source);
  }
}

static const struct {
  const char *more, *says;
} refused[] = {
    {"recompute_granularity: ful\n", "run.yaml:5:24: recompute_granularity: \"ful\" is not known"},
    {FULL "recompute_method: blocks\nrecompute_num_layers: 1\n", "did you mean \"block\"?"},
    {FULL "recompute_num_layers: 1\n",
     "run.yaml:5:24: recompute_granularity: full needs recompute_method: uniform"},
    {BLOCK, "full needs recompute_num_layers: the layers of each stage"},
    {UNIFORM, "full needs recompute_num_layers: layers of a chunk, as 1"},
    {BLOCK "recompute_num_layers: 0\n", "0 is out of range; expected a whole number from 1"},
    {UNIFORM "recompute_num_layers: -1\n", "-1 is out of range; expected a whole number from 1"},
    {BLOCK "recompute_num_layers: 4294967297\n", "out of range"},
    {BLOCK "recompute_num_layers: all\n", "expected an integer"},
    {BLOCK "recompute_num_layers: 1\nrecompute_modules: [mlp]\n",
     "recompute_modules: belongs to recompute_granularity: selective, and that is full "
     "(run.yaml:5"},
    {SOME "recompute_num_layers: 1\n",
     "recompute_num_layers: belongs to recompute_granularity: full, and that is selective"},
    {SOME "recompute_method: block\n",
     "run.yaml:6:19: recompute_method: belongs to recompute_granularity: full"},
    {SOME "recompute_modules: [core_atn]\n",
     "\"core_atn\" is not known; expected core_attn, layernorm, mla_up_proj, mlp, moe, moe_act or "
     "shared_experts (did you mean \"core_attn\"?)"},
    {SOME "recompute_modules: [self_attn]\n", "\"self_attn\" is not known; expected core_attn"},
    {SOME "recompute_modules: []\n", "is an empty list; leave it out to recompute core_attn"},
    {SOME "recompute_modules: [mlp, 3]\n", "recompute_modules"},
    {SOME "recompute_modules: {mlp: 1}\n", "recompute_modules"},
    {"recompute_method: block\n", "has no effect without recompute_granularity; write "
                                  "recompute_granularity: full"},
    {"recompute_num_layers: 2\n", "write recompute_granularity: full, or remove it"},
    {"recompute_modules: [mlp]\n", "write recompute_granularity: selective, or remove it"},
    {"recompute_granularity: none\nrecompute_num_layers: 2\n", "has no effect without"},
    {BLOCK "recompute_num_layers: 2\nhyper_parallel: {recompute: 3}\n",
     "run.yaml:8:29: hyper_parallel.recompute: 3 contradicts run.yaml:5:24: "
     "recompute_granularity; remove one of them"},
    {BLOCK "recompute_num_layers: 2\nhyper_parallel: {recompute: none}\n",
     "contradicts run.yaml:5"},
    {UNIFORM "recompute_num_layers: 1\nhyper_parallel: {recompute: 1}\n", "contradicts run.yaml:5"},
    {SOME "hyper_parallel: {recompute: [mlp]}\n", "contradicts run.yaml:5"},
    {BLOCK "recompute_num_layers: 2\ngradient_checkpointing: true\n",
     "run.yaml:5:24: recompute_granularity: the string \"full\" contradicts run.yaml:8:25: "
     "gradient_checkpointing; remove one of them"},
    {SOME "disable_gradient_checkpointing: true\n",
     "\"selective\" contradicts run.yaml:6:33: disable_gradient_checkpointing"},
    {SOME "hyper_parallel: {offload_policy: full_recompute}\n",
     "\"selective\" contradicts run.yaml:6"},
    {"disable_gradient_checkpointing: true\nhyper_parallel: {offload_policy: full_recompute}\n",
     "offload_policy: the string \"full_recompute\" contradicts run.yaml:5:33"},
};

TEST(megatron_keys_of_recomputation_that_contradict_are_refused_with_both_lines) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    config_text_refused(refused[i].more, refused[i].says);
}
