/* hyperparallel.h: compiling, running, looking. */
#include "api/api_call.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/milestone.h"
#include "base/thread.h"
#include "compile/lower.h"
#include "compile/overlap.h"
#include "pass/pass.h"
#include "compile/reorder.h"
#include "compile/state_class.h"
#include "compile/streams.h"
#include "sim/predict.h"
#include "rt/exec.h"
#include "rt/explain.h"
#include "rt/explain_comm.h"
#include "rt/explain_layouts.h"
#include "rt/explain_rows.h"
#include "rt/explain_svg.h"
#include "rt/memory_use.h"
#include "rt/run.h"

#include <string.h>

/* --- programs -------------------------------------------------------------------------------- */

struct hp_program {
  runs r;
  double compile_s;
  uint64_t model[MEM_CLASS_COUNT]; /* bytes of the whole model's tensors */
};

static hp_status dump_program(const program *p, const char *dir) {
  str file = {0}, text = {0};
  hp_status st = path_join(&file, dir, "program.txt");
  if (!st) st = program_print(p, &text);
  if (!st) st = file_write(file.at, text.at, text.len);
  str_free(&file);
  str_free(&text);
  return st;
}

/* More than can be is the most that can be. */
static uint64_t add_bytes(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Bytes that work memory may take; 0 = no limit. */
static uint64_t work_limit(const device *d, const program *p, uint64_t reserve) {
  if (!d->limit) return 0;
  uint64_t left = device_work_limit(d), more = add_bytes(memory_new_state(d, p), reserve);
  return left > more ? left - more : 1;
}

/* Chooses kernels, says what they need, and plans memory. */
static hp_status prepare(device *d, program *p, uint64_t *workspace, const memory_options *o,
                         void **loaded) {
  memset(workspace, 0, p->insts.len * sizeof *workspace);
  HP_TRY(d->backend->prepare(d->dev, p, workspace, loaded));
  hp_status st = plan_memory(p, workspace, o);
  if (!st) return HP_OK;
  d->backend->release(*loaded);
  *loaded = NULL;
  return st;
}

/* A refusal that names what would do: `work` bytes beside the params. */
static hp_status too_small(const device *d, program *p, uint64_t reserve, uint64_t work) {
  uint64_t params = add_bytes(add_bytes(d->state_bytes, memory_new_state(d, p)), reserve);
  uint64_t all = add_bytes(params, work);
  p->arena[TIER_DEVICE] = work;
  err_clear();
  if (all == UINT64_MAX)
    HP_FAIL(
        HP_ERR_OOM,
        "memory limit %llu bytes is too small: reserve_bytes is %llu, more than any limit holds "
        "beside %llu of work memory; set reserve_bytes to what other programs' params take",
        (unsigned long long)d->limit, (unsigned long long)reserve, (unsigned long long)work);
  HP_FAIL(HP_ERR_OOM,
          "memory limit %llu bytes is too small: params and optimizer state take %llu, work memory "
          "%llu; set memory_limit to %llu bytes or more; smaller inputs, or remat, take less",
          (unsigned long long)d->limit, (unsigned long long)params, (unsigned long long)work,
          (unsigned long long)all);
}

/* Orders of a program's instructions, from the fastest to the one that needs least memory; the
 * last two do not depend on the limit. */
enum { FASTEST, WITH_ROOM, AS_BUILT, FRUGAL };

/* Puts p in that order, and its waits.  With room: so much less than the limit as is missing when
 * the workspaces and the gaps of the plan, known by then, are counted. */
static hp_status arrange(const device *d, program *p, const hp_compile_options *o, int order,
                         uint64_t limit, uint64_t *workspace) {
  uint64_t missing = order == WITH_ROOM ? p->arena[TIER_DEVICE] - limit : 0;
  overlap_options oo = {.cluster = d->cluster,
                        .mesh = d->mesh,
                        .workspace = order == WITH_ROOM ? workspace : NULL,
                        .limit = missing < limit ? limit - missing : limit,
                        .prefetch = o->prefetch};
  if (order < AS_BUILT && !o->serial) return overlap_schedule(p, &oo);
  overlap_undo(p);
  if (order == FRUGAL) HP_TRY(reorder_minimum_memory(p, workspace));
  return place_waits(p, NULL, 0);
}

/* What was given up to stay under the memory limit. */
static const char *const orders[] =
    {[FASTEST] = NULL,
     [WITH_ROOM] = "less communication beside computation than would be fastest",
     [AS_BUILT] = "no communication beside computation",
     [FRUGAL] = "the one that needs least memory, with no communication beside computation"};

/* *loaded is the backend's side of the program, or NULL; the caller releases it, also where this
 * fails.  When all orders need more than the limit, the
 * bytes that are named are the least of an order that is tried under every limit. */
static hp_status load(device *d, program *p, const hp_compile_options *o, void **loaded) {
  size_t n = p->insts.len;
  uint64_t *workspace = mem_calloc(n, sizeof *workspace), least = UINT64_MAX;
  prog_inst *built = mem_calloc(n, sizeof *built);
  memory_options mo = {.limit = work_limit(d, p, o->reserve_bytes)};
  hp_status st = workspace && built ? HP_OK : HP_ERR_OOM;
  if (!st) memcpy(built, p->insts.at, n * sizeof *built);
  for (int order = FASTEST; !st;) {
    if (order == AS_BUILT) memcpy(p->insts.at, built, n * sizeof *built);
    st = arrange(d, p, o, order, mo.limit, workspace);
    if (!st) st = prepare(d, p, workspace, &mo, loaded);
    p->order = orders[order];
    if (st != HP_ERR_OOM || !mo.limit || !p->arena[TIER_DEVICE]) break;
    bool overlaps = overlap_is(p);
    if (!overlaps && p->arena[TIER_DEVICE] < least) least = p->arena[TIER_DEVICE];
    if (order == FRUGAL) {
      st = too_small(d, p, o->reserve_bytes, least);
      break;
    }
    order = order == FASTEST && !overlaps ? FRUGAL : order + 1;
    st = HP_OK;
    err_clear();
  }
  if (!st && o->dump_dir) st = dump_program(p, o->dump_dir);
  mem_free(built);
  mem_free(workspace);
  return st;
}

/* A graph in parts. */
typedef struct {
  hp_graph *summed;             /* NULL, or what the parts are made of in place of the graph */
  const hp_graph *whole, *part; /* of which they are the parts; what each device runs */
  sharded s;
} parts;

static void parts_free(parts *p) {
  sharded_free(&p->s);
  graph_free(p->summed);
  *p = (parts){0};
}

/* From the graph to a program with engines, kernels and offsets for the i-th device of this
 * process; the memory of one that was made, or for which there is too little. */
static hp_status make_program(const parts *from, hp_device *all, int i, const hp_compile_options *o,
                              program **out, void **loaded, hp_memory *memory) {
  device *d = all->member[i];
  uint64_t model[MEM_CLASS_COUNT];
  static const hp_compile_options usual;
  hp_graph *lowered = NULL;
  program *p = NULL;
  if (!o) o = &usual;
  *loaded = NULL;
  str notes = {0};
  pass_options po = {.remat = o->remat,
                     .one_type = d->backend->one_type(d->dev),
                     .chunk_bytes = o->chunk_bytes,
                     .notes = &notes,
                     .dump_dir = o->dump_dir};
  hp_status st = pass_run_all(from->part, &po, &lowered);
  if (!st) st = lower_graph(lowered, &p);
  if (!st) {
    p->notes = notes;
    st = state_classes_set(from->whole, p, model);
    if (!st) st = group_choose(all, i, p);
    if (!st) st = load(d, p, o, loaded);
    hp_status counted = memory_use_of(all, i, p, model, memory); /* of one that is refused too */
    if (!st) st = counted;
  } else {
    str_free(&notes);
  }
  graph_free(lowered);
  if (st && *loaded) d->backend->release(*loaded);
  if (st) program_free(p);
  else *out = p;
  return st;
}

/* Collectives are the compiler's: a graph of the whole has none among several devices. */
static hp_status check_whole(const hp_graph *g) {
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (op_flags((op_id)n->op) & OPF_COLLECTIVE && attr_int(g, n, "n") > 1)
      HP_FAIL(HP_ERR_ARG, "%s \"%s\" of %lld devices: only the compiler makes these, from layouts",
              op_table[n->op].name, graph_str(g, n->loc), (long long)attr_int(g, n, "n"));
  }
  return HP_OK;
}

