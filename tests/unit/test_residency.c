/* Where named tensors live: freed, renamed, and the memory of one tier of a device. */
#include "rt/device_mesh.h"
#include "rt/mover.h"
#include "test.h"

#include "base/mem.h"
#include "base/philox.h"

#include <string.h>
#include <sys/resource.h>

enum { KIB = 1024 };

static void make(hp_device *d, const char *name, float value) {
  float x[KIB];
  for (int i = 0; i < KIB; i++) x[i] = value;
  CHECK_OK(hp_param_create(d, name, HP_F32, (hp_shape){1, {KIB}}));
  CHECK_OK(hp_write(d, name, x, sizeof x));
}

static float first_of(hp_device *d, const char *name) {
  float x[KIB];
  CHECK_OK(hp_read(d, name, x, sizeof x));
  for (int i = 0; i < KIB; i++) CHECK(x[i] == x[0]);
  return x[0];
}

static hp_program *user_of(hp_device *d, const char *name) {
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_output(g, "y", hp_scale(g, hp_param(g, name, HP_F32, (hp_shape){1, {KIB}}), 2));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

TEST(params_are_freed_and_renamed) {
  static const char *const shape[] = {NULL, "(2)(dp)"};
  for (int k = 0; k < 2; k++) {
    hp_device *d;
    hp_device_options o = {.threads = 1, .interpret = true, .mesh = shape[k]};
    CHECK_OK(hp_device_open(&o, &d));
    for (int i = 0; i < 4; i++) make(d, (const char *[]){"a", "b", "c", "d"}[i], (float)i);
    uint64_t all = hp_device_param_bytes(d);
    CHECK_OK(hp_param_free(d, "b"));
    CHECK_EQ(hp_device_param_bytes(d), all / 4 * 3);
    CHECK_EQ(hp_param_count(d), 3);
    CHECK_FAILS(hp_param_free(d, "b"), "the device has no param \"b\"");
    CHECK_FAILS(hp_write(d, "b", "", 0), "b");
    CHECK_FAILS(hp_param_rename(d, "a", "c"), "there is one already");
    CHECK_OK(hp_param_rename(d, "a", "b"));
    CHECK(first_of(d, "b") == 0 && first_of(d, "c") == 2 && first_of(d, "d") == 3);
    make(d, "a", 7); /* where b was, or not: it is zeros until it is written */
    CHECK(first_of(d, "a") == 7 && first_of(d, "d") == 3);
    CHECK_EQ(hp_device_param_bytes(d), all);
    hp_device_close(d);
  }
}

TEST(a_param_that_a_program_uses_is_neither_freed_nor_renamed) {
  hp_device *d;
  float y[KIB];
  hp_io io = {"y", y, sizeof y};
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  make(d, "w", 3);
  hp_program *p = user_of(d, "w"), *q = user_of(d, "w");
  CHECK_FAILS(hp_param_free(d, "w"), "param \"w\" is used by 2 programs");
  hp_program_free(p);
  CHECK_FAILS(hp_param_rename(d, "w", "v"), "param \"w\" is used by 1 program; free it first");
  CHECK_OK(hp_run(q, &io, 1));
  CHECK(y[0] == 6 && y[KIB - 1] == 6);
  hp_program_free(q);
  CHECK_OK(hp_param_rename(d, "w", "v"));
  CHECK_OK(hp_param_free(d, "v"));
  CHECK_EQ(hp_device_param_bytes(d), 0);
  hp_device_close(d);
}

TEST(a_param_is_not_renamed_to_one_of_another_layout) {
  hp_device *d;
  hp_layout_rule rule[] = {{"a", "(dp)"}, {"b", "(tp)"}, {"c", "(dp)"}};
  hp_device_options o = {.threads = 1,
                         .interpret = true,
                         .mesh = "(2,2)(dp,tp)",
                         .layouts = rule,
                         .n_layouts = 3};
  CHECK_OK(hp_device_open(&o, &d));
  make(d, "a", 5);
  CHECK_FAILS(hp_param_rename(d, "a", "b"), "another layout");
  CHECK_OK(hp_param_rename(d, "a", "c"));
  CHECK(first_of(d, "c") == 5);
  hp_device_close(d);
}

/* --- failures --------------------------------------------------------------------------------- */

typedef hp_status (*change)(hp_device *d);
static hp_status create_new(hp_device *d) {
  return hp_param_create(d, "new", HP_F32,
                         (hp_shape){1, {40 << 20}}); /* needs memory to be committed */
}
static hp_status rename_a(hp_device *d) { return hp_param_rename(d, "a", "new"); }

/* What failed halfway has left nothing behind, on no device: "new" can be made, of any type, and
 * "a" is what it was. */
static void check_nothing_changed(hp_device *d, uint64_t bytes) {
  CHECK_EQ(hp_param_count(d), 1);
  for (int i = 0; i < d->own; i++) {
    CHECK_EQ(d->member[i]->state_bytes[TIER_DEVICE], bytes);
    CHECK_EQ(d->member[i]->job->state_bytes[TIER_DEVICE], bytes);
  }
  CHECK(first_of(d, "a") == 5);
  CHECK_OK(hp_param_create(d, "new", HP_I32, (hp_shape){2, {4, 2}}));
  CHECK_OK(hp_param_free(d, "new"));
  CHECK_OK(hp_param_rename(d, "a", "b"));
  CHECK_OK(hp_param_rename(d, "b", "a"));
}

static void check_change(change make_it) {
  bool all = false; /* changed without asking for k allocations */
  for (uint64_t k = 1; !all; k++) {
    hp_device *d;
    CHECK_OK(
        hp_device_open(&(hp_device_options){.threads = 1, .interpret = true, .mesh = "(3)(dp)"},
                       &d));
    make(d, "a", 5);
    uint64_t bytes = d->member[0]->state_bytes[TIER_DEVICE], before = mem_count();
    mem_fail_at(k);
    hp_status st = make_it(d);
    all = mem_count() - before < k;
    mem_fail_at(0);
    CHECK(!st || st == HP_ERR_OOM);
    if (st) check_nothing_changed(d, bytes);
    err_clear();
    hp_device_close(d);
  }
}

TEST(a_param_that_is_not_made_or_renamed_for_want_of_memory_is_so_on_no_device) {
  check_change(create_new);
  check_change(rename_a);
}

/* A limit counts what is there: what was freed can be had again. */
TEST(a_freed_param_makes_room_under_a_memory_limit) {
  hp_device *d;
  hp_device_options o = {.threads = 1, .interpret = true, .memory_limit = 3 * KIB * sizeof(float)};
  CHECK_OK(hp_device_open(&o, &d));
  for (int i = 0; i < 3; i++) make(d, (const char *[]){"a", "b", "c"}[i], 1);
  CHECK_FAILS(hp_param_create(d, "d", HP_F32, (hp_shape){1, {KIB}}), "raise memory_limit");
  CHECK_OK(hp_param_free(d, "a"));
  CHECK_OK(hp_param_create(d, "d", HP_F32, (hp_shape){1, {KIB}}));
  CHECK(first_of(d, "d") == 0);
  hp_device_close(d);
}

/* Reads `name` n times over: work memory of about n KiB floats. */
static hp_program *large_user_of(hp_device *d, const char *name, int n) {
  hp_graph *g;
  hp_program *p;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_param(g, name, HP_F32, (hp_shape){1, {KIB}});
  hp_tensor all = hp_broadcast(g, x, (hp_shape){2, {n, KIB}});
  hp_output(g, "y", hp_transpose(g, all, (int64_t[]){1, 0}));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  hp_graph_free(g);
  return p;
}

/* Bytes that the device has, of params and work memory together. */
static uint64_t bytes_there(const hp_device *d) {
  const job_device *j = d->member[0]->job;
  return j->state_bytes[TIER_DEVICE] + j->memory[TIER_DEVICE].work_bytes;
}

TEST(a_memory_limit_counts_the_work_memory_of_all_loaded_programs) {
  enum { KILOS = 4 * KIB, LIMIT = 24 * KILOS };
  hp_device *d, *other;
  hp_device_options o = {.threads = 1, .interpret = true, .memory_limit = LIMIT};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_device_open(&(hp_device_options){.job = d}, &other));
  make(d, "a", 1);
  make(other, "a", 2);
  hp_program *large = large_user_of(d, "a", 8), *small = large_user_of(other, "a", 2);
  CHECK(bytes_there(d) <= LIMIT);
  make(d, "b", 3);
  /* A late param of another mesh, which fits only next to its own small program. */
  CHECK_FAILS(hp_param_create(other, "c", HP_F32, (hp_shape){1, {10 * KIB}}),
              "of work memory of loaded programs; free the largest program");
  CHECK(bytes_there(d) <= LIMIT);
  hp_program_free(large);
  CHECK_OK(hp_param_create(other, "c", HP_F32, (hp_shape){1, {10 * KIB}}));
  CHECK(bytes_there(d) <= LIMIT);
  hp_program_free(small);
  CHECK_EQ(bytes_there(d), 13 * KILOS);
  hp_device_close(other);
  hp_device_close(d);
}

