#include "test.h"

#include "base/mem.h"
#include "metric/bleu.h"
#include "metric/rouge.h"
#include "metric/similarity.h"
#include "metric/words.h"

typedef struct {
  const char *at;
  size_t n;
} test_text;

#include "similarity_cases.h"

enum { PAIRS = sizeof pairs / sizeof *pairs, MEANS = sizeof means / sizeof *means };

static str text_of(test_text t) {
  str s = {0};
  str_add_n(&s, t.at, t.n);
  return s;
}

static void add_pair(similarity *s, size_t i) {
  str prediction = text_of(pairs[i].prediction), label = text_of(pairs[i].label);
  CHECK_OK(similarity_add(s, &prediction, &label));
  str_free(&prediction);
  str_free(&label);
}

TEST(words_are_those_of_jieba) {
  for (size_t i = 0; i < PAIRS; i++) {
    str text = text_of(pairs[i].prediction), words = {0};
    bool chinese = false;
    words_join(&text, &words, &chinese);
    const char *want = pairs[i].words.at;
    bool same =
        words.len == pairs[i].words.n && !memcmp(words.len ? words.at : "", want, words.len);
    if (!same)
      test_fail(__FILE__, __LINE__, "pair %zu: words \"%s\", want \"%s\"", i, words.at, want);
    str_free(&text);
    str_free(&words);
  }
}

TEST(similarity_scores_are_those_of_llamafactory) {
  similarity s = {0};
  for (size_t i = 0; i < PAIRS; i++) {
    add_pair(&s, i);
    for (int k = 0; k < SIMILARITIES; k++)
      if (s.score[k].at[i] != pairs[i].score[k])
        test_fail(__FILE__, __LINE__, "pair %zu: %s is %.17g, want %.17g", i, similarity_name[k],
                  s.score[k].at[i], pairs[i].score[k]);
  }
  similarity_free(&s);
}

TEST(similarity_means_are_those_of_numpy) {
  similarity s = {0};
  CHECK(similarity_mean(&s, 0) != similarity_mean(&s, 0));
  for (size_t i = 0, k = 0; i < PAIRS; i++) {
    add_pair(&s, i);
    for (; k < MEANS && means[k].n == i + 1; k++)
      for (int x = 0; x < SIMILARITIES; x++)
        if (similarity_mean(&s, x) != means[k].score[x])
          test_fail(__FILE__, __LINE__, "%s of %zu: %.17g, want %.17g", similarity_name[x], i + 1,
                    similarity_mean(&s, x), means[k].score[x]);
  }
  similarity_free(&s);
}

TEST(each_chinese_character_is_a_word) {
  str text = {0}, words = {0};
  bool chinese = false;
  str_add(&text, "I say \u4f60\u597dC++.");
  words_join(&text, &words, &chinese);
  CHECK_STR(words.at, "I   say   \u4f60 \u597d C++ .");
  CHECK(chinese);
  str_free(&text);
  str_free(&words);
}

TEST(similarity_fails_cleanly_without_memory) {
  str prediction = {0}, label = {0};
  str_add(&prediction, "a b? c");
  str_add(&label, "a c......x b");
  hp_status st = HP_ERR_OOM;
  for (int64_t k = 1; st; k++) {
    similarity s = {0};
    mem_fail_at((uint64_t)k);
    st = similarity_add(&s, &prediction, &label);
    mem_fail_at(0);
    similarity_free(&s);
    if (st) CHECK_EQ(st, HP_ERR_OOM);
    err_clear();
    CHECK(k < 1000);
  }
  str_free(&prediction);
  str_free(&label);
}
