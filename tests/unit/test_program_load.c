/* A program read back from its text runs with the same bits; a text that is not safe is refused. */
#include "test.h"

#include "base/str.h"
#include "ops/random_graph.h"
#include "prog/program.h"
#include "rt/exec.h"
#include "rt/device_mesh.h"
#include "step_case.h"

#include <stdlib.h>

static hp_device *open_device(int threads) {
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = threads, .interpret = true}, &d));
  return d;
}

/* The i-th tensor of a device. */
static const state_tensor *state_at(hp_device *d, int i, const char **name) {
  hp_dtype t;
  hp_shape s;
  uint32_t index;
  CHECK_OK(hp_param_info(d, i, name, &t, &s));
  HP_ASSERT(device_find(d->member[0], *name, &index));
  return &d->member[0]->states.at[index];
}

/* The params of one device as the other has them. */
static void copy_params(hp_device *from, hp_device *to) {
  for (int i = 0; i < hp_param_count(from); i++) {
    const char *name;
    const state_tensor *x = state_at(from, i, &name);
    CHECK_OK(hp_param_create(to, name, (hp_dtype)x->type.dtype, value_shape(&x->type)));
    CHECK_OK(hp_write(to, name, device_address(from->member[0], x), x->bytes));
  }
}

static void add_params(hp_device *d, str *all) {
  for (int i = 0; i < hp_param_count(d); i++) {
    const char *name;
    const state_tensor *x = state_at(d, i, &name);
    str_add_n(all, device_address(d->member[0], x), x->bytes);
  }
}

/* --- the same bits --------------------------------------------------------------------------- */

static void write_params(random_graph *x, hp_device *d) {
  for (int i = 0; i < x->leaves; i++) {
    const random_leaf *l = &x->leaf[i];
    if (l->name[0] != 'p') continue;
    CHECK_OK(hp_param_create(d, l->name, hp_dtype_of(x->g, l->v), hp_shape_of(x->g, l->v)));
    CHECK_OK(hp_write(d, l->name, l->data, l->bytes));
  }
}

/* Two runs; outputs of both, and the params after them, one after the other in `all`. */
static void run_twice(random_graph *x, hp_device *d, hp_program *p, str *all) {
  for (int times = 0; times < 2; times++) {
    hp_io io[RANDOM_LEAVES + RANDOM_OUTPUTS];
    int n = 0, first;
    for (int i = 0; i < x->leaves; i++)
      if (x->leaf[i].name[0] == 'x')
        io[n++] = (hp_io){x->leaf[i].name, x->leaf[i].data, x->leaf[i].bytes};
    first = n;
    for (int i = 0; i < x->outputs; i++) {
      size_t size = (size_t)value_bytes(graph_value(x->g, x->output[i].v));
      io[n++] = (hp_io){x->output[i].name, malloc(size + 1), size};
    }
    CHECK_EQ(hp_program_io_count(p), n);
    CHECK_OK(hp_run(p, io, n));
    for (int i = first; i < n; i++) {
      str_add_n(all, io[i].data, io[i].bytes);
      free(io[i].data);
    }
  }
  add_params(d, all);
}

