#include "train/run_log.h"

#include "base/json.h"
#include "base/round.h"
#include "base/thread.h"
#include "train/losses.h"
#include "train/train_preference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the run ---------------------------------------------------------------------------------- */

void run_log_create(const train_config *c, const train_flow *f, const sampler *order,
                    run_log *out) {
  *out = (run_log){.config = c,
                   .flow = f,
                   .order = order,
                   .best_metric = NAN,
                   .start_s = time_now_s()};
}

void run_log_free(run_log *r) {
  if (!r) return;
  vec_free(&r->entry);
  arena_free(&r->names);
}

void run_log_step(run_log *r, int64_t step, double epoch, float loss, double flops,
                  int64_t tokens) {
  r->step = step;
  r->epoch = epoch;
  r->loss_sum += loss;
  r->total_flos += flops;
  r->tokens_seen += tokens;
}

/* samples, steps or tokens per second, as speed_metrics gives them */
static void add_rate(run_entry *e, const char *key, double n, double seconds) {
  if (seconds > 0) run_entry_add(e, key, round_decimal(n / seconds, 3));
}

/* Ends an entry with epoch and step and appends it to the history. */
static hp_status close_entry(run_log *r, run_entry *e) {
  if (r->step) run_entry_add(e, "epoch", r->epoch);
  else run_entry_add_int(e, "epoch", 0); /* before the first step Transformers has an int */
  if (r->config->is.count != COUNT_NO)
    run_entry_add_int(e, "num_input_tokens_seen", r->tokens_seen);
  if (r->config->is.count != COUNT_NO && run_entry_get(e, "loss")) {
    double seconds = time_now_s() - r->start_s;
    run_entry_add(e, "train_runtime", round_decimal(seconds, 4));
    add_rate(e, "train_tokens_per_second", (double)(r->tokens_seen - r->tokens_at_start), seconds);
  }
  run_entry_add_int(e, "step", r->step);
  return vec_push(&r->entry, *e) ? HP_OK : HP_ERR_OOM;
}

hp_status run_log_logged(run_log *r, double grad_norm, double lr, run_entry *out) {
  run_entry e = {0};
  double sum = (double)r->loss_sum;
  run_entry_add(&e, "loss", sum / (double)(r->step - r->logged_step));
  if (!isnan(grad_norm)) run_entry_add(&e, "grad_norm", grad_norm);
  run_entry_add(&e, "learning_rate", lr);
  preference of = train_preference_of(r->config);
  const char *name;
  double value;
  for (int i = 0; preference_metric(&of, &r->preferences, i, &name, &value); i++)
    run_entry_add(&e, name, value);
  r->preferences = (preference_metrics){.batches = 0};
  r->loss_total += sum;
  r->loss_sum = 0;
  r->logged_step = r->step;
  HP_TRY(close_entry(r, &e));
  *out = e;
  return HP_OK;
}

/* prefix: "eval", "eval_NAME", "predict" */
static hp_status add_metric(run_log *r, const char *prefix, const char *what, double x,
                            run_entry *e) {
  const char *key = arena_printf(&r->names, "%s_%s", prefix, what);
  HP_TRY_MEM(key);
  run_entry_add(e, key, x);
  return HP_OK;
}

static bool is_new_best(run_log *r, double loss) {
  if (!r->config->metric_for_best_model) return false;
  bool more = r->config->greater_is_better == 1;
  if (!isnan(r->best_metric) && !(more ? loss > r->best_metric : loss < r->best_metric))
    return false;
  r->best_metric = loss;
  r->best_step = r->step;
  r->best_saved = false;
  return true;
}

