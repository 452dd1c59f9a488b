/* One record of alpaca, sharegpt or openai data as a conversation. */
#include "dataset/chat.h"

#include "base/json.h"
#include "base/vec.h"

#include <string.h>

typedef struct {
  const chat_format *f;
  const tree_node *record;
  arena *mem;
  VEC(chat_message) message;
  const char *left_out; /* the first reason */
} aligning;

static hp_status copy_text(aligning *a, const char *at, size_t len, dataset_text *out) {
  char *copy = arena_strndup(a->mem, at, len);
  HP_TRY_MEM(copy);
  *out = (dataset_text){copy, len};
  return HP_OK;
}

/* Text of a column that may be missing or null: then empty. */
static hp_status take_text(aligning *a, const tree_node *v, dataset_text *out) {
  *out = (dataset_text){"", 0};
  if (!v || v->kind == TREE_NULL) return HP_OK;
  HP_TRY(tree_expect(v, TREE_STRING));
  return copy_text(a, v->string, v->len, out);
}

static const tree_node *column(const aligning *a, const char *name) {
  return name ? tree_get(a->record, name) : NULL;
}

/* Names the columns that there are. */
static hp_status refuse_record(const aligning *a, const char *name, const char *key) {
  str have = {0};
  for (uint32_t i = 0; i < a->record->len; i++)
    str_printf(&have, "%s\"%s\"", i ? ", " : "", a->record->child[i]->key);
  hp_status st =
      tree_error(a->record, __FILE__, __LINE__,
                 "there is no \"%s\" in the record, the column of the %s; it has %s; write "
                 "\"columns\": {\"%s\": NAME} for the file in dataset_info.json",
                 name, key, have.at ? have.at : "nothing", key);
  str_free(&have);
  return st;
}

static void leave_out(aligning *a, const char *why) {
  if (!a->left_out) a->left_out = why;
}

/* Text of a message; without it the record is left out. */
static hp_status take_content(aligning *a, const tree_node *v, dataset_text *out) {
  if (!v || v->kind == TREE_NULL) leave_out(a, "it has a message without text");
  return take_text(a, v, out);
}

static hp_status add_message(aligning *a, chat_role role, const tree_node *text) {
  chat_message m = {.role = role};
  HP_TRY(take_content(a, text, &m.text));
  return vec_push(&a->message, m) ? HP_OK : HP_ERR_OOM;
}

/* --- responses -------------------------------------------------------------------------------- */

/* An example of stage kto: true: the response is the good one, false: the bad one. */
static hp_status add_judged(aligning *a, const chat_message *response, bool good) {
  chat_message none = {CHAT_ASSISTANT, {"", 0}};
  bool ok = vec_push(&a->message, good ? *response : none) &&
            vec_push(&a->message, good ? none : *response);
  return ok ? HP_OK : HP_ERR_OOM;
}

/* Is the record judged?  Fails for a judgement that is neither true nor false. */
static hp_status judgement(const aligning *a, bool *is, bool *good) {
  const tree_node *tag = column(a, a->f->kto_tag);
  *is = tag && tag->kind != TREE_NULL;
  return *is ? tree_as_bool(tag, good) : HP_OK;
}

/* --- alpaca ----------------------------------------------------------------------------------- */

static hp_status add_history(aligning *a) {
  const tree_node *history = column(a, a->f->history);
  if (!history || history->kind == TREE_NULL) return HP_OK;
  HP_TRY(tree_expect(history, TREE_LIST));
  for (uint32_t i = 0; i < history->len; i++) {
    const tree_node *pair = history->child[i];
    if (pair->kind != TREE_LIST || pair->len != 2)
      TREE_FAIL(pair, "expected a pair [user, assistant]");
    HP_TRY(add_message(a, CHAT_USER, pair->child[0]));
    HP_TRY(add_message(a, CHAT_ASSISTANT, pair->child[1]));
  }
  return HP_OK;
}

