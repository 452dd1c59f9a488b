/* The files that go with a model, read once and written later. */
#include "base/io.h"
#include "ckpt/model_files.h"
#include "test.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *at(const char *name) {
  static str path;
  CHECK_OK(path_join(&path, test_dir(), name));
  return path.at;
}

TEST(what_is_written_is_what_was_read) {
  model_files m;
  char *text;
  size_t n;
  CHECK_OK(file_write(at("tokenizer.json"), "{\"a\":1}", 7));
  CHECK_OK(file_write(at("merges.txt"), "", 0));
  CHECK_OK(file_write(at("model.safetensors"), "x", 1));
  CHECK_OK(file_write(at("chat_template.jinja"), "{{ a }}", 7));
  CHECK_OK(file_write(at("chat_template.json"), "{}", 2));
  CHECK_OK(model_files_read(test_dir(), &m));
  CHECK_EQ(m.n, 4);
  CHECK_OK(file_write(at("tokenizer.json"), "changed since", 13));
  CHECK(!unlink(at("merges.txt")));
  CHECK_OK(dir_create(at("to")));
  CHECK_OK(model_files_write(&m, at("to")));
  model_files_free(&m);
  CHECK_EQ(m.n, 0);
  CHECK_OK(file_read(at("to/tokenizer.json"), 0, &text, &n));
  CHECK_STR(text, "{\"a\":1}");
  mem_free(text);
  CHECK_OK(file_read(at("to/merges.txt"), 0, &text, &n));
  CHECK_EQ(n, 0);
  mem_free(text);
  CHECK(file_exists(at("to/chat_template.jinja")) && file_exists(at("to/chat_template.json")));
  CHECK(!file_exists(at("to/model.safetensors")));
}

TEST(a_file_that_no_tokenizer_is_as_large_as_is_refused) {
  model_files m;
  CHECK_OK(file_write(at("vocab.json"), "{}", 2));
  CHECK(!truncate(at("vocab.json"), (off_t)MODEL_FILE_BYTES_MAX + 1));
  CHECK_FAILS(model_files_read(test_dir(), &m), "vocab.json: larger than the 268435456 bytes");
}
