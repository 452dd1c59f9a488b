/* Expressions, by recursive descent, with the precedences of Jinja2's parser. */
#include "jinja/jinja_call.h"
#include "jinja/jinja_parser.h"

#include <string.h>

static bool accept_op(jinja_parser *p, const char *text) {
  return jinja_accept(p, JINJA_T_OP, text);
}
static bool accept_word(jinja_parser *p, const char *text) {
  return jinja_accept(p, JINJA_T_NAME, text);
}
static bool next_is_op(const jinja_parser *p, const char *text) {
  return jinja_token_is(p->token, JINJA_T_OP, text);
}

static hp_status new_pair(jinja_parser *p, jinja_node_kind kind, const jinja_token *token,
                          jinja_node *a, jinja_node *b, jinja_node **out) {
  jinja_node *n;
  HP_TRY(jinja_new_node(p, kind, token, &n));
  n->a = a;
  n->b = b;
  HP_TRY(jinja_set_height(p, n));
  *out = n;
  return HP_OK;
}

/* --- values ------------------------------------------------------------------------------ */

/* Expressions up to the closing bracket, with commas; pairs: "key: value" each. */
static hp_status parse_items(jinja_parser *p, const char *close, bool pairs, jinja_nodes *out) {
  jinja_node_list list = {0};
  jinja_node *n;
  hp_status st = HP_OK;
  while (!accept_op(p, close)) {
    if (list.len) {
      HP_TRY_GOTO(jinja_expect(p, JINJA_T_OP, ","), st);
      if (accept_op(p, close)) break;
    }
    HP_TRY_GOTO(jinja_parse_expression(p, true, &n), st);
    if (!vec_push(&list, n)) HP_TRY_GOTO(HP_ERR_OOM, st);
    if (!pairs) continue;
    HP_TRY_GOTO(jinja_expect(p, JINJA_T_OP, ":"), st);
    HP_TRY_GOTO(jinja_parse_expression(p, true, &n), st);
    if (!vec_push(&list, n)) HP_TRY_GOTO(HP_ERR_OOM, st);
  }
  return jinja_keep_nodes(p, &list, out);
done:
  vec_free(&list);
  return st;
}

static hp_status parse_container(jinja_parser *p, jinja_node_kind kind, const char *close,
                                 jinja_node **out) {
  jinja_node *n;
  HP_TRY(jinja_new_node(p, kind, p->token++, &n));
  HP_TRY(parse_items(p, close, kind == JINJA_N_DICT, &n->list));
  *out = n;
  return jinja_set_height(p, n);
}

static hp_status parse_parentheses(jinja_parser *p, jinja_node **out) {
  const jinja_token *open = p->token++;
  if (next_is_op(p, ")")) HP_TRY(jinja_new_node(p, JINJA_N_TUPLE, open, out));
  else HP_TRY(jinja_parse_values(p, true, out));
  return jinja_expect(p, JINJA_T_OP, ")");
}

/* A name, or one of the words for constants. */
static hp_status parse_name(jinja_parser *p, jinja_node **out) {
  static const struct {
    const char *word;
    jinja_kind kind;
    bool value;
  } constant[] = {{"true", JINJA_BOOL, true},   {"True", JINJA_BOOL, true},
                  {"false", JINJA_BOOL, false}, {"False", JINJA_BOOL, false},
                  {"none", JINJA_NONE, false},  {"None", JINJA_NONE, false}};
  for (size_t i = 0; i < sizeof constant / sizeof *constant; i++) {
    if (!jinja_token_is(p->token, JINJA_T_NAME, constant[i].word)) continue;
    HP_TRY(jinja_new_node(p, JINJA_N_CONST, p->token++, out));
    (*out)->constant =
        constant[i].kind == JINJA_BOOL ? jinja_bool(constant[i].value) : jinja_none();
    return HP_OK;
  }
  HP_TRY(jinja_new_node(p, JINJA_N_NAME, p->token, out));
  return jinja_name_number(p, p->token++, &(*out)->name);
}

