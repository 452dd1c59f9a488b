/* Time and gap of the offset planner on layered programs that look like training steps.
 *
 *   cc -std=c11 -D_GNU_SOURCE -O2 -Iinclude -Isrc bench/offsets_bench.c build/libhyperparallel.a \
 *      $(pkg-config --libs jansson yaml-0.1 libpcre2-8 libutf8proc libxxhash cairo) -lm -lpthread
 * -ldl \ -o build/offsets-bench && build/offsets-bench [buffers]...
 *
 * One line a program: buffers, streams, lower bound, peak, gap of the two, time to plan and to
 * verify.  The limit next to the gap is the bound itself: no plan is below it. */
#include "base/mem.h"
#include "base/thread.h"
#include "mem/offsets.h"
#include "prog/vclock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USES = 4 };

/* A program under construction: every instruction makes one buffer. */
typedef struct {
  size_t n, cap;
  uint32_t streams;
  uint8_t *stream;
  uint32_t *wait0;
  vclock_wait *wait;
  offsets_buffer *buffer;
  uint32_t (*use)[USES];
  uint32_t *n_use, *position, length[STREAM_MAX];
  uint64_t state;
} maker;

static uint32_t draw(maker *m, uint32_t below) {
  m->state = m->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(m->state >> 33) % below;
}

/* An instruction on a stream that reads up to three buffers and makes one of `size` bytes. */
static uint32_t make(maker *m, uint8_t stream, uint64_t size, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t i = (uint32_t)m->n++, in[] = {a, b, c};
  if (i >= m->cap) exit(1);
  m->stream[i] = (uint8_t)(m->streams > 1 ? stream : 0);
  m->position[i] = m->length[m->stream[i]]++;
  m->wait0[i + 1] = m->wait0[i];
  m->buffer[i] = (offsets_buffer){.size = size, .first = i, .last = i, .stream = m->stream[i]};
  m->use[i][m->n_use[i]++] = i;
  for (int k = 0; k < 3; k++) {
    uint32_t v = in[k];
    if (v == UINT32_MAX) continue;
    m->buffer[v].last = i;
    if (m->n_use[v] < USES) m->use[v][m->n_use[v]++] = i;
    else
      m->use[v][USES - 1] = i; /* uses come in order on the compute stream: the last one counts */
    if (m->stream[v] != m->stream[i])
      m->wait[m->wait0[i + 1]++] = (vclock_wait){m->stream[v], m->position[v]};
  }
  return i;
}

#define NONE UINT32_MAX

/* Forward through the layers, then backward; parameters are gathered before use and gradients are
 * reduced after it, both on the comm stream; sizes differ from layer to layer as with uneven
 * experts, heads and modalities. */
static void training_step(maker *m, size_t n) {
  enum { FORWARD = 8, BACKWARD = 9 };
  uint32_t layers = (uint32_t)(n / (FORWARD + BACKWARD + 3)) + 1;
  uint32_t(*saved)[5] = calloc(layers, sizeof *saved);
  uint64_t(*size)[4] = calloc(layers, sizeof *size);
  if (!saved || !size) exit(1);
  uint32_t x = make(m, STREAM_COPY_IN, 1 << 20, NONE, NONE, NONE);
  for (uint32_t l = 0; l < layers; l++) {
    uint64_t tokens = 256 + 64 * draw(m, 8), width = 256 * (1 + draw(m, 4));
    size[l][0] = tokens * width * 2, size[l][1] = tokens * width * 8;
    size[l][2] = tokens * tokens * 4, size[l][3] = width * width * 2;
    uint32_t w = make(m, STREAM_COMM, size[l][3], NONE, NONE, NONE);
    uint32_t norm = make(m, STREAM_COMPUTE, size[l][0], x, NONE, NONE);
    uint32_t qkv = make(m, STREAM_COMPUTE, size[l][0] * 3, norm, w, NONE);
    uint32_t score = make(m, STREAM_COMPUTE, size[l][2], qkv, NONE, NONE);
    uint32_t attn = make(m, STREAM_COMPUTE, size[l][0], score, qkv, NONE);
    uint32_t up = make(m, STREAM_COMPUTE, size[l][1], attn, w, NONE);
    uint32_t act = make(m, STREAM_COMPUTE, size[l][1], up, NONE, NONE);
    uint32_t y = make(m, STREAM_COMPUTE, size[l][0], act, x, w);
    if (draw(m, 2)) make(m, STREAM_COPY_OUT, 4096, y, NONE, NONE);
    memcpy(saved[l], (uint32_t[]){x, norm, qkv, attn, up}, sizeof *saved);
    x = y;
  }
  uint32_t g = make(m, STREAM_COMPUTE, 1 << 22, x, NONE, NONE);
  for (uint32_t l = layers; l-- > 0;) {
    const uint32_t *s = saved[l];
    uint32_t w = make(m, STREAM_COMM, size[l][3], NONE, NONE, NONE);
    uint32_t gup = make(m, STREAM_COMPUTE, size[l][1], g, w, s[4]);
    uint32_t gw = make(m, STREAM_COMPUTE, size[l][3], gup, s[3], NONE);
    uint32_t gattn = make(m, STREAM_COMPUTE, size[l][0], gup, w, NONE);
    uint32_t gscore = make(m, STREAM_COMPUTE, size[l][2], gattn, s[2], NONE);
    uint32_t gqkv = make(m, STREAM_COMPUTE, size[l][0] * 3, gscore, gattn, s[2]);
    uint32_t gw2 = make(m, STREAM_COMPUTE, size[l][3], gqkv, s[1], gw);
    uint32_t gnorm = make(m, STREAM_COMPUTE, size[l][0], gqkv, w, s[0]);
    make(m, STREAM_COMM, size[l][3] / 8, gw2, NONE, NONE);
    g = make(m, STREAM_COMPUTE, size[l][0], gnorm, g, NONE);
  }
  free(saved);
  free(size);
}

