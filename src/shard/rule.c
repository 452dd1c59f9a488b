#include "shard/rule.h"

#include "shard/slices.h"

#include <string.h>

typedef struct {
  uint8_t n, axis[LAYOUT_AXES];
} axes;

typedef struct {
  const mesh *m;
  const rule *r;
  const layout *in;
  axes of[RULE_FACTORS];          /* axes that shard a factor */
  int factor_of[LAYOUT_AXES];     /* the factor that an axis shards; -1: none */
  partial_op passes[LAYOUT_AXES]; /* what stays partial in the results */
} derivation;

/* --- operands to factors --------------------------------------------------------------------- */

static int64_t axes_size(const mesh *m, const axes *a) {
  int64_t n = 1;
  for (int i = 0; i < a->n; i++) n *= m->size[a->axis[i]];
  return n;
}

static hp_status conflict(const derivation *d, int operand, int dim, const char *why, int axis) {
  HP_FAIL(HP_ERR_LAYOUT, "operand %d, dim %d: %s (axis \"%s\")", operand, dim, why,
          d->m->name[axis]);
}

/* The factor's axes are the longer of two lists; one list must be the beginning of the other. */
static hp_status merge(derivation *d, int operand, int dim, int factor, const axes *more) {
  axes *have = &d->of[factor];
  int common = have->n < more->n ? have->n : more->n;
  if (memcmp(have->axis, more->axis, (size_t)common))
    return conflict(d, operand, dim, "is sharded differently from the dim that shares its factor",
                    more->axis[0]);
  for (int i = have->n; i < more->n; i++) {
    int axis = more->axis[i];
    if (d->factor_of[axis] >= 0 && d->factor_of[axis] != factor)
      return conflict(d, operand, dim, "is sharded by an axis that shards another dim of the op",
                      axis);
    if (d->r->factor[factor].replicated && d->m->size[axis] > 1)
      return conflict(d, operand, dim, "must be replicated for this op", axis);
    d->factor_of[axis] = factor;
  }
  if (more->n > have->n) *have = *more;
  return HP_OK;
}

/* Applies the axes that the rule itself gives to factor f. */
static hp_status preset(derivation *d, int f) {
  axes given = {.n = d->r->factor[f].n};
  memcpy(given.axis, d->r->factor[f].axis, given.n);
  return given.n ? merge(d, -1, -1, f, &given) : HP_OK;
}

/* In a dim of several factors, an axis goes to the outermost factor that it still divides.  Axes
 * of one device are lost there. */
static hp_status spread(derivation *d, int operand, int dim) {
  const rule_tensor *t = &d->r->in[operand];
  const layout *l = &d->in[operand];
  axes part[RULE_DIM_FACTORS] = {0};
  int k = 0;
  for (int i = 0; i < l->n[dim]; i++) {
    int axis = l->axis[dim][i];
    if (d->m->size[axis] == 1) continue;
    for (;; k++) {
      if (k == t->n[dim])
        return conflict(d, operand, dim, "is sharded into more shards than it has elements", axis);
      int64_t size = d->r->factor[t->factor[dim][k]].size, shards = axes_size(d->m, &part[k]);
      if (size % (shards * d->m->size[axis]) == 0) break;
      if (shards != size)
        return conflict(d, operand, dim, "is sharded across the dims that it becomes", axis);
    }
    part[k].axis[part[k].n++] = (uint8_t)axis;
  }
  for (k = 0; k < t->n[dim]; k++)
    if (part[k].n) HP_TRY(merge(d, operand, dim, t->factor[dim][k], &part[k]));
  return HP_OK;
}

static hp_status project(derivation *d, int operand) {
  const rule_tensor *t = &d->r->in[operand];
  const layout *l = &d->in[operand];
  if (t->absent) return HP_OK;
  if (l->rank != t->rank)
    HP_FAIL(HP_ERR_LAYOUT, "operand %d: its layout has %d dims, it has %d", operand, l->rank,
            t->rank);
  for (int dim = 0; dim < t->rank; dim++) {
    axes all = {.n = l->n[dim]};
    memcpy(all.axis, l->axis[dim], all.n);
    if (t->n[dim] == 1) HP_TRY(merge(d, operand, dim, t->factor[dim][0], &all));
    else if (t->n[dim] > 1) HP_TRY(spread(d, operand, dim));
    else if (axes_size(d->m, &all) > 1)
      return conflict(d, operand, dim, "has size 1 and is repeated, so it cannot be sharded",
                      all.axis[0]);
  }
  return HP_OK;
}

/* --- partial operands --------------------------------------------------------------------------
 */

/* Is the reduction linear, so that a linear op may come before it? */
static bool is_linear(partial_op op) { return op == PARTIAL_SUM || op == PARTIAL_AVG; }

