/* What mem/offload chooses for the whole run at once, and the time that lanes have left. */
#include "test.h"

#include "base/vec.h"
#include "mem/offload_lanes.h"
#include "mem/offload_select.h"
#include "offload_case.h"

/* --- lanes ------------------------------------------------------------------------------------ */

TEST(copies_take_the_time_that_a_lane_has_left) {
  static const double duration[] = {1, 2, 0, 3};
  offload_lane lane;
  double left = 2.5;
  CHECK_OK(offload_lane_create(duration, 4, &lane));
  CHECK_EQ(offload_lane_forward(&lane, 0, 4, false, &left), 1); /* is not taken */
  left = 2.5;
  CHECK_EQ(offload_lane_forward(&lane, 0, 4, true, &left), 1);
  CHECK_NEAR(left, 0, 1e-12);
  left = 2; /* half a second of step 1, the rest of step 3 */
  CHECK_EQ(offload_lane_forward(&lane, 0, 4, false, &left), 3);
  left = 3;
  CHECK_EQ(offload_lane_forward(&lane, 0, 3, false, &left), 3);
  CHECK_NEAR(left, 2.5, 1e-12);
  left = 3.25;
  CHECK_EQ(offload_lane_back(&lane, 0, 4, true, &left), 1);
  CHECK_NEAR(left, 0, 1e-12);
  left = 1;
  CHECK_EQ(offload_lane_back(&lane, 1, 4, true, &left), 1);
  CHECK_NEAR(left, 0.75, 1e-12); /* nothing is left of all steps */
  offload_lane_add(&lane, 2, 1.5);
  left = 1;
  CHECK_EQ(offload_lane_back(&lane, 0, 4, true, &left), 2);
  left = 1;
  CHECK_EQ(offload_lane_forward(&lane, 0, 4, true, &left), 4);
  CHECK_NEAR(left, 0.5, 1e-12);
  offload_lane_free(&lane);
}

/* --- selections --------------------------------------------------------------------------------
 *
 * Ten steps of a second.  Item 0 of 4 bytes is made by step 0 and read by step 9, item 1 as large,
 * read by step 8.  Step 4 needs item 2 of 6 bytes, and the device has 10. */

enum { STEPS = 10, ITEMS = 3, TOUCHES = 5 };

typedef struct {
  offload_problem p;
  double duration[STEPS];
  offload_item item[ITEMS];
  offload_touch touch[TOUCHES];
  offload_selection s;
} small_case;

static void make_case(small_case *c, double bytes_s) {
  *c = (small_case){.item = {{4, 0, 2, 0, 0, 0}, {4, 2, 2, 0, 0}, {6, 4, 1, 0, 0}},
                    .touch = {{0, OFFLOAD_WRITE},
                              {9, OFFLOAD_READ},
                              {0, OFFLOAD_WRITE},
                              {8, OFFLOAD_READ},
                              {4, OFFLOAD_WRITE}}};
  for (int i = 0; i < STEPS; i++) c->duration[i] = 1;
  c->p = offload_case(c->duration, STEPS, c->item, ITEMS, c->touch, TOUCHES, 10);
  for (int t = 0; t < OFFLOAD_TIERS; t++) c->p.link[t] = (offload_link){bytes_s, bytes_s, 0};
  CHECK_OK(offload_selection_create(&c->p, &c->s));
}

/* Selects, and says which places leave, as bits; the run takes run_s. */
static unsigned leaving(small_case *c, double run_s) {
  unsigned bits = 0;
  CHECK_OK(offload_select(&c->p, 100, &c->s));
  CHECK(c->s.made);
  CHECK_NEAR(c->s.start_s[STEPS], run_s, 1e-6);
  for (uint32_t k = 0; k < TOUCHES + ITEMS; k++)
    if (c->s.choice[k] == OFFLOAD_LEAVE) bits |= 1u << k;
  return bits;
}