TEST(random_programs_with_copies_run_from_their_text_with_the_same_bits) {
  int with_copies = 0;
  for (uint64_t seed = 7000; seed < 7100; seed++) {
    random_graph x;
    hp_program *p, *q;
    char *text, *again;
    str got[2] = {{0}, {0}};
    random_graph_make(seed, &(random_options){.streams = seed % 2, .dtypes = seed % 3 == 0}, &x);
    hp_device *d = open_device(1), *e = open_device(1 + (int)(seed % 2));
    write_params(&x, d);
    write_params(&x, e);
    CHECK_OK(hp_compile(x.g, d, NULL, &p));
    CHECK_OK(hp_program_print(p, &text));
    hp_status st = hp_program_parse(text, "random", e, &q);
    if (st) printf("seed %d: %s\n%s", (int)seed, hp_last_error(), text);
    CHECK_OK(st);
    CHECK_OK(hp_program_print(q, &again));
    if (seed % 2 == 0) CHECK_STR(again, text); /* another count of threads may need more memory */
    with_copies += strstr(text, "copy_out:") != NULL;
    run_twice(&x, d, p, &got[0]);
    run_twice(&x, e, q, &got[1]);
    CHECK(got[0].len == got[1].len && !memcmp(got[0].at, got[1].at, got[0].len));
    str_free(&got[0]);
    str_free(&got[1]);
    hp_free(text);
    hp_free(again);
    hp_program_free(p);
    hp_program_free(q);
    hp_device_close(d);
    hp_device_close(e);
    random_graph_free(&x);
  }
  CHECK(with_copies > 20);
}

/* Three training steps from text, with other threads, against three of the program compiled. */
static void check_step(hp_dtype dtype) {
  step_case s;
  char *text;
  hp_program *compiled, *loaded;
  float loss[2][3];
  str params[2] = {{0}, {0}};
  step_open(&(hp_device_options){.threads = 1, .interpret = true}, NULL, dtype, &s);
  CHECK_OK(hp_program_print(s.p, &text));
  hp_device *d = open_device(2);
  copy_params(s.d, d);
  CHECK_OK(hp_program_parse(text, "step", d, &loaded));
  for (int i = 0; i < 3; i++) step_run(&s), loss[0][i] = s.loss;
  add_params(s.d, &params[0]);
  compiled = s.p;
  s.p = loaded;
  for (int i = 0; i < 3; i++) step_run(&s), loss[1][i] = s.loss;
  add_params(d, &params[1]);
  CHECK(!memcmp(loss[0], loss[1], sizeof loss[0]));
  CHECK(params[0].len == params[1].len && !memcmp(params[0].at, params[1].at, params[0].len));
  s.p = compiled;
  hp_program_free(loaded);
  hp_device_close(d);
  str_free(&params[0]);
  str_free(&params[1]);
  hp_free(text);
  step_close(&s);
}

TEST(a_training_step_runs_from_its_text_with_the_same_bits) {
  check_step(HP_F32);
  check_step(HP_BF16);
}

TEST(what_a_program_of_text_takes_and_gives_is_told) {
  static const char text[] = "arena device 512 bound 512 at 0\n"
                             "b0 = f32[2,3] device+0 input \"x\"\n"
                             "b1 = f32[2,3] device+256 output \"y\"\n"
                             "b2 = f32[4] state \"w\"\n"
                             "compute: b1 = copy b0\n";
  hp_device *d = open_device(1);
  hp_program *p;
  const char *name;
  hp_dtype t;
  hp_shape s;
  bool out;
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6];
  CHECK_OK(hp_program_parse(text, "t", d, &p));
  CHECK_EQ(hp_program_io_count(p), 2);
  CHECK_OK(hp_program_io_info(p, 1, &name, &t, &s, &out));
  CHECK(out && t == HP_F32 && s.rank == 2 && s.dim[1] == 3);
  CHECK_STR(name, "y");
  CHECK_FAILS(hp_program_io_info(p, 2, &name, &t, &s, &out), "2 inputs and outputs");
  CHECK_OK(hp_param_find(d, "w", &t, &s));
  CHECK_OK(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"y", y, sizeof y}}, 2));
  CHECK(!memcmp(x, y, sizeof x));
  hp_program_free(p);
  hp_device_close(d);
}

