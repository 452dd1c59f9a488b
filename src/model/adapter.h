/* Adapters of low rank (LoRA, Hu et al. 2021), as peft defines them: a module, which is a linear
 * layer of the model, computes y = W x + scale B A dropout(x), with A [rank,in] and B [out,rank].
 * With DoRA (Liu et al. 2024) rows of W + scale B A are brought to the sizes that are trained,
 * "M.lora_magnitude_vector" [out]; no gradient goes through the sizes that they had.
 *
 * An adapter is created from options or read from peft's files (model/adapter_files.h), and
 * belongs to one model: its modules are names of the model's linear layers.  Params
 * "M.lora_A.weight" and "M.lora_B.weight" of module M are params of the model.  Besides them some
 * params of the model may be trained whole (peft's modules_to_save). */
#ifndef MODEL_ADAPTER_H
#define MODEL_ADAPTER_H

#include "model/family.h"

typedef struct {
  const char *const *at;
  size_t n;
} adapter_names;

typedef struct {
  int64_t rank;
  double alpha, dropout;
  bool dora;
  bool rslora;          /* scale alpha / sqrt(rank) in place of alpha / rank */
  adapter_names target; /* modules by the end of their names; "all" alone: all but the head */
  adapter_names whole;  /* ends of names of modules that are trained whole */
  double b_rate;        /* factor on the learning rate of B, and of vectors (LoRA+); 0: none */
  uint64_t seed;        /* of A's first values */
  bool pissa;           /* A and B begin with the leading singular vectors of the weights */
  int64_t pissa_iter;   /* iterations that find them; -1: they are exact */
} adapter_options;

typedef struct {
  char name[152]; /* of the linear layer */
  int64_t rank;
  double alpha;
} adapter_module;

/* What A and B of a module began with. */
typedef struct {
  float *A, *B;
} adapter_start;

typedef struct adapter {
  adapter_options o;
  VEC(adapter_module) modules; /* in the order of the model */
  map module_of;               /* name -> place in modules */
  VEC(adapter_start) starts;   /* of modules, if singular vectors were what they began with */
  VEC(const char *) whole;     /* names of params that are trained whole */
  tree config;                 /* the file that it was read from; root NULL: none */
  arena mem;
} adapter;

void adapter_free(adapter *a);
const adapter_module *adapter_find(const adapter *a, const char *module);
/* The factor on B A. */
double adapter_scale(const adapter *a, const adapter_module *m);
/* Is `end` the name of the module, or its last components? */
bool adapter_is_named(const char *module, const char *end);
/* Does the param belong to a module whose name ends so, or to one inside of it? */
bool adapter_is_of_module(const char *param, const char *end);

/* What of a model adapters may name. */
typedef struct {
  const model_linear *linear;
  size_t linears;
  const model_param *param;
  size_t params;
  const char *head; /* name of the head's weight, which "all" does not mean */
  const char *path; /* of the model, for messages */
} adapter_subject;

/* Finds the modules of the options in the model; copies the options.  HP_ERR_ARG: a name that
 * matches nothing, with those that there are; a rank above the dims of a module. */
hp_status adapter_create(const adapter_options *o, const adapter_subject *s, adapter **out);
/* Adds a module, or the param of a module that is trained whole; for readers of files. */
hp_status adapter_add_module(adapter *a, const char *module, int64_t rank, double alpha);
hp_status adapter_add_whole(adapter *a, const char *param);

bool adapter_drops(const adapter *a); /* does training draw dropout masks? */

#endif
