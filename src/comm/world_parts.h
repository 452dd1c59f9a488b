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

/* Notes: messages about the processes themselves, besides the data of collectives. */
typedef enum { NOTE_FAILED, NOTE_ENDED, NOTE_VERDICT, NOTE_KINDS } note_kind;
typedef struct {
  int32_t kind, rank, code, status;
  bool here;                 /* it has arrived */
  char host[64], text[1536]; /* small enough to be sent at once by every library */
} note;

enum { GATHER_SMALL = 64, GATHER_MESSAGES = 2 };

typedef struct {
  pthread_once_t once;
  err_report begun; /* why the other processes could not be reached */
  world_facts facts;
  const transport *t;
  pthread_mutex_t lock; /* guards calls of the transport, and the fields below */
  note in;              /* buffer of the next note to arrive */
  uintptr_t in_request;
  note out[NOTE_KINDS]; /* the notes that this process sends, each to several processes */
  uintptr_t *out_request[NOTE_KINDS];
  note *ended; /* process 0: how each process has ended */
  int n_ended;
  char *gathered;        /* buffer of a small world_gather: GATHER_SMALL bytes per process */
  int64_t *numbers;      /* buffer of world_max: one per process */
  comm_request *request; /* of world_gather: two per process */
  note verdict;          /* how the job has ended, as process 0 decided */
  char message[ERR_MESSAGE_MAX]; /* why this process failed; its note may be shorter */
  bool over;                     /* the library has been left */
  _Atomic int failed, waits_for; /* ranks; -1: none */
} world_state;
extern world_state world;

/* Starts to send or receive a message of at most TRANSPORT_BYTES_MAX bytes.  One world_wait may
 * wait for several. */
hp_status world_post(bool sends, void *data, int64_t bytes, int64_t peer, int tag, comm_request *r);
/* HP_ERR_COMM when a process has failed. */
hp_status world_wait(comm_request *r, int64_t n);
/* Waits until fewer than *left are not done, and sets it to how many those are; also when it fails.
 */
hp_status world_wait_some(comm_request *r, int64_t n, int64_t *left);

/* Point-to-point transfers: comm_iface.post and wait. */
hp_status world_post_transfer(comm *c, comm_transfer *t);
hp_status world_wait_transfer(comm *c, comm_transfer *t);

/* Posts the receive of the next note. */
hp_status world_listen(void);
/* Processes the notes that have arrived; the caller holds the lock. */
hp_status world_read_notes(void);
/* Sends world.out[kind] to processes first to last except this one; the caller holds the lock. */
void world_send_note(note_kind kind, int first, int last);
/* Pauses a polling loop after its turn-th check: the first times it only yields the core, later it
 * sleeps.  There are often more processes than cores, and waits are long. */
void world_pause(int64_t turn);
/* The failure for an error of the message library. */
hp_status world_refuse(const char *why);
/* Loads the plugin, hyper_mpi.so. */
hp_status world_plugin(const transport **out);

#endif
