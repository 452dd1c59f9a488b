/* Collectives that run beside the steps of an offloaded program. */
#include "test.h"

#include "base/io.h"
#include "base/mem.h"
#include "compile/host_update.h"
#include "compile/offload_overlap.h"
#include "hazards.h"
#include "offload_case.h"
#include "prog/program.h"
#include "step_case.h"

#include <string.h>

/* --- the planner --------------------------------------------------------------------------------
 */

enum { STEPS = 24, ITEMS = 9, TOUCHES = STEPS * ITEMS };

typedef struct {
  offload_problem p;
  double duration[STEPS], wait[STEPS];
  offload_item item[ITEMS];
  offload_touch touch[TOUCHES];
  uint64_t state;
} held_case;

static uint32_t next(held_case *c, uint32_t n) {
  c->state = c->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((c->state >> 33) % n);
}

/* Items that are read and written at random steps; every third touch is held. */
static void make_case(uint64_t seed, held_case *c) {
  *c = (held_case){.state = seed * 977 + 13};
  uint32_t used = 0;
  for (uint32_t i = 0; i < STEPS; i++) {
    c->duration[i] = 1 + next(c, 4);
    c->wait[i] = next(c, 4) ? 0 : c->duration[i] / 2;
  }
  for (uint32_t x = 0; x < ITEMS; x++) {
    offload_item *it = &c->item[x];
    *it = (offload_item){.bytes = 1 + next(c, 6), .touch0 = used};
    if (next(c, 3) == 0) it->flags = OFFLOAD_STORED | OFFLOAD_CARRIES | OFFLOAD_RETURNS;
    if (next(c, 3) == 0) it->flags |= OFFLOAD_STREAMS;
    for (uint32_t s = next(c, 4); s < STEPS; s += 1 + next(c, 8)) {
      bool makes = !it->touches && !it->flags;
      uint8_t access = makes ? OFFLOAD_WRITE : OFFLOAD_READ;
      if (next(c, 3) == 0) access |= OFFLOAD_WRITE;
      if (it->touches && next(c, 3) == 0) c->touch[used + it->touches - 1].access |= OFFLOAD_HELD;
      c->touch[used + it->touches++] = (offload_touch){s, access};
    }
    used += it->touches;
  }
  c->p = offload_case(c->duration, STEPS, c->item, ITEMS, c->touch, used, 0);
  c->p.wait_s = c->wait;
  for (int t = 0; t < OFFLOAD_TIERS; t++) c->p.link[t] = (offload_link){2, 1, 0};
}

/* Copies of the item between touches k and k + 1. */
static int copies_in_gap(const offload_plan *plan, uint32_t item, uint32_t k) {
  int n = 0;
  for (size_t i = 0; i < plan->copies; i++)
    n += plan->copy[i].item == item && plan->copy[i].touch == k + 1;
  return n;
}

TEST(what_is_held_stays_until_its_next_touch) {
  int held = 0, moved = 0;
  for (uint64_t seed = 1; seed < 40; seed++) {
    held_case c;
    offload_plan plan;
    uint32_t at;
    make_case(seed, &c);
    CHECK_OK(offload_floor(&c.p, &c.p.cap, &at));
    c.p.cap += next(&c, 4);
    CHECK_OK(offload_plan_make(&c.p, &plan));
    CHECK(plan.peak <= c.p.cap);
    for (uint32_t x = 0; x < ITEMS; x++)
      for (uint32_t k = 0; k + 1 < c.item[x].touches; k++) {
        uint32_t touch = c.item[x].touch0 + k;
        int copies = copies_in_gap(&plan, x, k);
        if (!(c.touch[touch].access & OFFLOAD_HELD)) {
          moved += copies;
          continue;
        }
        held++;
        CHECK_EQ(copies, 0);
        CHECK_EQ(plan.stay[touch], plan.stay[touch + 1]);
      }
    offload_plan_free(&plan);
  }
  CHECK(held > 300);
  CHECK(moved > 300);
}

/* Step 0 starts what step 2 waits for; step 1 needs 5 bytes of its own. */
static void make_one(held_case *c) {
  *c = (held_case){.duration = {0, 4, 3}, .wait = {0, 0, 2}};
  c->item[0] = (offload_item){.bytes = 3, .touches = 2, .flags = OFFLOAD_STORED};
  c->item[1] = (offload_item){.bytes = 5, .touch0 = 2, .touches = 1};
  c->touch[0] = (offload_touch){0, OFFLOAD_READ | OFFLOAD_HELD};
  c->touch[1] = (offload_touch){2, OFFLOAD_READ};
  c->touch[2] = (offload_touch){1, OFFLOAD_WRITE};
  c->p = offload_case(c->duration, 3, c->item, 2, c->touch, 3, 8);
  c->p.wait_s = c->wait;
  for (int t = 0; t < OFFLOAD_TIERS; t++) c->p.link[t] = (offload_link){1, 1, 0};
}

