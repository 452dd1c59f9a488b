#include "mem/offsets_search.h"

#include "base/mem.h"
#include "mem/offsets_boxes.h"

#include <stdlib.h>
#include <string.h>

/* Depth-first search.  Every box has a floor, the end of the highest placed box that it conflicts
 * with.  A section is a time; of the boxes not placed that live there, some have the lowest floor.
 * A step chooses a section and branches: each of those boxes in turn is placed on its floor; or
 * none of them is, and the floors of all boxes of the section rise to the next offset that a box
 * can have.  So no plan is found twice, and the section is free to choose: the one with the fewest
 * branches, as in exact cover (Knuth, Dancing links, 2000).  Only a section may be chosen under
 * whose lowest boxes no other one fits any more; that of the lowest floor of all always may.
 *
 * A plan with the least sum of offsets has no box that can be moved down.  Hence
 *   bytes      at every time the remaining boxes must fit on the lowest floor there;
 *   blocked    a box that is not placed on its floor needs another one that can be in its way;
 *   parts      if no remaining box lives across some time, the two sides are independent;
 *   twins      identical boxes are placed in order;
 *   failures   a set of boxes and floors that failed once is not tried again, in any order.
 *
 * The order of the branches decides between milliseconds and days, and no order is good for all
 * problems.  So the search starts again and again, in another order, partly random, with more
 * steps each time. */

/* Which sections are chosen first. */
typedef enum { FEWEST, UPWARDS, FAILING, MODES } choice;

typedef struct {
  double key[3]; /* greater first */
  uint32_t box;
} ranked;

enum { FAILURES = 1 << 16 }; /* hashes kept, the last one at each place */

struct offsets_search {
  boxes x;
  uint64_t *low;         /* [sections] lowest floor of the remaining boxes */
  uint32_t *lowest;      /* [sections] how many have it; BLOCKED: the section cannot be chosen */
  uint32_t *failed;      /* [sections] how often it was too full */
  uint32_t *next, *ends; /* [sections + 1] scratch */
  uint32_t *level;       /* a stack of lists of boxes */
  size_t level_len, level_cap;
  ranked *ranked;    /* [n] scratch */
  uint64_t *failure; /* [FAILURES] */
  uint64_t target, work;
  choice mode;
};

#define BLOCKED UINT32_MAX

void offsets_search_free(offsets_search *w) {
  if (!w) return;
  boxes_free(&w->x);
  mem_free(w->low);
  mem_free(w->lowest);
  mem_free(w->failed);
  mem_free(w->next);
  mem_free(w->ends);
  mem_free(w->level);
  mem_free(w->ranked);
  mem_free(w->failure);
  mem_free(w);
}

hp_status offsets_search_create(const offsets_items *t, const uint32_t *item, uint32_t n,
                                uint32_t n_fixed, offsets_search **out) {
  hp_status st = HP_OK;
  offsets_search *w = mem_calloc(1, sizeof *w);
  HP_TRY_MEM(w);
  HP_TRY_GOTO(boxes_build(t, item, n, n_fixed, &w->x), st);
  size_t sections = w->x.sections, n_boxes = w->x.n;
  w->low = mem_calloc(sections, sizeof *w->low);
  w->lowest = mem_calloc(sections, sizeof *w->lowest);
  w->failed = mem_calloc(sections, sizeof *w->failed);
  w->ends = mem_calloc(sections + 1, sizeof *w->ends);
  w->next = mem_calloc(sections + 1, sizeof *w->next);
  w->level_cap = 4 * n_boxes * (n_boxes + 1);
  w->level = mem_realloc(NULL, w->level_cap, sizeof *w->level); /* as undo of the boxes */
  w->ranked = mem_calloc(n_boxes, sizeof *w->ranked);
  w->failure = mem_calloc(FAILURES, sizeof *w->failure);
  if (!w->low || !w->lowest || !w->failed || !w->next || !w->ends || !w->level || !w->ranked ||
      !w->failure)
    st = HP_ERR_OOM;
done:
  if (st) offsets_search_free(w);
  else *out = w;
  return st;
}

/* Steps of a call of the search besides those of each box and section. */
enum { CALL_STEPS = 100, BOX_STEPS = 10, SECTION_STEPS = 4, NEAR_STEPS = 1 };

