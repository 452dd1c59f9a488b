#include "mem/offload.h"

#include "mem/offload_bound.h"
#include "mem/offload_select.h"
#include "mem/offload_sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the problem --------------------------------------------------------------------------------
 */

static hp_status check_item(const offload_problem *p, uint32_t x) {
  const offload_item *it = &p->item[x];
  if (!it->touches || it->touches > p->touches || it->touch0 > p->touches - it->touches)
    HP_FAIL(HP_ERR_ARG, "item %u: touches %u from %u on, of %zu", x, it->touches, it->touch0,
            p->touches);
  if (it->tier >= OFFLOAD_TIERS) HP_FAIL(HP_ERR_ARG, "item %u: tier %u", x, it->tier);
  if (it->from_host > p->before || (it->from_host && !(it->flags & OFFLOAD_STORED)))
    HP_FAIL(HP_ERR_ARG, "item %u: from work %u of the host", x, it->from_host);
  for (uint32_t k = 0; k < it->touches; k++) {
    const offload_touch *t = &p->touch[it->touch0 + k];
    bool follows = !k || t[-1].step < t->step;
    bool held = t->access & OFFLOAD_HELD; /* needs an end, where its content is still the same */
    bool ends = k + 1 < it->touches && t[1].access & OFFLOAD_READ;
    if (t->step >= p->n || !follows || !(t->access & ~OFFLOAD_HELD) || (held && !ends))
      HP_FAIL(HP_ERR_ARG, "item %u: touch %u at step %u", x, k, t->step);
  }
  return HP_OK;
}

static hp_status check_host(const offload_problem *p) {
  if (p->before > p->hosts || p->hosts >= 1u << 30)
    HP_FAIL(HP_ERR_ARG, "%zu of %zu work of the host is before", p->before, p->hosts);
  for (size_t i = 0; i < p->hosts; i++) {
    const offload_host_work *h = &p->host[i];
    bool inside = h->need0 <= p->needs && h->needs <= p->needs - h->need0;
    if (!inside || !(h->duration_s >= 0 && h->duration_s < 1e12))
      HP_FAIL(HP_ERR_ARG, "work %zu of the host: %g s, needs %u from %u on, of %zu", i,
              h->duration_s, h->needs, h->need0, p->needs);
    for (uint32_t k = h->need0; k < h->need0 + h->needs; k++)
      if (i < p->before || p->need[k] >= p->items || !(p->item[p->need[k]].flags & OFFLOAD_RETURNS))
        HP_FAIL(HP_ERR_ARG, "work %zu of the host needs item %u", i, p->need[k]);
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
    if (p->wait_s && !(p->wait_s[i] >= 0 && p->wait_s[i] <= p->duration_s[i]))
      HP_FAIL(HP_ERR_ARG, "step %zu: waits %g s", i, p->wait_s[i]);
  }
  HP_TRY(check_host(p));
  for (int t = 0; t < OFFLOAD_TIERS; t++) {
    const offload_link *l = &p->link[t];
    if (!(l->in_bytes_s > 0 && l->out_bytes_s > 0 && l->latency_s >= 0))
      HP_FAIL(HP_ERR_ARG, "link of tier %d: %g and %g bytes/s, %g s", t, l->in_bytes_s,
              l->out_bytes_s, l->latency_s);
  }
  return HP_OK;
}

/* Bytes by step of the items that it touches, of those that may not leave between two touches, and
 * its workspace. */
static hp_status add_up(const offload_problem *p, uint64_t **out) {
  uint64_t *bytes = mem_calloc(p->n + 1, sizeof *bytes);
  HP_TRY_MEM(bytes);
  for (size_t x = 0; x < p->items; x++) {
    const offload_item *it = &p->item[x];
    const offload_touch *t = &p->touch[it->touch0], *last = t + it->touches - 1;
    for (; t <= last; t++) {
      bool stays = t < last && (it->flags & OFFLOAD_PINNED || t->access & OFFLOAD_HELD);
      uint32_t until = stays ? t[1].step : t->step + 1;
      for (uint32_t i = t->step; i < until; i++) bytes[i] += it->bytes;
    }
  }
  for (size_t i = 0; i < p->n && p->workspace; i++) bytes[i] += p->workspace[i];
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
  HP_TRY(add_up(p, &by_step));
  *at = 0;
  *bytes = find_most(by_step, p->n, at);
  mem_free(by_step);
  return HP_OK;
}

/* --- the search ---------------------------------------------------------------------------------
 */

