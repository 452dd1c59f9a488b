/* Boxes and the way between two meshes, element by element on small tensors. */
#include "ops/random_graph.h"
#include "shard/crossmesh.h"
#include "shard/layout_text.h"
#include "test.h"

#include <stdlib.h>

enum { DEVICES = 24 }; /* ranks are drawn from so many */

/* --- by chance -------------------------------------------------------------------------------- */

static mesh random_mesh(rng *r) {
  static const char *const name[] = {"a", "b", "c", "d"};
  int64_t size[4], rank[DEVICES], devices = 1;
  int axes = 1 + rng_below(r, 4);
  for (int a = 0; a < axes; a++) {
    size[a] = 1 + rng_below(r, 4);
    if (devices * size[a] > DEVICES) size[a] = 1;
    devices *= size[a];
  }
  for (int i = 0; i < DEVICES; i++) rank[i] = i;
  for (int i = DEVICES - 1; i > 0; i--) { /* shuffled */
    int k = rng_below(r, i + 1);
    int64_t t = rank[i];
    rank[i] = rank[k];
    rank[k] = t;
  }
  mesh m;
  CHECK_OK(mesh_init(size, name, axes, rng_chance(r, 70) ? rank : NULL, devices, &m));
  return m;
}

static layout random_layout(rng *r, const mesh *m, int rank) {
  layout l = {.rank = rank};
  int order[4] = {0, 1, 2, 3};
  for (int i = m->axes - 1; i > 0; i--) {
    int k = rng_below(r, i + 1), t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
  for (int i = 0; i < m->axes && rank; i++)
    if (rng_chance(r, 65)) layout_append(&l, rng_below(r, rank), order[i]);
  return l;
}

/* Some dims in longer parts than they need. */
static void give_lengths(rng *r, const mesh *m, const int64_t *shape, layout *l) {
  for (int d = 0; d < l->rank; d++)
    if (l->n[d] && rng_chance(r, 20))
      l->shard_size[d] = (int32_t)layout_shard_size(m, l, d, shape[d]) + 1 + rng_below(r, 3);
}

typedef struct {
  mesh from, to;
  layout a, b;
  int64_t shape[4], elements;
  int rank;
} question;

static question random_question(uint64_t seed) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 0};
  rng r = {.seed = seed};
  question q = {.from = random_mesh(&r), .to = random_mesh(&r), .elements = 1};
  q.rank = rng_below(&r, 5);
  for (int d = 0; d < q.rank; d++) {
    q.shape[d] = sizes[rng_below(&r, rng_chance(&r, 3) ? 11 : 10)];
    q.elements *= q.shape[d];
  }
  q.a = random_layout(&r, &q.from, q.rank);
  q.b = random_layout(&r, &q.to, q.rank);
  give_lengths(&r, &q.from, q.shape, &q.a);
  give_lengths(&r, &q.to, q.shape, &q.b);
  return q;
}

static void question_free(question *q) {
  mesh_free(&q->from);
  mesh_free(&q->to);
}

static _Noreturn void fail(const question *q, uint64_t seed, const char *why) {
  str text = {0};
  layout_print(&q->from, &q->a, &text);
  str_add(&text, " to ");
  layout_print(&q->to, &q->b, &text);
  for (int d = 0; d < q->rank; d++)
    str_printf(&text, d ? ",%lld" : " of %lld", (long long)q->shape[d]);
  test_fail(__FILE__, __LINE__, "seed %llu: %s: %s", (unsigned long long)seed, why, text.at);
}

/* --- what must hold --------------------------------------------------------------------------- */

static bool inside(const box *b, int64_t element, const int64_t *shape) {
  for (int d = b->rank - 1; d >= 0; d--) {
    int64_t i = element % shape[d];
    if (i < b->start[d] || i >= b->stop[d]) return false;
    element /= shape[d];
  }
  return true;
}

static bool holds(const question *q, int64_t rank, int64_t element) {
  int64_t position = mesh_position(&q->from, rank);
  if (position < 0) return false;
  box b = box_of_shard(&q->from, &q->a, q->shape, position);
  return inside(&b, element, q->shape);
}