static void spend_steps(offsets_search *w, uint64_t steps) {
  w->work = w->work > steps ? w->work - steps : 0;
}

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
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
    const box *b = &w->x.b[x];
    for (; j > 0; j--) {
      const box *o = &w->x.b[id[j - 1]];
      if (o->floor < b->floor || (o->floor == b->floor && o->rank < b->rank)) break;
      id[j] = id[j - 1];
    }
    id[j] = x;
    moves += i - j;
  }
  spend_steps(w, moves);
}

/* The remaining boxes, by floor, and the sections [from, to) that they live in. */
typedef struct {
  uint32_t *id, n, from, to;
  uint64_t hash; /* of the boxes and floors */
} remaining;

static remaining describe(offsets_search *w, uint32_t *id, uint32_t n) {
  remaining r = {.id = id, .n = n, .from = UINT32_MAX, .hash = mix(w->target)};
  for (uint32_t i = 0; i < n; i++) {
    const box *b = &w->x.b[id[i]];
    if (b->from < r.from) r.from = b->from;
    if (b->to > r.to) r.to = b->to;
    r.hash += mix(mix(b->floor) + id[i]);
  }
  spend_steps(w, CALL_STEPS + BOX_STEPS * (uint64_t)n + SECTION_STEPS * (r.to - r.from));
  return r;
}

static const box_life *first_life(const offsets_search *w, const box *b) {
  return w->x.life + b->life;
}
static const box_life *end_of_lives(const offsets_search *w, const box *b) {
  return w->x.life + b->life + b->lives;
}

/* Does it live in a section that has no lowest floor yet? */
static bool has_free(offsets_search *w, const box *b) {
  for (const box_life *l = first_life(w, b); l < end_of_lives(w, b); l++)
    if (skip_to_free(w->next, l->from) < l->solid) return true;
  return false;
}

/* Gives those sections this one; false: the remaining boxes do not fit on it. */
static bool set_low(offsets_search *w, const box *b, uint64_t floor) {
  for (const box_life *l = first_life(w, b); l < end_of_lives(w, b); l++) {
    uint32_t x = skip_to_free(w->next, l->from);
    for (; x < l->solid; x = skip_to_free(w->next, x)) {
      if (floor + w->x.rest[x] > w->target) {
        w->failed[x]++;
        return false;
      }
      w->low[x] = floor;
      w->next[x] = x + 1;
    }
  }
  return true;
}

/* Sets the lowest floor of every section; lists the boxes that have it somewhere.  UINT32_MAX: at
 * some time, the remaining boxes do not fit on it. */
static uint32_t find_lowest(offsets_search *w, const remaining *r, uint32_t *list) {
  uint32_t len = 0;
  for (uint32_t x = r->from; x <= r->to; x++) w->next[x] = x;
  for (uint32_t i = 0, end; i < r->n; i = end) { /* boxes of one floor */
    uint64_t floor = w->x.b[r->id[i]].floor;
    for (end = i; end < r->n && w->x.b[r->id[end]].floor == floor; end++) {
      const box *b = &w->x.b[r->id[end]];
      if (floor + b->size > w->target) return UINT32_MAX;
      if (has_free(w, b)) list[len++] = r->id[end];
    }
    for (uint32_t k = i; k < end; k++)
      if (!set_low(w, &w->x.b[r->id[k]], floor)) return UINT32_MAX;
  }
  return len;
}

/* Whether a remaining box that conflicts with this one can still be placed below it. */
static bool has_room_below(offsets_search *w, uint32_t i) {
  const box *b = &w->x.b[i];
  uint32_t k = w->x.near0[i];
  bool room = false;
  for (; k < w->x.near0[i + 1] && !room; k++) {
    const box *o = &w->x.b[w->x.near[k]];
    room = !o->placed && o->floor + o->size <= b->floor;
  }
  spend_steps(w, (uint64_t)NEAR_STEPS * (k - w->x.near0[i]));
  return room;
}

static bool waits_for_twin(const offsets_search *w, uint32_t i) {
  uint32_t twin = w->x.b[i].twin;
  return twin != i && !w->x.b[twin].placed;
}

static void count_branch(offsets_search *w, const box_life *l, uint64_t floor, bool blocked) {
  for (uint32_t x = l->from; x < l->solid; x++) {
    if (w->low[x] != floor || w->lowest[x] == BLOCKED) continue;
    if (blocked) w->lowest[x] = BLOCKED;
    else w->lowest[x]++;
  }
}

