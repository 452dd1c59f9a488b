/* Checkpoints of a run and the exported model. */
#include "base/dtype.h"
#include "base/json.h"
#include "base/log.h"
#include "data/weights.h"
#include "train/trainer_parts.h"

#include <stdio.h>
#include <string.h>

enum { NAME_ROOM = 192, STATES_MAX = 2 };

/* --- tensors ------------------------------------------------------------------------------------
 */

/* Tensors of the checkpoint, and where they are on the device: there, several may be one. */
typedef struct {
  char name[NAME_ROOM]; /* of the device's tensor */
  const model_param *param;
  size_t at; /* first element in it */
  bool last; /* of it */
} device_part;

typedef struct {
  hp_device *d;
  st_tensor *tensor;
  char (*name)[NAME_ROOM];
  device_part *part;
  size_t n;
  float *held; /* elements of the device's tensor that is being written or read, part by part */
} device_tensors;

static size_t bytes_of(const st_tensor *t) {
  size_t n = st_dtype_bits(t->dtype) / 8;
  for (int i = 0; i < t->rank; i++) n *= (size_t)t->dim[i];
  return n;
}

/* Memory for the device's tensor of part i, when it is the first. */
static hp_status hold(device_tensors *t, size_t i) {
  if (t->part[i].at == 0) {
    mem_free(t->held);
    t->held = mem_calloc(model_param_elements(t->part[i].param), sizeof *t->held);
  }
  HP_TRY_MEM(t->held);
  return HP_OK;
}

static void let_go(device_tensors *t) {
  mem_free(t->held);
  t->held = NULL;
}

static hp_status write_tensor(void *ctx, size_t i, st_writer *out) {
  device_tensors *t = ctx;
  const device_part *p = &t->part[i];
  HP_TRY(hold(t, i));
  if (p->at == 0)
    HP_TRY(hp_read(t->d, p->name, t->held, model_param_elements(p->param) * sizeof *t->held));
  HP_TRY(st_writer_write(out, t->held + p->at, t->tensor[i].bytes));
  if (p->last) let_go(t);
  return HP_OK;
}

static void device_tensors_free(device_tensors *t) {
  let_go(t);
  mem_free(t->tensor);
  mem_free(t->name);
  mem_free(t->part);
}

static const char *prefixed(char to[NAME_ROOM], const char *prefix, const char *name) {
  snprintf(to, NAME_ROOM, "%s%s%s", prefix, *prefix ? "." : "", name);
  return to;
}

/* The first n tensors of the model ("" ), or states of the optimizer for them ("m", "v"), one after
 * another. */
static hp_status list_tensors(const trainer *t, size_t n, const char *const *prefix, int n_prefix,
                              device_tensors *out) {
  const lm *m = t->m;
  *out = (device_tensors){.d = t->d, .n = n * (size_t)n_prefix};
  out->tensor = mem_calloc(out->n, sizeof *out->tensor);
  out->name = mem_calloc(out->n, sizeof *out->name);
  out->part = mem_calloc(out->n, sizeof *out->part);
  if (!out->tensor || !out->name || !out->part) {
    device_tensors_free(out);
    return HP_ERR_OOM;
  }
  for (size_t k = 0; k < out->n; k++) {
    const lm_tensor *x = &m->tensors.at[k % n];
    const model_param *p = &m->params.at[x->param];
    out->part[k] =
        (device_part){.param = p, .at = x->at, .last = k % n + 1 == n || x[1].param != x->param};
    prefixed(out->part[k].name, prefix[k / n], p->name);
    out->tensor[k] = (st_tensor){.name = prefixed(out->name[k], prefix[k / n], x->name),
                                 .dim = x->shape.dim,
                                 .rank = x->shape.rank,
                                 .dtype = ST_F32};
    out->tensor[k].bytes = bytes_of(&out->tensor[k]);
  }
  return HP_OK;
}

static hp_status list_states(const trainer *t, device_tensors *out) {
  static const char *const prefix[STATES_MAX] = {"m", "v"};
  return list_tensors(t, lm_trained_tensors(t->m), prefix, stepper_states(&t->so), out);
}

static hp_status list_model(const trainer *t, device_tensors *out) {
  static const char *const prefix[1] = {""};
  return list_tensors(t, t->m->tensors.len, prefix, 1, out);
}

/* --- texts ------------------------------------------------------------------------------------ */

