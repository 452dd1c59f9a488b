/* The tokens and the syntax tree of a template. */
#ifndef JINJA_JINJA_NODE_H
#define JINJA_JINJA_NODE_H

#include "jinja/jinja.h"
#include "jinja/jinja_value.h"

#include "base/hash.h"
#include "base/vec.h"

enum {
  JINJA_NESTING_MAX = 100, /* of brackets and blocks in a template */
  JINJA_HEIGHT_MAX = 500,  /* of an expression's tree, e.g. terms of a sum */
  JINJA_DEPTH_MAX = 1500,  /* of nested evaluations, macros that call macros included */
  JINJA_MEMORY_MAX = 256 << 20,
  JINJA_RANGE_MAX = 100000 /* as Jinja's sandbox has it */
};

/* --- tokens ------------------------------------------------------------------------------ */

typedef enum {
  JINJA_T_END,
  JINJA_T_TEXT,
  JINJA_T_OUTPUT, /* the two braces */
  JINJA_T_OUTPUT_END,
  JINJA_T_BLOCK, /* brace and percent sign */
  JINJA_T_BLOCK_END,
  JINJA_T_NAME,
  JINJA_T_STRING,
  JINJA_T_INT,
  JINJA_T_FLOAT,
  JINJA_T_OP
} jinja_token_kind;

typedef struct {
  jinja_token_kind kind;
  uint32_t line, column;
  const char *text; /* of a text, name, string (without its escapes) or operator */
  size_t len;
  int64_t integer;
  double number;
} jinja_token;
typedef VEC(jinja_token) jinja_tokens;

/* Cuts t->text into tokens, the last is JINJA_T_END; vec_free. */
hp_status jinja_lex(struct jinja *t, jinja_tokens *out);

/* --- nodes ------------------------------------------------------------------------------- */

typedef enum {
  /* expressions; a, b, c and lists as the comments say */
  JINJA_N_CONST,   /* constant */
  JINJA_N_NAME,    /* name */
  JINJA_N_LIST,    /* list: its values; so for tuples */
  JINJA_N_TUPLE,   /* */
  JINJA_N_DICT,    /* list: key, value, key, value, ... */
  JINJA_N_ATTR,    /* a.name */
  JINJA_N_ITEM,    /* a[b] */
  JINJA_N_SLICE,   /* a[list[0]:list[1]:list[2]], each may be NULL */
  JINJA_N_CALL,    /* a(list, more): more has N_KEYWORDs */
  JINJA_N_FILTER,  /* a | row(list, more); a NULL: what is piped */
  JINJA_N_TEST,    /* a is row(list, more) */
  JINJA_N_NOT,     /* a */
  JINJA_N_NEG,     /* */
  JINJA_N_POS,     /* */
  JINJA_N_AND,     /* a and b */
  JINJA_N_OR,      /* */
  JINJA_N_BINARY,  /* a op b */
  JINJA_N_COMPARE, /* a, list of N_OPERANDs: op and a */
  JINJA_N_CONCAT,  /* list */
  JINJA_N_IF_ELSE, /* b if a else c; c may be NULL */
  JINJA_N_KEYWORD, /* name=a */
  JINJA_N_OPERAND,
  /* statements */
  JINJA_N_TEXT,       /* constant */
  JINJA_N_PRINT,      /* a */
  JINJA_N_IF,         /* list of N_BRANCHes: a (NULL: else), list */
  JINJA_N_BRANCH,     /* */
  JINJA_N_FOR,        /* for a in b if c: list, else: more */
  JINJA_N_SET,        /* a = b */
  JINJA_N_SET_BLOCK,  /* a = list, filtered by b (may be NULL) */
  JINJA_N_MACRO,      /* name(more: N_KEYWORDs, a: default or NULL): list */
  JINJA_N_FILTERED,   /* list, filtered by b */
  JINJA_N_GENERATION, /* list */
  JINJA_N_WITH,       /* more: N_SETs, for list */
  JINJA_N_CALL_BLOCK, /* a, an N_CALL, with a macro caller(more): list */
  JINJA_N_BREAK,
  JINJA_N_CONTINUE,
  JINJA_N_MEMBER /* only as a target: name.attribute of a namespace */
} jinja_node_kind;

typedef enum {
  JINJA_ADD,
  JINJA_SUB,
  JINJA_MUL,
  JINJA_DIV,
  JINJA_FLOORDIV,
  JINJA_MOD,
  JINJA_POW,
  JINJA_EQ,
  JINJA_NE,
  JINJA_LT,
  JINJA_LE,
  JINJA_GT,
  JINJA_GE,
  JINJA_IN,
  JINJA_NOT_IN
} jinja_op;

typedef struct {
  jinja_node **at;
  uint32_t len;
} jinja_nodes;

struct jinja_node {
  uint8_t kind, op;
  uint16_t height;
  uint32_t line, column;
  uint32_t name; /* number in jinja.names */
  uint32_t attribute;
  jinja_node *a, *b, *c;
  jinja_nodes list, more;
  const jinja_row *row;
  jinja_value constant;
};

struct jinja {
  arena mem;
  char *name;
  char *text; /* line breaks are \n */
  size_t len;
  interner names;
  jinja_nodes body;
};

static inline const char *jinja_name(const struct jinja *t, uint32_t name, size_t *n) {
  return intern_get(&t->names, name, n);
}

#endif
