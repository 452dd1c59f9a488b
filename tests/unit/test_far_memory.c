/* Devices whose memory the host cannot address: everything but their kernels and their own
 * communicator goes through the mover, with the same bits. */
#include "far_memory.h"
#include "rt/device_mesh.h"
#include "rt/mover.h"
#include "step_case.h"
#include "test.h"

#include <string.h>
#include <sys/stat.h>

enum { ROWS = 12, COLUMNS = 20, N = ROWS * COLUMNS };

static hp_device *open_mesh(const char *text, bool far, bool own) {
  static const hp_layout_rule rule[] = {{"w", "(x,None)"}, {"v", "(None,x)"}};
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 2,
                                               .interpret = true,
                                               .mesh = text,
                                               .layouts = text ? rule : NULL,
                                               .n_layouts = text ? 2 : 0},
                          &d));
  if (far) far_memory_use(d, own);
  return d;
}

static hp_status count_up(void *context, int64_t first, int64_t n, void *to) {
  (void)context;
  for (int64_t i = 0; i < n; i++) ((float *)to)[i] = (float)((first + i) % 7) - 3;
  return HP_OK;
}

/* What a program makes of tensors that are written, filled, loaded and read. */
typedef struct {
  float y[ROWS * ROWS], w[N], loaded[N];
} results;

static void compute(hp_device *d, results *r) {
  const hp_shape rows = {2, {ROWS, COLUMNS}}, columns = {2, {COLUMNS, ROWS}};
  char saved[300];
  float x[N];
  hp_graph *g;
  hp_program *p;
  for (int i = 0; i < N; i++) x[i] = (float)(i % 5) - 2;
  CHECK_OK(hp_param_create(d, "w", HP_F32, rows));
  CHECK_OK(hp_param_create(d, "v", HP_F32, columns));
  CHECK_OK(hp_write(d, "w", x, sizeof x));
  CHECK_OK(hp_fill(d, "v", count_up, NULL));
  CHECK_OK(hp_graph_create(&g));
  hp_tensor w = hp_param(g, "w", HP_F32, rows), v = hp_param(g, "v", HP_F32, columns);
  hp_tensor in = hp_input(g, "x", HP_F32, rows);
  hp_tensor y = hp_einsum(g, "ik,kj->ij", hp_add(g, w, in), v);
  hp_assign(g, w, hp_scale(g, hp_einsum(g, "ij,jk->ik", y, w), 0.125));
  hp_output(g, "y", y);
  CHECK_OK(hp_compile(g, d, NULL, &p));
  for (int k = 0; k < 2; k++)
    CHECK_OK(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"y", r->y, sizeof r->y}}, 2));
  CHECK_OK(hp_read(d, "w", r->w, sizeof r->w));
  CHECK_OK(hp_params_verify(d));
  snprintf(saved, sizeof saved, "%s/saved", test_dir());
  CHECK_OK(hp_params_save(d, saved, NULL, 0));
  CHECK_OK(hp_write(d, "w", x, sizeof x));
  CHECK_OK(hp_params_load(d, saved, NULL, 0));
  CHECK_OK(hp_read(d, "w", r->loaded, sizeof r->loaded));
  CHECK(!memcmp(r->loaded, r->w, sizeof r->w));
  hp_program_free(p);
  hp_graph_free(g);
}

TEST(a_device_whose_memory_the_host_cannot_address_gives_the_same_bits) {
  static results want, got;
  for (int i = 0; i < 2; i++) {
    hp_device *d = open_mesh(NULL, i == 1, false);
    compute(d, i ? &got : &want);
    CHECK(mover_is_host(d->member[0], TIER_DEVICE) == (i == 0));
    CHECK(mover_is_host(d->member[0], TIER_HOST));
    hp_device_close(d);
  }
  CHECK(!memcmp(&got, &want, sizeof got));
}

/* Staging is memory of tier host, while a program is loaded, and none where it is not needed. */
TEST(collectives_of_such_devices_are_staged_or_their_communicators_own) {
  static results want, got;
  hp_device *d = open_mesh("(4)(x)", false, false);
  compute(d, &want);
  CHECK_EQ(d->member[0]->job->memory[TIER_HOST].committed, 0);
  hp_device_close(d);
  for (int own = 0; own < 2; own++) {
    d = open_mesh("(4)(x)", true, own);
    compute(d, &got);
    CHECK(!memcmp(&got, &want, sizeof got));
    CHECK((d->member[0]->job->memory[TIER_HOST].committed > 0) == !own);
    CHECK_EQ(d->member[0]->job->state_bytes[TIER_HOST], 0);
    CHECK((far_memory_collectives() > 0) == (own == 1));
    hp_device_close(d);
  }
}

