/* Every public function by every pointer argument that is NULL: a message that names both, or what
 * the header says of NULL there.  The functions are read from the header when this is built
 * (api_functions.awk), so that one without a call here does not compile. */
#include "test.h"

#include "unit/api_functions.h"

#include "hyperparallel.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* What valid calls are made with. */
typedef struct {
  hp_graph *g;
  hp_tensor x, w, ids, seed, pos, q, table, one, p, m, v, loss, e, w3;
  hp_device *d;
  hp_program *run;
  hp_layout *mesh, *called;
  float data[6];
  char path[512];
} world;

static const hp_shape s23 = {2, {2, 3}}, s3 = {1, {3}}, s2 = {1, {2}}, s0 = {0, {0}};

static void open_world(world *w) {
  hp_graph *g;
  *w = (world){.data = {1, 2, 3, 4, 5, 6}};
  snprintf(w->path, sizeof w->path, "%s/params", test_dir());
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &w->d));
  CHECK_OK(hp_param_create(w->d, "w", HP_F32, s23));
  CHECK_OK(hp_params_save(w->d, w->path, NULL, 0));
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, s23);
  hp_output(g, "y", hp_add(g, x, x));
  CHECK_OK(hp_compile(g, w->d, NULL, &w->run));
  float y[6];
  hp_io io[] = {{"x", w->data, sizeof w->data}, {"y", y, sizeof y}};
  CHECK_OK(hp_run(w->run, io, 2));
  hp_graph_free(g);
  CHECK_OK(hp_layout_parse("(2,2)(dp,tp)", &w->mesh));
  CHECK_OK(hp_layout_parse("(2,2)(dp,tp)(tp,None)", &w->called));
  CHECK_OK(hp_graph_create(&g));
  w->g = g;
  w->x = hp_input(g, "x", HP_F32, s23);
  w->w = hp_param(g, "w3", HP_F32, s3);
  w->ids = hp_input(g, "ids", HP_I32, s2);
  w->seed = hp_const(g, HP_I64, 1);
  w->pos = hp_input(g, "pos", HP_I32, (hp_shape){2, {1, 2}});
  w->q = hp_input(g, "q", HP_F32, (hp_shape){4, {1, 2, 1, 4}});
  w->table = hp_input(g, "table", HP_F32, (hp_shape){2, {8, 2}});
  w->one = hp_input(g, "one", HP_F32, s0);
  w->p = hp_param(g, "p", HP_F32, s23);
  w->m = hp_param(g, "m", HP_F32, s23);
  w->v = hp_param(g, "v", HP_F32, s23);
  w->loss = hp_sum_sq(g, w->p);
  w->e = hp_input(g, "e", HP_I32, s23);
  w->w3 = hp_input(g, "w3d", HP_F32, (hp_shape){3, {2, 5, 3}});
  CHECK_OK(hp_graph_status(g));
}

/* One call with arguments that are valid, but for the pointer number `null`. */
typedef long long call_fn(world *w, int null);
#define CALL(name) static long long call_##name(world *w, int null)
#define P(i, p)    (null == (i) ? NULL : (p))
#define G          P(0, w->g)
#define D          P(0, w->d)
#define UNUSED     ((void)w, (void)null)

static hp_status fill_ones(void *context, int64_t first, int64_t n, void *to) {
  (void)context, (void)first;
  for (int64_t i = 0; i < n; i++) ((float *)to)[i] = 1;
  return HP_OK;
}

