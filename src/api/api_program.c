/* hyperparallel.h: compiling, running, looking. */
#include "api/api_program.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/milestone.h"
#include "base/thread.h"
#include "compile/compile.h"
#include "sim/cost.h"
#include "compile/load.h"
#include "sim/predict.h"
#include "rt/device_target.h"
#include "rt/exec.h"
#include "rt/explain.h"
#include "rt/explain_comm.h"
#include "rt/explain_svg.h"
#include "rt/learn.h"
#include "rt/memory_use.h"
#include "rt/run.h"

#include <limits.h>
#include <string.h>

/* --- programs -------------------------------------------------------------------------------- */

/* What decides the layouts of a graph on the mesh of d; NULL: one device. */
static const shard_plan *layouts_of(hp_device *d, shard_plan *plan) {
  *plan = (shard_plan){.mesh = &d->m,
                       .cluster = &d->cluster,
                       .declared = device_mesh_declared,
                       .model = d,
                       .no_partial_sums = d->no_partial_sums};
  return d->n > 1 ? plan : NULL;
}

hp_status api_compile_begin(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            compilation *c) {
  shard_plan plan;
  *c = (compilation){0};
  HP_TRY(graph_status(g));
  if (d->n > 1) HP_TRY(device_mesh_check_annotations(d, g));
  return compile_begin(g, layouts_of(d, &plan), o, c);
}

hp_status api_make_program(compilation *c, hp_device *d, int i, compiled *out, hp_memory *memory) {
  device_target t;
  device_target_init(d, i, &t);
  hp_status st = compile_for(c, &t.t, out);
  hp_status counted = out->p ? memory_use_of(d, i, out->p, c->model, memory) : HP_OK;
  if (!st) st = counted;
  if (st) compile_free(&t.t, out);
  return st;
}

hp_status api_compile_devices(compilation *c, hp_device *d, hp_program *h) {
  for (int i = 0; i < d->own; i++) {
    compiled made;
    hp_memory memory;
    HP_TRY(api_make_program(c, d, i, &made, &memory));
    HP_TRY(exec_create(d->member[i], made.p, made.kernels, &h->r.e[i]));
    exec_set_links(h->r.e[i], d->job->links);
  }
  memcpy(h->model, c->model, sizeof h->model);
  return HP_OK;
}

HP_API hp_status hp_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            hp_program **out) {
  double start = time_now_s();
  compilation c;
  API_CALL;
  API_NEED(g);
  API_NEED(d);
  API_NEED(out);
  if (d->plan_only) API_REFUSE("the device was opened with plan_only; hp_plan takes it");
  DEVICE_MESH_HOLD(d);
  hp_program *h = mem_calloc(1, sizeof *h);
  if (!h) return api_result(__func__, HP_ERR_OOM);
  h->r.d = d;
  const char *before = milestone_set_activity("compiling a program");
  hp_status st = api_compile_begin(g, d, o, &c);
  if (!st) device_mesh_warn_unused(d, &g, 1);
  if (!st) st = device_mesh_params(d, g);
  if (!st) st = api_compile_devices(&c, d, h);
  if (!st) st = runs_add_io(&h->r, c.global, c.shards.of, NULL);
  compile_end(&c);
  milestone_set_activity(before);
  h->compile_s = time_now_s() - start;
  if (st) hp_program_free(h);
  else *out = h;
  return api_result(__func__, st);
}

/* Its named tensors on the device, which is one alone; zeros where they are new. */
static hp_status create_states(hp_device *d, const program *p, uint64_t bytes[MEM_CLASS_COUNT]) {
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    uint32_t index;
    if (f->place != PLACE_STATE || f->root != b) continue;
    HP_TRY(device_mesh_state_of(d, program_str(p, f->name), &f->type, f->tier, &index));
    bytes[f->class < MEM_CLASS_COUNT ? f->class : MEM_OTHER] += f->bytes;
  }
  return HP_OK;
}

static hp_status load_program(const char *text, const char *name, hp_device *d, hp_program *h) {
  device_target t;
  compiled made;
  device_target_init(d, 0, &t);
  HP_TRY(compile_load(text, strlen(text), name, &t.t, &made));
  hp_status st = create_states(d, made.p, h->model);
  if (!st) {
    HP_TRY(exec_create(d->member[0], made.p, made.kernels, &h->r.e[0]));
    exec_set_links(h->r.e[0], d->job->links);
    return HP_OK;
  }
  compile_free(&t.t, &made);
  return st;
}

