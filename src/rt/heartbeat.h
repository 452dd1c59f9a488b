/* What a process tells the supervisor of its job (`hyper launch`), several times a second: that it
 * lives, and where it is in its programs.  A process that nobody supervises does nothing of this.
 *
 * A supervised process ends at once when its supervisor is gone: what it has not saved is lost, and
 * the job that is started next does not run beside it.  The supervisor is gone when the connection
 * is closed, or when its machine has not answered for minutes. */
#ifndef RT_HEARTBEAT_H
#define RT_HEARTBEAT_H

#include "base/status.h"

/* ADDRESS:PORT:KEY:MILLISECONDS between two heartbeats:MILLISECONDS of patience */
#define HEARTBEAT_VARIABLE "HYPER_SUPERVISOR"
/* An identity of the job, the same in every try, in the environment of each of its processes. */
#define HEARTBEAT_JOB      "HYPER_JOB"

/* Begins when the environment names a supervisor; HP_ERR_COMM when it cannot be reached.  To be
 * called before the process joins the others. */
hp_status heartbeat_begin(void);
/* The process has joined the others: its rank is known. */
void heartbeat_joined(void);
/* In place of exit code 1: a device has failed, and the job is to be started again. */
enum { HEARTBEAT_AGAIN = 257 };
/* The last heartbeat: the process ends of itself, with this exit code; message: why, or "". */
void heartbeat_end(int code, const char *message);
/* The same from the handler of a signal, for bad input that this process alone has found and that
 * another try would find again: the job is not started again.  Returns when the supervisor has it,
 * or after seconds; the caller ends the process. */
void heartbeat_refuse(int code);

#endif
