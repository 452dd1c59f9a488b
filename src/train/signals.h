/* SIGTERM, SIGUSR1, Ctrl-C and, unless it is ignored, SIGHUP.  Before the first step is done
 * there is nothing to save, and they end a run at once; afterwards they make it write a
 * checkpoint and end.  An evaluation without training, or after it, they end after a batch.  A
 * second one of the same kind ends it at once, except SIGHUP. */
#ifndef TRAIN_SIGNALS_H
#define TRAIN_SIGNALS_H

/* The last action of a process that a signal ends; it may only do what a signal handler may. */
void signals_leave_by(void (*leave)(void *ctx), void *ctx);
void signals_leave(void); /* runs it; nothing if none is set */
/* From now on signals end the process, after a message and signals_leave. */
void signals_end(void);
/* From now on signals are recorded. */
void signals_note(void);
/* From now on signals have their default effect, and there is no last action. */
void signals_release(void);
int signals_taken(void); /* the recorded signal; 0: none */
const char *signals_name(int number);

#endif
