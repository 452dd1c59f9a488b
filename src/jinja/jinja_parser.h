/* The parser's state; expressions and what statements need of them. */
#ifndef JINJA_JINJA_PARSER_H
#define JINJA_JINJA_PARSER_H

#include "jinja/jinja_node.h"

typedef struct {
  struct jinja *t;
  const jinja_token *token; /* the next one */
  int depth;                /* of expressions and blocks in each other */
  bool in_loop;             /* break and continue are allowed */
  bool in_if;               /* what is not known here may never be run */
} jinja_parser;
typedef VEC(jinja_node *) jinja_node_list;

/* Fails at a token, with HP_ERR_INPUT or, for what Jinja has and we do not, UNSUPPORTED. */
#define PARSE_FAIL(p, token, ...)                                                                  \
  return jinja_parse_error((p), (token), HP_ERR_INPUT, __FILE__, __LINE__, __VA_ARGS__)
#define PARSE_UNSUPPORTED(p, token, ...)                                                           \
  return jinja_parse_error((p), (token), HP_ERR_UNSUPPORTED, __FILE__, __LINE__, __VA_ARGS__)
hp_status jinja_parse_error(const jinja_parser *p, const jinja_token *token, hp_status code,
                            const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* A token in messages, for use within one expression: jinja_token_text(t).text */
tree_place jinja_token_text(const jinja_token *token);

/* Whether the token is this name or operator. */
bool jinja_token_is(const jinja_token *token, jinja_token_kind kind, const char *text);
/* Takes it if it is the next one. */
bool jinja_accept(jinja_parser *p, jinja_token_kind kind, const char *text);
hp_status jinja_expect(jinja_parser *p, jinja_token_kind kind, const char *text);
/* The number of a name. */
hp_status jinja_name_number(jinja_parser *p, const jinja_token *token, uint32_t *out);
/* The next token is a name: its number. */
hp_status jinja_expect_name(jinja_parser *p, const char *what, uint32_t *out);

hp_status jinja_new_node(jinja_parser *p, jinja_node_kind kind, const jinja_token *token,
                         jinja_node **out);
/* Copies the nodes into the tree and frees the list. */
hp_status jinja_keep_nodes(jinja_parser *p, jinja_node_list *list, jinja_nodes *out);
/* The height of a node over its children a, b, c and lists; fails when it is too high. */
hp_status jinja_set_height(jinja_parser *p, jinja_node *n);
hp_status jinja_enter_nesting(jinja_parser *p);

/* An expression; if_else: "a if b else c" may be it. */
hp_status jinja_parse_expression(jinja_parser *p, bool if_else, jinja_node **out);
/* One, or several with commas: a tuple. */
hp_status jinja_parse_values(jinja_parser *p, bool if_else, jinja_node **out);
/* What is assigned to: a name, a tuple of them, or with `member` name.attribute. */
hp_status jinja_parse_target(jinja_parser *p, bool member, jinja_node **out);
/* Filters with bars between them, applied to `on` (NULL: to what is piped); first: the first one
 * has no bar. */
hp_status jinja_parse_filters(jinja_parser *p, jinja_node *on, bool first, jinja_node **out);

#endif