static const offload_policy policies[] = {
    {.slack = 1, .prefer_clean = 1, .carry = 1},    {.slack = 4, .prefer_clean = 1, .carry = 1},
    {.slack = 0, .prefer_clean = 1, .carry = 1},    {.slack = 1, .prefer_clean = 2, .carry = 1},
    {.slack = 1, .prefer_clean = 1, .carry = 0.5},  {.slack = 1, .prefer_clean = 1, .carry = 0},
    {.slack = 16, .prefer_clean = 2, .carry = 0.5}, {.slack = 1e9, .prefer_clean = 1, .carry = 1},
};
enum {
  POLICIES = sizeof policies / sizeof *policies,
  ROUNDS = 4,
  SELECTIONS = 8,
  SELECTED_ROUNDS = 2,    /* of each: the second knows what else the lanes have to fetch */
  CLIMB_TOUCHES = 400000, /* touches that may be simulated to improve a plan: about 0.1 s */
  CLIMB_GAPS = 2000,      /* gaps that are looked at, at most */
  SMALL = 100             /* touches of problems that are improved from every policy */
};
static const double near_bound = 1.005; /* a plan that is so near to the bound is good enough */

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
  made->compute_s = best->compute_s;
  made->bound_s = best->bound_s;
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

/* Sweeps of one policy, each with what the one before has found. */
static hp_status run_policy(const offload_problem *p, const offload_policy *policy,
                            offload_plan *made, offload_plan *best, bool *any, bool *better) {
  offload_history h;
  offload_sweep w = {0};
  hp_status st = offload_history_create(p, &h);
  if (!st) st = offload_sweep_create(p, &h, &w);
  int rounds = policy->start_s ? SELECTED_ROUNDS : ROUNDS;
  *better = false;
  for (int round = 0; !st && round < rounds; round++) {
    bool fits;
    st = offload_sweep_run(&w, policy, made, &fits);
    if (st || !fits) break;
    if (is_better(made, best, *any)) {
      st = keep_best(p, &w, made, best);
      *better = true;
    }
    *any = true;
  }
  offload_sweep_free(&w);
  offload_history_free(&h);
  return st;
}

/* --- improving a plan ---------------------------------------------------------------------------
 *
 * The choice of one gap after another, those of the largest items first, is changed: the item
 * stays, leaves at once, or does what the policy says.  What makes the run faster is kept. */

typedef struct {
  uint32_t gap;
  uint64_t bytes;
} climb_gap;

static int by_bytes(const void *a, const void *b) {
  const climb_gap *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->gap < y->gap ? -1 : x->gap > y->gap;
}

static size_t list_gaps(const offload_problem *p, climb_gap *gap) {
  size_t n = 0;
  for (uint32_t x = 0; x < p->items; x++)
    for (uint32_t k = 0; k + 1 < p->item[x].touches; k++)
      if (!(p->touch[p->item[x].touch0 + k].access & OFFLOAD_HELD))
        gap[n++] = (climb_gap){p->item[x].touch0 + k, p->item[x].bytes};
  if (n) qsort(gap, n, sizeof *gap, by_bytes);
  return n < CLIMB_GAPS ? n : CLIMB_GAPS;
}

typedef struct {
  const offload_problem *p;
  offload_policy policy;
  uint8_t *choice; /* policy.choice */
  climb_gap *gap;
  size_t gaps;
  uint64_t *work; /* touches so far, of all climbers of a plan */
} climber;

/* Tries other choices of one gap, or of two; *better: the plan is, and they stay. */
static hp_status turn(climber *c, uint32_t one, uint32_t two, offload_plan *made,
                      offload_plan *best, bool *better) {
  enum { CHOICES = OFFLOAD_LEAVE + 1 };
  uint8_t before[2] = {c->choice[one], c->choice[two]};
  *better = false;
  for (int k = 0; k < (one == two ? CHOICES : CHOICES * CHOICES); k++) {
    bool any = true, first;
    uint8_t to[2] = {(uint8_t)(k % CHOICES), (uint8_t)(one == two ? k : k / CHOICES)};
    if (to[0] == before[0] || (one != two && to[1] == before[1])) continue;
    c->choice[one] = to[0];
    c->choice[two] = to[1];
    HP_TRY(run_policy(c->p, &c->policy, made, best, &any, &first));
    *better = first;
    if (first) return HP_OK;
  }
  c->choice[one] = before[0];
  c->choice[two] = before[1];
  return HP_OK;
}

