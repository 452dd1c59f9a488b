/* How many samples go into a micro-batch and into a step.
 *
 * As in Transformers and Megatron: a step has per_device_train_batch_size samples of each
 * data-parallel replica, times their number, times gradient_accumulation_steps; global_batch_size
 * says the product, and what is not given with it follows. */
#include "train/train_config.h"
#include "train/train_mesh.h"

#include <stdio.h>

typedef struct {
  int64_t global, replicas, micro, accumulation; /* 0: not given */
} sizes;

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

/* What the keys say, as a product: "4 (per_device_train_batch_size) x ..." */
static hp_status contradiction(const train_config *c, const sizes *s) {
  TREE_FAIL(c->at[KEY_global_batch_size],
            "%lld, but per_device_train_batch_size %lld (%s) x %lld data-parallel replica%s x "
            "gradient_accumulation_steps %lld (%s) = %lld; leave one of the three keys out, or "
            "write global_batch_size: %lld",
            (long long)s->global, (long long)s->micro,
            tree_where(c->at[KEY_per_device_train_batch_size]).text, (long long)s->replicas,
            plural(s->replicas), (long long)s->accumulation,
            tree_where(c->at[KEY_gradient_accumulation_steps]).text,
            (long long)(s->micro * s->replicas * s->accumulation),
            (long long)(s->micro * s->replicas * s->accumulation));
}

/* The nearest multiples of n: "16 or 24", or n alone below it. */
typedef struct {
  int64_t below, above;
} near_multiples;
static near_multiples multiples_of(int64_t n, int64_t x) {
  int64_t below = x / n * n;
  return (near_multiples){below ? below : n, below + n};
}

static hp_status no_multiple(const train_config *c, const sizes *s, int64_t of, const char *what) {
  near_multiples m = multiples_of(of, s->global);
  TREE_FAIL(c->at[KEY_global_batch_size],
            "%lld is no multiple of %s = %lld; write global_batch_size: %lld or %lld, or change "
            "that key",
            (long long)s->global, what, (long long)of, (long long)m.below,
            (long long)(m.above > m.below ? m.above : m.above + of));
}

static hp_status derive_accumulation(const train_config *c, sizes *s) {
  char what[128];
  int64_t at_once = s->micro * s->replicas;
  snprintf(what, sizeof what, "per_device_train_batch_size %lld x %lld data-parallel replica%s",
           (long long)s->micro, (long long)s->replicas, plural(s->replicas));
  if (s->global % at_once) return no_multiple(c, s, at_once, what);
  s->accumulation = s->global / at_once;
  return HP_OK;
}

/* Samples of all replicas in a micro-batch; replicas that do not divide them have padding. */
static hp_status derive_micro(const train_config *c, sizes *s) {
  if (!s->accumulation) s->accumulation = 1;
  if (s->global % s->accumulation)
    return no_multiple(c, s, s->accumulation, "gradient_accumulation_steps");
  return HP_OK;
}

static int64_t given(const train_config *c, int key, int64_t value) {
  return c->at[key] ? value : 0;
}

/* As placement_tell_idle does of a model's units. */
static hp_status tell_padding(train_config *c, const char *name, int64_t rows, int64_t replicas) {
  int64_t each = (rows + replicas - 1) / replicas, used = (rows + each - 1) / each;
  double idle = 100.0 * (double)(each * replicas - rows) / (double)(each * replicas);
  if (rows % replicas == 0) return HP_OK;
  if (used < replicas)
    return train_config_warn(c,
                             "%s: %lld of %lld data-parallel replicas have no rows: a "
                             "micro-batch has %lld sample%s, so %.0f %% of the rows are idle; give "
                             "it a multiple of %lld, or share each sample by tp or cp",
                             name, (long long)(replicas - used), (long long)replicas,
                             (long long)rows, plural(rows), idle, (long long)replicas);
  return train_config_warn(c,
                           "%s: micro-batches of %lld samples over %lld data-parallel "
                           "replicas are padded to %lld: %.0f %% of the rows are idle; a multiple "
                           "of %lld is not padded",
                           name, (long long)rows, (long long)replicas, (long long)(each * replicas),
                           idle, (long long)replicas);
}

