/* Tensors saved by parts and read on other meshes: element by element on small files, then by
 * devices; with damaged files, and with little memory and disk. */
#include "ops/random_graph.h"
#include "shard/layout_text.h"
#include "base/io.h"
#include "ckpt/saved.h"
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path of a file of the save; good until the call after the next. */
static const char *at(const char *name) {
  static char path[2][512];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof path[turn], "%s/%s", test_dir(), name);
  return path[turn];
}

/* --- files by chance -------------------------------------------------------------------------- */

enum { TENSORS = 5, DIMS = 4, ELEMENTS = 4096 };

typedef struct {
  rng r;
  mesh m;
  int n;
  saved_tensor tensor[TENSORS];
  char name[TENSORS][8];
  float whole[TENSORS][ELEMENTS];
} job;

static mesh random_mesh(rng *r) {
  static const char *const name[] = {"a", "b", "c"};
  int64_t size[3];
  int axes = 1 + rng_below(r, 3);
  for (int a = 0; a < axes; a++) size[a] = 1 + rng_below(r, 3);
  mesh m;
  CHECK_OK(mesh_init(size, name, axes, NULL, 0, &m));
  return m;
}

static layout random_layout(rng *r, const mesh *m, int rank) {
  layout l = {.rank = (uint8_t)rank};
  for (int a = 0; a < m->axes && rank; a++)
    if (rng_chance(r, 65)) layout_append(&l, rng_below(r, rank), a);
  return l;
}

static void make_job(uint64_t seed, job *j) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 0};
  *j = (job){.r = {.seed = seed}};
  j->m = random_mesh(&j->r);
  j->n = 1 + rng_below(&j->r, TENSORS);
  for (int k = 0; k < j->n; k++) {
    saved_tensor *t = &j->tensor[k];
    snprintf(j->name[k], sizeof j->name[k], "t%d", k);
    t->name = j->name[k];
    t->type = (ir_value){.dtype = HP_F32, .rank = (uint8_t)rng_below(&j->r, DIMS + 1)};
    for (int d = 0; d < t->type.rank; d++)
      t->type.dim[d] = sizes[rng_below(&j->r, rng_chance(&j->r, 5) ? 8 : 7)];
    t->l = random_layout(&j->r, &j->m, t->type.rank);
    for (int64_t i = 0; i < value_elements(&t->type); i++) j->whole[k][i] = (float)(i + 5000 * k);
  }
  saved_share_out(&j->m, 0, j->tensor, (size_t)j->n);
}

typedef struct {
  const job *j;
  int64_t elements;
} job_writer;

static hp_status write_part(void *context, size_t k, const box *own, st_writer *out) {
  job_writer *w = context;
  static float part[ELEMENTS];
  box all = box_of(w->j->tensor[k].type.dim, own->rank);
  int64_t n = box_elements(own);
  w->elements += n;
  box_copy(own, sizeof *part, &all, w->j->whole[k], own, part);
  return st_writer_write(out, part, (size_t)n * sizeof *part);
}

static hp_status put(void *context, int64_t at, const void *from, int64_t n) {
  memcpy((float *)context + at, from, (size_t)n * sizeof(float));
  return HP_OK;
}

/* Every device of another mesh reads its part of a tensor. */
static void read_elsewhere(job *j, saved *s, size_t k) {
  static float got[ELEMENTS], want[ELEMENTS];
  const saved_tensor *t = saved_get(s, k);
  mesh m = random_mesh(&j->r);
  layout l = random_layout(&j->r, &m, t->type.rank);
  for (int64_t device = 0; device < m.devices; device++) {
    box own = box_of_shard(&m, &l, t->type.dim, device), all = box_of(t->type.dim, t->type.rank);
    size_t bytes = (size_t)box_elements(&own) * sizeof *got;
    memset(got, 0xee, bytes);
    box_copy(&own, sizeof *want, &all, j->whole[k], &own, want);
    CHECK_OK(saved_need(s, k, &own));
    CHECK_OK(saved_read(s, k, &own, &own, HP_F32, put, got));
    CHECK(!memcmp(got, want, bytes));
  }
  mesh_free(&m);
}

