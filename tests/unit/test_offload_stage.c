/* Offloaded programs, looked at by a checker of their memory that shares no code with the stage. */
#include "bare_target.h"
#include "compile/program_check.h"
#include "hazards.h"
#include "hyperparallel.h"
#include "ops/grid.h"
#include "ops/random_graph.h"
#include "prog/tier_check.h"
#include "step_case.h"
#include "test.h"

#include <string.h>

static const uint8_t every_class[MEM_CLASS_COUNT] = {1, 1, 1, 1, 1, 1, 1}; /* HP_OFFLOAD_AUTO */

static int program_chooses(void *context, const char *name) {
  (void)context, (void)name;
  return -1;
}
static uint64_t nothing_locked(void *context) {
  (void)context;
  return 0;
}
static uint64_t all_states(void *context, const program *p, int tier) {
  (void)context;
  uint64_t bytes = 0;
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->place == PLACE_STATE && f->root == b && f->tier == tier)
      bytes += (f->bytes + 255) / 256 * 256;
  }
  return bytes;
}

static void set_up(target *t, const uint8_t *offload) {
  t->offload = offload;
  t->home = program_chooses;
  t->rule = program_chooses;
  t->locked_bytes = nothing_locked;
  t->resident_bytes = all_states;
}

/* The program under a limit; HP_ERR_OOM: *needed is what would do. */
static hp_status compile_with(const hp_graph *g, const hp_compile_options *o, uint64_t limit,
                              offsets_kept *kept, program **p, uint64_t *needed) {
  bare_target b;
  compilation c;
  compiled made = {0};
  CHECK_OK(bare_target_init(&b));
  set_up(&b.t, every_class);
  b.t.limit[TIER_DEVICE] = limit;
  b.t.offsets = kept;
  CHECK_OK(compile_begin(g, NULL, o, &c));
  hp_status st = compile_for(&c, &b.t, &made);
  CHECK(made.p);
  *needed = made.p->arena[TIER_DEVICE] + all_states(NULL, made.p, TIER_DEVICE);
  compile_end(&c);
  mesh_free(&b.m);
  if (st) program_free(made.p);
  *p = st ? NULL : made.p;
  return st;
}

static hp_status compile_under(const hp_graph *g, uint64_t limit, offsets_kept *kept, program **p,
                               uint64_t *needed) {
  return compile_with(g, NULL, limit, kept, p, needed);
}

static void check_program(uint64_t seed, const program *p, uint64_t limit) {
  char why[HAZARD_TEXT];
  uint64_t needed = p->arena[TIER_DEVICE] + all_states(NULL, p, TIER_DEVICE);
  if (needed > limit)
    test_fail(__FILE__, __LINE__, "seed %d: %llu bytes under a limit of %llu", (int)seed,
              (unsigned long long)needed, (unsigned long long)limit);
  if (program_hazard(p, why)) {
    str text = {0};
    program_print(p, &text);
    test_fail(__FILE__, __LINE__, "seed %d, limit %llu: %s\n%s", (int)seed,
              (unsigned long long)limit, why, text.at);
  }
  CHECK_OK(tier_check(p));
  for (size_t b = 0; b < p->buffers.len; b++) { /* a view exists when its root does */
    const uint8_t lives = BUFFER_INPUT | BUFFER_OUTPUT, own = p->buffers.at[b].flags & lives;
    if (own & ~p->buffers.at[p->buffers.at[b].root].flags)
      test_fail(__FILE__, __LINE__, "seed %d: view b%zu exists when b%u does not", (int)seed, b,
                p->buffers.at[b].root);
  }
}

