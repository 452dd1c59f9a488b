/* The geometry of a convolution, and what its passes share.
 *
 * Each pass is a correlation: position i of the result, along one spatial dim, reads the source at
 * i * step + offset of a tap.  The forward has a step of its stride; the gradient of x has one such
 * correlation for each remainder of a place by the stride, with the taps that read it; those that
 * differ only in their first tap are members of one.
 *
 * A box is a range of images, rows and columns of positions.  The source under a box is copied,
 * channel by channel, with zeros where it ends, rows and columns dealt into phases by their
 * remainder of the step: there the elements that a tap reads at neighbouring positions are
 * neighbours, for every step and dilation.  Where taps are farther apart than the box is wide, the
 * elements of each are copied by themselves instead. */
#ifndef CONV_PLAN_H
#define CONV_PLAN_H

#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/conv_isa.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/gemm_isa.h"
#include "base/round.h"

typedef struct {
  int64_t size, grid, step;          /* of the source; positions; elements between them */
  int64_t taps, offset, offset_step; /* tap u reads i * step + offset + u * offset_step */
  int64_t weight, weight_step;       /* tap u's place in the kernel */
  int64_t first, stride;             /* position i is element first + i * stride of the result */
  int64_t members, member_step;      /* the next has weight + 1 and first + member_step */
  int64_t phases, low, reach; /* tap u is of phase u % phases; a copy begins at position + low, and
                                 has `reach` elements more than there are positions */
  bool apart;                 /* a phase for each tap, of the elements it reads */
} conv_axis;

typedef struct {
  int64_t n0, n1, i0, i1, j0, j1;
} conv_box;

/* The copy of a box: elements of a row, of a phase, of a channel. */
typedef struct {
  int64_t rows, width, plane, channel;
} conv_copy;

/* How positions are cut into boxes: images, rows and columns of each, and the number of boxes. */
typedef struct {
  int64_t batch, images, rows, cols, n, i, j;
} conv_cut;

typedef struct {
  conv_axis ax[2];
  int64_t batch, groups, in, out; /* channels of a group: of the source and the result */
  int64_t taps;
  hp_dtype type;
  const conv_kernels *own;
  const gemm_kernels *gemm;
} conv_shape;

static inline int64_t conv_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t conv_most(int64_t a, int64_t b) { return a > b ? a : b; }
/* About `limit` of n, in multiples of unit, so that all parts of n are nearly alike. */
static inline int64_t conv_even(int64_t n, int64_t limit, int64_t unit) {
  int64_t parts = conv_most(div_up(n, limit), 1);
  return conv_most(round_up(div_up(n, parts), unit), unit);
}

/* Of the gradient of x, for the places that the tap `first` and others evenly spaced after it
 * read; the next taps that go alike are members.  first is below the count.  Places that no tap
 * reads have a gradient of 0. */
conv_axis conv_axis_dx(const conv_spec *s, int d, int64_t first);
int64_t conv_axis_dx_count(const conv_spec *s, int d);
conv_shape conv_shape_make(cpu_isa isa, const conv_spec *s);

/* Boxes of about so many positions. */
conv_cut conv_cut_make(const conv_shape *s, int64_t positions);
/* How the elements that taps read are copied, in boxes of that cut. */
void conv_choose_copies(conv_shape *s, const conv_cut *c);

/* Some factors of the chains, counted by channel, row and column of the kernel: whole channels, or
 * a part of one, with the taps of its lines alone, or with those of a part of one line. */
typedef struct {
  conv_shape s;   /* of these taps */
  int64_t c0, c1; /* their channels */
  int64_t k0, k1; /* the factors among those of s */
} conv_part;
conv_part conv_part_get(const conv_shape *s, const conv_cut *c, int64_t k0, int64_t k1);
/* Where the part that begins with factor k0 ends: before k1, with at most about `limit` factors
 * where they are no whole channels, so that only elements that they read are copied. */
int64_t conv_part_end(const conv_shape *s, int64_t limit, int64_t k0, int64_t k1);
/* Numbers that the copy of a part of at most `limit` factors takes under the largest box. */
int64_t conv_part_most(const conv_shape *s, const conv_cut *c, int64_t limit);
static inline int64_t conv_cut_boxes(const conv_cut *c) { return c->n * c->i * c->j; }
static inline int64_t conv_cut_positions(const conv_cut *c) {
  return c->images * c->rows * c->cols;
}
conv_box conv_box_get(const conv_shape *s, const conv_cut *c, int64_t i);
static inline int64_t conv_box_positions(const conv_box *b) {
  return (b->n1 - b->n0) * (b->i1 - b->i0) * (b->j1 - b->j0);
}
conv_copy conv_copy_of(const conv_shape *s, const conv_box *b);
/* Of the largest box of a cut. */
conv_copy conv_copy_most(const conv_shape *s, const conv_cut *c);

/* Copies channels c0 .. c1 - 1 of group g of the source [batch, groups * in, size..] under b. */
void conv_copy_fill(const conv_shape *s, const conv_box *b, int64_t g, int64_t c0, int64_t c1,
                    const void *source, float *to);
/* Where factors k0 .. k1 - 1 of a chain, counted by channel, row and column of the kernel, are in a
 * copy that begins with channel c0. */
void conv_offsets(const conv_shape *s, const conv_copy *copy, int64_t c0, int64_t k0, int64_t k1,
                  int64_t *offset);

/* A run of positions that are neighbours in the copy: the n of them from p on begin at `at`. */
typedef struct {
  int64_t p, at, n;
} conv_run_of;
/* The run that position p of a box, one before `end`, begins. */
conv_run_of conv_run_at(const conv_box *b, const conv_copy *copy, int64_t p, int64_t end);

void conv_kernels_of(cpu_isa isa, conv_shape *s); /* own and gemm */

/* The passes: work memory of a thread or of all, and the run. */
hp_status conv_dw_work(const conv_shape *s, int threads, size_t *bytes);
void conv_dw_run(const conv_shape *s, pool *threads, const void *x, const void *dy, void *dw,
                 void *work);

#endif
