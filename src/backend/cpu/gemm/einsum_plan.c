#include "backend/cpu/gemm/einsum_plan.h"

#include "base/dtype.h"

#include <string.h>

einsum_tensor einsum_dense(hp_dtype type, const hp_shape *shape) {
  einsum_tensor t = {.type = type, .shape = *shape};
  int64_t stride = 1;
  for (int i = shape->rank - 1; i >= 0; i--) {
    t.stride[i] = stride;
    if (__builtin_mul_overflow(stride, shape->dim[i] ? shape->dim[i] : 1, &stride))
      stride = INT64_MAX; /* einsum_plan_make refuses it */
  }
  return t;
}

/* --- letters ---------------------------------------------------------------------------------- */

/* A letter, or adjacent letters that are contiguous in every tensor; stride 0 where it is
 * absent. */
typedef struct {
  int64_t size, a, b, c;
} span;

typedef struct {
  int n;
  span at[EINSUM_LETTERS_MAX];
} spans;

/* The equation bound to tensors. */
typedef struct {
  const einsum_eq *eq;
  const einsum_tensor *a, *b, *out;
  einsum_sizes sizes;
} problem;

static int64_t find_stride(const char *letters, const einsum_tensor *t, char letter) {
  const char *at = strchr(letters, letter);
  return at ? t->stride[at - letters] : 0;
}

static span make_span(const problem *p, char letter) {
  return (span){.size = einsum_size(&p->sizes, letter),
                .a = find_stride(p->eq->a, p->a, letter),
                .b = find_stride(p->eq->b, p->b, letter),
                .c = find_stride(p->eq->out, p->out, letter)};
}

/* The letters of a role in the order of `order`, without those of size 1. */
static spans make_spans(const problem *p, const char *order, einsum_role role) {
  spans s = {0};
  for (const char *c = order; *c; c++)
    if (einsum_letter_role(p->eq, *c) == role && einsum_size(&p->sizes, *c) != 1)
      s.at[s.n++] = make_span(p, *c);
  return s;
}

/* The summed letters in the order of the chain. */
static spans make_inner_spans(const problem *p) {
  spans s = {0};
  for (const char *c = p->eq->a; *c; c++)
    if (!strchr(p->eq->out, *c) && einsum_size(&p->sizes, *c) != 1) s.at[s.n++] = make_span(p, *c);
  for (const char *c = p->eq->b; *c; c++)
    if (einsum_letter_role(p->eq, *c) == EINSUM_SUM_B && einsum_size(&p->sizes, *c) != 1)
      s.at[s.n++] = make_span(p, *c);
  return s;
}

static bool is_run(const span *outer, const span *inner) {
  return outer->a == inner->a * inner->size && outer->b == inner->b * inner->size &&
         outer->c == inner->c * inner->size;
}

static spans merge_spans(const spans *s) {
  spans m = {0};
  for (int i = 0; i < s->n; i++) {
    span x = s->at[i];
    if (m.n > 0 && is_run(&m.at[m.n - 1], &x)) {
      x.size *= m.at[m.n - 1].size;
      m.n--;
    }
    m.at[m.n++] = x;
  }
  return m;
}

/* --- one way to do it ------------------------------------------------------------------------- */

/* The four kinds of letters, in the order of iteration. */
typedef struct {
  spans batch, row, col, inner;
} groups;

typedef enum { COPY_A = 1, COPY_B = 2, COPY_C = 4, WAYS = 8 } copies;

/* The strides that a copied tensor gets: dense, group by group, the last group fastest. */
enum { IN_A, IN_B, IN_C };
static int64_t *get_stride(span *s, int tensor) {
  return tensor == IN_A ? &s->a : tensor == IN_B ? &s->b : &s->c;
}
static void make_dense(spans *const group[3], int tensor) {
  int64_t stride = 1;
  for (int g = 2; g >= 0; g--)
    for (int i = group[g]->n - 1; i >= 0; i--) {
      int64_t *s = get_stride(&group[g]->at[i], tensor);
      if (*s == 0) continue; /* the tensor does not have the letter */
      *s = stride;
      stride *= group[g]->at[i].size;
    }
}

