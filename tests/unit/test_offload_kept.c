/* Plans of what leaves that are kept (mem/offload_kept.h). */
#include "mem/offload_kept.h"

#include "test.h"
#include "offload_case.h"

#include <string.h>

enum { STEPS = 12, ITEMS = 6, TOUCHES = 2 * ITEMS };

typedef struct {
  offload_problem p;
  double duration[STEPS];
  uint64_t workspace[STEPS];
  offload_item item[ITEMS];
  offload_touch touch[TOUCHES];
  uint32_t from[TOUCHES];
} kept_case;

/* Items are made one after the other, and read in the opposite order. */
static void make(kept_case *c, uint64_t cap) {
  *c = (kept_case){.workspace = {0}};
  for (uint32_t i = 0; i < STEPS; i++) c->duration[i] = 1;
  for (uint32_t x = 0; x < ITEMS; x++) {
    c->item[x] = (offload_item){.bytes = 10, .touch0 = 2 * x, .touches = 2};
    c->touch[2 * x] = (offload_touch){x, OFFLOAD_WRITE};
    c->touch[2 * x + 1] = (offload_touch){STEPS - 1 - x, OFFLOAD_READ};
  }
  for (uint32_t k = 0; k < TOUCHES; k++) c->from[k] = OFFLOAD_FREE;
  c->p = offload_case(c->duration, STEPS, c->item, ITEMS, c->touch, TOUCHES, cap);
  c->p.link[0] = (offload_link){20, 20, 0.1};
  c->p.link[1] = (offload_link){5, 5, 0.1};
}

static bool same_copies(const offload_plan *a, const offload_plan *b) {
  if (a->copies != b->copies) return false;
  for (size_t k = 0; k < a->copies; k++) {
    const offload_copy *x = &a->copy[k], *y = &b->copy[k];
    if (x->item != y->item || x->touch != y->touch || x->in != y->in ||
        x->after_step != y->after_step || x->start_s != y->start_s || x->end_s != y->end_s ||
        memcmp(x->after, y->after, sizeof x->after))
      return false;
  }
  return true;
}

TEST(a_problem_that_comes_again_has_the_plan_of_its_first_time) {
  offload_kept kept = {.bytes = 0};
  for (int round = 0; round < 2; round++)
    for (uint64_t cap = 20; cap <= 60; cap += 10) {
      kept_case c;
      offload_plan own, plan;
      make(&c, cap);
      CHECK_OK(offload_plan_make(&c.p, &own));
      CHECK_OK(offload_kept_make(&kept, &c.p, &plan));
      CHECK(same_copies(&own, &plan));
      CHECK(!memcmp(own.start_s, plan.start_s, STEPS * sizeof *own.start_s));
      CHECK(!memcmp(own.after, plan.after, STEPS * sizeof *own.after));
      CHECK(!memcmp(own.stay, plan.stay, TOUCHES * sizeof *own.stay));
      CHECK(!memcmp(own.carried, plan.carried, ITEMS * sizeof *own.carried));
      CHECK(own.time_s == plan.time_s && own.bound_s == plan.bound_s && own.peak == plan.peak);
      CHECK_EQ(kept.plan.len, round ? 5 : (cap - 10) / 10);
      offload_plan_free(&own);
      offload_plan_free(&plan);
    }
  offload_kept_free(&kept);
}

/* Every number of the problem counts. */
TEST(an_offload_that_differs_in_one_number_is_planned_anew) {
  offload_kept kept = {.bytes = 0};
  enum { CHANGES = 17 };
  static const double some_wait[STEPS] = {0.5}, no_wait[STEPS];
  for (int k = 0; k < CHANGES; k++) {
    kept_case c;
    offload_plan plan;
    make(&c, 30);
    if (k == 1) c.p.cap++;
    if (k == 2) c.item[3].bytes--;
    if (k == 3) c.item[3].tier = 1;
    if (k == 4) c.item[3].flags = OFFLOAD_RETURNS;
    if (k == 5) c.touch[7].step++;
    if (k == 6) c.touch[7].access |= OFFLOAD_WRITE;
    if (k == 7) c.duration[STEPS - 1] = 2;
    if (k == 8) c.p.workspace = c.workspace;
    if (k == 9) c.workspace[4] = 1, c.p.workspace = c.workspace;
    if (k == 10) c.p.from = c.from;
    if (k == 11) c.from[1] = 3, c.p.from = c.from;
    if (k == 12) c.p.link[1].latency_s = 0;
    if (k == 13) c.item[3].touches = 1;
    if (k == 14) c.p.wait_s = no_wait;
    if (k == 15) c.p.wait_s = some_wait;
    if (k == 16) c.touch[6].access |= OFFLOAD_HELD;
    CHECK_OK(offload_kept_make(&kept, &c.p, &plan));
    CHECK_EQ(kept.plan.len, k + 1);
    offload_plan_free(&plan);
  }
  offload_kept_free(&kept);
}

TEST(a_refused_offload_is_not_kept) {
  offload_kept kept = {.bytes = 0};
  kept_case c;
  offload_plan plan;
  make(&c, 9);
  for (int round = 0; round < 2; round++) {
    CHECK_EQ(offload_kept_make(&kept, &c.p, &plan), HP_ERR_OOM);
    err_clear();
    CHECK_EQ(kept.plan.len, 0);
  }
  offload_kept_free(&kept);
}

/* What was kept before there were too many is not given any more. */
TEST(forgotten_offloads_are_planned_anew) {
  offload_kept kept = {.bytes = 0};
  for (uint64_t round = 0; round < 4; round++) {
    kept_case c;
    offload_plan own, plan;
    make(&c, 20 + round % 2 * 10);
    CHECK_OK(offload_plan_make(&c.p, &own));
    CHECK_OK(offload_kept_make(&kept, &c.p, &plan));
    CHECK(same_copies(&own, &plan));
    CHECK_EQ(kept.plan.len, 1);
    CHECK(kept.bytes < 1 << 20);
    kept.bytes = 32 << 20; /* as after many plans */
    offload_plan_free(&own);
    offload_plan_free(&plan);
  }
  offload_kept_free(&kept);
}
