/* hyperparallel.h: compiling, running, looking. */
#include "api/api_program.h"
#include "api/api_pipeline.h"
#include "api/api_trace.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/milestone.h"
#include "base/thread.h"
#include "comm/world.h"
#include "compile/compile.h"
#include "sim/cost.h"
#include "compile/load.h"
#include "sim/predict.h"
#include "rt/device_target.h"
#include "rt/exec.h"
#include "rt/explain.h"
#include "rt/explain_comm.h"
#include "rt/explain_svg.h"
#include "rt/explain_pipeline.h"
#include "rt/learn.h"
#include "rt/memory_use.h"
#include "rt/pipeline_timeline.h"
#include "rt/run.h"
#include "rt/stage_meshes.h"

#include <limits.h>
#include <string.h>

/* --- programs -------------------------------------------------------------------------------- */

static hp_status compile_program(const hp_graph *g, const hp_compile_options *o, hp_program *h) {
  compilation c;
  hp_device *d = h->r.d;
  hp_status st = api_compile_begin(g, d, o, &c);
  if (!st) device_mesh_warn_unused(d, &g, 1);
  if (!st) st = device_mesh_params(d, g);
  if (!st) st = api_compile_devices(&c, d, h);
  if (!st) st = runs_add_io(&h->r, c.global, c.shards.of, NULL);
  compile_end(&c);
  return st;
}

HP_API hp_status hp_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            hp_program **out) {
  double start = time_now_s();
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
  hp_status st = is_pipeline(d) ? api_pipeline_program(g, d, o, h) : compile_program(g, o, h);
  milestone_set_activity(before);
  h->compile_s = time_now_s() - start;
  if (st) hp_program_free(h);
  else *out = h;
  return api_result(__func__, st);
}

HP_API hp_status hp_plan(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                         hp_program_stats *out) {
  double start = time_now_s();
  compilation c;
  API_CALL;
  API_NEED(g);
  API_NEED(d);
  API_NEED(out);
  DEVICE_MESH_HOLD(d);
  if (is_pipeline(d))
    return api_result(__func__, api_pipeline_plan_graph(g, d, o, out, NULL, NULL));
  hp_status st = api_compile_begin(g, d, o, &c);
  if (!st) st = api_plan(&c, d, start, NULL, out);
  compile_end(&c);
  return st;
}

HP_API hp_status hp_plan_explain(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                 const char *what, char **text) {
  str s = {0};
  compilation c;
  API_CALL;
  API_NEED(g);
  API_NEED(d);
  API_NEED(what);
  API_NEED(text);
  DEVICE_MESH_HOLD(d);
  if (is_pipeline(d)) {
    hp_program_stats stats;
    hp_status planned = api_pipeline_plan_graph(g, d, o, &stats, what, &s);
    return api_text(__func__, planned, &s, text);
  }
  hp_status st = api_compile_begin(g, d, o, &c);
  const graph_layouts graph = {c.global, &c.shards};
  if (!st) st = api_plan_explain(&c, d, &(plan_view){what, &graph, 1, &s});
  compile_end(&c);
  return api_text(__func__, st, &s, text);
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
  int left = INT_MAX, n = 0;
  const hp_program *part;
  for (int k = 0; p->pipeline && (part = api_pipeline_part(p->pipeline, k)); k++)
    n += count_io(part);
  if (p->pipeline) return n;
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
  const hp_program *part;
  for (int k = 0; p->pipeline && (part = api_pipeline_part(p->pipeline, k)); k++) {
    int own = count_io(part);
    if (i < own) return hp_program_io_info(part, i, name, t, s, is_output);
    i -= own;
  }
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
  api_pipeline_free(p->pipeline);
  api_unload(p);
}

HP_API hp_status hp_run(hp_program *p, const hp_io *io, int n) {
  API_CALL;
  API_NEED(p);
  if (n < 0) API_REFUSE("n is %d; expected 0 or more", n);
  if (n) API_NEED(io);
  DEVICE_MESH_HOLD(p->r.d);
  if (p->pipeline) return api_result(__func__, pipeline_runs_run(p->pipeline->runs, io, n, 0));
  return api_result(__func__, runs_run(&p->r, io, n));
}

/* Some devices of a pipeline may have run another program since. */
static hp_status run_pipeline(const pipeline_runs *r, bool continues, bool ahead, unsigned *how) {
  bool all = continues && pipeline_runs_can_continue(r);
  if (continues) HP_TRY(world_agree(all, &all));
  *how = (all ? EXEC_CONTINUES : 0u) | (ahead ? EXEC_AHEAD : 0u);
  return HP_OK;
}

