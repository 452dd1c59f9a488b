/* What a tokenizer is made of; for its own files only. */
#ifndef TOK_TOK_INTERNAL_H
#define TOK_TOK_INTERNAL_H

#include "tok/tok_added.h"
#include "tok/tok_dec.h"
#include "tok/tok_model.h"
#include "tok/tok_norm.h"
#include "tok/tok_post.h"
#include "tok/tok_pre.h"
#include "tok/tokenizer.h"

enum { TOK_ROLES = TOKEN_MASK + 1 };

/* A token as decoding sees it. */
typedef struct {
  tok_text text; /* goes through the decoder; .at is NULL for no token */
  tok_text name; /* as the vocabulary writes it */
  bool special;
} tok_entry;

struct tokenizer {
  tok_model model;
  tok_added added;
  tok_normalizer *normalizer;
  tok_pretokenizer *pretokenizer;
  tok_decoder *decoder;
  tok_post post;
  tok_entry *entry; /* by id, model and added tokens */
  size_t n;
  int32_t role[TOK_ROLES];
  token_ids extra;    /* tokens of lists of special tokens that play no role */
  bool takes_bytes;   /* stray bytes of the input can be tokens */
  bool cleans_up;     /* clean_up_tokenization_spaces */
  bool split_special; /* never look for special tokens in text */
};

/* Reads tokenizer_config.json and special_tokens_map.json of a folder, where they are, into a
 * tokenizer that has been read but not finished. */
hp_status tok_read_config(tokenizer *t, const char *dir);
/* Reads vocab.json, merges.txt and the configuration of a folder. */
hp_status tok_read_vocab_merges(tokenizer *t, const char *dir);

#endif
