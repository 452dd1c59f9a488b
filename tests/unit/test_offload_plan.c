/* Plans of mem/offload compared with an exhaustive search, and checked by a replay that shares no
 * code with it. */
#include "test.h"

#include "base/mem.h"
#include "mem/offload_bound.h"
#include "mem/offload_sweep.h"
#include "offload_case.h"

#include <math.h>

enum { STEPS = 10, ITEMS = 7, TOUCHES = 40, GAPS = 7 };

typedef struct {
  offload_problem p;
  double duration[STEPS];
  uint64_t workspace[STEPS];
  offload_item item[ITEMS];
  offload_touch touch[TOUCHES];
  uint64_t state;
} small_case;

static uint32_t next(small_case *c, uint32_t n) {
  c->state = c->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((c->state >> 33) % n);
}

/* Items of random sizes, some of which their tier holds at the beginning, touched at random. */
static void make_case(uint64_t seed, small_case *c) {
  *c = (small_case){.state = seed * 977 + 13};
  c->p.n = 5 + next(c, STEPS - 5);
  for (size_t i = 0; i < c->p.n; i++) {
    c->duration[i] = 1 + next(c, 8);
    c->workspace[i] = next(c, 3);
  }
  uint32_t used = 0, gaps = 0;
  for (uint32_t x = 0; x < ITEMS; x++) {
    offload_item it = {.bytes = 1 + next(c, 6), .touch0 = used};
    bool stored = next(c, 3) == 0;
    if (stored) it.flags = OFFLOAD_STORED;
    for (uint32_t s = next(c, 3); s < c->p.n; s += 1 + next(c, 6)) {
      bool makes = !stored && !it.touches, more = it.touches > (stored ? 0u : 1u);
      if (gaps + !makes > GAPS) break;
      gaps += !makes;
      uint8_t access = makes ? OFFLOAD_WRITE : OFFLOAD_READ;
      if (more && next(c, 4) == 0) access |= OFFLOAD_WRITE;
      c->touch[used + it.touches++] = (offload_touch){s, access};
    }
    if (!it.touches) continue;
    used += it.touches;
    c->item[c->p.items++] = it;
  }
  c->p.touches = used;
  c->p.duration_s = c->duration;
  c->p.workspace = c->workspace;
  c->p.item = c->item;
  c->p.touch = c->touch;
  double speed = 0.25 * (1 << next(c, 4));
  for (int t = 0; t < OFFLOAD_TIERS; t++)
    c->p.link[t] = (offload_link){speed, speed, 0.1 * next(c, 2)};
}

/* --- exhaustive search --------------------------------------------------------------------------
 *
 * Before each touch that needs a content the item either stayed on the device, or left after the
 * touch before and is fetched from the end of a chosen step on. */

typedef struct {
  uint32_t item, touch; /* the touch that follows the gap */
  uint32_t first;       /* step from which a fetch may begin */
  int at;               /* chosen: -1: it stays, else the step */
} gap;

typedef struct {
  const small_case *c;
  gap gap[GAPS];
  int gaps;
  double best;
} exhaustive;

static gap *gap_before(exhaustive *e, uint32_t item, uint32_t touch) {
  for (int g = 0; g < e->gaps; g++)
    if (e->gap[g].item == item && e->gap[g].touch == touch) return &e->gap[g];
  return NULL;
}

static double out_s(const small_case *c, uint32_t x) {
  return c->p.link[0].latency_s + (double)c->item[x].bytes / c->p.link[0].out_bytes_s;
}
static double in_s(const small_case *c, uint32_t x) {
  return c->p.link[0].latency_s + (double)c->item[x].bytes / c->p.link[0].in_bytes_s;
}

/* Where each item is during the run of one choice. */
typedef struct {
  bool here[ITEMS], stored[ITEMS];
  double free_s[ITEMS];  /* the memory of its last stay is free then */
  double there_s[ITEMS]; /* fetched: it is there then */
  double kept_s[ITEMS];  /* its tier holds it from then on */
} places;

