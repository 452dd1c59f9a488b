/* Sessions: whatever else is in the batch, however its tokens come, and in whatever order weights
 * lie, its logits have the same bits. */
#include "base/dtype.h"
#include "base/mem.h"
#include "golden/golden_case.h"
#include "serve/session.h"
#include "test.h"

typedef struct {
  hp_device *d;
  lm *m;
} model;

static void open_as(const char *name, int threads, bool packed, hp_dtype type, model *x) {
  char path[512];
  snprintf(path, sizeof path, "tests/golden/cases/%s", name);
  hp_device_options o = {.threads = threads, .interpret = true};
  lm_options lo = {.compute = type, .weights = type, .packed = packed};
  CHECK_OK(hp_device_open(&o, &x->d));
  CHECK_OK(lm_create(path, x->d, &lo, &x->m));
  CHECK_OK(lm_load(x->m, path));
}
static void open_model(const char *name, int threads, bool packed, model *x) {
  open_as(name, threads, packed, HP_F32, x);
}
static void close_model(model *x) {
  lm_free(x->m);
  hp_device_close(x->d);
}

enum { SEQUENCES = 3, LONGEST = 21, STEPS = 3, ROOM = LONGEST + STEPS };
static const int64_t lengths[SEQUENCES] = {5, LONGEST, 1};

static int32_t token(const lm *m, int64_t sequence, int64_t i) {
  return (int32_t)((sequence * 29 + i * 7 + 3) % m->c.vocab);
}

/* Logits [V] of a sequence by itself, after its prompt and after each step; the prompt `cut` tokens
 * at a time. */
static void alone(const model *x, int64_t sequence, int64_t cut, float *logits) {
  session *s;
  int64_t number;
  CHECK_OK(session_create(x->m, &(session_options){.sequences = 1, .tokens = ROOM}, &s));
  CHECK_OK(session_add(s, &number));
  for (int64_t at = 0, n; at < lengths[sequence] + STEPS; at += n) {
    int32_t ids[ROOM];
    n = at >= lengths[sequence] ? 1 : lengths[sequence] - at < cut ? lengths[sequence] - at : cut;
    for (int64_t i = 0; i < n; i++) ids[i] = token(x->m, sequence, at + i);
    CHECK_OK(session_feed(s, &(session_tokens){number, ids, n}, 1, logits));
    if (at + n >= lengths[sequence]) logits += x->m->c.vocab;
  }
  session_free(s);
}

static float *room_of(const model *x) {
  float *p = mem_calloc((size_t)(SEQUENCES * (STEPS + 1) * x->m->c.vocab), sizeof *p);
  CHECK(p);
  return p;
}

/* The same of all sequences side by side: [step, sequence, V]. */
static void together(const model *x, float *logits) {
  int32_t ids[SEQUENCES][ROOM];
  session_tokens t[SEQUENCES];
  session *s;
  CHECK_OK(session_create(x->m, &(session_options){.sequences = SEQUENCES, .tokens = ROOM}, &s));
  for (int i = 0; i < SEQUENCES; i++) CHECK_OK(session_add(s, &t[i].sequence));
  for (int64_t step = 0; step <= STEPS; step++) {
    for (int64_t i = 0; i < SEQUENCES; i++) {
      int64_t at = step ? lengths[i] + step - 1 : 0;
      t[i].n = step ? 1 : lengths[i];
      for (int64_t k = 0; k < t[i].n; k++) ids[i][k] = token(x->m, i, at + k);
      t[i].ids = ids[i];
    }
    CHECK_OK(session_feed(s, t, SEQUENCES, logits));
    logits += SEQUENCES * x->m->c.vocab;
  }
  session_free(s);
}

