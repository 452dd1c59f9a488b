/* Adapters: the modules that names mean, files of peft, merging, and what a model trains. */
#include "base/io.h"
#include "ckpt/weights.h"
#include "model/adapter_files.h"
#include "model/lm_eval.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 8, "
                             "\"intermediate_size\": 12, \"num_attention_heads\": 2, "
                             "\"num_key_value_heads\": 1, \"num_hidden_layers\": 2, "
                             "\"vocab_size\": 16, \"max_position_embeddings\": 16}";

static void has(const char *part) {
  if (!strstr(err_message(), part))
    test_fail(__FILE__, __LINE__, "\"%s\" is not in: %s", part, err_message());
}

static lm *make_model(hp_device *d, const char *text) {
  char path[512];
  lm *m;
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, text, strlen(text)));
  CHECK_OK(lm_create(path, d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &m));
  return m;
}

static hp_status create(const lm *m, const char *target, int64_t rank, adapter **out) {
  adapter_options o = {.rank = rank, .alpha = 4, .target = {&target, 1}};
  adapter_subject s = lm_subject(m);
  return adapter_create(&o, &s, out);
}

static size_t count_modules(const lm *m, const char *target) {
  adapter *a;
  CHECK_OK(create(m, target, 2, &a));
  size_t n = a->modules.len;
  adapter_free(a);
  return n;
}

TEST(targets_are_ends_of_names_at_a_dot) {
  lm *m = make_model(NULL, config);
  adapter *a;
  CHECK_EQ(count_modules(m, "all"), 14); /* not the head */
  CHECK_EQ(count_modules(m, "q_proj"), 2);
  CHECK_EQ(count_modules(m, "self_attn.q_proj"), 2);
  CHECK_EQ(count_modules(m, "model.layers.1.mlp.up_proj"), 1);
  CHECK_EQ(count_modules(m, "lm_head"), 1);
  CHECK_EQ(create(m, "proj", 2, &a), HP_ERR_ARG);
  has("lora_target \"proj\" matches no linear layer");
  has("it has: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head");
  lm_free(m);
}

TEST(a_rank_above_the_dims_is_refused) {
  lm *m = make_model(NULL, config);
  adapter *a;
  CHECK_OK(create(m, "k_proj", 4, &a)); /* [4,8] */
  adapter_free(a);
  CHECK_EQ(create(m, "k_proj", 5, &a), HP_ERR_ARG);
  has("lora_rank 5 is above the dims of "
      "\"model.layers.0.self_attn.k_proj\"");
  has("[4,8]; write 4 or less");
  lm_free(m);
}

TEST(experts_that_are_one_tensor_have_no_adapter) {
  lm *m = make_model(NULL, "{\"model_type\": \"mixtral\", \"hidden_size\": 8, "
                           "\"intermediate_size\": 12, \"num_attention_heads\": 2, "
                           "\"num_key_value_heads\": 1, \"num_hidden_layers\": 1, \"vocab_size\": "
                           "16, \"max_position_embeddings\": 16, \"num_local_experts\": 4}");
  adapter *a;
  CHECK_EQ(count_modules(m, "all"), 4);
  CHECK_EQ(create(m, "w1", 2, &a), HP_ERR_ARG);
  has("experts are one stacked tensor");
  lm_free(m);
}

TEST(modules_drop_other_elements) {
  enum { T = 4, MODULES = 14 };
  lm *m = make_model(NULL, config);
  long long stream[MODULES];
  adapter *a;
  model_build b;
  char *text;
  int n = 0;
  CHECK_OK(create(m, "all", 2, &a));
  a->o.dropout = 0.5;
  CHECK_OK(lm_set_adapter(m, a));
  CHECK_OK(lm_graph_begin(m, 1, T, NULL, T, &b));
  b.dropout_seed = hp_input(b.g, "seed", HP_I64, (hp_shape){0});
  m->c.family->hidden(&b);
  CHECK_OK(hp_graph_print(b.g, &text));
  for (const char *at = text; (at = strstr(at, "dropout ")) && n < MODULES; at++) {
    CHECK(sscanf(strstr(at, "stream="), "stream=%lld", &stream[n]) == 1);
    for (int i = 0; i < n; i++) CHECK(stream[i] != stream[n]);
    n++;
  }
  CHECK_EQ(n, MODULES);
  hp_free(text);
  lm_graph_end(&b);
  lm_free(m);
}

TEST(the_scale_is_alpha_by_rank_or_by_its_root) {
  adapter a = {0};
  adapter_module m = {.rank = 4, .alpha = 12};
  CHECK_EQ(adapter_scale(&a, &m), 3.0);
  a.o.rslora = true;
  CHECK_EQ(adapter_scale(&a, &m), 6.0);
}