/* True when the tensor's fastest letter is summed: its copy keeps the summed letters fastest. */
static bool inner_is_fastest(const groups *g, int tensor) {
  int64_t best = INT64_MAX;
  bool inner = false;
  const spans *all[] = {&g->batch, &g->row, &g->col, &g->inner};
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < all[k]->n; i++) {
      span x = all[k]->at[i];
      int64_t s = *get_stride(&x, tensor);
      if (s == 0 || s >= best) continue;
      best = s;
      inner = k == 3;
    }
  return inner;
}

/* Letters in the orders that suit the copies of `way`, with strides after those copies.  Rows
 * follow the tensor that is not copied, so that both agree. */
static groups make_groups(const problem *p, int way, groups *before) {
  const char *rows = way & COPY_C ? p->eq->a : p->eq->out,
             *cols = way & COPY_C ? p->eq->b : p->eq->out;
  *before = (groups){.batch = make_spans(p, p->eq->out, EINSUM_BATCH),
                     .row = make_spans(p, rows, EINSUM_ROW),
                     .col = make_spans(p, cols, EINSUM_COL),
                     .inner = make_inner_spans(p)};
  groups g = *before;
  if (way & COPY_A) {
    bool inner = inner_is_fastest(before, IN_A);
    make_dense((spans *const[3]){&g.batch, inner ? &g.row : &g.inner, inner ? &g.inner : &g.row},
               IN_A);
  }
  if (way & COPY_B) {
    bool inner = inner_is_fastest(before, IN_B);
    make_dense((spans *const[3]){&g.batch, inner ? &g.col : &g.inner, inner ? &g.inner : &g.col},
               IN_B);
  }
  if (way & COPY_C) make_dense((spans *const[3]){&g.batch, &g.row, &g.col}, IN_C);
  return g;
}

static bool is_empty(const groups *g) {
  const spans *all[] = {&g->batch, &g->row, &g->col, &g->inner};
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < all[k]->n; i++)
      if (all[k]->at[i].size == 0) return true;
  return false;
}

/* Takes the largest run out of s; if there is none, a run of one. */
static span take_largest(spans *s) {
  if (s->n == 0) return (span){.size = 1};
  int best = 0;
  for (int i = 1; i < s->n; i++)
    if (s->at[i].size >= s->at[best].size) best = i;
  span x = s->at[best];
  memmove(&s->at[best], &s->at[best + 1], sizeof x * (size_t)(s->n - best - 1));
  s->n--;
  return x;
}

static void add_batch(gemm_query *q, const spans *s) {
  for (int i = 0; i < s->n; i++)
    q->batch[q->n_batch++] = (gemm_batch){s->at[i].size, s->at[i].a, s->at[i].b, s->at[i].c};
}

/* If the column spans are those of packed weights and dense in the result: moves them from s to
 * n, as one span, and returns the elements from one pack to the next.  Else 0. */
static int64_t take_packs(spans *s, span *n) {
  if (s->n != 2) return 0;
  span pack = s->at[0], lane = s->at[1];
  if (lane.size != GEMM_PACK || lane.b != 1 || lane.c != 1 || pack.c != GEMM_PACK) return 0;
  *n = (span){.size = pack.size * GEMM_PACK, .b = 1, .c = 1};
  s->n = 0;
  return pack.b;
}

/* The product and its loops: rows and columns get their longest run, the inner dim the last run
 * of the summed letters; the rest of rows and columns is batch, of the summed letters loops. */
