/* The list of what was written into a folder, as a file. */
#include "base/file_record.h"
#include "base/io.h"
#include "base/sealed.h"

#include <stdio.h>
#include <string.h>

/* A line a file, "BYTES HASH NAME"; sealed. */
hp_status file_record_save(const file_record *r, const char *path) {
  str text = {0};
  char hex[33];
  size_t n;
  const file_sum *s = file_record_list(r, &n);
  for (size_t i = 0; i < n; i++) {
    hash_hex(s[i].hash, hex);
    str_printf(&text, "%llu %s %s\n", (unsigned long long)s[i].bytes, hex, s[i].name);
  }
  sealed_close(&text);
  hp_status st = str_status(&text);
  if (!st) st = file_write(path, text.at, text.len);
  str_free(&text);
  return st;
}

static hp_status merge_line(file_record *r, const char *path, char *line) {
  unsigned long long bytes, hi, lo;
  int end = 0;
  if (sscanf(line, "%llu %16llx%16llx %n", &bytes, &hi, &lo, &end) != 3 || !end || !line[end])
    HP_FAIL(HP_ERR_INPUT, "%s: \"%.100s\" is no line of a list of files; it is damaged", path,
            line);
  file_sum s = {.name = line + end, .bytes = bytes, .hash = {lo, hi}};
  return file_record_merge_sum(r, &s, path);
}

static hp_status merge_lines(file_record *r, const char *path, char *text) {
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
    *end = 0;
    HP_TRY(merge_line(r, path, line));
  }
  return HP_OK;
}

hp_status file_record_merge(file_record *r, const char *path) {
  char *text;
  size_t len, body;
  HP_TRY(file_read(path, 0, &text, &len));
  hp_status st = sealed_check(path, text, len, &body);
  if (!st) {
    text[body] = 0;
    st = merge_lines(r, path, text);
  }
  mem_free(text);
  return st;
}
