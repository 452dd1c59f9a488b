/* Redistribution: every path is carried out on data, and none is dearer than what an exhaustive
 * search over all layouts finds. */
#include "shard/layout_text.h"
#include "shard/path.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

static mesh make_mesh(const int64_t *size, int axes) {
  static const char *const name[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  mesh m;
  CHECK_OK(mesh_init(size, name, axes, NULL, 0, &m));
  return m;
}

static layout parse_on(const mesh *m, const char *text) {
  layout l;
  CHECK_OK(layout_parse_on(text, m, &l));
  return l;
}

/* --- all layouts of a mesh -------------------------------------------------------------------- */

enum { LAYOUTS_MAX = 4096 };
typedef struct {
  layout at[LAYOUTS_MAX];
  int n;
} all_layouts;

static void add_layouts(all_layouts *all, const mesh *m, layout l, bool partial) {
  for (int i = 0; i < all->n; i++)
    if (layout_equal(&all->at[i], &l)) return;
  HP_ASSERT(all->n < LAYOUTS_MAX);
  all->at[all->n++] = l;
  for (int a = 0; a < m->axes; a++) {
    if (!layout_is_free(&l, a)) continue;
    for (int d = 0; d < l.rank; d++) {
      layout next = l;
      layout_append(&next, d, a);
      add_layouts(all, m, next, partial);
    }
    layout next = l;
    next.partial[a] = PARTIAL_SUM;
    if (partial) add_layouts(all, m, next, partial);
  }
}

static all_layouts *layouts_of(const mesh *m, int rank, bool partial) {
  all_layouts *all = calloc(1, sizeof *all);
  HP_ASSERT(all);
  add_layouts(all, m, (layout){.rank = rank}, partial);
  return all;
}

/* --- paths on data ---------------------------------------------------------------------------- */

typedef struct {
  const mesh *m;
  int64_t shape[LAYOUT_DIMS], elements;
  double *global; /* the tensor */
} world;

/* What a device holds: the global tensor's room, with NAN where it holds nothing. */
typedef struct {
  layout l;
  double *held; /* [devices, elements] */
} state;

static bool inside(const world *w, const layout *l, int64_t position, int64_t element) {
  int64_t start[LAYOUT_DIMS], stop[LAYOUT_DIMS];
  layout_slice(w->m, l, w->shape, position, start, stop);
  for (int d = l->rank - 1; d >= 0; d--) {
    int64_t i = element % w->shape[d];
    if (i < start[d] || i >= stop[d]) return false;
    element /= w->shape[d];
  }
  return true;
}

/* The share of the device in a partial sum: unlike on every device, 1 together. */
static double share(const world *w, const layout *l, int64_t position) {
  double mine = 1;
  for (int a = 0; a < w->m->axes; a++) {
    if (!l->partial[a]) continue;
    double n = (double)w->m->size[a], c = (double)mesh_coordinate(w->m, position, a);
    mine *= (c + 1) / (n * (n + 1) / 2);
  }
  return mine;
}

static void fill(const world *w, state *s) {
  for (int64_t p = 0; p < w->m->devices; p++)
    for (int64_t e = 0; e < w->elements; e++)
      s->held[p * w->elements + e] =
          inside(w, &s->l, p, e) ? w->global[e] * share(w, &s->l, p) : NAN;
}

/* Carries out a move as its collective would: from the shards of its ranks alone. */
static void apply(const world *w, state *s, const path_move *move, double *next) {
  int64_t n = move_devices(w->m, move), group[64];
  HP_ASSERT(n <= 64);
  for (int64_t p = 0; p < w->m->devices; p++) {
    mesh_get_ranks(w->m, p, move->axis, move->n, group);
    for (int64_t e = 0; e < w->elements; e++) {
      double x = NAN, own = s->held[p * w->elements + e];
      for (int64_t k = 0; k < n; k++) {
        double theirs = s->held[group[k] * w->elements + e];
        if (isnan(theirs)) continue;
        bool adds = move->kind == MOVE_ALL_REDUCE || move->kind == MOVE_REDUCE_SCATTER;
        x = isnan(x) || !adds ? theirs : x + theirs;
      }
      if (move->kind == MOVE_SPLIT) x = own; /* nothing is received */
      if (move->kind == MOVE_DROP) x = mesh_coordinate(w->m, p, move->axis[0]) ? own * 0 : own;
      next[p * w->elements + e] = inside(w, &move->after, p, e) ? x : NAN;
    }
  }
  memcpy(s->held, next, (size_t)(w->m->devices * w->elements) * sizeof *next);
  s->l = move->after;
}

/* The axes of an all_to_all cut its other dim in the order that it names. */
static bool names_its_cut(const path_move *move) {
  const layout *l = &move->after;
  return move->kind != MOVE_ALL_TO_ALL ||
         !memcmp(l->axis[move->to] + l->n[move->to] - move->n, move->cut, (size_t)move->n);
}

/* Each device must hold its shard, and their sum over partial axes must be the tensor. */
static bool holds(const world *w, const state *s) {
  uint8_t axis[LAYOUT_AXES];
  int n = 0;
  int64_t count = 1, group[64];
  for (int a = 0; a < w->m->axes; a++)
    if (s->l.partial[a]) axis[n++] = (uint8_t)a, count *= w->m->size[a];
  for (int64_t p = 0; p < w->m->devices; p++) {
    mesh_get_ranks(w->m, p, axis, n, group);
    for (int64_t e = 0; e < w->elements; e++) {
      if (!inside(w, &s->l, p, e)) continue;
      double sum = 0;
      for (int64_t k = 0; k < count; k++) sum += s->held[group[k] * w->elements + e];
      if (!(fabs(sum - w->global[e]) < 1e-9)) return false;
    }
  }
  return true;
}

static void fail_path(const mesh *m, const layout *from, const layout *to, const path *p,
                      const char *why) {
  str text = {0};
  layout_print(m, from, &text);
  str_add(&text, " to ");
  layout_print_on(m, to, &text);
  for (int i = 0; i < p->n; i++) {
    str_printf(&text, "\n  %s %d ", move_name(p->move[i].kind), p->move[i].dim);
    layout_print_on(m, &p->move[i].after, &text);
  }
  test_fail(__FILE__, __LINE__, "%s: %s", why, text.at);
}

static void check_path(const world *w, const layout *from, const layout *to, const path *p) {
  size_t bytes = (size_t)(w->m->devices * w->elements) * sizeof(double);
  state s = {.l = *from, .held = malloc(bytes)};
  double *next = malloc(bytes);
  HP_ASSERT(s.held && next);
  fill(w, &s);
  for (int i = 0; i < p->n; i++) {
    if (!names_its_cut(&p->move[i])) fail_path(w->m, from, to, p, "another cut than it names");
    apply(w, &s, &p->move[i], next);
  }
  if (!layout_equal(&s.l, to)) fail_path(w->m, from, to, p, "ends elsewhere");
  if (!holds(w, &s)) fail_path(w->m, from, to, p, "wrong numbers");
  free(next);
  free(s.held);
}

static void check_all_pairs(const int64_t *size, int axes, int rank, bool partial, bool permute,
                            int64_t dim) {
  mesh m = make_mesh(size, axes);
  all_layouts *all = layouts_of(&m, rank, partial);
  world w = {.m = &m, .elements = 1};
  for (int d = 0; d < rank; d++) w.shape[d] = dim, w.elements *= dim;
  w.global = malloc((size_t)w.elements * sizeof *w.global);
  for (int64_t e = 0; e < w.elements; e++) w.global[e] = (double)(e * e % 101) + 0.25;
  path_request q = {.mesh = &m, .shape = w.shape, .element_bytes = 4, .permute = permute};
  for (int i = 0; i < all->n; i++)
    for (int k = 0; k < all->n; k++) {
      path p;
      CHECK_OK(path_find(&q, &all->at[i], &all->at[k], &p));
      if (i == k && p.n) fail_path(&m, &all->at[i], &all->at[k], &p, "moves for nothing");
      check_path(&w, &all->at[i], &all->at[k], &p);
    }
  free(w.global);
  free(all);
  mesh_free(&m);
}

TEST(every_path_on_two_axes_gives_each_device_its_shard) {
  check_all_pairs((int64_t[]){2, 2}, 2, 2, true, false, 4);
  check_all_pairs((int64_t[]){2, 3}, 2, 2, true, false, 6);
  check_all_pairs((int64_t[]){2, 3}, 2, 1, true, true, 6);
}
TEST(every_path_on_three_axes_gives_each_device_its_shard) {
  check_all_pairs((int64_t[]){2, 2, 2}, 3, 2, false, false, 8);
  check_all_pairs((int64_t[]){2, 2, 2}, 3, 1, true, true, 8);
}

/* --- never dearer than an exhaustive search --------------------------------------------------- */

static bool starts_with(const layout *l, const layout *head, int d) {
  return l->n[d] >= head->n[d] && !memcmp(l->axis[d], head->axis[d], head->n[d]);
}
static bool same_dim(const layout *a, const layout *b, int d) {
  return a->n[d] == b->n[d] && starts_with(a, b, d);
}
static double parts_of(const mesh *m, const layout *l) {
  double shards = 1;
  for (int d = 0; d < l->rank; d++) shards *= (double)layout_shard_count(m, l, d);
  return shards;
}

/* Price of the one collective that leads from a to b, of a tensor of one element; -1: none does.
 * Written from the definitions, without the generator of path.c. */
static double one_move(const mesh *m, const layout *a, const layout *b) {
  int changed[LAYOUT_DIMS], n = 0;
  double reduced = 1, mine = 1 / parts_of(m, a), theirs = 1 / parts_of(m, b);
  bool same_partial = true;
  for (int d = 0; d < a->rank; d++)
    if (!same_dim(a, b, d)) changed[n++] = d;
  bool dropped = false;
  for (int x = 0; x < m->axes; x++) {
    if (a->partial[x] == b->partial[x]) continue;
    if (b->partial[x] && !layout_is_free(a, x)) return -1;
    if (b->partial[x]) dropped = true;
    else same_partial = false, reduced *= (double)m->size[x];
  }
  if (dropped) return same_partial && !n ? 0 : -1; /* several drops cost as much as one: nothing */
  if (!same_partial && !n) return 2 * mine * (reduced - 1) / reduced;
  if (n == 1) {
    int d = changed[0];
    if (starts_with(b, a, d)) {
      double more = mine / theirs;
      for (int i = a->n[d]; i < b->n[d];
           i++) { /* all out of the partial axes, or all free before */
        bool was_partial = a->partial[b->axis[d][i]] != 0;
        if (was_partial == same_partial) return -1;
      }
      if (same_partial) return 0;
      return more == reduced ? mine * (more - 1) / more : -1;
    }
    if (same_partial && starts_with(a, b, d)) return theirs - mine;
    return -1;
  }
  if (n != 2 || !same_partial) return -1;
  for (int turn = 0; turn < 2; turn++) {
    int d = changed[turn], e = changed[!turn];
    if (!starts_with(a, b, d) || !starts_with(b, a, e)) continue;
    if (a->n[d] - b->n[d] != b->n[e] - a->n[e]) continue;
    bool all = true;
    for (int i = b->n[d]; i < a->n[d]; i++)
      all &= memchr(b->axis[e] + a->n[e], a->axis[d][i], (size_t)(b->n[e] - a->n[e])) != NULL;
    double k = (double)layout_shard_count(m, a, d) / (double)layout_shard_count(m, b, d);
    if (all) return mine * (k - 1) / k;
  }
  return -1;
}

/* Least price between all pairs, by Floyd and Warshall. */
static double *all_prices(const mesh *m, const all_layouts *all) {
  size_t n = (size_t)all->n;
  double *price = malloc(n * n * sizeof *price);
  HP_ASSERT(price);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < n; k++) {
      double one = i == k ? 0 : one_move(m, &all->at[i], &all->at[k]);
      price[i * n + k] = one < 0 ? INFINITY : one;
    }
  for (size_t over = 0; over < n; over++)
    for (size_t i = 0; i < n; i++) {
      double first = price[i * n + over];
      if (first == INFINITY) continue;
      for (size_t k = 0; k < n; k++)
        if (first + price[over * n + k] < price[i * n + k])
          price[i * n + k] = first + price[over * n + k];
    }
  return price;
}