/* Metrics of preferences; of judged answers the divergence alone has no prefix. */
static hp_status add_preferences(run_log *r, const char *prefix, const run_evaluation *x,
                                 run_entry *e) {
  preference of = train_preference_of(r->config);
  const char *metric;
  double value;
  bool rewards = of.kind == PREFER_REWARD && x->preferences.good > 0;
  if (rewards || r->config->compute_accuracy)
    HP_TRY(add_metric(r, prefix, "accuracy",
                      rewards ? preference_accuracy(&x->preferences) : x->found, e));
  for (int i = 0; preference_metric(&of, &x->preferences, i, &metric, &value); i++) {
    if (strcmp(metric, "kl")) HP_TRY(add_metric(r, prefix, metric, value, e));
    else run_entry_add(e, "kl", value);
  }
  return HP_OK;
}

static hp_status add_speed(run_log *r, const char *prefix, const char *what, int64_t n,
                           double seconds, run_entry *e) {
  return seconds > 0 ? add_metric(r, prefix, what, round_decimal((double)n / seconds, 3), e)
                     : HP_OK;
}

static hp_status add_evaluation(run_log *r, const char *prefix, const run_evaluation *x,
                                run_entry *e) {
  HP_TRY_MEM(prefix);
  for (int i = 0; i < SIMILARITIES && x->answers; i++)
    HP_TRY(add_metric(r, prefix, similarity_name[i], x->similarity[i], e));
  if (!x->answers) HP_TRY(add_metric(r, prefix, "loss", x->loss, e));
  HP_TRY(add_preferences(r, prefix, x, e));
  HP_TRY(add_metric(r, prefix, "runtime", round_decimal(x->seconds, 4), e));
  HP_TRY(add_speed(r, prefix, "samples_per_second", x->samples, x->seconds, e));
  return add_speed(r, prefix, "steps_per_second", x->batches, x->seconds, e);
}

hp_status run_log_evaluated(run_log *r, const char *name, const run_evaluation *x, run_entry *out,
                            bool *best) {
  run_entry e = {0};
  HP_TRY(add_evaluation(r, *name ? arena_printf(&r->names, "eval_%s", name) : "eval", x, &e));
  HP_TRY(close_entry(r, &e));
  *best = !x->answers && is_new_best(r, x->loss);
  *out = e;
  return HP_OK;
}

hp_status run_log_predicted(run_log *r, const run_evaluation *x, run_entry *out) {
  run_entry e = {0};
  HP_TRY(add_evaluation(r, "predict", x, &e));
  *out = e;
  return HP_OK;
}

hp_status run_log_finished(run_log *r, run_entry *out) {
  run_entry e = {0};
  double seconds = time_now_s() - r->start_s;
  r->loss_total += (double)r->loss_sum;
  r->loss_sum = 0;
  int64_t counted = r->step - r->counted_from;
  run_entry_add(&e, "train_runtime", round_decimal(seconds, 4));
  add_rate(&e, "train_samples_per_second", (double)r->order->train_samples, seconds);
  add_rate(&e, "train_steps_per_second", (double)r->flow->steps, seconds);
  run_entry_add(&e, "total_flos", r->total_flos);
  run_entry_add(&e, "train_loss", counted > 0 ? r->loss_total / (double)counted : 0);
  HP_TRY(close_entry(r, &e));
  *out = e;
  return HP_OK;
}

void run_log_saved(run_log *r) {
  if (r->best_step == r->step) r->best_saved = r->step > 0;
}

/* --- lines ------------------------------------------------------------------------------------ */

static void put_duration(json_writer *w, const char *key, double s) {
  str text = {0};
  run_print_duration(s, &text);
  json_put_key(w, key);
  json_put_string(w, text.at ? text.at : "");
  str_free(&text);
}

static void put_value(json_writer *w, const char *key, const run_value *v) {
  if (!v) return;
  json_put_key(w, key);
  if (v->whole) json_put_int(w, v->integer);
  else json_put_double(w, v->number);
}

static bool ends_with(const char *key, const char *end) {
  size_t n = strlen(key), m = strlen(end);
  return n >= m && !strcmp(key + n - m, end);
}

