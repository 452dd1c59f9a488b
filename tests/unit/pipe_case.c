#include "pipe_case.h"

#include "test.h"

#include <stdlib.h>

uint32_t pipe_random(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % below;
}

int pipe_cases(int often) { return getenv("HYPER_QUICK") ? often / 10 : often; }

/* --- lists ------------------------------------------------------------------------------------ */

void pipe_list_get(const pipe_rows *p, pipe_list *out) {
  out->n = pipe_rows_count(p);
  CHECK(out->n <= PIPE_CASE_ROWS);
  for (uint32_t d = 0; d < p->devices; d++)
    for (uint32_t i = p->row0[d]; i < p->row0[d + 1]; i++) {
      out->device[i] = d;
      out->row[i] = p->row[i];
    }
}

void pipe_list_insert(pipe_list *l, size_t at, uint32_t device, pipe_row row) {
  CHECK(l->n < PIPE_CASE_ROWS);
  for (size_t i = l->n++; i > at; i--) {
    l->device[i] = l->device[i - 1];
    l->row[i] = l->row[i - 1];
  }
  l->device[at] = device;
  l->row[at] = row;
}

void pipe_list_remove(pipe_list *l, size_t at) {
  for (size_t i = at + 1; i < l->n; i++) {
    l->device[i - 1] = l->device[i];
    l->row[i - 1] = l->row[i];
  }
  l->n--;
}

void pipe_list_apply(const pipe_list *l, const pipe_rows *like, pipe_rows *out) {
  uint32_t n = 0;
  CHECK_OK(pipe_rows_create(like->stages, like->devices, like->microbatches, l->n, out));
  memcpy(out->placement, like->placement, like->stages * sizeof *like->placement);
  for (uint32_t d = 0; d < like->devices; d++) {
    for (size_t i = 0; i < l->n; i++)
      if (l->device[i] == d) out->row[n++] = l->row[i];
    out->row0[d + 1] = n;
  }
}

/* --- random schedules ------------------------------------------------------------------------- */

typedef struct {
  pipe_rows *p;
  uint64_t *state;
  pipe_list list;
  uint8_t done[9][9];     /* actions of a stage and micro-batch */
  uint8_t backward[9][9]; /* how it is written: B or BW */
  uint32_t left;          /* rows to come */
  bool split, in_order;
} maker;

static bool is_ready(const maker *k, uint32_t s, uint32_t m, uint8_t actions) {
  const uint8_t done = k->done[s][m], gradients = actions & (PIPE_B | PIPE_W);
  if (done & actions) return false;
  if (k->in_order && m && (k->done[s][m - 1] & gradients) != gradients) return false;
  if (actions == PIPE_F) return !s || k->done[s - 1][m] & PIPE_F;
  if (actions == PIPE_W) return k->split && done & PIPE_B;
  return done & PIPE_F && actions == k->backward[s][m] &&
         (s + 1 == k->p->stages || k->done[s + 1][m] & PIPE_B);
}

/* A ready row of a device with one of the actions. */
static bool draw(const maker *k, uint32_t d, uint8_t wanted, pipe_row *out) {
  static const uint8_t action[] = {PIPE_F, PIPE_B, PIPE_W, PIPE_B | PIPE_W};
  uint32_t found = 0;
  for (uint32_t s = 0; s < k->p->stages; s++)
    for (uint32_t m = 0; m < k->p->microbatches; m++)
      for (int a = 0; a < 4; a++)
        if (k->p->placement[s] == d && action[a] & wanted && is_ready(k, s, m, action[a]) &&
            !pipe_random(k->state, ++found))
          *out = (pipe_row){.stage = (uint16_t)s, .actions = action[a], .microbatch = m};
  return found;
}

static void add(maker *k, uint32_t d, pipe_row row) {
  pipe_list_insert(&k->list, k->list.n, d, row);
  k->done[row.stage][row.microbatch] |= row.actions;
  k->left -= row.actions != PIPE_U;
}

static void draw_placement(maker *k) {
  for (uint32_t s = 0; s < k->p->stages; s++)
    k->p->placement[s] = s < k->p->devices ? s : pipe_random(k->state, k->p->devices);
  for (uint32_t s = 0; s < k->p->stages; s++) {
    const uint32_t with = pipe_random(k->state, k->p->stages), d = k->p->placement[s];
    k->p->placement[s] = k->p->placement[with];
    k->p->placement[with] = d;
  }
}

static void read_back(const pipe_rows *p, pipe_rows *out) {
  str text = {0};
  pipe_rows_print(p, &text);
  CHECK_OK(pipe_rows_parse(text.at, "rows", (pipe_shape){0}, out));
  str_free(&text);
}

typedef enum { PIPE_ALONE, PIPE_OVERLAPS, PIPE_IN_ORDER } pipe_kind;

