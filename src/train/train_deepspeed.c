#include "train/train_deepspeed.h"

#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };

/* --- keys without effect ---------------------------------------------------------------------- */

static const char *const top_keys[] = {"train_batch_size",
                                       "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps",
                                       "gradient_clipping",
                                       "zero_optimization",
                                       "bf16",
                                       "fp16",
                                       "amp",
                                       "optimizer",
                                       "scheduler",
                                       "communication_data_type",
                                       "prescale_gradients",
                                       "gradient_predivide_factor",
                                       "sparse_gradients",
                                       "zero_allow_untested_optimizer",
                                       "zero_force_ds_cpu_optimizer",
                                       "aio",
                                       "steps_per_print",
                                       "wall_clock_breakdown",
                                       "dump_state",
                                       "activation_checkpointing",
                                       "comms_logger",
                                       "flops_profiler",
                                       "tensorboard",
                                       "wandb",
                                       "csv_monitor",
                                       "checkpoint",
                                       "data_types",
                                       "autotuning",
                                       "elasticity",
                                       NULL};
static const char *const zero_keys[] = {"stage",
                                        "offload_optimizer",
                                        "offload_param",
                                        "allgather_partitions",
                                        "allgather_bucket_size",
                                        "overlap_comm",
                                        "reduce_scatter",
                                        "reduce_bucket_size",
                                        "contiguous_gradients",
                                        "round_robin_gradients",
                                        "load_from_fp32_weights",
                                        "ignore_unused_parameters",
                                        "elastic_checkpoint",
                                        "sub_group_size",
                                        "stage3_max_live_parameters",
                                        "stage3_max_reuse_distance",
                                        "stage3_prefetch_bucket_size",
                                        "stage3_param_persistence_threshold",
                                        "model_persistence_threshold",
                                        "stage3_gather_16bit_weights_on_model_save",
                                        "stage3_gather_fp16_weights_on_model_save",
                                        "zero_hpz_partition_size",
                                        "zero_quantized_weights",
                                        "zero_quantized_gradients",
                                        NULL};
static const char *const offload_keys[] = {"device",        "nvme_path",  "buffer_count",
                                           "buffer_size",   "max_in_cpu", "pin_memory",
                                           "pipeline_read", "fast_init",  "pipeline_write",
                                           "pipeline",      "ratio",      NULL};

typedef struct {
  str ignored, unknown; /* lists of keys */
} unused_keys;

static size_t count_keys(const char *const *keys) {
  size_t n = 0;
  while (keys[n]) n++;
  return n;
}

static bool is_key(const char *const *keys, const char *name) {
  for (; *keys; keys++)
    if (!strcmp(*keys, name)) return true;
  return false;
}

/* Lists the keys of a map but the first `used`, and those that DeepSpeed has not. */
static void list_unused(const tree_node *m, const char *in, const char *const *keys, size_t used,
                        unused_keys *u) {
  for (uint32_t i = 0; i < m->len; i++) {
    const char *name = m->child[i]->key;
    bool is_used = false;
    for (size_t k = 0; k < used; k++) is_used |= !strcmp(keys[k], name);
    if (is_used) continue;
    bool known = is_key(keys, name);
    str *to = known ? &u->ignored : &u->unknown;
    str_printf(to, "%s%s%.80s", to->len ? ", " : "", in, name);
    const char *near = known ? NULL : str_nearest(name, keys, count_keys(keys));
    if (near) str_printf(to, " (did you mean \"%s\"?)", near);
  }
}

static hp_status tell_unused(train_config *c, unused_keys *u) {
  hp_status st = str_status(&u->ignored);
  if (!st) st = str_status(&u->unknown);
  if (!st && u->ignored.len)
    st = train_config_note(c,
                           "deepspeed: without effect: %s (buffers, overlap and prefetch are "
                           "planned by the compiler; the rest are keys of the training file)",
                           u->ignored.at);
  if (!st && u->unknown.len)
    st = train_config_warn(c, "deepspeed: not known, and without effect: %s", u->unknown.at);
  str_free(&u->ignored);
  str_free(&u->unknown);
  return st;
}

/* --- reading ---------------------------------------------------------------------------------- */

