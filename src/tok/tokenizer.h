/* Tokenizer: text <-> ids, as the `tokenizers` library of Hugging Face computes them, id for id.
 *
 * Loaded from a model directory: tokenizer.json, or vocab.json and merges.txt; with
 * tokenizer_config.json and special_tokens_map.json where they are.  Components that are not
 * known are refused by name, never skipped.  After loading a tokenizer is read-only: any number of
 * threads may use it.
 *
 * Text that is not UTF-8 (the reference cannot take it): a model with a byte-level alphabet or
 * byte fallback gets every stray byte as that byte, so it comes back on decoding; for other models
 * it is replaced by U+FFFD. */
#ifndef TOK_TOKENIZER_H
#define TOK_TOKENIZER_H

#include "base/str.h"
#include "base/vec.h"

typedef struct tokenizer tokenizer;
typedef VEC(int32_t) token_ids;

/* Reads the tokenizer of a model directory, or a tokenizer.json given by its path. */
hp_status tokenizer_load(const char *path, tokenizer **out);
/* Reads the bytes of a tokenizer.json; `name` stands for the file in messages. */
hp_status tokenizer_parse(const char *name, const char *json, size_t n, tokenizer **out);
void tokenizer_free(tokenizer *t);
/* Is there a tokenizer in the model directory, whole or not? */
bool tokenizer_is_in(const char *dir);

enum {
  TOKENIZE_SPECIAL = 1, /* add what the post-processor adds: bos, eos, [CLS] ... */
  TOKENIZE_PLAIN = 2    /* special tokens written in the text are ordinary text */
};
/* Appends the ids of text[0..n) to *out (vec_free).  On failure *out is as it was. */
hp_status tokenizer_encode(const tokenizer *t, const char *text, size_t n, unsigned flags,
                           token_ids *out);

/* Appends the text of n ids.  Ids without a token (a model may have more rows than its tokenizer)
 * are left out, with skip_special special tokens too.  The text is valid UTF-8. */
hp_status tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                           str *out);

/* The same as Transformers' decode: if tokenizer_config.json says clean_up_tokenization_spaces,
 * without spaces in front of . ? ! , n't 'm 's 've 're and around '. */
hp_status tokenizer_decode_clean(const tokenizer *t, const int32_t *ids, size_t n,
                                 bool skip_special, str *out);

/* Decoding token by token.  Pieces are valid UTF-8, never half a character; all pieces and the
 * flush together are what tokenizer_decode gives for all ids.  (One exception, byte fallback: a
 * byte that makes an earlier, already shown run of byte tokens invalid does not take it back.) */
typedef struct {
  const tokenizer *t;
  bool skip_special;
  token_ids ids;  /* the last shown token or two, and those not shown yet */
  size_t shown;   /* of ids */
  str bytes;      /* byte-level: what is not shown yet */
  str text, more; /* of ids: up to `shown`, and of all */
} tokenizer_stream;
/* A stream of its own for each text; tokenizer_stream_free frees it. */
tokenizer_stream tokenizer_stream_create(const tokenizer *t, bool skip_special);
/* Appends to *out the text that the id makes final; may be nothing. */
hp_status tokenizer_stream_push(tokenizer_stream *s, int32_t id, str *out);
/* Appends what is still held back; the stream is then as new. */
hp_status tokenizer_stream_flush(tokenizer_stream *s, str *out);
void tokenizer_stream_free(tokenizer_stream *s);

/* The id of a token's text, -1 when there is none. */
int32_t tokenizer_find(const tokenizer *t, const char *token, size_t n);
/* The token of an id as the vocabulary writes it ("\u0120the"), NUL-terminated; NULL when there is
 * none.  *n may be NULL. */
const char *tokenizer_token(const tokenizer *t, int32_t id, size_t *n);
/* One more than the largest id. */
size_t tokenizer_size(const tokenizer *t);
/* The first id that is one token for a and another for b; -1 = none, for ids may be missing. */
int32_t tokenizer_find_difference(const tokenizer *a, const tokenizer *b);

typedef enum {
  TOKEN_BOS,
  TOKEN_EOS,
  TOKEN_PAD,
  TOKEN_UNK,
  TOKEN_SEP,
  TOKEN_CLS,
  TOKEN_MASK
} token_role;
/* The id that tokenizer_config.json or special_tokens_map.json gives a role; -1 = none. */
int32_t tokenizer_role(const tokenizer *t, token_role role);

/* Ids of the tokens that "additional_special_tokens" or "extra_special_tokens" list there. */
const token_ids *tokenizer_extra_specials(const tokenizer *t);

#endif
