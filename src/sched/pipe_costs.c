#include "sched/pipe_costs.h"

#include <math.h>

/* of[n][each] */
static hp_status check_seconds(const double *of, size_t n, uint32_t each, const char *what) {
  for (size_t i = 0; of && i < n * each; i++)
    if (!isfinite(of[i]) || of[i] < 0)
      HP_FAIL(HP_ERR_ARG, "%s of stage %zu is %g s; expected a finite time of 0 or more", what,
              i / each, of[i]);
  return HP_OK;
}

hp_status pipe_costs_check(const pipe_costs *c, uint32_t stages, uint32_t microbatches) {
  const uint32_t each = c->micros ? c->micros : 1;
  if (c->micros && c->micros < microbatches)
    HP_FAIL(HP_ERR_ARG, "costs of %u micro-batches; expected those of %u", c->micros, microbatches);
  HP_TRY(check_seconds(c->forward_s, stages, each, "forward"));
  HP_TRY(check_seconds(c->backward_s, stages, each, "backward"));
  HP_TRY(check_seconds(c->weights_s, stages, each, "backward to weights"));
  HP_TRY(check_seconds(c->update_s, stages, 1, "update"));
  HP_TRY(check_seconds(c->transfer_s, c->edge ? c->edges : stages - 1, 1, "transfer"));
  uint64_t all = 0, more;
  for (uint32_t s = 0; s < stages; s++)
    if (__builtin_mul_overflow(pipe_bytes(c, s), microbatches, &more) ||
        __builtin_add_overflow(all, more, &all))
      HP_FAIL(HP_ERR_ARG, "stage %u holds %llu bytes a micro-batch; %u of them are beyond 64 bits",
              s, (unsigned long long)pipe_bytes(c, s), microbatches);
  for (uint32_t s = 0; s < stages; s++)
    if (pipe_weights_bytes(c, s) > pipe_bytes(c, s))
      HP_FAIL(HP_ERR_ARG,
              "stage %u holds %llu bytes until W, more than the %llu bytes that it holds until B",
              s, (unsigned long long)pipe_weights_bytes(c, s),
              (unsigned long long)pipe_bytes(c, s));
  if (!(c->overlapped >= 0 && c->overlapped <= 1))
    HP_FAIL(HP_ERR_ARG, "overlapped rows take %g of the sum of their times; expected 0 to 1",
            c->overlapped);
  return HP_OK;
}

double pipe_row_s(const pipe_costs *c, const pipe_row *row, bool split) {
  const size_t at = c->micros ? (size_t)row->stage * c->micros + row->microbatch : row->stage;
  double time_s = 0;
  if (row->actions & PIPE_F) time_s += pipe_seconds(c->forward_s, at, 1);
  if (row->actions & PIPE_B) time_s += pipe_seconds(c->backward_s, at, 1);
  if (row->actions & PIPE_W || (row->actions & PIPE_B && !split))
    time_s += pipe_seconds(c->weights_s, at, 1);
  if (row->actions & PIPE_U) time_s += pipe_seconds(c->update_s, row->stage, 0);
  return time_s;
}
