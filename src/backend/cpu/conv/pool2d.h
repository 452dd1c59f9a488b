/* Max and average pooling of planes [H,W], and their gradients, as PyTorch has them: a window
 * covers only the image, not its padding; NaN is the largest.  The gradient of a maximum goes to
 * the first of the largest elements, or to the last NaN.  Sums are f32, in the order of rows and
 * columns; 16-bit results are rounded once.  The bits depend on neither threads nor instruction
 * set; nothing is allocated. */
#ifndef POOL2D_H
#define POOL2D_H

#include "backend/cpu/cpu_features.h"
#include "base/thread.h"

typedef enum { POOL_MAX, POOL_MAX_DX, POOL_AVG, POOL_AVG_DX } pool_kind;

typedef struct {
  pool_kind kind;
  int64_t planes;             /* images times channels */
  int64_t size[2], result[2]; /* height and width of x, of y */
  int64_t kernel[2], stride[2], pad[2];
  bool include_pad; /* averages count the padding */
  hp_dtype type;
} pool_spec;

hp_status pool_work(const pool_spec *s, int threads, size_t *bytes);
/* MAX, AVG: a is x, out y; MAX_DX: a is dy, b x, out dx; AVG_DX: a is dy, out dx.  b may be NULL in
 * the others. */
void pool_planes(cpu_isa isa, pool *threads, const pool_spec *s, const void *a, const void *b,
                 void *out, void *work);

/* One plane, in f32; row: as many floats as x is wide. */
typedef void pool_plane_fn(const pool_spec *s, const float *a, const float *b, float *out,
                           float *row);
extern pool_plane_fn pool_plane_plain, pool_plane_avx2, pool_plane_avx512;

#endif