/* Strings in a row are one. */
static hp_status parse_string(jinja_parser *p, jinja_node **out) {
  const jinja_token *first = p->token;
  size_t n = 0, at = 0;
  for (; p->token->kind == JINJA_T_STRING; p->token++) n += p->token->len;
  char *text = arena_alloc(&p->t->mem, n + 1, 1);
  HP_TRY_MEM(text);
  for (const jinja_token *t = first; t < p->token; at += t++->len)
    if (t->len) memcpy(text + at, t->text, t->len);
  HP_TRY(jinja_new_node(p, JINJA_N_CONST, first, out));
  (*out)->constant = jinja_string(text, n);
  return HP_OK;
}

static hp_status parse_primary(jinja_parser *p, jinja_node **out) {
  const jinja_token *t = p->token;
  if (t->kind == JINJA_T_NAME) return parse_name(p, out);
  if (t->kind == JINJA_T_STRING) return parse_string(p, out);
  if (t->kind == JINJA_T_INT || t->kind == JINJA_T_FLOAT) {
    HP_TRY(jinja_new_node(p, JINJA_N_CONST, p->token++, out));
    (*out)->constant = t->kind == JINJA_T_INT ? jinja_int(t->integer) : jinja_float(t->number);
    return HP_OK;
  }
  if (next_is_op(p, "(")) return parse_parentheses(p, out);
  if (next_is_op(p, "[")) return parse_container(p, JINJA_N_LIST, "]", out);
  if (next_is_op(p, "{")) return parse_container(p, JINJA_N_DICT, "}", out);
  PARSE_FAIL(p, t, "expected a value, found %s", jinja_token_text(t).text);
}

/* --- calls, attributes, subscripts -------------------------------------------------------- */

static hp_status parse_keyword(jinja_parser *p, jinja_node_list *named) {
  jinja_node *n;
  HP_TRY(jinja_new_node(p, JINJA_N_KEYWORD, p->token, &n));
  HP_TRY(jinja_name_number(p, p->token, &n->name));
  p->token += 2;
  HP_TRY(jinja_parse_expression(p, true, &n->a));
  HP_TRY(jinja_set_height(p, n));
  return vec_push(named, n) ? HP_OK : HP_ERR_OOM;
}

static hp_status parse_argument(jinja_parser *p, jinja_node_list *list, jinja_node_list *named) {
  jinja_node *n;
  if (next_is_op(p, "*") || next_is_op(p, "**"))
    PARSE_UNSUPPORTED(p, p->token, "arguments from a list or dict, \"%.*s\", are not supported",
                      (int)p->token->len, p->token->text);
  if (p->token->kind == JINJA_T_NAME && jinja_token_is(p->token + 1, JINJA_T_OP, "="))
    return parse_keyword(p, named);
  if (named->len) PARSE_FAIL(p, p->token, "an argument without a name after one with a name");
  HP_TRY(jinja_parse_expression(p, true, &n));
  return vec_push(list, n) ? HP_OK : HP_ERR_OOM;
}

/* "(a, b, c=d)" into the lists of a node. */
static hp_status parse_arguments(jinja_parser *p, jinja_node *call) {
  jinja_node_list list = {0}, named = {0};
  hp_status st;
  HP_TRY_GOTO(jinja_expect(p, JINJA_T_OP, "("), st);
  while (!accept_op(p, ")")) {
    if (list.len || named.len) {
      HP_TRY_GOTO(jinja_expect(p, JINJA_T_OP, ","), st);
      if (accept_op(p, ")")) break;
    }
    HP_TRY_GOTO(parse_argument(p, &list, &named), st);
  }
  HP_TRY_GOTO(jinja_keep_nodes(p, &list, &call->list), st);
  HP_TRY_GOTO(jinja_keep_nodes(p, &named, &call->more), st);
done:
  vec_free(&list);
  vec_free(&named);
  return st;
}

static hp_status parse_call(jinja_parser *p, jinja_node **n) {
  jinja_node *call;
  HP_TRY(new_pair(p, JINJA_N_CALL, p->token, *n, NULL, &call));
  HP_TRY(parse_arguments(p, call));
  *n = call;
  return jinja_set_height(p, call);
}

