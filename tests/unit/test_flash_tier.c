/* Named tensors and work memory on tier flash: they are used as those of any other tier, with the
 * same bits; and what is wrong with a disk ends a call with the names of tensor and path. */
#include "rt/device_mesh.h"
#include "rt/state_io.h"
#include "test.h"

#include "base/mem.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20, SIDE = 300, ELEMENTS = SIDE * SIDE };

static const char *folder(const char *name) {
  static char at[512];
  snprintf(at, sizeof at, "%s/%s", test_dir(), name);
  mkdir(at, 0700);
  return at;
}

static hp_device *open_device(const char *shape, uint64_t flash, uint64_t host) {
  static const hp_layout_rule rows = {"w*", "(dp,None)"};
  const char *disk = folder("flash");
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1,
                                               .interpret = true,
                                               .mesh = shape,
                                               .layouts = shape ? &rows : NULL,
                                               .n_layouts = shape != NULL,
                                               .flash = &disk,
                                               .n_flash = 1,
                                               .flash_limit = flash,
                                               .host_limit = host},
                          &d));
  return d;
}

static void create(hp_device *d, const char *name, int64_t rows, int64_t columns, int tier) {
  ir_value type = {.dtype = HP_F32, .rank = 2, .dim = {rows, columns}};
  uint32_t index;
  CHECK_OK(device_mesh_state_of(d, name, &type, tier, &index));
}

static float *numbers(int64_t n, float from) {
  float *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = from + (float)(i % 1009) * 0.001f;
  return x;
}

/* Flips a bit in every block of the store's file that is not zeros. */
static void damage(void) {
  DIR *d = opendir("/proc/self/fd");
  struct dirent *e;
  int fd = -1;
  while ((e = readdir(d)) && fd < 0) {
    char at[512] = "", place[64];
    struct stat s;
    snprintf(place, sizeof place, "/proc/self/fd/%.20s", e->d_name);
    ssize_t n = readlink(place, at, sizeof at - 1);
    bool is_file = n > 0 && strstr(at, "/flash") && !stat(place, &s) && S_ISREG(s.st_mode);
    if (is_file) fd = open(place, O_RDWR);
  }
  closedir(d);
  CHECK(fd >= 0);
  unsigned char c;
  for (off_t at = 1000; pread(fd, &c, 1, at) == 1; at += 4096) {
    c ^= 1;
    CHECK_EQ(pwrite(fd, &c, 1, at), 1);
  }
  close(fd);
}

/* --- named tensors ---------------------------------------------------------------------------- */

static hp_status fill_numbers(void *context, int64_t first, int64_t n, void *to) {
  const float *x = context;
  memcpy(to, x + first, (size_t)n * sizeof *x);
  return HP_OK;
}

static void check_is(hp_device *d, const char *name, const float *want, int64_t n) {
  float *x = malloc((size_t)n * sizeof *x);
  CHECK_OK(hp_read(d, name, x, (size_t)n * sizeof *x));
  CHECK(!memcmp(x, want, (size_t)n * sizeof *x));
  free(x);
}

/* A model that is larger than the machine's memory is loaded before any program of it is. */
TEST(weights_that_belong_on_flash_are_created_there) {
  const char *disk = folder("flash");
  hp_device *d;
  hp_device_options o = {.threads = 1, .flash = &disk, .n_flash = 1, .flash_limit = 4 * MIB};
  o.offload[HP_MEMORY_PARAMS] = HP_OFFLOAD_FLASH;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_device_home(d, "near*", HP_OFFLOAD_NONE));
  CHECK_OK(hp_param_create(d, "w", HP_F32, (hp_shape){.rank = 1, .dim = {SIDE}}));
  CHECK_EQ(d->member[0]->state_bytes[TIER_DEVICE], 0);
  CHECK_EQ(d->member[0]->state_bytes[TIER_HOST], 0);
  CHECK(d->member[0]->state_bytes[TIER_FLASH] >= SIDE * sizeof(float));
  CHECK_OK(hp_param_create(d, "near", HP_F32, (hp_shape){.rank = 1, .dim = {SIDE}}));
  CHECK(d->member[0]->state_bytes[TIER_DEVICE] >= SIDE * sizeof(float));
  hp_device_close(d);
}

