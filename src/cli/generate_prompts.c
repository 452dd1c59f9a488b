#include "cli/generate_prompts.h"

#include "base/io.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

enum { PROMPTS_BYTES = 1 << 28 };

typedef struct {
  const char *path;
  const tokenizer *t;
  conversation talk;
} source;

static hp_status push(prompts *p, const char *line, token_ids *ids) {
  const lm_tokens x = {ids->at, (int64_t)ids->len};
  if (!vec_reserve(&p->prompt, 1) || !vec_reserve(&p->line, 1)) return HP_ERR_OOM;
  (void)vec_push(&p->prompt, x);
  (void)vec_push(&p->line, line);
  *ids = (token_ids){0};
  return HP_OK;
}

static hp_status add_text(source *s, const char *line, size_t n, size_t number, prompts *p) {
  token_ids ids = {0};
  (void)number;
  hp_status st = tokenizer_encode(s->t, line, n, TOKENIZE_SPECIAL, &ids);
  if (!st) st = push(p, line, &ids);
  vec_free(&ids);
  return st;
}

static hp_status encode_conversation(source *s, tree *x, token_ids *out) {
  if (!s->talk.by_encoder) return model_chat_encode(&s->talk.own, x, out);
  HP_TRY(conversation_read(&s->talk, x->root));
  return conversation_encode(&s->talk, out);
}

/* A file that is one JSON value over several lines fails in the first of them. */
static hp_status parse_conversation(const source *s, const char *line, size_t n, size_t number,
                                    tree *out) {
  hp_status st = json_parse_line(line, n, s->path, number, out);
  if (!st || st == HP_ERR_OOM) return st;
  char text[ERR_MESSAGE_MAX];
  snprintf(text, sizeof text, "%s", err_message());
  err_clear();
  HP_FAIL(st, "%s; each line of the file is a conversation of its own, as JSON", text);
}

static hp_status add_conversation(source *s, const char *line, size_t n, size_t number,
                                  prompts *p) {
  tree x;
  token_ids ids = {0};
  HP_TRY(parse_conversation(s, line, n, number, &x));
  hp_status st = encode_conversation(s, &x, &ids);
  if (!st) st = push(p, "", &ids);
  vec_free(&ids);
  tree_free(&x);
  return st;
}

static hp_status read_lines(source *s, prompts *p,
                            hp_status (*add)(source *s, const char *line, size_t n, size_t number,
                                             prompts *p)) {
  size_t n, number = 0;
  HP_TRY(file_read(s->path, PROMPTS_BYTES, &p->file, &n));
  for (char *at = p->file, *end; at < p->file + n; at = end + 1) {
    end = memchr(at, '\n', (size_t)(p->file + n - at));
    if (!end) end = p->file + n;
    size_t length = (size_t)(end - at);
    if (length && at[length - 1] == '\r') length--;
    number++;
    if (!length) continue;
    HP_TRY(add(s, at, length, number, p));
    at[length] = 0;
  }
  if (!p->prompt.len) HP_FAIL(HP_ERR_ARG, "%s: there is no prompt, one a line", s->path);
  p->r = mem_calloc(p->prompt.len, sizeof *p->r);
  HP_TRY_MEM(p->r);
  return HP_OK;
}

hp_status prompts_read_texts(const char *path, const tokenizer *t, prompts *out) {
  source s = {.path = path, .t = t};
  return read_lines(&s, out, add_text);
}

hp_status prompts_read_messages(const char *path, const char *model, const tokenizer *t,
                                const conversation_options *how, prompts *out) {
  source s = {.path = path, .t = t};
  HP_TRY(conversation_open(model, t, how, &s.talk));
  out->n_eos = conversation_find_ends(&s.talk, out->eos, GENERATION_ENDS_MAX);
  hp_status st = read_lines(&s, out, add_conversation);
  conversation_close(&s.talk);
  return st;
}

void prompts_free(prompts *p) {
  for (size_t i = 0; i < p->prompt.len; i++) {
    mem_free(p->prompt.at[i].ids);
    if (p->r) generation_result_free(&p->r[i]);
  }
  vec_free(&p->prompt);
  vec_free(&p->line);
  mem_free(p->r);
  mem_free(p->file);
}