/* Single gaps, and pairs where single ones do not help and there is time for all of them. */
static hp_status climb(climber *c, offload_plan *made, offload_plan *best) {
  uint64_t each = ROUNDS * (uint64_t)(c->p->touches + 1);
  bool pairs = false;
  while (best->time_s > best->bound_s * near_bound) {
    bool any = false;
    for (size_t i = 0; i < c->gaps; i++)
      for (size_t k = pairs ? i + 1 : i; k < (pairs ? c->gaps : i + 1); k++) {
        bool better;
        if ((*c->work += each * (pairs ? 4 : 2)) > CLIMB_TOUCHES) return HP_OK;
        HP_TRY(turn(c, c->gap[i].gap, c->gap[k].gap, made, best, &better));
        any |= better;
      }
    if (!any && pairs) return HP_OK;
    pairs = !any;
    if (pairs && c->gaps * c->gaps * 2 * each > CLIMB_TOUCHES - *c->work) return HP_OK;
  }
  return HP_OK;
}

static hp_status improve(const offload_problem *p, const offload_policy *from, uint64_t *work,
                         offload_plan *made, offload_plan *best) {
  size_t n = p->touches + p->items;
  climber c = {.p = p,
               .work = work,
               .policy = *from,
               .choice = mem_calloc(n, 1),
               .gap = mem_calloc(n, sizeof *c.gap)};
  hp_status st = c.choice && c.gap ? HP_OK : HP_ERR_OOM;
  c.policy.choice = c.choice;
  if (!st) {
    c.gaps = list_gaps(p, c.gap);
    st = climb(&c, made, best);
  }
  mem_free(c.choice);
  mem_free(c.gap);
  return st;
}

/* --- choosing for the whole run -----------------------------------------------------------------
 *
 * The best plan so far says when steps start, and so which time lanes have.  What leaves is chosen
 * anew for that time with its waits shortened: at first as far as the lower bound allows, then by
 * less, and by half as much where that does not help. */

/* Seconds that steps wait in the best plan, times `share`: wait_s[n + 1]. */
static void shorten_waits(const offload_problem *p, const offload_plan *best, double share,
                          double *wait_s) {
  double end = 0;
  for (size_t i = 0; i <= p->n; i++) {
    double start = i < p->n ? best->start_s[i] : best->time_s;
    wait_s[i] = start > end ? (start - end) * share : 0;
    end = start + (i < p->n ? p->duration_s[i] : 0);
  }
}

static hp_status choose_again(const offload_problem *p, double share, offload_selection *s,
                              offload_plan *made, offload_plan *best, bool *better) {
  const double above = 1.3; /* the times of selections are estimates */
  bool any = true;
  offload_policy policy = {1, 1, 1, s->choice, s->carried, s->start_s};
  shorten_waits(p, best, share, s->wait_s);
  *better = false;
  HP_TRY(offload_select(p, best->time_s * above, s));
  return s->made ? run_policy(p, &policy, made, best, &any, better) : HP_OK;
}

static hp_status search_selections(const offload_problem *p, offload_plan *made,
                                   offload_plan *best) {
  double steps_s = 0;
  for (size_t i = 0; i < p->n; i++) steps_s += p->duration_s[i];
  double waits = best->time_s - steps_s, least = fmax(best->bound_s - steps_s, 0);
  double share = waits > 0 ? least / waits : 1;
  offload_selection s;
  hp_status st = offload_selection_create(p, &s);
  for (int round = 0; !st && round < SELECTIONS; round++) {
    bool better;
    if (best->time_s <= best->bound_s * near_bound) break;
    st = choose_again(p, share, &s, made, best, &better);
    if (!round) share = 0.85;
    else if (!better) share = (1 + share) / 2;
  }
  offload_selection_free(&s);
  return st;
}

static hp_status search(const offload_problem *p, offload_plan *made, offload_plan *best) {
  bool any = false, better;
  size_t first = 0;
  uint64_t work = 0;
  for (size_t i = 0; i < POLICIES; i++) {
    HP_TRY(run_policy(p, &policies[i], made, best, &any, &better));
    if (better) first = i;
    if (any && !moved(best)) return HP_OK; /* all fits */
  }
  if (!any) HP_FAIL(HP_ERR_INTERNAL, "no plan under %llu bytes", (unsigned long long)p->cap);
  double before_s = best->time_s;
  if (!p->from) HP_TRY(search_selections(p, made, best));
  /* single changes gain less than a selection does, and start from a plan of the policies */
  if (best->time_s < before_s * 0.98 && p->touches >= SMALL) return HP_OK;
  HP_TRY(improve(p, &policies[first], &work, made, best));
  for (size_t i = 0; i < POLICIES && p->touches < SMALL; i++)
    if (i != first) HP_TRY(improve(p, &policies[i], &work, made, best));
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
  if (!st) st = offload_bound(p, &best);
  if (!st) st = search(p, &made, &best);
  offload_plan_free(&made);
  if (st) offload_plan_free(&best);
  else *out = best;
  return st;
}