TEST(what_is_held_counts_in_the_steps_between) {
  held_case c;
  offload_plan plan;
  uint64_t floor;
  uint32_t at;
  make_one(&c);
  CHECK_OK(offload_floor(&c.p, &floor, &at));
  CHECK_EQ(floor, 8);
  CHECK_EQ(at, 1);
  c.touch[0].access = OFFLOAD_READ;
  CHECK_OK(offload_floor(&c.p, &floor, &at));
  CHECK_EQ(floor, 5);
  c.touch[0].access = OFFLOAD_HELD; /* without an access of its own */
  CHECK_FAILS(offload_plan_make(&c.p, &plan), "item 0: touch 0");
  c.touch[0].access = OFFLOAD_READ | OFFLOAD_HELD;
  c.touch[1].access = OFFLOAD_WRITE; /* its content is gone before it was used */
  CHECK_FAILS(offload_plan_make(&c.p, &plan), "item 0: touch 0");
  c.touch[1].access = OFFLOAD_READ | OFFLOAD_HELD; /* up to nothing */
  CHECK_FAILS(offload_plan_make(&c.p, &plan), "item 0: touch 1");
}

TEST(a_wait_for_a_collective_is_part_of_the_run_but_not_of_the_bound) {
  held_case c;
  offload_plan plan;
  make_one(&c);
  CHECK_OK(offload_plan_make(&c.p, &plan));
  CHECK_NEAR(plan.time_s, 10, 1e-12); /* 3 bytes are fetched, then steps of 4 and 3 s */
  CHECK_NEAR(plan.compute_s, 5, 1e-12);
  CHECK(plan.bound_s <= 8 + 1e-12);
  offload_plan_free(&plan);
  c.wait[2] = 4; /* more than the step takes */
  CHECK_FAILS(offload_plan_make(&c.p, &plan), "step 2: waits 4 s");
}

/* --- ends and durations -------------------------------------------------------------------------
 */

enum { TIMED = 5, K = STREAM_COMPUTE, C = STREAM_COMM, NONE = -1 };

/* Steps of which only the stream and the times matter, and what is made of them. */
typedef struct {
  uint8_t stream[TIMED], on_host[TIMED];
  double start_s[TIMED], end_s[TIMED]; /* in the list schedule */
  int until[TIMED];
  double duration_s[TIMED], wait_s[TIMED];
} timed_case;

static void check_case(const timed_case *c) {
  prog_inst inst[TIMED] = {0};
  inst_times t[TIMED] = {0};
  program p = {0};
  offload_overlap x;
  for (int i = 0; i < TIMED; i++) {
    inst[i].stream = c->stream[i];
    t[i].start_s = c->start_s[i];
    t[i].end_s = c->end_s[i];
  }
  p.insts.at = inst;
  p.insts.len = TIMED;
  CHECK_OK(offload_overlap_make(&p, t, c->on_host, &x));
  for (uint32_t i = 0; i < TIMED; i++) {
    uint32_t ends;
    const uint32_t *ended = offload_ends_at(&x, i, &ends);
    CHECK_EQ(x.until[i], c->until[i] == NONE ? PROG_NONE : (uint32_t)c->until[i]);
    CHECK_NEAR(x.duration_s[i], c->duration_s[i], 1e-12);
    CHECK_NEAR(x.wait_s[i], c->wait_s[i], 1e-12);
    for (uint32_t k = 0; k < ends; k++) CHECK_EQ(x.until[ended[k]], i);
  }
  offload_overlap_free(&x);
}

TEST(a_computation_waits_for_the_collectives_that_have_ended) {
  check_case(&(timed_case){.stream = {K, C, K, C, K},
                           .start_s = {0, 1, 1, 3, 4},
                           .end_s = {1, 3, 2, 4, 6},
                           .until = {NONE, 4, NONE, 4, NONE},
                           .duration_s = {1, 0, 1, 0, 4},
                           .wait_s = {0, 0, 0, 0, 2}});
}

