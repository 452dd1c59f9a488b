#include "base/status.h"

#include "base/escape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_MAX = ERR_MESSAGE_MAX + 8192 };

/* A failure: what is said of it, then the calls that it passed through, by line. */
typedef struct {
  hp_status code;
  char message[ERR_MESSAGE_MAX];
  char trace[TRACE_MAX]; /* the message and a line for each call */
  size_t trace_len, calls_at;
} failure;

/* The one piece of mutable global data, as errno: of this thread, the failure of our own code, and
 * that of the public call that runs or ended last. */
static _Thread_local struct {
  failure own, call;
  int calls;     /* public calls that have begun and not ended */
  bool outside;  /* in a function of the caller's, err_outside */
  bool own_told; /* own is that of a public call, which no code of ours has looked at */
} err;

static failure *current(void) { return err.calls ? &err.call : &err.own; }

static void trace_add(failure *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void trace_add(failure *f, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  size_t room = TRACE_MAX - f->trace_len;
  int n = vsnprintf(f->trace + f->trace_len, room, fmt, ap);
  va_end(ap);
  if (n > 0) f->trace_len += (size_t)n < room ? (size_t)n : room - 1;
}

static void clear(failure *f) {
  f->code = HP_OK;
  f->message[0] = 0;
  f->trace[0] = 0;
  f->trace_len = f->calls_at = 0;
}

hp_status err_set(hp_status code, const char *file, int line, const char *fmt, ...) {
  char raw[ERR_MESSAGE_MAX], text[ERR_MESSAGE_MAX];
  failure *f = current();
  va_list ap;
  if (f == &err.own) err.own_told = false;
  va_start(ap, fmt);
  vsnprintf(raw, sizeof raw, fmt, ap);
  va_end(ap);
  escape_text(text, sizeof text, raw, strlen(raw), strchr(fmt, '\n') != NULL);
  if (f->code) {
    trace_add(f, "  then %s:%d: %s\n", file, line, text);
    return code;
  }
  clear(f);
  f->code = code;
  memcpy(f->message, text, sizeof text);
  trace_add(f, "%s\n", text);
  f->calls_at = f->trace_len;
  trace_add(f, "  at %s:%d (%s)\n", file, line, err_name(code));
  return code;
}

void err_at(hp_status code, const char *file, int line, const char *call) {
  if (current() == &err.own) err.own_told = false;
  if (!current()->code) err_set(code, file, line, "%s failed (%s)", call, err_name(code));
  trace_add(current(), "  at %s:%d: %.120s\n", file, line, call);
}

void err_clear(void) { clear(current()); }

const char *err_message(void) { return current()->message; }
const char *err_trace(void) { return current()->trace + current()->calls_at; }

void err_call_begin(void) {
  if (err.calls++) return;
  clear(&err.call);
  if (err.outside && err.own_told) clear(&err.own);
}

void err_call_succeeded(void) {
  if (err.calls == 1) clear(&err.call);
}

void err_call_end(bool tell) {
  const failure *f = &err.call;
  if (--err.calls || !f->code || !tell) return;
  if (err.own.code) {
    trace_add(&err.own, "  then %s", f->trace);
    return;
  }
  err.own_told = true;
  err.own.code = f->code;
  memcpy(err.own.message, f->message, strlen(f->message) + 1);
  memcpy(err.own.trace, f->trace, f->trace_len + 1);
  err.own.trace_len = f->trace_len;
  err.own.calls_at = f->calls_at;
}

const char *err_call_message(void) { return err.call.message; }
const char *err_call_trace(void) { return err.call.trace; }

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
  memcpy(out->message, err_message(), sizeof out->message);
  err_clear();
}

hp_status err_give(const err_report *r) {
  if (!r->code) return HP_OK;
  return err_set(r->code, "worker", 0, "%s", *r->message ? r->message : err_name(r->code));
}

hp_status err_outside(hp_status (*fn)(void *context), void *context, err_report *why) {
  failure own = err.own, call = err.call;
  int calls = err.calls;
  bool outside = err.outside, own_told = err.own_told;
  clear(&err.own);
  clear(&err.call);
  err.calls = 0;
  err.outside = true;
  hp_status st = fn(context);
  const char *said = err.own.code == st ? err.own.message : "";
  if (!*said && err.call.code == st) said = err.call.message;
  why->code = st;
  memcpy(why->message, said, strlen(said) + 1);
  err.own = own;
  err.call = call;
  err.calls = calls;
  err.outside = outside;
  err.own_told = own_told;
  return st;
}

_Noreturn void err_bug(const char *file, int line, const char *cond) {
  fprintf(stderr,
          "hyper: bug at %s:%d: %s does not hold.  Please report this line and what you ran.\n",
          file, line, cond);
  abort();
}
