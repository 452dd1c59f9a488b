#include "compile/streams.h"

#include "prog/program_slices.h"

#include <string.h>

/* Bytes [begin, end) of a tier, and the last buffer that used them. */
typedef struct {
  uint64_t begin, end;
  uint32_t buffer;
} segment;

typedef struct {
  program *p;
  VEC(segment) memory[TIER_COUNT];  /* once buffers have offsets: disjoint, by address */
  bool placed, *seen;               /* they have; by buffer: it is, or was, in `memory` */
  uint32_t *whole;                  /* prog/program_slices.h */
  uint32_t (*user)[STREAM_COUNT];   /* by buffer and stream: last user + 1 */
  uint32_t *writer;                 /* by buffer: last writer + 1 */
  uint32_t (*reader)[STREAM_COUNT]; /* by buffer and stream: last reader + 1 */
  uint32_t *position;               /* by instruction: position on its stream */
  VEC(vclock_wait) waits;
  uint32_t *wait0;
  uint32_t *edge0, *before; /* instruction i also waits for before[edge0[i]] .. */
} waiting;

static hp_status wait_for(waiting *w, uint32_t self, uint32_t other_plus_one) {
  if (!other_plus_one) return HP_OK;
  const prog_inst *a = program_inst(w->p, self), *b = program_inst(w->p, other_plus_one - 1);
  if (a->stream == b->stream) return HP_OK;
  vclock_wait need = {b->stream, w->position[other_plus_one - 1]};
  return vec_push(&w->waits, need) ? HP_OK : HP_ERR_OOM;
}

static hp_status sort_edges(waiting *w, const list_edge *edge, size_t n_edges) {
  w->edge0 = mem_calloc(w->p->insts.len + 2, sizeof *w->edge0);
  w->before = mem_calloc(n_edges, sizeof *w->before);
  if (!w->edge0 || !w->before) return HP_ERR_OOM;
  for (size_t i = 0; i < n_edges; i++) w->edge0[edge[i].after + 2]++;
  for (size_t i = 0; i < w->p->insts.len; i++) w->edge0[i + 2] += w->edge0[i + 1];
  for (size_t i = 0; i < n_edges; i++) w->before[w->edge0[edge[i].after + 1]++] = edge[i].before;
  return HP_OK;
}

/* Adds buffer b, whose first user is instruction `self`, to memory: earlier users of its bytes
 * must have finished.  LIST_INPUT: it exists before all instructions. */
static hp_status occupy(waiting *w, uint32_t b, uint32_t self) {
  const prog_buffer *f = &w->p->buffers.at[b];
  uint64_t begin = f->offset, end = f->offset + f->bytes;
  if (!w->placed || w->seen[b] || f->place != PLACE_WORK || !f->bytes) return HP_OK;
  w->seen[b] = true;
  segment *at = w->memory[f->tier].at, left = {0}, right = {0};
  size_t n = w->memory[f->tier].len, first = 0, last;
  for (size_t high = n; first < high;) { /* the first that ends after `begin` */
    size_t mid = first + (high - first) / 2;
    if (at[mid].end > begin) high = mid;
    else first = mid + 1;
  }
  for (last = first; last < n && at[last].begin < end; last++)
    for (int s = 0; s < STREAM_COUNT && self != LIST_INPUT; s++)
      HP_TRY(wait_for(w, self, w->user[at[last].buffer][s]));
  if (last > first && at[first].begin < begin)
    left = (segment){at[first].begin, begin, at[first].buffer};
  if (last > first && at[last - 1].end > end)
    right = (segment){end, at[last - 1].end, at[last - 1].buffer};
  segment put[3];
  size_t puts = 0;
  if (left.end) put[puts++] = left;
  put[puts++] = (segment){begin, end, b};
  if (right.end) put[puts++] = right;
  if (!vec_reserve(&w->memory[f->tier], puts)) return HP_ERR_OOM;
  at = w->memory[f->tier].at;
  memmove(at + first + puts, at + last, (n - last) * sizeof *at);
  memcpy(at + first, put, puts * sizeof *at);
  w->memory[f->tier].len = n - (last - first) + puts;
  return HP_OK;
}

/* The memory that instruction i takes: results, operands that were given, workspace. */
static hp_status occupy_all(waiting *w, uint32_t i) {
  const prog_inst *n = program_inst(w->p, i);
  const uint32_t *arg = program_args(w->p, n);
  for (int k = 0; w->placed && k <= n->n_in + n->n_out; k++) {
    uint32_t b = k < n->n_in + n->n_out ? arg[k] : n->workspace;
    if (b == PROG_NONE) continue;
    b = w->p->buffers.at[b].root;
    HP_TRY(occupy(w, b, i));
    w->user[b][n->stream] = i + 1;
  }
  return HP_OK;
}

