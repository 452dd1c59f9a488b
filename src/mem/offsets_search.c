#include "mem/offsets_search.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Depth-first branch and bound as in MiniMalloc (Moffitt, ASPLOS 2024), implemented independently.
 *
 * Of all plans within the target consider one with the least sum of offsets: no item of it can be
 * moved down.  Built in order of (offset, rank), each item is at its floor: the end of the highest
 * earlier item that it conflicts with.  Only such plans are searched:
 *   frontier   no item is below the one before it;
 *   dominance  an item whose floor is at or above the end of another one placed on its own floor is
 *              not next: the other one would fit below it;
 *   sections   at every time the remaining items must fit on the lowest floor there;
 *   parts      if no remaining item lives across some time, the two sides are independent;
 *   twins      identical items are placed in the order of their ranks. */

typedef struct {
  uint64_t size, align;
  uint64_t floor;           /* least offset it can have */
  uint64_t offset;          /* where it is placed */
  uint32_t from, to, solid; /* sections of its life [from, to); until solid it is a clique's */
  uint32_t rank, twin;      /* twin: the previous identical item; itself if there is none */
  uint32_t item;
  bool placed;
} box;

typedef struct {
  uint32_t box;
  uint64_t floor;
} undo;

typedef struct {
  uint64_t key[3]; /* greater first */
  uint32_t box;
} ranked;

struct offsets_search {
  const offsets_items *items;
  box *b;
  uint32_t n, sections;
  uint32_t *near0, *near; /* conflicting boxes */
  uint64_t *ground;       /* [n] first floor */
  uint64_t *rest;         /* [sections] bytes not placed */
  uint64_t *most;         /* [sections] sum of the sizes that live there */
  uint32_t *next, *ends;  /* [sections + 1] scratch */
  uint32_t *level;        /* a stack of lists of boxes */
  size_t level_len;
  undo *undo;
  ranked *ranked; /* [n] scratch */
  size_t undo_len;
  uint64_t target, work;
};

void offsets_search_free(offsets_search *w) {
  if (!w) return;
  mem_free(w->b);
  mem_free(w->near0);
  mem_free(w->near);
  mem_free(w->ground);
  mem_free(w->rest);
  mem_free(w->most);
  mem_free(w->next);
  mem_free(w->ends);
  mem_free(w->level);
  mem_free(w->undo);
  mem_free(w->ranked);
  mem_free(w);
}

/* Work of about 1 ns per step, and steps of a call of solve. */
enum { SECTIONS_A_STEP = 8, CALL_STEPS = 40 };

static uint64_t align_up(uint64_t x, uint64_t align) { return (x + align - 1) & ~(align - 1); }

