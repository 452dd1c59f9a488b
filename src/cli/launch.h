/* `hyper launch`: starts and supervises the processes of a job. */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include "base/str.h"
#include "base/vec.h"
#include "rt/heartbeat.h"
#include "rt/heartbeat_port.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct {
  int64_t processes, restarts;
  double patience_s;              /* of the watchdog; 0: none */
  double pause_s;                 /* before the first restart */
  const char *hostfile, *starter; /* NULL: no hostfile; mpirun or srun, whichever is there */
  const char *interface;          /* to listen at: its name or address; NULL: chosen by the hosts */
  const char *const *verb;        /* the words after --, NULL at the end */
  const char *program;            /* the executable of this process */
} launch_options;

/* --- starting --------------------------------------------------------------------------------- */

/* The starter: the command line (mpirun, srun) that starts the processes. */
typedef struct {
  VEC(char *) words; /* NULL at the end */
  int signals_from;  /* if signal n killed a process, the starter exits with signals_from + n */
} launch_command;
/* HP_ERR_UNSUPPORTED if the machine has no starter. */
hp_status launch_command_make(const launch_options *o, launch_command *out);
void launch_command_free(launch_command *c);
void launch_command_print(const launch_command *c, str *out);
/* A thread that copies the output of the starter and its processes to the launcher's output. */
typedef struct {
  int from[2], to[2]; /* pipes of standard output and standard error; -1: closed */
  bool runs;          /* the thread was started */
  _Atomic bool ends;  /* nothing more will be printed: the thread must end */
  pthread_t thread;
} launch_output;
hp_status launch_output_open(launch_output *o);
/* Called in the starter's process: redirects its output to the pipes. */
void launch_output_enter(const launch_output *o);
/* Starts the thread.  Output is dropped if nobody reads the launcher's. */
hp_status launch_output_begin(launch_output *o);
/* Copies the remaining output, ends the thread and closes the pipes. */
void launch_output_end(launch_output *o);

/* Runs the starter in a Unix process group of its own, so that Ctrl-C reaches only the launcher.
 * The kernel sends it SIGTERM when the launcher ends for any reason. */
hp_status launch_start(const launch_command *c, const launch_output *o, pid_t *out);

/* HP_ERR_INPUT if the hostfile cannot be read or names no machine. */
hp_status launch_check_hosts(const launch_options *o);
/* The numeric address of this machine at which the machines of the job can reach it. */
hp_status launch_find_address(const launch_options *o, char out[64]);

/* --- processes of this machine ---------------------------------------------------------------- */

/* Sets a mark in the environment, by which the processes of the job are recognised. */
hp_status launch_mark(void);
/* Does the process belong to the job, as a starter or as one of its processes? */
bool launch_has_mark(pid_t pid);
/* Does the process belong to the job and run this executable? */
bool launch_owns(pid_t pid);
/* Kills all such processes of this machine except this one, and waits for their end, at most so
 * many seconds. */
void launch_sweep(double seconds);

/* A process that kills the starter and the processes of a try on this machine if the launcher dies
 * before launch_keep_end. */
typedef struct {
  pid_t pid; /* 0: none */
  int pipe;
} launch_keeper;
hp_status launch_keep(pid_t starter, launch_keeper *out);
void launch_keep_end(launch_keeper *k);

/* --- watching --------------------------------------------------------------------------------- */

typedef struct {
  heartbeat_port port; /* its listener is -1: there is no watchdog */
  double patience_s;
  char self[64], address[64]; /* name of this machine; address at which it listens */
  double began_s, listened_s; /* start of this try; last call of watchdog_listen */
  int64_t saved;              /* step of the newest committed checkpoint; -1: none */
} watchdog;

/* Opens the port to which the processes send their heartbeats. */
hp_status watchdog_open(const launch_options *o, watchdog *out);
void watchdog_close(watchdog *w);
/* At the start of a try: forgets the processes of the last one, and sets the address of the port in
 * the environment of the new ones. */
hp_status watchdog_begin(watchdog *w);
/* Reads heartbeats, waiting at most so long for them. */
void watchdog_listen(watchdog *w, int milliseconds);
/* The first process whose connection closed before it reported its end; NULL: none. */
const heartbeat_peer *watchdog_find_lost(const watchdog *w);
/* Writes why the job makes no progress to *why; false: it makes progress. */
bool watchdog_find(const watchdog *w, str *why);
/* Have all processes reported their end?  *code: the exit code of the job. */
bool watchdog_all_ended(const watchdog *w, int *code);
/* A process that failed while the others could not know it: before world_begin, or because its
 * input was refused.  Failures after the death of another process do not count, since that may be
 * their cause.  NULL: none. */
const heartbeat_peer *watchdog_find_refused(const watchdog *w);
/* Has any process sent a heartbeat? */
bool watchdog_any_known(const watchdog *w);
/* Sends a signal to all processes; false: there are none. */
bool watchdog_signal(watchdog *w, int number);
/* Kills the processes that still run, here and on other machines. */
void watchdog_kill(watchdog *w);
/* A process that is still connected; NULL: none. */
const heartbeat_peer *watchdog_find_living(const watchdog *w);
/* "process 1 (node7, pid 4711)" */
void peer_print(const heartbeat_peer *x, str *out);

/* --- between two tries ------------------------------------------------------------------------ */

/* Seconds to pause after `failed` tries in a row without a newer checkpoint: 0 for none, `first`
 * for one, then twice as long each time, at most 30. */
double launch_pause_s(double first, int64_t failed);
/* Pauses; false: it was interrupted because the job is asked to end. */
bool launch_pause(double seconds, bool (*is_asked)(void));

/* --- one try ---------------------------------------------------------------------------------- */

typedef struct {
  bool died;        /* a process died or hangs: why says which */
  bool told_to_end; /* the launcher got a signal */
  int code;         /* exit code of the job */
  str why;          /* the caller frees it */
} launch_result;
/* Starts the job and waits until the starter and all processes have ended. */
hp_status launch_try(const launch_options *o, watchdog *w, launch_result *out);
/* Is there a signal to end the job that no try has handled yet? */
bool launch_is_asked(void);

#endif