static hp_status collect(waiting *w) {
  uint32_t length[STREAM_COUNT] = {0};
  for (uint32_t i = 0; i < w->p->insts.len; i++) {
    const prog_inst *n = program_inst(w->p, i);
    const uint32_t *arg = program_args(w->p, n);
    w->position[i] = length[n->stream]++;
    w->wait0[i] = (uint32_t)w->waits.len;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      uint32_t b = w->whole[arg[k]];
      HP_TRY(wait_for(w, i, w->writer[b]));
      for (int s = 0; k >= n->n_in && s < STREAM_COUNT; s++)
        HP_TRY(wait_for(w, i, w->reader[b][s]));
    }
    for (uint32_t k = w->edge0[i]; k < w->edge0[i + 1]; k++)
      HP_TRY(wait_for(w, i, w->before[k] + 1));
    HP_TRY(occupy_all(w, i));
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      uint32_t b = w->whole[arg[k]];
      if (k < n->n_in) {
        w->reader[b][n->stream] = i + 1;
      } else {
        w->writer[b] = i + 1;
        memset(w->reader[b], 0, sizeof w->reader[b]);
      }
    }
  }
  w->wait0[w->p->insts.len] = (uint32_t)w->waits.len;
  return HP_OK;
}

/* Removes waits that others imply, and stores the rest in the program. */
static hp_status prune(waiting *w) {
  size_t n = w->p->insts.len;
  vclock clock = {0};
  uint8_t *stream = mem_calloc(n, 1);
  uint32_t *wait0 = mem_calloc(n + 1, sizeof *wait0);
  hp_status st = stream && wait0 ? HP_OK : HP_ERR_OOM;
  if (st) goto done;
  for (size_t i = 0; i < n; i++) stream[i] = w->p->insts.at[i].stream;
  vclock_program vp = {n, STREAM_COUNT, stream, w->wait0, w->waits.at};
  HP_TRY_GOTO(vclock_build(&vp, &clock), st);
  w->p->waits.len = 0;
  if (!vec_reserve(&w->p->waits, w->waits.len)) HP_FAIL_GOTO(st, HP_ERR_OOM, "out of memory");
  vclock_prune(&vp, &clock, wait0, w->p->waits.at);
  w->p->waits.len = wait0[n];
  for (size_t i = 0; i < n; i++) {
    w->p->insts.at[i].wait0 = wait0[i];
    w->p->insts.at[i].n_wait = (uint16_t)(wait0[i + 1] - wait0[i]);
  }
done:
  vclock_free(&clock);
  mem_free(stream);
  mem_free(wait0);
  return st;
}

static hp_status find_waits(program *p, const list_edge *edge, size_t n_edges, bool placed) {
  waiting w = {.p = p, .placed = placed};
  w.writer = mem_calloc(p->buffers.len, sizeof *w.writer);
  w.reader = mem_calloc(p->buffers.len, sizeof *w.reader);
  w.position = mem_calloc(p->insts.len, sizeof *w.position);
  w.wait0 = mem_calloc(p->insts.len + 1, sizeof *w.wait0);
  w.user = mem_calloc(p->buffers.len, sizeof *w.user);
  w.seen = mem_calloc(p->buffers.len, sizeof *w.seen);
  w.whole = mem_calloc(p->buffers.len, sizeof *w.whole);
  bool made = w.writer && w.reader && w.position && w.wait0 && w.user && w.seen && w.whole;
  hp_status st = made ? program_slices(p, w.whole) : HP_ERR_OOM;
  for (uint32_t b = 0; !st && b < p->buffers.len; b++)
    if (p->buffers.at[b].root == b && p->buffers.at[b].flags & BUFFER_INPUT)
      st = occupy(&w, b, LIST_INPUT);
  if (!st) st = sort_edges(&w, edge, n_edges);
  if (!st) st = collect(&w);
  if (!st && (placed || w.waits.len)) st = prune(&w);
  mem_free(w.writer);
  mem_free(w.reader);
  mem_free(w.position);
  mem_free(w.wait0);
  mem_free(w.edge0);
  mem_free(w.before);
  vec_free(&w.waits);
  mem_free(w.user);
  mem_free(w.seen);
  mem_free(w.whole);
  for (int t = 0; t < TIER_COUNT; t++) vec_free(&w.memory[t]);
  return st;
}

hp_status place_waits(program *p, const list_edge *edge, size_t n_edges) {
  return find_waits(p, edge, n_edges, false);
}

hp_status trim_waits(program *p) {
  return program_has_one_stream(p) ? HP_OK : find_waits(p, NULL, 0, true);
}