/* config.json as it was read, with the dtype of what is saved. */
static hp_status print_config(const trainer *t, str *out) {
  const tree_node *root = t->m->c.source.root;
  json_writer w = {.out = out, .indent = 2};
  bool told = false;
  json_open_map(&w);
  for (uint32_t i = 0; i < root->len; i++) {
    const tree_node *n = root->child[i];
    bool dtype = !strcmp(n->key, "dtype") || !strcmp(n->key, "torch_dtype");
    json_put_key(&w, n->key);
    if (dtype) json_put_string(&w, "float32");
    else json_put_tree(&w, n);
    told |= dtype;
  }
  if (!told) {
    json_put_key(&w, "dtype");
    json_put_string(&w, "float32");
  }
  json_close(&w);
  str_add_char(out, '\n');
  return str_status(out);
}

/* What a resume needs beside tensors and history; what must not have changed comes first. */
static hp_status print_state(const trainer *t, str *out) {
  const sampler_spec *s = &t->data.order.spec;
  json_writer w = {.out = out};
  str rate = {0}, sums = {0};
  schedule_print_state(&t->rate, &rate);
  run_log_print_sums(&t->log, &sums);
  json_open_map(&w);
  json_put_key(&w, "samples"), json_put_int(&w, s->samples);
  json_put_key(&w, "per_device_train_batch_size"), json_put_int(&w, s->batch);
  json_put_key(&w, "gradient_accumulation_steps"), json_put_int(&w, s->accumulation);
  json_put_key(&w, "data_seed"), json_put_int(&w, (int64_t)s->seed);
  json_put_key(&w, "shuffle"), json_put_bool(&w, s->shuffle);
  json_put_key(&w, "steps"), json_put_int(&w, t->steps);
  json_put_key(&w, "optimizer"), json_put_string(&w, t->so.optimizer == STEP_SGD ? "sgd" : "adamw");
  json_put_key(&w, "optimizer_saved"), json_put_bool(&w, !t->c->save_only_model);
  json_put_key(&w, "engine"), json_put_string(&w, hp_device_engine(t->d));
  json_put_key(&w, "schedule"), json_put_string(&w, rate.at ? rate.at : "");
  json_put_key(&w, "loss_sums"), json_put_string(&w, sums.at ? sums.at : "");
  json_close(&w);
  hp_status st = rate.failed || sums.failed ? HP_ERR_OOM : str_status(out);
  str_free(&rate);
  str_free(&sums);
  return st;
}

static const char *const passed_on[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "added_tokens.json",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "generation_config.json"};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

