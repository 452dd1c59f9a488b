/* Plans with work of the host: when what it makes can be fetched, and when a run ends. */
#include "test.h"

#include "mem/offload.h"
#include "mem/offload_kept.h"

#include <string.h>

enum { STEPS = 4, ITEMS = 2, TOUCHES = 3 };

/* Four steps of 1 s; a stored item of 10 bytes is read in steps `first` and 2, a gradient of 10
 * bytes is made in step 3 and returns.  The link moves 10 bytes in 1 s. */
typedef struct {
  offload_problem p;
  double duration[STEPS];
  offload_item item[ITEMS];
  offload_touch touch[TOUCHES];
  offload_host_work work[4];
  uint32_t need[4];
} host_case;

static void make_case(uint32_t first, host_case *c) {
  *c = (host_case){.duration = {1, 1, 1, 1},
                   .item = {{10, 0, 2, OFFLOAD_STORED, 0, 0}, {10, 2, 1, OFFLOAD_RETURNS, 0, 0}},
                   .touch = {{first, OFFLOAD_READ}, {2, OFFLOAD_READ}, {3, OFFLOAD_WRITE}}};
  c->p = (offload_problem){.n = STEPS,
                           .duration_s = c->duration,
                           .items = ITEMS,
                           .item = c->item,
                           .touch = c->touch,
                           .touches = TOUCHES,
                           .cap = 20,
                           .host = c->work,
                           .need = c->need};
  for (int t = 0; t < OFFLOAD_TIERS; t++) c->p.link[t] = (offload_link){10, 10, 0};
}

static double time_of(const host_case *c, double *bound_s) {
  offload_plan plan;
  CHECK_OK(offload_plan_make(&c->p, &plan));
  double s = plan.time_s;
  if (bound_s) *bound_s = plan.bound_s;
  for (size_t k = 0; k < plan.copies; k++)
    if (plan.copy[k].in && c->item[0].from_host)
      CHECK(plan.copy[k].start_s >= c->work[0].duration_s); /* not before it is made */
  offload_plan_free(&plan);
  return s;
}

TEST(what_the_host_makes_is_fetched_from_then_on) {
  host_case c;
  make_case(1, &c);
  CHECK_NEAR(time_of(&c, NULL), 5, 1e-9); /* four steps, and the gradient goes out */
  c.work[0].duration_s = 2;
  c.p.hosts = c.p.before = 1;
  CHECK_NEAR(time_of(&c, NULL), 5, 1e-9); /* nothing waits for it */
  c.item[0].from_host = 1;
  CHECK_NEAR(time_of(&c, NULL), 7, 1e-9); /* step 1 waits until 3 */
}

TEST(the_host_works_on_what_the_run_has_made) {
  host_case c;
  double bound_s;
  make_case(1, &c);
  c.p.hosts = 1;
  c.work[0] = (offload_host_work){3, 0, 1};
  c.need[0] = 1;
  c.p.needs = 1;
  CHECK_NEAR(time_of(&c, &bound_s), 8, 1e-9); /* behind the offload of the gradient */
  CHECK(bound_s >= 7 && bound_s <= 8);
  c.p.hosts = 2;
  c.work[1] = (offload_host_work){2, 1, 0};
  CHECK_NEAR(time_of(&c, &bound_s), 10, 1e-9); /* one after the other */
  CHECK(bound_s >= 9 && bound_s <= 10);
  c.work[1] = c.work[0];
  c.work[0] = (offload_host_work){2, 0, 0};
  CHECK_NEAR(time_of(&c, &bound_s), 9, 1e-9); /* the first begins behind the last step */
}

TEST(bad_work_of_the_host_is_refused) {
  host_case c;
  offload_plan plan;
  make_case(1, &c);
  c.p.before = 1;
  CHECK_EQ(offload_plan_make(&c.p, &plan), HP_ERR_ARG);
  make_case(1, &c);
  c.p.hosts = 1;
  c.work[0] = (offload_host_work){1, 0, 1};
  CHECK_EQ(offload_plan_make(&c.p, &plan), HP_ERR_ARG); /* needs none, has one */
  c.p.needs = 1;
  CHECK_EQ(offload_plan_make(&c.p, &plan), HP_ERR_ARG); /* item 0 does not return */
  c.need[0] = 7;
  CHECK_EQ(offload_plan_make(&c.p, &plan), HP_ERR_ARG);
  make_case(1, &c);
  c.item[0].from_host = 1;
  CHECK_EQ(offload_plan_make(&c.p, &plan), HP_ERR_ARG);
  make_case(1, &c);
  c.p.hosts = 1;
  c.work[0].duration_s = -1;
  CHECK_EQ(offload_plan_make(&c.p, &plan), HP_ERR_ARG);
}

/* Another amount of work is another problem. */
TEST(a_kept_plan_is_for_the_same_work_of_the_host) {
  offload_kept kept = {.bytes = 0};
  offload_plan plan;
  host_case c;
  make_case(1, &c);
  c.p.hosts = c.p.before = 1;
  c.item[0].from_host = 1;
  for (int s = 2; s < 5; s++) {
    c.work[0].duration_s = s;
    CHECK_OK(offload_kept_make(&kept, &c.p, &plan));
    CHECK_NEAR(plan.time_s, s + 5, 1e-9);
    offload_plan_free(&plan);
  }
  c.item[0].from_host = 0;
  CHECK_OK(offload_kept_make(&kept, &c.p, &plan));
  CHECK_NEAR(plan.time_s, 5, 1e-9);
  offload_plan_free(&plan);
  offload_kept_free(&kept);
}