TEST(only_params_of_the_adapter_are_trained) {
  lm *m = make_model(NULL, config);
  adapter *a;
  size_t before = m->params.len;
  CHECK_EQ(m->trained, before);
  CHECK_OK(create(m, "v_proj", 2, &a));
  CHECK_OK(lm_set_adapter(m, a));
  CHECK_EQ(m->trained, 4);
  CHECK_EQ(m->params.len, before + 4);
  CHECK_STR(m->params.at[0].name, "model.layers.0.self_attn.v_proj.lora_A.weight");
  CHECK_STR(m->params.at[1].name, "model.layers.0.self_attn.v_proj.lora_B.weight");
  CHECK_EQ(m->params.at[0].shape.dim[0], 2);
  CHECK_EQ(m->params.at[0].shape.dim[1], 8);
  CHECK_EQ(m->params.at[1].shape.dim[0], 4);
  for (size_t i = 0; i < m->params.len; i++) CHECK_EQ(m->params.at[i].frozen, i >= m->trained);
  lm_free(m);
}

/* --- files ------------------------------------------------------------------------------------ */

enum { TOKENS = 5, VOCAB = 16, NUMBERS = 64 };
#define MODULE "base_model.model.model.layers.1.self_attn.k_proj."

typedef struct {
  float data[2][NUMBERS];
  int64_t dim[2][2];
  st_tensor t[2];
} factors;

/* A [2,8] and B [4,2] of one module, of numbers that are not small. */
static void make_factors(factors *f) {
  *f = (factors){.dim = {{2, 8}, {4, 2}}};
  for (int k = 0; k < 2; k++) {
    int64_t n = f->dim[k][0] * f->dim[k][1];
    for (int i = 0; i < n; i++) f->data[k][i] = 0.3f * sinf((float)(7 * k + i + 1));
    f->t[k] = (st_tensor){.name = k ? MODULE "lora_B.weight" : MODULE "lora_A.weight",
                          .dim = f->dim[k],
                          .rank = 2,
                          .dtype = ST_F32,
                          .bytes = (size_t)n * sizeof(float),
                          .data = (const unsigned char *)f->data[k]};
  }
}

static void write_config(const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/adapter_config.json", test_dir());
  CHECK_OK(file_write(path, text, strlen(text)));
}

static void write_tensors(const st_tensor *t, size_t n) {
  char path[512];
  snprintf(path, sizeof path, "%s/adapter_model.safetensors", test_dir());
  CHECK_OK(st_save(path, t, n, NULL, 0));
}

#define K_PROJ "{\"peft_type\": \"LORA\", \"target_modules\": [\"k_proj\"], "
static const char usual[] =
    "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 6, \"target_modules\": [\"k_proj\"]}";

static hp_status open_file(const lm *m, adapter_file **out) {
  adapter_subject s = lm_subject(m);
  return adapter_file_open(test_dir(), &s, out);
}

static void refused(const lm *m, const char *why) {
  adapter_file *f;
  err_clear();
  CHECK(open_file(m, &f) != HP_OK);
  has(why);
}

TEST(adapters_that_do_not_fit_are_refused_by_tensor_and_file) {
  lm *m = make_model(NULL, config);
  factors x;
  make_factors(&x);
  write_config(usual);
  write_tensors(x.t, 2);
  adapter_file *f;
  CHECK_OK(open_file(m, &f));
  CHECK_EQ(f->a->modules.len, 1);
  adapter_file_close(f);
  write_tensors(x.t, 1);
  refused(m, MODULE "lora_B.weight\" is missing");
  x.dim[1][0] = 2, x.dim[1][1] = 4;
  write_tensors(x.t, 2);
  refused(m, "lora_B.weight\" is [2,4], the model of");
  x.dim[1][0] = 4, x.dim[1][1] = 2, x.dim[0][0] = 1, x.t[0].bytes /= 2;
  write_tensors(x.t, 2);
  refused(m, "has rank 2, the other one of the module 1");
  make_factors(&x);
  x.t[0].name = "base_model.model.model.layers.7.self_attn.k_proj.lora_A.weight";
  write_tensors(x.t, 2);
  refused(m, "layers.7.self_attn.k_proj.lora_A.weight\" has no place in the model of");
  x.t[0].name = "k_proj.lora_A.weight";
  write_tensors(x.t, 2);
  refused(m, "\"k_proj.lora_A.weight\" has no place");
  make_factors(&x);
  write_tensors(x.t, 2);
  write_config(K_PROJ "\"r\": 3}");
  refused(m, "has rank 2, adapter_config.json beside it says 3 (r, rank_pattern)");
  write_config(K_PROJ "\"r\": 3, \"rank_pattern\": [2]}");
  refused(m, "rank_pattern: expected a map");
  write_config(K_PROJ "\"r\": 3, \"rank_pattern\": {\"k_proj\": 2}}");
  CHECK_OK(open_file(m, &f));
  adapter_file_close(f);
  lm_free(m);
}

