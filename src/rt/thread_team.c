#include "rt/thread_team.h"

#include "base/mem.h"

#include <pthread.h>

/* The work of a thread; the caller itself does that of the first. */
typedef struct {
  thread_team *c;
  pthread_t thread, owner; /* owner: the caller that has taken it, */
  int taken;               /* and how often */
  bool started;
  uint64_t asked, done; /* number of requests to run fn, and of completed ones */
  const team_work *w;
  int i;
  err_report failure;
} hand;

struct thread_team {
  int n;
  bool stop;
  pthread_mutex_t lock;
  pthread_cond_t change;
  hand *hand; /* number 0 is never a thread */
};

static void work(hand *h) {
  hp_status st = h->w->fn(h->w->context, h->i);
  h->failure.code = HP_OK;
  if (st) err_take(st, &h->failure);
}

static void *hand_main(void *arg) {
  hand *h = arg;
  thread_team *c = h->c;
  for (;;) {
    pthread_mutex_lock(&c->lock);
    while (h->asked == h->done && !c->stop) pthread_cond_wait(&c->change, &c->lock);
    bool stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    if (stop) return NULL;
    work(h);
    pthread_mutex_lock(&c->lock);
    h->done++;
    pthread_cond_broadcast(&c->change);
    pthread_mutex_unlock(&c->lock);
  }
}

hp_status thread_team_create(int n, thread_team **out) {
  thread_team *c = mem_calloc(1, sizeof *c);
  HP_TRY_MEM(c);
  c->n = n;
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->change, NULL);
  c->hand = mem_calloc((size_t)n, sizeof *c->hand);
  hp_status st = c->hand ? HP_OK : HP_ERR_OOM;
  for (int i = 0; i < n && !st; i++) {
    hand *h = &c->hand[i];
    *h = (hand){.c = c};
    if (!i) continue;
    h->started = !pthread_create(&h->thread, NULL, hand_main, h);
    if (!h->started)
      st = err_set(HP_ERR_DEVICE, __FILE__, __LINE__, "cannot start the thread of device %d", i);
  }
  if (st) thread_team_free(c);
  else *out = c;
  return st;
}

void thread_team_free(thread_team *c) {
  if (!c) return;
  pthread_mutex_lock(&c->lock);
  c->stop = true;
  pthread_cond_broadcast(&c->change);
  pthread_mutex_unlock(&c->lock);
  for (int i = 1; c->hand && i < c->n; i++)
    if (c->hand[i].started) pthread_join(c->hand[i].thread, NULL);
  mem_free(c->hand);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->change);
  mem_free(c);
}

/* A secondary failure, caused by another one, is reported only if there is no primary one. */
static hp_status first_failure(const thread_team *c, const int *number, int n) {
  const err_report *first = NULL;
  for (int i = 0; i < n; i++) {
    const err_report *r = &c->hand[number[i]].failure;
    if (r->code && (!first || (first->code == HP_ERR_COMM && r->code != HP_ERR_COMM))) first = r;
  }
  return first ? err_give(first) : HP_OK;
}

static bool is_any_taken(const thread_team *c, const int *number, int n) {
  for (int i = 0; i < n; i++) {
    const hand *h = &c->hand[number[i]];
    if (h->taken && !pthread_equal(h->owner, pthread_self())) return true;
  }
  return false;
}

static bool is_any_busy(const thread_team *c, const int *number, int n) {
  for (int i = 1; i < n; i++)
    if (c->hand[number[i]].asked != c->hand[number[i]].done) return true;
  return false;
}

/* All are taken at once, so two callers never wait for each other. */
void thread_team_take(thread_team *c, const int *number, int n) {
  pthread_mutex_lock(&c->lock);
  while (is_any_taken(c, number, n)) pthread_cond_wait(&c->change, &c->lock);
  for (int i = 0; i < n; i++) {
    hand *h = &c->hand[number[i]];
    h->taken++;
    h->owner = pthread_self();
  }
  pthread_mutex_unlock(&c->lock);
}

void thread_team_give(thread_team *c, const int *number, int n) {
  pthread_mutex_lock(&c->lock);
  for (int i = 0; i < n; i++) c->hand[number[i]].taken--;
  pthread_cond_broadcast(&c->change);
  pthread_mutex_unlock(&c->lock);
}

static hp_status run_on_taken(thread_team *c, const int *number, int n, const team_work *w) {
  pthread_mutex_lock(&c->lock);
  for (int i = 0; i < n; i++) {
    hand *h = &c->hand[number[i]];
    h->w = w;
    h->i = i;
    h->asked += i > 0;
  }
  pthread_cond_broadcast(&c->change);
  pthread_mutex_unlock(&c->lock);
  work(&c->hand[number[0]]);
  pthread_mutex_lock(&c->lock);
  while (is_any_busy(c, number, n)) pthread_cond_wait(&c->change, &c->lock);
  hp_status st = first_failure(c, number, n);
  pthread_mutex_unlock(&c->lock);
  return st;
}

hp_status thread_team_run(thread_team *c, const int *number, int n, const team_work *w) {
  thread_team_take(c, number, n);
  if (w->begin) w->begin(w->context);
  hp_status st = n == 1 ? w->fn(w->context, 0) : run_on_taken(c, number, n, w);
  thread_team_give(c, number, n);
  return st;
}
