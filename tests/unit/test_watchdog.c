/* What the supervisor of a job makes of what its processes have said: who has refused, died, hangs;
 * and how long it pauses between two tries. */
#include "base/thread.h"
#include "cli/launch.h"
#include "test.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE = 60, OPEN = 1000 }; /* OPEN: a number in place of a connection, never used */

/* A job whose processes have met, and run programs. */
static watchdog job_of(int processes) {
  watchdog w = {.port.processes = processes, .patience_s = PATIENCE, .saved = -1};
  double now = time_now_s();
  w.began_s = w.listened_s = now;
  for (int i = 0; i < processes; i++) {
    heartbeat_peer x = {.fd = OPEN, .known = true, .since_s = now, .heard_s = now};
    x.last = (heartbeat){.rank = i,
                         .pid = 100 + i,
                         .runs = 7,
                         .joined = 1,
                         .instruction = -1,
                         .waits_for = -1,
                         .step = -1,
                         .saved = -1,
                         .host = "here"};
    CHECK(vec_push(&w.port.peers, x));
  }
  return w;
}
static void forget(watchdog *w) { vec_free(&w->port.peers); }

static heartbeat_peer *peer(watchdog *w, int i) { return &w->port.peers.at[i]; }

/* After so many seconds of the job. */
static void ends(watchdog *w, int i, int code, double after_s) {
  heartbeat_peer *x = peer(w, i);
  x->last.kind = HEARTBEAT_END;
  x->last.code = code;
  x->ended = true;
  x->fd = -1;
  x->heard_s = w->began_s + after_s;
}
static void dies(watchdog *w, int i, double after_s) {
  peer(w, i)->fd = -1;
  peer(w, i)->lost_s = w->began_s + after_s;
}

/* --- refused or died -------------------------------------------------------------------------- */

static int refused(watchdog *w) {
  const heartbeat_peer *x = watchdog_find_refused(w);
  return x ? x->last.rank : -1;
}

TEST(a_refusal_outranks_the_deaths_after_it_and_no_death_before_it) {
  for (int joined = 0; joined < 2; joined++) {
    watchdog w = job_of(3);
    peer(&w, 1)->last.joined = joined;
    peer(&w, 1)->last.refused = joined;
    ends(&w, 1, 2, 5);
    CHECK_EQ(refused(&w), 1);
    dies(&w, 2, 6);
    CHECK_EQ(refused(&w), 1);
    CHECK_EQ(watchdog_find_lost(&w)->last.rank, 2);
    dies(&w, 0, 4);
    CHECK_EQ(refused(&w), -1);
    CHECK_EQ(watchdog_find_lost(&w)->last.rank, 0);
    forget(&w);
  }
}

TEST(of_several_that_refuse_process_0_is_heard) {
  watchdog w = job_of(3);
  for (int i = 2; i >= 0; i--) {
    peer(&w, i)->last.joined = 0;
    ends(&w, i, 2, 5 - i);
    CHECK_EQ(refused(&w), i == 2 ? 2 : i ? 1 : 0);
  }
  forget(&w);
}

TEST(an_end_that_all_agreed_on_or_that_asks_for_another_try_is_no_refusal) {
  watchdog w = job_of(3);
  ends(&w, 0, 2, 5); /* it had met the others */
  CHECK_EQ(refused(&w), -1);
  peer(&w, 1)->last.joined = 0;
  ends(&w, 1, HEARTBEAT_AGAIN, 5);
  CHECK_EQ(refused(&w), -1);
  peer(&w, 2)->last.joined = 0;
  ends(&w, 2, 0, 5);
  CHECK_EQ(refused(&w), -1);
  forget(&w);
}

TEST(a_device_that_failed_counts_before_any_other_code_no_matter_which_process_tells_it) {
  enum { PROCESSES = 3 };
  for (int failed = 0; failed < PROCESSES; failed++)
    for (int first = 0; first < PROCESSES; first++) { /* in every order of the connections */
      watchdog w = job_of(PROCESSES);
      int code = -1;
      for (int k = 0; k < PROCESSES; k++) {
        int i = (first + k) % PROCESSES;
        peer(&w, k)->last.rank = i;
        CHECK(!watchdog_all_ended(&w, &code));
        ends(&w, k, i == failed ? HEARTBEAT_AGAIN : 1, 5);
      }
      CHECK(watchdog_all_ended(&w, &code));
      CHECK_EQ(code, HEARTBEAT_AGAIN);
      forget(&w);
    }
}

