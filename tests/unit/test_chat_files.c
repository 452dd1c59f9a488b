/* What is saved of a template: its Jinja text, and the end token. */
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "dataset/chat_encode.h"
#include "dataset/chat_jinja.h"
#include "jinja/model_template.h"
#include "test.h"
#include "train/chat_files.h"

#include <string.h>

static const char chats[] = "tests/golden/chats";

static void check_digest(const chat_template *t, const char *bos, const char *eos,
                         const char *expected) {
  char digest[20] = "-";
  str text = {0};
  if (chat_jinja_print(t, bos, eos, &text))
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)hash_bytes(text.at, text.len));
  CHECK_STR(digest, expected);
  str_free(&text);
}

TEST(chat_templates_are_the_jinja_of_llamafactory) {
  char path[256], line[256];
  snprintf(path, sizeof path, "%s/jinja.txt", chats);
  FILE *f = fopen(path, "r");
  int n = 0;
  CHECK(f);
  while (fgets(line, sizeof line, f)) {
    char name[64], with[20], without[20], replaces[20] = "";
    chat_template t;
    if (*line == '#') continue;
    CHECK(sscanf(line, "%63s %19s %19s %19s", name, with, without, replaces) >= 3);
    CHECK_OK(chat_template_find(name, &t));
    const char *eos = t.replaces_eos ? t.stop[0] : "<|eos|>";
    check_digest(&t, "<|bos|>", eos, with);
    check_digest(&t, NULL, eos, without);
    CHECK_EQ(t.replaces_jinja, !strcmp(replaces, "replaces"));
    n++;
  }
  fclose(f);
  CHECK_EQ(n, 121);
}

/* --- files -------------------------------------------------------------------------------------
 */

typedef struct {
  tokenizer *t;
  model_files files;
} fixture;

/* A model whose tokenizer_config.json is that text. */
static void begin(fixture *f, const char *config) {
  char path[512];
  *f = (fixture){0};
  CHECK_OK(model_files_copy(chats, test_dir()));
  snprintf(path, sizeof path, "%s/tokenizer_config.json", test_dir());
  CHECK_OK(file_write(path, config, strlen(config)));
  CHECK_OK(tokenizer_load(test_dir(), &f->t));
  CHECK_OK(model_files_read(test_dir(), &f->files));
}

static void end(fixture *f) {
  tokenizer_free(f->t);
  model_files_free(&f->files);
}

static const model_file *find(const fixture *f, const char *name) {
  for (size_t i = 0; i < f->files.n; i++)
    if (!strcmp(f->files.file[i].name, name)) return &f->files.file[i];
  return NULL;
}

static bool says(const model_file *f, const char *word) {
  return f && memmem(f->bytes, f->len, word, strlen(word));
}

static const char plain[] = "{\"bos_token\": \"<|bos|>\", \"eos_token\": \"<|eos|>\"}";
static const char own[] = "{\"eos_token\": \"<|eos|>\", \"chat_template\": \"mine\", \"x\": [1]}";

TEST(chat_template_is_added_where_there_is_none) {
  fixture f;
  begin(&f, plain);
  CHECK_OK(chat_files_complete("qwen", f.t, &f.files));
  CHECK(says(find(&f, "chat_template.jinja"), "You are Qwen"));
  CHECK(says(find(&f, "tokenizer_config.json"), "\"eos_token\": \"<|im_end|>\""));
  CHECK(says(find(&f, "tokenizer_config.json"), "\"bos_token\": \"<|bos|>\""));
  end(&f);
}

TEST(chat_template_of_the_model_stays) {
  fixture f;
  begin(&f, own);
  CHECK_OK(chat_files_complete("qwen", f.t, &f.files));
  CHECK(!find(&f, "chat_template.jinja"));
  CHECK(says(find(&f, "tokenizer_config.json"), "\"chat_template\": \"mine\""));
  end(&f);
}

TEST(chat_template_of_a_row_that_says_so_replaces_the_models) {
  fixture f;
  begin(&f, own);
  CHECK_OK(chat_files_complete("default", f.t, &f.files));
  CHECK(says(find(&f, "chat_template.jinja"), "'Human: ' + content + '<|eos|>' + '\nAssistant:'"));
  CHECK(says(find(&f, "tokenizer_config.json"), "\"eos_token\": \"<|eos|>\""));
  end(&f);
}

TEST(chat_template_of_tokens_is_not_written) {
  fixture f;
  begin(&f, plain);
  CHECK_OK(chat_files_complete("chatglm3", f.t, &f.files));
  CHECK(!find(&f, "chat_template.jinja"));
  end(&f);
}

TEST(chat_template_saved_writes_conversations) {
  static const char talk[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
  fixture f;
  model_template t;
  tree messages;
  str text = {0};
  begin(&f, plain);
  CHECK_OK(chat_files_complete("default", f.t, &f.files));
  CHECK_OK(model_files_write(&f.files, test_dir()));
  CHECK_OK(model_template_load(test_dir(), &t));
  CHECK_OK(json_parse(talk, sizeof talk - 1, "talk", &messages));
  CHECK_OK(model_template_render(&t, &messages, NULL, 0, true, &text));
  CHECK_STR(text.at, "Human: Hi<|eos|>\nAssistant:");
  str_free(&text);
  tree_free(&messages);
  model_template_free(&t);
  end(&f);
}

/* glm4 stops at two words besides the end token, which is named once. */
TEST(answers_end_at_every_stop_word_of_the_template) {
  chat_template t;
  tokenizer *with;
  int32_t ids[4];
  CHECK_OK(tokenizer_load(chats, &with));
  CHECK_OK(chat_template_find("glm4", &t));
  int32_t user = tokenizer_find(with, "<|user|>", 8);
  int32_t observation = tokenizer_find(with, "<|observation|>", 15);
  CHECK(user >= 0 && observation >= 0);
  CHECK_EQ(chat_find_ends(&t, with, 7, ids, 4), 3);
  CHECK(ids[0] == 7 && ids[1] == user && ids[2] == observation);
  CHECK_EQ(chat_find_ends(&t, with, user, ids, 4), 2);
  CHECK(ids[0] == user && ids[1] == observation);
  CHECK_EQ(chat_find_ends(&t, with, 7, ids, 2), 2);
  tokenizer_free(with);
}