HP_API hp_status hp_program_parse(const char *text, const char *name, hp_device *d,
                                  hp_program **out) {
  double start = time_now_s();
  API_CALL;
  API_NEED(text);
  API_NEED(name);
  API_NEED(d);
  API_NEED(out);
  if (d->plan_only) API_REFUSE("the device was opened with plan_only; it runs no program");
  if (d->n > 1) API_REFUSE("a program's text is of one device; this one is a mesh of %d", d->n);
  DEVICE_MESH_HOLD(d);
  hp_program *h = mem_calloc(1, sizeof *h);
  if (!h) return api_result(__func__, HP_ERR_OOM);
  h->r.d = d;
  const char *before = milestone_set_activity("loading a program");
  hp_status st = load_program(text, name, d, h);
  milestone_set_activity(before);
  h->compile_s = time_now_s() - start;
  if (st) hp_program_free(h);
  else *out = h;
  return api_result(__func__, st);
}

/* The i-th input or output of the program of one device, from *i on; NULL: there are fewer. */
static const prog_buffer *find_io(const program *p, int *i) {
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->root == b && f->flags & (BUFFER_INPUT | BUFFER_OUTPUT) && !(*i)--) return f;
  }
  return NULL;
}

static int count_io(const hp_program *p) {
  int left = INT_MAX;
  if (p->r.d->n > 1) return (int)p->r.ios.len;
  (void)find_io(exec_program(p->r.e[0]), &left);
  return INT_MAX - left;
}

HP_API int hp_program_io_count(const hp_program *p) {
  API_GET;
  API_NEED_OR(p, 0);
  return count_io(p);
}

HP_API hp_status hp_program_io_info(const hp_program *p, int i, const char **name, hp_dtype *t,
                                    hp_shape *s, bool *is_output) {
  API_CALL;
  API_NEED(p);
  API_NEED(name);
  API_NEED(t);
  API_NEED(s);
  API_NEED(is_output);
  int n = count_io(p);
  if (i < 0 || i >= n) API_REFUSE("i is %d; the program has %d inputs and outputs", i, n);
  const ir_value *type;
  if (p->r.d->n > 1) {
    const run_io *x = &p->r.ios.at[i];
    *name = x->name;
    *is_output = !x->input;
    type = &x->type;
  } else {
    const prog_buffer *f = find_io(exec_program(p->r.e[0]), &i);
    *name = program_str(exec_program(p->r.e[0]), f->name);
    *is_output = !(f->flags & BUFFER_INPUT);
    type = &f->type;
  }
  *t = (hp_dtype)type->dtype;
  *s = value_shape(type);
  return HP_OK;
}

HP_API void hp_program_free(hp_program *p) {
  if (!p) return;
  DEVICE_MESH_HOLD(p->r.d);
  if (p->r.e[0]) learn_from(p->r.d, p->r.e[0]);
  runs_free(&p->r);
  mem_free(p);
}

HP_API hp_status hp_run(hp_program *p, const hp_io *io, int n) {
  API_CALL;
  API_NEED(p);
  if (n < 0) API_REFUSE("n is %d; expected 0 or more", n);
  if (n) API_NEED(io);
  DEVICE_MESH_HOLD(p->r.d);
  return api_result(__func__, runs_run(&p->r, io, n));
}

hp_status api_count(const device *d, const program *p, hp_program_stats *s) {
  map seen = {0};
  hp_status st = predict_totals(d->costs, d->mesh, p, &s->predicted_s, &s->exposed_copy_s);
  s->instructions = (int)p->insts.len;
  for (size_t i = 0; !st && i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    uint32_t one;
    s->flops += n->flops;
    s->bytes += n->bytes;
    s->received += cost_received(p, n);
    if (n->op != OP_FUSED || map_get(&seen, &n->attr, sizeof n->attr, &one)) continue;
    s->kernels++;
    st = map_set(&seen, &n->attr, sizeof n->attr, 1);
  }
  map_free(&seen);
  return st;
}