HP_API hp_status hp_run_step(hp_program *p, const hp_io *io, int n, bool continues, bool ahead) {
  unsigned how;
  API_CALL;
  API_NEED(p);
  if (n < 0) API_REFUSE("n is %d; expected 0 or more", n);
  if (n) API_NEED(io);
  DEVICE_MESH_HOLD(p->r.d);
  if (!p->pipeline) return api_result(__func__, runs_run(&p->r, io, n));
  hp_status st = run_pipeline(p->pipeline->runs, continues, ahead, &how);
  if (!st) st = pipeline_runs_run(p->pipeline->runs, io, n, how);
  return api_result(__func__, st);
}

HP_API hp_status hp_program_stats_get(const hp_program *p, hp_program_stats *out) {
  API_CALL;
  API_NEED(p);
  API_NEED(out);
  DEVICE_MESH_HOLD(p->r.d);
  if (!p->pipeline) return api_result(__func__, api_mesh_stats(p, out));
  HP_TRY(api_result(__func__, api_pipeline_stats(p->pipeline, out)));
  out->compile_s = p->compile_s;
  return HP_OK;
}

/* Texts and numbers of one mesh: of a pipeline the first. */
static const hp_program *one_mesh(const hp_program *p) {
  return p->pipeline ? api_pipeline_part(p->pipeline, 0) : p;
}

static hp_status print_program(const hp_program *p, const char *what, str *out) {
  const exec *e = p->r.e[0];
  hp_memory m;
  if (!what) return program_print(exec_program(e), out);
  HP_TRY(memory_use_of(p->r.d, 0, exec_program(e), p->model, &m));
  return explain_print(exec_program(e), p->r.d->member[0], e, &m, what, out);
}

/* A row for each device of the pipeline, of a mesh of several the first; on the first of several
 * processes those of all. */
static hp_status measure_rows(const hp_program *p, measured_rows *m) {
  const pipeline_program *q = p->pipeline;
  str bytes = {0};
  double origin_s;
  HP_TRY(api_trace_origin(p, &origin_s));
  for (int i = 0; i < q->d->meshes; i++) {
    const hp_program *part = q->part[i];
    bool first = part && part->r.d->member[0]->position == 0;
    if (first && exec_runs(part->r.e[0]))
      HP_TRY(pipeline_timeline_measure(part->r.e[0], (uint32_t)i, origin_s, m));
  }
  str_add_n(&bytes, (const char *)m->at, m->len * sizeof *m->at);
  hp_status st = api_trace_gather(p, "", &bytes);
  m->len = 0;
  size_t rows = bytes.len / sizeof *m->at;
  if (!st && !vec_reserve(m, rows)) st = HP_ERR_OOM;
  if (!st && rows) memcpy(m->at, bytes.at, rows * sizeof *m->at);
  if (!st) m->len = rows;
  str_free(&bytes);
  return st;
}

static hp_status draw_pipeline(const hp_program *p, str *out) {
  const pipeline_program *q = p->pipeline;
  measured_rows m = {0};
  const char *name = explain_pipeline_name(&q->plan, q->d->pipeline);
  hp_status st = measure_rows(p, &m);
  if (!st) st = pipeline_timeline_svg(&q->plan, name, &m, true, out);
  vec_free(&m);
  return st;
}

/* Of a pipeline the texts of all meshes, under a line for each; pictures and JSON of the first. */
static hp_status print_meshes(const hp_program *p, const char *what, str *out) {
  const hp_program *part;
  if (p->pipeline && what && !strcmp(what, "timeline.svg")) return draw_pipeline(p, out);
  if (!p->pipeline || (what && strchr(what, '.'))) return print_program(one_mesh(p), what, out);
  for (int k = 0; (part = api_pipeline_part(p->pipeline, k)); k++) {
    str_printf(out, "%s# mesh %d\n", k ? "\n" : "", k);
    HP_TRY(print_program(part, what, out));
  }
  return HP_OK;
}

HP_API hp_status hp_program_print(const hp_program *p, char **text) {
  str s = {0};
  API_CALL;
  API_NEED(p);
  API_NEED(text);
  return api_text(__func__, print_meshes(p, NULL, &s), &s, text);
}
HP_API hp_status hp_explain(const hp_program *p, const char *what, char **text) {
  str s = {0};
  API_CALL;
  API_NEED(p);
  API_NEED(what);
  API_NEED(text);
  DEVICE_MESH_HOLD(p->r.d);
  return api_text(__func__, print_meshes(p, what, &s), &s, text);
}
HP_API hp_status hp_program_times(const hp_program *p, hp_op_time **out, int *n) {
  op_times t;
  API_CALL;
  API_NEED(p);
  API_NEED(out);
  API_NEED(n);
  DEVICE_MESH_HOLD(p->r.d);
  p = one_mesh(p);
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
  else memory_live(exec_program(one_mesh(p)->r.e[0]), live, n);
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
  p = one_mesh(p);
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
