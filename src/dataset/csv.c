#include "dataset/csv.h"

#include "base/utf8.h"

hp_status csv_check_utf8(const char *s, size_t n, const char *path, size_t line) {
  uint32_t c;
  for (size_t i = 0, len; i < n; i += len) {
    len = utf8_decode(s + i, n - i, &c);
    if (!len)
      HP_FAIL(HP_ERR_INPUT,
              "%s:%zu: byte %zu of the line (0x%02x) is not UTF-8; convert the file to "
              "UTF-8",
              path, line, i + 1, (unsigned char)s[i]);
  }
  return HP_OK;
}

/* Appends one field to value, without its quotes. */
static hp_status read_field(csv *r) {
  bool quoted = r->at < r->len && r->bytes[r->at] == '"';
  size_t start = r->value.len, line = r->line;
  if (!vec_push(&r->field, start)) return HP_ERR_OOM;
  r->at += quoted;
  for (; r->at < r->len; r->at++) {
    char c = r->bytes[r->at];
    if (quoted && c == '"') {
      if (r->at + 1 < r->len && r->bytes[r->at + 1] == '"') r->at++;
      else {
        quoted = false;
        continue;
      }
    } else if (!quoted && (c == ',' || c == '\n' || c == '\r')) {
      break;
    }
    line += c == '\n';
    str_add_char(&r->value, c);
  }
  if (quoted)
    HP_FAIL(HP_ERR_INPUT, "%s:%zu: field %zu has an opening quote and no closing one", r->path,
            r->line, r->field.len);
  r->line = line;
  if (!vec_push(&r->length, r->value.len - start)) return HP_ERR_OOM;
  str_add_n(&r->value, "", 1);
  return str_status(&r->value);
}

hp_status csv_row(csv *r, bool *more) {
  while (r->at < r->len && (r->bytes[r->at] == '\n' || r->bytes[r->at] == '\r'))
    r->line += r->bytes[r->at++] == '\n';
  *more = r->at < r->len;
  str_clear(&r->value);
  r->field.len = r->length.len = 0;
  if (!*more) return HP_OK;
  size_t start = r->at, line = r->line;
  for (;;) {
    HP_TRY(read_field(r));
    if (r->at >= r->len || r->bytes[r->at] != ',') break;
    r->at++;
  }
  return csv_check_utf8(r->bytes + start, r->at - start, r->path, line);
}

dataset_text csv_get(const csv *r, size_t column) {
  if (column == SIZE_MAX) return (dataset_text){0};
  return (dataset_text){r->value.at + r->field.at[column], r->length.at[column]};
}

void csv_free(csv *r) {
  str_free(&r->value);
  vec_free(&r->field);
  vec_free(&r->length);
}
