#include "base/status.h"

#include "base/escape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_MAX = 8192 };

/* The one piece of mutable global data: the failure of this thread, as errno. */
static _Thread_local struct {
  hp_status code;
  char message[ERR_MESSAGE_MAX];
  char trace[TRACE_MAX];
  size_t trace_len;
} err;

static void trace_add(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void trace_add(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  size_t room = TRACE_MAX - err.trace_len;
  int n = vsnprintf(err.trace + err.trace_len, room, fmt, ap);
  va_end(ap);
  if (n > 0) err.trace_len += (size_t)n < room ? (size_t)n : room - 1;
}

hp_status err_set(hp_status code, const char *file, int line, const char *fmt, ...) {
  char raw[ERR_MESSAGE_MAX], text[ERR_MESSAGE_MAX];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(raw, sizeof raw, fmt, ap);
  va_end(ap);
  escape_text(text, sizeof text, raw, strlen(raw), strchr(fmt, '\n') != NULL);
  if (err.code) {
    trace_add("  then %s:%d: %s\n", file, line, text);
    return code;
  }
  err.code = code;
  memcpy(err.message, text, sizeof text);
  err.trace_len = 0;
  err.trace[0] = 0;
  trace_add("  at %s:%d (%s)\n", file, line, err_name(code));
  return code;
}

void err_at(hp_status code, const char *file, int line, const char *call) {
  if (!err.code) err_set(code, file, line, "%s failed (%s)", call, err_name(code));
  trace_add("  at %s:%d: %.120s\n", file, line, call);
}

void err_clear(void) {
  err.code = HP_OK;
  err.message[0] = 0;
  err.trace[0] = 0;
  err.trace_len = 0;
}

const char *err_message(void) { return err.message; }
const char *err_trace(void) { return err.trace; }

const char *err_name(hp_status code) {
  static const char *const name[] = {
      [HP_OK] = "ok",
      [HP_ERR_ARG] = "bad argument",
      [HP_ERR_INPUT] = "bad input",
      [HP_ERR_SHAPE] = "shapes do not fit",
      [HP_ERR_LAYOUT] = "bad layout",
      [HP_ERR_OOM] = "out of memory",
      [HP_ERR_IO] = "input/output error",
      [HP_ERR_COMM] = "communication error",
      [HP_ERR_DEVICE] = "device error",
      [HP_ERR_NUMERIC] = "value is not finite",
      [HP_ERR_UNSUPPORTED] = "not supported",
      [HP_ERR_INTERNAL] = "internal error",
  };
  return (unsigned)code < sizeof name / sizeof *name ? name[code] : "unknown status";
}

void err_take(hp_status code, err_report *out) {
  out->code = code;
  memcpy(out->message, err.message, sizeof out->message);
  err_clear();
}

hp_status err_give(const err_report *r) {
  if (r->code) return err_set(r->code, "worker", 0, "%s", r->message);
  return HP_OK;
}

_Noreturn void err_bug(const char *file, int line, const char *cond) {
  fprintf(stderr,
          "hyper: bug at %s:%d: %s does not hold.  Please report this line and what you ran.\n",
          file, line, cond);
  abort();
}
