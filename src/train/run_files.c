#include "train/run_files.h"

#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "report/chart.h"
#include "base/retry.h"

#include <string.h>
#include <sys/time.h>

/* --- trainer_log.jsonl ------------------------------------------------------------------------ */

/* The line that ends a log has neither a loss nor an evaluation; the end to come writes it anew. */
static bool ends_log(const tree_node *line) {
  for (uint32_t i = 0; i < line->len; i++)
    if (!strcmp(line->child[i]->key, "loss") || !strncmp(line->child[i]->key, "eval", 4))
      return false;
  return true;
}

/* Appends the lines of text that are whole, are JSON and tell of no step after `last`. */
static hp_status keep_lines(const char *text, size_t len, const char *name, int64_t last,
                            str *out) {
  for (size_t at = 0, line = 1; at < len; line++) {
    const char *end = memchr(text + at, '\n', len - at);
    if (!end) break; /* cut short by a kill */
    size_t n = (size_t)(end - (text + at));
    tree t;
    int64_t step = 0;
    if (json_parse_line(text + at, n, name, line, &t)) {
      err_clear();
    } else {
      if (tree_need_int(t.root, "current_steps", &step)) err_clear();
      else if (step < last || (step == last && !ends_log(t.root))) str_add_n(out, text + at, n + 1);
      tree_free(&t);
    }
    at += n + 1;
  }
  return str_status(out);
}

static hp_status trim_lines(const run_files *f, const char *path) {
  char *text;
  size_t len;
  str kept = {0};
  if (!file_exists(path)) return HP_OK;
  HP_TRY(file_read(path, 0, &text, &len));
  hp_status st = f->log->step ? keep_lines(text, len, path, f->log->step, &kept) : HP_OK;
  if (!st) st = file_write(path, kept.at ? kept.at : "", kept.len);
  mem_free(text);
  str_free(&kept);
  return st;
}

static hp_status open_lines(run_files *f) {
  str path = {0};
  hp_status st = path_join(&path, f->dir, "trainer_log.jsonl");
  if (!st) st = trim_lines(f, path.at);
  if (!st) st = append_log_open(path.at, &f->lines);
  str_free(&path);
  return st;
}

static hp_status open_board(run_files *f) {
  const train_config *c = f->log->config;
  if (!c->is.tensorboard) return HP_OK;
  str dir = {0};
  hp_status st = HP_OK;
  if (c->logging_dir) str_add(&dir, c->logging_dir);
  else st = path_join(&dir, f->dir, "runs");
  if (!st) st = str_status(&dir);
  if (!st) st = tensorboard_create(dir.at, &f->board);
  str_free(&dir);
  return st;
}

hp_status run_files_open(const run_log *log, run_files *out) {
  run_files f = {.log = log, .lines.fd = -1};
  str dir = {0};
  str_add(&dir, log->config->output_dir);
  f.dir = str_take(&dir);
  HP_TRY_MEM(f.dir);
  hp_status st = dir_create(f.dir);
  if (!st && log->config->is.train) st = open_lines(&f);
  if (!st) st = open_board(&f);
  if (st) run_files_close(&f);
  else *out = f;
  return st;
}

void run_files_close(run_files *f) {
  if (!f) return;
  append_log_close(&f->lines);
  mem_free(f->dir);
  tensorboard_free(f->board);
  f->dir = NULL;
  f->board = NULL;
}

/* --- TensorBoard ------------------------------------------------------------------------------ */

static hp_status to_board(run_files *f, const run_entry *e) {
  struct timeval now;
  str tag = {0};
  hp_status st = HP_OK;
  gettimeofday(&now, NULL);
  for (int i = 0; i < e->n && !st; i++) {
    const char *key = e->value[i].key;
    bool eval = !strncmp(key, "eval_", 5);
    if (!strcmp(key, "step")) continue;
    str_clear(&tag);
    str_printf(&tag, "%s/%s", eval ? "eval" : "train", eval ? key + 5 : key);
    st = str_status(&tag);
    if (!st)
      st = tensorboard_add(f->board, tag.at, e->value[i].number,
                           (int64_t)run_entry_number(e, "step"),
                           (double)now.tv_sec + (double)now.tv_usec * 1e-6);
  }
  str_free(&tag);
  return st;
}

hp_status run_files_log(run_files *f, const run_entry *e, str *shown) {
  str line = {0};
  run_log_print_line(f->log, e, time_now_s(), &line);
  hp_status st = str_status(&line);
  if (!st) append_log_add(&f->lines, line.at, line.len);
  str_free(&line);
  if (!st && f->board) st = to_board(f, e);
  run_log_print_console(e, shown);
  return st;
}

hp_status run_files_finish(run_files *f) {
  retry r = {0};
  hp_status st;
  double began;
  do {
    began = time_now_s();
    st = append_log_flush(&f->lines);
    if (!st && f->board) st = append_log_flush(&f->board->file);
  } while (retry_again(&r, st, began));
  return st;
}

/* --- whole files ------------------------------------------------------------------------------ */

static hp_status put_file(const char *dir, const char *name, const str *text) {
  str path = {0};
  hp_status st = str_status(text);
  if (!st) st = path_join(&path, dir, name);
  if (!st) st = retry_file_write(path.at, text->at ? text->at : "", text->len);
  str_free(&path);
  return st;
}