/* What a device runs: its part of g, or g itself when it is alone.  Where no sum is cut, those of g
 * start from params before it is cut, or else each mesh would have other chains.  *p is freed by
 * the caller, of a failure too. */
static hp_status part_graph(const hp_graph *g, hp_device *d, parts *p) {
  shard_plan plan = {.mesh = &d->m,
                     .cluster = &d->cluster,
                     .declared = group_declared,
                     .model = d,
                     .no_partial_sums = d->no_partial_sums};
  *p = (parts){.whole = g, .part = g};
  HP_TRY(graph_status(g));
  HP_TRY(check_whole(g));
  if (d->n == 1) return HP_OK;
  HP_TRY(group_check_annotations(d, g));
  if (d->no_partial_sums) {
    HP_TRY(pass_accumulate(g, NULL, &p->summed));
    p->whole = p->summed;
  }
  HP_TRY(shard_graph(p->whole, &plan, &p->s));
  p->part = p->s.graph;
  return HP_OK;
}

static hp_status compile_parts(const parts *s, hp_device *d, const hp_compile_options *o,
                               hp_program *h) {
  for (int i = 0; i < d->own; i++) {
    program *p;
    void *loaded;
    hp_memory memory;
    HP_TRY(make_program(s, d, i, o, &p, &loaded, &memory));
    memcpy(h->model, memory.model, sizeof h->model);
    HP_TRY(exec_create(d->member[i], p, loaded, &h->r.e[i]));
  }
  return runs_prepare(&h->r, s->whole, s->s.of);
}

