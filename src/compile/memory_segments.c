#include "compile/memory_segments.h"

#include "base/hash.h"
#include "base/vec.h"

#include <string.h>

enum {
  SHARED = 0,  /* `own` of a buffer that is live in several segments */
  FEW = 256,   /* without a limit those may take one part in FEW of all memory, */
  CLOSE = 1024 /* or a plan be one part in CLOSE above the lower bound */
};

typedef struct {
  const buffer_lives *l;
  VEC(uint32_t) begin;  /* of each segment: its first instruction; then the end of the last */
  uint32_t *segment_of; /* by instruction */
  uint32_t *own;        /* by buffer: 1 + the segment in which it is live, or SHARED */
  uint32_t *like;       /* by segment: one before it with the same instructions and lives; itself */
  uint32_t *pair;       /* by buffer of such a segment: the one in its place there */
  uint32_t *group_own, *group_pair, *group_back; /* by alias group: as own and pair, and back */
  uint32_t *group_number;                        /* and its number among those of its owner */
  uint64_t *offset;
  uint32_t *listed0, *listed; /* buffers by segment; those that are shared come first */
  uint64_t base[TIER_COUNT];  /* bytes of shared buffers */
  offsets_summary sum;
} segments;

static bool is_planned(const program *p, uint32_t b) {
  return p->buffers.at[b].place == PLACE_WORK && p->buffers.at[b].root == b;
}

static size_t count(const segments *s) { return s->begin.len - 1; }

/* --- segments and what is live in one of them --------------------------------------------------
 */

static hp_status find_segments(segments *s) {
  const program *p = s->l->p;
  for (uint32_t i = 0; i < p->insts.len; i++) {
    bool starts = !i || p->insts.at[i].micro != p->insts.at[i - 1].micro;
    if (starts && !vec_push(&s->begin, i)) return HP_ERR_OOM;
  }
  return vec_push(&s->begin, (uint32_t)p->insts.len) ? HP_OK : HP_ERR_OOM;
}

static hp_status make_tables(segments *s) {
  const program *p = s->l->p;
  size_t buffers = p->buffers.len, groups = s->l->aliases + (size_t)1;
  s->segment_of = mem_calloc(p->insts.len, sizeof *s->segment_of);
  s->own = mem_calloc(buffers, sizeof *s->own);
  s->like = mem_calloc(count(s), sizeof *s->like);
  s->pair = mem_calloc(buffers, sizeof *s->pair);
  s->group_own = mem_calloc(groups, sizeof *s->group_own);
  s->group_pair = mem_calloc(groups, sizeof *s->group_pair);
  s->group_back = mem_calloc(groups, sizeof *s->group_back);
  s->group_number = mem_calloc(groups, sizeof *s->group_number);
  s->listed0 = mem_calloc(count(s) + 3, sizeof *s->listed0);
  s->listed = mem_calloc(buffers, sizeof *s->listed);
  bool made = s->segment_of && s->own && s->like && s->pair && s->group_own && s->group_pair &&
              s->group_back && s->group_number && s->listed0 && s->listed;
  return made ? HP_OK : HP_ERR_OOM;
}

static void segments_free(segments *s) {
  vec_free(&s->begin);
  mem_free(s->segment_of);
  mem_free(s->own);
  mem_free(s->like);
  mem_free(s->pair);
  mem_free(s->group_own);
  mem_free(s->group_pair);
  mem_free(s->group_back);
  mem_free(s->group_number);
  mem_free(s->listed0);
  mem_free(s->listed);
}

/* A group of buffers at one offset is live in one segment, or shared as a whole. */
static void find_owners(segments *s) {
  const buffer_lives *l = s->l;
  const program *p = l->p;
  for (uint32_t k = 0; k < count(s); k++)
    for (uint32_t i = s->begin.at[k]; i < s->begin.at[k + 1]; i++) s->segment_of[i] = k;
  memset(s->group_own, 0xff, (l->aliases + (size_t)1) * sizeof *s->group_own);
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    if (!is_planned(p, b)) continue;
    uint32_t k = s->segment_of[l->first[b]], *group = &s->group_own[l->alias[b]];
    s->own[b] = k == s->segment_of[l->last[b]] ? k + 1 : SHARED;
    if (l->alias[b]) *group = *group == PROG_NONE || *group == s->own[b] ? s->own[b] : SHARED;
  }
  for (uint32_t b = 0; b < p->buffers.len; b++)
    if (is_planned(p, b) && l->alias[b]) s->own[b] = s->group_own[l->alias[b]];
}

/* Buffers by segment, in their order. */
static void list_buffers(segments *s) {
  const program *p = s->l->p;
  for (int fill = 0; fill < 2; fill++) {
    for (uint32_t b = 0; b < p->buffers.len; b++) {
      if (!is_planned(p, b)) continue;
      if (fill) s->listed[s->listed0[s->own[b] + 1]++] = b;
      else s->listed0[s->own[b] + 2]++;
    }
    for (size_t k = 0; !fill && k <= count(s); k++) s->listed0[k + 2] += s->listed0[k + 1];
  }
}

