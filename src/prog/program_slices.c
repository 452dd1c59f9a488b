#include "prog/program_slices.h"

#include <stdlib.h>

typedef struct {
  uint32_t root, buffer;
  uint64_t at, bytes;
} slice;

static int by_place(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->root != y->root) return x->root < y->root ? -1 : 1;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* The views of named tensors that instructions access; direct[root]: it is also accessed itself. */
static size_t list_slices(const program *p, bool *seen, bool *direct, slice *list) {
  size_t n = 0;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *d = program_inst(p, i);
    for (int k = 0; k < d->n_in + d->n_out; k++) {
      uint32_t b = program_args(p, d)[k];
      const prog_buffer *f = &p->buffers.at[b];
      if (f->place != PLACE_STATE || seen[b]) continue;
      seen[b] = true;
      if (f->root == b) direct[b] = true;
      else list[n++] = (slice){f->root, b, f->at, f->bytes};
    }
  }
  if (n) qsort(list, n, sizeof *list, by_place);
  return n;
}

static bool are_same(const slice *a, const slice *b) {
  return a->root == b->root && a->at == b->at && a->bytes == b->bytes;
}

static bool are_apart(const slice *s, size_t n) {
  for (size_t i = 1; i < n; i++)
    if (!are_same(&s[i - 1], &s[i]) && s[i - 1].at + s[i - 1].bytes > s[i].at) return false;
  return true;
}

hp_status program_slices(const program *p, uint32_t *whole) {
  size_t buffers = p->buffers.len;
  bool *seen = mem_calloc(buffers, sizeof *seen), *direct = mem_calloc(buffers, sizeof *direct);
  slice *list = mem_calloc(buffers, sizeof *list);
  hp_status st = seen && direct && list ? HP_OK : HP_ERR_OOM;
  size_t n = st ? 0 : list_slices(p, seen, direct, list);
  for (size_t b = 0; !st && b < buffers; b++) whole[b] = p->buffers.at[b].root;
  for (size_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && list[end].root == list[i].root;) end++;
    if (direct[list[i].root] || !are_apart(list + i, end - i)) continue;
    for (size_t k = i, first = i; k < end; k++) {
      if (!are_same(&list[first], &list[k])) first = k;
      whole[list[k].buffer] = list[first].buffer;
    }
  }
  mem_free(seen);
  mem_free(direct);
  mem_free(list);
  return st;
}