/* A limit is on the tensors of the device tier; a tensor keeps its bits in any tier. */
TEST(a_param_moves_between_tiers_unless_a_program_uses_it) {
  hp_device *d;
  uint32_t a;
  hp_device_options o = {.threads = 1, .interpret = true, .memory_limit = 3 * KIB * sizeof(float)};
  CHECK_OK(hp_device_open(&o, &d));
  make(d, "a", 5);
  make(d, "b", 6);
  device *m = d->member[0];
  HP_ASSERT(device_find(m, "a", &a));
  CHECK_OK(device_move_state(m, a, TIER_HOST));
  CHECK_EQ(m->states.at[a].tier, TIER_HOST);
  CHECK_EQ(m->state_bytes[TIER_DEVICE], KIB * sizeof(float));
  CHECK_EQ(m->job->state_bytes[TIER_HOST], KIB * sizeof(float));
  CHECK_EQ(hp_device_param_bytes(d), 2 * KIB * sizeof(float));
  CHECK(first_of(d, "a") == 5 && first_of(d, "b") == 6);
  make(d, "c", 7);
  make(d, "d", 8);
  CHECK_FAILS(device_move_state(m, a, TIER_DEVICE), "\"a\" (4096 bytes) does not fit");
  CHECK(first_of(d, "a") == 5);
  CHECK_OK(hp_param_free(d, "d"));
  CHECK_OK(hp_param_free(d, "c"));
  CHECK_OK(device_move_state(m, a, TIER_DEVICE));
  hp_program *p = user_of(d, "a");
  HP_ASSERT(device_find(m, "a", &a));
  CHECK_FAILS(device_move_state(m, a, TIER_HOST), "\"a\" is used by 1 program on tier device");
  CHECK_EQ(first_of(d, "a"), 5);
  hp_program_free(p);
  CHECK_EQ(m->state_bytes[TIER_HOST], 0);
  hp_device_close(d);
}