/* --- segments that are alike -------------------------------------------------------------------
 */

/* Groups of two such segments stand for each other, one for one. */
static bool match_groups(segments *s, uint32_t k, uint32_t h, uint32_t g) {
  if (!g || !h) return g == h;
  if (!s->group_pair[g]) {
    if (s->group_own[s->group_back[h]] == k + 1) return false;
    s->group_pair[g] = h;
    s->group_back[h] = g;
  }
  return s->group_pair[g] == h && s->group_back[h] == g;
}

/* Does b of segment k stand where a stands in segment t? */
static bool match_buffers(segments *s, uint32_t t, uint32_t k, uint32_t a, uint32_t b) {
  const buffer_lives *l = s->l;
  const prog_buffer *x = &l->p->buffers.at[a], *y = &l->p->buffers.at[b];
  uint32_t later = s->begin.at[k] - s->begin.at[t];
  if (s->own[b] != k + 1) return s->own[a] != t + 1; /* its offset is not the segment's */
  if (s->pair[b]) return s->pair[b] == a + 1;
  s->pair[b] = a + 1;
  return s->own[a] == t + 1 && x->bytes == y->bytes && x->tier == y->tier &&
         l->first[b] == l->first[a] + later && l->last[b] == l->last[a] + later &&
         match_groups(s, k, l->alias[a], l->alias[b]);
}

static bool match_insts(segments *s, uint32_t t, uint32_t k) {
  const program *p = s->l->p;
  uint32_t n = s->begin.at[t + 1] - s->begin.at[t];
  for (uint32_t i = 0; i < n; i++) {
    const prog_inst *x = program_inst(p, s->begin.at[t] + i);
    const prog_inst *y = program_inst(p, s->begin.at[k] + i);
    bool works = x->workspace != PROG_NONE;
    if (x->kernel != y->kernel || x->n_in != y->n_in || x->n_out != y->n_out) return false;
    if (works != (y->workspace != PROG_NONE)) return false;
    for (int j = 0; j < x->n_in + x->n_out; j++)
      if (!match_buffers(s, t, k, program_arg(p, x, j)->root, program_arg(p, y, j)->root))
        return false;
    if (works && !match_buffers(s, t, k, x->workspace, y->workspace)) return false;
  }
  return true;
}

/* All buffers of segment k stand for one of segment t: none is without use. */
static bool has_pairs(const segments *s, uint32_t k) {
  for (uint32_t j = s->listed0[k + 1]; j < s->listed0[k + 2]; j++)
    if (!s->pair[s->listed[j]]) return false;
  return true;
}

static hp_status find_alike(segments *s) {
  map seen = {0};
  hp_status st = HP_OK;
  for (uint32_t k = 0; !st && k < count(s); k++) {
    uint32_t begin = s->begin.at[k], t;
    const uint32_t key[] = {s->l->p->insts.at[begin].kernel, s->begin.at[k + 1] - begin};
    s->like[k] = k;
    if (!map_get(&seen, key, sizeof key, &t)) st = map_set(&seen, key, sizeof key, k);
    else if (match_insts(s, t, k) && has_pairs(s, k)) s->like[k] = t;
  }
  map_free(&seen);
  return st;
}

/* --- offsets ---------------------------------------------------------------------------------- */

/* Buffers of one owner as a problem of their own, in numbers that do not depend on where it is in
 * the step; offsets above `base`. */
static hp_status assign_owned(segments *s, uint32_t own, offsets_kept *kept, const uint64_t *base,
                              uint64_t most[TIER_COUNT]) {
  const buffer_lives *l = s->l;
  const uint32_t *listed = s->listed + s->listed0[own];
  uint32_t begin = own == SHARED ? 0 : s->begin.at[own - 1], groups = 0;
  size_t n = s->listed0[own + 1] - s->listed0[own];
  offsets_summary sum = {0};
  offsets_buffer *buffer = mem_calloc(n, sizeof *buffer);
  uint64_t *offset = mem_calloc(n, sizeof *offset);
  hp_status st = buffer && offset ? HP_OK : HP_ERR_OOM;
  for (size_t j = 0; !st && j < n; j++) {
    uint32_t b = listed[j], g = l->alias[b];
    if (g && !s->group_number[g]) s->group_number[g] = ++groups;
    buffer[j] = (offsets_buffer){.size = l->p->buffers.at[b].bytes,
                                 .tier = l->p->buffers.at[b].tier,
                                 .first = l->first[b] - begin,
                                 .last = l->last[b] - begin,
                                 .alias = s->group_number[g]};
  }
  const offsets_problem q = {.buffer = buffer, .n = n, .effort = 1};
  if (!st) st = offsets_kept_assign(kept, &q, offset, &sum);
  for (size_t j = 0; !st && j < n; j++)
    s->offset[listed[j]] = offset[j] + (base ? base[buffer[j].tier] : 0);
  for (int t = 0; t < TIER_COUNT; t++)
    if (sum.peak[t] > most[t]) most[t] = sum.peak[t];
  mem_free(buffer);
  mem_free(offset);
  return st;
}

