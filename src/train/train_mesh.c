#include "train/train_mesh.h"

#include "base/log.h"
#include "model/param_state.h"
#include "train/memory_limit.h"
#include "train/train_pipeline.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* Failure of the last call, told at n. */
static hp_status at(const tree_node *n) {
  char why[512];
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  TREE_FAIL(n, "%s", why);
}

/* "(2,2)(dp,tp)" */
static hp_status mesh_text(const tree_node *sizes, const tree_node *names, str *out) {
  HP_TRY(tree_expect(sizes, TREE_LIST));
  if (!names) TREE_FAIL(sizes, "needs alias_name: a name for each of its axes, such as [dp, tp]");
  HP_TRY(tree_expect(names, TREE_LIST));
  if (names->len != sizes->len)
    TREE_FAIL(names, "%u names for the %u axes of device_matrix", names->len, sizes->len);
  for (uint32_t i = 0; i < sizes->len; i++) {
    int64_t n;
    HP_TRY(tree_as_int(sizes->child[i], &n));
    str_printf(out, i ? ",%lld" : "(%lld", (long long)n);
  }
  for (uint32_t i = 0; i < names->len; i++) {
    const char *name;
    HP_TRY(tree_as_string(names->child[i], &name));
    str_printf(out, i ? ",%s" : ")(%s", name);
  }
  str_add(out, ")");
  return str_status(out);
}

/* One axis, None or null, or a list of axes. */
static hp_status entry_text(const tree_node *n, str *out) {
  const char *name = "None";
  if (n->kind == TREE_LIST) {
    if (!n->len) TREE_FAIL(n, "is empty; write None for a dim that is not sharded");
    for (uint32_t i = 0; i < n->len; i++) {
      HP_TRY(tree_as_string(n->child[i], &name));
      str_printf(out, i ? ",%s" : "(%s", name);
    }
    str_add(out, ")");
    return HP_OK;
  }
  if (n->kind != TREE_NULL) HP_TRY(tree_as_string(n, &name));
  str_add(out, name);
  return HP_OK;
}

/* "(tp,None)", without the entry of that number (-1: none). */
static hp_status entries_text_without(const tree_node *list, int missing, str *out) {
  HP_TRY(tree_expect(list, TREE_LIST));
  str_add(out, "(");
  bool first = true;
  for (uint32_t i = 0; i < list->len; i++) {
    if ((int)i == missing) continue;
    if (!first) str_add(out, ",");
    first = false;
    HP_TRY(entry_text(list->child[i], out));
  }
  str_add(out, ")");
  return str_status(out);
}

static hp_status entries_text(const tree_node *list, str *out) {
  return entries_text_without(list, -1, out);
}

/* A pattern's entries must be a layout on the mesh. */
static hp_status check_entries(const train_config *c, const tree_node *list) {
  str text = {0};
  hp_layout *l;
  str_add(&text, c->is.mesh);
  hp_status st = entries_text(list, &text);
  if (!st) {
    st = hp_layout_parse(text.at, &l);
    if (st) st = at(list);
    else hp_layout_free(l);
  }
  str_free(&text);
  return st;
}

static int64_t devices_of(const tree_node *sizes) {
  int64_t all = 1;
  for (uint32_t i = 0; i < sizes->len; i++) all *= sizes->child[i]->integer; /* of a mesh that is */
  return all;
}

static hp_status check_beside(const train_config *c, const tree_node *sizes) {
  const tree_node *short_form = c->at[c->strategy ? KEY_strategy : KEY_PARALLEL_strategy];
  const tree_node *devices = c->at[c->at[KEY_devices] ? KEY_devices : KEY_PARALLEL_devices];
  int64_t n = c->at[KEY_devices] ? c->devices : c->parallel.devices;
  if (short_form)
    TREE_FAIL(short_form, "contradicts device_matrix (%s); keep one of them",
              tree_where(sizes).text);
  if (devices && n != devices_of(sizes))
    TREE_FAIL(devices, "%lld devices, and %lld in device_matrix (%s)", (long long)n,
              (long long)devices_of(sizes), tree_where(sizes).text);
  return HP_OK;
}