/* Prompt and query, with a line break between unless one is empty. */
static hp_status add_instruction(aligning *a) {
  dataset_text prompt, query;
  HP_TRY(take_text(a, column(a, a->f->prompt), &prompt));
  HP_TRY(take_text(a, column(a, a->f->query), &query));
  size_t len = prompt.len + query.len + (prompt.len && query.len);
  char *joined = arena_alloc(a->mem, len + 1, 1);
  HP_TRY_MEM(joined);
  memcpy(joined, prompt.at, prompt.len);
  if (prompt.len && query.len) joined[prompt.len] = '\n';
  memcpy(joined + len - query.len, query.at, query.len);
  joined[len] = 0;
  chat_message m = {CHAT_USER, {joined, len}};
  return vec_push(&a->message, m) ? HP_OK : HP_ERR_OOM;
}

static hp_status align_alpaca(aligning *a, chat *out) {
  const chat_format *f = a->f;
  bool judged, good = false;
  if (!column(a, f->prompt)) return refuse_record(a, f->prompt, "prompt");
  HP_TRY(add_history(a));
  HP_TRY(add_instruction(a));
  out->prompt = a->message.len;
  HP_TRY(judgement(a, &judged, &good));
  if (f->ranking) {
    const tree_node *chosen = column(a, f->chosen), *rejected = column(a, f->rejected);
    if (!chosen || !rejected || chosen->kind != TREE_STRING || rejected->kind != TREE_STRING)
      leave_out(a, "it has no chosen and rejected text");
    HP_TRY(add_message(a, CHAT_ASSISTANT, a->left_out ? NULL : chosen));
    return add_message(a, CHAT_ASSISTANT, a->left_out ? NULL : rejected);
  }
  const tree_node *response = column(a, f->response);
  if (!response || response->kind != TREE_STRING) {
    if (!judged) return HP_OK;
    leave_out(a, "it has no response");
    response = NULL;
  }
  if (!judged) return add_message(a, CHAT_ASSISTANT, response);
  chat_message m = {.role = CHAT_ASSISTANT};
  HP_TRY(take_text(a, response, &m.text));
  return add_judged(a, &m, good);
}

/* --- sharegpt, openai ------------------------------------------------------------------------- */

static bool is_tag(const char *tag, const tree_node *role) {
  return tag && role->len == strlen(tag) && !memcmp(tag, role->string, role->len);
}

/* The role that a message's tag names; false: none. */
static bool find_role(const chat_format *f, const tree_node *tag, chat_role *out) {
  const char *const of[] = {f->user_tag, f->assistant_tag, f->system_tag, f->function_tag,
                            f->observation_tag};
  for (int i = 0; i < 5; i++)
    if (is_tag(of[i], tag)) {
      *out = (chat_role)i;
      return true;
    }
  return false;
}

/* Role and content of a message. */
static hp_status open_message(const aligning *a, const tree_node *m, const tree_node **role,
                              const tree_node **content) {
  HP_TRY(tree_expect(m, TREE_MAP));
  HP_TRY(tree_need(m, a->f->role_tag, role));
  HP_TRY(tree_expect(*role, TREE_STRING));
  *content = tree_get(m, a->f->content_tag);
  if (*content && (*content)->kind == TREE_LIST)
    TREE_FAIL(*content, "a list of parts (text, images) in place of text is not built; write the "
                        "text alone");
  return HP_OK;
}

/* A message, told by its role; one of another role leaves the record out. */
static hp_status add_turn(aligning *a, const tree_node *m) {
  const tree_node *tag, *content;
  chat_role role;
  HP_TRY(open_message(a, m, &tag, &content));
  if (find_role(a->f, tag, &role)) return add_message(a, role, content);
  leave_out(a, "it has a message of an unknown role");
  return HP_OK;
}

/* The functions that an assistant calls, as JSON text in place of its content. */
static hp_status add_calls(aligning *a, const tree_node *calls) {
  str text = {0};
  json_writer w = {.out = &text, .utf8 = true};
  hp_status st = tree_expect(calls, TREE_LIST);
  json_open_list(&w);
  for (uint32_t i = 0; !st && i < calls->len; i++) {
    const tree_node *function;
    st = tree_need_map(calls->child[i], "function", &function);
    if (!st) json_put_tree(&w, function);
  }
  if (!st) json_close(&w);
  if (!st) st = str_status(&text);
  chat_message m = {.role = CHAT_FUNCTION};
  if (!st) st = copy_text(a, text.at, text.len, &m.text);
  if (!st && !vec_push(&a->message, m)) st = HP_ERR_OOM;
  str_free(&text);
  return st;
}

