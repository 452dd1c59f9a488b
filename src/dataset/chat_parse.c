#include "dataset/chat_parse.h"

#include "base/json.h"
#include "jinja/model_template.h"

#include <string.h>

/* Conversations that show what a template writes around a mark. */
#define SYSTEM "{\"role\": \"system\", \"content\": \"{{content}}\"}"
#define SILENT "{\"role\": \"system\", \"content\": \"\"}"
#define USER   "{\"role\": \"user\", \"content\": \"{{content}}\"}"
#define ANSWER "{\"role\": \"assistant\", \"content\": \"{{content}}\"}"

typedef struct {
  model_template of;
  template_variable variable[2];
  size_t variables;
  arena *mem;
} parsing;

/* The conversation's text, in mem. */
static hp_status render(const parsing *p, const char *conversation, bool generate,
                        const char **out) {
  tree messages = {0};
  str text = {0};
  HP_TRY(json_parse(conversation, strlen(conversation), "conversation", &messages));
  hp_status st =
      model_template_render(&p->of, &messages, p->variable, p->variables, generate, &text);
  tree_free(&messages);
  const char *copy = st ? NULL : arena_strndup(p->mem, text.at ? text.at : "", text.len);
  str_free(&text);
  HP_TRY(st);
  HP_TRY_MEM(copy);
  for (const char *c = copy; *c; c++)
    if ((unsigned char)*c <= SLOT_CUT)
      HP_FAIL(HP_ERR_INPUT,
              "the model's chat template writes the control character %d; write a "
              "template of the list, as template: qwen",
              *c);
  *out = copy;
  return HP_OK;
}

/* What of `text` is behind its first n bytes. */
static const char *behind(const char *text, size_t n) { return n < strlen(text) ? text + n : ""; }

/* What the tokenizer puts in front of every text. */
static hp_status find_prefix(const tokenizer *t, arena *mem, const char **out) {
  token_ids ids = {0};
  str text = {0};
  hp_status st = tokenizer_encode(t, "", 0, TOKENIZE_SPECIAL, &ids);
  if (!st) st = tokenizer_decode(t, ids.at, ids.len, false, &text);
  *out = st ? "" : arena_strndup(mem, text.at ? text.at : "", text.len);
  vec_free(&ids);
  str_free(&text);
  return st || *out ? st : HP_ERR_OOM;
}

/* The characters of `longer` that `shorter` has not, one after the other. */
static hp_status find_difference(const char *shorter, const char *longer, arena *mem,
                                 const char **out) {
  char *copy = arena_strdup(mem, longer), *to = copy;
  HP_TRY_MEM(copy);
  for (; *shorter && *longer; longer++) {
    if (*shorter == *longer) shorter++;
    else *to++ = *longer;
  }
  *to = 0;
  *out = copy;
  return HP_OK;
}

/* The text without the words around a thought, and without the line breaks it then begins with. */
static hp_status without_thought(const char *text, arena *mem, const char **out) {
  static const char *const word[] = {"<think>", "</think>"};
  char *copy = arena_strdup(mem, text);
  HP_TRY_MEM(copy);
  for (int i = 0; i < 2; i++)
    for (char *at; (at = strstr(copy, word[i]));) {
      size_t n = strlen(word[i]);
      memmove(at, at + n, strlen(at + n) + 1);
    }
  *out = copy + strspn(copy, "\n");
  return HP_OK;
}

static hp_status need_mark(const char *slot, const char *which) {
  if (strstr(slot, SLOT_CONTENT)) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "the model's chat template does not show the content of a message of role %s, so that no "
          "template can be made of it; write one of the list, as template: qwen",
          which);
}

static hp_status find_slots(const parsing *p, const char *prefix, chat_template *t) {
  const char *system, *silent, *user, *both;
  size_t skip = strlen(prefix);
  HP_TRY(render(p, "[" SYSTEM "]", false, &system));
  HP_TRY(render(p, "[" SILENT ", " USER "]", true, &silent));
  HP_TRY(render(p, "[" USER "]", true, &user));
  HP_TRY(render(p, "[" USER ", " ANSWER "]", false, &both));
  system = behind(system, skip);
  silent = behind(silent, skip);
  user = behind(user, skip);
  const char *answer = behind(both, skip + strlen(user));
  t->kind = strstr(answer, "<think>") ? CHAT_REASONING : CHAT_PLAIN;
  HP_TRY(without_thought(answer, p->mem, &t->assistant));
  if (strlen(user) > strlen(silent)) { /* there is a system message of its own */
    const char *mark = strstr(system, SLOT_CONTENT);
    HP_TRY(find_difference(silent, user, p->mem, &t->default_system));
    size_t marks = mark ? sizeof SLOT_CONTENT - 1 : 0;
    user = behind(user, strlen(system) - marks + (mark ? strlen(t->default_system) : 0));
  }
  t->system = system;
  t->user = user;
  t->prefix = prefix;
  HP_TRY(need_mark(t->system, "system"));
  HP_TRY(need_mark(t->user, "user"));
  return need_mark(t->assistant, "assistant");
}

hp_status chat_template_parse(const tokenizer *t, const char *dir, arena *mem, chat_template *out,
                              bool *found) {
  static const token_role role[] = {TOKEN_BOS, TOKEN_EOS};
  static const char *const name[] = {"bos_token", "eos_token"};
  parsing p = {.mem = mem};
  const char *prefix;
  *found = false;
  HP_TRY(model_template_load(dir, &p.of));
  if (!p.of.plain) {
    model_template_free(&p.of);
    return HP_OK;
  }
  for (int i = 0; i < 2; i++) {
    size_t n = 0;
    const char *text = tokenizer_token(t, tokenizer_role(t, role[i]), &n);
    if (text)
      p.variable[p.variables++] = (template_variable){.name = name[i], .text = text, .len = n};
  }
  *out = (chat_template){.name = "the model's own"};
  hp_status st = find_prefix(t, mem, &prefix);
  if (!st) st = find_slots(&p, prefix, out);
  model_template_free(&p.of);
  *found = !st;
  return st;
}