/* The least image of a layout when axes, and dims, change places. */
static layout least_image(const layout *l, int axes) {
  int order[4] = {0, 1, 2, 3};
  layout least = *l;
  for (int turn = 0; turn < 24; turn++) { /* all orders of four, of which those of fewer are some */
    int left[4] = {0, 1, 2, 3}, n = 4;
    for (int i = 0, k = turn; i < 4; i++) {
      int at = k % n;
      k /= n--;
      order[i] = left[at];
      memmove(left + at, left + at + 1, (size_t)(n - at) * sizeof *left);
    }
    bool whole = true;
    for (int a = 0; a < axes; a++) whole &= order[a] < axes;
    for (int swap = 0; whole && swap < l->rank * (l->rank > 1 ? l->rank - 1 : 1); swap++) {
      int dims[3] = {swap % l->rank, 0, 0}, at = 1;
      for (int d = 0; d < l->rank; d++) /* the others, upwards or downwards */
        if (d != dims[0]) dims[at++] = d;
      if (swap >= l->rank) dims[1] ^= dims[2], dims[2] ^= dims[1], dims[1] ^= dims[2];
      layout image = {.rank = l->rank};
      for (int d = 0; d < l->rank; d++)
        for (int i = 0; i < l->n[d]; i++) layout_append(&image, dims[d], order[l->axis[d][i]]);
      for (int a = 0; a < axes; a++) image.partial[order[a]] = l->partial[a];
      if (memcmp(&image, &least, sizeof image) < 0) least = image;
    }
  }
  return least;
}

