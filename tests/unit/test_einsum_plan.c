/* Einsum plans against a loop nest over all letters: the chain's bits in f32, and f64 sums. */
#include "test.h"

#include "backend/cpu/gemm/einsum_plan.h"
#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

static uint64_t next_random(uint64_t *seed) {
  *seed += 0x9e3779b97f4a7c15u;
  uint64_t z = *seed;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int random_below(uint64_t *seed, int n) { return (int)(next_random(seed) % (uint64_t)n); }

static pool *threads_of(int n) {
  static pool *made[4];
  if (!made[n]) CHECK_OK(pool_create(n, false, &made[n]));
  return made[n];
}

static int64_t elements(const hp_shape *s) {
  int64_t n = 1;
  for (int i = 0; i < s->rank; i++) n *= s->dim[i];
  return n;
}

static void *random_array(uint64_t *seed, hp_dtype type, int64_t n) {
  float *x = mem_calloc((size_t)n, sizeof *x);
  void *out = mem_calloc((size_t)n, dtype_size(type));
  for (int64_t i = 0; i < n; i++) x[i] = (float)(int32_t)next_random(seed) * 0x1p-31f;
  CHECK_OK(dtype_convert(type, out, HP_F32, x, (size_t)n));
  mem_free(x);
  return out;
}

static double element(hp_dtype type, const void *x, int64_t i) {
  float f;
  CHECK_OK(dtype_convert(HP_F32, &f, type, (const char *)x + (size_t)i * dtype_size(type), 1));
  return (double)f;
}

/* Element offset of a tensor for a value of each letter. */
static int64_t offset_of(const char *letters, const hp_shape *s, const int64_t value[128]) {
  int64_t at = 0;
  for (int i = 0; i < s->rank; i++) at = at * s->dim[i] + value[(int)letters[i]];
  return at;
}

/* Steps the letters like an odometer, the last fastest; false after the last. */
static bool step(const char *letters, const int64_t size[128], int64_t value[128]) {
  for (int i = (int)strlen(letters) - 1; i >= 0; i--) {
    if (++value[(int)letters[i]] < size[(int)letters[i]]) return true;
    value[(int)letters[i]] = 0;
  }
  return false;
}

typedef struct {
  einsum_eq eq;
  hp_shape sa, sb, sc;
  hp_dtype type;
  einsum_options options;
  void *a, *b, *c;
} problem;

/* The result by the definition; *exact the rounded chains, *sum in f64, *size the sum of |terms|.
 */
static void by_definition(const problem *p, void *exact, double *sum, double *scale) {
  int64_t size[128] = {0}, value[128] = {0};
  for (int i = 0; i < p->sa.rank; i++) size[(int)p->eq.a[i]] = p->sa.dim[i];
  for (int i = 0; i < p->sb.rank; i++) size[(int)p->eq.b[i]] = p->sb.dim[i];
  char inner[EINSUM_LETTERS_MAX + 1] = "";
  int n = 0;
  for (const char *l = p->eq.a; *l; l++)
    if (!strchr(p->eq.out, *l)) inner[n++] = *l;
  for (const char *l = p->eq.b; *l; l++)
    if (!strchr(p->eq.out, *l) && !strchr(p->eq.a, *l)) inner[n++] = *l;
  bool nothing = false;
  for (int i = 0; i < n; i++) nothing |= size[(int)inner[i]] == 0;
  for (int64_t i = 0; i < elements(&p->sc); i++) {
    double c = element(p->type, p->c, i);
    float chain = p->options.accumulate ? (float)c : 0;
    double s = chain, t = fabs(s);
    for (bool more = !nothing; more; more = step(inner, size, value)) {
      double x = element(p->type, p->a, offset_of(p->eq.a, &p->sa, value));
      double y = element(p->type, p->b, offset_of(p->eq.b, &p->sb, value));
      chain = fmaf((float)x, (float)y, chain);
      s += x * y;
      t += fabs(x * y);
    }
    chain *= p->options.alpha;
    CHECK_OK(
        dtype_convert(p->type, (char *)exact + (size_t)i * dtype_size(p->type), HP_F32, &chain, 1));
    sum[i] = s * (double)p->options.alpha;
    scale[i] = t;
    step(p->eq.out, size, value);
  }
}

/* The plan as text, e.g. "gemm 1024x768x768, batch 12, copy a". */
static void print_plan(const einsum_plan *p, str *out) {
  const gemm_query *q = &p->gemm;
  int64_t loops = 1;
  for (int i = 0; i < p->n_loops; i++) loops *= p->loop[i].size;
  str_printf(out, "gemm %lldx%lldx%lld", (long long)q->m, (long long)q->n, (long long)q->k);
  if (gemm_items(q) != 1) str_printf(out, ", batch %lld", (long long)gemm_items(q));
  if (loops != 1) str_printf(out, ", loop %lld", (long long)loops);
  if (q->b_pack) str_add(out, ", b packed");
  if (p->copy_a) str_add(out, ", copy a");
  if (p->copy_b) str_add(out, ", copy b");
  if (p->copy_c) str_add(out, ", copy out");
}

static void check_problem(const problem *p, const char *text) {
  einsum_tensor ta = einsum_dense(p->type, &p->sa), tb = einsum_dense(p->type, &p->sb),
                tc = einsum_dense(p->type, &p->sc);
  einsum_plan plan;
  CHECK_OK(einsum_plan_make(&p->eq, &ta, &tb, &tc, &p->options, &plan));
  size_t n = (size_t)elements(&p->sc), bytes = n * dtype_size(p->type);
  void *want = mem_calloc(n, 4);
  double *sum = mem_calloc(n, sizeof *sum), *scale = mem_calloc(n, sizeof *scale);
  by_definition(p, want, sum, scale);
  int rows;
  const gemm_engine *const *engine = engine_rows(&rows);
  for (int e = 0; e < rows; e++)
    for (int t = 1; t <= 3; t++) {
      if (!engine[e]->available() || !einsum_supports(&plan, engine[e])) continue;
      size_t work_size = einsum_workspace(&plan, engine[e], t);
      char *raw = mem_calloc(work_size + 2 * GEMM_ALIGN, 1);
      char *work = raw + (GEMM_ALIGN - (uintptr_t)raw % GEMM_ALIGN);
      memset(work, 0xff, work_size);
      void *got = mem_calloc(n, 4);
      memcpy(got, p->c, bytes);
      CHECK_OK(einsum_run(&plan, engine[e], p->a, p->b, got, threads_of(t), work));
      str how = {0};
      print_plan(&plan, &how);
      if (engine[e]->exact && memcmp(got, want, bytes))
        test_fail(__FILE__, __LINE__, "%s, %s on %s, %d threads: wrong bits", text, how.at,
                  engine[e]->name, t);
      for (size_t i = 0; i < n; i++) {
        double x = element(p->type, got, (int64_t)i);
        double unit = p->type == HP_F32 ? 0x1p-20 : p->type == HP_BF16 ? 0x1p-7 : 0x1p-9;
        if (!(fabs(x - sum[i]) <= unit * scale[i]))
          test_fail(__FILE__, __LINE__, "%s, %s on %s: element %zu is %g, want %g", text, how.at,
                    engine[e]->name, i, x, sum[i]);
      }
      str_free(&how);
      mem_free(got);
      mem_free(raw);
    }
  mem_free(want);
  mem_free(sum);
  mem_free(scale);
}

/* Runs text with the letters' sizes given as "b=2 t=3 ...", or random ones (at most `most`). */
static void check_text(uint64_t *seed, const char *text, hp_dtype type, bool accumulate,
                       float alpha, int most) {
  problem p = {.type = type, .options = {.accumulate = accumulate, .alpha = alpha}};
  CHECK_OK(einsum_parse(text, &p.eq));
  int64_t size[128];
  for (int i = 0; i < 128; i++)
    size[i] = random_below(seed, 12) ? 1 + random_below(seed, most) : random_below(seed, 2);
  p.sa.rank = (int)strlen(p.eq.a), p.sb.rank = (int)strlen(p.eq.b);
  for (int i = 0; i < p.sa.rank; i++) p.sa.dim[i] = size[(int)p.eq.a[i]];
  for (int i = 0; i < p.sb.rank; i++) p.sb.dim[i] = size[(int)p.eq.b[i]];
  CHECK_OK(einsum_out_shape(&p.eq, &p.sa, &p.sb, &p.sc));
  p.a = random_array(seed, type, elements(&p.sa));
  p.b = random_array(seed, type, elements(&p.sb));
  p.c = random_array(seed, type, elements(&p.sc));
  check_problem(&p, text);
  mem_free(p.a);
  mem_free(p.b);
  mem_free(p.c);
}

TEST(einsum_runs_the_equations_of_models) {
  static const char *const eq[] =
      {"btd,de->bte",     "btd,ed->bte",     "bte,de->btd",     "btd,bte->de",
       "btd,bte->ed",     "bthd,bshd->bhts", "bhts,bshd->bthd", "bhts,bthd->bshd",
       "bthd,hde->bte",   "btd,dhe->bhte",   "bhtd,hde->bte",   "btd,tbe->de",
       "ecd,edf->ecf",    "ecd,ecf->edf",    "i,i->",           ",->",
       ",ab->ba",         "i,j->ij",         "i,j->ji",         "ij,->i",
       "ij,kl->",         "ixj,jyk->ik",     "ij,ij->ij",       "abc,cba->b",
       "abcdef,ab->fedc", "ab,cd->dbca",     "gqhd,gkhd->ghqk", "ij,ji->ij",
       "ab,b->a",         "b,ab->a"};
  uint64_t seed = 1;
  for (size_t i = 0; i < sizeof eq / sizeof *eq; i++)
    for (int k = 0; k < 6; k++)
      check_text(&seed, eq[i], (hp_dtype)(k % 3), k % 2, k % 2 ? 1 : 0.25f, 7);
}

TEST(einsum_runs_random_equations) {
  uint64_t seed = 2;
  for (int round = 0; round < 200; round++) {
    /* each of up to six letters goes to some of a, b, out, at a random place */
    char op[3][2 * HP_MAX_RANK + 1] = {"", "", ""}, text[64];
    int letters = 1 + random_below(&seed, 6);
    for (int l = 0; l < letters; l++) {
      int in = 1 + random_below(&seed, 7);
      if (in == 4) in = 5;
      for (int t = 0; t < 3; t++) {
        if (!(in >> t & 1)) continue;
        size_t n = strlen(op[t]), at = (size_t)random_below(&seed, (int)n + 1);
        memmove(op[t] + at + 1, op[t] + at, n - at + 1);
        op[t][at] = (char)('a' + l);
      }
    }
    snprintf(text, sizeof text, "%s,%s->%s", op[0], op[1], op[2]);
    check_text(&seed, text, (hp_dtype)random_below(&seed, 3), round % 3 == 0,
               round % 3 == 1 ? 0.7f : 1, letters < 4 ? 20 : 6);
  }
}

/* The plan of an equation on dense f32 tensors, sizes of letters a, b, c, ... in order. */
static const char *plan_text(const char *text, const char *letters, const int64_t *size) {
  static str out;
  einsum_eq eq;
  CHECK_OK(einsum_parse(text, &eq));
  hp_shape sa = {.rank = (int)strlen(eq.a)}, sb = {.rank = (int)strlen(eq.b)}, sc;
  for (int i = 0; i < sa.rank; i++) sa.dim[i] = size[strchr(letters, eq.a[i]) - letters];
  for (int i = 0; i < sb.rank; i++) sb.dim[i] = size[strchr(letters, eq.b[i]) - letters];
  CHECK_OK(einsum_out_shape(&eq, &sa, &sb, &sc));
  einsum_tensor ta = einsum_dense(HP_F32, &sa), tb = einsum_dense(HP_F32, &sb),
                tc = einsum_dense(HP_F32, &sc);
  einsum_plan plan;
  CHECK_OK(einsum_plan_make(&eq, &ta, &tb, &tc, &(einsum_options){.alpha = 1}, &plan));
  str_free(&out);
  print_plan(&plan, &out);
  return out.at;
}

TEST(einsum_plans_copy_only_what_pays) {
  const int64_t proj[] = {4, 256, 768, 3072}, attn[] = {4, 256, 256, 12, 64};
  CHECK_STR(plan_text("btd,de->bte", "btde", proj), "gemm 1024x3072x768");
  CHECK_STR(plan_text("btd,ed->bte", "btde", proj), "gemm 1024x3072x768");
  CHECK_STR(plan_text("btd,bte->de", "btde", proj), "gemm 768x3072x1024");
  CHECK_STR(plan_text("bthd,bshd->bhts", "btshd", attn), "gemm 256x256x64, batch 48");
  CHECK_STR(plan_text("bhts,bshd->bthd", "btshd", attn), "gemm 256x64x256, batch 48");
  /* heads before time: the inner letters are no run in the first operand */
  const int64_t out[] = {4, 12, 256, 64, 768};
  CHECK_STR(plan_text("bthd,hde->bte", "bhtde", out), "gemm 1024x768x768");
  CHECK_STR(plan_text("bhtd,hde->bte", "bhtde", out), "gemm 1024x768x768, copy a");
  const int64_t two[] = {4, 2, 256, 384, 768};
  CHECK_STR(plan_text("bhtd,hde->bte", "bhtde", two), "gemm 256x768x384, batch 4, loop 2");
  /* weights packed by 16 columns are read in place, of another width they are not */
  const int64_t packs[] = {1, 5, 768, 128, 16}, narrow[] = {1, 5, 768, 128, 8};
  CHECK_STR(plan_text("btc,ncl->btnl", "btcnl", packs), "gemm 5x2048x768, b packed");
  CHECK_STR(plan_text("btc,ncl->btnl", "btcnl", narrow), "gemm 5x1024x768, copy b");
  /* summed letters in another order: the run of four is too short to loop over */
  const int64_t mixed[] = {64, 4, 96, 128};
  CHECK_STR(plan_text("btd,tbe->de", "btde", mixed), "gemm 96x128x256, copy b");
}

TEST(einsum_reads_strided_operands) {
  /* the first 5 of 9 rows of a cache [2, 9, 3], times [2, 3, 4] */
  einsum_eq eq;
  CHECK_OK(einsum_parse("bsd,bde->bse", &eq));
  einsum_tensor a = {HP_F32, {3, {2, 5, 3}}, {27, 3, 1}};
  einsum_tensor b = einsum_dense(HP_F32, &(hp_shape){3, {2, 3, 4}});
  einsum_tensor c = einsum_dense(HP_F32, &(hp_shape){3, {2, 5, 4}});
  einsum_plan plan;
  CHECK_OK(einsum_plan_make(&eq, &a, &b, &c, &(einsum_options){.alpha = 1}, &plan));
  float x[54], y[24], z[40];
  for (int i = 0; i < 54; i++) x[i] = (float)i;
  for (int i = 0; i < 24; i++) y[i] = (float)(i % 7);
  void *work = mem_map(einsum_workspace(&plan, engine_default(), 1));
  CHECK_OK(einsum_run(&plan, engine_default(), x, y, z, threads_of(1), work));
  for (int i = 0; i < 40; i++) {
    int bb = i / 20, s = i / 4 % 5, e = i % 4;
    float want = 0;
    for (int d = 0; d < 3; d++) want += x[bb * 27 + s * 3 + d] * y[bb * 12 + d * 4 + e];
    CHECK_EQ(z[i], want);
  }
  mem_unmap(work, einsum_workspace(&plan, engine_default(), 1));
}

TEST(einsum_plan_refuses_tensors_that_do_not_fit) {
  einsum_eq eq;
  einsum_plan plan;
  const einsum_options plain = {.alpha = 1};
  CHECK_OK(einsum_parse("mk,kn->mn", &eq));
  einsum_tensor a = einsum_dense(HP_F32, &(hp_shape){2, {3, 4}}), b = a, c = a, bad;
  b.shape.dim[0] = 4, b.shape.dim[1] = 5, b.stride[0] = 5;
  c.shape.dim[1] = 5, c.stride[0] = 5;
  CHECK_OK(einsum_plan_make(&eq, &a, &b, &c, &plain, &plan));
  CHECK_FAILS(einsum_plan_make(&eq, &a, &a, &c, &plain, &plan), "\"mk,kn->mn\": letter 'k' is 4");
  CHECK_FAILS(einsum_plan_make(&eq, &a, &b, &a, &plain, &plan), "letter 'n' is 5 in the operands");
  bad = c, bad.shape.rank = 1;
  CHECK_FAILS(einsum_plan_make(&eq, &a, &b, &bad, &plain, &plan), "the result has 2 dims");
  bad = a, bad.type = HP_I64;
  CHECK_FAILS(einsum_plan_make(&eq, &bad, &b, &c, &plain, &plan), "the first operand is i64");
  bad = a, bad.stride[0] = INT64_MAX;
  CHECK_FAILS(einsum_plan_make(&eq, &bad, &b, &c, &plain, &plan), "no memory can hold");
  bad = a, bad.stride[1] = -1;
  CHECK_FAILS(einsum_plan_make(&eq, &bad, &b, &c, &plain, &plan), "stride -1");
  CHECK_FAILS(einsum_plan_make(&eq, &a, &b, &c, &(einsum_options){.accumulate = true, .alpha = 2},
                               &plan),
              "accumulate");
  int64_t big = INT64_C(1) << 40;
  CHECK_OK(einsum_parse("m,n->", &eq));
  einsum_tensor v = einsum_dense(HP_F32, &(hp_shape){1, {big}}),
                s = einsum_dense(HP_F32, &(hp_shape){0, {0}});
  CHECK_FAILS(einsum_plan_make(&eq, &v, &v, &s, &plain, &plan), "more work");
}

TEST(engines_are_found_by_name) {
  const gemm_engine *e;
  CHECK_OK(engine_find("packed", &e));
  CHECK(e == engine_default());
  CHECK_OK(engine_find("scalar", &e));
  CHECK_FAILS(engine_find("mkl", &e), "no gemm engine is named \"mkl\"; there are: packed");
}
