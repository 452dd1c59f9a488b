/* A language model on a device: configuration, parameters, and building of its graphs. */
#ifndef MODEL_LM_H
#define MODEL_LM_H

#include "model/adapter.h"

struct adapter_file; /* model/adapter_files.h */

/* A tensor of the checkpoint: a parameter, or a slice of a stack. */
typedef struct {
  char name[160];
  size_t param, at; /* in params; first element there */
  hp_shape shape;
  hp_dtype stored; /* f32, bf16 or f16: its dtype in the files it was loaded from; else f32 */
} lm_tensor;

typedef struct {
  model_config c;
  hp_device *d;
  hp_dtype compute; /* of products: f32 or bf16 */
  hp_dtype weights; /* of matrices on the device */
  bool packed;      /* matrices are packed if possible */
  /* In the order of the model, trained ones first; tensor ids are meaningless. */
  VEC(model_param) params;
  size_t trained;                    /* params with a gradient */
  VEC(model_linear) linears;         /* in the order of the model */
  adapter *adapter;                  /* that is trained or applied; NULL: none */
  struct adapter_file *start;        /* has the values that its params start with; NULL: none */
  VEC(struct adapter_file *) merged; /* adapters that lm_load adds to the weights */
  map only;                          /* names of the params that are trained; see has_only */
  bool has_only;                     /* not all params are trained */
  bool value_head;                   /* of a reward model */
  double label_smoothing;            /* share of the losses of tokens that asks for all words */
  bool told_length; /* a warning said that sequences are longer than the model's positions */
  bool untied; /* config.json of the files ties the head to the embedding, but here they differ */
  VEC(lm_tensor) tensors;            /* in the order of params, slices of a stack in order */
  VEC(model_annotation) annotations; /* in the order of the model */
  int64_t rope_rows;                 /* of rotary tables shared by graphs, 0: none */
  bool spans;     /* an input says which tokens each token sees, also in graphs without a cache */
  int64_t groups; /* of the sequences of a batch that devices share, each with a cache; 0: one */
  uint16_t *stage_of; /* [layers] of the pipeline; NULL: one stage */
  int stages;
  char path[1024]; /* origin, for messages */
} lm;

typedef struct {
  hp_dtype compute, weights;
  bool packed; /* for inference on one device: matrices in the layout that decoding reads fastest */
} lm_options;

/* Reads config.json of dir.  lm_load or lm_init puts the parameters on device d, which the
 * caller owns; with d NULL graphs can be built and planned, not run. */
hp_status lm_create(const char *dir, hp_device *d, const lm_options *o, lm **out);
void lm_free(lm *m);
/* Elements first .. first + n - 1 of a tensor of the checkpoint, as the parameter's type: in
 * place, or copied to `room`, which has space for them.  Thread-safe. */
typedef hp_status lm_source(void *ctx, const lm_tensor *t, size_t first, size_t n, void *room,
                            const void **at);
/* Fills the parameter with these tensors, in its own layout. */
hp_status lm_fill_param(const lm *m, const lm_tensor *t, lm_source *source, void *ctx);
/* Fills the parameters from the checkpoint in `dir` (safetensors).  A tensor of the decoder that
 * is missing, unexpected or of another shape is refused by name; other unused tensors are
 * reported. */
hp_status lm_load(lm *m, const char *dir);
/* The model gets the adapter, which it owns from then on, also after a failure: all that is trained
 * are its params and those that it names.  Before layouts are declared and params are made.  Its
 * params get first values by the adapter's seed. */
hp_status lm_set_adapter(lm *m, adapter *a);
/* The same with the adapter and the values of a file, which the model owns from then on. */
hp_status lm_set_adapter_file(lm *m, struct adapter_file *f);
/* Only params of these names are trained. */
hp_status lm_train_only(lm *m, const char *const *name, size_t n);
/* From now on a tied head is a param of its own, which starts with the embedding's numbers; no
 * effect on other models. */
hp_status lm_untie(lm *m);
/* What adapters may name in the model. */
adapter_subject lm_subject(const lm *m);
/* lm_load will add B A of these files to the weights that it loads.  The model owns f from then on,
 * also after a failure. */
hp_status lm_merge(lm *m, struct adapter_file *f);
/* The model becomes a reward model: it gets a value head, and its own head is not trained. */
hp_status lm_set_value_head(lm *m);
/* Its values, by value_head.safetensors in dir, or, without that file, at random. */
#define VALUE_HEAD_FILE "value_head.safetensors"
hp_status lm_fill_value_head(lm *m, const char *dir, uint64_t seed);
/* Values of the adapter's params; part of lm_load and lm_init. */
hp_status lm_fill_adapter(lm *m);
/* Initialises them as Transformers does: normal(0, initializer_range), norms 1, biases 0; the
 * same numbers for the same seed and names, on any device. */
hp_status lm_init(lm *m, uint64_t seed);
/* From now on graphs are of a pipeline of so many stages: stage_of[layers], which is copied, never
 * falls from one layer to the next.  What is before the layers is on the first stage, what is
 * behind them on the last.  HP_ERR_ARG names a layer that is on none of them. */
hp_status lm_set_stages(lm *m, int stages, const uint16_t *stage_of);
/* Creates them on the device, without values. */
hp_status lm_make_params(lm *m);
const model_param *lm_find(const lm *m, const char *name);
/* The embedding, if it is trained as the head, too; NULL otherwise. */
const model_param *lm_tied_param(const lm *m);

/* Number of trained tensors of the checkpoint: the first of m->tensors. */
size_t lm_trained_tensors(const lm *m);

/* --- graphs --------------------------------------------------------------------------------- */

/* From now on each token of a graph sees the tokens of its row that an input says. */
void lm_set_spans(lm *m);
/* Starts a graph for B sequences of T tokens: inputs ids and positions i32 [B,T], and with spans
 * span i32 [B,T,2]; with a cache also span, table i32 [B,width], cache_at and cache_copy i32 [B],
 * on a tier kv_fetch and kv_store, and for attention to some blocks kv_blocks and kv_copy
 * (model_build).  m->groups divides B.  cache NULL: none.  rope_length: rows of the rotary tables.
 * End with lm_graph_end, also after failures. */
hp_status lm_graph_begin(const lm *m, int64_t B, int64_t T, const model_cache *cache,
                         int64_t rope_length, model_build *b);
void lm_graph_end(model_build *b);
/* Are the rows of rotary tables for longer sequences the same as for this length? */
bool lm_shares_rope(const lm *m, int64_t length);
/* From now on graphs of up to this many tokens share one pair of rotary tables, instead of a
 * pair for every length of a batch.  No effect if longer tables have other rows. */
void lm_share_rope(lm *m, int64_t length);
/* The weight [V,C] of a tied head: the embedding, or the same param as b->head. */
hp_tensor lm_tied_head(model_build *b);
/* Hidden states [B,T,C] -> logits f32 [B,T,V]. */
hp_tensor lm_head(model_build *b, hp_tensor hidden);
/* Creates the rotary tables that the graph needs, for sequences of `length`, if they are not on
 * the device yet; with dynamic scaling they are rewritten. */
hp_status lm_make_buffers(const lm *m, const model_build *b, int64_t length);
/* Is the parameter an operand of a matrix product?  So is a tied embedding. */
bool lm_is_product(const lm *m, const model_param *p);
/* Elements of a parameter that one token uses: of a stack of experts only those of its experts. */
double lm_elements_used(const lm *m, const model_param *p);
/* Operations of one token's forward pass, without attention over earlier tokens; x3 trains. */
double lm_flops_per_token(const lm *m, int64_t length);

#endif
