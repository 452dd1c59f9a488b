#include "sched/row_reader.h"

#include <stdlib.h>
#include <string.h>

static const char *const blanks = " \t\r";

bool row_reader_line(row_reader *r) {
  for (;;) {
    if (r->line) r->at += strcspn(r->at, "\n");
    if (r->line && *r->at) r->at++;
    if (!*r->at) return false;
    r->line++;
    r->at += strspn(r->at, blanks);
    if (*r->at && *r->at != '\n' && *r->at != '#') return true;
  }
}

size_t row_reader_word(row_reader *r, const char **word) {
  r->at += strspn(r->at, blanks);
  *word = r->at;
  size_t n = strcspn(r->at, " \t\r\n#");
  r->at += n;
  return n;
}

hp_status row_reader_number(row_reader *r, const char *what, uint32_t most, uint32_t *out) {
  const char *word;
  size_t n = row_reader_word(r, &word);
  char *end;
  unsigned long x = n && *word >= '0' && *word <= '9' ? strtoul(word, &end, 10) : most;
  if (x >= most || end != word + n)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: %s \"%.*s\": expected a number from 0 to %u (%s)", r->source,
            r->line, what, row_reader_shown(n), word, most - 1, r->form);
  *out = (uint32_t)x;
  return HP_OK;
}
