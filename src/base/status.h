/* Failure reports: a status code to return, and a thread-local message with a back trace.
 *
 * The function that finds a failure calls HP_FAIL with the message; callers pass the code on
 * with HP_TRY, which appends one back-trace line.  The first message wins: a second HP_FAIL
 * before the report is taken (err_clear) is appended to the trace, not to the message.
 * Message form: what, where (file:line, key, tensor), what was expected, what to do.
 * HP_ASSERT is for internal errors only, never for input. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "hyperparallel.h"

#include <stdarg.h>

enum { ERR_MESSAGE_MAX = 4096 };

/* Records a failure; returns code, for `return err_set(...)`.  Control characters in the message
 * are escaped (escape.h); line breaks stay if fmt itself has one. */
hp_status err_set(hp_status code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Appends one line to the back trace. */
void err_at(hp_status code, const char *file, int line, const char *call);
/* Clears the current failure: call it after handling a failure. */
void err_clear(void);
/* Message and trace of this thread; "" when there is none.  Valid until the next failure. */
const char *err_message(void);
const char *err_trace(void);
const char *err_name(hp_status code);
/* Around a public call (src/api): failures in between belong to the call, independent of an
 * unhandled failure of its caller.  The call's failure stays until the next call begins; `tell`:
 * an internal caller gets it, too, as from any function.  A call within a call belongs to the
 * outer one. */
void err_call_begin(void);
void err_call_end(bool tell);
/* The outermost call succeeds: clears failures in it that were handled. */
void err_call_succeeded(void);
const char *err_call_message(void); /* of the call that ended last; "" if it succeeded */
const char *err_call_trace(void);   /* the message and the back trace, by line */
/* Moves a failure to another thread: take on the failing one, give on the one that returns. */
typedef struct {
  hp_status code;
  char message[ERR_MESSAGE_MAX];
} err_report;
void err_take(hp_status code, err_report *out);
hp_status err_give(const err_report *r);
/* Runs a callback of the caller within a public call, with a report of its own: its failures are
 * reported as outside of any call, and handled ones leave no trace.  Returns its status, and the
 * last message of a failure ("": none) in *why. */
hp_status err_outside(hp_status (*fn)(void *context), void *context, err_report *why);

#define HP_FAIL(code, ...) return err_set((code), __FILE__, __LINE__, __VA_ARGS__)

#define HP_TRY(call)                                                                               \
  do {                                                                                             \
    hp_status try_s_ = (call);                                                                     \
    if (try_s_) {                                                                                  \
      err_at(try_s_, __FILE__, __LINE__, #call);                                                   \
      return try_s_;                                                                               \
    }                                                                                              \
  } while (0)

/* For functions with cleanup: sets st and jumps to `done`. */
#define HP_TRY_GOTO(call, st)                                                                      \
  do {                                                                                             \
    (st) = (call);                                                                                 \
    if (st) {                                                                                      \
      err_at((st), __FILE__, __LINE__, #call);                                                     \
      goto done;                                                                                   \
    }                                                                                              \
  } while (0)

#define HP_FAIL_GOTO(st, code, ...)                                                                \
  do {                                                                                             \
    (st) = err_set((code), __FILE__, __LINE__, __VA_ARGS__);                                       \
    goto done;                                                                                     \
  } while (0)

#define HP_ASSERT(cond)                                                                            \
  do {                                                                                             \
    if (!(cond)) err_bug(__FILE__, __LINE__, #cond);                                               \
  } while (0)
_Noreturn void err_bug(const char *file, int line, const char *cond);

#endif