/* Everything that is done with params, on one device and with padded shards on three. */
static void use_tensors(const char *shape) {
  enum { ROWS = 1601, COLUMNS = 701, N = ROWS * COLUMNS };
  hp_device *d = open_device(shape, 64 * MIB, 0);
  float *x = numbers(N, 1), *y = numbers(N, 2), *zeros = calloc(N, sizeof *zeros);
  char saved[600];
  snprintf(saved, sizeof saved, "%s/saved", test_dir());
  create(d, "w", ROWS, COLUMNS, TIER_FLASH);
  create(d, "small", 1, 3, TIER_FLASH);
  create(d, "w2", ROWS, COLUMNS, TIER_DEVICE);
  check_is(d, "w", zeros, N);
  CHECK_OK(hp_write(d, "w", x, N * sizeof *x));
  CHECK_OK(hp_write(d, "small", x, 3 * sizeof *x));
  CHECK_OK(hp_fill(d, "w2", fill_numbers, y));
  check_is(d, "w", x, N);
  CHECK_OK(hp_params_verify(d));
  CHECK_OK(hp_params_save(d, saved, NULL, 0));
  CHECK_OK(hp_fill(d, "w", fill_numbers, y));
  check_is(d, "w", y, N);
  CHECK_OK(hp_params_load(d, saved, NULL, 0));
  check_is(d, "w", x, N);
  check_is(d, "w2", y, N);
  CHECK_OK(hp_param_rename(d, "w", "w3"));
  for (int i = 0; i < d->own; i++)
    for (int k = 0; k < 2; k++) { /* they change places */
      uint32_t index;
      HP_ASSERT(device_find(d->member[i], k ? "w2" : "w3", &index));
      CHECK_OK(device_move_state(d->member[i], index, k ? TIER_FLASH : TIER_HOST));
    }
  check_is(d, "w3", x, N);
  check_is(d, "w2", y, N);
  CHECK_EQ(d->member[0]->state_bytes[TIER_DEVICE], 0);
  CHECK_OK(hp_param_free(d, "w2"));
  create(d, "w4", ROWS, COLUMNS, TIER_FLASH); /* in the same place, and zeros */
  check_is(d, "w4", zeros, N);
  check_is(d, "small", x, 3);
  free(x), free(y), free(zeros);
  hp_device_close(d);
}

TEST(tensors_on_flash_are_written_read_filled_saved_loaded_renamed_and_freed) {
  use_tensors(NULL);
  use_tensors("(3)(dp)");
}

TEST(small_runs_of_a_tensor_on_flash_come_through_a_window) {
  enum { N = 700000 };
  hp_device *d = open_device(NULL, 16 * MIB, 0);
  create(d, "t", 1, N, TIER_FLASH);
  float *x = numbers(N, 3), *y = malloc(N * sizeof *y);
  const state_tensor *t = &d->member[0]->states.at[0];
  for (int from_end = 0; from_end < 2; from_end++) {
    state_io io;
    CHECK_OK(state_io_begin(d->member[0], t, &io));
    for (int i = 0; i < N; i += 7) {
      int at = from_end ? (N - 1 - i) / 7 * 7 : i, n = N - at < 7 ? N - at : 7;
      float some[7];
      for (int k = 0; k < n; k++) some[k] = x[at + k] + (float)from_end;
      CHECK_OK(state_io_write(&io, (uint64_t)at * 4, some, (uint64_t)n * 4));
      CHECK_OK(state_io_read(&io, (uint64_t)at * 4, y + at, (uint64_t)n * 4));
      CHECK(!memcmp(y + at, some, (size_t)n * 4));
    }
    CHECK_OK(state_io_end(&io, HP_OK));
  }
  for (int i = 0; i < N; i++) x[i] += 1;
  check_is(d, "t", x, N);
  free(x), free(y);
  hp_device_close(d);
}

/* --- programs --------------------------------------------------------------------------------- */

/* y = (w x) x^T and w = w x.  Far: w is in a tier, and x and w x are there meanwhile, side by side.
 */
#define T   "f32[300,300]"
#define WX  "einsum b3, b0 {eq=\"ab,bc->ac\", dtype=f32}"
#define WXX "einsum b8, b7 {eq=\"ab,cb->ac\", dtype=f32}"
static const char near_text[] = "arena device 2881536 bound 0 at 0\n"
                                "b0 = " T " device+0 input \"x\"\n"
                                "b1 = " T " device+360192 output \"y\"\n"
                                "b2 = " T " state \"w\"\n"
                                "b3 = " T " device+720384\n"
                                "b4 = " T " device+1080576\n"
                                "b5 = " T " device+1440768\n"
                                "b6 = " T " device+1800960\n"
                                "b7 = " T " device+2161152\n"
                                "b8 = " T " device+2521344\n"
                                "compute: b3 = copy b2\n"
                                "compute: b5 = copy b0\n"
                                "compute: b4 = " WX "\n"
                                "compute: b6 = copy b4\n"
                                "compute: b2 = copy b4\n"
                                "compute: b8 = copy b6\n"
                                "compute: b7 = copy b5\n"
                                "compute: b1 = " WXX "\n";
