/* Statements, and a template as a whole. */
#include "jinja/jinja_call.h"
#include "jinja/jinja_parser.h"
#include "jinja/jinja_text.h"

#include <string.h>

static bool next_is_word(const jinja_parser *p, const char *word) {
  return jinja_token_is(p->token, JINJA_T_NAME, word);
}

/* The words that end a body: up to three, "endfor" and "else". */
typedef struct {
  const char *at[3];
} end_words;

static bool is_end(const jinja_token *t, const end_words *ends) {
  for (int i = 0; i < 3; i++)
    if (ends->at[i] && jinja_token_is(t, JINJA_T_NAME, ends->at[i])) return true;
  return false;
}

static hp_status parse_nodes(jinja_parser *p, const jinja_token *opener, const end_words *ends,
                             jinja_nodes *out);

/* The end of this tag and what follows, up to one of the words, which is the next token then. */
static hp_status parse_body(jinja_parser *p, const jinja_token *opener, const end_words *ends,
                            jinja_nodes *out) {
  (void)jinja_accept(p, JINJA_T_OP, ":");
  HP_TRY(jinja_expect(p, JINJA_T_BLOCK_END, "%}"));
  return parse_nodes(p, opener, ends, out);
}

/* A body that ends with one word only, which is taken. */
static hp_status parse_last_body(jinja_parser *p, const jinja_token *opener, const char *end,
                                 jinja_nodes *out) {
  HP_TRY(parse_body(p, opener, &(const end_words){{end}}, out));
  p->token++;
  return HP_OK;
}

/* --- statements; each begins behind its word, `t`, and ends before its tag's end ------------- */

static hp_status parse_if(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  static const end_words more = {{"elif", "else", "endif"}}, last = {{"endif"}};
  jinja_node_list list = {0};
  jinja_node *n, *branch;
  hp_status st;
  HP_TRY(jinja_new_node(p, JINJA_N_IF, t, &n));
  bool outer = p->in_if;
  for (bool is_else = false;;) {
    HP_TRY_GOTO(jinja_new_node(p, JINJA_N_BRANCH, p->token, &branch), st);
    if (!vec_push(&list, branch)) HP_TRY_GOTO(HP_ERR_OOM, st);
    if (!is_else) HP_TRY_GOTO(jinja_parse_values(p, false, &branch->a), st);
    p->in_if = true;
    HP_TRY_GOTO(parse_body(p, t, is_else ? &last : &more, &branch->list), st);
    p->in_if = outer;
    if (jinja_accept(p, JINJA_T_NAME, "endif")) break;
    is_else = next_is_word(p, "else");
    p->token++;
  }
  HP_TRY_GOTO(jinja_keep_nodes(p, &list, &n->list), st);
  *out = n;
done:
  vec_free(&list);
  return st;
}

static hp_status parse_for(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  static const end_words ends = {{"else", "endfor"}};
  jinja_node *n;
  HP_TRY(jinja_new_node(p, JINJA_N_FOR, t, &n));
  HP_TRY(jinja_parse_target(p, false, &n->a));
  HP_TRY(jinja_expect(p, JINJA_T_NAME, "in"));
  HP_TRY(jinja_parse_values(p, false, &n->b));
  if (jinja_accept(p, JINJA_T_NAME, "if")) HP_TRY(jinja_parse_expression(p, true, &n->c));
  if (next_is_word(p, "recursive"))
    PARSE_UNSUPPORTED(p, p->token, "recursive loops are not supported");
  bool outer = p->in_loop;
  p->in_loop = true;
  HP_TRY(parse_body(p, t, &ends, &n->list));
  p->in_loop = outer;
  if (jinja_accept(p, JINJA_T_NAME, "else")) HP_TRY(parse_last_body(p, t, "endfor", &n->more));
  else p->token++;
  *out = n;
  return HP_OK;
}

/* The body of a macro, or one whose output is put aside: a loop around it cannot be left. */
static hp_status parse_function_body(jinja_parser *p, const jinja_token *t, const char *end,
                                     jinja_nodes *out) {
  bool outer = p->in_loop;
  p->in_loop = false;
  HP_TRY(parse_last_body(p, t, end, out));
  p->in_loop = outer;
  return HP_OK;
}

static hp_status parse_set(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  jinja_node *n, *target;
  HP_TRY(jinja_parse_target(p, true, &target));
  bool block = !jinja_accept(p, JINJA_T_OP, "=");
  HP_TRY(jinja_new_node(p, block ? JINJA_N_SET_BLOCK : JINJA_N_SET, t, &n));
  n->a = target;
  *out = n;
  if (!block) return jinja_parse_values(p, true, &n->b);
  HP_TRY(jinja_parse_filters(p, NULL, false, &n->b));
  return parse_function_body(p, t, "endset", &n->list);
}

