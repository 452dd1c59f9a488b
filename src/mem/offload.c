#include "mem/offload.h"

#include "mem/offload_sweep.h"

#include <math.h>
#include <string.h>

/* --- the problem --------------------------------------------------------------------------------
 */

static hp_status check_item(const offload_problem *p, uint32_t x) {
  const offload_item *it = &p->item[x];
  if (!it->touches || it->touches > p->touches || it->touch0 > p->touches - it->touches)
    HP_FAIL(HP_ERR_ARG, "item %u: touches %u from %u on, of %zu", x, it->touches, it->touch0,
            p->touches);
  if (it->tier >= OFFLOAD_TIERS) HP_FAIL(HP_ERR_ARG, "item %u: tier %u", x, it->tier);
  for (uint32_t k = 0; k < it->touches; k++) {
    const offload_touch *t = &p->touch[it->touch0 + k];
    bool follows = !k || t[-1].step < t->step;
    if (t->step >= p->n || !follows || !t->access)
      HP_FAIL(HP_ERR_ARG, "item %u: touch %u at step %u", x, k, t->step);
  }
  return HP_OK;
}

static hp_status check_problem(const offload_problem *p) {
  uint64_t all = 0;
  if (p->n >= 1u << 30 || p->items >= 1u << 30 || p->touches >= UINT32_MAX / 2)
    HP_FAIL(HP_ERR_ARG, "%zu steps, %zu items, %zu touches: too many", p->n, p->items, p->touches);
  for (uint32_t x = 0; x < p->items; x++) {
    HP_TRY(check_item(p, x));
    all += p->item[x].bytes;
    if (p->item[x].bytes >> 60 || all >> 60) HP_FAIL(HP_ERR_ARG, "item %u: too many bytes", x);
  }
  for (size_t i = 0; i < p->n; i++) {
    if (!(p->duration_s[i] >= 0 && p->duration_s[i] < 1e12))
      HP_FAIL(HP_ERR_ARG, "step %zu: duration %g s", i, p->duration_s[i]);
    if (p->workspace && p->workspace[i] >> 60) HP_FAIL(HP_ERR_ARG, "step %zu: workspace", i);
  }
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    const offload_link *l = &p->link[t];
    if (!(l->in_bytes_s > 0 && l->out_bytes_s > 0 && l->latency_s >= 0))
      HP_FAIL(HP_ERR_ARG, "link of tier %d: %g and %g bytes/s, %g s", t, l->in_bytes_s,
              l->out_bytes_s, l->latency_s);
  }
  return HP_OK;
}

/* Bytes by step of a plan in which nothing ever leaves, or of the items that a step touches. */
static hp_status add_up(const offload_problem *p, bool resident, uint64_t **out) {
  int64_t *change = mem_calloc(p->n + 1, sizeof *change);
  uint64_t *bytes = (uint64_t *)change, sum = 0;
  HP_TRY_MEM(change);
  for (size_t x = 0; x < p->items; x++) {
    const offload_item *it = &p->item[x];
    const offload_touch *t = &p->touch[it->touch0];
    for (uint32_t k = 0; k < (resident ? 1 : it->touches); k++) {
      bool always = resident && it->flags & OFFLOAD_CARRIES;
      change[always ? 0 : t[k].step] += (int64_t)it->bytes;
      uint32_t last = t[resident ? it->touches - 1 : k].step;
      change[always ? p->n : last + 1] -= (int64_t)it->bytes;
    }
  }
  for (size_t i = 0; i < p->n; i++) {
    sum += bytes[i];
    bytes[i] = sum + (p->workspace ? p->workspace[i] : 0);
  }
  *out = bytes;
  return HP_OK;
}

static uint64_t find_most(const uint64_t *bytes, size_t n, uint32_t *at) {
  uint64_t most = 0;
  for (size_t i = 0; i < n; i++)
    if (bytes[i] > most) {
      most = bytes[i];
      *at = (uint32_t)i;
    }
  return most;
}

hp_status offload_floor(const offload_problem *p, uint64_t *bytes, uint32_t *at) {
  uint64_t *by_step;
  HP_TRY(add_up(p, false, &by_step));
  *at = 0;
  *bytes = find_most(by_step, p->n, at);
  mem_free(by_step);
  return HP_OK;
}

/* --- the bound ----------------------------------------------------------------------------------
 *
 * At each step what is live beyond the cap is not on the device.  It was offloaded before, unless
 * its tier held it, and is fetched later, so the lane of that direction is busy for so long.  Bytes
 * that are off the device at two steps without a touch between them are counted once. */

static double least_bytes_s(const offload_problem *p, bool in) {
  double least = INFINITY;
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    double s = 1 / (in ? p->link[t].in_bytes_s : p->link[t].out_bytes_s);
    if (s < least) least = s;
  }
  return least;
}

/* Bytes that must be fetched at least in a run: those that must be off the device at the step where
 * most are. */
