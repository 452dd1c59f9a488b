/* JSON of tokenizer files: a strict reader (RFC 8259) into a tree that knows its lines.
 *
 * Of its own because a vocabulary is an object of 150,000 keys, any of which may hold U+0000: the
 * tree is flat arrays in one arena, and strings without escapes stay where the file's bytes are.
 * Refused: invalid UTF-8, lone surrogates, duplicate keys, nesting beyond 64, trailing text. */
#ifndef DATA_TOK_JSON_H
#define DATA_TOK_JSON_H

#include "base/arena.h"

typedef enum { TJ_NULL, TJ_BOOL, TJ_INT, TJ_REAL, TJ_TEXT, TJ_LIST, TJ_MAP } tj_kind;

typedef struct tj_node {
  tj_kind kind;
  unsigned line;      /* in the file, from 1 */
  const char *key;    /* name within its object, not NUL-terminated; NULL in a list */
  size_t key_len;
  union {
    bool flag;
    int64_t integer;
    double real;
    struct {
      const char *at; /* valid UTF-8, may hold NULs, not NUL-terminated */
      size_t len;
    } text;
    struct {
      const struct tj_node *at;
      size_t n;
    } items;
  };
} tj_node;

/* A parsed file.  The root lives as long as the arena and the bytes parsed. */
typedef struct {
  const char *file; /* for messages */
  arena mem;
  tj_node root;
} tj_doc;

/* Parses bytes[0..n), which must outlive the document; file is for messages and is kept. */
hp_status tj_doc_parse(const char *file, const char *bytes, size_t n, tj_doc *out);
void tj_doc_free(tj_doc *d);

/* The member of an object, or NULL (also when it is null, or `object` is none). */
const tj_node *tj_find(const tj_node *object, const char *key);
bool tj_is(const tj_node *text, const char *want); /* a text equal to `want` */
const char *tj_kind_name(tj_kind k);

/* Members with a type.  Absent or null leaves *out as it is, unless `must`; another type fails,
 * naming `what` (the component), the key, the file and the line. */
typedef struct {
  const char *file, *what;
  const tj_node *object;
} tj_reader;
hp_status tj_get_flag(const tj_reader *r, const char *key, bool must, bool *out);
hp_status tj_get_count(const tj_reader *r, const char *key, bool must, size_t *out);
hp_status tj_get_text(const tj_reader *r, const char *key, bool must, const tj_node **out);
hp_status tj_get_kind(const tj_reader *r, const char *key, tj_kind kind, const tj_node **out);

#endif
