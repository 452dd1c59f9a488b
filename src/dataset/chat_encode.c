#include "dataset/chat_encode.h"

#include "base/json.h"
#include "base/log.h"
#include "dataset/chat_parse.h"
#include "dataset/chat_tools.h"

#include <string.h>

/* --- slots ------------------------------------------------------------------------------------ */

/* Appends the ids of a text of a slot, with the content in place of its mark. */
static hp_status encode_text(const chat_encoder *e, const char *at, size_t n, dataset_text content,
                             token_ids *out) {
  static const char mark[] = SLOT_CONTENT;
  const char *in = memmem(at, n, mark, sizeof mark - 1);
  if (!n) return HP_OK;
  if (!in) return tokenizer_encode(e->tokenizer, at, n, 0, out);
  const char *rest = in + sizeof mark - 1;
  str text = {0};
  str_add_n(&text, at, (size_t)(in - at));
  str_add_n(&text, content.at, content.len);
  str_add_n(&text, rest, (size_t)(at + n - rest));
  hp_status st = str_status(&text);
  if (!st && text.len) st = tokenizer_encode(e->tokenizer, text.at, text.len, 0, out);
  str_free(&text);
  return st;
}

static hp_status add_id(token_ids *out, int32_t id) {
  return id < 0 || vec_push(out, id) ? HP_OK : HP_ERR_OOM;
}

/* The next mark of a slot, or its end. */
static size_t find_mark(const char *slot) {
  size_t n = 0;
  while (slot[n] && (unsigned char)slot[n] > SLOT_CUT) n++;
  return n;
}

static hp_status encode_slot(const chat_encoder *e, const char *slot, dataset_text content,
                             token_ids *out) {
  for (;;) {
    size_t n = find_mark(slot);
    HP_TRY(encode_text(e, slot, n, content, out));
    slot += n;
    if (!*slot) return HP_OK;
    if (*slot == SLOT_BOS) HP_TRY(add_id(out, e->bos));
    else if (*slot == SLOT_EOS) HP_TRY(add_id(out, e->eos));
    else if (*slot == SLOT_TOKEN) {
      n = find_mark(slot + 1);
      HP_TRY(add_id(out, tokenizer_find(e->tokenizer, slot + 1, n)));
      slot += 1 + n;
    }
    slot++;
  }
}

/* --- creation --------------------------------------------------------------------------------- */

/* Fails at a token of a slot that the tokenizer has not. */
static hp_status check_tokens(const chat_encoder *e, const char *slot) {
  for (; *slot; slot++) {
    if (*slot != SLOT_TOKEN) continue;
    size_t n = find_mark(slot + 1);
    if (tokenizer_find(e->tokenizer, slot + 1, n) < 0)
      HP_FAIL(HP_ERR_INPUT,
              "template %s writes the token %.*s, which the tokenizer does not have; take the "
              "template that belongs to the model",
              e->of.name, (int)n, slot + 1);
  }
  return HP_OK;
}

/* Adds words like <|im_start|> of a slot that are no token: they would be learned as pieces. */
static void find_pieces(const chat_encoder *e, const char *slot, str *out) {
  for (const char *at = slot; (at = strstr(at, "<|")); at += 2) {
    const char *end = strstr(at, "|>");
    size_t n = end ? (size_t)(end + 2 - at) : 0;
    if (!n || n > 40 || memchr(at, ' ', n) || memchr(at, '\n', n)) continue;
    if (tokenizer_find(e->tokenizer, at, n) >= 0) continue;
    if (out->at && memmem(out->at, out->len, at, n)) continue;
    str_printf(out, "%s%.*s", out->len ? ", " : "", (int)n, at);
  }
}

static hp_status check_template(const chat_encoder *e) {
  const char *const slot[] = {e->of.user,     e->of.assistant,   e->of.system,
                              e->of.function, e->of.observation, e->of.prefix};
  enum { SLOTS = sizeof slot / sizeof *slot };
  str pieces = {0};
  for (int i = 0; i < SLOTS; i++) HP_TRY(check_tokens(e, slot[i]));
  for (int i = 0; i < SLOTS; i++) find_pieces(e, slot[i], &pieces);
  hp_status st = str_status(&pieces);
  if (!st && pieces.len)
    log_warn("template %s: the tokenizer has no token %s: written as pieces of text; is it the "
             "template of this model?",
             e->of.name, pieces.at);
  str_free(&pieces);
  return st;
}