/* A layer of experts by rows: y of rows that have two experts each. */
static void run_experts(bool far, bool own, float y[ROWS * COLUMNS]) {
  static const hp_layout_rule rule[] = {{"x", "(a,None)"},        {"ids", "(a,None)"},
                                        {"all_x", "(None,None)"}, {"all_ids", "(None,None)"},
                                        {"w", "(a,None,None)"},   {"own_y", "(a,None)"}};
  enum { EXPERTS = 8, SLOTS = 2 };
  float x[ROWS * COLUMNS];
  int32_t ids[ROWS * SLOTS];
  hp_device *d;
  hp_graph *g;
  hp_program *p;
  hp_program_stats s;
  for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)(i % 5) - 2;
  for (int i = 0; i < ROWS * SLOTS; i++) ids[i] = (i / SLOTS * 3 + i % SLOTS) % EXPERTS;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 2,
                                               .interpret = true,
                                               .mesh = "(4)(a)",
                                               .layouts = rule,
                                               .n_layouts = 6},
                          &d));
  if (far) far_memory_use(d, own);
  CHECK_OK(hp_param_create(d, "w", HP_F32, (hp_shape){3, {EXPERTS, COLUMNS, COLUMNS}}));
  CHECK_OK(hp_fill(d, "w", count_up, NULL));
  CHECK_OK(hp_graph_create(&g));
  hp_tensor in = hp_input(g, "x", HP_F32, (hp_shape){2, {ROWS, COLUMNS}});
  hp_tensor of = hp_input(g, "ids", HP_I32, (hp_shape){2, {ROWS, SLOTS}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){3, {EXPERTS, COLUMNS, COLUMNS}});
  of = hp_annotate(g, "all_ids", of);
  in = hp_grouped_matmul(g, hp_annotate(g, "all_x", in), w, of);
  in = hp_sum(g, in, (int64_t[]){1}, 1, false);
  hp_output(g, "y", hp_annotate(g, "own_y", in));
  CHECK_OK(hp_compile(g, d, &(hp_compile_options){.dispatch = HP_DISPATCH_ROWS}, &p));
  CHECK_OK(
      hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"ids", ids, sizeof ids}, {"y", y, sizeof x}}, 3));
  CHECK_OK(hp_program_stats_get(p, &s));
  /* less than all rows of x and y, from three devices, and ids */
  CHECK(s.received > 0 && s.received < ROWS / 4 * 3 * (2 * COLUMNS + SLOTS) * 4);
  hp_program_free(p);
  hp_graph_free(g);
  hp_device_close(d);
}

TEST(rows_of_experts_of_such_devices_are_staged_with_their_ids) {
  static float want[ROWS * COLUMNS], got[ROWS * COLUMNS];
  run_experts(false, false, want);
  for (int own = 0; own < 2; own++) {
    run_experts(true, own, got);
    CHECK(!memcmp(got, want, sizeof got));
  }
}

/* Values and named tensors on other tiers, those of flash through a buffer of the host. */
TEST(offloading_from_such_a_device_gives_the_same_bits) {
  static const char *const pattern[] = {"adam_*", "q.*"};
  static const int offload[] = {HP_OFFLOAD_FLASH, HP_OFFLOAD_HOST};
  char at[300];
  const char *folder = at;
  float loss[2][3];
  snprintf(at, sizeof at, "%s/disk", test_dir());
  mkdir(at, 0700);
  for (int far = 0; far < 2; far++) {
    hp_device_options o = {.threads = 1, .flash = &folder, .n_flash = 1, .flash_limit = 1 << 22};
    hp_device *d;
    step_case s;
    CHECK_OK(hp_device_open(&o, &d));
    if (far) far_memory_use(d, false);
    for (int i = 0; i < 2; i++) CHECK_OK(hp_device_home(d, pattern[i], offload[i]));
    step_open_on(d, NULL, HP_F32, &s);
    for (int i = 0; i < 3; i++) {
      step_run(&s);
      loss[far][i] = s.loss;
    }
    step_close(&s);
  }
  CHECK(!memcmp(loss[0], loss[1], sizeof loss[0]));
}