TEST(else_the_code_of_process_0_counts) {
  for (int order = 0; order < 2; order++) {
    watchdog w = job_of(2);
    int code = -1;
    peer(&w, 0)->last.rank = order;
    peer(&w, 1)->last.rank = !order;
    ends(&w, 0, order ? 1 : 2, 5);
    ends(&w, 1, order ? 2 : 1, 5);
    CHECK(watchdog_all_ended(&w, &code));
    CHECK_EQ(code, 2);
    forget(&w);
  }
}

/* --- what hangs ------------------------------------------------------------------------------- */

/* Process 1 has stood still for so long; why, or NULL when nothing is found. */
static const char *found(watchdog *w, double still_s, str *why) {
  str_clear(why);
  peer(w, 1)->last.still_s = still_s;
  return watchdog_find(w, why) ? why->at : NULL;
}

TEST(a_process_that_has_run_no_program_is_held_to_the_time_between_programs) {
  watchdog w = job_of(2);
  str why = {0};
  heartbeat *h = &peer(&w, 1)->last;
  h->runs = 0;
  snprintf(h->text, sizeof h->text, "reading and tokenizing the data");
  CHECK(!found(&w, 10 * PATIENCE - 5, &why));
  CHECK(found(&w, 10 * PATIENCE + 5, &why));
  CHECK(strstr(why.at, "process 1 (here, pid 101) hangs: for 605 s it has been before its first "
                       "program, reading and tokenizing the data (it has 600 s there; "));
  h->waits_for = 0; /* which is where the fault is */
  CHECK(!found(&w, 10 * PATIENCE + 5, &why));
  str_free(&why);
  forget(&w);
}

/* MPI_Init takes longer than the patience where file servers or networks are slow. */
TEST(a_process_that_does_not_know_its_rank_yet_is_heard) {
  watchdog w = job_of(3);
  str why = {0};
  w.began_s -= PATIENCE + 5;
  for (int i = 0; i < 3; i++) {
    peer(&w, i)->last.rank = -1;
    peer(&w, i)->last.joined = 0;
  }
  CHECK(!watchdog_find(&w, &why));
  peer(&w, 0)->last.rank = 2; /* the first to know it */
  CHECK(!watchdog_find(&w, &why));
  w.port.peers.len = 2; /* of the third nothing has come */
  CHECK(watchdog_find(&w, &why));
  CHECK(strstr(why.at,
               "processes 0, 1 (1 of them heard, without a number yet) of 3 have not been heard"));
  str_free(&why);
  forget(&w);
}

/* It waits for another at an instruction, and has for so many seconds. */
static void waits(watchdog *w, int i, int for_rank, double still_s, const char *at) {
  heartbeat *h = &peer(w, i)->last;
  h->waits_for = for_rank;
  h->instruction = 10 + i;
  h->still_s = still_s;
  snprintf(h->stream, sizeof h->stream, "comm");
  snprintf(h->text, sizeof h->text, "%s", at);
}

TEST(processes_that_wait_for_each_other_are_named_with_both_instructions) {
  watchdog w = job_of(4);
  str why = {0};
  waits(&w, 1, 2, PATIENCE + 1, "all_reduce b3"); /* 0 and 3 go on */
  waits(&w, 2, 1, 1, "all_gather b7");
  CHECK(!watchdog_find(&w, &why));
  waits(&w, 2, 1, PATIENCE + 1, "all_gather b7");
  CHECK(watchdog_find(&w, &why));
  CHECK(strstr(why.at, "process 1 (here, pid 101) waits for process 2, which waits too"));
  CHECK(strstr(why.at, "all_reduce b3") && strstr(why.at, "process 2 is in stream comm"));
  CHECK(strstr(why.at, "all_gather b7"));
  str_free(&why);
  forget(&w);
}

