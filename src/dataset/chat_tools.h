/* Tools in a conversation: their description for the system message, and calls of them, in the
 * formats of LlamaFactory (tool_formats.def). */
#ifndef DATASET_CHAT_TOOLS_H
#define DATASET_CHAT_TOOLS_H

#include "base/str.h"
#include "base/tree.h"
#include "dataset/chat_template.h"

/* A call: the function's name, and its arguments, mostly a map. */
typedef struct {
  const tree_node *name, *arguments;
} tool_call;

/* Appends the description of the tools in a list, which is not empty.  HP_ERR_INPUT names what a
 * tool lacks. */
hp_status chat_describe_tools(tool_format f, const tree_node *tools, str *out);
/* Appends n calls. */
hp_status chat_write_calls(tool_format f, const tool_call *call, size_t n, str *out);
/* The format of that name; fails with those that there are. */
hp_status tool_format_find(const char *name, tool_format *out);

/* --- parts ------------------------------------------------------------------------------------ */

typedef hp_status tool_describer(const tree_node *tools, str *out);
typedef hp_status tool_call_writer(const tool_call *call, size_t n, str *out);
#define FORMAT(name)                                                                               \
  tool_describer tools_##name;                                                                     \
  tool_call_writer calls_##name;
#include "dataset/tool_formats.def"
#undef FORMAT

/* Appends a value as Python's json.dumps(ensure_ascii=False) writes it; indent 0: one line. */
void tool_put_json(str *out, const tree_node *v, int indent);
/* The same, but a text as it is. */
void tool_put_value(str *out, const tree_node *v);

#endif