/* Programs under 4 limits from the least on, and how many of them move anything. */
static int check_seeds(uint64_t first, uint64_t n) {
  int moved = 0;
  for (uint64_t seed = first; seed < first + n; seed++) {
    random_graph x;
    program *p;
    offsets_kept kept = {.plan = {0}};
    uint64_t all, least;
    random_graph_make(seed, &(random_options){.streams = seed % 2, .dtypes = seed % 3 == 0}, &x);
    CHECK_OK(compile_under(x.g, 0, &kept, &p, &all));
    program_free(p);
    if (compile_under(x.g, 1, &kept, &p, &least) == HP_OK) {
      program_free(p);
      offsets_kept_free(&kept);
      random_graph_free(&x);
      continue;
    }
    for (int share = 0; share < 10; share += 3) {
      uint64_t limit = least + (all > least ? (all - least) / 10 * (uint64_t)share : 0), needed;
      if (compile_under(x.g, limit, &kept, &p, &needed))
        test_fail(__FILE__, __LINE__, "seed %d, limit %llu of %llu: %s", (int)seed,
                  (unsigned long long)limit, (unsigned long long)least, hp_last_error());
      check_program(seed, p, limit);
      moved += p->arena[TIER_HOST] > 0;
      program_free(p);
    }
    offsets_kept_free(&kept);
    random_graph_free(&x);
  }
  return moved;
}

TEST(offloaded_random_programs_have_no_hazard_under_any_limit) { CHECK(check_seeds(9000, 8) > 14); }
TEST(torture_offloaded_random_programs_have_no_hazard) { CHECK(check_seeds(9000, 60) > 110); }

/* Does the checker of programs that are read from text refuse it? */
static hp_status check_text(const program *p) {
  str text = {0};
  program *again;
  program_lines lines = {0};
  CHECK_OK(program_print(p, &text));
  CHECK_OK(program_parse_lines(text.at, text.len, "program", &again, &lines));
  hp_status st = program_check(again, "program", &lines);
  program_lines_free(&lines);
  program_free(again);
  str_free(&text);
  return st;
}

/* Loops on the host run side by side with copies and computation. */
TEST(a_step_whose_updates_are_on_the_host_has_no_hazard_under_any_limit) {
  const hp_compile_options o = {.host_update = HP_HOST_UPDATE_ALWAYS};
  offsets_kept kept = {.plan = {0}};
  hp_graph *g = step_graph(HP_F32);
  uint64_t all, least;
  program *p;
  CHECK_OK(compile_with(g, &o, 0, &kept, &p, &all));
  program_free(p);
  CHECK_EQ(compile_with(g, &o, 1, &kept, &p, &least), HP_ERR_OOM);
  for (int share = 0; share < 10; share += 3) {
    uint64_t needed;
    size_t updates = 0;
    CHECK_OK(compile_with(g, &o, least + (all - least) / 10 * (uint64_t)share, &kept, &p, &needed));
    check_program((uint64_t)share, p, needed);
    for (size_t i = 0; i < p->insts.len; i++) updates += program_inst(p, i)->stream == STREAM_HOST;
    CHECK(updates >= 17); /* of each param one */
    CHECK_OK(check_text(p));
    program_free(p);
  }
  offsets_kept_free(&kept);
  hp_graph_free(g);
}

/* What the host's stream may run, and on what. */
TEST(a_loop_on_the_host_that_reaches_the_device_is_found) {
  const hp_compile_options o = {.host_update = HP_HOST_UPDATE_ALWAYS};
  hp_graph *g = step_graph(HP_F32);
  size_t tried = 0;
  uint64_t all;
  program *p;
  CHECK_OK(compile_with(g, NULL, 0, NULL, &p, &all));
  program_free(p);
  CHECK_OK(compile_with(g, &o, all / 2, NULL, &p, &all));
  CHECK_OK(tier_check(p));
  for (size_t i = 0; i < p->insts.len; i++) {
    prog_inst *n = &p->insts.at[i];
    if (n->stream != STREAM_HOST) continue;
    for (int k = 0; k < n->n_in + n->n_out; k++, tried++) {
      prog_buffer *f = &p->buffers.at[program_args(p, n)[k]];
      f->tier = k % 2 ? TIER_DEVICE : TIER_FLASH;
      CHECK_FAILS(tier_check(p), "is on stream host and reaches into tier");
      f->tier = TIER_HOST;
    }
    n->op = OP_COPY;
    CHECK_FAILS(tier_check(p), "runs loops without workspace alone");
    n->op = OP_FUSED;
  }
  CHECK(tried > 50);
  program_free(p);
  hp_graph_free(g);
}

