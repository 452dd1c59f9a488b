/* Vocabulary: token text <-> id.  Ids may have gaps; texts may hold NULs and need not be UTF-8. */
#ifndef TOK_TOK_VOCAB_H
#define TOK_TOK_VOCAB_H

#include "base/arena.h"

/* Ids are dense in practice; the limit keeps the table by id small whatever a file says. */
enum { TOK_ID_MAX = (1 << 22) - 1 };

typedef struct {
  const char *at; /* NUL-terminated; NULL = no token has this id */
  uint32_t len;
} tok_text;

/* A zeroed vocabulary is empty and ready. */
typedef struct {
  struct tok_slot {
    uint32_t hash, id1; /* id + 1; 0 = free */
  } * slot;
  size_t cap;
  tok_text *token; /* by id */
  size_t n;        /* one more than the largest id */
  size_t n_cap;
  size_t count;   /* tokens */
  size_t longest; /* bytes of the longest */
  arena mem;
} tok_vocab;

/* Adds a token; file and line are for the message when the text or the id is taken already, or
 * the id is not in 0..TOK_ID_MAX. */
hp_status tok_vocab_add(tok_vocab *v, const char *at, size_t len, int64_t id, const char *file,
                        unsigned line);
/* Room for n tokens at once. */
hp_status tok_vocab_reserve(tok_vocab *v, size_t n);
bool tok_vocab_find(const tok_vocab *v, const char *at, size_t len, int32_t *id);
/* The text of an id; .at is NULL when there is none. */
tok_text tok_vocab_get(const tok_vocab *v, int64_t id);
void tok_vocab_free(tok_vocab *v);

#endif
