#include "compile/offload_items.h"

#include "compile/inplace.h"
#include "compile/offload_host.h"
#include "compile/offload_policy.h"
#include "compile/offload_to_flash.h"
#include "hyperparallel.h"
#include "prog/program_slices.h"
#include "sim/cost.h"

#include <stdlib.h>
#include <string.h>

/* Instructions that touch each `whole` first and last; PROG_NONE: none does.  busy: those that wait
 * for the last collective that still reads it. */
typedef struct {
  uint32_t *first, *last, *busy;
} span;

static void find_spans(const offload_items *x, span *s) {
  const program *p = x->p;
  for (size_t b = 0; b < p->buffers.len; b++) s->first[b] = s->last[b] = PROG_NONE;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out && !offload_is_of_host(x, i); k++) {
      uint32_t b = x->whole[program_args(p, n)[k]];
      if (s->first[b] == PROG_NONE) s->first[b] = i;
      s->last[b] = i;
      if (offload_runs_beside(&x->overlap, i)) s->busy[b] = x->overlap.until[i];
    }
  }
  for (uint32_t i = 0; i < p->insts.len; i++) { /* nothing overwrites what the host reads later */
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in && offload_is_of_host(x, i); k++)
      s->last[x->whole[program_args(p, n)[k]]] = i;
  }
}

/* --- items --------------------------------------------------------------------------------------
 */

/* Does result o of instruction i overwrite its operand k, in this order?  As compile/memory.c
 * decides it. */
static bool is_overwritten(const offload_items *x, const span *s, uint32_t i, int k, int o) {
  const program *p = x->p;
  const prog_inst *n = program_inst(p, i);
  const uint32_t *arg = program_args(p, n);
  uint32_t a = arg[k], b = arg[n->n_in + o];
  const prog_buffer *in = &p->buffers.at[a], *out = &p->buffers.at[b];
  bool same = in->root == a && out->root == b && in->bytes == out->bytes && a != b;
  if (!same || in->place != PLACE_WORK || out->place != PLACE_WORK) return false;
  if (in->tier != TIER_DEVICE || out->tier != TIER_DEVICE) return false;
  if (in->flags & (BUFFER_OUTPUT | BUFFER_INPUT) || s->last[a] != i || s->first[b] != i)
    return false;
  if (s->busy[a] > offload_last_step(&x->overlap, i)) return false;
  for (int j = 0; j < n->n_in; j++)
    if (j != k && offload_root(p, arg[j]) == a) return false;
  return inplace_inst(p, n, k, o);
}

/* Results take the item of the operand that they overwrite, each operand's once. */
static void join_results(offload_items *x, const span *s, uint32_t i) {
  const program *p = x->p;
  const prog_inst *n = program_inst(p, i);
  const uint32_t *arg = program_args(p, n);
  uint32_t taken[255];
  int count = 0;
  for (int o = 0; o < n->n_out; o++)
    for (int k = 0; k < n->n_in; k++) {
      bool is_taken = false;
      for (int j = 0; j < count; j++) is_taken |= taken[j] == arg[k];
      if (is_taken || !is_overwritten(x, s, i, k, o)) continue;
      taken[count++] = arg[k];
      x->item_of[arg[n->n_in + o]] = x->item_of[arg[k]];
      break;
    }
}

static uint8_t choice_of(const prog_buffer *f, int mode, int home) {
  if (mode != HP_OFFLOAD_AUTO || home >= 0 || f->flags & (BUFFER_INPUT | BUFFER_OUTPUT))
    return ON_ITS_TIER;
  if (f->place != PLACE_STATE) return WORK_VALUE;
  return f->class == MEM_OPTIMIZER ? STATE_OF_UPDATES : STATE_OF_STEPS;
}

static bool is_item(const offload_items *x, const offload_options *o, uint32_t b, int *home) {
  const program *p = x->p;
  const prog_buffer *f = &p->buffers.at[b];
  if (x->whole[b] != b || f->flags & BUFFER_WORKSPACE || f->tier != TIER_DEVICE) return false;
  if (f->place == PLACE_WORK) return true;
  *home = o->home(o->context, program_str(p, f->name));
  if (*home < 0 && offload_mode_of(p, o, f) == HP_OFFLOAD_NONE) *home = TIER_DEVICE;
  return *home != TIER_DEVICE;
}

