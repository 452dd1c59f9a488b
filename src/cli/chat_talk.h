/* The talk of `hyper chat`: lines from standard input, answers to standard output. */
#ifndef CLI_CHAT_TALK_H
#define CLI_CHAT_TALK_H

#include "serve/chat_session.h"
#include "cli/conversation.h"

#define CHAT_HELP                                                                                  \
  "  /reset           forget the messages\n"                                                       \
  "  /system TEXT     the system message from now on; without TEXT: none\n"                        \
  "  /tool TEXT       what a tool that the model called returned\n"                                \
  "  /save FILE       the conversation as JSON, as hyper generate --messages reads it\n"           \
  "  /help            these commands\n"                                                            \
  "  /exit            ends, as the end of the input does\n"                                        \
  "  //TEXT           a message that begins with a slash\n"

/* Until the end of the input, /exit, or Ctrl-C where no answer is being written.  json: a line of
 * JSON for each answer.  *code: 0; 130 after Ctrl-C; where standard input is no terminal, 2 if a
 * line could not be answered. */
hp_status chat_talk(conversation *c, chat_session *s, bool json, int *code);

#endif
