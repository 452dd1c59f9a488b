/* Conversations into rows of tokens with labels, one conversation at a time, as LlamaFactory's
 * processors make them: cut to cutoff_len, labels where the model is to learn. */
#ifndef TRAIN_CHAT_ROWS_H
#define TRAIN_CHAT_ROWS_H

#include "dataset/chat_encode.h"
#include "train/train_data.h"

typedef struct {
  token_ids ids, labels;
  bool cut; /* some of it is beyond cutoff_len */
} chat_row;
void chat_row_free(chat_row *r);

typedef struct {
  const chat_encoder *e;
  int64_t cutoff;                  /* tokens of a row, at most */
  bool learns_prompt, last_answer; /* train_on_prompt, mask_history */
} chat_rules;

/* Stage sft: the conversation, cut turn by turn. */
hp_status chat_row_of_turns(const chat_rules *r, const chat *c, chat_row *out);
/* Preferences: the prompt with the chosen answer, and with the rejected one; of both the prompt and
 * the answer are cut alike. */
hp_status chat_rows_of_pair(const chat_rules *r, const chat *c, chat_row out[2]);
/* Stage kto: the prompt with its answer, and with that of another conversation. */
hp_status chat_rows_of_judged(const chat_rules *r, const chat *c, const chat *other,
                              chat_row out[2]);
/* The prompt with its answer, which for generation alone has labels and may be empty: both are cut
 * alike. */
hp_status chat_row_of_answer(const chat_rules *r, const chat *c, chat_row *out);
/* The one of two responses that is not empty; the second if both are. */
const chat_message *chat_judged(const chat *c, bool *good);

#endif
