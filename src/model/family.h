/* Model families: one file each and one row in the table of family.c. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"
#include "model/config.h"

/* The origin of a parameter: how it is initialised, and whether it may be trained.  Those of
 * adapters are in no checkpoint of a model; FIXED ones are, but are never trained; buffers are
 * computed here. */
typedef enum {
  PARAM_MATRIX,
  PARAM_EMBEDDING,
  PARAM_NORM,
  PARAM_BIAS,
  PARAM_LORA_A,
  PARAM_LORA_B,
  PARAM_LORA_SIZE, /* of the rows of a weight (DoRA) */
  PARAM_FIXED,
  PARAM_BUFFER
} param_kind;

/* The storage of a matrix on the device: as in the checkpoint, or packed as [out / PARAM_PACK,
 * in, PARAM_PACK], from a tensor [out,in] or [in,out] of the checkpoint.  Products of few rows
 * read packed weights faster. */
typedef enum { ORDER_STORED, ORDER_PACKED_ROWS, ORDER_PACKED_COLUMNS } param_order;
enum { PARAM_PACK = 16 };
enum { CACHE_BLOCK = 32 }; /* tokens of a block of the cache (hp_paged_update) */

typedef struct {
  /* Its name in the checkpoint.  With a '*' it is a stack: its first dim indexes tensors of the
   * checkpoint, with their number in place of the '*'. */
  char name[160];
  /* Its name in files of other versions ("": none): there a stack is one tensor, in which each
   * slice has the rows from alias_row on of alias_rows; 0: all rows. */
  char alias[160];
  int64_t alias_row, alias_rows;
  hp_tensor tensor;
  hp_dtype dtype;
  hp_shape shape;
  param_kind kind;
  param_order order; /* shape is that on the device */
  bool frozen;       /* not trained, though its kind may be */
  int layer;         /* that reads it first; as for build_layer */
  uint16_t stage;    /* of the pipeline: that of its layer */
  double init_scale; /* factor on the family's initial deviation */
} model_param;
/* Its shape in the checkpoint, or that of one slice. */
hp_shape model_param_stored(const model_param *p);
/* Of n params that of this name; NULL: none. */
const model_param *model_param_find(const model_param *p, size_t n, const char *name);
size_t model_param_elements(const model_param *p);
/* Number of its tensors in the checkpoint, and the name of one of them. */
int64_t model_param_parts(const model_param *p);
void model_param_part_name(const model_param *p, int64_t part, char name[160]);

/* Does it belong to an adapter? */
bool model_param_is_adapter(const model_param *p);
/* To the value head of a reward model? */
bool model_param_is_value_head(const model_param *p);
/* To either: it is not in the files of the model. */
bool model_param_is_extra(const model_param *p);

/* A linear layer, whose weight NAME.weight is [out,in], or [in,out] if transposed. */
typedef struct {
  char name[152];
  int64_t in, out;
  bool transposed;
} model_linear;

/* A sharding annotation: a value of the model for which a layout can be declared. */
typedef struct {
  char name[64];
} model_annotation;

/* The cache of keys and values for generation: in each layer a pool of `blocks` for each group of
 * sequences.  Either on the device, and then a table names the `width` blocks of each sequence.  Or
 * on a farther tier, and then the device has slots: `tail` for the blocks that new tokens are
 * written to, with all of their segments of 256 tokens, and `parts` times `slots` for those before
 * them, which attention goes through part by part.  The table names slots, those of the tail first.
 */
typedef struct {
  int64_t blocks, width;
  int tier; /* HP_OFFLOAD_HOST or HP_OFFLOAD_FLASH; 0: the device */
  int64_t tail, slots, parts;
  /* > 0: a single new token of a sequence attends to so many of its blocks alone, chosen by bounds
   * of their keys, which stay on the device; on a tier only these are fetched. */
  int64_t sparse;
} model_cache;
enum {
  CACHE_SEGMENT = 8, /* blocks of a segment: sums begin anew there, so parts may end there */
  CACHE_PARTS = 4,   /* parts that the device has at a time: the present one, and the next ones */
  CACHE_FETCHED = 2 * CACHE_PARTS, /* with the tails between them */
};

/* Keys and values for one part of attention, which the device has, or will have. */
typedef struct {
  hp_tensor k, v;
} kv_part;

