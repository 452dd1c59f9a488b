#include "compile/row_order.h"

typedef struct {
  order_problem *q;
  uint32_t *row;  /* by instruction: the row that it computes in, from 1; 0: it does not compute */
  bool *preceded; /* by instruction: it needs another that computes in its row */
  bool *followed; /* by instruction: another that computes in its row needs it */
} binder;

static bool computes(const binder *b, uint32_t i) { return b->row[i]; }

static void find_rows(binder *b) {
  for (uint32_t i = 0; i < b->q->n; i++) {
    const prog_inst *n = program_inst(b->q->p, i);
    if (n->stream == STREAM_COMPUTE) b->row[i] = n->row;
  }
}

/* Through instructions of the row that do not compute, such as collectives, too. */
static void find_relatives(binder *b) {
  const program *p = b->q->p;
  for (uint32_t i = 0; i < b->q->n; i++)
    for (uint32_t k = b->q->dep0[i]; k < b->q->dep0[i + 1]; k++) {
      uint32_t d = b->q->dep[k];
      if (program_inst(p, d)->row == program_inst(p, i)->row)
        b->preceded[i] |= computes(b, d) || b->preceded[d];
    }
  for (uint32_t i = (uint32_t)b->q->n; i-- > 0;)
    for (uint32_t k = b->q->dep0[i]; k < b->q->dep0[i + 1]; k++) {
      uint32_t d = b->q->dep[k];
      if (program_inst(p, d)->row == program_inst(p, i)->row)
        b->followed[d] |= computes(b, i) || b->followed[i];
    }
}

/* The last instructions of a row come before the first of the next one, and that before all others
 * of its row that need none of it. */
static hp_status bind(binder *b) {
  uint32_t n = (uint32_t)b->q->n, row = 0, first = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!computes(b, i)) continue;
    if (b->row[i] != row) {
      for (uint32_t k = first; k < i; k++)
        if (computes(b, k) && !b->followed[k]) HP_TRY(order_after(b->q, k, i));
      first = i;
      row = b->row[i];
    } else if (!b->preceded[i]) {
      HP_TRY(order_after(b->q, first, i));
    }
  }
  return HP_OK;
}

hp_status row_order_bind(order_problem *q) {
  size_t edges = q->edges.len;
  binder b = {.q = q,
              .row = mem_calloc(q->n + 1, sizeof *b.row),
              .preceded = mem_calloc(q->n + 1, sizeof *b.preceded),
              .followed = mem_calloc(q->n + 1, sizeof *b.followed)};
  hp_status st = b.row && b.preceded && b.followed ? order_list(q) : HP_ERR_OOM;
  q->edges.len = edges; /* the scheduler knows the order of data */
  if (!st) {
    find_rows(&b);
    find_relatives(&b);
    st = bind(&b);
  }
  mem_free(b.row);
  mem_free(b.preceded);
  mem_free(b.followed);
  return st;
}