/* Counts the branches of every section. */
static void count_branches(offsets_search *w, const remaining *r, const uint32_t *list,
                           uint32_t len) {
  memset(w->lowest + r->from, 0, (r->to - r->from) * sizeof *w->lowest);
  for (uint32_t i = 0; i < len; i++) {
    const box *b = &w->x.b[list[i]];
    if (waits_for_twin(w, list[i])) continue;
    bool blocked = has_room_below(w, list[i]);
    for (const box_life *l = first_life(w, b); l < end_of_lives(w, b); l++) {
      count_branch(w, l, b->floor, blocked);
      spend_steps(w, l->solid - l->from);
    }
  }
}

/* A section with one branch.  Without one: that with the fewest branches, then the least room; that
 * with the lowest floor, then the fewest branches; or that with the fewest branches for each time
 * that it was too full (Boussemart and others, Boosting systematic search by weighting constraints,
 * 2004). */
static uint32_t choose_section(const offsets_search *w, const remaining *r) {
  enum { SHIFT = 32 };
  uint32_t best = r->from;
  uint64_t first = UINT64_MAX, second = UINT64_MAX;
  for (uint32_t x = r->from; x < r->to && first > 1; x++) {
    if (!w->lowest[x] || w->lowest[x] == BLOCKED) continue;
    uint64_t room = w->target - w->x.rest[x] - w->low[x];
    uint64_t n = w->lowest[x] + (room > 0), key = n, then = room;
    if (n > 1 && w->mode == UPWARDS) key = w->low[x] + 2, then = n;
    if (n > 1 && w->mode == FAILING) key = (n << SHIFT) / (1 + w->failed[x]) + 2;
    if (key > first || (key == first && then >= second)) continue;
    best = x, first = key, second = then;
  }
  return best;
}

/* Whether a box with the lowest floor of section x would stay there, with nothing in its way, where
 * no box of the section is placed below `next`. */
static bool would_stay(offsets_search *w, uint32_t i, uint32_t x, uint64_t next) {
  uint64_t end = w->x.b[i].floor + w->x.b[i].size;
  bool stays = true;
  uint32_t k = w->x.near0[i];
  for (; k < w->x.near0[i + 1] && stays; k++) {
    const box *o = &w->x.b[w->x.near[k]];
    uint64_t floor = boxes_cover(&w->x, o, x) && o->floor < next ? next : o->floor;
    stays = o->placed || floor >= end;
  }
  spend_steps(w, 2 * (uint64_t)(k - w->x.near0[i]));
  return stays;
}

/* The least offset above the lowest floor of a section that a box can have there; UINT64_MAX if
 * none can, or if a box of that floor would stay there. */
static uint64_t find_next_low(offsets_search *w, const remaining *r, uint32_t x) {
  uint64_t low = w->low[x], best = UINT64_MAX;
  uint32_t i = 0;
  for (; i < r->n && w->x.b[r->id[i]].floor <= low; i++) {
    const box *b = &w->x.b[r->id[i]];
    if (!boxes_cover(&w->x, b, x)) continue;
    for (uint32_t k = w->x.near0[r->id[i]]; k < w->x.near0[r->id[i] + 1]; k++) {
      const box *o = &w->x.b[w->x.near[k]];
      uint64_t end = boxes_align(o->floor + o->size, b->align);
      if (!o->placed && !boxes_cover(&w->x, o, x) && end < best) best = end;
    }
  }
  for (uint32_t k = i; k < r->n && w->x.b[r->id[k]].floor < best; k++)
    if (boxes_cover(&w->x, &w->x.b[r->id[k]], x)) best = w->x.b[r->id[k]].floor;
  spend_steps(w, r->n);
  while (i-- > 0 && best != UINT64_MAX && w->x.b[r->id[i]].floor == low)
    if (boxes_cover(&w->x, &w->x.b[r->id[i]], x) && would_stay(w, r->id[i], x, best))
      best = UINT64_MAX;
  return best;
}

static search_result place_boxes(offsets_search *w, uint32_t *id, uint32_t n);

