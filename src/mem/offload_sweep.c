#include "mem/offload_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where an item is.  LEAVING: its memory is free at ready_s; it can still be called back. */
enum { ABSENT, FETCHING, RESIDENT, LEAVING };
#define CANCELLED UINT32_MAX /* item of a copy that is not made after all */

static double later(double a, double b) { return a > b ? a : b; }

static const offload_item *item_at(const offload_sweep *w, uint32_t x) { return &w->p->item[x]; }

static bool has_touch(const offload_sweep *w, uint32_t x) {
  return w->item[x].touch < item_at(w, x)->touches;
}

static const offload_touch *next_touch(const offload_sweep *w, uint32_t x) {
  return &w->p->touch[item_at(w, x)->touch0 + w->item[x].touch];
}

static bool is_carried(const offload_sweep *w, uint32_t x) { return w->plan->carried[x]; }

/* The step of the next touch; behind the last one that of the first in the next run, or none. */
static double next_step(const offload_sweep *w, uint32_t x) {
  double n = (double)w->p->n;
  if (has_touch(w, x)) return next_touch(w, x)->step;
  return is_carried(w, x) ? n + w->p->touch[item_at(w, x)->touch0].step : 2 * n + 1;
}

/* Where history keeps when an item leaves before its next touch. */
static size_t gap_of(const offload_sweep *w, uint32_t x) {
  uint32_t k = w->item[x].touch;
  return k ? item_at(w, x)->touch0 + k - 1 : w->p->touches + x;
}

static int choice_of(const offload_sweep *w, uint32_t x) {
  return w->policy->choice ? w->policy->choice[gap_of(w, x)] : OFFLOAD_AUTO;
}

static double copy_s(const offload_sweep *w, uint32_t x, bool in) {
  const offload_link *l = &w->p->link[item_at(w, x)->tier];
  return l->latency_s + (double)item_at(w, x)->bytes / (in ? l->in_bytes_s : l->out_bytes_s);
}

/* --- memory -------------------------------------------------------------------------------------
 */

static void take(offload_sweep *w, uint64_t bytes) {
  w->used += bytes;
  if (w->used > w->peak) w->peak = w->used;
}

/* The item is on the device, and may leave. */
static hp_status offer(offload_sweep *w, uint32_t x) {
  item_state *s = &w->item[x];
  if (choice_of(w, x) == OFFLOAD_STAY)
    return offload_queue_push(&w->staying, -next_step(w, x), x, s->version);
  return offload_queue_push(s->stored ? &w->clean : &w->dirty, -next_step(w, x), x, s->version);
}

/* Is its content needed again on the device? */
static bool is_needed(const offload_sweep *w, uint32_t x) {
  if (has_touch(w, x)) return next_touch(w, x)->access & OFFLOAD_READ;
  return is_carried(w, x);
}

static hp_status release(offload_sweep *w, uint32_t x) {
  item_state *s = &w->item[x];
  w->used -= item_at(w, x)->bytes;
  s->where = ABSENT;
  s->version++;
  if (!is_needed(w, x)) return HP_OK;
  double step = has_touch(w, x) ? next_touch(w, x)->step : (double)w->p->n;
  return offload_queue_push(&w->wanted[item_at(w, x)->tier], step, x, s->version);
}

/* Begins to offload it, after time_s. */
static hp_status start_out(offload_sweep *w, uint32_t x, double time_s) {
  item_state *s = &w->item[x];
  int tier = item_at(w, x)->tier;
  double start = later(time_s, w->out_free_s[tier]), end = start + copy_s(w, x, false);
  offload_copy c = {.item = x, .touch = s->touch, .start_s = start, .end_s = end};
  if (s->touch) c.after_step = w->p->touch[item_at(w, x)->touch0 + s->touch - 1].step + 1;
  s->stored = true;
  s->out_s = w->out_free_s[tier] = end;
  if (!vec_push(&w->copy, c) || !vec_push(&w->out_end[tier], end)) return HP_ERR_OOM;
  return HP_OK;
}

