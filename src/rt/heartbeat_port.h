/* The supervisor's end of the heartbeats: a port to which the processes of a job connect.
 *
 * A new connection is challenged, and has HEARTBEAT_FIRST_S seconds for a first heartbeat with
 * the key of the job.  The number of connections without one is limited to the job's processes
 * and a few more; a new one replaces the oldest.  If the launcher has no file descriptor left
 * and no such connection to drop, new connections wait.  Data without the key is neither kept
 * nor used. */
#ifndef RT_HEARTBEAT_PORT_H
#define RT_HEARTBEAT_PORT_H

#include "base/vec.h"
#include "rt/heartbeat_wire.h"

enum { HEARTBEAT_FIRST_S = 10, HEARTBEAT_STRANGERS = 64 };
/* If no connection can be accepted, for lack of file descriptors, the time until the next try. */
#define HEARTBEAT_FULL_S 0.5

/* A connection to a process, or one that has not yet proved the key. */
typedef struct {
  int fd;      /* -1: closed, of a process */
  bool known;  /* it has the key: `last` is its last heartbeat */
  bool ended;  /* by itself, with last.code */
  bool broken; /* it sent something that no process sends */
  double since_s, heard_s,
      lost_s; /* connected; last heartbeat; closed without a last heartbeat, or 0 */
  wire_session session;
  wire_hello challenge, answer;
  heartbeat last, next; /* answer and next: of which `got` bytes have come */
  size_t got;
} heartbeat_peer;

typedef struct {
  int listener; /* -1: none */
  wire_key key;
  int64_t processes;
  int64_t strangers; /* connections dropped without a heartbeat */
  double
      full_until_s; /* no file descriptor was left: no connection is accepted before that; or 0 */
  bool full_told;
  VEC(heartbeat_peer) peers;
} heartbeat_port;

/* Listens at a port that the system chooses.  address: a numeric one of this machine
 * ("10.0.0.1"). */
hp_status heartbeat_port_open(const char *address, int64_t processes, heartbeat_port *out);
void heartbeat_port_close(heartbeat_port *p);
/* Closes all connections and makes a new key, so that earlier processes cannot reconnect. */
hp_status heartbeat_port_reset(heartbeat_port *p);
int heartbeat_port_number(const heartbeat_port *p);
/* Reads all that has arrived, waiting at most this long. */
void heartbeat_port_listen(heartbeat_port *p, int milliseconds);
/* Makes a process take a signal; false: it is not connected. */
bool heartbeat_port_order(heartbeat_peer *x, int number);

#endif