TEST(a_process_that_waits_for_one_that_is_not_stuck_is_left_alone) {
  watchdog w = job_of(3);
  str why = {0};
  waits(&w, 0, 1, PATIENCE + 1, "all_reduce b3");
  waits(&w, 1, 2, PATIENCE + 1, "all_reduce b3");
  CHECK(!watchdog_find(&w, &why)); /* 2 reads data */
  ends(&w, 2, 0, 0);
  CHECK(watchdog_find(&w, &why));
  CHECK(strstr(why.at, "waits for process "));
  str_free(&why);
  str last = {0};
  peer(&w, 0)->last.waits_for = 2;
  CHECK(watchdog_find(&w, &last));
  CHECK(strstr(last.at, "process 0 (here, pid 100) waits for process 2, which has ended"));
  str_free(&last);
  forget(&w);
}

TEST(a_process_that_waits_for_a_disk_has_longer_and_not_for_ever) {
  watchdog w = job_of(2);
  str why = {0};
  heartbeat *h = &peer(&w, 1)->last;
  snprintf(h->text, sizeof h->text, "writing a checkpoint");
  CHECK(!found(&w, 10 * PATIENCE - 5, &why));
  CHECK(found(&w, 10 * PATIENCE + 5, &why));
  h->syncing = 1;
  CHECK(!found(&w, 60 * PATIENCE - 5, &why));
  CHECK(found(&w, 60 * PATIENCE + 5, &why));
  CHECK(strstr(why.at, "between programs, after 7 of them, writing a checkpoint, waiting for the "
                       "disk (fsync) (it has 3600 s there; "));
  h->instruction = 3; /* of a program: the disk is no excuse */
  CHECK(found(&w, PATIENCE + 5, &why));
  CHECK(!found(&w, PATIENCE - 5, &why));
  str_free(&why);
  forget(&w);
}

/* A launcher that is stopped for 2.5 s while it listens, with a patience of 2 s. */
static _Noreturn void listen_while_stopped(void) {
  watchdog w = job_of(2);
  str why = {0};
  w.port.listener = -1;
  w.patience_s = 2;
  double began_s = time_now_s();
  watchdog_listen(&w, 500);
  if (time_now_s() - began_s < 2.5) _exit(1);
  w.port.listener = OPEN; /* or nobody is watched */
  if (watchdog_find(&w, &why)) _exit(2);
  for (int i = 0; i < 2; i++) {
    double silent_s = time_now_s() - peer(&w, i)->heard_s;
    if (silent_s < 0 || silent_s > 2) _exit(3);
  }
  peer(&w, 1)->heard_s -= 2; /* it is watched as before */
  _exit(watchdog_find(&w, &why) ? 0 : 4);
}

TEST(while_the_launcher_is_stopped_nobody_falls_silent) {
  int status;
  pid_t pid = fork();
  if (!pid) listen_while_stopped();
  usleep(100000);
  kill(pid, SIGSTOP);
  usleep(2600000);
  kill(pid, SIGCONT);
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

/* --- pauses ----------------------------------------------------------------------------------- */

TEST(pauses_grow_to_half_a_minute_and_there_is_none_after_progress) {
  static const double want[] = {0, 1, 2, 4, 8, 16, 30, 30, 30};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    CHECK_EQ((int)launch_pause_s(1, (int64_t)i), (int)want[i]);
    CHECK(launch_pause_s(0, (int64_t)i) == 0);
  }
  CHECK(launch_pause_s(0.25, 3) == 1);
  CHECK_EQ((int)launch_pause_s(1, INT64_MAX), 30);
  CHECK(launch_pause_s(0, INT64_MAX) == 0);
}

static bool always(void) { return true; }
static bool never(void) { return false; }

TEST(a_pause_ends_when_the_job_is_asked_to_end) {
  double began = time_now_s();
  CHECK(!launch_pause(30, always));
  CHECK(time_now_s() - began < 10);
  began = time_now_s();
  CHECK(launch_pause(0.2, never));
  CHECK(time_now_s() - began >= 0.2);
  CHECK(launch_pause(0, never));
}
