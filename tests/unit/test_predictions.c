#include "tokenizer_help.h"

#include "base/mem.h"
#include "train/predictions.h"

/* Bytes are their own ids; <p> 276, which is special, pads. */
enum { PAD = 276, X = LABEL_NONE };

/* Prompts "ab", "c", "d"; labels "e", "fgh", and none. */
static int32_t ids[] = {'a', 'b', 'e', 'c', 'f', 'g', 'h', 'd'};
static int32_t labels[] = {X, X, 'e', X, 'f', 'g', 'h', X};
static int64_t start[] = {0, 3, 7, 8};
static const sample_set set = {.ids = ids,
                               .labels = labels,
                               .start = start,
                               .samples = 3,
                               .multiple = 1};

static tokenizer *make(void) {
  return small("{`added_tokens`:[{`id`:276,`content`:`<p>`,`special`:true}]}");
}

/* Answers: a quotation mark and a pad, a pad and a line end, é as bytes. */
static hp_status answer(predictions *p) {
  static const int32_t of[3][2] = {{'"', PAD}, {PAD, '\n'}, {0xc3, 0xa9}};
  hp_status st = predictions_create(&set, 3, p);
  for (int i = 0; !st && i < 3; i++)
    for (int k = 0; k < 2; k++)
      if (!vec_push(&p->answer[i], of[i][k])) return HP_ERR_OOM;
  return st;
}

static void check_lines(const predictions_form *f, const char *want) {
  predictions p;
  str lines = {0};
  tokenizer *t = make();
  CHECK_OK(answer(&p));
  CHECK_OK(predictions_print(&p, t, f, &lines));
  CHECK_STR(lines.at, want);
  str_free(&lines);
  predictions_free(&p);
  tokenizer_free(t);
}

TEST(predictions_are_lines_of_json_without_special_tokens) {
  check_lines(&(predictions_form){.skip_special = true, .batch = 1, .pad = PAD},
              "{\"prompt\": \"ab\", \"predict\": \"\\\"\", \"label\": \"e\"}\n"
              "{\"prompt\": \"c\", \"predict\": \"\\n\", \"label\": \"fgh\"}\n"
              "{\"prompt\": \"d\", \"predict\": \"\303\251\", \"label\": \"\"}\n");
}

#define PADS_18 "<p><p><p><p><p><p><p><p><p><p><p><p><p><p><p><p><p><p>"
TEST(predictions_with_special_tokens_show_the_padding_of_batches) {
  check_lines(&(predictions_form){.batch = 2, .pad = PAD},
              "{\"prompt\": \"ab\", \"predict\": \"\\\"<p>" PADS_18 "\", \"label\": \"<p><p>e\"}\n"
              "{\"prompt\": \"c\", \"predict\": \"\\n<p>" PADS_18 "\", \"label\": \"fgh\"}\n"
              "{\"prompt\": \"d\", \"predict\": \"\303\251" PADS_18
              "\", \"label\": \"<p><p><p>\"}\n");
}

/* Prompts are padded to a multiple in front of the answers. */
TEST(predictions_are_as_wide_as_padded_prompts_and_answers) {
  sample_set wide = set;
  predictions p;
  str lines = {0};
  tokenizer *t = make();
  wide.multiple = 32;
  CHECK_OK(answer(&p));
  p.set = &wide;
  CHECK_OK(predictions_print(&p, t, &(predictions_form){.batch = 2, .pad = PAD}, &lines));
  size_t pads = 0, prompt = strlen("{\"prompt\": \"ab\"");
  for (const char *at = lines.at + prompt; (at = strstr(at, "<p>")); at += 3) pads++;
  /* rows of 32 + 2 tokens, all pads but 1, 1 and 2; labels of 32, with 1, 3 and none */
  CHECK_EQ(pads, 3 * 34 - 4 + 3 * 32 - 4);
  str_free(&lines);
  predictions_free(&p);
  tokenizer_free(t);
}

TEST(predictions_fail_cleanly_without_memory) {
  const predictions_form f = {.batch = 2, .pad = PAD};
  tokenizer *t = make();
  hp_status st = HP_ERR_OOM;
  for (uint64_t k = 1; st; k++) {
    predictions p = {0};
    similarity s = {0};
    str lines = {0};
    mem_fail_at(k);
    st = answer(&p);
    if (!st) st = predictions_score(&p, t, &s);
    if (!st) st = predictions_print(&p, t, &f, &lines);
    mem_fail_at(0);
    if (st) CHECK_EQ(st, HP_ERR_OOM);
    err_clear();
    predictions_free(&p);
    similarity_free(&s);
    str_free(&lines);
    CHECK(k < 2000);
  }
  tokenizer_free(t);
}
