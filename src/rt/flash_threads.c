/* The engine of the flash store that works everywhere: threads that read and write piece by piece,
 * so that several are in flight.  Pieces of transfers that run at once are taken in turn. */
#include "base/mem.h"
#include "rt/flash_piece.h"

enum { A_PATH = 4, MOST = 16 };

typedef struct threads threads;
typedef struct {
  threads *of;
  char *bounce;
  pthread_t thread;
} worker;

struct threads {
  pthread_mutex_t lock;
  pthread_cond_t more;
  flash_transfer *first, *last; /* with pieces that nobody has taken */
  bool stop;
  int n;
  char *bounce;
  worker worker[MOST];
};

static flash_transfer *take_first(threads *e) {
  flash_transfer *t = e->first;
  e->first = t->behind;
  if (!e->first) e->last = NULL;
  return t;
}

static void put_last(threads *e, flash_transfer *t) {
  t->behind = NULL;
  if (e->last) e->last->behind = t;
  else e->first = t;
  e->last = t;
}

static hp_status run_piece(const flash_transfer *t, uint64_t i, char *bounce) {
  flash_piece p = flash_piece_get(t, i);
  char *io = flash_piece_begin(&p, bounce);
  if (!io) return HP_OK;
  HP_TRY(flash_piece_transfer(&p, io));
  return flash_piece_end(&p, io);
}

/* With the lock, which it lets go of meanwhile. */
static void work(threads *e, char *bounce) {
  flash_transfer *t = take_first(e);
  uint64_t i = t->next++;
  bool skips = t->failed;
  if (t->next < t->pieces) put_last(e, t);
  pthread_mutex_unlock(&e->lock);
  hp_status st = skips ? HP_OK : run_piece(t, i, bounce);
  err_report why = {0};
  if (st) err_take(st, &why);
  pthread_mutex_lock(&e->lock);
  if (st && !t->failed) t->failed = true, t->why = why;
  if (++t->done == t->pieces) pthread_cond_signal(&t->ended);
}

static void *worker_main(void *arg) {
  worker *w = arg;
  threads *e = w->of;
  pthread_mutex_lock(&e->lock);
  for (;;) {
    while (!e->first && !e->stop) pthread_cond_wait(&e->more, &e->lock);
    if (!e->first) break;
    work(e, w->bounce);
  }
  pthread_mutex_unlock(&e->lock);
  return NULL;
}

static void close_threads(void *engine) {
  threads *e = engine;
  pthread_mutex_lock(&e->lock);
  e->stop = true;
  pthread_cond_broadcast(&e->more);
  pthread_mutex_unlock(&e->lock);
  for (int i = 0; i < e->n; i++) pthread_join(e->worker[i].thread, NULL);
  mem_unmap(e->bounce, (size_t)MOST * FLASH_STRIPE);
  pthread_cond_destroy(&e->more);
  pthread_mutex_destroy(&e->lock);
  mem_free(e);
}

static hp_status open_threads(const flash_layout *l, void **engine) {
  threads *e = mem_calloc(1, sizeof *e);
  HP_TRY_MEM(e);
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->more, NULL);
  e->bounce = mem_map((size_t)MOST * FLASH_STRIPE);
  hp_status st = e->bounce ? HP_OK : HP_ERR_OOM;
  for (int i = 0; !st && i < MOST && i < A_PATH * l->n; i++) {
    worker *w = &e->worker[i];
    *w = (worker){.of = e, .bounce = e->bounce + (size_t)i * FLASH_STRIPE};
    if (pthread_create(&w->thread, NULL, worker_main, w))
      st = err_set(HP_ERR_DEVICE, __FILE__, __LINE__, "cannot start a thread of the flash tier");
    else e->n++;
  }
  if (st) close_threads(e);
  else *engine = e;
  return st;
}

static hp_status run(void *engine, flash_transfer *t) {
  threads *e = engine;
  if (!t->pieces) return HP_OK;
  pthread_cond_init(&t->ended, NULL);
  pthread_mutex_lock(&e->lock);
  put_last(e, t);
  pthread_cond_broadcast(&e->more);
  while (t->done < t->pieces) pthread_cond_wait(&t->ended, &e->lock);
  pthread_mutex_unlock(&e->lock);
  pthread_cond_destroy(&t->ended);
  return t->failed ? err_give(&t->why) : HP_OK;
}

const flash_engine flash_threads = {"threads", open_threads, close_threads, run};
