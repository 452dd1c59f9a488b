/* Rows of `hyper bench copy`: medians of rounds, next to the bandwidth of memory. */
#include "backend/cpu/machine_limits.h"
#include "cli/bench_copy.h"

#include <stdio.h>
#include <stdlib.h>

double copy_bench_round(double x) {
  char text[32];
  snprintf(text, sizeof text, "%.3g", x);
  return strtod(text, NULL);
}

hp_status copy_bench_limit(copy_bench *b) {
  pool_bind_caller(b->k.threads, true);
  hp_status st = limits_measure_read(b->k.isa, b->k.threads, 0, &b->read_bytes_per_s);
  pool_bind_caller(b->k.threads, false);
  return st;
}

typedef struct {
  const copy_work *w;
  copy_rate rate[COPY_STREAMS_MAX];
} copy_round;

static hp_status run_stream(void *context, int64_t stream) {
  copy_round *t = context;
  return t->w->run(t->w->context, stream, &t->rate[stream]);
}

static hp_status print_row(const copy_bench *b, const copy_row *r, const copy_rate *x) {
  bench_row row;
  bench_line_begin(&row, b->a, "copy");
  bench_row_machine(&row, &b->k);
  bench_row_text(&row, "tier", r->tier);
  bench_row_text(&row, "direction", r->direction);
  bench_row_int(&row, "streams", r->streams);
  bench_row_int(&row, "bytes", (int64_t)r->bytes);
  bench_row_num(&row, "copy_us", x->copy_s * 1e6);
  bench_row_num(&row, "bytes_per_s", x->bytes_per_s);
  bench_row_num(&row, "limit_bytes_per_s", b->read_bytes_per_s / r->passes);
  bench_row_num(&row, "of_limit", x->bytes_per_s * r->passes / b->read_bytes_per_s);
  return bench_row_end(&row);
}

hp_status copy_bench_row(const copy_bench *b, const copy_row *r, const copy_work *w,
                         copy_rate *out) {
  double rate[COPY_ROUNDS_MAX], copy_s[COPY_ROUNDS_MAX];
  pool *threads;
  HP_TRY(pool_create(r->streams, false, &threads));
  hp_status st = HP_OK;
  for (int i = -1; !st && i < b->rounds; i++) { /* the first warms up */
    copy_round t = {.w = w};
    st = pool_try(threads, r->streams, run_stream, &t);
    if (i < 0) continue;
    rate[i] = copy_s[i] = 0;
    for (int s = 0; s < r->streams; s++) {
      rate[i] += t.rate[s].bytes_per_s;
      copy_s[i] += t.rate[s].copy_s / r->streams;
    }
  }
  pool_free(threads);
  HP_TRY(st);
  *out = (copy_rate){measured_median(rate, b->rounds), measured_median(copy_s, b->rounds)};
  return print_row(b, r, out);
}
