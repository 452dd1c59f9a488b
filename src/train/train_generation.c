#include "train/train_generation.h"

#include "base/json.h"
#include "dataset/chat_encode.h"

/* --- the configuration ------------------------------------------------------------------------ */

static bool is_true(const train_config *c, const char *key) {
  const tree_node *v = tree_get(c->root, key);
  return v && v->kind == TREE_BOOL && v->boolean;
}

static hp_status check_predict(train_config *c) {
  const tree_node *at = train_config_at(c, KEY_do_predict);
  if (!c->do_predict) return HP_OK;
  if (c->stage != STAGE_sft) TREE_FAIL(at, "it is for stage sft; leave it out");
  if (!c->predict_with_generate)
    TREE_FAIL(at, "predictions are generated: write predict_with_generate: true, too");
  if (c->eval_on_each_dataset)
    TREE_FAIL(at, "predictions are of one data set: write eval_on_each_dataset: false");
  return HP_OK;
}

/* Evaluations that generate have no loss. */
static hp_status check_loss(const train_config *c) {
  int key = c->metric_for_best_model ? KEY_metric_for_best_model : KEY_lr_scheduler_type;
  if (c->metric_for_best_model || schedule_follows_metric(c->is.schedule))
    TREE_FAIL(
        train_config_at(c, key),
        "it needs the loss of evaluations, but with predict_with_generate: true they generate "
        "answers and have none; leave one of them out");
  return HP_OK;
}

static hp_status check_mesh(const train_config *c) {
  if (!*c->is.mesh) return HP_OK;
  TREE_FAIL(train_config_at(c, KEY_predict_with_generate),
            "answers are not generated on a mesh of device_matrix, whose layouts say nothing of "
            "keys and values; write a strategy");
}

hp_status train_generation_check(train_config *c) {
  const tree_node *at = train_config_at(c, KEY_predict_with_generate);
  HP_TRY(check_predict(c));
  if (!c->predict_with_generate) return HP_OK;
  if (c->stage != STAGE_sft) TREE_FAIL(at, "it is for stage sft; leave it out");
  if (c->compute_accuracy)
    TREE_FAIL(at, "predict_with_generate and compute_accuracy do not go together; keep one");
  if (is_true(c, "prediction_loss_only"))
    TREE_FAIL(tree_get(c->root, "prediction_loss_only"),
              "there is no loss with predict_with_generate: true; leave it out");
  if (c->num_beams > 1)
    TREE_FAIL(train_config_at(c, KEY_num_beams), "beam search is not built; write num_beams: 1");
  HP_TRY(check_loss(c));
  return check_mesh(c);
}

/* --- generation ------------------------------------------------------------------------------- */

static hp_status find_ends(const train_config *c, const tokenizer *t, int32_t eos, generation *g) {
  const token_ids *extra = tokenizer_extra_specials(t);
  chat_template of = {0};
  if (c->template) HP_TRY(chat_template_find(c->template, &of));
  g->n_eos = chat_find_ends(&of, t, eos, g->eos, GENERATION_ENDS_MAX);
  if (g->n_eos > 1) return HP_OK;
  for (size_t i = 0; i < extra->len && g->n_eos < GENERATION_ENDS_MAX; i++)
    g->eos[g->n_eos++] = extra->at[i];
  return HP_OK;
}

hp_status train_generation_of(const train_config *c, const tokenizer *t, int32_t eos,
                              generation *out) {
  generation g = {.sampling = {.temperature = c->do_sample ? c->temperature : 0,
                               .top_p = c->top_p,
                               .top_k = c->top_k,
                               .repetition_penalty = c->repetition_penalty,
                               .seed = (uint64_t)c->seed},
                  .max_new_tokens = c->max_new_tokens};
  HP_TRY(sampling_check(&g.sampling));
  HP_TRY(find_ends(c, t, eos, &g));
  *out = g;
  return HP_OK;
}