TEST(what_is_back_in_time_leaves_and_no_more_than_has_to) {
  small_case c;
  make_case(&c, 2); /* copies of 2 s, and there are 3 s before step 4 */
  CHECK_EQ(leaving(&c, 10), 1 << 0);
  c.touch[1].step = 6; /* only item 1 is back in time */
  CHECK_EQ(leaving(&c, 10), 1 << 2);
  c.item[0].flags = OFFLOAD_PINNED;
  c.touch[3].step = 6; /* neither is, but one has to leave */
  CHECK_EQ(leaving(&c, 11), 1 << 2);
  c.p.cap = 14; /* all fits */
  CHECK_EQ(leaving(&c, 10), 0);
  offload_selection_free(&c.s);
}

TEST(what_costs_fewer_seconds_of_copies_leaves) {
  small_case c;
  make_case(&c, 2);
  c.item[1].flags = OFFLOAD_STORED; /* and is only read */
  c.touch[2].access = OFFLOAD_READ;
  CHECK_EQ(leaving(&c, 10), 1 << 2);
  c.touch[2].access |= OFFLOAD_WRITE; /* the tier does not hold it any more */
  CHECK_EQ(leaving(&c, 10), 1 << 0);
  offload_selection_free(&c.s);
}

TEST(where_no_copy_is_in_time_the_run_waits) {
  small_case c;
  make_case(&c, 0.8); /* copies of 5 s: 2 more than before step 4, 1 more than behind it */
  CHECK_EQ(leaving(&c, 13), 1 << 0);
  CHECK_NEAR(c.s.start_s[4], 6, 1e-6);
  CHECK_NEAR(c.s.start_s[9], 12, 1e-6);
  c.s.wait_s[4] = 2; /* the same, as they are given */
  c.s.wait_s[9] = 1;
  CHECK_EQ(leaving(&c, 13), 1 << 0);
  c.s.wait_s[4] = c.s.wait_s[9] = 0;
  CHECK_OK(offload_select(&c.p, 12, &c.s));
  CHECK(!c.s.made);
  offload_selection_free(&c.s);
}

/* Item 0 is the device's from one run to the next, and used by the last step alone. */
TEST(what_a_run_does_not_begin_with_is_fetched_in_it) {
  small_case c;
  make_case(&c, 2);
  c.item[0] = (offload_item){4, 1, 1, OFFLOAD_STORED | OFFLOAD_CARRIES, 0, 0};
  c.item[1].flags = OFFLOAD_PINNED;
  CHECK_EQ(leaving(&c, 10), 1 << 1);
  CHECK(!c.s.carried[0]);
  c.touch[1].access |= OFFLOAD_WRITE; /* it cannot be offloaded behind the last step in time, but
                                         when the next run has begun */
  c.item[0].flags |= OFFLOAD_RETURNS;
  CHECK_EQ(leaving(&c, 10), 1 << TOUCHES);
  CHECK(c.s.carried[0]);
  offload_selection_free(&c.s);
}

/* What is away while the run waits takes more of the excess away: with waits left out of the scores
 * item 1 leaves too, and the run takes a second longer. */
TEST(waits_count_in_the_time_that_items_are_away) {
  enum { BUFFERS = 4 };
  double duration[STEPS];
  const offload_item item[BUFFERS] = {{4, 0, 2, 0, 0, 0},
                                      {2, 2, 2, 0, 0, 0},
                                      {4, 4, 2, 0, 0, 0},
                                      {4, 6, 2, 0, 0, 0}};
  const offload_touch touch[2 * BUFFERS] = {{2, OFFLOAD_WRITE}, {9, OFFLOAD_READ},
                                            {3, OFFLOAD_WRITE}, {6, OFFLOAD_READ},
                                            {3, OFFLOAD_WRITE}, {7, OFFLOAD_READ},
                                            {3, OFFLOAD_WRITE}, {7, OFFLOAD_READ}};
  offload_problem p = {.n = STEPS,
                       .duration_s = duration,
                       .items = BUFFERS,
                       .item = item,
                       .touch = touch,
                       .touches = 2 * BUFFERS,
                       .cap = 8};
  offload_selection s;
  for (int i = 0; i < STEPS; i++) duration[i] = 1;
  for (int t = 0; t < OFFLOAD_TIERS; t++) p.link[t] = (offload_link){1.75, 1.75, 0};
  CHECK_OK(offload_selection_create(&p, &s));
  CHECK_OK(offload_select(&p, 100, &s));
  CHECK(s.made);
  for (int x = 0; x < BUFFERS; x++)
    CHECK_EQ(s.choice[2 * x], x == 1 ? OFFLOAD_STAY : OFFLOAD_LEAVE);
  CHECK_NEAR(s.start_s[STEPS], 120.0 / 7, 1e-6);
  offload_selection_free(&s);
}

