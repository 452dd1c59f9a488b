#include "sched/pipe_costs.h"

#include <math.h>

static hp_status check_seconds(const double *of, uint32_t n, const char *what) {
  for (uint32_t s = 0; of && s < n; s++)
    if (!isfinite(of[s]) || of[s] < 0)
      HP_FAIL(HP_ERR_ARG, "%s of stage %u is %g s; expected a finite time of 0 or more", what, s,
              of[s]);
  return HP_OK;
}

hp_status pipe_costs_check(const pipe_costs *c, uint32_t stages, uint32_t microbatches) {
  HP_TRY(check_seconds(c->forward_s, stages, "forward"));
  HP_TRY(check_seconds(c->backward_s, stages, "backward"));
  HP_TRY(check_seconds(c->weights_s, stages, "backward to weights"));
  HP_TRY(check_seconds(c->update_s, stages, "update"));
  HP_TRY(check_seconds(c->transfer_s, c->edge ? c->edges : stages - 1, "transfer"));
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
  const uint32_t s = row->stage;
  double time_s = 0;
  if (row->actions & PIPE_F) time_s += pipe_seconds(c->forward_s, s, 1);
  if (row->actions & PIPE_B) time_s += pipe_seconds(c->backward_s, s, 1);
  if (row->actions & PIPE_W || (row->actions & PIPE_B && !split))
    time_s += pipe_seconds(c->weights_s, s, 1);
  if (row->actions & PIPE_U) time_s += pipe_seconds(c->update_s, s, 0);
  return time_s;
}
