/* hyperparallel.h: devices, compiling, running, looking. */
#include "base/dtype.h"
#include "base/io.h"
#include "base/thread.h"
#include "pass/lower.h"
#include "pass/pass.h"
#include "pass/reorder.h"
#include "pass/streams.h"
#include "rt/exec.h"
#include "rt/explain.h"

#include <string.h>

#define HP_API __attribute__((visibility("default")))

/* --- devices ------------------------------------------------------------------------------- */

HP_API hp_status hp_device_open(const hp_device_options *o, hp_device **out) {
  static const hp_device_options usual;
  if (!o) o = &usual;
  backend_options b = {.threads = o->threads, .engine = o->engine, .interpret = o->interpret};
  return device_open(o->backend ? o->backend : "cpu", &b, o->memory_limit, out);
}
HP_API void hp_device_close(hp_device *d) { device_close(d); }
HP_API const char *hp_device_describe(const hp_device *d) { return d->backend->describe(d->dev); }
HP_API int hp_device_threads(const hp_device *d) { return d->backend->threads(d->dev); }
HP_API uint64_t hp_device_param_bytes(const hp_device *d) { return d->state_bytes; }

HP_API const char *hp_device_engine(const hp_device *d) { return d->backend->engine(d->dev); }
HP_API hp_status hp_device_set_engine(hp_device *d, const char *name) {
  return d->backend->set_engine(d->dev, name);
}

HP_API hp_status hp_device_measure(hp_device *d, double *flops_per_s, double *bytes_per_s) {
  return d->backend->measure(d->dev, flops_per_s, bytes_per_s);
}

static hp_status type_of(const char *name, hp_dtype t, const hp_shape *s, ir_value *v) {
  *v = (ir_value){.dtype = (uint8_t)t, .rank = (uint8_t)s->rank};
  if (s->rank < 0 || s->rank > HP_MAX_RANK || (unsigned)t >= HP_DTYPE_COUNT)
    HP_FAIL(HP_ERR_ARG, "param \"%s\": %d dims of dtype %d; at most %d dims", name, s->rank, (int)t,
            HP_MAX_RANK);
  for (int i = 0; i < s->rank; i++) {
    if (s->dim[i] < 0) HP_FAIL(HP_ERR_ARG, "param \"%s\": dim %d is negative", name, i);
    v->dim[i] = s->dim[i];
  }
  if (!value_fits(v)) HP_FAIL(HP_ERR_ARG, "param \"%s\" is too large", name);
  return HP_OK;
}

HP_API hp_status hp_param_create(hp_device *d, const char *name, hp_dtype t, hp_shape s) {
  ir_value v;
  uint32_t index;
  HP_TRY(type_of(name, t, &s, &v));
  return device_state(d, name, &v, &index);
}

static hp_status find(const hp_device *d, const char *name, uint32_t *index) {
  if (!device_find(d, name, index)) HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  return HP_OK;
}

static hp_status check_bytes(const state_tensor *s, const char *name, size_t bytes) {
  if (bytes != s->bytes)
    HP_FAIL(HP_ERR_ARG, "param \"%s\" has %llu bytes, %zu are given", name,
            (unsigned long long)s->bytes, bytes);
  return HP_OK;
}

HP_API hp_status hp_write(hp_device *d, const char *name, const void *data, size_t bytes) {
  uint32_t i;
  HP_TRY(find(d, name, &i));
  HP_TRY(check_bytes(&d->states.at[i], name, bytes));
  return d->backend->copy(d->dev, d->states.at[i].at, data, bytes);
}

HP_API hp_status hp_read(const hp_device *d, const char *name, void *data, size_t bytes) {
  uint32_t i;
  HP_TRY(find(d, name, &i));
  HP_TRY(check_bytes(&d->states.at[i], name, bytes));
  return d->backend->copy(d->dev, data, d->states.at[i].at, bytes);
}

HP_API int hp_param_count(const hp_device *d) { return (int)d->states.len; }

