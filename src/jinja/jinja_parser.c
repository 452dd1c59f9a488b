/* Tokens and nodes for the parser. */
#include "jinja/jinja_parser.h"

#include <stdio.h>
#include <string.h>

hp_status jinja_parse_error(const jinja_parser *p, const jinja_token *token, hp_status code,
                            const char *file, int line, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return err_set(code, file, line, "%s:%u:%u: %s", p->t->name, (unsigned)token->line,
                 (unsigned)token->column, text);
}

/* A token in messages. */
tree_place jinja_token_text(const jinja_token *token) {
  tree_place out = {""};
  switch (token->kind) {
  case JINJA_T_END: snprintf(out.text, sizeof out.text, "the end of the template"); break;
  case JINJA_T_TEXT: snprintf(out.text, sizeof out.text, "text"); break;
  case JINJA_T_STRING:
    snprintf(out.text, sizeof out.text, "the string \"%.*s\"",
             token->len > 60 ? 60 : (int)token->len, token->text);
    break;
  default:
    snprintf(out.text, sizeof out.text, "\"%.*s\"", token->len > 60 ? 60 : (int)token->len,
             token->text);
  }
  return out;
}

bool jinja_token_is(const jinja_token *token, jinja_token_kind kind, const char *text) {
  return token->kind == kind && token->len == strlen(text) &&
         !memcmp(token->text, text, token->len);
}

bool jinja_accept(jinja_parser *p, jinja_token_kind kind, const char *text) {
  if (!jinja_token_is(p->token, kind, text)) return false;
  p->token++;
  return true;
}

hp_status jinja_expect(jinja_parser *p, jinja_token_kind kind, const char *text) {
  if (jinja_accept(p, kind, text)) return HP_OK;
  PARSE_FAIL(p, p->token, "expected \"%s\", found %s", text, jinja_token_text(p->token).text);
}

hp_status jinja_name_number(jinja_parser *p, const jinja_token *token, uint32_t *out) {
  *out = intern(&p->t->names, token->text, token->len);
  return *out ? HP_OK : HP_ERR_OOM;
}

hp_status jinja_expect_name(jinja_parser *p, const char *wanted, uint32_t *out) {
  if (p->token->kind != JINJA_T_NAME || (*p->token->text >= '0' && *p->token->text <= '9'))
    PARSE_FAIL(p, p->token, "expected %s, found %s", wanted, jinja_token_text(p->token).text);
  return jinja_name_number(p, p->token++, out);
}

hp_status jinja_new_node(jinja_parser *p, jinja_node_kind kind, const jinja_token *token,
                         jinja_node **out) {
  jinja_node *n = arena_alloc(&p->t->mem, 1, sizeof *n);
  HP_TRY_MEM(n);
  n->kind = (uint8_t)kind;
  n->line = token->line;
  n->column = token->column;
  n->height = 1;
  *out = n;
  return HP_OK;
}

hp_status jinja_keep_nodes(jinja_parser *p, jinja_node_list *list, jinja_nodes *out) {
  jinja_node **at = arena_alloc(&p->t->mem, list->len, sizeof *at);
  if (at && list->len) memcpy(at, list->at, list->len * sizeof *at);
  *out = (jinja_nodes){at, (uint32_t)list->len};
  vec_free(list);
  return at ? HP_OK : HP_ERR_OOM;
}

hp_status jinja_set_height(jinja_parser *p, jinja_node *n) {
  jinja_node *const single[] = {n->a, n->b, n->c};
  const jinja_nodes lists[] = {{(jinja_node **)single, 3}, n->list, n->more};
  unsigned height = 0;
  for (int k = 0; k < 3; k++)
    for (uint32_t i = 0; i < lists[k].len; i++)
      if (lists[k].at[i] && lists[k].at[i]->height > height) height = lists[k].at[i]->height;
  if (height >= JINJA_HEIGHT_MAX)
    PARSE_FAIL(p, p->token, "an expression of more than %d operators in each other",
               JINJA_HEIGHT_MAX);
  n->height = (uint16_t)(height + 1);
  return HP_OK;
}

hp_status jinja_enter_nesting(jinja_parser *p) {
  if (p->depth >= JINJA_NESTING_MAX)
    PARSE_FAIL(p, p->token, "more than %d expressions and blocks in each other", JINJA_NESTING_MAX);
  p->depth++;
  return HP_OK;
}
