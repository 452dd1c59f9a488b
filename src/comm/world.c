#include "comm/world.h"

#include "base/mem.h"
#include "base/str.h"
#include "comm/world_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const world_facts *world_get(void) { return &world.facts; }

static bool read_env_number(const char *name, int *out) {
  const char *text = getenv(name);
  int64_t n;
  if (!text || !str_to_i64(text, &n) || n < 0 || n > INT32_MAX) return false;
  *out = (int)n;
  return true;
}

/* How many processes were started, and which of them this is; false: nobody says so.  A starter
 * within an allocation of another is believed before that. */
static bool read_environment(int *jobs_size, int *jobs_rank) {
  static const struct {
    const char *size, *rank;
  } starter[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                 {"PMI_SIZE", "PMI_RANK"},
                 {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  bool told = false;
  for (size_t i = 0; i < sizeof starter / sizeof *starter; i++) {
    int size, rank;
    if (!read_env_number(starter[i].size, &size) || !read_env_number(starter[i].rank, &rank))
      continue;
    if (rank >= size || (told && size < 2)) continue;
    *jobs_size = size;
    *jobs_rank = rank;
    told = true;
    if (size > 1) break;
  }
  return told;
}

int world_told_rank(void) {
  int size, rank;
  return read_environment(&size, &rank) ? rank : -1;
}

/* A process that ends in the middle (`exit` in a library) leaves the library all the same. */
static void end_at_exit(void) {
  if (world.over) return;
  if (!pthread_mutex_trylock(&world.lock)) {
    if (world.failed < 0 && !world.ending) world_end_probes(true);
    pthread_mutex_unlock(&world.lock);
  }
  world.t->end();
}

/* What agreements need is there before the first: one that fails of memory in one process alone
 * would leave the others waiting, and its next would be taken for the one that they wait for. */
static hp_status make_room(void) {
  size_t n = (size_t)world.facts.size;
  world.ended = mem_calloc(n, sizeof *world.ended);
  world.gathered = mem_calloc(n, GATHER_SMALL);
  world.numbers = mem_calloc(n, sizeof *world.numbers);
  world.request = mem_calloc(n * GATHER_MESSAGES, sizeof *world.request);
  world.probe_out = mem_calloc(n, sizeof *world.probe_out);
  world.probe_seen = mem_calloc(n, sizeof *world.probe_seen);
  world.gone = mem_calloc(n, sizeof *world.gone);
  HP_TRY_MEM(world.ended && world.gathered && world.numbers && world.request);
  HP_TRY_MEM(world.probe_out && world.probe_seen && world.gone);
  for (int k = 0; k < NOTE_KINDS; k++) {
    world.out_request[k] = mem_calloc(n, sizeof *world.out_request[k]);
    HP_TRY_MEM(world.out_request[k]);
  }
  return HP_OK;
}

static hp_status wait_for_all(int64_t requests) {
  pthread_mutex_lock(&world.lock);
  const wait_place at = {.kind = WAIT_ALL,
                         .sequence = ++world.calls,
                         .call = comm_call_of("a call of all processes", NULL)};
  pthread_mutex_unlock(&world.lock);
  return world_wait(&at, world.request, requests);
}

/* Gathers the bytes of every process on all of them. */
static hp_status exchange_facts(const void *mine, size_t bytes, char *all) {
  const world_facts *w = &world.facts;
  int64_t n = 0;
  for (int i = 0; i < w->size; i++) {
    if (i == w->rank) continue;
    comm_request *r = &world.request[n];
    HP_TRY(world_post(false, all + (size_t)i * bytes, (int64_t)bytes, i, TAG_DATA, &r[0]));
    HP_TRY(world_post(true, (void *)(uintptr_t)mine, (int64_t)bytes, i, TAG_DATA, &r[1]));
    n += GATHER_MESSAGES;
  }
  return wait_for_all(n);
}

/* Messages under way keep what they lie in: it is copied where a failure may leave some. */
static hp_status gather_begun(const void *mine, size_t bytes, void *all) {
  const world_facts *w = &world.facts;
  size_t room;
  if (w->size == 1) {
    memcpy(all, mine, bytes);
    return HP_OK;
  }
  if (bytes > TRANSPORT_BYTES_MAX || !size_mul(bytes, (size_t)w->size, &room))
    HP_FAIL(HP_ERR_ARG, "%zu bytes of each process; at most %d can be gathered", bytes,
            TRANSPORT_BYTES_MAX);
  bool little = bytes <= GATHER_SMALL;
  char *theirs = little ? world.gathered : mem_calloc(room, 1), *own = theirs;
  HP_TRY_MEM(theirs);
  own += (size_t)w->rank * bytes;
  memcpy(own, mine, bytes);
  HP_TRY(exchange_facts(own, bytes, theirs));
  memcpy(all, theirs, room);
  if (!little) mem_free(theirs);
  return HP_OK;
}

static hp_status max_begun(int64_t mine, int64_t *max) {
  *max = mine;
  if (world.facts.size == 1) return HP_OK;
  HP_TRY(gather_begun(&mine, sizeof mine, world.numbers));
  for (int i = 0; i < world.facts.size; i++)
    if (world.numbers[i] > *max) *max = world.numbers[i];
  return HP_OK;
}

static hp_status agree_begun(bool mine, bool *all) {
  int64_t doubt;
  HP_TRY(max_begun(!mine, &doubt));
  *all = !doubt;
  return HP_OK;
}

/* The file of memory of each machine: all processes have it, or none. */
static hp_status share_memory(void) {
  bool all;
  memory_place mine, *places = mem_calloc((size_t)world.facts.size, sizeof *places);
  HP_TRY_MEM(places);
  world_memory_make(&mine);
  hp_status st = gather_begun(&mine, sizeof mine, places);
  if (!st) st = agree_begun(world_memory_open(places), &all);
  if (!st && !all) world_memory_drop();
  mem_free(places);
  return st;
}

static hp_status join_world(world_facts *w) {
  transport_facts f = {0};
  HP_TRY(world_plugin(&world.t));
  const char *why = world.t->begin(&f);
  memcpy(w->library, f.library, sizeof w->library);
  if (why) return world_refuse(why);
  atexit(end_at_exit);
  if (f.size != w->size)
    HP_FAIL(HP_ERR_COMM,
            "%d processes were started, and %s sees %d: hyper_mpi.so was built for another MPI "
            "library than the one that starts the job; build it with that one's mpicc, or start "
            "with the other's mpirun (under srun: --mpi=pmix or --mpi=pmi2)",
            w->size, f.library, f.size);
  w->rank = f.rank;
  w->here = f.here;
  w->place = f.place;
  HP_TRY(make_room());
  HP_TRY(world_listen());
  HP_TRY(world_listen_probes());
  world.talks = true;
  return share_memory();
}

static void begin_once(void) {
  world_facts *w = &world.facts;
  if (gethostname(w->host, sizeof w->host - 1)) w->host[0] = 0;
  read_environment(&w->size, &w->rank);
  hp_status st = w->size > 1 ? join_world(w) : HP_OK;
  if (st) err_take(st, &world.begun);
}

hp_status world_begin(void) {
  pthread_once(&world.once, begin_once);
  return err_give(&world.begun);
}

hp_status world_gather(const void *mine, size_t bytes, void *all) {
  HP_TRY(world_begin());
  return gather_begun(mine, bytes, all);
}

hp_status world_max(int64_t mine, int64_t *max) {
  *max = mine;
  HP_TRY(world_begin());
  return max_begun(mine, max);
}

hp_status world_agree(bool mine, bool *all) {
  HP_TRY(world_begin());
  return agree_begun(mine, all);
}

static hp_status send_or_receive(char *data, size_t bytes) {
  const world_facts *w = &world.facts;
  comm_request *r = world.request;
  int64_t n = 0;
  if (w->rank) HP_TRY(world_post(false, data, (int64_t)bytes, 0, TAG_DATA, &r[n++]));
  for (int i = 1; !w->rank && i < w->size; i++)
    HP_TRY(world_post(true, data, (int64_t)bytes, i, TAG_DATA, &r[n++]));
  return wait_for_all(n);
}

hp_status world_broadcast(void *data, size_t bytes) {
  HP_TRY(world_begin());
  if (world.facts.size == 1) return HP_OK;
  if (bytes > TRANSPORT_BYTES_MAX)
    HP_FAIL(HP_ERR_ARG, "%zu bytes; at most %d can be broadcast", bytes, TRANSPORT_BYTES_MAX);
  bool little = bytes <= GATHER_SMALL;
  char *under_way = little ? world.gathered : mem_calloc(bytes, 1);
  HP_TRY_MEM(under_way);
  if (bytes) memcpy(under_way, data, bytes);
  HP_TRY(send_or_receive(under_way, bytes));
  if (bytes) memcpy(data, under_way, bytes);
  if (!little) mem_free(under_way);
  return HP_OK;
}
