/* zbv, v-half, v-min: two stages a device, up the devices and down again, so that every device can
 * hold the same memory, whatever the limit (Qi et al., Pipeline Parallelism with Controllable
 * Memory, 2024).
 *
 * The turns come from a pattern that repeats for each micro-batch: F and B of its two stages move
 * from device to device by a number of slots each.  The faster they come back, the less is in
 * flight: with p devices, 6 slots a micro-batch and 1 slot a move, a device holds 4 p / 6 forwards
 * (v-min). Slower patterns fill the devices earlier where the limit has room.  pipe_fill starts
 * from these turns, moves forwards into the warm-up and W into the gaps; the best of the patterns
 * is kept. */
#include "sched/pipe_kinds.h"

#include <math.h>

/* Slots of a move: F up the devices, F down, B up, B down. */
typedef struct {
  uint8_t f_up, f_down, b_up, b_down;
} v_pattern;
static const v_pattern patterns[] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 1, 1, 2}, {1, 1, 2, 1},
                                     {1, 1, 2, 2}, {1, 1, 2, 3}, {1, 2, 1, 2}, {1, 2, 1, 3},
                                     {1, 3, 3, 3}, {1, 4, 2, 4}};
enum { PATTERNS = sizeof patterns / sizeof *patterns, SLOTS = 6 };

/* When a micro-batch begins F down, B up and B down, on the first device that does so. */
typedef struct {
  uint64_t slots; /* between micro-batches */
  uint64_t f_down, b_up, b_down;
} v_times;

typedef struct {
  uint64_t slot[4]; /* F up, F down, B up, B down of micro-batch 0 on a device */
} v_slots;

static v_slots slots_of(const v_pattern *v, const v_times *t, uint32_t devices, uint32_t d) {
  const uint64_t back = devices - 1 - d;
  return (v_slots){{(uint64_t)v->f_up * d, t->f_down + v->f_down * back,
                    t->b_up + (uint64_t)v->b_up * d, t->b_down + v->b_down * back}};
}

static bool collides(const v_pattern *v, const v_times *t, uint32_t devices) {
  for (uint32_t d = 0; d < devices; d++) {
    const v_slots at = slots_of(v, t, devices, d);
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < i; j++)
        if (at.slot[i] % t->slots == at.slot[j] % t->slots) return true;
  }
  return false;
}

/* Each move as early as possible, plus the slots that are the digits of `wait`. */
static v_times times_of(const v_pattern *v, uint64_t slots, uint32_t devices, uint64_t wait) {
  const uint64_t moves = devices - 1;
  v_times t = {.slots = slots, .f_down = v->f_up * moves + 1 + wait % SLOTS};
  t.b_up = t.f_down + v->f_down * moves + 1 + wait / SLOTS % SLOTS;
  t.b_down = t.b_up + v->b_up * moves + 1 + wait / (SLOTS * SLOTS);
  return t;
}

/* The earliest times at which no device has two rows in one slot; if there are none, rows that
 * collide run one after the other. */
static v_times find_times(const v_pattern *v, uint64_t slots, uint32_t devices) {
  v_times best = times_of(v, slots, devices, 0);
  bool found = !collides(v, &best, devices);
  for (uint64_t wait = 1; wait < SLOTS * SLOTS * SLOTS; wait++) {
    const v_times t = times_of(v, slots, devices, wait);
    if ((found && best.b_down <= t.b_down) || collides(v, &t, devices)) continue;
    best = t;
    found = true;
  }
  return best;
}

static hp_status make_turns(const pipe_request *q, const v_pattern *v, uint64_t slots,
                            pipe_rows *out) {
  const v_times t = find_times(v, slots, q->devices);
  HP_TRY(pipe_kind_create(q, out));
  pipe_place_in_v(out);
  for (uint32_t d = 0; d < q->devices; d++) {
    v_slots next = slots_of(v, &t, q->devices, d);
    uint32_t k[4] = {0};
    pipe_kind_device(out, d);
    for (uint64_t n = 0; n < 4 * (uint64_t)q->microbatches; n++) {
      int i = -1;
      for (int j = 0; j < 4; j++)
        if (k[j] < q->microbatches && (i < 0 || next.slot[j] < next.slot[i])) i = j;
      const bool down = i == 1 || i == 2; /* the second stage of a device */
      pipe_kind_add(out, d, down ? q->stages - 1 - d : d, i < 2 ? PIPE_F : PIPE_B, k[i]++);
      next.slot[i] += slots;
    }
  }
  return HP_OK;
}

typedef struct {
  double score; /* INFINITY: nothing fits */
  v_pattern pattern;
  uint64_t slots;
  pipe_fill_policy policy;
} v_choice;

static hp_status try_pattern(const pipe_request *q, const v_pattern *v, uint64_t slots,
                             bool patient, v_choice *best, pipe_rows *out) {
  const double before = best->score;
  pipe_rows turns;
  HP_TRY(make_turns(q, v, slots, &turns));
  hp_status st = pipe_fill_best(q, &turns, patient, &best->score, &best->policy, out);
  pipe_rows_free(&turns);
  if (best->score < before) {
    best->pattern = *v;
    best->slots = slots;
  }
  return st;
}

/* A slower rhythm has less in flight, down to one micro-batch at a time. */
static hp_status choose(const pipe_request *q, v_choice *best, pipe_rows *out) {
  const uint64_t slowest = 8 * (uint64_t)q->devices;
  best->score = INFINITY;
  for (uint64_t slots = SLOTS; isinf(best->score) && slots < 2 * slowest; slots *= 2)
    for (int i = 0; i < PATTERNS; i++)
      HP_TRY(try_pattern(q, &patterns[i], slots, false, best, out));
  if (isinf(best->score)) return HP_OK;
  const v_pattern chosen = best->pattern;
  return try_pattern(q, &chosen, best->slots, true, best, out);
}

/* Patterns are compared on few micro-batches: enough to reach the state that repeats. */
hp_status pipe_v(const pipe_request *q, pipe_rows *out) {
  pipe_request few = *q;
  v_choice best;
  pipe_rows turns;
  pipe_fill_times times;
  bool fits;
  if (few.microbatches / 3 > q->devices) few.microbatches = 3 * q->devices;
  HP_TRY(choose(&few, &best, out));
  if (few.microbatches == q->microbatches || isinf(best.score)) return HP_OK;
  pipe_rows_free(out);
  HP_TRY(make_turns(q, &best.pattern, best.slots, &turns));
  hp_status st = pipe_fill_with(q, &turns, best.policy, &fits, out, &times);
  pipe_rows_free(&turns);
  HP_ASSERT(st || fits);
  return st;
}