typedef struct {
  uint64_t offset, bytes;
  unsigned char mark;
} block;

static bool holds(const tier_memory *m, const block *b, unsigned char mark) {
  const unsigned char *at = tier_memory_address(m, b->offset);
  for (uint64_t i = 0; i < b->bytes; i++)
    if (at[i] != mark) return false;
  return true;
}

/* Random blocks come and go: apart, zeroed at first, and no address changes while others come. */
TEST(memory_of_a_tier_is_given_and_taken_without_moving_anything) {
  enum { BLOCKS = 40, TURNS = 2000 };
  void *dev;
  block b[BLOCKS] = {{0}};
  CHECK_OK(backend_cpu.open(&(backend_options){.threads = 1}, &dev));
  tier_memory m = {.backend = &backend_cpu, .dev = dev};
  const char *at = NULL;
  for (uint32_t t = 0; t < TURNS; t++) {
    block *x = &b[philox_u32(1, 1, t) % BLOCKS];
    if (x->bytes) {
      CHECK(holds(&m, x, x->mark));
      tier_memory_give(&m, x->offset, x->bytes);
      x->bytes = 0;
      continue;
    }
    x->bytes = 1 + philox_u32(1, 2, t) % (t % 7 ? 3000 : 3000000);
    x->mark = (unsigned char)(1 + t % 255);
    CHECK_OK(tier_memory_take(&m, x->bytes, &x->offset));
    CHECK_EQ(x->offset % 256, 0);
    CHECK(holds(&m, x, 0));
    memset(tier_memory_address(&m, x->offset), x->mark, x->bytes);
    if (t % 100 == 0) CHECK_OK(tier_memory_add_need(&m, t * 1000));
    CHECK(!at || at == m.at);
    at = m.at;
  }
  uint64_t used = 0;
  for (int i = 0; i < BLOCKS; i++) used += b[i].bytes;
  CHECK(m.end < 8 * used + (8 << 20)); /* what is free is used again */
  for (int i = 0; i < BLOCKS; i++)
    if (b[i].bytes) tier_memory_give(&m, b[i].offset, b[i].bytes);
  CHECK_EQ(m.end, 0);
  CHECK_EQ(m.gaps.len, 0);
  tier_memory_free(&m);
  backend_cpu.close(dev);
}

