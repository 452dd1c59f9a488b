#include "rt/device_mesh.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/world.h"
#include "shard/box.h"
#include "shard/layout_text.h"
#include "rt/state_io.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* --- opening ---------------------------------------------------------------------------------- */

static char *copy_text(const char *s) {
  char *t = mem_calloc(strlen(s) + 1, 1);
  if (t) memcpy(t, s, strlen(s));
  return t;
}

static bool has_suffix_length(const device_mesh *dm, size_t n) {
  for (size_t i = 0; i < dm->suffixes.len; i++)
    if (dm->suffixes.at[i] == n) return true;
  return false;
}

/* There are thousands of rules and of names to look up, so names and suffixes are found by maps. */
static bool add_rule(device_mesh *dm, layout_rule *r) {
  uint32_t index = (uint32_t)dm->rules.len, first;
  r->end = r->pattern + (*r->pattern == '*');
  r->end_bytes = strlen(r->end);
  r->is_glob = strpbrk(r->end, "*?[\\") != NULL;
  bool is_suffix = !r->is_glob && r->end != r->pattern;
  if (!vec_reserve(&dm->rules, 1) || !vec_reserve(&dm->globs, 1) || !vec_reserve(&dm->suffixes, 1))
    return false;
  map *m = is_suffix ? &dm->suffix_rule : &dm->rule_of;
  if (!r->is_glob && !map_get(m, r->end, r->end_bytes, &first) &&
      map_set(m, r->end, r->end_bytes, index))
    return false;
  if (r->is_glob) dm->globs.at[dm->globs.len++] = index;
  if (is_suffix && !has_suffix_length(dm, r->end_bytes))
    dm->suffixes.at[dm->suffixes.len++] = r->end_bytes;
  dm->rules.at[dm->rules.len++] = *r;
  return true;
}

/* Checked now, not when the first name matches it. */
hp_status device_mesh_rule(device_mesh *dm, const char *pattern, const char *entries,
                           bool where_divides) {
  layout l;
  if (!pattern || !entries)
    HP_FAIL(HP_ERR_ARG, "%s of layout rule %zu is NULL; expected text",
            pattern ? "entries" : "pattern", dm->rules.len);
  if (layout_parse_on(entries, &dm->m, &l)) {
    str why = {0};
    str_printf(&why, "layout of \"%s\": %s", pattern, err_message());
    err_clear();
    hp_status st = err_set(HP_ERR_LAYOUT, __FILE__, __LINE__, "%s", why.at ? why.at : "");
    str_free(&why);
    return st;
  }
  layout_rule made = {.pattern = copy_text(pattern),
                      .entries = copy_text(entries),
                      .where_divides = where_divides,
                      .expected = !dm->may_miss,
                      .l = l};
  if (made.pattern && made.entries && add_rule(dm, &made)) return HP_OK;
  mem_free(made.pattern);
  mem_free(made.entries);
  return HP_ERR_OOM;
}

hp_status device_mesh_home_rule(device_mesh *dm, const char *pattern, uint8_t offload) {
  home_rule made = {.pattern = copy_text(pattern), .offload = offload};
  if (!made.pattern || !vec_push(&dm->homes, made)) {
    mem_free(made.pattern);
    return HP_ERR_OOM;
  }
  for (int i = 0; offload && i < dm->own; i++) dm->member[i]->job->has_homes = true;
  return HP_OK;
}

int device_mesh_home(const device_mesh *dm, const char *name) {
  for (size_t i = 0; i < dm->homes.len; i++)
    if (!fnmatch(dm->homes.at[i].pattern, name, 0)) return dm->homes.at[i].offload;
  return -1;
}

/* Where a new tensor is made that may be on the device.  Only programs tell what a tensor is for:
 * one that is made before them is taken for a weight, so that weights larger than the device and
 * the host are never there. */
static int tier_by_rule(const device_mesh *dm, const char *name) {
  int mode = device_mesh_home(dm, name);
  if (mode < 0 && dm->own) mode = dm->member[0]->job->offload[HP_MEMORY_PARAMS];
  return mode == HP_OFFLOAD_HOST ? TIER_HOST : mode == HP_OFFLOAD_FLASH ? TIER_FLASH : TIER_DEVICE;
}

