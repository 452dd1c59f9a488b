/* A tree of values read from JSON or YAML, each with its place in the file.
 *
 * A tree owns all its nodes and texts (tree_free); pointers into it live as long as it does.  A
 * node is found by key and read by a typed getter; a failing getter gives file, line, column, the
 * path of keys, what was expected and what was found:
 *   model/config.json:7:18: rope_scaling.factor: expected a number, found the string "8x"
 * Map keys keep their order and are unique.  Strings are UTF-8 and may hold NULs (len counts). */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include "base/arena.h"

typedef enum {
  TREE_NULL,
  TREE_BOOL,
  TREE_INT,
  TREE_FLOAT,
  TREE_STRING,
  TREE_LIST,
  TREE_MAP
} tree_kind;

typedef struct tree_node tree_node;
struct tree_node {
  const tree_node *parent; /* NULL for the root */
  const char *key;         /* in a map: its key, NUL-terminated; else NULL */
  const char *source;      /* file name, or "argument 3" */
  union {
    bool boolean;
    int64_t integer;
    double number;
    const char *string; /* NUL-terminated */
    tree_node **child;  /* of a list or map */
  };
  uint32_t *index; /* of a large map: hash slots that hold a child's number + 1 */
  uint32_t len;    /* bytes of a string, children of a list or map */
  uint32_t key_len;
  uint32_t line, column; /* from 1; line 0 when the source has no lines */
  tree_kind kind;
};

typedef struct {
  arena mem;
  tree_node *root;
} tree;
void tree_free(tree *t);

/* The value under key; NULL when there is none, or when m is NULL or no map. */
const tree_node *tree_get(const tree_node *m, const char *key);
const tree_node *tree_get_n(const tree_node *m, const char *key, size_t key_len);

/* "file:line:column: a.b[2]", for use within one expression: tree_where(n).text */
typedef struct {
  char text[512];
} tree_place;
tree_place tree_where(const tree_node *n);
/* A value in messages: `the string "x"`, `a list of 3`, `null`, `4.5`. */
tree_place tree_what(const tree_node *n);

/* Fails with HP_ERR_INPUT and the place of n before the message. */
#define TREE_FAIL(n, ...) return tree_error((n), __FILE__, __LINE__, __VA_ARGS__)
hp_status tree_error(const tree_node *n, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Value of a node.  An integer is also taken from a float without fraction (1e3), a double also
 * from an integer.  tree_as_string refuses a text with a NUL inside; read such text from the node.
 */
hp_status tree_as_bool(const tree_node *n, bool *out);
hp_status tree_as_int(const tree_node *n, int64_t *out);
hp_status tree_as_double(const tree_node *n, double *out);
hp_status tree_as_string(const tree_node *n, const char **out);
hp_status tree_expect(const tree_node *n, tree_kind kind);

/* Value of a required key. */
hp_status tree_need(const tree_node *m, const char *key, const tree_node **out);
hp_status tree_need_bool(const tree_node *m, const char *key, bool *out);
hp_status tree_need_int(const tree_node *m, const char *key, int64_t *out);
hp_status tree_need_double(const tree_node *m, const char *key, double *out);
/* A finite number of at least `least`, and at most 1e30. */
hp_status tree_need_number(const tree_node *m, const char *key, double least, double *out);
hp_status tree_need_string(const tree_node *m, const char *key, const char **out);
hp_status tree_need_list(const tree_node *m, const char *key, const tree_node **out);
hp_status tree_need_map(const tree_node *m, const char *key, const tree_node **out);

/* Value of a key that may be missing or null: then `absent` (for lists and maps NULL). */
hp_status tree_opt_bool(const tree_node *m, const char *key, bool absent, bool *out);
hp_status tree_opt_int(const tree_node *m, const char *key, int64_t absent, int64_t *out);
hp_status tree_opt_double(const tree_node *m, const char *key, double absent, double *out);
hp_status tree_opt_string(const tree_node *m, const char *key, const char *absent,
                          const char **out);
hp_status tree_opt_list(const tree_node *m, const char *key, const tree_node **out);
hp_status tree_opt_map(const tree_node *m, const char *key, const tree_node **out);

/* Fails at the first key of map that is not one of the n known ones, and names the nearest of
 * them. */
hp_status tree_check_keys(const tree_node *m, const char *const *known, size_t n);

/* Fails at an unknown key, and names the nearest of the n known ones. */
hp_status tree_unknown_key(const tree_node *item, const char *const *known, size_t n);

/* --- for parsers ---------------------------------------------------------------------- */

enum { TREE_DEPTH_MAX = 64 }; /* nesting of lists and maps; deeper input is refused */

/* NULL when out of memory. */
tree_node *tree_new(arena *mem, tree_kind kind, const char *source, size_t line, size_t column);
/* Makes items the children of a list or map; of a map, refuses two children with one key. */
hp_status tree_adopt(arena *mem, tree_node *container, tree_node *const *items, size_t n);
/* Puts value under its key, in place of an earlier value or at the end. */
hp_status tree_set(arena *mem, tree_node *m, tree_node *value);

#endif