CALL(hp_last_error) { return UNUSED, *hp_last_error(); }
CALL(hp_error_trace) { return UNUSED, *hp_error_trace(); }
CALL(hp_status_name) { return UNUSED, *hp_status_name(HP_OK) == 0; }
CALL(hp_version) { return UNUSED, *hp_version() == 0; }
CALL(hp_free) {
  char *text = NULL;
  if (null) (void)hp_graph_print(w->g, &text);
  hp_free(text);
  return 0;
}
CALL(hp_graph_create) {
  hp_graph *g;
  return UNUSED, hp_graph_create(P(0, &g));
}
CALL(hp_graph_free) {
  hp_graph_free(G);
  return 0;
}
CALL(hp_graph_status) { return hp_graph_status(G); }
CALL(hp_graph_print) {
  char *text;
  return hp_graph_print(G, P(1, &text));
}
CALL(hp_graph_parse) {
  hp_graph *g;
  return UNUSED, hp_graph_parse(P(0, ""), P(1, "here"), P(2, &g));
}
CALL(hp_shape_of) { return hp_shape_of(G, w->x).rank - 2; }
CALL(hp_dtype_of) { return hp_dtype_of(G, w->x) - HP_F32; }
CALL(hp_graph_find) { return hp_graph_find(G, P(1, "x")); }
CALL(hp_at) { return hp_at(G, P(1, "here")), 0; }
CALL(hp_stage) { return hp_stage(G, 1), 0; }
CALL(hp_block) { return hp_block(G, 1), 0; }
CALL(hp_input) { return hp_input(G, P(1, "new"), HP_F32, s3); }
CALL(hp_param) { return hp_param(G, P(1, "new"), HP_F32, s3); }
CALL(hp_const) { return hp_const(G, HP_F32, 1); }
CALL(hp_annotate) { return hp_annotate(G, P(1, "new"), w->x); }
CALL(hp_shard) { return hp_shard(G, w->x, P(1, "(None,None)")); }
CALL(hp_output) { return hp_output(G, P(1, "new"), w->x), 0; }
CALL(hp_assign) { return hp_assign(G, w->p, w->x), 0; }
CALL(hp_map) { return hp_map(G, P(1, "relu"), w->x, HP_NONE, HP_NONE); }
CALL(hp_map_name) {
  int operands;
  const char *meaning;
  return UNUSED, *hp_map_name(0, P(0, &operands), P(1, &meaning)) == 0;
}
CALL(hp_clamp) { return hp_clamp(G, w->x, 0, 1); }
CALL(hp_add) { return hp_add(G, w->x, w->x); }
CALL(hp_sub) { return hp_sub(G, w->x, w->x); }
CALL(hp_mul) { return hp_mul(G, w->x, w->x); }
CALL(hp_div) { return hp_div(G, w->x, w->x); }
CALL(hp_scale) { return hp_scale(G, w->x, 2); }
CALL(hp_cast) { return hp_cast(G, w->x, HP_BF16); }
CALL(hp_offload) { return hp_offload(G, w->x, HP_OFFLOAD_HOST); }
CALL(hp_fetch) { return hp_fetch(G, hp_offload(w->g, w->x, HP_OFFLOAD_HOST)); }
CALL(hp_detach) { return hp_detach(G, w->x); }
CALL(hp_sum) { return hp_sum(G, w->x, P(1, ((int64_t[]){0})), 1, false); }
CALL(hp_amax) { return hp_amax(G, w->x, P(1, ((int64_t[]){0})), 1, false); }
CALL(hp_mean) { return hp_mean(G, w->x, P(1, ((int64_t[]){0})), 1, false); }
CALL(hp_argmax) { return hp_argmax(G, w->x); }
CALL(hp_reshape) { return hp_reshape(G, w->x, (hp_shape){1, {6}}); }
CALL(hp_broadcast) { return hp_broadcast(G, w->x, (hp_shape){3, {4, 2, 3}}); }
CALL(hp_transpose) { return hp_transpose(G, w->x, P(1, ((int64_t[]){1, 0}))); }
CALL(hp_slice) { return hp_slice(G, w->x, 0, 0, 1); }
CALL(hp_slice_step) { return hp_slice_step(G, w->x, 0, 0, 2, 2); }
CALL(hp_pad) {
  int64_t by[] = {1, 1};
  return hp_pad(G, w->x, P(1, by), P(2, by), 0);
}
CALL(hp_iota) { return hp_iota(G, HP_I32, s23, 1); }
CALL(hp_concat) { return hp_concat(G, P(1, ((hp_tensor[]){w->x, w->x})), 2, 0); }
CALL(hp_update) { return hp_update(G, w->x, w->x, hp_const(w->g, HP_I32, 0), 0); }
CALL(hp_einsum) { return hp_einsum(G, P(1, "ab,b->a"), w->x, w->w); }
CALL(hp_einsum_to) { return hp_einsum_to(G, P(1, "ab,b->a"), w->x, w->w, HP_BF16); }
CALL(hp_embedding) { return hp_embedding(G, w->x, w->ids, -1); }
CALL(hp_softmax) { return hp_softmax(G, w->x); }
CALL(hp_rms_norm) { return hp_rms_norm(G, w->x, w->w, 1e-5); }
CALL(hp_layer_norm) { return hp_layer_norm(G, w->x, w->w, w->w, 1e-5); }
CALL(hp_rope) { return hp_rope(G, w->q, w->table, w->table, w->pos, false); }
CALL(hp_attention) {
  hp_attention_options o = {.causal = true};
  return hp_attention(G, w->q, w->q, w->q, P(1, &o));
}
CALL(hp_paged_update) {
  hp_tensor cache = hp_input(w->g, "cache", HP_F32, (hp_shape){5, {1, 2, 1, 32, 4}});
  hp_tensor at = hp_input(w->g, "at", HP_I32, (hp_shape){1, {1}});
  return hp_paged_update(G, cache, w->q, w->pos, at, at, false);
}
static hp_tensor cache_of(world *w) {
  return hp_input(w->g, "cache", HP_F32, (hp_shape){5, {1, 2, 1, 4, 32}});
}
static hp_tensor int_input(world *w, const char *name, hp_shape s) {
  return hp_input(w->g, name, HP_I32, s);
}
CALL(hp_paged_fetch) {
  hp_tensor list = int_input(w, "list", (hp_shape){2, {1, 3}});
  return hp_paged_fetch(G, cache_of(w), list, HP_OFFLOAD_HOST, 0, 3, false);
}
CALL(hp_paged_store) {
  hp_tensor cache = cache_of(w), list = int_input(w, "list", (hp_shape){2, {1, 2}});
  return hp_paged_store(G, cache, cache, list, HP_OFFLOAD_HOST);
}
CALL(hp_paged_part) {
  hp_shape q = hp_shape_of(w->g, w->q);
  int64_t B = q.dim[0], T = q.dim[1], width = q.dim[3];
  hp_tensor k = hp_input(w->g, "k", HP_F32, (hp_shape){5, {1, 2, 1, width, 32}});
  hp_tensor v = hp_input(w->g, "v", HP_F32, (hp_shape){5, {1, 2, 1, 32, width}});
  hp_attention_options o = {.table = int_input(w, "table", (hp_shape){2, {B, 2}}),
                            .span = int_input(w, "span", (hp_shape){3, {B, T, 2}})};
  return hp_paged_part(G, w->q, k, v, P(1, &o), 0, true, HP_NONE);
}
CALL(hp_paged_bounds) {
  hp_shape q = hp_shape_of(w->g, w->q);
  int64_t B = q.dim[0], T = q.dim[1];
  hp_tensor b = hp_input(w->g, "b", HP_F32, (hp_shape){5, {1, 2, q.dim[2], 2, q.dim[3]}});
  hp_tensor at = int_input(w, "at", (hp_shape){1, {B}});
  return hp_paged_bounds(G, b, w->q, int_input(w, "table", (hp_shape){2, {B, 2}}), at, at,
                         int_input(w, "span", (hp_shape){3, {B, T, 2}}));
}
CALL(hp_paged_select) {
  hp_tensor store, place, q = hp_input(w->g, "one", HP_F32, (hp_shape){4, {1, 1, 2, 4}});
  hp_tensor b = hp_input(w->g, "b", HP_F32, (hp_shape){5, {1, 2, 1, 2, 4}});
  hp_tensor at = int_input(w, "at", (hp_shape){1, {1}});
  return hp_paged_select(G, q, b, int_input(w, "table", (hp_shape){2, {1, 2}}), at, at, 2, true,
                         P(1, &store), P(2, &place));
}
CALL(hp_conv) {
  hp_conv_options o = {.pad = {1, 1}};
  return hp_conv(G, w->q, w->q, HP_NONE, P(1, &o));
}
CALL(hp_max_pool) {
  hp_pool_options o = {.kernel = {1, 2}};
  return hp_max_pool(G, w->q, P(1, &o));
}
CALL(hp_avg_pool) {
  hp_pool_options o = {.kernel = {1, 2}};
  return hp_avg_pool(G, w->q, P(1, &o));
}
CALL(hp_cross_entropy) { return hp_cross_entropy(G, w->x, w->ids, -100); }
CALL(hp_topk) {
  hp_tensor index;
  return hp_topk(G, w->x, 2, P(1, &index));
}
CALL(hp_gather) { return hp_gather(G, w->x, w->e); }
CALL(hp_scatter_add) { return hp_scatter_add(G, w->x, w->e, 5); }
CALL(hp_grouped_matmul) { return hp_grouped_matmul(G, w->x, w->w3, w->e); }
CALL(hp_uniform) { return hp_uniform(G, w->seed, 0, HP_F32, s3); }
CALL(hp_normal) { return hp_normal(G, w->seed, 0, HP_F32, s3); }
CALL(hp_dropout) { return hp_dropout(G, w->x, 0.5, w->seed, 0); }
CALL(hp_grad) {
  hp_tensor d;
  return hp_grad(G, w->loss, P(1, &w->p), 1, P(2, &d));
}
CALL(hp_update_phase) { return hp_update_phase(G), 0; }
CALL(hp_sum_sq) { return hp_sum_sq(G, w->x); }
CALL(hp_adamw) {
  hp_adamw_options o = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  hp_adamw(G, w->p, w->x, w->m, w->v, w->one, w->one, w->one, w->one, P(1, &o));
  return 0;
}
CALL(hp_adamw_param) {
  hp_adamw_options o = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  return hp_adamw_param(G, w->p, w->x, w->m, w->v, w->one, w->one, w->one, w->one, P(1, &o));
}
CALL(hp_sgd_param) { return hp_sgd_param(G, w->p, w->x, w->m, w->one, w->one, 0.9, 0); }
CALL(hp_sgd) { return hp_sgd(G, w->p, w->x, w->m, w->one, w->one, 0.9, 0), 0; }