static void build_product(const groups *g, einsum_plan *plan) {
  spans batch = merge_spans(&g->batch), row = merge_spans(&g->row), col = merge_spans(&g->col),
        inner = merge_spans(&g->inner);
  span m = take_largest(&row), n, k = {.size = 1};
  if (is_empty(g)) k.size = inner.n = 0; /* no output, or sums over nothing */
  else if (inner.n > 0) k = inner.at[--inner.n];
  int64_t pack = take_packs(&col, &n);
  if (!pack) n = take_largest(&col);
  gemm_query q = {.m = m.size,
                  .n = n.size,
                  .k = k.size,
                  .a_m = m.a,
                  .a_k = k.a,
                  .b_k = k.b,
                  .b_n = n.b,
                  .b_pack = pack,
                  .c_m = m.c,
                  .c_n = n.c};
  add_batch(&q, &batch);
  add_batch(&q, &row);
  add_batch(&q, &col);
  plan->gemm = q;
  for (int i = 0; i < inner.n; i++) {
    plan->loop[i].size = inner.at[i].size;
    plan->loop[i].a = inner.at[i].a;
    plan->loop[i].b = inner.at[i].b;
  }
  plan->n_loops = inner.n;
}

static int64_t loop_count(const einsum_plan *p) {
  int64_t n = 1;
  for (int i = 0; i < p->n_loops; i++) n *= p->loop[i].size;
  return n;
}

static double max_double(double a, double b) { return a > b ? a : b; }
static double round_up_to_16(double x) { return (double)(((int64_t)x + 15) / 16 * 16); }

/* Estimated cycles of the products, by the rates of the packed engine on one core: 16 FMAs a cycle
 * on full tiles, packing by the element (slow when it must gather), C once per loop, and fixed
 * parts for each product and for each start of the threads. */
static double product_cost(const einsum_plan *p) {
  const gemm_query *q = &p->gemm;
  double m = (double)q->m, n = (double)q->n, k = (double)q->k;
  double tiles = max_double(m, 4) * round_up_to_16(n),
         transposed = max_double(n, 4) * round_up_to_16(m);
  double cost = (tiles < transposed ? tiles : transposed) * k / 16;
  cost += m * k * (q->a_m == 1 || q->a_k == 1 ? 0.7 : 3);
  cost += k * n * (q->b_n == 1 || q->b_k == 1 ? 0.7 : 3);
  cost += m * n * (q->c_n == 1 || q->c_m == 1 ? 0.3 : 2.3);
  return ((cost + 300) * (double)gemm_items(q) + 3000) * (double)loop_count(p);
}

/* A copy of all elements of a tensor: from its strides before to those after. */
static gemm_copy build_move(const groups *before, const groups *after, int tensor, hp_dtype from,
                            hp_dtype to, int64_t *elements) {
  gemm_copy c = {.from_type = from, .to_type = to, .alpha = 1};
  const spans *x[] = {&before->batch, &before->row, &before->col, &before->inner};
  const spans *y[] = {&after->batch, &after->row, &after->col, &after->inner};
  *elements = 1;
  for (int g = 0; g < 4; g++)
    for (int i = 0; i < x[g]->n; i++) {
      span f = x[g]->at[i], t = y[g]->at[i];
      if (*get_stride(&t, tensor) == 0) continue;
      c.dim[c.rank].size = f.size;
      c.dim[c.rank].from = *get_stride(&f, tensor);
      c.dim[c.rank++].to = *get_stride(&t, tensor);
      *elements *= f.size;
    }
  return c;
}

/* The plan for one choice of copies; false if it is impossible: a result that is not f32, or
 * scaled, cannot carry the chains from one loop to the next. */
