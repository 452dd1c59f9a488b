#include "compile/pipeline_blocks.h"

#include "base/hash.h"
#include "prog/actions.h"
#include "sim/cost.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const program *p;
  const uint8_t *action;
  uint32_t *user; /* [buffers] of roots: 1 + the place in `out` of the block that uses it first */
  block_costs *out;
} blocks_of;

/* The place of an instruction's block. */
static hp_status find_block(blocks_of *b, const prog_inst *n, size_t *at) {
  block_costs *out = b->out;
  for (*at = out->len; *at > 0; --*at) {
    const block_cost *c = &out->at[*at - 1];
    if (c->stage == n->stage && c->block == n->block) return --*at, HP_OK;
  }
  *at = out->len;
  block_cost made = {.block = n->block, .stage = n->stage};
  return vec_push(out, made) ? HP_OK : HP_ERR_OOM;
}

/* Buffers of a forward instruction, that no other has used before, are of its block. */
static void use_buffers(blocks_of *b, const prog_inst *n, size_t at) {
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    const uint32_t root = program_arg(b->p, n, k)->root;
    const prog_buffer *x = &b->p->buffers.at[root];
    if (b->user[root]) continue;
    b->user[root] = (uint32_t)at + 1;
    if (x->place == PLACE_STATE) b->out->at[at].param_bytes += x->bytes;
  }
}

/* What a backward reads is stored until then; each buffer counts once. */
static void store_buffers(blocks_of *b, const prog_inst *n) {
  for (int k = 0; k < n->n_in; k++) {
    const uint32_t root = program_arg(b->p, n, k)->root;
    const prog_buffer *x = &b->p->buffers.at[root];
    if (!b->user[root] || x->place == PLACE_STATE) continue;
    b->out->at[b->user[root] - 1].stored_bytes += x->bytes;
    b->user[root] = 0;
  }
}

static hp_status add_forwards(blocks_of *b, const pipeline_step *s, int on) {
  for (size_t i = 0; i < b->p->insts.len; i++) {
    const prog_inst *n = program_inst(b->p, i);
    size_t at;
    if (b->action[i] & ACTION_UPDATE) continue;
    HP_TRY(find_block(b, n, &at));
    block_cost *c = &b->out->at[at];
    double seconds = cost_inst(s->cluster, s->mesh[on], b->p, n);
    if (b->action[i] & ACTION_FORWARD) c->forward_s += seconds;
    else c->backward_s += seconds;
    if (b->action[i] & ACTION_FORWARD) use_buffers(b, n, at);
  }
  for (size_t i = 0; i < b->p->insts.len; i++)
    if (b->action[i] & (ACTION_BACKWARD | ACTION_WEIGHTS)) store_buffers(b, program_inst(b->p, i));
  return HP_OK;
}

static hp_status add_mesh(const pipeline_step *s, int on, block_costs *out) {
  const program *p = s->lowered[(size_t)s->piece_of[0] * (size_t)s->place.meshes + (size_t)on];
  if (!p) return HP_OK;
  uint8_t *action = mem_calloc(p->insts.len + 1, 1);
  blocks_of b = {.p = p,
                 .action = action,
                 .user = mem_calloc(p->buffers.len + 1, sizeof *b.user),
                 .out = out};
  hp_status st = action && b.user ? program_actions(p, action) : HP_ERR_OOM;
  if (!st) st = add_forwards(&b, s, on);
  mem_free(b.user);
  mem_free(action);
  return st;
}

static int by_place(const void *a, const void *b) {
  const block_cost *x = a, *y = b;
  if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
  return x->block < y->block ? -1 : x->block > y->block;
}

hp_status pipeline_blocks_find(const pipeline_step *s, block_costs *out) {
  for (int m = 0; m < s->place.meshes; m++) HP_TRY(add_mesh(s, m, out));
  if (out->len) qsort(out->at, out->len, sizeof *out->at, by_place);
  return HP_OK;
}

hp_status pipeline_state_bytes(const pipeline_step *s, int on, uint64_t *out) {
  map seen = {0};
  hp_status st = HP_OK;
  *out = 0;
  for (size_t k = 0; k < s->pieces; k++) {
    const program *p = s->lowered[k * (size_t)s->place.meshes + (size_t)on];
    for (uint32_t b = 0; !st && p && b < p->buffers.len; b++) {
      const prog_buffer *x = &p->buffers.at[b];
      const char *name = program_str(p, x->name);
      uint32_t there;
      if (x->place != PLACE_STATE || x->root != b) continue;
      if (map_get(&seen, name, strlen(name), &there)) continue;
      *out += x->bytes;
      st = map_set(&seen, name, strlen(name), 1);
    }
  }
  map_free(&seen);
  return st;
}
