#include "sched/step_rows.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *at; /* rest of the line */
  const char *source;
  int line;
} reader;

static const char *const blanks = " \t\r";

/* The next word of the line and its length; 0: there is none. */
static size_t next_word(reader *r, const char **word) {
  r->at += strspn(r->at, blanks);
  *word = r->at;
  size_t n = strcspn(r->at, " \t\r\n#");
  r->at += n;
  return n;
}

static hp_status read_number(reader *r, const char *what, unsigned long most, unsigned long *out) {
  const char *word;
  size_t n = next_word(r, &word);
  char *end;
  *out = n && *word >= '0' && *word <= '9' ? strtoul(word, &end, 10) : most;
  if (*out < most && end == word + n) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "%s:%d: %s \"%.*s\": expected a number from 0 to %lu (a row is: stage action "
          "microbatch)",
          r->source, r->line, what, (int)(n < 40 ? n : 40), word, most - 1);
}

static hp_status read_row(reader *r, step_rows *out) {
  step_row row = {.line = r->line};
  unsigned long stage, microbatch;
  const char *word;
  HP_TRY(read_number(r, "stage", STEP_STAGES, &stage));
  size_t n = next_word(r, &word);
  if (!n || n >= STEP_ACTION)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: action \"%.*s\": expected a name of 1 to %d characters",
            r->source, r->line, (int)(n < 40 ? n : 40), word, STEP_ACTION - 1);
  memcpy(row.action, word, n);
  HP_TRY(read_number(r, "microbatch", STEP_MICROBATCHES, &microbatch));
  if (next_word(r, &word))
    HP_FAIL(HP_ERR_INPUT, "%s:%d: a row has three words: stage action microbatch", r->source,
            r->line);
  row.stage = (uint16_t)stage;
  row.microbatch = (uint32_t)microbatch;
  return vec_push(out, row) ? HP_OK : HP_ERR_OOM;
}

hp_status step_rows_parse(const char *text, const char *source, step_rows *out) {
  *out = (step_rows){0};
  for (reader r = {text, source, 1}; *r.at; r.line++) {
    r.at += strspn(r.at, blanks);
    if (*r.at && *r.at != '\n' && *r.at != '#') HP_TRY(read_row(&r, out));
    r.at += strcspn(r.at, "\n");
    r.at += *r.at == '\n';
  }
  if (out->len) return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "%s: no row; expected lines of: stage action microbatch", source);
}
