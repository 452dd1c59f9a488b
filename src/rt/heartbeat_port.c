#include "rt/heartbeat_port.h"

#include "base/log.h"
#include "base/random.h"
#include "base/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- opening ---------------------------------------------------------------------------------- */

hp_status heartbeat_port_open(const char *address, int64_t processes, heartbeat_port *out) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  heartbeat_port p = {.listener = -1, .processes = processes};
  if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
    HP_FAIL(HP_ERR_ARG, "%s: expected an IPv4 address such as 10.0.0.1", address);
  HP_TRY(random_bytes(&p.key, sizeof p.key));
  p.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (p.listener < 0 || bind(p.listener, (struct sockaddr *)&at, sizeof at) ||
      listen(p.listener, SOMAXCONN)) {
    int why = errno;
    heartbeat_port_close(&p);
    HP_FAIL(HP_ERR_IO, "cannot listen at %s for the processes of the job: %s", address,
            strerror(why));
  }
  *out = p;
  return HP_OK;
}

static void close_all(heartbeat_port *p) {
  for (size_t i = 0; i < p->peers.len; i++)
    if (p->peers.at[i].fd >= 0) close(p->peers.at[i].fd);
  p->peers.len = 0;
}

void heartbeat_port_close(heartbeat_port *p) {
  close_all(p);
  vec_free(&p->peers);
  if (p->listener >= 0) close(p->listener);
  p->listener = -1;
}

hp_status heartbeat_port_reset(heartbeat_port *p) {
  close_all(p);
  p->strangers = 0;
  p->full_until_s = 0;
  return random_bytes(&p->key, sizeof p->key);
}

int heartbeat_port_number(const heartbeat_port *p) {
  struct sockaddr_in at;
  socklen_t n = sizeof at;
  return getsockname(p->listener, (struct sockaddr *)&at, &n) ? -1 : ntohs(at.sin_port);
}

/* --- coming and going ------------------------------------------------------------------------- */

/* Reuses the entry of a connection that was never one of a process. */
static void drop(heartbeat_port *p, size_t i, const char *why) {
  enum { TOLD = 3 };
  struct sockaddr_in at = {0};
  socklen_t n = sizeof at;
  heartbeat_peer *x = &p->peers.at[i];
  char text[INET_ADDRSTRLEN] = "?";
  if (!getpeername(x->fd, (struct sockaddr *)&at, &n))
    inet_ntop(AF_INET, &at.sin_addr, text, sizeof text);
  close(x->fd);
  *x = p->peers.at[--p->peers.len];
  if (++p->strangers <= TOLD)
    log_warn("a connection from %s to the supervisor was dropped: %s%s", text, why,
             p->strangers == TOLD ? "; no more of these are reported" : "");
}

static void lose(heartbeat_port *p, size_t i) {
  heartbeat_peer *x = &p->peers.at[i];
  if (!x->known) {
    drop(p, i, x->broken ? "it is no process of this job" : "it ended before a heartbeat");
    return;
  }
  close(x->fd);
  x->fd = -1;
  if (!x->ended) x->lost_s = time_now_s();
}

static size_t find_oldest_stranger(const heartbeat_port *p, size_t *count) {
  size_t oldest = p->peers.len;
  *count = 0;
  for (size_t i = 0; i < p->peers.len; i++) {
    if (p->peers.at[i].known) continue;
    ++*count;
    if (oldest == p->peers.len || p->peers.at[i].since_s < p->peers.at[oldest].since_s) oldest = i;
  }
  return oldest;
}

/* The latest connection is accepted, so that unauthenticated ones cannot keep processes out. */
static bool make_place(heartbeat_port *p, bool now) {
  size_t count, oldest = find_oldest_stranger(p, &count);
  bool drops = count && (now || count >= (size_t)p->processes + HEARTBEAT_STRANGERS);
  if (drops) drop(p, oldest, "too many came at once");
  return drops;
}

/* Connections in the queue would wake poll() at once, again and again. */
static void pause_accepting(heartbeat_port *p, int why) {
  p->full_until_s = time_now_s() + HEARTBEAT_FULL_S;
  if (!p->full_told)
    log_warn("the supervisor cannot accept more connections: %s; new ones wait; "
             "allow it more files (ulimit -n, fs.file-max)",
             strerror(why));
  p->full_told = true;
}

