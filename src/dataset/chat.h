/* Conversations, for the stages that tune a model to answer: records of alpaca, sharegpt and openai
 * data in one form, as LlamaFactory 0.9.5 aligns them.
 *
 * The form: messages of user (or observation) and assistant (or function) by turns, a system
 * message, tools as JSON text.  The last message is the response; a preference has two, the chosen
 * and the rejected one; an example of stage kto is one of the two, and the other is empty.
 * A record of alpaca data may have no response.  One that does not fit (roles out of order) stays
 * in the data set as a sample that is left out later, so that shuffles and splits are
 * LlamaFactory's.
 */
#ifndef DATASET_CHAT_H
#define DATASET_CHAT_H

#include "base/arena.h"
#include "base/tree.h"

typedef struct {
  const char *at;
  size_t len;
} dataset_text;

typedef enum { CHAT_USER, CHAT_ASSISTANT, CHAT_SYSTEM, CHAT_FUNCTION, CHAT_OBSERVATION } chat_role;

typedef struct {
  chat_role role;
  dataset_text text;
} chat_message;

typedef struct {
  const chat_message *message; /* [n]: the prompt, then the responses */
  size_t n, prompt;
  dataset_text system, tools; /* empty: none */
  const char *left_out;       /* why the sample is left out; NULL: it is not */
  const char *path;           /* the file of the record */
  int64_t record;             /* from 1 */
} chat;

/* How a file's records become conversations: its entry of dataset_info.json. */
typedef enum { CHAT_ALPACA, CHAT_SHAREGPT, CHAT_OPENAI } chat_formatting;
typedef struct {
  chat_formatting formatting;
  bool ranking; /* records have a chosen and a rejected response */
  bool guess;   /* nothing was given: found from the keys of the first record */
  bool columns; /* columns were given: each must be there in some record */
#define COLUMN(name) const char *name;
#define TAG(name)    const char *name;
#include "dataset/chat_columns.def"
#undef COLUMN
#undef TAG
} chat_format;

/* The format of an entry of dataset_info.json, with LlamaFactory's defaults; NULL: to be guessed.
 * Texts are the entry's. */
hp_status chat_format_read(const tree_node *entry, chat_format *out);
/* Decides what is to be guessed by the keys of a record. */
hp_status chat_format_guess(const tree_node *record, chat_format *f);

/* The record as a conversation; copies texts to mem.  HP_ERR_INPUT, with the place, where a column
 * or a value is of another kind than the format says. */
hp_status chat_align(const chat_format *f, const tree_node *record, arena *mem, chat *out);

#endif