/* Every element of its part comes to the device at `position` once, from one who has it. */
static void check_receiver(const question *q, uint64_t seed, int64_t position,
                           const crossings *all) {
  int64_t rank = mesh_rank(&q->to, position);
  box part = box_of_shard(&q->to, &q->b, q->shape, position);
  for (int64_t e = 0; e < q->elements; e++) {
    int count = 0;
    for (size_t i = 0; i < all->len; i++) {
      const crossing *x = &all->at[i];
      if (x->to != rank || !inside(&x->b, e, q->shape)) continue;
      count++;
      if (!holds(q, x->from, e)) fail(q, seed, "a sender that has it not");
      if (x->from != rank && holds(q, rank, e)) fail(q, seed, "sent to one who has it");
    }
    if (count != inside(&part, e, q->shape))
      fail(q, seed, count ? "sent twice or too much" : "missing");
  }
}

static int64_t slice_of(const box *b) {
  int64_t longest = 1;
  for (int d = 0; d < b->rank; d++)
    if (b->stop[d] - b->start[d] > longest) longest = b->stop[d] - b->start[d];
  return box_elements(b) / longest;
}

/* Parts of the first mesh have holders of their own, so the least that the busiest can send is the
 * largest share of what is asked of a part; boxes cannot be cut finer than slices. */
static void check_balance(const question *q, uint64_t seed, const crossings *all) {
  int64_t sent[DEVICES] = {0}, asked[DEVICES] = {0}, least = 0, most = 0, slice = 0;
  int64_t repeat = layout_repeat(&q->from, &q->a);
  for (size_t i = 0; i < all->len; i++) {
    const crossing *x = &all->at[i];
    if (x->from == x->to) continue;
    int64_t n = box_elements(&x->b);
    int64_t first = layout_first(&q->from, &q->a, mesh_position(&q->from, x->from));
    if ((sent[x->from] += n) > most) most = sent[x->from];
    asked[first] += n;
    if ((asked[first] + repeat - 1) / repeat > least) least = (asked[first] + repeat - 1) / repeat;
  }
  for (int64_t i = 0; i < q->from.devices; i++)
    for (int64_t k = 0; k < q->to.devices; k++) {
      box held = box_of_shard(&q->from, &q->a, q->shape, i), needed, both;
      needed = box_of_shard(&q->to, &q->b, q->shape, k);
      if (box_intersect(&held, &needed, &both) && slice_of(&both) > slice) slice = slice_of(&both);
    }
  if (most <= least + (repeat > 1 ? slice : 0)) return;
  printf("%lld elements, %lld are the least\n", (long long)most, (long long)least);
  fail(q, seed, "the busiest sends too much");
}

static void check_question(uint64_t seed) {
  question q = random_question(seed);
  crossings all = {0};
  CHECK_OK(crossmesh_find(q.shape, &q.from, &q.a, &q.to, &q.b, &all));
  for (size_t i = 0; i < all.len; i++)
    if (!box_elements(&all.at[i].b)) fail(&q, seed, "an empty box");
  for (int64_t p = 0; p < q.to.devices; p++) check_receiver(&q, seed, p, &all);
  check_balance(&q, seed, &all);
  vec_free(&all);
  question_free(&q);
}

TEST(each_device_of_another_mesh_receives_its_shard_once_from_one_who_has_it) {
  for (uint64_t seed = 0; seed < 1500; seed++) check_question(seed);
}

/* --- examples --------------------------------------------------------------------------------- */

static void find(const char *from, const char *to, const int64_t *shape, crossings *out) {
  mesh ma, mb;
  layout a, b;
  bool called;
  CHECK_OK(layout_parse(from, &ma, &a, &called));
  CHECK_OK(layout_parse(to, &mb, &b, &called));
  CHECK_OK(crossmesh_find(shape, &ma, &a, &mb, &b, out));
  mesh_free(&ma);
  mesh_free(&mb);
}

TEST(one_box_that_four_hold_is_sent_by_all_four) {
  crossings all = {0};
  int64_t shape[] = {8, 3};
  find("(4)(a)(None,None)", "(1)(b)(None,None)@9", shape, &all);
  CHECK_EQ(all.len, 4);
  for (int i = 0; i < 4; i++) {
    CHECK_EQ(all.at[i].from, i);
    CHECK_EQ(all.at[i].to, 9);
    CHECK_EQ(all.at[i].b.start[0], 2 * i);
    CHECK_EQ(all.at[i].b.stop[0], 2 * i + 2);
  }
  vec_free(&all);
}

