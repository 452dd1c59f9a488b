#include "compile/compile.h"

#include "base/io.h"
#include "base/milestone.h"
#include "compile/free_early.h"
#include "compile/lower.h"
#include "compile/offload_fit.h"
#include "compile/offload_policy.h"
#include "compile/offload_reserve.h"
#include "compile/offload_stage.h"
#include "compile/place_updates.h"
#include "compile/prog_schedule.h"
#include "compile/slice_updates.h"
#include "compile/state_class.h"
#include "compile/streams.h"
#include "ir/print.h"
#include "ops/ops.h"
#include "prog/tier_check.h"
#include "shard/dispatch.h"
#include "sim/predict.h"

#include <string.h>

enum {
#define STAGE(group, name, reads, writes, doc) ROW_##name,
#define PASS(name, doc)                        ROW_pass_##name,
#include "compile/stages.def"
#undef STAGE
#undef PASS
  STAGES
};

/* The pieces and rows of a step; arrays by piece. */
typedef struct {
  compilation *const *piece;
  size_t pieces;
  const link_rows *rows;
  const program **lowered;
  const hp_graph **graph;
  uint32_t *kernel0;
} step_link;

/* The data that stages read and write. */
struct stage_state {
  compilation *c;
  const target *t;
  const shard_plan *layouts;
  hp_graph *graph;      /* of a device, from the first pass to `lower`; NULL: still c->local */
  program *p;           /* from `lower` on */
  str notes;            /* of passes */
  uint64_t *workspace;  /* by kernel */
  void *kernels;        /* of the target */
  schedule_options how; /* of the order that is tried */
  schedule_kind kind;
  offload_options offload;
  uint8_t mode[HP_MEMORY_CLASSES]; /* offload.mode, by the policy's level */
  offload_summary offloaded;
  bool fits;
  bool goes_on; /* to another level of the policy, if it does not fit */
  const step_link *link;
  str text[STAGES]; /* of the stages of group ORDER, by row, if they are dumped */
};

#define STAGE(group, name, reads, writes, doc) static hp_status stage_##name(stage_state *s);
#define PASS(name, doc)
#include "compile/stages.def"
#undef STAGE
#undef PASS