static hp_status read_device(const tree_node *v, int *out) {
  static const char *const word[] = {"none", "cpu", "nvme"};
  static const int means[] = {HP_OFFLOAD_NONE, HP_OFFLOAD_HOST, HP_OFFLOAD_FLASH};
  const char *text;
  HP_TRY(tree_as_string(v, &text));
  for (int i = 0; i < 3; i++)
    if (!strcmp(word[i], text)) {
      *out = means[i];
      return HP_OK;
    }
  const char *near = str_nearest(text, word, 3);
  TREE_FAIL(v, "\"%s\" is not known; expected none, cpu or nvme%s%s%s", text,
            near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static hp_status read_path(const tree_node *m, train_deepspeed *d) {
  const tree_node *v = tree_get(m, "nvme_path");
  const char *path;
  if (!v || v->kind == TREE_NULL) return HP_OK;
  HP_TRY(tree_as_string(v, &path));
  if (d->nvme_path && strcmp(d->nvme_path, path))
    TREE_FAIL(v,
              "\"%s\" differs from \"%s\" (%s); flash has one list of paths: write "
              "hyper_parallel.flash",
              path, d->nvme_path, tree_where(d->path_at).text);
  d->nvme_path = path;
  d->path_at = v;
  return HP_OK;
}

/* offload_optimizer or offload_param. */
static hp_status read_offload(const tree_node *zero, const char *name, train_deepspeed *d, int *out,
                              const tree_node **at, unused_keys *u) {
  const tree_node *m = tree_get(zero, name);
  char in[64];
  if (!m || m->kind == TREE_NULL) return HP_OK;
  HP_TRY(tree_expect(m, TREE_MAP));
  snprintf(in, sizeof in, "zero_optimization.%s.", name);
  list_unused(m, in, offload_keys, 2, u);
  const tree_node *device = tree_get(m, "device");
  if (!device || device->kind == TREE_NULL) return HP_OK;
  HP_TRY(read_device(device, out));
  *at = device;
  if (*out != HP_OFFLOAD_FLASH) return HP_OK;
  if (!tree_get(m, "nvme_path")) TREE_FAIL(device, "nvme needs nvme_path: a folder on that disk");
  return read_path(m, d);
}

static hp_status read_zero(const tree_node *zero, train_deepspeed *d, unused_keys *u) {
  HP_TRY(tree_expect(zero, TREE_MAP));
  list_unused(zero, "zero_optimization.", zero_keys, 3, u);
  const tree_node *stage = tree_get(zero, "stage");
  if (stage) {
    HP_TRY(tree_as_int(stage, &d->stage));
    if (d->stage < 0 || d->stage > 3)
      TREE_FAIL(stage, "%lld; expected a stage from 0 to 3", (long long)d->stage);
    d->stage_at = stage;
  }
  HP_TRY(read_offload(zero, "offload_optimizer", d, &d->optimizer, &d->optimizer_at, u));
  return read_offload(zero, "offload_param", d, &d->weights, &d->weights_at, u);
}

static hp_status read_map(train_config *c, const tree_node *root) {
  enum { USED = 7 };
  train_deepspeed *d = &c->is.deepspeed;
  unused_keys u = {.ignored = {0}};
  HP_TRY(tree_expect(root, TREE_MAP));
  d->root = root;
  list_unused(root, "", top_keys, USED, &u);
  const tree_node *zero = tree_get(root, "zero_optimization");
  hp_status st = zero ? read_zero(zero, d, &u) : HP_OK;
  if (!st) return tell_unused(c, &u);
  str_free(&u.ignored);
  str_free(&u.unknown);
  return st;
}

static bool is_nothing(const tree_node *n) {
  return !n || n->kind == TREE_NULL || (n->kind == TREE_STRING && !n->len) ||
         (n->kind == TREE_BOOL && !n->boolean) || (n->kind == TREE_MAP && !n->len);
}

hp_status train_deepspeed_read(train_config *c) {
  const tree_node *n = c->deepspeed;
  c->is.deepspeed = (train_deepspeed){.stage = -1, .weights = -1, .optimizer = -1};
  if (is_nothing(n)) return HP_OK;
  if (n->kind == TREE_MAP) return read_map(c, n);
  const char *path;
  HP_TRY(tree_as_string(n, &path));
  hp_status st = json_load(path, FILE_MAX, &c->deepspeed_file);
  if (!st) return read_map(c, c->deepspeed_file.root);
  if (st == HP_ERR_OOM) return st;
  char why[ERR_MESSAGE_MAX];
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  TREE_FAIL(n, "%s", why);
}

/* --- against the training file ---------------------------------------------------------------- */

hp_status train_deepspeed_apply_stage(const train_config *c, const char *text, strategy *s) {
  const train_deepspeed *d = &c->is.deepspeed;
  if (d->stage < 0) return HP_OK;
  if (text && strstr(text, "zero") && s->zero != d->stage)
    TREE_FAIL(d->stage_at, "stage %lld contradicts zero=%d of the strategy; keep one of them",
              (long long)d->stage, s->zero);
  s->zero = (int)d->stage;
  return HP_OK;
}

/* A number that the key says, if it is not "auto". */
static hp_status check_number(const train_config *c, const char *name, int key, double is) {
  const tree_node *v = tree_get(c->is.deepspeed.root, name);
  double x;
  if (!v || (v->kind == TREE_STRING && !strcmp(v->string, "auto"))) return HP_OK;
  HP_TRY(tree_as_double(v, &x));
  if (x == is) return HP_OK;
  TREE_FAIL(v, "%.10g contradicts %s: %.10g (%s); write \"auto\"", x, train_key_get(key)->name, is,
            tree_where(train_config_at(c, key)).text);
}

static hp_status check_dtypes(const train_config *c) {
  static const char *const name[] = {"bf16", "fp16"};
  for (int i = 0; i < 2; i++) {
    const tree_node *m = tree_get(c->is.deepspeed.root, name[i]);
    if (!m || m->kind != TREE_MAP) continue;
    const tree_node *v = tree_get(m, "enabled");
    if (!v || v->kind != TREE_BOOL || !v->boolean) continue;
    if (i == 1) TREE_FAIL(v, "fp16 is not built; write bf16: true in the training file");
    if (c->is.compute != HP_BF16)
      TREE_FAIL(v, "true contradicts bf16: false of the training file; write \"auto\"");
  }
  return HP_OK;
}

hp_status train_deepspeed_check(train_config *c) {
  if (!c->is.deepspeed.root) return HP_OK;
  HP_TRY(check_number(c, "gradient_accumulation_steps", KEY_gradient_accumulation_steps,
                      (double)c->is.batch.accumulation));
  HP_TRY(check_number(c, "train_micro_batch_size_per_gpu", KEY_per_device_train_batch_size,
                      (double)c->is.batch.per_device));
  HP_TRY(check_number(c, "train_batch_size", KEY_global_batch_size, (double)c->is.batch.global));
  HP_TRY(check_number(c, "gradient_clipping", KEY_max_grad_norm, c->max_grad_norm));
  return check_dtypes(c);
}
