/* Which dims of a value come from dims of an input that an axis shards: its batch, its sequence.
 *
 * Rows keep their sharding: if the axis that shards the rows also shards a param that they are
 * multiplied with (zero=3), the param is gathered.  Only if that costs several times as much, as
 * for a few rows of a large table, rows are sent to the param, and the results are sent back at
 * once; otherwise every following op would have the rows of all devices, in its work and in
 * memory. */
#include "shard/shard_state.h"

#include <string.h>

void shard_rows_of_input(shard *s, val v) {
  const layout *l = &s->now[v];
  for (int d = 0; d < l->rank; d++)
    for (int k = 0; k < l->n[d]; k++) s->rows[v].dim[d] |= (uint8_t)(1u << l->axis[d][k]);
}

/* A dim comes from all dims of operands that share a factor with it. */
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

void shard_rows_of_annotation(shard *s, val from, val to) {
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

/* Axes that shard the value along its rows. */
static uint8_t axes_cutting_rows(const dim_axes *rows, const layout *l) {
  uint8_t axes = 0;
  for (int d = 0; d < l->rank; d++)
    for (int k = 0; k < l->n[d]; k++) axes |= rows->dim[d] & (uint8_t)(1u << l->axis[d][k]);
  return axes;
}

/* Axes that shard the operands' rows but no longer those of result v with layout l. */
static uint8_t axes_left_behind(const shard *s, const ir_node *n, val v, const layout *l) {
  const val *in = graph_in(s->r.from, n);
  uint8_t cut = 0;
  for (int i = 0; i < n->n_in; i++) cut |= axes_cutting_rows(&s->rows[in[i]], &s->now[in[i]]);
  return (uint8_t)(cut & shard_row_axes(&s->rows[v]) & ~axes_cutting_rows(&s->rows[v], l));
}

void shard_rows_home(const shard *s, const ir_node *n, val v, const layout *l, layout *out) {
  const ir_value *x = graph_value(s->r.from, v);
  uint8_t axes = axes_left_behind(s, n, v, l);
  *out = *l;
  if (!axes) return;
  *out = (layout){.rank = l->rank};
  memcpy(out->shard_size, l->shard_size, sizeof out->shard_size);
  for (int a = 0; a < s->m->axes; a++) out->partial[a] = axes >> a & 1 ? 0 : l->partial[a];
  for (int d = 0; d < l->rank; d++)
    for (int k = 0; k < l->n[d]; k++)
      if (!(axes >> l->axis[d][k] & 1)) layout_append(out, d, l->axis[d][k]);
  for (int d = 0; d < l->rank; d++)
    for (int a = 0; a < s->m->axes; a++)
      if (axes & s->rows[v].dim[d] & 1u << a && layout_dim_of(out, a) < 0 &&
          x->dim[d] % (layout_shard_count(s->m, out, d) * s->m->size[a]) == 0)
        layout_append(out, d, a);
}

bool shard_keeps_rows(const shard *s, const ir_node *n, const choice *c) {
  for (int o = 0; o < n->n_out; o++)
    if (axes_left_behind(s, n, n->out0 + (val)o, &c->out[o])) return false;
  return true;
}