HP_API hp_status hp_param_info(const hp_device *d, int i, const char **name, hp_dtype *t,
                               hp_shape *s) {
  if (i < 0 || (size_t)i >= d->states.len) HP_FAIL(HP_ERR_ARG, "param %d of %zu", i, d->states.len);
  const state_tensor *x = &d->states.at[i];
  *name = intern_get(&d->names, x->name, NULL);
  *t = (hp_dtype)x->type.dtype;
  s->rank = x->type.rank;
  memcpy(s->dim, x->type.dim, sizeof s->dim);
  return HP_OK;
}

HP_API hp_status hp_param_find(const hp_device *d, const char *name, hp_dtype *t, hp_shape *s) {
  uint32_t i;
  const char *same;
  HP_TRY(find(d, name, &i));
  return hp_param_info(d, (int)i, &same, t, s);
}

/* --- programs -------------------------------------------------------------------------------- */

struct hp_program {
  exec *e;
  double compile_s;
};

static hp_status dump_program(const program *p, const char *dir) {
  str path = {0}, text = {0};
  hp_status st = path_join(&path, dir, "program.txt");
  if (!st) st = program_print(p, &text);
  if (!st) st = file_write(path.at, text.at, text.len);
  str_free(&path);
  str_free(&text);
  return st;
}

/* Bytes of params that the program needs and the device does not hold yet. */
static uint64_t new_state_bytes(const hp_device *d, const program *p) {
  uint64_t sum = 0;
  uint32_t index;
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->place == PLACE_STATE && f->root == b && !device_find(d, program_str(p, f->name), &index))
      sum += (f->bytes + 255) & ~(uint64_t)255;
  }
  return sum;
}

/* Bytes that work memory may take; 0 = no limit. */
static uint64_t work_limit(const hp_device *d, const program *p) {
  if (!d->limit) return 0;
  uint64_t left = device_work_limit(d), more = new_state_bytes(d, p);
  return left > more ? left - more : 1;
}

/* Chooses kernels, says what they need, and plans memory. */
static hp_status prepare(hp_device *d, program *p, uint64_t *workspace, const memory_options *o,
                         void **loaded) {
  memset(workspace, 0, p->insts.len * sizeof *workspace);
  HP_TRY(place_waits(p));
  HP_TRY(d->backend->prepare(d->dev, p, workspace, loaded));
  hp_status st = plan_memory(p, workspace, o);
  if (!st) return HP_OK;
  d->backend->release(*loaded);
  *loaded = NULL;
  return st;
}

/* A refusal that names what would do: `work` bytes beside the params. */
static hp_status too_small(const hp_device *d, const program *p, uint64_t work) {
  uint64_t params = d->state_bytes + new_state_bytes(d, p);
  err_clear();
  HP_FAIL(HP_ERR_OOM,
          "memory limit %llu bytes is too small: params and optimizer state take %llu, work memory "
          "%llu; set memory_limit to %llu bytes or more, or use a smaller batch or cutoff_len, or "
          "recompute: full",
          (unsigned long long)d->limit, (unsigned long long)params, (unsigned long long)work,
          (unsigned long long)(params + work));
}

/* *loaded is the backend's side of the program.  Over the limit, the order of instructions that
 * needs least is tried; a plan that fails too is the best that was found, limit or not, so that the
 * bytes named are the least that do. */
static hp_status load(hp_device *d, program *p, const hp_compile_options *o, void **loaded) {
  uint64_t *workspace = mem_calloc(p->insts.len, sizeof *workspace);
  HP_TRY_MEM(workspace);
  memory_options mo = {.limit = work_limit(d, p)};
  hp_status st = prepare(d, p, workspace, &mo, loaded);
  if (st == HP_ERR_OOM && mo.limit && p->arena[TIER_DEVICE]) {
    uint64_t least = p->arena[TIER_DEVICE];
    err_clear();
    st = reorder_frugal(p, workspace);
    if (!st) st = prepare(d, p, workspace, &mo, loaded);
    if (p->arena[TIER_DEVICE] < least) least = p->arena[TIER_DEVICE];
    if (st == HP_ERR_OOM) st = too_small(d, p, least);
  }
  if (!st && o->dump_dir) {
    st = dump_program(p, o->dump_dir);
    if (st) d->backend->release(*loaded);
  }
  mem_free(workspace);
  return st;
}