static bool reasons(const chat_encoder *e) {
  return e->of.kind == CHAT_REASONING || e->of.kind == CHAT_REASONING_CLOSED;
}

static hp_status encode_no_thought(chat_encoder *e) {
  str text = {0};
  if (!reasons(e)) return HP_OK;
  if (e->of.kind == CHAT_REASONING) str_add(&text, e->of.thought[0]);
  str_add(&text, e->of.thought[1]);
  hp_status st = str_status(&text);
  if (!st) st = tokenizer_encode(e->tokenizer, text.at, text.len, 0, &e->no_thought);
  str_free(&text);
  return st;
}

/* The template of the list, or the model's own. */
static hp_status find_template(chat_encoder *e, const char *template, const char *dir) {
  bool found = false;
  if (template) return chat_template_find(template, &e->of);
  HP_TRY(chat_template_parse(e->tokenizer, dir, &e->mem, &e->of, &found));
  if (found) {
    log_warn("no template is given: it is made of the model's own chat template");
    chat_template_complete(&e->of);
    return HP_OK;
  }
  log_warn("no template is given, and the model has none: messages are written as they are, one "
           "after the other");
  return chat_template_find("empty", &e->of);
}

static hp_status apply_options(chat_encoder *e, const chat_options *o) {
  if (o->tool_format) {
    HP_TRY(tool_format_find(o->tool_format, &e->of.tools));
    e->of.calls = e->of.tools;
    e->of.tool_list = NULL;
    e->of.function = e->of.ends_turns ? SLOT_CONTENT : SLOT_CONTENT "\x02";
  }
  if (o->default_system) e->of.default_system = o->default_system;
  return HP_OK;
}

hp_status chat_encoder_create(const tokenizer *t, const char *template, const char *dir,
                              int32_t eos, const chat_options *o, chat_encoder *out) {
  chat_encoder e = {.tokenizer = t,
                    .thinks = o->thinks,
                    .keeps_thoughts = o->keeps_thoughts,
                    .bos = tokenizer_role(t, TOKEN_BOS),
                    .eos = eos};
  hp_status st = find_template(&e, template, dir);
  if (!st) st = apply_options(&e, o);
  if (!st) st = check_template(&e);
  if (!st) st = encode_no_thought(&e);
  if (st) chat_encoder_free(&e);
  else *out = e;
  return st;
}

void chat_encoder_free(chat_encoder *e) {
  vec_free(&e->no_thought);
  arena_free(&e->mem);
}

/* --- thoughts and calls ----------------------------------------------------------------------- */

static dataset_text text_of(const str *s) { return (dataset_text){s->at ? s->at : "", s->len}; }

/* The first part of a text from `open` to `close`, both included; false: there is none. */
static bool find_part(dataset_text text, const char *const words[2], dataset_text *out) {
  size_t open = strlen(words[0]), close = strlen(words[1]);
  const char *at = memmem(text.at, text.len, words[0], open);
  if (!at) return false;
  const char *inner = at + open, *end = text.at + text.len;
  const char *last = memmem(inner, (size_t)(end - inner), words[1], close);
  if (!last) return false;
  *out = (dataset_text){at, (size_t)(last - at) + close};
  return true;
}

/* The text without all places of a part. */
static void add_without(dataset_text text, dataset_text part, str *out) {
  const char *end = text.at + text.len;
  for (const char *at = text.at, *next; at < end; at = next + part.len) {
    next = memmem(at, (size_t)(end - at), part.at, part.len);
    str_add_n(out, at, (size_t)((next ? next : end) - at));
    if (!next) return;
  }
}

