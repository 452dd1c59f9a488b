#include "rt/group.h"

#include "base/dtype.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/world.h"
#include "shard/box.h"
#include "shard/layout_text.h"

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

/* There are thousands of rules, most of them names: these are found by a map. */
static bool add_rule(group *g, layout_rule *r) {
  uint32_t index = (uint32_t)g->rules.len, first;
  r->end = r->pattern + (*r->pattern == '*');
  r->end_bytes = strlen(r->end);
  r->is_glob = strpbrk(r->end, "*?[\\") != NULL;
  bool is_name = r->end == r->pattern && !r->is_glob;
  if (!vec_reserve(&g->rules, 1) || !vec_reserve(&g->patterns, 1)) return false;
  if (is_name && !map_get(&g->rule_of, r->pattern, r->end_bytes, &first) &&
      map_set(&g->rule_of, r->pattern, r->end_bytes, index))
    return false;
  if (!is_name) g->patterns.at[g->patterns.len++] = index;
  g->rules.at[g->rules.len++] = *r;
  return true;
}

/* Checked now, not when the first name meets it. */
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

static hp_status make_mesh(group *g, const char *text) {
  layout l;
  bool called;
  if (!text) {
    const char *name = "device";
    return mesh_init(&(int64_t){1}, &name, 1, NULL, 0, &g->m);
  }
  HP_TRY(layout_parse(text, &g->m, &l, &called));
  if (called || g->m.rank)
    HP_FAIL(HP_ERR_LAYOUT, "mesh \"%.100s\": expected sizes and names alone, such as (2,2)(dp,tp)",
            text);
  return HP_OK;
}

/* In a job of several processes each has one device; alone, a process has all. */
static hp_status open_communicator(group *g) {
  HP_TRY(world_begin());
  const world_facts *w = world_get();
  if (w->size == 1) return g->n > 1 ? comm_local_open(g->n, &g->comm) : HP_OK;
  if (w->size > COMM_MAX)
    HP_FAIL(HP_ERR_LAYOUT, "%d processes; at most %d are possible", w->size, COMM_MAX);
  if (w->size != g->n)
    HP_FAIL(HP_ERR_LAYOUT,
            "%d processes were started, and the mesh has %d device%s: start %d process%s, or use a "
            "mesh "
            "(a strategy) of %d devices, as dp=%d",
            w->size, g->n, g->n == 1 ? "" : "s", g->n, g->n == 1 ? "" : "es", w->size, w->size);
  g->first = w->rank;
  g->own = 1;
  return comm_world_open(&g->comm);
}

/* The engine whose products have the same bits whatever the shapes of the parts. */
static const char *const same_bits = "packed";

static hp_status check_engine(bool no_partial_sums, const char *name) {
  if (no_partial_sums && name && strcmp(name, same_bits))
    HP_FAIL(HP_ERR_ARG,
            "engine %s: its bits depend on how tensors are cut; for the same bits on every mesh "
            "use %s",
            name, same_bits);
  return HP_OK;
}

hp_status group_set_engine(group *g, const char *name) {
  HP_TRY(check_engine(g->no_partial_sums, name));
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
  if (!g->comm) return HP_OK;
  for (int i = 0; i < g->n; i++) rank[i] = mesh_rank(&g->m, i);
  return g->comm->iface->join(g->comm, rank, g->n, d->position, &d->everyone);
}

static hp_status open_parts(group *g, const hp_device_options *o) {
  const world_facts *w = world_get();
  int threads = o->threads > 0 ? o->threads : cpu_count();
  int sharers = g->plan_only ? g->n : w->here * g->own; /* a plan is of what a run would open */
  backend_options b = {.threads = o->threads, .engine = o->engine, .interpret = o->interpret};
  HP_TRY(check_engine(o->no_partial_sums, o->engine));
  g->no_partial_sums = o->no_partial_sums;
  if (o->no_partial_sums) b.engine = same_bits;
  b.shared = g->n > 1 || w->size > 1;
  for (int i = 0; i < g->own; i++) {
    int place = w->place * g->own + i; /* among those that share this machine's threads */
    if (b.shared) b.threads = threads / sharers + (place < threads % sharers);
    if (b.shared && b.threads < 1) b.threads = 1;
    HP_TRY(device_open(backend_of(g, o), &b, o->memory_limit, &g->member[i]));
    g->member[i]->mesh = &g->m;
    g->member[i]->cluster = &g->cluster;
    g->member[i]->position = g->first + i;
    g->member[i]->comm = g->comm;
    HP_TRY(join_everyone(g, g->member[i]));
  }
  return HP_OK;
}

static void describe(group *g) {
  const char *part = g->member[0]->backend->describe(g->member[0]->dev);
  if (g->n == 1) snprintf(g->about, sizeof g->about, "%s", part);
  else
    snprintf(g->about, sizeof g->about, "%d devices%s, each %s", g->n,
             g->own < g->n ? " (a process each)" : "", part);
}

