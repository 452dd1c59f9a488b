/* Messages to the user on stderr: notes, warnings, and a progress line that they do not disrupt. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

typedef enum { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_QUIET } log_level;

void log_set_level(log_level least);
/* Control characters are escaped (escape.h); line breaks stay if fmt itself has one. */
void log_line(log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* Replaces the progress line on a terminal; prints nothing elsewhere.  "" removes it. */
void log_progress(const char *text);
bool log_is_terminal(void);

#endif
