#include "rt/exec.h"

#include "base/thread.h"
#include "prog/ahead.h"
#include "prog/tier_check.h"
#include "rt/collective.h"
#include "rt/io_table.h"
#include "rt/memory_use.h"
#include "rt/progress_record.h"
#include "rt/recent_runs.h"
#include "rt/transfer.h"
#include "sim/cost.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  exec *e;
  int stream;
  pthread_t thread;
  bool started;
  err_report failure;
} stream_thread;

typedef struct {
  uint32_t buffer, row; /* row in the table of names */
} exec_io;

/* Inputs and outputs that are shards of global tensors. */
typedef struct {
  bool is_set, joins;
  shard_view shard;
} io_view;

/* An input that says which keys a query attends to, as it was in the last run. */
typedef struct {
  const prog_buffer *input;
  uint32_t row;
  int32_t *last;
} span_copy;

/* A part of a named tensor of another tier that work memory holds from one run to the next. */
typedef struct {
  uint32_t state; /* index in device->states */
  tensor_part part;
  uint32_t in, out; /* buffers that hold it when a run begins, and when it ends */
  bool written;     /* by a run */
} carried;

struct exec {
  device *d;
  program *p;
  void *loaded;
  collectives *collectives;
  transfers *transfers;         /* NULL: the program has none */
  link_clock *links;            /* NULL: the device's copies alone are known */
  void **at;                    /* by index in program->args: address */
  void **buffer;                /* by buffer: address; not of flash */
  uint64_t *flash;              /* by buffer: offset of a tensor on flash */
  bool holds_states;            /* they are counted as used by this program, */
  int tiers;                    /* and its work memory of so many tiers */
  uint32_t *list[STREAM_COUNT]; /* instructions of each stream in order */
  uint32_t length[STREAM_COUNT];
  inst_times *times;
  double *emulated_s; /* by instruction: when it would be finished on the emulated cluster */
  io_table names;     /* of inputs and outputs */
  VEC(exec_io) inputs, outputs;
  VEC(span_copy) spans;
  VEC(carried) carried;
  bool has_ahead, is_ahead;      /* instructions of the next step; the last run has run them */
  uint8_t skips;                 /* AHEAD_* of instructions that the run at hand has not */
  int32_t *blocks[STREAM_COUNT]; /* the list of blocks of the stream's present copy */
  io_view *view;                 /* by row in the table of names; NULL: none is a shard */
  double start_s, seconds;
  recent_runs recent;
  /* streams other than compute */
  stream_thread worker[STREAM_COUNT];
  pthread_mutex_t lock;
  pthread_cond_t change;
  uint32_t done[STREAM_COUNT]; /* instructions finished in this run */
  uint64_t run;                /* counts runs; workers wait for it to change */
  int active;                  /* workers that have not finished the run */
  bool failed, stop;
  bool recorded; /* on the first device of a mesh in this process */
};

static hp_status build_lists(exec *e) {
  for (size_t i = 0; i < e->p->insts.len; i++) e->length[e->p->insts.at[i].stream]++;
  for (int s = 0; s < STREAM_COUNT; s++) {
    e->list[s] = mem_calloc(e->length[s], sizeof *e->list[s]);
    HP_TRY_MEM(e->list[s]);
    e->length[s] = 0;
  }
  for (uint32_t i = 0; i < e->p->insts.len; i++) {
    int s = e->p->insts.at[i].stream;
    e->list[s][e->length[s]++] = i;
  }
  return HP_OK;
}

/* Room for the longest list of blocks of each stream. */
static hp_status take_lists(exec *e) {
  uint64_t most[STREAM_COUNT] = {0};
  for (size_t i = 0; i < e->p->insts.len; i++) {
    const prog_inst *n = program_inst(e->p, i);
    int list = tier_is_crossed(e->p, n) ? tier_copy_of(e->p, n).list : -1;
    uint64_t bytes = list < 0 ? 0 : program_arg(e->p, n, list)->bytes;
    if (bytes > most[n->stream]) most[n->stream] = bytes;
  }
  for (int s = 0; s < STREAM_COUNT; s++) {
    if (!most[s]) continue;
    e->blocks[s] = mem_calloc((size_t)most[s], 1);
    HP_TRY_MEM(e->blocks[s]);
  }
  return HP_OK;
}