/* Each group has replicas of its own. */
static hp_status tell_paddings(train_config *c, int64_t rows, int64_t replicas) {
  if (*c->is.mesh) return tell_padding(c, "strategy", rows, replicas);
  for (int i = 0; i < c->is.place.groups; i++)
    HP_TRY(tell_padding(c, c->is.place.group[i].name, rows, c->is.place.group[i].by.dp));
  return HP_OK;
}

/* Keys that follow from others are printed with what they are. */
static hp_status take(train_config *c, int64_t replicas, int64_t rows, int64_t accumulation,
                      bool same_on_all) {
  int64_t each = (rows + replicas - 1) / replicas;
  c->is.batch = (train_batching){.replicas = replicas,
                                 .per_device = each,
                                 .rows = rows,
                                 .accumulation = accumulation,
                                 .global = rows * accumulation,
                                 .same_on_all = same_on_all,
                                 .length_group = (same_on_all ? rows : each) * accumulation};
  c->per_device_train_batch_size = rows % replicas ? TRAIN_NONE : each;
  c->gradient_accumulation_steps = accumulation;
  return tell_paddings(c, rows, replicas);
}

/* Products of three keys of up to 1e9. */
static hp_status check_size(const train_config *c, const sizes *s) {
  double all = (double)s->micro * (double)s->replicas * (double)s->accumulation;
  if (all > 1e15)
    TREE_FAIL(train_config_at(c, KEY_per_device_train_batch_size),
              "%lld, with %lld data-parallel replicas and gradient_accumulation_steps %lld, makes "
              "%g samples of a step; expected at most 1e15",
              (long long)s->micro, (long long)s->replicas, (long long)s->accumulation, all);
  return HP_OK;
}

hp_status train_batch_size_decide(train_config *c) {
  sizes s = {.global = given(c, KEY_global_batch_size, c->global_batch_size),
             .replicas = train_mesh_replicas(c),
             .micro = given(c, KEY_per_device_train_batch_size, c->per_device_train_batch_size),
             .accumulation =
                 given(c, KEY_gradient_accumulation_steps, c->gradient_accumulation_steps)};
  if (!c->average_tokens_across_devices && s.replicas > 1)
    TREE_FAIL(c->at[KEY_average_tokens_across_devices],
              "false is not built for %lld data-parallel replicas; write true, the default: a "
              "step's loss is divided by the labels of all of them",
              (long long)s.replicas);
  if (!s.global) {
    s.micro = c->per_device_train_batch_size;
    s.accumulation = c->gradient_accumulation_steps;
    HP_TRY(check_size(c, &s));
    return take(c, s.replicas, s.micro * s.replicas, s.accumulation, false);
  }
  HP_TRY(check_size(c, &s));
  if (s.micro && s.accumulation) {
    if (s.micro * s.replicas * s.accumulation != s.global) return contradiction(c, &s);
  } else {
    HP_TRY(s.micro ? derive_accumulation(c, &s) : derive_micro(c, &s));
  }
  return take(c, s.replicas, s.global / s.accumulation, s.accumulation, true);
}

/* The largest micro-batch of a replica, at most the one that was asked for, with which whole
 * micro-batches make up the global batch; 0: the replicas do not divide it. */
static int64_t largest_micro(const train_batching *b, int64_t global) {
  if (global % b->replicas) return 0;
  int64_t share = global / b->replicas;
  for (int64_t n = b->per_device < share ? b->per_device : share; n > 0; n--)
    if (share % n == 0) return n;
  return 0;
}

hp_status train_batch_size_keep(train_config *c, int64_t global) {
  train_batching b = c->is.batch;
  int64_t micro = largest_micro(&b, global);
  if (!micro && (!b.same_on_all || b.global != global))
    HP_FAIL(HP_ERR_INPUT,
            "the checkpoint has %lld samples in a step, which %lld data-parallel replicas do not "
            "divide; use a strategy whose dp divides %lld, or write global_batch_size: %lld to "
            "train with padded micro-batches",
            (long long)global, (long long)b.replicas, (long long)global, (long long)global);
  if (!micro) return HP_OK;
  return take(c, b.replicas, micro * b.replicas, global / (micro * b.replicas), b.same_on_all);
}
