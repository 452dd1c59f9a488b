/* Regular expressions of tokenizer files: Oniguruma's (Ruby) syntax, run by PCRE2.
 *
 * What differs between the two is translated (\h \w \v \uXXXX, (?m), {,n}, {n,m}+, POSIX classes),
 * what cannot be is refused.  Text must be well-formed (unicode.h); spans are in bytes and lie on
 * character boundaries.  A compiled expression is read-only; a matcher belongs to one call. */
#ifndef TOK_TOK_REGEX_H
#define TOK_TOK_REGEX_H

#include "base/str.h"
#include "base/vec.h"
#include "tok/tok_tree.h"

typedef struct tok_regex tok_regex;

typedef struct {
  uint32_t at, end;
  bool match;
} tok_span;
typedef VEC(tok_span) tok_spans;

/* Work memory of matching one text, which may be matched in pieces and by several expressions; a
 * zeroed matcher is ready. */
typedef struct {
  struct pcre2_real_match_data_8 *data;
  struct pcre2_real_match_context_8 *context;
  str shadow;              /* the text with newer characters replaced, as long as the text */
  uint64_t steps, allowed; /* of work, counted where the expression can repeat itself */
  size_t start, at;        /* of the match that is tried, and where it was counted last */
} tok_matcher;

/* `where` begins the message of a failure. */
hp_status tok_regex_compile(const char *pattern, size_t n, const char *where, tok_regex **out);
/* The "pattern" member of a component: {"Regex": expression} or {"String": literal text}. */
hp_status tok_regex_parse(const tree_node *r, tok_regex **out);
void tok_regex_free(tok_regex *re);

/* Cuts text into matches and what is between them, in order and without gaps (an empty match makes
 * an empty span); replaces *out.  HP_ERR_INPUT when the expression needs more steps than grow with
 * the length of the text: it repeats its work at every place. */
hp_status tok_regex_split(const tok_regex *re, tok_matcher *m, const char *text, size_t n,
                          tok_spans *out);
void tok_matcher_free(tok_matcher *m);

/* The pattern in PCRE2's syntax.  counted: with callouts (?Cn) where work can be repeated, so that
 * between two of them it is bounded by the text that is passed and by the expression:
 *   1  behind what is repeated, and before and behind a call of a group by its name or number
 *   2  before what is repeated, where it may stand in a loop itself
 *   3  before a reference to what a group has matched
 *   16 + k  before what is repeated at least 2^k times */
enum { TOK_COUNT_AFTER = 1, TOK_COUNT_BEFORE, TOK_COUNT_REFERENCE, TOK_COUNT_TIMES = 16 };
hp_status tok_regex_translate(const char *pattern, size_t n, const char *where, bool counted,
                              str *out);

#endif
