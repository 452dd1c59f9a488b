#include "rt/group.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/world.h"
#include "shard/box.h"
#include "shard/layout_text.h"
#include "rt/state_io.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* --- opening ---------------------------------------------------------------------------------- */

static char *copy_text(const char *s) {
  char *t = mem_calloc(strlen(s) + 1, 1);
  if (t) memcpy(t, s, strlen(s));
  return t;
}

static bool has_suffix_length(const group *g, size_t n) {
  for (size_t i = 0; i < g->suffixes.len; i++)
    if (g->suffixes.at[i] == n) return true;
  return false;
}

/* There are thousands of rules and of names to look up, so names and suffixes are found by maps. */
static bool add_rule(group *g, layout_rule *r) {
  uint32_t index = (uint32_t)g->rules.len, first;
  r->end = r->pattern + (*r->pattern == '*');
  r->end_bytes = strlen(r->end);
  r->is_glob = strpbrk(r->end, "*?[\\") != NULL;
  bool is_suffix = !r->is_glob && r->end != r->pattern;
  if (!vec_reserve(&g->rules, 1) || !vec_reserve(&g->globs, 1) || !vec_reserve(&g->suffixes, 1))
    return false;
  map *m = is_suffix ? &g->suffix_rule : &g->rule_of;
  if (!r->is_glob && !map_get(m, r->end, r->end_bytes, &first) &&
      map_set(m, r->end, r->end_bytes, index))
    return false;
  if (r->is_glob) g->globs.at[g->globs.len++] = index;
  if (is_suffix && !has_suffix_length(g, r->end_bytes))
    g->suffixes.at[g->suffixes.len++] = r->end_bytes;
  g->rules.at[g->rules.len++] = *r;
  return true;
}

/* Checked now, not when the first name matches it. */
hp_status group_rule(group *g, const char *pattern, const char *entries, bool where_divides) {
  layout l;
  if (!pattern || !entries)
    HP_FAIL(HP_ERR_ARG, "%s of layout rule %zu is NULL; expected text",
            pattern ? "entries" : "pattern", g->rules.len);
  if (layout_parse_on(entries, &g->m, &l)) {
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
                      .expected = !g->may_miss,
                      .l = l};
  if (made.pattern && made.entries && add_rule(g, &made)) return HP_OK;
  mem_free(made.pattern);
  mem_free(made.entries);
  return HP_ERR_OOM;
}

hp_status group_home_rule(group *g, const char *pattern, uint8_t offload) {
  home_rule made = {.pattern = copy_text(pattern), .offload = offload};
  if (!made.pattern || !vec_push(&g->homes, made)) {
    mem_free(made.pattern);
    return HP_ERR_OOM;
  }
  for (int i = 0; offload && i < g->own; i++) g->member[i]->job->has_homes = true;
  return HP_OK;
}

int group_home(const group *g, const char *name) {
  for (size_t i = 0; i < g->homes.len; i++)
    if (!fnmatch(g->homes.at[i].pattern, name, 0)) return g->homes.at[i].offload;
  return -1;
}

/* Where a new tensor is made that may be on the device. */
static int tier_by_rule(const group *g, const char *name) {
  int mode = group_home(g, name);
  return mode == HP_OFFLOAD_HOST ? TIER_HOST : mode == HP_OFFLOAD_FLASH ? TIER_FLASH : TIER_DEVICE;
}

/* "(2,2)(dp,tp)", and with several meshes in a job the ranks of its devices: "(2)(dp)@2,3". */
static hp_status make_mesh(group *g, const char *text) {
  layout l;
  bool called;
  if (!text) {
    const char *name = "device";
    return mesh_init(&(int64_t){1}, &name, 1, NULL, 0, &g->m);
  }
  HP_TRY(layout_parse(text, &g->m, &l, &called));
  if (called)
    HP_FAIL(HP_ERR_LAYOUT, "mesh \"%.100s\": expected sizes and names alone, such as (2,2)(dp,tp)",
            text);
  return HP_OK;
}

