/* The memory plan: live ranges of buffers in the order of instructions, alias groups for results
 * that overwrite operands, and offsets (src/mem). */
#include "mem/offsets.h"
#include "mem/timeline.h"
#include "compile/inplace.h"
#include "compile/lower.h"
#include "compile/memory_segments.h"
#include "sched/list.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  program *p;
  uint32_t *first, *last; /* by buffer: instructions; first = PROG_NONE when never written */
  uint32_t *alias;        /* by buffer: group, 0 = none */
  uint32_t aliases;
  uint32_t *use0, *use; /* by root buffer: instructions that touch it, in order */
  uint32_t streams;
  uint32_t used, used_stream[STREAM_COUNT], place[STREAM_COUNT]; /* streams with instructions */
  vclock clock; /* of programs with several streams */
} planner;

enum {
  EXISTS_AT_START = BUFFER_INPUT | BUFFER_CARRIED_IN,
  EXISTS_AT_END = BUFFER_OUTPUT | BUFFER_CARRIED_OUT
};

static uint32_t root_of(const program *p, uint32_t b) { return p->buffers.at[b].root; }

/* If a program is planned again, removes its old workspaces, which are its last buffers. */
static hp_status add_workspaces(program *p, const uint64_t *workspace) {
  while (p->buffers.len && (p->buffers.at[p->buffers.len - 1].flags & BUFFER_WORKSPACE))
    p->buffers.len--;
  for (size_t i = 0; i < p->insts.len; i++) {
    p->insts.at[i].workspace = PROG_NONE;
    uint64_t bytes = workspace[p->insts.at[i].kernel];
    if (!bytes) continue;
    prog_buffer b = {.place = PLACE_WORK,
                     .tier = TIER_DEVICE,
                     .flags = BUFFER_WORKSPACE,
                     .class = MEM_WORKSPACE,
                     .bytes = bytes,
                     .root = (uint32_t)p->buffers.len,
                     .type = {.dtype = HP_U8, .rank = 1, .dim = {(int64_t)bytes}}};
    p->insts.at[i].workspace = b.root;
    if (!vec_push(&p->buffers, b)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static void touch(planner *m, uint32_t buffer, uint32_t at) {
  uint32_t b = root_of(m->p, buffer);
  if (m->first[b] == PROG_NONE || at < m->first[b]) m->first[b] = at;
  if (at > m->last[b]) m->last[b] = at;
}

/* First and last instruction of every buffer; inputs live from the start, outputs to the end. */
static void find_lifetimes(planner *m) {
  program *p = m->p;
  uint32_t end = p->insts.len ? (uint32_t)p->insts.len - 1 : 0;
  for (size_t b = 0; b < p->buffers.len; b++) {
    m->first[b] = PROG_NONE;
    m->last[b] = 0;
  }
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int k = 0; k < n->n_in + n->n_out; k++) touch(m, program_args(p, n)[k], i);
    if (n->workspace != PROG_NONE) touch(m, n->workspace, i);
  }
  for (size_t b = 0; b < p->buffers.len; b++) {
    if (p->buffers.at[b].flags & EXISTS_AT_START) touch(m, (uint32_t)b, 0);
    if (p->buffers.at[b].flags & EXISTS_AT_END) touch(m, (uint32_t)b, end);
    if (m->first[b] == PROG_NONE) m->first[b] = m->last[b] = 0;
  }
}

/* Instructions that touch each root buffer: use[use0[b]] .. use[use0[b + 1] - 1], in order. */
static hp_status find_uses(const program *p, uint32_t **use0_out, uint32_t **use_out) {
  size_t buffers = p->buffers.len, n = p->insts.len;
  uint32_t *use0 = mem_calloc(buffers + 2, sizeof *use0), *use = NULL;
  HP_TRY_MEM(use0);
  for (int fill = 0; fill < 2; fill++) {
    for (uint32_t i = 0; i < n; i++) {
      const prog_inst *d = program_inst(p, i);
      for (int k = 0; k <= d->n_in + d->n_out; k++) {
        uint32_t b = k < d->n_in + d->n_out ? program_args(p, d)[k] : d->workspace;
        if (b == PROG_NONE) continue;
        b = root_of(p, b);
        if (fill) use[use0[b + 1]++] = i;
        else use0[b + 2]++;
      }
    }
    if (fill) break;
    for (size_t b = 0; b <= buffers; b++) use0[b + 1] += use0[b];
    use = mem_calloc(use0[buffers + 1] + 1, sizeof *use);
    if (!use) {
      mem_free(use0);
      return HP_ERR_OOM;
    }
  }
  *use0_out = use0;
  *use_out = use;
  return HP_OK;
}

/* Does instruction i read buffer a for the last time, with all other uses certainly finished? */
static bool dies_at(const planner *m, uint32_t a, uint32_t i) {
  if (m->last[a] != i || m->p->buffers.at[a].flags & EXISTS_AT_END) return false;
  for (uint32_t u = m->use0[a]; m->streams > 1 && u < m->use0[a + 1]; u++)
    if (m->use[u] != i && !vclock_before(&m->clock, m->use[u], i)) return false;
  return true;
}

/* Can result o of instruction i overwrite its operand k?  The operand must die here, have the
 * same size, be read once, and not be overwritten by another result. */
static bool can_take(const planner *m, uint32_t i, int o, int k) {
  const program *p = m->p;
  const prog_inst *n = program_inst(p, i);
  const uint32_t *arg = program_args(p, n);
  uint32_t b = arg[n->n_in + o], a = root_of(p, arg[k]);
  const prog_buffer *in = &p->buffers.at[a], *out = &p->buffers.at[b];
  if (in->place != PLACE_WORK || in->tier != out->tier || in->bytes != out->bytes || a == b)
    return false;
  if (in->carries || out->carries) return false;              /* their offsets are chosen first */
  if (program_arg(p, n, k)->bytes != in->bytes) return false; /* a view of a part of it */
  if (!dies_at(m, a, i) || m->first[b] != i) return false;
  for (int j = 0; j < n->n_in; j++)
    if (j != k && root_of(p, arg[j]) == a) return false;
  for (int j = 0; j < n->n_out; j++) {
    uint32_t group = m->alias[arg[n->n_in + j]];
    if (j != o && group && group == m->alias[a]) return false;
  }
  return inplace_inst(p, n, k, o);
}

static bool same_offset(const planner *m, uint32_t i, int o, int k) {
  const prog_inst *n = program_inst(m->p, i);
  return program_arg(m->p, n, n->n_in + o)->offset == program_arg(m->p, n, k)->offset;
}

/* Results that overwrite operands; placed: only those that have the offset of their operand. */
static void find_aliases(planner *m, bool placed) {
  const program *p = m->p;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    for (int o = 0; o < n->n_out; o++) {
      uint32_t b = program_args(p, n)[n->n_in + o];
      if (p->buffers.at[b].place != PLACE_WORK || p->buffers.at[b].root != b || m->alias[b])
        continue;
      int k = 0;
      while (k < n->n_in && !((!placed || same_offset(m, i, o, k)) && can_take(m, i, o, k))) k++;
      if (k == n->n_in) continue;
      uint32_t a = root_of(p, program_args(p, n)[k]);
      if (!m->alias[a]) m->alias[a] = ++m->aliases;
      m->alias[b] = m->alias[a];
    }
  }
}