static hp_status parse_params(jinja_parser *p, jinja_node *macro) {
  jinja_node_list list = {0};
  jinja_node *n;
  bool defaults = false;
  hp_status st;
  HP_TRY(jinja_expect(p, JINJA_T_OP, "("));
  while (!jinja_accept(p, JINJA_T_OP, ")")) {
    if (list.len) HP_TRY_GOTO(jinja_expect(p, JINJA_T_OP, ","), st);
    const jinja_token *t = p->token;
    HP_TRY_GOTO(jinja_new_node(p, JINJA_N_KEYWORD, t, &n), st);
    HP_TRY_GOTO(jinja_expect_name(p, "the name of a parameter", &n->name), st);
    if (!vec_push(&list, n)) HP_TRY_GOTO(HP_ERR_OOM, st);
    if (jinja_accept(p, JINJA_T_OP, "=")) {
      HP_TRY_GOTO(jinja_parse_expression(p, true, &n->a), st);
      defaults = true;
    } else if (defaults) {
      HP_TRY_GOTO(jinja_parse_error(p, t, HP_ERR_INPUT, __FILE__, __LINE__,
                                    "a parameter without a default after one with a default"),
                  st);
    }
  }
  HP_TRY_GOTO(jinja_keep_nodes(p, &list, &macro->more), st);
done:
  vec_free(&list);
  return st;
}

static hp_status parse_macro(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  jinja_node *n;
  HP_TRY(jinja_new_node(p, JINJA_N_MACRO, t, &n));
  HP_TRY(jinja_expect_name(p, "the name of the macro", &n->name));
  HP_TRY(parse_params(p, n));
  *out = n;
  return parse_function_body(p, t, "endmacro", &n->list);
}

/* "call(x) macro(...)": the body is the macro `caller` of the one that is called. */
static hp_status parse_call_block(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  jinja_node *n;
  HP_TRY(jinja_new_node(p, JINJA_N_CALL_BLOCK, t, &n));
  if (jinja_token_is(p->token, JINJA_T_OP, "(")) HP_TRY(parse_params(p, n));
  const jinja_token *call = p->token;
  HP_TRY(jinja_parse_expression(p, true, &n->a));
  if (n->a->kind != JINJA_N_CALL) PARSE_FAIL(p, call, "expected the call of a macro");
  n->name = intern(&p->t->names, "caller", 6);
  if (!n->name) return HP_ERR_OOM;
  *out = n;
  return parse_function_body(p, t, "endcall", &n->list);
}

static hp_status parse_with(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  jinja_node_list list = {0};
  jinja_node *n, *set;
  hp_status st;
  HP_TRY(jinja_new_node(p, JINJA_N_WITH, t, &n));
  while (p->token->kind != JINJA_T_BLOCK_END) {
    if (list.len) HP_TRY_GOTO(jinja_expect(p, JINJA_T_OP, ","), st);
    HP_TRY_GOTO(jinja_new_node(p, JINJA_N_SET, p->token, &set), st);
    HP_TRY_GOTO(jinja_parse_target(p, false, &set->a), st);
    HP_TRY_GOTO(jinja_expect(p, JINJA_T_OP, "="), st);
    HP_TRY_GOTO(jinja_parse_expression(p, true, &set->b), st);
    if (!vec_push(&list, set)) HP_TRY_GOTO(HP_ERR_OOM, st);
  }
  HP_TRY_GOTO(jinja_keep_nodes(p, &list, &n->more), st);
  *out = n;
  st = parse_last_body(p, t, "endwith", &n->list);
done:
  vec_free(&list);
  return st;
}

static hp_status parse_filter_block(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  jinja_node *n;
  HP_TRY(jinja_new_node(p, JINJA_N_FILTERED, t, &n));
  HP_TRY(jinja_parse_filters(p, NULL, true, &n->b));
  *out = n;
  return parse_function_body(p, t, "endfilter", &n->list);
}

static hp_status parse_generation(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  HP_TRY(jinja_new_node(p, JINJA_N_GENERATION, t, out));
  return parse_function_body(p, t, "endgeneration", &(*out)->list);
}

static hp_status parse_jump(jinja_parser *p, const jinja_token *t, jinja_node **out) {
  if (!p->in_loop) PARSE_FAIL(p, t, "\"%.*s\" is not in a loop", (int)t->len, t->text);
  return jinja_new_node(p, *t->text == 'b' ? JINJA_N_BREAK : JINJA_N_CONTINUE, t, out);
}

typedef struct {
  const char *word;
  hp_status (*parse)(jinja_parser *p, const jinja_token *t,
                     jinja_node **out); /* NULL: is refused */
} statement_row;
static const statement_row statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"break", parse_jump},
    {"continue", parse_jump},
    {"with", parse_with},
    {"call", parse_call_block},
    {"block", NULL},
    {"extends", NULL},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"print", NULL},
    {"autoescape", NULL},
};