static hp_status take_work(exec *e) {
  for (; e->tiers < TIER_COUNT; e->tiers++)
    HP_TRY(device_add_work(e->d, e->tiers, e->p->arena[e->tiers]));
  return HP_OK;
}

static void bind_work(exec *e) {
  const program *p = e->p;
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->place != PLACE_WORK || f->tier == TIER_FLASH) continue;
    char *work = device_work(e->d, f->tier); /* NULL: nothing in it has bytes */
    e->buffer[b] = work ? work + f->offset : NULL;
  }
  for (size_t i = 0; i < p->args.len; i++) e->at[i] = e->buffer[p->args.at[i]];
}

/* A tensor that a loaded program uses is neither freed nor renamed. */
static void count_states(exec *e, int by) {
  for (size_t b = 0; b < e->p->buffers.len; b++) {
    const prog_buffer *f = &e->p->buffers.at[b];
    uint32_t index;
    if (f->place != PLACE_STATE || f->root != b) continue;
    if (device_find(e->d, program_str(e->p, f->name), &index))
      e->d->states.at[index].programs += by;
  }
  e->holds_states = by > 0;
}

static bool is_of_tier(const program *p, size_t b, int tier) {
  const prog_buffer *f = &p->buffers.at[b];
  return f->place == PLACE_STATE && f->root == b && f->tier == tier;
}

/* Finds or creates the program's tensors of a tier, and moves them there. */
static hp_status place_states(device *d, const program *p, int tier) {
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    uint32_t index;
    if (!is_of_tier(p, b, tier)) continue;
    HP_TRY(device_state(d, program_str(p, f->name), &f->type, tier, &index));
    HP_TRY(device_move_state(d, index, tier));
  }
  return HP_OK;
}

/* Those of the device that no loaded program uses, and this one has elsewhere or not at all. */
static hp_status send_unused_away(device *d) {
  for (uint32_t i = 0; i < d->states.len; i++) {
    const state_tensor *t = &d->states.at[i];
    if (t->tier == TIER_DEVICE && !t->programs)
      HP_TRY(device_move_state(d, i, device_tier_beyond(d, t->bytes)));
  }
  return HP_OK;
}

/* From the far tier on: what goes there makes room for the next. */
static hp_status bind_states(exec *e) {
  const program *p = e->p;
  for (int t = TIER_COUNT; t-- > 0;) {
    if (t == TIER_HOST && memory_sends_away(e->d, p)) HP_TRY(send_unused_away(e->d));
    HP_TRY(place_states(e->d, p, t));
  }
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    uint32_t index;
    if (!is_of_tier(p, b, f->tier)) continue;
    HP_ASSERT(device_find(e->d, program_str(p, f->name), &index));
    const state_tensor *t = &e->d->states.at[index];
    if (t->tier == TIER_FLASH) e->flash[b] = t->offset;
    else e->buffer[b] = device_address(e->d, t);
  }
  for (size_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->place != PLACE_STATE || f->root == b) continue;
    if (f->tier == TIER_FLASH) e->flash[b] = e->flash[f->root] + f->at;
    else e->buffer[b] = (char *)e->buffer[f->root] + f->at;
  }
  return HP_OK;
}

/* --- carried tensors --------------------------------------------------------------------------
 */

static bool writes_buffer(const program *p, uint32_t tensor) {
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    bool brings = n->op == OP_FETCH && program_args(p, n)[0] == tensor;
    for (int k = n->n_in; k < n->n_in + n->n_out && !brings; k++)
      if (p->buffers.at[program_arg(p, n, k)->root].carries == tensor + 1) return true;
  }
  return false;
}

