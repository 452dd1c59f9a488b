#include "train/train_cut.h"

#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "model/lm_stages.h"
#include "train/stage_balance.h"

#include <math.h>
#include <string.h>

typedef struct {
  int64_t layers;
  int stages;
  layer_cost *plain, *recomputed; /* [layers + 2] */
  uint32_t *in_flight;            /* [stages] */
  uint32_t chunks;                /* the most stages of a device */
  double work_bytes;              /* of a device, besides what stage_balance counts */
} costs;

/* --- what a plan says ------------------------------------------------------------------------- */

/* Of each stage the device that has it. */
static hp_status find_device(const tree_node *devices, int64_t stage, const tree_node **out) {
  for (uint32_t i = 0; i < devices->len; i++) {
    const tree_node *list;
    HP_TRY(tree_need_list(devices->child[i], "stages", &list));
    for (uint32_t k = 0; k < list->len; k++)
      if (list->child[k]->integer == stage) {
        *out = devices->child[i];
        return HP_OK;
      }
  }
  TREE_FAIL(devices, "no device has stage %lld", (long long)stage);
}

/* The place of a block among the costs; -1: it has none. */
static int64_t place_of(const costs *c, int64_t stage, int64_t block) {
  if (block) return block <= c->layers ? block : -1;
  return stage == 0 ? 0 : stage + 1 == c->stages ? c->layers + 1 : -1;
}

static double number_of(const tree_node *m, const char *key) {
  double x = 0;
  if (tree_need_double(m, key, &x)) err_clear();
  return x;
}

/* Params of the blocks on the stages of a device. */
static double param_bytes(const tree_node *device, const tree_node *blocks) {
  const tree_node *stages = tree_get(device, "stages");
  double sum = 0;
  for (uint32_t i = 0; i < blocks->len; i++)
    for (uint32_t k = 0; k < stages->len; k++)
      if (number_of(blocks->child[i], "stage") == (double)stages->child[k]->integer)
        sum += number_of(blocks->child[i], "param_bytes");
  return sum;
}

/* Gradients and optimizer state are spread like params; so is the time of the update. */
static hp_status add_block(const costs *c, const tree_node *root, const tree_node *block,
                           layer_cost *of) {
  const tree_node *devices = tree_get(root, "devices"), *blocks = tree_get(root, "blocks");
  const tree_node *device, *stages = tree_get(root, "stages");
  int64_t stage = (int64_t)number_of(block, "stage");
  int64_t at = place_of(c, stage, (int64_t)number_of(block, "block"));
  if (at < 0) return HP_OK;
  HP_TRY(find_device(devices, stage, &device));
  double params = param_bytes(device, blocks), own = number_of(block, "param_bytes");
  double share = params > 0 ? own / params : 0, update = 0;
  const tree_node *list = tree_get(device, "stages");
  for (uint32_t i = 0; i < list->len; i++)
    update += number_of(stages->child[list->child[i]->integer], "update_s");
  of[at].seconds += number_of(block, "forward_s") + number_of(block, "backward_s");
  of[at].seconds += share * update / number_of(root, "microbatches");
  of[at].state_bytes += (uint64_t)(share * number_of(device, "state_bytes"));
  of[at].stored_bytes += (uint64_t)number_of(block, "stored_bytes");
  return HP_OK;
}

/* What a device needs besides params and what it stores for the backward. */
static double find_work(const costs *c, const tree_node *root, const tree_node *device) {
  const tree_node *list = tree_get(device, "stages"), *blocks = tree_get(root, "blocks");
  double stored = 0;
  for (uint32_t i = 0; i < blocks->len; i++)
    for (uint32_t k = 0; k < list->len; k++)
      if (number_of(blocks->child[i], "stage") == (double)list->child[k]->integer)
        stored +=
            number_of(blocks->child[i], "stored_bytes") * c->in_flight[list->child[k]->integer];
  return number_of(device, "planned_bytes") - number_of(device, "state_bytes") - stored;
}

static hp_status read_plan(costs *c, const tree_node *root, layer_cost *of) {
  const tree_node *devices, *blocks, *device;
  HP_TRY(tree_need_list(root, "devices", &devices));
  HP_TRY(tree_need_list(root, "blocks", &blocks));
  for (int s = 0; s < c->stages; s++) {
    HP_TRY(find_device(devices, s, &device));
    uint32_t chunks = tree_get(device, "stages")->len;
    c->in_flight[s] = (uint32_t)ceil(number_of(device, "in_flight") / chunks);
    if (chunks > c->chunks) c->chunks = chunks;
  }
  for (uint32_t i = 0; i < devices->len; i++)
    c->work_bytes = fmax(c->work_bytes, find_work(c, root, devices->child[i]));
  for (uint32_t i = 0; i < blocks->len; i++) HP_TRY(add_block(c, root, blocks->child[i], of));
  return HP_OK;
}

/* limited: with the bytes of devices. */
static hp_status plan_once(costs *c, step_planner *p, bool limited, bool remat, layer_cost *of) {
  const char *what = limited ? "pipeline.json" : "pipeline.costs.json";
  char *text = NULL;
  tree t = {0};
  hp_status st = step_memory_explain(p, remat, what, &text);
  if (!st) st = json_parse(text, strlen(text), what, &t);
  if (!st) st = read_plan(c, t.root, of);
  tree_free(&t);
  hp_free(text);
  return st;
}

