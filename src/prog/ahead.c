#include "prog/ahead.h"

#include "base/mem.h"

#include <string.h>

static const char prefix[] = "ahead.";

const char *ahead_param(const char *output) {
  const size_t n = sizeof prefix - 1;
  return strncmp(output, prefix, n) ? NULL : output + n;
}

bool ahead_is_in(const program *p) {
  for (size_t i = 0; i < p->insts.len; i++)
    if (p->insts.at[i].ahead) return true;
  return false;
}

/* Marks what an instruction reads, if it makes something that is marked. */
static void follow(const program *p, uint32_t i, uint8_t *needed, uint8_t *part) {
  const prog_inst *n = program_inst(p, i);
  for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
    const prog_buffer *to = program_arg(p, n, k);
    part[i] |= needed[to->root];
    if (to->place == PLACE_STATE) part[i] |= AHEAD_REST;
  }
  for (int k = 0; k < n->n_in; k++) needed[program_arg(p, n, k)->root] |= part[i];
}

/* The outputs that an instruction makes. */
static void mark_outputs(const program *p, uint32_t i, const bool *stages, uint8_t *needed) {
  const prog_inst *n = program_inst(p, i);
  for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
    const prog_buffer *to = program_arg(p, n, k);
    if (!(to->flags & BUFFER_OUTPUT)) continue;
    bool ahead = ahead_param(program_str(p, to->name)) != NULL;
    if (!ahead) needed[to->root] |= AHEAD_REST;
    else if (!stages || stages[n->stage]) needed[to->root] |= AHEAD_PART;
  }
}

hp_status ahead_parts(const program *p, const bool *stages, uint8_t *part) {
  uint8_t *needed = mem_calloc(p->buffers.len + 1, 1); /* by root buffer */
  HP_TRY_MEM(needed);
  memset(part, 0, p->insts.len);
  for (uint32_t i = 0; i < p->insts.len; i++) mark_outputs(p, i, stages, needed);
  for (uint32_t i = (uint32_t)p->insts.len; i-- > 0;) follow(p, i, needed, part);
  mem_free(needed);
  return HP_OK;
}

/* --- values that are kept between runs -------------------------------------------------------- */

enum { MADE_AGAIN = 1, USED_ELSE = 2, TOUCHED = 4 };

/* By root buffer: AHEAD_AGAIN makes it, other instructions of the step use it, any does. */
static void find_uses(const program *p, uint8_t *use) {
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      uint8_t *u = &use[program_arg(p, n, k)->root];
      *u |= TOUCHED;
      if (n->ahead == AHEAD_AGAIN && k >= n->n_in) *u |= MADE_AGAIN;
      if (!n->ahead) *u |= USED_ELSE;
    }
  }
}

static void keep_values(program *p, const ahead_range *r, const uint8_t *use) {
  for (uint32_t k = 0; k < r->n; k++) {
    prog_buffer *in = &p->buffers.at[r->again + k], *out = &p->buffers.at[r->next + k];
    const uint8_t both = MADE_AGAIN | USED_ELSE;
    if (in->root != r->again + k || (use[in->root] & both) != both) continue;
    in->flags |= BUFFER_CARRIED_IN;
    out->flags |= BUFFER_CARRIED_OUT;
    in->carries = out->carries = 1 + in->root;
  }
}

/* Buffers of the next step that nothing uses, gradients for example, go; of the others the numbers
 * change. */
static hp_status drop_unused(program *p, const ahead_range *range, size_t ranges,
                             const uint8_t *use) {
  const size_t n = p->buffers.len;
  bool *drop = mem_calloc(n + 1, sizeof *drop);
  uint32_t *now = mem_calloc(n + 1, sizeof *now), kept = 0;
  hp_status st = drop && now ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && i < ranges; i++)
    for (uint32_t b = range[i].next; b < range[i].next + range[i].n; b++)
      drop[b] = !(use[p->buffers.at[b].root] & TOUCHED);
  for (uint32_t b = 0; !st && b < n; b++) now[b] = drop[b] ? PROG_NONE : kept++;
  for (uint32_t b = 0; !st && b < n; b++) {
    prog_buffer f = p->buffers.at[b];
    if (drop[b]) continue;
    f.root = now[f.root];
    if (f.carries) f.carries = 1 + now[f.carries - 1];
    p->buffers.at[now[b]] = f;
  }
  for (size_t k = 0; !st && k < p->args.len; k++) p->args.at[k] = now[p->args.at[k]];
  if (!st) p->buffers.len = kept;
  mem_free(drop);
  mem_free(now);
  return st;
}

hp_status ahead_carry(program *p, const ahead_range *range, size_t ranges) {
  uint8_t *use = mem_calloc(p->buffers.len + 1, 1);
  HP_TRY_MEM(use);
  find_uses(p, use);
  for (size_t i = 0; i < ranges; i++) keep_values(p, &range[i], use);
  hp_status st = drop_unused(p, range, ranges, use);
  mem_free(use);
  return st;
}
