#include "compile/pipeline_ahead.h"

#include "base/hash.h"
#include "prog/actions.h"
#include "prog/ahead.h"
#include "sim/cost.h"

#include <string.h>

/* The piece with the update on a mesh. */
typedef struct {
  const pipeline_step *s;
  uint32_t mesh;
  const program *p; /* NULL: it has none there */
  uint8_t *part;    /* ahead_parts, of all stages */
  map assigned;     /* names of tensors that it writes, */
  map ahead;        /* and of those that it gives as ahead.NAME */
} update_part;

static const program *lowered(const pipeline_step *s, uint32_t piece, uint32_t on) {
  return s->lowered[(size_t)piece * (size_t)s->place.meshes + on];
}

/* The crossing of that name to the mesh; NULL: there is none. */
static const pipeline_crossing *crossing_to(const pipeline_step *s, uint32_t piece, uint32_t on,
                                            const char *name) {
  for (size_t c = 0; c < s->crossings; c++) {
    const pipeline_crossing *x = &s->crossing[c];
    if (x->piece == piece && x->to == on && !strcmp(x->name, name)) return x;
  }
  return NULL;
}

static bool crosses_from(const pipeline_step *s, uint32_t piece, uint32_t on, const char *name) {
  for (size_t c = 0; c < s->crossings; c++) {
    const pipeline_crossing *x = &s->crossing[c];
    if (x->piece == piece && x->from == on && !strcmp(x->name, name)) return true;
  }
  return false;
}

static hp_status add_name(map *to, const char *name) { return map_set(to, name, strlen(name), 1); }

static bool has_name(const map *of, const char *name) {
  uint32_t found;
  return map_get(of, name, strlen(name), &found);
}

static hp_status read_update(update_part *u) {
  u->p = lowered(u->s, u->s->update, u->mesh);
  if (!u->p) return HP_OK;
  u->part = mem_calloc(u->p->insts.len + 1, 1);
  HP_TRY_MEM(u->part);
  HP_TRY(ahead_parts(u->p, NULL, u->part));
  for (uint32_t i = 0; i < u->p->insts.len; i++) {
    const prog_inst *n = program_inst(u->p, i);
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
      const prog_buffer *to = program_arg(u->p, n, k), *root = &u->p->buffers.at[to->root];
      const char *name = to->flags & BUFFER_OUTPUT ? program_str(u->p, to->name) : "";
      if (root->place == PLACE_STATE) HP_TRY(add_name(&u->assigned, program_str(u->p, root->name)));
      if (ahead_param(name)) HP_TRY(add_name(&u->ahead, ahead_param(name)));
    }
  }
  return HP_OK;
}

static void free_update(update_part *u) {
  mem_free(u->part);
  map_free(&u->assigned);
  map_free(&u->ahead);
}

/* What is computed beforehand, of each stage; one that waits for another mesh cannot run ahead. */
static void count_update(const update_part *u, bool *can, double *guess_s) {
  for (uint32_t i = 0; u->p && i < u->p->insts.len; i++) {
    const prog_inst *n = program_inst(u->p, i);
    if (!(u->part[i] & AHEAD_PART)) continue;
    for (int k = 0; k < n->n_in; k++) {
      const prog_buffer *in = &u->p->buffers.at[program_arg(u->p, n, k)->root];
      const char *name = in->flags & BUFFER_INPUT ? program_str(u->p, in->name) : "";
      if (crossing_to(u->s, u->s->update, u->mesh, name)) can[n->stage] = false;
    }
    if (u->part[i] == AHEAD_PART)
      guess_s[n->stage] += cost_inst(u->s->cluster, u->s->mesh[u->mesh], u->p, n);
  }
}

/* Can an instruction of a forward read this before the update? */
static bool may_read(const update_part *u, uint32_t piece, const program *p, const prog_buffer *b) {
  const prog_buffer *root = &p->buffers.at[b->root];
  const char *name = root->name ? program_str(p, root->name) : "";
  if (root->place == PLACE_STATE) return !has_name(&u->assigned, name) || has_name(&u->ahead, name);
  if (!(root->flags & BUFFER_INPUT)) return true;
  const pipeline_crossing *x = crossing_to(u->s, piece, u->mesh, name);
  return !x || !x->param; /* which comes once a step */
}

static bool may_write(const update_part *u, uint32_t piece, const program *p,
                      const prog_buffer *b) {
  const prog_buffer *root = &p->buffers.at[b->root];
  if (root->place == PLACE_STATE) return false;
  return !(b->flags & BUFFER_OUTPUT) || crosses_from(u->s, piece, u->mesh, program_str(p, b->name));
}

static void check_forwards(const update_part *u, uint32_t piece, const uint8_t *action, bool *can) {
  const program *p = lowered(u->s, piece, u->mesh);
  for (uint32_t i = 0; p && i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (action[i] != ACTION_FORWARD) continue;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      const prog_buffer *b = program_arg(p, n, k);
      bool may = k < n->n_in ? may_read(u, piece, p, b) : may_write(u, piece, p, b);
      if (!may) can[n->stage] = false;
    }
  }
}

static bool is_of_micro(const pipeline_step *s, uint32_t piece) {
  for (uint32_t i = 0; i < s->micros; i++)
    if (s->piece_of[i] == piece) return true;
  return false;
}

static hp_status find_mesh(const pipeline_step *s, uint32_t on, uint8_t *const *action, bool *can,
                           double *guess_s) {
  update_part u = {.s = s, .mesh = on};
  hp_status st = read_update(&u);
  if (!st) count_update(&u, can, guess_s);
  for (uint32_t k = 0; !st && k < s->pieces; k++)
    if (is_of_micro(s, k))
      check_forwards(&u, k, action[(size_t)k * (size_t)s->place.meshes + on], can);
  free_update(&u);
  return st;
}

hp_status pipeline_ahead_stages(const pipeline_step *s, uint8_t *const *action, bool *can,
                                double *guess_s) {
  for (int k = 0; k < s->place.stages; k++) {
    can[k] = true;
    guess_s[k] = 0;
  }
  for (uint32_t m = 0; m < (uint32_t)s->place.meshes; m++)
    HP_TRY(find_mesh(s, m, action, can, guess_s));
  return HP_OK;
}