/* Sends an item away that was taken from the queue of those that may leave. */
static hp_status leave(offload_sweep *w, uint32_t x, double time_s) {
  item_state *s = &w->item[x];
  w->left_s[gap_of(w, x)] = time_s;
  if (!s->stored) HP_TRY(start_out(w, x, time_s));
  if (s->out_s <= time_s) return release(w, x);
  s->where = LEAVING;
  s->ready_s = s->out_s;
  s->version++;
  w->leaving_bytes += item_at(w, x)->bytes;
  return offload_queue_push(&w->leaving, s->ready_s, x, s->version);
}

/* The first entry that still holds, or NULL. */
static const offload_entry *find_top(const offload_sweep *w, offload_queue *q, int where,
                                     bool unstored) {
  const offload_entry *e;
  while ((e = offload_queue_top(q))) {
    const item_state *s = &w->item[e->item];
    if (s->version == e->version && s->where == where && !(unstored && s->stored)) return e;
    offload_queue_pop(q);
  }
  return NULL;
}

/* Frees the memory of items that have left by then. */
static hp_status settle(offload_sweep *w, double time_s) {
  const offload_entry *e;
  while ((e = find_top(w, &w->leaving, LEAVING, false)) && e->key <= time_s) {
    uint32_t x = e->item;
    offload_queue_pop(&w->leaving);
    w->leaving_bytes -= item_at(w, x)->bytes;
    HP_TRY(release(w, x));
  }
  return HP_OK;
}

/* The item to leave: of those whose next touch is after step `beyond`, the furthest. */
static bool choose_victim(offload_sweep *w, double beyond, uint32_t *out) {
  const offload_entry *c = find_top(w, &w->clean, RESIDENT, false);
  const offload_entry *d = find_top(w, &w->dirty, RESIDENT, true);
  double at = w->step, clean = c ? -c->key : -1, dirty = d ? -d->key : -1;
  if (clean <= beyond && dirty <= beyond) {
    const offload_entry *k = find_top(w, &w->staying, RESIDENT, false);
    if (!k || -k->key <= beyond) return false;
    *out = k->item;
    offload_queue_pop(&w->staying);
    return true;
  }
  bool take_clean =
      clean > beyond && (dirty <= beyond || (clean - at) * w->policy->prefer_clean >= dirty - at);
  offload_queue *q = take_clean ? &w->clean : &w->dirty;
  *out = offload_queue_top(q)->item;
  offload_queue_pop(q);
  return true;
}

/* Gives up a fetch that nothing has used yet, of the item with the furthest touch. */
static bool cancel_fetch(offload_sweep *w, hp_status *st) {
  const offload_entry *e = find_top(w, &w->idle, FETCHING, false);
  if (!e || -e->key <= w->step) return false;
  item_state *s = &w->item[e->item];
  w->copy.at[s->copy].item = CANCELLED;
  s->stay--;
  *st = release(w, e->item);
  return true;
}

/* Makes room for `bytes` that the present step needs; *time_s moves on while memory becomes free.
 */
static hp_status make_room(offload_sweep *w, uint64_t bytes, double *time_s, bool *fits) {
  hp_status st = HP_OK;
  uint32_t x;
  for (*fits = true; !st;) {
    HP_TRY(settle(w, *time_s));
    if (w->used + bytes <= w->cap) return HP_OK;
    bool enough = w->used - w->leaving_bytes + bytes <= w->cap;
    if (!enough && choose_victim(w, w->step, &x)) st = leave(w, x, *time_s);
    else if (w->leaving_bytes) *time_s = find_top(w, &w->leaving, LEAVING, false)->key;
    else if (!cancel_fetch(w, &st)) {
      *fits = false;
      return HP_OK;
    }
  }
  return st;
}

/* The same for a fetch that starts at *time_s, before `until`, of an item that is touched next at
 * step `beyond`: only items that are touched later leave. */
static hp_status make_room_early(offload_sweep *w, uint64_t bytes, double beyond, double until,
                                 double *time_s, bool *fits) {
  uint32_t x;
  for (*fits = false;;) {
    HP_TRY(settle(w, *time_s));
    if (w->used + bytes <= w->cap) {
      *fits = true;
      return HP_OK;
    }
    if (w->used - w->leaving_bytes + bytes <= w->cap) {
      double ready = find_top(w, &w->leaving, LEAVING, false)->key;
      if (ready >= until) return HP_OK;
      *time_s = ready;
    } else {
      if (!choose_victim(w, beyond, &x)) return HP_OK;
      HP_TRY(leave(w, x, *time_s));
    }
  }
}

