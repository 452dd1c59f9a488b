/* Matrices in strips: from the order of the checkpoint to that of the device. */
#include "base/dtype.h"
#include "model/lm.h"

#include <string.h>

/* STRIP outputs of a matrix, k by k: to[in][STRIP].  From one output to the next are `row`
 * elements, from one k to the next `step`; size, of an element, is a constant at each call. */
static inline void make_strip(char *to, const char *from, int64_t in, int64_t row, int64_t step,
                              const size_t size) {
  for (int64_t k = 0; k < in; k++, from += step * (int64_t)size)
    for (int64_t r = 0; r < PARAM_STRIP; r++, to += size)
      memcpy(to, from + r * row * (int64_t)size, size);
}

static void make_strips(const model_param *p, char *to, const char *from, size_t size) {
  int64_t in = p->shape.dim[1], out = p->shape.dim[0] * PARAM_STRIP;
  bool rows = p->order == ORDER_STRIPS_OF_ROWS;
  int64_t row = rows ? in : 1, step = rows ? 1 : out;
  for (int64_t n = 0; n < out; n += PARAM_STRIP, to += PARAM_STRIP * in * (int64_t)size) {
    const char *first = from + n * row * (int64_t)size;
    if (size == 2) make_strip(to, first, in, row, step, 2);
    else make_strip(to, first, in, row, step, 4);
  }
}

hp_status lm_write_param(const lm *m, const model_param *p, const void *stored, void *room) {
  size_t size = dtype_size(p->dtype);
  if (p->order != ORDER_STORED) make_strips(p, room, stored, size);
  return hp_write(m->d, p->name, p->order == ORDER_STORED ? stored : room,
                  model_param_elements(p) * size);
}