static hp_status parse_attribute(jinja_parser *p, jinja_node **n) {
  jinja_node *part;
  const jinja_token *t = ++p->token;
  if (t->kind == JINJA_T_INT) {
    HP_TRY(parse_primary(p, &part));
    return new_pair(p, JINJA_N_ITEM, t, *n, part, n);
  }
  uint32_t name;
  HP_TRY(jinja_expect_name(p, "the name of an attribute", &name));
  if (t->len > 1 && !memcmp(t->text, "__", 2))
    PARSE_UNSUPPORTED(p, t,
                      "attribute \"%.*s\": the inside of Python's objects is not open to templates",
                      t->len > 60 ? 60 : (int)t->len, t->text);
  HP_TRY(new_pair(p, JINJA_N_ATTR, t, *n, NULL, n));
  (*n)->name = name;
  return HP_OK;
}

/* One of the three parts of a slice; none before a colon or the bracket. */
static hp_status parse_slice_part(jinja_parser *p, jinja_node **out) {
  *out = NULL;
  return next_is_op(p, ":") || next_is_op(p, "]") ? HP_OK : jinja_parse_expression(p, true, out);
}

static hp_status parse_subscript(jinja_parser *p, jinja_node **n) {
  const jinja_token *open = p->token++;
  jinja_node *part[3] = {NULL}, *out;
  HP_TRY(parse_slice_part(p, &part[0]));
  if (part[0] && accept_op(p, "]")) return new_pair(p, JINJA_N_ITEM, open, *n, part[0], n);
  if (next_is_op(p, ",")) PARSE_UNSUPPORTED(p, p->token, "a subscript of several values");
  HP_TRY(jinja_expect(p, JINJA_T_OP, ":"));
  HP_TRY(parse_slice_part(p, &part[1]));
  if (accept_op(p, ":")) HP_TRY(parse_slice_part(p, &part[2]));
  HP_TRY(jinja_expect(p, JINJA_T_OP, "]"));
  HP_TRY(new_pair(p, JINJA_N_SLICE, open, *n, NULL, &out));
  out->list = (jinja_nodes){arena_alloc(&p->t->mem, 3, sizeof *out->list.at), 3};
  HP_TRY_MEM(out->list.at);
  memcpy(out->list.at, part, sizeof part);
  *n = out;
  return jinja_set_height(p, out);
}

static hp_status parse_postfix(jinja_parser *p, jinja_node **n) {
  for (;;) {
    if (next_is_op(p, ".")) HP_TRY(parse_attribute(p, n));
    else if (next_is_op(p, "[")) HP_TRY(parse_subscript(p, n));
    else if (next_is_op(p, "(")) HP_TRY(parse_call(p, n));
    else return HP_OK;
  }
}

/* --- filters and tests -------------------------------------------------------------------- */

/* A row that fails when it is called. */
static hp_status refused_row(jinja_parser *p, const jinja_token *t, const jinja_row **out) {
  jinja_row *row = arena_alloc(&p->t->mem, 1, sizeof *row);
  char *name = arena_strndup(&p->t->mem, t->text, t->len);
  if (!row || !name) return HP_ERR_OOM;
  *row = (jinja_row){.name = name, .params = ""};
  *out = row;
  return HP_OK;
}

/* The row of a filter or test by name.  Like in Jinja, one that is not known is no failure as long
 * as the branch of an `if` that it is in is not taken. */
static hp_status find_row(jinja_parser *p, const jinja_row *table, const char *sort,
                          const jinja_row **out) {
  const jinja_token *t = p->token;
  const int n = t->len > 60 ? 60 : (int)t->len;
  uint32_t name;
  HP_TRY(jinja_expect_name(p, sort, &name));
  const jinja_row *row = jinja_find_row(table, 0, t->text, t->len);
  *out = row;
  if (row && row->fn) return HP_OK;
  if (p->in_if) return refused_row(p, t, out);
  if (!row) PARSE_FAIL(p, t, "there is no %s \"%.*s\"", sort, n, t->text);
  PARSE_UNSUPPORTED(p, t, "the %s \"%s\" is not supported", sort, row->name);
}

