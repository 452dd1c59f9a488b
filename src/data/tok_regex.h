/* Regular expressions of tokenizer files: Oniguruma's (Ruby) syntax, run by PCRE2.
 *
 * What differs between the two is translated (\h \w \v \uXXXX, (?m), {,n}, {n,m}+, POSIX classes),
 * what cannot be is refused.  Text must be well-formed (unicode.h); spans are in bytes and lie on
 * character boundaries.  A compiled expression is read-only; a matcher belongs to one call. */
#ifndef DATA_TOK_REGEX_H
#define DATA_TOK_REGEX_H

#include "base/str.h"
#include "base/vec.h"
#include "data/tok_tree.h"

typedef struct tok_regex tok_regex;

typedef struct {
  uint32_t at, end;
  bool match;
} tok_span;
typedef VEC(tok_span) tok_spans;

/* Work memory of matching; a zeroed matcher is ready. */
typedef struct {
  struct pcre2_real_match_data_8 *data;
  struct pcre2_real_match_context_8 *context;
  str shadow; /* the text with newer characters replaced, as long as the text */
} tok_matcher;

/* `where` begins the message of a failure. */
hp_status tok_regex_compile(const char *pattern, size_t n, const char *where, tok_regex **out);
/* The "pattern" member of a component: {"Regex": expression} or {"String": literal text}. */
hp_status tok_regex_parse(const tree_node *r, tok_regex **out);
void tok_regex_free(tok_regex *re);

/* Cuts text into matches and what is between them, in order and without gaps (an empty match makes
 * an empty span); replaces *out.  HP_ERR_INPUT when the expression backtracks too much. */
hp_status tok_regex_split(const tok_regex *re, tok_matcher *m, const char *text, size_t n,
                          tok_spans *out);
void tok_matcher_free(tok_matcher *m);

/* The pattern in PCRE2's syntax (for tests, too). */
hp_status tok_regex_translate(const char *pattern, size_t n, const char *where, str *out);

#endif
