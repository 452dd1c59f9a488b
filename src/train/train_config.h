/* The training file: every key of train_keys.def, read and checked.
 *
 * One schema table is the source of the YAML keys, the key=value overrides, --help, "did you
 * mean" and the lists of keys that are accepted without effect and refused.  A loaded config is
 * valid: each value has its type and range, and no two keys contradict each other; rules that
 * depend on the model or the data are checked by train_config_check_model and by the code of the
 * data. */
#ifndef TRAIN_TRAIN_CONFIG_H
#define TRAIN_TRAIN_CONFIG_H

#include "base/tree.h"
#include "base/vec.h"
#include "model/placement.h"
#include "model/tier_options.h"
#include "train/schedule.h"

#define TRAIN_NONE INT64_MIN /* an INT that is null */

typedef enum {
  TRAIN_BOOL,
  TRAIN_TRI, /* int: 1, 0, or -1 = null */
  TRAIN_INT,
  TRAIN_NUM,
  TRAIN_TEXT,
  TRAIN_CHOICE, /* int: the index among the choices */
  TRAIN_SIZE,   /* uint64_t bytes, 0 = null */
  TRAIN_LIMIT,  /* the same, or a share: train/memory_limit.h */
  TRAIN_NODE
} train_type;
typedef enum {
  GROUP_MODEL,
  GROUP_METHOD,
  GROUP_DATASET,
  GROUP_OUTPUT,
  GROUP_TRAIN,
  GROUP_EVAL,
  GROUP_DEVICE,
  GROUP_EXPORT,
  GROUP_GENERATION,
  GROUP_PARALLEL,
  GROUP_NONE
} train_group;
typedef enum { TRAIN_USED, TRAIN_NEUTRAL, TRAIN_REFUSED, TRAIN_SYNONYM } train_status;

/* One row of the schema. */
typedef struct {
  const char *name;
  train_status status;
  train_group group;
  train_type type;
  const char *otherwise; /* the default, as YAML */
  double least, most;
  const char *choices; /* "a|b|!c": c is known and not built */
  const char *help;    /* NEUTRAL: why; REFUSED: what to write instead; SYNONYM: what it means */
  size_t offset;       /* of the field in train_config, USED only */
} train_key;

/* Ids: KEY_<name>; in the hyper_parallel block KEY_PARALLEL_<name>. */
enum {
#define USED(group, name, ...) KEY_##name,
#define NEUTRAL(name, ...)     KEY_##name,
#define REFUSED(name, ...)     KEY_##name,
#define SYNONYM(name, ...)     KEY_##name,
#include "train/train_keys.def"
  KEY_TOP_COUNT,
#undef USED
#define USED(group, name, ...) KEY_PARALLEL_##name,
  KEY_PARALLEL_BEFORE = KEY_TOP_COUNT - 1,
#include "train/parallel_keys.def"
  KEY_COUNT
#undef USED
#undef NEUTRAL
#undef REFUSED
#undef SYNONYM
};

enum {
#define LOSS(stage, ...)       STAGE_##stage,
#define PREFERENCE(stage, ...) STAGE_##stage,
#define NOT_BUILT(stage)       STAGE_##stage,
#include "train/losses.def"
#undef LOSS
#undef PREFERENCE
#undef NOT_BUILT
};
enum { TUNING_FULL, TUNING_FREEZE, TUNING_LORA, TUNING_OFT };
enum { MIX_CONCAT, MIX_INTERLEAVE_UNDER, MIX_INTERLEAVE_OVER, MIX_INTERLEAVE_ONCE };
enum { WHEN_NO, WHEN_STEPS, WHEN_EPOCH, WHEN_BEST };
enum {
  OPTIM_ADAMW,
  OPTIM_ADAMW_FUSED,
  OPTIM_SGD,
  OPTIM_ADAFACTOR,
  OPTIM_LION,
  OPTIM_LAST_BUILT = OPTIM_LION
};
enum { SAMPLING_RANDOM, SAMPLING_SEQUENTIAL, SAMPLING_GROUP_BY_LENGTH };
enum { DTYPE_AUTO, DTYPE_F32, DTYPE_BF16 };
enum {
  EXPORT_AUTO,
  EXPORT_F32,
  EXPORT_BF16,
  EXPORT_F16,
  EXPORT_FLOAT32,
  EXPORT_BFLOAT16,
  EXPORT_FLOAT16
};
enum { DETERMINISTIC_RUN, DETERMINISTIC_LAYOUT };
enum { ENGINE_PACKED, ENGINE_ONEDNN, ENGINE_OPENBLAS, ENGINE_SCALAR, ENGINE_MEASURED };

