/* SIGTERM, SIGUSR1 and Ctrl-C.  Before the first step is done there is nothing to save, and they
 * end a run at once; afterwards they ask it to write a checkpoint and end, and a second one ends it
 * at once. */
#ifndef TRAIN_SIGNALS_H
#define TRAIN_SIGNALS_H

/* From now on they end the process, after a message and leave(ctx), which may do only what a signal
 * handler may. */
void signals_end(void (*leave)(void *ctx), void *ctx);
/* From now on they are noted. */
void signals_note(void);
/* From now on they have the system's meaning again. */
void signals_release(void);
int signals_taken(void); /* the one that came; 0: none */
const char *signals_name(int number);

#endif