typedef struct {
  bool partial;
  int every;      /* of the targets, one in so many */
  bool symmetric; /* all axes are alike: sources that are one another's images count once */
} check_options;

static void check_prices(const int64_t *size, int axes, int rank, check_options o) {
  mesh m = make_mesh(size, axes);
  all_layouts *all = layouts_of(&m, rank, o.partial);
  double *price = all_prices(&m, all);
  int64_t shape[LAYOUT_DIMS];
  double elements = 1;
  for (int d = 0; d < rank; d++) shape[d] = m.devices, elements *= (double)m.devices;
  path_request q = {.mesh = &m, .shape = shape, .element_bytes = 1};
  for (int i = 0; i < all->n; i++) {
    layout least = o.symmetric ? least_image(&all->at[i], axes) : all->at[i];
    if (!layout_equal(&least, &all->at[i])) {
      layout same = least_image(&least, axes);
      CHECK(layout_equal(&same, &least)); /* so one of those that are alike is tried */
      continue;
    }
    for (int k = i % o.every; k < all->n; k += o.every) {
      path p;
      CHECK_OK(path_find(&q, &all->at[i], &all->at[k], &p));
      double want = price[i * all->n + k] * elements;
      if (fabs(p.bytes - want) > 1e-6 * (1 + want)) {
        printf("%.9g bytes, %.9g are enough\n", p.bytes, want);
        fail_path(&m, &all->at[i], &all->at[k], &p, "not the cheapest");
      }
    }
  }
  free(price);
  free(all);
  mesh_free(&m);
}