/* "(2,2)(dp,tp)", and with several meshes in a job the ranks of its devices: "(2)(dp)@2,3". */
static hp_status make_mesh(device_mesh *dm, const char *text) {
  layout l;
  bool called;
  if (!text) {
    const char *name = "device";
    return mesh_init(&(int64_t){1}, &name, 1, NULL, 0, &dm->m);
  }
  HP_TRY(layout_parse(text, &dm->m, &l, &called));
  if (called)
    HP_FAIL(HP_ERR_LAYOUT, "mesh \"%.100s\": expected sizes and names alone, such as (2,2)(dp,tp)",
            text);
  return HP_OK;
}

/* A mesh without ranks has all of the job; each rank of another one must be in the job. */
static hp_status check_ranks(const device_mesh *dm) {
  int n = (int)dm->m.devices, ranks = dm->job->ranks;
  if (!dm->m.rank && n != ranks && world_get()->size == 1)
    HP_FAIL(HP_ERR_LAYOUT, "the mesh has %d devices without ranks, and the job %d", n, ranks);
  if (!dm->m.rank && n != ranks)
    HP_FAIL(HP_ERR_LAYOUT,
            "%d processes were started, and the mesh has %d device%s: start %d process%s, or use a "
            "mesh (a strategy) of %d devices, as dp=%d",
            ranks, n, n == 1 ? "" : "s", n, n == 1 ? "" : "es", ranks, ranks);
  for (int i = 0; i < n; i++)
    if (mesh_rank(&dm->m, i) >= ranks)
      HP_FAIL(HP_ERR_LAYOUT, "the mesh has rank %lld, and the job ranks 0 to %d",
              (long long)mesh_rank(&dm->m, i), ranks - 1);
  return HP_OK;
}

static hp_status check_engine(bool no_partial_sums, const char *name) {
  if (no_partial_sums && name && strcmp(name, JOB_ENGINE_SAME_BITS))
    HP_FAIL(HP_ERR_ARG,
            "engine %s: its bits depend on how tensors are cut; for the same bits on every mesh "
            "use %s",
            name, JOB_ENGINE_SAME_BITS);
  return HP_OK;
}

hp_status device_mesh_set_engine(device_mesh *dm, const char *name) {
  HP_TRY(check_engine(dm->no_partial_sums, name));
  for (int i = 0; i < dm->own; i++)
    if (dm->member[i]->job->no_partial_sums && strcmp(name, JOB_ENGINE_SAME_BITS))
      HP_FAIL(HP_ERR_ARG,
              "engine %s: rank %d of the job is also in a mesh with no_partial_sums, which has the "
              "same bits on every mesh by engine %s alone; close that mesh first",
              name, dm->job->first + dm->thread[i], JOB_ENGINE_SAME_BITS);
  for (int i = 0; i < dm->own; i++)
    HP_TRY(dm->member[i]->backend->set_engine(dm->member[i]->dev, name));
  return HP_OK;
}

/* Plans for a cluster that is not this machine are not plans of this machine's kernels. */
static const char *backend_of(const device_mesh *dm, const hp_device_options *o) {
  if (o->backend) return o->backend;
  return dm->plan_only && strcmp(dm->cluster.name, "this") ? "sim" : "cpu";
}

/* The communicator of all devices of the mesh, as device d of this process has it. */
static hp_status join_everyone(const device_mesh *dm, device *d) {
  int64_t rank[COMM_MAX];
  if (!d->comm) return HP_OK;
  for (int i = 0; i < dm->n; i++) rank[i] = mesh_rank(&dm->m, i);
  return d->comm->iface->join(d->comm, rank, dm->n, d->position, &d->everyone);
}

/* A mesh whose sums are not cut is opened on a job of the engine that this takes; sim computes
 * nothing.  Other meshes leave that engine while it is there. */
static hp_status count_no_partial_sums(const device_mesh *dm, device *d) {
  const char *engine = d->backend->engine(d->dev);
  if (!dm->no_partial_sums) return HP_OK;
  if (strcmp(engine, JOB_ENGINE_SAME_BITS) && strcmp(d->backend->name, "sim"))
    HP_FAIL(HP_ERR_ARG,
            "no_partial_sums: the job computes by engine %s, whose bits depend on how tensors are "
            "cut; open the job with engine %s, or set that first",
            engine, JOB_ENGINE_SAME_BITS);
  d->no_partial_sums = true;
  d->job->no_partial_sums++;
  return HP_OK;
}