#define FAR(tier, k)                                                                               \
  "arena device 2161152 bound 0 at 0\n"                                                            \
  "arena " tier " 720384 bound 0 at 0\n"                                                           \
  "b0 = " T " device+0 input \"x\"\n"                                                              \
  "b1 = " T " device+360192 output \"y\"\n"                                                        \
  "b2 = " T " state " tier " \"w\"\n"                                                              \
  "b3 = " T " device+720384\n"                                                                     \
  "b4 = " T " device+1080576\n"                                                                    \
  "b5 = " T " " tier "+0\n"                                                                        \
  "b6 = " T " " tier "+360192\n"                                                                   \
  "b7 = " T " device+1440768\n"                                                                    \
  "b8 = " T " device+1800960\n"                                                                    \
  "copy_in: b3 = fetch b2 {tier=" k "}\n"                                                          \
  "copy_out: b5 = offload b0 {tier=" k "} @\"spill.x\"\n"                                          \
  "compute: b4 = " WX " wait=copy_in:0\n"                                                          \
  "copy_out: b6 = offload b4 {tier=" k "} wait=compute:0 @\"spill.wx\"\n"                          \
  "copy_out: b2 = offload b4 {tier=" k "}\n"                                                       \
  "copy_in: b8 = fetch b6 {tier=" k "} wait=copy_out:1 @\"unspill.wx\"\n"                          \
  "copy_in: b7 = fetch b5 {tier=" k "} @\"unspill.x\"\n"                                           \
  "compute: b1 = " WXX " wait=copy_in:2\n"

static hp_program *load(hp_device *d, int tier) {
  static const char *const text[TIER_COUNT] = {near_text, FAR("host", "1"), FAR("flash", "2")};
  hp_program *p;
  CHECK_OK(hp_program_parse(text[tier], "t", d, &p));
  return p;
}

static void run_thrice(hp_device *d, hp_program *p, float *all) {
  float *x = numbers(ELEMENTS, -0.5f);
  for (int i = 0; i < 3; i++) {
    float *y = all + i * ELEMENTS;
    hp_io io[] = {{"x", x, ELEMENTS * sizeof *x}, {"y", y, ELEMENTS * sizeof *y}};
    uint64_t before = mem_count();
    CHECK_OK(hp_run(p, io, 2));
    if (i) CHECK_EQ(mem_count(), before);
  }
  CHECK_OK(hp_read(d, "w", all + 3 * ELEMENTS, ELEMENTS * sizeof *all));
  free(x);
}

TEST(programs_that_move_over_host_and_flash_give_the_same_bits) {
  float *all[TIER_COUNT], *w = numbers(ELEMENTS, 0.25f);
  for (int t = 0; t < TIER_COUNT; t++) {
    hp_device *d = open_device(NULL, 8 * MIB, 0);
    CHECK_OK(hp_param_create(d, "w", HP_F32, (hp_shape){2, {SIDE, SIDE}}));
    CHECK_OK(hp_write(d, "w", w, ELEMENTS * sizeof *w));
    hp_program *p = load(d, t); /* which moves w to its tier */
    const device *m = d->member[0];
    CHECK_EQ(m->states.at[0].tier, t);
    CHECK_EQ(m->state_bytes[t], tier_memory_pad(t, ELEMENTS * sizeof *w));
    CHECK_FAILS(device_move_state(d->member[0], 0, (t + 1) % TIER_COUNT), "\"w\" is used by 1");
    all[t] = malloc(4 * ELEMENTS * sizeof *w);
    run_thrice(d, p, all[t]);
    CHECK(!memcmp(all[0], all[t], 4 * ELEMENTS * sizeof *w));
    hp_program_stats s;
    CHECK_OK(hp_program_stats_get(p, &s));
    if (t) CHECK(s.memory.tier[t].planned_bytes >= 3 * ELEMENTS * sizeof *w);
    hp_program_free(p);
    hp_device_close(d);
  }
  for (int t = 0; t < TIER_COUNT; t++) free(all[t]);
  free(w);
}

/* A tensor that one program holds in a tier is not moved under it. */
TEST(a_program_that_needs_a_used_tensor_in_another_tier_is_refused) {
  hp_device *d = open_device(NULL, 8 * MIB, 0);
  hp_program *p = load(d, TIER_FLASH), *other;
  CHECK_FAILS(hp_program_parse("b0 = f32[300,300] state host \"w\"\n", "t", d, &other),
              "\"w\" is used by 1 program on tier flash");
  hp_program_free(p);
  CHECK_OK(hp_program_parse("b0 = f32[300,300] state host \"w\"\n", "t", d, &other));
  hp_program_free(other);
  hp_device_close(d);
}