/* From the graph to a program with kernels and offsets. */
static hp_status make_program(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                              program **out, void **loaded) {
  static const hp_compile_options usual;
  hp_graph *lowered = NULL;
  program *p = NULL;
  if (!o) o = &usual;
  pass_options po = {.remat = o->remat, .dump_dir = o->dump_dir};
  hp_status st = pass_run_all(g, &po, &lowered);
  if (!st) st = lower_graph(lowered, &p);
  if (!st) st = load(d, p, o, loaded);
  graph_free(lowered);
  if (st) program_free(p);
  else *out = p;
  return st;
}

HP_API hp_status hp_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            hp_program **out) {
  double start = time_now_s();
  program *p;
  void *loaded;
  hp_program *h = mem_calloc(1, sizeof *h);
  HP_TRY_MEM(h);
  hp_status st = make_program(g, d, o, &p, &loaded);
  if (!st) st = exec_create(d, p, loaded, &h->e);
  h->compile_s = time_now_s() - start;
  if (st) mem_free(h);
  else *out = h;
  return st;
}

HP_API void hp_program_free(hp_program *p) {
  if (!p) return;
  exec_free(p->e);
  mem_free(p);
}

HP_API hp_status hp_run(hp_program *p, const hp_io *io, int n) { return exec_run(p->e, io, n); }

/* Ends a printer: its text to the caller. */
static hp_status give_text(hp_status st, str *s, char **text) {
  if (st) {
    str_free(s);
    return st;
  }
  *text = str_take(s);
  return *text ? HP_OK : HP_ERR_OOM;
}

/* Work, memory and kernels of a program. */
static hp_status count(const program *p, hp_program_stats *out) {
  hp_program_stats s = {.work_bytes = p->arena[TIER_DEVICE],
                        .work_bound = p->bound[TIER_DEVICE],
                        .instructions = (int)p->insts.len};
  map seen = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    uint32_t one;
    s.flops += n->flops;
    s.bytes += n->bytes;
    if (n->op != OP_FUSED || map_get(&seen, &n->attr, sizeof n->attr, &one)) continue;
    s.kernels++;
    st = map_set(&seen, &n->attr, sizeof n->attr, 1);
  }
  map_free(&seen);
  if (!st) *out = s;
  return st;
}

HP_API hp_status hp_plan(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                         hp_program_stats *out) {
  double start = time_now_s();
  program *p;
  void *loaded;
  HP_TRY(make_program(g, d, o, &p, &loaded));
  hp_status st = count(p, out);
  if (!st) out->compile_s = time_now_s() - start;
  d->backend->release(loaded);
  program_free(p);
  return st;
}

HP_API hp_status hp_plan_explain(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                 const char *what, char **text) {
  program *p;
  void *loaded;
  str s = {0};
  HP_TRY(make_program(g, d, o, &p, &loaded));
  hp_status st = give_text(explain_print(p, NULL, what, &s), &s, text);
  d->backend->release(loaded);
  program_free(p);
  return st;
}

HP_API hp_status hp_program_stats_get(const hp_program *h, hp_program_stats *out) {
  hp_program_stats s;
  HP_TRY(count(exec_program(h->e), &s));
  s.compile_s = h->compile_s;
  s.run_s = exec_last_seconds(h->e);
  *out = s;
  return HP_OK;
}

HP_API hp_status hp_program_print(const hp_program *p, char **text) {
  str s = {0};
  return give_text(program_print(exec_program(p->e), &s), &s, text);
}
HP_API hp_status hp_explain(const hp_program *p, const char *what, char **text) {
  str s = {0};
  return give_text(explain_print(exec_program(p->e), p->e, what, &s), &s, text);
}
HP_API int hp_program_times(const hp_program *p, hp_op_time *out, int max) {
  return explain_times(p->e, out, max);
}
HP_API void hp_program_timeline(const hp_program *p, uint64_t *live, int n) {
  explain_timeline(exec_program(p->e), live, n);
}
HP_API hp_status hp_trace(const hp_program *p, const char *path) {
  str s = {0};
  hp_status st = explain_trace(p->e, &s);
  if (!st) st = file_write(path, s.at, s.len);
  str_free(&s);
  return st;
}