/* For one axis: the reduction that may stay partial in the results, given those of the operands. */
static partial_op partial_after(const derivation *d, int axis) {
  partial_op op = PARTIAL_NONE;
  int partial = 0, given = 0;
  bool first = false, same = true;
  for (int i = 0; i < d->r->n_in; i++) {
    if (d->r->in[i].absent) continue;
    partial_op mine = (partial_op)d->in[i].partial[axis];
    given++;
    if (!mine) continue;
    same &= !op || op == mine;
    first |= i == 0;
    op = mine;
    partial++;
  }
  if (!partial || !same) return PARTIAL_NONE;
  switch (d->r->linearity) {
  case LIN_NONE: return PARTIAL_NONE;
  case LIN_MOVE: return partial == given ? op : PARTIAL_NONE;
  case LIN_JOINT: return is_linear(op) ? op : PARTIAL_NONE;
  case LIN_EACH: return is_linear(op) && partial == 1 ? op : PARTIAL_NONE;
  case LIN_FIRST: return is_linear(op) && partial == 1 && first ? op : PARTIAL_NONE;
  }
  return PARTIAL_NONE;
}

static hp_status find_passes(derivation *d) {
  for (int a = 0; a < d->m->axes; a++) {
    d->passes[a] = partial_after(d, a);
    if (d->passes[a] && d->factor_of[a] >= 0)
      HP_FAIL(HP_ERR_LAYOUT, "axis \"%s\" shards one operand, and another is partial over it",
              d->m->name[a]);
  }
  return HP_OK;
}

/* --- factors to layouts ----------------------------------------------------------------------- */

/* A dim from its factors: after a factor that is not sharded into single elements no factor may
 * be sharded. */
static hp_status compose(const derivation *d, const rule_tensor *t, int dim, layout *l) {
  bool open = false;
  for (int k = 0; k < t->n[dim]; k++) {
    int f = t->factor[dim][k];
    const axes *a = &d->of[f];
    if (a->n && open)
      HP_FAIL(HP_ERR_LAYOUT, "shards of dim %d of the result would not be contiguous (axis \"%s\")",
              dim, d->m->name[a->axis[0]]);
    for (int i = 0; i < a->n; i++)
      if (t->n[dim] == 1 || d->m->size[a->axis[i]] > 1) layout_append(l, dim, a->axis[i]);
    open |= axes_size(d->m, a) != d->r->factor[f].size;
  }
  return HP_OK;
}

static hp_status compose_all(const derivation *d, const rule_tensor *t, layout *l) {
  *l = (layout){.rank = t->rank};
  for (int dim = 0; dim < t->rank; dim++) HP_TRY(compose(d, t, dim, l));
  return HP_OK;
}

/* A result without a sharded factor is partial.  If the factor has no reduction, another result
 * must have it, since otherwise elements would be lost. */
static hp_status contract(const derivation *d, layout *out) {
  for (int f = 0; f < d->r->factors; f++) {
    partial_op op = d->r->factor[f].reduce;
    bool kept = op != PARTIAL_NONE;
    for (int o = 0; o < d->r->n_out; o++) {
      bool has = rule_has(&d->r->out[o], f);
      kept |= has;
      for (int i = 0; !has && op && i < d->of[f].n; i++)
        out[o].partial[d->of[f].axis[i]] = (uint8_t)op;
    }
    if (!kept && axes_size(d->m, &d->of[f]) > 1)
      HP_FAIL(HP_ERR_LAYOUT, "axis \"%s\" shards a dim that must be replicated for this op",
              d->m->name[d->of[f].axis[0]]);
  }
  return HP_OK;
}

/* Operands are sharded as their factors are, and partial only where the op allows it. */
static hp_status needs(const derivation *d, int operand, layout *need) {
  const rule_tensor *t = &d->r->in[operand];
  const layout *has = &d->in[operand];
  if (t->absent) {
    *need = *has;
    return HP_OK;
  }
  HP_TRY(compose_all(d, t, need));
  for (int dim = 0; dim < t->rank; dim++)
    if (!t->n[dim] || (t->n[dim] > 1 &&
                       layout_shard_count(d->m, need, dim) == layout_shard_count(d->m, has, dim))) {
      need->n[dim] = has->n[dim]; /* including axes of one device */
      memcpy(need->axis[dim], has->axis[dim], sizeof need->axis[dim]);
    }
  for (int a = 0; a < d->m->axes; a++) {
    bool all = d->r->linearity == LIN_JOINT || d->r->linearity == LIN_MOVE;
    if (d->passes[a] && (all || has->partial[a])) need->partial[a] = (uint8_t)d->passes[a];
  }
  return HP_OK;
}

hp_status rule_derive(const mesh *m, const rule *r, const layout *in, layout *need, layout *out) {
  derivation d = {.m = m, .r = r, .in = in};
  for (int a = 0; a < LAYOUT_AXES; a++) d.factor_of[a] = -1;
  for (int f = 0; f < r->factors; f++) HP_TRY(preset(&d, f));
  for (int i = 0; i < r->n_in; i++) HP_TRY(project(&d, i));
  HP_TRY(find_passes(&d));
  for (int i = 0; i < r->n_in; i++) HP_TRY(needs(&d, i, &need[i]));
  for (int o = 0; o < r->n_out; o++) {
    HP_TRY(compose_all(&d, &r->out[o], &out[o]));
    for (int a = 0; a < m->axes; a++) out[o].partial[a] = (uint8_t)d.passes[a];
  }
  HP_TRY(contract(&d, out));
  if (r->start) memcpy(need[r->start - 1].partial, out[0].partial, sizeof out[0].partial);
  return HP_OK;
}