/* A graph under construction.  Sizes: B sequences of T tokens. */
typedef struct {
  hp_graph *g;
  const model_config *c;
  hp_dtype compute; /* of matrix products and attention */
  hp_dtype weights; /* of matrices on the device: f32 for training, or `compute` */
  bool packed;      /* packed if possible; only inference reads packed weights */
  int64_t B, T;
  model_cache cache;    /* no blocks: there is none */
  int64_t groups;       /* of sequences, with a cache */
  int64_t cache_bytes;  /* of a block, in all layers */
  int64_t rope_length;  /* rows of the rotary tables */
  hp_tensor ids;        /* i32 [B,T] */
  hp_tensor positions;  /* i32 [B,T] */
  hp_tensor span;       /* i32 [B,T,2] keys visible to a query; HP_NONE: causal */
  hp_tensor table;      /* i32 [B,width] blocks or slots of each sequence, of its group's */
  hp_tensor cache_at;   /* i32 [B] place of the first new token in its sequence */
  hp_tensor cache_copy; /* i32 [B] block that is copied to the first written one; -1: none */
  hp_tensor kv_fetch;   /* i32 [groups,all slots] block for each; -1: none */
  hp_tensor kv_store;   /* i32 [groups,tail] block that each slot is written to; -1: none */
  hp_tensor kv_blocks;  /* i32 [B,blocks] blocks of each sequence, for attention to some of them */
  hp_tensor kv_copy;    /* i32 [B] as cache_copy, of blocks */
  kv_part kv[CACHE_FETCHED]; /* fetched parts and tails, by number over all layers from 1 */
  int64_t kv_fetched;        /* the number of the last one of them */
  hp_tensor cos, sin;        /* rotary tables, made on first use */
  hp_tensor dropout_seed;    /* i64 [], for training with dropout; HP_NONE: none */
  hp_tensor noise_seed;      /* i64 [], for training with noise on the embeddings; HP_NONE: none */
  double noise;              /* neftune_noise_alpha */
  /* f32 [B,T]: 1 for tokens that count in the load-balancing loss; or none */
  hp_tensor counted;
  struct {
    hp_tensor chosen,
        likely;     /* by expert: how often, and the sum of probabilities, of all layers */
    hp_tensor rows; /* tokens, of all layers */
  } use;
  const uint16_t *stage_of; /* [layers]; NULL: the pipeline has one stage */
  int layer, stages;        /* the layer of what is built (build_layer); stages of the pipeline */
  VEC(model_param) params;
  map param_of; /* name -> place in params */
  VEC(model_annotation) annotations;
  VEC(model_linear) linears;     /* in the order of the model */
  const struct adapter *adapter; /* or NULL */
  double label_smoothing;        /* of the losses of tokens */
  bool value_head; /* the model gives a number for each token, not words: its head is not trained */
  bool head_apart; /* a tied head is another leaf than the embedding, with a gradient of its own: */
  hp_tensor head;  /* this one, made on first use */
  const map *only; /* names of the params that are trained besides those of the adapter, in f32
                      whatever `weights` is; NULL: all are */
  bool failed;     /* out of memory while collecting params */
} model_build;

/* Params whose names have these endings are sharded along `dim` by tensor parallelism, together
 * with the work of their users: by single elements of the dim, or by heads, of queries or of
 * keys and values. */
typedef enum { CUT_ELEMENTS, CUT_HEADS, CUT_KV_HEADS } cut_unit;
typedef struct {
  const char *ends;
  int dim;
  cut_unit unit;
} tensor_cut;

/* Which layers have a sliding window: none, all if there is a window, all with
 * use_sliding_window, those from max_window_layers on. */
typedef enum { WINDOW_NEVER, WINDOW_ALL, WINDOW_IF_USED, WINDOW_FROM_LAYER } window_rule;

struct model_family {
  const char *model_type;
  const char *architecture; /* of the language model, as Transformers names the class */
  bool tied_by_default;
  bool freezes_pad; /* the embedding row of pad_token_id gets no gradient */
  /* Defaults of missing keys in config.json, as in Transformers.  0: none, or derived. */
  struct {
    int64_t kv_heads, head_dim, positions, window;
    int64_t bos, eos;  /* -1 = none */
    double eps, theta; /* of norms; of the rotary embedding */
  } absent;
  window_rule window;
  bool balances; /* it supports a load-balancing loss */
  hp_status (*read)(const tree_node *root, model_config *c);
  /* Hidden states [B,T,hidden] after the last norm. */
  hp_tensor (*hidden)(model_build *b);
  const char *head_name; /* lm_head.weight */
  const char *embedding_name;
  double (*params)(const model_config *c);
  const tensor_cut *cuts; /* ended by a NULL name */
};