hp_status group_open(const hp_device_options *o, group **out) {
  group *g = mem_calloc(1, sizeof *g);
  HP_TRY_MEM(g);
  hp_status st = make_mesh(g, o->mesh);
  if (!st) st = cluster_load(o->cluster ? o->cluster : "this", &g->cluster);
  if (!st) st = cluster_check(&g->cluster, &g->m);
  g->n = (int)g->m.devices;
  g->plan_only = o->plan_only;
  g->own = g->plan_only ? 1 : g->n;
  if (!st && !g->plan_only) st = open_communicator(g);
  g->may_miss = o->may_miss;
  for (int i = 0; i < o->n_layouts && !st; i++)
    st = group_rule(g, o->layouts[i].pattern, o->layouts[i].entries, false);
  if (!st && g->comm) st = thread_team_create(g->own, &g->thread_team);
  if (!st) st = open_parts(g, o);
  if (!st) describe(g);
  if (st) group_close(g);
  else *out = g;
  return st;
}

void group_close(group *g) {
  if (!g) return;
  thread_team_free(g->thread_team);
  for (int i = 0; i < COMM_LOCAL_MAX; i++) device_close(g->member[i]);
  if (g->comm) g->comm->iface->close(g->comm);
  for (size_t i = 0; i < g->rules.len; i++) {
    mem_free(g->rules.at[i].pattern);
    mem_free(g->rules.at[i].entries);
  }
  vec_free(&g->rules);
  vec_free(&g->patterns);
  map_free(&g->rule_of);
  vec_free(&g->states);
  map_free(&g->state_of);
  intern_free(&g->names);
  mesh_free(&g->m);
  mem_free(g);
}

/* --- layouts ---------------------------------------------------------------------------------- */

/* A dim of one element is not shared.  Where it is asked for, of each dim the outer axes, as many
 * as divide it. */
static void keep_whole(const mesh *m, const ir_value *type, bool where_divides, layout *l) {
  if (l->rank != type->rank && where_divides) *l = (layout){.rank = type->rank};
  for (int d = 0; d < l->rank && d < type->rank; d++) {
    if (type->dim[d] == 1) layout_cut(l, d, l->n[d]);
    while (where_divides && type->dim[d] % layout_shard_count(m, l, d)) layout_cut(l, d, 1);
  }
}

/* The entries that a mark of hp_shard, or that of its gradient, has for a name; NULL: it is none.
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
  uint32_t first = UINT32_MAX;
  (void)map_get(&g->rule_of, name, length, &first);
  for (size_t i = 0; i < g->patterns.len && g->patterns.at[i] < first; i++)
    if (matches(&g->rules.at[g->patterns.at[i]], name, length)) first = g->patterns.at[i];
  return first == UINT32_MAX ? NULL : &g->rules.at[first];
}

bool group_declared(const void *model, const char *name, const ir_value *type, layout *out) {
  const group *g = model;
  const char *entries = entries_in_name(name);
  *out = (layout){.rank = type->rank};
  if (entries) { /* a mark's are right, by group_check_annotations; another tensor may be named like
                  * that
                  */
    if (!layout_parse_on(entries, &g->m, out)) return true;
    err_clear();
    *out = (layout){.rank = type->rank};
  }
  const layout_rule *r = find_rule(g, name);
  if (!r) return false;
  *out = r->l;
  keep_whole(&g->m, type, r->where_divides, out);
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

static bool is_used(const group *g, const hp_graph *graph, const layout_rule *r, nearest *n) {
  for (uint32_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *d = graph_node(graph, i);
    bool named = d->op == OP_INPUT || d->op == OP_PARAM || d->op == OP_MARK;
    if (named && try_name(r, attr_str(graph, d, "name"), n)) return true;
  }
  for (size_t i = 0; i < g->states.len; i++)
    if (try_name(r, intern_get(&g->names, g->states.at[i].name, NULL), n)) return true;
  return false;
}

void group_tell_unused(group *g, const hp_graph *graph) {
  for (size_t i = 0; i < g->rules.len && g->n > 1; i++) {
    layout_rule *r = &g->rules.at[i];
    if (!r->expected) continue;
    const char *star = strrchr(r->pattern, '*');
    nearest n = {.tail = star ? star + 1 : r->pattern, .distance = INT_MAX};
    r->expected = false;
    if (is_used(g, graph, r, &n)) continue;
    bool near = n.name && n.distance * 3 <= (int)strlen(n.tail);
    log_warn(
        "layout of \"%s\": no input, param or marked tensor of the program has such a name, so "
        "that it cuts nothing%s%s%s",
        r->pattern, near ? "; did you mean \"" : "", near ? n.name : "", near ? "\"?" : "");
  }
}