static uint64_t least_fetched(const offload_problem *p, const uint64_t *live) {
  uint64_t most = 0;
  for (size_t i = 0; i < p->n; i++)
    if (live[i] > p->cap && live[i] - p->cap > most) most = live[i] - p->cap;
  return most;
}

static hp_status find_bound(const offload_problem *p, offload_plan *plan) {
  uint64_t *live;
  HP_TRY(add_up(p, true, &live));
  double in_s = (double)least_fetched(p, live) * least_bytes_s(p, true);
  mem_free(live);
  plan->compute_s = 0;
  for (size_t i = 0; i < p->n; i++) plan->compute_s += p->duration_s[i];
  plan->bound_s = in_s > plan->compute_s ? in_s : plan->compute_s;
  return HP_OK;
}

/* --- the search ---------------------------------------------------------------------------------
 */

static const offload_policy policies[] = {
    {1, 1, 1}, {4, 1, 1}, {0, 1, 1}, {1, 2, 1}, {1, 1, 0.5}, {1, 1, 0}, {16, 2, 0.5},
};
enum { POLICIES = sizeof policies / sizeof *policies, ROUNDS = 4 };

static hp_status plan_create(const offload_problem *p, offload_plan *out) {
  *out = (offload_plan){.start_s = mem_calloc(p->n, sizeof *out->start_s),
                        .after = mem_calloc(p->n, sizeof *out->after),
                        .stay = mem_calloc(p->touches, sizeof *out->stay),
                        .carried = mem_calloc(p->items, sizeof *out->carried)};
  return out->start_s && out->after && out->stay && out->carried ? HP_OK : HP_ERR_OOM;
}

void offload_plan_free(offload_plan *plan) {
  mem_free(plan->copy);
  mem_free(plan->start_s);
  mem_free(plan->after);
  mem_free(plan->stay);
  mem_free(plan->carried);
  *plan = (offload_plan){0};
}

/* The sweep's plan becomes the best one; the arrays of both change places. */
static hp_status keep_best(const offload_problem *p, offload_sweep *w, offload_plan *made,
                           offload_plan *best) {
  size_t n = w->copy.len;
  offload_copy *copy = mem_realloc(made->copy, n ? n : 1, sizeof *copy);
  HP_TRY_MEM(copy);
  if (n) memcpy(copy, w->copy.at, n * sizeof *copy);
  made->copy = copy;
  made->copies = n;
  memset(made->in_bytes, 0, sizeof made->in_bytes);
  memset(made->out_bytes, 0, sizeof made->out_bytes);
  for (size_t k = 0; k < n; k++) {
    const offload_item *it = &p->item[copy[k].item];
    (copy[k].in ? made->in_bytes : made->out_bytes)[it->tier] += it->bytes;
  }
  offload_plan other = *best;
  *best = *made;
  *made = other;
  return HP_OK;
}

static uint64_t moved(const offload_plan *plan) {
  uint64_t bytes = 0;
  for (int t = 0; t < OFFLOAD_TIERS; t++) bytes += plan->in_bytes[t] + plan->out_bytes[t];
  return bytes;
}

static bool is_better(const offload_plan *a, const offload_plan *b, bool any) {
  return !any || a->time_s < b->time_s * (1 - 1e-9);
}

static hp_status search(const offload_problem *p, offload_plan *made, offload_plan *best) {
  bool any = false;
  for (size_t i = 0; i < POLICIES; i++) {
    offload_history h;
    offload_sweep w = {0};
    hp_status st = offload_history_create(p, &h);
    if (!st) st = offload_sweep_create(p, &h, &w);
    for (int round = 0; !st && round < ROUNDS; round++) {
      bool fits;
      st = offload_sweep_run(&w, &policies[i], made, &fits);
      if (st || !fits) break;
      if (is_better(made, best, any)) st = keep_best(p, &w, made, best);
      any = true;
    }
    offload_sweep_free(&w);
    offload_history_free(&h);
    HP_TRY(st);
    if (any && !moved(best)) break; /* all fits */
  }
  if (!any) HP_FAIL(HP_ERR_INTERNAL, "no plan under %llu bytes", (unsigned long long)p->cap);
  return HP_OK;
}

static hp_status check_cap(const offload_problem *p) {
  uint32_t at;
  uint64_t floor;
  HP_TRY(offload_floor(p, &floor, &at));
  if (p->cap < floor)
    HP_FAIL(HP_ERR_OOM, "step %u needs %llu bytes, the device has %llu", at,
            (unsigned long long)floor, (unsigned long long)p->cap);
  return HP_OK;
}

hp_status offload_plan_make(const offload_problem *p, offload_plan *out) {
  offload_plan made = {0}, best = {0};
  HP_TRY(check_problem(p));
  HP_TRY(check_cap(p));
  hp_status st = plan_create(p, &made);
  if (!st) st = plan_create(p, &best);
  if (!st) st = search(p, &made, &best);
  if (!st) st = find_bound(p, &best);
  offload_plan_free(&made);
  if (st) offload_plan_free(&best);
  else *out = best;
  return st;
}