/* Live ranges in sections: the times at which an item of the tier is born. */
static hp_status set_sections(offsets_search *w, const offsets_items *t) {
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

static hp_status set_neighbours(offsets_search *w, const offsets_items *t) {
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

hp_status offsets_search_create(const offsets_items *t, const uint32_t *item, uint32_t n,
                                uint32_t n_fixed, offsets_search **out) {
  hp_status st = HP_ERR_OOM;
  offsets_search *w = mem_calloc(1, sizeof *w);
  HP_TRY_MEM(w);
  w->items = t;
  w->n = n - n_fixed;
  w->b = mem_calloc(w->n, sizeof *w->b);
  w->ground = mem_calloc(w->n, sizeof *w->ground);
  if (!w->b || !w->ground) goto done;
  for (uint32_t i = 0; i < w->n; i++) {
    const offsets_item *m = &t->item[item[n_fixed + i]];
    w->b[i] = (box){.size = m->size, .align = m->align, .item = item[n_fixed + i]};
    for (uint32_t k = 0; k < n_fixed; k++) {
      const offsets_item *f = &t->item[item[k]];
      uint64_t end = align_up(f->offset + f->size, m->align);
      if (end > w->ground[i] && offsets_items_conflict(t, item[k], w->b[i].item))
        w->ground[i] = end;
    }
  }
  HP_TRY_GOTO(set_sections(w, t), st);
  HP_TRY_GOTO(set_neighbours(w, t), st);
  st = HP_ERR_OOM;
  w->rest = mem_calloc(w->sections, sizeof *w->rest);
  w->most = mem_calloc(w->sections, sizeof *w->most);
  w->ends = mem_calloc((size_t)w->sections + 1, sizeof *w->ends);
  w->next = mem_calloc((size_t)w->sections + 1, sizeof *w->next);
  w->level = mem_calloc(2 * (size_t)w->n * (w->n + 1), sizeof *w->level);
  w->undo = mem_calloc((size_t)w->n * w->n, sizeof *w->undo); /* a box raises each other once */
  w->ranked = mem_calloc(w->n, sizeof *w->ranked);
  if (!w->rest || !w->most || !w->next || !w->ends || !w->level || !w->undo || !w->ranked)
    goto done;
  for (uint32_t i = 0; i < w->n; i++)
    for (uint32_t x = w->b[i].from; x < w->b[i].solid; x++) w->most[x] += w->b[i].size;
  *out = w;
  return HP_OK;
done:
  offsets_search_free(w);
  return st;
}

static void spend_steps(offsets_search *w, uint64_t steps) {
  w->work = w->work > steps ? w->work - steps : 0;
}

static uint32_t skip_to_free(uint32_t *next, uint32_t x) {
  while (next[x] != x) x = next[x] = next[next[x]];
  return x;
}

/* Sorts boxes by floor, then rank: nearly sorted already, so by insertion. */
static void sort_boxes(offsets_search *w, uint32_t *id, uint32_t n) {
  uint64_t moves = 0;
  for (uint32_t i = 1; i < n; i++) {
    uint32_t x = id[i], j = i;
    const box *b = &w->b[x];
    for (; j > 0; j--) {
      const box *o = &w->b[id[j - 1]];
      if (o->floor < b->floor || (o->floor == b->floor && o->rank < b->rank)) break;
      id[j] = id[j - 1];
    }
    id[j] = x;
    moves += i - j;
  }
  spend_steps(w, moves);
}

/* Do the remaining boxes fit at every time on the lowest of their floors there? */
static bool do_sections_fit(offsets_search *w, const uint32_t *id, uint32_t n, uint32_t from,
                            uint32_t to, uint64_t frontier) {
  for (uint32_t x = from; x <= to; x++) w->next[x] = x;
  for (uint32_t i = 0; i < n; i++) { /* ascending floors: the first one that covers a section */
    const box *b = &w->b[id[i]];
    uint64_t floor = b->floor > frontier ? b->floor : frontier;
    if (floor + b->size > w->target) return false;
    for (uint32_t x = skip_to_free(w->next, b->from); x < b->solid; x = skip_to_free(w->next, x)) {
      if (floor + w->rest[x] > w->target) return false;
      w->next[x] = x + 1;
    }
  }
  return true;
}

static void roll_back(offsets_search *w, size_t mark) {
  while (w->undo_len > mark) {
    undo u = w->undo[--w->undo_len];
    w->b[u.box].floor = u.floor;
  }
}

static void put_box(offsets_search *w, uint32_t i) {
  box *b = &w->b[i];
  uint64_t end = b->floor + b->size;
  spend_steps(w, (b->solid - b->from) / SECTIONS_A_STEP + w->near0[i + 1] - w->near0[i]);
  b->offset = b->floor;
  b->placed = true;
  for (uint32_t x = b->from; x < b->solid; x++) w->rest[x] -= b->size;
  for (uint32_t k = w->near0[i]; k < w->near0[i + 1]; k++) {
    box *o = &w->b[w->near[k]];
    uint64_t floor = align_up(end, o->align);
    if (o->placed || o->floor >= floor) continue;
    w->undo[w->undo_len++] = (undo){w->near[k], o->floor};
    o->floor = floor;
  }
}

static void take_back(offsets_search *w, uint32_t i, size_t mark) {
  box *b = &w->b[i];
  roll_back(w, mark);
  b->placed = false;
  for (uint32_t x = b->from; x < b->solid; x++) w->rest[x] += b->size;
}

/* The progress of the search: the offset and the rank of the last box placed. */
typedef struct {
  uint64_t frontier;
  uint32_t rank;
} progress;

static search_result place_boxes(offsets_search *w, uint32_t *id, uint32_t n, progress at);

/* Gives every section of [from, to) the number of its part in next[]; returns the number of
 * parts. */
static uint32_t number_parts(offsets_search *w, const uint32_t *id, uint32_t n, uint32_t from,
                             uint32_t to) {
  uint32_t *part = w->next, alive = 0, parts = 0;
  memset(part + from, 0, ((size_t)to - from + 1) * sizeof *part);
  memset(w->ends + from, 0, ((size_t)to - from + 1) * sizeof *w->ends);
  for (uint32_t i = 0; i < n; i++) part[w->b[id[i]].from]++, w->ends[w->b[id[i]].to]++;
  for (uint32_t x = from; x < to; x++) {
    uint32_t born = part[x];
    alive -= w->ends[x];
    parts += born && !alive;
    alive += born;
    part[x] = parts;
  }
  return parts;
}

/* Solves independent sections one by one, each with a separate list of its boxes. */
static search_result solve_parts(offsets_search *w, const uint32_t *id, uint32_t n, uint32_t parts,
                                 progress at) {
  uint32_t *list = w->level + w->level_len, *part = list + n, len = 0, done = 0;
  size_t mark = w->undo_len;
  search_result r = SEARCH_FOUND;
  w->level_len += 2 * (size_t)n;
  for (uint32_t i = 0; i < n; i++) part[i] = w->next[w->b[id[i]].from];
  for (uint32_t k = 1; k <= parts && r == SEARCH_FOUND; k++) {
    uint32_t start = len;
    for (uint32_t i = 0; i < n; i++)
      if (part[i] == k) list[len++] = id[i];
    r = place_boxes(w, list + start, len - start, at);
    if (r == SEARCH_FOUND) done = len;
  }
  if (r != SEARCH_FOUND)
    while (done) take_back(w, list[--done], mark);
  w->level_len -= 2 * (size_t)n;
  return r;
}

/* Each box that may be next, in turn. */
static search_result solve_next(offsets_search *w, const uint32_t *id, uint32_t n,
                                uint64_t least_end, progress at) {
  uint32_t *rest = w->level + w->level_len;
  search_result r = SEARCH_NONE;
  for (uint32_t i = 0; i < n && r == SEARCH_NONE; i++) {
    const box *b = &w->b[id[i]];
    if (b->floor >= least_end) break;
    if (b->floor < at.frontier || (b->floor == at.frontier && b->rank < at.rank)) continue;
    if (b->twin != id[i] && !w->b[b->twin].placed) continue;
    size_t mark = w->undo_len;
    put_box(w, id[i]);
    memcpy(rest, id, i * sizeof *id);
    memcpy(rest + i, id + i + 1, (n - i - 1) * sizeof *id);
    w->level_len += n;
    r = place_boxes(w, rest, n - 1, (progress){b->offset, b->rank});
    w->level_len -= n;
    if (r != SEARCH_FOUND) take_back(w, id[i], mark);
  }
  return r;
}

/* Places the boxes of the list, none below the frontier.  If no plan is found, the state is
 * unchanged. */
static search_result place_boxes(offsets_search *w, uint32_t *id, uint32_t n, progress at) {
  if (!n) return SEARCH_FOUND;
  if (!w->work) return SEARCH_TIRED;
  uint32_t from = UINT32_MAX, to = 0;
  uint64_t least_end = UINT64_MAX;
  for (uint32_t i = 0; i < n; i++) {
    const box *b = &w->b[id[i]];
    if (b->from < from) from = b->from;
    if (b->to > to) to = b->to;
    if (b->floor + b->size < least_end) least_end = b->floor + b->size;
  }
  spend_steps(w, CALL_STEPS + 2 * n + (to - from) / 2);
  sort_boxes(w, id, n);
  if (!do_sections_fit(w, id, n, from, to, at.frontier)) return SEARCH_NONE;
  uint32_t parts = number_parts(w, id, n, from, to);
  return parts > 1 ? solve_parts(w, id, n, parts, at) : solve_next(w, id, n, least_end, at);
}

static int by_rank(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  for (int k = 0; k < 3; k++)
    if (x->key[k] != y->key[k]) return x->key[k] > y->key[k] ? -1 : 1;
  return (x->box > y->box) - (x->box < y->box);
}

static bool are_alike(const offsets_search *w, const box *x, const box *y) {
  size_t row = w->items->streams * sizeof(uint32_t);
  return x->size == y->size && x->align == y->align && w->ground[x - w->b] == w->ground[y - w->b] &&
         !memcmp(w->items->first + (size_t)x->item * w->items->streams,
                 w->items->first + (size_t)y->item * w->items->streams, row) &&
         !memcmp(w->items->dead + (size_t)x->item * w->items->streams,
                 w->items->dead + (size_t)y->item * w->items->streams, row);
}

/* Ranks by the section of the live range with the most bytes, its length and the area, in an order
 * that depends on `rank`; twins are searched among neighbours in rank. */
static void set_ranks(offsets_search *w, uint32_t rank, uint32_t *id, ranked *r) {
  static const uint8_t use[SEARCH_RANKS][3] = {{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}};
  for (uint32_t i = 0; i < w->n; i++) {
    const box *b = &w->b[i];
    uint64_t key[3] = {0, b->to - b->from, 0};
    for (uint32_t x = b->from; x < b->solid; x++)
      if (w->most[x] > key[0]) key[0] = w->most[x];
    if (__builtin_mul_overflow(b->size, key[1], &key[2])) key[2] = UINT64_MAX;
    r[i] = (ranked){{key[use[rank][0]], key[use[rank][1]], key[use[rank][2]]}, i};
  }
  qsort(r, w->n, sizeof *r, by_rank);
  for (uint32_t i = 0; i < w->n; i++) {
    box *b = &w->b[r[i].box];
    id[i] = r[i].box;
    b->rank = i;
    b->twin = i && are_alike(w, b, &w->b[r[i - 1].box]) ? r[i - 1].box : r[i].box;
  }
}

search_result offsets_search_run(offsets_search *w, uint64_t target, uint32_t rank, uint64_t *work,
                                 uint64_t *offset) {
  uint32_t *id = w->level;
  w->target = target;
  w->work = *work;
  w->undo_len = 0;
  w->level_len = w->n;
  for (uint32_t i = 0; i < w->n; i++) w->b[i].placed = false, w->b[i].floor = w->ground[i];
  memcpy(w->rest, w->most, w->sections * sizeof *w->rest);
  set_ranks(w, rank, id, w->ranked);
  search_result r = place_boxes(w, id, w->n, (progress){0, 0});
  for (uint32_t i = 0; i < w->n && r == SEARCH_FOUND; i++) offset[w->b[i].item] = w->b[i].offset;
  *work = w->work;
  return r;
}
