/* The state of the world, shared by the files world*.c. */
#ifndef COMM_WORLD_PARTS_H
#define COMM_WORLD_PARTS_H

#include "comm/transport.h"
#include "comm/world.h"

#include <pthread.h>

/* Tags of messages: of world_gather; of notes; of rendezvous, by communicator; of transfers, by
 * their own tags.  Every library has tags up to 32767. */
enum { TAG_DATA = 1, TAG_NOTE, TAG_RENDEZVOUS = 16, RENDEZVOUS_TAGS = 8192 };
enum { TAG_TRANSFER = TAG_RENDEZVOUS + RENDEZVOUS_TAGS };
_Static_assert(TAG_TRANSFER + COMM_TAG_MAX <= 32767, "the tags of messages fit");

/* What the processes tell each other beside the data of collectives. */
typedef enum { NOTE_FAILED, NOTE_ENDED, NOTE_VERDICT, NOTE_KINDS } note_kind;
typedef struct {
  int32_t kind, rank, code, status;
  bool here;                 /* it has come */
  char host[64], text[1536]; /* small enough to be sent at once by every library */
} note;

enum { GATHER_SMALL = 64, GATHER_MESSAGES = 2 };

typedef struct {
  pthread_once_t once;
  err_report begun; /* why the others could not be joined */
  world_facts facts;
  const transport *t;
  pthread_mutex_t lock; /* around calls of the transport, and what follows */
  note in;              /* the next note to come */
  uintptr_t in_request;
  note out[NOTE_KINDS]; /* those that this process sends, each to some of the others */
  uintptr_t *out_request[NOTE_KINDS];
  note *ended; /* how the processes have ended, as process 0 knows it */
  int n_ended;
  char *gathered;        /* of world_gather, where little is said: GATHER_SMALL bytes a process */
  int64_t *numbers;      /* of world_max: one a process */
  comm_request *request; /* of world_gather: two a process */
  note verdict;
  char message[ERR_MESSAGE_MAX]; /* why this process failed; its note may have less of it */
  bool over;
  _Atomic int failed, waits_for; /* ranks, -1: none */
} world_state;
extern world_state world;

/* A message of at most TRANSPORT_BYTES_MAX bytes; one wait may be for several. */
hp_status world_post(bool sends, void *data, int64_t bytes, int64_t peer, int tag, comm_request *r);
/* HP_ERR_COMM when a process has failed. */
hp_status world_wait(comm_request *r, int64_t n);

/* Point-to-point transfers, as comm_iface has them. */
hp_status world_post_transfer(comm *c, comm_transfer *t);
hp_status world_wait_transfer(comm *c, comm_transfer *t);

/* Waits for the next note to come. */
hp_status world_listen(void);
/* Takes those that have come, with the lock held. */
hp_status world_read_notes(void);
/* Sends world.out[kind] to these processes, itself left out, with the lock held. */
void world_send_note(note_kind kind, int first, int last);
/* Between two looks: a short while the core is only offered to others, then it is left to them.
 * Processes are often more than cores, and what they wait for is long. */
void world_pause(int64_t turn);
/* A failure of the library. */
hp_status world_refuse(const char *why);
/* hyper_mpi.so. */
hp_status world_plugin(const transport **out);

#endif
