#include "prog/actions.h"

#include <string.h>

static const char letters[] = "FBWU";

char action_letter(uint8_t action) {
  int i = 0;
  while (action >> i > 1) i++;
  return letters[i];
}

uint8_t actions_parse(const char *text) {
  uint8_t all = 0;
  for (; *text; text++) {
    const char *at = strchr(letters, *text);
    uint8_t one = at ? (uint8_t)(1u << (at - letters)) : 0;
    if (!one || all & one) return 0;
    all |= one;
  }
  return all;
}

/* Gradients of params that a buffer is used for: none, one, or several. */
enum { NOTHING = 0, SEVERAL = UINT32_MAX }; /* else the buffer of the one, and 1 */

/* What is known of a buffer while instructions are walked, forward and then back. */
typedef struct {
  uint8_t written, touched; /* the latest action that writes it; that reads or writes it */
  bool is_sum;      /* a named tensor that the backward writes: each micro-batch adds to it */
  bool in_backward; /* such a sum, which B needs: none of its instructions can wait */
  bool read_by_backward, written_by_backward; /* by an instruction that comes later and is of B */
  bool read_by_update;
  uint16_t stage; /* of the last instruction that writes it */
  uint32_t used_for;
} buffer_use;

typedef struct {
  const program *p;
  uint8_t *action;
  buffer_use *use; /* by root buffer */
} splitter;

static uint32_t root_of(const splitter *s, const prog_inst *n, int k) {
  return program_arg(s->p, n, k)->root;
}

static uint8_t later(uint8_t a, uint8_t b) { return a > b ? a : b; }

static uint8_t first_action(const splitter *s, const prog_inst *n) {
  static const uint8_t of_phase[] = {[PHASE_FORWARD] = ACTION_FORWARD,
                                     [PHASE_BACKWARD] = ACTION_BACKWARD,
                                     [PHASE_UPDATE] = ACTION_UPDATE};
  uint8_t a = of_phase[n->phase];
  for (int k = 0; k < n->n_in; k++) {
    const buffer_use *u = &s->use[root_of(s, n, k)];
    a = later(a, later(u->written, u->is_sum ? ACTION_BACKWARD : a));
  }
  for (int k = n->n_in; k < n->n_in + n->n_out; k++) a = later(a, s->use[root_of(s, n, k)].touched);
  return a;
}

/* By phase, but never before what the instruction needs: sums of gradients that are built after
 * the backward are of the backward, and so is all that reads them. */
static void set_phases(splitter *s) {
  for (size_t b = 0; b < s->p->buffers.len; b++) s->use[b].written = s->use[b].touched = 0;
  for (size_t i = 0; i < s->p->insts.len; i++) {
    const prog_inst *n = program_inst(s->p, i);
    uint8_t a = s->action[i] = first_action(s, n);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      buffer_use *u = &s->use[root_of(s, n, k)];
      u->touched = later(u->touched, a);
      if (k < n->n_in) continue;
      u->written = later(u->written, a);
      u->stage = n->stage;
    }
  }
}

static void find_sums(splitter *s) {
  for (size_t i = 0; i < s->p->insts.len; i++) {
    const prog_inst *n = program_inst(s->p, i);
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
      bool named = program_arg(s->p, n, k)->place == PLACE_STATE;
      if (named && s->action[i] == ACTION_BACKWARD) s->use[root_of(s, n, k)].is_sum = true;
    }
  }
}

static uint32_t join(uint32_t a, uint32_t b) {
  return a == b || b == NOTHING ? a : a == NOTHING ? b : SEVERAL;
}

/* Results of the backward are named tensors, outputs, and what the update reads. */
static void set_ends(splitter *s) {
  for (uint32_t b = 0; b < s->p->buffers.len; b++) {
    const prog_buffer *f = &s->p->buffers.at[b];
    if (f->flags & BUFFER_OUTPUT) s->use[f->root].used_for = SEVERAL; /* another stage may wait */
    else if (f->root == b && f->place == PLACE_STATE) s->use[b].used_for = b + 1;
  }
  for (size_t i = 0; i < s->p->insts.len; i++) {
    const prog_inst *n = program_inst(s->p, i);
    for (int k = 0; s->action[i] == ACTION_UPDATE && k < n->n_in; k++)
      s->use[root_of(s, n, k)].read_by_update = true;
  }
}