const stage_row stage_table[] = {
#define STAGE(group, name, reads, writes, doc)                                                     \
  {#name, reads, writes, doc, STAGE_##group, stage_##name, NULL},
#define PASS(name, doc)                                                                            \
  {#name, "graph of a device", "graph of a device", doc, STAGE_LOWER, NULL, pass_##name},
#include "compile/stages.def"
#undef STAGE
#undef PASS
    {NULL, NULL, NULL, NULL, STAGE_SHARD, NULL, NULL}};

/* --- running a group of stages ------------------------------------------------------------------
 */

static const hp_graph *graph_at(const stage_state *s) { return s->graph ? s->graph : s->c->local; }

static hp_status print(const stage_state *s, str *out) {
  return s->p ? program_print(s->p, out) : graph_print(graph_at(s), out);
}

/* Writes a text as DIR/NN_NAME.hp or .txt, of a piece of a step as DIR/NN_NAME.PIECE.hp. */
static hp_status write_dump(const stage_state *s, int row, const str *text) {
  const hp_compile_options *o = s->c->options;
  str name = {0}, file = {0};
  str_printf(&name, "%02d_%s%s%s.%s", row, stage_table[row].name, o->dump_name ? "." : "",
             o->dump_name ? o->dump_name : "", s->p ? "txt" : "hp");
  hp_status st = str_status(&name);
  if (!st) st = path_join(&file, o->dump_dir, name.at);
  if (!st) st = file_write(file.at, text->at ? text->at : "", text->len);
  str_free(&name);
  str_free(&file);
  return st;
}

/* The text after a stage; of group ORDER it is kept until an order is taken. */
static hp_status dump(stage_state *s, int row) {
  if (stage_table[row].group == STAGE_ORDER) {
    str_clear(&s->text[row]);
    return print(s, &s->text[row]);
  }
  str text = {0};
  hp_status st = print(s, &text);
  if (!st) st = write_dump(s, row, &text);
  str_free(&text);
  return st;
}

static hp_status run_pass(stage_state *s, const stage_row *row) {
  hp_graph *next;
  pass_options o = {.options = s->c->options, .can = s->t->can, .notes = &s->notes};
  HP_TRY(row->pass(graph_at(s), &o, &next));
  graph_free(s->graph);
  s->graph = next;
  return HP_OK;
}

static hp_status run_group(stage_state *s, stage_group group) {
  for (int i = 0; stage_table[i].name; i++) {
    const stage_row *row = &stage_table[i];
    if (row->group != group) continue;
    milestone_count_work();
    HP_TRY(row->run ? row->run(s) : run_pass(s, row));
    if (s->c->options->dump_dir) HP_TRY(dump(s, i));
  }
  return HP_OK;
}

/* --- SHARD ---------------------------------------------------------------------------------------
 */

/* Only the compiler makes collectives and transfers: a graph of one logical device has none over
 * several devices. */
static hp_status stage_check(stage_state *s) {
  const hp_graph *g = s->c->global;
  uint32_t node;
  HP_TRY(graph_status(g));
  HP_TRY(ops_check_names(g, &node));
  for (uint32_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, i);
    if (op_flags((op_id)n->op) & OPF_COLLECTIVE && attr_int(g, n, "n") > 1)
      HP_FAIL(HP_ERR_ARG, "%s \"%s\" of %lld devices: only the compiler makes these, from layouts",
              op_table[n->op].name, graph_str(g, n->loc), (long long)attr_int(g, n, "n"));
    if (op_flags((op_id)n->op) & OPF_TRANSFER)
      HP_FAIL(HP_ERR_ARG, "%s \"%s\": only the compiler makes these, from stages of a pipeline",
              op_table[n->op].name, graph_str(g, n->loc));
  }
  return HP_OK;
}

static hp_status stage_sum_first(stage_state *s) {
  if (!s->layouts || !s->layouts->no_partial_sums) return HP_OK;
  HP_TRY(
      pass_accumulate(s->c->global, &(pass_options){.options = s->c->options}, &s->c->own_global));
  s->c->global = s->c->local = s->c->own_global;
  return HP_OK;
}

static hp_status stage_shard(stage_state *s) {
  if (!s->layouts) return HP_OK;
  HP_TRY(shard_graph(s->c->global, s->layouts, &s->c->shards));
  s->c->local = s->c->shards.graph;
  return HP_OK;
}

static hp_status stage_dispatch(stage_state *s) {
  hp_graph *by_rows;
  if (!s->layouts) return HP_OK;
  HP_TRY(shard_dispatch(s->c->local, s->layouts->mesh, s->layouts->cluster, s->c->options->dispatch,
                        &by_rows));
  if (!by_rows) return HP_OK;
  graph_free(s->c->shards.graph);
  s->c->local = s->c->shards.graph = by_rows;
  return HP_OK;
}

hp_status compile_begin(const hp_graph *g, const shard_plan *layouts, const hp_compile_options *o,
                        compilation *out) {
  static const hp_compile_options usual;
  *out = (compilation){.options = o ? o : &usual, .global = g, .local = g};
  const char *piece = out->options->dump_name;
  if (piece && strchr(piece, '/'))
    HP_FAIL(HP_ERR_ARG, "dump_name \"%s\": expected a part of a file name, without /", piece);
  return run_group(&(stage_state){.c = out, .layouts = layouts}, STAGE_SHARD);
}

void compile_end(compilation *c) {
  program_free(c->lowered);
  vec_free(&c->pieces);
  sharded_free(&c->shards);
  graph_free(c->own_global);
  *c = (compilation){0};
}

/* --- LOWER ---------------------------------------------------------------------------------------
 */

static hp_status stage_lower(stage_state *s) {
  HP_TRY(lower_graph(graph_at(s), &s->p));
  s->p->notes = s->notes;
  s->notes = (str){0};
  return HP_OK;
}

static hp_status stage_free_early(stage_state *s) { return free_early(s->p); }

static hp_status stage_classify(stage_state *s) {
  return state_classes_set(&s->c->global, 1, s->p, s->c->model);
}

hp_status compile_lower(compilation *c, const target *t) {
  if (c->lowered) return HP_OK;
  stage_state s = {.c = c, .t = t};
  hp_status st = run_group(&s, STAGE_LOWER);
  graph_free(s.graph);
  str_free(&s.notes);
  if (st) program_free(s.p);
  else c->lowered = s.p;
  return st;
}

/* --- LINK ----------------------------------------------------------------------------------------
 */

static hp_status stage_link(stage_state *s) {
  const step_link *l = s->link;
  size_t used = 0;
  for (size_t i = 0; i < l->pieces; i++) l->lowered[i] = l->piece[i]->lowered;
  HP_TRY(program_link(l->lowered, l->pieces, l->rows, l->kernel0, &s->c->lowered));
  s->p = s->c->lowered;
  for (size_t i = 0; i < l->pieces; i++) {
    linked_piece made = {l->lowered[i], l->kernel0[i]};
    if (made.kernel0 == PROG_NONE) continue; /* no row runs it */
    l->graph[used++] = l->piece[i]->global;
    if (!vec_push(&s->c->pieces, made)) return HP_ERR_OOM;
  }
  return state_classes_set(l->graph, used, s->p, s->c->model);
}

hp_status compile_link(compilation *const *piece, size_t pieces, const link_rows *rows,
                       const hp_compile_options *o, compilation *out) {
  static const hp_compile_options usual;
  step_link l = {.piece = piece,
                 .pieces = pieces,
                 .rows = rows,
                 .lowered = mem_calloc(pieces, sizeof *l.lowered),
                 .graph = mem_calloc(pieces, sizeof *l.graph),
                 .kernel0 = mem_calloc(pieces, sizeof *l.kernel0)};
  *out = (compilation){.options = o ? o : &usual};
  hp_status st = l.lowered && l.graph && l.kernel0 ? HP_OK : HP_ERR_OOM;
  if (!st) st = run_group(&(stage_state){.c = out, .link = &l}, STAGE_LINK);
  mem_free(l.lowered);
  mem_free(l.graph);
  mem_free(l.kernel0);
  return st;
}

/* --- PLACE ---------------------------------------------------------------------------------------
 */

static hp_status stage_place_updates(stage_state *s) { return place_updates(s->p); }

static hp_status stage_slice_updates(stage_state *s) {
  return s->t->offload && s->t->limit[TIER_DEVICE] ? slice_updates(s->p) : HP_OK;
}

static hp_status stage_choose(stage_state *s) { return s->t->choose(s->t->context, s->p); }

static hp_status stage_prepare(stage_state *s) {
  s->workspace = mem_calloc(s->p->insts.len + 1, sizeof *s->workspace); /* copies: none */
  HP_TRY_MEM(s->workspace);
  return s->t->prepare(s->t->context, s->p, s->workspace, &s->kernels);
}

/* --- ORDER ---------------------------------------------------------------------------------------
 */

static hp_status stage_offload(stage_state *s) {
  if (s->kind != SCHEDULE_OFFLOAD) return HP_OK;
  return offload_program(s->p, &s->offload, &s->offloaded);
}

static hp_status stage_schedule(stage_state *s) {
  if (s->kind == SCHEDULE_OFFLOAD) return HP_OK; /* copies have their order with computation */
  return schedule_program(s->p, s->kind, &s->how, &s->fits);
}

static offload_options offload_options_of(const stage_state *s) {
  return (offload_options){.cluster = s->t->cluster,
                           .mesh = s->t->mesh,
                           .workspace = s->workspace,
                           .mode = s->t->offload ? s->mode : NULL,
                           .policy = s->t->offload_policy,
                           .kept = s->t->offloads,
                           .home = s->t->home,
                           .rule = s->t->rule,
                           .context = s->t->context};
}

/* May a tensor leave where the limit asks for it? */
static bool may_offload(const stage_state *s) {
  offload_options o = offload_options_of(s);
  for (size_t b = 0; s->t->offload && b < s->p->buffers.len; b++)
    if (offload_mode_of(s->p, &o, &s->p->buffers.at[b]) == HP_OFFLOAD_AUTO) return true;
  return false;
}

/* Steps of the search for offsets: with offloading, to offload more is better than a long search;
 * without a limit, only the last few bytes are at stake. */
enum { OFFLOAD_EFFORT = 16000000, UNLIMITED_EFFORT = 4000000 };

static hp_status stage_place(stage_state *s) {
  if (!s->fits) return HP_OK;
  memory_options o = {.limit = s->how.cap[TIER_DEVICE], .kept = s->t->offsets};
  if (s->kind == SCHEDULE_OFFLOAD) o.limit = s->offload.room, o.tight = true;
  if (!s->t->limit[TIER_DEVICE] && o.limit) o.effort = UNLIMITED_EFFORT;
  else if (s->t->limit[TIER_DEVICE] && may_offload(s)) o.effort = OFFLOAD_EFFORT, o.must_fit = true;
  HP_TRY(plan_memory(s->p, s->workspace, &o));
  return HP_OK;
}

static hp_status stage_trim(stage_state *s) { return s->fits ? trim_waits(s->p) : HP_OK; }

/* The orders that are tried under a limit, from the fastest to the one that needs the least
 * memory, and their disadvantage, for messages. */
static const struct {
  schedule_kind kind;
  bool with_room; /* with caps lowered by what the last plan was above the limit */
  const char *note;
} orders[] = {{SCHEDULE_FASTEST, false, NULL},
              {SCHEDULE_FASTEST, true,
               "less overlap of communication with computation than would be fastest"},
              {SCHEDULE_SERIAL, false, "no overlap of communication with computation"},
              {SCHEDULE_MINIMUM, false,
               "the one that needs least memory, without overlapped communication"}};
enum { SERIAL_ORDER = 2, ORDERS = sizeof orders / sizeof *orders };

/* Saturating. */
static uint64_t add_bytes(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Bytes besides work memory: named tensors, and those of later programs. */
static uint64_t reserved_bytes(const stage_state *s) {
  uint64_t bytes = s->t->resident_bytes(s->t->context, s->p, TIER_DEVICE);
  return add_bytes(bytes, s->c->options->reserve_bytes);
}

/* Bytes available for work memory of each tier; 0 = no limit. */
static void find_limits(const stage_state *s, uint64_t limit[TIER_COUNT]) {
  for (int t = 0; t < TIER_COUNT; t++) {
    uint64_t taken = t == TIER_DEVICE ? reserved_bytes(s) : 0, all = s->t->limit[t];
    limit[t] = !all ? 0 : all > taken ? all - taken : 1;
  }
}

static bool is_within(const program *p, const uint64_t limit[TIER_COUNT]) {
  for (int t = 0; t < TIER_COUNT; t++)
    if (limit[t] && p->arena[t] > limit[t]) return false;
  return true;
}

/* A refusal that names what would be enough: `work` bytes of the device plus named tensors. */
static hp_status too_small(const stage_state *s, uint64_t work) {
  uint64_t taken = reserved_bytes(s), all = add_bytes(taken, work);
  uint64_t limit = s->t->limit[TIER_DEVICE], reserve = s->c->options->reserve_bytes;
  for (int t = TIER_DEVICE + 1; t < TIER_COUNT; t++)
    if (s->t->limit[t] && s->p->arena[t] > s->t->limit[t])
      HP_FAIL(HP_ERR_OOM, "%s memory limit %llu bytes is too small: %llu are needed", tier_name(t),
              (unsigned long long)s->t->limit[t], (unsigned long long)s->p->arena[t]);
  if (all == UINT64_MAX)
    HP_FAIL(
        HP_ERR_OOM,
        "memory limit %llu bytes is too small: reserve_bytes is %llu, more than any limit holds "
        "and %llu of work memory; set reserve_bytes to the size of other programs' params",
        (unsigned long long)limit, (unsigned long long)reserve, (unsigned long long)work);
  HP_FAIL(HP_ERR_OOM,
          "memory limit %llu bytes is too small: params and optimizer state take %llu, work memory "
          "%llu; set memory_limit to %llu bytes or more; smaller inputs, or remat, take less",
          (unsigned long long)limit, (unsigned long long)taken, (unsigned long long)work,
          (unsigned long long)all);
}

/* The order that is tried, and the results of earlier ones. */
typedef struct {
  uint64_t limit[TIER_COUNT];
  uint64_t above; /* bytes of the device by which the last plan exceeded the limit */
  uint64_t least; /* of the device, by an order that does not depend on the limit */
  int tried;      /* orders */
  bool overlapped,
      one_stream; /* the last one: was it overlapped, was it in the order of the graph */
} attempts;

static bool is_worth_trying(const stage_state *s, const attempts *a, int order) {
  schedule_kind kind = orders[order].kind;
  if (kind == SCHEDULE_FASTEST && s->c->options->serial) return false;
  if (orders[order].with_room)
    return !a->one_stream && a->above && a->above < a->limit[TIER_DEVICE];
  return kind != SCHEDULE_SERIAL || !a->one_stream;
}

/* Tries one order: *p is the program in it, with offsets; s->fits. */
static hp_status try_order(stage_state *s, attempts *a, int order, program **p) {
  s->kind = orders[order].kind;
  memcpy(s->how.cap, a->limit, sizeof a->limit);
  if (orders[order].with_room) s->how.cap[TIER_DEVICE] -= a->above;
  HP_TRY(program_copy(s->p, p));
  program *in_order_of_graph = s->p;
  s->p = *p;
  hp_status st = run_group(s, STAGE_ORDER);
  s->p = in_order_of_graph;
  HP_TRY(st);
  (*p)->order = a->tried++ ? orders[order].note : NULL;
  a->overlapped = schedule_overlaps(*p);
  a->one_stream = s->kind == SCHEDULE_FASTEST && program_has_one_stream(*p);
  a->above = 0;
  if (!s->fits) return HP_OK; /* no such order, so no plan */
  s->fits = is_within(*p, a->limit);
  uint64_t bytes = (*p)->arena[TIER_DEVICE], limit = a->limit[TIER_DEVICE];
  if (limit && bytes > limit) a->above = bytes - limit;
  if (!a->overlapped && bytes < a->least) a->least = bytes;
  return HP_OK;
}

static bool copies_between_tiers(const program *p) {
  for (size_t i = 0; i < p->insts.len; i++)
    if (stream_copies(p->insts.at[i].stream)) return true;
  return false;
}

/* Without a limit, copies must not take more memory when they overlap with computation than in
 * sequence, since they exist to save memory. */
static hp_status limit_to_serial(stage_state *s, attempts *a) {
  program *serial = NULL;
  hp_status st = try_order(s, a, SERIAL_ORDER, &serial);
  if (!st) a->limit[TIER_DEVICE] = serial->arena[TIER_DEVICE];
  program_free(serial);
  a->tried = 0;
  return st;
}

/* Without a limit, a step of several micro-batches takes no more memory than its largest piece
 * would by itself: collectives that fall behind in one micro-batch must not do so in all. */
static hp_status limit_to_pieces(stage_state *s) {
  if (s->c->options->serial || !program_has_rendezvous(s->p)) return HP_OK;
  for (size_t i = 0; i < s->c->pieces.len; i++) {
    const linked_piece *piece = &s->c->pieces.at[i];
    schedule_options how = s->how;
    uint64_t bytes;
    program *p;
    how.workspace = s->workspace + piece->kernel0;
    HP_TRY(program_copy(piece->lowered, &p));
    hp_status st = schedule_peak(p, &how, &bytes);
    program_free(p);
    HP_TRY(st);
    if (bytes > s->how.usual) s->how.usual = bytes;
  }
  return HP_OK;
}

/* --- offloading ---------------------------------------------------------------------------------
 */

/* Are there tensors that must be on another tier, whatever the limit? */
static bool must_offload(const stage_state *s) {
  offload_options o = offload_options_of(s);
  for (size_t b = 0; s->t->offload && b < s->p->buffers.len; b++) {
    const prog_buffer *f = &s->p->buffers.at[b];
    if (f->root != b || f->flags & BUFFER_WORKSPACE || f->tier != TIER_DEVICE) continue;
    if (offload_mode_of(s->p, &o, f) > HP_OFFLOAD_AUTO) return true;
    if (f->place == PLACE_STATE && s->t->home(s->t->context, program_str(s->p, f->name)) > 0)
      return true;
  }
  return false;
}

/* Bytes of the device that named tensors take which do not leave it. */
static uint64_t kept_bytes(const stage_state *s) {
  uint64_t bytes = s->t->locked_bytes(s->t->context);
  offload_options o = offload_options_of(s);
  for (size_t b = 0; b < s->p->buffers.len; b++) {
    const prog_buffer *f = &s->p->buffers.at[b];
    if (f->root != b || f->place != PLACE_STATE || f->tier != TIER_DEVICE) continue;
    if (offload_mode_of(s->p, &o, f) != HP_OFFLOAD_NONE) continue;
    if (s->t->home(s->t->context, program_str(s->p, f->name)) < 0)
      bytes = add_bytes(bytes, (f->bytes + 255) & ~(uint64_t)255);
  }
  return bytes;
}

/* A refusal that names what would be enough, and for what. */
static hp_status too_small_to_offload(const stage_state *s, uint64_t kept, uint64_t work,
                                      uint32_t at) {
  const prog_inst *n = program_inst(s->p, at);
  const char *place = program_str(s->p, n->loc);
  HP_FAIL(HP_ERR_OOM,
          "memory limit %llu bytes is too small, also with offloading: %s%s%s%s needs %llu bytes "
          "for its operands, results and workspace, besides %llu that stay on the device; set "
          "memory_limit to %llu bytes or more",
          (unsigned long long)s->t->limit[TIER_DEVICE], op_table[n->op].name, *place ? " \"" : "",
          place, *place ? "\"" : "", (unsigned long long)work, (unsigned long long)kept,
          (unsigned long long)add_bytes(kept, work));
}

/* Programs that are tried, and the one that is kept, with the texts of its stages. */
typedef struct {
  stage_state *s;
  program *present, *kept;
  uint64_t floor;
  double bound_s; /* of the first one: of the limit itself, not of a lower cap */
  str text[STAGES];
} fitted;

/* By fragmentation the program may need more than its cap. */
static hp_status make_fitted(void *context, const offload_attempt *a, uint64_t *bytes,
                             double *time_s) {
  fitted *f = context;
  stage_state *s = f->s;
  bool first = !f->present && !f->kept;
  double exposed_s;
  program_free(f->present);
  f->present = NULL;
  s->kind = SCHEDULE_OFFLOAD;
  s->fits = true;
  s->offload.cap = a->cap;
  s->offload.reserve = a->reserve;
  s->offload.least = a->least;
  s->how.cap[TIER_DEVICE] = a->cap;
  HP_TRY(program_copy(s->p, &f->present));
  program *in_order_of_graph = s->p;
  s->p = f->present;
  hp_status st = run_group(s, STAGE_ORDER);
  s->p = in_order_of_graph;
  f->present->order = "computations one after the other, and copies to slower memory overlapped";
  s->offload.reserve = NULL;
  s->offload.least = false;
  HP_TRY(st);
  if (first) f->bound_s = s->offloaded.bound_s;
  *bytes = f->present->arena[TIER_DEVICE];
  return predict_totals(s->t->cluster, s->t->mesh, f->present, time_s, &exposed_s);
}

static hp_status withhold(void *context, uint64_t *reserve, bool *more) {
  fitted *f = context;
  uint64_t room = f->s->offload.room;
  return offload_reserve_add(f->present, room, room - f->floor, f->s->p->insts.len, reserve, more);
}

static void swap_texts(fitted *f) {
  str text[STAGES];
  memcpy(text, f->text, sizeof text);
  memcpy(f->text, f->s->text, sizeof text);
  memcpy(f->s->text, text, sizeof text);
}

static void keep_fitted(void *context) {
  fitted *f = context;
  swap_texts(f);
  program_free(f->kept);
  f->kept = f->present;
  f->present = NULL;
}

/* The program within `room` bytes of work memory of the device.  *least: its bytes or, if none
 * fits, those that are enough, whatever the limit; *out is then one that does not. */
static hp_status lower_cap(stage_state *s, uint64_t room, uint64_t floor, program **out,
                           uint64_t *least) {
  fitted f = {.s = s, .floor = floor};
  offload_maker m = {.room = room,
                     .floor = floor,
                     .steps = s->p->insts.len,
                     .context = &f,
                     .make = make_fitted,
                     .withhold = withhold,
                     .keep = keep_fitted};
  bool kept;
  s->offload.room = room;
  hp_status st = offload_fit(&m, &kept, least);
  if (kept) swap_texts(&f);
  program_free(*out);
  *out = kept ? f.kept : f.present;
  program_free(kept ? f.present : f.kept);
  s->fits = true;
  if (!st && kept) *least = (*out)->arena[TIER_DEVICE];
  if (!st) (*out)->bound_s = f.bound_s;
  for (int i = 0; i < STAGES; i++) str_free(&f.text[i]);
  return st;
}

/* A plan under more room may need more than one under less.  What is named as the least, from
 * *least on, is enough, and one byte less is not, as `refused` bytes are not. */
static hp_status confirm_least(stage_state *s, uint64_t refused, uint64_t floor, program **out,
                               uint64_t *least) {
  enum { ROUNDS = 4 };
  uint64_t bytes, room;
  for (int round = 0; round < ROUNDS; round++) { /* upwards, until it is enough */
    HP_TRY(lower_cap(s, *least, floor, out, &bytes));
    if (bytes <= *least) break;
    *least = bytes;
  }
  for (int round = 0; round<ROUNDS && * least> floor && *least - 1 > refused; round++) {
    uint64_t less = *least - 1;
    HP_TRY(lower_cap(s, less, floor, out, &bytes));
    if (bytes > less) break;
    *least = less;
    if (bytes == less) continue;
    HP_TRY(lower_cap(s, bytes, floor, out, &room));
    if (room <= bytes) *least = bytes;
  }
  return HP_OK;
}

/* --- slower tiers -------------------------------------------------------------------------------
 */

/* Bytes that the program needs of a slower tier: named tensors and work memory. */
static uint64_t tier_bytes(const stage_state *s, const program *p, int tier) {
  return add_bytes(s->t->resident_bytes(s->t->context, p, tier), p->arena[tier]);
}

static uint64_t excess_bytes(const stage_state *s, const program *p, int tier) {
  uint64_t limit = s->t->limit[tier], bytes = limit ? tier_bytes(s, p, tier) : 0;
  return bytes > limit ? bytes - limit : 0;
}

/* A refusal with the limits as they were given: of all devices of a machine. */
static hp_status tier_too_small(const stage_state *s, const program *p, int tier) {
  static const char *const key[TIER_COUNT] = {"memory_limit", "host_limit", "flash_limit"};
  bool flash = s->t->limit[TIER_FLASH] > 0;
  uint64_t all = s->t->sharers > 1 ? (uint64_t)s->t->sharers : 1;
  uint64_t needed = tier_bytes(s, p, tier), round = all * 4096; /* of the parts of flash */
  uint64_t least = (needed * all + round - 1) / round * round;
  const char *other = tier == TIER_FLASH ? "" : ", or give folders of disks (flash, flash_limit)";
  if (tier == TIER_HOST && flash) other = "; the rest is on flash already";
  HP_FAIL(HP_ERR_OOM,
          "%s %llu bytes%s is too small: what does not stay on %s takes %llu bytes of tier %s "
          "(named tensors %llu, work memory %llu); set %s to %llu bytes or more%s",
          key[tier], (unsigned long long)(s->t->limit[tier] * all),
          all > 1 ? " of all devices" : "", all > 1 ? "each device" : "the device",
          (unsigned long long)needed, tier_name(tier),
          (unsigned long long)(needed - p->arena[tier]), (unsigned long long)p->arena[tier],
          key[tier], (unsigned long long)least, other);
}

/* The program within the limits of slower tiers, too: as much goes to flash as the host has no room
 * for.  Work values leave to the host or not as the plan has it, so that the bytes are found by
 * plans; each sends away more than the one before. */
static hp_status fit_tiers(stage_state *s, uint64_t room, uint64_t floor, program **out,
                           uint64_t *least) {
  enum { ROUNDS = 8 };
  s->offload.to_flash = 0;
  for (int round = 0;; round++) {
    HP_TRY(lower_cap(s, room, floor, out, least));
    if (*least > room) return HP_OK;
    uint64_t excess = excess_bytes(s, *out, TIER_HOST);
    int tier = excess ? TIER_HOST : TIER_FLASH;
    if (!excess && !excess_bytes(s, *out, TIER_FLASH)) return HP_OK;
    s->fits = false;
    bool all = s->offload.to_flash == UINT64_MAX;
    if (!excess || !s->t->limit[TIER_FLASH] || all) return tier_too_small(s, *out, tier);
    uint64_t more = excess > UINT64_MAX >> ROUNDS ? UINT64_MAX : excess << round;
    s->offload.to_flash = round < ROUNDS ? add_bytes(s->offload.to_flash, more) : UINT64_MAX;
  }
}

/* The program under the limit with what is not in use on other tiers. */
static hp_status find_offload(stage_state *s, program **out) {
  uint64_t kept = kept_bytes(s), limit = s->t->limit[TIER_DEVICE], floor, least;
  uint32_t at;
  s->offload = offload_options_of(s);
  HP_TRY(offload_least(s->p, &s->offload, &floor, &at));
  uint64_t room = !limit ? UINT64_C(1) << 58 : limit > kept ? limit - kept : 0;
  least = floor; /* less is refused without a plan */
  if (room >= floor) HP_TRY(fit_tiers(s, room, floor, out, &least));
  if (least <= room) return HP_OK;
  s->fits = false;
  if (s->goes_on) return too_small_to_offload(s, kept, least, at);
  HP_TRY(confirm_least(s, room, floor, out, &least));
  s->fits = false;
  (*out)->arena[TIER_DEVICE] = least;
  return too_small_to_offload(s, kept, least, at);
}

/* --- all orders ---------------------------------------------------------------------------------
 */

/* Puts s->p into the first order that fits; if none does, into the last, and the refusal names
 * the least bytes of the orders that are tried under every limit. */
static hp_status find_order(stage_state *s) {
  attempts a = {.least = UINT64_MAX};
  program *last = NULL;
  bool offloads = must_offload(s);
  hp_status st = HP_OK;
  find_limits(s, a.limit);
  if (!a.limit[TIER_DEVICE] && copies_between_tiers(s->p)) st = limit_to_serial(s, &a);
  if (!st && !a.limit[TIER_DEVICE] && s->c->pieces.len > 1) st = limit_to_pieces(s);
  for (int order = 0; !st && !offloads && order < ORDERS && !(last && s->fits); order++) {
    if (!is_worth_trying(s, &a, order)) continue;
    program_free(last);
    last = NULL;
    st = try_order(s, &a, order, &last);
  }
  offloads |= !st && !s->fits && may_offload(s);
  if (!st && offloads) st = find_offload(s, &last);
  if (last) {
    program_free(s->p);
    s->p = last;
  }
  if (st || s->fits) return st;
  s->p->arena[TIER_DEVICE] = a.least;
  return too_small(s, a.least);
}

/* By a policy: what leaves is more on each level, until it fits. */
static hp_status find_level(stage_state *s) {
  static const uint8_t stays[HP_MEMORY_CLASSES];
  int levels = offload_policy_levels(s->t->offload_policy);
  for (int level = 0;; level++) {
    program *placed = NULL;
    bool is_last = level + 1 >= levels;
    offload_policy_modes(s->t->offload_policy, level, s->t->offload ? s->t->offload : stays,
                         s->mode);
    s->goes_on = !is_last;
    if (!is_last) HP_TRY(program_copy(s->p, &placed));
    hp_status st = find_order(s);
    if (is_last || st != HP_ERR_OOM || s->fits) {
      program_free(placed);
      return st;
    }
    err_clear();
    program_free(s->p);
    s->p = placed;
  }
}

static hp_status dump_order(const stage_state *s) {
  for (int i = 0; stage_table[i].name; i++)
    if (stage_table[i].group == STAGE_ORDER) HP_TRY(write_dump(s, i, &s->text[i]));
  return HP_OK;
}

hp_status compile_for(compilation *c, const target *t, compiled *out) {
  *out = (compiled){0};
  HP_TRY(compile_lower(c, t));
  stage_state s = {.c = c,
                   .t = t,
                   .how = {.cluster = t->cluster,
                           .mesh = t->mesh,
                           .prefetch = c->options->prefetch}};
  hp_status st = program_copy(c->lowered, &s.p);
  if (!st) st = run_group(&s, STAGE_PLACE);
  s.how.workspace = s.workspace;
  if (!st) st = find_level(&s);
  if (!st) st = tier_check(s.p);
  if (!st && c->options->dump_dir) st = dump_order(&s);
  mem_free(s.workspace);
  for (int i = 0; i < STAGES; i++) str_free(&s.text[i]);
  *out = (compiled){s.p, s.kernels};
  return st;
}

void compile_free(const target *t, compiled *c) {
  if (c->kernels) t->release(c->kernels);
  program_free(c->p);
  *c = (compiled){0};
}