/* --- plans with them ----------------------------------------------------------------------------
 *
 * Layers of a model: each has params, optimizer state, a sum of gradients and activations, all of
 * `SIZE` bytes but the state of twice as many.  The update that the run before has left comes just
 * before the forward of the layer. */

enum { LAYERS = 24, SIZE = 1000 };

typedef struct {
  VEC(offload_item) item;
  VEC(offload_touch) touch;
} layers_case;

static void add_item(layers_case *c, uint64_t bytes, uint8_t flags, const offload_touch *t,
                     uint32_t n) {
  offload_item it = {bytes, (uint32_t)c->touch.len, n, flags, 0, 0};
  CHECK(vec_push(&c->item, it));
  for (uint32_t k = 0; k < n; k++) CHECK(vec_push(&c->touch, t[k]));
}

static void make_layers(layers_case *c) {
  const uint8_t state = OFFLOAD_STORED | OFFLOAD_RETURNS | OFFLOAD_CARRIES;
  const uint8_t both = OFFLOAD_READ | OFFLOAD_WRITE;
  for (uint32_t l = 0; l < LAYERS; l++) {
    uint32_t update = 2 * l, forward = update + 1, backward = 3 * LAYERS - 1 - l;
    add_item(c, SIZE, state,
             (offload_touch[]){{update, both}, {forward, OFFLOAD_READ}, {backward, OFFLOAD_READ}},
             3);
    add_item(c, 2 * SIZE, state, (offload_touch[]){{update, both}}, 1);
    add_item(c, SIZE, state, (offload_touch[]){{update, OFFLOAD_READ}, {backward, OFFLOAD_WRITE}},
             2);
    add_item(c, SIZE, 0, (offload_touch[]){{forward, OFFLOAD_WRITE}, {backward, OFFLOAD_READ}}, 2);
  }
}

TEST(copies_that_have_time_are_hidden) {
  layers_case c = {0};
  double duration[3 * LAYERS];
  make_layers(&c);
  for (uint32_t i = 0; i < 2 * LAYERS; i++) duration[i] = i % 2 ? 1 : 0.01;
  for (uint32_t i = 2 * LAYERS; i < 3 * LAYERS; i++) duration[i] = 2;
  offload_problem p = {.n = 3 * LAYERS,
                       .duration_s = duration,
                       .items = c.item.len,
                       .item = c.item.at,
                       .touch = c.touch.at,
                       .touches = c.touch.len};
  for (int t = 0; t < OFFLOAD_TIERS; t++) p.link[t] = (offload_link){SIZE, SIZE, 0};
  for (uint64_t part = 90; part >= 80; part -= 10) {
    offload_plan plan;
    p.cap = 4 * SIZE * LAYERS * part / 100;
    CHECK_OK(offload_plan_make(&p, &plan));
    printf("%d %%: %.4f of the bound\n", (int)part, plan.time_s / plan.bound_s);
    CHECK(plan.time_s < plan.bound_s * 1.01);
    CHECK(plan.peak <= p.cap);
    offload_plan_free(&plan);
  }
  vec_free(&c.item);
  vec_free(&c.touch);
}
