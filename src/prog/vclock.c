#include "prog/vclock.h"

#include "base/str.h"

#include <string.h>

const char *stream_name(uint32_t stream) {
  static const char *const name[STREAM_MAX] = {"compute",  "comm",      "copy_in", "copy_out",
                                               "flash_in", "flash_out", "p2p",     "host"};
  return stream < STREAM_MAX ? name[stream] : "no stream";
}

void vclock_free(vclock *v) {
  mem_free(v->stream);
  mem_free(v->position);
  mem_free(v->rank);
  mem_free(v->before);
  mem_free(v->after);
  mem_free(v->at[0]); /* one block, cut into streams */
  *v = (vclock){0};
}

static hp_status allocate(const vclock_program *p, vclock *v) {
  v->n = p->n;
  v->streams = p->streams;
  v->stream = mem_calloc(p->n, sizeof *v->stream);
  v->position = mem_calloc(p->n, sizeof *v->position);
  v->rank = mem_calloc(p->n, sizeof *v->rank);
  v->before = mem_calloc(p->n * p->streams, sizeof *v->before);
  v->after = mem_calloc(p->n * p->streams, sizeof *v->after);
  v->at[0] = mem_calloc(p->n, sizeof *v->at[0]);
  bool ok = v->stream && v->position && v->rank && v->before && v->after && v->at[0];
  return ok ? HP_OK : HP_ERR_OOM;
}

/* Positions on streams, and the instruction at each. */
static hp_status place(const vclock_program *p, vclock *v) {
  for (size_t i = 0; i < p->n; i++) {
    if (p->stream[i] >= p->streams)
      HP_FAIL(HP_ERR_ARG, "instruction %zu is on stream %u; the program has streams 0..%u", i,
              p->stream[i], p->streams - 1);
    v->stream[i] = p->stream[i];
    v->position[i] = v->length[p->stream[i]]++;
  }
  for (uint32_t s = 1; s < p->streams; s++) v->at[s] = v->at[s - 1] + v->length[s - 1];
  for (size_t i = 0; i < p->n; i++) v->at[v->stream[i]][v->position[i]] = (uint32_t)i;
  return HP_OK;
}

static hp_status check_waits(const vclock_program *p, const vclock *v) {
  if (p->n && p->wait0[0] != 0)
    HP_FAIL(HP_ERR_ARG, "waits of instruction 0 start at %u, want 0", p->wait0[0]);
  for (size_t i = 0; i < p->n; i++) {
    if (p->wait0[i + 1] < p->wait0[i])
      HP_FAIL(HP_ERR_ARG, "waits of instruction %zu end at %u, before their start %u", i,
              p->wait0[i + 1], p->wait0[i]);
    for (uint32_t k = p->wait0[i]; k < p->wait0[i + 1]; k++) {
      vclock_wait w = p->wait[k];
      if (w.stream >= p->streams)
        HP_FAIL(HP_ERR_ARG, "instruction %zu waits for stream %u; the program has streams 0..%u", i,
                w.stream, p->streams - 1);
      if (w.position >= v->length[w.stream])
        HP_FAIL(
            HP_ERR_ARG,
            "instruction %zu (%s %u) waits for %s %u, which never comes: %s has %u instructions", i,
            stream_name(v->stream[i]), v->position[i], stream_name(w.stream), w.position,
            stream_name(w.stream), v->length[w.stream]);
    }
  }
  return HP_OK;
}

/* Where the streams stand while the program is walked: the next position of each, and how many
 * waits of the instruction there are already met. */
typedef struct {
  uint32_t head[STREAM_MAX], met[STREAM_MAX];
} front;

/* Whether the next instruction of a stream has all that it waits for. */
static bool ready(const vclock_program *p, const vclock *v, front *f, uint32_t s) {
  uint32_t i = v->at[s][f->head[s]];
  for (uint32_t k = p->wait0[i] + f->met[s]; k < p->wait0[i + 1]; k++, f->met[s]++)
    if (p->wait[k].position >= f->head[p->wait[k].stream]) return false;
  return true;
}

/* Names the ring of instructions that wait for one another. */
static hp_status fail_deadlock(const vclock_program *p, const vclock *v, const front *f) {
  uint32_t s = 0, seen = 0;
  while (f->head[s] == v->length[s]) s++;
  /* the wait that holds the head of a stream leads to a stream that is held too: follow them until
     one comes round, then once around that ring */
  while (!(seen >> s & 1)) {
    seen |= 1u << s;
    uint32_t i = v->at[s][f->head[s]];
    s = p->wait[p->wait0[i] + f->met[s]].stream;
  }
  str text = {0};
  uint32_t start = s;
  do {
    uint32_t i = v->at[s][f->head[s]];
    vclock_wait w = p->wait[p->wait0[i] + f->met[s]];
    str_printf(&text, "%sinstruction %u (%s %u) waits for instruction %u (%s %u)",
               text.len ? "; " : "", i, stream_name(s), v->position[i], v->at[w.stream][w.position],
               stream_name(w.stream), w.position);
    s = w.stream;
  } while (s != start);
  hp_status st = str_status(&text);
  if (!st)
    st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                 "the program can never finish: %s; streams run in list order, so move a wait or "
                 "an instruction",
                 text.at);
  str_free(&text);
  return st;
}