static hp_status decide(train_config *c, const tree_node *sizes, str *text) {
  hp_layout *l;
  HP_TRY(mesh_text(sizes, c->parallel.alias_name, text));
  if (hp_layout_parse(text->at, &l)) return at(sizes);
  hp_layout_free(l);
  if (text->len >= sizeof c->is.mesh) TREE_FAIL(sizes, "its names are too long");
  memcpy(c->is.mesh, text->at, text->len + 1);
  HP_TRY(check_beside(c, sizes));
  c->devices = devices_of(sizes);
  return HP_OK;
}

hp_status train_mesh_decide(train_config *c) {
  const tree_node *sizes = c->parallel.device_matrix, *names = c->parallel.alias_name;
  const tree_node *layouts = c->parallel.tensor_map;
  str text = {0};
  if ((names || layouts) && !sizes)
    TREE_FAIL(names ? names : layouts, "needs device_matrix, which is not set");
  if (!sizes) return HP_OK;
  hp_status st = decide(c, sizes, &text);
  str_free(&text);
  if (st || !layouts) return st;
  HP_TRY(tree_expect(layouts, TREE_MAP));
  for (uint32_t i = 0; i < layouts->len; i++) HP_TRY(check_entries(c, layouts->child[i]));
  return HP_OK;
}

bool train_mesh_is_many(const train_config *c) {
  if (*c->is.mesh) return devices_of(c->parallel.device_matrix) > 1;
  return placement_devices(&c->is.place) > 1;
}

hp_status train_mesh_text(const train_config *c, str *text, const char **out) {
  if (!*c->is.mesh) return placement_mesh(&c->is.place, text, out);
  *out = c->is.mesh;
  return HP_OK;
}

/* The key that says how many stages the pipeline has, if it is none of its block. */
static const tree_node *degree_said_at(const train_config *c) {
  static const int keys[] = {KEY_virtual_pipeline_model_parallel_size,
                             KEY_num_layers_per_virtual_pipeline_stage,
                             KEY_pipeline_model_parallel_layout,
                             KEY_strategy,
                             KEY_PARALLEL_strategy,
                             KEY_pipeline_model_parallel_size};
  const tree_node *found = NULL;
  for (size_t i = 0; !found && i < sizeof keys / sizeof *keys; i++) found = c->at[keys[i]];
  return found;
}

/* The key that says the schedule; without one, what says how many stages it has. */
static const tree_node *schedule_said_at(const train_config *c) {
  const tree_node *pipe = c->parallel.pipeline;
  const tree_node *found = pipe ? tree_get(pipe, "schedule") : NULL;
  if (!found) found = c->at[KEY_pp_schedule];
  if (!found && pipe) found = tree_get(pipe, "stages");
  return found ? found : degree_said_at(c);
}

hp_status train_mesh_open(const train_config *c, bool plan_only, hp_device **out) {
  hp_device_options o = {.threads = (int)c->threads,
                         .memory_limit = memory_limit_bytes(c->is.memory_limit),
                         .cluster = c->parallel.cluster,
                         .no_partial_sums = c->is.no_partial_sums,
                         .engine = c->is.engine,
                         .plan_only = plan_only,
                         .may_miss = true /* train_mesh_apply tells what matches nothing */};
  str rows = {0}, mesh = {0};
  tier_options_fill(&c->is.tiers, &o);
  hp_status st = train_mesh_text(c, &mesh, &o.mesh);
  if (!st) st = train_pipeline_schedule(c, &rows, &o.pipeline);
  if (placement_meshes(&c->is.place) > 1) o.stages = (int)c->is.pipe_stages;
  if (!st) st = hp_device_open(&o, out);
  str_free(&rows);
  str_free(&mesh);
  /* The other argument that a device may refuse, the engine, was checked with the file. */
  const bool pipeline = placement_meshes(&c->is.place) > 1;
  if (st == HP_ERR_ARG && pipeline && schedule_said_at(c)) return at(schedule_said_at(c));
  return st ? st : tier_options_apply(&c->is.tiers, *out);
}