static hp_status list_carried(exec *e) {
  const program *p = e->p;
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->root != b || !(f->flags & BUFFER_CARRIED_IN)) continue;
    if (p->buffers.at[f->carries - 1].place != PLACE_STATE) continue; /* computed ahead */
    uint32_t tensor = f->carries - 1, out = b;
    for (uint32_t k = 0; k < p->buffers.len; k++)
      if (p->buffers.at[k].carries == f->carries && p->buffers.at[k].root == k &&
          p->buffers.at[k].flags & BUFFER_CARRIED_OUT)
        out = k;
    const prog_buffer *of = &p->buffers.at[tensor];
    carried c = {.part = {of->at, of->bytes}, .in = b, .out = out};
    c.written = writes_buffer(p, tensor);
    HP_ASSERT(device_find(e->d, program_str(p, of->name), &c.state));
    if (!vec_push(&e->carried, c)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* job_device.settle */
static hp_status bring_home(void *carrier) {
  const exec *e = carrier;
  for (size_t i = 0; i < e->carried.len; i++) {
    const carried *c = &e->carried.at[i];
    const state_tensor *t = &e->d->states.at[c->state];
    if (c->written) HP_TRY(mover_store(e->d, t, &c->part, e->buffer[c->out]));
  }
  return HP_OK;
}

/* Work memory is this program's, with the tensors that it carries. */
static hp_status take_over(exec *e) {
  job_device *j = e->d->job;
  if (j->carrier == e) return HP_OK;
  e->is_ahead = false;
  HP_TRY(job_device_settle(j));
  for (size_t i = 0; i < e->carried.len; i++) {
    const carried *c = &e->carried.at[i];
    const state_tensor *t = &e->d->states.at[c->state];
    HP_TRY(mover_load(e->d, t, &c->part, e->buffer[c->in]));
  }
  if (!e->carried.len && !e->has_ahead) return HP_OK;
  j->carrier = e;
  j->settle = bring_home;
  return HP_OK;
}

/* --- running -------------------------------------------------------------------------------- */

static bool multi_stream(const exec *e) {
  for (int s = 1; s < STREAM_COUNT; s++)
    if (e->length[s]) return true;
  return false;
}

/* Blocks until the waits of n are done; false if another stream has failed. */
static bool wait_all(exec *e, const prog_inst *n) {
  if (!n->n_wait) return true;
  pthread_mutex_lock(&e->lock);
  for (int k = 0; k < n->n_wait && !e->failed; k++) {
    const vclock_wait *w = &e->p->waits.at[n->wait0 + (uint32_t)k];
    while (e->done[w->stream] <= w->position && !e->failed) pthread_cond_wait(&e->change, &e->lock);
  }
  bool go_on = !e->failed;
  pthread_mutex_unlock(&e->lock);
  return go_on;
}

static void record(exec *e, int stream, hp_status st) {
  pthread_mutex_lock(&e->lock);
  e->done[stream]++;
  if (st) e->failed = true;
  pthread_cond_broadcast(&e->change);
  pthread_mutex_unlock(&e->lock);
}

/* When a copy between tiers would be finished there. */
static double find_copy_end(const exec *e, const prog_inst *n, uint64_t bytes, double start_s) {
  tier_copy c = tier_copy_of(e->p, n);
  const link_copy x = {c.from->tier, c.to->tier, (double)bytes, start_s};
  return link_clock_reserve(e->links, e->d->cluster, e->d->mesh, e->d->position, &x);
}

/* When the k-th instruction of a stream could begin on the emulated cluster: what it waits for is
 * finished there.  The time that a thread needs here to wake up is none of the cluster's. */
static double find_emulated_start(const exec *e, int stream, uint32_t k) {
  const prog_inst *n = program_inst(e->p, e->list[stream][k]);
  double start = k ? e->emulated_s[e->list[stream][k - 1]] : e->start_s;
  for (uint32_t i = 0; i < n->n_wait; i++) {
    const vclock_wait *w = &e->p->waits.at[n->wait0 + i];
    double end = e->emulated_s[e->list[w->stream][w->position]];
    if (end > start) start = end;
  }
  return start;
}

static bool is_communication(const prog_inst *n) {
  return op_flags((op_id)n->op) & (OPF_RENDEZVOUS | OPF_TRANSFER);
}

static bool is_emulated(const exec *e, const prog_inst *n) {
  const cluster *c = e->d->cluster;
  bool is_link = is_communication(n) || tier_is_crossed(e->p, n);
  return is_link ? c->emulate : c->emulate_compute;
}

/* On an emulated cluster an instruction takes at least as long as it would there, from start_s, and
 * no less than it took here; returns its end.  `moved` bytes are those of a copy; none takes no
 * time. Two copies of a direction are on one stream, so that they never share its link. */
static double emulate(const exec *e, const prog_inst *n, uint64_t moved, double start_s,
                      double took_s) {
  bool is_copy = tier_is_crossed(e->p, n);
  if (is_copy && !moved) return start_s + took_s;
  double end_s = is_copy ? find_copy_end(e, n, moved, start_s)
                         : start_s + cost_inst(e->d->cluster, e->d->mesh, e->p, n);
  if (end_s < start_s + took_s) end_s = start_s + took_s;
  time_sleep_until(end_s);
  return end_s;
}

/* The k-th instruction of a stream has run, from t->arrived_s on: its end, and when it began and
 * ended if that is emulated. */
static double find_end(const exec *e, int stream, uint32_t k, uint64_t moved, inst_times *t) {
  const prog_inst *n = program_inst(e->p, e->list[stream][k]);
  double now_s = time_now_s(), took_s = now_s - t->arrived_s;
  if (!is_emulated(e, n)) return now_s;
  if (!is_communication(n)) t->start_s = t->arrived_s = find_emulated_start(e, stream, k);
  return emulate(e, n, moved, t->arrived_s, took_s);
}

/* The failure of a kernel, with the program's inputs in its message. */
static hp_status name_failure(const exec *e, const prog_inst *n, hp_status st) {
  char why[1024];
  str more = {0};
  for (int k = 0; k < n->n_in; k++) {
    const prog_buffer *f = program_arg(e->p, n, k);
    if (f->flags & BUFFER_INPUT && f->name)
      str_printf(&more, "%sinput \"%.100s\"", more.len ? ", " : "", program_str(e->p, f->name));
  }
  if (more.len && !more.failed) {
    snprintf(why, sizeof why, "%s", err_message());
    err_clear();
    st = err_set(st, __FILE__, __LINE__, "%s (%s)", why, more.at);
  }
  str_free(&more);
  return st;
}

static hp_status launch(const exec *e, uint32_t i, const prog_inst *n) {
  void *workspace = n->workspace == PROG_NONE ? NULL : e->buffer[n->workspace];
  launch_args a = {e->at + n->arg0, workspace, collective_place(e->collectives, i), n->stream};
  return e->d->backend->launch(e->loaded, e->p, n, &a);
}

/* Work memory on flash is where it is in this run. */
static tier_place place_of(const exec *e, uint32_t b) {
  const prog_buffer *f = &e->p->buffers.at[b];
  tier_place x = {.tier = f->tier, .at = e->buffer[b]};
  if (f->tier != TIER_FLASH) return x;
  const tier_memory *m = &e->d->job->memory[TIER_FLASH];
  const prog_buffer *root = &e->p->buffers.at[f->root];
  x.ends = f->place == PLACE_STATE && f->at + f->bytes == root->bytes;
  x.offset = f->place == PLACE_STATE ? e->flash[b] : tier_memory_work_offset(m) + f->offset;
  return x;
}

/* Blocks of a pool; a store to another pool than its operand's begins with a copy of that. */
static hp_status move_blocks(const exec *e, const prog_inst *n, const tier_copy *c,
                             const char *name, uint64_t *moved) {
  const uint32_t *arg = program_args(e->p, n);
  const ir_value *type = &program_arg(e->p, n, 0)->type;
  const prog_buffer *list = program_arg(e->p, n, c->list);
  bool stores = n->op == OP_PAGED_STORE;
  tier_place at = place_of(e, arg[0]), from = place_of(e, arg[stores]);
  tier_place to = place_of(e, arg[n->n_in]);
  const ir_value *slots = &(stores ? c->from : c->to)->type;
  int64_t each = slots->dim[2] == type->dim[2] ? type->dim[1] : type->dim[1] * type->dim[2];
  int64_t blocks = type->dim[0] * each;
  block_moves b = {.list = e->blocks[n->stream],
                   .groups = type->dim[0],
                   .row = list->type.dim[1],
                   .first = stores ? 0 : inst_int(e->p, n, "first"),
                   .slots = slots->dim[1],
                   .blocks = each,
                   .bytes = blocks ? (uint64_t)(value_bytes(type) / blocks) : 0,
                   .stores = stores};
  HP_TRY(mover_to_host(e->d, e->blocks[n->stream], e->buffer[arg[c->list]], list->bytes));
  if (stores && arg[0] != arg[n->n_in] && (at.tier != to.tier || at.at != to.at))
    HP_TRY(mover_run(e->d, n, &at, &to, program_arg(e->p, n, 0)->bytes, name));
  *moved = mover_block_bytes(&b);
  return mover_run_blocks(e->d, n, &b, &from, &to, name);
}

/* What is moved has a name, or that of the place in the model where it is made. */
static hp_status move(const exec *e, const prog_inst *n, uint64_t *moved) {
  const uint32_t *arg = program_args(e->p, n);
  tier_copy c = tier_copy_of(e->p, n);
  uint32_t name = n->loc;
  for (int k = 0; k < 2; k++)
    if (program_arg(e->p, n, k)->name) name = program_arg(e->p, n, k)->name;
  if (c.list >= 0) return move_blocks(e, n, &c, program_str(e->p, name), moved);
  tier_place from = place_of(e, arg[0]), to = place_of(e, arg[1]);
  *moved = c.bytes;
  return mover_run(e->d, n, &from, &to, c.bytes, program_str(e->p, name));
}

/* Both ends are there when the boxes are: what an emulated link takes begins then. */
static hp_status run_transfer(const exec *e, uint32_t i, double *arrived_s) {
  hp_status st = transfer_run(e->transfers, i, e->at[program_inst(e->p, i)->arg0]);
  if (e->d->cluster->emulate) *arrived_s = time_now_s();
  return st;
}

static hp_status run_collective(const exec *e, uint32_t i, inst_times *t) {
  HP_TRY(collective_run(e->collectives, i, e->at + program_inst(e->p, i)->arg0, &t->arrived_s));
  t->received = collective_received(e->collectives, i);
  return HP_OK;
}

/* An instruction that this run has not: it takes no time, and what waits for it goes on. */
static void skip(exec *e, int stream, uint32_t k, bool events) {
  uint32_t i = e->list[stream][k];
  double now_s = e->d->cluster->emulate_compute ? find_emulated_start(e, stream, k) : time_now_s();
  e->emulated_s[i] = now_s;
  e->times[i] = (inst_times){now_s - e->start_s, now_s - e->start_s, now_s - e->start_s, 0};
  if (events) record(e, stream, HP_OK);
}

static hp_status run_stream(exec *e, int stream, bool events) {
  for (uint32_t k = 0; k < e->length[stream]; k++) {
    uint32_t i = e->list[stream][k];
    const prog_inst *n = program_inst(e->p, i);
    if (events && !wait_all(e, n)) return HP_OK;
    if (n->ahead & e->skips) {
      skip(e, stream, k, events);
      continue;
    }
    inst_times *t = &e->times[i];
    t->start_s = t->arrived_s = time_now_s();
    if (e->recorded) progress_record_set((uint32_t)stream, i);
    t->received = cost_received(e->p, n);
    bool together = collective_runs(n);
    uint64_t moved = 0;
    hp_status st;
    if (together) st = run_collective(e, i, t);
    else if (op_flags((op_id)n->op) & OPF_TRANSFER) st = run_transfer(e, i, &t->arrived_s);
    else if (tier_is_crossed(e->p, n)) st = move(e, n, &moved);
    else st = launch(e, i, n);
    if (st && !together) st = name_failure(e, n, st);
    double end_s = st ? time_now_s() : find_end(e, stream, k, moved, t);
    e->emulated_s[i] = end_s;
    t->end_s = end_s - e->start_s;
    if (e->recorded) progress_record_set((uint32_t)stream, PROG_NONE);
    t->start_s -= e->start_s;
    t->arrived_s -= e->start_s;
    if (events) record(e, stream, st);
    if (st) {
      err_at(st, program_str(e->p, n->loc), (int)i, op_table[n->op].name);
      return st;
    }
  }
  return HP_OK;
}

static void *stream_main(void *arg) {
  stream_thread *w = arg;
  exec *e = w->e;
  uint64_t seen = 0;
  e->d->backend->join(e->d->dev);
  for (;;) {
    pthread_mutex_lock(&e->lock);
    while (e->run == seen && !e->stop) pthread_cond_wait(&e->change, &e->lock);
    seen = e->run;
    bool stop = e->stop;
    pthread_mutex_unlock(&e->lock);
    if (stop) return NULL;
    hp_status st = run_stream(e, w->stream, true);
    if (st) err_take(st, &w->failure);
    pthread_mutex_lock(&e->lock);
    e->active--;
    pthread_cond_broadcast(&e->change);
    pthread_mutex_unlock(&e->lock);
  }
}

static hp_status start_workers(exec *e) {
  for (int s = 1; s < STREAM_COUNT; s++) {
    if (!e->length[s]) continue;
    e->worker[s] = (stream_thread){.e = e, .stream = s};
    if (pthread_create(&e->worker[s].thread, NULL, stream_main, &e->worker[s]))
      HP_FAIL(HP_ERR_DEVICE, "cannot start the thread of stream %s", stream_name((uint32_t)s));
    e->worker[s].started = true;
  }
  return HP_OK;
}

static hp_status run_streams(exec *e) {
  pthread_mutex_lock(&e->lock);
  memset(e->done, 0, sizeof e->done);
  e->failed = false;
  e->active = 0;
  for (int s = 1; s < STREAM_COUNT; s++) e->active += e->worker[s].started;
  e->run++;
  pthread_cond_broadcast(&e->change);
  pthread_mutex_unlock(&e->lock);
  hp_status st = run_stream(e, STREAM_COMPUTE, true);
  pthread_mutex_lock(&e->lock);
  while (e->active) pthread_cond_wait(&e->change, &e->lock);
  pthread_mutex_unlock(&e->lock);
  for (int s = 1; s < STREAM_COUNT; s++) {
    if (!st) st = err_give(&e->worker[s].failure);
    e->worker[s].failure.code = HP_OK;
  }
  return st;
}

/* --- inputs and outputs ----------------------------------------------------------------------- */

static hp_status note_span(exec *e, const prog_buffer *input) {
  for (size_t i = 0; i < e->spans.len; i++)
    if (e->spans.at[i].input == input) return HP_OK;
  span_copy c = {.input = input, .last = mem_calloc((size_t)input->bytes + 1, 1)};
  HP_TRY_MEM(c.last);
  for (size_t i = 0; i < e->inputs.len; i++)
    if (&e->p->buffers.at[e->inputs.at[i].buffer] == input) c.row = e->inputs.at[i].row;
  if (vec_push(&e->spans, c)) return HP_OK;
  mem_free(c.last);
  return HP_ERR_OOM;
}

/* Looks up the program's inputs and outputs once for all runs. */
static hp_status list_io(exec *e) {
  const program *p = e->p;
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (!(f->flags & (BUFFER_INPUT | BUFFER_OUTPUT))) continue;
    exec_io x = {.buffer = b};
    HP_TRY(io_table_add(&e->names, program_str(p, f->name), &x.row));
    if (f->root != b) continue;
    if (f->flags & BUFFER_INPUT && !vec_push(&e->inputs, x)) return HP_ERR_OOM;
    if (f->flags & BUFFER_OUTPUT && !vec_push(&e->outputs, x)) return HP_ERR_OOM;
  }
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_buffer *span = visible_keys_input(p, program_inst(p, i));
    if (span) HP_TRY(note_span(e, span));
  }
  return HP_OK;
}