CALL(hp_layout_create) {
  hp_layout *l;
  const char *name[] = {"dp", "tp"};
  int64_t size[] = {2, 2}, rank[] = {3, 2, 1, 0};
  return UNUSED, hp_layout_create(P(0, size), P(1, name), 2, P(2, rank), 4, P(3, &l));
}
CALL(hp_layout_parse) {
  hp_layout *l;
  return UNUSED, hp_layout_parse(P(0, "(2)(dp)"), P(1, &l));
}
CALL(hp_layout_free) { return hp_layout_free(P(0, w->mesh)), 0; }
CALL(hp_layout_print) {
  char *text;
  return hp_layout_print(P(0, w->mesh), P(1, &text));
}
CALL(hp_layout_call) {
  hp_layout *l;
  return hp_layout_call(P(0, w->mesh), P(1, "(dp,None)"), P(2, &l));
}
CALL(hp_layout_place) {
  hp_layout *l;
  const char *place[] = {"S(0)", "R"};
  return hp_layout_place(P(0, w->mesh), P(1, place), 2, 2, P(2, &l));
}
CALL(hp_layout_set_partial) {
  return hp_layout_set_partial(P(0, w->called), P(1, "dp"), P(2, "sum"));
}
CALL(hp_layout_repeat) {
  int64_t n;
  return hp_layout_repeat(P(0, w->called), P(1, &n));
}
CALL(hp_layout_slice) {
  int64_t start[2], stop[2];
  return hp_layout_slice(P(0, w->called), s23, 0, P(1, start), P(2, stop));
}
CALL(hp_layout_global) {
  hp_shape s;
  return hp_layout_global(P(0, w->called), s23, P(1, &s));
}
CALL(hp_layout_group) {
  int64_t ranks[2], n;
  return hp_layout_group(P(0, w->called), P(1, "dp"), 0, P(2, ranks), 2, P(3, &n));
}

