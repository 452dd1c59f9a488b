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
static double stage_work(const work *w, const double *sum, int64_t from, int64_t to,
                         int64_t layers) {
  double own = sum[to] - sum[from];
  return to == layers ? own + w->head : own;
}

/* least[s][l]: the most work of a stage when the first l layers are on s stages, at best;
 * cut[s][l]: where the last of these stages begins. */
static void cut(const work *w, const double *sum, int64_t layers, int stages, double *least,
                int64_t *begin) {
  size_t row = (size_t)layers + 1;
  for (int64_t l = 0; l <= layers; l++) least[l] = l ? INFINITY : 0;
  for (int s = 1; s <= stages; s++)
    for (int64_t l = 0; l <= layers; l++) {
      double *best = &least[(size_t)s * row + (size_t)l];
      *best = INFINITY;
      for (int64_t from = l; from-- > 0;) {
        double own = stage_work(w, sum, from, l, layers);
        double most = fmax(own, least[(size_t)(s - 1) * row + (size_t)from]);
        if (most >= *best) continue;
        *best = most;
        begin[(size_t)s * row + (size_t)l] = from;
      }
    }
}

static hp_status find_stages(const lm *m, int stages, uint16_t *stage_of) {
  int64_t layers = m->c.layers, at = layers;
  size_t row = (size_t)layers + 1, cells = ((size_t)stages + 1) * row;
  work w = {.layer = mem_calloc(row, sizeof *w.layer)};
  double *sum = mem_calloc(row, sizeof *sum), *least = mem_calloc(cells, sizeof *least);
  int64_t *begin = mem_calloc(cells, sizeof *begin);
  hp_status st = w.layer && sum && least && begin ? HP_OK : HP_ERR_OOM;
  if (!st) {
    find_work(m, &w);
    for (int64_t l = 0; l < layers; l++) sum[l + 1] = sum[l] + w.layer[l];
    cut(&w, sum, layers, stages, least, begin);
    for (int s = stages; s > 0; s--) {
      int64_t from = begin[(size_t)s * row + (size_t)at];
      while (at > from) stage_of[--at] = (uint16_t)(s - 1);
    }
  }
  mem_free(w.layer);
  mem_free(sum);
  mem_free(least);
  mem_free(begin);
  return st;
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

/* By hand: layers of each stage. */
static hp_status take_stages(const lm *m, int stages, const int64_t *cut, int n,
                             uint16_t *stage_of) {
  int64_t sum = 0;
  if (n != stages)
    HP_FAIL(HP_ERR_LAYOUT, "has %d numbers, and the pipeline has %d stages; expected one for each",
            n, stages);
  for (int s = 0; s < stages; s++) {
    if (cut[s] < 0 || cut[s] > m->c.layers)
      HP_FAIL(HP_ERR_LAYOUT, "%lld layers on stage %d, and the model has %lld", (long long)cut[s],
              s, (long long)m->c.layers);
    if (!cut[s] && s && s + 1 < stages)
      HP_FAIL(HP_ERR_LAYOUT,
              "no layer on stage %d; only the first stage, which has the embedding, and the last, "
              "which has the head, may have none",
              s);
    sum += cut[s];
  }
  if (sum != m->c.layers)
    HP_FAIL(HP_ERR_LAYOUT, "adds up to %lld layers, and the model has %lld", (long long)sum,
            (long long)m->c.layers);
  for (int s = 0; s < stages; s++)
    for (int64_t l = 0; l < cut[s]; l++) *stage_of++ = (uint16_t)s;
  return HP_OK;
}

static hp_status share_out(const lm *m, int stages, uint16_t *stage_of) {
  if (stages > m->c.layers)
    HP_FAIL(HP_ERR_LAYOUT,
            "%d stages of a pipeline, and the model has %lld layers; expected a layer or more for "
            "each stage",
            stages, (long long)m->c.layers);
  return find_stages(m, stages, stage_of);
}

hp_status lm_place(lm *m, hp_device *d, const int64_t *cut, int n) {
  int stages = hp_device_stages(d);
  if (stages == 1) return HP_OK;
  uint16_t *stage_of = mem_calloc((size_t)m->c.layers, sizeof *stage_of);
  HP_TRY_MEM(stage_of);
  hp_status st = cut ? take_stages(m, stages, cut, n, stage_of) : share_out(m, stages, stage_of);
  if (!st) st = lm_set_stages(m, stages, stage_of);
  for (size_t i = 0; !st && i < m->params.len; i++) st = declare(d, &m->params.at[i]);
  mem_free(stage_of);
  return st;
}
