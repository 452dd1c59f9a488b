#include "backend/cpu/engine/engine_measure.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double turn_s = 5e-3; /* small products are repeated to take about this long */

double measured_flops(const gemm_query *q) {
  return 2.0 * (double)q->m * (double)q->n * (double)q->k * (double)gemm_items(q);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}
double measured_median(double *x, int64_t n) {
  qsort(x, (size_t)n, sizeof *x, by_value);
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* --- who runs --------------------------------------------------------------------------------- */

/* Bytes from the first element of an operand to the end of the last, by its strides. */
static void measure_operands(const gemm_query *q, size_t need[3]) {
  int64_t last[3] = {(q->m - 1) * q->a_m + (q->k - 1) * q->a_k, gemm_b_at(q, q->k - 1, q->n - 1),
                     (q->m - 1) * q->c_m + (q->n - 1) * q->c_n};
  const hp_dtype type[3] = {q->a_type, q->b_type, q->c_type};
  for (int i = 0; i < q->n_batch; i++) {
    last[0] += (q->batch[i].size - 1) * q->batch[i].a;
    last[1] += (q->batch[i].size - 1) * q->batch[i].b;
    last[2] += (q->batch[i].size - 1) * q->batch[i].c;
  }
  for (int i = 0; i < 3; i++) need[i] = ((size_t)last[i] + 1) * dtype_size(type[i]);
}

hp_status engine_measure_open(const gemm_query *q, int threads, int rounds, engine_measure *out) {
  int rows;
  const gemm_engine *const *row = engine_rows(&rows);
  *out = (engine_measure){.q = *q, .rounds = rounds};
  HP_TRY(gemm_check(q));
  measure_operands(q, out->need);
  for (int i = 0; i < rows && out->entrants < MEASURE_ENGINES; i++) {
    if (row[i] == &engine_scalar || !row[i]->available() || !row[i]->supports(q)) continue;
    measured_entrant *e = &out->e[out->entrants++];
    e->engine = row[i];
    e->work_bytes = row[i]->workspace(q, threads);
    e->seconds = mem_calloc((size_t)rounds, sizeof *e->seconds);
    if (!e->seconds) {
      engine_measure_close(out);
      return HP_ERR_OOM;
    }
  }
  return HP_OK;
}

void engine_measure_close(engine_measure *r) {
  for (int i = 0; i < r->entrants; i++) mem_free(r->e[i].seconds);
  r->entrants = 0;
}

/* --- operands --------------------------------------------------------------------------------- */

/* Memory per operand, if runs should find it cold: more than a core's share of any cache. */
enum { COLD_BYTES = 32 << 20, LINE = 64 };

static size_t round_up_to_line(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

void measured_operands_need(measured_operands *x, const engine_measure *r) {
  size_t need[4] = {r->need[0], r->need[1], r->need[2], 1};
  for (int i = 0; i < r->entrants; i++)
    if (r->e[i].work_bytes > need[3]) need[3] = r->e[i].work_bytes;
  for (int i = 0; i < 4; i++) {
    if (x->cold && i < 3 && need[i] < COLD_BYTES) need[i] = COLD_BYTES;
    if (need[i] > x->bytes[i]) x->bytes[i] = need[i];
  }
}

/* Numbers in [-0.5, 0.5), the same few thousand again and again. */
static void fill_random(void *at, size_t bytes, hp_dtype type) {
  enum { NUMBERS = 4000 };
  char some[NUMBERS * sizeof(float)];
  size_t size = dtype_size(type), block = NUMBERS * size;
  for (size_t k = 0; k < NUMBERS; k++) {
    float v = (float)(k * 2654435761u % 1000) * 1e-3f - 0.5f;
    uint16_t half = f32_to_bf16(v);
    memcpy(some + k * size, type == HP_F32 ? (const void *)&v : (const void *)&half, size);
  }
  for (size_t done = 0; done < bytes; done += block)
    memcpy((char *)at + done, some, bytes - done < block ? bytes - done : block);
}

hp_status measured_operands_open(measured_operands *x, hp_dtype type) {
  for (int i = 0; i < 4; i++) {
    x->at[i] = mem_map(x->bytes[i]);
    HP_TRY_MEM(x->at[i]);
    if (i < 2 || (x->cold && i == 2)) fill_random(x->at[i], x->bytes[i], type);
  }
  return HP_OK;
}

void measured_operands_close(measured_operands *x) {
  for (int i = 0; i < 4; i++) mem_unmap(x->at[i], x->bytes[i]);
}

/* Operand i of the next run. */
static void *find_operand(const measured_operands *x, const engine_measure *r, int i) {
  size_t step = round_up_to_line(r->need[i]), places = 1;
  if (x->cold) places += (x->bytes[i] - r->need[i]) / step;
  return (char *)x->at[i] + (size_t)x->runs % places * step;
}

/* --- rounds ----------------------------------------------------------------------------------- */

/* A single thread uses its own CPU clock, which does not count time of other programs. */
static double read_clock_s(const pool *threads) {
  struct timespec t;
  if (pool_size(threads) > 1) return time_now_s();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one run, of n. */
static hp_status run_once(const engine_measure *r, const measured_entrant *e, measured_operands *x,
                          pool *threads, int n, double *seconds) {
  double start = read_clock_s(threads);
  for (int i = 0; i < n; i++, x->runs++) {
    gemm_args args = {find_operand(x, r, 0), find_operand(x, r, 1), find_operand(x, r, 2), NULL};
    HP_TRY(e->engine->run(&r->q, &args, threads, x->at[3]));
  }
  *seconds = (read_clock_s(threads) - start) / n;
  return HP_OK;
}

hp_status engine_measure_round(engine_measure *r, measured_operands *x, pool *threads) {
  for (int i = 0; i < r->entrants; i++) {
    measured_entrant *e = &r->e[i];
    double s;
    if (!e->repeat) {
      HP_TRY(run_once(r, e, x, threads, 1, &s));
      HP_TRY(run_once(r, e, x, threads, 1, &s));
      e->repeat = 1 + (int)(turn_s / (s > 0 ? s : turn_s));
    }
    HP_TRY(run_once(r, e, x, threads, e->repeat, &e->seconds[r->round]));
  }
  r->round++;
  return HP_OK;
}

double engine_measure_seconds(const engine_measure *r, int e) {
  double x[MEASURE_ROUNDS];
  memcpy(x, r->e[e].seconds, sizeof *x * (size_t)r->round);
  return measured_median(x, r->round);
}

double engine_measure_best(const engine_measure *r) {
  double best = 0;
  for (int i = 0; i < r->entrants; i++) {
    double s = engine_measure_seconds(r, i);
    if (i == 0 || s < best) best = s;
  }
  return best;
}

double engine_measure_ratio(const engine_measure *r, int e) {
  double x[MEASURE_ROUNDS];
  for (int i = 0; i < r->round; i++) x[i] = r->e[e].seconds[i] / r->e[0].seconds[i];
  return measured_median(x, r->round);
}

void engine_measure_drop(engine_measure *r, double most) {
  int last = r->round - 1, kept = 1;
  double best = r->e[0].seconds[last];
  for (int i = 1; i < r->entrants; i++)
    if (r->e[i].seconds[last] < best) best = r->e[i].seconds[last];
  for (int i = 1; i < r->entrants; i++) {
    if (r->e[i].seconds[last] <= most * best) r->e[kept++] = r->e[i];
    else mem_free(r->e[i].seconds);
  }
  r->entrants = kept;
}

static double find_least_seconds(const engine_measure *r, int e) {
  double least = r->e[e].seconds[0];
  for (int i = 1; i < r->round; i++)
    if (r->e[e].seconds[i] < least) least = r->e[e].seconds[i];
  return least;
}

const gemm_engine *engine_measure_winner(const engine_measure *r) {
  static const double enough = 0.97;
  int winner = 0;
  double least = enough;
  for (int i = 1; i < r->entrants; i++) {
    double ratio = engine_measure_ratio(r, i),
           best = find_least_seconds(r, i) / find_least_seconds(r, 0);
    if (best > ratio) ratio = best;
    if (ratio < least) least = ratio, winner = i;
  }
  return r->e[winner].engine;
}
