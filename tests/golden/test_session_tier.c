/* A cache of keys and values on host memory or flash: the bits of one on the device, whatever the
 * device has room for, for sequences that wait there while others decode; and attention to some of
 * its blocks. */
#include "base/io.h"
#include "base/mem.h"
#include "golden/golden_case.h"
#include "model/placement.h"
#include "serve/session.h"
#include "test.h"

#include <string.h>
#include <sys/stat.h>

/* Tokens of a sequence; the first text leaves 170 of them: two parts of 8 slots, or three, and two
 * segments of attention. */
enum { SHORT = 460, LONG = 700, ROUNDS = 9 };

typedef struct {
  hp_device *d;
  lm *m;
  session *s;
  float *logits; /* of one sequence, and of a feed */
  size_t V;
} world;

typedef struct {
  const char *model, *by;
  hp_dtype type;
  session_options o;
  uint64_t limit;
  const char *cluster;
} world_options;

static world_options on_device(const char *model, const char *by, int64_t tokens) {
  return (world_options){.model = model,
                         .by = by,
                         .type = HP_F32,
                         .o = {.sequences = 4, .tokens = tokens}};
}

static const char *disk(void) {
  static char at[512];
  snprintf(at, sizeof at, "%s/disk", test_dir());
  mkdir(at, 0700);
  return at;
}