/* Figures of generated answers, under their own names. */
static void put_similarities(json_writer *w, const run_entry *e) {
  for (int i = 0; i < e->n; i++)
    for (int k = 0; k < SIMILARITIES; k++)
      if (ends_with(e->value[i].key, similarity_name[k]))
        put_value(w, e->value[i].key, &e->value[i]);
}

/* Metrics of preferences and accuracies, under their own names. */
static void put_preferences(json_writer *w, const run_entry *e) {
  static const char *const group[] = {"rewards/", "logps/", "logits/"};
  static const char *const end[] = {"kl", "sft_loss", "odds_ratio_loss", "_accuracy"};
  for (int i = 0; i < e->n; i++) {
    const char *key = e->value[i].key;
    bool is = false;
    for (size_t k = 0; k < sizeof group / sizeof *group; k++) is |= strstr(key, group[k]) != NULL;
    for (size_t k = 0; k < sizeof end / sizeof *end; k++) is |= ends_with(key, end[k]);
    if (is) put_value(w, key, &e->value[i]);
  }
}

void run_log_print_line(const run_log *r, const run_entry *e, double now, str *out) {
  json_writer w = {.out = out};
  double elapsed = now - r->start_s, steps = (double)r->flow->steps, done = (double)r->step;
  json_open_map(&w);
  json_put_key(&w, "current_steps");
  json_put_int(&w, r->step);
  json_put_key(&w, "total_steps");
  json_put_int(&w, r->flow->steps);
  put_value(&w, "loss", run_entry_get(e, "loss"));
  put_value(&w, "eval_loss", run_entry_get(e, "eval_loss"));
  put_similarities(&w, e);
  put_value(&w, "accuracy", run_entry_get(e, "rewards/accuracies"));
  put_preferences(&w, e);
  put_value(&w, "lr", run_entry_get(e, "learning_rate"));
  put_value(&w, "epoch", run_entry_get(e, "epoch"));
  json_put_key(&w, "percentage");
  json_put_double(&w, steps > 0 ? round_decimal(done / steps * 100, 2) : 100);
  put_duration(&w, "elapsed_time", elapsed);
  put_duration(&w, "remaining_time", done > 0 ? (steps - done) * (elapsed / done) : 0);
  if (r->tokens_seen && r->config->is.count != COUNT_NO) {
    json_put_key(&w, "throughput");
    json_put_double(&w, elapsed > 0 ? round_decimal((double)r->tokens_seen / elapsed, 2) : 0);
    json_put_key(&w, "total_tokens");
    json_put_int(&w, r->tokens_seen);
  }
  json_close(&w);
  str_add_char(out, '\n');
}

void run_log_print_console(const run_entry *e, str *out) {
  const char *before = "{";
  for (int i = 0; i < e->n; i++) {
    const run_value *v = &e->value[i];
    if (!strcmp(v->key, "step") || !strcmp(v->key, "total_flos")) continue;
    str_printf(out, "%s'%s': ", before, v->key);
    if (v->whole) str_printf(out, "%lld", (long long)v->integer);
    else str_printf(out, "'%.4g'", v->number);
    before = ", ";
  }
  str_add_char(out, '}');
}

/* --- sorted maps ------------------------------------------------------------------------------ */

static int by_key(const void *a, const void *b) {
  return strcmp(((const run_value *)a)->key, ((const run_value *)b)->key);
}

static run_entry sorted(const run_entry *e) {
  run_entry s = *e;
  qsort(s.value, (size_t)s.n, sizeof *s.value, by_key);
  return s;
}

static void put_entry(json_writer *w, const run_entry *e) {
  run_entry s = sorted(e);
  json_open_map(w);
  for (int i = 0; i < s.n; i++) put_value(w, s.value[i].key, &s.value[i]);
  json_close(w);
}

