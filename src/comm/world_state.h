/* The state of the world, shared by the files world*.c. */
#ifndef COMM_WORLD_STATE_H
#define COMM_WORLD_STATE_H

#include "comm/transport.h"
#include "comm/world.h"

#include <pthread.h>

/* Tags of messages: of world_gather; of notes; of probes; of rendezvous, by communicator; of
 * transfers, by their own tags.  Every library has tags up to 32767. */
enum { TAG_DATA = 1, TAG_NOTE, TAG_PROBE, TAG_RENDEZVOUS = 16, RENDEZVOUS_TAGS = 8192 };
enum { TAG_TRANSFER = TAG_RENDEZVOUS + RENDEZVOUS_TAGS };
_Static_assert(TAG_TRANSFER + COMM_TAG_MAX <= 32767, "the tags of messages fit");

/* Notes: messages about the processes themselves, besides the data of collectives. */
typedef enum { NOTE_FAILED, NOTE_ENDED, NOTE_VERDICT, NOTE_KINDS } note_kind;
typedef struct {
  int32_t kind, rank, code, status;
  bool here;                 /* it has arrived */
  char host[64], text[1536]; /* small enough to be sent at once by every library */
} note;

/* Where a process waits until others have come: at a rendezvous of communicator `id`, at the
 * receive of a transfer, or at a call of all processes, of which it is the `sequence`-th. */
typedef enum { WAIT_RENDEZVOUS, WAIT_TRANSFER, WAIT_ALL } wait_kind;
typedef struct {
  wait_kind kind;
  uint64_t id, sequence;
  comm_call call;
} wait_place;

/* A message along the waits, world_probe.c: `origin` waits, for the number-th time, for `first`,
 * which is at `what` (-1: nobody has passed it on), and so on to `from`, which waits at `at`. */
typedef enum { PROBE_WAITS, PROBE_ENDED } probe_kind;
typedef struct {
  int32_t kind, origin, first, from;
  uint64_t number, round;
  wait_place at;
  char what[COMM_WHAT];
} probe;
typedef struct {
  probe p;
  uintptr_t request;
  bool busy, done;
} probe_slot;
typedef struct {
  uint64_t number, round;
} probe_mark;

/* A communicator of this process. */
typedef struct world_set {
  communicator c;
  struct world_set *next;
  int64_t *rank;
} world_set;

/* Why a wait cannot end: others wait for it in turn, are at another instruction, or have ended. */
typedef enum { WAITS_WELL, WAITS_IN_CIRCLE, WAITS_ELSEWHERE, WAITS_FOR_ENDED } wait_failure;
/* The wait of this process; one of several threads of it, if they wait at once. */
typedef struct {
  const wait_place *at; /* NULL: it does not wait */
  const comm_request *request;
  int64_t n;
  double began_s, waited_s, pause_s; /* waited_s: until the last look */
  uint64_t number, round, returned;  /* looks so far; that whose probe has returned, 0: none */
  wait_failure failure;
  int other;
  char other_what[COMM_WHAT];
} process_wait;
enum { GONE_TOLD = 1, GONE_SEEN }; /* of a process that has ended: its word has come; at a look */

enum { GATHER_SMALL = 64, GATHER_MESSAGES = 2 };

typedef struct {
  pthread_once_t once;
  err_report begun; /* why the other processes could not be joined */
  bool talks;       /* notes go to the others and come from them; also if joining failed later */
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
  uint64_t calls;        /* of all processes, so far */
  process_wait waiting;
  probe probe_in;
  uintptr_t probe_request;
  probe_slot *probe_out;  /* one per process, */
  probe_mark *probe_seen; /* the last that was passed on, by its origin, */
  uint8_t *gone;          /* and which processes have ended */
  bool ending;
  world_set *sets;               /* a list of all communicators that are open */
  note verdict;                  /* how the job has ended, as process 0 decided */
  char message[ERR_MESSAGE_MAX]; /* why this process failed; its note may be shorter */
  bool over;                     /* the library has been left */
  _Atomic uint32_t memory_users; /* of facts.memory here, a bit each */
  _Atomic int failed, waits_for; /* ranks; -1: none */
} world_state;
extern world_state world;

/* Starts to send or receive a message of at most TRANSPORT_BYTES_MAX bytes.  One world_wait may
 * wait for several. */
hp_status world_post(bool sends, void *data, int64_t bytes, int64_t peer, int tag, comm_request *r);
/* HP_ERR_COMM when a process has failed.  at: what its peers have to come to; then HP_ERR_ARG when
 * they never do.  NULL: they have come. */
hp_status world_wait(const wait_place *at, comm_request *r, int64_t n);
/* Waits until fewer than *left are not done, and sets it to how many those are; also when it fails.
 */
hp_status world_wait_some(const wait_place *at, comm_request *r, int64_t n, int64_t *left);

/* Probes, all with the lock.  Waits for the next one to come; takes those that have. */
hp_status world_listen_probes(void);
hp_status world_read_probes(void);
/* A wait begins: false if another thread of this process waits, then it is not looked at. */
bool world_wait_begin(const wait_place *at, const comm_request *r, int64_t n);
void world_wait_end(void);
/* From time to time during the wait; fails when it cannot end. */
hp_status world_wait_look(void);
/* Before the library is left.  tell: the others that this process comes to nothing any more. */
void world_end_probes(bool tell);

/* Where the file of memory of a machine is, of which its first process tells the others. */
typedef struct {
  uint64_t mark; /* the first bytes of the file, by which it is known; 0: this process makes none */
  int64_t pid, fd;
} memory_place;
/* world.facts.memory: the first process of a machine makes it, the others open one of all places;
 * false: not this process.  If one has none, all drop it. */
void world_memory_make(memory_place *mine);
bool world_memory_open(const memory_place *all);
void world_memory_drop(void);

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
