/* README.md: the model card, in the form that Transformers gives it. */
#include "train/run_files.h"

#include <math.h>
#include <string.h>

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash && slash[1] ? slash + 1 : path;
}

static void print_tags(const train_config *c, str *out) {
  const char *base = c->model_name_or_path;
  if (c->finetuning_type == TUNING_LORA)
    str_printf(out,
               "tags:\n- base_model:adapter:%s\n- llama-factory\n- lora\n- transformers\n"
               "pipeline_tag: text-generation\n",
               base);
  else
    str_printf(out, "tags:\n- llama-factory\n- %s\n- generated_from_trainer\n",
               c->finetuning_type == TUNING_FREEZE ? "freeze" : "full");
}

static void print_head(const train_config *c, str *out) {
  str_printf(out, "---\nlibrary_name: %s\nlicense: other\n",
             c->finetuning_type == TUNING_LORA ? "peft" : "transformers");
  str_printf(out, "base_model: %s\n", c->model_name_or_path);
  print_tags(c, out);
  str_add(out, "model-index:\n");
  str_printf(out, "- name: %s\n  results: []\n---\n", base_name(c->output_dir));
  str_add(out,
          "\n<!-- This model card was written by the trainer from what it knows. Proofread and "
          "complete it, then remove\nthis comment. -->\n");
  str_printf(out, "\n# %s\n\nThis model is a %s [%s](%s) on ", base_name(c->output_dir),
             c->train_from_scratch ? "model trained from random weights with the shapes of"
                                   : "fine-tuned version of",
             c->model_name_or_path, c->model_name_or_path);
  const train_names *d = &c->is.dataset;
  for (size_t i = 0; i < d->n; i++)
    str_printf(out, "%sthe %s", !i ? "" : i + 1 == d->n ? " and " : ", ", d->at[i]);
  str_add(out, d->n > 1 ? " datasets." : " dataset.");
}

/* _maybe_round: at most four decimals */
static void print_rounded(double x, str *out) {
  str text = {0};
  str_add_double(&text, x);
  const char *dot = text.at ? strchr(text.at, '.') : NULL;
  if (dot && strlen(dot + 1) > 4) str_printf(out, "%.4f", x);
  else if (text.at) str_add(out, text.at);
  str_free(&text);
}

static void print_number(str *out, const char *name, double x) {
  str_printf(out, "- %s: ", name);
  str_add_double(out, x);
  str_add_char(out, '\n');
}

static void print_batch(const train_config *c, str *out) {
  const train_batching *b = &c->is.batch;
  int64_t eval = c->per_device_eval_batch_size;
  str_printf(out, "- train_batch_size: %lld\n- eval_batch_size: %lld\n- seed: %lld\n",
             (long long)b->per_device, (long long)eval, (long long)c->seed);
  if (b->replicas > 1)
    str_printf(out, "- distributed_type: multi-GPU\n- num_devices: %lld\n", (long long)b->replicas);
  if (b->accumulation > 1)
    str_printf(out, "- gradient_accumulation_steps: %lld\n", (long long)b->accumulation);
  if (b->global != b->per_device)
    str_printf(out, "- total_train_batch_size: %lld\n", (long long)b->global);
  if (b->replicas > 1)
    str_printf(out, "- total_eval_batch_size: %lld\n", (long long)(eval * b->replicas));
}

static void print_settings(const train_config *c, str *out) {
  static const char *const optim[] = {"ADAMW_TORCH", "ADAMW_TORCH_FUSED", "SGD", "ADAFACTOR",
                                      "LION"};
  str_add(out, "\nThe following hyperparameters were used during training:\n");
  print_number(out, "learning_rate", c->learning_rate);
  print_batch(c, out);
  str_printf(out, "- optimizer: Use OptimizerNames.%s", optim[c->optim]);
  if (c->optim == OPTIM_ADAMW || c->optim == OPTIM_ADAMW_FUSED) {
    str_add(out, " with betas=(");
    str_add_double(out, c->adam_beta1);
    str_add_char(out, ',');
    str_add_double(out, c->adam_beta2);
    str_add(out, ") and epsilon=");
    str_add_double(out, c->adam_epsilon);
    str_add(out, " and optimizer_args=No additional optimizer arguments\n");
  } else {
    str_add(out, " and the args are:\nNo additional optimizer arguments\n");
  }
  str_printf(out, "- lr_scheduler_type: %s\n", c->lr_scheduler_type);
  if (c->is.warmup > 0) print_number(out, "lr_scheduler_warmup_steps", c->is.warmup);
  if (c->max_steps > 0) str_printf(out, "- training_steps: %lld\n", (long long)c->max_steps);
  else print_number(out, "num_epochs", c->num_train_epochs);
}