static bool build_way(const problem *p, int way, const einsum_options *options, einsum_plan *plan,
                      double *cost) {
  enum { COPY_CYCLES = 2 }; /* per element, also where the copy transposes */
  groups before, after = make_groups(p, way, &before);
  *plan = (einsum_plan){.eq = *p->eq, .options = *options};
  build_product(&after, plan);
  plan->copy_a = way & COPY_A, plan->copy_b = way & COPY_B, plan->copy_c = way & COPY_C;
  if (!plan->copy_c && loop_count(plan) > 1 && (p->out->type != HP_F32 || options->alpha != 1))
    return false;
  int64_t na = 0, nb = 0, nc = 0;
  if (way & COPY_A) plan->move_a = build_move(&before, &after, IN_A, p->a->type, p->a->type, &na);
  if (way & COPY_B) plan->move_b = build_move(&before, &after, IN_B, p->b->type, p->b->type, &nb);
  if (way & COPY_C) {
    plan->move_c = build_move(&after, &before, IN_C, HP_F32, p->out->type, &nc);
    plan->move_c.alpha = options->alpha;
  }
  plan->a_bytes = gemm_align((size_t)na * dtype_size(p->a->type));
  plan->b_bytes = gemm_align((size_t)nb * dtype_size(p->b->type));
  plan->c_bytes = gemm_align((size_t)nc * sizeof(float));
  plan->gemm.a_type = p->a->type;
  plan->gemm.b_type = p->b->type;
  plan->gemm.c_type = plan->copy_c ? HP_F32 : p->out->type;
  plan->gemm.alpha = plan->copy_c ? 1 : options->alpha;
  plan->gemm.accumulate = options->accumulate;
  plan->gemm.rounded = options->rounded && p->a->type != p->b->type;
  *cost = product_cost(plan) + COPY_CYCLES * (double)(na + nb + nc);
  return true;
}

/* --- planning --------------------------------------------------------------------------------- */

static hp_status check_tensor(const einsum_eq *eq, const char *what, const einsum_tensor *t) {
  char text[EINSUM_TEXT_MAX];
  if ((unsigned)t->type >= HP_DTYPE_COUNT || !dtype_is_float(t->type))
    HP_FAIL(HP_ERR_ARG, "einsum \"%s\": %s is %s; f32, bf16 and f16 can be contracted",
            einsum_print(eq, text), what,
            (unsigned)t->type < HP_DTYPE_COUNT ? dtype_name(t->type) : "of no known type");
  int64_t last = 0, elements = 1;
  for (int i = 0; i < t->shape.rank; i++) {
    int64_t size = t->shape.dim[i], run;
    if (t->stride[i] < 0 || __builtin_mul_overflow(size ? size - 1 : 0, t->stride[i], &run) ||
        __builtin_add_overflow(last, run, &last) || last > INT64_MAX / 16 ||
        __builtin_mul_overflow(elements, size ? size : 1, &elements) || elements > INT64_MAX / 16)
      HP_FAIL(HP_ERR_SHAPE,
              "einsum \"%s\": dim %d of %s has size %lld and stride %lld, which no memory can hold",
              einsum_print(eq, text), i, what, (long long)size, (long long)t->stride[i]);
  }
  return HP_OK;
}

static hp_status check_result(const problem *p) {
  char text[EINSUM_TEXT_MAX];
  const hp_shape *s = &p->out->shape;
  int rank = (int)strlen(p->eq->out);
  if (s->rank != rank)
    HP_FAIL(HP_ERR_SHAPE, "einsum \"%s\": the result has %d dims, its tensor has %d",
            einsum_print(p->eq, text), rank, s->rank);
  for (int i = 0; i < rank; i++) {
    int64_t want = einsum_size(&p->sizes, p->eq->out[i]);
    if (s->dim[i] != want)
      HP_FAIL(
          HP_ERR_SHAPE,
          "einsum \"%s\": letter '%c' is %lld in the operands and %lld in the result; they must "
          "be equal",
          einsum_print(p->eq, text), p->eq->out[i], (long long)want, (long long)s->dim[i]);
  }
  return HP_OK;
}

/* The product of all sizes is the number of steps of all chains. */
static hp_status check_work(const problem *p) {
  char text[EINSUM_TEXT_MAX];
  int64_t steps = 1;
  for (size_t i = 0; p->sizes.letter[i]; i++) {
    int64_t size = p->sizes.size[i];
    if (__builtin_mul_overflow(steps, size ? size : 1, &steps) || steps > INT64_MAX / 64)
      HP_FAIL(HP_ERR_SHAPE,
              "einsum \"%s\": the sizes of its letters multiply to more work than can be "
              "counted",
              einsum_print(p->eq, text));
  }
  return HP_OK;
}

