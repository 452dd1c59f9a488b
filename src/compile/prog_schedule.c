#include "compile/prog_schedule.h"

#include "compile/fetch_bound.h"
#include "compile/order.h"
#include "compile/row_order.h"
#include "compile/streams.h"
#include "sim/cost.h"

#include <string.h>

/* The share of computation below which exposed communication is not worth another order. */
static const double HIDDEN = 0.002;

typedef struct {
  program *p;
  const schedule_options *o;
  order_problem q;
  bool has_transfers;  /* between meshes */
  uint32_t micros;     /* micro-batches, if there are several, else 0 */
  uint64_t *workspace; /* by instruction */
  bool *given;         /* by buffer: its contents depend on inputs of the run */
  uint32_t *last;      /* by instruction: the last that reads what it makes, or what is made of that
                          without inputs of the run; itself when there is none */
} scheduling;

static bool is_rendezvous(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_RENDEZVOUS; }
static bool is_transfer(const prog_inst *n) { return op_flags((op_id)n->op) & OPF_TRANSFER; }

static uint32_t root_at(const program *p, const prog_inst *n, int k) {
  return p->buffers.at[program_args(p, n)[k]].root;
}

/* --- prefetch -----------------------------------------------------------------------------------
 *
 * Gathers that depend on params alone could all start at once.  They may be ahead of their use by
 * a number of bytes: a gather waits for the last use of the one that lies this far before it. */

/* Instructions whose operands depend on inputs of the run get last[i] = i, the others the last
 * use of their results. */
static void find_last_uses(scheduling *w) {
  const program *p = w->p;
  for (size_t b = 0; b < p->buffers.len; b++) w->given[b] = p->buffers.at[b].flags & BUFFER_INPUT;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    bool given = false;
    for (int k = 0; k < n->n_in; k++) given |= w->given[root_at(p, n, k)];
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) w->given[root_at(p, n, k)] |= given;
  }
  for (uint32_t i = (uint32_t)p->insts.len; i-- > 0;) {
    const prog_inst *n = program_inst(p, i);
    w->last[i] = i;
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
      uint32_t b = root_at(p, n, k), v = w->q.value_of[b];
      if (w->given[b] || v == PROG_NONE) continue;
      for (uint32_t u = w->q.use0[v]; u < w->q.use0[v + 1]; u++)
        if (w->last[w->q.use[u]] > w->last[i]) w->last[i] = w->last[w->q.use[u]];
    }
  }
}

static bool is_prefetch(const scheduling *w, const prog_inst *n) {
  return n->op == OP_ALL_GATHER && !w->given[root_at(w->p, n, 1)];
}

static uint64_t result_bytes(const scheduling *w, const prog_inst *n) {
  return program_arg(w->p, n, 1)->bytes;
}

/* The bytes of the gathers of the largest block, in one phase, and of the largest gather. */
static uint64_t usual_window(const scheduling *w) {
  uint64_t block = 0, most = 0, largest = 0;
  const prog_inst *before = NULL;
  for (size_t i = 0; i < w->p->insts.len; i++) {
    const prog_inst *n = program_inst(w->p, i);
    if (!is_prefetch(w, n)) continue;
    bool same = before && n->block && before->block == n->block && before->phase == n->phase;
    block = same ? block + result_bytes(w, n) : result_bytes(w, n);
    if (n->block && block > most) most = block;
    if (result_bytes(w, n) > largest) largest = result_bytes(w, n);
    before = n;
  }
  return most + largest;
}

/* At most `window` bytes of consecutive gathers are running or wait for their use.  They keep
 * their order, so a wait of one also holds for the later ones. */
static hp_status bound_prefetch(scheduling *w) {
  uint64_t window = w->o->prefetch ? w->o->prefetch : usual_window(w), held = 0;
  uint32_t *row = mem_calloc(w->q.n, sizeof *row), first = 0, end = 0;
  hp_status st = row ? HP_OK : HP_ERR_OOM;
  for (uint32_t i = 0; !st && i < w->q.n; i++) {
    const prog_inst *n = program_inst(w->p, i);
    if (!is_prefetch(w, n)) continue;
    if (end) st = order_after(&w->q, row[end - 1], i);
    row[end++] = i;
    for (held += result_bytes(w, n); !st && held > window && first < end - 1; first++) {
      held -= result_bytes(w, program_inst(w->p, row[first]));
      if (w->last[row[first]] < i) st = order_after(&w->q, w->last[row[first]], i);
    }
  }
  mem_free(row);
  return st;
}