/* Of other segments' memory nothing is in use while one of them runs. */
static hp_status assign_all(segments *s, offsets_kept *kept) {
  uint64_t most[TIER_COUNT] = {0};
  HP_TRY(assign_owned(s, SHARED, NULL, NULL, s->base));
  for (uint32_t k = 0; k < count(s); k++) {
    uint32_t from = s->listed0[k + 1], to = s->listed0[k + 2];
    if (s->like[k] == k) HP_TRY(assign_owned(s, k + 1, kept, s->base, most));
    else
      for (uint32_t j = from; j < to; j++)
        s->offset[s->listed[j]] = s->offset[s->pair[s->listed[j]] - 1];
  }
  for (int t = 0; t < TIER_COUNT; t++) s->sum.peak[t] = s->base[t] + most[t];
  return HP_OK;
}

/* By tier and instruction: bytes that begin to be live there minus those that end before it, modulo
 * 2^64. */
typedef struct {
  uint64_t *by[TIER_COUNT];
} live_changes;

/* A group of buffers at one offset counts once, from its first definition to its last use. */
typedef struct {
  uint64_t bytes;
  uint32_t first, last;
  uint8_t tier;
} group_life;

static void add_life(live_changes *c, const group_life *x) {
  uint64_t size = (x->bytes + OFFSETS_ALIGN - 1) / OFFSETS_ALIGN * OFFSETS_ALIGN;
  c->by[x->tier][x->first] += size;
  c->by[x->tier][x->last + 1] -= size;
}

static void add_lives(const segments *s, group_life *group, live_changes *c) {
  const buffer_lives *l = s->l;
  for (uint32_t b = 0; b < l->p->buffers.len; b++) {
    const prog_buffer *f = &l->p->buffers.at[b];
    group_life one = {f->bytes, l->first[b], l->last[b], f->tier}, *g = &group[l->alias[b]];
    if (!is_planned(l->p, b)) continue;
    if (!l->alias[b]) add_life(c, &one);
    else if (!g->bytes) *g = one;
    else {
      if (one.bytes > g->bytes) g->bytes = one.bytes;
      if (one.first < g->first) g->first = one.first;
      if (one.last > g->last) g->last = one.last;
    }
  }
  for (uint32_t g = 1; g <= l->aliases; g++)
    if (group[g].bytes) add_life(c, &group[g]);
}

/* Most bytes that are live at once: a lower bound. */
static hp_status find_bounds(segments *s) {
  size_t n = s->l->p->insts.len;
  live_changes c = {{NULL}};
  group_life *group = mem_calloc(s->l->aliases + (size_t)1, sizeof *group);
  hp_status st = group ? HP_OK : HP_ERR_OOM;
  for (int t = 0; t < TIER_COUNT; t++) {
    c.by[t] = mem_calloc(n + 1, sizeof *c.by[t]);
    if (!c.by[t]) st = HP_ERR_OOM;
  }
  if (!st) add_lives(s, group, &c);
  for (int t = 0; !st && t < TIER_COUNT; t++) {
    uint64_t now = 0;
    for (uint32_t i = 0; i < n; i++) {
      now += c.by[t][i];
      if (now <= s->sum.bound[t]) continue;
      s->sum.bound[t] = now;
      s->sum.bound_at[t] = i;
    }
  }
  for (int t = 0; t < TIER_COUNT; t++) mem_free(c.by[t]);
  mem_free(group);
  return st;
}

static bool is_good(const segments *s, uint64_t limit) {
  for (int t = 0; t < TIER_COUNT; t++) {
    uint64_t bound = s->sum.bound[t];
    if (s->sum.peak[t] > OFFSETS_MAX_BYTES) return false;
    if (s->sum.peak[t] > bound + bound / CLOSE && s->base[t] > bound / FEW) return false;
  }
  return !limit || s->sum.peak[TIER_DEVICE] <= limit;
}

hp_status segments_assign(const buffer_lives *l, offsets_kept *kept, uint64_t limit,
                          uint64_t *offset, offsets_summary *out, bool *good) {
  segments s = {.l = l, .offset = offset};
  *good = false;
  hp_status st = find_segments(&s);
  if (!st && s.begin.len > 2) {
    st = make_tables(&s);
    if (!st) find_owners(&s);
    if (!st) list_buffers(&s);
    if (!st) st = find_alike(&s);
    if (!st) st = assign_all(&s, kept);
    if (!st) st = find_bounds(&s);
    *good = !st && is_good(&s, limit);
    if (*good) *out = s.sum;
  }
  segments_free(&s);
  return st;
}