/* before[i]: what the instruction before it on its stream knew, that instruction, and what its
 * waits bring. */
static void join(const vclock_program *p, vclock *v, uint32_t i) {
  uint32_t streams = v->streams, s = v->stream[i];
  uint32_t *b = v->before + (size_t)i * streams;
  if (v->position[i])
    memcpy(b, v->before + (size_t)v->at[s][v->position[i] - 1] * streams, streams * sizeof *b);
  b[s] = v->position[i];
  for (uint32_t k = p->wait0[i]; k < p->wait0[i + 1]; k++) {
    vclock_wait w = p->wait[k];
    if (b[w.stream] > w.position) continue; /* known already, with all that it knew */
    const uint32_t *o = v->before + (size_t)v->at[w.stream][w.position] * streams;
    for (uint32_t t = 0; t < streams; t++)
      if (o[t] > b[t]) b[t] = o[t];
    if (b[w.stream] <= w.position) b[w.stream] = w.position + 1;
  }
}

/* Walks the program in an order that it can be run in, always the lowest ready instruction. */
static hp_status walk(const vclock_program *p, vclock *v) {
  front f = {0};
  for (size_t done = 0; done < p->n; done++) {
    uint32_t best = UINT32_MAX;
    for (uint32_t s = 0; s < p->streams; s++) {
      if (f.head[s] == v->length[s]) continue;
      uint32_t i = v->at[s][f.head[s]];
      if (i < best && ready(p, v, &f, s)) best = i;
    }
    if (best == UINT32_MAX) return fail_deadlock(p, v, &f);
    join(p, v, best);
    v->rank[best] = (uint32_t)done;
    f.head[v->stream[best]]++;
    f.met[v->stream[best]] = 0;
  }
  return HP_OK;
}

/* Clocks only grow along a stream, so one pass over each pair of streams finds every `after`. */
static void look_ahead(vclock *v) {
  for (uint32_t t = 0; t < v->streams; t++)
    for (uint32_t s = 0; s < v->streams; s++) {
      uint32_t p = 0;
      for (uint32_t q = 0; q < v->length[t]; q++) {
        while (p < v->length[s] && v->before[(size_t)v->at[s][p] * v->streams + t] <= q) p++;
        v->after[(size_t)v->at[t][q] * v->streams + s] = p < v->length[s] ? p : VCLOCK_NEVER;
      }
    }
}

hp_status vclock_build(const vclock_program *p, vclock *out) {
  if (p->streams < 1 || p->streams > STREAM_MAX)
    HP_FAIL(HP_ERR_ARG, "a program of %u streams: 1 to %d are possible", p->streams, STREAM_MAX);
  if (p->n >= UINT32_MAX) HP_FAIL(HP_ERR_ARG, "a program of %zu instructions is too long", p->n);
  vclock v = {0};
  hp_status st;
  HP_TRY_GOTO(allocate(p, &v), st);
  HP_TRY_GOTO(place(p, &v), st);
  HP_TRY_GOTO(check_waits(p, &v), st);
  HP_TRY_GOTO(walk(p, &v), st);
  look_ahead(&v);
  *out = v;
  return HP_OK;
done:
  vclock_free(&v);
  return st;
}

void vclock_prune(const vclock_program *p, const vclock *v, uint32_t *wait0_out,
                  vclock_wait *wait_out) {
  uint32_t streams = v->streams, n_out = 0;
  wait0_out[0] = 0;
  for (size_t i = 0; i < v->n; i++) {
    uint32_t s = v->stream[i], want[STREAM_MAX] = {0}; /* a stream's instructions to wait for */
    for (uint32_t k = p->wait0[i]; k < p->wait0[i + 1]; k++) {
      vclock_wait w = p->wait[k];
      if (w.position + 1 > want[w.stream]) want[w.stream] = w.position + 1;
    }
    want[s] = 0; /* its own stream is in order anyway */
    const uint32_t *known =
        v->position[i] ? v->before + (size_t)v->at[s][v->position[i] - 1] * streams : NULL;
    bool implied[STREAM_MAX] = {0};
    for (uint32_t t = 0; t < streams; t++) {
      if (!want[t]) continue;
      implied[t] = known && known[t] >= want[t];
      for (uint32_t u = 0; u < streams && !implied[t]; u++)
        implied[t] =
            want[u] && u != t && v->before[(size_t)v->at[u][want[u] - 1] * streams + t] >= want[t];
    }
    for (uint32_t t = 0; t < streams; t++)
      if (want[t] && !implied[t]) wait_out[n_out++] = (vclock_wait){t, want[t] - 1};
    wait0_out[i + 1] = n_out;
  }
}

void vclock_dead(const vclock *v, const uint32_t *use, size_t n, uint32_t *dead) {
  for (uint32_t s = 0; s < v->streams; s++) {
    uint32_t p = 0;
    for (size_t k = 0; k < n && p != VCLOCK_NEVER; k++) {
      uint32_t a = v->after[(size_t)use[k] * v->streams + s];
      if (a > p) p = a;
    }
    dead[s] = p < v->length[s] ? v->rank[v->at[s][p]] : VCLOCK_NEVER;
  }
}