/* Rows of offsets_problem.dead, for programs with several streams, of those with instructions.
 * Outputs never die; an unused input exists before the first instruction, and may be overwritten
 * from the next on. */
static hp_status find_dead(const planner *m, const uint32_t *index, size_t n, uint32_t **out) {
  uint32_t *dead = mem_calloc(n * m->used, sizeof *dead), all[STREAM_COUNT];
  HP_TRY_MEM(dead);
  for (size_t k = 0; k < n; k++) {
    uint32_t b = index[k], uses = m->use0[b + 1] - m->use0[b], *row = dead + k * m->used;
    bool output = m->p->buffers.at[b].flags & EXISTS_AT_END;
    if (output || !uses)
      for (uint32_t s = 0; s < m->streams; s++) all[s] = output ? OFFSETS_NEVER : 1;
    else vclock_dead(&m->clock, m->use + m->use0[b], uses, all);
    for (uint32_t i = 0; i < m->used; i++) row[i] = all[m->used_stream[i]];
  }
  *out = dead;
  return HP_OK;
}

/* Work buffers as a problem for src/mem. */
typedef struct {
  offsets_problem problem;
  offsets_buffer *buffer;
  uint32_t *index, *dead; /* the buffer of each of them */
  uint64_t *offset;
} placement;