/* What compiles for a mesh whose devices are all of other processes: a device of this one in the
 * place of the mesh's first.  It has no tensors and runs nothing. */
static hp_status add_compiler(device_mesh *dm) {
  HP_TRY(device_create(dm->job->device[0], &dm->member[0]));
  dm->member[0]->mesh = &dm->m;
  dm->member[0]->cluster = &dm->cluster;
  return HP_OK;
}

/* The device at a position of the mesh, which is the i-th of the job in this process. */
static hp_status add_member(device_mesh *dm, int64_t position, int i) {
  HP_TRY(device_create(dm->job->device[i], &dm->member[dm->own]));
  device *d = dm->member[dm->own];
  dm->thread[dm->own++] = i;
  d->mesh = &dm->m;
  d->cluster = &dm->cluster;
  d->position = position;
  d->comm = dm->job->comm;
  d->recorded = dm->own == 1;
  HP_TRY(count_no_partial_sums(dm, d));
  return join_everyone(dm, d);
}

static hp_status add_members(device_mesh *dm, bool may_lack) {
  const job *j = dm->job;
  for (int i = 0; i < j->own; i++) {
    int64_t position = dm->plan_only ? 0 : mesh_position(&dm->m, j->first + i);
    if (position < 0) continue;
    thread_team_take(j->thread_team, &i, 1);
    hp_status st = add_member(dm, position, i);
    thread_team_give(j->thread_team, &i, 1);
    HP_TRY(st);
  }
  if (!dm->own && may_lack) return add_compiler(dm);
  if (!dm->own)
    HP_FAIL(HP_ERR_ARG, "the mesh has no device of this process, which has rank %d", j->first);
  return HP_OK;
}

static void describe(device_mesh *dm) {
  const char *each = dm->member[0]->backend->describe(dm->member[0]->dev);
  if (dm->n == 1) snprintf(dm->about, sizeof dm->about, "%s", each);
  else
    snprintf(dm->about, sizeof dm->about, "%d devices%s, each %s", dm->n,
             dm->own < dm->n ? " (a process each)" : "", each);
}

static hp_status check_options(device_mesh *dm, const hp_device_options *o) {
  HP_TRY(check_engine(o->no_partial_sums, o->engine));
  HP_TRY(cluster_load(o->cluster ? o->cluster : "this", &dm->cluster));
  HP_TRY(cluster_check(&dm->cluster, &dm->m));
  dm->n = (int)dm->m.devices;
  dm->plan_only = o->plan_only;
  dm->may_miss = o->may_miss;
  dm->no_partial_sums = o->no_partial_sums;
  return HP_OK;
}

/* A job for the mesh alone. */
static hp_status open_job(device_mesh *dm, const hp_device_options *o) {
  if (dm->m.rank && world_get()->size == 1)
    HP_FAIL(HP_ERR_LAYOUT, "mesh \"%.100s\": a mesh of a process alone has no ranks", o->mesh);
  return job_open(o, backend_of(dm, o), dm->m.devices, dm->cluster.per_node, &dm->job);
}

static hp_status open_mesh(job *j, const hp_device_options *o, bool may_lack, device_mesh **out) {
  device_mesh *dm = mem_calloc(1, sizeof *dm);
  HP_TRY_MEM(dm);
  hp_status st = make_mesh(dm, o->mesh);
  if (!st) st = check_options(dm, o);
  if (!st && !j && !o->plan_only) st = world_begin();
  if (!st && j) dm->job = j, j->users++;
  else if (!st) st = open_job(dm, o);
  if (!st) st = check_ranks(dm);
  for (int i = 0; i < o->n_layouts && !st; i++)
    st = device_mesh_rule(dm, o->layouts[i].pattern, o->layouts[i].entries, false);
  if (!st) st = add_members(dm, may_lack);
  if (!st) describe(dm);
  if (st) device_mesh_close(dm);
  else *out = dm;
  return st;
}

hp_status device_mesh_open_on(job *j, const hp_device_options *o, device_mesh **out) {
  return open_mesh(j, o, false, out);
}