static void put_control(json_writer *w, const run_log *r) {
  static const char *const flag[] = {"should_epoch_stop", "should_evaluate", "should_log",
                                     "should_save", "should_training_stop"};
  json_put_key(w, "stateful_callbacks");
  json_open_map(w);
  json_put_key(w, "TrainerControl");
  json_open_map(w);
  json_put_key(w, "args");
  json_open_map(w);
  for (int i = 0; i < 5; i++) {
    json_put_key(w, flag[i]);
    json_put_bool(w, i == 3 || (i == 4 && r->step >= r->flow->steps));
  }
  json_close(w);
  json_put_key(w, "attributes");
  json_open_map(w);
  json_close(w);
  json_close(w);
  json_close(w);
}

static void put_best(json_writer *w, const run_log *r) {
  json_put_key(w, "best_global_step");
  if (r->best_step) json_put_int(w, r->best_step);
  else json_put_null(w);
  json_put_key(w, "best_metric");
  if (isnan(r->best_metric)) json_put_null(w);
  else json_put_double(w, r->best_metric);
  json_put_key(w, "best_model_checkpoint");
  str path = {0};
  str_printf(&path, "%s/checkpoint-%lld", r->config->output_dir, (long long)r->best_step);
  if (r->best_saved && path.at) json_put_string(w, path.at);
  else json_put_null(w);
  str_free(&path);
}

void run_log_print_state(const run_log *r, str *out) {
  json_writer w = {.out = out, .indent = 2};
  json_open_map(&w);
  put_best(&w, r);
  json_put_key(&w, "epoch");
  json_put_double(&w, r->epoch);
  json_key_int(&w, "eval_steps", r->flow->eval_steps ? r->flow->eval_steps : 500);
  json_key_int(&w, "global_step", r->step);
  json_key_bool(&w, "is_hyper_param_search", false);
  json_key_bool(&w, "is_local_process_zero", true);
  json_key_bool(&w, "is_world_process_zero", true);
  json_put_key(&w, "log_history");
  json_open_list(&w);
  for (size_t i = 0; i < r->entry.len; i++) put_entry(&w, &r->entry.at[i]);
  json_close(&w);
  json_key_int(&w, "logging_steps", r->flow->logging_steps);
  json_key_int(&w, "max_steps", r->flow->steps);
  json_key_int(&w, "num_input_tokens_seen", r->config->is.count != COUNT_NO ? r->tokens_seen : 0);
  json_key_int(&w, "num_train_epochs", r->order->epochs);
  json_key_int(&w, "save_steps", r->flow->save_steps);
  put_control(&w, r);
  json_put_key(&w, "total_flos");
  json_put_double(&w, r->total_flos);
  json_key_int(&w, "train_batch_size", r->config->is.batch.per_device);
  json_put_key(&w, "trial_name");
  json_put_null(&w);
  json_put_key(&w, "trial_params");
  json_put_null(&w);
  json_close(&w);
  str_add_char(out, '\n');
}

/* --- reading a state back --------------------------------------------------------------------- */

static hp_status parse_entry(run_log *r, const tree_node *m) {
  run_entry e = {0};
  HP_TRY(tree_expect(m, TREE_MAP));
  if (m->len > RUN_VALUES_MAX)
    TREE_FAIL(m, "%u values in an entry; expected at most %d", m->len, RUN_VALUES_MAX);
  for (uint32_t i = 0; i < m->len; i++) {
    const tree_node *v = m->child[i];
    const char *key = arena_strdup(&r->names, v->key);
    HP_TRY_MEM(key);
    double x;
    HP_TRY(tree_as_double(v, &x));
    if (v->kind == TREE_INT) run_entry_add_int(&e, key, v->integer);
    else run_entry_add(&e, key, x);
  }
  if (!run_entry_get(&e, "step") || !run_entry_get(&e, "epoch"))
    TREE_FAIL(m, "an entry without step or epoch");
  return vec_push(&r->entry, e) ? HP_OK : HP_ERR_OOM;
}

