/* The template of a model directory: where it is found, and conversations rendered by it. */
#include "base/io.h"
#include "base/json.h"
#include "jinja/model_template.h"
#include "test.h"

static void put(const char *name, const char *text) {
  str path = {0}, folder = {0};
  CHECK_OK(path_join(&path, test_dir(), name));
  CHECK_OK(path_parent(path.at, &folder));
  CHECK_OK(dir_create(folder.at));
  CHECK_OK(file_write(path.at, text, strlen(text)));
  str_free(&path);
  str_free(&folder);
}

static hp_status render(const model_template *t, const char *json, bool generate, str *out) {
  static const template_variable bos[] = {{.name = "bos_token", .text = "<s>", .len = 3}};
  tree conversation;
  HP_TRY(json_parse(json, strlen(json), "chats.jsonl", &conversation));
  hp_status st = model_template_render(t, &conversation, bos, 1, generate, out);
  tree_free(&conversation);
  return st;
}

/* What the template in the test's folder gives for a conversation. */
static void check_gives(const char *json, const char *want) {
  model_template t;
  str out = {0};
  CHECK_OK(model_template_load(test_dir(), &t));
  CHECK(t.plain);
  CHECK_OK(render(&t, json, false, &out));
  CHECK_STR(out.at, want);
  str_free(&out);
  model_template_free(&t);
}

static const char plain[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";
static const char with_tools[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [{\"name\": \"f\"}]}";

TEST(the_jinja_file_comes_before_the_configurations) {
  put("chat_template.json", "{\"chat_template\": \"json\"}");
  check_gives(plain, "json");
  put("tokenizer_config.json", "{\"chat_template\": \"config\"}");
  check_gives(plain, "config");
  put("chat_template.jinja", "file");
  check_gives(plain, "file");
  check_gives(with_tools, "file");
  put("additional_chat_templates/tool_use.jinja", "tools");
  check_gives(plain, "file");
  check_gives(with_tools, "tools");
}

TEST(a_configuration_without_a_template_is_passed_over) {
  model_template t;
  CHECK_OK(model_template_load(test_dir(), &t));
  CHECK(!t.plain && !t.tools);
  put("tokenizer_config.json", "{\"chat_template\": null, \"bos_token\": \"<s>\"}");
  CHECK_OK(model_template_load(test_dir(), &t));
  CHECK(!t.plain && !t.tools);
  put("chat_template.json", "{\"chat_template\": \"json\"}");
  check_gives(plain, "json");
}

TEST(a_list_has_templates_by_name) {
  put("tokenizer_config.json",
      "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"},"
      "{\"name\": \"rag\", \"template\": \"{{\"}, {\"name\": \"tool_use\", \"template\": \"t\"}]}");
  check_gives(plain, "d");
  check_gives(with_tools, "t");
  put("tokenizer_config.json",
      "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}]}");
  check_gives(with_tools, "d");
}

TEST(broken_templates_of_a_model_are_refused_with_their_place) {
  model_template t;
  put("tokenizer_config.json", "{\n \"chat_template\": \"a\\n{{ b\"}");
  CHECK_FAILS(model_template_load(test_dir(), &t),
              "tokenizer_config.json:2:19: chat_template:2:1: the tag has no end");
  put("tokenizer_config.json", "{\"chat_template\": 5}");
  CHECK_FAILS(model_template_load(test_dir(), &t), "chat_template: expected a string, found 5");
  put("tokenizer_config.json", "{\"chat_template\": \"a\"");
  CHECK_FAILS(model_template_load(test_dir(), &t), "tokenizer_config.json:1:22");
  put("tokenizer_config.json", "[]");
  CHECK_FAILS(model_template_load(test_dir(), &t), "expected a map of keys");
  put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"x\", \"template\": \"a\"}]}");
  CHECK_FAILS(model_template_load(test_dir(), &t),
              "none of the templates has the name \"default\"");
  put("tokenizer_config.json", "{\"chat_template\": [{\"template\": \"a\"}]}");
  CHECK_FAILS(model_template_load(test_dir(), &t), "chat_template[0]");
  put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}");
  CHECK_FAILS(model_template_load(test_dir(), &t), "template");
  put("chat_template.jinja", "{% if %}");
  CHECK_FAILS(model_template_load(test_dir(), &t), "chat_template.jinja:1:7: expected a value");
}

TEST(conversations_bring_variables) {
  put("chat_template.jinja",
      "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
      "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking }}");
  check_gives(plain, "<s>user:Hi;TrueTrueFalse");
  check_gives(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"enable_thinking\": false,"
      "\"bos_token\": \"B\", \"documents\": []}",
      "Buser:Hi;TrueFalseFalseFalse");
  model_template t;
  str out = {0};
  CHECK_OK(model_template_load(test_dir(), &t));
  CHECK_OK(render(&t, plain, true, &out));
  CHECK_STR(out.at, "<s>user:Hi;TrueTrueTrue");
  str_free(&out);
  model_template_free(&t);
}

TEST(what_is_no_conversation_is_refused_with_its_place) {
  model_template t;
  str out = {0};
  put("chat_template.jinja", "x");
  CHECK_OK(model_template_load(test_dir(), &t));
  CHECK_FAILS(render(&t, "5", true, &out), "chats.jsonl:1:1: expected a map of keys, found 5");
  CHECK_FAILS(render(&t, "{\"tools\": []}", true, &out), "messages");
  CHECK_FAILS(render(&t, "[]", true, &out), "a conversation without a message");
  CHECK_FAILS(render(&t, "{\"messages\": {}}", true, &out), "messages: expected a list");
  CHECK_FAILS(render(&t, "[\"Hi\"]", true, &out), "messages[0]: expected a map");
  CHECK_FAILS(render(&t, "[{\"content\": \"Hi\"}]", true, &out), "role");
  CHECK(!out.len);
  str_free(&out);
  model_template_free(&t);
}
