#include "compile/offload_apply.h"

#include "compile/fetch_bound.h"
#include "compile/streams.h"

#include <string.h>

/* What a buffer of the old program is in the present stay of its item. */
typedef struct {
  uint32_t stay, buffer;
} current_buffer;

typedef struct {
  program *p;
  const offload_items *x;
  const offload_plan *plan;
  VEC(prog_inst) inst;
  VEC(uint32_t) args;
  VEC(list_edge) edges;
  fetch_edges fetches;     /* of steps, in the order of those that wait */
  size_t fetched;          /* edges that are emitted */
  current_buffer *current; /* by old buffer; buffer = PROG_NONE: none yet */
  bool *used;              /* by old buffer: the program's own buffer is that of a stay */
  uint32_t *store;         /* by item: the buffer on its tier, PROG_NONE: none yet */
  uint32_t *next;          /* by item: touches that are behind */
  uint32_t *stay_of;       /* by copy */
  uint32_t *step_at;       /* by step: its place in inst */
  uint32_t *done_at; /* by step: the place in inst of the last step up to it that is not one of the
                        host, and does not run beside those behind it; PROG_NONE: there is none */
  uint32_t *out_at[OFFLOAD_TIERS]; /* by number of the offload on its tier: place in inst */
  uint32_t outs[OFFLOAD_TIERS];    /* emitted */
  uint32_t *held;                  /* by item: 1 + the place of its last offload in this stay */
  uint32_t attr[OFFLOAD_TIERS];    /* of copies */
  uint32_t steps;                  /* emitted */
  size_t buffers;                  /* of the old program */
} applying;

static hp_status add_edge(applying *a, uint32_t before, uint32_t after) {
  return vec_push(&a->edges, ((list_edge){before, after})) ? HP_OK : HP_ERR_OOM;
}

/* --- buffers ------------------------------------------------------------------------------------
 */

static uint32_t add_buffer(applying *a, prog_buffer b, bool is_root) {
  if (is_root) b.root = (uint32_t)a->p->buffers.len;
  return vec_push(&a->p->buffers, b) ? (uint32_t)a->p->buffers.len - 1 : PROG_NONE;
}

static bool is_last_stay(const applying *a, uint32_t item, uint32_t stay) {
  const offload_item *it = &a->x->item[item];
  uint32_t last = a->plan->stay[it->touch0 + it->touches - 1];
  for (size_t k = a->plan->copies; k-- > 0;) {
    const offload_copy *c = &a->plan->copy[k];
    if (c->item == item && c->in && c->touch == it->touches) return stay == last + 1;
  }
  return stay == last;
}

/* The device's memory for the content of a `whole` of the old program in a stay. */
static uint32_t find_whole(applying *a, uint32_t whole, uint32_t stay) {
  current_buffer *c = &a->current[whole];
  if (c->buffer != PROG_NONE && c->stay == stay) return c->buffer;
  uint32_t item = a->x->item_of[whole];
  prog_buffer b = a->p->buffers.at[whole];
  bool is_state = b.place == PLACE_STATE;
  b.place = PLACE_WORK;
  b.tier = TIER_DEVICE;
  b.flags = 0;
  b.name = 0;
  b.carries = 0;
  b.at = 0;
  if (a->plan->carried[item]) {
    b.carries = a->x->state[item] + 1;
    if (stay == 0) b.flags |= BUFFER_CARRIED_IN;
    if (is_last_stay(a, item, stay)) b.flags |= BUFFER_CARRIED_OUT;
  }
  c->stay = stay;
  if (is_state || a->used[whole]) c->buffer = add_buffer(a, b, true);
  else {
    a->used[whole] = true;
    a->p->buffers.at[whole] = b;
    c->buffer = whole;
  }
  return c->buffer;
}

/* What the old view is of its memory, which is now buffer `in`. */
static uint32_t add_view(applying *a, uint32_t old, uint32_t in) {
  prog_buffer b = a->p->buffers.at[in], view = a->p->buffers.at[old];
  b.type = view.type;
  b.bytes = view.bytes;
  b.at = view.at - a->p->buffers.at[a->x->whole[old]].at;
  b.root = in;
  return add_buffer(a, b, false);
}

/* What an argument of the old program is now. */
static uint32_t find_buffer(applying *a, uint32_t old, uint32_t stay) {
  uint32_t whole = a->x->whole[old];
  current_buffer *c = &a->current[old];
  if (c->buffer != PROG_NONE && c->stay == stay) return c->buffer;
  uint32_t in = find_whole(a, whole, stay);
  if (old == whole || in == PROG_NONE) return in;
  c->stay = stay;
  c->buffer = add_view(a, old, in);
  return c->buffer;
}