/* How an item begins, ends and behaves, by its first buffer. */
static offload_item describe(const program *p, const offload_options *o, uint32_t b, int home) {
  const prog_buffer *f = &p->buffers.at[b];
  int mode = offload_mode_of(p, o, f);
  bool is_state = f->place == PLACE_STATE, is_io = f->flags & (BUFFER_INPUT | BUFFER_OUTPUT);
  bool streams = o->least || mode == HP_OFFLOAD_HOST || mode == HP_OFFLOAD_FLASH;
  offload_item it = {.bytes = offload_padded(f->bytes)};
  if (f->flags & BUFFER_INPUT) it.flags |= OFFLOAD_STORED;
  if (f->flags & BUFFER_OUTPUT) it.flags |= OFFLOAD_RETURNS;
  if (streams) it.flags |= OFFLOAD_STREAMS;
  if (is_state) it.flags |= OFFLOAD_STORED | (streams ? 0 : OFFLOAD_CARRIES);
  else if (mode == HP_OFFLOAD_NONE)
    it.flags = (uint8_t)((it.flags | OFFLOAD_PINNED) & ~OFFLOAD_STREAMS);
  bool flash = home > 0 ? home == TIER_FLASH : mode == HP_OFFLOAD_FLASH;
  it.tier = flash && !is_io; /* the host reads inputs, and writes outputs */
  return it;
}

static void number_items(offload_items *x, const offload_options *o, const span *s) {
  const program *p = x->p;
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    int home = -1;
    x->item_of[b] = PROG_NONE;
    if (!is_item(x, o, b, &home)) continue;
    const prog_buffer *f = &p->buffers.at[b];
    int mode = offload_mode_of(p, o, f);
    if (s->first[b] == PROG_NONE) {
      x->away[b] = TIER_HOST;
      if (home > 0 ? home == TIER_FLASH : mode == HP_OFFLOAD_FLASH) x->away[b] = TIER_FLASH;
      continue;
    }
    uint32_t i = (uint32_t)x->problem.items++;
    x->item_of[b] = i;
    x->item[i] = describe(p, o, b, home);
    x->choice[i] = choice_of(f, mode, home);
    x->state[i] = p->buffers.at[b].place == PLACE_STATE ? b : PROG_NONE;
  }
}

/* Items that took another's place are gone: the others are numbered anew. */
static void drop_joined(offload_items *x, uint32_t *number) {
  const program *p = x->p;
  uint32_t used = 0;
  for (uint32_t i = 0; i < x->problem.items; i++) number[i] = PROG_NONE;
  for (uint32_t b = 0; b < p->buffers.len; b++)
    if (x->item_of[b] != PROG_NONE) number[x->item_of[b]] = 0;
  for (uint32_t i = 0; i < x->problem.items; i++) {
    if (number[i] == PROG_NONE) continue;
    x->item[used] = x->item[i];
    x->state[used] = x->state[i];
    x->choice[used] = x->choice[i];
    number[i] = used++;
  }
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    if (x->item_of[b] == PROG_NONE) continue;
    x->item_of[b] = number[x->item_of[b]];
    if (!(p->buffers.at[b].flags & BUFFER_OUTPUT)) continue;
    offload_item *it = &x->item[x->item_of[b]];
    it->flags |= OFFLOAD_RETURNS;
    it->tier = 0; /* the host reads it there */
    x->choice[x->item_of[b]] = ON_ITS_TIER;
  }
  x->problem.items = used;
}

static hp_status find_items(offload_items *x, const offload_options *o) {
  size_t buffers = x->p->buffers.len;
  span s = {mem_calloc(buffers, sizeof *s.first), mem_calloc(buffers, sizeof *s.last),
            mem_calloc(buffers, sizeof *s.busy)};
  uint32_t *number = mem_calloc(buffers, sizeof *number);
  x->item = mem_calloc(buffers, sizeof *x->item);
  x->state = mem_calloc(buffers, sizeof *x->state);
  x->choice = mem_calloc(buffers, sizeof *x->choice);
  x->item_of = mem_calloc(buffers, sizeof *x->item_of);
  x->away = mem_calloc(buffers, sizeof *x->away);
  x->whole = mem_calloc(buffers, sizeof *x->whole);
  bool made = s.first && s.last && s.busy && number && x->item && x->state && x->choice &&
              x->item_of && x->away && x->whole && !program_slices(x->p, x->whole);
  if (made) {
    find_spans(x, &s);
    number_items(x, o, &s);
    for (uint32_t i = 0; i < x->p->insts.len; i++)
      if (!offload_is_of_host(x, i)) join_results(x, &s, i);
    drop_joined(x, number);
  }
  mem_free(s.first);
  mem_free(s.last);
  mem_free(s.busy);
  mem_free(number);
  return made ? HP_OK : HP_ERR_OOM;
}

/* --- touches ------------------------------------------------------------------------------------
 */