/* The time at which `bytes` more fit, from time_s on; INFINITY: never. */
static double fits_at(const exhaustive *e, const places *w, uint64_t bytes, double time_s) {
  for (;;) {
    uint64_t used = bytes;
    double soonest = INFINITY;
    for (uint32_t x = 0; x < e->c->p.items; x++) {
      if (w->here[x]) used += e->c->item[x].bytes;
      if (w->free_s[x] <= time_s) continue;
      used += e->c->item[x].bytes;
      if (w->free_s[x] < soonest) soonest = w->free_s[x];
    }
    if (used <= e->c->p.cap || soonest == INFINITY) return used <= e->c->p.cap ? time_s : INFINITY;
    time_s = soonest;
  }
}

/* Seconds of the run with the choices of e; INFINITY: it does not fit. */
static double run_choice(exhaustive *e) {
  const small_case *c = e->c;
  places w = {.free_s = {0}};
  double now = 0, in_free = 0, out_free = 0;
  for (uint32_t x = 0; x < c->p.items; x++) w.stored[x] = c->item[x].flags & OFFLOAD_STORED;
  for (uint32_t i = 0; i < c->p.n; i++) {
    for (uint32_t due = i; due < c->p.n;
         due++) /* fetches that begin here, the first needed first */
      for (int g = 0; g < e->gaps; g++) {
        const gap *k = &e->gap[g];
        if (k->at != (int)i || c->touch[c->item[k->item].touch0 + k->touch].step != due) continue;
        double start = fmax(fmax(now, in_free), w.kept_s[k->item]);
        start = fits_at(e, &w, c->item[k->item].bytes, start);
        if (start == INFINITY) return INFINITY;
        w.here[k->item] = true;
        w.there_s[k->item] = in_free = start + in_s(c, k->item);
      }
    double start = now;
    uint64_t more = c->workspace[i];
    for (uint32_t x = 0; x < c->p.items; x++)
      for (uint32_t k = 0; k < c->item[x].touches; k++) {
        if (c->touch[c->item[x].touch0 + k].step != i) continue;
        if (gap_before(e, x, k)) start = fmax(start, w.there_s[x]);
        else more += c->item[x].bytes;
      }
    start = fits_at(e, &w, more, start);
    if (start == INFINITY) return INFINITY;
    now = start + c->duration[i];
    for (uint32_t x = 0; x < c->p.items; x++)
      for (uint32_t k = 0; k < c->item[x].touches; k++) {
        const offload_touch *t = &c->touch[c->item[x].touch0 + k];
        if (t->step != i) continue;
        const gap *after = gap_before(e, x, k + 1);
        if (t->access & OFFLOAD_WRITE) w.stored[x] = false;
        w.here[x] = k + 1 < c->item[x].touches && !(after && after->at >= 0);
        if (w.here[x]) continue;
        if (after && !w.stored[x]) out_free = w.kept_s[x] = fmax(now, out_free) + out_s(c, x);
        w.stored[x] = true;
        w.free_s[x] = fmax(now, after ? w.kept_s[x] : now);
      }
  }
  return now;
}

static void search(exhaustive *e, int g) {
  if (g == e->gaps) {
    double s = run_choice(e);
    if (s < e->best) e->best = s;
    return;
  }
  gap *k = &e->gap[g];
  const offload_item *it = &e->c->item[k->item];
  if (k->touch) {
    k->at = -1;
    search(e, g + 1);
  }
  for (k->at = (int)k->first; k->at <= (int)e->c->touch[it->touch0 + k->touch].step; k->at++)
    search(e, g + 1);
}

static double find_best(const small_case *c) {
  exhaustive e = {.c = c, .best = INFINITY};
  for (uint32_t x = 0; x < c->p.items; x++)
    for (uint32_t k = 0; k < c->item[x].touches; k++) {
      if (!k && !(c->item[x].flags & OFFLOAD_STORED)) continue;
      uint32_t first = k ? c->touch[c->item[x].touch0 + k - 1].step + 1 : 0;
      e.gap[e.gaps++] = (gap){x, k, first, -1};
    }
  search(&e, 0);
  return e.best;
}