static const io_view *find_view(const exec *e, uint32_t row) {
  return e->view && e->view[row].is_set ? &e->view[row] : NULL;
}

bool exec_has_io(const exec *e, const char *name) {
  uint32_t row;
  return map_get(&e->names.rows, name, strlen(name), &row);
}

hp_status exec_set_view(exec *e, const char *name, const shard_view *v, bool joins) {
  uint32_t row;
  if (!map_get(&e->names.rows, name, strlen(name), &row)) return HP_OK; /* the program lacks it */
  if (!e->view) e->view = mem_calloc(e->names.given.len, sizeof *e->view);
  HP_TRY_MEM(e->view);
  e->view[row] = (io_view){true, joins, *v};
  return HP_OK;
}

void exec_set_links(exec *e, link_clock *links) { e->links = links; }

hp_status exec_set_transfers(exec *e, const transfer_row *row, size_t rows) {
  return transfers_load(e->d, e->p, row, rows, &e->transfers);
}

uint32_t exec_find_output(const exec *e, const char *name) {
  uint32_t row;
  if (!map_get(&e->names.rows, name, strlen(name), &row)) return PROG_NONE;
  for (size_t i = 0; i < e->outputs.len; i++)
    if (e->outputs.at[i].row == row) return e->outputs.at[i].buffer;
  return PROG_NONE;
}

