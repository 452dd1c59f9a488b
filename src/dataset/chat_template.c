#include "dataset/chat_template.h"

#include "base/str.h"

#include <string.h>

#define CONTENT  SLOT_CONTENT
#define BOS      "\x01"
#define EOS      "\x02"
#define TOKEN(x) "\x03" x "\x04"
#define CUT      "\x05"
_Static_assert(SLOT_BOS == 1 && SLOT_EOS == 2 && SLOT_TOKEN == 3 && SLOT_TOKEN_END == 4 &&
                   SLOT_CUT == 5,
               "the marks of a slot");

static const chat_template templates[] = {
#define TEMPLATE(...) {.name = __VA_ARGS__},
#include "dataset/templates.def"
#undef TEMPLATE
};
enum { TEMPLATES = sizeof templates / sizeof *templates };

void chat_template_complete(chat_template *t) {
  if (!t->user) t->user = CONTENT;
  if (!t->system) t->system = CONTENT;
  if (!t->assistant) t->assistant = t->ends_turns ? CONTENT : CONTENT EOS;
  if (!t->function) t->function = t->assistant;
  if (!t->observation) t->observation = t->user;
  if (!t->prefix) t->prefix = "";
  if (!t->default_system) t->default_system = "";
  if (!t->thought[0]) {
    t->thought[0] = "<think>\n";
    t->thought[1] = "\n</think>\n\n";
  }
  if (!t->call[0]) {
    t->call[0] = "<tool_call>";
    t->call[1] = "</tool_call>";
  }
}

hp_status chat_template_find(const char *name, chat_template *out) {
  const char *known[TEMPLATES];
  for (int i = 0; i < TEMPLATES; i++) {
    known[i] = templates[i].name;
    if (strcmp(name, known[i])) continue;
    *out = templates[i];
    chat_template_complete(out);
    return HP_OK;
  }
  const char *near = str_nearest(name, known, TEMPLATES);
  HP_FAIL(HP_ERR_INPUT, "there is no template \"%s\"%s%s%s", name, near ? " (did you mean \"" : "",
          near ? near : "", near ? "\"?)" : "; leave the key out for plain text");
}