hp_status run_log_parse_state(run_log *r, const tree_node *state) {
  const tree_node *history;
  HP_TRY(tree_expect(state, TREE_MAP));
  HP_TRY(tree_need_int(state, "global_step", &r->step));
  HP_TRY(tree_need_double(state, "epoch", &r->epoch));
  HP_TRY(tree_opt_double(state, "total_flos", 0, &r->total_flos));
  HP_TRY(tree_opt_int(state, "num_input_tokens_seen", 0, &r->tokens_seen));
  HP_TRY(tree_opt_double(state, "best_metric", NAN, &r->best_metric));
  HP_TRY(tree_opt_int(state, "best_global_step", 0, &r->best_step));
  const char *best;
  HP_TRY(tree_opt_string(state, "best_model_checkpoint", NULL, &best));
  r->best_saved = best != NULL;
  if (r->step < 0 || r->step > r->flow->steps)
    TREE_FAIL(tree_get(state, "global_step"),
              "%lld, but this run has %lld steps; raise max_steps, or begin anew with "
              "overwrite_output_dir: true",
              (long long)r->step, (long long)r->flow->steps);
  HP_TRY(tree_need_list(state, "log_history", &history));
  for (uint32_t i = 0; i < history->len; i++) HP_TRY(parse_entry(r, history->child[i]));
  r->logged_step = r->counted_from = r->step;
  r->tokens_at_start = r->tokens_seen;
  r->loss_sum = 0;
  r->loss_total = 0;
  return HP_OK;
}

void run_log_print_sums(const run_log *r, str *out) {
  const preference_metrics *m = &r->preferences;
  str_printf(out, "%a %a %lld %lld", (double)r->loss_sum, r->loss_total, (long long)r->logged_step,
             (long long)r->counted_from);
  if (!(m->batches > 0)) return;
  str_printf(out, " %a %a %a", m->batches, m->good, m->bad);
  for (int i = 0; i < PREFERENCE_METRICS; i++) str_printf(out, " %a", m->sum[i]);
}

/* What follows the sums of the losses: those of preferences, or nothing. */
static bool parse_preferences(const char *text, preference_metrics *m) {
  double *const at[] = {&m->batches, &m->good, &m->bad};
  *m = (preference_metrics){.batches = 0};
  if (!*text) return true;
  for (int i = 0; i < 3 + PREFERENCE_METRICS; i++) {
    char *end;
    *(i < 3 ? at[i] : &m->sum[i - 3]) = strtod(text, &end);
    if (end == text) return false;
    text = end;
  }
  return !*text;
}

hp_status run_log_parse_sums(run_log *r, const char *text) {
  double sum, total;
  long long logged, from;
  int end = 0;
  if (sscanf(text, "%la %la %lld %lld%n", &sum, &total, &logged, &from, &end) != 4 ||
      !parse_preferences(text + end, &r->preferences) || logged < 0 || logged > r->step ||
      from < 0 || from > r->step)
    HP_FAIL(HP_ERR_INPUT, "the sums of the run's log are damaged: \"%.80s\"", text);
  r->loss_sum = (float)sum;
  r->loss_total = total;
  r->logged_step = logged;
  r->counted_from = from;
  return HP_OK;
}

/* --- results ---------------------------------------------------------------------------------- */

hp_status run_log_eval_results(run_log *r, const run_entry *e, run_entry *out) {
  run_entry all = {0};
  const run_value *loss = NULL;
  for (int i = 0; i < e->n; i++) {
    const run_value *v = &e->value[i];
    size_t n = strlen(v->key);
    if (strcmp(v->key, "step")) run_entry_add_value(&all, *v);
    if (n > 5 && !strcmp(v->key + n - 5, "_loss")) loss = v;
  }
  const train_loss *of = &losses[r->config->stage];
  if (loss && of->metric) {
    int prefix = (int)strlen(loss->key) - 4;
    const char *key = arena_printf(&r->names, "%.*s%s", prefix, loss->key, of->metric);
    HP_TRY_MEM(key);
    run_entry_add(&all, key, of->metric_of(loss->number));
  }
  *out = all;
  return HP_OK;
}

