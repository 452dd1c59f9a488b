#include "test.h"

#include "base/io.h"
#include "data/tokenizer.h"

#include <stdlib.h>

static tokenizer *load(const char *path) {
  tokenizer *t;
  CHECK_OK(tokenizer_load(path, &t));
  return t;
}

/* Ids as "1 2 3". */
static char *encode(const tokenizer *t, const char *text, size_t n, unsigned flags) {
  token_ids ids = {0};
  str s = {0};
  CHECK_OK(tokenizer_encode(t, text, n, flags, &ids));
  str_add(&s, "");
  for (size_t i = 0; i < ids.len; i++) str_printf(&s, "%s%d", i ? " " : "", ids.at[i]);
  vec_free(&ids);
  return str_take(&s);
}

static void put_file(const char *dir, const char *name, const char *from) {
  str path = {0};
  char *bytes;
  size_t n;
  CHECK_OK(path_join(&path, dir, name));
  CHECK_OK(file_read(from, 0, &bytes, &n));
  CHECK_OK(file_write(path.at, bytes, n));
  mem_free(bytes);
  str_free(&path);
}

static void check_vectors(const tokenizer *t, const char *want_path) {
  static const char cut[] = "\n__ggml_vocab_test__\n";
  char *text, *want;
  size_t n, want_n;
  CHECK_OK(file_read(test_data("vectors/all.inp"), 0, &text, &n));
  CHECK_OK(file_read(want_path, 0, &want, &want_n));
  int count = 0;
  char *line = want;
  for (char *at = text, *next; at; at = next, count++) {
    char *stop = strstr(at, cut), *newline = strchr(line, '\n');
    next = stop ? stop + strlen(cut) : NULL;
    if (newline) *newline = 0;
    char *got = encode(t, at, stop ? (size_t)(stop - at) : strlen(at), 0);
    CHECK_STR(got, line + (*line == ' '));
    mem_free(got);
    if (newline) line = newline + 1;
  }
  CHECK_EQ(count, 47);
  mem_free(text);
  mem_free(want);
}

TEST(gpt2_passes_the_47_vectors) {
  tokenizer *t = load(test_data("tokenizer/gpt2.tokenizer.json"));
  CHECK_EQ(tokenizer_size(t), 50257);
  check_vectors(t, test_data("vectors/gpt-2.out"));
  tokenizer_free(t);
}

TEST(qwen2_from_vocab_and_merges_passes_the_47_vectors) {
  put_file(test_dir(), "vocab.json", test_data("tokenizer/qwen2.vocab.json"));
  put_file(test_dir(), "merges.txt", test_data("tokenizer/qwen2.merges.txt"));
  put_file(test_dir(), "tokenizer_config.json", test_data("tokenizer/qwen2.tokenizer_config.json"));
  tokenizer *t = load(test_dir());
  check_vectors(t, test_data("vectors/qwen2.out"));
  CHECK_EQ(tokenizer_role(t, TOKEN_EOS), 151645);
  CHECK_EQ(tokenizer_role(t, TOKEN_PAD), 151643);
  CHECK_EQ(tokenizer_role(t, TOKEN_BOS), -1);
  tokenizer_free(t);
}
