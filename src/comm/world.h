/* The processes of a job, started by mpirun, srun or `hyper launch`.
 *
 * A process that was started by itself is a world of size 1.  All processes run the same command.
 * When one fails, the others learn it where they wait for that process.  At the end they agree on
 * one exit code and one message, which process 0 prints. */
#ifndef COMM_WORLD_H
#define COMM_WORLD_H

#include "comm/comm.h"

typedef struct {
  int rank, size;
  int here, place;   /* processes on this machine, and the place of this one among them */
  char library[128]; /* the message library; "" in a world of size 1 */
  char host[64];
  /* A file of memory that the processes of this machine share; -1: there is none, or no other
   * process is here.  memory_error: the errno by which it could not be made; 0: another's. */
  int memory, memory_error;
} world_facts;

/* Connects to the other processes that the environment names.  HP_ERR_COMM or HP_ERR_UNSUPPORTED if
 * they cannot be reached.  Later calls only return the result of the first. */
hp_status world_begin(void);
const world_facts *world_get(void);
/* The rank of this process from its environment, before world_begin; -1: not set there. */
int world_told_rank(void);

/* All-gather: `bytes` bytes of each process, to all processes, in the order of their ranks. */
hp_status world_gather(const void *mine, size_t bytes, void *all);
/* All-reduce: the largest number of all processes. */
hp_status world_max(int64_t mine, int64_t *max);
/* All-reduce: *all is true if `mine` is true in every process.  For decisions that must be the same
 * everywhere, though each process may have seen something else. */
hp_status world_agree(bool mine, bool *all);
/* Broadcast: copies `data` of process 0 to all others. */
hp_status world_broadcast(void *data, size_t bytes);

/* The number of one more user of facts.memory in this process, the least that is free, so that
 * processes whose users come in one order give them the same; -1: `most`, at most 32, are in use.
 */
int world_memory_take(int most);
void world_memory_give(int number);

/* This process has failed: notifies those that wait for it. */
void world_fail(void);
/* The rank for which this process waits now; -1: none. */
int world_waits_for(void);

/* Records why this process will end with an exit code other than 0; the first call counts. */
void world_tell(hp_status st, const char *message);
/* The message of world_tell; "": none yet. */
const char *world_message(void);
/* The status of world_tell; HP_OK: none yet. */
hp_status world_reason(void);
/* Waits until all processes end and returns the exit code of the job.  code: of this process.
 * *told: the message that this process must print; NULL: none. */
int world_end(int code, const char **told);
/* The last call of a process of a job, after it has printed its message: mpirun or srun may kill
 * the other processes as soon as one has exited with a code other than 0. */
void world_leave(void);

/* Checks that the plugin for jobs of several processes exists.  HP_ERR_UNSUPPORTED says where it
 * was searched and how to get it.  It is loaded only if the system's loader has to search for it.
 */
hp_status world_check_plugin(void);

/* The comm of the world: one device per process, in the order of their ranks. */
hp_status comm_world_open(comm **out);

#endif
