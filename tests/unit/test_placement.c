/* Groups of devices: what a configuration says of them, and whose layers they have. */
#include "test.h"

#include "base/io.h"
#include "base/yaml.h"
#include "model/placement.h"

#include <stdio.h>
#include <string.h>

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 16, "
    "\"intermediate_size\": 24, \"num_hidden_layers\": 6, \"num_attention_heads\": 2, "
    "\"num_key_value_heads\": 2, \"tie_word_embeddings\": false}";
static const char tied_gpt2[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 64, \"n_embd\": 16, \"n_layer\": 4, \"n_head\": 2, "
    "\"n_positions\": 32}";

typedef struct {
  tree file;
  arena mem;
  placement p;
  lm *m;
} placed;

static hp_status read(const char *groups, placed *x) {
  *x = (placed){.m = NULL};
  HP_TRY(yaml_parse(groups, strlen(groups), "run.yaml", &x->file));
  return placement_read(x->file.root, &x->mem, &x->p);
}

static hp_status place(const char *config, const char *groups, placed *x) {
  char path[512];
  CHECK_OK(read(groups, x));
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, config, strlen(config)));
  CHECK_OK(lm_create(path, NULL, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &x->m));
  return placement_find_layers(&x->p, x->m);
}

static void end(placed *x) {
  lm_free(x->m);
  tree_free(&x->file);
  arena_free(&x->mem);
}

static void mesh_is(const char *groups, const char *want) {
  placed x;
  str text = {0};
  const char *mesh;
  CHECK_OK(read(groups, &x));
  CHECK_OK(placement_mesh(&x.p, &text, &mesh));
  if (want) CHECK_STR(mesh, want);
  else CHECK(!mesh);
  str_free(&text);
  end(&x);
}

TEST(groups_have_meshes_by_their_strategies) {
  mesh_is("{a: {devices: 0-1, module: x, strategy: tp=2}, b: {devices: 2-7, module: y, strategy: "
          "'dp=3,ep=3,tp=2'}}",
          "(2)(tp);(3,2)(dp,tp)");
  mesh_is("{a: {devices: [0, 2], module: x}, b: {devices: [1, 3-4], module: y}}",
          "(2)(dp)@0,2;(3)(dp)@1,3,4");
  mesh_is("{a: {devices: 0, module: x}, b: {devices: 1-4, module: y, strategy: 'pp=2,dp=2'}}",
          "(1)(dp);(2)(dp);(2)(dp)");
  mesh_is("{a: {devices: 3-6, module: x, strategy: 'pp=2,tp=2'}, b: {devices: 0-2, module: y}}",
          "(2)(tp)@3,4;(2)(tp)@5,6;(3)(dp)@0,1,2");
  mesh_is("{a: {devices: [1, 0], module: x}}", "(2)(dp)");
  mesh_is("{a: {devices: 0, module: x}}", NULL);
}

TEST(replicas_of_a_run_are_those_of_the_group_that_has_most) {
  placed x;
  CHECK_OK(read("{a: {devices: 0-3, module: x, strategy: 'dp=2,tp=2'}, b: {devices: 4-6, module: "
                "y}}",
                &x));
  CHECK_EQ(placement_replicas(&x.p), 3);
  CHECK_EQ(placement_batch_shards(&x.p), 6);
  CHECK_EQ(placement_devices(&x.p), 7);
  CHECK_EQ(placement_meshes(&x.p), 2);
  end(&x);
}

TEST(groups_that_cannot_be_are_refused_with_their_place) {
  static const struct {
    const char *groups, *why;
  } bad[] = {
      {"[a]", "expected a map"},
      {"{}", "0 groups; expected 1 to 64"},
      {"{a: 3}", "run.yaml:1:5: a: expected a map"},
      {"{a: {module: x}}", "devices"},
      {"{a: {devices: 0}}", "module"},
      {"{a: {devices: 0, module: x, stratgy: dp=1}}", "run.yaml:1:38: a.stratgy: unknown key"},
      {"{a: {devices: [], module: x}}", "run.yaml:1:15: a.devices: is empty"},
      {"{a: {devices: 0, module: []}}", "a.module: is empty"},
      {"{a: {devices: 0, module: {b: 1}}}", "a.module: expected"},
      {"{a: {devices: one, module: x}}", "\"one\" names no devices"},
      {"{a: {devices: 0.5, module: x}}", "a.devices: expected devices: a number, a range"},
      {"{a: {devices: 1-, module: x}}", "\"1-\" names no devices"},
      {"{a: {devices: -1, module: x}}", "devices -1 to -1"},
      {"{a: {devices: 3-2, module: x}}", "devices 3 to 2; expected a range that does not fall"},
      {"{a: {devices: 0-9999999, module: x}}", "devices 0 to 9999999"},
      {"{a: {devices: [0-1, 1], module: x}}", "a.devices[1]: device 1 is named twice"},
      {"{a: {devices: 0-1, module: x}, b: {devices: 1, module: y}}",
       "run.yaml:1:45: b.devices: device 1 is of groups.a, too (run.yaml:1:15: a.devices)"},
      {"{a: {devices: 0, module: x}, b: {devices: 2, module: y}}",
       "device 1 is in no group; expected each of the devices 0 to 2 in one"},
      {"{a: {devices: 0-2, module: x, strategy: tp=2}}",
       "run.yaml:1:41: a.strategy: strategy \"tp=2\": pp x dp x cp x tp x tp_y is 2 devices, of 3"},
      {"{a: {devices: 0, module: x, strategy: pd=1}}", "did you mean \"dp\""},
  };
  placed x;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    CHECK_FAILS(read(bad[i].groups, &x), bad[i].why);
    end(&x);
  }
}