hp_status train_mesh_check_microbatches(const train_config *c, const hp_device *d, int64_t n,
                                        const char *which) {
  char why[400];
  const hp_status st = hp_device_check_microbatches(d, n);
  const tree_node *said = schedule_said_at(c);
  if ((st != HP_ERR_ARG && st != HP_ERR_INPUT) || !said) return st;
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  if (st == HP_ERR_INPUT) HP_FAIL(st, "%s%s", which, why); /* with the file and its line */
  TREE_FAIL(said, "%s%s", which, why);
}

/* The entry that says a tensor's layout: its full name goes before patterns; NULL: none does. */
static const tree_node *entry_of(const tree_node *layouts, const char *name) {
  const tree_node *found = NULL;
  for (uint32_t i = 0; i < layouts->len; i++) {
    const tree_node *n = layouts->child[i];
    if (!strcmp(n->key, name)) return n;
    if (!found && !fnmatch(n->key, name, 0)) found = n;
  }
  return found;
}

/* Size of the axis of that name; 1: there is none. */
static int64_t axis_size(const train_config *c, const tree_node *name) {
  const tree_node *sizes = c->parallel.device_matrix, *names = c->parallel.alias_name;
  for (uint32_t i = 0; name->kind == TREE_STRING && i < names->len; i++)
    if (!strcmp(names->child[i]->string, name->string)) return sizes->child[i]->integer;
  return 1;
}

int64_t train_mesh_replicas(const train_config *c) {
  const tree_node *layouts = c->parallel.tensor_map;
  if (!*c->is.mesh) return placement_replicas(&c->is.place);
  const tree_node *ids = layouts ? entry_of(layouts, "ids") : NULL;
  if (!ids || !ids->len) return 1;
  const tree_node *rows = ids->child[0];
  int64_t n = 1;
  if (rows->kind != TREE_LIST) return axis_size(c, rows);
  for (uint32_t i = 0; i < rows->len; i++) n *= axis_size(c, rows->child[i]);
  return n;
}

/* --- annotations ------------------------------------------------------------------------------ */

static bool is_pattern(const tree_node *n) { return strpbrk(n->key, "*?[") != NULL; }

static const char *const inputs[] = {"ids", "positions", "labels", "lengths", "span"};
enum { INPUTS = sizeof inputs / sizeof *inputs };

/* The i-th of the inputs, params and annotations of a training step; NULL: there are fewer. */
static const char *name_at(const lm *m, size_t i) {
  if (i < INPUTS) return inputs[i];
  i -= INPUTS;
  if (i < m->params.len) return m->params.at[i].name;
  i -= m->params.len;
  return i < m->annotations.len ? m->annotations.at[i].name : NULL;
}

/* A tensor of the model that both patterns match; NULL: there is none. */
static const char *both_match(const lm *m, const tree_node *a, const tree_node *b) {
  const char *name;
  for (size_t i = 0; (name = name_at(m, i)); i++)
    if (!fnmatch(a->key, name, 0) && !fnmatch(b->key, name, 0)) return name;
  return NULL;
}

/* Of the names in the model, and of what goes with them: the optimizer's state and the sum of the
 * gradients of a param, the gradient of an annotation. */
static bool matches_any(const lm *m, const tree_node *pattern) {
  char text[STATE_NAME];
  const char *name;
  for (size_t i = 0; (name = name_at(m, i)); i++) {
    for (param_state s = STATE_PARAM; s < PARAM_STATES; s++) {
      param_state_name(s, name, text);
      if (!fnmatch(pattern->key, text, 0)) return true;
    }
    snprintf(text, sizeof text, "grad.%s", name);
    if (!fnmatch(pattern->key, text, 0)) return true;
  }
  return false;
}

/* Two patterns that say different things of one tensor are a mistake; a full name goes before. */
static hp_status check_pair(const lm *m, const tree_node *a, const tree_node *b) {
  str x = {0}, y = {0};
  const char *tensor = is_pattern(a) && is_pattern(b) ? both_match(m, a, b) : NULL;
  hp_status st = tensor ? entries_text(a, &x) : HP_OK;
  if (!st && tensor) st = entries_text(b, &y);
  if (!st && tensor && strcmp(x.at, y.at))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: %s contradicts %s (%s) for \"%s\": narrow one of the patterns, or give the "
                 "tensor an entry by its full name",
                 tree_where(b).text, y.at, x.at, tree_where(a).text, tensor);
  str_free(&x);
  str_free(&y);
  return st;
}