TEST(what_any_mesh_has_saved_any_other_reads_and_each_element_is_saved_once) {
  static job j;
  saved *s;
  for (uint64_t seed = 0; seed < 40; seed++) {
    make_job(seed, &j);
    job_writer w = {&j, 0};
    int64_t elements = 0;
    size_t k;
    for (int64_t device = 0; device < j.m.devices; device++)
      CHECK_OK(saved_write_file(at("x"), &(saved_place){&j.m, 0, 0}, j.tensor, (size_t)j.n, device,
                                write_part, &w));
    CHECK_OK(saved_write_index(at("x"), (const mesh *[]){&j.m}, 1, j.tensor, (size_t)j.n));
    for (int i = 0; i < j.n; i++) elements += value_elements(&j.tensor[i].type);
    CHECK_EQ(w.elements, elements);
    CHECK_OK(saved_open(at("x"), &s));
    CHECK_EQ(saved_count(s), j.n);
    for (int i = 0; i < j.n; i++) {
      CHECK(saved_find(s, j.name[i], &k) && k == (size_t)i);
      CHECK(layout_equal(&saved_get(s, k)->l, &j.tensor[i].l));
      read_elsewhere(&j, s, k);
    }
    saved_close(s);
    mesh_free(&j.m);
  }
}

/* Tensors of many sizes, twelve to a layer, whole on some axes: no device writes much more. */
TEST(devices_that_hold_the_same_save_equal_shares) {
  enum { N = 12 * 32 };
  static saved_tensor t[N];
  static const char *const name[] = {"dp", "tp"};
  mesh m;
  double most = 0, all = 0;
  CHECK_OK(mesh_init((int64_t[]){4, 2}, name, 2, NULL, 0, &m));
  for (int k = 0; k < N; k++) {
    t[k] =
        (saved_tensor){"t", {.dtype = HP_F32, .rank = 1, .dim = {64 << k % 12}}, {.rank = 1}, 0, 0};
    if (k % 3) layout_append(&t[k].l, 0, 1);
  }
  saved_share_out(&m, 0, t, N);
  for (int64_t device = 0; device < 8; device++) {
    double own = 0;
    box part;
    for (int k = 0; k < N; k++)
      if (saved_by(&m, &t[k], device, &part)) own += (double)box_elements(&part);
    all += own;
    if (own > most) most = own;
  }
  if (most > 1.1 * all / 8) test_fail(__FILE__, __LINE__, "%g of %g", most, all / 8);
  mesh_free(&m);
}

/* --- devices ---------------------------------------------------------------------------------- */

enum { PARAMS = 4 };
static const char *const param_name[PARAMS] = {"w", "norm", "table", "step"};
static const hp_shape param_shape[PARAMS] = {{2, {24, 12}}, {1, {12}}, {3, {4, 6, 2}}, {0, {0}}};
static const hp_dtype param_type[PARAMS] = {HP_F32, HP_F32, HP_BF16, HP_I64};

static size_t bytes_of_param(int i) {
  static const size_t size[HP_DTYPE_COUNT] = {[HP_F32] = 4, [HP_BF16] = 2, [HP_I64] = 8};
  size_t n = size[param_type[i]];
  for (int d = 0; d < param_shape[i].rank; d++) n *= (size_t)param_shape[i].dim[d];
  return n;
}

/* Devices with these params; of type `floats` those that are floating, unless it is none. */
static hp_device *open_devices(const char *mesh_text, const char *w, const char *table,
                               int floats) {
  hp_device *d;
  hp_layout_rule rule[] = {{"w", w}, {"table", table}};
  hp_device_options o = {.mesh = mesh_text, .layouts = rule, .n_layouts = 2, .interpret = true};
  if (!mesh_text) o.n_layouts = 0;
  CHECK_OK(hp_device_open(&o, &d));
  for (int i = 0; i < PARAMS; i++) {
    hp_dtype type = floats >= 0 && param_type[i] != HP_I64 ? (hp_dtype)floats : param_type[i];
    CHECK_OK(hp_param_create(d, param_name[i], type, param_shape[i]));
  }
  return d;
}

static void fill(hp_device *d) {
  unsigned char bytes[2048];
  for (int i = 0; i < PARAMS; i++) {
    for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (unsigned char)(k * 7 + (size_t)i) % 120;
    CHECK_OK(hp_write(d, param_name[i], bytes, bytes_of_param(i)));
  }
}

static void check_filled(const hp_device *d) {
  unsigned char bytes[2048];
  for (int i = 0; i < PARAMS; i++) {
    CHECK_OK(hp_read(d, param_name[i], bytes, bytes_of_param(i)));
    for (size_t k = 0; k < bytes_of_param(i); k++)
      CHECK_EQ(bytes[k], (unsigned char)(k * 7 + (size_t)i) % 120);
  }
}