static void drop_silent_strangers(heartbeat_port *p) {
  double now_s = time_now_s();
  for (size_t i = p->peers.len; i-- > 0;)
    if (!p->peers.at[i].known && now_s - p->peers.at[i].since_s > HEARTBEAT_FIRST_S)
      drop(p, i, "no heartbeat with the key of this job came in time");
}

static bool challenge(heartbeat_peer *x) {
  return !wire_hello_make(&x->challenge) &&
         send(x->fd, &x->challenge, sizeof x->challenge, MSG_NOSIGNAL) == sizeof x->challenge;
}

static void accept_all(heartbeat_port *p) {
  for (int64_t i = 0; i < p->processes + HEARTBEAT_STRANGERS; i++) {
    heartbeat_peer x = {.since_s = time_now_s()};
    x.fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int why = x.fd < 0 ? errno : 0;
    bool full = why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM;
    if (full && !make_place(p, true)) pause_accepting(p, why);
    if (x.fd < 0) return;
    (void)make_place(p, false);
    if (challenge(&x) && vec_push(&p->peers, x)) continue;
    err_clear();
    close(x.fd);
  }
}

/* --- heartbeats ------------------------------------------------------------------------------- */

/* A complete heartbeat has arrived; false: no process sends this. */
static bool take_heartbeat(const heartbeat_port *p, heartbeat_peer *x) {
  heartbeat *h = &x->next;
  if (!wire_check_heartbeat(&x->session, h) || !heartbeat_clean(h, p->processes)) return false;
  if (x->known && (h->pid != x->last.pid || (x->last.rank >= 0 && h->rank != x->last.rank)))
    return false;
  x->known = true;
  x->ended = h->kind == HEARTBEAT_END;
  x->heard_s = time_now_s();
  x->last = *h;
  return true;
}

/* The answer to the challenge comes first, then heartbeats. */
static bool take_bytes(heartbeat_port *p, heartbeat_peer *x, size_t n) {
  x->got += n;
  if (x->got == sizeof x->answer) {
    if (!wire_hello_is_ours(&x->answer)) return false;
    wire_session_begin(&x->session, &p->key, &x->challenge, &x->answer);
  }
  if (x->got < sizeof x->answer + sizeof x->next) return true;
  x->got = sizeof x->answer;
  return take_heartbeat(p, x) && !x->ended;
}

static void read_peer(heartbeat_port *p, size_t i) {
  heartbeat_peer *x = &p->peers.at[i];
  for (;;) {
    bool first = x->got < sizeof x->answer;
    size_t at = first ? x->got : x->got - sizeof x->answer;
    char *to = first ? (char *)&x->answer : (char *)&x->next;
    ssize_t n = recv(x->fd, to + at, (first ? sizeof x->answer : sizeof x->next) - at, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) break;
    if (take_bytes(p, x, (size_t)n)) continue;
    x->broken = !x->ended;
    break;
  }
  lose(p, i);
}

void heartbeat_port_listen(heartbeat_port *p, int milliseconds) {
  VEC(struct pollfd) all = {0};
  size_t n = p->peers.len;
  int listener = time_now_s() < p->full_until_s ? -1 : p->listener; /* poll() ignores -1 */
  bool room = vec_push(&all, ((struct pollfd){.fd = listener, .events = POLLIN}));
  for (size_t i = 0; room && i < n; i++)
    room = vec_push(&all, ((struct pollfd){.fd = p->peers.at[i].fd, .events = POLLIN}));
  if (!room) err_clear();
  if (room && poll(all.at, (nfds_t)n + 1, milliseconds) > 0) {
    for (size_t i = n; i-- > 0;) /* the last takes the place of a dropped one */
      if (all.at[i + 1].revents) read_peer(p, i);
    if (all.at[0].revents & POLLIN) accept_all(p);
  }
  vec_free(&all);
  drop_silent_strangers(p);
}

bool heartbeat_port_order(heartbeat_peer *x, int number) {
  heartbeat_order o = {.number = number};
  if (!x->known || x->ended || x->fd < 0) return false;
  wire_seal_order(&x->session, &o);
  return send(x->fd, &o, sizeof o, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof o;
}