hp_status device_mesh_open_stage(job *j, const hp_device_options *o, device_mesh **out) {
  return open_mesh(j, o, true, out);
}

hp_status device_mesh_open(const hp_device_options *o, device_mesh **out) {
  return device_mesh_open_on(o->job ? o->job->job : NULL, o, out);
}

hp_status device_mesh_each(const device_mesh *dm, const team_work *w) {
  return dm->own ? thread_team_run(dm->job->thread_team, dm->thread, dm->own, w) : HP_OK;
}

const device_mesh *device_mesh_hold(const device_mesh *dm) {
  thread_team_take(dm->job->thread_team, dm->thread, dm->own);
  return dm;
}
void device_mesh_let_go(const device_mesh *dm) {
  thread_team_give(dm->job->thread_team, dm->thread, dm->own);
}

static void close_members(device_mesh *dm) {
  device_mesh_hold(dm);
  for (int i = 0; i < COMM_LOCAL_MAX; i++) device_close(dm->member[i]);
  device_mesh_let_go(dm);
  job_release(dm->job);
}

void device_mesh_close(device_mesh *dm) {
  if (!dm) return;
  if (dm->job) close_members(dm);
  for (size_t i = 0; i < dm->rules.len; i++) {
    mem_free(dm->rules.at[i].pattern);
    mem_free(dm->rules.at[i].entries);
  }
  for (size_t i = 0; i < dm->homes.len; i++) mem_free(dm->homes.at[i].pattern);
  vec_free(&dm->homes);
  vec_free(&dm->rules);
  vec_free(&dm->globs);
  vec_free(&dm->suffixes);
  map_free(&dm->rule_of);
  map_free(&dm->suffix_rule);
  vec_free(&dm->states);
  map_free(&dm->state_of);
  intern_free(&dm->names);
  mesh_free(&dm->m);
  mem_free(dm);
}

/* --- layouts ---------------------------------------------------------------------------------- */

/* A dim of one element is not shared.  Where it is asked for, of each dim the outer axes, as many
 * as divide it. */
static void limit_cuts(const mesh *m, const ir_value *type, bool where_divides, layout *l) {
  if (l->rank != type->rank && where_divides) *l = (layout){.rank = type->rank};
  for (int d = 0; d < l->rank && d < type->rank; d++) {
    if (type->dim[d] == 1) layout_cut(l, d, l->n[d]);
    while (where_divides && type->dim[d] % layout_shard_count(m, l, d)) layout_cut(l, d, 1);
  }
}

/* The entries that an annotation of hp_shard, or that of its gradient, has for a name; NULL: it is
 * none.
 */
static const char *entries_in_name(const char *name) {
  if (!strncmp(name, "grad.(", 6)) name += 5;
  return *name == '(' ? name : NULL;
}

hp_status device_mesh_check_annotations(const device_mesh *dm, const hp_graph *graph) {
  for (uint32_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *n = graph_node(graph, i);
    const char *entries = n->op == OP_ANNOTATE ? entries_in_name(attr_str(graph, n, "name")) : NULL;
    layout l;
    if (!entries || !layout_parse_on(entries, &dm->m, &l)) continue;
    char why[256];
    snprintf(why, sizeof why, "%s", err_message());
    err_clear();
    const char *place = graph_str(graph, n->loc);
    HP_FAIL(HP_ERR_LAYOUT, "hp_shard%s%s%s: %s", *place ? " \"" : "", place, *place ? "\"" : "",
            why);
  }
  return HP_OK;
}

/* As fnmatch. */
static bool matches(const layout_rule *r, const char *name, size_t length) {
  if (r->is_glob) return !fnmatch(r->pattern, name, 0);
  if (r->end == r->pattern ? r->end_bytes != length : r->end_bytes > length) return false;
  return !memcmp(name + length - r->end_bytes, r->end, r->end_bytes);
}

