/* The connection between a process and the supervisor of its job: who is believed, who is dropped,
 * and what ends with it. */
#include "rt/heartbeat.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/milestone.h"
#include "base/random.h"
#include "base/thread.h"
#include "rt/heartbeat_port.h"
#include "test.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, TURN_MS = 10 };

static heartbeat_port open_port(void) {
  heartbeat_port p;
  log_set_level(LOG_QUIET);
  CHECK_OK(heartbeat_port_open("127.0.0.1", PROCESSES, &p));
  return p;
}

/* --- a peer that a test moves by hand --------------------------------------------------------- */

static int dial(const heartbeat_port *p) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)heartbeat_port_number(p)),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&at, sizeof at));
  return fd;
}

static void listen_to(heartbeat_port *p) {
  for (int i = 0; i < 4; i++) heartbeat_port_listen(p, TURN_MS);
}

static int greet(heartbeat_port *p, const wire_key *key, wire_session *s) {
  wire_hello challenge, answer;
  int fd = dial(p);
  listen_to(p);
  CHECK_EQ(recv(fd, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
  CHECK(wire_hello_is_ours(&challenge));
  CHECK_OK(wire_hello_make(&answer));
  wire_session_begin(s, key, &challenge, &answer);
  CHECK_EQ(send(fd, &answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
  return fd;
}

static heartbeat sound(void) {
  return (heartbeat){.kind = HEARTBEAT_ALIVE,
                     .rank = 1,
                     .pid = getpid(),
                     .instruction = -1,
                     .waits_for = -1,
                     .step = -1,
                     .saved = -1,
                     .host = "here"};
}

static void tell(heartbeat_port *p, int fd, const heartbeat *h) {
  send(fd, h, sizeof *h, MSG_NOSIGNAL);
  listen_to(p);
}

static bool is_closed(int fd) {
  char byte;
  return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static size_t known(const heartbeat_port *p) {
  size_t n = 0;
  for (size_t i = 0; i < p->peers.len; i++) n += p->peers.at[i].known && p->peers.at[i].fd >= 0;
  return n;
}

static void a_process_gets_in(heartbeat_port *p) {
  wire_session s;
  heartbeat h = sound();
  size_t before = known(p);
  int fd = greet(p, &p->key, &s);
  for (int i = 0; i < 3; i++) {
    wire_seal_heartbeat(&s, &h);
    tell(p, fd, &h);
    CHECK_EQ(known(p), before + 1);
  }
}

TEST(a_heartbeat_with_the_key_of_the_job_is_believed) {
  heartbeat_port p = open_port();
  a_process_gets_in(&p);
  CHECK_EQ(p.peers.len, 1);
  CHECK_EQ(p.peers.at[0].last.rank, 1);
  CHECK_EQ(p.strangers, 0);
  heartbeat_port_close(&p);
}

/* One field of a heartbeat is changed, before or after it is sealed; it must not be believed. */
static void must_not_be_believed(void (*change)(heartbeat *), bool sealed_before, bool wrong_key) {
  heartbeat_port p = open_port();
  wire_key key = p.key;
  wire_session s;
  heartbeat h = sound();
  if (wrong_key) key.at[31] ^= 1;
  int fd = greet(&p, &key, &s);
  if (change && !sealed_before) change(&h);
  wire_seal_heartbeat(&s, &h);
  if (change && sealed_before) change(&h);
  tell(&p, fd, &h);
  CHECK_EQ(known(&p), 0);
  CHECK_EQ(p.peers.len, 0);
  CHECK_EQ(p.strangers, 1);
  CHECK(is_closed(fd));
  heartbeat_port_close(&p);
}

static void pid_0(heartbeat *h) { h->pid = 0; }
static void pid_all(heartbeat *h) { h->pid = -1; }
static void pid_group(heartbeat *h) { h->pid = -4711; }
static void rank_of_none(heartbeat *h) { h->rank = PROCESSES; }
static void rank_below(heartbeat *h) { h->rank = -2; }
static void waits_for_none(heartbeat *h) { h->waits_for = PROCESSES; }
static void no_number(heartbeat *h) { memset(&h->still_s, 0xff, sizeof h->still_s); }
static void no_kind(heartbeat *h) { h->kind = 7; }
static void other_text(heartbeat *h) { h->text[599] ^= 1; }
static void other_mac(heartbeat *h) { h->mac.mac[31] ^= 1; }
static void other_counter(heartbeat *h) { h->counter++; }

TEST(pids_that_mean_several_processes_are_refused) {
  must_not_be_believed(pid_0, false, false);
  must_not_be_believed(pid_all, false, false);
  must_not_be_believed(pid_group, false, false);
}

TEST(fields_that_cannot_be_are_refused) {
  must_not_be_believed(rank_of_none, false, false);
  must_not_be_believed(rank_below, false, false);
  must_not_be_believed(waits_for_none, false, false);
  must_not_be_believed(no_number, false, false);
  must_not_be_believed(no_kind, false, false);
}

TEST(a_heartbeat_without_the_key_or_changed_on_its_way_is_refused) {
  must_not_be_believed(NULL, false, true);
  must_not_be_believed(other_text, true, false);
  must_not_be_believed(other_mac, true, false);
  must_not_be_believed(other_counter, true, false);
}

TEST(a_heartbeat_is_believed_once_and_on_its_own_connection) {
  heartbeat_port p = open_port();
  wire_session s, t;
  heartbeat h = sound();
  int fd = greet(&p, &p.key, &s);
  wire_seal_heartbeat(&s, &h);
  tell(&p, fd, &h);
  CHECK_EQ(known(&p), 1);
  tell(&p, fd, &h); /* again: the connection is given up, and known as lost */
  CHECK_EQ(known(&p), 0);
  CHECK(p.peers.at[0].lost_s > 0 && p.peers.at[0].broken);
  int other = greet(&p, &p.key, &t);
  tell(&p, other, &h);
  CHECK_EQ(known(&p), 0);
  CHECK(is_closed(other));
  heartbeat_port_close(&p);
}

TEST(a_process_does_not_become_another) {
  heartbeat_port p = open_port();
  wire_session s;
  heartbeat h = sound();
  h.rank = -1;
  int fd = greet(&p, &p.key, &s);
  for (int rank = -1; rank < 2; rank++) { /* not known yet, 0; not 1 after that */
    h.rank = rank;
    wire_seal_heartbeat(&s, &h);
    tell(&p, fd, &h);
    CHECK_EQ(known(&p), rank < 1);
  }
  heartbeat_port_close(&p);
}

TEST(a_key_of_an_earlier_try_is_not_believed) {
  heartbeat_port p = open_port();
  wire_key before = p.key;
  wire_session s;
  heartbeat h = sound();
  CHECK_OK(heartbeat_port_reset(&p));
  int fd = greet(&p, &before, &s);
  wire_seal_heartbeat(&s, &h);
  tell(&p, fd, &h);
  CHECK_EQ(known(&p), 0);
  heartbeat_port_close(&p);
}

/* --- strangers -------------------------------------------------------------------------------- */

TEST(places_of_connections_that_are_closed_are_used_again) {
  heartbeat_port p = open_port();
  for (int i = 0; i < 5000; i++) {
    close(dial(&p));
    if (i % 50 == 0) heartbeat_port_listen(&p, 0);
    CHECK(p.peers.len <= PROCESSES + HEARTBEAT_STRANGERS);
  }
  listen_to(&p);
  a_process_gets_in(&p);
  CHECK_EQ(p.peers.len, 1);
  heartbeat_port_close(&p);
}

TEST(strangers_that_stay_do_not_keep_a_process_out) {
  enum { MANY = 300 };
  heartbeat_port p = open_port();
  for (int i = 0; i < MANY; i++) {
    dial(&p);
    heartbeat_port_listen(&p, 0);
    CHECK(p.peers.len <= PROCESSES + HEARTBEAT_STRANGERS);
  }
  a_process_gets_in(&p);
  CHECK(p.strangers >= MANY - PROCESSES - HEARTBEAT_STRANGERS);
  heartbeat_port_close(&p);
}

/* No number of a file from n on is given. */
static void allow_files(int n) {
  struct rlimit l;
  CHECK(!getrlimit(RLIMIT_NOFILE, &l));
  l.rlim_cur = (rlim_t)n;
  CHECK(!setrlimit(RLIMIT_NOFILE, &l));
}

TEST(without_files_left_connections_wait_and_no_time_is_burnt) {
  enum { TURNS = 10 };
  heartbeat_port p = open_port();
  int waiting = dial(&p), next = dup(waiting); /* the first that is free */
  close(next);
  allow_files(next);
  double began = time_now_s();
  for (int i = 0; i < TURNS; i++) heartbeat_port_listen(&p, 50);
  CHECK(time_now_s() - began > 0.3); /* it was woken for the first time, and hardly again */
  CHECK(p.full_told);
  CHECK_EQ(p.peers.len, 0);
  allow_files(next + 64);
  for (double until = time_now_s() + 20; !p.peers.len && time_now_s() < until;)
    heartbeat_port_listen(&p, TURN_MS);
  CHECK_EQ(p.peers.len, 1);
  a_process_gets_in(&p);
  close(waiting);
  heartbeat_port_close(&p);
}

TEST(a_stranger_that_says_nothing_is_dropped_and_a_silent_process_is_not) {
  heartbeat_port p = open_port();
  a_process_gets_in(&p);
  int silent = dial(&p), slow = dial(&p);
  listen_to(&p);
  send(slow, WIRE_VERSION, 8, MSG_NOSIGNAL); /* and never the rest */
  listen_to(&p);
  CHECK_EQ(p.peers.len, 3);
  for (size_t i = 0; i < p.peers.len; i++) p.peers.at[i].since_s -= HEARTBEAT_FIRST_S;
  listen_to(&p);
  CHECK_EQ(p.peers.len, 1);
  CHECK_EQ(known(&p), 1);
  wire_hello challenge;
  CHECK_EQ(recv(silent, &challenge, sizeof challenge, MSG_WAITALL), sizeof challenge);
  CHECK(is_closed(silent));
  heartbeat_port_close(&p);
}

TEST(bytes_of_other_protocols_are_dropped_at_once) {
  heartbeat_port p = open_port();
  char text[4096];
  memset(text, 'x', sizeof text);
  memcpy(text, "GET / HTTP/1.1\r\n", 16);
  int fd = dial(&p);
  listen_to(&p);
  send(fd, text, sizeof text, MSG_NOSIGNAL);
  listen_to(&p);
  CHECK_EQ(p.peers.len, 0);
  CHECK_EQ(p.strangers, 1);
  heartbeat_port_close(&p);
}

TEST(what_a_process_says_is_fit_for_a_terminal) {
  heartbeat h = sound();
  memset(h.text, 'a', sizeof h.text);
  memcpy(h.host, "\033[2J", 5);
  CHECK(heartbeat_clean(&h, PROCESSES));
  CHECK_STR(h.host, "?[2J");
  CHECK_EQ(strlen(h.text), sizeof h.text - 1);
}

TEST(a_key_is_read_as_it_is_printed) {
  wire_key k, back;
  char text[65];
  CHECK_OK(random_bytes(&k, sizeof k));
  wire_key_print(&k, text);
  CHECK(wire_key_parse(text, &back) && !memcmp(&k, &back, sizeof k));
  text[63] = 'g';
  CHECK(!wire_key_parse(text, &back));
  text[63] = 0;
  CHECK(!wire_key_parse(text, &back));
}

/* --- a process -------------------------------------------------------------------------------- */

static volatile sig_atomic_t told;
static void on_signal(int number) { told = number; }

/* Runs heartbeats as one of a job; what comes after them is the caller's. */
static pid_t start(const char *address, int port, const wire_key *key, void (*then)(void)) {
  char text[256], digits[65];
  wire_key_print(key, digits);
  snprintf(text, sizeof text, "%s:%d:%s:20:1000", address, port, digits);
  pid_t pid = fork();
  if (pid) return pid;
  setenv(HEARTBEAT_VARIABLE, text, 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  signal(SIGUSR1, on_signal);
  if (heartbeat_begin()) {
    fprintf(stderr, "%s\n", err_message());
    _exit(3);
  }
  then();
  _exit(0);
}

static void wait_to_be_told(void) {
  for (double until = time_now_s() + 20; !told && time_now_s() < until;) usleep(1000);
  heartbeat_end(told == SIGUSR1 ? 41 : 42, " train: full");
}
/* As one does that writes for long between two programs. */
static void work_until_told(void) {
  for (double until = time_now_s() + 20; !told && time_now_s() < until; usleep(1000))
    milestone_count_work();
  heartbeat_end(0, "");
}
/* As one that reads a file which another program has cut. */
static void on_fault(int number) {
  (void)number;
  heartbeat_refuse(2);
  _exit(2);
}
static void fault_when_told(void) {
  signal(SIGBUS, on_fault);
  for (double until = time_now_s() + 20; !told && time_now_s() < until;) usleep(1000);
  raise(SIGBUS);
}
static void sync_until_told(void) {
  milestone_set_activity("writing a checkpoint");
  milestone_begin_sync();
  wait_to_be_told();
}
static void go_on_for_long(void) {
  sleep(20);
  _exit(43);
}

static const heartbeat_peer *await_process(heartbeat_port *p, bool ended) {
  for (double until = time_now_s() + 20; time_now_s() < until;) {
    heartbeat_port_listen(p, TURN_MS);
    if (p->peers.len && p->peers.at[0].known && (!ended || p->peers.at[0].ended))
      return &p->peers.at[0];
  }
  return NULL;
}

static int exit_of(pid_t pid) {
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(a_process_is_heard_before_it_has_met_the_others) {
  heartbeat_port p = open_port();
  pid_t pid = start("127.0.0.1", heartbeat_port_number(&p), &p.key, wait_to_be_told);
  const heartbeat_peer *x = await_process(&p, false);
  CHECK(x);
  CHECK_EQ(x->last.rank, 2);
  CHECK_EQ(x->last.pid, pid);
  CHECK_EQ(x->last.joined, 0);
  CHECK(heartbeat_port_order(&p.peers.at[0], SIGUSR1));
  x = await_process(&p, true);
  CHECK(x);
  CHECK_EQ(x->last.code, 41);
  CHECK_STR(x->last.text, " train: full");
  CHECK_EQ(exit_of(pid), 0);
  CHECK(x->lost_s == 0);
  heartbeat_port_close(&p);
}

/* For how long nothing has changed in it, after more than a second. */
static double still_after(void (*then)(void)) {
  heartbeat_port p = open_port();
  pid_t pid = start("127.0.0.1", heartbeat_port_number(&p), &p.key, then);
  CHECK(await_process(&p, false));
  for (double until = time_now_s() + 1.5; time_now_s() < until;) heartbeat_port_listen(&p, TURN_MS);
  double still_s = p.peers.at[0].last.still_s;
  CHECK(heartbeat_port_order(&p.peers.at[0], SIGUSR1));
  CHECK(await_process(&p, true));
  exit_of(pid);
  heartbeat_port_close(&p);
  return still_s;
}

TEST(a_process_that_writes_or_reads_between_programs_does_not_stand_still) {
  CHECK(still_after(wait_to_be_told) > 1);
  CHECK(still_after(work_until_told) < 0.5);
}

TEST(time_in_which_a_process_was_stopped_is_not_time_without_progress) {
  heartbeat_port p = open_port();
  pid_t pid = start("127.0.0.1", heartbeat_port_number(&p), &p.key, wait_to_be_told);
  CHECK(await_process(&p, false));
  kill(pid, SIGSTOP);
  for (double until = time_now_s() + 2.5; time_now_s() < until;) heartbeat_port_listen(&p, TURN_MS);
  double heard_s = p.peers.at[0].heard_s;
  kill(pid, SIGCONT);
  for (double until = time_now_s() + 20; p.peers.at[0].heard_s == heard_s && time_now_s() < until;)
    heartbeat_port_listen(&p, TURN_MS);
  CHECK(p.peers.at[0].heard_s > heard_s);
  CHECK(p.peers.at[0].last.still_s < 1);
  CHECK(heartbeat_port_order(&p.peers.at[0], SIGUSR1));
  CHECK(await_process(&p, true));
  exit_of(pid);
  heartbeat_port_close(&p);
}

TEST(a_process_tells_what_it_does_and_that_it_waits_for_a_disk) {
  heartbeat_port p = open_port();
  pid_t pid = start("127.0.0.1", heartbeat_port_number(&p), &p.key, sync_until_told);
  CHECK(await_process(&p, false));
  for (double until = time_now_s() + 20; !p.peers.at[0].last.syncing && time_now_s() < until;)
    heartbeat_port_listen(&p, TURN_MS);
  CHECK_EQ(p.peers.at[0].last.syncing, 1);
  CHECK_STR(p.peers.at[0].last.text, "writing a checkpoint");
  CHECK_EQ(p.peers.at[0].last.instruction, -1);
  CHECK(heartbeat_port_order(&p.peers.at[0], SIGUSR1));
  CHECK(await_process(&p, true));
  CHECK_EQ(p.peers.at[0].last.refused, 0);
  exit_of(pid);
  heartbeat_port_close(&p);
}

TEST(a_handler_of_signals_tells_that_the_process_refuses_what_it_reads) {
  heartbeat_port p = open_port();
  pid_t pid = start("127.0.0.1", heartbeat_port_number(&p), &p.key, fault_when_told);
  CHECK(await_process(&p, false));
  CHECK(heartbeat_port_order(&p.peers.at[0], SIGUSR1));
  const heartbeat_peer *x = await_process(&p, true);
  CHECK(x);
  CHECK_EQ(x->last.code, 2);
  CHECK_EQ(x->last.refused, 1);
  CHECK(x->lost_s == 0);
  CHECK_EQ(exit_of(pid), 2);
  heartbeat_port_close(&p);
}

/* In place of the C library's, for all of this program. */
static _Atomic int syncs, syncs_told;
int fsync(int fd) {
  syncs++;
  if (milestone_is_syncing()) syncs_told++;
  return (int)syscall(SYS_fsync, fd);
}

TEST(a_file_and_its_folder_are_written_to_disk_as_told) {
  uint64_t before = milestone_get_work();
  syncs = syncs_told = 0;
  CHECK_OK(file_write("synced", "x", 1));
  CHECK_EQ(syncs, 2);
  CHECK_EQ(syncs_told, 2);
  CHECK(!milestone_is_syncing());
  CHECK(milestone_get_work() - before >= 4); /* each begins its time anew */
  unlink("synced");
}

TEST(each_mib_of_a_file_is_progress) {
  enum { MIB = 1 << 20, PARTS = 3 };
  char *bytes = mem_calloc(PARTS, MIB), *back;
  size_t len;
  uint64_t before = milestone_get_work();
  CHECK(bytes);
  CHECK_OK(file_write("work.bin", bytes, (size_t)PARTS * MIB));
  CHECK(milestone_get_work() - before >= 3 * PARTS); /* hashed, written, read back */
  before = milestone_get_work();
  CHECK_OK(file_read("work.bin", 0, &back, &len));
  CHECK(milestone_get_work() - before >= PARTS);
  hash_stream *h;
  CHECK_OK(hash_stream_create(&h));
  before = milestone_get_work();
  hash_stream_add(h, bytes, (size_t)PARTS * MIB);
  CHECK(milestone_get_work() - before >= PARTS - 1);
  hash128 a = hash_stream_get(h), b = hash_bytes128(bytes, (size_t)PARTS * MIB);
  CHECK(a.lo == b.lo && a.hi == b.hi);
  hash_stream_free(h);
  mem_free(back);
  mem_free(bytes);
  unlink("work.bin");
}

TEST(a_process_ends_when_its_supervisor_is_gone) {
  heartbeat_port p = open_port();
  pid_t pid = start("127.0.0.1", heartbeat_port_number(&p), &p.key, go_on_for_long);
  CHECK(await_process(&p, false));
  double before = time_now_s();
  heartbeat_port_close(&p);
  CHECK_EQ(exit_of(pid), 1);
  CHECK(time_now_s() - before < 10);
}

TEST(a_process_takes_no_order_that_its_supervisor_did_not_sign) {
  heartbeat_port p = open_port();
  pid_t pid = start("127.0.0.1", heartbeat_port_number(&p), &p.key, wait_to_be_told);
  CHECK(await_process(&p, false));
  heartbeat_order o = {.number = SIGUSR1};
  wire_session s = p.peers.at[0].session;
  wire_seal_order(&s, &o);
  o.number = SIGUSR2; /* which would end it */
  CHECK_EQ(send(p.peers.at[0].fd, &o, sizeof o, MSG_NOSIGNAL), sizeof o);
  CHECK_EQ(exit_of(pid), 1);
  heartbeat_port_close(&p);
}

TEST(a_supervisor_that_cannot_be_reached_is_named) {
  heartbeat_port p = open_port();
  int port = heartbeat_port_number(&p);
  wire_key key = p.key;
  heartbeat_port_close(&p);
  CHECK_EQ(exit_of(start("127.0.0.1", port, &key, go_on_for_long)), 3);
  CHECK_EQ(exit_of(start("nowhere", port, &key, go_on_for_long)), 3);
  CHECK_EQ(exit_of(start("127.0.0.1", 0, &key, go_on_for_long)), 3);
}

TEST(a_process_that_nobody_supervises_has_no_heartbeats) {
  unsetenv(HEARTBEAT_VARIABLE);
  CHECK_OK(heartbeat_begin());
  heartbeat_joined();
  heartbeat_end(0, "");
}