static void open_world(const world_options *w, world *x) {
  char path[512];
  const char *on = NULL;
  str mesh = {0};
  const char *folder = disk();
  placement how;
  snprintf(path, sizeof path, "tests/golden/cases/%s", w->model);
  CHECK_OK(placement_parse(w->by, 0, &how));
  CHECK_OK(placement_mesh(&how, &mesh, &on));
  hp_device_options dev = {.threads = 2,
                           .interpret = true,
                           .mesh = on,
                           .cluster = w->cluster,
                           .may_miss = true,
                           .flash = &folder,
                           .n_flash = 1,
                           .flash_limit = 1 << 24,
                           .memory_limit = w->limit};
  if (w->limit) memset(dev.offload, HP_OFFLOAD_AUTO, sizeof dev.offload);
  lm_options lo = {.compute = w->type, .weights = w->type, .packed = !w->by};
  CHECK_OK(hp_device_open(&dev, &x->d));
  str_free(&mesh);
  CHECK_OK(lm_create(path, x->d, &lo, &x->m));
  x->m->groups = placement_batch_shards(&how);
  CHECK_OK(placement_apply(&how, x->m, x->d));
  CHECK_OK(lm_load(x->m, path));
  x->s = NULL;
  CHECK_OK(session_create(x->m, &w->o, &x->s));
  x->V = (size_t)x->m->c.vocab;
  CHECK((x->logits = mem_calloc(8 * x->V, sizeof *x->logits)));
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

/* n more tokens of a text, for a sequence that has `from` of them. */
static session_tokens piece(const world *x, int64_t sequence, int64_t text, int64_t n,
                            int32_t ids[LONG]) {
  int64_t from = session_length(x->s, sequence);
  for (int64_t i = 0; i < n; i++) ids[i] = token(x, text, from + i);
  return (session_tokens){sequence, ids, n};
}

/* Sequences come, wait, share a beginning and go; all logits of all feeds, in order. */
static float *play(world *x, int64_t tokens) {
  static int32_t ids[3][LONG];
  int64_t a, b, c, fork, first = tokens - 170;
  float *all = mem_calloc(ROUNDS * 3 * x->V, sizeof *all), *to = all;
  CHECK(all);
  CHECK_OK(session_add(x->s, &a));
  CHECK_OK(session_add(x->s, &b));
  CHECK_OK(session_add(x->s, &c));
  session_tokens t[3] = {piece(x, a, 1, first, ids[0]), piece(x, b, 2, 40, ids[1])};
  CHECK_OK(session_feed(x->s, t, 2, to));
  to += 2 * x->V;
  t[0] = piece(x, c, 1, first * 4 / 7, ids[0]); /* the beginning of a */
  t[1] = piece(x, b, 2, 1, ids[1]);
  CHECK_OK(session_feed(x->s, t, 2, to));
  to += 2 * x->V;
  for (int i = 0; i < 3; i++, to += 2 * x->V) { /* a waits */
    t[0] = piece(x, b, 2, 1, ids[0]);
    t[1] = piece(x, c, 3, 1, ids[1]);
    CHECK_OK(session_feed(x->s, t, 2, to));
  }
  CHECK_OK(session_fork(x->s, a, &fork));
  t[0] = piece(x, a, 1, 1, ids[0]); /* the last block of both is one */
  t[1] = piece(x, fork, 4, 1, ids[1]);
  CHECK_OK(session_feed(x->s, t, 2, to));
  to += 2 * x->V;
  session_end(x->s, c);
  t[0] = piece(x, a, 1, 1, ids[0]);
  t[1] = piece(x, fork, 4, 90, ids[1]);
  t[2] = piece(x, b, 2, first * 3 / 7, ids[2]);
  CHECK_OK(session_feed(x->s, t, 3, to));
  session_reset(x->s);
  return all;
}

static float *play_in(const world_options *w, size_t *n, hp_memory *m) {
  world x;
  hp_program_stats stats;
  open_world(w, &x);
  float *all = play(&x, w->o.tokens);
  *n = ROUNDS * 3 * x.V * sizeof *all;
  CHECK_OK(hp_program_stats_get(session_program(x.s), &stats));
  if (m) *m = stats.memory;
  close_world(&x);
  return all;
}

/* The bits of `want`, which is of the same model with its cache on the device. */
static void check_same(const world_options *w, const float *want) {
  size_t n;
  hp_memory m;
  float *got = play_in(w, &n, &m);
  if (memcmp(want, got, n))
    test_fail(__FILE__, __LINE__, "%s: other bits with a cache on tier %d, %d slots", w->model,
              w->o.offload, (int)w->o.slots);
  int tier = w->o.offload == HP_OFFLOAD_FLASH ? 2 : 1;
  CHECK(m.tier[tier].planned_bytes > 0);
  CHECK(m.tier[tier].moved_bytes > 0);
  mem_free(got);
}

TEST(a_cache_on_a_tier_has_the_bits_of_one_on_the_device) {
  static const char *const name[] = {"llama-odd-heads", "mistral-window", "deepseekv3-yarn"};
  for (int i = 0; i < 3; i++)
    for (int half = 0; half < 2; half++) { /* each tier with each dtype, not for each model */
      world_options w = on_device(name[i], NULL, SHORT);
      size_t n;
      w.type = half ? HP_BF16 : HP_F32;
      float *want = play_in(&w, &n, NULL);
      w.o.offload = (i + half) % 2 ? HP_OFFLOAD_FLASH : HP_OFFLOAD_HOST;
      w.o.slots = 8;
      check_same(&w, want);
      mem_free(want);
    }
}

TEST(parts_of_any_size_give_the_same_bits) {
  world_options w = on_device("llama-odd-heads", NULL, LONG);
  size_t n;
  float *want = play_in(&w, &n, NULL);
  w.o.offload = HP_OFFLOAD_HOST;
  for (w.o.slots = 8; w.o.slots <= 64; w.o.slots *= 2) check_same(&w, want);
  mem_free(want);
}

TEST(a_cache_on_a_tier_is_sharded_as_one_on_the_device) {
  static const char *const by[] = {"tp=2", "dp=2"};
  static const char *const models[] = {"mistral-window", "llama-odd-heads"};
  for (int i = 0; i < 2; i++) {
    world_options w = on_device(models[i], by[i], SHORT);
    size_t n;
    float *want = play_in(&w, &n, NULL);
    w.o.offload = HP_OFFLOAD_HOST;
    w.o.slots = 8;
    check_same(&w, want);
    mem_free(want);
  }
}

TEST(a_limit_without_room_for_a_segment_is_refused) {
  world_options w = on_device("llama-odd-heads", NULL, LONG);
  world x;
  int64_t a;
  static int32_t ids[LONG];
  open_world(&w, &x);
  uint64_t params = hp_device_param_bytes(x.d);
  close_world(&x);
  w.limit = params / 4;
  w.o.offload = HP_OFFLOAD_HOST;
  open_world(&w, &x);
  CHECK_OK(session_add(x.s, &a));
  session_tokens t = piece(&x, a, 1, 530, ids);
  CHECK_FAILS(session_feed(x.s, &t, 1, x.logits), "is on tier host; the device keeps 16 of its");
  CHECK_EQ(session_length(x.s, a), 0);
  close_world(&x);
}

/* Attention reads a part in half of the time that the link needs for it, so the link is what a
 * token waits for: from its beginning to the end, when the last part and the tail are still to be
 * read. */
static const char slow_link[] =
    "device: {flops: 1e15, bandwidth_gb_s: 2}\n"
    "links: [{bandwidth_gb_s: 1, latency_us: 0}]\n"
    "tiers: [{name: host, read_gb_s: 1, write_gb_s: 1, latency_us: 0}]\n";

TEST(the_link_never_waits_for_attention) {
  enum { BLOCKS = 64, TOKENS = 32 * BLOCKS, LAYERS = 2, PART = BLOCKS / 2, TAIL = 8 };
  world_options w = on_device("llama-odd-heads", NULL, TOKENS + 32);
  hp_program_stats stats;
  char path[512];
  world x;
  int64_t a;
  int32_t id = 3;
  snprintf(path, sizeof path, "%s/slow_link.yaml", test_dir());
  CHECK_OK(file_write(path, slow_link, sizeof slow_link - 1));
  w.o.offload = HP_OFFLOAD_HOST;
  w.cluster = path;
  open_world(&w, &x);
  CHECK_OK(session_add(x.s, &a));
  CHECK_OK(session_skip(x.s, a, TOKENS));
  session_tokens t = {a, &id, 1};
  CHECK_OK(session_feed(x.s, &t, 1, x.logits));
  CHECK_OK(hp_program_stats_get(session_program(x.s), &stats));
  double block_s = (double)session_cache_get(x.s).block_bytes / LAYERS / 1e9;
  double link_s = block_s * LAYERS * (BLOCKS + TAIL), left_s = block_s * (PART + TAIL) / 2;
  CHECK(stats.predicted_s >= link_s);
  CHECK(stats.predicted_s < link_s + left_s);
  close_world(&x);
}

/* --- some blocks ------------------------------------------------------------------------------ */

TEST(attention_to_as_many_blocks_as_there_are_is_attention_to_all) {
  static const int tier[] = {HP_OFFLOAD_NONE, HP_OFFLOAD_HOST, HP_OFFLOAD_FLASH};
  world_options w = on_device("llama-odd-heads", NULL, SHORT);
  size_t n;
  float *want = play_in(&w, &n, NULL);
  w.o.sparse = (SHORT + 31) / 32;
  w.o.slots = 16;
  for (int k = 0; k < 3; k++) {
    w.o.offload = tier[k];
    float *got = play_in(&w, &n, NULL);
    CHECK(!memcmp(want, got, n));
    mem_free(got);
  }
  mem_free(want);
}

/* Fewer blocks give other numbers, the same wherever the cache is. */
TEST(some_blocks_are_the_same_on_every_tier) {
  static const char *const name[] = {"llama-odd-heads", "llama-bf16-shards", "deepseekv3-yarn"};
  for (int i = 0; i < 3; i++) {
    world_options all = on_device(name[i], NULL, SHORT), here = all, there = all;
    size_t n;
    here.o.sparse = there.o.sparse = 4;
    there.o.offload = i % 2 ? HP_OFFLOAD_FLASH : HP_OFFLOAD_HOST;
    float *dense = play_in(&all, &n, NULL), *want = play_in(&here, &n, NULL);
    float *got = play_in(&there, &n, NULL);
    CHECK(memcmp(dense, want, n));
    CHECK(!memcmp(want, got, n));
    mem_free(dense);
    mem_free(want);
    mem_free(got);
  }
}

TEST(attention_to_some_blocks_is_refused_where_it_is_not_built) {
  session *s = NULL;
  world x;
  world_options w = on_device("mistral-window", NULL, LONG);
  open_world(&w, &x);
  w.o.sparse = 4;
  CHECK_FAILS(session_create(x.m, &w.o, &s), "sliding window");
  w.o.sparse = 1;
  CHECK_FAILS(session_create(x.m, &w.o, &s), "expected 2 or more");
  close_world(&x);
  w = on_device("llama-odd-heads", "dp=2", LONG);
  open_world(&w, &x);
  w.o.sparse = 4;
  CHECK_FAILS(session_create(x.m, &w.o, &s), "runs on one device");
  close_world(&x);
}

/* Under `auto` a limit sends it to the host, and parts are as large as the limit allows. */
TEST(a_cache_leaves_the_device_under_a_limit) {
  world_options as = on_device("llama-odd-heads", NULL, LONG), w = as;
  world x;
  as.o.blocks = w.o.blocks = 600;
  open_world(&as, &x);
  session_cache c = session_cache_get(x.s);
  uint64_t params = hp_device_param_bytes(x.d);
  close_world(&x);
  w.o.offload = HP_OFFLOAD_AUTO;
  for (int i = 0; i < 3; i++) {
    w.limit = params + (UINT64_C(5) << (18 + i)); /* 1.25 MiB are work memory */
    CHECK(params + c.block_bytes * (uint64_t)c.blocks > w.limit);
    size_t n;
    hp_memory m;
    float *want = play_in(&as, &n, NULL), *got = play_in(&w, &n, &m);
    CHECK(!memcmp(want, got, n));
    CHECK(m.planned_bytes <= w.limit);
    mem_free(want);
    mem_free(got);
  }
}
