#include "rt/state_io.h"

#include "base/dtype.h"

#include <string.h>

enum { WINDOW = 1 << 20, FILL_BYTES = 4 << 20 };
#define NOTHING UINT64_MAX

hp_status state_io_begin(const device *d, const state_tensor *t, state_io *io) {
  *io = (state_io){.d = d, .t = t, .at = NOTHING};
  if (t->tier != TIER_FLASH || !t->bytes) return HP_OK;
  io->window = mem_map(WINDOW);
  HP_TRY_MEM(io->window);
  return HP_OK;
}

/* Bytes of the tensor in the window at that place. */
static uint64_t window_bytes(const state_io *io, uint64_t at) {
  uint64_t left = io->t->bytes - at;
  return left < WINDOW ? left : WINDOW;
}

static hp_status flush(state_io *io) {
  if (!io->changed) return HP_OK;
  io->changed = false;
  return mover_write(io->d, io->t, io->at, io->window, window_bytes(io, io->at));
}

/* reads: what is there counts, too. */
static hp_status move_window(state_io *io, uint64_t at, bool reads) {
  if (io->at == at) return HP_OK;
  HP_TRY(flush(io));
  io->at = NOTHING;
  if (reads) HP_TRY(mover_read(io->d, io->t, at, io->window, window_bytes(io, at)));
  io->at = at;
  return HP_OK;
}

hp_status state_io_write(state_io *io, uint64_t offset, const void *from, uint64_t bytes) {
  const char *next = from;
  if (!io->window) return mover_write(io->d, io->t, offset, from, bytes);
  while (bytes) {
    uint64_t at = offset / WINDOW * WINDOW, within = offset - at;
    uint64_t room = window_bytes(io, at), n = room - within < bytes ? room - within : bytes;
    HP_TRY(move_window(io, at, n < room));
    memcpy(io->window + within, next, n);
    io->changed = true;
    offset += n;
    next += n;
    bytes -= n;
  }
  return HP_OK;
}

hp_status state_io_read(state_io *io, uint64_t offset, void *to, uint64_t bytes) {
  char *next = to;
  if (!io->window) return mover_read(io->d, io->t, offset, to, bytes);
  while (bytes) {
    uint64_t at = offset / WINDOW * WINDOW, within = offset - at;
    uint64_t room = window_bytes(io, at), n = room - within < bytes ? room - within : bytes;
    HP_TRY(move_window(io, at, true));
    memcpy(next, io->window + within, n);
    offset += n;
    next += n;
    bytes -= n;
  }
  return HP_OK;
}

hp_status state_io_end(state_io *io, hp_status st) {
  if (!st) st = flush(io);
  mem_unmap(io->window, WINDOW);
  io->window = NULL;
  return st;
}

hp_status state_write_shard(const device *d, const state_tensor *t, const shard_view *v,
                            const void *global) {
  state_io io;
  box_runs r;
  hp_status st = state_io_begin(d, t, &io);
  for (runs_begin(&r, &v->own, &v->all, &v->room); !st && r.n; runs_next(&r))
    st = state_io_write(&io, (uint64_t)r.to * v->element,
                        (const char *)global + (size_t)r.from * v->element,
                        (uint64_t)r.n * v->element);
  return state_io_end(&io, st);
}

hp_status state_read_shard(const device *d, const state_tensor *t, const shard_view *v,
                           void *global) {
  state_io io;
  box_runs r;
  hp_status st = state_io_begin(d, t, &io);
  for (runs_begin(&r, &v->own, &v->room, &v->all); !st && r.n; runs_next(&r))
    st = state_io_read(&io, (uint64_t)r.from * v->element,
                       (char *)global + (size_t)r.to * v->element, (uint64_t)r.n * v->element);
  return state_io_end(&io, st);
}

/* --- filling ---------------------------------------------------------------------------------- */

/* A fill of the rows from `first` on. */
typedef struct {
  hp_fill_fn fill;
  void *context;
  int64_t first;
} shifted;

static hp_status fill_shifted(void *context, int64_t first, int64_t n, void *to) {
  const shifted *s = context;
  return s->fill(s->context, s->first + first, n, to);
}

hp_status state_fill(const device *d, const state_tensor *t, hp_fill_fn fill, void *context) {
  const backend_iface *b = d->backend;
  int64_t n = value_elements(&t->type), rows = t->type.rank ? t->type.dim[0] : 1;
  if (t->tier != TIER_FLASH) return b->fill(d->dev, device_address(d, t), &t->type, fill, context);
  if (!n) return HP_OK;
  int64_t row = n / rows;
  uint64_t row_bytes = (uint64_t)row * dtype_size((hp_dtype)t->type.dtype);
  int64_t step = row_bytes < FILL_BYTES ? (int64_t)(FILL_BYTES / row_bytes) : 1;
  if (step > rows) step = rows;
  size_t bytes = (size_t)((uint64_t)step * row_bytes);
  char *stage = mem_map(bytes);
  HP_TRY_MEM(stage);
  hp_status st = HP_OK;
  for (int64_t at = 0; !st && at < rows; at += step) {
    ir_value some = t->type;
    int64_t have = rows - at < step ? rows - at : step;
    shifted s = {fill, context, at * row};
    if (some.rank) some.dim[0] = have;
    st = b->fill(d->dev, stage, &some, fill_shifted, &s);
    if (!st) st = mover_write(d, t, (uint64_t)at * row_bytes, stage, (uint64_t)have * row_bytes);
  }
  mem_unmap(stage, bytes);
  return st;
}