/* The memory of the serial order is a wish, not a limit. */
TEST(without_a_limit_the_search_for_offsets_is_short) {
  grid_graph x;
  bare_target b;
  compilation c;
  compiled made = {0};
  offsets_kept kept = {.plan = {0}};
  uint64_t most = 0;
  grid_graph_make(&grid_rows[OP_FETCH], false, &x);
  CHECK_OK(bare_target_init(&b));
  set_up(&b.t, NULL);
  b.t.offsets = &kept;
  CHECK_OK(compile_begin(x.g, NULL, NULL, &c));
  CHECK_OK(compile_for(&c, &b.t, &made));
  for (size_t k = 0; k < kept.plan.len; k++)
    if (kept.plan.at[k].sum.steps > most) most = kept.plan.at[k].sum.steps;
  CHECK(most > 3000000); /* the serial order's memory is not reached at once */
  CHECK(most < 5000000);
  compile_end(&c);
  program_free(made.p);
  offsets_kept_free(&kept);
  mesh_free(&b.m);
  grid_graph_free(&x);
}

/* --- waits ------------------------------------------------------------------------------------ */

static void remove_wait(program *p, uint32_t wait) {
  memmove(&p->waits.at[wait], &p->waits.at[wait + 1],
          (p->waits.len - wait - 1) * sizeof *p->waits.at);
  p->waits.len--;
  for (size_t i = 0; i < p->insts.len; i++) {
    prog_inst *n = &p->insts.at[i];
    if (wait >= n->wait0 && wait < n->wait0 + n->n_wait) n->n_wait--;
    else if (n->wait0 > wait) n->wait0--;
  }
}

/* Two checkers that share no code: that of the tests, and that of programs from text. */
TEST(offloaded_random_programs_have_no_wait_too_few_and_none_too_many) {
  char why[HAZARD_TEXT];
  size_t removed = 0;
  for (uint64_t seed = 9100; seed < 9110; seed++) {
    random_graph x;
    program *p;
    uint64_t least;
    offsets_kept kept = {.plan = {0}};
    random_graph_make(seed, &(random_options){.streams = seed % 2}, &x);
    if (compile_under(x.g, 1, &kept, &p, &least) == HP_OK) program_free(p);
    else {
      CHECK_OK(compile_under(x.g, least, &kept, &p, &least));
      CHECK(!program_hazard(p, why));
      CHECK_OK(check_text(p));
      for (uint32_t w = 0; w < p->waits.len; w++, removed++) {
        program *less;
        CHECK_OK(program_copy(p, &less));
        remove_wait(less, w);
        bool found = program_hazard(less, why), refused = check_text(less) != HP_OK;
        err_clear();
        if (!found || !refused) {
          str text = {0};
          program_print(p, &text);
          test_fail(__FILE__, __LINE__,
                    "seed %d: wait %u of %zu may go, says the checker of %s\n%s", (int)seed, w,
                    p->waits.len, found ? "texts" : "tests", text.at);
        }
        program_free(less);
      }
      program_free(p);
    }
    offsets_kept_free(&kept);
    random_graph_free(&x);
  }
  CHECK(removed > 120);
}

/* Each operand of each kernel on another tier: all are found. */
TEST(a_kernel_that_reaches_into_another_tier_is_found_in_every_program) {
  size_t tried = 0;
  for (uint64_t seed = 9200; seed < 9220; seed++) {
    random_graph x;
    program *p;
    uint64_t all;
    random_graph_make(seed, &(random_options){.streams = true}, &x);
    CHECK_OK(compile_under(x.g, 0, NULL, &p, &all));
    CHECK_OK(tier_check(p));
    for (size_t i = 0; i < p->insts.len; i++) {
      const prog_inst *n = program_inst(p, i);
      bool moves = n->op == OP_FETCH || n->op == OP_OFFLOAD || n->op == OP_COPY;
      for (int k = 0; !moves && k < n->n_in + n->n_out; k++, tried++) {
        prog_buffer *f = &p->buffers.at[program_args(p, n)[k]];
        uint8_t tier = f->tier;
        f->tier = TIER_HOST;
        CHECK_FAILS(tier_check(p), "reaches into tier host");
        f->tier = tier;
      }
    }
    program_free(p);
    random_graph_free(&x);
  }
  CHECK(tried > 100);
}
