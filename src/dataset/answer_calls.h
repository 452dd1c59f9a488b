/* Calls of tools in an answer, in the formats that models write them in. */
#ifndef DATASET_ANSWER_CALLS_H
#define DATASET_ANSWER_CALLS_H

#include "base/tree.h"

/* Told of each call in the order of the text: the function, and its arguments as they are written.
 */
typedef void answer_call(void *ctx, const char *name, size_t name_n, const char *arguments,
                         size_t n);
/* Looks for: JSON objects of a name and arguments (or parameters); "Action: NAME" and "Action
 * Input: ..."; <function=NAME>...</function>; <invoke name="NAME">...</invoke>; and the name of one
 * of the tools (a list, or NULL): on the first line, with JSON behind it, and as call:NAME{...},
 * [NAME(...), ...], or before a line that begins with <arg_key>. */
hp_status answer_find_calls(const char *text, size_t n, const tree_node *tools, answer_call *tell,
                            void *ctx);

#endif