/* --- copies -------------------------------------------------------------------------------------
 */

static void count_outs(const offload_sweep *w, double time_s, uint32_t after[OFFLOAD_TIERS]) {
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    size_t first = 0, high = w->out_end[t].len;
    while (first < high) {
      size_t mid = first + (high - first) / 2;
      if (w->out_end[t].at[mid] > time_s) high = mid;
      else first = mid + 1;
    }
    after[t] = (uint32_t)first;
  }
}

static hp_status start_fetch(offload_sweep *w, uint32_t x, double start_s) {
  item_state *s = &w->item[x];
  int tier = item_at(w, x)->tier;
  offload_copy c = {.item = x,
                    .touch = s->touch,
                    .in = true,
                    .start_s = start_s,
                    .end_s = start_s + copy_s(w, x, true),
                    .after_step = w->step};
  count_outs(w, start_s, c.after);
  take(w, item_at(w, x)->bytes);
  s->where = FETCHING;
  s->stay++;
  s->version++;
  s->copy = (uint32_t)w->copy.len;
  s->ready_s = w->in_free_s[tier] = c.end_s;
  if (!vec_push(&w->copy, c)) return HP_ERR_OOM;
  return offload_queue_push(&w->idle, -next_step(w, x), x, s->version);
}

/* When the fetch of x should begin. */
static double latest_start(const offload_sweep *w, uint32_t x) {
  const double *latest = w->h->latest_s[item_at(w, x)->tier];
  size_t step = has_touch(w, x) ? next_touch(w, x)->step : w->p->n;
  double own = copy_s(w, x, true), due = w->h->start_s[step], after = latest[step + 1];
  double start = (due < after ? due : after) - own;
  start = (start < latest[step] ? start : latest[step]) - own * w->policy->slack;
  return w->policy->start_s ? w->now + start - w->policy->start_s[w->step] : start;
}

/* Does the step that runs overwrite it? */
static bool is_written_now(const offload_sweep *w, uint32_t x) {
  if (!has_touch(w, x)) return false;
  const offload_touch *t = next_touch(w, x);
  return t->step == w->step && t->access & OFFLOAD_WRITE;
}

/* Offloads ahead of the time at which items leave. */
static hp_status run_out_lane(offload_sweep *w, int tier, double until) {
  const offload_entry *e;
  while (w->out_free_s[tier] < until && (e = find_top(w, &w->owed[tier], RESIDENT, true))) {
    uint32_t x = e->item;
    offload_queue_pop(&w->owed[tier]);
    if (is_written_now(w, x)) continue;
    HP_TRY(start_out(w, x, w->now));
    HP_TRY(offer(w, x));
  }
  return HP_OK;
}

/* The step during which the fetch of x may begin: OFFLOAD_FREE if the plan may choose. */
static uint32_t fetch_from(const offload_sweep *w, uint32_t x) {
  if (!w->p->from || !has_touch(w, x)) return OFFLOAD_FREE;
  return w->p->from[item_at(w, x)->touch0 + w->item[x].touch];
}

/* Fetches that begin before `until`. */
static hp_status run_in_lane(offload_sweep *w, int tier, double until) {
  const offload_entry *e;
  while ((e = find_top(w, &w->wanted[tier], ABSENT, false))) {
    uint32_t x = e->item;
    double start = later(later(w->now, w->in_free_s[tier]), w->item[x].out_s);
    uint32_t from = fetch_from(w, x);
    if (from == OFFLOAD_FREE) start = later(start, latest_start(w, x));
    else if (from > w->step) return HP_OK;
    if (start >= until) return HP_OK;
    bool fits;
    double beyond = has_touch(w, x) ? next_step(w, x) : (double)w->p->n;
    HP_TRY(make_room_early(w, item_at(w, x)->bytes, beyond, until, &start, &fits));
    if (!fits) return HP_OK;
    HP_TRY(start_fetch(w, x, start));
  }
  return HP_OK;
}

