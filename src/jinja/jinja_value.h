/* Values of a template at run time, and the state of a rendering.
 *
 * Values are Python's, as far as templates can tell.  Like in Jinja's immutable sandbox, lists and
 * dicts never change; only a namespace does.  Memory belongs to the rendering's arena. */
#ifndef JINJA_JINJA_VALUE_H
#define JINJA_JINJA_VALUE_H

#include "base/arena.h"
#include "base/str.h"
#include "base/tree.h"

typedef enum {
  JINJA_MISSING, /* an argument that was not given, a variable that is not set */
  JINJA_UNDEFINED,
  JINJA_NONE,
  JINJA_BOOL,
  JINJA_INT,
  JINJA_FLOAT,
  JINJA_STRING,
  JINJA_LIST,
  JINJA_TUPLE,
  JINJA_RANGE,
  JINJA_ITEMS, /* what a dict's items(), keys() and values() give */
  JINJA_KEYS,
  JINJA_VALUES,
  JINJA_ITERATOR, /* what map, select, ... give: can be read once */
  JINJA_DICT,
  JINJA_NAMESPACE,
  JINJA_LOOP,
  JINJA_MACRO,
  JINJA_FUNCTION, /* range, namespace, ... */
  JINJA_METHOD    /* of a value: bound */
} jinja_kind;

enum { JINJA_NOTE = 0xff }; /* owner of an undefined value whose name is a complete message */

typedef struct jinja_value jinja_value;
typedef struct jinja_seq jinja_seq;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_bound jinja_bound;
typedef struct jinja_row jinja_row;

struct jinja_value {
  uint8_t kind;
  bool markup;   /* a string that the filter `safe` made: Markup, which escapes what is added */
  uint8_t owner; /* of an undefined value: the kind of the value that lacks it, 0 for a variable */
  uint32_t len;  /* bytes of text */
  union {
    bool boolean;
    int64_t integer;
    double number;
    const char *text; /* of a string, UTF-8, may hold NULs; of an undefined value: its name */
    jinja_seq *seq;
    jinja_dict *dict; /* of a dict or namespace */
    jinja_loop *loop;
    jinja_macro *macro;
    const jinja_row *function;
    jinja_bound *bound;
  };
};

struct jinja_seq {
  jinja_value *at;
  uint32_t len;
  uint32_t next;             /* of an iterator: how many have been read */
  int64_t start, stop, step; /* of a range */
};
typedef struct {
  jinja_value key, value;
} jinja_pair;
struct jinja_dict {
  jinja_pair *at;
  uint32_t len, cap;
};
struct jinja_loop {
  const jinja_value *at; /* the values that are looped over */
  uint32_t len, index;   /* index: from 0 */
  jinja_value changed;   /* what loop.changed was last asked about */
};
struct jinja_bound {
  jinja_value self;
  const jinja_row *method;
};

typedef struct jinja_node jinja_node;
typedef struct jinja_scope jinja_scope;

typedef struct {
  const struct jinja *t;
  arena mem;
  str buffer;           /* the output; behind it, texts that are being put together */
  uint64_t steps, most; /* done so far, and at most */
  int depth;            /* of nested evaluations */
  const jinja_node *at; /* where failures are */
  int64_t now;
  hp_status refused;   /* why the last allocation failed */
  jinja_value *global; /* variables of the top level, by their name's number */
  jinja_scope *scope;  /* of loops and macros; NULL at the top level */
  jinja_value piped;   /* what a filter block filters */
  /* numbers of the names "loop" and "caller"; 0: the template does not use it */
  uint32_t loop_name, caller_name;
} jinja_run;

/* Arguments of a call.  A function whose row lists its params gets them in order in `at`, those
 * that were not given as JINJA_MISSING. */
typedef struct {
  const jinja_value *at, *named;
  const jinja_value *name; /* strings: the names of `named` */
  uint32_t n, n_named;
} jinja_args;
enum { JINJA_PARAMS_MAX = 8 };

typedef hp_status jinja_fn(jinja_run *r, const jinja_value *self, const jinja_args *a,
                           jinja_value *out);
