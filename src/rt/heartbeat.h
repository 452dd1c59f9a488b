/* Heartbeats of a process to the supervisor of its job (`hyper launch`), several times a second: a
 * sign of life, and its progress in its programs.  Without a supervisor all calls do nothing.
 *
 * A supervised process ends at once when its supervisor is gone: unsaved work is lost, and the
 * job that is started next does not run at the same time.  The supervisor is gone when the
 * connection is closed, or when its machine has not answered for minutes. */
#ifndef RT_HEARTBEAT_H
#define RT_HEARTBEAT_H

#include "base/status.h"

/* ADDRESS:PORT:KEY:MILLISECONDS between two heartbeats:MILLISECONDS of patience */
#define HEARTBEAT_VARIABLE "HYPER_SUPERVISOR"
/* An identity of the job, the same in every try, in the environment of each of its processes. */
#define HEARTBEAT_JOB      "HYPER_JOB"

/* A supervisor whose machine has not answered for so many seconds is gone.  Not fewer: a suspended
 * supervisor (Ctrl-Z) is probed every two minutes, and its machine answers. */
enum { HEARTBEAT_ANSWER_S = 150 };

/* Begins if the environment names a supervisor; HP_ERR_COMM if it cannot be reached.  Must be
 * called before the process joins the others. */
hp_status heartbeat_begin(void);
/* The process has joined the others, so its rank is known. */
void heartbeat_joined(void);
/* In place of exit code 1: a device has failed, and the job should be restarted. */
enum { HEARTBEAT_AGAIN = 257 };
/* The last heartbeat: the process ends by itself, with this exit code; message: why, or "". */
void heartbeat_end(int code, const char *message);
/* The same from a signal handler, for bad input that only this process has found and that
 * another try would find again: the job is not restarted.  Returns when the supervisor has
 * received it, or after `seconds`; the caller then ends the process. */
void heartbeat_refuse(int code);

#endif