static void placement_free(placement *x) {
  mem_free(x->buffer);
  mem_free(x->index);
  mem_free(x->dead);
  mem_free(x->offset);
}

/* A tensor that leaves the device within a run, and comes back to stay for the next one, must come
 * back to its place. */
static hp_status tie_pairs(const planner *m, placement *x) {
  const program *p = m->p;
  uint32_t *out_of = mem_calloc(p->buffers.len, sizeof *out_of); /* by tensor: 1 + place */
  HP_TRY_MEM(out_of);
  for (uint32_t k = 0; k < x->problem.n; k++) {
    const prog_buffer *f = &p->buffers.at[x->index[k]];
    bool ends = f->flags & BUFFER_CARRIED_OUT && !(f->flags & BUFFER_CARRIED_IN);
    if (ends) out_of[f->carries - 1] = k + 1;
  }
  for (uint32_t k = 0; k < x->problem.n; k++) {
    const prog_buffer *f = &p->buffers.at[x->index[k]];
    if (!(f->flags & BUFFER_CARRIED_IN) || f->flags & BUFFER_CARRIED_OUT) continue;
    uint32_t out = out_of[f->carries - 1];
    if (out) x->buffer[k].tie = x->buffer[out - 1].tie = out;
  }
  mem_free(out_of);
  return HP_OK;
}

/* all: other buffers too, with no bytes, so that messages have the buffers' own numbers.  The
 * caller frees *x, also on failure. */
static hp_status placement_make(const planner *m, bool all, placement *x) {
  const program *p = m->p;
  x->buffer = mem_calloc(p->buffers.len, sizeof *x->buffer);
  x->offset = mem_calloc(p->buffers.len, sizeof *x->offset);
  x->index = mem_calloc(p->buffers.len, sizeof *x->index);
  HP_TRY_MEM(x->buffer && x->offset && x->index);
  x->problem.buffer = x->buffer;
  for (uint32_t i = 0; i < p->buffers.len; i++) {
    const prog_buffer *f = &p->buffers.at[i];
    bool planned = f->place == PLACE_WORK && f->root == i;
    if (!planned && !all) continue;
    x->buffer[x->problem.n] =
        (offsets_buffer){.size = planned ? f->bytes : 0,
                         .tier = f->tier,
                         .first = m->first[i],
                         .last = m->last[i],
                         .alias = m->alias[i],
                         .stream = p->insts.len ? m->place[p->insts.at[m->first[i]].stream] : 0};
    x->offset[x->problem.n] = planned ? f->offset : 0;
    x->index[x->problem.n++] = i;
  }
  if (m->streams == 1) return HP_OK;
  HP_TRY(find_dead(m, x->index, x->problem.n, &x->dead));
  x->problem.streams = m->used;
  x->problem.dead = x->dead;
  return HP_OK;
}

/* All buffers as one problem; offset: by buffer. */
static hp_status assign_together(const planner *m, const memory_options *o, uint64_t *offset,
                                 offsets_summary *s) {
  placement x = {0};
  hp_status st = placement_make(m, false, &x);
  if (st) goto done;
  HP_TRY_GOTO(tie_pairs(m, &x), st);
  x.problem.effort = o->effort ? o->effort : OFFSETS_EFFORT;
  x.problem.byte_effort = OFFSETS_BYTE_EFFORT;
  x.problem.limit[TIER_DEVICE] = o->limit;
  x.problem.tight[TIER_DEVICE] = o->tight;
  x.problem.must_fit[TIER_DEVICE] = o->must_fit;
  for (int t = TIER_DEVICE + 1; t < TIER_COUNT; t++) /* large: the first plan is good enough */
    x.problem.limit[t] = OFFSETS_MAX_BYTES;
  HP_TRY_GOTO(offsets_kept_assign(o->kept, &x.problem, x.offset, s), st);
  for (size_t i = 0; i < x.problem.n; i++) offset[x.index[i]] = x.offset[i];
done:
  placement_free(&x);
  return st;
}

