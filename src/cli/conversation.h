/* A conversation of `hyper chat`: its messages, as tokens for the model's next answer, by one of
 * LlamaFactory's templates or by the chat template of the model itself. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "cli/model_chat.h"
#include "dataset/chat_encode.h"

enum { THINKS_UNSAID = -2 };

typedef struct {
  const char *template;                     /* of LlamaFactory; NULL: the model's own */
  const char *system;                       /* NULL: none */
  const char *default_system, *tool_format; /* NULL: the template's */
  const char *tools;                        /* a JSON file with a list of tools; NULL: none */
  int thinks;                               /* 1, 0, or THINKS_UNSAID */
  bool keeps_thoughts;
} conversation_options;

/* Options of a command: a text each. */
#define TALK_OPTIONS(tool_format, thinking)                                                        \
  {"--tool-format", CLI_TEXT, &(tool_format), "NAME",                                              \
   "how tools are described, in place of the template's way"},                                     \
  {                                                                                                \
    "--enable-thinking", CLI_TEXT, &(thinking), "true|false",                                      \
        "for models that reason (default: the template's way)"                                     \
  }

typedef struct {
  chat_role role;
  str text;
} conversation_message;

typedef struct {
  const tokenizer *t;
  bool by_encoder; /* by a template of LlamaFactory */
  chat_encoder encoder;
  model_chat own;
  int thinks;
  str system; /* empty: none */
  tree tools; /* root NULL: none */
  str tools_text;
  VEC(conversation_message) message; /* a question and an answer by turns */
} conversation;

/* "true" or "false" of an option, or NULL: THINKS_UNSAID.  False for other texts. */
bool conversation_parse_thinks(const char *text, int *out);
/* HP_ERR_INPUT for a template that does not exist or fit the tokenizer, and for a model without a
 * template if none is given. */
hp_status conversation_open(const char *model, const tokenizer *t, const conversation_options *o,
                            conversation *out);
void conversation_close(conversation *c);

hp_status conversation_set_system(conversation *c, const char *text, size_t n);
hp_status conversation_add(conversation *c, chat_role role, const char *text, size_t n);
/* Forgets the messages from number n on. */
void conversation_cut(conversation *c, size_t n);

/* What a list of messages, or a map of "messages", "tools" and "enable_thinking", says, in place of
 * what there is (without enable_thinking: what the options say); for a template of LlamaFactory,
 * and a question is to be the last message. HP_ERR_INPUT, with the place, for roles out of order.
 */
hp_status conversation_read(conversation *c, const tree_node *root);

/* Appends the tokens up to where the answer to the last message begins. */
hp_status conversation_encode(const conversation *c, token_ids *out);
/* Tokens that end an answer, at most n of them; 0: those of the model. */
int conversation_find_ends(const conversation *c, int32_t *ids, int n);
/* Appends {"messages": [...], "tools": [...]}, as `hyper generate --messages` reads it. */
hp_status conversation_print(const conversation *c, str *out);

#endif