TEST(computations_behind_the_last_collectives_do_not_wait_for_them) {
  check_case(&(timed_case){.stream = {K, C, K, K, C},
                           .start_s = {0, 1, 1, 2, 5},
                           .end_s = {1, 5, 2, 3, 6},
                           .until = {NONE, 4, NONE, NONE, NONE},
                           .duration_s = {1, 0, 1, 1, 3},
                           .wait_s = {0, 0, 0, 0, 2}});
}

TEST(the_last_computation_waits_for_a_collective_that_nothing_else_waits_for) {
  check_case(&(timed_case){.stream = {K, C, K, K, K},
                           .start_s = {0, 1, 1, 2, 3},
                           .end_s = {1, 9, 2, 3, 4},
                           .until = {NONE, 4, NONE, NONE, NONE},
                           .duration_s = {1, 0, 1, 1, 7},
                           .wait_s = {0, 0, 0, 0, 6}});
}

TEST(a_step_of_the_host_waits_for_no_collective) {
  check_case(&(timed_case){.stream = {K, C, K, K, K},
                           .on_host = {HOST_NONE, HOST_NONE, HOST_AFTER, HOST_NONE, HOST_AFTER},
                           .start_s = {0, 1, 3, 4, 5},
                           .end_s = {1, 3, 4, 5, 6},
                           .until = {NONE, 3, NONE, NONE, NONE},
                           .duration_s = {1, 0, 0, 3, 0},
                           .wait_s = {0, 0, 0, 2, 0}});
}

/* --- programs -----------------------------------------------------------------------------------
 */

static const hp_layout_rule tensor_parallel[] = {{"q.*", "(d,None)"},  {"k.*", "(d,None)"},
                                                 {"v.*", "(d,None)"},  {"o.*", "(None,d)"},
                                                 {"up.*", "(d,None)"}, {"down.*", "(None,d)"}};
static const hp_layout_rule data_parallel[] = {{"ids", "(d,None)"}, {"labels", "(d,None)"}};

static const hp_layout_rule sharded_params[] = {{"ids", "(d,None)"},  {"labels", "(d,None)"},
                                                {"q.*", "(d,None)"},  {"k.*", "(d,None)"},
                                                {"v.*", "(d,None)"},  {"o.*", "(d,None)"},
                                                {"up.*", "(d,None)"}, {"down.*", "(d,None)"}};

typedef struct {
  const hp_layout_rule *rule;
  int rules;
  const char *mesh;
  double link_gb_s, host_gb_s;
  hp_host_update update;
} sharding;
static const sharding by_tensors = {tensor_parallel, 6, "(4)(d)", 0.2, 2, HP_HOST_UPDATE_AUTO};
static const sharding with_sharded_params = {sharded_params,     8, "(2)(d)", 0.2, 2,
                                             HP_HOST_UPDATE_AUTO};
static const sharding by_samples_far = {data_parallel, 2, "(2)(d)", 0.2, 0.01, HP_HOST_UPDATE_AUTO};
static const sharding updated_on_host = {data_parallel, 2, "(2)(d)",
                                         0.05,          2, HP_HOST_UPDATE_ALWAYS};

/* A cluster on which collectives take about as long as computation. */
static void open_with(const sharding *how, uint64_t limit, const hp_compile_options *c,
                      step_case *s) {
  static char path[300], text[300];
  int n = snprintf(text, sizeof text,
                   "device: {flops: 2e9, bandwidth_gb_s: 1}\n"
                   "links: [{bandwidth_gb_s: %g, latency_us: 5}]\n"
                   "tiers: [{name: host, read_gb_s: %g, write_gb_s: %g, latency_us: 1}]\n",
                   how->link_gb_s, how->host_gb_s, how->host_gb_s);
  snprintf(path, sizeof path, "%s/overlap.yaml", test_dir());
  CHECK_OK(file_write(path, text, (size_t)n));
  hp_device_options o = {.mesh = how->mesh,
                         .layouts = how->rule,
                         .n_layouts = how->rules,
                         .threads = 4,
                         .interpret = true,
                         .cluster = path,
                         .memory_limit = limit};
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  step_open(&o, c, HP_F32, s);
}

static void open_under(const sharding *how, uint64_t limit, bool serial, step_case *s) {
  open_with(how, limit, &(hp_compile_options){.serial = serial, .host_update = how->update}, s);
}

static program *program_of(const step_case *s) {
  char *text;
  program *p;
  CHECK_OK(hp_program_print(s->p, &text));
  CHECK_OK(program_parse(text, strlen(text), "program", &p));
  hp_free(text);
  return p;
}

