/* `hyper launch`: the processes of a job, and who starts and watches them. */
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
  double pause_s;                 /* the first between two tries */
  const char *hostfile, *starter; /* NULL: none; the one that fits */
  const char *interface;          /* to listen at: its name or address; NULL: the one that fits */
  const char *const *verb;        /* the words after --, NULL at the end */
  const char *program;            /* the file that this program is run from */
} launch_options;

/* --- starting --------------------------------------------------------------------------------- */

/* The command that starts them. */
typedef struct {
  VEC(char *) words; /* NULL at the end */
  int signals_from;  /* its exit code when a process was ended by signal n: this and n */
} launch_command;
/* HP_ERR_UNSUPPORTED when nothing is there that starts processes. */
hp_status launch_command_make(const launch_options *o, launch_command *out);
void launch_command_free(launch_command *c);
void launch_command_print(const launch_command *c, str *out);
/* What it and its processes print, on its way to the launcher's own output. */
typedef struct {
  int from[2], to[2]; /* pipes of standard output and standard error; -1: closed */
  bool runs;          /* the thread does */
  _Atomic bool ends;  /* nothing more will be printed */
  pthread_t thread;
} launch_output;
hp_status launch_output_open(launch_output *o);
/* In the starter: its output goes there. */
void launch_output_enter(const launch_output *o);
/* Passes on what comes, from a thread, until the end; what nobody reads is dropped. */
hp_status launch_output_begin(launch_output *o);
/* Passes on what is there, and closes all. */
void launch_output_end(launch_output *o);

/* Runs it in a group of its own, so that Ctrl-C reaches the launcher alone.  It is asked to end
 * when the launcher is gone, however that ended. */
hp_status launch_start(const launch_command *c, const launch_output *o, pid_t *out);

/* HP_ERR_INPUT when the file of machines cannot be read or names none. */
hp_status launch_check_hosts(const launch_options *o);
/* Where to listen: the address of this machine, in numbers, that leads to those of the job. */
hp_status launch_find_address(const launch_options *o, char out[64]);

/* --- processes of this machine ---------------------------------------------------------------- */

/* Gives the job a mark in the environment, by which its processes are known. */
hp_status launch_mark(void);
/* Is the process one of the job, be it a starter or one that this program runs in? */
bool launch_has_mark(pid_t pid);
/* Is the process one that runs this program for this job? */
bool launch_owns(pid_t pid);
/* Ends at once all such processes of this machine but this one, and waits until they are gone, for
 * so many seconds at most. */
void launch_sweep(double seconds);

/* Ends starter and processes of a try, on this machine, if the launcher goes before
 * `launch_keep_end`. */
typedef struct {
  pid_t pid; /* 0: none */
  int pipe;
} launch_keeper;
hp_status launch_keep(pid_t starter, launch_keeper *out);
void launch_keep_end(launch_keeper *k);

/* --- watching --------------------------------------------------------------------------------- */

typedef struct {
  heartbeat_port port; /* its listener is -1: nobody is watched */
  double patience_s;
  char self[64], address[64]; /* this machine's name; where it listens */
  double began_s, listened_s; /* this try; when it listened last */
  int64_t saved;              /* step of the newest checkpoint that was committed; -1 */
} watchdog;

/* Opens the port at which the processes are heard. */
hp_status watchdog_open(const launch_options *o, watchdog *out);
void watchdog_close(watchdog *w);
/* A try begins: forgets the processes of the last, and tells those to come where to connect, in the
 * environment. */
hp_status watchdog_begin(watchdog *w);
/* Hears what there is to hear, for so long at most. */
void watchdog_listen(watchdog *w, int milliseconds);
/* The process that went first without a word; NULL: none. */
const heartbeat_peer *watchdog_find_lost(const watchdog *w);
/* What holds up the job, in words; false: nothing. */
bool watchdog_find(const watchdog *w, str *why);
/* Have all processes said that they end?  code: the exit code of the job. */
bool watchdog_all_ended(const watchdog *w, int *code);
/* A process that failed without the others, which could not learn of it: before it met them, or by
 * bad input that ended it at once.  Not after one of them died: that may be its cause.  NULL: none.
 */
const heartbeat_peer *watchdog_find_refused(const watchdog *w);
/* Was any process heard? */
bool watchdog_any_known(const watchdog *w);
/* Gives a signal to all processes; false: there is none to give it to. */
bool watchdog_signal(watchdog *w, int number);
/* Ends at once those that still live, here and on other machines. */
void watchdog_kill(watchdog *w);
/* A process that is still connected; NULL: none. */
const heartbeat_peer *watchdog_find_living(const watchdog *w);
/* "process 1 (node7, pid 4711)" */
void peer_print(const heartbeat_peer *x, str *out);

/* --- between two tries ------------------------------------------------------------------------ */

/* Seconds to pause after so many tries in a row that brought no newer checkpoint: none after 0 of
 * them, `first` after one, then each time twice as long, 30 at most. */
double launch_pause_s(double first, int64_t failed);
/* Pauses, unless the job is asked to end; false: it is. */
bool launch_pause(double seconds, bool (*is_asked)(void));

/* --- one try ---------------------------------------------------------------------------------- */

typedef struct {
  bool died;        /* a process did, or hangs: why says which */
  bool told_to_end; /* by a signal to the launcher */
  int code;         /* exit code of the job */
  str why;          /* the caller frees it */
} launch_result;
/* Starts the job and waits for its end, and that of its processes. */
hp_status launch_try(const launch_options *o, watchdog *w, launch_result *out);
/* Has a signal asked the job to end that no try has handled yet? */
bool launch_is_asked(void);

#endif
