/* Which layers are on which stage of a pipeline. */
#include "model/lm_stages.h"

#include "model/param_state.h"

#include <math.h>
#include <string.h>

/* Work of each layer and of the head behind them, in operations of a token: what a stage takes is
 * about proportional to it. */
typedef struct {
  double *layer; /* [layers] */
  double head;
} work;

static void find_work(const lm *m, work *w) {
  const model_config *c = &m->c;
  w->head = (double)c->vocab * (double)c->hidden; /* tied or not */
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    bool inside = p->layer >= 0 && p->layer < c->layers;
    if (inside && lm_is_product(m, p)) w->layer[p->layer] += lm_elements_used(m, p);
  }
  for (int64_t l = 0; l < c->layers; l++) w->layer[l] += 1; /* so that none is free */
}

/* Layers from..to - 1 on one stage. */
static double stage_work(double head, const double *sum, int64_t from, int64_t to, int64_t layers) {
  double own = sum[to] - sum[from];
  return to == layers ? own + head : own;
}

/* least[s][l]: the most work of a stage when the first l layers are on s stages, at best;
 * cut[s][l]: where the last of these stages begins. */
static void cut(double head, const double *sum, int64_t layers, int stages, double *least,
                int64_t *begin) {
  size_t row = (size_t)layers + 1;
  for (int64_t l = 0; l <= layers; l++) least[l] = l ? INFINITY : 0;
  for (int s = 1; s <= stages; s++)
    for (int64_t l = 0; l <= layers; l++) {
      double *best = &least[(size_t)s * row + (size_t)l];
      *best = INFINITY;
      for (int64_t from = l; from-- > 0;) {
        double own = stage_work(head, sum, from, l, layers);
        double most = fmax(own, least[(size_t)(s - 1) * row + (size_t)from]);
        if (most >= *best) continue;
        *best = most;
        begin[(size_t)s * row + (size_t)l] = from;
      }
    }
}

/* So that the largest stage of the group has as little work as possible.  head: work behind its
 * layers. */
static hp_status share_group(double head, const double *sum, const group_stages *g,
                             uint16_t *stage_of) {
  int64_t at = g->layers;
  size_t row = (size_t)g->layers + 1, cells = ((size_t)g->stages + 1) * row;
  double *least = mem_calloc(cells, sizeof *least);
  int64_t *begin = mem_calloc(cells, sizeof *begin);
  hp_status st = least && begin ? HP_OK : HP_ERR_OOM;
  if (!st) cut(head, sum + g->first, g->layers, g->stages, least, begin);
  for (int s = g->stages; !st && s > 0; s--) {
    int64_t from = begin[(size_t)s * row + (size_t)at];
    while (at > from) stage_of[g->first + --at] = (uint16_t)(g->stage + s - 1);
  }
  mem_free(least);
  mem_free(begin);
  return st;
}

/* The sum of the gradients of a tied head, where the head is. */
static hp_status declare_head(hp_device *d, const lm *m) {
  char name[STATE_NAME];
  param_state_name(STATE_GRAD, m->c.family->head_name, name);
  return lm_tied_param(m) ? hp_device_stage(d, name, m->stages - 1) : HP_OK;
}

/* A param and its states. */
static hp_status declare(hp_device *d, const model_param *p) {
  char name[STATE_NAME];
  for (param_state s = STATE_PARAM; s < PARAM_STATES; s++) {
    param_state_name(s, p->name, name);
    HP_TRY(hp_device_stage(d, name, p->stage));
  }
  return HP_OK;
}

static int64_t sum_of(const int64_t *x, int n) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}