/* Those files of the model's folder that are there; paths are of `mem`. */
static hp_status list_copies(const trainer *t, arena *mem, const char **path, size_t *n) {
  *n = 0;
  for (int i = 0; i < PASSED_ON; i++) {
    const char *p = arena_printf(mem, "%s/%s", t->c->model_name_or_path, passed_on[i]);
    HP_TRY_MEM(p);
    if (file_exists(p)) path[(*n)++] = p;
  }
  return HP_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

static hp_status save(trainer *t, arena *mem, device_tensors *model, device_tensors *states,
                      str *text) {
  const char *copy[PASSED_ON];
  size_t n_copy;
  HP_TRY(print_config(t, &text[0]));
  run_log_saved(&t->log); /* once it is committed; before that nobody reads it */
  run_log_print_state(&t->log, &text[1]);
  HP_TRY(print_state(t, &text[2]));
  HP_TRY(str_status(&text[1]));
  HP_TRY(list_copies(t, mem, copy, &n_copy));
  checkpoint_tensors tensors[2] = {{"model.safetensors", model->tensor, model->n, write_tensor,
                                    model},
                                   {"optimizer.safetensors", states->tensor, states->n,
                                    write_tensor, states}};
  checkpoint_text texts[2] = {{"config.json", text[0].at, text[0].len},
                              {"trainer_state.json", text[1].at, text[1].len}};
  checkpoint_content c = {.tensors = tensors,
                          .n_tensors = t->c->save_only_model ? 1 : 2,
                          .text = texts,
                          .n_text = 2,
                          .copy = copy,
                          .n_copy = n_copy,
                          .step = t->step,
                          .state = text[2].at};
  HP_TRY(checkpoint_save(t->c->output_dir, &c));
  t->last_saved = t->step;
  int64_t keep = t->c->save_total_limit == TRAIN_NONE ? 0 : t->c->save_total_limit;
  return checkpoint_prune(t->c->output_dir, keep, t->log.best_saved ? t->log.best_step : -1);
}

hp_status trainer_checkpoint(trainer *t) {
  arena mem = {0};
  str text[3] = {{0}};
  device_tensors model = {0}, states = {0};
  hp_status st = list_model(t, &model);
  if (!st) st = list_states(t, &states);
  if (!st) st = save(t, &mem, &model, &states, text);
  device_tensors_free(&model);
  device_tensors_free(&states);
  for (int i = 0; i < 3; i++) str_free(&text[i]);
  arena_free(&mem);
  if (!st) log_debug("checkpoint-%lld written", (long long)t->step);
  return st;
}

static hp_status export_files(const trainer *t, arena *mem, str *config) {
  const char *copy[PASSED_ON];
  size_t n;
  str to = {0};
  hp_status st = list_copies(t, mem, copy, &n);
  for (size_t i = 0; !st && i < n; i++) {
    char *bytes;
    size_t len;
    st = file_read(copy[i], 0, &bytes, &len);
    if (st) break;
    st = path_join(&to, t->c->output_dir, strrchr(copy[i], '/') + 1);
    if (!st) st = file_write(to.at, bytes, len);
    mem_free(bytes);
  }
  if (!st) st = print_config(t, config);
  if (!st) st = path_join(&to, t->c->output_dir, "config.json");
  if (!st) st = file_write(to.at, config->at, config->len);
  str_free(&to);
  return st;
}

hp_status trainer_export(trainer *t) {
  arena mem = {0};
  str config = {0};
  device_tensors model = {0};
  hp_status st = list_model(t, &model);
  weights_options o = {.write = write_tensor, .ctx = &model};
  if (!st) st = weights_save(t->c->output_dir, model.tensor, model.n, &o);
  if (!st) st = export_files(t, &mem, &config);
  device_tensors_free(&model);
  str_free(&config);
  arena_free(&mem);
  return st;
}

/* --- resuming --------------------------------------------------------------------------------- */

static hp_status read_tensor(device_tensors *t, size_t i, const weights *w) {
  const st_tensor *have, *x = &t->tensor[i];
  const device_part *p = &t->part[i];
  HP_TRY(weights_need_shape(w, x->name, x->rank, x->dim, &have));
  HP_TRY(hold(t, i));
  HP_TRY(weights_read(have, 0, x->bytes / sizeof *t->held, HP_F32, t->held + p->at));
  if (!p->last) return HP_OK;
  HP_TRY(hp_param_create(t->d, p->name, HP_F32, p->param->shape));
  HP_TRY(hp_write(t->d, p->name, t->held, model_param_elements(p->param) * sizeof *t->held));
  let_go(t);
  return HP_OK;
}

/* Writes tensors of a file to the device; their shapes must agree. */
static hp_status read_tensors(const char *path, device_tensors *want) {
  weights *w;
  HP_TRY(weights_open(path, &w));
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < want->n; i++) st = read_tensor(want, i, w);
  weights_free(w);
  return st;
}

static hp_status must_equal(const tree_node *state, const char *key, int64_t now) {
  int64_t then;
  HP_TRY(tree_need_int(state, key, &then));
  if (then != now)
    TREE_FAIL(
        tree_get(state, key),
        "the checkpoint was made with %lld, this run has %lld, so the order of the data would "
        "change; restore the old value, or begin anew with overwrite_output_dir: true",
        (long long)then, (long long)now);
  return HP_OK;
}

/* A bf16 run goes on with the engine it began with: another one rounds in its own way. */
static hp_status keep_engine(trainer *t, const tree_node *state) {
  const char *engine;
  HP_TRY(tree_opt_string(state, "engine", NULL, &engine));
  if (!engine || t->c->is.compute == HP_F32 || !strcmp(engine, hp_device_engine(t->d)))
    return HP_OK;
  if (!hp_device_set_engine(t->d, engine)) return HP_OK;
  log_warn("the checkpoint was made with the engine %s: %s; going on with %s, whose bits differ",
           engine, err_message(), hp_device_engine(t->d));
  err_clear();
  return HP_OK;
}

