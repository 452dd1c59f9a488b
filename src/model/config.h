/* config.json of a Hugging Face checkpoint, old and new spellings, as numbers for the builders. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "base/tree.h"

typedef struct model_family model_family;

typedef enum {
  ROPE_DEFAULT,
  ROPE_LINEAR,
  ROPE_DYNAMIC,
  ROPE_LLAMA3,
  ROPE_YARN,
  ROPE_LONGROPE
} rope_kind;

typedef struct {
  rope_kind kind;
  int64_t dims;     /* of a head, that are rotated */
  bool interleaved; /* pairs (2i, 2i + 1), else (i, i + dims / 2) */
  double theta, factor;
  double original_length;        /* positions of the pre-training */
  double low_freq, high_freq;    /* llama3 */
  double beta_fast, beta_slow;   /* yarn */
  double attention_factor;       /* yarn, longrope; 0 = by the formula */
  double mscale, mscale_all_dim; /* 0 = not given */
  bool truncate;                 /* yarn: correction range rounded to full dims */
  double *stretch[2];            /* longrope: [dims / 2] within the original length, beyond it */
} rope_config;

/* Layers of experts; each token uses a few of the experts. */
typedef struct {
  int64_t experts, per_token, ffn; /* 0 experts: there are none */
  int64_t shared;                  /* width of the expert that all tokens use, 0 = none */
  int64_t groups, groups_used;     /* a token's experts come from a few groups; 1 group: from all */
  bool norm;                       /* the weights of a token's experts sum to 1 */
  double scale;                    /* factor on the weights after that */
  bool *layer;                     /* [layers] the layer has experts */
  double balance;                  /* in training: factor of the load-balancing loss, 0 = none */
  double noise;                    /* in training: noise on the input of experts; not built */
} moe_config;

/* Latent attention: keys and values are computed from a narrow vector. */
typedef struct {
  int64_t q_rank, kv_rank; /* q_rank 0: queries are computed from the hidden state */
  int64_t plain, rotated;  /* dims of a query or key without and with positions */
  int64_t v_dim;           /* of a head's value */
  double score_scale;
} latent_config;

typedef struct {
  const model_family *family;
  char model_type[64];
  int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, max_length;
  double norm_eps, init_range;
  bool tied, qkv_bias, o_bias, mlp_bias, qk_norm;
  char activation[32]; /* row of the op table */
  rope_config rope;
  moe_config moe;
  latent_config latent;
  int64_t layers_ahead; /* layers after the last that predict tokens farther ahead; not used */
  int64_t window;       /* sliding window, 0 = none */
  bool *windowed;       /* [layers] the layer uses it */
  int64_t bos;          /* -1 = none */
  int64_t frozen;       /* embedding row without gradient (pad_token_id); -1 = none */
  int64_t eos[8];
  int n_eos;
  bool scale_scores, scale_by_layer; /* gpt2: of attention */
  struct {
    double embedding, attention, residual;
    double value_head; /* of what the value head of a reward model reads */
  } dropout;           /* rates, in training only */
  tree source;         /* the file, for keys that are copied unchanged */
} model_config;

/* Reads DIR/config.json, or a file.  Refuses keys that are missing, have the wrong type,
 * contradict each other or are not built, with file, line and key. */
hp_status model_config_load(const char *path, model_config *out);
/* The same from the text of a file; `name` is for messages. */
hp_status model_config_parse(const char *text, size_t n, const char *name, model_config *out);
void model_config_free(model_config *c);
bool model_config_drops(const model_config *c); /* some dropout rate is above 0 */
/* Number of trainable parameters. */
double model_config_params(const model_config *c);

/* For families: keys shared by Llama-like decoders: sizes and activation; then those of
 * attention. */
hp_status config_read_decoder(const tree_node *root, model_config *c);
hp_status config_read_llama(const tree_node *root, model_config *c);
hp_status config_read_activation(const tree_node *root, const char *key, const char *absent,
                                 model_config *c);
hp_status config_read_eps(const tree_node *root, const char *key, double absent, model_config *c);
/* A dropout rate: at least 0 and below 1. */
hp_status config_read_dropout(const tree_node *root, const char *key, double absent, double *out);
/* A token id, or -1, which is none. */
hp_status config_read_id(const tree_node *n, int64_t *out);
/* Checks the sizes of the model: layers, heads and head_dim within supported bounds. */
hp_status config_check_sizes(const tree_node *root, const model_config *c);
/* The parameters of the rotary embedding; the family sets dims of c->rope before. */
hp_status config_read_rope(const tree_node *root, model_config *c);
/* A number under the name of either spelling; both must agree. */
hp_status config_opt_either(const tree_node *root, const char *key, const char *other,
                            int64_t absent, int64_t *out);
/* A size in 1..2^31-1; opt: `absent` when missing or null. */
hp_status config_need_size(const tree_node *m, const char *key, int64_t *out);
hp_status config_opt_size(const tree_node *m, const char *key, int64_t absent, int64_t *out);
/* A size, or `null` if it is null, or `missing` if it does not exist (0: as null). */
hp_status config_read_size(const tree_node *root, const char *key, int64_t missing, int64_t null,
                           int64_t *out);
/* A number in 0..2^31-1. */
hp_status config_opt_count(const tree_node *m, const char *key, int64_t absent, int64_t *out);

#endif