/* The buffer of an item on its tier. */
static uint32_t find_store(applying *a, uint32_t item, uint32_t whole) {
  if (a->store[item] != PROG_NONE) return a->store[item];
  prog_buffer b = a->p->buffers.at[whole];
  b.place = PLACE_WORK;
  b.tier = (uint8_t)(TIER_HOST + a->x->item[item].tier);
  b.flags = 0;
  b.name = 0;
  a->store[item] = add_buffer(a, b, true);
  return a->store[item];
}

/* Inputs and outputs are host memory; named tensors are on their tier. */
static hp_status make_stores(applying *a) {
  program *p = a->p;
  for (uint32_t i = 0; i < a->x->problem.items; i++) a->store[i] = PROG_NONE;
  for (uint32_t b = 0; b < a->buffers; b++) {
    prog_buffer f = p->buffers.at[b];
    uint32_t whole = a->x->whole[b], item = a->x->item_of[whole];
    bool is_io = f.flags & (BUFFER_INPUT | BUFFER_OUTPUT);
    if (f.place == PLACE_STATE && item != PROG_NONE) {
      p->buffers.at[b].tier = (uint8_t)(TIER_HOST + a->x->item[item].tier);
      if (whole == b) a->store[item] = b;
    } else if (f.root != b && is_io && item != PROG_NONE) {
      p->buffers.at[b].flags = 0; /* a view of what is on the device for a while */
    } else if (is_io && item != PROG_NONE) {
      f.tier = TIER_HOST;
      a->store[item] = add_buffer(a, f, true);
      if (a->store[item] == PROG_NONE) return HP_ERR_OOM;
      p->buffers.at[b].flags = 0;
      p->buffers.at[b].name = 0;
    } else if (a->x->away[f.root]) p->buffers.at[b].tier = a->x->away[f.root];
  }
  return HP_OK;
}

/* --- instructions -------------------------------------------------------------------------------
 */

static hp_status emit(applying *a, prog_inst n, const uint32_t *arg) {
  n.arg0 = (uint32_t)a->args.len;
  n.wait0 = n.n_wait = 0;
  for (int k = 0; k < n.n_in + n.n_out; k++)
    if (arg[k] == PROG_NONE || !vec_push(&a->args, arg[k])) return HP_ERR_OOM;
  return vec_push(&a->inst, n) ? HP_OK : HP_ERR_OOM;
}

/* The touch of an item by the step that is emitted. */
static uint32_t present_touch(const applying *a, uint32_t item) {
  return a->x->item[item].touch0 + a->next[item];
}

static uint32_t item_of_arg(const applying *a, const prog_inst *n, int k) {
  return a->x->item_of[a->x->whole[program_args(a->p, n)[k]]];
}

/* Each item that step i touches, of the arguments of instruction `of`, is behind its touch.  What
 * overwrites a content waits until it is copied. */
static hp_status pass_touches(applying *a, uint32_t of, uint32_t i, uint32_t at) {
  const prog_inst *n = program_inst(a->p, of);
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    uint32_t item = item_of_arg(a, n, k);
    if (item == PROG_NONE || a->next[item] == a->x->item[item].touches) continue;
    const offload_touch *t = &a->x->touch[present_touch(a, item)];
    if (t->step != i) continue; /* another operand of the same item */
    a->next[item]++;
    if (!(t->access & OFFLOAD_WRITE) || !a->held[item]) continue;
    HP_TRY(add_edge(a, a->held[item] - 1, at));
    a->held[item] = 0;
  }
  return HP_OK;
}