const void *exec_address(const exec *e, uint32_t output) {
  return output == PROG_NONE ? NULL : e->buffer[output];
}

static hp_status check_size(const exec *e, const exec_io *io, const hp_io *x) {
  const prog_buffer *f = &e->p->buffers.at[io->buffer];
  const io_view *v = find_view(e, io->row);
  uint64_t bytes = v ? (uint64_t)box_elements(&v->shard.all) * v->shard.element : f->bytes;
  if (x->bytes != bytes)
    HP_FAIL(HP_ERR_ARG, "\"%s\" has %llu bytes in the program, %zu are given",
            program_str(e->p, f->name), (unsigned long long)bytes, x->bytes);
  return HP_OK;
}

static hp_status move_input(const exec *e, const exec_io *io, const hp_io *x) {
  const io_view *v = find_view(e, io->row);
  void *to = e->buffer[io->buffer];
  if (!v) return mover_to_device(e->d, to, x->data, x->bytes);
  HP_TRY(mover_zero_padding(e->d, &v->shard, to));
  return mover_write_shard(e->d, &v->shard, to, x->data);
}

static hp_status move_output(const exec *e, const exec_io *io, const hp_io *x) {
  const io_view *v = find_view(e, io->row);
  const void *from = e->buffer[io->buffer];
  if (!v) return mover_to_host(e->d, x->data, from, x->bytes);
  return v->joins ? mover_read_shard(e->d, &v->shard, from, x->data) : HP_OK;
}