/* The text without its thoughts, and without the line breaks that then begin it. */
static hp_status remove_thoughts(const chat_encoder *e, dataset_text text, str *out) {
  dataset_text part;
  str_clear(out);
  while (find_part(text, e->of.thought, &part)) {
    str_add_n(out, text.at, (size_t)(part.at - text.at));
    text.len -= (size_t)(part.at + part.len - text.at);
    text.at = part.at + part.len;
  }
  str_add_n(out, text.at, text.len);
  size_t skip = 0;
  while (skip < out->len && out->at[skip] == '\n') skip++;
  if (skip) memmove(out->at, out->at + skip, out->len - skip);
  out->len -= skip;
  return str_status(out);
}

/* Does a text hold the word, without the space around it? */
static bool has_word(dataset_text text, const char *word) {
  static const char space[] = " \t\n\v\f\r";
  word += strspn(word, space);
  size_t n = strlen(word);
  while (n && strchr(space, word[n - 1])) n--;
  return memmem(text.at, text.len, word, n) != NULL;
}

static hp_status take_call(const tree_node *one, tool_call *out) {
  HP_TRY(tree_expect(one, TREE_MAP));
  HP_TRY(tree_need(one, "name", &out->name));
  return tree_need(one, "arguments", &out->arguments);
}

/* The calls in a JSON text: one, or a list of them. */
static hp_status write_calls(const chat_encoder *e, dataset_text json, str *out) {
  tree parsed = {0};
  HP_TRY(json_parse(json.at, json.len, "the function call", &parsed));
  const tree_node *root = parsed.root;
  bool list = root->kind == TREE_LIST;
  size_t n = list ? root->len : 1;
  tool_call *call = mem_calloc(n ? n : 1, sizeof *call);
  hp_status st = call ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; i < n && !st; i++) st = take_call(list ? root->child[i] : root, &call[i]);
  if (!st && !n) st = tree_error(root, __FILE__, __LINE__, "an empty list calls no function");
  if (!st) st = chat_write_calls(e->of.calls, call, n, out);
  mem_free(call);
  tree_free(&parsed);
  return st;
}

/* The content of a message that calls functions: what is around the JSON, then the calls. */
static hp_status write_function(const chat_encoder *e, dataset_text text, str *out) {
  dataset_text part, json = text;
  str rest = {0};
  bool plain = e->of.kind == CHAT_SYSTEM_IN_USER; /* takes the content as calls alone */
  if (!plain && find_part(text, e->of.call, &part)) {
    size_t open = strlen(e->of.call[0]), close = strlen(e->of.call[1]);
    add_without(text, part, out);
    json = (dataset_text){part.at + open, part.len - open - close};
  } else if (!plain && find_part(text, e->of.thought, &part)) {
    str_add_n(out, part.at, part.len);
    add_without(text, part, &rest);
    json = text_of(&rest);
  }
  hp_status st = str_status(&rest);
  if (!st) st = write_calls(e, json, out);
  str_free(&rest);
  return st ? st : str_status(out);
}

/* --- messages --------------------------------------------------------------------------------- */

/* What stands before the first message: the system text with the tools. */
static hp_status write_system(const chat_encoder *e, const chat_turns *c, str *out) {
  if (c->system.len) str_add_n(out, c->system.at, c->system.len);
  else str_add(out, e->of.default_system);
  if (!c->tools.len) return str_status(out);
  tree tools = {0};
  HP_TRY(json_parse(c->tools.at, c->tools.len, "the tools", &tools));
  hp_status st = HP_OK;
  if (e->of.tool_list) {
    const char *mark = strstr(e->of.tool_list, SLOT_CONTENT);
    str_add_n(out, e->of.tool_list, (size_t)(mark - e->of.tool_list));
    str_add_n(out, c->tools.at, c->tools.len);
    str_add(out, mark + sizeof SLOT_CONTENT - 1);
  } else if (tools.root->kind != TREE_LIST || tools.root->len) {
    st = chat_describe_tools(e->of.tools, tools.root, out);
  }
  tree_free(&tools);
  return st ? st : str_status(out);
}