static hp_status run_lanes(offload_sweep *w, double until) {
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    HP_TRY(run_out_lane(w, t, until));
    HP_TRY(run_in_lane(w, t, until));
  }
  return HP_OK;
}

/* --- steps --------------------------------------------------------------------------------------
 */

/* The content of x is on the device from *start_s on; it had to be fetched, or is about to come. */
static hp_status call_in(offload_sweep *w, uint32_t x, double *start_s, bool *fits) {
  item_state *s = &w->item[x];
  int tier = item_at(w, x)->tier;
  double time = w->now;
  if (s->where == LEAVING) {
    w->leaving_bytes -= item_at(w, x)->bytes;
    w->left_s[gap_of(w, x)] = INFINITY;
  } else if (s->where == ABSENT) {
    HP_TRY(make_room(w, item_at(w, x)->bytes, &time, fits));
    if (!*fits) return HP_OK;
    HP_TRY(start_fetch(w, x, later(later(time, w->in_free_s[tier]), s->out_s)));
  }
  if (s->where == FETCHING) *start_s = later(*start_s, s->ready_s);
  if (s->where != RESIDENT) s->version++;
  s->where = RESIDENT;
  return HP_OK;
}

static hp_status make_item(offload_sweep *w, uint32_t x, double *start_s, bool *fits) {
  item_state *s = &w->item[x];
  HP_TRY(make_room(w, item_at(w, x)->bytes, start_s, fits));
  if (!*fits) return HP_OK;
  take(w, item_at(w, x)->bytes);
  s->where = RESIDENT;
  s->stay++;
  s->version++;
  return HP_OK;
}

/* Everything that step i touches comes to the device: first what is fetched, then what is made. */
static hp_status enter(offload_sweep *w, uint32_t i, double *start_s, bool *fits) {
  *fits = true;
  for (int round = 0; round < 2; round++)
    for (uint32_t k = w->touch0[i]; k < w->touch0[i + 1]; k++) {
      uint32_t touch = w->touched[k], x = w->item_of[touch];
      const item_state *s = &w->item[x];
      bool makes = s->where == ABSENT && !(w->p->touch[touch].access & OFFLOAD_READ && s->stored);
      if (makes != (round == 1)) continue;
      HP_TRY(makes ? make_item(w, x, start_s, fits) : call_in(w, x, start_s, fits));
      if (!*fits) return HP_OK;
      bool writes = w->p->touch[touch].access & OFFLOAD_WRITE;
      if (writes && s->stored) *start_s = later(*start_s, s->out_s); /* what it overwrites */
      w->plan->stay[touch] = s->stay;
    }
  uint64_t workspace = w->p->workspace ? w->p->workspace[i] : 0;
  HP_TRY(make_room(w, workspace, start_s, fits));
  if (*fits) take(w, workspace);
  return HP_OK;
}

/* What becomes of x after a touch. */
static hp_status leave_touch(offload_sweep *w, uint32_t x, const offload_touch *touch) {
  item_state *s = &w->item[x];
  const offload_item *it = item_at(w, x);
  if (touch->access & OFFLOAD_WRITE) s->stored = false;
  s->touch++;
  s->version++;
  if (touch->access & OFFLOAD_HELD) return HP_OK;
  bool returns = !has_touch(w, x) && it->flags & OFFLOAD_RETURNS && !is_carried(w, x) && !s->stored;
  if (!is_needed(w, x) && !returns) return release(w, x);
  if (it->flags & OFFLOAD_PINNED && !returns) return HP_OK;
  bool streams = (it->flags & OFFLOAD_STREAMS || choice_of(w, x) == OFFLOAD_LEAVE) &&
                 next_step(w, x) > touch->step + 1.0;
  if (streams) return leave(w, x, w->now);
  double due = returns ? 1e300 : w->h->leave_s[gap_of(w, x)];
  if (!s->stored && due < INFINITY)
    HP_TRY(offload_queue_push(&w->owed[it->tier], due, x, s->version));
  return offer(w, x);
}