/* The first rule for a name, or NULL. */
static const layout_rule *find_rule(const device_mesh *dm, const char *name) {
  size_t length = strlen(name);
  uint32_t first = UINT32_MAX, found;
  (void)map_get(&dm->rule_of, name, length, &first);
  for (size_t i = 0; i < dm->suffixes.len; i++) {
    size_t n = dm->suffixes.at[i];
    if (n > length || !map_get(&dm->suffix_rule, name + length - n, n, &found)) continue;
    if (found < first) first = found;
  }
  for (size_t i = 0; i < dm->globs.len && dm->globs.at[i] < first; i++)
    if (matches(&dm->rules.at[dm->globs.at[i]], name, length)) first = dm->globs.at[i];
  return first == UINT32_MAX ? NULL : &dm->rules.at[first];
}

bool device_mesh_declared(const void *model, const char *name, const ir_value *type, layout *out) {
  const device_mesh *dm = model;
  const char *entries = entries_in_name(name);
  *out = (layout){.rank = type->rank};
  if (entries) { /* an annotation's are right, by device_mesh_check_annotations; another tensor may
                  * be named like that
                  */
    if (!layout_parse_on(entries, &dm->m, out)) return true;
    err_clear();
    *out = (layout){.rank = type->rank};
  }
  const layout_rule *r = find_rule(dm, name);
  if (!r) return false;
  *out = r->l;
  limit_cuts(&dm->m, type, r->where_divides, out);
  return true;
}

/* The name that a pattern may have meant: the one whose end is nearest to what follows the
 * pattern's last "*". */
typedef struct {
  const char *tail, *name;
  int distance;
} nearest;

static void compare(nearest *n, const char *name) {
  size_t length = strlen(name), k = strlen(n->tail);
  int far = str_distance(n->tail, length > k ? name + length - k : name, n->distance);
  if (far >= n->distance) return;
  n->distance = far;
  n->name = name;
}

/* Looks at one name for a rule; true when it matches.  With n it is compared instead: distances
 * take long, and a rule that is used needs none. */
static bool try_name(const layout_rule *r, const char *name, nearest *n) {
  if (!n) return matches(r, name, strlen(name));
  compare(n, name);
  return false;
}

static bool is_used_in(const hp_graph *graph, const layout_rule *r, nearest *n) {
  for (uint32_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *d = graph_node(graph, i);
    bool named = d->op == OP_INPUT || d->op == OP_PARAM || d->op == OP_ANNOTATE;
    if (named && try_name(r, attr_str(graph, d, "name"), n)) return true;
  }
  return false;
}

static bool is_state(const device_mesh *dm, const layout_rule *r, nearest *n) {
  for (size_t i = 0; i < dm->states.len; i++)
    if (try_name(r, intern_get(&dm->names, dm->states.at[i].name, NULL), n)) return true;
  return false;
}

static bool is_used(const device_mesh *whole, const hp_graph *const *graph, size_t graphs,
                    const layout_rule *r, nearest *n) {
  for (size_t i = 0; i < graphs; i++)
    if (is_used_in(graph[i], r, n)) return true;
  for (int i = 0; i < whole->meshes; i++)
    if (is_state(whole->stage_mesh[i], r, n)) return true;
  return is_state(whole, r, n);
}

/* The meshes of a pipeline have the same rules, which those of one device do not need. */
static device_mesh *with_rules(device_mesh *dm) {
  for (int i = 0; i < dm->meshes; i++)
    if (dm->stage_mesh[i]->n > 1) return dm->stage_mesh[i];
  return dm;
}

void device_mesh_warn_unused(device_mesh *whole, const hp_graph *const *graph, size_t graphs) {
  device_mesh *dm = with_rules(whole);
  for (size_t i = 0; i < dm->rules.len && dm->n > 1; i++) {
    layout_rule *r = &dm->rules.at[i];
    if (!r->expected) continue;
    const char *star = strrchr(r->pattern, '*');
    nearest n = {.tail = star ? star + 1 : r->pattern};
    n.distance = (int)strlen(n.tail) / 3 + 1; /* names farther than that are other names */
    r->expected = false;
    if (is_used(whole, graph, graphs, r, NULL)) continue;
    is_used(whole, graph, graphs, r, &n);
    bool near = n.name;
    log_warn(
        "layout of \"%s\": no input, param or annotated tensor of the program has such a name, so "
        "that it cuts nothing%s%s%s",
        r->pattern, near ? "; did you mean \"" : "", near ? n.name : "", near ? "\"?" : "");
  }
}

/* --- params ----------------------------------------------------------------------------------- */