/* Tensors of other modules are left out, and the scale is that of the module. */
TEST(modules_are_those_that_both_files_have) {
  lm *m = make_model(NULL, config);
  adapter_file *f;
  factors x, y;
  make_factors(&x);
  make_factors(&y);
  y.t[0].name = "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight";
  y.t[1].name = "base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight";
  write_tensors((st_tensor[]){x.t[0], x.t[1], y.t[0], y.t[1]}, 4);
  write_config(K_PROJ "\"r\": 2, \"lora_alpha\": 6, \"layers_to_transform\": [1], "
                      "\"alpha_pattern\": {\"layers.1.*\": 5, \"k_proj\": 7}}");
  CHECK_OK(open_file(m, &f));
  CHECK_EQ(f->a->modules.len, 1);
  CHECK_STR(f->a->modules.at[0].name, "model.layers.1.self_attn.k_proj");
  CHECK_EQ(adapter_scale(f->a, &f->a->modules.at[0]), 2.5);
  CHECK(adapter_file_changes(f, "model.layers.1.self_attn.k_proj.weight"));
  CHECK(!adapter_file_changes(f, "model.layers.0.self_attn.k_proj.weight"));
  adapter_file_close(f);
  write_config(K_PROJ "\"r\": 2, \"layers_to_transform\": [7]}");
  refused(m,
          "has tensors of \"model.layers.0.self_attn.k_proj\", and adapter_config.json beside it "
          "means no module that has any");
  write_config(K_PROJ "\"r\": 2, \"modules_to_save\": [\"lm_head\"]}");
  refused(m, "has no tensor of \"lm_head\"");
  lm_free(m);
}

TEST(numbers_that_are_null_are_refused) {
  lm *m = make_model(NULL, config);
  factors x;
  make_factors(&x);
  write_tensors(x.t, 2);
  write_config(K_PROJ "\"r\": 2, \"lora_alpha\": null}");
  refused(m, "lora_alpha: expected a number, found null");
  write_config(K_PROJ "\"r\": null}");
  refused(m, "r: expected an integer, found null");
  write_config(K_PROJ "\"lora_dropout\": null}");
  refused(m, "lora_dropout: expected a number, found null");
  write_config(K_PROJ "\"lora_alpha\": NaN}");
  refused(m, "lora_alpha: nan; expected a finite number");
  lm_free(m);
}

TEST(weights_that_are_a_pickle_are_refused_with_how_to_convert_them) {
  lm *m = make_model(NULL, config);
  char path[512];
  snprintf(path, sizeof path, "%s/adapter_model.bin", test_dir());
  CHECK_OK(file_write(path, "PK", 2));
  write_config(usual);
  refused(m, "has adapter_model.bin, a pickle, which is not read");
  has("s.save_file({k: v.contiguous() for k, v in torch.load('adapter_model.bin'");
  lm_free(m);
}

TEST(kinds_of_adapters_that_are_not_built_are_refused_by_key) {
  lm *m = make_model(NULL, config);
  factors x;
  make_factors(&x);
  write_tensors(x.t, 2);
  write_config("{\"peft_type\": \"IA3\"}");
  refused(m, "peft_type: \"IA3\" is not built");
  write_config(K_PROJ "\"bias\": \"all\"}");
  refused(m, "bias: \"all\" is not built");
  write_config(K_PROJ "\"r\": 0}");
  refused(m, "expected a rank of 1 or more");
  write_config("[]");
  refused(m, "adapter_config.json");
  lm_free(m);
}

/* peft saves the own weight of a layer next to A and B: it is that of the model. */
TEST(the_own_weight_of_a_layer_in_an_adapter_is_left_out) {
  lm *m = make_model(NULL, config);
  adapter_file *f;
  factors x;
  make_factors(&x);
  st_tensor t[3] = {x.t[0], x.t[1], x.t[0]};
  t[2].name = MODULE "base_layer.weight";
  write_config(usual);
  write_tensors(t, 3);
  CHECK_OK(open_file(m, &f));
  CHECK_EQ(f->a->modules.len, 1);
  CHECK_EQ(f->a->whole.len, 0);
  adapter_file_close(f);
  lm_free(m);
}