static hp_status run_step(offload_sweep *w, uint32_t i, bool *fits) {
  double start = w->now;
  w->step = i;
  HP_TRY(enter(w, i, &start, fits));
  if (!*fits) return HP_OK;
  double end = start + w->p->duration_s[i];
  HP_TRY(run_lanes(w, end));
  w->plan->start_s[i] = start;
  count_outs(w, start, w->plan->after[i]);
  w->now = end;
  w->used -= w->p->workspace ? w->p->workspace[i] : 0;
  w->step = i + 1;
  for (uint32_t k = w->touch0[i]; k < w->touch0[i + 1]; k++) {
    uint32_t touch = w->touched[k];
    HP_TRY(leave_touch(w, w->item_of[touch], &w->p->touch[touch]));
  }
  return HP_OK;
}

/* --- the run ------------------------------------------------------------------------------------
 */

static bool is_written(const offload_problem *p, uint32_t x) {
  for (uint32_t k = 0; k < p->item[x].touches; k++)
    if (p->touch[p->item[x].touch0 + k].access & OFFLOAD_WRITE) return true;
  return false;
}

static hp_status begin_item(offload_sweep *w, uint32_t x) {
  item_state *s = &w->item[x];
  int tier = item_at(w, x)->tier;
  if (!(item_at(w, x)->flags & OFFLOAD_STORED)) return HP_OK;
  s->stored = true;
  uint32_t from_host = item_at(w, x)->from_host;
  if (from_host) s->out_s = w->host_end_s[from_host - 1];
  if (!is_carried(w, x))
    return is_needed(w, x) ? offload_queue_push(&w->wanted[tier], next_step(w, x), x, 0) : HP_OK;
  s->where = RESIDENT;
  s->stored = !is_written(w->p, x); /* what the run before has written */
  take(w, item_at(w, x)->bytes);
  if (choice_of(w, x) == OFFLOAD_LEAVE && next_step(w, x) > 0) return leave(w, x, 0);
  double due = w->h->leave_s[gap_of(w, x)];
  if (!s->stored && due < INFINITY) HP_TRY(offload_queue_push(&w->owed[tier], due, x, 0));
  return offer(w, x);
}

static hp_status begin(offload_sweep *w) {
  const offload_problem *p = w->p;
  double share = w->policy->carry * (double)w->cap;
  uint64_t room = share < (double)w->cap ? (uint64_t)share : w->cap;
  w->used = w->leaving_bytes = w->peak = 0;
  w->now = 0;
  w->step = 0;
  offload_queue *all[] = {&w->clean, &w->dirty, &w->staying, &w->leaving, &w->idle};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) offload_queue_clear(all[i]);
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    offload_queue_clear(&w->wanted[t]);
    offload_queue_clear(&w->owed[t]);
    w->in_free_s[t] = w->out_free_s[t] = 0;
    w->out_end[t].len = 0;
  }
  w->copy.len = 0;
  memset(w->item, 0, p->items * sizeof *w->item);
  memset(w->plan->carried, 0, p->items * sizeof *w->plan->carried);
  for (size_t i = 0; i < p->touches + p->items; i++) w->left_s[i] = INFINITY;
  for (size_t i = 0; i < w->may_carry; i++) {
    uint64_t bytes = p->item[w->carried[i]].bytes;
    if (bytes > room || (w->policy->carried && !w->policy->carried[w->carried[i]])) continue;
    room -= bytes;
    w->plan->carried[w->carried[i]] = true;
  }
  for (uint32_t x = 0; x < p->items; x++) HP_TRY(begin_item(w, x));
  return HP_OK;
}

/* When the host has done all its work; what the run makes is offloaded by now. */
static double end_host(const offload_sweep *w) {
  const offload_problem *p = w->p;
  double end = p->before ? w->host_end_s[p->before - 1] : 0;
  for (size_t i = p->before; i < p->hosts; i++) {
    const offload_host_work *h = &p->host[i];
    double start = later(end, w->now);
    for (uint32_t k = h->need0; k < h->need0 + h->needs; k++)
      start = later(start, w->item[p->need[k]].out_s);
    end = start + h->duration_s;
  }
  return end;
}

