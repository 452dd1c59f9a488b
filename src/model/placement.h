/* Where a model runs: groups of devices in the order of the model's layers, each with a strategy of
 * its own.  What is not given as groups is one group, of all devices.
 *
 * A group has as many meshes as its strategy has stages (pp).  Layers of a group follow one
 * another; what is before the layers is on the first mesh, what is behind them on the last. */
#ifndef MODEL_PLACEMENT_H
#define MODEL_PLACEMENT_H

#include "base/str.h"
#include "base/tree.h"
#include "model/strategy.h"

typedef struct {
  strategy by;
  const char *name;      /* in messages: "strategy", or "groups.NAME" */
  const tree_node *at;   /* its place in the configuration; NULL: one strategy for all devices */
  const int64_t *rank;   /* [strategy_devices(&by)] its devices; NULL: the next ones */
  int64_t first, layers; /* its layers, of several groups: placement_find_layers */
} placement_group;

enum { PLACEMENT_GROUPS = STRATEGY_PIPELINE };
typedef struct placement {
  placement_group group[PLACEMENT_GROUPS];
  int groups;
  const int64_t *cut; /* [cuts] layers of each stage; NULL: by their work, within each group */
  int cuts;
} placement;

/* All devices by one strategy; text and devices as for strategy_parse. */
hp_status placement_parse(const char *text, int64_t devices, placement *out);
/* Groups as they are in a configuration, in its order:
 *   dense: {devices: 0-1, module: [model.embed_tokens, model.layers.0-2], strategy: "tp=2"}
 * Devices are each in one group; all else that does not depend on the model is checked, too.  Ranks
 * are in mem, names and places those of the tree.  HP_ERR_INPUT says where it is wrong. */
hp_status placement_read(const tree_node *groups, arena *mem, placement *out);
/* placement_modules.c: the layers of each group by its modules' names, and the order of groups by
 * their layers.  Each layer is in one group.  One strategy for all devices: nothing. */
hp_status placement_find_layers(placement *p, const lm *m);

/* Layers and stages of a group. */
typedef struct {
  int64_t first, layers;
  int stage, stages;
} group_stages;
/* Those of the i-th group, of a model of so many layers on a device of so many stages, which one
 * group has all. */
group_stages placement_stages(const placement *p, int i, int64_t layers, int stages);

int placement_meshes(const placement *p);
int64_t placement_devices(const placement *p);
/* Data-parallel replicas of the run, which share a batch: those of the group that has most. */
int64_t placement_replicas(const placement *p);
/* The least number of shards of a batch that each group divides evenly: lm.groups for generation.
 */
int64_t placement_batch_shards(const placement *p);
/* For hp_device_options: "(2,2)(dp,tp)", of several meshes "(2)(tp);(3)(dp)", in *text; *out NULL:
 * one device. */
hp_status placement_mesh(const placement *p, str *text, const char **out);

/* Declares on the device the layouts of the model's params, their optimizer state, inputs, caches
 * and annotations, for each group by its strategy, and the stages of a pipeline.  Dims that the
 * degrees do not divide are padded; words of a strategy without effect on its layers are
 * reported. */
hp_status placement_apply(const placement *p, lm *m, hp_device *d);

/* placement_idle.c: warns of words without effect on the layers of a group, of devices without
 * heads or experts, and of padding of 1 % or more, with sizes that avoid it.  placement_apply calls
 * it. */
void placement_tell_idle(const placement *p, const lm *m);
/* The same for `rows` sequences that are computed at a time, and for their tokens (0: many). */
void placement_tell_rows(const placement *p, int64_t rows, int64_t tokens);
/* The same for the tokens of a sample (0: not known), which cp shards. */
void placement_tell_tokens(const placement *p, int64_t tokens);

#endif
