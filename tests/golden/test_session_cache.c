/* The cache of a session: sequences come and go, share blocks and write copies of them, and have
 * the bits of a sequence by itself. */
#include "base/mem.h"
#include "golden/golden_case.h"
#include "model/placement.h"
#include "serve/session.h"
#include "test.h"

#include <string.h>

enum { LONGEST = 200 };

typedef struct {
  hp_device *d;
  lm *m;
  session *s;
  float *logits; /* of a feed */
  size_t V;
} world;

static void open_world(const char *name, const char *by, hp_dtype type, session_options o,
                       world *x) {
  char path[512];
  const char *on = NULL;
  str mesh = {0};
  placement how;
  snprintf(path, sizeof path, "tests/golden/cases/%s", name);
  CHECK_OK(placement_parse(by, 0, &how));
  CHECK_OK(placement_mesh(&how, &mesh, &on));
  hp_device_options dev = {.threads = 2, .interpret = true, .mesh = on, .may_miss = true};
  lm_options lo = {.compute = type, .weights = type, .packed = !by};
  CHECK_OK(hp_device_open(&dev, &x->d));
  str_free(&mesh);
  CHECK_OK(lm_create(path, x->d, &lo, &x->m));
  x->m->groups = placement_batch_shards(&how);
  CHECK_OK(placement_apply(&how, x->m, x->d));
  CHECK_OK(lm_load(x->m, path));
  CHECK_OK(session_create(x->m, &o, &x->s));
  x->V = (size_t)x->m->c.vocab;
  CHECK((x->logits = mem_calloc(16 * x->V, sizeof *x->logits)));
}
static void close_world(world *x) {
  session_free(x->s);
  lm_free(x->m);
  hp_device_close(x->d);
  mem_free(x->logits);
}

static int32_t token(const world *x, int64_t text, int64_t i) {
  return (int32_t)((text * 29 + i * 7 + i * i % 5 + 3) % (int64_t)x->V);
}

/* Tokens from..to - 1 of a text to a sequence; logits of the last one. */
static session_tokens piece(const world *x, int64_t sequence, int64_t text, int64_t from,
                            int64_t to, int32_t ids[LONGEST]) {
  for (int64_t i = from; i < to; i++) ids[i - from] = token(x, text, i);
  return (session_tokens){sequence, ids, to - from};
}
static const float *feed(world *x, int64_t sequence, int64_t text, int64_t from, int64_t to) {
  int32_t ids[LONGEST];
  session_tokens t = piece(x, sequence, text, from, to, ids);
  CHECK_OK(session_feed(x->s, &t, 1, x->logits));
  return x->logits;
}
static int64_t add(world *x) {
  int64_t i;
  CHECK_OK(session_add(x->s, &i));
  return i;
}
static int64_t count_free(const world *x) { return session_cache_get(x->s).free_blocks; }

/* Logits after the first n tokens of a text, of a sequence by itself on one device. */
static float *alone(const char *name, hp_dtype type, int64_t text, int64_t n) {
  world x;
  open_world(name, NULL, type, (session_options){.sequences = 1, .tokens = LONGEST}, &x);
  float *out = mem_calloc(x.V, sizeof *out);
  CHECK(out);
  memcpy(out, feed(&x, add(&x), text, 0, n), x.V * sizeof *out);
  close_world(&x);
  return out;
}
static void check_alone(const char *name, int64_t text, int64_t n, const float *got, size_t V) {
  float *want = alone(name, HP_F32, text, n);
  if (memcmp(want, got, V * sizeof *want))
    test_fail(__FILE__, __LINE__, "%s: text %d after %d tokens has other bits", name, (int)text,
              (int)n);
  mem_free(want);
}

TEST(session_takes_blocks_as_sequences_grow_and_gets_them_back) {
  world x;
  open_world("llama-odd-heads", NULL, HP_F32,
             (session_options){.sequences = 2, .tokens = 8, .blocks = 5}, &x);
  int64_t a = add(&x), b = add(&x);
  feed(&x, a, 1, 0, 32);
  CHECK_EQ(count_free(&x), 4);
  feed(&x, a, 1, 32, 33);
  feed(&x, b, 2, 0, 1);
  CHECK_EQ(count_free(&x), 2);
  CHECK_EQ(session_length(x.s, a), 33);
  int32_t ids[LONGEST];
  session_tokens t = piece(&x, b, 2, 1, 97, ids);
  CHECK_FAILS(session_feed(x.s, &t, 1, x.logits), "need 3 more blocks");
  CHECK_EQ(session_length(x.s, b), 1);
  session_end(x.s, a);
  CHECK_EQ(session_length(x.s, a), 0);
  CHECK_OK(session_feed(x.s, &t, 1, x.logits)); /* longer than any was expected to be */
  check_alone("llama-odd-heads", 2, 97, x.logits, x.V);
  CHECK_EQ(add(&x), a);
  session_reset(x.s);
  CHECK_EQ(count_free(&x), 5);
  close_world(&x);
}