CALL(hp_device_open) {
  hp_device *d;
  hp_device_options o = {.threads = 1};
  return UNUSED, hp_device_open(P(0, &o), P(1, &d));
}
CALL(hp_device_close) {
  hp_device *d = NULL;
  if (null) CHECK_OK(hp_device_open(NULL, &d));
  return UNUSED, hp_device_close(d), 0;
}
CALL(hp_device_layout) { return hp_device_layout(D, P(1, "*"), P(2, "(None)"), false); }
CALL(hp_device_stage_layout) {
  return hp_device_stage_layout(D, 0, P(1, "*"), P(2, "(None)"), false);
}
CALL(hp_device_home) { return hp_device_home(D, P(1, "*"), HP_OFFLOAD_NONE); }
CALL(hp_device_stage) { return hp_device_stage(D, P(1, "w"), -1); }
CALL(hp_device_check_microbatches) { return hp_device_check_microbatches(D, 1); }
CALL(hp_device_stages) { return hp_device_stages(D) - 1; }
CALL(hp_device_describe) { return *hp_device_describe(D) == 0; }
CALL(hp_device_threads) { return hp_device_threads(D) - !null - 1; }
CALL(hp_device_engine) { return *hp_device_engine(D) == 0; }
CALL(hp_device_tuning) {
  char *text;
  return hp_device_tuning(D, P(1, &text));
}
CALL(hp_device_set_engine) { return hp_device_set_engine(D, P(1, "packed"), P(2, "")); }
CALL(hp_device_param_bytes) { return hp_device_param_bytes(D) == 0; }
CALL(hp_device_memory_limit) { return (long long)hp_device_memory_limit(D); }
CALL(hp_device_runs_ahead) { return hp_device_runs_ahead(D); }
CALL(hp_device_set_memory_limit) { return hp_device_set_memory_limit(D, 0), 0; }
CALL(hp_device_measure) {
  hp_limits l;
  return hp_device_measure(D, P(1, &l));
}
CALL(hp_world) {
  int rank, size;
  return UNUSED, hp_world(P(0, &rank), P(1, &size));
}
CALL(hp_world_max) {
  int64_t max;
  return UNUSED, hp_world_max(1, P(0, &max));
}
CALL(hp_world_agree) {
  bool all;
  return UNUSED, hp_world_agree(true, P(0, &all));
}
CALL(hp_world_broadcast) {
  int64_t mine = 1;
  return UNUSED, hp_world_broadcast(P(0, &mine), sizeof mine);
}
CALL(hp_world_gather) {
  int64_t mine = 1, all[1];
  return UNUSED, hp_world_gather(P(0, &mine), sizeof mine, P(1, all));
}
CALL(hp_param_create) { return hp_param_create(D, P(1, "new"), HP_F32, s3); }
CALL(hp_write) { return hp_write(D, P(1, "w"), P(2, w->data), sizeof w->data); }
CALL(hp_fill) { return hp_fill(D, P(1, "w"), P(2, fill_ones), P(3, w)); }
CALL(hp_read) { return hp_read(D, P(1, "w"), P(2, w->data), sizeof w->data); }
CALL(hp_param_count) { return hp_param_count(D) - 1; }
CALL(hp_param_info) {
  const char *name;
  hp_dtype t;
  hp_shape s;
  return hp_param_info(D, 0, P(1, &name), P(2, &t), P(3, &s));
}
CALL(hp_param_find) {
  hp_dtype t;
  hp_shape s;
  return hp_param_find(D, P(1, "w"), P(2, &t), P(3, &s));
}
static const char *const names[] = {"w"};
CALL(hp_params_save) { return hp_params_save(D, P(1, w->path), P(2, names), 1); }
CALL(hp_params_load) { return hp_params_load(D, P(1, w->path), P(2, names), 1); }
CALL(hp_params_verify) { return hp_params_verify(D); }
CALL(hp_compile) {
  hp_compile_options o = {.serial = true};
  hp_program *p;
  return hp_compile(G, P(1, w->d), P(2, &o), P(3, &p));
}
CALL(hp_program_free) { return hp_program_free(P(0, w->run)), 0; }
CALL(hp_piece_compile) {
  hp_compile_options o = {.serial = true};
  hp_piece *p;
  return hp_piece_compile(G, P(1, w->d), P(2, &o), P(3, &p));
}
CALL(hp_piece_free) {
  hp_piece *p;
  hp_graph *g;
  if (hp_graph_create(&g) || (hp_output(g, "y", hp_input(g, "x", HP_F32, s23)), 0)) return 1;
  if (hp_piece_compile(g, w->d, NULL, &p)) return 1;
  hp_graph_free(g);
  hp_piece_free(P(0, p));
  return 0;
}
CALL(hp_link) {
  hp_piece *piece;
  hp_program *p;
  const char *const name[] = {"F"};
  if (hp_piece_compile(w->g, w->d, NULL, &piece)) return 1;
  return hp_link(P(0, &piece), P(1, name), 1, P(2, "0 F 0"), P(3, &p));
}
CALL(hp_link_order) {
  hp_piece *piece;
  int order[1];
  const char *const name[] = {"F"};
  if (hp_piece_compile(w->g, w->d, NULL, &piece)) return 1;
  return hp_link_order(P(0, &piece), P(1, name), 1, P(2, "0 F 0"), P(3, order));
}
CALL(hp_param_free) { return hp_param_free(P(0, w->d), P(1, "w")); }
CALL(hp_param_rename) { return hp_param_rename(P(0, w->d), P(1, "w"), P(2, "other")); }
CALL(hp_link_plan) {
  hp_piece *piece;
  hp_program_stats stats;
  char *text;
  const char *const name[] = {"F"};
  if (hp_piece_compile(w->g, w->d, NULL, &piece)) return 1;
  return hp_link_plan(P(0, &piece), P(1, name), 1, P(2, "0 F 0"), P(3, &stats), P(4, "memory"),
                      P(5, &text));
}
CALL(hp_program_parse) {
  hp_program *p;
  return hp_program_parse(P(0, ""), P(1, "empty"), P(2, w->d), P(3, &p));
}
CALL(hp_program_io_count) { return hp_program_io_count(P(0, w->run)) - 2; }
CALL(hp_program_io_info) {
  const char *name;
  hp_dtype t;
  hp_shape s;
  bool out;
  return hp_program_io_info(P(0, w->run), 0, P(1, &name), P(2, &t), P(3, &s), P(4, &out));
}
CALL(hp_run) {
  hp_io io[] = {{"x", w->data, sizeof w->data}};
  return hp_run(P(0, w->run), P(1, io), 1);
}
CALL(hp_run_step) {
  hp_io io[] = {{"x", w->data, sizeof w->data}};
  return hp_run_step(P(0, w->run), P(1, io), 1, true, true);
}
CALL(hp_plan) {
  hp_compile_options o = {.serial = true};
  hp_program_stats s;
  return hp_plan(G, P(1, w->d), P(2, &o), P(3, &s));
}
CALL(hp_plan_explain) {
  hp_compile_options o = {.serial = true};
  char *text;
  return hp_plan_explain(G, P(1, w->d), P(2, &o), P(3, "memory"), P(4, &text));
}
CALL(hp_program_stats_get) {
  hp_program_stats s;
  return hp_program_stats_get(P(0, w->run), P(1, &s));
}
CALL(hp_program_print) {
  char *text;
  return hp_program_print(P(0, w->run), P(1, &text));
}
CALL(hp_explain) {
  char *text;
  return hp_explain(P(0, w->run), P(1, "ops"), P(2, &text));
}
CALL(hp_program_times) {
  hp_op_time *t;
  int n;
  return hp_program_times(P(0, w->run), P(1, &t), P(2, &n));
}
CALL(hp_program_timeline) {
  uint64_t live[4];
  return hp_program_timeline(P(0, w->run), P(1, live), 4), 0;
}
CALL(hp_memory_class) { return UNUSED, *hp_memory_class(0) == 0; }
CALL(hp_program_memory_over_time) {
  uint64_t bytes[4];
  return hp_program_memory_over_time(P(0, w->run), HP_MEMORY_PARAMS, P(1, bytes), 4);
}
CALL(hp_trace) { return hp_trace(P(0, w->run), P(1, w->path)); }

