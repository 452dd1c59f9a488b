/* Which dims of a value come from dims of an input that an axis cuts: its batch, its sequence.
 *
 * Rows stay where they are: where a param is cut by the axis that cuts the rows it meets (zero=3),
 * the param is gathered.  Moving rows would often receive fewer bytes for one op, but leaves every
 * device with the rows of all, whose cost is in the ops behind and in memory. */
#include "pass/shard_state.h"

#include <string.h>

void shard_rows_of_input(shard *s, val v) {
  const layout *l = &s->now[v];
  for (int d = 0; d < l->rank; d++)
    for (int k = 0; k < l->n[d]; k++) s->rows[v].dim[d] |= (uint8_t)(1u << l->axis[d][k]);
}

/* A dim comes from all dims of operands that have a factor of it. */
static uint8_t axes_of_factor(const shard *s, const ir_node *n, const rule *r, int factor) {
  const val *in = graph_in(s->r.from, n);
  uint8_t axes = 0;
  for (int i = 0; i < r->n_in; i++)
    for (int d = 0; !r->in[i].absent && d < r->in[i].rank; d++)
      if (memchr(r->in[i].factor[d], factor, r->in[i].n[d])) axes |= s->rows[in[i]].dim[d];
  return axes;
}

void shard_rows_of_results(shard *s, const ir_node *n, const rule *r) {
  for (int o = 0; o < r->n_out; o++)
    for (int d = 0; d < r->out[o].rank; d++)
      for (int k = 0; k < r->out[o].n[d]; k++)
        s->rows[n->out0 + (val)o].dim[d] |= axes_of_factor(s, n, r, r->out[o].factor[d][k]);
}

void shard_rows_of_mark(shard *s, val from, val to) {
  for (int d = 0; d < s->now[to].rank; d++)
    for (int a = 0; a < s->m->axes; a++)
      if (s->rows[from].dim[d] >> a & 1 && layout_dim_of(&s->now[to], a) >= 0)
        s->rows[to].dim[d] |= (uint8_t)(1u << a);
}

uint8_t shard_row_axes(const dim_axes *rows) {
  uint8_t axes = 0;
  for (int d = 0; d < HP_MAX_RANK; d++) axes |= rows->dim[d];
  return axes;
}

/* Axes that cut the value along its rows. */
static uint8_t axes_cutting_rows(const dim_axes *rows, const layout *l) {
  uint8_t axes = 0;
  for (int d = 0; d < l->rank; d++)
    for (int k = 0; k < l->n[d]; k++) axes |= rows->dim[d] & (uint8_t)(1u << l->axis[d][k]);
  return axes;
}

bool shard_keeps_rows(const shard *s, const ir_node *n, const choice *c) {
  const val *in = graph_in(s->r.from, n);
  uint8_t cut = 0;
  for (int i = 0; i < n->n_in; i++) cut |= axes_cutting_rows(&s->rows[in[i]], &s->now[in[i]]);
  for (int o = 0; o < n->n_out; o++) {
    const dim_axes *rows = &s->rows[n->out0 + (val)o];
    if (cut & shard_row_axes(rows) & ~axes_cutting_rows(rows, &c->out[o])) return false;
  }
  return true;
}