TEST(a_program_that_needs_more_workspace_here_is_placed_again) {
  static const char text[] = "arena device 768 bound 768 at 0\n"
                             "b0 = f32[8,8] device+0 input \"x\"\n"
                             "b1 = f32[8,8] device+256 input \"z\"\n"
                             "b2 = f32[8,8] device+512 output \"y\"\n"
                             "compute: b2 = einsum b0, b1 {eq=\"ab,cb->ac\", dtype=f32}\n";
  hp_device *d = open_device(1);
  hp_program *p;
  hp_program_stats s;
  float x[64], y[64];
  for (int i = 0; i < 64; i++) x[i] = (float)i;
  CHECK_OK(hp_program_parse(text, "t", d, &p));
  CHECK_OK(hp_program_stats_get(p, &s));
  CHECK(s.memory.work_bytes > 768);
  CHECK_OK(hp_run(p, (hp_io[]){{"x", x, sizeof x}, {"z", x, sizeof x}, {"y", y, sizeof y}}, 3));
  CHECK(y[0] == 140); /* 0 + 1 + 4 + .. + 49 */
  hp_program_free(p);
  hp_device_close(d);
}

/* --- refusals -------------------------------------------------------------------------------- */

#define ARENA "arena device 1024 bound 0 at 0\n"
#define X     "b0 = f32[4] device+0 input \"x\"\n"

static const struct {
  const char *text, *why;
} bad[] = {
    {ARENA "b0 = f32[4] device+0 input\n", "t:2: b0 is an input or output without a name"},
    {ARENA "b0 = f32[4] device+0 input output \"x\"\n", "t:2: \"x\" is both input and output"},
    {ARENA X "b1 = f32[4] device+256 output \"x\"\n", "t:3: \"x\" is b0 already"},
    {"b0 = f32[4] state \"w\"\nb1 = f32[2] state \"w\"\n", "t:2: \"w\" is b0 already"},
    {"b0 = f32[4] state \"w\" input\n", "t:1: state b0 is no input"},
    {ARENA "b0 = f32[4] device+16 input \"x\"\n", "t:2: b0 takes 256 bytes"},
    {"arena device 16 bound 0 at 0\n" X, "t:2: b0 takes 256 bytes"},
    {ARENA "b0 = u8[4] device+0 workspace input \"x\"\n", "t:2: workspace b0"},
    {ARENA "b0 = u8[4] device+0 workspace\nb1 = u8[4] view b0\n", "t:3: workspace b1"},
    {ARENA "b0 = u8[4] device+0 workspace\nb1 = u8[4] device+256\n", "t:3: b1 follows a workspace"},
    {ARENA X "b1 = u8[4] device+256 workspace\ncompute: b1 = copy b0\n", "b1 is a workspace"},
    {ARENA X "b1 = f32[4] device+256\ncompute: b1 = copy b0 workspace=b0\n", "b0 is no workspace"},
    {ARENA X "b1 = f32[5] device+256\ncompute: b1 = copy b0\n", "t:4: copy"},
    {ARENA X "b1 = bf16[4] device+256\ncompute: b1 = copy b0\n", "is said to be bf16[4]"},
    {ARENA X "b1 = f32[4] device+256\ncompute: b1 = copy b1\n", "t:4: b1 is read before"},
    {ARENA X "b1 = f32[4] device+256 output \"y\"\n", "output \"y\" is never written"},
    {ARENA X "b1 = f32[8] device+256 output \"y\"\nb2 = f32[4] view b1+16\ncompute: b2 = copy b0\n",
     "output \"y\" is never written"},
    {ARENA X "b1 = f32[4] device+0 output \"y\"\ncompute: b1 = copy b0\n", "overlap"},
    {"b0 = f32[8] state \"w\"\nb1 = f32[4] view b0\nb2 = f32[4] view b0+8\ncompute: b2 = copy b1\n",
     "result 0 of copy overlaps"},
    {ARENA X "b1 = f32[4] device+256\ncompute: b1 = all_reduce b0 {axes=1, op=0, n=2}\n", "t:4:"},
    {ARENA X "b1 = f32[] device+256\ncomm: b1 = sum_sq b0\n", "runs on stream compute"},
    {ARENA "arena host 256 bound 0 at 0\n" X "b1 = f32[] host+0\ncompute: b1 = sum_sq b0\n",
     "reaches into tier host"},
    {"arena flash 512 bound 0 at 0\nb0 = f32[4] flash+0 input \"x\"\n",
     "t:2: \"x\" is on tier flash"},
    {"arena flash 512 bound 0 at 0\nb0 = f32[4] state flash \"w\"\nb1 = f32[4] flash+0\n"
     "copy_out: b1 = offload b0 {tier=2}\n",
     "t:4: offload copies within tier flash"},
    {ARENA X "b1 = f32[4] device+256\ncompute: b1 = copy b0 wait=copy_in:0\n", "t:"},
    {ARENA X "b1 = f32[4] device+256\nb2 = f32[4] device+512\n"
             "compute: b1 = copy b0 wait=copy_in:0\ncopy_in: b2 = copy b1\n",
     "t:"},
    {ARENA X "b1 = f32[4] device+256\nb2 = f32[4] device+512\n"
             "compute: b1 = copy b0\ncopy_in: b2 = copy b1\n",
     "t:6: b1 is used by line 5 as well, and nothing waits"},
    {ARENA X "b1 = f32[4] device+256\ncompute: b1 = fused b0 {body=\"map [9]; %0 = in 0 f32 [1]; "
             "out 0 f32 [1] %0\"}\n",
     "touches elements 0 to 8"},
    {ARENA X "b1 = f32[4] device+256\ncompute: b1 = exp b0\n", "has no CPU kernel"},
    {ARENA X "b1 = f32[4] device+256\nb2 = f32[4] device+512\n"
             "compute: b2 = einsum b0, b0 {eq=\"a,a->a\", dtype=f32} engine=nothing\n",
     "nothing"},
    {ARENA "b0 = f32[8] state host \"w\"\nb1 = f32[4] device+0 carried_in carried_out of=b0\n",
     "t:3: b1 has 16 bytes, and b0, which it carries, 32"},
    {ARENA X "b1 = f32[4] device+256 carried_in of=b0\n",
     "t:3: b1 is carried, but of no named tensor"},
    {ARENA "b0 = f32[4] state host \"w\"\nb1 = f32[4] device+0 carried_out of=b0\n",
     "t:3: b1 is carried to the next run and never written"},
    {"arena device 4611686018427387904 bound 0 at 0\n", "does not fit"},
    {"b0 = u8[1125899906842624] state \"w\"\n", "does not fit"},
};

