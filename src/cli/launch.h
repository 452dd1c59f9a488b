/* `hyper launch`: the processes of a job, and who starts them. */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include "base/str.h"
#include "base/vec.h"
#include "rt/heartbeat.h"

#include <sys/types.h>

typedef struct {
  int64_t processes, restarts;
  double patience_s;              /* of the watchdog; 0: none */
  const char *hostfile, *starter; /* NULL: none; the one that fits */
  const char *const *verb;        /* the words after --, NULL at the end */
} launch_options;

/* The command that starts them. */
typedef struct {
  VEC(char *) words; /* NULL at the end */
  int signals_from;  /* its exit code when a process was ended by signal n: this and n */
} launch_command;
/* HP_ERR_UNSUPPORTED when nothing is there that starts processes. */
hp_status launch_command_make(const launch_options *o, launch_command *out);
void launch_command_free(launch_command *c);
void launch_command_print(const launch_command *c, str *out);
/* Runs it in a group of its own, so that Ctrl-C reaches the launcher alone. */
hp_status launch_start(const launch_command *c, pid_t *out);

/* --- watching --------------------------------------------------------------------------------- */

/* A line to a process: from its first heartbeat on it is known which. */
typedef struct {
  int fd;
  bool known, ended; /* ended: of itself, with last.code */
  double heard_s;
  heartbeat last, next; /* next: of which so many bytes have come */
  size_t got;
} connection;

typedef struct {
  int listener; /* -1: nobody is watched */
  uint64_t key;
  double patience_s;
  char self[64]; /* name of this machine */
  VEC(connection) lines;
  int lost; /* place in lines of the first process that ended without a word; -1 */
  bool ran; /* process 0 has come to a program, in this try or an earlier one */
} watchdog;

/* Listens, and tells the processes to come where, in the environment. */
hp_status watchdog_open(const launch_options *o, watchdog *out);
void watchdog_close(watchdog *w);
/* Forgets the processes of a try that is over. */
void watchdog_reset(watchdog *w);
/* Hears what there is to hear, for so long at most. */
void watchdog_listen(watchdog *w, int milliseconds);
/* The process that holds up the job, and why, in words; NULL: none. */
const connection *watchdog_find(const watchdog *w, str *why);
/* Gives a signal to all processes; false: there is none to give it to. */
bool watchdog_signal(const watchdog *w, int number);
/* Ends at once those that still live on this machine. */
void watchdog_kill(const watchdog *w);
/* "process 1 (node7, pid 4711)" */
void connection_print(const connection *l, str *out);

#endif
