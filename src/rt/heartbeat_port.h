/* The supervisor's end of the heartbeats: a port to which the processes of a job connect.
 *
 * Who connects is challenged, and has HEARTBEAT_FIRST_S seconds for a first heartbeat with the key
 * of the job.  So many may be without it at a time as the job has processes, and some; the oldest
 * goes when another comes.  Where the launcher has no file left for a connection and no stranger
 * to drop, those that come wait.  Of what a stranger sends nothing is kept, and none of it is
 * believed.
 */
#ifndef RT_HEARTBEAT_PORT_H
#define RT_HEARTBEAT_PORT_H

#include "base/vec.h"
#include "rt/heartbeat_wire.h"

enum { HEARTBEAT_FIRST_S = 10, HEARTBEAT_STRANGERS = 64 };
/* Where no connection can be taken, for lack of files, the next is looked for after so long. */
#define HEARTBEAT_FULL_S 0.5

/* A connection to a process, or to somebody who has not shown yet that it is one. */
typedef struct {
  int fd;                          /* -1: closed, of a process */
  bool known;                      /* it has the key: `last` is what it said last */
  bool ended;                      /* of itself, with last.code */
  bool broken;                     /* it said what no process says */
  double since_s, heard_s, lost_s; /* connected; last heartbeat; closed without a last word, or 0 */
  wire_session session;
  wire_hello challenge, answer;
  heartbeat last, next; /* answer and next: of which `got` bytes have come */
  size_t got;
} heartbeat_peer;

typedef struct {
  int listener; /* -1: none */
  wire_key key;
  int64_t processes;
  int64_t strangers;   /* connections that were dropped without a heartbeat */
  double full_until_s; /* no file was left for a connection: none is taken before that; or 0 */
  bool full_told;
  VEC(heartbeat_peer) peers;
} heartbeat_port;

/* Listens at a port that the system chooses.  address: of this machine, in numbers ("10.0.0.1"). */
hp_status heartbeat_port_open(const char *address, int64_t processes, heartbeat_port *out);
void heartbeat_port_close(heartbeat_port *p);
/* Closes all connections and makes a new key: a process of before cannot come back. */
hp_status heartbeat_port_reset(heartbeat_port *p);
int heartbeat_port_number(const heartbeat_port *p);
/* Hears what there is to hear, for so long at most. */
void heartbeat_port_listen(heartbeat_port *p, int milliseconds);
/* Has a process take a signal; false: it is not connected. */
bool heartbeat_port_order(heartbeat_peer *x, int number);

#endif
