/* JSON: a reader of tokens, a parser into a tree, and a writer.
 *
 * Accepted: RFC 8259, and what Python's json module adds: NaN, Infinity, -Infinity, and numbers of
 * any size (an integer beyond 64 bits becomes a float, a float beyond double an infinity).
 * Refused, with file:line:column (column in bytes): a repeated key, invalid UTF-8, half a
 * surrogate pair, a byte order mark, more than TREE_DEPTH_MAX levels, anything after the value. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/str.h"
#include "base/tree.h"

/* Reads a file of at most max bytes (0 = 1 GiB) into a tree; tree_free(out). */
hp_status json_load(const char *path, size_t max, tree *out);
/* The same from memory; `name` is for messages and is copied. */
hp_status json_parse(const char *bytes, size_t len, const char *name, tree *out);
/* One line of a JSON-lines file; `line` is its number, from 1. */
hp_status json_parse_line(const char *bytes, size_t len, const char *name, size_t line, tree *out);

/* --- tokens, for input too large for a tree ------------------------------------------- */

typedef enum {
  JSON_T_END, /* of the input */
  JSON_T_NULL,
  JSON_T_BOOL,
  JSON_T_INT,
  JSON_T_FLOAT,
  JSON_T_STRING,
  JSON_T_OPEN_MAP = '{',
  JSON_T_CLOSE_MAP = '}',
  JSON_T_OPEN_LIST = '[',
  JSON_T_CLOSE_LIST = ']',
  JSON_T_COMMA = ',',
  JSON_T_COLON = ':'
} json_kind;

typedef struct {
  json_kind kind;
  bool boolean;
  int64_t integer;
  double number;
  const char
      *text;  /* of a string: without escapes, not NUL-terminated; valid until the next call */
  size_t len; /* bytes of text */
  size_t line, column;
} json_token;

typedef struct {
  const char *name, *text; /* the input; set these two and len, and zero the rest */
  size_t len, at;
  size_t line, line_start; /* line: from 0 */
  str scratch;
} json_reader;

hp_status json_next(json_reader *r, json_token *out);
/* The value from the place of a reader, a copy of the one that reads on, up to `end`: a tree with
 * the lines and columns of the whole text; tree_free(out). */
hp_status json_parse_between(const json_reader *from, size_t end, tree *out);
/* Fails with "expected a token of `kind`" in `place`, e.g. "after the key". */
hp_status json_unexpected(const json_reader *r, const json_token *found, const char *wanted);
/* Skips the value that begins with the token `first`, checking the grammar of JSON, to any
 * depth. */
hp_status json_skip(json_reader *r, const json_token *first);
void json_reader_free(json_reader *r); /* the scratch memory */

/* --- writer --------------------------------------------------------------------------- */

/* Appends JSON to a str, exactly in the form of Python's json.dumps(..., indent=...): a zeroed
 * writer with `out` set gives `{"a": 1, "b": [2.5]}`.  Calls in a wrong order are internal
 * errors. */
typedef struct {
  str *out;
  int indent;   /* 0: one line; else spaces per level, as indent=2 */
  bool compact; /* one line without the spaces, as separators=(",", ":") */
  bool utf8;    /* non-ASCII text as it is (ensure_ascii=False), else as \uXXXX */
  int depth;
  bool after_key;
  struct {
    char close;
    bool any;
  } level[TREE_DEPTH_MAX + 1];
} json_writer;

void json_open_map(json_writer *w);
void json_open_list(json_writer *w);
void json_close(json_writer *w); /* the innermost open map or list */
void json_put_key(json_writer *w, const char *key);
void json_put_null(json_writer *w);
void json_put_bool(json_writer *w, bool x);
void json_put_int(json_writer *w, int64_t x);
void json_put_double(json_writer *w, double x); /* NaN and Infinity as Python writes them */
void json_put_float(json_writer *w, float x);   /* shortest digits that read back as this float */
void json_put_string(json_writer *w, const char *s);
void json_put_string_n(json_writer *w, const char *s, size_t n); /* invalid UTF-8 becomes U+FFFD */
/* A key and its value. */
void json_key_int(json_writer *w, const char *key, int64_t x);
void json_key_double(json_writer *w, const char *key, double x);
void json_key_bool(json_writer *w, const char *key, bool x);
void json_key_string(json_writer *w, const char *key, const char *s);
void json_put_tree(json_writer *w, const tree_node *n); /* a complete tree */

#endif
