#include "sim/cost_learn.h"

#include <math.h>
#include <string.h>

/* Bounds of sizes: of dims from 2 on, of bytes from 32 KiB on; the last one is infinite. */
enum { BOUNDS = 7, DIM_FIRST = 2, DIM_FACTOR = 4, BYTES_FIRST = 32 << 10, BYTES_FACTOR = 8 };
static const double WEIGHT = 0.5, LEAST_SHARE = 1e-6, MOST_SHARE = 1e6;

typedef struct {
  double limit_s, measured_s;
} sums;

static bool goes_by_dim(cost_class op) {
  return op == COST_PRODUCT || op == COST_GROUPED || op == COST_ATTENTION ||
         op == COST_ATTENTION_GRAD;
}

static double bound_of(cost_class op, int i) {
  bool dim = goes_by_dim(op);
  if (i == BOUNDS - 1) return INFINITY;
  return (dim ? DIM_FIRST : BYTES_FIRST) * pow(dim ? DIM_FACTOR : BYTES_FACTOR, i);
}

static int place_of(cost_class op, double size) {
  int i = 0;
  while (i < BOUNDS - 1 && size >= bound_of(op, i)) i++;
  return i;
}

static void set_share(cost_table *t, cost_class op, bool bf16, int place, const sums *s) {
  double share = s->limit_s / s->measured_s, below = bound_of(op, place);
  const cost_entry *old = cost_table_row(t, op, bf16, below);
  if (!(share >= LEAST_SHARE && share <= MOST_SHARE)) return;
  if (old) share = pow(old->of_limit, 1 - WEIGHT) * pow(share, WEIGHT);
  (void)cost_table_set(t, (cost_entry){(uint8_t)op, bf16, below, share});
}

void cost_learn(cluster *c, const program *p, const inst_times *t) {
  sums all[COST_CLASSES][2][BOUNDS];
  double launch = c->costs.launch_us * 1e-6;
  memset(all, 0, sizeof all);
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (op_flags((op_id)n->op) & (OPF_RENDEZVOUS | OPF_TRANSFER)) continue;
    if (n->ahead) continue; /* not every run has it */
    cost_work w = cost_work_of(p, n);
    double seconds = t[i].end_s - t[i].start_s - launch;
    sums *s = &all[w.op][w.bf16][place_of(w.op, w.size)];
    s->limit_s += cluster_limit_s(c, &w);
    if (seconds > 0) s->measured_s += seconds;
  }
  for (int op = 0; op < COST_CLASSES; op++)
    for (int k = 0; k < 2 * BOUNDS; k++) {
      const sums *s = &all[op][k / BOUNDS][k % BOUNDS];
      if (s->limit_s > 0 && s->measured_s > 0)
        set_share(&c->costs, (cost_class)op, k / BOUNDS, k % BOUNDS, s);
    }
}
