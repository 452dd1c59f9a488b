/* Evaluates sequences: logits, loss, gradients. */
#ifndef MODEL_LM_EVAL_H
#define MODEL_LM_EVAL_H

#include "model/lm.h"

typedef struct {
  int32_t *ids;
  int64_t n;
} lm_tokens;

/* Of a sequence: HP_ERR_ARG if it is longer than a table of positions that was learned; beyond
 * max_position_embeddings of other models a warning, once a model. */
hp_status lm_check_length(lm *m, int64_t tokens);
/* The same, and HP_ERR_ARG if there are no ids, or an id is outside the vocabulary. */
hp_status lm_check_tokens(lm *m, const lm_tokens *t);

/* logits [n, V]. */
hp_status lm_logits(lm *m, const lm_tokens *t, float *logits);
/* Memory of the program for n tokens; needs no weights. */
hp_status lm_logits_plan(lm *m, int64_t n, hp_program_stats *out);

typedef struct {
  float loss;   /* mean of the n - 1 next-token losses, and the experts' balance where config.json
                   asks for it */
  float **grad; /* by trained parameter of the model: its elements in f32 */
} lm_gradients;
/* HP_ERR_NUMERIC if the loss or a gradient is not finite. */
hp_status lm_grads(lm *m, const lm_tokens *t, lm_gradients *out);
hp_status lm_grads_plan(lm *m, int64_t n, hp_program_stats *out);
void lm_gradients_free(const lm *m, lm_gradients *g);

/* What is computed of sequences, such as losses [B,T], by the hidden states [B,T,C] and labels i32
 * [B,T]; where a label counts nothing it is -100. */
typedef hp_tensor lm_losses(model_build *b, hp_tensor hidden, hp_tensor labels);
/* Of labels that are the next tokens: their negative log likelihood. */
lm_losses lm_token_losses;
/* The same, and whether the label is the likeliest word (1, 0), [B,T,2]. */
lm_losses lm_token_accuracies;

/* Such losses of B sequences [B,T] of ids; programs are kept between calls. */
typedef struct lm_scorer lm_scorer;
/* The graph of what a scorer runs, to be planned; end with lm_graph_end, also after failures. */
hp_status lm_score_begin(const lm *m, int64_t B, int64_t T, lm_losses *of, model_build *b);
/* n: numbers that `of` gives, B T where they are of tokens.  reserve_bytes: of the memory limit,
 * for what is loaded later. */
hp_status lm_scorer_create(lm *m, int64_t B, int64_t T, lm_losses *of, int64_t n,
                           uint64_t reserve_bytes, lm_scorer **out);
void lm_scorer_free(lm_scorer *s);
hp_status lm_scorer_plan(lm *m, int64_t B, int64_t T, lm_losses *of, hp_program_stats *out);
/* All [B,T] but the span, [B,T,2], which is for models with spans.  Label -100 is not counted;
 * positions NULL: those in the row. */
typedef struct {
  const int32_t *ids, *labels, *positions, *span;
} lm_batch;
/* loss: its n numbers. */
hp_status lm_scorer_run(lm_scorer *s, const lm_batch *b, float *loss);

#endif