hp_status jinja_parse_filters(jinja_parser *p, jinja_node *on, bool first, jinja_node **out) {
  while (first || accept_op(p, "|")) {
    jinja_node *n;
    first = false;
    HP_TRY(new_pair(p, JINJA_N_FILTER, p->token, on, NULL, &n));
    HP_TRY(find_row(p, jinja_filters, "filter", &n->row));
    if (next_is_op(p, "(")) HP_TRY(parse_arguments(p, n));
    HP_TRY(jinja_set_height(p, n));
    on = n;
  }
  *out = on;
  return HP_OK;
}

/* A test's argument may come without parentheses: "is divisibleby 3". */
static bool begins_argument(const jinja_token *t) {
  switch (t->kind) {
  case JINJA_T_NAME:
    return !jinja_token_is(t, JINJA_T_NAME, "else") && !jinja_token_is(t, JINJA_T_NAME, "or") &&
           !jinja_token_is(t, JINJA_T_NAME, "and");
  case JINJA_T_STRING:
  case JINJA_T_INT:
  case JINJA_T_FLOAT: return true;
  case JINJA_T_OP: return *t->text == '[' || *t->text == '{';
  default: return false;
  }
}

static hp_status parse_test(jinja_parser *p, jinja_node **n) {
  const jinja_token *is = p->token++;
  bool negated = accept_word(p, "not");
  jinja_node *test;
  HP_TRY(new_pair(p, JINJA_N_TEST, is, *n, NULL, &test));
  HP_TRY(find_row(p, jinja_tests, "test", &test->row));
  if (next_is_op(p, "(")) {
    HP_TRY(parse_arguments(p, test));
  } else if (begins_argument(p->token)) {
    jinja_node_list one = {0};
    jinja_node *value;
    if (jinja_token_is(p->token, JINJA_T_NAME, "is"))
      PARSE_FAIL(p, p->token, "tests cannot be chained: put the first one in parentheses");
    HP_TRY(parse_primary(p, &value));
    HP_TRY(parse_postfix(p, &value));
    if (!vec_push(&one, value)) return HP_ERR_OOM;
    HP_TRY(jinja_keep_nodes(p, &one, &test->list));
  }
  HP_TRY(jinja_set_height(p, test));
  *n = test;
  return negated ? new_pair(p, JINJA_N_NOT, is, test, NULL, n) : HP_OK;
}

static hp_status parse_unary(jinja_parser *p, bool filters, jinja_node **out) {
  const jinja_token *t = p->token;
  jinja_node *n;
  HP_TRY(jinja_enter_nesting(p));
  if (accept_op(p, "-") || accept_op(p, "+")) {
    HP_TRY(parse_unary(p, false, &n));
    HP_TRY(new_pair(p, *t->text == '-' ? JINJA_N_NEG : JINJA_N_POS, t, n, NULL, &n));
  } else {
    HP_TRY(parse_primary(p, &n));
  }
  HP_TRY(parse_postfix(p, &n));
  while (filters) {
    if (next_is_op(p, "|")) HP_TRY(jinja_parse_filters(p, n, false, &n));
    else if (jinja_token_is(p->token, JINJA_T_NAME, "is")) HP_TRY(parse_test(p, &n));
    else if (next_is_op(p, "(")) HP_TRY(parse_call(p, &n));
    else break;
  }
  p->depth--;
  *out = n;
  return HP_OK;
}

/* --- operators --------------------------------------------------------------------------- */

typedef struct {
  const char *text;
  jinja_op op;
  uint8_t level; /* 0 binds least: sums; 1 is "~", 2 products, 3 powers */
} binary_row;
static const binary_row binaries[] = {{"+", JINJA_ADD, 0},       {"-", JINJA_SUB, 0},
                                      {"*", JINJA_MUL, 2},       {"/", JINJA_DIV, 2},
                                      {"//", JINJA_FLOORDIV, 2}, {"%", JINJA_MOD, 2},
                                      {"**", JINJA_POW, 3}};
enum { CONCAT_LEVEL = 1, POWER_LEVEL = 3 };

static const binary_row *next_binary(const jinja_parser *p, int level) {
  for (size_t i = 0; i < sizeof binaries / sizeof *binaries; i++)
    if (binaries[i].level == level && next_is_op(p, binaries[i].text)) return &binaries[i];
  return NULL;
}

