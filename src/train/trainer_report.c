/* report.html of a run, from what the trainer knows. */
#include "base/io.h"
#include "base/log.h"
#include "report/chart.h"
#include "report/report.h"
#include "train/report_settings.h"
#include "train/trainer_state.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PLACES = 200, FILES = 256 };

typedef struct {
  report r;
  report_fact head[6], card[4];
  char text[10][256];
  hp_op_time *op;
  report_layer layer[HP_MEMORY_CLASSES];
  double bytes[HP_MEMORY_CLASSES][PLACES];
  hp_memory memory;
  char *memory_note, *memory_picture, *mesh; /* hp_free */
  report_tier tier[HP_TIERS];
  report_file file[FILES];
  arena names;
} page;

static void add_facts(const train_config *c, const run_data *d, const run_model *m, page *p) {
  snprintf(p->text[0], sizeof p->text[0], "%s (%s)", c->model_name_or_path, m->m->c.model_type);
  snprintf(p->text[1], sizeof p->text[1], "%.2f M parameters, %lld layers",
           model_config_params(&m->m->c) * 1e-6, (long long)m->m->c.layers);
  snprintf(p->text[2], sizeof p->text[2], "%lld samples of up to %lld tokens",
           (long long)d->sets.train.samples, (long long)d->sets.train.longest);
  snprintf(p->text[3], sizeof p->text[3], "%s", hp_device_describe(m->d));
  snprintf(p->text[4], sizeof p->text[4], "%.0f GFLOP/s, %.1f GB/s read", m->limits.flops * 1e-9,
           m->limits.bytes * 1e-9);
  p->head[0] = (report_fact){"model", p->text[0], p->text[1]};
  p->head[1] = (report_fact){"data", p->text[2], d->sets.packed ? "packed" : NULL};
  p->head[2] = (report_fact){"machine", p->text[3], p->text[4]};
  p->r.heads = 3;
  str bytes = {0};
  chart_print_bytes((double)p->memory.planned_bytes, &bytes);
  snprintf(p->text[5], sizeof p->text[5], "%s", bytes.at ? bytes.at : "");
  str_free(&bytes);
  snprintf(p->text[6], sizeof p->text[6], "%.2f s", stepper_compile_seconds(m->stepper));
  p->card[0] = (report_fact){"memory of a device", p->text[5], "planned"};
  p->card[1] = (report_fact){"compile time", p->text[6], "all programs"};
  p->r.cards = 2;
}

static hp_status add_ops(const hp_program *program, page *p) {
  HP_TRY(hp_program_times(program, &p->op, &p->r.ops));
  p->r.op = p->op;
  return HP_OK;
}

/* Bytes of a class over the step; a class without any is no layer. */
static hp_status add_layer(const hp_program *program, int class, page *p) {
  uint64_t live[PLACES];
  double *bytes = p->bytes[p->r.layers];
  bool any = false;
  HP_TRY(hp_program_memory_over_time(program, class, live, PLACES));
  for (int i = 0; i < PLACES; i++) {
    bytes[i] = (double)live[i];
    any |= live[i] != 0;
  }
  if (any) p->layer[p->r.layers++] = (report_layer){hp_memory_class(class), bytes};
  return HP_OK;
}

static hp_status add_memory(const train_config *c, const run_model *m, page *p) {
  /* what stays all the time is lowest */
  static const int order[] = {HP_MEMORY_PARAMS,       HP_MEMORY_OPTIMIZER,   HP_MEMORY_OTHER,
                              HP_MEMORY_GRADIENTS,    HP_MEMORY_ACTIVATIONS, HP_MEMORY_WORKSPACE,
                              HP_MEMORY_COMMUNICATION};
  const hp_program *program = stepper_program(m->stepper);
  hp_program_stats stats;
  HP_TRY(hp_program_stats_get(program, &stats));
  p->memory = stats.memory;
  for (int i = 0; i < HP_MEMORY_CLASSES; i++) HP_TRY(add_layer(program, order[i], p));
  HP_TRY(hp_explain(program, "memory.totals", &p->memory_note));
  p->r.layer = p->layer;
  p->r.places = PLACES;
  p->r.memory_limit = (double)c->is.memory_limit;
  p->r.memory_planned = (double)stats.memory.planned_bytes;
  p->r.memory_note = p->memory_note;
  p->tier[0] =
      (report_tier){"device", stats.memory.planned_bytes,
                    stats.memory.state_bytes + stepper_work_bytes(m->stepper), c->is.memory_limit};
  p->r.tier = p->tier;
  p->r.tiers = 1;
  for (int t = 1; t < HP_TIERS; t++)
    if (stats.memory.tier[t].planned_bytes)
      p->tier[p->r.tiers++] = (report_tier){.name = stats.memory.tier[t].name,
                                            .planned = stats.memory.tier[t].planned_bytes};
  return HP_OK;
}