/* Gives every section the number of its part in next[]; returns the number of parts. */
static uint32_t number_parts(offsets_search *w, const remaining *r) {
  uint32_t *part = w->next, alive = 0, parts = 0;
  memset(part + r->from, 0, ((size_t)r->to - r->from + 1) * sizeof *part);
  memset(w->ends + r->from, 0, ((size_t)r->to - r->from + 1) * sizeof *w->ends);
  for (uint32_t i = 0; i < r->n; i++) part[w->x.b[r->id[i]].from]++, w->ends[w->x.b[r->id[i]].to]++;
  for (uint32_t x = r->from; x < r->to; x++) {
    uint32_t born = part[x];
    alive -= w->ends[x];
    parts += born && !alive;
    alive += born;
    part[x] = parts;
  }
  return parts;
}

/* Solves independent sections one by one, each with a separate list of its boxes. */
static search_result solve_parts(offsets_search *w, const remaining *all, uint32_t parts) {
  uint32_t *list = w->level + w->level_len, *part = list + all->n, len = 0, done = 0;
  size_t mark = w->x.undo_len;
  search_result r = SEARCH_FOUND;
  w->level_len += 2 * (size_t)all->n;
  for (uint32_t i = 0; i < all->n; i++) part[i] = w->next[w->x.b[all->id[i]].from];
  for (uint32_t k = 1; k <= parts && r == SEARCH_FOUND; k++) {
    uint32_t start = len;
    for (uint32_t i = 0; i < all->n; i++)
      if (part[i] == k) list[len++] = all->id[i];
    r = place_boxes(w, list + start, len - start);
    if (r == SEARCH_FOUND) done = len;
  }
  if (r != SEARCH_FOUND)
    while (done) boxes_take_back(&w->x, list[--done], mark);
  w->level_len -= 2 * (size_t)all->n;
  return r;
}

/* Each box of the list on its floor, in turn. */
static search_result solve_lowest(offsets_search *w, const remaining *all, const uint32_t *list,
                                  uint32_t len) {
  uint32_t *rest = w->level + w->level_len;
  search_result r = SEARCH_NONE;
  w->level_len += all->n;
  for (uint32_t k = 0; k < len && r == SEARCH_NONE; k++) {
    const box *b = &w->x.b[list[k]];
    size_t mark = w->x.undo_len;
    uint32_t n = 0;
    boxes_put(&w->x, list[k]);
    spend_steps(w, (b->to - b->from) / 4 + w->x.near0[list[k] + 1] - w->x.near0[list[k]]);
    for (uint32_t i = 0; i < all->n; i++)
      if (all->id[i] != list[k]) rest[n++] = all->id[i];
    r = place_boxes(w, rest, n);
    if (r != SEARCH_FOUND) boxes_take_back(&w->x, list[k], mark);
  }
  w->level_len -= all->n;
  return r;
}

/* No box at the lowest floor of a section. */
static search_result solve_higher(offsets_search *w, const remaining *all, uint32_t section,
                                  uint64_t low) {
  uint32_t *rest = w->level + w->level_len;
  size_t mark = w->x.undo_len;
  for (uint32_t i = 0; i < all->n; i++)
    if (boxes_cover(&w->x, &w->x.b[all->id[i]], section)) boxes_raise(&w->x, all->id[i], low);
  memcpy(rest, all->id, all->n * sizeof *rest);
  w->level_len += all->n;
  search_result r = place_boxes(w, rest, all->n);
  w->level_len -= all->n;
  if (r != SEARCH_FOUND) boxes_lower(&w->x, mark);
  return r;
}

/* Branches at a section; list: boxes that have the lowest floor of some section. */
static search_result solve_section(offsets_search *w, const remaining *all, uint32_t *list,
                                   uint32_t len) {
  count_branches(w, all, list, len);
  uint32_t x = choose_section(w, all), n = 0;
  for (uint32_t i = 0; i < len; i++) {
    const box *b = &w->x.b[list[i]];
    if (boxes_cover(&w->x, b, x) && b->floor == w->low[x] && !waits_for_twin(w, list[i]))
      list[n++] = list[i];
  }
  uint64_t higher = UINT64_MAX, most = w->target - w->x.rest[x];
  if (w->low[x] < most) higher = find_next_low(w, all, x);
  w->level_len += n;
  search_result r = solve_lowest(w, all, list, n);
  w->level_len -= n;
  return r == SEARCH_NONE && higher <= most ? solve_higher(w, all, x, higher) : r;
}