/* Saved by four devices into the test's folder. */
static void save_some(void) {
  hp_device *d = open_devices("(2,2)(dp,tp)", "(tp,dp)", "(None,tp,None)", -1);
  fill(d);
  CHECK_OK(hp_params_save(d, at("x"), NULL, 0));
  hp_device_close(d);
}

TEST(params_go_from_devices_to_files_to_other_devices) {
  static const char *const mesh_text[] = {NULL, "(2,2)(dp,tp)", "(3)(a)", "(2,2,2)(a,b,c)"};
  static const char *const w[] = {"", "(tp,dp)", "(a,None)", "((c,a),b)"};
  static const char *const table[] = {"", "(None,tp,None)", "(None,a,None)", "(b,None,None)"};
  for (int from = 0; from < 4; from++)
    for (int to = 0; to < 4; to++) {
      hp_device *d = open_devices(mesh_text[from], w[from], table[from], -1);
      fill(d);
      CHECK_OK(hp_params_save(d, at("x"), param_name, PARAMS));
      hp_device_close(d);
      d = open_devices(mesh_text[to], w[to], table[to], -1);
      CHECK_OK(hp_params_load(d, at("x"), NULL, 0));
      check_filled(d);
      hp_device_close(d);
    }
}

TEST(params_are_read_as_another_floating_type) {
  float x[24 * 12];
  hp_device *d = open_devices("(2)(a)", "(a,None)", "(None,None,a)", HP_F32);
  for (int i = 0; i < 24 * 12; i++) x[i] = (float)i;
  CHECK_OK(hp_write(d, "w", x, sizeof x));
  CHECK_OK(hp_params_save(d, at("x"), NULL, 0));
  hp_device_close(d);
  uint16_t y[24 * 12];
  d = open_devices("(3)(a)", "(None,a)", "(None,a,None)", HP_BF16);
  CHECK_OK(hp_params_load(d, at("x"), NULL, 0));
  CHECK_OK(hp_read(d, "w", y, sizeof y));
  for (int i = 0; i < 24 * 12; i++) {
    uint32_t bits = (uint32_t)y[i] << 16;
    float back;
    memcpy(&back, &bits, sizeof back);
    CHECK_NEAR(back, x[i], x[i] / 256);
  }
  hp_device_close(d);
}

/* --- what is damaged -------------------------------------------------------------------------- */

/* Loads into devices whose params must stay as they are. */
static void refused(const char *part) {
  hp_device *d = open_devices("(3)(a)", "(a,None)", "(None,a,None)", -1);
  fill(d);
  CHECK_FAILS(hp_params_load(d, at("x"), NULL, 0), part);
  check_filled(d);
  hp_device_close(d);
}

/* The index with one text in place of another. */
static void with_index(const char *from, const char *to, const char *part) {
  char *text, *there;
  size_t n;
  str changed = {0};
  CHECK_OK(file_read(at("x.parts.json"), 0, &text, &n));
  CHECK((there = strstr(text, from)));
  str_add_n(&changed, text, (size_t)(there - text));
  str_add(&changed, to);
  str_add(&changed, there + strlen(from));
  CHECK_OK(file_write(at("x.parts.json"), changed.at, changed.len));
  refused(part);
  CHECK_OK(file_write(at("x.parts.json"), text, n));
  str_free(&changed);
  mem_free(text);
}

TEST(an_index_that_cannot_be_is_refused_with_the_tensor_and_what_was_expected) {
  save_some();
  with_index("\"format\": 1", "\"format\": 9", "reads format 1");
  with_index("(2,2)(dp,tp)", "(2,2)(dp,dp)", "x.parts.json:1:");
  with_index("(2,2)(dp,tp)", "(0,2)(dp,tp)", "expected at least 1");
  with_index("(2,2)(dp,tp)", "(2,2)(dp,tp)(dp)", "expected a mesh alone");
  with_index("(2,2)(dp,tp)", "(2,2)(dp,tp)@3,2,1,1", "x.parts.json:1:");
  with_index("(tp,dp)", "(tp,qp)", "tensors.w.layout: layout: \"qp\" is not an axis");
  with_index("(tp,dp)", "(tp", "tensors.w.layout");
  with_index("(tp,dp)", "(tp,dp,None)", "tensors.w.layout: has 3 dims, the tensor 2");
  with_index("(tp,dp)", "(tp,None)+sum:dp", "the tensor is partial over dp");
  with_index("[24, 12]", "[-24, 12]", "expected a size");
  with_index("[24, 12]", "[4611686018427387904, 4]", "more elements than memory can hold");
  with_index("[24, 12]", "[1,1,1,1,1,1,1,1]", "at most 6");
  with_index("[24, 12]", "[24, 14]", "\"w\" is f32[24,14], expected f32[24,12]");
  with_index("[24, 12]", "[12, 24]", "a checkpoint of another model");
  with_index("\"f32\"", "\"f31\"", "is no dtype");
  with_index("\"w\"", "\"v\"", "has no tensor \"w\"; it is a checkpoint of another model");
  with_index("}}", "},\n\"more\": {\"dtype\": \"f32\", \"shape\": [], \"layout\": \"()\"}}",
             "\"more\" has no place here");
  /* other boxes than the files say: parts that would overlap, or leave something out */
  with_index("(tp,dp)", "(dp,tp)", "expected [0:12, 6:12] in f32");
  with_index("(tp,dp)", "(tp,None)", "tensor \"w\"");
  with_index("(2,2)(dp,tp)", "(4,2)(dp,tp)", "tensor \"w\"");
}