static hp_status parse_binary(jinja_parser *p, int level, jinja_node **out);

static hp_status parse_concat(jinja_parser *p, jinja_node **out) {
  jinja_node_list list = {0};
  jinja_node *n;
  const jinja_token *first = p->token;
  hp_status st;
  do {
    HP_TRY_GOTO(parse_binary(p, CONCAT_LEVEL + 1, &n), st);
    if (!vec_push(&list, n)) HP_TRY_GOTO(HP_ERR_OOM, st);
  } while (accept_op(p, "~"));
  if (list.len == 1) {
    *out = n;
    goto done;
  }
  HP_TRY_GOTO(jinja_new_node(p, JINJA_N_CONCAT, first, out), st);
  HP_TRY_GOTO(jinja_keep_nodes(p, &list, &(*out)->list), st);
  HP_TRY_GOTO(jinja_set_height(p, *out), st);
done:
  vec_free(&list);
  return st;
}

/* All operators of one level are left-associative, powers too. */
static hp_status parse_binary(jinja_parser *p, int level, jinja_node **out) {
  const binary_row *row;
  jinja_node *left, *right;
  if (level > POWER_LEVEL) return parse_unary(p, true, out);
  if (level == CONCAT_LEVEL) return parse_concat(p, out);
  HP_TRY(parse_binary(p, level + 1, &left));
  while ((row = next_binary(p, level))) {
    const jinja_token *t = p->token++;
    HP_TRY(parse_binary(p, level + 1, &right));
    HP_TRY(new_pair(p, JINJA_N_BINARY, t, left, right, &left));
    left->op = (uint8_t)row->op;
  }
  *out = left;
  return HP_OK;
}

static bool accept_comparison(jinja_parser *p, jinja_op *op) {
  static const struct {
    const char *text;
    jinja_op op;
  } row[] = {{"==", JINJA_EQ}, {"!=", JINJA_NE}, {"<", JINJA_LT},
             {"<=", JINJA_LE}, {">", JINJA_GT},  {">=", JINJA_GE}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    if (!accept_op(p, row[i].text)) continue;
    *op = row[i].op;
    return true;
  }
  *op = JINJA_IN;
  if (accept_word(p, "in")) return true;
  *op = JINJA_NOT_IN;
  bool not_in = jinja_token_is(p->token, JINJA_T_NAME, "not") &&
                jinja_token_is(p->token + 1, JINJA_T_NAME, "in");
  if (not_in) p->token += 2;
  return not_in;
}

static hp_status parse_compare(jinja_parser *p, jinja_node **out) {
  jinja_node_list list = {0};
  const jinja_token *t = p->token;
  jinja_node *first, *operand;
  jinja_op op;
  hp_status st;
  HP_TRY(parse_binary(p, 0, &first));
  for (const jinja_token *at = p->token; accept_comparison(p, &op); at = p->token) {
    HP_TRY_GOTO(jinja_new_node(p, JINJA_N_OPERAND, at, &operand), st);
    operand->op = (uint8_t)op;
    HP_TRY_GOTO(parse_binary(p, 0, &operand->a), st);
    HP_TRY_GOTO(jinja_set_height(p, operand), st);
    if (!vec_push(&list, operand)) HP_TRY_GOTO(HP_ERR_OOM, st);
  }
  if (!list.len) {
    *out = first;
    return HP_OK;
  }
  HP_TRY_GOTO(new_pair(p, JINJA_N_COMPARE, t, first, NULL, out), st);
  HP_TRY_GOTO(jinja_keep_nodes(p, &list, &(*out)->list), st);
  HP_TRY_GOTO(jinja_set_height(p, *out), st);
done:
  vec_free(&list);
  return st;
}

static hp_status parse_not(jinja_parser *p, jinja_node **out) {
  const jinja_token *t = p->token;
  if (!accept_word(p, "not")) return parse_compare(p, out);
  jinja_node *n;
  HP_TRY(jinja_enter_nesting(p));
  HP_TRY(parse_not(p, &n));
  p->depth--;
  return new_pair(p, JINJA_N_NOT, t, n, NULL, out);
}