/* Results of several tools one after another are one observation. */
static hp_status add_observations(aligning *a, str *results, bool *any) {
  chat_message m = {.role = CHAT_OBSERVATION};
  if (!*any) return HP_OK;
  *any = false;
  HP_TRY(str_status(results));
  HP_TRY(copy_text(a, results->at ? results->at : "", results->len, &m.text));
  str_clear(results);
  return vec_push(&a->message, m) ? HP_OK : HP_ERR_OOM;
}

static hp_status add_openai(aligning *a, const tree_node *list, uint32_t first, str *results) {
  bool any = false;
  for (uint32_t i = first; i < list->len; i++) {
    const tree_node *m = list->child[i], *tag, *content;
    HP_TRY(open_message(a, m, &tag, &content));
    if (is_tag(a->f->observation_tag, tag)) {
      dataset_text x;
      HP_TRY(take_content(a, content, &x));
      if (any) str_add(results, "\n</tool_response>\n<tool_response>\n");
      str_add_n(results, x.at, x.len);
      any = true;
      continue;
    }
    HP_TRY(add_observations(a, results, &any));
    const tree_node *calls = tree_get(m, "tool_calls");
    bool answers = is_tag(a->f->assistant_tag, tag) || is_tag(a->f->function_tag, tag);
    if (answers && calls && calls->kind == TREE_LIST && calls->len) HP_TRY(add_calls(a, calls));
    else HP_TRY(add_turn(a, m));
  }
  return HP_OK;
}

static hp_status add_turns(aligning *a, const tree_node *list, uint32_t first) {
  for (uint32_t i = first; i < list->len; i++) HP_TRY(add_turn(a, list->child[i]));
  return HP_OK;
}

/* User and observation in even places, assistant and function in odd ones. */
static void check_order(aligning *a) {
  for (size_t i = 0; i < a->message.len; i++) {
    chat_role r = a->message.at[i].role;
    bool asks = r == CHAT_USER || r == CHAT_OBSERVATION;
    bool answers = r == CHAT_ASSISTANT || r == CHAT_FUNCTION;
    if (i % 2 ? !answers : !asks) leave_out(a, "its roles are out of order");
  }
  if (!a->message.len) leave_out(a, "it has no messages");
  else if (a->message.len % 2 != a->f->ranking)
    leave_out(a,
              a->f->ranking ? "its prompt ends with an answer" : "its last message has no answer");
}

/* The system message in front of the others, or the column for it; first: the place behind it. */
static hp_status take_system(aligning *a, const tree_node *list, uint32_t *first, chat *out) {
  const tree_node *tag, *content;
  *first = 0;
  if (list->len) HP_TRY(open_message(a, list->child[0], &tag, &content));
  if (!list->len || !is_tag(a->f->system_tag, tag))
    return take_text(a, column(a, a->f->system), &out->system);
  *first = 1;
  return take_text(a, content, &out->system);
}

static hp_status add_preference(aligning *a, const char *name) {
  const tree_node *m = column(a, name);
  if (!m || m->kind != TREE_MAP) {
    leave_out(a, "it has no chosen and rejected message");
    return HP_OK;
  }
  HP_TRY(add_turn(a, m));
  chat_role r = a->message.len ? a->message.at[a->message.len - 1].role : CHAT_USER;
  if (r != CHAT_ASSISTANT && r != CHAT_FUNCTION)
    leave_out(a, "its chosen or rejected message is not the assistant's");
  return HP_OK;
}