HP_API hp_status hp_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            hp_program **out) {
  double start = time_now_s();
  parts s;
  API_CALL;
  API_NEED(g);
  API_NEED(d);
  API_NEED(out);
  if (d->plan_only) API_REFUSE("the device was opened with plan_only; hp_plan takes it");
  hp_program *h = mem_calloc(1, sizeof *h);
  if (!h) return api_result(__func__, HP_ERR_OOM);
  h->r.d = d;
  const char *before = milestone_set_activity("compiling a program");
  hp_status st = part_graph(g, d, &s);
  if (!st) group_tell_unused(d, g);
  if (!st) st = group_params(d, g);
  if (!st) st = compile_parts(&s, d, o, h);
  parts_free(&s);
  milestone_set_activity(before);
  h->compile_s = time_now_s() - start;
  if (st) hp_program_free(h);
  else *out = h;
  return api_result(__func__, st);
}

HP_API void hp_program_free(hp_program *p) {
  if (!p) return;
  runs_free(&p->r);
  mem_free(p);
}

HP_API hp_status hp_run(hp_program *p, const hp_io *io, int n) {
  API_CALL;
  API_NEED(p);
  if (n < 0) API_REFUSE("n is %d; expected 0 or more", n);
  if (n) API_NEED(io);
  return api_result(__func__, runs_run(&p->r, io, n));
}

/* Work and kernels of a program, and what the cluster makes of it; its memory is known. */
static hp_status count(const device *d, const program *p, hp_program_stats *s) {
  map seen = {0};
  hp_status st = predict_totals(d->cluster, d->mesh, p, &s->predicted_s, &s->exposed_copy_s);
  s->instructions = (int)p->insts.len;
  for (size_t i = 0; !st && i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    uint32_t one;
    s->flops += n->flops;
    s->bytes += n->bytes;
    s->received += predict_received(p, n);
    if (n->op != OP_FUSED || map_get(&seen, &n->attr, sizeof n->attr, &one)) continue;
    s->kernels++;
    st = map_set(&seen, &n->attr, sizeof n->attr, 1);
  }
  map_free(&seen);
  return st;
}

