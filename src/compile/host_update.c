#include "compile/host_update.h"

#include <string.h>

enum { SMALL = 4096 }; /* bytes that a small loop touches, at most */

typedef struct {
  const program *p;
  const uint64_t *workspace; /* by kernel */
  host_update_may may;
  const void *context;
  uint8_t *on_host;
  bool *read, *written; /* by root buffer: on the device, by what was looked at so far */
  bool *shared;         /* by instruction: a small loop whose results the device needs */
} updates;

/* One without workspace: there is none on the host. */
static bool is_loop(const updates *u, const prog_inst *n) {
  bool is_update = n->op == OP_FUSED && n->phase == PHASE_UPDATE && n->stream == STREAM_COMPUTE;
  return is_update && !u->workspace[n->kernel];
}

/* A loop that changes named tensors that may be on the host, and no work value. */
static bool is_update(const updates *u, const prog_inst *n) {
  if (!is_loop(u, n)) return false;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    const prog_buffer *f = program_arg(u->p, n, k);
    if (f->place == PLACE_STATE ? !u->may(u->context, f) : k >= n->n_in) return false;
  }
  return true;
}

/* The device uses what the instruction uses. */
static void mark(updates *u, const prog_inst *n) {
  for (int k = 0; k < n->n_in + n->n_out; k++)
    (k < n->n_in ? u->read : u->written)[program_arg(u->p, n, k)->root] = true;
}

/* Does the device write what it reads, or use what it writes, as far as was looked? */
static bool conflicts(const updates *u, const prog_inst *n) {
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    uint32_t root = program_arg(u->p, n, k)->root;
    if (u->written[root] || (k >= n->n_in && u->read[root])) return true;
  }
  return false;
}

static void clear(updates *u) {
  memset(u->read, 0, u->p->buffers.len * sizeof *u->read);
  memset(u->written, 0, u->p->buffers.len * sizeof *u->written);
}

/* --- before -------------------------------------------------------------------------------------
 */

static bool is_small(const updates *u, const prog_inst *n) {
  uint64_t bytes = 0;
  if (!is_loop(u, n)) return false;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    const prog_buffer *f = program_arg(u->p, n, k);
    if (f->place == PLACE_STATE || (k >= n->n_in && f->flags & BUFFER_OUTPUT)) return false;
    bytes += f->bytes;
  }
  return bytes <= SMALL;
}

/* In their order: what the device uses before them stays as it is, and a work value that it has not
 * written is made by the host. */
static void find_before(updates *u) {
  clear(u);
  for (size_t i = 0; i < u->p->insts.len; i++) {
    const prog_inst *n = program_inst(u->p, i);
    bool free = u->on_host[i] != HOST_AFTER && !u->shared[i];
    bool is_kind = free && (is_update(u, n) || is_small(u, n));
    if (is_kind && !conflicts(u, n)) {
      u->on_host[i] = HOST_BEFORE;
      continue;
    }
    if (free || u->shared[i]) u->on_host[i] = HOST_NONE;
    mark(u, n);
  }
}

/* Small loops that the device needs, too, are the device's. */
static bool find_shared(updates *u) {
  bool any = false;
  clear(u);
  for (size_t i = u->p->insts.len; i-- > 0;) {
    const prog_inst *n = program_inst(u->p, i);
    bool before = u->on_host[i] == HOST_BEFORE, shared = false;
    for (int k = n->n_in; k < n->n_in + n->n_out && before; k++) {
      const prog_buffer *f = program_arg(u->p, n, k);
      shared |= f->place == PLACE_WORK && u->read[f->root];
    }
    any |= shared;
    u->shared[i] |= shared;
    if (!before) mark(u, n);
  }
  return any;
}

/* Loops that no update on the host needs stay on the device. */
static void drop_unused(updates *u) {
  bool *needed_there = u->read; /* by root buffer */
  clear(u);
  for (size_t i = u->p->insts.len; i-- > 0;) {
    const prog_inst *n = program_inst(u->p, i);
    if (u->on_host[i] == HOST_NONE) continue;
    bool needed = is_update(u, n);
    for (int k = n->n_in; k < n->n_in + n->n_out; k++)
      needed |= needed_there[program_arg(u->p, n, k)->root];
    if (!needed) u->on_host[i] = HOST_NONE;
    for (int k = 0; k < n->n_in && needed; k++) needed_there[program_arg(u->p, n, k)->root] = true;
  }
}

/* --- after --------------------------------------------------------------------------------------
 */

static void find_after(updates *u) {
  clear(u);
  for (size_t i = u->p->insts.len; i-- > 0;) {
    const prog_inst *n = program_inst(u->p, i);
    if (is_update(u, n) && !conflicts(u, n)) u->on_host[i] = HOST_AFTER;
    else mark(u, n);
  }
}

hp_status host_update_find(const program *p, const uint64_t *workspace, host_update_may may,
                           const void *context, uint8_t *on_host) {
  size_t n = p->buffers.len + 1;
  updates u = {.p = p,
               .workspace = workspace,
               .may = may,
               .context = context,
               .on_host = on_host,
               .read = mem_calloc(n, sizeof *u.read),
               .written = mem_calloc(n, sizeof *u.written),
               .shared = mem_calloc(p->insts.len, sizeof *u.shared)};
  hp_status st = u.read && u.written && u.shared ? HP_OK : HP_ERR_OOM;
  if (!st) {
    memset(on_host, HOST_NONE, p->insts.len);
    find_after(&u);
    do find_before(&u);
    while (find_shared(&u));
    drop_unused(&u);
  }
  mem_free(u.read);
  mem_free(u.written);
  mem_free(u.shared);
  return st;
}