HP_API hp_status hp_program_stats_get(const hp_program *p, hp_program_stats *out) {
  hp_program_stats s = {0};
  API_CALL;
  API_NEED(p);
  API_NEED(out);
  DEVICE_MESH_HOLD(p->r.d);
  const exec *e = p->r.e[0];
  HP_TRY(memory_use_of(p->r.d, 0, exec_program(e), p->model, &s.memory));
  HP_TRY(api_count(p->r.d->member[0], exec_program(e), &s));
  s.compile_s = p->compile_s;
  s.run_s = exec_last_seconds(e);
  if (s.run_s > 0) {
    comm_time t;
    HP_TRY(comm_times(exec_program(e), exec_last_times(e), NULL, &t));
    s.comm_s = t.comm_s;
    s.overlapped_s = t.overlapped_s;
    s.can_overlap_s = t.can_overlap_s;
  }
  *out = s;
  return HP_OK;
}

HP_API hp_status hp_program_print(const hp_program *p, char **text) {
  str s = {0};
  API_CALL;
  API_NEED(p);
  API_NEED(text);
  return api_text(__func__, program_print(exec_program(p->r.e[0]), &s), &s, text);
}
HP_API hp_status hp_explain(const hp_program *p, const char *what, char **text) {
  str s = {0};
  API_CALL;
  API_NEED(p);
  API_NEED(what);
  API_NEED(text);
  DEVICE_MESH_HOLD(p->r.d);
  const exec *e = p->r.e[0];
  hp_memory m;
  HP_TRY(memory_use_of(p->r.d, 0, exec_program(e), p->model, &m));
  hp_status st = explain_print(exec_program(e), p->r.d->member[0], e, &m, what, &s);
  return api_text(__func__, st, &s, text);
}
HP_API hp_status hp_program_times(const hp_program *p, hp_op_time **out, int *n) {
  op_times t;
  API_CALL;
  API_NEED(p);
  API_NEED(out);
  API_NEED(n);
  DEVICE_MESH_HOLD(p->r.d);
  const exec *e = p->r.e[0];
  HP_TRY(explain_times(exec_program(e), p->r.d->member[0], e, &t));
  *out = t.at;
  *n = (int)t.len;
  return HP_OK;
}
HP_API void hp_program_timeline(const hp_program *p, uint64_t *live, int n) {
  API_GET;
  API_NEED_OR(p, );
  API_NEED_OR(live, );
  if (n < 0) (void)api_refuse(__func__, "n is %d; expected 0 or more", n);
  else memory_live(exec_program(p->r.e[0]), live, n);
}
HP_API hp_status hp_program_memory_over_time(const hp_program *p, int which, uint64_t *bytes,
                                             int n) {
  hp_memory m;
  API_CALL;
  API_NEED(p);
  API_NEED(bytes);
  if (which < 0 || which >= HP_MEMORY_CLASSES)
    API_REFUSE("which is %d; expected 0 to %d", which, HP_MEMORY_CLASSES - 1);
  if (n < 1) API_REFUSE("n is %d; expected 1 or more", n);
  DEVICE_MESH_HOLD(p->r.d);
  HP_TRY(memory_use_of(p->r.d, 0, exec_program(p->r.e[0]), p->model, &m));
  HP_TRY(memory_live_of(exec_program(p->r.e[0]), (mem_class)which, bytes, n));
  for (int i = 0; i < n; i++) bytes[i] += m.state[which];
  return HP_OK;
}
HP_API const char *hp_memory_class(int i) {
  API_GET;
  if (i >= 0 && i < HP_MEMORY_CLASSES) return mem_class_name((mem_class)i);
  (void)api_refuse(__func__, "i is %d; expected 0 to %d", i, HP_MEMORY_CLASSES - 1);
  return "";
}

static hp_status write_trace(const hp_program *p, const char *file) {
  str s = {0};
  str_add(&s, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  for (int i = 0; i < p->r.d->own; i++) explain_trace(p->r.e[i], &p->r.d->m, i, &s);
  str_add(&s, "\n]}\n");
  hp_status st = str_status(&s);
  if (!st) st = file_write(file, s.at, s.len);
  str_free(&s);
  return st;
}
HP_API hp_status hp_trace(const hp_program *p, const char *file) {
  API_CALL;
  API_NEED(p);
  if (!file) return api_null(__func__, "path", "a path");
  return api_result(__func__, write_trace(p, file));
}