static void make_pipe(uint64_t *state, pipe_kind kind, pipe_rows *out) {
  static maker k;
  pipe_rows shape, made;
  const bool overlaps = kind == PIPE_OVERLAPS, in_order = kind == PIPE_IN_ORDER;
  const uint32_t stages = 1 + in_order + pipe_random(state, in_order ? 5 : 9);
  const uint32_t mixture = pipe_random(state, 3), least = 1 + in_order;
  const uint32_t microbatches = least + pipe_random(state, in_order ? 5 : 9);
  const uint32_t devices = least + pipe_random(state, stages - in_order);
  CHECK_OK(pipe_rows_create(stages, devices, microbatches, 0, &shape));
  k = (maker){.p = &shape, .state = state, .split = mixture, .in_order = in_order};
  draw_placement(&k);
  for (uint32_t s = 0; s < stages; s++)
    for (uint32_t m = 0; m < microbatches; m++)
      k.backward[s][m] = mixture == 2 && pipe_random(state, 2) ? PIPE_B | PIPE_W : PIPE_B;
  k.backward[0][0] = PIPE_B; /* at least one W, or B would stand for both */
  for (uint32_t s = 0; s < stages; s++)
    for (uint32_t m = 0; m < microbatches; m++)
      k.left += 2 + (mixture && k.backward[s][m] == PIPE_B);
  while (k.left) {
    const uint32_t d = pipe_random(state, shape.devices);
    pipe_row row, other;
    if (!draw(&k, d, PIPE_F | PIPE_B | PIPE_W, &row)) continue;
    const bool backward = row.actions & PIPE_B;
    if (overlaps && row.actions != PIPE_W && !pipe_random(state, 3) &&
        draw(&k, d, backward ? PIPE_F : PIPE_B, &other)) {
      row.with_next = true;
      add(&k, d, row);
      row = other;
    }
    add(&k, d, row);
  }
  if (!in_order && !pipe_random(state, 4))
    for (uint32_t s = 0; s < stages; s++)
      add(&k, shape.placement[s], (pipe_row){.stage = (uint16_t)s, .actions = PIPE_U});
  pipe_list_apply(&k.list, &shape, &made);
  read_back(&made, out);
  pipe_rows_free(&made);
  pipe_rows_free(&shape);
}

void random_pipe(uint64_t *state, bool overlaps, pipe_rows *out) {
  make_pipe(state, overlaps ? PIPE_OVERLAPS : PIPE_ALONE, out);
}

void random_pipe_in_order(uint64_t *state, pipe_rows *out) { make_pipe(state, PIPE_IN_ORDER, out); }

/* --- running rows, one at a time -------------------------------------------------------------- */

/* What a row needs: an action of a stage and micro-batch. */
static bool needs(const pipe_rows *p, const pipe_row *row, int which, uint32_t *stage,
                  uint8_t *action) {
  const bool f = row->actions == PIPE_F, b = row->actions & PIPE_B;
  *stage = row->stage;
  *action = row->actions == PIPE_W ? PIPE_B : PIPE_F;
  if (row->actions == PIPE_U) return false;
  if (!which) return !f;
  *stage = f ? row->stage - 1u : row->stage + 1u;
  *action = f ? PIPE_F : PIPE_B;
  return f ? row->stage > 0 : b && row->stage + 1u < p->stages;
}

typedef struct {
  uint32_t at[3][9][9]; /* of F, B, W; UINT32_MAX: none */
} row_table;

static void find_rows(const pipe_rows *p, row_table *t) {
  memset(t, 0xff, sizeof *t);
  for (uint32_t i = 0; i < pipe_rows_count(p); i++)
    for (int a = 0; a < 3; a++)
      if (p->row[i].actions & 1 << a) t->at[a][p->row[i].stage][p->row[i].microbatch] = i;
}

static bool can_run(const pipe_rows *p, const row_table *t, uint32_t i, const bool *ran,
                    uint32_t *missing) {
  for (uint32_t k = i; k <= i + p->row[i].with_next; k++)
    for (int which = 0; which < 2; which++) {
      uint32_t stage;
      uint8_t action;
      if (!needs(p, &p->row[k], which, &stage, &action)) continue;
      *missing = t->at[action == PIPE_F ? 0 : 1][stage][p->row[k].microbatch];
      if (*missing == UINT32_MAX || !ran[*missing]) return false;
    }
  return true;
}

void pipe_run_slowly(const pipe_rows *p, pipe_halt *out) {
  static bool ran[PIPE_CASE_ROWS];
  row_table table;
  uint32_t next[64];
  bool progress = true;
  find_rows(p, &table);
  memset(ran, 0, sizeof ran);
  for (uint32_t d = 0; d < p->devices; d++) next[d] = p->row0[d];
  while (progress) {
    progress = false;
    for (uint32_t d = 0; d < p->devices; d++)
      while (next[d] < p->row0[d + 1] && can_run(p, &table, next[d], ran, &out->needs[d])) {
        const bool two = p->row[next[d]].with_next;
        for (int k = 0; k <= two; k++) ran[next[d]++] = true;
        progress = true;
      }
  }
  out->halted = false;
  for (uint32_t d = 0; d < p->devices; d++) {
    out->at[d] = next[d] < p->row0[d + 1] ? next[d] : UINT32_MAX;
    out->halted |= out->at[d] != UINT32_MAX;
  }
}
