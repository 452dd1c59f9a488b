/* The plain adapter that training with pissa_init amounts to. */
#include "base/io.h"
#include "model/adapter_files.h"
#include "train/trainer_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FOLDER "pissa_converted"

/* One tensor of the result: rows of A's and B's. */
typedef struct {
  char name[200], param[200];
  float *x;
  int64_t dim[2];
} plain_tensor;

typedef struct {
  plain_tensor *at; /* two of each module */
  size_t n;
} plain_adapter;

static void free_plain(plain_adapter *p) {
  for (size_t i = 0; p->at && i < p->n; i++) mem_free(p->at[i].x);
  mem_free(p->at);
}

static hp_status make_plain_tensor(const char *module, const char *part, int64_t rows,
                                   int64_t columns, plain_tensor *t) {
  snprintf(t->param, sizeof t->param, "%s.%s.weight", module, part);
  snprintf(t->name, sizeof t->name, ADAPTER_PREFIX "%.180s", t->param);
  t->dim[0] = rows;
  t->dim[1] = columns;
  t->x = mem_calloc((size_t)(rows * columns), sizeof *t->x);
  return t->x ? HP_OK : HP_ERR_OOM;
}

/* [A; A0] and [B, -B0]: their product is B A - B0 A0. */
static hp_status fill_module(const run_model *m, const adapter_module *module,
                             const adapter_start *start, plain_tensor *a, plain_tensor *b) {
  int64_t r = module->rank, in = a->dim[1], out = b->dim[0];
  float *trained = mem_calloc((size_t)(r * out), sizeof *trained);
  HP_TRY_MEM(trained);
  hp_status st = hp_read(m->d, a->param, a->x, (size_t)(r * in) * sizeof *a->x);
  if (!st) st = hp_read(m->d, b->param, trained, (size_t)(r * out) * sizeof *trained);
  memcpy(a->x + r * in, start->A, (size_t)(r * in) * sizeof *a->x);
  for (int64_t i = 0; i < out; i++)
    for (int64_t k = 0; k < r; k++) {
      b->x[i * 2 * r + k] = trained[i * r + k];
      b->x[i * 2 * r + r + k] = -start->B[i * r + k];
    }
  mem_free(trained);
  return st;
}

static const model_linear *find_linear(const lm *m, const char *name) {
  size_t i = 0;
  while (strcmp(m->linears.at[i].name, name) != 0) i++;
  return &m->linears.at[i];
}

/* Every process reads the params, whose shards they have together. */
static hp_status read_plain(const run_model *m, plain_adapter *p) {
  const adapter *a = m->m->adapter;
  p->n = 2 * a->modules.len;
  p->at = mem_calloc(p->n, sizeof *p->at);
  HP_TRY_MEM(p->at);
  for (size_t i = 0; i < a->modules.len; i++) {
    const adapter_module *module = &a->modules.at[i];
    const model_linear *l = find_linear(m->m, module->name);
    plain_tensor *t = &p->at[2 * i];
    HP_TRY(make_plain_tensor(module->name, "lora_A", 2 * module->rank, l->in, &t[0]));
    HP_TRY(make_plain_tensor(module->name, "lora_B", l->out, 2 * module->rank, &t[1]));
    HP_TRY(fill_module(m, module, &a->starts.at[i], &t[0], &t[1]));
  }
  return HP_OK;
}

static hp_status write_tensors(const plain_adapter *p, const char *dir) {
  static const st_pair metadata[] = {{"format", "pt"}};
  st_tensor *tensor = mem_calloc(p->n, sizeof *tensor);
  str path = {0};
  HP_TRY_MEM(tensor);
  for (size_t i = 0; i < p->n; i++) {
    const plain_tensor *t = &p->at[i];
    size_t bytes = (size_t)(t->dim[0] * t->dim[1]) * sizeof *t->x;
    tensor[i] = (st_tensor){.name = t->name,
                            .dtype = ST_F32,
                            .rank = 2,
                            .dim = t->dim,
                            .data = (void *)t->x,
                            .bytes = bytes};
  }
  hp_status st = path_join(&path, dir, ADAPTER_WEIGHTS);
  if (!st) st = st_save(path.at, tensor, p->n, metadata, 1);
  mem_free(tensor);
  str_free(&path);
  return st;
}

/* Of twice the rank, with the same factor on B A. */
static hp_status write_config(const trainer *t, const char *dir) {
  adapter plain = *t->model.m->adapter;
  str text = {0}, path = {0};
  plain.o.pissa = false;
  plain.o.rank *= 2;
  plain.o.alpha *= plain.o.rslora ? sqrt(2) : 2;
  bool transposed = t->model.m->linears.at[0].transposed;
  hp_status st = adapter_print_config(&plain, t->config.model_name_or_path, transposed, &text);
  if (!st) st = path_join(&path, dir, ADAPTER_CONFIG);
  if (!st) st = file_write(path.at, text.at, text.len);
  str_free(&text);
  str_free(&path);
  return st;
}

hp_status trainer_convert_adapter(trainer *t) {
  plain_adapter p = {0};
  str dir = {0};
  hp_status st = read_plain(&t->model, &p);
  if (!st && t->job.writes) {
    st = path_join(&dir, t->config.output_dir, FOLDER);
    if (!st) st = dir_create(dir.at);
    if (!st) st = write_tensors(&p, dir.at);
    if (!st) st = write_config(t, dir.at);
  }
  free_plain(&p);
  str_free(&dir);
  return st;
}
