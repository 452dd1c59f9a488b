/* Attention on CPU: softmax(scale q k^T + mask) v and its gradient, in one pass over tiles that
 * never stores T x T scores.
 *
 * q [B,Tq,H,D], k [B,Tk,KV,D], v [B,Tk,KV,Dv], o [B,Tq,H,Dv]; H is a multiple of KV and query head
 * h uses key head h / (H / KV).  Tensors are read in place through strides.  Arithmetic is f32
 * (weights for values of bf16 are rounded to bf16), whatever the element types.
 *
 * Bits: a score is one FMA chain over d; keys go in blocks and segments fixed by their absolute
 * index, dk and dv sum query heads, then query rows, in order.  So in f32 an output row depends on
 * its own query and the keys it sees, and not on threads, instruction set, tile, the other rows of
 * the call, or whether it came by prefill or one token at a time.  (Keys that a row does not see
 * must hold finite numbers where another row of the same call sees them.) */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "backend/cpu/cpu_features.h"
#include "base/thread.h"

/* Element (b, t, h, d) is at index b * sb + t * st + h * sh + d. */
typedef struct {
  void *at;
  hp_dtype dtype; /* f32, bf16 or f16 */
  int64_t sb, st, sh;
} attn_view;

/* A share p of the weights becomes 0, the others times 1 / (1 - p): weight (b, h, t, s) when
 * philox_uniform(seed, stream, row * 2^34 + s) is below p.  row is (b * H + h) * Tq + t or, where
 * these are some sequences and heads of more, first + b * sequence + h * Tq + t. */
typedef struct {
  double p; /* 0: none */
  uint64_t seed, stream;
  uint64_t first, sequence; /* rows before them, and of a whole sequence; 0: H * Tq */
} attn_dropout;

typedef struct {
  int64_t B, Tq, Tk, H, KV, D, Dv; /* D and Dv 1..512; lengths may be 0 */
  float scale;
  bool causal;         /* query t sees keys j <= t + Tk - Tq: the ends are aligned */
  int64_t window;      /* > 0: only keys j > p - window, p = t + Tk - Tq, or hi under a span */
  const int32_t *span; /* [B,Tq,2] or NULL: query t sees keys lo..hi instead of the causal rule;
                          hi < lo: none, o is 0 and lse -inf.  Clamped to the keys there are. */
  attn_dropout dropout;
} attn_spec;

/* Bytes of work memory for a pool of that many threads; HP_ERR_SHAPE when the sizes make no sense.
 */
hp_status attn_forward_work(const attn_spec *s, int threads, size_t *bytes);
hp_status attn_backward_work(const attn_spec *s, int threads, size_t *bytes);

/* o = attention(q, k, v); lse [B,H,Tq] f32 = log of the sum of exp(scores), or NULL.
 * `work` is 64-byte aligned, of the size asked for with the pool's thread count. */
hp_status attn_forward(cpu_isa isa, pool *p, const attn_spec *s, const attn_view *q,
                       const attn_view *k, const attn_view *v, const attn_view *o, float *lse,
                       void *work);

/* A cache in blocks of ATTN_PAGE keys.  Sequence b is of group b / (B / groups), key j in the block
 * table[b * width + j / ATTN_PAGE] of its group's pool; keys of a head in a block are transposed,
 * [D,ATTN_PAGE], values are [ATTN_PAGE,Dv]. */
enum { ATTN_PAGE = 32 };
typedef struct {
  int64_t groups, blocks; /* of a group */
  int64_t width;          /* blocks of a sequence at most */
  const int32_t *table;
  const struct attn_part *part; /* NULL: the pool has all blocks */
} attn_pages;

/* Attention in parts: the pool has what the table names as blocks part.first, part.first + 1, ...,
 * and of each sequence the keys in them follow one another.  `before` is what earlier parts left of
 * each row, [B,Tq,H,ATTN_STATE + Dv rounded up to 16] f32: its maximum, its sum of weights, and
 * sums of values from ATTN_STATE on; no sum of weights: nothing.  `after` takes the same with this
 * part; if it is NULL, o is written.  They may be the same memory.  If parts begin where segments
 * of 256 keys do, and come in the order of keys, the bits of o are those of attention to all of
 * them. */
enum { ATTN_STATE = 16 };
typedef struct attn_part {
  int64_t first;
  const float *before; /* NULL: nothing */
  float *after;
} attn_part;

/* The same on keys and values in blocks: for pools sb is the step of a block, sh of a head, st of
 * a value; s->Tk is width * ATTN_PAGE, there is a span and no dropout.  The bits are those of
 * attn_forward.  HP_ERR_ARG if a query sees a key whose block is not in the pool. */
hp_status attn_paged_work(const attn_spec *s, const attn_pages *g, int threads, size_t *bytes);
hp_status attn_paged(cpu_isa isa, pool *p, const attn_spec *s, const attn_pages *g,
                     const attn_view *q, const attn_view *k, const attn_view *v, const attn_view *o,
                     void *work);

/* Gradients from o, its gradient and the lse of the forward pass.  Every element of dq, dk and dv
 * is written; they must not overlap the inputs. */
typedef struct {
  attn_view q, k, v, o, d_o; /* in */
  const float *lse;
  attn_view dq, dk, dv; /* out */
} attn_grad;
hp_status attn_backward(cpu_isa isa, pool *p, const attn_spec *s, const attn_grad *g, void *work);

#endif