/* The touch of an item by step i, which is its last one so far or a new one; *is_new. */
static uint32_t touch_at(offload_items *x, uint32_t it, uint32_t i, uint32_t whole, bool *is_new) {
  offload_item *item = &x->item[it];
  uint32_t at = item->touch0 + item->touches;
  *is_new = !item->touches || x->touch[at - 1].step != i;
  if (!*is_new) return at - 1;
  x->touch[at] = (offload_touch){.step = i};
  x->before[at] = whole;
  item->touches++;
  return at;
}

/* Adds the touch of buffer b by the instruction, which reads it, or writes it. */
static void touch(offload_items *x, uint32_t i, uint32_t b, bool writes) {
  const prog_buffer *f = &x->p->buffers.at[b];
  uint32_t whole = x->whole[b], it = x->item_of[whole];
  if (it == PROG_NONE) return;
  offload_item *item = &x->item[it];
  bool is_new;
  uint32_t at = touch_at(x, it, i, whole, &is_new);
  offload_touch *t = &x->touch[at];
  bool all = f->bytes == x->p->buffers.at[whole].bytes;
  bool first = item->touches == 1 && !(item->flags & OFFLOAD_STORED);
  t->access |= writes ? OFFLOAD_WRITE : OFFLOAD_READ;
  if (writes && !all && !first) t->access |= OFFLOAD_READ; /* the rest of it stays */
  if (writes) x->after[at] = whole;
  else if (x->after[at] == PROG_NONE) x->after[at] = whole;
}

/* The collective c has ended before step i runs: until then what it reads and writes stays. */
static void touch_end(offload_items *x, uint32_t c, uint32_t i) {
  const prog_inst *n = program_inst(x->p, c);
  for (int k = n->n_in + n->n_out; k-- > 0;) { /* a result may have overwritten an operand */
    uint32_t whole = x->whole[program_args(x->p, n)[k]], it = x->item_of[whole];
    if (it == PROG_NONE) continue;
    bool is_new;
    uint32_t at = touch_at(x, it, i, whole, &is_new);
    x->touch[at].access |= OFFLOAD_READ;
    if (is_new) x->after[at] = whole;
    while (at-- > x->item[it].touch0 && x->touch[at].step >= c) x->touch[at].access |= OFFLOAD_HELD;
  }
}

static void count_touches(const offload_items *x, uint32_t i, uint32_t *count) {
  const prog_inst *n = program_inst(x->p, i);
  for (int k = 0; k < n->n_in + n->n_out && !offload_is_of_host(x, i); k++) {
    uint32_t it = x->item_of[x->whole[program_args(x->p, n)[k]]];
    if (it != PROG_NONE) count[it] += 1 + offload_runs_beside(&x->overlap, i);
  }
}

static hp_status find_touches(offload_items *x) {
  const program *p = x->p;
  size_t args = p->args.len * (x->overlap.until ? 2 : 1);
  x->touch = mem_calloc(args, sizeof *x->touch);
  x->before = mem_calloc(args, sizeof *x->before);
  x->after = mem_calloc(args, sizeof *x->after);
  HP_TRY_MEM(x->touch && x->before && x->after);
  uint32_t *count = mem_calloc(x->problem.items + 1, sizeof *count);
  HP_TRY_MEM(count);
  for (uint32_t i = 0; i < p->insts.len; i++) count_touches(x, i, count);
  uint32_t at = 0;
  for (uint32_t it = 0; it < x->problem.items; it++) {
    x->item[it].touch0 = at;
    at += count[it];
  }
  mem_free(count);
  for (uint32_t k = 0; k < at; k++) x->after[k] = PROG_NONE;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out && !offload_is_of_host(x, i); k++)
      touch(x, i, program_args(p, n)[k], k >= n->n_in);
    uint32_t ends;
    const uint32_t *ended = offload_ends_at(&x->overlap, i, &ends);
    for (uint32_t k = 0; k < ends; k++) touch_end(x, ended[k], i);
  }
  x->problem.touches = at;
  return HP_OK;
}

/* Closes the gaps of touches that were counted more than once, and named tensors that are written
 * return. */
static void pack_touches(offload_items *x) {
  uint32_t used = 0;
  for (uint32_t it = 0; it < x->problem.items; it++) {
    offload_item *item = &x->item[it];
    for (uint32_t k = 0; k < item->touches; k++) {
      uint32_t from = item->touch0 + k, to = used + k;
      x->touch[to] = x->touch[from];
      x->before[to] = x->before[from];
      x->after[to] = x->after[from];
      if (x->state[it] != PROG_NONE && x->touch[to].access & OFFLOAD_WRITE)
        item->flags |= OFFLOAD_RETURNS;
    }
    item->touch0 = used;
    used += item->touches;
  }
  x->problem.touches = used;
}

