#include "cli/conversation.h"

#include "base/io.h"
#include "base/json.h"
#include "base/yaml.h"

#include <string.h>

enum { TOOLS_BYTES = 16 << 20 };

/* In files. */
static const char *const role_name[] = {[CHAT_USER] = "user",
                                        [CHAT_ASSISTANT] = "assistant",
                                        [CHAT_SYSTEM] = "system",
                                        [CHAT_FUNCTION] = "assistant",
                                        [CHAT_OBSERVATION] = "tool"};

/* --- opening ---------------------------------------------------------------------------------- */

static hp_status set_tools(conversation *c, const tree_node *tools) {
  HP_TRY(tree_expect(tools, TREE_LIST));
  if (!tools->len) TREE_FAIL(tools, "there is no tool in the list");
  json_writer w = {.out = &c->tools_text, .utf8 = true};
  json_put_tree(&w, tools);
  return str_status(&c->tools_text);
}

static hp_status read_tools(conversation *c, const char *path) {
  HP_TRY(json_load(path, TOOLS_BYTES, &c->tools));
  return set_tools(c, c->tools.root);
}

/* The end token, by which LlamaFactory ends answers: the template's, or the tokenizer's. */
static hp_status find_eos(const conversation *c, const char *model, const char *template,
                          int32_t *out) {
  chat_template of;
  HP_TRY(chat_template_find(template, &of));
  *out = of.replaces_eos ? tokenizer_find(c->t, of.stop[0], strlen(of.stop[0]))
                         : tokenizer_role(c->t, TOKEN_EOS);
  if (*out < 0 && of.replaces_eos)
    HP_FAIL(HP_ERR_INPUT,
            "template %s ends texts with %s, which is no token of %s; take the template that "
            "belongs to the model",
            template, of.stop[0], model);
  if (*out < 0)
    HP_FAIL(HP_ERR_INPUT,
            "%s: the tokenizer has no end token; set \"eos_token\" in tokenizer_config.json to "
            "one of its tokens",
            model);
  return HP_OK;
}

static hp_status open_encoder(conversation *c, const char *model, const conversation_options *o) {
  int32_t eos;
  const chat_options how = {.tool_format = o->tool_format,
                            .default_system = o->default_system,
                            .thinks = o->thinks == THINKS_UNSAID ? 1 : o->thinks,
                            .keeps_thoughts = o->keeps_thoughts};
  HP_TRY(find_eos(c, model, o->template, &eos));
  HP_TRY(chat_encoder_create(c->t, o->template, model, eos, &how, &c->encoder));
  c->by_encoder = true;
  return HP_OK;
}

static hp_status open_own(conversation *c, const char *model, const conversation_options *o) {
  HP_TRY(model_chat_open(model, c->t, &c->own));
  if (!c->own.of.plain)
    HP_FAIL(HP_ERR_INPUT,
            "%s: the model has no chat template (chat_template.jinja, or chat_template in "
            "tokenizer_config.json): write --template NAME, the template that it was trained with",
            model);
  if (o->tool_format)
    HP_FAIL(HP_ERR_INPUT, "tool_format %s is for a template of LlamaFactory: write --template NAME",
            o->tool_format);
  if (o->thinks != THINKS_UNSAID) model_chat_set_thinking(&c->own, o->thinks == 1);
  const char *system = o->default_system ? o->default_system : "";
  return conversation_set_system(c, system, strlen(system));
}

hp_status conversation_open(const char *model, const tokenizer *t, const conversation_options *o,
                            conversation *out) {
  conversation c = {.t = t, .thinks = o->thinks};
  hp_status st = o->template ? open_encoder(&c, model, o) : open_own(&c, model, o);
  if (!st && o->system) st = conversation_set_system(&c, o->system, strlen(o->system));
  if (!st && o->tools) st = read_tools(&c, o->tools);
  if (st) conversation_close(&c);
  else *out = c;
  return st;
}

void conversation_close(conversation *c) {
  conversation_cut(c, 0);
  vec_free(&c->message);
  if (c->by_encoder) chat_encoder_free(&c->encoder);
  model_chat_close(&c->own);
  str_free(&c->system);
  str_free(&c->tools_text);
  tree_free(&c->tools);
}

bool conversation_parse_thinks(const char *text, int *out) {
  tree_node v = {.kind = TREE_STRING};
  const char *why;
  *out = THINKS_UNSAID;
  if (!text) return true;
  if (!yaml_resolve(text, &v, &why) || v.kind != TREE_BOOL) return false;
  *out = v.boolean;
  return true;
}

/* --- messages --------------------------------------------------------------------------------- */

hp_status conversation_set_system(conversation *c, const char *text, size_t n) {
  str_clear(&c->system);
  str_add_n(&c->system, text, n);
  return str_status(&c->system);
}

hp_status conversation_add(conversation *c, chat_role role, const char *text, size_t n) {
  conversation_message m = {.role = role};
  str_add_n(&m.text, text, n);
  hp_status st = str_status(&m.text);
  if (!st && !vec_push(&c->message, m)) st = HP_ERR_OOM;
  if (st) str_free(&m.text);
  return st;
}

void conversation_cut(conversation *c, size_t n) {
  while (c->message.len > n) str_free(&c->message.at[--c->message.len].text);
}

/* --- a conversation of a file ----------------------------------------------------------------- */

