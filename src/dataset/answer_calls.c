#include "dataset/answer_calls.h"

#include "base/json.h"

#include <string.h>

typedef struct {
  const char *at, *end;
  answer_call *tell;
  void *ctx;
} search;

static bool is_space(char c) { return c && strchr(" \t\r\n", c); }

/* Tells of a call, without the space around its parts. */
static void tell(const search *s, const char *name, const char *name_end, const char *arguments,
                 const char *end) {
  while (name < name_end && is_space(*name)) name++;
  while (name < name_end && is_space(name_end[-1])) name_end--;
  while (arguments < end && is_space(*arguments)) arguments++;
  while (arguments < end && is_space(end[-1])) end--;
  if (name < name_end)
    s->tell(s->ctx, name, (size_t)(name_end - name), arguments, (size_t)(end - arguments));
}

static const char *find(const search *s, const char *from, const char *word) {
  return memmem(from, (size_t)(s->end - from), word, strlen(word));
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* The end of the JSON value that begins at `from`; NULL: it is none. */
static const char *find_json_end(const search *s, const char *from) {
  json_reader r = {.name = "the answer", .text = from, .len = (size_t)(s->end - from)};
  json_token first;
  const char *end = NULL;
  if (!json_next(&r, &first) && !json_skip(&r, &first)) end = from + r.at;
  else err_clear();
  json_reader_free(&r);
  return end;
}

static hp_status tell_of_json(const search *s, const char *from, const char *end, bool *called) {
  tree t = {0};
  *called = false;
  if (json_parse(from, (size_t)(end - from), "the answer", &t)) {
    err_clear();
    return HP_OK;
  }
  const tree_node *name = tree_get(t.root, "name"), *given = tree_get(t.root, "arguments");
  if (!given) given = tree_get(t.root, "parameters");
  hp_status st = HP_OK;
  *called = name && name->kind == TREE_STRING && given;
  if (*called) {
    str text = {0};
    json_writer w = {.out = &text, .utf8 = true};
    json_put_tree(&w, given);
    st = str_status(&text);
    if (!st) tell(s, name->string, name->string + name->len, text.at, text.at + text.len);
    str_free(&text);
  }
  tree_free(&t);
  return st;
}

/* Objects of a name and arguments, wherever they are in the text. */
static hp_status find_json(const search *s) {
  for (const char *at = s->at; (at = memchr(at, '{', (size_t)(s->end - at)));) {
    const char *end = find_json_end(s, at);
    bool called = false;
    if (end) HP_TRY(tell_of_json(s, at, end, &called));
    at = called ? end : at + 1;
  }
  return HP_OK;
}

/* --- words ------------------------------------------------------------------------------------ */

/* Action: NAME, Action Input: ARGUMENTS */
static void find_actions(const search *s) {
  static const char action[] = "Action:", input[] = "Action Input:";
  for (const char *at = s->at; (at = find(s, at, action));) {
    const char *name = at + sizeof action - 1, *is = find(s, name, input);
    if (!is) return;
    const char *arguments = is + sizeof input - 1, *next = find(s, arguments, action);
    tell(s, name, is, arguments, next ? next : s->end);
    at = arguments;
  }
}

/* OPEN NAME CLOSE ARGUMENTS END */
static void find_marked(const search *s, const char *open, const char *close, const char *last) {
  for (const char *at = s->at; (at = find(s, at, open));) {
    const char *name = at + strlen(open), *name_end = find(s, name, close);
    const char *end = name_end ? find(s, name_end, last) : NULL;
    if (!end) return;
    tell(s, name, name_end, name_end + strlen(close), end);
    at = end;
  }
}

static bool is_tool(const tree_node *tools, const char *name, size_t n) {
  if (!tools || tools->kind != TREE_LIST) return false;
  for (uint32_t i = 0; i < tools->len; i++) {
    const tree_node *one = tools->child[i], *function = tree_get(one, "function");
    const tree_node *own = tree_get(function ? function : one, "name");
    if (own && own->kind == TREE_STRING && own->len == n && !memcmp(own->string, name, n))
      return true;
  }
  return false;
}

/* The name of a tool on a line of its own, then JSON. */
static void find_named(const search *s, const tree_node *tools) {
  const char *line = s->at;
  while (line < s->end && is_space(*line)) line++;
  const char *name_end = memchr(line, '\n', (size_t)(s->end - line));
  if (!name_end || !is_tool(tools, line, (size_t)(name_end - line))) return;
  const char *end = find_json_end(s, name_end);
  if (end) tell(s, line, name_end, name_end, end);
}

/* --- a tool's name among other text ----------------------------------------------------------- */

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c && strchr("_.-", c));
}

/* Behind the bracket that closes the one at `from`; brackets in quotes do not count. */
static const char *find_bracket_end(const search *s, const char *from) {
  char open = *from, close = open == '(' ? ')' : '}', quote = 0;
  int depth = 0;
  for (const char *at = from; at < s->end; at++) {
    if (quote && *at == '\\') at++;
    else if (quote) quote = *at == quote ? 0 : quote;
    else if (*at == '"' || *at == '\'') quote = *at;
    else if (*at == open) depth++;
    else if (*at == close && !--depth) return at + 1;
  }
  return NULL;
}

static bool stands_at(const search *s, const char *at, const char *word) {
  size_t n = strlen(word);
  return (size_t)(s->end - at) >= n && !memcmp(at, word, n);
}

static bool stands_before(const search *s, const char *at, const char *word) {
  size_t n = strlen(word);
  return (size_t)(at - s->at) >= n && !memcmp(at - n, word, n);
}

/* Is it the first of a list, or behind another call of one? */
static bool is_listed(const search *s, const char *name, const char *last_call) {
  while (name > s->at && is_space(name[-1])) name--;
  return stands_before(s, name, "[") || (stands_before(s, name, ",") && last_call == name - 1);
}

/* The end of the arguments of call:NAME{...}, [NAME(...), NAME(...)], or NAME with <arg_key> on the
 * next line (special tokens around them are not part of an answer); NULL: it is no call.
 * last_call: the end of the one before it, or NULL. */
static const char *find_call_end(const search *s, const char *name, const char *name_end,
                                 const char *last_call) {
  if (stands_at(s, name_end, "\n<arg_key>")) {
    const char *end = find(s, name_end, "</tool_call>");
    return end ? end : s->end;
  }
  bool called = stands_at(s, name_end, "{") && stands_before(s, name, "call:");
  bool listed = stands_at(s, name_end, "(") && is_listed(s, name, last_call);
  return called || listed ? find_bracket_end(s, name_end) : NULL;
}

static void find_words(const search *s, const tree_node *tools) {
  const char *last_call = NULL;
  for (const char *at = s->at; at < s->end;) {
    const char *word = at, *end = NULL;
    while (at < s->end && is_word(*at)) at++;
    if (at == word) at++;
    else if (is_tool(tools, word, (size_t)(at - word))) end = find_call_end(s, word, at, last_call);
    if (!end) continue;
    tell(s, word, at, at, end);
    at = last_call = end;
  }
}

hp_status answer_find_calls(const char *text, size_t n, const tree_node *tools, answer_call *told,
                            void *ctx) {
  const search s = {text, text + n, told, ctx};
  HP_TRY(find_json(&s));
  find_actions(&s);
  find_marked(&s, "<function=", ">", "</function>");
  find_marked(&s, "<invoke name=\"", "\">", "</invoke>");
  find_named(&s, tools);
  find_words(&s, tools);
  return HP_OK;
}
