#include "test.h"

#include "base/str.h"
#include "prog/program.h"

#include <stdlib.h>

/* A small training step as program text. */
static char *step_text(void) {
  hp_graph *g;
  hp_device *d;
  hp_program *p;
  char *text;
  hp_tensor dw;
  CHECK_OK(hp_graph_create(&g));
  hp_at(g, "layer \"one\"");
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){2, {5, 7}});
  hp_tensor y = hp_input(g, "y", HP_I32, (hp_shape){1, {5}});
  hp_tensor w = hp_param(g, "w", HP_F32, (hp_shape){2, {3, 7}});
  hp_tensor loss = hp_cross_entropy(g, hp_einsum(g, "bc,nc->bn", x, w), y, -100);
  loss = hp_sum(g, loss, (int64_t[]){0}, 1, false);
  CHECK_OK(hp_grad(g, loss, &w, 1, &dw));
  hp_assign(g, w, hp_sub(g, w, hp_scale(g, dw, 0.1)));
  hp_output(g, "loss", hp_reshape(g, loss, (hp_shape){1, {1}}));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_program_print(p, &text));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
  return text;
}

TEST(a_program_reads_back_as_it_was_printed) {
  char *text = step_text();
  program *p;
  str again = {0};
  CHECK_OK(program_parse(text, strlen(text), "step", &p));
  CHECK_OK(program_print(p, &again));
  CHECK_STR(again.at, text);
  str_free(&again);
  program_free(p);
  hp_free(text);
}

TEST(states_keep_the_tier_that_a_text_names) {
  const char *text = "b0 = f32[4] state \"a\" class=1\nb1 = f32[4] state host \"b\"\n"
                     "b2 = f32[4] state flash \"flash\" class=2\nb3 = f32[2] view b2+8\n";
  program *p;
  str again = {0};
  CHECK_OK(program_parse(text, strlen(text), "states", &p));
  for (uint32_t b = 0; b < 4; b++) CHECK_EQ(p->buffers.at[b].tier, b < 3 ? b : TIER_FLASH);
  CHECK_OK(program_print(p, &again));
  CHECK_STR(again.at, text);
  str_free(&again);
  program_free(p);
}

TEST(instructions_keep_the_micro_batch_that_a_text_names) {
  const char *text =
      "arena device 512 bound 512 at 0\n"
      "b0 = f32[2] state \"a\"\nb1 = f32[2] device+0\nb2 = f32[2] device+256\n"
      "compute: b1 = exp b0 stage=1 micro=0\ncompute: b2 = exp b0 micro=4294967294\n";
  program *p;
  str again = {0};
  CHECK_OK(program_parse(text, strlen(text), "micros", &p));
  CHECK_EQ(program_inst(p, 0)->micro, 1);
  CHECK_OK(program_print(p, &again));
  CHECK_STR(again.at, text);
  str_free(&again);
  program_free(p);
  text = "b0 = f32[2] state \"a\"\ncompute: b0 = exp b0 micro=4294967295\n";
  CHECK_EQ(program_parse(text, strlen(text), "micros", &p), HP_ERR_INPUT);
}

TEST(a_damaged_program_text_is_refused_and_never_crashes) {
  char *text = step_text();
  size_t n = strlen(text);
  program *p;
  unsigned seed = 5;
  for (size_t cut = 0; cut < n; cut += 7) {
    if (!program_parse(text, cut, "cut", &p)) program_free(p);
    err_clear();
  }
  for (int i = 0; i < 3000; i++) {
    size_t at = (size_t)rand_r(&seed) % n;
    char was = text[at];
    text[at] = (char)rand_r(&seed);
    if (!program_parse(text, n, "changed", &p)) program_free(p);
    err_clear();
    text[at] = was;
  }
  CHECK_FAILS(program_parse("b0 = f32[4] device+0\n", 21, "t", &p), "is not inside its arena");
  CHECK_FAILS(program_parse("compute: b0 = exp b1\n", 21, "t", &p), "t:1:");
  CHECK_FAILS(program_parse("arena host 64 bound 0 at 0\nb1 = f32[1] host+0\n", 47, "t", &p), "b0");
  static const char again[] = "arena device 64 bound 0 at 0\nb0 = f32[16] device+0\n"
                              "arena device 4 bound 0 at 0\n";
  CHECK_FAILS(program_parse(again, strlen(again), "t", &p), "t:3:13: an arena is described once");
  static const char word[] = "arena device 64 least 0 at 0\n";
  CHECK_FAILS(program_parse(word, strlen(word), "t", &p), "expected bound, found \"least\"");
  CHECK_FAILS(program_parse("nothing\n", 8, "t", &p), "is not arena");
  hp_free(text);
}