extern const model_family *const model_families[]; /* families.c; ended by NULL */
const model_family *model_family_find(const char *model_type);
void model_family_names(str *out);

/* --- what families are written with ------------------------------------------------------ */

/* What follows is of that layer: block, and stage of the pipeline.  -1: what is before the layers,
 * on the first stage; as many as there are layers: what is behind them, on the last. */
void build_layer(model_build *b, int layer);
/* A parameter by its name in the checkpoint; printf-like. */
hp_tensor build_param(model_build *b, param_kind kind, double init_scale, int rank,
                      const int64_t *dim, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* The name under which other versions save the parameter `name`; row and rows as in model_param. */
void build_alias(model_build *b, const char *name, const char *alias, int64_t row, int64_t rows);
/* The tensor of a parameter in the graph; HP_NONE if it has none of that name. */
hp_tensor build_find_param(const model_build *b, const char *name);
/* x [B,T,in] times the matrix `name`, [out,in] in the checkpoint, or [in,out] if `transposed`. */
typedef struct {
  int64_t in, out;
  bool transposed;
  double init_scale;
  hp_dtype result;
  hp_tensor weight; /* HP_NONE: the param of that name */
} matrix_spec;
hp_tensor build_matrix(model_build *b, hp_tensor x, const matrix_spec *m, const char *name);
/* x [B,T,in] times the weight `name`.weight [out,in] plus `name`.bias when there is one, in
 * b->compute. */
hp_tensor build_linear(model_build *b, hp_tensor x, int64_t in, int64_t out, bool bias,
                       double init_scale, const char *name);
/* The same with the weight stored [in,out] (GPT-2's Conv1D). */
hp_tensor build_conv1d(model_build *b, hp_tensor x, int64_t in, int64_t out, double init_scale,
                       const char *name);
/* A sharding annotation of x with the name "layers.LAYER.WHAT", or WHAT alone if layer is
 * negative: "embedded"; of each layer "attn_in", "q_proj", "k_proj", "v_proj" (in heads), "q",
 * "k", "v", "attn_mid", "attn_out", "mlp_in", "mlp_act", "mlp_mid", "mlp_out" and "residual", of
 * experts "moe_in", "moe_ids", "moe_weight" and "moe_out"; "final" and "logits". */
hp_tensor build_annotated(model_build *b, int layer, const char *what, hp_tensor x);
/* Rotary embedding of x [B,T,H,D] at the build's positions. */
hp_tensor build_rope(model_build *b, hp_tensor x);
/* Rows of the table for the ids, f32 [B,T,hidden].  In training with noise they differ from these
 * by less than noise / sqrt(T hidden), uniformly, as in NEFTune.  frozen: a row without gradient;
 * -1. */
hp_tensor build_embedding(model_build *b, hp_tensor table, int64_t frozen);
/* In training, x with dropout at rate p; `name` is the place, which selects the mask. */
hp_tensor build_dropout(model_build *b, hp_tensor x, double p, const char *name);
/* The place of attention without its projections, in the module that has them: Megatron's name. */
#define CORE_ATTENTION "core_attn"
/* Causal attention of q over k and v [B,T,KV,D], through the cache of the layer if there is one,
 * with the model's dropout in training.  Only scale and window of o are used. */
hp_tensor build_attention(model_build *b, int layer, hp_tensor q, hp_tensor k, hp_tensor v,
                          const hp_attention_options *o);
/* The numbers [B,T] of a reward model by hidden states [B,T,C]: value head "v_head.summary", as trl
 * names it, with its dropout in training. */
hp_tensor build_value_head(model_build *b, hp_tensor hidden);
/* Every n-th row of x [B,T], from row i on: each device keeps its share of the rows. */
hp_tensor build_rows(model_build *b, hp_tensor x, int64_t i, int64_t n);
/* [B,T,H*D] <-> [B,T,H,D] */
hp_tensor build_heads(model_build *b, hp_tensor x, int64_t heads, int64_t dim);
hp_tensor build_merge(model_build *b, hp_tensor x, int64_t width);

/* Cosine and sine of the rotary embedding for positions 0..rows-1: [rows, dims / 2] each.
 * `length` is that of the sequence, for scaling that depends on it. */
bool rope_depends_on_length(const rope_config *r);
double rope_mscale(double factor, double mscale); /* yarn's, for positions scaled by factor */
void rope_table(const model_config *c, int64_t rows, int64_t length, float *cos, float *sin);

#endif
