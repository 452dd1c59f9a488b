/* `hyper bench copy`: the links between the memory tiers of this machine, for plans that move data.
 *
 * Host memory: memcpy by one thread, as the copy streams of a device copy, in both directions and
 * both at once.  Copies walk through memory larger than the caches.  --write FILE puts the figures
 * into the `tiers` of a cluster file. */
#include "cli/bench_copy.h"

#include "base/io.h"
#include "base/mem.h"
#include "rt/cost_record.h"

#include <string.h>

enum { LEAST = 4 << 10, STEP = 4, MOST = 256 << 20, BATCH = 1 << 20, SIZES = 32 };
static const uint64_t SIZE_MOST = (uint64_t)1 << 40;

/* --- host memory ------------------------------------------------------------------------------ */

typedef struct {
  char *host, *device; /* 2 spans each: the streams use different ones */
  uint64_t span, bytes;
  bool writes; /* of the first stream; a second one goes the other way */
} memory_copy;

static hp_status copy_memory(void *context, int64_t stream, copy_rate *out) {
  const memory_copy *m = context;
  bool write = m->writes != (stream == 1);
  char *to = (write ? m->host : m->device) + (uint64_t)stream * m->span;
  const char *from = (write ? m->device : m->host) + (uint64_t)stream * m->span;
  uint64_t at = 0, copies = 0, batch = m->bytes < BATCH ? BATCH / m->bytes : 1;
  double start = time_now_s(), seconds;
  do {
    for (uint64_t i = 0; i < batch; i++, copies++) {
      if (at + m->bytes > m->span) at = 0;
      memcpy(to + at, from + at, m->bytes);
      at += m->bytes;
    }
    seconds = time_now_s() - start;
  } while (seconds < COPY_ROUND_S);
  *out = (copy_rate){(double)(copies * m->bytes) / seconds, seconds / (double)copies};
  return HP_OK;
}

/* The medians of the sizes that plans move, from 1 MiB on, and the time of the smallest copy. */
static hp_status measure_sizes(copy_bench *b, memory_copy *m, cluster_tier *out) {
  const copy_work w = {copy_memory, m};
  copy_rate in, away, both;
  double first_s = 0, read[SIZES], write[SIZES];
  int n = 0;
  for (m->bytes = LEAST; n < SIZES && m->bytes <= m->span; m->bytes *= STEP) {
    HP_TRY(copy_bench_limit(b));
    m->writes = false;
    HP_TRY(copy_bench_row(b, &(copy_row){"host", "read", m->bytes, 1, 2}, &w, &in));
    m->writes = true;
    HP_TRY(copy_bench_row(b, &(copy_row){"host", "write", m->bytes, 1, 2}, &w, &away));
    HP_TRY(copy_bench_row(b, &(copy_row){"host", "both", m->bytes, 2, 2}, &w, &both));
    if (m->bytes == LEAST) first_s = (in.copy_s + away.copy_s) / 2;
    if (m->bytes <= BATCH) n = 0;
    read[n] = in.bytes_per_s, write[n] = away.bytes_per_s, n++;
  }
  double read_per_s = measured_median(read, n), latency_s = first_s - LEAST / read_per_s;
  out->read_gb_s = copy_bench_round(read_per_s * 1e-9);
  out->write_gb_s = copy_bench_round(measured_median(write, n) * 1e-9);
  out->latency_us = latency_s > 0 ? copy_bench_round(latency_s * 1e6) : 0;
  if (!(out->memory_gb > 0)) out->memory_gb = copy_bench_round((double)mem_physical() * 1e-9);
  return HP_OK;
}

static hp_status measure_host(copy_bench *b, cluster_tier *out) {
  uint64_t span = bench_size(b->a, MOST);
  memory_copy m = {.span = span, .host = mem_map(2 * span), .device = mem_map(2 * span)};
  hp_status st = m.host && m.device ? HP_OK : HP_ERR_OOM;
  if (!st) {
    memset(m.host, 1, 2 * span);
    memset(m.device, 2, 2 * span);
    st = measure_sizes(b, &m, out);
  }
  if (m.host) mem_unmap(m.host, 2 * span);
  if (m.device) mem_unmap(m.device, 2 * span);
  return st;
}

/* --- the cluster file ------------------------------------------------------------------------- */

/* What --write names, if it is there; else this machine. */
static hp_status load_cluster(const copy_bench *b, cluster *out) {
  if (b->a->write && file_exists(b->a->write)) return cluster_load(b->a->write, out);
  HP_TRY(cluster_load("this", out));
  cost_record_read(pool_size(b->k.threads), out);
  return HP_OK;
}

/* What can be refused is refused before anything is measured. */
static hp_status measure(copy_bench *b) {
  uint64_t size = bench_size(b->a, MOST);
  bench_file *f;
  cluster c;
  if (size < LEAST || size > SIZE_MOST)
    HP_FAIL(HP_ERR_ARG, "--size %llu: expected %d to %llu bytes", (unsigned long long)size, LEAST,
            (unsigned long long)SIZE_MOST);
  HP_TRY(load_cluster(b, &c));
  HP_TRY(bench_file_open(b->a, &f));
  hp_status st = measure_host(b, &c.tier[TIER_HOST]);
  if (!st) st = copy_bench_flash(b, f, &c.tier[TIER_FLASH]);
  bench_file_close(f);
  return st ? st : bench_write_cluster(b->a, &c);
}

hp_status bench_copy(const bench_args *a) {
  copy_bench b = {.a = a, .rounds = a->steps < COPY_ROUNDS_MAX ? (int)a->steps : COPY_ROUNDS_MAX};
  HP_TRY(bench_machine_open(a, &b.k));
  hp_status st = measure(&b);
  bench_machine_close(&b.k);
  return st;
}