/* Places the boxes of the list.  If no plan is found, the state is unchanged. */
static search_result place_boxes(offsets_search *w, uint32_t *id, uint32_t n) {
  enum { LISTS = 3 }; /* of n boxes each that a level needs */
  if (!n) return SEARCH_FOUND;
  if (w->level_len + (size_t)LISTS * n > w->level_cap || w->x.undo_len + n > w->x.undo_cap)
    w->work = 0;
  if (!w->work) return SEARCH_TIRED;
  remaining all = describe(w, id, n);
  uint64_t *failure = &w->failure[all.hash % FAILURES];
  if (*failure == all.hash) return SEARCH_NONE;
  sort_boxes(w, id, n);
  uint32_t *list = w->level + w->level_len, len = find_lowest(w, &all, list);
  if (len == UINT32_MAX) return SEARCH_NONE;
  uint32_t parts = number_parts(w, &all);
  search_result r = parts > 1 ? solve_parts(w, &all, parts) : solve_section(w, &all, list, len);
  if (r == SEARCH_NONE) *failure = all.hash;
  return r;
}

static int by_rank(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  for (int k = 0; k < 3; k++)
    if (x->key[k] != y->key[k]) return x->key[k] > y->key[k] ? -1 : 1;
  return (x->box > y->box) - (x->box < y->box);
}

/* Ranks the boxes by size, length of life, area, and most bytes that live at one of its times, in
 * an order that depends on the attempt; the later ones are partly random. */
static void set_ranks(offsets_search *w, uint32_t attempt, uint32_t *id) {
  enum { SIZE, LIFE, AREA, BYTES, KEYS, ORDERS = 4, PLAIN = MODES * ORDERS };
  static const uint8_t use[ORDERS][3] = {{SIZE, LIFE, BYTES},
                                         {BYTES, LIFE, AREA},
                                         {BYTES, AREA, LIFE},
                                         {AREA, LIFE, BYTES}};
  ranked *r = w->ranked;
  for (uint32_t i = 0; i < w->x.n; i++) {
    const box *b = &w->x.b[i];
    double key[KEYS] = {(double)b->size, b->to - b->from};
    key[AREA] = key[SIZE] * key[LIFE];
    for (const box_life *l = first_life(w, b); l < end_of_lives(w, b); l++)
      for (uint32_t x = l->from; x < l->solid; x++)
        if ((double)w->x.most[x] > key[BYTES]) key[BYTES] = (double)w->x.most[x];
    r[i].box = i;
    for (int k = 0; k < 3; k++) {
      uint64_t noise = attempt < PLAIN ? 0 : mix(mix(attempt) + 3 * (uint64_t)i + (uint64_t)k) % 64;
      r[i].key[k] = key[use[attempt % ORDERS][k]] * (1 + (double)noise / 512);
    }
  }
  qsort(r, w->x.n, sizeof *r, by_rank);
  for (uint32_t i = 0; i < w->x.n; i++) id[i] = r[i].box, w->x.b[r[i].box].rank = i;
  w->mode = attempt / ORDERS % MODES;
}

search_result offsets_search_run(offsets_search *w, uint64_t target, uint64_t *work,
                                 uint64_t *offset) {
  enum { LEAST_EACH = 200000, EACH_PAIR = 90, ROUND = 12 };
  uint64_t share = EACH_PAIR * (uint64_t)w->x.n * w->x.n;
  search_result r = SEARCH_TIRED;
  if (share < LEAST_EACH) share = LEAST_EACH;
  w->target = target;
  memset(w->failed, 0, w->x.sections * sizeof *w->failed);
  for (uint32_t attempt = 0; r == SEARCH_TIRED && *work; attempt++) {
    uint64_t given = share < *work ? share : *work;
    w->work = given;
    w->level_len = w->x.n;
    boxes_clear(&w->x);
    set_ranks(w, attempt, w->level);
    r = place_boxes(w, w->level, w->x.n);
    *work -= given - w->work;
    if (attempt % ROUND == ROUND - 1) share *= 2;
  }
  for (uint32_t i = 0; i < w->x.n && r == SEARCH_FOUND; i++)
    offset[w->x.b[i].item] = w->x.b[i].offset;
  return r;
}