/* Work memory that grows keeps what is in it, and its address. */
TEST(work_memory_grows_in_place) {
  void *dev;
  CHECK_OK(backend_cpu.open(&(backend_options){.threads = 1}, &dev));
  tier_memory m = {.backend = &backend_cpu, .dev = dev};
  CHECK_OK(tier_memory_add_need(&m, 1000));
  unsigned char *work = tier_memory_address(&m, tier_memory_work_offset(&m));
  memset(work, 7, 1000);
  CHECK_OK(tier_memory_add_need(&m, 100 << 20));
  CHECK(tier_memory_address(&m, tier_memory_work_offset(&m)) == (void *)work);
  CHECK(work[0] == 7 && work[999] == 7 && work[100 << 19] == 0);
  work[(100 << 20) - 1] = 1;
  CHECK_FAILS(tier_memory_add_need(&m, UINT64_MAX / 4), "as the machine has memory");
  tier_memory_add_need(&m, 500); /* when the large program is gone, only what others need is kept */
  tier_memory_drop_need(&m, 100 << 20);
  CHECK_EQ(m.work_bytes, 1000);
  CHECK(work[0] == 7 && work[999] == 7);
  CHECK_OK(tier_memory_add_need(&m, 100 << 20));
  CHECK(work[999] == 7 && work[1000] == 0 && work[(100 << 20) - 1] == 0);
  tier_memory_drop_need(&m, 1000);
  tier_memory_drop_need(&m, 100 << 20);
  CHECK_EQ(m.work_bytes, 500);
  tier_memory_drop_need(&m, 500);
  CHECK_EQ(m.work_bytes, 0);
  tier_memory_free(&m);
  backend_cpu.close(dev);
}

/* Sets the address space that the process may take besides what it has. */
static void limit_room(uint64_t bytes) {
  struct rlimit most;
  CHECK(!getrlimit(RLIMIT_AS, &most));
  most.rlim_cur = (rlim_t)1 << 46;
  CHECK(!setrlimit(RLIMIT_AS, &most));
  most.rlim_cur -= mem_address_space() - bytes;
  CHECK(!setrlimit(RLIMIT_AS, &most));
}

/* Whatever the limit, half of what it leaves stays for what is allocated elsewhere. */
TEST(under_a_limit_of_address_space_arenas_leave_room_for_others) {
  enum { DEVICES = 3 };
  const uint64_t mib = 1 << 20;
  uint64_t half = mem_physical(), offset;
  void *dev, *other;
  CHECK_OK(backend_cpu.open(&(backend_options){.threads = 1}, &dev));
  for (int i = 0; i < 4; i++) half = (half / 2 + 32 * mib - 1) / (32 * mib) * (32 * mib);
  limit_room(2 * half + 16 * mib); /* an arena that is halved until it fits leaves 16 MiB */
  uint64_t room = mem_address_space();
  for (int devices = 1; devices <= DEVICES; devices += DEVICES - 1) {
    tier_memory m[DEVICES] = {{0}};
    for (int i = 0; i < devices; i++) {
      m[i] = (tier_memory){.backend = &backend_cpu, .dev = dev, .devices = devices};
      CHECK_OK(tier_memory_take(&m[i], 1000, &offset));
      CHECK(m[i].half >= m[0].half / 2);
    }
    CHECK((other = mem_map(room / 5 * 2)));
    mem_unmap(other, room / 5 * 2);
    CHECK_FAILS(tier_memory_add_need(&m[0], m[0].half + 1), "give the process more (ulimit -v)");
    for (int i = 0; i < devices; i++) tier_memory_free(&m[i]);
  }
  CHECK(!mem_map(room + 64 * mib));
  CHECK(strstr(err_message(), "ulimit -v leaves"));
  err_clear();
  backend_cpu.close(dev);
}

TEST(a_tensor_that_fits_into_no_gap_is_told_of_the_gaps) {
  enum { BLOCKS = 8 };
  void *dev;
  uint64_t at[BLOCKS], last;
  CHECK_OK(backend_cpu.open(&(backend_options){.threads = 1}, &dev));
  tier_memory m = {.backend = &backend_cpu, .dev = dev};
  limit_room((uint64_t)4 << 30);
  CHECK_OK(tier_memory_take(&m, 256, &at[0]));
  tier_memory_give(&m, at[0], 256);
  uint64_t each = m.half / BLOCKS;
  for (int i = 0; i < BLOCKS; i++) CHECK_OK(tier_memory_take(&m, each, &at[i]));
  CHECK_FAILS(tier_memory_take(&m, each, &last), "(ulimit -v)"); /* it is full */
  for (int i = 0; i < BLOCKS; i += 2) tier_memory_give(&m, at[i], each);
  CHECK_FAILS(tier_memory_take(&m, 2 * each, &last), "but in gaps between tensors");
  CHECK_OK(tier_memory_take(&m, each, &last));
  tier_memory_free(&m);
  backend_cpu.close(dev);
}
