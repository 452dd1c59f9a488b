/* Chat templates: how the messages of a conversation are written as text for a model.
 *
 * A template is data (templates.def), with a slot of text for each role.  The texts of a slot are
 * tokenized one by one, as LlamaFactory does. */
#ifndef DATASET_CHAT_TEMPLATE_H
#define DATASET_CHAT_TEMPLATE_H

#include "base/status.h"

#include <stdbool.h>

/* In the text of a slot: */
#define SLOT_CONTENT "{{content}}"
enum { SLOT_BOS = 1, SLOT_EOS, SLOT_TOKEN, SLOT_TOKEN_END, SLOT_CUT };

typedef enum {
#define FORMAT(name) TOOLS_##name,
#include "dataset/tool_formats.def"
#undef FORMAT
  TOOL_FORMATS
} tool_format;

typedef enum {
  CHAT_PLAIN,
  CHAT_SYSTEM_IN_USER,   /* the system message is part of the first user message */
  CHAT_REASONING,        /* answers begin with a thought; one without gets an empty one */
  CHAT_REASONING_CLOSED, /* the same, but an empty thought is its closing word alone */
} chat_kind;

typedef struct {
  const char *name;
  /* Slots; NULL: CONTENT for user and system; CONTENT EOS for the assistant (CONTENT alone if
   * ends_turns); as the assistant's for function; as the user's for observation; none for prefix.
   */
  const char *user, *assistant, *system, *function, *observation, *prefix;
  const char
      *tool_list; /* in place of the description that `tools` makes: the JSON text in a slot */
  tool_format tools, calls; /* how tools are described, and calls of them written */
  const char *default_system;
  const char *stop[4];    /* tokens that end an answer, besides the end token */
  const char *thought[2]; /* around a thought; NULL: <think>\n and \n</think>\n\n */
  const char *call[2];    /* around a call within an answer; NULL: <tool_call> and </tool_call> */
  bool ends_turns;   /* the end token is put before the next turn, and not learned as a part of the
                        slot (LlamaFactory's efficient_eos) */
  bool replaces_eos; /* stop[0] is the end token in place of the tokenizer's */
  bool
      replaces_jinja; /* a model trained with it gets it as its chat template, even if it has one */
  bool media;         /* of a model that sees or hears; conversations of text alone are written */
  chat_kind kind;
} chat_template;

/* Puts the defaults in place of what is NULL. */
void chat_template_complete(chat_template *t);
/* The template of that name; fails with the nearest. */
hp_status chat_template_find(const char *name, chat_template *out);

#endif