TEST(no_path_is_dearer_than_an_exhaustive_search) {
  check_options all = {.partial = true, .every = 1};
  for (int rank = 1; rank <= 3; rank++) {
    check_prices((int64_t[]){2}, 1, rank, all);
    check_prices((int64_t[]){2, 2}, 2, rank, all);
  }
  check_prices((int64_t[]){2, 3}, 2, 3, all);
  check_prices((int64_t[]){2, 4, 3}, 3, 2, (check_options){.every = 1});
}
TEST(no_path_on_more_axes_is_dearer_than_an_exhaustive_search) {
  check_options some = {.partial = true, .every = 1, .symmetric = true};
  for (int rank = 1; rank <= 3; rank++) check_prices((int64_t[]){2, 2, 2}, 3, rank, some);
  check_prices((int64_t[]){2, 2, 2, 2}, 4, 3, (check_options){.every = 7, .symmetric = true});
}
/* HYPER_PAIRS=all: from every layout, not from one of those that are alike. */
TEST(torture_no_path_on_four_axes_is_dearer_than_an_exhaustive_search) {
  check_options o = {.partial = true, .every = 1, .symmetric = !getenv("HYPER_PAIRS")};
  for (int rank = 1; rank <= 3; rank++) check_prices((int64_t[]){2, 2, 2, 2}, 4, rank, o);
}