TEST(plans_of_small_cases_are_within_a_tenth_of_the_best) {
  int cases = 0, above = 0, optimal = 0;
  double worst = 1;
  for (uint64_t seed = 1; cases < 200; seed++) {
    small_case c;
    offload_plan plan;
    uint32_t at;
    uint64_t floor;
    make_case(seed, &c);
    CHECK_OK(offload_floor(&c.p, &floor, &at));
    c.p.cap = floor + next(&c, 4);
    double best = find_best(&c);
    if (best == INFINITY) continue;
    CHECK_OK(offload_plan_make(&c.p, &plan));
    CHECK(plan.bound_s <= best * (1 + 1e-9));
    double ratio = plan.time_s / best;
    cases++;
    above += ratio > 1.10;
    optimal += ratio < 1.0001;
    if (ratio > worst) worst = ratio;
    offload_plan_free(&plan);
  }
  printf("%d of 200 are optimal, the worst takes %.3f times as long\n", optimal, worst);
  CHECK_EQ(above, 0);
  CHECK(optimal > 160);
}

/* Values that are overwritten again and again, with links that are slow. */
enum { MANY_STEPS = 40, MANY_ITEMS = 12, MANY_TOUCHES = MANY_STEPS * MANY_ITEMS };

typedef struct {
  small_case c; /* its numbers */
  double duration[MANY_STEPS];
  offload_item item[MANY_ITEMS];
  offload_touch touch[MANY_TOUCHES];
} overwritten_case;

static void make_overwritten(uint64_t seed, overwritten_case *o) {
  *o = (overwritten_case){.c.state = seed * 977 + 13};
  uint32_t used = 0;
  for (uint32_t i = 0; i < MANY_STEPS; i++) o->duration[i] = 1 + next(&o->c, 4);
  for (uint32_t x = 0; x < MANY_ITEMS; x++) {
    offload_item *it = &o->item[x];
    *it = (offload_item){.bytes = 1 + next(&o->c, 6), .touch0 = used};
    for (uint32_t s = next(&o->c, 4); s < MANY_STEPS; s += 1 + next(&o->c, 12)) {
      uint8_t access = it->touches ? OFFLOAD_READ : OFFLOAD_WRITE;
      if (next(&o->c, 2)) access |= OFFLOAD_WRITE;
      o->touch[used + it->touches++] = (offload_touch){s, access};
    }
    used += it->touches;
  }
  o->c.p = offload_case(o->duration, MANY_STEPS, o->item, MANY_ITEMS, o->touch, used, 0);
  for (int t = 0; t < OFFLOAD_TIERS; t++) o->c.p.link[t] = (offload_link){2, 0.6, 0};
}

/* Offloads of the sweep that have not ended when the next touch of their item writes. */
static size_t count_late(const offload_sweep *w, const offload_plan *plan) {
  size_t late = 0;
  for (size_t k = 0; k < w->copy.len; k++) {
    const offload_copy *o = &w->copy.at[k];
    const offload_item *it = &w->p->item[o->item];
    if (o->in || o->touch == it->touches) continue;
    const offload_touch *t = &w->p->touch[it->touch0 + o->touch];
    late += t->access & OFFLOAD_WRITE && o->end_s > plan->start_s[t->step] + 1e-9;
  }
  return late;
}

TEST(nothing_is_overwritten_before_it_is_offloaded) {
  uint8_t choice[MANY_TOUCHES + MANY_ITEMS];
  const offload_policy policy = {.slack = 1, .prefer_clean = 1, .carry = 1, .choice = choice};
  double start_s[MANY_STEPS];
  uint32_t after[MANY_STEPS][OFFLOAD_TIERS], stay[MANY_TOUCHES], at;
  bool carried[MANY_ITEMS], fits;
  offload_plan plan = {.start_s = start_s, .after = after, .stay = stay, .carried = carried};
  size_t late = 0, copies = 0;
  for (uint64_t seed = 1; seed < 500; seed++) {
    overwritten_case o;
    offload_history h;
    offload_sweep w;
    make_overwritten(seed, &o);
    CHECK_OK(offload_floor(&o.c.p, &o.c.p.cap, &at));
    o.c.p.cap += next(&o.c, 8);
    for (size_t k = 0; k < sizeof choice; k++) choice[k] = (uint8_t)next(&o.c, OFFLOAD_LEAVE + 1);
    CHECK_OK(offload_history_create(&o.c.p, &h));
    CHECK_OK(offload_sweep_create(&o.c.p, &h, &w));
    for (int round = 0; round < 4; round++) {
      CHECK_OK(offload_sweep_run(&w, &policy, &plan, &fits));
      if (!fits) break;
      late += count_late(&w, &plan);
      copies += w.copy.len;
    }
    offload_sweep_free(&w);
    offload_history_free(&h);
  }
  printf("%zu of %zu copies are late\n", late, copies);
  CHECK_EQ(late, 0);
  CHECK(copies > 10000);
}