static hp_status read_state(trainer *t, const checkpoint *c) {
  const tree_node *state;
  const sampler_spec *s = &t->data.order.spec;
  const char *rate, *optimizer, *sums;
  bool saved;
  HP_TRY(tree_need_map(c->manifest.root, "state", &state));
  HP_TRY(must_equal(state, "samples", s->samples));
  HP_TRY(must_equal(state, "per_device_train_batch_size", s->batch));
  HP_TRY(must_equal(state, "gradient_accumulation_steps", s->accumulation));
  if (s->shuffle) HP_TRY(must_equal(state, "data_seed", (int64_t)s->seed));
  HP_TRY(tree_need_string(state, "optimizer", &optimizer));
  if (strcmp(optimizer, t->so.optimizer == STEP_SGD ? "sgd" : "adamw"))
    TREE_FAIL(tree_get(state, "optimizer"), "the checkpoint is of %s, this run uses another optim",
              optimizer);
  HP_TRY(tree_need_bool(state, "optimizer_saved", &saved));
  if (!saved)
    TREE_FAIL(tree_get(state, "optimizer_saved"),
              "it was saved with save_only_model: true and cannot be continued; use it as "
              "model_name_or_path, or begin anew with overwrite_output_dir: true");
  HP_TRY(keep_engine(t, state));
  HP_TRY(tree_need_string(state, "schedule", &rate));
  HP_TRY(schedule_parse_state(&t->rate, rate));
  HP_TRY(tree_need_string(state, "loss_sums", &sums));
  return run_log_parse_sums(&t->log, sums);
}

static hp_status read_history(trainer *t, const char *dir) {
  tree state;
  str path = {0};
  hp_status st = path_join(&path, dir, "trainer_state.json");
  if (!st) st = json_load(path.at, 0, &state);
  if (!st) {
    st = run_log_parse_state(&t->log, state.root);
    tree_free(&state);
  }
  str_free(&path);
  return st;
}

static hp_status resume_from(trainer *t, const checkpoint *c) {
  device_tensors model = {0}, states = {0};
  str path = {0};
  hp_status st = read_history(t, c->path);
  if (!st) st = read_state(t, c);
  if (!st) st = list_model(t, &model);
  if (!st) st = list_states(t, &states);
  if (!st) st = read_tensors(c->path, &model);
  if (!st) st = path_join(&path, c->path, "optimizer.safetensors");
  if (!st && states.n) st = read_tensors(path.at, &states);
  device_tensors_free(&model);
  device_tensors_free(&states);
  str_free(&path);
  if (st) return st;
  t->step = t->last_saved = c->step;
  t->resumed = true;
  log_info("continuing from %s (step %lld of %lld)", c->path, (long long)c->step,
           (long long)t->steps);
  return HP_OK;
}

static bool is_file_of(const char *dir, const char *name) {
  str path = {0};
  bool there = !path_join(&path, dir, name) && file_exists(path.at);
  str_free(&path);
  return there;
}

bool trainer_is_exported(const trainer *t) {
  arena mem = {0};
  weights *w;
  const char *copy[PASSED_ON], *dir = t->c->output_dir;
  size_t n = 0;
  bool whole = is_file_of(dir, "config.json") && !list_copies(t, &mem, copy, &n);
  for (size_t i = 0; whole && i < n; i++) whole = is_file_of(dir, strrchr(copy[i], '/') + 1);
  if (whole && (whole = !weights_open(dir, &w))) weights_free(w);
  err_clear();
  arena_free(&mem);
  return whole;
}

static hp_status find_checkpoint(trainer *t, checkpoint *c, bool *found) {
  str skipped = {0};
  *found = false;
  if (t->c->is.resume == RESUME_FROM) {
    HP_TRY(checkpoint_verify(t->c->is.resume_path, c));
    *found = true;
    return HP_OK;
  }
  hp_status st = checkpoint_newest(t->c->output_dir, c, found, &skipped);
  if (skipped.len) log_warn("checkpoints that do not verify are passed over:\n%s", skipped.at);
  str_free(&skipped);
  if (!st && !*found && t->c->is.resume == RESUME_NEWEST)
    HP_FAIL(HP_ERR_INPUT,
            "%s: resume_from_checkpoint: true, but there is no checkpoint that verifies; leave the "
            "key out to begin at step 0",
            t->c->output_dir);
  if (!st && !*found && t->c->is.resume == RESUME_IF_ANY && skipped.len)
    log_warn("%s: no checkpoint verifies; beginning at step 0", t->c->output_dir);
  return st;
}

hp_status trainer_resume(trainer *t, bool *finished) {
  checkpoint c;
  bool found;
  *finished = false;
  if (t->c->is.resume == RESUME_NEVER) return HP_OK;
  HP_TRY(find_checkpoint(t, &c, &found));
  if (!found) return HP_OK;
  hp_status st = resume_from(t, &c);
  checkpoint_free(&c);
  if (!st) *finished = t->step >= t->steps && is_file_of(t->c->output_dir, "train_results.json");
  return st;
}