static hp_status parse_statement(jinja_parser *p, const jinja_token *opener, jinja_node **out) {
  const jinja_token *t = p->token;
  const int n = t->len > 60 ? 60 : (int)t->len;
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
    if (!next_is_word(p, statements[i].word)) continue;
    if (!statements[i].parse)
      PARSE_UNSUPPORTED(p, t, "the tag \"%.*s\" is not supported", n, t->text);
    p->token++;
    HP_TRY(jinja_enter_nesting(p));
    HP_TRY(statements[i].parse(p, t, out));
    p->depth--;
    return jinja_expect(p, JINJA_T_BLOCK_END, "%}");
  }
  if (t->kind != JINJA_T_NAME) PARSE_FAIL(p, t, "expected the name of a tag, e.g. if, for, set");
  if (opener)
    PARSE_FAIL(p, t, "unknown tag \"%.*s\"; the \"%.*s\" of line %u is still open", n, t->text,
               (int)opener->len, opener->text, (unsigned)opener->line);
  PARSE_FAIL(p, t, "unknown tag \"%.*s\"", n, t->text);
}

static hp_status parse_output(jinja_parser *p, jinja_node **out) {
  HP_TRY(jinja_new_node(p, JINJA_N_PRINT, p->token++, out));
  HP_TRY(jinja_parse_values(p, true, &(*out)->a));
  return jinja_expect(p, JINJA_T_OUTPUT_END, "}}");
}

static hp_status parse_text(jinja_parser *p, jinja_node **out) {
  const jinja_token *t = p->token++;
  HP_TRY(jinja_new_node(p, JINJA_N_TEXT, t, out));
  (*out)->constant = jinja_string(t->text, t->len);
  return HP_OK;
}

static hp_status parse_nodes(jinja_parser *p, const jinja_token *opener, const end_words *ends,
                             jinja_nodes *out) {
  jinja_node_list list = {0};
  jinja_node *n;
  hp_status st;
  while (p->token->kind != JINJA_T_END) {
    if (p->token->kind == JINJA_T_BLOCK && is_end(p->token + 1, ends)) {
      p->token++;
      return jinja_keep_nodes(p, &list, out);
    }
    if (p->token->kind == JINJA_T_TEXT) {
      HP_TRY_GOTO(parse_text(p, &n), st);
    } else if (p->token->kind == JINJA_T_OUTPUT) {
      HP_TRY_GOTO(parse_output(p, &n), st);
    } else {
      p->token++;
      HP_TRY_GOTO(parse_statement(p, opener, &n), st);
    }
    if (!vec_push(&list, n)) HP_TRY_GOTO(HP_ERR_OOM, st);
  }
  if (!opener) return jinja_keep_nodes(p, &list, out);
  HP_TRY_GOTO(jinja_parse_error(p, opener, HP_ERR_INPUT, __FILE__, __LINE__,
                                "the \"%.*s\" has no \"%s\"", (int)opener->len, opener->text,
                                ends->at[ends->at[1] ? (ends->at[2] ? 2 : 1) : 0]),
              st);
done:
  vec_free(&list);
  return st;
}

/* --- templates --------------------------------------------------------------------------- */

/* Copies the text with \n for every line break, without the last one. */
static hp_status take_text(struct jinja *t, const char *text, size_t len) {
  if (len > JINJA_TEXT_MAX)
    HP_FAIL(HP_ERR_INPUT, "%s: a template of %zu bytes, at most %d", t->name, len, JINJA_TEXT_MAX);
  if (!jinja_is_utf8(text, len)) HP_FAIL(HP_ERR_INPUT, "%s: the template is not UTF-8", t->name);
  t->text = arena_alloc(&t->mem, len + 1, 1);
  HP_TRY_MEM(t->text);
  for (size_t i = 0; i < len; i++) {
    if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n') continue;
    t->text[t->len++] = text[i] == '\r' ? '\n' : text[i];
  }
  if (t->len && t->text[t->len - 1] == '\n') t->len--;
  t->text[t->len] = 0;
  return HP_OK;
}

static hp_status parse_all(struct jinja *t, const char *name, const char *text, size_t len) {
  static const end_words none = {{NULL}};
  jinja_tokens tokens = {0};
  t->name = arena_strdup(&t->mem, name);
  HP_TRY_MEM(t->name);
  HP_TRY(take_text(t, text, len));
  hp_status st = jinja_lex(t, &tokens);
  jinja_parser p = {.t = t, .token = tokens.at};
  if (!st) st = parse_nodes(&p, NULL, &none, &t->body);
  vec_free(&tokens);
  return st;
}

hp_status jinja_parse(const char *name, const char *text, size_t len, jinja **out) {
  jinja *t = mem_calloc(1, sizeof *t);
  HP_TRY_MEM(t);
  hp_status st = parse_all(t, name, text, len);
  if (st) jinja_free(t);
  else *out = t;
  return st;
}

void jinja_free(jinja *t) {
  if (!t) return;
  arena_free(&t->mem);
  intern_free(&t->names);
  mem_free(t);
}
