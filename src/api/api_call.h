/* What every public function begins with: the call's own failure report, and checks of arguments
 * that hold for all.
 *
 *   HP_API hp_status hp_x(hp_device *d, const char *name) {
 *     API_CALL;
 *     API_NEED(d);
 *     API_NEED(name);
 *     return api_result(__func__, ...);
 *   }
 *
 * Builders begin with API_BUILD instead, which also names the operands for messages, turn the ids
 * that they are given into values with API_VALUE, and give theirs with api_tensor.  Functions that
 * free or close do none of this: the failure that was before them stays. */
#ifndef API_API_CALL_H
#define API_API_CALL_H

#include "base/str.h"
#include "ir/graph.h"

#define HP_API __attribute__((visibility("default")))

typedef struct {
  hp_graph *g; /* that a builder adds to, else NULL */
  bool tells;  /* its failure is returned, so that a caller of ours has to deal with it */
} api_call;

#define API_BEGIN(tells) api_call call_ __attribute__((cleanup(api_end), unused)) = api_begin(tells)
#define API_CALL         API_BEGIN(true)
#define API_GET          API_BEGIN(false) /* of functions that return no status */
api_call api_begin(bool tells);
void api_end(const api_call *c);

/* The result of a call; one that no one has said a word about is told by its status. */
hp_status api_result(const char *function, hp_status st);
/* Ends a printer: its text to the caller, or st. */
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
/* Where the function gives something other than a status; `otherwise` may be left empty. */
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

/* The operands' names: those of the function's arguments, "x w", in the order of the op; "x[" is a
 * list. */
#define API_BUILD(g, names, otherwise)                                                             \
  API_GET;                                                                                         \
  if (!api_build(&call_, g, __func__, names)) return otherwise
bool api_build(api_call *c, hp_graph *g, const char *function, const char *names);
/* The value that x stands for; 0, and a poisoned graph, when it is no tensor of g. */
val api_value(hp_graph *g, hp_tensor x, const char *argument);
#define API_VALUE(g, x) api_value(g, x, #x)
/* The same for x[i]. */
val api_value_at(hp_graph *g, const hp_tensor *x, int i, const char *argument);
/* The same for one that need not be there: 0 for HP_NONE. */
val api_value_or_none(hp_graph *g, hp_tensor x, const char *argument);
/* x for the caller. */
hp_tensor api_tensor(hp_graph *g, val x);

/* An id has a tag, that of its graph, above the bits of the value's number. */
enum { API_VALUE_BITS = 22, API_GRAPHS_MAX = (1 << (32 - API_VALUE_BITS)) - 1, API_WHY_MAX = 160 };
/* A tag that no living graph has, in its place in an id, and back; 0 when all are taken.  One that
 * was given back comes again as late as may be. */
uint32_t api_tag_take(void);
void api_tag_give_back(uint32_t tag);
bool api_tag_is_taken(uint32_t tag);
/* The number of g's value that x stands for; 0: of none. */
val api_number_of(const hp_graph *g, hp_tensor x);
/* Why x is no tensor of g. */
const char *api_why_not(const hp_graph *g, hp_tensor x, const char *argument,
                        char why[API_WHY_MAX]);
/* Poisons the graph when an argument is NULL, or is not what its type says. */
bool api_need_given(hp_graph *g, const void *p, const char *argument);
bool api_need_dtype(hp_graph *g, hp_dtype t, const char *argument);
bool api_need_shape(hp_graph *g, const hp_shape *s, const char *argument);
/* Poisons the graph when t does not hold x: an integer that would be rounded, or a finite number
 * beyond the largest. */
bool api_need_number(hp_graph *g, hp_dtype t, double x, const char *argument);
/* A constant that its dtype holds. */
val api_number(hp_graph *g, hp_dtype t, double x, const char *argument);

#endif
