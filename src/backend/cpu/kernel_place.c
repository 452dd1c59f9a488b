/* Kernels whose result depends on the device's place among those along the instruction's axes:
 * drop, locate, place. */
#include "backend/cpu/cpu_kernel.h"
#include "base/dtype.h"
#include "ir/layout.h"

#include <string.h>

/* x plus the place. */
hp_status run_place(const cpu_call *c) {
  const int32_t *from = c->at[0];
  int32_t *to = c->at[1];
  int64_t n = value_elements(call_type(c, 0));
  for (int64_t k = 0; k < n; k++) to[k] = from[k] + (int32_t)c->place;
  return HP_OK;
}

/* Indices along a dim as those of the own shard. */
hp_status run_locate(const cpu_call *c) {
  const void *from = c->at[0];
  void *to = c->at[1];
  bool is_long = call_type(c, 0)->dtype == HP_I64;
  int64_t n = value_elements(call_type(c, 0)), size = inst_int(c->p, c->n, "size");
  int64_t first = c->place * size;
  for (int64_t k = 0; k < n; k++) {
    int64_t x = is_long ? ((const int64_t *)from)[k] : ((const int32_t *)from)[k];
    if (x >= 0) x = x >= first && x < first + size ? x - first : ID_ELSEWHERE;
    if (is_long) ((int64_t *)to)[k] = x;
    else ((int32_t *)to)[k] = (int32_t)x;
  }
  return HP_OK;
}

/* What changes nothing in the reduction, on all devices but the first. */
hp_status run_drop(const cpu_call *c) {
  int op = (int)inst_int(c->p, c->n, "op");
  hp_dtype type = (hp_dtype)call_type(c, 0)->dtype;
  int64_t n = value_elements(call_type(c, 0));
  size_t size = dtype_size(type);
  char *to = c->at[1];
  const float one = 1;
  bool keeps = !c->place || (op != PARTIAL_SUM && op != PARTIAL_PROD);
  if (keeps) cpu_move(c, to, c->at[0], n * (int64_t)size);
  else memset(to, 0, (size_t)n * size);
  for (int64_t k = 0; !keeps && op == PARTIAL_PROD && k < n; k++)
    HP_TRY(dtype_convert(type, to + (size_t)k * size, HP_F32, &one, 1));
  return HP_OK;
}
