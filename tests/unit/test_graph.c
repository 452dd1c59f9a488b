#include "test.h"

#include "ir/print.h"
#include "ops/random_graph.h"
#include "bare_target.h"

#include <math.h>

static hp_graph *new_graph(void) {
  hp_graph *g;
  CHECK_OK(graph_create(NULL, &g)); /* its ids are those of its values */
  return g;
}

static char *text_of(const hp_graph *g) {
  char *text;
  CHECK_OK(hp_graph_print(g, &text));
  return text;
}

TEST(a_graph_prints_types_operands_attributes_and_places) {
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x \"quoted\"\n", HP_BF16, (hp_shape){2, {3, 0}});
  hp_at(g, "model.layers.0");
  hp_block(g, 1);
  hp_tensor y = hp_transpose(g, x, (int64_t[]){1, 0});
  hp_at(g, NULL);
  hp_block(g, 0);
  hp_update_phase(g);
  hp_output(g, "y", hp_scale(g, y, 0.1));
  char *text = text_of(g);
  CHECK_STR(text, "%1:bf16[3,0] = input {name=\"x \\\"quoted\\\"\\n\", dtype=bf16, shape=[3,0]}\n"
                  "%2:bf16[0,3] = transpose %1 {perm=[1,0]} @\"model.layers.0\" block=1\n"
                  "%3:bf16[] = const {value=0.1, dtype=bf16, shape=[]} phase=update\n"
                  "%4:bf16[0,3] = mul %2, %3 phase=update\n"
                  "output %4 {name=\"y\"} phase=update\n");
  hp_free(text);
  hp_graph_free(g);
}

TEST(the_first_failure_poisons_a_graph_and_is_the_one_that_is_told) {
  hp_graph *g = new_graph();
  hp_device *d;
  hp_program *p;
  char *text;
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {2, 3}});
  hp_tensor z = hp_input(g, "z", HP_I32, (hp_shape){1, {3}});
  CHECK_OK(hp_graph_status(g));
  hp_at(g, "model.head");
  CHECK_EQ(hp_einsum(g, "ab,bc->ac", x, x), HP_NONE);
  CHECK_EQ(hp_add(g, x, z), HP_NONE); /* wrong too, but later */
  CHECK_EQ(hp_add(g, x, x), HP_NONE); /* and this would be right */
  hp_output(g, "y", x);
  CHECK_FAILS(hp_graph_status(g), "model.head");
  CHECK_FAILS(hp_graph_status(g), "einsum");
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_FAILS(hp_compile(g, d, NULL, &p), "einsum");
  CHECK_OK(hp_graph_print(g, &text)); /* what was there before */
  CHECK(strstr(text, "%2:i32[3]") && !strstr(text, "output"));
  hp_free(text);
  hp_device_close(d);
  hp_graph_free(g);
}

/* Prints, reads and prints again: the same text, and a sound graph. */
static void check_round_trip(const hp_graph *g) {
  char *text = text_of(g), *again;
  hp_graph *h;
  if (graph_parse(text, strlen(text), "text", &h) || ops_verify(h))
    test_fail(__FILE__, __LINE__, "%s\n%s", err_message(), text);
  again = text_of(h);
  CHECK_STR(again, text);
  hp_free(text);
  hp_free(again);
  graph_free(h);
}

TEST(every_part_of_a_place_reads_back) {
  hp_graph *g;
  static const char text[] =
      "%1:f32[] = const {value=1.0, dtype=f32, shape=[]} @\"a\\u0007b\" block=65535 phase=backward "
      "stage=65535 group=255\n%2:f32[] = exp %1\n";
  CHECK_OK(hp_graph_parse(text, "text", &g));
  char *again = text_of(g);
  CHECK_STR(again, text);
  hp_free(again);
  hp_graph_free(g);
}

static const random_options kinds[] = {{.streams = false}, {.dtypes = true, .streams = true}};

TEST(random_graphs_read_back_as_they_were_printed_after_every_pass) {
  for (uint64_t seed = 0; seed < 80; seed++) {
    random_graph x;
    random_graph_make(seed, &kinds[seed % 2], &x);
    check_round_trip(x.g);
    const hp_graph *at = x.g;
    hp_graph *made = NULL, *next;
    for (int i = 0; pass_table[i].name; i++) {
      capabilities can = capabilities_usual();
      hp_compile_options options = {.remat = true};
      pass_options o = {.options = &options, .can = &can};
      CHECK_OK(pass_table[i].run(at, &o, &next));
      graph_free(made);
      at = made = next;
      check_round_trip(at);
    }
    graph_free(made);
    random_graph_free(&x);
  }
}

static char *program_of(const hp_graph *g, hp_device *d) {
  hp_program *p;
  char *text;
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_program_print(p, &text));
  hp_program_free(p);
  return text;
}