TEST(adapters_of_the_rest_of_weights_are_refused) {
  static const char *const inits[] = {"pissa", "pissa_niter_16", "corda",
                                      "olora", "loftq",          "lora_ga"};
  lm *m = make_model(NULL, config);
  char text[160];
  factors x;
  make_factors(&x);
  write_tensors(x.t, 2);
  for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
    snprintf(text, sizeof text, K_PROJ "\"init_lora_weights\": \"%s\"}", inits[i]);
    write_config(text);
    refused(m, "the adapter belongs to the rest of weights");
  }
  lm_free(m);
}

TEST(a_file_without_tensors_is_no_adapter) {
  lm *m = make_model(NULL, config);
  write_config(K_PROJ "\"r\": 2}");
  write_tensors(NULL, 0);
  refused(m, "holds no tensors of an adapter");
  lm_free(m);
}

static void find_logits(lm *m, float *logits) {
  int32_t ids[TOKENS] = {3, 1, 4, 1, 5};
  CHECK_OK(lm_logits(m, &(lm_tokens){ids, TOKENS}, logits));
}

static float *read_param(const lm *m, const char *name) {
  size_t n = model_param_elements(lm_find(m, name));
  float *x = mem_calloc(n, sizeof *x);
  CHECK_OK(hp_read(m->d, name, x, n * sizeof *x));
  return x;
}

/* The weights of a model, in a file. */
static void save_model(const lm *m, const char *dir) {
  size_t n = m->tensors.len;
  st_tensor *t = mem_calloc(n, sizeof *t);
  for (size_t i = 0; i < n; i++)
    t[i] = (st_tensor){.name = m->tensors.at[i].name,
                       .dim = m->tensors.at[i].shape.dim,
                       .rank = m->tensors.at[i].shape.rank,
                       .dtype = ST_F32,
                       .bytes = sizeof(float) * model_param_elements(&m->params.at[i]),
                       .data = (const unsigned char *)read_param(m, m->tensors.at[i].name)};
  CHECK_OK(weights_save(dir, t, n, NULL));
  for (size_t i = 0; i < n; i++) mem_free((void *)(uintptr_t)t[i].data);
  mem_free(t);
}

/* The same adapter, applied and merged: logits agree, and differ from those without it. */
TEST(a_merged_adapter_gives_the_logits_of_an_applied_one) {
  float plain[TOKENS * VOCAB], applied[TOKENS * VOCAB], merged[TOKENS * VOCAB];
  double most = 0;
  hp_device *d;
  factors x;
  adapter_file *f;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  lm *m = make_model(d, config);
  CHECK_OK(lm_init(m, 3));
  save_model(m, test_dir());
  find_logits(m, plain);
  make_factors(&x);
  for (int i = 0; i < 8; i++) x.data[1][i] *= 20; /* weights of the model are small */
  write_config(usual);
  write_tensors(x.t, 2);
  CHECK_OK(open_file(m, &f));
  CHECK_OK(lm_set_adapter_file(m, f));
  CHECK_OK(lm_load(m, test_dir()));
  find_logits(m, applied);
  lm_free(m);
  m = make_model(d, config);
  CHECK_OK(open_file(m, &f));
  CHECK_OK(lm_merge(m, f));
  CHECK_OK(lm_load(m, test_dir()));
  find_logits(m, merged);
  for (int i = 0; i < TOKENS * VOCAB; i++) {
    CHECK_NEAR(merged[i], applied[i], 1e-6);
    most = fmax(most, fabs((double)(plain[i] - applied[i])));
  }
  CHECK(most > 1e-3);
  lm_free(m);
  hp_device_close(d);
}

TEST(a_new_adapter_starts_as_kaiming_uniform_and_zero) {
  hp_device *d;
  adapter *a;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  lm *m = make_model(d, config);
  CHECK_OK(create(m, "all", 2, &a));
  CHECK_OK(lm_set_adapter(m, a));
  CHECK_OK(lm_init(m, 3));
  float *A = read_param(m, "model.layers.0.mlp.down_proj.lora_A.weight");
  float *B = read_param(m, "model.layers.0.mlp.down_proj.lora_B.weight");
  float most = 0, bound = 1 / sqrtf(12);
  for (int i = 0; i < 2 * 12; i++) {
    CHECK(fabsf(A[i]) <= bound);
    most = fmaxf(most, fabsf(A[i]));
  }
  CHECK(most > 0.8f * bound);
  for (int i = 0; i < 8 * 2; i++) CHECK_EQ(B[i], 0.0f);
  mem_free(A);
  mem_free(B);
  lm_free(m);
  hp_device_close(d);
}