hp_status einsum_plan_make(const einsum_eq *eq, const einsum_tensor *a, const einsum_tensor *b,
                           const einsum_tensor *out, const einsum_options *options,
                           einsum_plan *plan) {
  problem p = {.eq = eq, .a = a, .b = b, .out = out};
  HP_TRY(einsum_bind(eq, &a->shape, &b->shape, &p.sizes));
  HP_TRY(check_result(&p));
  HP_TRY(check_tensor(eq, "the first operand", a));
  HP_TRY(check_tensor(eq, "the second operand", b));
  HP_TRY(check_tensor(eq, "the result", out));
  HP_TRY(check_work(&p));
  einsum_plan best = {.eq = *eq}, way;
  double least = -1, cost;
  for (int w = 0; w < WAYS; w++) {
    if (!build_way(&p, w, options, &way, &cost) || (least >= 0 && cost >= least)) continue;
    best = way;
    least = cost;
  }
  HP_TRY(gemm_check(&best.gemm));
  *plan = best;
  return HP_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

size_t einsum_workspace(const einsum_plan *p, const gemm_engine *engine, int threads) {
  return p->a_bytes + p->b_bytes + p->c_bytes + engine->workspace(&p->gemm, threads);
}

bool einsum_supports(const einsum_plan *p, const gemm_engine *engine) {
  gemm_query q = p->gemm;
  if (!engine->supports(&q)) return false;
  q.accumulate = true;
  return loop_count(p) == 1 || engine->supports(&q);
}

/* The copies there and back have the same dims. */
static gemm_copy reverse_copy(const gemm_copy *c) {
  gemm_copy r = *c;
  r.from_type = c->to_type;
  r.to_type = c->from_type;
  r.alpha = 1;
  for (int i = 0; i < c->rank; i++) {
    r.dim[i].from = c->dim[i].to;
    r.dim[i].to = c->dim[i].from;
  }
  return r;
}

static hp_status run_products(const einsum_plan *p, const gemm_engine *engine, const char *a,
                              const char *b, void *c, pool *threads, void *work) {
  int64_t loops = loop_count(p), a_size = (int64_t)dtype_size(p->gemm.a_type),
          b_size = (int64_t)dtype_size(p->gemm.b_type);
  gemm_query q = p->gemm;
  for (int64_t i = 0; i < loops; i++) {
    int64_t index = i, at_a = 0, at_b = 0;
    for (int d = p->n_loops - 1; d >= 0; d--) {
      at_a += index % p->loop[d].size * p->loop[d].a;
      at_b += index % p->loop[d].size * p->loop[d].b;
      index /= p->loop[d].size;
    }
    gemm_args args = {a + at_a * a_size, b + at_b * b_size, c, NULL};
    HP_TRY(engine->run(&q, &args, threads, work));
    q.accumulate = true;
  }
  return HP_OK;
}

/* The next `bytes` of work memory; for 0 bytes the address is unchanged, since work may be NULL. */
static char *take_bytes(char **work, size_t bytes) {
  char *at = *work;
  if (bytes) *work += bytes;
  return at;
}

hp_status einsum_run(const einsum_plan *p, const gemm_engine *engine, const void *a, const void *b,
                     void *out, pool *threads, void *work) {
  char *rest = work, *wa = take_bytes(&rest, p->a_bytes), *wb = take_bytes(&rest, p->b_bytes);
  char *wc = take_bytes(&rest, p->c_bytes);
  if (p->copy_a) gemm_copy_run(&p->move_a, a, wa, threads);
  if (p->copy_b) gemm_copy_run(&p->move_b, b, wb, threads);
  if (p->copy_c && p->options.accumulate) {
    gemm_copy load = reverse_copy(&p->move_c);
    gemm_copy_run(&load, out, wc, threads);
  }
  HP_TRY(run_products(p, engine, p->copy_a ? wa : a, p->copy_b ? wb : b, p->copy_c ? wc : out,
                      threads, rest));
  if (p->copy_c) gemm_copy_run(&p->move_c, wc, out, threads);
  return HP_OK;
}