/* Fetches of blocks depend on the lists of a run alone. */
static hp_status bound_blocks(scheduling *w) {
  fetch_edges edges = {0};
  hp_status st = fetch_bound(w->p, &edges);
  for (size_t k = 0; !st && k < edges.len; k++)
    st = order_after(&w->q, edges.at[k].before, edges.at[k].after);
  vec_free(&edges);
  return st;
}

/* --- micro-batches ------------------------------------------------------------------------------
 *
 * All forwards of a step could start at once.  Those that begin too early take the memory in which
 * a micro-batch would overlap with its neighbour. */

/* Which micro-batches overlap. */
typedef enum { MICROS_ALL, MICROS_NEXT, MICROS_NONE } micro_overlap;

enum { FORWARD_END, BACKWARD_END, ENDS };

/* The last forward and backward instruction of each micro-batch; PROG_NONE: it has none. */
static void find_ends(const program *p, uint32_t micros, uint32_t (*end)[ENDS]) {
  for (uint32_t m = 0; m < micros; m++) end[m][FORWARD_END] = end[m][BACKWARD_END] = PROG_NONE;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (n->micro && n->phase != PHASE_UPDATE)
      end[n->micro - 1][n->phase == PHASE_FORWARD ? FORWARD_END : BACKWARD_END] = i;
  }
}

/* Does an operand come from an instruction of the same micro-batch? */
static bool reads_own(const scheduling *w, uint32_t i) {
  const prog_inst *n = program_inst(w->p, i);
  for (int k = 0; k < n->n_in; k++) {
    uint32_t v = w->q.value_of[root_at(w->p, n, k)];
    if (v != PROG_NONE && !w->q.given[v] && program_inst(w->p, w->q.def[v])->micro == n->micro)
      return true;
  }
  return false;
}

/* A micro-batch begins when the one before it has ended, or, with MICROS_NEXT, when its forward has
 * and the one before that has ended. */
static hp_status bound_micros(scheduling *w, micro_overlap which) {
  uint32_t(*end)[ENDS] = mem_calloc(w->micros, sizeof *end);
  HP_TRY_MEM(end);
  find_ends(w->p, w->micros, end);
  hp_status st = HP_OK;
  for (uint32_t i = 0; !st && i < w->q.n; i++) {
    const prog_inst *n = program_inst(w->p, i);
    if (n->micro < 2 || reads_own(w, i)) continue;
    uint32_t before = n->micro - 2, forward = end[before][FORWARD_END], last = PROG_NONE;
    if (which == MICROS_NONE) last = end[before][BACKWARD_END];
    else if (before) last = end[before - 1][BACKWARD_END];
    if (forward < i) st = order_after(&w->q, forward, i);
    if (!st && last < i) st = order_after(&w->q, last, i);
  }
  mem_free(end);
  return st;
}

/* --- transfers between meshes -------------------------------------------------------------------
 *
 * The linked program has them in the one order of all meshes of the pipeline.  Devices that keep it
 * never wait for each other, whatever the order of the rest is; computations keep that of the
 * schedule's rows. */

static hp_status keep_transfers(scheduling *w) {
  uint32_t before = PROG_NONE;
  w->has_transfers = false;
  for (uint32_t i = 0; i < w->q.n; i++) {
    if (!is_transfer(program_inst(w->p, i))) continue;
    if (before != PROG_NONE) HP_TRY(order_after(&w->q, before, i));
    before = i;
    w->has_transfers = true;
  }
  return HP_OK;
}

/* --- the order -------------------------------------------------------------------------------- */

/* Bytes that the order may take of each tier.  Without a limit this is what the instructions
 * need in their current order: a copy to another tier must not cost more memory than it saves.
 * With overlapped collectives it is half as much again, plus the prefetched gathers. */
static hp_status find_caps(scheduling *w, bool overlaps, uint64_t cap[TIER_COUNT]) {
  static const uint64_t none[TIER_COUNT];
  uint64_t needed[TIER_COUNT];
  memcpy(cap, w->o->cap, TIER_COUNT * sizeof *cap);
  if (cap[TIER_DEVICE]) return HP_OK;
  HP_TRY(order_schedule(&w->q, w->workspace, none, true, NULL, needed));
  cap[TIER_DEVICE] = needed[TIER_DEVICE];
  if (w->o->usual > cap[TIER_DEVICE]) cap[TIER_DEVICE] = w->o->usual;
  if (!overlaps || w->o->usual) return HP_OK;
  cap[TIER_DEVICE] += cap[TIER_DEVICE] / 2;
  cap[TIER_DEVICE] += w->o->prefetch ? w->o->prefetch : usual_window(w);
  return HP_OK;
}