static hp_status parse_and(jinja_parser *p, jinja_node **out) {
  jinja_node *right;
  HP_TRY(parse_not(p, out));
  for (const jinja_token *t = p->token; accept_word(p, "and"); t = p->token) {
    HP_TRY(parse_not(p, &right));
    HP_TRY(new_pair(p, JINJA_N_AND, t, *out, right, out));
  }
  return HP_OK;
}

static hp_status parse_or(jinja_parser *p, jinja_node **out) {
  jinja_node *right;
  HP_TRY(parse_and(p, out));
  for (const jinja_token *t = p->token; accept_word(p, "or"); t = p->token) {
    HP_TRY(parse_and(p, &right));
    HP_TRY(new_pair(p, JINJA_N_OR, t, *out, right, out));
  }
  return HP_OK;
}

hp_status jinja_parse_expression(jinja_parser *p, bool if_else, jinja_node **out) {
  HP_TRY(jinja_enter_nesting(p));
  HP_TRY(parse_or(p, out));
  for (const jinja_token *t = p->token; if_else && accept_word(p, "if"); t = p->token) {
    jinja_node *test, *other = NULL;
    HP_TRY(parse_or(p, &test));
    if (accept_word(p, "else")) HP_TRY(jinja_parse_expression(p, true, &other));
    HP_TRY(new_pair(p, JINJA_N_IF_ELSE, t, test, *out, out));
    (*out)->c = other;
    HP_TRY(jinja_set_height(p, *out));
  }
  p->depth--;
  return HP_OK;
}

static bool ends_values(const jinja_token *t) {
  return t->kind == JINJA_T_OUTPUT_END || t->kind == JINJA_T_BLOCK_END ||
         jinja_token_is(t, JINJA_T_OP, ")") || jinja_token_is(t, JINJA_T_NAME, "in");
}

/* Several of what `parse` reads, with commas between them, are a tuple. */
static hp_status parse_tuple(jinja_parser *p, bool target, bool flag, jinja_node **out) {
  jinja_node_list list = {0};
  const jinja_token *first = p->token;
  jinja_node *n = NULL;
  bool tuple = false;
  hp_status st;
  do {
    if (tuple && ends_values(p->token)) break;
    if (target) HP_TRY_GOTO(parse_primary(p, &n), st);
    else HP_TRY_GOTO(jinja_parse_expression(p, flag, &n), st);
    if (!vec_push(&list, n)) HP_TRY_GOTO(HP_ERR_OOM, st);
    tuple |= next_is_op(p, ",");
  } while (accept_op(p, ","));
  *out = n;
  st = HP_OK;
  if (!tuple) goto done;
  HP_TRY_GOTO(jinja_new_node(p, JINJA_N_TUPLE, first, out), st);
  HP_TRY_GOTO(jinja_keep_nodes(p, &list, &(*out)->list), st);
  HP_TRY_GOTO(jinja_set_height(p, *out), st);
done:
  vec_free(&list);
  return st;
}

hp_status jinja_parse_values(jinja_parser *p, bool if_else, jinja_node **out) {
  return parse_tuple(p, false, if_else, out);
}

static hp_status check_target(jinja_parser *p, const jinja_token *t, const jinja_node *n) {
  if (n->kind == JINJA_N_NAME) return HP_OK;
  if (n->kind != JINJA_N_TUPLE && n->kind != JINJA_N_LIST)
    PARSE_FAIL(p, t, "expected the name of a variable to set, found %s", jinja_token_text(t).text);
  for (uint32_t i = 0; i < n->list.len; i++) HP_TRY(check_target(p, t, n->list.at[i]));
  return HP_OK;
}

hp_status jinja_parse_target(jinja_parser *p, bool member, jinja_node **out) {
  const jinja_token *t = p->token;
  if (member && t->kind == JINJA_T_NAME && jinja_token_is(t + 1, JINJA_T_OP, ".")) {
    HP_TRY(jinja_new_node(p, JINJA_N_MEMBER, t, out));
    HP_TRY(jinja_expect_name(p, "the name of a variable", &(*out)->name));
    p->token++;
    return jinja_expect_name(p, "the name of an attribute", &(*out)->attribute);
  }
  HP_TRY(parse_tuple(p, true, false, out));
  return check_target(p, t, *out);
}