static hp_status bench(size_t n, uint32_t streams) {
  size_t cap = n + 200;
  maker m = {.cap = cap, .streams = streams, .state = 12345};
  m.stream = calloc(cap, 1), m.wait0 = calloc(cap + 1, sizeof *m.wait0);
  m.wait = calloc(3 * cap, sizeof *m.wait), m.buffer = calloc(cap, sizeof *m.buffer);
  m.use = calloc(cap, sizeof *m.use), m.n_use = calloc(cap, sizeof *m.n_use);
  m.position = calloc(cap, sizeof *m.position);
  uint64_t *offset = calloc(cap, sizeof *offset);
  uint32_t *dead = calloc(cap * streams, sizeof *dead);
  if (!m.stream || !m.wait0 || !m.wait || !m.buffer || !m.use || !m.n_use || !m.position ||
      !offset || !dead)
    return HP_ERR_OOM;
  training_step(&m, n);
  vclock v;
  double t0 = time_now_s();
  HP_TRY(vclock_build(&(vclock_program){m.n, streams, m.stream, m.wait0, m.wait}, &v));
  for (size_t i = 0; i < m.n; i++) vclock_dead(&v, m.use[i], m.n_use[i], dead + i * streams);
  double t1 = time_now_s();
  offsets_problem p = {.buffer = m.buffer,
                       .n = m.n,
                       .streams = streams,
                       .dead = dead,
                       .effort = OFFSETS_EFFORT};
  offsets_summary s;
  HP_TRY(offsets_assign(&p, offset, &s));
  double t2 = time_now_s();
  HP_TRY(offsets_verify(&p, offset));
  double t3 = time_now_s();
  printf("%8zu %8u %14llu %14llu %8.3f %10.1f %10.1f %10.1f\n", m.n, streams,
         (unsigned long long)s.bound[0], (unsigned long long)s.peak[0],
         100.0 * (double)s.peak[0] / (double)s.bound[0] - 100, 1e3 * (t1 - t0), 1e3 * (t2 - t1),
         1e3 * (t3 - t2));
  vclock_free(&v);
  free(m.stream), free(m.wait0), free(m.wait), free(m.buffer), free(m.use), free(m.n_use);
  free(m.position), free(offset), free(dead);
  return HP_OK;
}

int main(int argc, char **argv) {
  static const size_t standard[] = {1000, 10000, 60000};
  printf("%8s %8s %14s %14s %8s %10s %10s %10s\n", "buffers", "streams", "bound_bytes",
         "peak_bytes", "gap_%", "clocks_ms", "plan_ms", "verify_ms");
  for (uint32_t streams = 1; streams <= 4; streams += 3)
    for (int i = 0; i < (argc > 1 ? argc - 1 : 3); i++) {
      size_t n = argc > 1 ? (size_t)strtoull(argv[i + 1], NULL, 10) : standard[i];
      if (bench(n, streams)) {
        fprintf(stderr, "offsets-bench: %s\n", err_message());
        return 1;
      }
    }
  return 0;
}