/* Collectives that something is computed beside: the computation listed behind does not wait for
 * them. */
static int count_beside(const program *p) {
  int n = 0;
  uint32_t position = 0;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    if (program_inst(p, i)->stream != STREAM_COMM) continue;
    uint32_t k = i + 1;
    while (k < p->insts.len && program_inst(p, k)->stream != STREAM_COMPUTE) k++;
    bool waits = k == p->insts.len;
    for (uint32_t w = 0; !waits && w < program_inst(p, k)->n_wait; w++) {
      vclock_wait wait = p->waits.at[program_inst(p, k)->wait0 + w];
      waits = wait.stream == STREAM_COMM && wait.position >= position;
    }
    n += !waits;
    position++;
  }
  return n;
}

/* A step under a limit, in tenths of what it needs without one, and the same one after the other.
 */
typedef struct {
  int beside, serial_beside, on_host;
  double step_s, serial_s; /* predicted */
  uint64_t moved, serial_moved;
} limited;

static int count_on_host(const program *p) {
  int n = 0;
  for (uint32_t i = 0; i < p->insts.len; i++) n += program_inst(p, i)->stream == STREAM_HOST;
  return n;
}

static void run_under(const sharding *how, uint64_t limit, bool serial, float whole, limited *out) {
  step_case s;
  hp_program_stats stats;
  char why[HAZARD_TEXT];
  open_under(how, limit, serial, &s);
  program *p = program_of(&s);
  if (program_hazard(p, why)) test_fail(__FILE__, __LINE__, "limit %d: %s", (int)limit, why);
  *(serial ? &out->serial_beside : &out->beside) = count_beside(p);
  if (!serial) out->on_host = count_on_host(p);
  program_free(p);
  step_run(&s);
  CHECK(s.loss == whole);
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  CHECK(stats.memory.planned_bytes <= limit);
  *(serial ? &out->serial_moved : &out->moved) = stats.memory.tier[1].moved_bytes;
  *(serial ? &out->serial_s : &out->step_s) = stats.predicted_s;
  step_close(&s);
}

/* tenths 0: what it needs one after the other. */
static limited run_tenths(const sharding *how, uint64_t tenths) {
  step_case s;
  hp_program_stats stats;
  limited out;
  open_under(how, 0, !tenths, &s);
  step_run(&s);
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  uint64_t limit = stats.memory.planned_bytes / 10 * tenths;
  if (!tenths) limit = stats.memory.planned_bytes;
  run_under(how, limit, false, s.loss, &out);
  run_under(how, limit, true, s.loss, &out);
  step_close(&s);
  return out;
}

static void check_faster(const limited *x) {
  CHECK(x->beside > 8);
  CHECK_EQ(x->serial_beside, 0);
  CHECK(x->moved > 0);
  CHECK(x->step_s < 0.95 * x->serial_s);
}

TEST(collectives_of_an_offloaded_step_run_beside_its_computation) {
  limited x = run_tenths(&by_tensors, 6);
  check_faster(&x);
  CHECK(x.serial_moved > 0);
}

TEST(a_step_that_fits_one_after_the_other_offloads_if_that_is_faster) {
  limited x = run_tenths(&with_sharded_params, 0);
  check_faster(&x);
  CHECK_EQ(x.serial_moved, 0);
}

TEST(what_is_reserved_for_others_stays_free_where_offloading_is_faster) {
  const uint64_t reserved = 1 << 20;
  step_case s;
  hp_program_stats stats;
  open_under(&with_sharded_params, 0, true, &s);
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  uint64_t bytes = stats.memory.planned_bytes;
  step_close(&s);
  open_with(&with_sharded_params, bytes + reserved,
            &(hp_compile_options){.reserve_bytes = reserved}, &s);
  CHECK_OK(hp_program_stats_get(s.p, &stats));
  CHECK(stats.memory.tier[1].moved_bytes > 0);
  CHECK(stats.memory.planned_bytes <= bytes);
  step_close(&s);
}

TEST(collectives_stay_between_computations_where_that_is_faster) {
  limited x = run_tenths(&by_samples_far, 6);
  CHECK(x.step_s <= x.serial_s);
}

TEST(collectives_run_beside_a_step_that_the_host_updates) {
  limited x = run_tenths(&updated_on_host, 6);
  check_faster(&x);
  CHECK(x.on_host > 0);
}