hp_status run_files_state(const run_log *log, const char *dir) {
  str text = {0};
  run_log_print_state(log, &text);
  hp_status st = put_file(dir, "trainer_state.json", &text);
  str_free(&text);
  return st;
}

/* all_results.json as it is; a damaged one counts as none, for it is about to be replaced. */
static void load_results(const char *dir, tree *out) {
  str path = {0};
  *out = (tree){0};
  if (path_join(&path, dir, "all_results.json") ||
      (file_exists(path.at) && json_load(path.at, 0, out)))
    err_clear();
  str_free(&path);
}

hp_status run_files_results(const run_files *f, const run_entry *e, int n, const char *split) {
  str text = {0}, name = {0};
  run_log_print_results(e, n, NULL, &text);
  str_printf(&name, "%s_results.json", split);
  hp_status st = name.failed ? HP_ERR_OOM : put_file(f->dir, name.at, &text);
  str_free(&text);
  str_free(&name);
  return st;
}

hp_status run_files_all_results(const run_files *f, const run_entry *e, int n) {
  str text = {0};
  tree before;
  load_results(f->dir, &before);
  run_log_print_results(e, n, before.root, &text);
  hp_status st = put_file(f->dir, "all_results.json", &text);
  tree_free(&before);
  str_free(&text);
  return st;
}

hp_status run_files_predictions(const run_files *f, const str *lines) {
  log_info("Saving prediction results to %s/" PREDICTIONS_FILE, f->dir);
  return put_file(f->dir, PREDICTIONS_FILE, lines);
}

hp_status run_files_card(const run_files *f) {
  str text = {0};
  run_card_print(f->log, &text);
  hp_status st = put_file(f->dir, "README.md", &text);
  str_free(&text);
  return st;
}

/* --- plots ------------------------------------------------------------------------------------ */

typedef VEC(double) numbers;

static hp_status points_of(const run_log *r, const char *key, numbers *x, numbers *y) {
  for (size_t i = 0; i < r->entry.len; i++) {
    double v = run_entry_number(&r->entry.at[i], key);
    if (!run_entry_get(&r->entry.at[i], key)) continue;
    if (!vec_push(x, run_entry_number(&r->entry.at[i], "step")) || !vec_push(y, v))
      return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status plot_to(const run_files *f, const chart *c, const char *key, str *shown) {
  str name = {0}, bytes = {0};
  hp_status st = HP_OK;
  for (int png = 0; png < 2 && !st; png++) {
    str_clear(&name);
    str_clear(&bytes);
    str_printf(&name, "training_%s.%s", key, png ? "png" : "svg");
    for (char *p = name.at; p && *p; p++)
      if (*p == '/') *p = '_';
    if (png) st = chart_png(c, &bytes);
    else chart_svg(c, CHART_ALONE, &bytes);
    if (!st) st = name.failed ? HP_ERR_OOM : put_file(f->dir, name.at, &bytes);
    if (!st) str_printf(shown, "Figure saved at: %s/%s\n", f->dir, name.at);
  }
  str_free(&name);
  str_free(&bytes);
  return st;
}

static hp_status plot(const run_files *f, const char *key, str *shown) {
  numbers x = {0}, y = {0};
  str title = {0};
  double *smooth = NULL;
  hp_status st = points_of(f->log, key, &x, &y);
  if (!st && y.len) {
    smooth = mem_calloc(y.len, sizeof *smooth);
    str_printf(&title, "training %s of %s", key, f->dir);
    st = smooth && !title.failed ? HP_OK : HP_ERR_OOM;
  }
  if (!st && y.len) {
    chart_smooth(y.at, y.len, smooth);
    chart_line line[] = {{"original", x.at, y.at, y.len, 0, 0.4, NULL},
                         {"smoothed", x.at, smooth, y.len, 0, 1, NULL}};
    chart c = {.title = title.at,
               .x_label = "step",
               .y_label = key,
               .line = line,
               .lines = 2,
               .width = 720,
               .height = 480};
    st = plot_to(f, &c, key, shown);
  }
  vec_free(&x);
  vec_free(&y);
  mem_free(smooth);
  str_free(&title);
  return st;
}

/* The plots of an evaluation: its loss and its accuracy, where it has one. */
static hp_status plot_evaluation(const run_files *f, const char *name, str *shown) {
  static const char *const metric[] = {"loss", "accuracy"};
  str key = {0};
  hp_status st = HP_OK;
  for (int k = 0; k < 2 && !st; k++) {
    str_clear(&key);
    str_printf(&key, "eval_%s%s%s", name, *name ? "_" : "", metric[k]);
    st = key.failed ? HP_ERR_OOM : plot(f, key.at, shown);
  }
  str_free(&key);
  return st;
}

hp_status run_files_plots(const run_files *f, str *shown) {
  const train_config *c = f->log->config;
  HP_TRY(plot(f, "loss", shown));
  if (c->stage == STAGE_dpo) HP_TRY(plot(f, "rewards/accuracies", shown));
  if (c->stage == STAGE_kto) HP_TRY(plot(f, "rewards/chosen", shown));
  if (!c->eval_on_each_dataset) return plot_evaluation(f, "", shown);
  const train_names *names = &c->is.eval_dataset;
  for (size_t i = 0; i < names->n; i++) HP_TRY(plot_evaluation(f, names->at[i], shown));
  return HP_OK;
}
