/* Expressions, evaluated; variables and their scopes. */
#ifndef JINJA_JINJA_EVAL_H
#define JINJA_JINJA_EVAL_H

#include "jinja/jinja_node.h"

/* Variables of an iteration of a loop, or of a call of a macro. */
typedef struct {
  uint32_t name;
  jinja_value value;
} jinja_variable;
struct jinja_scope {
  jinja_scope *parent; /* NULL: the top level */
  jinja_variable *at;
  uint32_t len, cap;
  bool kept; /* a macro was defined in it, and may outlive it */
};

struct jinja_macro {
  const jinja_node *node;
  jinja_scope *scope; /* where it was defined */
  hp_status (*call)(jinja_run *r, const jinja_macro *m, const jinja_args *a, jinja_value *out);
};

/* Sets a variable of the innermost scope. */
hp_status jinja_set_variable(jinja_run *r, uint32_t name, const jinja_value *value);
/* A variable, a function, or undefined. */
hp_status jinja_get_variable(jinja_run *r, uint32_t name, jinja_value *out);

hp_status jinja_eval(jinja_run *r, const jinja_node *n, jinja_value *out);
/* An N_CALL, with one more argument by the name of caller, unless it is NULL. */
hp_status jinja_eval_call(jinja_run *r, const jinja_node *n, const jinja_value *caller,
                          jinja_value *out);
/* An expression's truth. */
hp_status jinja_eval_truth(jinja_run *r, const jinja_node *n, bool *out);

#endif
