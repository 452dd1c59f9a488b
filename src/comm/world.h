/* The processes of a job, as mpirun, srun or `hyper launch` has started them: one world a process.
 *
 * A process that was started alone is a world of one.  All of them do the same; what one cannot go
 * on with, the others learn while they wait for it, and at the end they agree on one exit code and
 * one message, which process 0 tells. */
#ifndef COMM_WORLD_H
#define COMM_WORLD_H

#include "comm/comm.h"

typedef struct {
  int rank, size;
  int here, place;   /* processes on this machine, and the place of this one among them */
  char library[128]; /* that carries the messages; "" in a world of one */
  char host[64];
} world_facts;

/* Joins the others; HP_ERR_COMM or HP_ERR_UNSUPPORTED when the environment says that there are some
 * and they cannot be reached.  Later calls do nothing but return the same. */
hp_status world_begin(void);
const world_facts *world_get(void);
/* Which of them this is, as far as its environment says so, before it has joined them; -1: it does
 * not say. */
int world_told_rank(void);

/* What each process gives, `bytes` of it, to all: in the order of their ranks. */
hp_status world_gather(const void *mine, size_t bytes, void *all);
/* The largest of what all processes give. */
hp_status world_max(int64_t mine, int64_t *max);
/* Do all processes say true?  How they agree where each might see another thing. */
hp_status world_agree(bool mine, bool *all);
/* Bytes of process 0 to all others, into `data`. */
hp_status world_broadcast(void *data, size_t bytes);

/* This process cannot go on: tells those who wait for it. */
void world_fail(void);
/* The rank that this process waits for right now, -1: for none. */
int world_waits_for(void);

/* Why this process will end with another code than 0; the first call counts. */
void world_tell(hp_status st, const char *message);
/* What was told; "": nothing. */
const char *world_message(void);
/* The kind of that failure; HP_OK: none was told. */
hp_status world_reason(void);
/* Waits for the others and returns the exit code of all.  code: that of this process.  *told: the
 * message that it is to print; NULL: none. */
int world_end(int code, const char **told);
/* The last call of a process of a job, after it has printed what it had to: when one has left with
 * another code than 0, the starter may end the others. */
void world_leave(void);

/* Is the plugin there with which the processes of a job join?  HP_ERR_UNSUPPORTED, with where it
 * was looked for and how to get it, when not.  Nothing is loaded but where the system must search.
 */
hp_status world_check_plugin(void);

/* One device a process, in the order of their ranks. */
hp_status comm_world_open(comm **out);

#endif
