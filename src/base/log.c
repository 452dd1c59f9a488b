#include "base/log.h"

#include "base/escape.h"
#include "base/str.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One writer at a time, so that lines of threads do not mix. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_level least_level = LOG_INFO;
static char progress[512];

void log_set_level(log_level least) { least_level = least; }

bool log_is_terminal(void) { return isatty(STDERR_FILENO); }

/* What a line says; of its line breaks those that fmt asks for. */
static void print_escaped(const char *fmt, va_list ap) {
  str text = {0};
  str_vprintf(&text, fmt, ap);
  bool lines = strchr(fmt, '\n') != NULL;
  for (size_t i = 0; i < text.len;) {
    char one[ESCAPE_MAX];
    size_t len;
    i += escape_next(text.at + i, text.len - i, lines, one, &len);
    fwrite(one, 1, len, stderr);
  }
  str_free(&text);
}

void log_line(log_level level, const char *fmt, ...) {
  static const char *const prefix[] = {"debug: ", "", "warning: ", "error: ", ""};
  if (level < least_level) return;
  pthread_mutex_lock(&lock);
  if (progress[0]) fputs("\r\033[K", stderr);
  fputs(prefix[level], stderr);
  va_list ap;
  va_start(ap, fmt);
  print_escaped(fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
  if (progress[0]) fputs(progress, stderr);
  fflush(stderr);
  pthread_mutex_unlock(&lock);
}

void log_progress(const char *text) {
  if (!log_is_terminal() || least_level > LOG_INFO) return;
  pthread_mutex_lock(&lock);
  escape_text(progress, sizeof progress, text, strlen(text), false);
  fprintf(stderr, "\r\033[K%s", progress);
  fflush(stderr);
  pthread_mutex_unlock(&lock);
}