/* A filter, test, method or function.  fn is NULL for what Jinja knows and we do not. */
struct jinja_row {
  const char *name;
  jinja_fn *fn;
  const char *params; /* separated by spaces; "*": any, checked by fn */
  uint8_t least;      /* so many must be given */
  uint8_t kind;       /* of a method: the kind of its value */
};

/* --- failures and limits ----------------------------------------------------------------- */

#define JINJA_FAIL(r, ...) return jinja_error((r), __FILE__, __LINE__, __VA_ARGS__)
hp_status jinja_error(const jinja_run *r, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fails for an undefined value that is used: "'x' is undefined". */
hp_status jinja_undefined_error(const jinja_run *r, const jinja_value *v);
/* Counts n steps; fails beyond the limit. */
hp_status jinja_charge(jinja_run *r, uint64_t n);
/* One level deeper; each is left by r->depth--. */
hp_status jinja_enter(jinja_run *r);

/* --- memory ------------------------------------------------------------------------------ */

/* NULL with r->refused and a failure recorded. */
void *jinja_alloc(jinja_run *r, size_t n, size_t size);
#define JINJA_NEW(r, p, n)                                                                         \
  do {                                                                                             \
    if (!((p) = jinja_alloc((r), (n), sizeof *(p)))) return (r)->refused;                          \
  } while (0)
/* Appends to the buffer. */
hp_status jinja_add(jinja_run *r, const char *text, size_t n);
/* Takes the end of the buffer, from start on, as a string. */
hp_status jinja_take(jinja_run *r, size_t start, jinja_value *out);

/* --- values ------------------------------------------------------------------------------ */

jinja_value jinja_none(void);
jinja_value jinja_bool(bool x);
jinja_value jinja_int(int64_t x);
jinja_value jinja_float(double x);
jinja_value jinja_string(const char *text, size_t n); /* not copied */
jinja_value jinja_undefined(unsigned owner, const char *name, size_t n);
/* A sequence of n values to be filled in, in out->seq->at. */
hp_status jinja_new_seq(jinja_run *r, jinja_kind kind, size_t n, jinja_value *out);
hp_status jinja_new_dict(jinja_run *r, jinja_kind kind, size_t cap, jinja_value *out);
hp_status jinja_dict_set(jinja_run *r, jinja_dict *d, const jinja_value *key,
                         const jinja_value *value);
/* NULL: no such key. */
hp_status jinja_dict_get(jinja_run *r, const jinja_dict *d, const jinja_value *key,
                         const jinja_value **out);
/* Of the depth of a tree. */
hp_status jinja_from_tree(jinja_run *r, const tree_node *n, jinja_value *out);

bool jinja_is(const jinja_value *v, const char *text);
static inline bool jinja_is_seq(const jinja_value *v) {
  return v->kind >= JINJA_LIST && v->kind <= JINJA_ITERATOR;
}
static inline bool jinja_is_number(const jinja_value *v) {
  return v->kind >= JINJA_BOOL && v->kind <= JINJA_FLOAT;
}
/* Python's name of its type: "str". */
const char *jinja_type(const jinja_value *v);
bool jinja_truth(const jinja_value *v);
int64_t jinja_as_int(const jinja_value *v);  /* of a bool or an int */
double jinja_as_float(const jinja_value *v); /* of a number */
hp_status jinja_equal(jinja_run *r, const jinja_value *a, const jinja_value *b, bool *out);
/* -1, 0, 1; 2: neither, as with NaN.  Fails for types without an order. */
hp_status jinja_compare(jinja_run *r, const jinja_value *a, const jinja_value *b, int *out);
/* Appends str(v) or repr(v) to the buffer. */
hp_status jinja_add_str(jinja_run *r, const jinja_value *v);
hp_status jinja_add_repr(jinja_run *r, const jinja_value *v);
/* str(v) as a string; Markup stays Markup (soft_str). */
hp_status jinja_to_string(jinja_run *r, const jinja_value *v, jinja_value *out);

#endif