typedef struct {
  const char *key;
  const run_value *value;  /* or */
  const tree_node *before; /* of the file that was there */
} result;

static int by_result(const void *a, const void *b) {
  return strcmp(((const result *)a)->key, ((const result *)b)->key);
}

/* The value under a key of the last entry that has it, NULL when none does. */
static const run_value *last_value(const run_entry *e, int n, const char *key) {
  const run_value *v = NULL;
  while (n > 0 && !v) v = run_entry_get(&e[--n], key);
  return v;
}

/* The results in the order of their keys; *len of them. */
static result *gather_results(const run_entry *e, int n, const tree_node *before, size_t *len) {
  size_t old = before && before->kind == TREE_MAP ? before->len : 0, m = 0;
  result *all = mem_calloc(old + (size_t)n * RUN_VALUES_MAX, sizeof *all);
  if (!all) return NULL;
  for (size_t i = 0; i < old; i++)
    if (!last_value(e, n, before->child[i]->key))
      all[m++] = (result){.key = before->child[i]->key, .before = before->child[i]};
  for (int k = 0; k < n; k++)
    for (int i = 0; i < e[k].n; i++) {
      const run_value *v = &e[k].value[i];
      if (strcmp(v->key, "step") && last_value(e, n, v->key) == v)
        all[m++] = (result){.key = v->key, .value = v};
    }
  qsort(all, m, sizeof *all, by_result);
  *len = m;
  return all;
}

void run_log_print_results(const run_entry *e, int n, const tree_node *before, str *out) {
  size_t len = 0;
  result *all = gather_results(e, n, before, &len);
  if (!all) {
    out->failed = true;
    return;
  }
  json_writer w = {.out = out, .indent = 4};
  json_open_map(&w);
  for (size_t i = 0; i < len; i++) {
    if (all[i].value) {
      put_value(&w, all[i].key, all[i].value);
      continue;
    }
    json_put_key(&w, all[i].key);
    json_put_tree(&w, all[i].before);
  }
  json_close(&w);
  mem_free(all);
}

/* A metric in the table on the console. */
static void print_metric(const run_value *v, str *out) {
  size_t n = strlen(v->key);
  if (n > 8 && !strcmp(v->key + n - 8, "_runtime")) {
    run_print_duration(v->number, out);
    double part = v->number - floor(v->number);
    str_printf(out, ".%02d", (int)(part * 100));
  } else if (!strcmp(v->key, "total_flos")) {
    str_printf(out, "%lldGF", (long long)(v->number / 1073741824.0));
  } else if (v->whole) {
    str_printf(out, "%lld", (long long)v->integer);
  } else {
    str_add_double(out, round_decimal(v->number, 4));
  }
}

void run_log_print_metrics(const run_entry *e, const char *split, str *out) {
  run_entry s = sorted(e);
  size_t key_width = 0, width = 0;
  str text[RUN_VALUES_MAX] = {{0}};
  for (int i = 0; i < s.n; i++) {
    print_metric(&s.value[i], &text[i]);
    if (!strcmp(s.value[i].key, "step") || !text[i].at) continue;
    if (strlen(s.value[i].key) > key_width) key_width = strlen(s.value[i].key);
    if (text[i].len > width) width = text[i].len;
  }
  str_printf(out, "***** %s metrics *****\n", split);
  for (int i = 0; i < s.n; i++) {
    if (strcmp(s.value[i].key, "step") && text[i].at)
      str_printf(out, "  %-*s = %*s\n", (int)key_width, s.value[i].key, (int)width, text[i].at);
    str_free(&text[i]);
  }
}
