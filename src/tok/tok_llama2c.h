/* llama2.c's tokenizer.bin (tok512.bin, ...) as a tokenizer.json.
 *
 * The file is: int32 longest token, then per token float32 score, int32 length, bytes; ids 0, 1, 2
 * are <unk>, <s>, </s>, ids 3 to 258 the bytes <0x00> to <0xFF>.  llama2.c merges the neighbours
 * whose concatenation is the token with the highest score, leftmost first.  Here every way to cut a
 * token in two tokens is a merge whose rank is the place of the token's score: the same ids for
 * every text.  Bos is added first, a space before the text. */
#ifndef TOK_TOK_LLAMA2C_H
#define TOK_TOK_LLAMA2C_H

#include "base/str.h"

/* Appends the text of a tokenizer.json; `name` stands for the file in messages. */
hp_status tok_llama2c_to_json(const char *name, const void *bytes, size_t n, str *json);

#endif