TEST(a_program_text_that_is_not_safe_to_run_is_refused) {
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    hp_device *d = open_device(1);
    hp_program *p;
    if (!hp_program_parse(bad[i].text, "t", d, &p)) {
      printf("accepted:\n%s", bad[i].text);
      CHECK(false);
    }
    if (!strstr(hp_last_error(), bad[i].why)) printf("%s\n%s\n", bad[i].text, hp_last_error());
    CHECK(strstr(hp_last_error(), bad[i].why) != NULL);
    hp_device_close(d);
  }
}

TEST(a_memory_limit_and_a_mesh_refuse_a_program_of_text) {
  static const char text[] = "arena device 1024 bound 0 at 0\nb0 = f32[4] device+0 input \"x\"\n";
  hp_device *d;
  hp_program *p;
  CHECK_OK(
      hp_device_open(&(hp_device_options){.threads = 1, .interpret = true, .memory_limit = 512},
                     &d));
  CHECK_FAILS(hp_program_parse(text, "t", d, &p), "memory limit 512 bytes is too small");
  hp_device_close(d);
  CHECK_OK(
      hp_device_open(&(hp_device_options){.threads = 1, .interpret = true, .mesh = "(2)(dp)"}, &d));
  CHECK_FAILS(hp_program_parse(text, "t", d, &p), "this one is a mesh of 2");
  hp_device_close(d);
}