/* --- the table ------------------------------------------------------------------------------ */

static const struct function {
  const char *name;
  char gives;
  const char *pointers;
  call_fn *call;
} function[] = {
#define ROW(name, gives, pointers) {#name, gives, pointers, call_##name},
    API_FUNCTIONS(ROW)};
enum { FUNCTIONS = sizeof function / sizeof *function };

/* What the header lets be NULL. */
static const char *const accepts[][2] = {{"hp_free", "p"},
                                         {"hp_graph_free", "g"},
                                         {"hp_layout_free", "l"},
                                         {"hp_device_close", "d"},
                                         {"hp_program_free", "p"},
                                         {"hp_piece_compile", "o"},
                                         {"hp_piece_free", "p"},
                                         {"hp_link_plan", "what"},
                                         {"hp_at", "place"},
                                         {"hp_attention", "o"},
                                         {"hp_conv", "o"},
                                         {"hp_device_open", "o"},
                                         {"hp_layout_create", "rank_list"},
                                         {"hp_compile", "o"},
                                         {"hp_plan", "o"},
                                         {"hp_plan_explain", "o"},
                                         {"hp_map_name", "operands"},
                                         {"hp_map_name", "meaning"},
                                         {"hp_fill", "context"},
                                         {"hp_device_set_engine", "tuning"}};