static void layers_are(const placed *x, int i, const char *name, int64_t first, int64_t layers) {
  CHECK_STR(x->p.group[i].name, name);
  CHECK_EQ(x->p.group[i].first, first);
  CHECK_EQ(x->p.group[i].layers, layers);
}

TEST(groups_are_in_the_order_of_their_layers) {
  placed x;
  CHECK_OK(place(llama,
                 "{end: {devices: 0, module: [lm_head, model.norm]}, b: {devices: 1, module: "
                 "[model.layers.4, model.layers.2-3, model.layers.5]}, a: {devices: 2, module: "
                 "model.layers.0-1}}",
                 &x));
  layers_are(&x, 0, "groups.a", 0, 2);
  layers_are(&x, 1, "groups.b", 2, 4);
  layers_are(&x, 2, "groups.end", 6, 0);
  CHECK_OK(placement_find_layers(&x.p, x.m)); /* again: the same */
  layers_are(&x, 2, "groups.end", 6, 0);
  end(&x);
  CHECK_OK(place(llama,
                 "{rest: {devices: 0, module: model.layers}, a: {devices: 1, module: "
                 "model.embed_tokens}}",
                 &x));
  layers_are(&x, 0, "groups.a", 0, 0);
  layers_are(&x, 1, "groups.rest", 0, 6);
  end(&x);
  CHECK_OK(place(llama, "{all: {devices: 0, module: [model, lm_head]}}", &x));
  layers_are(&x, 0, "groups.all", 0, 6);
  end(&x);
  CHECK_OK(place(tied_gpt2,
                 "{b: {devices: 0, module: [transformer.h.3, lm_head]}, a: {devices: 1, module: "
                 "[transformer.wte, transformer.h.0-2]}}",
                 &x));
  layers_are(&x, 0, "groups.a", 0, 3);
  layers_are(&x, 1, "groups.b", 3, 1);
  end(&x);
}

TEST(modules_that_do_not_fit_the_model_are_refused) {
  static const struct {
    const char *groups, *why;
  } bad[] = {
      {"{a: {devices: 0, module: model.layer.3}}",
       "run.yaml:1:26: a.module: the model has no module \"model.layer.3\", did you mean "
       "\"model.layers.3\"?"},
      {"{a: {devices: 0, module: transformer.h.0-2}}",
       "it has model, model.embed_tokens, model.layers, model.norm, lm_head, with layers 0 to 5"},
      {"{a: {devices: 0, module: model.layers.a-b}}", "no module \"model.layers.a-b\""},
      {"{a: {devices: 0, module: model.layers.3-6}}", "layers 3 to 6; the model has layers 0 to 5"},
      {"{a: {devices: 0, module: model.layers.3-2}}", "layers 3 to 2; the model has layers 0 to 5"},
      {"{a: {devices: 0, module: model.layers.3.mlp}}",
       "\"model.layers.3.mlp\" is a part of model.layers.3"},
      {"{a: {devices: 0, module: model.layers.0-4}}",
       "model.layers.5 is in no group; expected each layer in one"},
      {"{a: {devices: 0, module: model.layers.0-3}, b: {devices: 1, module: model.layers.3-5}}",
       "run.yaml:1:69: b.module: model.layers.3 is of groups.a, too (run.yaml:1:26: a.module)"},
      {"{a: {devices: 0, module: [model.layers.0, model.layers.2-5]}, b: {devices: 1, module: "
       "model.layers.1}}",
       "model.layers.0 and model.layers.2 are of groups.a, and model.layers.1 between them of "
       "groups.b"},
      {"{a: {devices: 0, module: model.layers.0-2}, b: {devices: 1, module: [model.embed_tokens, "
       "model.layers.3-5]}}",
       "what is before the layers and model.layers.3 are of groups.b, and model.layers.0 between"},
      {"{a: {devices: 0, module: [model.layers.0-2, model.norm]}, b: {devices: 1, module: "
       "[model.layers.3-5, lm_head]}}",
       "what is behind the layers is of groups.a, too"},
      {"{a: {devices: 0-2, module: model.layers.0-1, strategy: pp=3}, b: {devices: 3, module: "
       "model.layers.2-5}}",
       "a.strategy: 3 stages, and the group has 2 layers"},
  };
  placed x;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    CHECK_FAILS(place(llama, bad[i].groups, &x), bad[i].why);
    end(&x);
  }
}
