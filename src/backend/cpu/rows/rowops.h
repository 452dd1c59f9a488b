/* Kernels on rows and whole tensors: cross-entropy, embedding, rotary embedding, reductions over a
 * tensor, random numbers, and copies between any two strided layouts.
 *
 * Tensors are contiguous unless strides are given; floating types are f32, bf16 and f16, ids and
 * labels i32 or i64; arithmetic is f32.  Bits depend on neither threads nor instruction set.
 * Nothing allocates; where a function takes `work`, its *_work function says how many bytes, and
 * the address is a multiple of 8.  Values that index a table are checked: HP_ERR_INPUT. */
#ifndef ROWOPS_H
#define ROWOPS_H

#include "ir/op.h"
#include "backend/cpu/cpu_features.h"
#include "base/thread.h"

/* --- cross-entropy ---------------------------------------------------------------------------- */

typedef struct {
  int64_t N, V;
  const void *logits; /* [N,V] */
  hp_dtype dtype;
  const void *labels; /* [N] */
  hp_dtype label_type;
  int64_t ignore; /* rows with this label have loss 0 and gradient 0 */
} row_labels;

/* loss [N] f32 = lse - logits[label]; lse [N] f32 = ln sum exp(logits), of ignored rows too. */
hp_status row_cross_entropy(cpu_isa isa, pool *p, const row_labels *r, float *loss, float *lse);
/* out [N,V] of the logits' type = (exp(logits - lse) - onehot(label)) * dloss[row].  out may be the
 * logits themselves. */
hp_status row_cross_entropy_grad(cpu_isa isa, pool *p, const row_labels *r, const float *lse,
                                 const float *dloss, void *out);

/* --- embedding -------------------------------------------------------------------------------- */

typedef struct {
  int64_t V, C; /* table [V,C] */
  int64_t n;    /* ids [n] */
  const void *ids;
  hp_dtype id_type;
} row_ids;

/* out [n,C] = table[ids], both of one type (any). */
hp_status row_embedding(cpu_isa isa, pool *p, const row_ids *r, hp_dtype dtype, const void *table,
                        void *out);
/* dtable [V,C] = for each row, the rows of dy [n,C] with its id, summed in order of position, from
 * 0 or, with `onto`, from what is there; ids elsewhere are left out. */
hp_status row_embedding_grad_work(const row_ids *r, size_t *bytes);
hp_status row_embedding_grad(cpu_isa isa, pool *p, const row_ids *r, hp_dtype dy_type,
                             const void *dy, hp_dtype out_type, void *dtable, bool onto,
                             void *work);

/* --- rotary embedding ------------------------------------------------------------------------- */

typedef struct {
  int64_t B, T, H, D; /* x [B,T,H,D] */
  int64_t P, R;       /* tables [P,R/2]; the first R of D turn, R even */
  const float *cos, *sin;
  const int32_t *position; /* [B,T], each in 0..P-1 */
  bool interleaved;        /* pairs (0,1), (2,3) ...; else i with i + R/2 */
  bool inverse;            /* turns back: the gradient */
} row_rope_spec;

/* y = x turned, of the same type; y may be x.  Products and sums are rounded one by one. */
hp_status row_rope(cpu_isa isa, pool *p, const row_rope_spec *r, hp_dtype dtype, const void *x,
                   void *y);

/* --- over a tensor ---------------------------------------------------------------------------- */

/* Sum of squares: f32 in chunks of 65536 elements (16 chains, fixed tree), double across them. */
hp_status row_sum_sq_work(int64_t n, size_t *bytes);
hp_status row_sum_sq(cpu_isa isa, pool *p, hp_dtype dtype, const void *x, int64_t n, double *out,
                     void *work);
/* out [N] i32 = index of the largest of each row of x [N,V], the first of equals; a NaN is largest.
 */
hp_status row_argmax(cpu_isa isa, pool *p, hp_dtype dtype, const void *x, int64_t N, int64_t V,
                     int32_t *out);

/* --- choosing --------------------------------------------------------------------------------- */

typedef struct {
  int64_t N, width, k; /* rows of `width` elements, k of each */
  hp_dtype dtype;      /* floating */
  int32_t *index;      /* [N,k] */
} row_choice;

/* The k largest of each row of x [N,width], descending, of equals the first, a NaN largest: to
 * `values` [N,k] and r->index. */
void row_topk(pool *p, const row_choice *r, const void *x, void *values);
/* y [N,k] = x [N,width] at r->index; zeros for indices that are not in the row. */
void row_take(pool *p, const row_choice *r, const void *x, void *y);
/* y [N,width] = v [N,k] summed into the places r->index, in order; those outside are left out. */
void row_put(pool *p, const row_choice *r, const void *v, void *y);

/* --- random numbers --------------------------------------------------------------------------- */

typedef enum { ROW_UNIFORM, ROW_NORMAL } row_random_kind;
typedef struct {
  row_random_kind kind;
  uint64_t seed, stream;
  hp_shape local;  /* of the result */
  hp_shape global; /* of the tensor that it is a part of */
  int64_t start[HP_MAX_RANK];
} row_random_spec;

/* Numbers of base/philox.h at the elements' indices in the whole tensor.  dtype is floating. */
hp_status row_random(cpu_isa isa, pool *p, const row_random_spec *r, hp_dtype dtype, void *out);

/* --- copies ----------------------------------------------------------------------------------- */

typedef struct {
  int rank;
  int64_t dim[HP_MAX_RANK];
  int64_t from[HP_MAX_RANK], to[HP_MAX_RANK]; /* strides in elements: any sign; from 0: repeats */
} row_layout;

/* to[i] = from[i] for every index, elements of 1, 2, 4 or 8 bytes.  Transpositions, slices, parts
 * of a concatenation, broadcasts, padding are all this.  The tensors must not overlap. */
hp_status row_copy(pool *p, const row_layout *l, size_t element, const void *from, void *to);
/* to[i] = the element at `value`; `from` strides are not used. */
hp_status row_fill(pool *p, const row_layout *l, size_t element, const void *value, void *to);

#endif
