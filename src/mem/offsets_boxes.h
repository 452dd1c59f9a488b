/* Internal to mem/offsets: the boxes of an exact search, each with the least offset that those
 * placed so far leave it.  A change is undone by going back to a mark. */
#ifndef MEM_OFFSETS_BOXES_H
#define MEM_OFFSETS_BOXES_H

#include "mem/offsets_items.h"

/* Sections of a life, [from, to); until `solid` all boxes alive in one conflict. */
typedef struct {
  uint32_t from, solid, to;
} box_life;

/* An item, or several that are tied: it has a life for each. */
typedef struct {
  uint64_t size, align;
  uint64_t floor;       /* least offset it can have */
  uint64_t offset;      /* where it is placed */
  uint32_t from, to;    /* of all its lives */
  uint32_t life, lives; /* in boxes.life: the first, and their number */
  uint32_t rank;        /* low ones are tried first */
  uint32_t twin;        /* an identical box that is placed before it; itself if there is none */
  uint32_t item;        /* the first of those tied */
  bool placed;
} box;

typedef struct {
  uint32_t box;
  uint64_t floor;
} box_undo;

typedef struct {
  box *b;
  box_life *life;
  uint32_t n, sections;
  uint32_t *near0, *near; /* [n + 1] and conflicting boxes */
  uint64_t *ground;       /* [n] first floor */
  uint64_t *rest;         /* [sections] bytes not placed */
  uint64_t *most;         /* [sections] sum of the sizes that live there */
  box_undo *undo;         /* [undo_cap] */
  size_t undo_len, undo_cap;
} boxes;

/* n items of one tier, the first n_fixed of them fixed: those are below the ground of the others.
 * After a failure, too, boxes_free frees what there is. */
hp_status boxes_build(const offsets_items *t, const uint32_t *item, uint32_t n, uint32_t n_fixed,
                      boxes *out);
void boxes_free(boxes *w);

/* All boxes back on the ground, none placed. */
void boxes_clear(boxes *w);
/* Places a box on its floor and raises the floors of those that conflict with it. */
void boxes_put(boxes *w, uint32_t i);
/* Undoes boxes_put, or only the floors raised since a mark, a length of undo. */
void boxes_take_back(boxes *w, uint32_t i, size_t mark);
void boxes_lower(boxes *w, size_t mark);
/* Raises the floor of a box to a multiple of its alignment; needs room in undo. */
void boxes_raise(boxes *w, uint32_t i, uint64_t floor);

static inline bool boxes_cover(const boxes *w, const box *b, uint32_t section) {
  for (const box_life *l = w->life + b->life; l < w->life + b->life + b->lives; l++)
    if (l->from <= section && section < l->solid) return true;
  return false;
}

static inline uint64_t boxes_align(uint64_t x, uint64_t align) {
  return (x + align - 1) & ~(align - 1);
}

#endif
