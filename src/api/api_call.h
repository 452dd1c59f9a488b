/* Macros at the start of every public function: they give the call its own failure report and check
 * its arguments.
 *
 *   HP_API hp_status hp_x(hp_device *d, const char *name) {
 *     API_CALL;
 *     API_NEED(d);
 *     API_NEED(name);
 *     return api_result(__func__, ...);
 *   }
 *
 * Builders (functions that add to a graph) begin with API_BUILD, which also names the operands for
 * messages.  They turn the caller's ids into values with API_VALUE, and their result into an id
 * with api_tensor.  Functions that free or close use none of these macros: they keep the failure of
 * the call before them. */
#ifndef API_API_CALL_H
#define API_API_CALL_H

#include "base/str.h"
#include "ir/graph.h"

#define HP_API __attribute__((visibility("default")))

typedef struct {
  hp_graph *g; /* the graph that a builder adds to; NULL in other functions */
  bool tells;  /* the function returns its failure, so a caller inside the library handles it */
} api_call;

#define API_BEGIN(tells) api_call call_ __attribute__((cleanup(api_end), unused)) = api_begin(tells)
#define API_CALL         API_BEGIN(true)
#define API_GET          API_BEGIN(false) /* in functions that return no status */
api_call api_begin(bool tells);
void api_end(const api_call *c);

/* The result of a call.  A failure without a message gets one: the name of its status. */
hp_status api_result(const char *function, hp_status st);
/* The result of a function that prints: moves the text of s to *text, or returns the failure. */
hp_status api_text(const char *function, hp_status st, str *s, char **text);

/* --- arguments ----------------------------------------------------------------------------- */

hp_status api_null(const char *function, const char *argument, const char *expected);
hp_status api_refuse(const char *function, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define API_REFUSE(...) return api_refuse(__func__, __VA_ARGS__)

#define API_EXPECTED(p)                                                                            \
  _Generic((p),                                                                                    \
      hp_graph *: "a graph",                                                                       \
      const hp_graph *: "a graph",                                                                 \
      hp_device *: "a device",                                                                     \
      const hp_device *: "a device",                                                               \
      hp_program *: "a program",                                                                   \
      const hp_program *: "a program",                                                             \
      const char *: "text",                                                                        \
      default: "an address")
/* Return when p is NULL: API_NEED_OR for functions that return no status (`otherwise` is what they
 * return, empty in a void function), API_NEED for the others. */
#define API_NEED_OR(p, otherwise)                                                                  \
  do {                                                                                             \
    if (!(p)) {                                                                                    \
      (void)api_null(__func__, #p, API_EXPECTED(p));                                               \
      return otherwise;                                                                            \
    }                                                                                              \
  } while (0)
#define API_NEED(p)                                                                                \
  do {                                                                                             \
    if (!(p)) return api_null(__func__, #p, API_EXPECTED(p));                                      \
  } while (0)

/* --- builders ------------------------------------------------------------------------------ */

/* names: the arguments that are operands, in the order of the op, "x w"; "x[" is a list. */
#define API_BUILD(g, names, otherwise)                                                             \
  API_GET;                                                                                         \
  if (!api_build(&call_, g, __func__, names)) return otherwise
bool api_build(api_call *c, hp_graph *g, const char *function, const char *names);
/* The value with id x; 0, and the graph is poisoned, if x is not a tensor of g. */
val api_value(hp_graph *g, hp_tensor x, const char *argument);
#define API_VALUE(g, x) api_value(g, x, #x)
/* The same for x[i]. */
val api_value_at(hp_graph *g, const hp_tensor *x, int i, const char *argument);
/* The same for an optional operand: 0 for HP_NONE. */
val api_value_or_none(hp_graph *g, hp_tensor x, const char *argument);
/* The id of x for the caller. */
hp_tensor api_tensor(hp_graph *g, val x);

/* An id is the number of a value with the tag of its graph in the bits above. */
enum { API_VALUE_BITS = 22, API_GRAPHS_MAX = (1 << (32 - API_VALUE_BITS)) - 1, API_WHY_MAX = 160 };
/* Takes a tag that no living graph has, shifted to its place in an id; 0 if all are taken.  Tags
 * are reused as late as possible, so that ids of a freed graph are recognised. */
uint32_t api_tag_take(void);
void api_tag_give_back(uint32_t tag);
bool api_tag_is_taken(uint32_t tag);
/* The number of the value of g with id x; 0: there is none. */
val api_number_of(const hp_graph *g, hp_tensor x);
/* Why x is not a tensor of g, for messages. */
const char *api_why_not(const hp_graph *g, hp_tensor x, const char *argument,
                        char why[API_WHY_MAX]);
/* Checks of an argument; if it fails, the graph is poisoned: p is not NULL, t is a dtype, s is a
 * shape. */
bool api_need_given(hp_graph *g, const void *p, const char *argument);
bool api_need_dtype(hp_graph *g, hp_dtype t, const char *argument);
bool api_need_shape(hp_graph *g, const hp_shape *s, const char *argument);
/* The same: x is a number of dtype t.  A fraction is not a number of an integer type, and a finite
 * number beyond the largest of a float type is not one of that type. */
bool api_need_number(hp_graph *g, hp_dtype t, double x, const char *argument);
/* A constant x of dtype t, checked by api_need_number. */
val api_number(hp_graph *g, hp_dtype t, double x, const char *argument);

#endif