/* A row of the table of evaluations: the last training loss before it, epoch, step, its loss. */
typedef struct {
  str cell[4];
} row;

static void print_cells(const row *r, const size_t width[4], str *out) {
  for (int i = 0; i < 4; i++)
    str_printf(out, "| %-*s ", (int)width[i], r->cell[i].at ? r->cell[i].at : "");
  str_add(out, "|\n");
}

static void fill_row(row *r, double training, const run_entry *e) {
  for (int i = 0; i < 4; i++) str_clear(&r->cell[i]);
  if (isnan(training)) str_add(&r->cell[0], "No log");
  else print_rounded(training, &r->cell[0]);
  print_rounded(run_entry_number(e, "epoch"), &r->cell[1]);
  str_printf(&r->cell[2], "%.0f", run_entry_number(e, "step"));
  print_rounded(run_entry_number(e, "eval_loss"), &r->cell[3]);
}

/* Goes over the evaluations twice: for the widths, then (print) for the table. */
static void walk(const run_log *l, row *r, size_t width[4], bool print, str *out) {
  double training = NAN;
  for (size_t i = 0; i < l->entry.len; i++) {
    const run_entry *e = &l->entry.at[i];
    if (run_entry_get(e, "loss")) training = run_entry_number(e, "loss");
    if (run_entry_get(e, "train_loss")) return; /* what follows is the evaluation after the run */
    if (!run_entry_get(e, "eval_loss")) continue;
    fill_row(r, training, e);
    for (int k = 0; k < 4; k++)
      if (r->cell[k].len > width[k]) width[k] = r->cell[k].len;
    if (print) print_cells(r, width, out);
  }
}

static void print_table(const run_log *l, str *out) {
  static const char *const heading[] = {"Training Loss", "Epoch", "Step", "Validation Loss"};
  size_t width[4] = {0};
  row r = {0};
  walk(l, &r, width, false, out);
  if (width[0]) {
    for (int k = 0; k < 4; k++) {
      if (strlen(heading[k]) > width[k]) width[k] = strlen(heading[k]);
      str_clear(&r.cell[k]);
      str_add(&r.cell[k], heading[k]);
    }
    print_cells(&r, width, out);
    for (int k = 0; k < 4; k++) {
      str_add(out, "|:");
      for (size_t i = 0; i < width[k]; i++) str_add_char(out, '-');
      str_add_char(out, ':');
    }
    str_add(out, "|\n");
    walk(l, &r, width, true, out);
  }
  for (int k = 0; k < 4; k++) str_free(&r.cell[k]);
}

void run_card_print(const run_log *l, str *out) {
  const run_entry *last = NULL;
  for (size_t i = 0; i < l->entry.len; i++)
    if (run_entry_get(&l->entry.at[i], "eval_loss")) last = &l->entry.at[i];
  print_head(l->config, out);
  if (last) {
    str_add(out, "\nIt achieves the following results on the evaluation set:\n- Loss: ");
    print_rounded(run_entry_number(last, "eval_loss"), out);
  }
  str_add(out, "\n\n## Model description\n\nMore information needed\n\n## Intended uses & "
               "limitations\n\nMore information needed\n\n## Training and evaluation data\n\nMore "
               "information needed\n\n## Training procedure\n\n### Training hyperparameters\n");
  print_settings(l->config, out);
  str_add(out, "\n### Training results\n\n");
  print_table(l, out);
  str_add(out, "\n\n### Framework versions\n\n- HyperParallel " HP_VERSION "\n");
}