TEST(the_way_over_a_third_layout_is_never_cheaper) {
  mesh m = make_mesh((int64_t[]){2, 3}, 2);
  all_layouts *all = layouts_of(&m, 3, true);
  size_t n = (size_t)all->n;
  double *price = malloc(n * n * sizeof *price);
  path_request q = {.mesh = &m, .shape = (int64_t[]){6, 6, 6}, .element_bytes = 4};
  HP_ASSERT(price);
  for (size_t i = 0; i < n * n; i++) {
    path p;
    CHECK_OK(path_find(&q, &all->at[i / n], &all->at[i % n], &p));
    price[i] = p.bytes;
  }
  for (size_t i = 0; i < n; i++)
    for (size_t over = 0; over < n; over++)
      for (size_t k = 0; k < n; k++)
        CHECK(price[i * n + k] <= price[i * n + over] + price[over * n + k] + 1e-9);
  free(price);
  free(all);
  mesh_free(&m);
}

/* --- bounds, sizes, prices -------------------------------------------------------------------- */

TEST(a_path_keeps_to_the_peak_that_it_is_given) {
  mesh m = make_mesh((int64_t[]){2, 2}, 2);
  layout from = parse_on(&m, "((a,b),None)"), to = parse_on(&m, "((b,a),None)");
  path_request q = {.mesh = &m, .shape = (int64_t[]){8, 8}, .element_bytes = 4};
  path p;
  CHECK_OK(path_find(&q, &from, &to, &p));
  CHECK_EQ(p.local, 16);
  q.peak = 16;
  CHECK_OK(path_find(&q, &from, &to, &p));
  CHECK_EQ(p.peak, 16);
  q.peak = 15;
  CHECK_FAILS(path_find(&q, &from, &to, &p), "15 elements");
}

TEST(a_dim_that_is_not_divided_is_padded_for_both_layouts) {
  mesh m = make_mesh((int64_t[]){2, 3}, 2);
  layout from = parse_on(&m, "(a,None)"), to = parse_on(&m, "(b,None)");
  path_request q = {.mesh = &m, .shape = (int64_t[]){7, 1}, .element_bytes = 4};
  path p;
  CHECK_OK(path_find(&q, &from, &to, &p));
  CHECK_EQ(p.local, 6); /* of 12 rows */
}

static double dear_axis(const void *model, const path_move *move) {
  double price = move->bytes;
  for (int i = 0; i < move->n; i++)
    if (move->axis[i] == *(const int *)model) price *= 100;
  return price;
}

TEST(prices_of_links_decide_which_axis_moves) {
  mesh m = make_mesh((int64_t[]){2, 2}, 2);
  layout from = parse_on(&m, "(None,None)+sum:a"), to = parse_on(&m, "(None,None)");
  int dear = 0;
  path_request q = {.mesh = &m,
                    .shape = (int64_t[]){8, 8},
                    .element_bytes = 4,
                    .price = dear_axis,
                    .model = &dear};
  path p;
  CHECK_OK(path_find(&q, &from, &to, &p));
  CHECK_EQ(p.n, 3); /* only half of it goes over the dear axis: split over b, reduce, gather */
  CHECK_EQ(p.move[0].kind, MOVE_SPLIT);
  CHECK_EQ(p.move[1].kind, MOVE_ALL_REDUCE);
  CHECK_EQ(p.move[2].kind, MOVE_GATHER);
}

TEST(many_axes_are_searched_in_reasonable_time) {
  mesh m = make_mesh((int64_t[]){2, 2, 2, 2, 2, 2, 2, 2}, 8);
  layout from = parse_on(&m, "((a,b,c),(d,e),f)"), to = parse_on(&m, "((a,b),(d,e),(f,c))");
  path_request q = {.mesh = &m, .shape = (int64_t[]){64, 64, 64}, .element_bytes = 4};
  path p;
  CHECK_OK(path_find(&q, &from, &to, &p));
  CHECK_EQ(p.n, 1);
  CHECK_EQ(p.move[0].kind, MOVE_ALL_TO_ALL);
}