static bool is_accepted(const struct function *f, const char *pointer) {
  for (size_t i = 0; i < sizeof accepts / sizeof *accepts; i++)
    if (!strcmp(accepts[i][0], f->name) && !strcmp(accepts[i][1], pointer)) return true;
  return false;
}

/* Fails with what was found unless the call did as it should. */
static void check_call(const struct function *f, world *w, int null, const char *pointer) {
  long long got = f->call(w, null);
  bool good = !*pointer || is_accepted(f, pointer);
  char want[128];
  snprintf(want, sizeof want, "%s: %s is NULL", f->name, pointer);
  if (good && (f->gives == 't' ? got == HP_NONE : got != 0))
    test_fail(__FILE__, __LINE__, "%s(%s NULL) gives %lld: %s", f->name, pointer, got,
              hp_last_error());
  if (good && *hp_last_error())
    test_fail(__FILE__, __LINE__, "%s succeeds and says \"%s\"", f->name, hp_last_error());
  if (good) return;
  if (f->gives == 's' && got != HP_ERR_ARG)
    test_fail(__FILE__, __LINE__, "%s gives %lld, want HP_ERR_ARG", want, got);
  if (f->gives == 't' && got != HP_NONE)
    test_fail(__FILE__, __LINE__, "%s gives tensor %lld", want, got);
  if (strncmp(hp_last_error(), want, strlen(want)))
    test_fail(__FILE__, __LINE__, "\"%s\" is said, want \"%s\"", hp_last_error(), want);
  if (!strstr(hp_error_trace(), want))
    test_fail(__FILE__, __LINE__, "%s is not in the trace: %s", want, hp_error_trace());
}