/* Where a policy says when a value comes back, and not the planner. */
static hp_status find_from(offload_items *x, const offload_options *o) {
  if (!o->policy) return HP_OK;
  x->from = mem_calloc(x->problem.touches, sizeof *x->from);
  uint32_t *of_step = mem_calloc(x->p->insts.len, sizeof *of_step);
  if (!x->from || !of_step) {
    mem_free(of_step);
    return HP_ERR_OOM;
  }
  for (uint32_t i = 0; i < x->p->insts.len; i++)
    of_step[i] = offload_policy_fetch_from(o->policy, x->p, i);
  for (uint32_t it = 0; it < x->problem.items; it++)
    for (uint32_t k = 0; k < x->item[it].touches; k++) {
      uint32_t at = x->item[it].touch0 + k;
      bool streams = x->item[it].flags & OFFLOAD_STREAMS;
      x->from[at] = streams ? of_step[x->touch[at].step] : OFFLOAD_FREE;
    }
  mem_free(of_step);
  return HP_OK;
}

/* --- the problem --------------------------------------------------------------------------------
 */

static offload_link link_of(const offload_options *o, int tier) {
  double gb = 1e9, in = cluster_copy_s(o->cluster, tier, TIER_DEVICE, gb, o->mesh->devices);
  double out = cluster_copy_s(o->cluster, TIER_DEVICE, tier, gb, o->mesh->devices);
  double latency = cluster_copy_s(o->cluster, tier, TIER_DEVICE, 0, o->mesh->devices);
  return (offload_link){gb / (in - latency), gb / (out - latency), latency};
}

/* How long step i takes, and the memory that it needs besides its items; that of a collective until
 * it has ended. */
static void describe_step(offload_items *x, const offload_options *o, uint32_t i) {
  const prog_inst *n = program_inst(x->p, i);
  uint64_t bytes = offload_padded(o->workspace[n->kernel]);
  if (o->times) x->duration[i] = x->overlap.duration_s[i];
  else x->duration[i] = cost_inst(o->cluster, o->mesh, x->p, n);
  for (uint32_t k = i; bytes && k <= offload_last_step(&x->overlap, i); k++)
    x->workspace[k] += bytes;
  if (o->reserve) x->workspace[i] += o->reserve[i];
}

hp_status offload_items_make(const program *p, const offload_options *o, offload_items *out) {
  size_t n = p->insts.len;
  *out = (offload_items){.p = p};
  out->duration = mem_calloc(n, sizeof *out->duration);
  out->workspace = mem_calloc(n, sizeof *out->workspace);
  HP_TRY_MEM(out->duration && out->workspace);
  HP_TRY(offload_host_find(out, o));
  if (o->times) HP_TRY(offload_overlap_make(p, o->times, out->on_host, &out->overlap));
  HP_TRY(find_items(out, o));
  HP_TRY(find_touches(out));
  pack_touches(out);
  HP_TRY(offload_host_list(out, o));
  HP_TRY(find_from(out, o));
  for (uint32_t i = 0; i < n; i++)
    if (!offload_is_of_host(out, i)) describe_step(out, o, i);
  offload_problem *q = &out->problem;
  q->n = n;
  q->duration_s = out->duration;
  q->workspace = out->workspace;
  q->wait_s = out->overlap.wait_s;
  q->item = out->item;
  q->touch = out->touch;
  q->from = out->from;
  q->cap = o->cap;
  for (int t = 0; t < OFFLOAD_TIERS; t++) q->link[t] = link_of(o, TIER_HOST + t);
  if (o->to_flash) HP_TRY(offload_to_flash(out, o->to_flash));
  for (uint32_t i = 0; i < q->items; i++)
    if (out->state[i] != PROG_NONE && offload_is_slice(out, out->state[i]))
      out->away[offload_root(p, out->state[i])] = TIER_HOST + out->item[i].tier;
  return HP_OK;
}

void offload_items_free(offload_items *x) {
  offload_overlap_free(&x->overlap);
  mem_free(x->item);
  mem_free(x->touch);
  mem_free(x->duration);
  mem_free(x->workspace);
  mem_free(x->whole);
  mem_free(x->item_of);
  mem_free(x->away);
  mem_free(x->on_host);
  mem_free(x->host_inst);
  mem_free(x->host);
  mem_free(x->need);
  mem_free(x->state);
  mem_free(x->choice);
  mem_free(x->from);
  mem_free(x->before);
  mem_free(x->after);
}