static hp_status find_role(const tree_node *at, chat_role *out) {
  const char *role;
  *out = CHAT_USER;
  HP_TRY(tree_as_string(at, &role));
  for (chat_role i = CHAT_USER; i <= CHAT_OBSERVATION; i++)
    if (!strcmp(role_name[i], role)) {
      *out = i;
      return HP_OK;
    }
  TREE_FAIL(at, "\"%s\" is no role; expected system, user, assistant or tool", role);
}

/* Message `i` of a file.  By turns there are a question and an answer. */
static hp_status read_message(conversation *c, const tree_node *message, uint32_t i) {
  HP_TRY(tree_expect(message, TREE_MAP));
  const tree_node *role = tree_get(message, "role"), *text = tree_get(message, "content");
  const tree_node *calls = tree_get(message, "tool_calls");
  bool answers = c->message.len % 2;
  chat_role of;
  if (calls)
    TREE_FAIL(calls, "calls are not written by --template; put them into the content, as the "
                     "model wrote them");
  if (!role || !text) TREE_FAIL(message, "expected a message with \"role\" and \"content\"");
  HP_TRY(find_role(role, &of));
  HP_TRY(tree_expect(text, TREE_STRING));
  if (of == CHAT_SYSTEM && !i) return conversation_set_system(c, text->string, text->len);
  if (of == CHAT_SYSTEM) TREE_FAIL(role, "expected the system message as the first one");
  if ((of == CHAT_ASSISTANT) != answers)
    TREE_FAIL(role, "expected %s here, for questions and answers take turns",
              answers ? "an answer, of role assistant" : "a question, of role user or tool");
  return conversation_add(c, of, text->string, text->len);
}

hp_status conversation_read(conversation *c, const tree_node *root) {
  const tree_node *list = root, *tools = NULL;
  bool thinks = c->thinks != 0;
  conversation_cut(c, 0);
  str_clear(&c->system);
  str_clear(&c->tools_text);
  if (root->kind == TREE_MAP) {
    list = tree_get(root, "messages");
    tools = tree_get(root, "tools");
    HP_TRY(tree_opt_bool(root, "enable_thinking", thinks, &thinks));
  }
  c->encoder.thinks = thinks;
  if (!list) TREE_FAIL(root, "\"messages\" is missing");
  HP_TRY(tree_expect(list, TREE_LIST));
  if (tools) HP_TRY(set_tools(c, tools));
  for (uint32_t i = 0; i < list->len; i++) HP_TRY(read_message(c, list->child[i], i));
  if (c->message.len % 2 == 0)
    TREE_FAIL(list, "expected a question of role user or tool as the last message");
  return HP_OK;
}

/* --- prompts ---------------------------------------------------------------------------------- */

static dataset_text text_of(const str *s) { return (dataset_text){s->at ? s->at : "", s->len}; }

/* As LlamaFactory does: an empty answer is put behind the messages, whose tokens are left out. */
static hp_status encode_turns(const conversation *c, token_ids *out) {
  size_t n = c->message.len + 1;
  chat_message *m = mem_calloc(n, sizeof *m);
  token_ids *ids = mem_calloc(n, sizeof *ids);
  hp_status st = m && ids ? HP_OK : HP_ERR_OOM;
  const chat_turns turns = {m, n, text_of(&c->system), text_of(&c->tools_text)};
  for (size_t i = 0; !st && i < n; i++)
    m[i] = i + 1 < n ? (chat_message){c->message.at[i].role, text_of(&c->message.at[i].text)}
                     : (chat_message){CHAT_ASSISTANT, {"", 0}};
  if (!st) st = chat_encode(&c->encoder, &turns, true, false, ids);
  for (size_t i = 0; !st && i + 1 < n; i++)
    for (size_t k = 0; !st && k < ids[i].len; k++)
      if (!vec_push(out, ids[i].at[k])) st = HP_ERR_OOM;
  for (size_t i = 0; ids && i < n; i++) vec_free(&ids[i]);
  mem_free(ids);
  mem_free(m);
  return st;
}

hp_status conversation_encode(const conversation *c, token_ids *out) {
  str text = {0};
  tree t = {0};
  if (c->by_encoder) return encode_turns(c, out);
  hp_status st = conversation_print(c, &text);
  if (!st) st = json_parse(text.at, text.len, "the conversation", &t);
  if (!st) st = model_chat_encode(&c->own, &t, out);
  tree_free(&t);
  str_free(&text);
  return st;
}

int conversation_find_ends(const conversation *c, int32_t *ids, int n) {
  return c->by_encoder ? chat_find_ends(&c->encoder.of, c->t, c->encoder.eos, ids, n) : 0;
}

static void put_message(json_writer *w, const char *role, const str *text) {
  json_open_map(w);
  json_key_string(w, "role", role);
  json_put_key(w, "content");
  json_put_string_n(w, text->at ? text->at : "", text->len);
  json_close(w);
}

hp_status conversation_print(const conversation *c, str *out) {
  json_writer w = {.out = out, .utf8 = true};
  json_open_map(&w);
  json_put_key(&w, "messages");
  json_open_list(&w);
  if (c->system.len) put_message(&w, role_name[CHAT_SYSTEM], &c->system);
  for (size_t i = 0; i < c->message.len; i++)
    put_message(&w, role_name[c->message.at[i].role], &c->message.at[i].text);
  json_close(&w);
  if (c->tools.root) {
    json_put_key(&w, "tools");
    json_put_tree(&w, c->tools.root);
  }
  if (!c->by_encoder && c->thinks >= 0) json_key_bool(&w, "enable_thinking", c->thinks == 1);
  json_close(&w);
  return str_status(out);
}