/* Can segments be placed each by itself?  Not where streams overlap them, or buffers have offsets
 * that other runs know. */
static bool has_segments(const planner *m) {
  bool carries = false;
  for (size_t b = 0; b < m->p->buffers.len; b++) carries |= m->p->buffers.at[b].carries != 0;
  return m->streams == 1 && !carries;
}

static hp_status assign(const planner *m, const memory_options *o) {
  program *p = m->p;
  offsets_summary s = {0};
  const buffer_lives lives = {p, m->first, m->last, m->alias, m->aliases};
  bool good = false;
  uint64_t *offset = mem_calloc(p->buffers.len, sizeof *offset);
  hp_status st = offset ? HP_OK : HP_ERR_OOM;
  if (!st && has_segments(m)) st = segments_assign(&lives, o->kept, o->limit, offset, &s, &good);
  if (!st && !good) st = assign_together(m, o, offset, &s);
  for (size_t i = 0; !st && i < p->buffers.len; i++) {
    prog_buffer *f = &p->buffers.at[i];
    if (f->place == PLACE_WORK && f->root == i) f->offset = offset[i];
  }
  for (size_t i = 0; !st && i < p->buffers.len; i++)
    p->buffers.at[i].offset = p->buffers.at[p->buffers.at[i].root].offset + p->buffers.at[i].at;
  for (int t = 0; !st && t < TIER_COUNT; t++) {
    p->arena[t] = s.peak[t];
    p->bound[t] = s.bound[t];
    p->bound_at[t] = s.bound_at[t];
  }
  mem_free(offset);
  return st;
}

static void planner_free(planner *m) {
  vclock_free(&m->clock);
  mem_free(m->first);
  mem_free(m->last);
  mem_free(m->alias);
  mem_free(m->use0);
  mem_free(m->use);
}

/* A stream without instructions defines nothing, so no buffer has to outlive it. */
static void find_streams(planner *m) {
  bool used[STREAM_COUNT] = {false};
  for (size_t i = 0; i < m->p->insts.len; i++) used[m->p->insts.at[i].stream] = true;
  for (uint32_t s = 0; s < STREAM_COUNT; s++) {
    if (!used[s]) continue;
    m->streams = s + 1;
    m->place[s] = m->used;
    m->used_stream[m->used++] = s;
  }
}

/* Lifetimes and uses.  The caller frees *m, also on failure. */
static hp_status planner_make(program *p, planner *m) {
  *m = (planner){.p = p, .streams = 1};
  size_t n = p->buffers.len;
  m->first = mem_calloc(n, sizeof *m->first);
  m->last = mem_calloc(n, sizeof *m->last);
  m->alias = mem_calloc(n, sizeof *m->alias);
  HP_TRY_MEM(m->first && m->last && m->alias);
  find_streams(m);
  HP_TRY(find_uses(p, &m->use0, &m->use));
  if (m->streams > 1) HP_TRY(program_clock(p, m->streams, &m->clock));
  find_lifetimes(m);
  return HP_OK;
}

hp_status plan_memory(program *p, const uint64_t *workspace, const memory_options *o) {
  planner m;
  HP_TRY(add_workspaces(p, workspace));
  hp_status st = planner_make(p, &m);
  if (!st) find_aliases(&m, false);
  if (!st) st = assign(&m, o);
  planner_free(&m);
  return st;
}

hp_status verify_memory(program *p) {
  planner m;
  placement x = {0};
  hp_status st = planner_make(p, &m);
  if (!st) find_aliases(&m, true);
  if (!st) st = placement_make(&m, true, &x);
  if (!st) st = offsets_verify(&x.problem, x.offset);
  placement_free(&x);
  planner_free(&m);
  return st;
}