TEST(session_shares_blocks_of_equal_beginnings) {
  static const char *const name[] = {"llama-odd-heads", "mistral-window", "deepseekv3-yarn"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    world x;
    enum { N = 71, USED = 3, FULL = 2 };
    open_world(name[i], NULL, HP_F32, (session_options){.sequences = 3, .tokens = 80}, &x);
    int64_t all = count_free(&x), a = add(&x), b = add(&x);
    feed(&x, a, 1, 0, N);
    check_alone(name[i], 1, N, feed(&x, b, 1, 0, N), x.V);
    if (!x.m->c.window) CHECK_EQ(count_free(&x), all - USED - (USED - FULL));
    session_end(x.s, a); /* the blocks stay, for b and for those who come later */
    session_end(x.s, b);
    CHECK_EQ(count_free(&x), all);
    a = add(&x);
    check_alone(name[i], 1, N, feed(&x, a, 1, 0, N), x.V);
    close_world(&x);
  }
}

/* A block with another token is not shared, and neither is what follows it. */
TEST(session_shares_no_block_that_differs) {
  world x;
  int32_t ids[LONGEST];
  open_world("llama-odd-heads", NULL, HP_F32, (session_options){.sequences = 2, .tokens = 128}, &x);
  int64_t a = add(&x), b = add(&x), all = count_free(&x);
  feed(&x, a, 1, 0, 96);
  CHECK_EQ(count_free(&x), all - 3);
  session_tokens t = piece(&x, b, 1, 0, 96, ids);
  ids[40] = (ids[40] + 1) % (int32_t)x.V;
  CHECK_OK(session_feed(x.s, &t, 1, x.logits));
  CHECK_EQ(count_free(&x), all - 3 - 2);
  float *first = mem_calloc(x.V, sizeof *first);
  memcpy(first, x.logits, x.V * sizeof *first);
  close_world(&x);
  open_world("llama-odd-heads", NULL, HP_F32, (session_options){.sequences = 1, .tokens = 128}, &x);
  t.sequence = add(&x);
  CHECK_OK(session_feed(x.s, &t, 1, x.logits));
  CHECK(!memcmp(first, x.logits, x.V * sizeof *first));
  mem_free(first);
  close_world(&x);
}

/* Forks share a block that is not full, and whoever writes it first writes a copy. */
TEST(session_forks_write_copies_of_what_they_share) {
  static const char *const name[] = {"llama-odd-heads", "mixtral-pad"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
    world x;
    int64_t b, c;
    open_world(name[i], NULL, HP_F32, (session_options){.sequences = 3, .tokens = 64}, &x);
    int64_t a = add(&x), all = count_free(&x);
    feed(&x, a, 1, 0, 40);
    CHECK_OK(session_fork(x.s, a, &b));
    CHECK_OK(session_fork(x.s, b, &c));
    CHECK_EQ(count_free(&x), all - 2);
    CHECK_EQ(session_length(x.s, c), 40);
    int32_t ids[3][LONGEST];
    /* all go on at once: b and c as a would have, a in another way, c longer than the block */
    session_tokens t[] = {{a, ids[0], 3},
                          piece(&x, b, 1, 40, 42, ids[1]),
                          piece(&x, c, 1, 40, 70, ids[2])};
    for (int k = 0; k < 3; k++) ids[0][k] = token(&x, 5, k);
    CHECK_OK(session_feed(x.s, t, 3, x.logits));
    check_alone(name[i], 1, 42, x.logits + x.V, x.V);
    check_alone(name[i], 1, 70, x.logits + 2 * x.V, x.V);
    check_alone(name[i], 1, 43, feed(&x, b, 1, 42, 43), x.V);
    session_end(x.s, a);
    session_end(x.s, c);
    check_alone(name[i], 1, 50, feed(&x, b, 1, 43, 50), x.V);
    session_end(x.s, b);
    CHECK_EQ(count_free(&x), all);
    close_world(&x);
  }
}