/* What was moved in. */
static hp_status keep_span(const exec *e, const span_copy *s) {
  const hp_io *x = e->names.given.at[s->row];
  const void *at = e->buffer[s->input - e->p->buffers.at];
  if (find_view(e, s->row)) return mover_to_host(e->d, s->last, at, s->input->bytes);
  if (x->bytes) memcpy(s->last, x->data, x->bytes);
  return HP_OK;
}

static hp_status move_inputs(exec *e) {
  for (size_t i = 0; i < e->inputs.len; i++) {
    uint32_t b = e->inputs.at[i].buffer;
    const prog_buffer *f = &e->p->buffers.at[b];
    const hp_io *x = e->names.given.at[e->inputs.at[i].row];
    if (!x)
      HP_FAIL(HP_ERR_ARG, "input \"%s\" of the program is not given", program_str(e->p, f->name));
    HP_TRY(check_size(e, &e->inputs.at[i], x));
    HP_TRY(move_input(e, &e->inputs.at[i], x));
  }
  for (size_t i = 0; i < e->spans.len; i++) HP_TRY(keep_span(e, &e->spans.at[i]));
  return HP_OK;
}

static hp_status move_outputs(exec *e) {
  for (size_t i = 0; i < e->outputs.len; i++) {
    const hp_io *x = e->names.given.at[e->outputs.at[i].row];
    if (!x) continue;
    HP_TRY(check_size(e, &e->outputs.at[i], x));
    HP_TRY(move_output(e, &e->outputs.at[i], x));
  }
  return HP_OK;
}