static void move(const char *from, const char *to) { CHECK(!rename(at(from), at(to))); }

static void swap_files(const char *a, const char *b) {
  move(a, "kept");
  move(b, a);
  move("kept", b);
}

TEST(files_of_devices_that_are_missing_damaged_or_swapped_are_refused_by_name) {
  struct stat s;
  char *bytes;
  size_t n;
  save_some();
  swap_files("x-part-00001.safetensors", "x-part-00002.safetensors");
  refused("expected [0:12, 6:12] in f32");
  swap_files("x-part-00001.safetensors", "x-part-00002.safetensors");
  CHECK_OK(file_read(at("x-part-00003.safetensors"), 0, &bytes, &n));
  CHECK(!truncate(at("x-part-00003.safetensors"), (off_t)n - 1));
  refused("x-part-00003.safetensors: ");
  CHECK(!truncate(at("x-part-00003.safetensors"), 0));
  refused("x-part-00003.safetensors: ");
  CHECK(!unlink(at("x-part-00003.safetensors")));
  refused("x-part-00003.safetensors: is missing; by ");
  CHECK_OK(file_write(at("x-part-00003.safetensors"), bytes, n));
  CHECK(!stat(at("x.parts.json"), &s));
  CHECK(!truncate(at("x.parts.json"), s.st_size / 2));
  refused("x.parts.json:");
  CHECK(!unlink(at("x.parts.json")));
  refused("x.parts.json: ");
  mem_free(bytes);
  /* a file of another save: of the same devices, but of fewer tensors */
  hp_device *d = open_devices("(2,2)(dp,tp)", "(tp,dp)", "(None,tp,None)", -1);
  CHECK_OK(hp_params_save(d, at("x"), &param_name[1], 3));
  move("x-part-00000.safetensors", "kept");
  CHECK_OK(hp_params_save(d, at("x"), NULL, 0));
  move("kept", "x-part-00000.safetensors");
  hp_device_close(d);
  refused("are not of one save");
}

TEST(a_load_opens_no_file_that_it_needs_nothing_of) {
  save_some();
  /* w lies on (tp,dp): rows 0..11 on devices 0 and 2 */
  saved *s;
  box b = {.rank = 2, .start = {0, 0}, .stop = {12, 12}};
  CHECK(!unlink(at("x-part-00001.safetensors")) && !unlink(at("x-part-00003.safetensors")));
  CHECK_OK(saved_open(at("x"), &s));
  CHECK_OK(saved_need(s, 0, &b));
  b.stop[0] = 13;
  CHECK_FAILS(saved_need(s, 0, &b), "x-part-00001.safetensors: is missing");
  saved_close(s);
}

TEST(params_to_files_refuses_what_makes_no_sense) {
  hp_device *d = open_devices(NULL, NULL, NULL, -1);
  const char *none = "nothing";
  CHECK_FAILS(hp_params_save(d, NULL, NULL, 0), "path is NULL");
  CHECK_FAILS(hp_params_load(d, NULL, NULL, 0), "path is NULL");
  CHECK_FAILS(hp_params_save(d, at("x"), NULL, 1), "name is NULL");
  CHECK_FAILS(hp_params_save(d, at("x"), &none, 1), "no param \"nothing\"");
  CHECK_FAILS(hp_params_save(d, at("folder/x"), NULL, 0), "folder/x-part-00000.safetensors: ");
  hp_device_close(d);
}

/* --- little of everything --------------------------------------------------------------------- */