/* What the update reads is a gradient by itself, unless it is also added to a named one. */
static uint32_t used_for(const splitter *s, uint32_t root) {
  const buffer_use *u = &s->use[root];
  return u->used_for == NOTHING && u->read_by_update ? root + 1 : u->used_for;
}

/* Can the instruction wait until the rest of the backward is done? */
static bool can_wait(const splitter *s, const prog_inst *n) {
  for (int k = 0; k < n->n_in; k++) {
    const buffer_use *u = &s->use[root_of(s, n, k)];
    if (u->written_by_backward || u->in_backward) return false;
  }
  for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
    const buffer_use *u = &s->use[root_of(s, n, k)];
    uint32_t one = used_for(s, root_of(s, n, k));
    if (one == NOTHING || one == SEVERAL || u->in_backward) return false;
    if (u->read_by_backward || u->written_by_backward) return false;
  }
  return n->n_out > 0;
}

static void set_weights(splitter *s) {
  for (size_t b = 0; b < s->p->buffers.len; b++)
    s->use[b].read_by_backward = s->use[b].written_by_backward = false;
  for (size_t i = s->p->insts.len; i-- > 0;) {
    const prog_inst *n = program_inst(s->p, i);
    if (s->action[i] != ACTION_BACKWARD && s->action[i] != ACTION_WEIGHTS) continue;
    uint32_t ends = NOTHING;
    s->action[i] = can_wait(s, n) ? ACTION_WEIGHTS : ACTION_BACKWARD;
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
      ends = join(ends, used_for(s, root_of(s, n, k)));
      if (s->action[i] == ACTION_BACKWARD) s->use[root_of(s, n, k)].written_by_backward = true;
    }
    for (int k = 0; k < n->n_in; k++) {
      buffer_use *u = &s->use[root_of(s, n, k)];
      bool crosses = u->stage != n->stage && program_arg(s->p, n, k)->place == PLACE_WORK;
      u->used_for = join(u->used_for, crosses ? SEVERAL : ends); /* a stage waits for it */
      if (s->action[i] == ACTION_BACKWARD) u->read_by_backward = true;
    }
  }
}

/* A sum is added to by one action: B of a micro-batch may run before W of the one before.  False:
 * some are of both, and are B's from now on. */
static bool sums_are_of_one_action(splitter *s) {
  bool agree = true;
  for (size_t i = 0; i < s->p->insts.len; i++) {
    const prog_inst *n = program_inst(s->p, i);
    for (int k = 0; s->action[i] == ACTION_BACKWARD && k < n->n_in + n->n_out; k++) {
      buffer_use *u = &s->use[root_of(s, n, k)];
      if (!u->is_sum || u->in_backward) continue;
      u->in_backward = true;
      agree = false;
    }
  }
  return agree;
}

hp_status program_actions(const program *p, uint8_t *action) {
  splitter s = {.p = p, .action = action, .use = mem_calloc(p->buffers.len, sizeof *s.use)};
  HP_TRY_MEM(s.use);
  set_phases(&s);
  find_sums(&s);
  set_phases(&s);
  set_ends(&s);
  do set_weights(&s);
  while (!sums_are_of_one_action(&s));
  mem_free(s.use);
  return HP_OK;
}

hp_status program_all_actions(const program *p, uint8_t *out) {
  uint8_t *action = mem_calloc(p->insts.len + 1, 1);
  HP_TRY_MEM(action);
  hp_status st = program_actions(p, action);
  *out = 0;
  for (size_t i = 0; i < p->insts.len; i++) *out |= action[i];
  mem_free(action);
  return st;
}
