/* Chat templates: the input is a template and, behind a line "---", the context as JSON.  A
 * template renders twice to the same text, or fails twice, and the output is UTF-8. */
#include "fuzz.h"

#include "base/json.h"
#include "base/utf8.h"
#include "jinja/jinja.h"

#include <string.h>

static const char usual[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief. \"},"
    "{\"role\": \"user\", \"content\": \"Hi <b>\\n\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\","
    "\"arguments\": {\"x\": 1.5, \"y\": [true, null, \"\\u00fc\"]}}}]}],"
    "\"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"a\": {\"type\": \"int\"}}}}],"
    "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_generation_prompt\": true, \"n\": -7}";

static void check_utf8(const str *s) {
  uint32_t c;
  for (size_t at = 0, n; at < s->len; at += n) {
    n = utf8_decode(s->at + at, s->len - at, &c);
    HP_ASSERT(n);
  }
}

static void render(const jinja *t, const tree_node *context) {
  const jinja_options o = {.now = 1764230400, .steps = 300000};
  str one = {0}, two = {0};
  hp_status first = jinja_render(t, context, &o, &one);
  err_clear();
  HP_ASSERT(jinja_render(t, context, &o, &two) == first);
  HP_ASSERT(one.len == two.len && (!one.len || !memcmp(one.at, two.at, one.len)));
  HP_ASSERT(!first || !one.len);
  check_utf8(&one);
  str_free(&one);
  str_free(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  const char *text = (const char *)bytes, *json = usual;
  const char *line = n ? memmem(text, n, "\n---\n", 5) : NULL;
  size_t len = line ? (size_t)(line - text) : n, json_len = sizeof usual - 1;
  jinja *t;
  tree context;
  if (line) {
    json = line + 5;
    json_len = n - len - 5;
  }
  if (!json_parse(json, json_len, "context", &context)) {
    if (!jinja_parse("fuzz", text, len, &t)) {
      render(t, context.root);
      jinja_free(t);
    }
    tree_free(&context);
  }
  err_clear();
  return 0;
}
