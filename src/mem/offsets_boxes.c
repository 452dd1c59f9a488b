#include "mem/offsets_boxes.h"

#include "base/mem.h"

#include <string.h>

void boxes_free(boxes *w) {
  mem_free(w->b);
  mem_free(w->life);
  mem_free(w->near0);
  mem_free(w->near);
  mem_free(w->ground);
  mem_free(w->rest);
  mem_free(w->most);
  mem_free(w->undo);
  *w = (boxes){0};
}

/* A life in times: from the first definition until no stream conflicts, and until one does not. */
static box_life times_of(const offsets_items *t, uint32_t item) {
  const uint32_t *first = t->first + (size_t)item * t->streams;
  const uint32_t *dead = t->dead + (size_t)item * t->streams;
  box_life l = {OFFSETS_NEVER, OFFSETS_NEVER, 0};
  for (uint32_t s = 0; s < t->streams; s++) {
    if (first[s] < l.from) l.from = first[s];
    if (dead[s] > l.to) l.to = dead[s];
    if (dead[s] < l.solid) l.solid = dead[s];
  }
  return l;
}

static hp_status list_lives(boxes *w, const offsets_items *t, uint32_t *n) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < w->n; i++)
    for (uint32_t k = w->b[i].item; k != OFFSETS_NEVER; k = t->item[k].tied) ++*n;
  w->life = mem_calloc(*n, sizeof *w->life);
  HP_TRY_MEM(w->life);
  for (uint32_t i = 0; i < w->n; i++) {
    w->b[i].life = at;
    for (uint32_t k = w->b[i].item; k != OFFSETS_NEVER; k = t->item[k].tied)
      w->life[at++] = times_of(t, k);
    w->b[i].lives = at - w->b[i].life;
  }
  return HP_OK;
}

static void set_range(const boxes *w, box *b) {
  b->from = UINT32_MAX;
  for (const box_life *l = w->life + b->life; l < w->life + b->life + b->lives; l++) {
    if (l->from < b->from) b->from = l->from;
    if (l->to > b->to) b->to = l->to;
  }
}

/* Lives in sections: the times at which an item of the tier is born. */
static hp_status set_sections(boxes *w, const offsets_items *t) {
  uint32_t n = 0;
  HP_TRY(list_lives(w, t, &n));
  uint32_t *rank = mem_calloc((size_t)t->points + 1, sizeof *rank);
  HP_TRY_MEM(rank);
  for (uint32_t k = 0; k < n; k++) rank[w->life[k].from + 1] = 1;
  for (uint32_t x = 0; x < t->points; x++) rank[x + 1] += rank[x];
  for (uint32_t k = 0; k < n; k++) {
    box_life *l = &w->life[k];
    *l = (box_life){rank[l->from], rank[l->solid], rank[l->to]};
  }
  for (uint32_t i = 0; i < w->n; i++) set_range(w, &w->b[i]);
  w->sections = rank[t->points];
  mem_free(rank);
  return HP_OK;
}

/* Does any item tied to a conflict with one tied to b? */
static bool conflict(const offsets_items *t, uint32_t a, uint32_t b) {
  for (; a != OFFSETS_NEVER; a = t->item[a].tied)
    for (uint32_t k = b; k != OFFSETS_NEVER; k = t->item[k].tied)
      if (offsets_items_conflict(t, a, k)) return true;
  return false;
}

static hp_status set_neighbours(boxes *w, const offsets_items *t) {
  w->near0 = mem_calloc((size_t)w->n + 1, sizeof *w->near0);
  HP_TRY_MEM(w->near0);
  for (int pass = 0; pass < 2; pass++) {
    uint32_t len = 0;
    for (uint32_t i = 0; i < w->n; i++) {
      w->near0[i] = len;
      for (uint32_t j = 0; j < w->n; j++)
        if (i != j && conflict(t, w->b[i].item, w->b[j].item)) {
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
  return x->lives == 1 && y->lives == 1 && x->size == y->size && x->align == y->align &&
         w->ground[i] == w->ground[j] &&
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

/* Adds bytes, modulo 2^64, to the sections of its lives. */
static void add_size(const boxes *w, const box *b, uint64_t *sum, uint64_t bytes) {
  for (const box_life *l = w->life + b->life; l < w->life + b->life + b->lives; l++)
    for (uint32_t x = l->from; x < l->solid; x++) sum[x] += bytes;
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
      if (end > w->ground[i] && conflict(t, item[k], w->b[i].item)) w->ground[i] = end;
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
  for (uint32_t i = 0; i < w->n; i++) add_size(w, &w->b[i], w->most, w->b[i].size);
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
  add_size(w, b, w->rest, 0 - b->size);
  for (uint32_t k = w->near0[i]; k < w->near0[i + 1]; k++)
    boxes_raise(w, w->near[k], b->floor + b->size);
}

void boxes_take_back(boxes *w, uint32_t i, size_t mark) {
  box *b = &w->b[i];
  boxes_lower(w, mark);
  b->placed = false;
  add_size(w, b, w->rest, b->size);
}