TEST(a_graph_and_its_text_compile_to_the_same_program) {
  hp_device *d;
  for (uint64_t seed = 100; seed < 130; seed++) {
    random_graph x;
    hp_graph *h;
    random_graph_make(seed, &kinds[seed % 2], &x);
    CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
    char *text = text_of(x.g);
    CHECK_OK(hp_graph_parse(text, "text", &h));
    char *a = program_of(x.g, d), *b = program_of(h, d);
    CHECK_STR(a, b);
    hp_free(a), hp_free(b), hp_free(text);
    hp_graph_free(h);
    hp_device_close(d);
    random_graph_free(&x);
  }
}

TEST(numbers_of_every_kind_read_back) {
  static const double odd[] = {0.0,  -0.0,     0.1,      1e-310,    -3e38,  1.0 / 3,
                               1e16, 12345678, INFINITY, -INFINITY, 5e-324, 0x1.fffffep127};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    hp_graph *g = new_graph(), *h;
    hp_output(g, "y", hp_const(g, HP_F32, odd[i]));
    char *text = text_of(g);
    CHECK_OK(hp_graph_parse(text, "text", &h));
    double back = attr_float(h, graph_node(h, 0), "value");
    CHECK(!memcmp(&back, &odd[i], sizeof back));
    hp_free(text);
    hp_graph_free(g);
    hp_graph_free(h);
  }
}

TEST(verify_finds_every_wrong_type) {
  for (uint64_t seed = 200; seed < 220; seed++) {
    random_graph x;
    random_graph_make(seed, &kinds[1], &x);
    CHECK_OK(ops_verify(x.g));
    for (val v = 1; v < x.g->values.len; v++) {
      ir_value was = x.g->values.at[v];
      ir_value bad[3] = {was, was, was};
      bad[0].dtype = (uint8_t)((was.dtype + 1) % HP_DTYPE_COUNT);
      bad[1].dim[was.rank ? was.rank - 1 : 0] += was.rank != 0;
      bad[1].rank = was.rank ? was.rank : 1;
      bad[2].rank = (uint8_t)(was.rank == HP_MAX_RANK ? was.rank - 1 : was.rank + 1);
      for (int k = 0; k < 3; k++) {
        x.g->values.at[v] = bad[k];
        if (!ops_verify(x.g)) test_fail(__FILE__, __LINE__, "seed %d, %%%u, %d", (int)seed, v, k);
        err_clear();
      }
      x.g->values.at[v] = was;
    }
    random_graph_free(&x);
  }
}

TEST(verify_finds_operands_that_are_made_later) {
  hp_graph *g = new_graph();
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){1, {4}});
  hp_tensor y = hp_add(g, x, x), z = hp_add(g, y, y);
  CHECK_OK(ops_verify(g));
  g->ins.at[graph_def(g, y)->in0] = z;
  CHECK_FAILS(ops_verify(g), "before it is made");
  g->ins.at[graph_def(g, y)->in0] = 0;
  CHECK_FAILS(ops_verify(g), "before it is made");
  hp_graph_free(g);
}

TEST(damaged_graph_text_is_refused_or_sound) {
  random_graph x;
  hp_graph *g;
  rng r = {.seed = 7};
  random_graph_make(7, &kinds[1], &x);
  char *text = text_of(x.g);
  size_t n = strlen(text);
  for (int i = 0; i < 4000; i++) {
    size_t at = rng_next(&r) % n;
    char was = text[at];
    text[at] = rng_chance(&r, 50) ? text[rng_next(&r) % n] : (char)(rng_next(&r) % 255 + 1);
    if (!hp_graph_parse(text, "changed", &g)) {
      check_round_trip(g);
      hp_graph_free(g);
    }
    err_clear();
    text[at] = was;
  }
  hp_free(text);
  random_graph_free(&x);
}

static hp_status parse_and_pass(const char *text) {
  hp_graph *g;
  program *p;
  HP_TRY(hp_graph_parse(text, "text", &g));
  hp_status st = bare_compile(g, &(hp_compile_options){.remat = true}, &p);
  if (!st) program_free(p);
  hp_graph_free(g);
  return st;
}

static hp_status build_and_pass(void) {
  hp_graph *g;
  char *text = NULL;
  hp_tensor dw;
  HP_TRY(hp_graph_create(&g));
  hp_at(g, "here");
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {5, 7}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {3, 7}});
  hp_tensor y = hp_softmax(g, hp_einsum(g, "bc,nc->bn", x, w));
  hp_status st = hp_grad(g, hp_sum(g, y, (int64_t[]){0, 1}, 2, false), &w, 1, &dw);
  if (!st) {
    hp_assign(g, w, dw);
    st = hp_graph_print(g, &text);
  }
  if (!st) st = hp_graph_status(g);
  if (!st) st = parse_and_pass(text);
  hp_free(text);
  hp_graph_free(g);
  return st;
}

TEST(building_and_passing_survive_every_failed_allocation) {
  for (uint64_t k = 1;; k++) {
    mem_fail_at(k);
    hp_status st = build_and_pass();
    mem_fail_at(0);
    if (!st) break;
    CHECK_EQ(st, HP_ERR_OOM);
    err_clear();
    CHECK(k < 3000);
  }
}