typedef enum { RECOMPUTE_AUTO, RECOMPUTE_NONE, RECOMPUTE_FULL, RECOMPUTE_SOME } train_recompute;
typedef enum {
  RESUME_IF_ANY, /* the newest checkpoint that verifies, else from step 0 */
  RESUME_NEVER,  /* overwrite_output_dir */
  RESUME_NEWEST, /* resume_from_checkpoint: true; none is an error */
  RESUME_FROM    /* resume_path */
} train_resume;
typedef enum { COUNT_NO, COUNT_ALL, COUNT_NON_PADDING } train_count;

typedef struct {
  const char *const *at;
  size_t n;
} train_names;

/* An error of the configuration: those of the file by line, then those of arguments. */
typedef struct {
  const char *text;
  uint64_t place;
} train_error;
typedef VEC(const char *) train_lines;

/* What a DeepSpeed file says, each with its place; see train_deepspeed.h. */
typedef struct {
  const tree_node *root;  /* NULL: there is none */
  int64_t stage;          /* of ZeRO; -1: not said */
  int weights, optimizer; /* HP_OFFLOAD_*; -1: not said */
  const char *nvme_path;  /* or NULL */
  const tree_node *stage_at, *weights_at, *optimizer_at, *path_at;
} train_deepspeed;

/* Batch sizes; see train_batch_size.c. */
typedef struct {
  int64_t replicas;     /* data-parallel replicas of the mesh */
  int64_t per_device;   /* samples of a micro-batch per replica; the last replicas may have fewer */
  int64_t rows;         /* samples of a micro-batch of all replicas */
  int64_t accumulation; /* micro-batches of a step */
  int64_t global;       /* samples of a step: rows x accumulation */
  bool same_on_all;     /* global_batch_size is given: the same samples in a step on every mesh */
  int64_t epoch_samples; /* samples of an epoch, from the checkpoint; 0: from the other fields */
  int64_t length_group;  /* group_by_length: samples that are of similar length, those of a step of
                            each replica */
} train_batching;

typedef struct {
#define FIELD_BOOL                   bool
#define FIELD_TRI                    int
#define FIELD_INT                    int64_t
#define FIELD_NUM                    double
#define FIELD_TEXT                   const char *
#define FIELD_CHOICE                 int
#define FIELD_SIZE                   uint64_t
#define FIELD_LIMIT                  uint64_t
#define FIELD_NODE                   const tree_node *
#define USED(group, name, type, ...) FIELD_##type name;
#define NEUTRAL(...)
#define REFUSED(...)
#define SYNONYM(...)
#include "train/train_keys.def"
  struct {
#include "train/parallel_keys.def"
  } parallel;
#undef USED
#undef NEUTRAL
#undef REFUSED
#undef SYNONYM
  /* Decided from several keys. */
  struct {
    hp_dtype compute;                    /* HP_F32 or HP_BF16 */
    train_recompute recompute;           /* SOME: */
    int recompute_blocks;                /* the first layers, of each stage; 0: all */
    const char *const *recompute_places; /* modules, NULL at the end; NULL: all */
    train_names recompute_modules;       /* by Megatron's names: the model decides on places */
    uint64_t memory_limit; /* bytes, 0 = none; a share until the run knows its bytes */
    tier_options tiers;
    train_deepspeed deepspeed;
    placement place;
    const char *pipe_schedule; /* of a pipeline: a name, or a file of rows */
    int64_t pipe_stages;       /* of a pipeline; 0: as many as the schedule has */
    bool post_validation;      /* rows of the next step may run before the update */
    const int64_t *pipe_cut;   /* [pipe_stages] layers of each; NULL: cut by their work */
    const tree_node *pipe_cut_at;
    int64_t *pipe_uneven;         /* pipe_cut, where it follows from the number of layers */
    const char *pipe_interleaved; /* the name of that schedule, with the size of groups */
    char mesh[320];               /* the user's own mesh, as text; "" = none */
    bool no_partial_sums;         /* deterministic: layout */
    const char *engine;
    bool train, evaluate_after;
    train_batching batch;
    bool shuffle;
    bool by_length; /* train_sampling_strategy: group_by_length; else as shuffle says */
    bool packed;
    int64_t block;      /* tokens of a block, or at most of a sample */
    uint64_t data_seed; /* seed of the sampler */
    train_names dataset, eval_dataset;
    train_names adapters; /* folders */
    train_names freeze_modules, freeze_extra;
    train_names lora_target, additional; /* of lora */
    const double *interleave_probs;      /* one per dataset, or NULL */
    int64_t val_count;                   /* samples taken for evaluation, or 0 */
    double val_share;                    /* or this share of them, or 0 */
    schedule_kind schedule;
    const schedule_arg *schedule_arg;
    size_t schedule_args;
    double warmup; /* for schedule_warmup_steps */
    train_resume resume;
    const char *resume_path;
    train_names resume_override;
    bool tensorboard;
    train_count count;
  } is;
  /* A line for each key that was accepted without effect, and other messages. */
  train_lines notes;              /* of keys without effect, and the like */
  train_lines warnings;           /* about idle devices */
  VEC(train_error) errors;        /* while it is read, by place; none in a loaded config */
  bool bad[KEY_COUNT];            /* keys with invalid values: rules about them are skipped */
  const tree_node *at[KEY_COUNT]; /* the place of a value; NULL: the default */
  const tree_node *root;
  tree file; /* owned when loaded from a file */
  tree deepspeed_file;
  arena mem;
} train_config;