TEST(a_device_takes_what_it_has_from_itself) {
  crossings all = {0};
  int64_t shape[] = {8};
  find("(2)(a)(a)", "(3)(b)(None)@1,0,7", shape, &all);
  for (size_t i = 0; i < all.len; i++) {
    bool low = all.at[i].b.start[0] == 0;
    if (all.at[i].to == 0 && low) CHECK_EQ(all.at[i].from, 0);
    if (all.at[i].to == 1 && !low) CHECK_EQ(all.at[i].from, 1);
  }
  CHECK_EQ(all.len, 6);
  vec_free(&all);
}

TEST(what_cannot_go_between_meshes_is_refused) {
  mesh m;
  layout a, partial, other;
  bool called;
  crossings all = {0};
  CHECK_OK(layout_parse("(2,2)(a,b)(a,b)", &m, &a, &called));
  CHECK_OK(layout_parse_on("(a,None)+sum:b", &m, &partial));
  CHECK_OK(layout_parse_on("(a)", &m, &other));
  int64_t shape[] = {4, 4}, huge[] = {INT64_MAX, 4};
  CHECK_FAILS(crossmesh_find(shape, &m, &partial, &m, &a, &all), "partial over b");
  CHECK_FAILS(crossmesh_find(shape, &m, &a, &m, &partial, &all), "partial over b");
  CHECK_FAILS(crossmesh_find(shape, &m, &a, &m, &other, &all), "from 2 dims to 1");
  CHECK_FAILS(crossmesh_find(huge, &m, &a, &m, &a, &all), "makes no tensor");
  mesh_free(&m);
}

/* --- copying ---------------------------------------------------------------------------------- */

/* A box inside `room`, and a room around a box. */
static box random_inside(rng *r, const box *room) {
  box b = *room;
  for (int d = 0; d < b.rank; d++) {
    int n = (int)(room->stop[d] - room->start[d]);
    b.start[d] += rng_chance(r, 50) ? 0 : rng_below(r, n + 1);
    b.stop[d] = rng_chance(r, 50)
                    ? room->stop[d]
                    : b.start[d] + rng_below(r, (int)(room->stop[d] - b.start[d]) + 1);
  }
  return b;
}
static box random_around(rng *r, const box *b) {
  box room = *b;
  for (int d = 0; d < b->rank; d++) {
    room.start[d] -= rng_chance(r, 50) ? 0 : rng_below(r, 3);
    room.stop[d] += rng_chance(r, 50) ? 0 : rng_below(r, 3);
  }
  return room;
}

/* Number of the element in the array of `room`; -1 outside. */
static int64_t place_in(const box *room, const int64_t *at) {
  int64_t e = 0;
  for (int d = 0; d < room->rank; d++) {
    if (at[d] < room->start[d] || at[d] >= room->stop[d]) return -1;
    e = e * (room->stop[d] - room->start[d]) + at[d] - room->start[d];
  }
  return e;
}

static void check_copy(uint64_t seed) {
  rng r = {.seed = seed};
  box space = {.rank = rng_below(&r, 5)}, from, to, b;
  for (int d = 0; d < space.rank; d++) space.stop[d] = 1 + rng_below(&r, 5);
  b = random_inside(&r, &space);
  from = random_around(&r, &b);
  to = random_around(&r, &b);
  size_t n_from = (size_t)box_elements(&from), n_to = (size_t)box_elements(&to), copied = 0;
  int32_t *src = calloc(n_from + 1, sizeof *src), *dst = calloc(n_to + 1, sizeof *dst);
  for (size_t i = 0; i < n_from; i++) src[i] = (int32_t)i + 1;
  box_copy(&b, sizeof *src, &from, src, &to, dst);
  int64_t at[LAYOUT_DIMS];
  memcpy(at, b.start, sizeof at);
  for (int64_t i = 0; i < box_elements(&b); i++) {
    if (dst[place_in(&to, at)] != src[place_in(&from, at)])
      test_fail(__FILE__, __LINE__, "seed %llu: a wrong element", (unsigned long long)seed);
    for (int d = b.rank - 1; d >= 0 && ++at[d] == b.stop[d]; d--) at[d] = b.start[d];
  }
  for (size_t i = 0; i < n_to; i++) copied += dst[i] != 0;
  CHECK_EQ(copied, box_elements(&b));
  free(src);
  free(dst);
}

TEST(a_box_is_copied_between_any_two_arrays_that_hold_it) {
  for (uint64_t seed = 0; seed < 3000; seed++) check_copy(seed);
}
