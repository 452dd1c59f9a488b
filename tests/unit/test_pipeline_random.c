/* Random schedules of a pipeline are run, and have the numbers of one device; those with a planted
 * error are refused with the rows named. */
#include "api/api_pipeline.h"
#include "base/str.h"
#include "compile/pipeline_check.h"
#include "hyperparallel.h"
#include "pipe_case.h"
#include "test.h"

#include <string.h>
#include <unistd.h>

enum { ROWS = 3, DIM = 4, STAGES = 6, MICROS = 6, HANGS_S = 120 };

static const hp_shape square = {2, {DIM, DIM}};

/* A chain of products, a stage each, and the sums of their gradients. */
static hp_graph *build(int stages, bool adds) {
  hp_graph *g;
  hp_tensor w[STAGES], grad[STAGES], x;
  char name[16];
  CHECK_OK(hp_graph_create(&g));
  x = hp_input(g, "x", HP_F32, (hp_shape){2, {ROWS, DIM}});
  for (int s = 0; s < stages; s++) {
    snprintf(name, sizeof name, "w%d", s);
    hp_stage(g, s);
    w[s] = hp_param(g, name, HP_F32, square);
    x = hp_map(g, "tanh", hp_einsum(g, "ab,bc->ac", x, w[s]), HP_NONE, HP_NONE);
  }
  hp_tensor loss = hp_sum(g, hp_mul(g, x, x), (int64_t[]){0, 1}, 2, false);
  hp_output(g, "loss", loss);
  CHECK_OK(hp_grad(g, loss, w, stages, grad));
  for (int s = 0; s < stages; s++) {
    snprintf(name, sizeof name, "g%d", s);
    hp_stage(g, s);
    hp_tensor held = hp_param(g, name, HP_F32, square);
    hp_assign(g, held, adds ? hp_add(g, held, grad[s]) : grad[s]);
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

static float number(int i, int k) { return (float)((i * 37 + k * 11) % 23 - 11) / 16; }

static hp_status open_rows(const pipe_rows *rows, hp_device **d) {
  str on = {0}, text = {0};
  for (uint32_t i = 0; rows && i < rows->devices; i++) str_add(&on, i ? ";(1)(x)" : "(1)(x)");
  if (rows) pipe_rows_print(rows, &text);
  hp_device_options o = {.threads = 1,
                         .interpret = true,
                         .mesh = rows ? on.at : NULL,
                         .pipeline = rows ? text.at : NULL,
                         .stages = rows ? (int)rows->stages : 0,
                         .may_miss = true};
  hp_status st = hp_device_open(&o, d);
  str_free(&on);
  str_free(&text);
  return st;
}

typedef struct {
  hp_piece *piece[2];
  hp_program *p; /* NULL: it was refused */
} linked;

static hp_status link_on(hp_device *d, int stages, int micros, linked *out) {
  static const char *const action[] = {"FBW", "FBW_add"};
  str rows = {0};
  *out = (linked){.p = NULL};
  for (int i = 0; i < 2; i++) {
    hp_graph *g = build(stages, i);
    CHECK_OK(hp_piece_compile(g, d, NULL, &out->piece[i]));
    hp_graph_free(g);
  }
  for (int i = 0; i < micros; i++) str_printf(&rows, "* %s %d\n", action[i > 0], i);
  hp_status st = hp_link(out->piece, action, 2, rows.at, &out->p);
  str_free(&rows);
  return st;
}

static void unlink_it(linked *l) {
  hp_program_free(l->p);
  hp_piece_free(l->piece[0]);
  hp_piece_free(l->piece[1]);
}

typedef struct {
  float loss[MICROS], g[STAGES][DIM * DIM];
} numbers;

/* On the device of the rows; NULL: on one device. */
static void run(const pipe_rows *rows, int stages, int micros, numbers *out) {
  hp_device *d;
  linked l;
  float x[MICROS][ROWS * DIM], w[DIM * DIM];
  char names[2 * MICROS][16];
  hp_io io[2 * MICROS];
  memset(out, 0, sizeof *out);
  CHECK_OK(open_rows(rows, &d));
  CHECK_OK(link_on(d, stages, micros, &l));
  for (int s = 0; s < stages; s++) {
    char name[16];
    snprintf(name, sizeof name, "w%d", s);
    for (int i = 0; i < DIM * DIM; i++) w[i] = number(i, s + 3);
    CHECK_OK(hp_write(d, name, w, sizeof w));
  }
  for (int i = 0; i < micros; i++) {
    for (int k = 0; k < ROWS * DIM; k++) x[i][k] = number(k, i);
    snprintf(names[2 * i], 16, "x@%d", i);
    snprintf(names[2 * i + 1], 16, "loss@%d", i);
    io[2 * i] = (hp_io){names[2 * i], x[i], sizeof x[i]};
    io[2 * i + 1] = (hp_io){names[2 * i + 1], &out->loss[i], sizeof(float)};
  }
  CHECK_OK(hp_run(l.p, io, 2 * micros));
  for (int s = 0; s < stages; s++) {
    char name[16];
    snprintf(name, sizeof name, "g%d", s);
    CHECK_OK(hp_read(d, name, out->g[s], sizeof out->g[s]));
  }
  unlink_it(&l);
  hp_device_close(d);
}

static void check_random(uint64_t seed, int n) {
  static numbers one[STAGES + 1][MICROS + 1];
  uint64_t state = seed;
  alarm(HANGS_S);
  for (int i = 0; i < n; i++) {
    pipe_rows rows;
    numbers many;
    random_pipe_in_order(&state, &rows);
    int stages = (int)rows.stages, micros = (int)rows.microbatches;
    numbers *same = &one[stages][micros];
    if (same->loss[0] == 0) run(NULL, stages, micros, same);
    run(&rows, stages, micros, &many);
    if (memcmp(&many, same, sizeof many)) test_fail(__FILE__, __LINE__, "case %d differs", i);
    pipe_rows_free(&rows);
  }
  alarm(0);
}

TEST(random_schedules_run_to_the_numbers_of_one_device) { check_random(5, pipe_cases(40)); }

TEST(torture_random_schedules_run_to_the_numbers_of_one_device) { check_random(1005, 500); }

/* --- planted errors --------------------------------------------------------------------------- */

typedef enum { SWAPPED, MISSING, TWICE, ELSEWHERE, FAULTS } fault;

/* The place of another row of the same stage and micro-batch, or of the next micro-batch. */
static size_t other_row(const pipe_list *l, size_t at) {
  const pipe_row *x = &l->row[at];
  for (size_t i = 0; i < l->n; i++) {
    const pipe_row *y = &l->row[i];
    if (i != at && y->stage == x->stage && y->microbatch == x->microbatch) return i;
  }
  return at;
}

/* The row that the message is to name. */
static pipe_row plant(pipe_list *l, fault f, uint32_t devices, uint64_t *state) {
  size_t at = pipe_random(state, (uint32_t)l->n), with = other_row(l, at);
  pipe_row row = l->row[at];
  uint32_t home = l->device[at];
  CHECK(with != at);
  switch (f) {
  case SWAPPED:
    l->row[at] = l->row[with];
    l->row[with] = row;
    break;
  case MISSING: pipe_list_remove(l, at); break;
  case TWICE: pipe_list_insert(l, pipe_random(state, (uint32_t)l->n + 1), home, row); break;
  default: l->device[at] = (home + 1 + pipe_random(state, devices - 1)) % devices;
  }
  return row;
}

static hp_status try_rows(const pipe_rows *rows) {
  hp_device *d;
  linked l;
  HP_TRY(open_rows(rows, &d));
  hp_status st = link_on(d, (int)rows->stages, (int)rows->microbatches, &l);
  unlink_it(&l);
  hp_device_close(d);
  return st;
}

static void check_planted(uint64_t seed, int n) {
  static pipe_list list;
  uint64_t state = seed;
  alarm(HANGS_S);
  for (int i = 0; i < n; i++) {
    pipe_rows rows, bad;
    char stage[24];
    fault f = (fault)(i % FAULTS);
    random_pipe_in_order(&state, &rows);
    pipe_list_get(&rows, &list);
    pipe_row row = plant(&list, f, rows.devices, &state);
    pipe_list_apply(&list, &rows, &bad);
    snprintf(stage, sizeof stage, "stage %u", row.stage);
    hp_status st = try_rows(&bad);
    if (!st || !strstr(err_message(), stage))
      test_fail(__FILE__, __LINE__, "case %d, fault %d: \"%s\", want %s", i, f,
                st ? err_message() : "accepted", stage);
    err_clear();
    pipe_rows_free(&rows);
    pipe_rows_free(&bad);
  }
  alarm(0);
}

TEST(schedules_with_a_planted_error_are_refused) { check_planted(9, pipe_cases(40)); }

TEST(torture_schedules_with_a_planted_error_are_refused) { check_planted(1009, 500); }

/* --- planted errors in what meshes send and receive ------------------------------------------- */

/* A row of the mesh that is a transfer, from the k-th on; the mesh has some. */
static size_t find_transfer(const mesh_rows *m, size_t k) {
  while (!m->row.at[k % m->row.len].transfer) k++;
  return k % m->row.len;
}

static bool has_transfers(const mesh_rows *m) {
  for (size_t i = 0; i < m->row.len; i++)
    if (m->row.at[i].transfer) return true;
  return false;
}

static void remove_row(mesh_rows *m, size_t at) {
  memmove(&m->row.at[at], &m->row.at[at + 1], (m->row.len - at - 1) * sizeof *m->row.at);
  m->row.len--;
}

/* Plants an error in the rows of a program that runs, and takes it back. */
static void check_rows_of(const pipeline_plan *plan, uint64_t *state) {
  mesh_rows *m = &plan->mesh[pipe_random(state, (uint32_t)plan->meshes)];
  if (!has_transfers(m)) return;
  size_t at = find_transfer(m, pipe_random(state, (uint32_t)m->row.len)), len = m->row.len;
  link_row row = m->row.at[at];
  CHECK_OK(pipeline_check(plan->mesh, plan->meshes));
  remove_row(m, at);
  CHECK_FAILS(pipeline_check(plan->mesh, plan->meshes), m->transfer.at[row.transfer - 1].sends
                                                            ? "waits for a row that sends it"
                                                            : "waits for a row that receives it");
  memmove(&m->row.at[at + 1], &m->row.at[at], (len - at - 1) * sizeof *m->row.at);
  m->row.at[at] = row;
  m->row.len = len;
  size_t next = find_transfer(m, at + 1);
  link_row other = m->row.at[next];
  if (next <= at) return;
  m->row.at[at] = other; /* two transfers in the other order, */
  m->row.at[next] = row;
  hp_status st = pipeline_check(plan->mesh, plan->meshes);
  bool same_peer = m->transfer.at[row.transfer - 1].peer == m->transfer.at[other.transfer - 1].peer;
  CHECK(st || !same_peer);
  if (st) CHECK(strstr(err_message(), "meshes wait for each other: row "));
  err_clear();
  m->row.at[next] = m->row.at[at]; /* and one of them twice */
  CHECK_FAILS(pipeline_check(plan->mesh, plan->meshes), "has done");
  m->row.at[at] = row;
  m->row.at[next] = other;
}

static void check_transfers(uint64_t seed, int n) {
  uint64_t state = seed;
  for (int i = 0; i < n; i++) {
    pipe_rows rows;
    hp_device *d;
    linked l;
    random_pipe_in_order(&state, &rows);
    CHECK_OK(open_rows(&rows, &d));
    CHECK_OK(link_on(d, (int)rows.stages, (int)rows.microbatches, &l));
    check_rows_of(&l.p->pipeline->plan, &state);
    unlink_it(&l);
    hp_device_close(d);
    pipe_rows_free(&rows);
  }
}

TEST(transfers_without_their_other_end_or_in_another_order_are_refused) {
  check_transfers(13, pipe_cases(40));
}

TEST(torture_transfers_without_their_other_end_or_in_another_order_are_refused) {
  check_transfers(1013, 500);
}