/* The program of the first device. */
static hp_status plan_first(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            program **p, void **loaded, hp_memory *memory) {
  parts s;
  hp_status st = part_graph(g, d, &s);
  if (!st) st = make_program(&s, d, 0, o, p, loaded, memory);
  parts_free(&s);
  return st;
}

HP_API hp_status hp_plan(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                         hp_program_stats *out) {
  double start = time_now_s();
  hp_program_stats s = {0};
  program *p;
  void *loaded;
  API_CALL;
  API_NEED(g);
  API_NEED(d);
  API_NEED(out);
  hp_status st = plan_first(g, d, o, &p, &loaded, &s.memory);
  if (st == HP_ERR_OOM && s.memory.limit_bytes && s.memory.planned_bytes) out->memory = s.memory;
  HP_TRY(st);
  st = count(d->member[0], p, &s);
  s.compile_s = time_now_s() - start;
  if (!st) *out = s;
  d->member[0]->backend->release(loaded);
  program_free(p);
  return st;
}

/* Who holds what, in its three forms. */
static hp_status print_layouts(const group *d, const parts *s, str *out) {
  explain_layouts(d, s->whole, &s->s, out);
  return explain_rows(d, s->whole, &s->s, out);
}
static hp_status put_layouts(const group *d, const parts *s, str *out) {
  json_writer w = {.out = out};
  json_open_map(&w);
  explain_layouts_json(d, s->whole, &s->s, &w);
  hp_status st = explain_rows_json(d, s->whole, &s->s, &w);
  json_close(&w);
  str_add_char(out, '\n');
  return st;
}
static hp_status draw_layouts(const group *d, const parts *s, str *out) {
  explain_layouts_svg(d, s->whole, s->s.of, out);
  return HP_OK;
}

/* Layouts are known before a program is made. */
typedef hp_status (*layout_view)(const group *d, const parts *s, str *out);
static layout_view find_layout_view(const char *what) {
  static const struct {
    const char *what;
    layout_view print;
  } views[] = {{"layouts", print_layouts},
               {"layouts.json", put_layouts},
               {"layouts.svg", draw_layouts}};
  for (size_t i = 0; i < sizeof views / sizeof *views; i++)
    if (!strcmp(what, views[i].what)) return views[i].print;
  return NULL;
}

static hp_status plan_layouts(const hp_graph *g, hp_device *d, layout_view print, str *out) {
  parts s;
  hp_status st = part_graph(g, d, &s);
  if (!st) st = print(d, &s, out);
  parts_free(&s);
  return st;
}

static hp_status plan_explain(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                              const char *what, str *out) {
  program *p;
  void *loaded;
  hp_memory memory;
  layout_view layouts = find_layout_view(what);
  if (layouts) return plan_layouts(g, d, layouts, out);
  HP_TRY(plan_first(g, d, o, &p, &loaded, &memory));
  bool counts = !strncmp(what, "memory.", 7); /* "memory" stands behind a summary that has it */
  hp_status st = explain_print(p, d->member[0], NULL, counts ? &memory : NULL, what, out);
  d->member[0]->backend->release(loaded);
  program_free(p);
  return st;
}

HP_API hp_status hp_plan_explain(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                                 const char *what, char **text) {
  str s = {0};
  API_CALL;
  API_NEED(g);
  API_NEED(d);
  API_NEED(what);
  API_NEED(text);
  return api_text(__func__, plan_explain(g, d, o, what, &s), &s, text);
}

HP_API hp_status hp_program_stats_get(const hp_program *p, hp_program_stats *out) {
  hp_program_stats s = {0};
  API_CALL;
  API_NEED(p);
  API_NEED(out);
  const exec *e = p->r.e[0];
  HP_TRY(memory_use_of(p->r.d, 0, exec_program(e), p->model, &s.memory));
  HP_TRY(count(p->r.d->member[0], exec_program(e), &s));
  s.compile_s = p->compile_s;
  s.run_s = exec_last_seconds(e);
  if (s.run_s > 0) {
    comm_time t;
    HP_TRY(comm_times(exec_program(e), exec_last_times(e), NULL, &t));
    s.comm_s = t.comm_s;
    s.hidden_s = t.hidden_s;
    s.hideable_s = t.hideable_s;
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