/* Two halves of a run of 10 s each: the first uses items 0 and 1 of 4 bytes, the second 2 and 3;
 * its last step is short and uses all four but the cap leaves room for two. */
static void make_halves(small_case *c, uint64_t cap) {
  static const uint32_t step[4][2] = {{0, 2}, {0, 2}, {1, 2}, {1, 2}};
  *c = (small_case){.duration = {10, 10, 1}};
  for (uint32_t x = 0; x < 4; x++) {
    c->item[x] = (offload_item){.bytes = 4, .touch0 = 2 * x, .touches = 2, .flags = OFFLOAD_STORED};
    for (uint32_t k = 0; k < 2; k++)
      c->touch[2 * x + k] = (offload_touch){step[x][k], OFFLOAD_READ};
  }
  c->p = offload_case(c->duration, 3, c->item, 4, c->touch, 8, cap);
  for (int t = 0; t < OFFLOAD_TIERS; t++) c->p.link[t] = (offload_link){0.5, 0.5, 0};
}

TEST(the_bound_counts_what_must_be_fetched_in_the_last_step) {
  small_case c;
  offload_plan plan = {0};
  make_halves(&c, 12);
  CHECK_OK(offload_bound(&c.p, &plan));
  CHECK_NEAR(plan.compute_s, 21, 1e-12);
  CHECK_NEAR(plan.bound_s, 28, 1e-12); /* 20 s, and 4 bytes more than there is room for */
  make_halves(&c, 16);
  CHECK_OK(offload_bound(&c.p, &plan));
  CHECK_NEAR(plan.bound_s, 21, 1e-12);
}

TEST(the_bound_of_two_links_is_that_of_both_together) {
  small_case c;
  offload_plan plan = {0};
  make_halves(&c, 8);
  c.item[1].tier = 1;
  c.item[3].tier = 1;
  CHECK_OK(offload_bound(&c.p, &plan));
  CHECK_NEAR(plan.bound_s, 28, 1e-12); /* 8 bytes, 4 over each link */
  c.item[3].tier = 0;
  CHECK_OK(offload_bound(&c.p, &plan));
  CHECK_NEAR(plan.bound_s, 28, 1e-12);
  c.item[1].tier = 0; /* all over one */
  CHECK_OK(offload_bound(&c.p, &plan));
  CHECK_NEAR(plan.bound_s, 36, 1e-12);
}

TEST(what_may_not_leave_counts_between_its_touches) {
  small_case c;
  offload_plan plan;
  uint64_t floor;
  uint32_t at;
  make_halves(&c, 16);
  c.p.items = 3; /* of item 2 the last touch goes: the last step needs 8 bytes */
  c.item[2].touches = 1;
  CHECK_OK(offload_floor(&c.p, &floor, &at));
  CHECK_EQ(floor, 8);
  c.item[0].flags |= OFFLOAD_PINNED;
  c.item[1].flags |= OFFLOAD_PINNED;
  CHECK_OK(offload_floor(&c.p, &floor, &at));
  CHECK_EQ(floor, 12);
  CHECK_EQ(at, 1);
  c.p.cap = 11;
  CHECK_FAILS(offload_plan_make(&c.p, &plan), "step 1 needs 12 bytes");
  c.p.cap = 12;
  CHECK_OK(offload_plan_make(&c.p, &plan));
  offload_plan_free(&plan);
}

TEST(a_fetch_does_not_begin_before_the_step_that_is_named) {
  small_case c;
  offload_plan plan;
  uint32_t from[8];
  make_halves(&c, 16);
  for (int late = 0; late < 2; late++) {
    for (int k = 0; k < 8; k++) from[k] = OFFLOAD_FREE;
    if (late) from[4] = 1; /* item 2, whose fetch of 8 s would be overlapped with step 0 */
    if (late) from[6] = 1;
    c.p.from = from;
    CHECK_OK(offload_plan_make(&c.p, &plan));
    for (size_t k = 0; k < plan.copies; k++)
      if (plan.copy[k].in && plan.copy[k].item >= 2 && !plan.copy[k].touch)
        CHECK_EQ(late, plan.copy[k].start_s >= plan.start_s[0] + 10 - 1e-9);
    offload_plan_free(&plan);
  }
}