bool exec_can_continue(const exec *e) {
  return !e->has_ahead || (e->is_ahead && e->d->job->carrier == e);
}

hp_status exec_run(exec *e, const hp_io *io, int n, unsigned how) {
  HP_TRY(io_table_match(&e->names, io, n));
  HP_TRY(take_over(e));
  if (how & EXEC_CONTINUES) HP_ASSERT(exec_can_continue(e));
  e->skips =
      (uint8_t)((how & EXEC_CONTINUES ? AHEAD_AGAIN : 0) | (how & EXEC_AHEAD ? 0 : AHEAD_NEXT));
  e->is_ahead = false;
  HP_TRY(move_inputs(e));
  if (e->recorded) progress_record_begin(e->p);
  e->start_s = time_now_s();
  hp_status st = multi_stream(e) ? run_streams(e) : run_stream(e, STREAM_COMPUTE, false);
  if (e->recorded) progress_record_end();
  HP_TRY(st);
  e->is_ahead = how & EXEC_AHEAD;
  e->seconds = time_now_s() - e->start_s;
  recent_runs_add(&e->recent, e->seconds, e->times);
  return move_outputs(e);
}

hp_status exec_create(device *d, program *p, void *loaded, exec **out) {
  hp_status st = HP_OK;
  exec *e = mem_calloc(1, sizeof *e);
  if (!e) {
    d->backend->release(loaded);
    program_free(p);
    return HP_ERR_OOM;
  }
  *e = (exec){.d = d, .p = p, .loaded = loaded};
  e->recorded = d->recorded;
  e->has_ahead = ahead_is_in(p);
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->change, NULL);
  e->at = mem_calloc(p->args.len, sizeof *e->at);
  e->buffer = mem_calloc(p->buffers.len, sizeof *e->buffer);
  e->flash = mem_calloc(p->buffers.len, sizeof *e->flash);
  e->times = mem_calloc(p->insts.len, sizeof *e->times);
  e->emulated_s = mem_calloc(p->insts.len, sizeof *e->emulated_s);
  if (!e->at || !e->buffer || !e->flash || !e->times || !e->emulated_s) st = HP_ERR_OOM;
  if (!st) st = recent_runs_create(p->insts.len, &e->recent);
  if (!st) st = tier_check(p);
  if (!st) st = build_lists(e);
  if (!st) st = take_lists(e);
  if (!st) st = bind_states(e);
  if (!st) st = list_io(e);
  if (!st) st = take_work(e);
  if (!st) bind_work(e);
  if (!st) st = list_carried(e);
  if (!st) count_states(e, 1);
  if (!st) st = collectives_load(d, p, &e->collectives);
  if (!st) st = start_workers(e);
  if (st) exec_free(e);
  else *out = e;
  return st;
}