/* --- the cut ---------------------------------------------------------------------------------- */

static hp_status find_costs(costs *c, step_planner *p, const step_options *o, bool limited) {
  HP_TRY(plan_once(c, p, limited, false, c->plain));
  if (limited && o->remat_auto && !o->compile.remat)
    return plan_once(c, p, limited, true, c->recomputed);
  mem_free(c->recomputed);
  c->recomputed = NULL;
  return HP_OK;
}

static void tell(const costs *c, const int64_t *cut) {
  str text = {0};
  for (int s = 0; s < c->stages; s++) str_printf(&text, "%s%lld", s ? ", " : "", (long long)cut[s]);
  if (!text.failed) log_info("pipeline: [%s] layers on the stages, by predicted time", text.at);
  str_free(&text);
}

/* The costs of group i, whose ends are those of the model where it has them; NULL: there are none.
 */
static layer_cost *copy_costs(const placement *p, int i, const group_stages *g,
                              const layer_cost *of) {
  size_t n = (size_t)g->layers + 2;
  layer_cost *copy = of ? mem_calloc(n, sizeof *copy) : NULL;
  if (!copy) return NULL;
  memcpy(copy, of + g->first, n * sizeof *copy);
  if (i) copy[0] = (layer_cost){0};
  if (i + 1 < p->groups) copy[n - 1] = (layer_cost){0};
  return copy;
}

static hp_status cut_group(const costs *c, const placement *p, int i, uint64_t limit,
                           int64_t *cut) {
  group_stages g = placement_stages(p, i, c->layers, c->stages);
  layer_cost *plain = copy_costs(p, i, &g, c->plain);
  layer_cost *recomputed = copy_costs(p, i, &g, c->recomputed);
  balance_task t = {.layers = g.layers,
                    .stages = g.stages,
                    .plain = plain,
                    .recomputed = recomputed,
                    .in_flight = c->in_flight + g.stage,
                    .limit = limit};
  hp_status st = plain && (recomputed || !c->recomputed) ? HP_OK : HP_ERR_OOM;
  if (!st && g.stages == 1) cut[g.stage] = g.layers;
  else if (!st) st = stage_balance(&t, cut + g.stage);
  mem_free(plain);
  mem_free(recomputed);
  return st;
}

static hp_status choose(const costs *c, const placement *p, uint64_t limit, int64_t *cut) {
  double room = (double)limit - c->work_bytes;
  if (limit) limit = room > c->chunks ? (uint64_t)(room / c->chunks) : 1;
  for (int i = 0; i < p->groups; i++) HP_TRY(cut_group(c, p, i, limit, cut));
  return hp_world_broadcast(cut, (size_t)c->stages * sizeof *cut); /* predictions may differ */
}

/* Is the model placed by this cut already? */
static bool is_placed(const lm *m, const int64_t *cut) {
  int64_t l = 0;
  for (int s = 0; s < m->stages; s++)
    for (int64_t k = 0; k < cut[s]; k++, l++)
      if (m->stage_of[l] != s) return false;
  return true;
}

static hp_status place(step_planner *planner, const placement *p, int64_t *cut, int stages) {
  planned_subject of = step_planner_subject(planner);
  placement by_time = *p;
  by_time.cut = cut;
  by_time.cuts = stages;
  if (is_placed(of.m, cut)) return HP_OK;
  step_planner_drop_pieces(planner);
  return lm_place(of.m, of.d, &by_time);
}

static hp_status cut_by_time(costs *c, step_planner *planner, const placement *p, int64_t *cut) {
  planned_subject of = step_planner_subject(planner);
  uint64_t limit = hp_device_memory_limit(of.d);
  HP_TRY(find_costs(c, planner, of.o, limit));
  HP_TRY(choose(c, p, limit, cut));
  HP_TRY(place(planner, p, cut, c->stages));
  tell(c, cut);
  return HP_OK;
}

hp_status train_cut_by_time(step_planner *planner, const placement *p) {
  planned_subject of = step_planner_subject(planner);
  costs c = {.layers = of.m->c.layers, .stages = hp_device_stages(of.d)};
  size_t n = (size_t)c.layers + 2;
  bool given = p->groups == c.stages; /* one stage, or each group has one: nothing to cut */
  if (given || !of.work.n || !of.work.at[0].micros) return HP_OK;
  c.plain = mem_calloc(n, sizeof *c.plain);
  c.recomputed = mem_calloc(n, sizeof *c.recomputed);
  c.in_flight = mem_calloc((size_t)c.stages, sizeof *c.in_flight);
  int64_t *cut = mem_calloc((size_t)c.stages, sizeof *cut);
  hp_status st = c.plain && c.recomputed && c.in_flight && cut ? HP_OK : HP_ERR_OOM;
  if (!st) st = cut_by_time(&c, planner, p, cut);
  mem_free(c.plain);
  mem_free(c.recomputed);
  mem_free(c.in_flight);
  mem_free(cut);
  return st;
}