/* After the last step: what has to be stored is, what is carried is there. */
static hp_status finish(offload_sweep *w, bool *fits) {
  double end = w->now;
  for (uint32_t x = 0; x < w->p->items; x++)
    if (item_at(w, x)->flags & OFFLOAD_RETURNS && !is_carried(w, x) && !w->item[x].stored &&
        w->item[x].where == RESIDENT)
      HP_TRY(start_out(w, x, w->now));
  for (uint32_t x = 0; x < w->p->items && *fits; x++)
    if (is_carried(w, x)) HP_TRY(call_in(w, x, &end, fits));
  for (int t = 0; t < OFFLOAD_TIERS; t++) end = later(end, w->out_free_s[t]);
  w->plan->time_s = later(end, end_host(w));
  w->plan->peak = w->peak;
  return HP_OK;
}

/* For the next sweep: when steps began and items left, and when the lanes must begin to fetch. */
static void keep_history(offload_sweep *w) {
  size_t n = w->p->n;
  offload_history *h = w->h;
  double *old = h->leave_s;
  h->leave_s = w->left_s;
  w->left_s = old;
  if (!w->policy->start_s) {
    memcpy(h->start_s, w->plan->start_s, n * sizeof *h->start_s);
    h->start_s[n] = w->now;
  }
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    double *latest = h->latest_s[t];
    for (size_t i = 0; i <= n + 1; i++) latest[i] = 0;
    for (size_t k = 0; k < w->copy.len; k++) {
      const offload_copy *c = &w->copy.at[k];
      if (c->item == CANCELLED || !c->in || item_at(w, c->item)->tier != t) continue;
      const offload_item *it = item_at(w, c->item);
      size_t step = c->touch < it->touches ? w->p->touch[it->touch0 + c->touch].step : n;
      latest[step] += c->end_s - c->start_s;
    }
    latest[n + 1] = INFINITY;
    for (size_t i = n + 1; i-- > 0;) {
      double due = h->start_s[i] < latest[i + 1] ? h->start_s[i] : latest[i + 1];
      latest[i] = latest[i] > 0 ? due - latest[i] : latest[i + 1];
    }
  }
}

static int by_start(const void *a, const void *b) {
  const offload_copy *x = a, *y = b;
  if (x->start_s != y->start_s) return x->start_s < y->start_s ? -1 : 1;
  if (x->end_s != y->end_s) return x->end_s < y->end_s ? -1 : 1;
  return x->item != y->item ? (x->item < y->item ? -1 : 1) : 0;
}

static void drop_cancelled(offload_sweep *w) {
  size_t n = 0;
  for (size_t k = 0; k < w->copy.len; k++)
    if (w->copy.at[k].item != CANCELLED) w->copy.at[n++] = w->copy.at[k];
  w->copy.len = n;
  if (n) qsort(w->copy.at, n, sizeof *w->copy.at, by_start);
}

hp_status offload_sweep_run(offload_sweep *w, const offload_policy *policy, offload_plan *plan,
                            bool *fits) {
  w->policy = policy;
  w->plan = plan;
  *fits = true;
  if (policy->start_s) memcpy(w->h->start_s, policy->start_s, (w->p->n + 1) * sizeof(double));
  HP_TRY(begin(w));
  for (uint32_t i = 0; i < w->p->n && *fits; i++) HP_TRY(run_step(w, i, fits));
  if (!*fits) return HP_OK;
  HP_TRY(finish(w, fits));
  if (!*fits) return HP_OK;
  keep_history(w);
  drop_cancelled(w);
  return HP_OK;
}

/* --- buffers ------------------------------------------------------------------------------------
 */

hp_status offload_history_create(const offload_problem *p, offload_history *out) {
  *out = (offload_history){mem_calloc(p->n + 1, sizeof(double)),
                           {0},
                           mem_calloc(p->touches + p->items, sizeof(double))};
  bool made = out->start_s && out->leave_s;
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    out->latest_s[t] = mem_calloc(p->n + 2, sizeof(double));
    made = made && out->latest_s[t];
  }
  HP_TRY_MEM(made);
  for (size_t i = 0; i < p->n; i++) out->start_s[i + 1] = out->start_s[i] + p->duration_s[i];
  for (size_t i = 0; i < p->touches + p->items; i++) out->leave_s[i] = INFINITY;
  for (int t = 0; t < OFFLOAD_TIERS; t++)
    for (size_t i = 0; i < p->n + 2; i++) out->latest_s[t][i] = INFINITY;
  return HP_OK;
}

