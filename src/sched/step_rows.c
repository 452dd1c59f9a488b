#include "sched/step_rows.h"

#include "sched/row_reader.h"

#include <string.h>

static hp_status read_row(row_reader *r, step_rows *out) {
  step_row row = {.line = r->line};
  uint32_t stage = 0;
  const char *word;
  row.all = *r->at == '*' && strchr(" \t", r->at[1]);
  if (row.all) r->at++;
  else HP_TRY(row_reader_number(r, "stage", STEP_STAGES, &stage));
  size_t n = row_reader_word(r, &word);
  if (!n || n >= STEP_ACTION)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: action \"%.*s\": expected a name of 1 to %d characters",
            r->source, r->line, row_reader_shown(n), word, STEP_ACTION - 1);
  memcpy(row.action, word, n);
  HP_TRY(row_reader_number(r, "microbatch", STEP_MICROBATCHES, &row.microbatch));
  if (row_reader_word(r, &word))
    HP_FAIL(HP_ERR_INPUT, "%s:%d: a row has three words: stage action microbatch", r->source,
            r->line);
  row.stage = (uint16_t)stage;
  return vec_push(out, row) ? HP_OK : HP_ERR_OOM;
}

hp_status step_rows_parse(const char *text, const char *source, step_rows *out) {
  *out = (step_rows){0};
  row_reader r = {text, source, "a row is: stage action microbatch", 0};
  while (row_reader_line(&r)) HP_TRY(read_row(&r, out));
  if (out->len) return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "%s: no row; expected lines of: stage action microbatch", source);
}