const train_key *train_key_get(int key);
/* The key with this name (block: of the hyper_parallel block), -1: none. */
int train_key_find(const char *name, bool block);
/* The next of the choices "a|b|!c" at *at, and whether it is built. */
const char *train_key_next_choice(const char **at, size_t *len, bool *built);
/* The index of `word` among the choices, or -1; the i-th of them. */
int train_key_find_choice(const char *choices, const char *word, size_t n);
const char *train_key_choice(const char *choices, int i, size_t *len);

/* Reads a .yaml, .yml or .json file, applies the `n` overrides "key=value", and checks
 * everything, including that the named files exist; a missing data set is only a warning if no
 * data is read.  The message of several errors is a numbered list.  On failure out is untouched;
 * free with train_config_free. */
hp_status train_config_load(const char *path, const char *const *override, int n, bool reads_data,
                            train_config *out);
/* The same for `hyper export` and `hyper chat`, which take a few of the keys: checks each by itself
 * alone. */
hp_status train_config_read(const char *path, const char *const *override, int n,
                            train_config *out);
/* The same from a tree that outlives the config. */
hp_status train_config_parse(const tree_node *root, train_config *out);
void train_config_free(train_config *c);

/* Checks against the model: cutoff_len and the model's positions (0 = unknown). */
hp_status train_config_check_model(const train_config *c, int64_t max_position_embeddings);

/* The place of a key, or the file: for TREE_FAIL. */
const tree_node *train_config_at(const train_config *c, int key);
/* The value of a USED key as YAML. */
void train_config_print_value(const train_config *c, int key, str *out);
/* The complete effective config as YAML that train_config_load reads back. */
void train_config_print(const train_config *c, str *out);
/* The section "keys" of `hyper train --help`. */
void train_config_print_help(str *out);

/* train_batch_size.c: fills config.is.batch; the mesh is decided. */
hp_status train_batch_size_decide(train_config *c);
/* Sets steps to `global` samples, those of a checkpoint from another mesh: the micro-batch is
 * the largest one, up to the configured one, that divides them.  HP_ERR_INPUT names values that
 * would work. */
hp_status train_batch_size_keep(train_config *c, int64_t global);

/* train_config_check.c: the rules between keys; part of parse. */
hp_status train_config_decide(train_config *c);
/* train_names.c: "a, b" or [a, b] as a list of names without spaces around. */
hp_status train_config_split(train_config *c, const tree_node *v, train_names *out);
/* Adds a failure of the configuration to its errors and returns HP_OK, so that reading
 * continues.  Other failures, such as a lack of memory, are returned. */
hp_status train_config_keep(train_config *c, hp_status st);
/* All errors as one failure: several as a numbered list, up to the length of a message. */
hp_status train_config_report_errors(const train_config *c);
/* Prints the notes and the warnings, one per line. */
void train_config_tell(const train_config *c);
hp_status train_config_note(train_config *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
hp_status train_config_warn(train_config *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