/* By hand: layers of each stage. */
static hp_status check_cut(const lm *m, int stages, const placement *p) {
  if (p->cuts != stages)
    HP_FAIL(HP_ERR_LAYOUT, "has %d numbers, and the pipeline has %d stages; expected one for each",
            p->cuts, stages);
  for (int s = 0; s < stages; s++) {
    if (p->cut[s] < 0 || p->cut[s] > m->c.layers)
      HP_FAIL(HP_ERR_LAYOUT, "%lld layers on stage %d, and the model has %lld",
              (long long)p->cut[s], s, (long long)m->c.layers);
    if (!p->cut[s] && s && s + 1 < stages)
      HP_FAIL(HP_ERR_LAYOUT,
              "no layer on stage %d; only the first stage, which has the embedding, and the last, "
              "which has the head, may have none",
              s);
  }
  int64_t sum = sum_of(p->cut, stages);
  if (sum != m->c.layers)
    HP_FAIL(HP_ERR_LAYOUT, "adds up to %lld layers, and the model has %lld", (long long)sum,
            (long long)m->c.layers);
  return HP_OK;
}

static hp_status take_group(const placement *p, const char *name, const group_stages *g,
                            uint16_t *stage_of) {
  int64_t sum = sum_of(p->cut + g->stage, g->stages);
  if (sum != g->layers)
    HP_FAIL(HP_ERR_LAYOUT, "%lld layers on the %d stage%s of %s, which has %lld layers",
            (long long)sum, g->stages, g->stages == 1 ? "" : "s", name, (long long)g->layers);
  stage_of += g->first;
  for (int s = g->stage; s < g->stage + g->stages; s++)
    for (int64_t l = 0; l < p->cut[s]; l++) *stage_of++ = (uint16_t)s;
  return HP_OK;
}

/* A schedule may have several stages on a mesh, if they are of one group. */
static hp_status check_stages(const lm *m, int stages, const placement *p) {
  if (p->groups > 1 && stages != placement_meshes(p))
    HP_FAIL(HP_ERR_LAYOUT,
            "%d stages on %d meshes; groups have one stage on each mesh, in the order of their "
            "layers, as with the schedules 1f1b, gpipe, zb-h1 and zb-2p",
            stages, placement_meshes(p));
  if (p->groups == 1 && !p->cut && stages > m->c.layers)
    HP_FAIL(HP_ERR_LAYOUT,
            "%d stages of a pipeline, and the model has %lld layers; expected a layer or more for "
            "each stage",
            stages, (long long)m->c.layers);
  return p->cut ? check_cut(m, stages, p) : HP_OK;
}

static hp_status place_groups(const lm *m, int stages, const placement *p, const work *w,
                              const double *sum, uint16_t *stage_of) {
  for (int i = 0; i < p->groups; i++) {
    group_stages g = placement_stages(p, i, m->c.layers, stages);
    double head = i + 1 == p->groups ? w->head : 0;
    HP_TRY(p->cut ? take_group(p, p->group[i].name, &g, stage_of)
                  : share_group(head, sum, &g, stage_of));
  }
  return HP_OK;
}

hp_status lm_place(lm *m, hp_device *d, const placement *p) {
  int stages = hp_device_stages(d);
  size_t layers = (size_t)m->c.layers;
  if (stages == 1) return HP_OK;
  HP_TRY(check_stages(m, stages, p));
  uint16_t *stage_of = mem_calloc(layers, sizeof *stage_of);
  double *sum = mem_calloc(layers + 1, sizeof *sum);
  work w = {.layer = mem_calloc(layers, sizeof *w.layer)};
  hp_status st = stage_of && sum && w.layer ? HP_OK : HP_ERR_OOM;
  if (!st) find_work(m, &w);
  for (size_t l = 0; !st && l < layers; l++) sum[l + 1] = sum[l] + w.layer[l];
  if (!st) st = place_groups(m, stages, p, &w, sum, stage_of);
  if (!st) st = lm_set_stages(m, stages, stage_of);
  for (size_t i = 0; !st && i < m->params.len; i++) st = declare(d, &m->params.at[i]);
  if (!st) st = declare_head(d, m);
  mem_free(w.layer);
  mem_free(sum);
  mem_free(stage_of);
  return st;
}
