/* The protocol between a process and the supervisor of its job (`hyper launch`).
 *
 * Both have the key of the job, which is never sent.  The supervisor sends a challenge, the
 * process answers with a nonce; the session key is the HMAC of both under the key of the job.
 * Every later message has a counter and an HMAC under the session key: without the key of the
 * job nobody can make a message, or replay one of this or another connection.  Structs are sent
 * as they are in memory: both ends are processes of one build. */
#ifndef RT_HEARTBEAT_WIRE_H
#define RT_HEARTBEAT_WIRE_H

#include "base/sha256.h"
#include "base/status.h"

enum { WIRE_NONCE = 32 };

typedef struct {
  unsigned char at[SHA256_BYTES];
} wire_key;
typedef struct {
  unsigned char mac[SHA256_BYTES];
} wire_mac;

/* The first words of both sides. */
typedef struct {
  char version[8]; /* WIRE_VERSION */
  unsigned char nonce[WIRE_NONCE];
} wire_hello;
#define WIRE_VERSION "HYPERHB3"

typedef enum { HEARTBEAT_ALIVE, HEARTBEAT_END } heartbeat_kind;
typedef struct {
  uint64_t counter;
  int32_t kind, rank;      /* rank -1: not known yet */
  int32_t pid, code;       /* code: of HEARTBEAT_END */
  uint64_t runs;           /* programs begun so far */
  int64_t step, saved;     /* of base/milestone.h */
  double still_s;          /* the fields below have not changed for so long */
  int32_t instruction;     /* -1: between programs */
  int32_t waits_for;       /* the process that it waits for; -1: none */
  int32_t joined, syncing; /* it has joined the others of the job; waits for a disk */
  int32_t refused,
      unused; /* refused: of HEARTBEAT_END, for bad input found by this process alone */
  char host[64], stream[16],
      text[600]; /* text: the instruction, or the activity between programs */
  wire_mac mac;
} heartbeat;

/* From the supervisor: a signal that the process handles as if it had received it. */
typedef struct {
  uint64_t counter;
  int32_t number, unused;
  wire_mac mac;
} heartbeat_order;

typedef struct {
  wire_key key;
  uint64_t sent, received; /* counters of the last message in each direction */
} wire_session;

hp_status wire_hello_make(wire_hello *out);
bool wire_hello_is_ours(const wire_hello *h);
/* The session key from a supervisor's challenge and a process's answer. */
void wire_session_begin(wire_session *s, const wire_key *job, const wire_hello *challenge,
                        const wire_hello *answer);
/* Sets counter and MAC, or checks those of the next message. */
void wire_seal_heartbeat(wire_session *s, heartbeat *h);
bool wire_check_heartbeat(wire_session *s, const heartbeat *h);
void wire_seal_order(wire_session *s, heartbeat_order *o);
bool wire_check_order(wire_session *s, const heartbeat_order *o);

/* Are the fields of an authenticated heartbeat possible in a job of so many processes?  Escapes
 * its texts for terminals. */
bool heartbeat_clean(heartbeat *h, int64_t processes);

/* A key as 64 hexadecimal digits, and back; false: the text is not a key. */
void wire_key_print(const wire_key *k, char out[2 * SHA256_BYTES + 1]);
bool wire_key_parse(const char *text, wire_key *out);

#endif
