#include "sched/pipe_index.h"

#include <string.h>

void pipe_index_free(pipe_index *x) {
  mem_free(x->f);
  mem_free(x->b);
  mem_free(x->w);
  mem_free(x->u);
  pipe_graph_free(&x->graph);
  *x = (pipe_index){0};
}

/* The k-th row behind the edges that enter (in), or leave, the stage of row i. */
static bool find_link(const pipe_index *x, uint32_t i, bool in, uint32_t k, pipe_link *out) {
  const pipe_graph *g = &x->graph;
  const pipe_row *row = &x->p->row[i];
  const uint32_t *first = &(in ? g->in0 : g->out0)[row->stage];
  if (first[0] + k >= first[1]) return false;
  out->edge = in ? g->in[first[0] + k] : first[0] + k;
  const uint32_t stage = in ? g->edge[out->edge].from : g->edge[out->edge].to;
  const size_t cell = pipe_cell(x->p, stage, row->microbatch);
  out->row = row->actions == PIPE_F ? x->f[cell] : x->b[cell];
  return true;
}

/* W and U have no links: what they need is on their device. */
static bool has_links(const pipe_row *row) { return row->actions & (PIPE_F | PIPE_B); }

bool pipe_input(const pipe_index *x, uint32_t row, uint32_t k, pipe_link *out) {
  const pipe_row *r = &x->p->row[row];
  return has_links(r) && find_link(x, row, r->actions == PIPE_F, k, out);
}

bool pipe_reader(const pipe_index *x, uint32_t row, uint32_t k, pipe_link *out) {
  const pipe_row *r = &x->p->row[row];
  return has_links(r) && find_link(x, row, r->actions != PIPE_F, k, out);
}

static hp_status check_row(const pipe_index *x, const pipe_row *row, uint32_t device) {
  const pipe_rows *p = x->p;
  char text[PIPE_ROW_NAME];
  if (row->stage >= p->stages || row->microbatch >= p->microbatches ||
      *pipe_action_name(row->actions) == '?')
    HP_FAIL(HP_ERR_INPUT,
            "%s: %s: expected a stage below %u, a micro-batch below %u and F, B, W, BW or U",
            x->source, pipe_row_name(row, text), p->stages, p->microbatches);
  if (device != p->placement[row->stage])
    HP_FAIL(HP_ERR_INPUT,
            "%s: %s is on device %u, but stage %u is placed on device %u; move the row there",
            x->source, pipe_row_name(row, text), device, row->stage, p->placement[row->stage]);
  if (row->actions == PIPE_U && row->microbatch)
    HP_FAIL(HP_ERR_INPUT, "%s: %s: a stage is updated once a step; write micro-batch 0", x->source,
            pipe_row_name(row, text));
  return HP_OK;
}

static hp_status put(const pipe_index *x, uint32_t *at, uint32_t i) {
  char one[PIPE_ROW_NAME], two[PIPE_ROW_NAME];
  if (*at != PIPE_NONE)
    HP_FAIL(HP_ERR_INPUT, "%s: %s does again what %s does; leave one of them out", x->source,
            pipe_row_name(&x->p->row[i], two), pipe_row_name(&x->p->row[*at], one));
  *at = i;
  return HP_OK;
}

static hp_status put_row(pipe_index *x, uint32_t i, uint32_t device) {
  const pipe_row *row = &x->p->row[i];
  HP_TRY(check_row(x, row, device));
  const size_t cell = pipe_cell(x->p, row->stage, row->microbatch);
  if (row->actions & PIPE_F) HP_TRY(put(x, &x->f[cell], i));
  if (row->actions & PIPE_B) HP_TRY(put(x, &x->b[cell], i));
  if (row->actions & PIPE_W || (row->actions & PIPE_B && !x->split)) HP_TRY(put(x, &x->w[cell], i));
  if (row->actions & PIPE_U) HP_TRY(put(x, &x->u[row->stage], i));
  return HP_OK;
}

/* One F and one B of the same device. */
static hp_status check_together(const pipe_index *x, uint32_t i, uint32_t end) {
  const pipe_row *row = &x->p->row[i];
  char one[PIPE_ROW_NAME];
  if (i + 1 < end && !row[1].with_next && pipe_rows_can_overlap(row, row + 1)) return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "%s: %s: rows that overlap are one F and one B or BW of a device",
          x->source, pipe_row_name(row, one));
}

