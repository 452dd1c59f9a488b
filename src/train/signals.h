/* SIGTERM, SIGUSR1, Ctrl-C and, unless it is ignored, SIGHUP.  Before the first step is done there
 * is nothing to save, and they end a run at once; afterwards they ask it to write a checkpoint and
 * end.  A second one of the same kind ends it at once, but for SIGHUP. */
#ifndef TRAIN_SIGNALS_H
#define TRAIN_SIGNALS_H

/* What a process that a signal ends is to do last: it may do only what a signal handler may. */
void signals_leave_by(void (*leave)(void *ctx), void *ctx);
void signals_leave(void); /* does it; nothing where there is nothing to do */
/* From now on they end the process, after a message and signals_leave. */
void signals_end(void);
/* From now on they are noted. */
void signals_note(void);
/* From now on they have the system's meaning again, and there is nothing to do last. */
void signals_release(void);
int signals_taken(void); /* the one that came; 0: none */
const char *signals_name(int number);

#endif