static hp_status emit_step(applying *a, uint32_t i) {
  const offload_overlap *o = &a->x->overlap;
  uint32_t before = i ? a->done_at[i - 1] : PROG_NONE;
  bool overlaps = o->until != NULL;
  uint32_t ends;
  const uint32_t *ended = offload_ends_at(o, i, &ends);
  a->done_at[i] = before;
  a->steps++;
  if (offload_is_of_host(a->x, i)) return HP_OK;
  prog_inst n = *program_inst(a->p, i);
  uint32_t arg[510], at = (uint32_t)a->inst.len;
  for (int k = 0; k < n.n_in + n.n_out; k++) {
    uint32_t item = item_of_arg(a, program_inst(a->p, i), k);
    arg[k] = program_args(a->p, program_inst(a->p, i))[k];
    if (item != PROG_NONE) arg[k] = find_buffer(a, arg[k], a->plan->stay[present_touch(a, item)]);
  }
  if (overlaps && op_flags((op_id)n.op) & OPF_RENDEZVOUS) n.stream = STREAM_COMM;
  else if (!(op_flags((op_id)n.op) & OPF_MOVE)) n.stream = STREAM_COMPUTE;
  HP_TRY(emit(a, n, arg));
  a->step_at[i] = at;
  if (!offload_runs_beside(o, i)) a->done_at[i] = at;
  if (overlaps && before != PROG_NONE) HP_TRY(add_edge(a, before, at));
  if (ends) HP_TRY(add_edge(a, a->step_at[ended[ends - 1]], at));
  for (; a->fetched < a->fetches.len && a->fetches.at[a->fetched].after == i; a->fetched++)
    HP_TRY(add_edge(a, a->step_at[a->fetches.at[a->fetched].before], at));
  for (int t = 0; t < OFFLOAD_TIERS; t++)
    if (a->plan->after[i][t]) HP_TRY(add_edge(a, a->out_at[t][a->plan->after[i][t] - 1], at));
  HP_TRY(pass_touches(a, i, i, at));
  for (uint32_t k = 0; k < ends; k++) HP_TRY(pass_touches(a, ended[k], i, at));
  return HP_OK;
}

/* What an argument of an instruction of the host is there. */
static uint32_t find_on_host(applying *a, uint32_t old) {
  uint32_t whole = a->x->whole[old], item = a->x->item_of[whole];
  if (a->p->buffers.at[old].place == PLACE_STATE || item == PROG_NONE) return old;
  uint32_t store = find_store(a, item, whole);
  if (old == whole || store == PROG_NONE) return store;
  uint32_t view = add_view(a, old, store);
  if (view != PROG_NONE) a->p->buffers.at[view].flags = 0; /* its root is the input */
  return view;
}

/* The work of the host before all else, or behind it. */
static hp_status emit_host(applying *a, size_t from, size_t to) {
  for (size_t h = from; h < to; h++) {
    prog_inst n = *program_inst(a->p, a->x->host_inst[h]);
    uint32_t arg[510];
    for (int k = 0; k < n.n_in + n.n_out; k++)
      arg[k] = find_on_host(a, program_args(a->p, program_inst(a->p, a->x->host_inst[h]))[k]);
    n.stream = STREAM_HOST;
    HP_TRY(emit(a, n, arg));
  }
  return HP_OK;
}

/* The place in the model of a copy: that of the touch before an offload, or after a fetch. */
static const prog_inst *neighbour(const applying *a, const offload_copy *c) {
  const offload_item *it = &a->x->item[c->item];
  uint32_t k = c->touch;
  if (k == it->touches || (!c->in && k)) k--;
  return program_inst(a->p, a->x->touch[it->touch0 + k].step);
}

static hp_status emit_copy(applying *a, size_t k) {
  const offload_copy *c = &a->plan->copy[k];
  const offload_item *it = &a->x->item[c->item];
  uint32_t at = (uint32_t)a->inst.len, touch = it->touch0 + c->touch;
  bool before = c->in ? c->touch < it->touches : !c->touch; /* named by the touch that follows */
  uint32_t whole = before ? a->x->before[touch] : a->x->after[touch - 1];
  uint32_t here = find_whole(a, whole, a->stay_of[k]), there = find_store(a, c->item, whole);
  prog_inst n = *neighbour(a, c);
  n.op = c->in ? OP_FETCH : OP_OFFLOAD;
  n.stream = (uint8_t)(c->in ? STREAM_COPY_IN : STREAM_COPY_OUT);
  if (it->tier) n.stream = (uint8_t)(c->in ? STREAM_FLASH_IN : STREAM_FLASH_OUT);
  n.n_in = n.n_out = 1;
  n.kernel = (uint32_t)program_kernels(a->p);
  n.attr = a->attr[it->tier];
  n.engine = 0;
  n.workspace = PROG_NONE;
  n.flops = 0;
  n.bytes = (double)a->p->buffers.at[whole].bytes;
  HP_TRY(emit(a, n, (uint32_t[]){c->in ? there : here, c->in ? here : there}));
  if (c->after_step && a->done_at[c->after_step - 1] != PROG_NONE)
    HP_TRY(add_edge(a, a->done_at[c->after_step - 1], at));
  for (int t = 0; c->in && t < OFFLOAD_TIERS; t++)
    if (c->after[t]) HP_TRY(add_edge(a, a->out_at[t][c->after[t] - 1], at));
  if (c->in) a->held[c->item] = 0;
  else {
    a->held[c->item] = at + 1;
    a->out_at[it->tier][a->outs[it->tier]++] = at;
  }
  return HP_OK;
}

