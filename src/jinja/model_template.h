/* The chat templates of a model directory, and conversations rendered by them.
 *
 * A template is looked for as Transformers does: chat_template.jinja, with
 * additional_chat_templates/tool_use.jinja for conversations with tools; else `chat_template` of
 * tokenizer_config.json, a string or a list of {"name", "template"} with "default" and "tool_use";
 * else `chat_template` of chat_template.json.  The first of these places that has one is taken. */
#ifndef JINJA_MODEL_TEMPLATE_H
#define JINJA_MODEL_TEMPLATE_H

#include "jinja/jinja.h"

typedef struct {
  jinja *plain; /* NULL: the model has no template */
  jinja *tools; /* for conversations with tools; NULL: plain is for them, too */
} model_template;

/* A model without any is no failure. */
hp_status model_template_load(const char *dir, model_template *out);
void model_template_free(model_template *t);

/* A variable of templates where the conversation has none of its name: bos_token, eos_token, ...
 * text NULL: it is a boolean, enable_thinking. */
typedef struct {
  const char *name, *text;
  size_t len;
  bool boolean;
} template_variable;

/* Appends a conversation's text to *out.  conversation: a list of messages, or a map with
 * "messages", perhaps "tools", and any other variables, e.g. "enable_thinking".  generate: the
 * text ends where the model's answer begins.  The tree is changed: its root becomes a map. */
hp_status model_template_render(const model_template *t, tree *conversation,
                                const template_variable *variables, size_t n, bool generate,
                                str *out);

#endif