static hp_status check_dims(const lm *m, const tree_node *layouts) {
  for (size_t i = 0; i < m->params.len; i++) {
    const model_param *p = &m->params.at[i];
    const tree_node *n = entry_of(layouts, p->name);
    if (n && n->len != (uint32_t)p->shape.rank)
      TREE_FAIL(n, "%u entries, and \"%s\" has %d dims", n->len, p->name, p->shape.rank);
  }
  return HP_OK;
}

/* A pattern for tensors like a param also matches states that lack one of its dims: they have the
 * entries of the others. */
static hp_status declare_smaller_states(const lm *m, const tree_node *layouts, hp_device *d) {
  for (size_t i = 0; i < m->trained; i++)
    for (param_state s = STATE_M; s < PARAM_STATES; s++) {
      const model_param *p = &m->params.at[i];
      int missing = param_state_missing_dim(s, p->shape.rank);
      char name[STATE_NAME];
      str entries = {0};
      param_state_name(s, p->name, name);
      const tree_node *n = missing < 0 ? NULL : entry_of(layouts, name);
      if (!n || !is_pattern(n) || n->len != (uint32_t)p->shape.rank) continue;
      hp_status st = entries_text_without(n, missing, &entries);
      if (!st) st = hp_device_layout(d, name, entries.at, false);
      str_free(&entries);
      HP_TRY(st);
    }
  return HP_OK;
}

static hp_status declare_entries(const tree_node *layouts, bool patterns, hp_device *d) {
  for (uint32_t i = 0; i < layouts->len; i++) {
    str entries = {0};
    if (is_pattern(layouts->child[i]) != patterns) continue;
    hp_status st = entries_text(layouts->child[i], &entries);
    if (!st) st = hp_device_layout(d, layouts->child[i]->key, entries.at, false);
    str_free(&entries);
    HP_TRY(st);
  }
  return HP_OK;
}

/* What says the layers of stages, or how many stages there are: a schedule does if it has several
 * on a device. */
static const tree_node *layers_said_at(const train_config *c, const hp_device *d) {
  const bool one_each = hp_device_stages(d) == placement_meshes(&c->is.place);
  const tree_node *pipe = c->parallel.pipeline, *stages = pipe ? tree_get(pipe, "stages") : NULL;
  if (c->is.pipe_cut) return c->is.pipe_cut_at;
  if (!c->parallel.groups && !stages && one_each && degree_said_at(c)) return degree_said_at(c);
  if (!c->parallel.groups) return stages ? stages : schedule_said_at(c);
  const tree_node *named = pipe ? tree_get(pipe, "schedule") : c->at[KEY_pp_schedule];
  return named ? named : c->parallel.groups;
}

hp_status train_mesh_apply(const train_config *c, lm *m, hp_device *d) {
  const tree_node *layouts = c->parallel.tensor_map;
  if (!*c->is.mesh) {
    hp_status st = placement_apply(&c->is.place, m, d);
    const tree_node *place = layers_said_at(c, d);
    return st == HP_ERR_LAYOUT && place ? at(place) : st;
  }
  if (!layouts) return HP_OK;
  for (uint32_t i = 0; i < layouts->len; i++)
    for (uint32_t k = 0; k < i; k++) HP_TRY(check_pair(m, layouts->child[k], layouts->child[i]));
  HP_TRY(check_dims(m, layouts));
  for (uint32_t i = 0; i < layouts->len; i++)
    if (!matches_any(m, layouts->child[i]))
      log_warn("%s: no param, input or value of the model has such a name; it is without effect",
               tree_where(layouts->child[i]).text);
  HP_TRY(declare_entries(layouts, false, d));
  HP_TRY(declare_smaller_states(m, layouts, d));
  return declare_entries(layouts, true, d);
}