/* The shards of the first `devices` of this process, which no program uses yet. */
static void free_shards(device_mesh *dm, const char *name, int devices) {
  for (int i = 0; i < devices; i++) HP_ASSERT(!device_free_state(dm->member[i], name));
}

/* On all devices or on none. */
static hp_status create_shards(device_mesh *dm, const char *name, const ir_value *shard, int tier) {
  uint32_t index;
  for (int i = 0; i < dm->own; i++) {
    hp_status st = device_state(dm->member[i], name, shard, tier, &index);
    if (!st) continue;
    free_shards(dm, name, i);
    return st;
  }
  return HP_OK;
}

hp_status device_mesh_state_of(device_mesh *dm, const char *name, const ir_value *type, int tier,
                               uint32_t *index) {
  if (dm->plan_only)
    HP_FAIL(HP_ERR_ARG, "param \"%s\": the device was opened to make plans only", name);
  if (map_get(&dm->state_of, name, strlen(name), index))
    return state_check(name, &dm->states.at[*index].type, type);
  device_mesh_state s = {.type = *type};
  ir_value shard = *type;
  if (tier == TIER_DEVICE) tier = tier_by_rule(dm, name);
  device_mesh_declared(dm, name, type, &s.l);
  HP_TRY(shard_check_layout(&dm->m, name, type, &s.l, true));
  for (int d = 0; d < type->rank; d++)
    shard.dim[d] = layout_shard_size(&dm->m, &s.l, d, type->dim[d]);
  s.name = intern(&dm->names, name, strlen(name));
  if (!s.name || !vec_reserve(&dm->states, 1)) return HP_ERR_OOM;
  HP_TRY(create_shards(dm, name, &shard, tier));
  if (map_set(&dm->state_of, name, strlen(name), (uint32_t)dm->states.len)) {
    free_shards(dm, name, dm->own);
    return HP_ERR_OOM;
  }
  *index = (uint32_t)dm->states.len;
  dm->states.at[dm->states.len++] = s;
  return HP_OK;
}

/* Of the i-th device of this process. */
static state_tensor *shard_of(const device_mesh *dm, int i, uint32_t state) {
  uint32_t index;
  const char *name = intern_get(&dm->names, dm->states.at[state].name, NULL);
  HP_ASSERT(device_find(dm->member[i], name, &index));
  return &dm->member[i]->states.at[index];
}

/* Tensors of all devices are used by the same programs: one refusal is that of all. */
hp_status device_mesh_free_state(device_mesh *dm, const char *name) {
  uint32_t index;
  if (!map_get(&dm->state_of, name, strlen(name), &index))
    HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  for (int i = 0; i < dm->own; i++) HP_TRY(device_free_state(dm->member[i], name));
  map_remove(&dm->state_of, name, strlen(name));
  uint32_t last = (uint32_t)--dm->states.len;
  if (index == last) return HP_OK;
  dm->states.at[index] = dm->states.at[last];
  const char *moved = intern_get(&dm->names, dm->states.at[index].name, NULL);
  return map_set(&dm->state_of, moved, strlen(moved), index);
}

static void drop_names(device_mesh *dm, const char *dropped, const char *kept, int devices) {
  for (int i = 0; i < devices; i++) device_drop_name(dm->member[i], dropped, kept);
}

/* A second name on all devices or on none. */
static hp_status add_names(device_mesh *dm, const char *name, const char *second) {
  for (int i = 0; i < dm->own; i++) {
    hp_status st = device_add_name(dm->member[i], name, second);
    if (!st) continue;
    drop_names(dm, second, name, i);
    return st;
  }
  return HP_OK;
}

hp_status device_mesh_rename_state(device_mesh *dm, const char *name, const char *to) {
  uint32_t index, other;
  if (!map_get(&dm->state_of, name, strlen(name), &index))
    HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  if (map_get(&dm->state_of, to, strlen(to), &other))
    HP_FAIL(HP_ERR_ARG, "param \"%s\" cannot be called \"%s\": there is one already", name, to);
  const device_mesh_state *s = &dm->states.at[index];
  layout declared;
  device_mesh_declared(dm, to, &s->type, &declared);
  if (!layout_equal(&declared, &s->l))
    HP_FAIL(HP_ERR_LAYOUT,
            "param \"%s\" cannot be called \"%s\": a param of that name is declared to have "
            "another layout; give both the same",
            name, to);
  uint32_t id = intern(&dm->names, to, strlen(to));
  if (!id) return HP_ERR_OOM;
  HP_TRY(add_names(dm, name, to));
  if (map_set(&dm->state_of, to, strlen(to), index)) {
    drop_names(dm, to, name, dm->own);
    return HP_ERR_OOM;
  }
  drop_names(dm, name, to, dm->own);
  map_remove(&dm->state_of, name, strlen(name));
  dm->states.at[index].name = id;
  return HP_OK;
}