/* --- the order ----------------------------------------------------------------------------------
 *
 * Steps in their order, copies in the order of their starts; each after what it waits for. */

static bool is_ready(const applying *a, const offload_copy *c) {
  if (c->after_step > a->steps) return false;
  for (int t = 0; c->in && t < OFFLOAD_TIERS; t++)
    if (c->after[t] > a->outs[t]) return false;
  return true;
}

/* Copies up to the last that a step needs come before it. */
static hp_status emit_all(applying *a) {
  const offload_plan *plan = a->plan;
  size_t k = 0;
  HP_TRY(emit_host(a, 0, a->x->problem.before));
  for (uint32_t i = 0; i < a->x->problem.n; i++) {
    while (k < plan->copies && plan->copy[k].after_step <= i &&
           (plan->copy[k].start_s < plan->start_s[i] || plan->copy[k].end_s <= plan->start_s[i])) {
      HP_ASSERT(is_ready(a, &plan->copy[k]));
      HP_TRY(emit_copy(a, k++));
    }
    HP_TRY(emit_step(a, i));
  }
  for (; k < plan->copies; k++) HP_TRY(emit_copy(a, k));
  return emit_host(a, a->x->problem.before, a->x->problem.hosts);
}

/* The stay that each copy belongs to: a fetch begins one. */
static void find_stays(applying *a) {
  const offload_plan *plan = a->plan;
  for (size_t k = 0; k < plan->copies; k++) {
    const offload_copy *c = &plan->copy[k];
    const offload_item *it = &a->x->item[c->item];
    bool first = c->in ? c->touch < it->touches : !c->touch;
    uint32_t touch = it->touch0 + (first ? c->touch : c->touch - 1);
    a->stay_of[k] = plan->stay[touch] + (c->in && !first);
    if (!c->in && first) a->stay_of[k] = 0; /* carried from the run before */
  }
}

static hp_status make_attrs(applying *a) {
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    attr_record r = {.n = 0};
    attr_put_int(&r, TIER_HOST + t);
    a->attr[t] = attr_intern(a->p->names, &r);
  }
  return graph_status(a->p->names);
}

static hp_status run(applying *a) {
  program *p = a->p;
  size_t items = a->x->problem.items, n = p->insts.len, copies = a->plan->copies;
  a->buffers = p->buffers.len;
  a->current = mem_calloc(a->buffers, sizeof *a->current);
  a->used = mem_calloc(a->buffers, sizeof *a->used);
  a->store = mem_calloc(items, sizeof *a->store);
  a->next = mem_calloc(items, sizeof *a->next);
  a->held = mem_calloc(items, sizeof *a->held);
  a->stay_of = mem_calloc(copies, sizeof *a->stay_of);
  a->step_at = mem_calloc(n, sizeof *a->step_at);
  a->done_at = mem_calloc(n, sizeof *a->done_at);
  bool made = a->current && a->used && a->store && a->next && a->held && a->stay_of && a->step_at &&
              a->done_at;
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    a->out_at[t] = mem_calloc(copies, sizeof *a->out_at[t]);
    made = made && a->out_at[t];
  }
  HP_TRY_MEM(made);
  for (size_t b = 0; b < a->buffers; b++) a->current[b].buffer = PROG_NONE;
  HP_TRY(fetch_bound(p, &a->fetches));
  HP_TRY(make_attrs(a));
  HP_TRY(make_stores(a));
  find_stays(a);
  HP_TRY(emit_all(a));
  if (!vec_reserve(&p->insts, a->inst.len - p->insts.len)) return HP_ERR_OOM;
  memcpy(p->insts.at, a->inst.at, a->inst.len * sizeof *a->inst.at);
  p->insts.len = a->inst.len;
  p->args.len = 0;
  if (!vec_reserve(&p->args, a->args.len)) return HP_ERR_OOM;
  memcpy(p->args.at, a->args.at, a->args.len * sizeof *a->args.at);
  p->args.len = a->args.len;
  return place_waits(p, a->edges.at, a->edges.len);
}

hp_status offload_apply(program *p, const offload_items *x, const offload_plan *plan) {
  applying a = {.p = p, .x = x, .plan = plan};
  hp_status st = run(&a);
  vec_free(&a.inst);
  vec_free(&a.args);
  vec_free(&a.edges);
  vec_free(&a.fetches);
  mem_free(a.current);
  mem_free(a.used);
  mem_free(a.store);
  mem_free(a.next);
  mem_free(a.held);
  mem_free(a.stay_of);
  mem_free(a.step_at);
  mem_free(a.done_at);
  for (int t = 0; t < OFFLOAD_TIERS; t++) mem_free(a.out_at[t]);
  return st;
}