static hp_status missing(const pipe_index *x, const char *action, uint32_t stage, uint32_t micro,
                         uint32_t near) {
  char text[PIPE_ROW_NAME];
  if (near == PIPE_NONE)
    HP_FAIL(HP_ERR_INPUT,
            "%s: stage %u %s %u is missing; each micro-batch passes each stage once (%u stages, %u "
            "micro-batches)",
            x->source, stage, action, micro, x->p->stages, x->p->microbatches);
  HP_FAIL(HP_ERR_INPUT, "%s: stage %u %s %u is missing, although there is %s%s", x->source, stage,
          action, micro, pipe_row_name(&x->p->row[near], text),
          *action == 'W' ? "; since other rows have W, add it or write BW in place of B" : "");
}

/* `before` ends before `after` begins. */
static hp_status check_order(const pipe_index *x, uint32_t before, uint32_t after) {
  const pipe_row *row = x->p->row;
  char one[PIPE_ROW_NAME], two[PIPE_ROW_NAME];
  if (before == after || (before < after && !(after == before + 1 && row[before].with_next)))
    return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "%s: %s needs %s, which does not come before it; expected F, B, W, U",
          x->source, pipe_row_name(&row[after], two), pipe_row_name(&row[before], one));
}

static hp_status check_orders(const pipe_index *x) {
  const pipe_rows *p = x->p;
  for (uint32_t s = 0; s < p->stages; s++)
    for (uint32_t k = 0; k < p->microbatches; k++) {
      const size_t cell = pipe_cell(p, s, k);
      HP_TRY(check_order(x, x->f[cell], x->b[cell]));
      HP_TRY(check_order(x, x->b[cell], x->w[cell]));
      if (x->updates) HP_TRY(check_order(x, x->w[cell], x->u[s]));
    }
  return HP_OK;
}

static hp_status check_complete(const pipe_index *x) {
  const pipe_rows *p = x->p;
  for (uint32_t s = 0; s < p->stages; s++)
    for (uint32_t k = 0; k < p->microbatches; k++) {
      const size_t cell = pipe_cell(p, s, k);
      if (x->f[cell] == PIPE_NONE) return missing(x, "F", s, k, x->b[cell]);
      if (x->b[cell] == PIPE_NONE) return missing(x, "B", s, k, x->f[cell]);
      if (x->w[cell] == PIPE_NONE) return missing(x, "W", s, k, x->b[cell]);
    }
  for (uint32_t s = 0; x->updates && s < p->stages; s++)
    if (x->u[s] == PIPE_NONE) return missing(x, "U", s, 0, PIPE_NONE);
  return HP_OK;
}

static hp_status index_rows(pipe_index *x) {
  const pipe_rows *p = x->p;
  const size_t cells = (size_t)p->stages * p->microbatches;
  if (pipe_rows_count(p) < cells)
    HP_FAIL(HP_ERR_INPUT,
            "%s: %zu rows; expected F and B of %u micro-batches on each of %u stages, %zu rows",
            x->source, pipe_rows_count(p), p->microbatches, p->stages, 2 * cells);
  x->f = mem_calloc(cells, sizeof *x->f);
  x->b = mem_calloc(cells, sizeof *x->b);
  x->w = mem_calloc(cells, sizeof *x->w);
  x->u = mem_calloc(p->stages, sizeof *x->u);
  if (!x->f || !x->b || !x->w || !x->u) return HP_ERR_OOM;
  memset(x->f, 0xff, cells * sizeof *x->f);
  memset(x->b, 0xff, cells * sizeof *x->b);
  memset(x->w, 0xff, cells * sizeof *x->w);
  memset(x->u, 0xff, p->stages * sizeof *x->u);
  for (uint32_t i = 0; i < pipe_rows_count(p); i++) {
    x->split |= p->row[i].actions == PIPE_W;
    x->updates |= p->row[i].actions == PIPE_U;
  }
  for (uint32_t d = 0; d < p->devices; d++)
    for (uint32_t i = p->row0[d]; i < p->row0[d + 1]; i++) {
      HP_TRY(put_row(x, i, d));
      if (p->row[i].with_next) HP_TRY(check_together(x, i, p->row0[d + 1]));
    }
  HP_TRY(check_complete(x));
  return check_orders(x);
}

hp_status pipe_index_build(const pipe_rows *p, const char *source, const pipe_costs *c,
                           pipe_index *out) {
  pipe_index x = {.p = p, .source = source};
  HP_TRY(pipe_graph_create(p->stages, c->edge, c->edges, &x.graph));
  hp_status st = index_rows(&x);
  if (st) pipe_index_free(&x);
  else *out = x;
  return st;
}

double pipe_together_s(const pipe_index *x, const pipe_costs *c, uint32_t i) {
  const uint32_t n = pipe_together(x->p, i);
  double sum = 0;
  for (uint32_t k = i; k < i + n; k++) sum += pipe_row_s(c, &x->p->row[k], x->split);
  return n > 1 && c->overlapped > 0 ? sum * c->overlapped : sum;
}