/* Applies the order; its additional conditions become waits. */
static hp_status apply(scheduling *w, const list_schedule *s) {
  uint32_t *place = mem_calloc(w->q.n, sizeof *place);
  HP_TRY_MEM(place);
  hp_status st = HP_OK;
  for (size_t k = 0; !st && k < s->n_edges; k++)
    st = order_after(&w->q, s->edge[k].before, s->edge[k].after);
  for (uint32_t i = 0; i < w->q.n; i++) place[s->order[i]] = i;
  for (size_t k = 0; k < w->q.edges.len; k++)
    w->q.edges.at[k] = (list_edge){place[w->q.edges.at[k].before], place[w->q.edges.at[k].after]};
  mem_free(place);
  if (!st) st = order_apply(w->p, s->order);
  return st ? st : place_waits(w->p, w->q.edges.at, w->q.edges.len);
}

static hp_status prepare(scheduling *w) {
  w->given = mem_calloc(w->p->buffers.len, sizeof *w->given);
  w->last = mem_calloc(w->p->insts.len, sizeof *w->last);
  w->workspace = mem_calloc(w->p->insts.len, sizeof *w->workspace);
  if (!w->given || !w->last || !w->workspace) return HP_ERR_OOM;
  HP_TRY(order_build(w->p, &w->q));
  for (size_t i = 0; i < w->q.n; i++) {
    const prog_inst *n = program_inst(w->p, i);
    w->q.duration[i] = cost_inst(w->o->cluster, w->o->mesh, w->p, n);
    if (w->o->workspace) w->workspace[i] = w->o->workspace[n->kernel];
  }
  for (size_t i = 0; i < w->q.n; i++)
    if (program_inst(w->p, i)->micro > w->micros) w->micros = program_inst(w->p, i)->micro;
  find_last_uses(w);
  return keep_transfers(w);
}

/* Seconds that instructions of the computation stream take. */
static double computation_s(const scheduling *w) {
  double sum = 0;
  for (size_t i = 0; i < w->q.n; i++)
    if (w->q.stream[i] == STREAM_COMPUTE) sum += w->q.duration[i];
  return sum;
}

/* *s overlaps all micro-batches; replaces it if fewer are faster under the same caps. */
static hp_status order_micros(scheduling *w, const uint64_t cap[TIER_COUNT], list_schedule *s) {
  size_t edges = w->q.edges.len;
  micro_overlap best = MICROS_ALL;
  double enough = computation_s(w) * (1 + HIDDEN);
  for (micro_overlap which = MICROS_NEXT; which <= MICROS_NONE && s->makespan_s > enough; which++) {
    list_schedule other = {0};
    w->q.edges.len = edges;
    HP_TRY(bound_micros(w, which));
    HP_TRY(order_schedule(&w->q, w->workspace, cap, false, &other, NULL));
    if (other.fits && other.makespan_s < s->makespan_s) {
      list_schedule worse = *s;
      *s = other;
      other = worse;
      best = which;
    }
    list_schedule_free(&other);
  }
  w->q.edges.len = edges;
  return best == MICROS_ALL ? HP_OK : bound_micros(w, best);
}

/* The fastest order under the caps. */
static hp_status order_fastest(scheduling *w, bool overlaps, list_schedule *s) {
  uint64_t cap[TIER_COUNT];
  HP_TRY(find_caps(w, overlaps, cap));
  if (overlaps) HP_TRY(bound_prefetch(w));
  HP_TRY(bound_blocks(w));
  if (w->has_transfers && overlaps) HP_TRY(row_order_bind(&w->q));
  bool keeps = w->has_transfers && !overlaps;
  HP_TRY(order_schedule(&w->q, w->workspace, cap, keeps, s, NULL));
  bool micros = overlaps && w->micros && !w->has_transfers;
  return micros && s->fits ? order_micros(w, cap, s) : HP_OK;
}

/* The order that needs the least device memory. */
static hp_status order_minimum(scheduling *w, list_schedule *s) {
  uint64_t cap[TIER_COUNT] = {[TIER_DEVICE] = 1}, needed[TIER_COUNT];
  HP_TRY(order_schedule(&w->q, w->workspace, cap, false, s, needed));
  if (s->fits) return HP_OK;
  cap[TIER_DEVICE] = needed[TIER_DEVICE];
  return order_schedule(&w->q, w->workspace, cap, false, s, NULL);
}