void exec_free(exec *e) {
  if (!e) return;
  if (e->d->job->carrier == e && job_device_settle(e->d->job)) err_clear();
  pthread_mutex_lock(&e->lock);
  e->stop = true;
  pthread_cond_broadcast(&e->change);
  pthread_mutex_unlock(&e->lock);
  for (int s = 1; s < STREAM_COUNT; s++)
    if (e->worker[s].started) pthread_join(e->worker[s].thread, NULL);
  for (int s = 0; s < STREAM_COUNT; s++) mem_free(e->list[s]), mem_free(e->blocks[s]);
  collectives_free(e->collectives);
  transfers_free(e->transfers);
  if (e->holds_states) count_states(e, -1);
  for (int t = 0; t < e->tiers; t++) device_drop_work(e->d, t, e->p->arena[t]);
  e->d->backend->release(e->loaded);
  program_free(e->p);
  mem_free(e->at);
  mem_free(e->buffer);
  mem_free(e->flash);
  mem_free(e->times);
  mem_free(e->emulated_s);
  recent_runs_free(&e->recent);
  for (size_t i = 0; i < e->spans.len; i++) mem_free(e->spans.at[i].last);
  vec_free(&e->spans);
  vec_free(&e->carried);
  vec_free(&e->inputs);
  vec_free(&e->outputs);
  io_table_free(&e->names);
  mem_free(e->view);
  pthread_mutex_destroy(&e->lock);
  pthread_cond_destroy(&e->change);
  mem_free(e);
}

const program *exec_program(const exec *e) { return e->p; }
const inst_times *exec_last_times(const exec *e) { return e->times; }
double exec_began_s(const exec *e) { return e->start_s; }
double exec_last_seconds(const exec *e) { return e->seconds; }
uint64_t exec_runs(const exec *e) { return e->recent.runs; }

void exec_last_visible_keys(const exec *e, visible_keys *out) {
  for (size_t i = 0; i < e->p->insts.len; i++) {
    const prog_inst *x = program_inst(e->p, i);
    const prog_buffer *span = e->recent.runs ? visible_keys_input(e->p, x) : NULL;
    out[i] = (visible_keys){0};
    for (size_t k = 0; span && k < e->spans.len; k++)
      if (e->spans.at[k].input == span) out[i] = visible_keys_count(e->p, x, e->spans.at[k].last);
  }
}

void exec_recent(const exec *e, inst_times *out) { recent_runs_mean(&e->recent, out); }