/* --- parts ------------------------------------------------------------------------------------ */

bool holds_first(const group *g, int at, const layout *l) {
  return layout_first(&g->m, l, at) == at;
}

void shard_copy(const group *g, int at, const ir_value *type, const layout *l, void *whole,
                void *part, bool to_part) {
  box all = box_of(type->dim, type->rank), room = box_room(&g->m, l, type->dim, at);
  box own = box_of_shard(&g->m, l, type->dim, at);
  size_t size = dtype_size(type->dtype);
  if (to_part) box_copy(&own, size, &all, whole, &room, part);
  else box_copy(&own, size, &room, part, &all, whole);
}

/* --- params ----------------------------------------------------------------------------------- */

hp_status group_state_of(group *g, const char *name, const ir_value *type, uint32_t *index) {
  if (g->plan_only)
    HP_FAIL(HP_ERR_ARG, "param \"%s\": the device was opened to make plans only", name);
  if (map_get(&g->state_of, name, strlen(name), index))
    return state_check(name, &g->states.at[*index].type, type);
  group_state s = {.type = *type};
  ir_value part = *type;
  uint32_t own;
  group_declared(g, name, type, &s.l);
  HP_TRY(shard_check_layout(&g->m, name, type, &s.l, true));
  for (int d = 0; d < type->rank; d++)
    part.dim[d] = layout_shard_size(&g->m, &s.l, d, type->dim[d]);
  s.name = intern(&g->names, name, strlen(name));
  if (!s.name || !vec_reserve(&g->states, 1)) return HP_ERR_OOM;
  for (int i = 0; i < g->own; i++) HP_TRY(device_state(g->member[i], name, &part, &own));
  HP_TRY(map_set(&g->state_of, name, strlen(name), (uint32_t)g->states.len));
  *index = (uint32_t)g->states.len;
  g->states.at[g->states.len++] = s;
  return HP_OK;
}

/* Of the i-th device of this process. */
static state_tensor *part_of(const group *g, int i, uint32_t state) {
  uint32_t index;
  const char *name = intern_get(&g->names, g->states.at[state].name, NULL);
  HP_ASSERT(device_find(g->member[i], name, &index));
  return &g->member[i]->states.at[index];
}

hp_status group_write(group *g, uint32_t state, const void *data) {
  const group_state *s = &g->states.at[state];
  for (int i = 0; i < g->own; i++) {
    state_tensor *p = part_of(g, i, state);
    if (g->n == 1) return g->member[0]->backend->copy(g->member[0]->dev, p->at, data, p->bytes);
    shard_copy(g, g->first + i, &s->type, &s->l, (void *)(uintptr_t)data, p->at, true);
  }
  return HP_OK;
}

/* Where parts need not be whole rows, all of it is made first. */
hp_status group_fill(group *g, uint32_t state, hp_fill_fn fill, void *context) {
  const ir_value *type = &g->states.at[state].type;
  const device *d = g->member[0];
  if (g->n == 1) return d->backend->fill(d->dev, part_of(g, 0, state)->at, type, fill, context);
  size_t bytes = (size_t)value_bytes(type);
  void *whole = mem_map(bytes);
  HP_TRY_MEM(whole);
  hp_status st = fill(context, 0, value_elements(type), whole);
  if (!st) st = group_write(g, state, whole);
  mem_unmap(whole, bytes);
  return st;
}

hp_status group_read(const group *g, uint32_t state, void *data) {
  const group_state *s = &g->states.at[state];
  for (int i = 0; i < g->own; i++) {
    state_tensor *p = part_of(g, i, state);
    if (g->own < g->n) return group_fetch(g, &s->type, &s->l, p->at, data);
    if (g->n == 1) return g->member[0]->backend->copy(g->member[0]->dev, data, p->at, p->bytes);
    if (holds_first(g, i, &s->l)) shard_copy(g, i, &s->type, &s->l, data, p->at, false);
  }
  return HP_OK;
}

/* --- of other processes ----------------------------------------------------------------------- */

typedef struct {
  communicator *c; /* all devices */
  comm_region give[COMM_MAX], take[COMM_MAX];
  comm_view seen[COMM_MAX];
} everyone;

static hp_status run_rendezvous(const group *g, everyone *e, const char *what, const void *data) {
  comm_call call = comm_call_of(what, NULL);
  return g->comm->iface->rendezvous(e->c, &call, data, e->give, e->take, e->seen);
}

typedef enum { LEAVES_IT, WANTS_IT, HAS_NO_ROOM } answer;

/* Which processes want it, and whether all have room for what comes. */
static hp_status ask(const group *g, everyone *e, char mine, char wants[COMM_MAX]) {
  for (int i = 0; i < g->n; i++) e->give[i] = e->take[i] = (comm_region){.run = 1, .n = 1};
  HP_TRY(run_rendezvous(g, e, "a question who reads a tensor", &mine));
  for (int i = 0; i < g->n; i++) wants[i] = *e->seen[i].at;
  return g->comm->iface->leave(e->c);
}

