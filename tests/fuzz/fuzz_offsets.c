/* Any bytes as a planning problem: header {streams, flags}, then 12 bytes a buffer.  A plan that is
 * made must verify, and stay at or above its lower bound. */
#include "fuzz.h"

#include "base/mem.h"
#include "mem/offsets.h"

enum { ROW = 12, MOST = 256 };

/* The last byte of a row tuning how wild its numbers are. */
static offsets_buffer read_buffer(const uint8_t *b) {
  uint8_t wild = b[11];
  offsets_buffer r = {.size = (uint64_t)b[0] << (wild & 1 ? b[1] % 64 : b[1] % 8),
                      .align = wild & 2 ? b[2] : UINT64_C(1) << (b[2] % 10),
                      .offset = (uint64_t)b[3] << (wild & 4 ? b[4] % 64 : 10),
                      .fixed = b[5] % 4 == 0,
                      .tier = wild & 8 ? b[5] : (uint8_t)(b[5] / 64),
                      .stream = wild & 16 ? b[6] : 0,
                      .first = b[7],
                      .last = b[7] + (uint32_t)b[8] % 32,
                      .alias = b[9] % 16 ? 0 : b[10],
                      .tie = wild & 128 ? b[10] : 0};
  if (wild & 32) r.last = (uint32_t)b[8] << (b[7] % 32);
  return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  if (n < 2) return 0;
  offsets_problem p = {.n = (n - 2) / ROW, .streams = bytes[0] % 10, .effort = 200000};
  if (p.n > MOST) p.n = MOST;
  if (bytes[1] & 1) p.limit[0] = (uint64_t)bytes[1] << 6;
  p.tight[0] = bytes[1] & 2;
  uint32_t streams = p.streams ? p.streams : 1;
  offsets_buffer *buffer = mem_calloc(p.n, sizeof *buffer);
  uint32_t *dead = mem_calloc(p.n * streams, sizeof *dead);
  uint64_t *offset = mem_calloc(p.n, sizeof *offset);
  HP_ASSERT(buffer && dead && offset);
  for (size_t i = 0; i < p.n; i++) {
    const uint8_t *row = bytes + 2 + i * ROW;
    buffer[i] = read_buffer(row);
    if (buffer[i].stream == 0) buffer[i].stream = (uint8_t)(row[6] % streams);
    for (uint32_t s = 0; s < streams; s++) {
      uint32_t late = (row[10] >> s & 1) ? row[9] : 0;
      dead[i * streams + s] = row[10] == 255 ? OFFSETS_NEVER : buffer[i].last + 1 + late;
      if (row[11] & 64) dead[i * streams + s] = row[s];
    }
  }
  p.buffer = buffer;
  p.dead = dead;
  offsets_summary s;
  if (!offsets_assign(&p, offset, &s)) {
    HP_ASSERT(!offsets_verify(&p, offset));
    for (int k = 0; k < OFFSETS_TIERS; k++) HP_ASSERT(s.bound[k] <= s.peak[k]);
  }
  err_clear();
  mem_free(buffer);
  mem_free(dead);
  mem_free(offset);
  return 0;
}