/* The prefix and the system message; in_user: what of them the first user message begins with. */
static hp_status encode_begin(const chat_encoder *e, const chat_turns *c, str *in_user,
                              token_ids *out) {
  str system = {0};
  HP_TRY(encode_slot(e, e->of.prefix, (dataset_text){"", 0}, out));
  bool any = c->system.len || c->tools.len || *e->of.default_system;
  hp_status st = any ? write_system(e, c, &system) : HP_OK;
  if (!st && any && e->of.kind != CHAT_SYSTEM_IN_USER)
    st = encode_slot(e, e->of.system, text_of(&system), out);
  else if (!st && any) {
    const char *slot = e->of.system, *mark = strstr(slot, SLOT_CONTENT);
    const char *rest = mark + sizeof SLOT_CONTENT - 1;
    str_add_n(in_user, slot, (size_t)(mark - slot));
    str_add_n(in_user, system.at ? system.at : "", system.len);
    str_add_n(in_user, rest, find_mark(rest));
    st = str_status(in_user);
  }
  str_free(&system);
  return st;
}

static hp_status encode_message(const chat_encoder *e, chat_role role, dataset_text text,
                                str *in_user, token_ids *out) {
  str calls = {0};
  hp_status st = HP_OK;
  switch (role) {
  case CHAT_USER:
    if (in_user->len) {
      str_add_n(in_user, text.at, text.len);
      HP_TRY(str_status(in_user));
      text = text_of(in_user);
    }
    return encode_slot(e, e->of.user, text, out);
  case CHAT_ASSISTANT: return encode_slot(e, e->of.assistant, text, out);
  case CHAT_OBSERVATION: return encode_slot(e, e->of.observation, text, out);
  case CHAT_FUNCTION:
    st = write_function(e, text, &calls);
    if (!st) st = encode_slot(e, e->of.function, text_of(&calls), out);
    str_free(&calls);
    return st;
  default: HP_FAIL(HP_ERR_INPUT, "a system message in the middle of a conversation");
  }
}

/* Is the thought of an answer left out? */
static bool drops_thought(const chat_encoder *e, const chat_turns *c, bool one, bool drop_history,
                          size_t i) {
  bool last = i == c->n - 1;
  if (!reasons(e) || i % 2 == 0) return false;
  if (!last && (one ? !e->keeps_thoughts : drop_history)) return true;
  return e->thinks == 0 && (last || !one);
}

/* An empty thought for an answer without one: learned if the model is to think, else asked. */
static hp_status add_no_thought(const chat_encoder *e, token_ids *question, token_ids *answer) {
  token_ids *to = e->thinks == 1 ? answer : question;
  size_t n = e->no_thought.len, had = to->len;
  for (size_t i = 0; i < n; i++)
    if (!vec_push(to, e->no_thought.at[i])) return HP_ERR_OOM;
  if (to == question) return HP_OK;
  memmove(to->at + n, to->at, had * sizeof *to->at);
  memcpy(to->at, e->no_thought.at, n * sizeof *to->at);
  return HP_OK;
}

hp_status chat_encode(const chat_encoder *e, const chat_turns *c, bool one, bool drop_history,
                      token_ids *ids) {
  str in_user = {0}, bare = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; i < c->n && !st; i++) {
    dataset_text text = c->message[i].text;
    if (drops_thought(e, c, one, drop_history, i)) {
      st = remove_thoughts(e, text, &bare);
      text = text_of(&bare);
    }
    if (!st && i == 0) st = encode_begin(e, c, &in_user, &ids[0]);
    if (!st) st = encode_message(e, c->message[i].role, text, &in_user, &ids[i]);
    str_clear(&in_user);
    bool gets_thought = reasons(e) && i % 2 == 1 && (i == c->n - 1 || (!one && !drop_history));
    if (!st && gets_thought && !has_word(text, e->of.thought[0]) &&
        !has_word(text, e->of.thought[1]))
      st = add_no_thought(e, &ids[i - 1], &ids[i]);
  }
  str_free(&in_user);
  str_free(&bare);
  return st;
}

int chat_find_ends(const chat_template *of, const tokenizer *t, int32_t eos, int32_t *ids, int n) {
  int found = 0;
  ids[found++] = eos;
  for (size_t i = 0; i < sizeof of->stop / sizeof *of->stop && of->stop[i] && found < n; i++) {
    int32_t id = tokenizer_find(t, of->stop[i], strlen(of->stop[i]));
    if (id >= 0 && id != eos) ids[found++] = id;
  }
  return found;
}