/* Returns how many matrices could lie in packed. */
static int check_case(const char *name) {
  model x;
  open_model(name, 1, false, &x);
  size_t V = (size_t)x.m->c.vocab;
  float *one = room_of(&x), *cut = room_of(&x), *all = room_of(&x);
  together(&x, all);
  close_model(&x); /* a device has one cache */
  open_model(name, 1, false, &x);
  for (int64_t i = 0; i < SEQUENCES; i++) {
    alone(&x, i, LONGEST, one);
    alone(&x, i, 2, cut);
    for (size_t step = 0; step <= STEPS; step++) {
      const float *side = all + (step * SEQUENCES + (size_t)i) * V;
      if (memcmp(one + step * V, cut + step * V, V * sizeof *one))
        test_fail(__FILE__, __LINE__, "%s: sequence %d by twos, step %zu", name, (int)i, step);
      if (memcmp(one + step * V, side, V * sizeof *one))
        test_fail(__FILE__, __LINE__, "%s: sequence %d among others, step %zu", name, (int)i, step);
    }
  }
  float *packed = room_of(&x);
  close_model(&x);
  open_model(name, 2, true, &x);
  int matrices = 0;
  for (size_t i = 0; i < x.m->params.len; i++) matrices += x.m->params.at[i].order != ORDER_STORED;
  together(&x, packed);
  if (memcmp(packed, all, SEQUENCES * (STEPS + 1) * V * sizeof *all))
    test_fail(__FILE__, __LINE__, "%s: other bits with weights in packed", name);
  close_model(&x);
  mem_free(one);
  mem_free(cut);
  mem_free(all);
  mem_free(packed);
  return matrices;
}

TEST(session_gives_a_sequence_the_same_bits_in_any_company_and_cut) {
  static const char *const name[] = {"gpt2-base-names", "llama-odd-heads", "mistral-window",
                                     "deepseekv3-yarn", "qwen3-bias-tied", "mixtral-pad"};
  int matrices = 0;
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) matrices += check_case(name[i]);
  CHECK(matrices > 20);
}

/* Logits [V] after the first n tokens of sequence 0, fed `cut` at a time. */
static void after_prompt(const model *x, int64_t n, int64_t cut, float *logits) {
  session *s;
  int64_t number;
  CHECK_OK(session_create(x->m, &(session_options){.sequences = 1, .tokens = n}, &s));
  CHECK_OK(session_add(s, &number));
  int32_t *ids = mem_calloc((size_t)n, sizeof *ids);
  CHECK(ids);
  for (int64_t i = 0; i < n; i++) ids[i] = token(x->m, 0, i);
  for (int64_t at = 0; at < n; at += cut) {
    int64_t count = n - at < cut ? n - at : cut;
    CHECK_OK(session_feed(s, &(session_tokens){number, ids + at, count}, 1, logits));
  }
  session_free(s);
  mem_free(ids);
}

/* A prompt of every size of chunk, and one of the smallest alone. */
TEST(session_gives_a_long_prompt_the_same_bits_in_any_cut) {
  static const char *const name[] = {"llama-odd-heads", "mistral-window"};
  enum { LONG = 1024 + 256 + 64 + 16 + 3 };
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    model x;
    open_model(name[i], 2, i == 1, &x);
    size_t V = (size_t)x.m->c.vocab;
    float *whole = mem_calloc(2 * V, sizeof *whole), *parts = whole + V;
    CHECK(whole);
    after_prompt(&x, LONG, LONG, whole);
    close_model(&x); /* a device has one cache */
    open_model(name[i], 2, i == 1, &x);
    after_prompt(&x, LONG, 16, parts);
    if (memcmp(whole, parts, V * sizeof *whole))
      test_fail(__FILE__, __LINE__, "%s: other bits in chunks of 16", name[i]);
    close_model(&x);
    mem_free(whole);
  }
}

static char *param_bytes(const model *x, const model_param *p) {
  size_t n = model_param_elements(p) * dtype_size(p->dtype);
  char *bytes = mem_calloc(n, 1);
  CHECK(bytes);
  CHECK_OK(hp_read(x->d, p->name, bytes, n));
  return bytes;
}

