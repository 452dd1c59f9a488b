#include "rounded.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/philox.h"
#include "test.h"

void *room_for(int64_t n, size_t size) {
  void *p = mem_calloc((size_t)n + 1, size);
  CHECK(p);
  return p;
}

void *rounded_normals(int64_t n, hp_dtype t, float deviation, uint64_t stream, float **exact) {
  float *x = room_for(n, sizeof *x);
  void *y = room_for(n, dtype_size(t));
  for (int64_t i = 0; i < n; i++) x[i] = deviation * philox_normal(21, stream, (uint64_t)i);
  CHECK_OK(dtype_convert(t, y, HP_F32, x, (size_t)n));
  CHECK_OK(dtype_convert(HP_F32, x, t, y, (size_t)n));
  *exact = x;
  return y;
}