/* Each instruction waits for the one before it. */
static hp_status wait_one_by_one(program *p) {
  size_t n = p->insts.len;
  list_edge *edge = mem_calloc(n + 1, sizeof *edge);
  HP_TRY_MEM(edge);
  for (uint32_t i = 1; i < n; i++) edge[i - 1] = (list_edge){i - 1, i};
  hp_status st = place_waits(p, edge, n ? n - 1 : 0);
  mem_free(edge);
  return st;
}

/* Puts collectives with a rendezvous and transfers on streams of their own, or on that of
 * computation; returns whether there are collectives. */
static bool put_communication(program *p, bool overlapped) {
  bool any = false;
  for (size_t i = 0; i < p->insts.len; i++) {
    prog_inst *n = &p->insts.at[i];
    if (is_transfer(n)) n->stream = overlapped ? STREAM_P2P : STREAM_COMPUTE;
    if (!is_rendezvous(n)) continue;
    n->stream = overlapped ? STREAM_COMM : STREAM_COMPUTE;
    any = true;
  }
  return any;
}

bool schedule_overlaps(const program *p) {
  for (size_t i = 0; i < p->insts.len; i++)
    if (p->insts.at[i].stream == STREAM_COMM) return true;
  return false;
}

static hp_status order(scheduling *w, schedule_kind kind, bool overlaps, bool *fits) {
  list_schedule s = {0};
  HP_TRY(prepare(w));
  hp_status st = kind == SCHEDULE_FASTEST ? order_fastest(w, overlaps, &s) : order_minimum(w, &s);
  *fits = s.fits;
  if (!st && s.fits) {
    st = kind == SCHEDULE_FASTEST ? apply(w, &s) : order_apply(w->p, s.order);
    if (!st && kind == SCHEDULE_MINIMUM) st = wait_one_by_one(w->p);
  }
  list_schedule_free(&s);
  return st;
}

static void scheduling_free(scheduling *w) {
  order_free(&w->q);
  mem_free(w->workspace);
  mem_free(w->given);
  mem_free(w->last);
}

hp_status schedule_program(program *p, schedule_kind kind, const schedule_options *o, bool *fits) {
  scheduling w = {.p = p, .o = o};
  bool fastest = kind == SCHEDULE_FASTEST;
  bool overlaps = put_communication(p, fastest) && fastest;
  *fits = true;
  if (kind == SCHEDULE_SERIAL) return wait_one_by_one(p);
  if (fastest && program_has_one_stream(p)) return place_waits(p, NULL, 0);
  hp_status st = order(&w, kind, overlaps, fits);
  scheduling_free(&w);
  return st;
}

/* Transfers between computations, in the order of both. */
static hp_status keep_computations(scheduling *w) {
  uint32_t before = PROG_NONE;
  for (uint32_t i = 0; i < w->q.n; i++) {
    if (w->q.stream[i] != STREAM_COMPUTE) continue;
    if (before != PROG_NONE) HP_TRY(order_after(&w->q, before, i));
    before = i;
  }
  return HP_OK;
}

hp_status schedule_times(program *p, const schedule_options *o, inst_times *t) {
  scheduling w = {.p = p, .o = o};
  list_schedule s = {0};
  put_communication(p, true);
  for (size_t i = 0; i < p->insts.len; i++)
    if (is_transfer(&p->insts.at[i])) p->insts.at[i].stream = STREAM_COMPUTE;
  hp_status st = prepare(&w);
  if (!st && w.has_transfers) st = keep_computations(&w);
  if (!st) st = order_fastest(&w, true, &s);
  if (!st && !s.fits) HP_FAIL_GOTO(st, HP_ERR_INTERNAL, "no order without a cap");
  for (size_t i = 0; !st && i < w.q.n; i++) {
    uint32_t k = s.order[i];
    t[i] = (inst_times){s.start_s[k], s.start_s[k], s.end_s[k], 0};
  }
  if (!st) st = order_apply(p, s.order);
done:
  list_schedule_free(&s);
  scheduling_free(&w);
  return st;
}

hp_status schedule_peak(program *p, const schedule_options *o, uint64_t *bytes) {
  scheduling w = {.p = p, .o = o};
  list_schedule s = {0};
  bool overlaps = put_communication(p, true);
  hp_status st = prepare(&w);
  if (!st) st = order_fastest(&w, overlaps, &s);
  *bytes = s.peak[TIER_DEVICE];
  list_schedule_free(&s);
  scheduling_free(&w);
  return st;
}
