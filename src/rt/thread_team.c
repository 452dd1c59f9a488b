#include "rt/thread_team.h"

#include "base/mem.h"

#include <pthread.h>

typedef struct {
  thread_team *c;
  int index;
  pthread_t thread;
  bool started;
  err_report failure;
} hand;

struct thread_team {
  int n, busy;
  uint64_t job; /* counts jobs; hands wait for it to change */
  bool stop;
  hp_status (*fn)(void *context, int i);
  void *context;
  pthread_mutex_t lock;
  pthread_cond_t change;
  hand *hand; /* of numbers 1 .. n - 1 */
};

static void work(hand *h) {
  hp_status st = h->c->fn(h->c->context, h->index);
  h->failure.code = HP_OK;
  if (st) err_take(st, &h->failure);
}

static void *hand_main(void *arg) {
  hand *h = arg;
  thread_team *c = h->c;
  uint64_t seen = 0;
  for (;;) {
    pthread_mutex_lock(&c->lock);
    while (c->job == seen && !c->stop) pthread_cond_wait(&c->change, &c->lock);
    seen = c->job;
    bool stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    if (stop) return NULL;
    work(h);
    pthread_mutex_lock(&c->lock);
    c->busy--;
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
    *h = (hand){.c = c, .index = i};
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

/* The failure of who could not go on for another's is told only when there is no other. */
static hp_status first_failure(const thread_team *c) {
  const err_report *first = NULL;
  for (int i = 0; i < c->n; i++) {
    const err_report *r = &c->hand[i].failure;
    if (r->code && (!first || (first->code == HP_ERR_COMM && r->code != HP_ERR_COMM))) first = r;
  }
  return first ? err_give(first) : HP_OK;
}

hp_status thread_team_run(thread_team *c, hp_status (*fn)(void *context, int i), void *context) {
  pthread_mutex_lock(&c->lock);
  c->fn = fn;
  c->context = context;
  c->busy = c->n - 1;
  c->job++;
  pthread_cond_broadcast(&c->change);
  pthread_mutex_unlock(&c->lock);
  work(&c->hand[0]);
  pthread_mutex_lock(&c->lock);
  while (c->busy) pthread_cond_wait(&c->change, &c->lock);
  pthread_mutex_unlock(&c->lock);
  return first_failure(c);
}
