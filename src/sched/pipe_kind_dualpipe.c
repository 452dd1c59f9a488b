/* dualpipe-v: two stages a device in a V; in the steady state a forward overlaps with the backward
 * of another micro-batch (DeepSeek-V3 technical report, 2024; its form with half the devices).
 *
 * The eight phases of the report, for device d of p: forwards of the first chunk; of both;
 * backward, W and forward of the second; pairs that overlap; backward and a pair; backwards of
 * both, the later half of them split; W and split backward; the W that are left. */
#include "sched/pipe_kinds.h"

typedef struct {
  pipe_rows *out;
  uint32_t device;
  uint32_t forwards[2], backwards[2]; /* of each chunk */
  uint8_t *chunk_of;                  /* [2 * microbatches] chunks of split backwards, in order */
  uint32_t split, done;               /* split backwards, and those whose W has been added */
  uint32_t *micro_of;                 /* [2 * microbatches] and their micro-batches */
} dual;

static uint32_t stage_of(const dual *x, int chunk) {
  return chunk ? x->out->stages - 1 - x->device : x->device;
}

static void forward(dual *x, int chunk) {
  pipe_kind_add(x->out, x->device, stage_of(x, chunk), PIPE_F, x->forwards[chunk]++);
}
static void backward(dual *x, int chunk) {
  pipe_kind_add(x->out, x->device, stage_of(x, chunk), PIPE_B | PIPE_W, x->backwards[chunk]++);
}
static void backward_to_inputs(dual *x, int chunk) {
  x->chunk_of[x->split] = (uint8_t)chunk;
  x->micro_of[x->split++] = x->backwards[chunk];
  pipe_kind_add(x->out, x->device, stage_of(x, chunk), PIPE_B, x->backwards[chunk]++);
}
static void weights(dual *x) {
  pipe_kind_add(x->out, x->device, stage_of(x, x->chunk_of[x->done]), PIPE_W, x->micro_of[x->done]);
  x->done++;
}
static void overlap(dual *x, int chunk) {
  forward(x, chunk);
  x->out->row[x->out->row0[x->device + 1] - 1].with_next = true;
  backward(x, !chunk);
}

static void add_device(dual *x) {
  const uint32_t p = x->out->devices, d = x->device, after = p - 1 - d;
  const uint32_t pairs = x->out->microbatches - 2 * p + d + 1;
  for (uint32_t i = 0; i < 2 * after; i++) forward(x, 0);
  for (uint32_t i = 0; i <= d; i++) forward(x, 0), forward(x, 1);
  for (uint32_t i = 0; i < after; i++) backward_to_inputs(x, 1), weights(x), forward(x, 1);
  for (uint32_t i = 0; i < pairs; i++) {
    overlap(x, 0);
    overlap(x, 1);
  }
  for (uint32_t i = 0; i < after; i++) backward(x, 1), overlap(x, 1);
  for (uint32_t i = 0; i < 2 * (d + 1); i++)
    if (i < d + 1) backward(x, i % 2 == 0);
    else backward_to_inputs(x, i % 2 == 0);
  for (uint32_t i = 0; i < after; i++) weights(x), backward_to_inputs(x, 0);
  while (x->done < x->split) weights(x);
}

hp_status pipe_dualpipe_v(const pipe_request *q, pipe_rows *out) {
  HP_TRY(pipe_kind_create(q, out));
  pipe_place_in_v(out);
  uint8_t *chunk_of = mem_calloc(q->microbatches, 2 * sizeof *chunk_of);
  uint32_t *micro_of = mem_calloc(q->microbatches, 2 * sizeof *micro_of);
  hp_status st = chunk_of && micro_of ? HP_OK : HP_ERR_OOM;
  for (uint32_t d = 0; !st && d < q->devices; d++) {
    dual x = {.out = out, .device = d, .chunk_of = chunk_of, .micro_of = micro_of};
    pipe_kind_device(out, d);
    add_device(&x);
  }
  mem_free(chunk_of);
  mem_free(micro_of);
  return st;
}
