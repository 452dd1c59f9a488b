#include "train/train_megatron.h"
#include "train/train_megatron_layers.h"

#include <stdio.h>
#include <string.h>

/* A key with a degree, and the word of the strategy. */
typedef struct {
  int key;
  const char *word;
  size_t key_at, strategy_at;
} degree_key;
#define DEGREE(name, word)                                                                         \
  { KEY_##name, #word, offsetof(train_config, name), offsetof(strategy, word) }
static const degree_key degrees[] = {DEGREE(tensor_model_parallel_size, tp),
                                     DEGREE(pipeline_model_parallel_size, pp),
                                     DEGREE(context_parallel_size, cp),
                                     DEGREE(hyper_parallel_cp_size, cp),
                                     DEGREE(expert_model_parallel_size, ep),
                                     DEGREE(expert_tensor_parallel_size, etp)};
enum { DEGREES = sizeof degrees / sizeof *degrees };

static int64_t degree_of(const train_config *c, const degree_key *k) {
  return *(const int64_t *)(const void *)((const char *)c + k->key_at);
}

const tree_node *train_megatron_at(const train_config *c) {
  for (int i = 0; i < DEGREES; i++)
    if (c->at[degrees[i].key]) return c->at[degrees[i].key];
  if (c->at[KEY_sequence_parallel]) return c->at[KEY_sequence_parallel];
  return c->at[KEY_use_distributed_optimizer];
}

static int64_t given(const train_config *c, int key, int64_t n) { return c->at[key] ? n : 1; }

/* What the given devices leave for data parallelism, as Megatron's world size does. */
static hp_status add_replicas(const train_config *c, int64_t devices, str *text) {
  int64_t tp = given(c, KEY_tensor_model_parallel_size, c->tensor_model_parallel_size);
  int64_t pp = given(c, KEY_pipeline_model_parallel_size, c->pipeline_model_parallel_size);
  int64_t cp = given(c, KEY_context_parallel_size, c->context_parallel_size);
  if (!c->at[KEY_context_parallel_size])
    cp = given(c, KEY_hyper_parallel_cp_size, c->hyper_parallel_cp_size);
  if (!c->at[KEY_pipeline_model_parallel_size] && c->is.pipe_stages > 1) pp = c->is.pipe_stages;
  int64_t all = tp * pp * cp; /* each at most 2^20 */
  const tree_node *at = c->at[c->at[KEY_devices] ? KEY_devices : KEY_PARALLEL_devices];
  if (!devices) return HP_OK;
  if (all > devices || devices % all)
    TREE_FAIL(at,
              "%lld devices are no multiple of %lld: tensor parallel %lld x pipeline %lld x "
              "context %lld (%s)",
              (long long)devices, (long long)all, (long long)tp, (long long)pp, (long long)cp,
              tree_where(train_megatron_at(c)).text);
  str_printf(text, "dp=%lld", (long long)(devices / all));
  return HP_OK;
}

static void add_word(str *text, const char *word, int64_t n) {
  str_printf(text, "%s%s=%lld", text->len ? "," : "", word, (long long)n);
}

hp_status train_megatron_strategy(train_config *c, int64_t devices, str *text, const char **out) {
  bool has_cp = false;
  *out = NULL;
  if (!train_megatron_at(c)) return HP_OK;
  HP_TRY(add_replicas(c, devices, text));
  for (int i = 0; i < DEGREES; i++) {
    const degree_key *k = &degrees[i];
    bool is_cp = k->strategy_at == offsetof(strategy, cp);
    if (!c->at[k->key] || (is_cp && has_cp)) continue;
    has_cp |= is_cp;
    add_word(text, k->word, degree_of(c, k));
  }
  if (c->at[KEY_expert_model_parallel_size] && c->expert_model_parallel_size > 1 &&
      !c->at[KEY_expert_tensor_parallel_size] && c->at[KEY_tensor_model_parallel_size])
    add_word(text, "etp", c->tensor_model_parallel_size);
  if (c->sequence_parallel == 1) str_add(text, text->len ? ",sp" : "sp");
  if (c->use_distributed_optimizer == 1) add_word(text, "zero", 1);
  HP_TRY(str_status(text));
  *out = text->at ? text->at : "";
  return train_config_note(c, "strategy: %s, from %s and the like", *out,
                           tree_where(train_megatron_at(c)).text);
}

/* Names of torch.distributed.pipelining beside our own. */
static const char *schedule_of(const char *name) {
  static const char *const torch[][2] = {{"GPipe", "gpipe"},
                                         {"1F1B", "1f1b"},
                                         {"Interleaved1F1B", "interleaved"},
                                         {"ZBVZeroBubble", "zbv"},
                                         {"DualPipeV", "dualpipe-v"}};
  for (size_t i = 0; i < sizeof torch / sizeof *torch; i++)
    if (!strcmp(name, torch[i][0])) return torch[i][1];
  return name;
}

hp_status train_megatron_schedule(train_config *c) {
  const tree_node *at = c->at[KEY_pp_schedule], *pipe = c->parallel.pipeline;
  const tree_node *other = pipe ? tree_get(pipe, "schedule") : NULL;
  if (!at) return HP_OK;
  const char *name = schedule_of(c->pp_schedule);
  if (other && strcmp(c->is.pipe_schedule, name))
    TREE_FAIL(at, "\"%s\" contradicts \"%s\" (%s); keep one of them", c->pp_schedule,
              c->is.pipe_schedule, tree_where(other).text);
  c->is.pipe_schedule = name;
  return HP_OK;
}

/* --- contradictions --------------------------------------------------------------------------- */

/* The key that another one contradicts.  Without a strategy it is formed from the keys themselves,
 * so that only two of one meaning can differ: cp has two, and zero is DeepSpeed's stage. */
static const tree_node *contradicted(const train_config *c) {
  const tree_node *at = c->at[c->strategy ? KEY_strategy : KEY_PARALLEL_strategy];
  if (!at) at = c->parallel.device_matrix;
  if (!at && c->is.deepspeed.stage >= 0) at = c->is.deepspeed.stage_at;
  return at ? at : train_config_at(c, KEY_context_parallel_size);
}

static hp_status contradicts(const train_config *c, const tree_node *at, const char *is) {
  TREE_FAIL(at, "%s contradicts %s; keep one of them", is, tree_where(contradicted(c)).text);
}

static hp_status check_degree(const train_config *c, const degree_key *k) {
  char is[24];
  int64_t n = degree_of(c, k);
  if (!c->at[k->key]) return HP_OK;
  if (*(const int64_t *)(const void *)((const char *)&c->is.place.group[0].by + k->strategy_at) ==
      n)
    return HP_OK;
  snprintf(is, sizeof is, "%lld", (long long)n);
  return contradicts(c, c->at[k->key], is);
}

/* Chunks of layers on each device. */
static hp_status check_virtual(train_config *c) {
  const tree_node *at = c->at[KEY_virtual_pipeline_model_parallel_size];
  if (!at) return HP_OK;
  int64_t chunks = c->virtual_pipeline_model_parallel_size,
          stages = c->is.place.group[0].by.pp * chunks;
  if (chunks > 1 && c->is.place.group[0].by.pp == 1)
    TREE_FAIL(at, "%lld stages a device without a pipeline; write pipeline_model_parallel_size: 2",
              (long long)chunks);
  if (c->is.pipe_stages && c->is.pipe_stages != stages)
    TREE_FAIL(at, "%lld x pp=%lld are %lld stages, which contradicts %lld (%s)", (long long)chunks,
              (long long)c->is.place.group[0].by.pp, (long long)stages,
              (long long)c->is.pipe_stages,
              tree_where(c->is.pipe_cut_at ? c->is.pipe_cut_at : c->parallel.pipeline).text);
  c->is.pipe_stages = stages;
  return HP_OK;
}

hp_status train_megatron_check(train_config *c) {
  const strategy *s = &c->is.place.group[0].by;
  const tree_node *sp = c->at[KEY_sequence_parallel];
  const tree_node *zero = c->at[KEY_use_distributed_optimizer];
  for (int i = 0; i < DEGREES; i++) HP_TRY(check_degree(c, &degrees[i]));
  if (sp && s->sp != (c->sequence_parallel == 1))
    return contradicts(c, sp, c->sequence_parallel == 1 ? "true" : "false");
  if (zero && (s->zero > 0) != (c->use_distributed_optimizer == 1))
    return contradicts(c, zero, c->use_distributed_optimizer == 1 ? "true" : "false");
  if (c->at[KEY_pp_schedule] && placement_meshes(&c->is.place) == 1)
    TREE_FAIL(c->at[KEY_pp_schedule],
              "a schedule without a pipeline; write pipeline_model_parallel_size: 2");
  HP_TRY(check_virtual(c));
  return train_megatron_layers(c);
}