/* A mesh without ranks has all of the job; each rank of another one must be in the job. */
static hp_status check_ranks(const group *g) {
  int n = (int)g->m.devices, ranks = g->job->ranks;
  if (!g->m.rank && n != ranks && world_get()->size == 1)
    HP_FAIL(HP_ERR_LAYOUT, "the mesh has %d devices without ranks, and the job %d", n, ranks);
  if (!g->m.rank && n != ranks)
    HP_FAIL(HP_ERR_LAYOUT,
            "%d processes were started, and the mesh has %d device%s: start %d process%s, or use a "
            "mesh (a strategy) of %d devices, as dp=%d",
            ranks, n, n == 1 ? "" : "s", n, n == 1 ? "" : "es", ranks, ranks);
  for (int i = 0; i < n; i++)
    if (mesh_rank(&g->m, i) >= ranks)
      HP_FAIL(HP_ERR_LAYOUT, "the mesh has rank %lld, and the job ranks 0 to %d",
              (long long)mesh_rank(&g->m, i), ranks - 1);
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

hp_status group_set_engine(group *g, const char *name) {
  HP_TRY(check_engine(g->no_partial_sums, name));
  for (int i = 0; i < g->own; i++)
    if (g->member[i]->job->no_partial_sums && strcmp(name, JOB_ENGINE_SAME_BITS))
      HP_FAIL(HP_ERR_ARG,
              "engine %s: rank %d of the job is also in a mesh with no_partial_sums, which has the "
              "same bits on every mesh by engine %s alone; close that mesh first",
              name, g->job->first + g->thread[i], JOB_ENGINE_SAME_BITS);
  for (int i = 0; i < g->own; i++)
    HP_TRY(g->member[i]->backend->set_engine(g->member[i]->dev, name));
  return HP_OK;
}

/* Plans for a cluster that is not this machine are not plans of this machine's kernels. */
static const char *backend_of(const group *g, const hp_device_options *o) {
  if (o->backend) return o->backend;
  return g->plan_only && strcmp(g->cluster.name, "this") ? "sim" : "cpu";
}

/* The communicator of all devices of the mesh, as device d of this process has it. */
static hp_status join_everyone(const group *g, device *d) {
  int64_t rank[COMM_MAX];
  if (!d->comm) return HP_OK;
  for (int i = 0; i < g->n; i++) rank[i] = mesh_rank(&g->m, i);
  return d->comm->iface->join(d->comm, rank, g->n, d->position, &d->everyone);
}

/* A mesh whose sums are not cut is opened on a job of the engine that this takes; sim computes
 * nothing.  Other meshes leave that engine while it is there. */
static hp_status count_no_partial_sums(const group *g, device *d) {
  const char *engine = d->backend->engine(d->dev);
  if (!g->no_partial_sums) return HP_OK;
  if (strcmp(engine, JOB_ENGINE_SAME_BITS) && strcmp(d->backend->name, "sim"))
    HP_FAIL(HP_ERR_ARG,
            "no_partial_sums: the job computes by engine %s, whose bits depend on how tensors are "
            "cut; open the job with engine %s, or set that first",
            engine, JOB_ENGINE_SAME_BITS);
  d->no_partial_sums = true;
  d->job->no_partial_sums++;
  return HP_OK;
}

/* The device at a position of the mesh, which is the i-th of the job in this process. */
static hp_status add_member(group *g, int64_t position, int i) {
  HP_TRY(device_create(g->job->device[i], &g->member[g->own]));
  device *d = g->member[g->own];
  g->thread[g->own++] = i;
  d->mesh = &g->m;
  d->cluster = &g->cluster;
  d->position = position;
  d->comm = g->job->comm;
  d->recorded = g->own == 1;
  HP_TRY(count_no_partial_sums(g, d));
  return join_everyone(g, d);
}

static hp_status add_members(group *g) {
  const job *j = g->job;
  for (int i = 0; i < j->own; i++) {
    int64_t position = g->plan_only ? 0 : mesh_position(&g->m, j->first + i);
    if (position < 0) continue;
    thread_team_take(j->thread_team, &i, 1);
    hp_status st = add_member(g, position, i);
    thread_team_give(j->thread_team, &i, 1);
    HP_TRY(st);
  }
  if (!g->own)
    HP_FAIL(HP_ERR_ARG, "the mesh has no device of this process, which has rank %d", j->first);
  return HP_OK;
}

static void describe(group *g) {
  const char *each = g->member[0]->backend->describe(g->member[0]->dev);
  if (g->n == 1) snprintf(g->about, sizeof g->about, "%s", each);
  else
    snprintf(g->about, sizeof g->about, "%d devices%s, each %s", g->n,
             g->own < g->n ? " (a process each)" : "", each);
}

static hp_status check_options(group *g, const hp_device_options *o) {
  HP_TRY(check_engine(o->no_partial_sums, o->engine));
  HP_TRY(cluster_load(o->cluster ? o->cluster : "this", &g->cluster));
  HP_TRY(cluster_check(&g->cluster, &g->m));
  g->n = (int)g->m.devices;
  g->plan_only = o->plan_only;
  g->may_miss = o->may_miss;
  g->no_partial_sums = o->no_partial_sums;
  return HP_OK;
}

/* A job for the mesh alone. */
static hp_status open_job(group *g, const hp_device_options *o) {
  if (g->m.rank && world_get()->size == 1)
    HP_FAIL(HP_ERR_LAYOUT, "mesh \"%.100s\": a mesh of a process alone has no ranks", o->mesh);
  return job_open(o, backend_of(g, o), g->m.devices, &g->job);
}

hp_status group_open_on(job *j, const hp_device_options *o, group **out) {
  group *g = mem_calloc(1, sizeof *g);
  HP_TRY_MEM(g);
  hp_status st = make_mesh(g, o->mesh);
  if (!st) st = check_options(g, o);
  if (!st && !j && !o->plan_only) st = world_begin();
  if (!st && j) g->job = j, j->users++;
  else if (!st) st = open_job(g, o);
  if (!st) st = check_ranks(g);
  for (int i = 0; i < o->n_layouts && !st; i++)
    st = group_rule(g, o->layouts[i].pattern, o->layouts[i].entries, false);
  if (!st) st = add_members(g);
  if (!st) describe(g);
  if (st) group_close(g);
  else *out = g;
  return st;
}

hp_status group_open(const hp_device_options *o, group **out) {
  return group_open_on(o->job ? o->job->job : NULL, o, out);
}

hp_status group_each(const group *g, const team_work *w) {
  return thread_team_run(g->job->thread_team, g->thread, g->own, w);
}

const group *group_hold(const group *g) {
  thread_team_take(g->job->thread_team, g->thread, g->own);
  return g;
}
void group_let_go(const group *g) { thread_team_give(g->job->thread_team, g->thread, g->own); }

static void close_members(group *g) {
  group_hold(g);
  for (int i = 0; i < COMM_LOCAL_MAX; i++) device_close(g->member[i]);
  group_let_go(g);
  job_release(g->job);
}

void group_close(group *g) {
  if (!g) return;
  if (g->job) close_members(g);
  for (size_t i = 0; i < g->rules.len; i++) {
    mem_free(g->rules.at[i].pattern);
    mem_free(g->rules.at[i].entries);
  }
  for (size_t i = 0; i < g->homes.len; i++) mem_free(g->homes.at[i].pattern);
  vec_free(&g->homes);
  vec_free(&g->rules);
  vec_free(&g->globs);
  vec_free(&g->suffixes);
  map_free(&g->rule_of);
  map_free(&g->suffix_rule);
  vec_free(&g->states);
  map_free(&g->state_of);
  intern_free(&g->names);
  mesh_free(&g->m);
  mem_free(g);
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

hp_status group_check_annotations(const group *g, const hp_graph *graph) {
  for (uint32_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *n = graph_node(graph, i);
    const char *entries = n->op == OP_MARK ? entries_in_name(attr_str(graph, n, "name")) : NULL;
    layout l;
    if (!entries || !layout_parse_on(entries, &g->m, &l)) continue;
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
static const layout_rule *find_rule(const group *g, const char *name) {
  size_t length = strlen(name);
  uint32_t first = UINT32_MAX, found;
  (void)map_get(&g->rule_of, name, length, &first);
  for (size_t i = 0; i < g->suffixes.len; i++) {
    size_t n = g->suffixes.at[i];
    if (n > length || !map_get(&g->suffix_rule, name + length - n, n, &found)) continue;
    if (found < first) first = found;
  }
  for (size_t i = 0; i < g->globs.len && g->globs.at[i] < first; i++)
    if (matches(&g->rules.at[g->globs.at[i]], name, length)) first = g->globs.at[i];
  return first == UINT32_MAX ? NULL : &g->rules.at[first];
}

bool group_declared(const void *model, const char *name, const ir_value *type, layout *out) {
  const group *g = model;
  const char *entries = entries_in_name(name);
  *out = (layout){.rank = type->rank};
  if (entries) { /* an annotation's are right, by group_check_annotations; another tensor may be
                  * named like that
                  */
    if (!layout_parse_on(entries, &g->m, out)) return true;
    err_clear();
    *out = (layout){.rank = type->rank};
  }
  const layout_rule *r = find_rule(g, name);
  if (!r) return false;
  *out = r->l;
  limit_cuts(&g->m, type, r->where_divides, out);
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
  int far = str_distance(n->tail, length > k ? name + length - k : name);
  if (far >= n->distance) return;
  n->distance = far;
  n->name = name;
}

/* Looks at one name for a rule; true when it matches. */
static bool try_name(const layout_rule *r, const char *name, nearest *n) {
  if (matches(r, name, strlen(name))) return true;
  compare(n, name);
  return false;
}

static bool is_used_in(const hp_graph *graph, const layout_rule *r, nearest *n) {
  for (uint32_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *d = graph_node(graph, i);
    bool named = d->op == OP_INPUT || d->op == OP_PARAM || d->op == OP_MARK;
    if (named && try_name(r, attr_str(graph, d, "name"), n)) return true;
  }
  return false;
}

static bool is_used(const group *g, const hp_graph *const *graph, size_t graphs,
                    const layout_rule *r, nearest *n) {
  for (size_t i = 0; i < graphs; i++)
    if (is_used_in(graph[i], r, n)) return true;
  for (size_t i = 0; i < g->states.len; i++)
    if (try_name(r, intern_get(&g->names, g->states.at[i].name, NULL), n)) return true;
  return false;
}

void group_tell_unused(group *g, const hp_graph *const *graph, size_t graphs) {
  for (size_t i = 0; i < g->rules.len && g->n > 1; i++) {
    layout_rule *r = &g->rules.at[i];
    if (!r->expected) continue;
    const char *star = strrchr(r->pattern, '*');
    nearest n = {.tail = star ? star + 1 : r->pattern, .distance = INT_MAX};
    r->expected = false;
    if (is_used(g, graph, graphs, r, &n)) continue;
    bool near = n.name && n.distance * 3 <= (int)strlen(n.tail);
    log_warn(
        "layout of \"%s\": no input, param or marked tensor of the program has such a name, so "
        "that it cuts nothing%s%s%s",
        r->pattern, near ? "; did you mean \"" : "", near ? n.name : "", near ? "\"?" : "");
  }
}

/* --- params ----------------------------------------------------------------------------------- */

/* The shards of the first `devices` of this process, which no program uses yet. */
static void free_shards(group *g, const char *name, int devices) {
  for (int i = 0; i < devices; i++) HP_ASSERT(!device_free_state(g->member[i], name));
}

/* On all devices or on none. */
static hp_status create_shards(group *g, const char *name, const ir_value *shard, int tier) {
  uint32_t index;
  for (int i = 0; i < g->own; i++) {
    hp_status st = device_state(g->member[i], name, shard, tier, &index);
    if (!st) continue;
    free_shards(g, name, i);
    return st;
  }
  return HP_OK;
}

hp_status group_state_of(group *g, const char *name, const ir_value *type, int tier,
                         uint32_t *index) {
  if (g->plan_only)
    HP_FAIL(HP_ERR_ARG, "param \"%s\": the device was opened to make plans only", name);
  if (map_get(&g->state_of, name, strlen(name), index))
    return state_check(name, &g->states.at[*index].type, type);
  group_state s = {.type = *type};
  ir_value shard = *type;
  if (tier == TIER_DEVICE) tier = tier_by_rule(g, name);
  group_declared(g, name, type, &s.l);
  HP_TRY(shard_check_layout(&g->m, name, type, &s.l, true));
  for (int d = 0; d < type->rank; d++)
    shard.dim[d] = layout_shard_size(&g->m, &s.l, d, type->dim[d]);
  s.name = intern(&g->names, name, strlen(name));
  if (!s.name || !vec_reserve(&g->states, 1)) return HP_ERR_OOM;
  HP_TRY(create_shards(g, name, &shard, tier));
  if (map_set(&g->state_of, name, strlen(name), (uint32_t)g->states.len)) {
    free_shards(g, name, g->own);
    return HP_ERR_OOM;
  }
  *index = (uint32_t)g->states.len;
  g->states.at[g->states.len++] = s;
  return HP_OK;
}

/* Of the i-th device of this process. */
static state_tensor *shard_of(const group *g, int i, uint32_t state) {
  uint32_t index;
  const char *name = intern_get(&g->names, g->states.at[state].name, NULL);
  HP_ASSERT(device_find(g->member[i], name, &index));
  return &g->member[i]->states.at[index];
}

/* Tensors of all devices are used by the same programs: one refusal is that of all. */
hp_status group_free_state(group *g, const char *name) {
  uint32_t index;
  if (!map_get(&g->state_of, name, strlen(name), &index))
    HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  for (int i = 0; i < g->own; i++) HP_TRY(device_free_state(g->member[i], name));
  map_remove(&g->state_of, name, strlen(name));
  uint32_t last = (uint32_t)--g->states.len;
  if (index == last) return HP_OK;
  g->states.at[index] = g->states.at[last];
  const char *moved = intern_get(&g->names, g->states.at[index].name, NULL);
  return map_set(&g->state_of, moved, strlen(moved), index);
}

static void drop_names(group *g, const char *dropped, const char *kept, int devices) {
  for (int i = 0; i < devices; i++) device_drop_name(g->member[i], dropped, kept);
}

/* A second name on all devices or on none. */
static hp_status add_names(group *g, const char *name, const char *second) {
  for (int i = 0; i < g->own; i++) {
    hp_status st = device_add_name(g->member[i], name, second);
    if (!st) continue;
    drop_names(g, second, name, i);
    return st;
  }
  return HP_OK;
}

hp_status group_rename_state(group *g, const char *name, const char *to) {
  uint32_t index, other;
  if (!map_get(&g->state_of, name, strlen(name), &index))
    HP_FAIL(HP_ERR_ARG, "the device has no param \"%s\"", name);
  if (map_get(&g->state_of, to, strlen(to), &other))
    HP_FAIL(HP_ERR_ARG, "param \"%s\" cannot be called \"%s\": there is one already", name, to);
  const group_state *s = &g->states.at[index];
  layout declared;
  group_declared(g, to, &s->type, &declared);
  if (!layout_equal(&declared, &s->l))
    HP_FAIL(HP_ERR_LAYOUT,
            "param \"%s\" cannot be called \"%s\": a param of that name is declared to have "
            "another layout; give both the same",
            name, to);
  uint32_t id = intern(&g->names, to, strlen(to));
  if (!id) return HP_ERR_OOM;
  HP_TRY(add_names(g, name, to));
  if (map_set(&g->state_of, to, strlen(to), index)) {
    drop_names(g, to, name, g->own);
    return HP_ERR_OOM;
  }
  drop_names(g, name, to, g->own);
  map_remove(&g->state_of, name, strlen(name));
  g->states.at[index].name = id;
  return HP_OK;
}

hp_status group_settle(const group *g) {
  for (int i = 0; i < g->own; i++) HP_TRY(job_device_settle(g->member[i]->job));
  return HP_OK;
}

hp_status group_write(group *g, uint32_t state, const void *data) {
  HP_TRY(group_settle(g));
  const group_state *s = &g->states.at[state];
  for (int i = 0; i < g->own; i++) {
    const device *d = g->member[i];
    const state_tensor *p = shard_of(g, i, state);
    if (g->n == 1) return mover_write(d, p, 0, data, p->bytes);
    shard_view v = mover_view(&g->m, d->position, &s->type, &s->l);
    HP_TRY(state_write_shard(d, p, &v, data));
  }
  return HP_OK;
}

/* Where shards may cut rows, the global tensor is made first. */
hp_status group_fill(group *g, uint32_t state, hp_fill_fn fill, void *context) {
  HP_TRY(group_settle(g));
  const ir_value *type = &g->states.at[state].type;
  const device *d = g->member[0];
  if (g->n == 1) return state_fill(d, shard_of(g, 0, state), fill, context);
  size_t bytes = (size_t)value_bytes(type);
  void *global = mem_map(bytes);
  HP_TRY_MEM(global);
  hp_status st = fill(context, 0, value_elements(type), global);
  if (!st) st = group_write(g, state, global);
  mem_unmap(global, bytes);
  return st;
}

/* Of several processes.  They send from memory: a shard on flash is read into it. */
static hp_status fetch_shards(const group *g, const group_state *s, const state_tensor *p,
                              void *data) {
  const device *d = g->member[0];
  if (p->tier != TIER_FLASH) return group_fetch(g, &s->type, &s->l, device_address(d, p), data);
  err_report why = {0};
  size_t bytes = (size_t)p->bytes;
  char *shard = mem_map(bytes);
  hp_status st = shard ? mover_read(d, p, 0, shard, bytes) : HP_ERR_OOM;
  if (st) err_take(st, &why);
  hp_status all = group_fetch(g, &s->type, &s->l, st ? NULL : shard, data);
  mem_unmap(shard, bytes);
  if (!st) return all;
  err_clear();
  return err_give(&why);
}

hp_status group_read(const group *g, uint32_t state, void *data) {
  HP_TRY(group_settle(g));
  const group_state *s = &g->states.at[state];
  for (int i = 0; i < g->own; i++) {
    const device *d = g->member[i];
    const state_tensor *p = shard_of(g, i, state);
    if (g->own < g->n) return fetch_shards(g, s, p, data);
    if (g->n == 1) return mover_read(d, p, 0, data, p->bytes);
    if (!holds_first(g, (int)d->position, &s->l)) continue;
    shard_view v = mover_view(&g->m, d->position, &s->type, &s->l);
    HP_TRY(state_read_shard(d, p, &v, data));
  }
  return HP_OK;
}

hp_status group_params(group *g, const hp_graph *graph) {
  for (size_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *n = graph_node(graph, (uint32_t)i);
    uint32_t index;
    if (n->op != OP_PARAM) continue;
    const char *name = attr_str(graph, n, "name");
    HP_TRY(group_state_of(g, name, graph_value(graph, n->out0), TIER_DEVICE, &index));
  }
  return HP_OK;
}