static hp_status align_turns(aligning *a, chat *out) {
  const chat_format *f = a->f;
  const tree_node *list = column(a, f->messages);
  bool judged, good = false;
  uint32_t first;
  if (!list || list->kind == TREE_NULL) return refuse_record(a, f->messages, "messages");
  HP_TRY(tree_expect(list, TREE_LIST));
  HP_TRY(take_system(a, list, &first, out));
  str results = {0};
  hp_status st = f->formatting == CHAT_OPENAI ? add_openai(a, list, first, &results)
                                              : add_turns(a, list, first);
  str_free(&results);
  HP_TRY(st);
  check_order(a);
  out->prompt = a->message.len;
  if (f->ranking) {
    HP_TRY(add_preference(a, f->chosen));
    return add_preference(a, f->rejected);
  }
  if (a->left_out) return HP_OK;
  out->prompt--;
  HP_TRY(judgement(a, &judged, &good));
  if (!judged) return HP_OK;
  chat_message response = a->message.at[--a->message.len];
  return add_judged(a, &response, good);
}

/* --- all -------------------------------------------------------------------------------------- */

/* LlamaFactory 0.9.5 ends the system message of openai data without tools in this way. */
static hp_status end_openai_system(aligning *a, chat *out) {
  static const char off[] = "detailed thinking off", on[] = "detailed thinking on";
  dataset_text *s = &out->system;
  if (!s->len && out->tools.len) return HP_OK;
  if (!s->len) {
    *s = (dataset_text){off, sizeof off - 1};
    return HP_OK;
  }
  bool said =
      memmem(s->at, s->len, on, sizeof on - 1) || memmem(s->at, s->len, off, sizeof off - 1);
  if (!out->tools.len && said) return HP_OK;
  str text = {0};
  str_add_n(&text, s->at, s->len);
  str_add_char(&text, '\n');
  if (!out->tools.len) str_add(&text, off);
  hp_status st = str_status(&text);
  if (!st) st = copy_text(a, text.at, text.len, s);
  str_free(&text);
  return st;
}

/* Tools are JSON text; openai data may have them as values. */
static hp_status take_tools(aligning *a, chat *out) {
  const tree_node *tools = column(a, a->f->tools);
  bool value = tools && (tools->kind == TREE_LIST || tools->kind == TREE_MAP);
  if (!value || a->f->formatting != CHAT_OPENAI) return take_text(a, tools, &out->tools);
  str text = {0};
  json_writer w = {.out = &text, .utf8 = true};
  json_put_tree(&w, tools);
  hp_status st = str_status(&text);
  if (!st) st = copy_text(a, text.at, text.len, &out->tools);
  str_free(&text);
  return st;
}

/* Images, video and audio are for models that this one is not. */
static hp_status check_media(const aligning *a) {
  const char *const name[] = {a->f->images, a->f->videos, a->f->audios};
  for (int i = 0; i < 3; i++) {
    const tree_node *v = column(a, name[i]);
    if (!v || v->kind == TREE_NULL || (v->kind == TREE_LIST && !v->len)) continue;
    TREE_FAIL(v, "images, video and audio are not built; leave such records out");
  }
  return HP_OK;
}

hp_status chat_align(const chat_format *f, const tree_node *record, arena *mem, chat *out) {
  aligning a = {.f = f, .record = record, .mem = mem};
  *out = (chat){.system = {"", 0}, .tools = {"", 0}};
  HP_TRY(tree_expect(record, TREE_MAP));
  HP_TRY(check_media(&a));
  hp_status st = f->formatting == CHAT_ALPACA ? align_alpaca(&a, out) : align_turns(&a, out);
  if (!st && f->formatting == CHAT_ALPACA) st = take_text(&a, column(&a, f->system), &out->system);
  if (!st) st = take_tools(&a, out);
  if (!st && f->formatting == CHAT_OPENAI) st = end_openai_system(&a, out);
  out->n = a.left_out ? 0 : a.message.len;
  if (a.left_out) out->prompt = 0;
  out->left_out = a.left_out;
  chat_message *copy = st || !out->n ? NULL : arena_alloc(mem, out->n, sizeof *copy);
  if (copy) memcpy(copy, a.message.at, out->n * sizeof *copy);
  else if (!st && out->n) st = HP_ERR_OOM;
  out->message = copy;
  vec_free(&a.message);
  return st;
}
