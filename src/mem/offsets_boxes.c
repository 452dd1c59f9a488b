#include "mem/offsets_boxes.h"

#include "base/mem.h"

#include <string.h>

void boxes_free(boxes *w) {
  mem_free(w->b);
  mem_free(w->near0);
  mem_free(w->near);
  mem_free(w->ground);
  mem_free(w->rest);
  mem_free(w->most);
  mem_free(w->undo);
  *w = (boxes){0};
}

/* Live ranges in sections: the times at which an item of the tier is born. */
static hp_status set_sections(boxes *w, const offsets_items *t) {
  uint32_t *rank = mem_calloc((size_t)t->points + 1, sizeof *rank);
  HP_TRY_MEM(rank);
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t i = 0; i < w->n; i++) {
      const uint32_t *first = t->first + (size_t)w->b[i].item * t->streams;
      const uint32_t *dead = t->dead + (size_t)w->b[i].item * t->streams;
      uint32_t from = OFFSETS_NEVER, to = 0, solid = OFFSETS_NEVER;
      for (uint32_t s = 0; s < t->streams; s++) {
        if (first[s] < from) from = first[s];
        if (dead[s] > to) to = dead[s];
        if (dead[s] < solid) solid = dead[s];
      }
      if (pass == 0) rank[from + 1] = 1;
      else w->b[i].from = rank[from], w->b[i].to = rank[to], w->b[i].solid = rank[solid];
    }
    if (pass == 0)
      for (uint32_t x = 0; x < t->points; x++) rank[x + 1] += rank[x];
  }
  w->sections = rank[t->points];
  mem_free(rank);
  return HP_OK;
}

static hp_status set_neighbours(boxes *w, const offsets_items *t) {
  w->near0 = mem_calloc((size_t)w->n + 1, sizeof *w->near0);
  HP_TRY_MEM(w->near0);
  for (int pass = 0; pass < 2; pass++) {
    uint32_t len = 0;
    for (uint32_t i = 0; i < w->n; i++) {
      w->near0[i] = len;
      for (uint32_t j = 0; j < w->n; j++)
        if (i != j && offsets_items_conflict(t, w->b[i].item, w->b[j].item)) {
          if (pass) w->near[len] = j;
          len++;
        }
    }
    w->near0[w->n] = len;
    if (!pass) w->near = mem_calloc(len, sizeof *w->near);
    HP_TRY_MEM(w->near);
  }
  return HP_OK;
}

static bool are_alike(const boxes *w, const offsets_items *t, uint32_t i, uint32_t j) {
  const box *x = &w->b[i], *y = &w->b[j];
  size_t row = t->streams * sizeof(uint32_t);
  return x->size == y->size && x->align == y->align && w->ground[i] == w->ground[j] &&
         !memcmp(t->first + (size_t)x->item * t->streams, t->first + (size_t)y->item * t->streams,
                 row) &&
         !memcmp(t->dead + (size_t)x->item * t->streams, t->dead + (size_t)y->item * t->streams,
                 row);
}

/* A twin conflicts with the box, so it is among its neighbours; the last one before it counts. */
static void set_twins(boxes *w, const offsets_items *t) {
  for (uint32_t i = 0; i < w->n; i++) {
    w->b[i].twin = i;
    for (uint32_t k = w->near0[i]; k < w->near0[i + 1] && w->near[k] < i; k++)
      if (are_alike(w, t, i, w->near[k])) w->b[i].twin = w->near[k];
  }
}

hp_status boxes_build(const offsets_items *t, const uint32_t *item, uint32_t n, uint32_t n_fixed,
                      boxes *w) {
  *w = (boxes){.n = n - n_fixed};
  w->b = mem_calloc(w->n, sizeof *w->b);
  w->ground = mem_calloc(w->n, sizeof *w->ground);
  HP_TRY_MEM(w->b && w->ground);
  for (uint32_t i = 0; i < w->n; i++) {
    const offsets_item *m = &t->item[item[n_fixed + i]];
    w->b[i] = (box){.size = m->size, .align = m->align, .item = item[n_fixed + i]};
    for (uint32_t k = 0; k < n_fixed; k++) {
      const offsets_item *f = &t->item[item[k]];
      uint64_t end = boxes_align(f->offset + f->size, m->align);
      if (end > w->ground[i] && offsets_items_conflict(t, item[k], w->b[i].item))
        w->ground[i] = end;
    }
  }
  HP_TRY(set_sections(w, t));
  HP_TRY(set_neighbours(w, t));
  set_twins(w, t);
  w->undo_cap = 2 * (size_t)w->n * w->n;
  w->rest = mem_calloc(w->sections, sizeof *w->rest);
  w->most = mem_calloc(w->sections, sizeof *w->most);
  /* Not zeroed: most of it is never touched, and so takes no memory. */
  w->undo = mem_realloc(NULL, w->undo_cap, sizeof *w->undo);
  HP_TRY_MEM(w->rest && w->most && w->undo);
  for (uint32_t i = 0; i < w->n; i++)
    for (uint32_t x = w->b[i].from; x < w->b[i].solid; x++) w->most[x] += w->b[i].size;
  return HP_OK;
}

void boxes_clear(boxes *w) {
  w->undo_len = 0;
  for (uint32_t i = 0; i < w->n; i++) w->b[i].placed = false, w->b[i].floor = w->ground[i];
  memcpy(w->rest, w->most, w->sections * sizeof *w->rest);
}

void boxes_lower(boxes *w, size_t mark) {
  while (w->undo_len > mark) {
    box_undo u = w->undo[--w->undo_len];
    w->b[u.box].floor = u.floor;
  }
}

void boxes_raise(boxes *w, uint32_t i, uint64_t floor) {
  box *b = &w->b[i];
  floor = boxes_align(floor, b->align);
  if (b->placed || b->floor >= floor) return;
  w->undo[w->undo_len++] = (box_undo){i, b->floor};
  b->floor = floor;
}

void boxes_put(boxes *w, uint32_t i) {
  box *b = &w->b[i];
  b->offset = b->floor;
  b->placed = true;
  for (uint32_t x = b->from; x < b->solid; x++) w->rest[x] -= b->size;
  for (uint32_t k = w->near0[i]; k < w->near0[i + 1]; k++)
    boxes_raise(w, w->near[k], b->floor + b->size);
}

void boxes_take_back(boxes *w, uint32_t i, size_t mark) {
  box *b = &w->b[i];
  boxes_lower(w, mark);
  b->placed = false;
  for (uint32_t x = b->from; x < b->solid; x++) w->rest[x] += b->size;
}