hp_status device_mesh_settle(const device_mesh *dm) {
  for (int i = 0; i < dm->own; i++) HP_TRY(job_device_settle(dm->member[i]->job));
  return HP_OK;
}

hp_status device_mesh_write(device_mesh *dm, uint32_t state, const void *data) {
  HP_TRY(device_mesh_settle(dm));
  const device_mesh_state *s = &dm->states.at[state];
  for (int i = 0; i < dm->own; i++) {
    const device *d = dm->member[i];
    const state_tensor *p = shard_of(dm, i, state);
    if (dm->n == 1) return mover_write(d, p, 0, data, p->bytes);
    shard_view v = mover_view(&dm->m, d->position, &s->type, &s->l);
    HP_TRY(state_write_shard(d, p, &v, data));
  }
  return HP_OK;
}

/* Where shards may cut rows, the global tensor is made first. */
hp_status device_mesh_fill(device_mesh *dm, uint32_t state, hp_fill_fn fill, void *context) {
  if (!dm->own) return HP_OK;
  HP_TRY(device_mesh_settle(dm));
  const ir_value *type = &dm->states.at[state].type;
  const device *d = dm->member[0];
  if (dm->n == 1) return state_fill(d, shard_of(dm, 0, state), fill, context);
  size_t bytes = (size_t)value_bytes(type);
  void *global = mem_map(bytes);
  HP_TRY_MEM(global);
  hp_status st = fill(context, 0, value_elements(type), global);
  if (!st) st = device_mesh_write(dm, state, global);
  mem_unmap(global, bytes);
  return st;
}

/* Of several processes.  They send from memory of the host: a shard elsewhere is read into it. */
static hp_status fetch_shards(const device_mesh *dm, const device_mesh_state *s,
                              const state_tensor *p, void *data) {
  const device *d = dm->member[0];
  if (mover_is_host(d, p->tier))
    return device_mesh_fetch(dm, &s->type, &s->l, device_address(d, p), data);
  err_report why = {0};
  size_t bytes = (size_t)p->bytes;
  char *shard = mem_map(bytes);
  hp_status st = shard ? mover_read(d, p, 0, shard, bytes) : HP_ERR_OOM;
  if (st) err_take(st, &why);
  hp_status all = device_mesh_fetch(dm, &s->type, &s->l, st ? NULL : shard, data);
  mem_unmap(shard, bytes);
  if (!st) return all;
  err_clear();
  return err_give(&why);
}

hp_status device_mesh_read(const device_mesh *dm, uint32_t state, void *data) {
  HP_TRY(device_mesh_settle(dm));
  const device_mesh_state *s = &dm->states.at[state];
  for (int i = 0; i < dm->own; i++) {
    const device *d = dm->member[i];
    const state_tensor *p = shard_of(dm, i, state);
    if (dm->own < dm->n) return fetch_shards(dm, s, p, data);
    if (dm->n == 1) return mover_read(d, p, 0, data, p->bytes);
    if (!holds_first(dm, (int)d->position, &s->l)) continue;
    shard_view v = mover_view(&dm->m, d->position, &s->type, &s->l);
    HP_TRY(state_read_shard(d, p, &v, data));
  }
  return HP_OK;
}

hp_status device_mesh_params(device_mesh *dm, const hp_graph *graph) {
  for (size_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *n = graph_node(graph, (uint32_t)i);
    uint32_t index;
    if (n->op != OP_PARAM) continue;
    const char *name = attr_str(graph, n, "name");
    HP_TRY(device_mesh_state_of(dm, name, graph_value(graph, n->out0), TIER_DEVICE, &index));
  }
  return HP_OK;
}
