/* Convolution of images and its gradients, for tensors as PyTorch has them: x [N,C,H,W], weights
 * [O,C/groups,KH,KW], y [N,O,OH,OW].  One spatial dim is two with a height of 1.
 *
 * y and dx: every element is one chain of fused multiply-adds from 0, over channels, then the rows
 * and columns of the kernel, in order.  dw: one chain over images and positions, in order, for each
 * of the parts that the images are in; the parts are added in order, and how many there are depends
 * on images and positions alone.  So the bits depend on neither threads nor instruction set. 16-bit
 * operands are widened, results rounded once.
 *
 * Products are those of the packed GEMM, whose operands are gathered from the images panel by
 * panel. Nothing is allocated while running. */
#ifndef CONV_H
#define CONV_H

#include "backend/cpu/cpu_features.h"
#include "base/thread.h"

typedef struct {
  int64_t batch, in, out, groups; /* channels of x and y, of all groups */
  int64_t size[2], result[2];     /* height and width of x, of y */
  int64_t kernel[2], stride[2], pad[2], dilation[2];
  hp_dtype type; /* f32, bf16 or f16 */
} conv_spec;

typedef enum {
  CONV_FORWARD, /* x, w -> y */
  CONV_DX,      /* dy, w -> dx */
  CONV_DW       /* x, dy -> dw */
} conv_way;

/* Bytes of work memory; HP_ERR_OOM where they cannot be addressed. */
hp_status conv_work(cpu_isa isa, const conv_spec *s, conv_way way, int threads, size_t *bytes);
/* `work` is GEMM_ALIGN aligned. */
void conv_run(cpu_isa isa, pool *threads, const conv_spec *s, conv_way way, const void *a,
              const void *b, void *out, void *work);

#endif
