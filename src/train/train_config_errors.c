/* What the reading of a configuration has to say: notes, warnings and errors. */
#include "base/log.h"
#include "train/train_config.h"

#include <stdlib.h>
#include <string.h>

/* Adds a line, which lives as long as c. */
static hp_status add_line(train_config *c, train_lines *to, const char *fmt, va_list ap) {
  str s = {0};
  str_vprintf(&s, fmt, ap);
  const char *text = s.failed ? NULL : arena_strdup(&c->mem, s.at);
  str_free(&s);
  return text && vec_push(to, text) ? HP_OK : HP_ERR_OOM;
}

hp_status train_config_note(train_config *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  hp_status st = add_line(c, &c->notes, fmt, ap);
  va_end(ap);
  return st;
}

hp_status train_config_warn(train_config *c, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  hp_status st = add_line(c, &c->warnings, fmt, ap);
  va_end(ap);
  return st;
}

void train_config_tell(const train_config *c) {
  for (size_t i = 0; i < c->notes.len; i++) log_info("%s", c->notes.at[i]);
  for (size_t i = 0; i < c->warnings.len; i++) log_warn("%s", c->warnings.at[i]);
  placement_tell_tokens(&c->is.place, c->is.block);
}

const tree_node *train_config_at(const train_config *c, int key) {
  return c->at[key] ? c->at[key] : c->root;
}

/* Where the message says that it was written: line and column of the file, or the argument. */
static uint64_t place_of(const train_config *c, const char *text) {
  static const char argument[] = "argument ";
  enum { ARGUMENTS = 62 };
  if (!strncmp(text, argument, strlen(argument)))
    return (UINT64_C(1) << ARGUMENTS) + strtoul(text + strlen(argument), NULL, 10);
  tree_place file = tree_where(&(tree_node){.source = c->root->source});
  size_t n = strlen(file.text);
  char *end;
  if (strncmp(text, file.text, n) || text[n] != ':') return UINT64_MAX; /* no place */
  uint64_t line = strtoul(text + n + 1, &end, 10);
  return line << 32 | (*end == ':' ? strtoul(end + 1, NULL, 10) & UINT32_MAX : 0);
}

hp_status train_config_keep(train_config *c, hp_status st) {
  if (!st || st == HP_ERR_OOM || st == HP_ERR_IO || st == HP_ERR_INTERNAL) return st;
  train_error one = {.text = arena_strdup(&c->mem, err_message())};
  err_clear();
  if (!one.text || !vec_push(&c->errors, one)) return HP_ERR_OOM;
  one.place = place_of(c, one.text);
  size_t i = c->errors.len - 1;
  for (; i > 0 && c->errors.at[i - 1].place > one.place; i--) c->errors.at[i] = c->errors.at[i - 1];
  c->errors.at[i] = one;
  return HP_OK;
}

hp_status train_config_report_errors(const train_config *c) {
  size_t n = c->errors.len, shown = 0;
  str list = {0};
  if (!n) return HP_OK;
  if (n == 1) HP_FAIL(HP_ERR_INPUT, "%s", c->errors.at[0].text);
  for (; shown < n && list.len + strlen(c->errors.at[shown].text) < ERR_MESSAGE_MAX - 200; shown++)
    str_printf(&list, "\n  %zu. %s", shown + 1, c->errors.at[shown].text);
  if (shown < n) str_printf(&list, "\n  and %zu more", n - shown);
  hp_status st = str_status(&list);
  if (!st)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%zu errors in the configuration:\n%s", n,
                 list.at + 1);
  str_free(&list);
  return st;
}
