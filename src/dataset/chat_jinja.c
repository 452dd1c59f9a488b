#include "dataset/chat_jinja.h"

#include <string.h>

typedef struct {
  const char *bos, *eos;
  const char *content; /* the variable in place of SLOT_CONTENT */
  bool first;          /* nothing of the slot is written yet */
  str *out;
} writer;

static void begin_part(writer *w) {
  if (!w->first) str_add(w->out, " + ");
  w->first = false;
}

static void put_string(writer *w, const char *at, size_t n, bool escaped) {
  if (!n) return;
  begin_part(w);
  str_add_char(w->out, '\'');
  for (size_t i = 0; i < n; i++) {
    if (escaped && at[i] == '\'') str_add_char(w->out, '\\');
    str_add_char(w->out, at[i]);
  }
  str_add_char(w->out, '\'');
}

/* A text of a slot; the content stands in it once at most. */
static void put_text(writer *w, const char *at, size_t n) {
  static const char mark[] = SLOT_CONTENT;
  const char *in = memmem(at, n, mark, sizeof mark - 1);
  if (!in) {
    put_string(w, at, n, true);
    return;
  }
  const char *rest = in + sizeof mark - 1;
  put_string(w, at, (size_t)(in - at), true);
  begin_part(w);
  str_add(w->out, w->content);
  put_string(w, rest, (size_t)(at + n - rest), true);
}

static void put_slot(writer *w, const char *slot, const char *content) {
  static const char marks[] = {SLOT_BOS, SLOT_EOS, SLOT_CUT, '\0'};
  w->content = content;
  w->first = true;
  for (;; slot++) {
    size_t n = strcspn(slot, marks);
    put_text(w, slot, n);
    slot += n;
    const char *token = *slot == SLOT_BOS ? w->bos : *slot == SLOT_EOS ? w->eos : NULL;
    if (token) put_string(w, token, strlen(token), false);
    if (!*slot) return;
  }
}

/* Whether a slot writes anything: begin-of-text is no token of some tokenizers. */
static bool is_written(const writer *w, const char *slot) {
  for (; *slot; slot++)
    if (*slot == SLOT_BOS ? w->bos != NULL : *slot == SLOT_EOS ? w->eos != NULL : true) return true;
  return false;
}

static void put_system(writer *w, const chat_template *t) {
  if (*t->default_system) {
    str_add(w->out, "{% set system_message = ");
    w->first = true;
    put_string(w, t->default_system, strlen(t->default_system), true);
    str_add(w->out, " %}");
  }
  str_add(w->out, "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
                  "{% set system_message = messages[0]['content'] %}{% else %}"
                  "{% set loop_messages = messages %}{% endif %}");
  if (t->kind == CHAT_SYSTEM_IN_USER) return;
  str_add(w->out, "{% if system_message is defined %}{{ ");
  put_slot(w, t->system, "system_message");
  str_add(w->out, " }}{% endif %}");
}

static void put_content(writer *w, const chat_template *t) {
  if (t->kind != CHAT_SYSTEM_IN_USER) {
    str_add(w->out, "{% set content = message['content'] %}");
    return;
  }
  str_add(w->out, "{% if loop.index0 == 0 and system_message is defined %}{% set content = ");
  put_slot(w, t->system, "system_message");
  str_add(w->out, " + message['content'] %}{% else %}{% set content = message['content'] %}"
                  "{% endif %}");
}

bool chat_jinja_print(const chat_template *t, const char *bos, const char *eos, str *out) {
  const char *slot[] = {t->prefix, t->system, t->user, t->assistant};
  for (int i = 0; i < 4; i++)
    if (strchr(slot[i], SLOT_TOKEN)) return false;
  writer w = {.bos = bos, .eos = eos, .out = out};
  if (is_written(&w, t->prefix)) {
    str_add(out, "{{ ");
    put_slot(&w, t->prefix, "content");
    str_add(out, " }}");
  }
  put_system(&w, t);
  str_add(out, "{% for message in loop_messages %}");
  put_content(&w, t);
  str_add(out, "{% if message['role'] == 'user' %}{{ ");
  put_slot(&w, t->user, "content");
  str_add(out, " }}{% elif message['role'] == 'assistant' %}{{ ");
  put_slot(&w, t->assistant, "content");
  str_add(out, " }}{% endif %}{% endfor %}");
  return true;
}
