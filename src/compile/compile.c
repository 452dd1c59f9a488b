#include "compile/compile.h"

#include "base/io.h"
#include "base/milestone.h"
#include "compile/free_early.h"
#include "compile/lower.h"
#include "compile/offload_find.h"
#include "compile/offload_policy.h"
#include "compile/place_updates.h"
#include "compile/slice_updates.h"
#include "compile/stage_state.h"
#include "compile/state_class.h"
#include "compile/streams.h"
#include "ir/print.h"
#include "ops/ops.h"
#include "prog/tier_check.h"
#include "shard/dispatch.h"

#include <string.h>

/* The pieces and rows of a step; arrays by piece. */
struct step_link {
  compilation *const *piece;
  size_t pieces;
  const link_rows *rows;
  const program **lowered;
  const hp_graph **graph;
  uint32_t *kernel0;
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
  s->workspace = mem_calloc(program_kernels(s->p) + 1, sizeof *s->workspace); /* copies: none */
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

/* Steps of the search for offsets: with offloading, to offload more is better than a long search;
 * without a limit, only the last few bytes are at stake. */
enum { OFFLOAD_EFFORT = 16000000, UNLIMITED_EFFORT = 4000000 };

static hp_status stage_place(stage_state *s) {
  if (!s->fits) return HP_OK;
  memory_options o = {.limit = s->how.cap[TIER_DEVICE], .kept = s->t->offsets};
  if (s->kind == SCHEDULE_OFFLOAD) o.limit = s->offload.room, o.tight = true;
  if (!s->t->limit[TIER_DEVICE] && o.limit) o.effort = UNLIMITED_EFFORT;
  else if (s->t->limit[TIER_DEVICE] && offload_may(s)) o.effort = OFFLOAD_EFFORT, o.must_fit = true;
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

/* --- all orders ---------------------------------------------------------------------------------
 */

/* *last: the first order that fits without offloading or, if none does, the last one. */
static hp_status try_orders(stage_state *s, attempts *a, program **last) {
  for (int order = 0; order < ORDERS && !(*last && s->fits); order++) {
    if (!is_worth_trying(s, a, order)) continue;
    program_free(*last);
    *last = NULL;
    HP_TRY(try_order(s, a, order, last));
  }
  return HP_OK;
}

/* Puts s->p into the first order that fits; if none does, into the last, and the refusal names
 * the least bytes of the orders that are tried under every limit. */
static hp_status find_order(stage_state *s) {
  attempts a = {.least = UINT64_MAX};
  program *last = NULL;
  bool offloads = offload_must(s);
  hp_status st = HP_OK;
  find_limits(s, a.limit);
  if (!a.limit[TIER_DEVICE] && copies_between_tiers(s->p)) st = limit_to_serial(s, &a);
  if (!st && !a.limit[TIER_DEVICE] && s->c->pieces.len > 1) st = limit_to_pieces(s);
  if (!st && !offloads) st = try_orders(s, &a, &last);
  offloads |= !st && !s->fits && offload_may(s);
  if (!st && offloads) st = offload_find(s, &last);
  else if (!st && s->fits && a.limit[TIER_DEVICE] && !a.overlapped && offload_may(s))
    st = offload_find_faster(s, &last);
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
                   .run = run_group,
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
