/* Chat templates: the subset of Jinja that models of Hugging Face use for `chat_template`.
 *
 * A template is parsed once and rendered with a context, a map read from JSON: `messages`, `tools`,
 * `add_generation_prompt`, `bos_token`, and any other variable.  The result is, byte for byte, what
 * Transformers' apply_chat_template gives: Jinja2's sandbox with trim_blocks and lstrip_blocks,
 * loop controls, generation blocks, raise_exception, strftime_now, and Transformers' own tojson.
 *
 * Statements, filters and methods outside of the subset are refused by name and place.  A template
 * may be hostile: its nesting, steps, memory and output are limited.  After parsing it is
 * read-only: any number of threads may render it. */
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include "base/str.h"
#include "base/tree.h"

typedef struct jinja jinja;

enum {
  JINJA_TEXT_MAX = 4 << 20,    /* bytes of a template */
  JINJA_OUTPUT_MAX = 64 << 20, /* bytes of a rendering */
  JINJA_STEPS_MAX = 10000000   /* values computed and statements run by a rendering */
};

/* `name` stands for the template in messages, e.g. its file; it is copied, as the text is. */
hp_status jinja_parse(const char *name, const char *text, size_t len, jinja **out);
void jinja_free(jinja *t);

typedef struct {
  int64_t now;    /* for strftime_now: seconds since 1970; 0 asks the clock */
  uint64_t steps; /* at most so many; 0: JINJA_STEPS_MAX */
} jinja_options;

/* Appends the rendering to *out; on failure *out is as it was.  context: a map of variables.
 * options may be NULL.  Failures name the line of the template; so does raise_exception, whose
 * message is in them. */
hp_status jinja_render(const jinja *t, const tree_node *context, const jinja_options *options,
                       str *out);

#endif