/* Each matrix in packed has the elements of the one that is not, where its order says. */
static int check_strips(const char *name, hp_dtype type) {
  model rows, packed;
  int matrices = 0;
  open_as(name, 1, false, type, &rows);
  open_as(name, 3, true, type, &packed);
  for (size_t i = 0; i < rows.m->params.len; i++) {
    const model_param *a = &rows.m->params.at[i], *b = lm_find(packed.m, a->name);
    if (b->order == ORDER_STORED) continue;
    char *x = param_bytes(&rows, a), *y = param_bytes(&packed, b);
    int64_t in = b->shape.dim[1], out = b->shape.dim[0] * PARAM_PACK;
    size_t size = dtype_size(type);
    bool by_rows = b->order == ORDER_PACKED_ROWS;
    for (int64_t k = 0; k < in; k++)
      for (int64_t n = 0; n < out; n++) {
        int64_t from = by_rows ? n * in + k : k * out + n;
        int64_t to = (n / PARAM_PACK * in + k) * PARAM_PACK + n % PARAM_PACK;
        CHECK(!memcmp(x + (size_t)from * size, y + (size_t)to * size, size));
      }
    matrices++;
    mem_free(x);
    mem_free(y);
  }
  close_model(&rows);
  close_model(&packed);
  return matrices;
}

TEST(matrices_are_packed_as_their_order_says) {
  static const char *const name[] = {"gpt2-base-names", "llama-bf16-shards", "deepseekv3-yarn"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    CHECK(check_strips(name[i], HP_F32) > 2);
    CHECK(check_strips(name[i], HP_BF16) > 2);
  }
}

/* Logits [V] of a tied model of random weights; in packed its head is a matrix of its own. */
static void random_logits(bool packed, float **logits, size_t *bytes) {
  model x;
  open_model("qwen3-bias-tied", 1, packed, &x);
  CHECK_OK(lm_init(x.m, 5));
  CHECK_EQ(lm_find(x.m, "lm_head.weight") != NULL, packed);
  *bytes = (size_t)x.m->c.vocab * sizeof **logits;
  CHECK((*logits = mem_calloc(1, *bytes)));
  after_prompt(&x, 9, 9, *logits);
  close_model(&x);
}

TEST(session_of_random_weights_has_the_same_bits_packed) {
  float *rows, *packed;
  size_t bytes;
  random_logits(false, &rows, &bytes);
  random_logits(true, &packed, &bytes);
  CHECK(rows[0] != 0 && !memcmp(rows, packed, bytes));
  mem_free(rows);
  mem_free(packed);
}

TEST(session_refuses_what_does_not_fit) {
  model x;
  session *s;
  open_model("llama-odd-heads", 1, false, &x);
  float *logits = mem_calloc((size_t)(2 * x.m->c.vocab), sizeof *logits);
  int32_t ids[99] = {0}, wrong[] = {64};
  int64_t a, b;
  CHECK_OK(session_create(x.m, &(session_options){.sequences = 2, .tokens = 8}, &s));
  CHECK_OK(session_add(s, &a));
  CHECK_OK(session_add(s, &b));
  CHECK_FAILS(session_feed(s, NULL, 0, logits), "at least one");
  CHECK_FAILS(session_feed(s, (session_tokens[]){{a, ids, 1}, {b, ids, 0}}, 2, logits),
              "at least one");
  CHECK_FAILS(session_feed(s, &(session_tokens){a, ids, 65}, 1, logits), "65 tokens do not fit");
  CHECK_FAILS(session_feed(s, (session_tokens[]){{a, ids, 33}, {b, ids, 1}}, 2, logits),
              "the tokens need 3 more blocks");
  CHECK_FAILS(session_feed(s, (session_tokens[]){{a, ids, 1}, {b, wrong, 1}}, 2, logits),
              "token id 64");
  CHECK_FAILS(session_feed(s, (session_tokens[]){{a, ids, 1}, {a, ids, 1}}, 2, logits),
              "fed twice");
  CHECK_FAILS(session_feed(s, &(session_tokens){7, ids, 1}, 1, logits), "no sequence 7");
  CHECK_FAILS(session_fork(s, 7, &b), "no sequence 7");
  CHECK_EQ(session_cache_get(s).free_blocks, 2);
  session_free(s);
  CHECK_FAILS(session_create(x.m, &(session_options){.sequences = 1, .tokens = 100, .blocks = 3},
                             &s),
              "100 tokens need 4 blocks");
  CHECK_FAILS(session_create(x.m, &(session_options){.sequences = 1, .tokens = 9, .bytes = 9}, &s),
              "it has 0");
  close_model(&x);
  open_model("llama-dynamic", 1, false, &x);
  CHECK_FAILS(session_create(x.m, &(session_options){.sequences = 2, .tokens = 13}, &s),
              "one sequence at a time");
  close_model(&x);
  mem_free(logits);
}