/* In a process of its own, so that a crash is told with the name of the call. */
static void try_call(const struct function *f, world *w, int null, const char *pointer) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    check_call(f, w, null, pointer);
    fflush(stdout);
    _exit(0);
  }
  int status;
  CHECK_EQ(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status))
    test_fail(__FILE__, __LINE__, "%s with %s NULL: killed by signal %d", f->name, pointer,
              WTERMSIG(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(every_pointer_of_the_api_may_be_null) {
  world w;
  open_world(&w);
  CHECK(FUNCTIONS > 90);
  for (int i = 0; i < FUNCTIONS; i++) {
    char word[64];
    const char *at = function[i].pointers;
    try_call(&function[i], &w, -1, "");
    for (int null = 0; *at; null++) {
      int n = (int)strcspn(at, " ");
      snprintf(word, sizeof word, "%.*s", n, at);
      try_call(&function[i], &w, null, word);
      at += n + (at[n] == ' ');
    }
  }
  hp_layout_free(w.mesh);
  hp_layout_free(w.called);
  hp_program_free(w.run);
  hp_graph_free(w.g);
  hp_device_close(w.d);
}

/* A builder with an argument that is NULL has poisoned its graph with that. */
TEST(a_null_argument_of_a_builder_is_the_failure_of_its_graph) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  hp_tensor x = hp_input(g, "x", HP_F32, s3);
  CHECK_EQ(hp_topk(g, x, 1, NULL), HP_NONE);
  CHECK_EQ(hp_graph_status(g), HP_ERR_ARG);
  CHECK_STR(hp_last_error(), "hp_topk: index is NULL");
  CHECK_EQ(hp_add(g, x, x), HP_NONE);
  CHECK_STR(hp_last_error(), "hp_topk: index is NULL");
  hp_graph_free(g);
}