static hp_status add_pictures(const hp_program *program, page *p) {
  HP_TRY(hp_explain(program, "memory.svg", &p->memory_picture));
  p->r.memory_picture = p->memory_picture;
  HP_TRY(hp_explain(program, "mesh.svg", &p->mesh));
  p->r.mesh = p->mesh;
  return HP_OK;
}

static int by_name(const void *a, const void *b) {
  const report_file *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Files and checkpoints of the run's folder. */
static hp_status add_files(const char *dir, int64_t best_step, page *p) {
  DIR *d = opendir(dir);
  hp_status st = HP_OK;
  str path = {0};
  if (!d) return HP_OK; /* the page goes without the list */
  for (struct dirent *e; !st && p->r.files < FILES && (e = readdir(d));) {
    struct stat s;
    if (e->d_name[0] == '.' || !strcmp(e->d_name, "run.lock") || !strcmp(e->d_name, "report.html"))
      continue;
    st = path_join(&path, dir, e->d_name);
    if (st || stat(path.at, &s)) continue;
    int64_t step = -1;
    if (S_ISDIR(s.st_mode) &&
        (strncmp(e->d_name, "checkpoint-", 11) || !str_to_i64(e->d_name + 11, &step)))
      continue;
    char *name = arena_strdup(&p->names, e->d_name);
    if (!name) {
      st = HP_ERR_OOM;
      break;
    }
    p->file[p->r.files++] = (report_file){name, step, S_ISDIR(s.st_mode) ? 0 : (uint64_t)s.st_size,
                                          step >= 0 && step == best_step ? "best" : NULL};
  }
  closedir(d);
  str_free(&path);
  if (p->r.files) qsort(p->file, (size_t)p->r.files, sizeof *p->file, by_name);
  p->r.file = p->file;
  return st;
}

/* The table as a file, for `hyper report`. */
static hp_status write_times(const trainer *t) {
  char *text;
  str path = {0};
  HP_TRY(hp_explain(stepper_program(t->model.stepper), "ops.json", &text));
  hp_status st = path_join(&path, t->config.output_dir, "op_times.json");
  if (!st) st = retry_file_write(path.at, text, strlen(text));
  str_free(&path);
  hp_free(text);
  return st;
}

static hp_status write_report(const trainer *t, const char *status, bool finished,
                              const char *timeline) {
  page *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  hp_status st = write_times(t);
  p->r = (report){.title = t->config.run_name ? t->config.run_name : t->config.output_dir,
                  .status = status,
                  .finished = finished,
                  .timeline = timeline,
                  .head = p->head,
                  .card = p->card,
                  .entry = t->log.entry.at,
                  .entries = t->log.entry.len,
                  .step = t->times.step.at,
                  .step_s = t->times.seconds.at,
                  .tokens_per_s = t->times.tokens_per_s.at,
                  .steps = t->times.step.len};
  if (!st) st = report_settings_list(&t->config, &p->names, &p->r.setting, &p->r.settings);
  if (!st) st = add_ops(stepper_program(t->model.stepper), p);
  if (!st) st = add_memory(&t->config, &t->model, p);
  if (!st) st = add_pictures(stepper_program(t->model.stepper), p);
  add_facts(&t->config, &t->data, &t->model, p);
  str path = {0};
  if (!st) st = add_files(t->config.output_dir, t->log.best_step, p);
  if (!st) st = path_join(&path, t->config.output_dir, "report.html");
  if (!st) st = report_write(&p->r, path.at);
  str_free(&path);
  arena_free(&p->names);
  hp_free(p->op);
  hp_free(p->memory_note);
  hp_free(p->memory_picture);
  hp_free(p->mesh);
  mem_free(p);
  return st;
}

void trainer_go_without(const char *what) {
  log_warn("%s was not written: %s", what, err_message());
  err_clear();
}

void trainer_report(const trainer *t, const char *status, bool finished) {
  const hp_program *program = stepper_program(t->model.stepper);
  char *timeline = NULL;
  if (!program) return; /* no step was made: nothing to tell */
  hp_status st = hp_explain(program, "timeline.svg", &timeline);
  if (t->job.writes && !st) st = write_report(t, status, finished, timeline);
  if (t->job.writes && st) trainer_go_without("report.html");
  err_clear();
  hp_free(timeline);
}