/* The regions of a fetch where each of these wants it; wants NULL: as if all did. */
static void fetch_regions(const group *g, const layout *l, bool mine, const char *wants,
                          comm_region all, everyone *e) {
  const comm_region none = {0};
  bool gives = holds_first(g, g->first, l);
  for (int i = 0; i < g->n; i++) {
    e->give[i] = gives && (!wants || wants[i] == WANTS_IT) ? all : none;
    e->take[i] = mine && holds_first(g, i, l) ? all : none;
  }
}

/* A process without room says so before anybody sends, and none goes on. */
static hp_status agree_to_fetch(const group *g, everyone *e, const layout *l, bool mine,
                                comm_region all, char wants[COMM_MAX]) {
  fetch_regions(g, l, mine, NULL, all, e);
  hp_status st = HP_OK;
  if (g->comm->iface->prepare) st = g->comm->iface->prepare(e->c, e->give, e->take);
  hp_status asked = ask(g, e, st ? HAS_NO_ROOM : mine ? WANTS_IT : LEAVES_IT, wants);
  if (st || asked) return st ? st : asked;
  for (int i = 0; i < g->n; i++)
    if (wants[i] == HAS_NO_ROOM)
      HP_FAIL(HP_ERR_COMM, "process %lld has no memory for the shards of a tensor",
              (long long)e->c->rank[i]);
  return HP_OK;
}

hp_status group_fetch(const group *g, const ir_value *type, const layout *l, const void *part,
                      void *whole) {
  everyone e;
  char wants[COMM_MAX];
  char what[48];
  ir_value p = *type;
  for (int d = 0; d < p.rank; d++) p.dim[d] = layout_shard_size(&g->m, l, d, p.dim[d]);
  comm_region all = {.run = (int64_t)value_bytes(&p), .n = 1};
  e.c = g->member[0]->everyone;
  HP_TRY(agree_to_fetch(g, &e, l, whole != NULL, all, wants));
  fetch_regions(g, l, whole != NULL, wants, all, &e);
  snprintf(what, sizeof what, "a read of %lld bytes a shard", (long long)all.run);
  HP_TRY(run_rendezvous(g, &e, what, part));
  for (int i = 0; i < g->n; i++)
    if (e.take[i].n) shard_copy(g, i, type, l, whole, (void *)(uintptr_t)e.seen[i].at, false);
  return g->comm->iface->leave(e.c);
}

hp_status group_params(group *g, const hp_graph *graph) {
  for (size_t i = 0; i < graph->nodes.len; i++) {
    const ir_node *n = graph_node(graph, (uint32_t)i);
    uint32_t index;
    if (n->op != OP_PARAM) continue;
    HP_TRY(group_state_of(g, attr_str(graph, n, "name"), graph_value(graph, n->out0), &index));
  }
  return HP_OK;
}

/* --- engines ---------------------------------------------------------------------------------- */

/* Text of the first device's process to all others; `failed` there fails here too. */
static hp_status tell_all(const group *g, bool failed, str *text) {
  int64_t mine = g->first ? INT64_MIN : failed ? -1 : (int64_t)text->len, n;
  HP_TRY(world_most(mine, &n));
  if (n < 0) HP_FAIL(HP_ERR_COMM, "process 0 could not choose the engines of products");
  if (!n) return HP_OK;
  layout whole = {.rank = 1};
  ir_value type = {.dtype = HP_U8, .rank = 1, .dim = {n}};
  char *got = g->first ? mem_calloc((size_t)n + 1, 1) : NULL;
  if (g->first) HP_TRY_MEM(got);
  hp_status st = group_fetch(g, &type, &whole, text->at, got);
  if (!st && got) str_add_n(text, got, (size_t)n);
  mem_free(got);
  return st ? st : str_status(text);
}

hp_status group_choose(group *g, int i, program *p) {
  device *d = g->member[i];
  const backend_iface *b = d->backend;
  bool first = g->first + i == 0, fastest = !strcmp(b->engine(d->dev), ENGINE_FASTEST);
  bool shared = fastest && g->n > 1 && !g->plan_only;
  hp_status st = first || !shared ? b->choose(d->dev, p) : HP_OK;
  str text = {0};
  if (!shared) return st;
  if (!st && !g->first) b->tuning(g->member[0]->dev, &text);
  if (g->own < g->n) {
    hp_status told = tell_all(g, st != HP_OK, &text);
    if (!st) st = told;
  }
  if (!st && !first) st = b->set_tuning(d->dev, text.at ? text.at : "");
  if (!st && !first) st = b->choose(d->dev, p);
  str_free(&text);
  return st;
}
