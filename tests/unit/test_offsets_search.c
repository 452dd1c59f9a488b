/* The exact search of offsets by itself: greedy plans before it would hide what
 * it misses. */
#include "mem/offsets_search.h"

#include "test.h"

#include <stdlib.h>

enum { N = 7, STREAMS = 3 };

static uint32_t draw(unsigned *seed, uint32_t below) { return (uint32_t)rand_r(seed) % below; }

/* A problem, and as groups: buffers that are tied are one.  `ground` is the end
 * of the fixed ones that a group conflicts with. */
typedef struct {
  offsets_buffer b[N];
  uint32_t dead[N * STREAMS];
  offsets_problem p;
  uint32_t group[N];
  uint64_t ground[N], at[N], best;
  bool conflict[N][N], placed[N];
} small;

/* Lives as long as the one before it, and differs at most in its alignment. */
static void copy_life(unsigned *seed, small *c, uint32_t i) {
  uint32_t streams = c->p.streams;
  c->b[i] = c->b[i - 1];
  c->b[i].fixed = false;
  if (draw(seed, 2)) c->b[i].align = 1;
  for (uint32_t s = 0; s < streams; s++) c->dead[i * streams + s] = c->dead[(i - 1) * streams + s];
}

static void draw_buffers(unsigned *seed, small *c, bool fixed) {
  uint32_t n = 2 + draw(seed, N - 1), streams = 1 + draw(seed, STREAMS);
  *c = (small){.best = UINT64_MAX};
  c->p = (offsets_problem){.buffer = c->b, .n = n, .streams = streams, .dead = c->dead};
  for (uint32_t i = 0; i < n; i++) {
    offsets_buffer *b = &c->b[i];
    uint32_t first = draw(seed, 8), last = first + draw(seed, 5);
    *b = (offsets_buffer){.size = 4 * (1 + draw(seed, 3)), .first = first, .last = last};
    b->align = 1u << draw(seed, 4) % 4;
    b->size = (b->size + b->align - 1) / b->align * b->align;
    b->stream = (uint8_t)draw(seed, streams);
    b->fixed = fixed && !draw(seed, 4);
    if (b->fixed) b->offset = b->align * draw(seed, 4);
    for (uint32_t s = 0; s < streams; s++)
      c->dead[i * streams + s] = last + 1 + (s == b->stream ? 0 : draw(seed, 4));
    if (i && !draw(seed, 3)) copy_life(seed, c, i);
  }
}

static void tie_buffers(small *c) {
  for (uint32_t i = 0; i < c->p.n; i++)
    for (uint32_t k = 0; k < i; k++) {
      if (c->b[i].tie || c->b[k].tie || c->b[i].size != c->b[k].size) continue;
      if (c->b[i].align != c->b[k].align || offsets_conflict(&c->p, i, k)) continue;
      c->b[i].tie = c->b[k].tie = i + 1;
    }
}

static void find_groups(small *c) {
  uint32_t n = (uint32_t)c->p.n;
  for (uint32_t i = 0; i < n; i++) {
    c->group[i] = i;
    for (uint32_t k = i; k-- > 0;)
      if (c->b[i].tie && c->b[k].tie == c->b[i].tie) c->group[i] = k;
  }
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < n; k++) {
      if (!offsets_conflict(&c->p, i, k)) continue;
      uint32_t g = c->group[i], align = (uint32_t)c->b[i].align;
      uint64_t end = (c->b[k].offset + c->b[k].size + align - 1) / align * align;
      if (!c->b[k].fixed) c->conflict[g][c->group[k]] = true;
      else if (end > c->ground[g]) c->ground[g] = end;
    }
}

/* In every order, each group above all that it conflicts with and that are
 * before it. */
static void place_rest(small *c, uint64_t peak) {
  bool any = false;
  if (peak >= c->best) return;
  for (uint32_t i = 0; i < c->p.n; i++) {
    if (c->placed[i] || c->group[i] != i || c->b[i].fixed) continue;
    uint64_t at = c->ground[i], align = c->b[i].align;
    for (uint32_t k = 0; k < c->p.n; k++)
      if (c->placed[k] && c->conflict[i][k] && c->at[k] + c->b[k].size > at)
        at = c->at[k] + c->b[k].size;
    at = (at + align - 1) / align * align;
    any = c->placed[i] = true;
    c->at[i] = at;
    place_rest(c, at + c->b[i].size > peak ? at + c->b[i].size : peak);
    c->placed[i] = false;
  }
  if (!any) c->best = peak;
}

/* The items to place, the fixed ones first. */
static uint32_t list_items(const offsets_items *t, uint32_t *item, uint32_t *n_fixed) {
  uint32_t n = 0;
  for (int fixed = 1; fixed >= 0; fixed--) {
    for (uint32_t k = 0; k < t->n; k++)
      if (!t->item[k].follows && t->item[k].fixed == fixed) item[n++] = k;
    if (fixed) *n_fixed = n;
  }
  return n;
}

static void check_plan(const small *c, const offsets_items *t, const uint64_t *offset) {
  for (uint32_t i = 0; i < c->p.n; i++) {
    if (c->group[i] != i || c->b[i].fixed) continue;
    uint64_t x = offset[t->of[i]];
    CHECK(x >= c->ground[i] && x % c->b[i].align == 0 && x + c->b[i].size <= c->best);
    for (uint32_t k = 0; k < i; k++) {
      uint64_t y = offset[t->of[k]];
      if (c->conflict[i][k]) CHECK(x >= y + c->b[k].size || y >= x + c->b[i].size);
    }
  }
}

TEST(the_search_finds_the_least_peak_and_proves_that_it_is) {
  enum { ROUNDS = 4000 };
  unsigned seed = 11;
  for (int round = 0; round < ROUNDS; round++) {
    small c;
    offsets_items t = {0};
    offsets_search *s;
    uint32_t item[N], n_fixed;
    uint64_t offset[N], work = 10000000;
    draw_buffers(&seed, &c, round % 4 == 0);
    if (round % 2) tie_buffers(&c);
    find_groups(&c);
    place_rest(&c, 0);
    CHECK_OK(offsets_items_build(&c.p, &t));
    uint32_t n = list_items(&t, item, &n_fixed);
    if (n > n_fixed) {
      CHECK_OK(offsets_search_create(&t, item, n, n_fixed, &s));
      CHECK_EQ(offsets_search_run(s, c.best - 1, &work, offset), SEARCH_NONE);
      CHECK_EQ(offsets_search_run(s, c.best, &work, offset), SEARCH_FOUND);
      check_plan(&c, &t, offset);
      offsets_search_free(s);
    }
    offsets_items_free(&t);
  }
}