void offload_history_free(offload_history *h) {
  mem_free(h->start_s);
  mem_free(h->leave_s);
  for (int t = 0; t < OFFLOAD_TIERS; t++) mem_free(h->latest_s[t]);
}

static hp_status list_touches(const offload_problem *p, offload_sweep *w) {
  for (uint32_t x = 0; x < p->items; x++)
    for (uint32_t k = 0; k < p->item[x].touches; k++) {
      uint32_t touch = p->item[x].touch0 + k;
      w->item_of[touch] = x;
      w->touch0[p->touch[touch].step + 2]++;
    }
  for (size_t i = 0; i < p->n; i++) w->touch0[i + 2] += w->touch0[i + 1];
  for (uint32_t touch = 0; touch < p->touches; touch++)
    w->touched[w->touch0[p->touch[touch].step + 1]++] = touch;
  return HP_OK;
}

typedef struct {
  double gap_s;
  uint32_t item;
} carried_item;

static int by_gap(const void *a, const void *b) {
  const carried_item *x = a, *y = b;
  if (x->gap_s != y->gap_s) return x->gap_s < y->gap_s ? -1 : 1;
  return x->item < y->item ? -1 : x->item > y->item;
}

/* Those whose time between the last touch of a run and the first of the next is shortest, first. */
static hp_status list_carried(const offload_problem *p, offload_sweep *w) {
  carried_item *list = mem_calloc(p->items, sizeof *list);
  HP_TRY_MEM(list);
  for (uint32_t x = 0; x < p->items; x++) {
    const offload_item *it = &p->item[x];
    if (!(it->flags & OFFLOAD_CARRIES)) continue;
    uint32_t first = p->touch[it->touch0].step;
    uint32_t last = p->touch[it->touch0 + it->touches - 1].step;
    double gap_s = w->h->start_s[first] + w->h->start_s[p->n] - w->h->start_s[last];
    list[w->may_carry++] = (carried_item){gap_s, x};
  }
  if (w->may_carry) qsort(list, w->may_carry, sizeof *list, by_gap);
  for (size_t i = 0; i < w->may_carry; i++) w->carried[i] = list[i].item;
  mem_free(list);
  return HP_OK;
}

hp_status offload_sweep_create(const offload_problem *p, offload_history *h, offload_sweep *w) {
  *w = (offload_sweep){.p = p, .h = h, .cap = p->cap};
  w->item = mem_calloc(p->items, sizeof *w->item);
  w->touch0 = mem_calloc(p->n + 2, sizeof *w->touch0);
  w->touched = mem_calloc(p->touches, sizeof *w->touched);
  w->item_of = mem_calloc(p->touches, sizeof *w->item_of);
  w->left_s = mem_calloc(p->touches + p->items, sizeof *w->left_s);
  w->carried = mem_calloc(p->items, sizeof *w->carried);
  w->host_end_s = mem_calloc(p->before, sizeof *w->host_end_s);
  HP_TRY_MEM(w->item && w->touch0 && w->touched && w->item_of && w->left_s && w->carried &&
             w->host_end_s);
  for (size_t i = 0; i < p->before; i++)
    w->host_end_s[i] = (i ? w->host_end_s[i - 1] : 0) + p->host[i].duration_s;
  HP_TRY(list_touches(p, w));
  return list_carried(p, w);
}

void offload_sweep_free(offload_sweep *w) {
  mem_free(w->item);
  mem_free(w->touch0);
  mem_free(w->touched);
  mem_free(w->item_of);
  mem_free(w->left_s);
  mem_free(w->carried);
  mem_free(w->host_end_s);
  offload_queue *all[] = {&w->clean, &w->dirty, &w->staying, &w->leaving, &w->idle};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) offload_queue_free(all[i]);
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    offload_queue_free(&w->wanted[t]);
    offload_queue_free(&w->owed[t]);
    vec_free(&w->out_end[t]);
  }
  vec_free(&w->copy);
}