/* --- failures --------------------------------------------------------------------------------- */

TEST(a_damaged_tensor_on_flash_ends_a_run_a_read_and_a_save_with_its_name_and_path) {
  hp_device *d = open_device(NULL, 8 * MIB, 0);
  hp_program *p = load(d, TIER_FLASH);
  char saved[600];
  float *x = numbers(ELEMENTS, 1);
  snprintf(saved, sizeof saved, "%s/saved", test_dir());
  CHECK_OK(hp_write(d, "w", x, ELEMENTS * sizeof *x));
  CHECK_OK(hp_params_save(d, saved, NULL, 0));
  damage();
  hp_io io = {"x", x, ELEMENTS * sizeof *x};
  CHECK_FAILS(hp_run(p, &io, 1), "\"w\" on tier flash, path \"");
  CHECK_FAILS(hp_read(d, "w", x, ELEMENTS * sizeof *x), "are not those that were written");
  char other[600];
  snprintf(other, sizeof other, "%s/other", test_dir());
  CHECK_FAILS(hp_params_save(d, other, NULL, 0), "\"w\" on tier flash, path \"");
  CHECK_OK(hp_params_load(d, saved, NULL, 0)); /* what was saved before is whole */
  CHECK_OK(hp_run(p, &io, 1));
  hp_program_free(p);
  free(x);
  hp_device_close(d);
}

TEST(tiers_that_are_full_or_missing_are_told_by_the_names_of_their_limits) {
  hp_device *d = open_device(NULL, MIB, MIB);
  ir_value large = {.dtype = HP_F32, .rank = 1, .dim = {200 << 10}};
  const char *text = "arena %s 400128 bound 0 at 0\nb0 = f32[100000] %s+0\n";
  char of_host[128], of_flash[128];
  uint32_t index;
  hp_program *p;
  snprintf(of_host, sizeof of_host, text, "host", "host");
  snprintf(of_flash, sizeof of_flash, text, "flash", "flash");
  for (int t = TIER_HOST; t < TIER_COUNT; t++)
    CHECK_OK(device_mesh_state_of(d, t == TIER_HOST ? "a" : "b", &large, t, &index));
  CHECK_FAILS(device_mesh_state_of(d, "c", &large, TIER_HOST, &index),
              "host limit 1048576 bytes: param \"c\" (819200 bytes) does not fit next to 819200");
  CHECK_FAILS(device_mesh_state_of(d, "c", &large, TIER_FLASH, &index), "raise flash_limit");
  CHECK_FAILS(hp_program_parse(of_host, "t", d, &p), "raise host_limit");
  CHECK_FAILS(hp_program_parse(of_flash, "t", d, &p), "raise flash_limit");
  CHECK_OK(hp_param_free(d, "a"));
  CHECK_OK(hp_param_free(d, "b"));
  CHECK_OK(hp_program_parse(of_flash, "t", d, &p));
  CHECK_FAILS(device_mesh_state_of(d, "b", &large, TIER_FLASH, &index),
              "of which params take 0 and work memory 400128; raise flash_limit");
  hp_program_free(p);
  CHECK_OK(device_mesh_state_of(d, "b", &large, TIER_FLASH, &index));
  hp_device_close(d);
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_FAILS(device_mesh_state_of(d, "b", &large, TIER_FLASH, &index),
              "tier flash has no memory here");
  hp_device_close(d);
}

TEST(flash_options_of_a_device_are_checked) {
  const char *disk = folder("flash");
  hp_device *d, *other;
  CHECK_FAILS(hp_device_open(&(hp_device_options){.n_flash = 1}, &d), "flash is NULL");
  CHECK_FAILS(hp_device_open(&(hp_device_options){.n_flash = -1}, &d), "n_flash is -1");
  CHECK_FAILS(hp_device_open(&(hp_device_options){.flash_limit = 5}, &d), "names no folder");
  CHECK_FAILS(hp_device_open(&(hp_device_options){.flash = &disk, .n_flash = 1}, &d),
              "flash_limit is 0");
  d = open_device(NULL, MIB, 0);
  hp_device_options o = {.job = d, .flash = &disk, .n_flash = 1, .flash_limit = MIB};
  CHECK_FAILS(hp_device_open(&o, &other), "are those of the job");
  o.job = NULL;
  CHECK_FAILS(hp_device_open(&o, &other), "another job");
  hp_device_close(d);
  d = open_device("(2)(dp)", MIB, 0); /* and each device has half of it */
  CHECK_EQ(d->member[1]->job->memory[TIER_FLASH].from, MIB / 2);
  hp_device_close(d);
}
