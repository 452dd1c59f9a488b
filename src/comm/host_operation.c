/* Arriving at a collective, leaving it, and the reduction of a run of elements. */
#include "comm/host_operation.h"

#include "base/thread.h"

#include <string.h>

/* Only the first rendezvous of a collective says when all had come. */
hp_status host_come(operation *o, const void *data, double *arrived_s) {
  HP_TRY(o->c->of->iface->rendezvous(o->c, o->call, data, o->give, o->take, o->seen));
  if (arrived_s) *arrived_s = time_now_s();
  return HP_OK;
}

hp_status host_leave(const operation *o) { return o->c->of->iface->leave(o->c); }

enum { CHUNK = 1024 };

static float reduce_float(comm_reduction op, float a, float b) {
  switch (op) {
  case COMM_REDUCE_MAX: return a > b || a != a ? a : b;
  case COMM_REDUCE_MIN: return a < b || a != a ? a : b;
  case COMM_REDUCE_PROD: return a * b;
  default: return a + b;
  }
}
static int64_t reduce_int(comm_reduction op, int64_t a, int64_t b) {
  switch (op) {
  case COMM_REDUCE_MAX: return a > b ? a : b;
  case COMM_REDUCE_MIN: return a < b ? a : b;
  case COMM_REDUCE_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
  case COMM_REDUCE_AND: return a && b;
  default: return (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

/* Zeros are added too: -0 and 0 are 0. */
static hp_status load_floats(const operation *o, int64_t i, int64_t at, int64_t n, float *to) {
  if (o->run[i]) return dtype_convert(HP_F32, to, o->t->type, o->run[i] + at, (size_t)n);
  memset(to, 0, (size_t)n * sizeof *to);
  return HP_OK;
}

static hp_status reduce_floats(const operation *o, comm_reduction op, int64_t at, int64_t n,
                               char *to) {
  float sum[CHUNK], next[CHUNK];
  for (int64_t i = 0; i < o->c->n; i++) {
    HP_TRY(load_floats(o, i, at, n, i ? next : sum));
    for (int64_t k = 0; i && k < n; k++) sum[k] = reduce_float(op, sum[k], next[k]);
  }
  for (int64_t k = 0; op == COMM_REDUCE_AVG && k < n; k++) sum[k] /= (float)o->c->n;
  return dtype_convert(o->t->type, to, HP_F32, sum, (size_t)n);
}

static int64_t load_int(hp_dtype t, const char *at) {
  int32_t x;
  int64_t y;
  if (t == HP_I64) return memcpy(&y, at, sizeof y), y;
  if (t == HP_I32) return memcpy(&x, at, sizeof x), x;
  return *(const uint8_t *)at;
}

static void reduce_ints(const operation *o, comm_reduction op, int64_t at, int64_t n, char *to) {
  hp_dtype t = o->t->type;
  size_t size = dtype_size(t);
  for (int64_t k = 0; k < n; k++) {
    int64_t x = 0;
    for (int64_t i = 0; i < o->c->n; i++) {
      int64_t y = load_int(t, o->run[i] + at + (size_t)k * size);
      x = i ? reduce_int(op, x, y) : y;
    }
    if (op == COMM_REDUCE_AVG) x /= o->c->n;
    memcpy(to + (size_t)k * size, &x, size); /* little endian */
  }
}

hp_status host_reduce_run(const operation *o, int64_t n, char *to) {
  comm_reduction op = o->t->reduction;
  int64_t size = size_of(o->t);
  for (int64_t k = 0; k < n; k += CHUNK) {
    int64_t some = n - k < CHUNK ? n - k : CHUNK;
    if (dtype_is_float(o->t->type)) HP_TRY(reduce_floats(o, op, k * size, some, to + k * size));
    else reduce_ints(o, op, k * size, some, to + k * size);
  }
  return HP_OK;
}