/* Sequences of any length, added and ended while others go on, in batches of any composition. */
static void check_traffic(const char *name, const char *by) {
  enum { N = 6 };
  static const int64_t start[N] = {3, 150, 33, 1, 64, 20};
  world x;
  int32_t ids[N][LONGEST];
  int64_t number[N], length[N];
  open_world(name, by, HP_F32, (session_options){.sequences = N, .tokens = 60, .blocks = 40}, &x);
  session_tokens t[N];
  for (int i = 0; i < 4; i++) {
    number[i] = add(&x);
    t[i] = piece(&x, number[i], i, 0, start[i], ids[i]);
  }
  CHECK_OK(session_feed(x.s, t, 4, x.logits));
  for (int i = 0; i < 4; i++) check_alone(name, i, start[i], x.logits + (size_t)i * x.V, x.V);
  session_end(x.s, number[1]);
  for (int i = 4; i < N; i++) number[i] = add(&x);
  /* two prompts next to two that decode, in another order */
  static const int order[] = {5, 3, 0, 4};
  for (int k = 0; k < 4; k++) {
    int i = order[k];
    int64_t from = i < 4 ? start[i] : 0;
    length[i] = i < 4 ? from + 1 : start[i];
    t[k] = piece(&x, number[i], i, from, length[i], ids[i]);
  }
  CHECK_OK(session_feed(x.s, t, 4, x.logits));
  for (int k = 0; k < 4; k++)
    check_alone(name, order[k], length[order[k]], x.logits + (size_t)k * x.V, x.V);
  close_world(&x);
}

TEST(session_gives_every_sequence_its_bits_in_any_traffic) {
  check_traffic("llama-odd-heads", NULL);
  check_traffic("mistral-window", NULL);
  check_traffic("deepseekv3-yarn", NULL);
}

TEST(session_of_several_devices_gives_every_sequence_its_bits) {
  check_traffic("llama-odd-heads", "dp=2");
  check_traffic("llama-odd-heads", "dp=3");
  check_traffic("mistral-window", "dp=2");
}

/* Tensor parallelism adds in another order, so it is near. */
TEST(session_of_tensor_parallel_devices_is_near) {
  static const char *const by[] = {"tp=2", "tp=3", "dp=2,tp=2", "cp=2", "cp=2:ring"};
  enum { N = 3 };
  static const int64_t start[N] = {3, 70, 33};
  for (size_t k = 0; k < sizeof by / sizeof *by; k++) {
    world x;
    int32_t ids[N][LONGEST];
    session_tokens t[N];
    open_world("llama-odd-heads", by[k], HP_F32, (session_options){.sequences = N, .tokens = 80},
               &x);
    for (int i = 0; i < N; i++) t[i] = piece(&x, add(&x), i, 0, start[i], ids[i]);
    CHECK_OK(session_feed(x.s, t, N, x.logits));
    for (int i = 0; i < N; i++) t[i] = piece(&x, t[i].sequence, i, start[i], start[i] + 1, ids[i]);
    CHECK_OK(session_feed(x.s, t, N, x.logits));
    for (int i = 0; i < N; i++) {
      float *want = alone("llama-odd-heads", HP_F32, i, start[i] + 1);
      for (size_t v = 0; v < x.V; v++) CHECK_NEAR(x.logits[(size_t)i * x.V + v], want[v], 1e-4);
      mem_free(want);
    }
    close_world(&x);
  }
}

/* Blocks before what all layers see are free for others. */
TEST(blocks_outside_of_a_window_are_given_back) {
  world x;
  open_world("mistral-window", NULL, HP_F32, (session_options){.sequences = 2, .tokens = 192}, &x);
  int64_t window = x.m->c.window, a = add(&x), all = count_free(&x), fork;
  CHECK(window > 0 && window < 64);
  feed(&x, a, 1, 0, 190);
  CHECK(count_free(&x) >= all - 3);
  CHECK_OK(session_fork(x.s, a, &fork));
  check_alone("mistral-window", 1, 191, feed(&x, a, 1, 190, 191), x.V);
  check_alone("mistral-window", 1, 191, feed(&x, fork, 1, 190, 191), x.V);
  session_end(x.s, a);
  session_end(x.s, fork);
  CHECK_EQ(count_free(&x), all);
  close_world(&x);
}