static size_t data_bytes(void) {
  char line[128];
  long kb = 0;
  FILE *f = fopen("/proc/self/status", "r");
  CHECK(f != NULL);
  while (fgets(line, sizeof line, f)) (void)sscanf(line, "VmData: %ld", &kb);
  fclose(f);
  return (size_t)kb << 10;
}

/* 64 MiB in four parts; a part is 16 MiB, and no more than half of that is to be had. */
TEST(a_save_and_a_load_take_a_small_buffer_a_device_and_no_global_tensor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  test_skip("sanitizers take memory of their own");
#endif
  hp_shape s = {2, {4096, 4096}};
  hp_layout_rule rule = {"w", "(a,b)"};
  hp_device_options o = {.mesh = "(2,2)(a,b)", .layouts = &rule, .n_layouts = 1};
  hp_device *d;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_param_create(d, "w", HP_F32, s));
  CHECK_OK(hp_params_save(d, at("x"), NULL, 0)); /* threads have their stacks */
  struct rlimit limit = {data_bytes() + (8 << 20), RLIM_INFINITY};
  CHECK(!setrlimit(RLIMIT_DATA, &limit));
  CHECK(!mem_calloc(16 << 20, 1));
  err_clear();
  CHECK_OK(hp_params_save(d, at("x"), NULL, 0));
  CHECK_OK(hp_params_load(d, at("x"), NULL, 0));
  hp_device_close(d);
}

TEST(a_save_that_finds_the_disk_full_says_so_and_leaves_no_index) {
  save_some();
  hp_device *d = open_devices("(2,2)(dp,tp)", "(tp,dp)", "(None,tp,None)", -1);
  struct rlimit small = {600, 600};
  signal(SIGXFSZ, SIG_IGN);
  CHECK(!setrlimit(RLIMIT_FSIZE, &small));
  CHECK_FAILS(hp_params_save(d, at("x"), NULL, 0), "safetensors: write failed after");
  CHECK(!path_exists(at("x.parts.json")));
  hp_device_close(d);
}

TEST(torture_a_load_fails_cleanly_at_every_allocation) {
  save_some();
  hp_device *d = open_devices("(3)(a)", "(a,None)", "(None,a,None)", -1);
  for (uint64_t n = 1; n < 100000; n++) {
    mem_fail_at(n);
    hp_status load = hp_params_load(d, at("x"), NULL, 0);
    mem_fail_at(0);
    if (!load) break;
    CHECK_EQ(load, HP_ERR_OOM);
    err_clear();
  }
  check_filled(d);
  hp_device_close(d);
}

/* Meshes of a pipeline have ranks, as many as devices. */
TEST(an_index_has_several_meshes_with_many_ranks) {
  enum { DEVICES = 600 };
  static int64_t rank[DEVICES];
  const char *name[] = {"dp"};
  mesh m[2];
  saved *s;
  saved_tensor t[] = {{.name = "a",
                       .type = {.dtype = HP_F32, .rank = 1, .dim = {4}},
                       .l = {.rank = 1}},
                      {.name = "b",
                       .type = {.dtype = HP_F32, .rank = 1, .dim = {4}},
                       .l = {.rank = 1},
                       .mesh = 1}};
  for (int i = 0; i < DEVICES; i++) rank[i] = DEVICES - 1 - i;
  CHECK_OK(mesh_init((int64_t[]){DEVICES - 1}, name, 1, rank, DEVICES - 1, &m[0]));
  CHECK_OK(mesh_init((int64_t[]){1}, name, 1, rank + DEVICES - 1, 1, &m[1]));
  CHECK_OK(saved_write_index(at("meshes"), (const mesh *[]){&m[0], &m[1]}, 2, t, 2));
  CHECK_OK(saved_open(at("meshes"), &s));
  CHECK_EQ(saved_meshes(s), 2);
  CHECK_EQ(saved_mesh(s, 0)->devices, DEVICES - 1);
  CHECK_EQ(mesh_rank(saved_mesh(s, 0), 0), DEVICES - 1);
  CHECK_EQ(saved_get(s, 0)->mesh, 0);
  CHECK_EQ(saved_get(s, 1)->mesh, 1);
  saved_close(s);
  t[1].mesh = 0;
  CHECK_OK(saved_write_index(at("meshes"), (const mesh *[]){&m[0]}, 1, t, 2));
  CHECK_OK(saved_open(at("meshes"), &s));
  CHECK_EQ(saved_meshes(s), 1);
  saved_close(s);
  mesh_free(&m[0]);
  mesh_free(&m[1]);
}
