/* What a process tells the supervisor of its job (`hyper launch`), several times a second: that it
 * lives, and where it is in its programs. */
#ifndef RT_HEARTBEAT_H
#define RT_HEARTBEAT_H

#include "base/status.h"

/* HOST:PORT:KEY:MILLISECONDS between two heartbeats */
#define HEARTBEAT_VARIABLE  "HYPER_SUPERVISOR"
/* "1": the job was begun again, after an earlier try had come to its first program */
#define HEARTBEAT_RESTARTED "HYPER_RESTARTED"
/* An identity of the job, in the environment of each of its processes. */
#define HEARTBEAT_JOB       "HYPER_JOB"

typedef enum { HEARTBEAT_ALIVE, HEARTBEAT_END } heartbeat_kind;
/* As it goes over the wire, between processes of one build.  Back come single bytes: a signal that
 * the process is to take as if it were its own. */
typedef struct {
  uint64_t key;
  int32_t kind, rank, pid, code; /* code: of HEARTBEAT_END */
  uint64_t runs;                 /* programs begun so far */
  double still_s;                /* for so long nothing has changed of what follows */
  int32_t instruction;           /* -1: between programs */
  int32_t waits_for;             /* the process that it waits for, -1: for none */
  char host[64], stream[16], text[600];
} heartbeat;

/* Begins when the environment names a supervisor; HP_ERR_COMM when it cannot be reached. */
hp_status heartbeat_begin(void);
/* The last heartbeat: the process ends of itself, with this exit code. */
void heartbeat_end(int code);

#endif
