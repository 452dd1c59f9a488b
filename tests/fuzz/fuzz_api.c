/* Calls of the public API in any order and with any arguments: NULL, tensors of other graphs,
 * counts and dims that make no sense.  Nothing crashes; a call fails if and only if hp_last_error()
 * says why. What the header asks of a program is kept: devices outlive their programs, nothing is
 * used after it was freed, and memory is as large as is said. */
#include "folder.h"
#include "fuzz.h"

#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRAPHS = 3, DEVICES = 2, PROGRAMS = 3, LAYOUTS = 3, TENSORS = 64, CALLS = 160, ROOM = 4096 };

typedef struct {
  const uint8_t *at, *end;
  hp_graph *g[GRAPHS];
  hp_device *d[DEVICES];
  hp_program *p[PROGRAMS];
  hp_device *of[PROGRAMS]; /* the device of a program */
  hp_layout *l[LAYOUTS];
  hp_tensor x[TENSORS];
  int n;
  char data[ROOM]; /* what is read and written */
} state;

/* --- arguments from the input ----------------------------------------------------------------- */

static int byte(state *s) { return s->at < s->end ? *s->at++ : 0; }
static int below(state *s, int n) { return byte(s) % n; }
static bool rarely(state *s) { return byte(s) % 16 == 15; }
#define OR_NULL(s, p) (rarely(s) ? NULL : (p))

static hp_graph *graph(state *s) { return OR_NULL(s, s->g[below(s, GRAPHS)]); }
static hp_device *device(state *s) { return OR_NULL(s, s->d[below(s, DEVICES)]); }
static hp_program *program(state *s) { return OR_NULL(s, s->p[below(s, PROGRAMS)]); }
static hp_layout *layout(state *s) { return OR_NULL(s, s->l[below(s, LAYOUTS)]); }

/* Mostly one that was made, of whatever graph. */
static hp_tensor tensor(state *s) {
  static const hp_tensor odd[] = {HP_NONE, 1, 77, UINT32_MAX, (hp_tensor)1 << 22};
  if (rarely(s) || !s->n) return odd[below(s, 5)];
  return s->x[below(s, s->n)];
}
/* One that fits others more often: of the last few. */
static hp_tensor recent(state *s) {
  return s->n && byte(s) % 4 ? s->x[s->n - 1 - below(s, s->n < 4 ? s->n : 4)] : tensor(s);
}

static const char *name(state *s) {
  static const char *const text[] = {"x", "w", "y",  "w.0", "grad.x", "",  "*",  "*.0",
                                     "(", "a", "\n", "p/q", "w",      "x", "w1", "w2"};
  return OR_NULL(s, text[below(s, 16)]);
}
static hp_dtype dtype(state *s) {
  return rarely(s)     ? (hp_dtype)(byte(s) - 20)
         : byte(s) % 4 ? HP_F32
                       : (hp_dtype)below(s, HP_DTYPE_COUNT);
}
static int64_t number(state *s) {
  static const int64_t odd[] = {-1, INT64_MAX, INT64_MIN, 1 << 20, INT_MAX, -100, 1LL << 40, 7};
  return rarely(s) ? odd[below(s, 8)] : below(s, 4);
}
static int count(state *s) { return (int)number(s); }
static double real(state *s) {
  static const double odd[] = {0.5, -1, 1e300, 1e-300, 0.1, 3};
  int k = below(s, 9);
  return k < 6 ? odd[k] : k == 6 ? 0 : k == 7 ? 1.0 / 0.0 : 0.0 / 0.0;
}
static hp_shape shape(state *s) {
  hp_shape t = {below(s, 4), {0}};
  if (rarely(s)) t.rank = count(s);
  for (int i = 0; i < HP_MAX_RANK; i++) t.dim[i] = rarely(s) ? number(s) : 1 + below(s, 4);
  return t;
}
static const int64_t *axes(state *s, int64_t *room) {
  for (int i = 0; i < HP_MAX_RANK; i++) room[i] = rarely(s) ? number(s) : below(s, 3);
  return OR_NULL(s, room);
}

/* --- what must hold of every call ------------------------------------------------------------- */

static hp_status told(hp_status st) {
  HP_ASSERT((st != HP_OK) == (*hp_last_error() != 0));
  HP_ASSERT(!strncmp(hp_error_trace(), hp_last_error(), strlen(hp_last_error())));
  HP_ASSERT(strcmp(hp_status_name(st), "unknown status"));
  err_clear();
  return st;
}
static hp_tensor keep(state *s, hp_tensor x) {
  HP_ASSERT((x == HP_NONE) == (*hp_last_error() != 0));
  err_clear();
  if (!x) return x;
  if (s->n == TENSORS) memmove(s->x, s->x + 1, --s->n * sizeof *s->x);
  return s->x[s->n++] = x;
}
static void text_told(hp_status st, char **text) {
  if (told(st)) return;
  HP_ASSERT(*text);
  hp_free(*text);
}

/* --- builders --------------------------------------------------------------------------------- */

static void build_leaf(state *s) {
  hp_graph *g = graph(s);
  switch (below(s, 6)) {
  case 0: keep(s, hp_input(g, name(s), dtype(s), shape(s))); break;
  case 1: keep(s, hp_param(g, name(s), dtype(s), shape(s))); break;
  case 2: keep(s, hp_const(g, dtype(s), real(s))); break;
  case 3: keep(s, hp_uniform(g, tensor(s), number(s), dtype(s), shape(s))); break;
  case 4: keep(s, hp_normal(g, tensor(s), number(s), dtype(s), shape(s))); break;
  default: keep(s, hp_iota(g, dtype(s), shape(s), count(s)));
  }
}

static void build_map(state *s) {
  static const char *const op[] = {"relu", "tanh",   "exp", "max",  "lt", "eq",   "add",   "pow",
                                   "abs",  "select", "not", "cast", "",   "none", "floor", "sum"};
  hp_graph *g = graph(s);
  switch (below(s, 9)) {
  case 0: keep(s, hp_add(g, recent(s), recent(s))); break;
  case 1: keep(s, hp_sub(g, recent(s), recent(s))); break;
  case 2: keep(s, hp_mul(g, recent(s), recent(s))); break;
  case 3: keep(s, hp_div(g, recent(s), recent(s))); break;
  case 4: keep(s, hp_scale(g, recent(s), real(s))); break;
  case 5: keep(s, hp_cast(g, recent(s), dtype(s))); break;
  case 6: keep(s, hp_clamp(g, recent(s), real(s), real(s))); break;
  case 7: keep(s, hp_dropout(g, recent(s), real(s), tensor(s), number(s))); break;
  default: {
    hp_tensor b = byte(s) % 2 ? HP_NONE : recent(s), c = byte(s) % 4 ? HP_NONE : recent(s);
    keep(s, hp_map(g, OR_NULL(s, op[below(s, 16)]), recent(s), b, c));
  }
  }
}

static void build_shape(state *s) {
  hp_graph *g = graph(s);
  int64_t a[HP_MAX_RANK], b[HP_MAX_RANK];
  hp_tensor list[256];
  switch (below(s, 12)) {
  case 0: keep(s, hp_sum(g, recent(s), axes(s, a), count(s), byte(s) % 2)); break;
  case 1: keep(s, hp_amax(g, recent(s), axes(s, a), count(s), byte(s) % 2)); break;
  case 2: keep(s, hp_mean(g, recent(s), axes(s, a), count(s), byte(s) % 2)); break;
  case 3: keep(s, hp_argmax(g, recent(s))); break;
  case 4: keep(s, hp_reshape(g, recent(s), shape(s))); break;
  case 5: keep(s, hp_broadcast(g, recent(s), shape(s))); break;
  case 6: keep(s, hp_transpose(g, recent(s), axes(s, a))); break;
  case 7: keep(s, hp_slice(g, recent(s), count(s), number(s), number(s))); break;
  case 8: keep(s, hp_slice_step(g, recent(s), count(s), number(s), number(s), number(s))); break;
  case 9: keep(s, hp_pad(g, recent(s), axes(s, a), axes(s, b), real(s))); break;
  case 10:
    for (int i = 0; i < 256; i++) list[i] = i < 4 ? recent(s) : list[i - 4];
    keep(s, hp_concat(g, OR_NULL(s, list), count(s), count(s)));
    break;
  default: keep(s, hp_update(g, recent(s), recent(s), tensor(s), count(s)));
  }
}

static void build_layer(state *s) {
  static const char *const eq[] = {"ab,bc->ac", "ab,cb->ac", "a,a->", "ab,b->a",
                                   "",          "ab",        "->",    ","};
  hp_graph *g = graph(s);
  hp_tensor index = HP_NONE;
  hp_attention_options o = {0};
  switch (below(s, 20)) {
  case 0: keep(s, hp_einsum(g, OR_NULL(s, eq[below(s, 8)]), recent(s), recent(s))); break;
  case 1: keep(s, hp_einsum_to(g, eq[below(s, 8)], recent(s), recent(s), dtype(s))); break;
  case 2: keep(s, hp_embedding(g, recent(s), recent(s), number(s))); break;
  case 3: keep(s, hp_softmax(g, recent(s))); break;
  case 4: keep(s, hp_rms_norm(g, recent(s), recent(s), real(s))); break;
  case 5: keep(s, hp_layer_norm(g, recent(s), recent(s), recent(s), real(s))); break;
  case 6: keep(s, hp_rope(g, recent(s), recent(s), recent(s), recent(s), byte(s) % 2)); break;
  case 7:
    o = (hp_attention_options){real(s),
                               byte(s) % 2,
                               number(s),
                               byte(s) % 4 ? 0 : tensor(s),
                               byte(s) % 4 ? 0 : real(s),
                               tensor(s),
                               number(s),
                               byte(s) % 4 ? 0 : tensor(s)};
    keep(s, hp_attention(g, recent(s), recent(s), recent(s), OR_NULL(s, &o)));
    break;
  case 8: keep(s, hp_cross_entropy(g, recent(s), recent(s), number(s))); break;
  case 9:
    if (keep(s, hp_topk(g, recent(s), number(s), OR_NULL(s, &index)))) s->x[s->n - 1] = index;
    break;
  case 10: keep(s, hp_gather(g, recent(s), recent(s))); break;
  case 11: keep(s, hp_scatter_add(g, recent(s), recent(s), number(s))); break;
  case 12: keep(s, hp_grouped_matmul(g, recent(s), recent(s), recent(s))); break;
  case 13: {
    hp_conv_options c = {{number(s)}, {number(s)}, {number(s)}, number(s)};
    keep(s, hp_conv(g, recent(s), recent(s), byte(s) % 2 ? HP_NONE : recent(s), OR_NULL(s, &c)));
    break;
  }
  case 14:
  case 15: {
    hp_pool_options c = {{number(s), number(s)}, {number(s)}, {number(s)}, byte(s) % 2};
    hp_tensor x = recent(s);
    const hp_pool_options *given = OR_NULL(s, &c);
    keep(s, byte(s) % 2 ? hp_max_pool(g, x, given) : hp_avg_pool(g, x, given));
    break;
  }
  case 16:
    keep(s, hp_paged_update(g, recent(s), recent(s), recent(s), tensor(s), tensor(s), byte(s) % 2));
    break;
  case 17: {
    hp_tensor cache = recent(s), list = recent(s), slots = tensor(s);
    int tier = (int)below(s, 5);
    if (byte(s) % 2) keep(s, hp_paged_store(g, cache, slots, list, tier));
    else keep(s, hp_paged_fetch(g, cache, list, tier, number(s), number(s), byte(s) % 2));
    break;
  }
  case 18: {
    hp_attention_options paged = {.table = recent(s), .span = tensor(s), .window = number(s)};
    hp_tensor q = recent(s), k = recent(s), v = tensor(s), before = tensor(s);
    keep(s, hp_paged_part(g, q, k, v, OR_NULL(s, &paged), number(s), byte(s) % 2, before));
    break;
  }
  default: keep(s, hp_sum_sq(g, recent(s)));
  }
}

static void build_effect(state *s) {
  static const hp_adamw_options adamw = {0.9, 0.999, 1e-8, 0.1};
  hp_graph *g = graph(s);
  hp_tensor wrt[TENSORS], grads[TENSORS];
  switch (below(s, 10)) {
  case 0: hp_output(g, name(s), recent(s)); break;
  case 1: hp_assign(g, tensor(s), recent(s)); break;
  case 2: hp_at(g, name(s)); break;
  case 3: byte(s) % 2 ? hp_block(g, count(s)) : hp_stage(g, count(s)); break;
  case 4: hp_update_phase(g); break;
  case 5: keep(s, hp_annotate(g, name(s), recent(s))); break;
  case 6: keep(s, hp_shard(g, recent(s), OR_NULL(s, byte(s) % 2 ? "(dp,None)" : "(dp)"))); break;
  case 7:
    hp_adamw(g, tensor(s), recent(s), tensor(s), tensor(s), recent(s), recent(s), recent(s),
             recent(s), OR_NULL(s, &adamw));
    break;
  case 8: hp_sgd(g, tensor(s), recent(s), tensor(s), recent(s), recent(s), real(s), real(s)); break;
  default: {
    int n = count(s) % TENSORS; /* as many as there is room for */
    for (int i = 0; i < TENSORS; i++) wrt[i] = tensor(s);
    if (!told(hp_grad(g, recent(s), OR_NULL(s, wrt), n, OR_NULL(s, grads))))
      for (int i = 0; i < n && i < 2; i++) keep(s, grads[i]);
  }
  }
  err_clear();
}

static void use_graph(state *s) {
  hp_graph *g = graph(s), *other = NULL;
  char *text = NULL;
  switch (below(s, 6)) {
  case 0: told(hp_graph_status(g)); break;
  case 1: text_told(hp_graph_print(g, OR_NULL(s, &text)), &text); break;
  case 2: (void)hp_shape_of(g, tensor(s)); break;
  case 3: (void)hp_dtype_of(g, byte(s) % 2 ? hp_graph_find(g, name(s)) : tensor(s)); break;
  case 4: {
    if (hp_graph_print(g, &text)) text = NULL;
    if (!told(hp_graph_parse(OR_NULL(s, text), name(s), OR_NULL(s, &other)))) hp_graph_free(other);
    hp_free(text);
    break;
  }
  default: { /* another in its place: ids of the first stay about */
    int i = below(s, GRAPHS);
    hp_graph_free(s->g[i]);
    s->g[i] = NULL;
    told(hp_graph_create(&s->g[i]));
  }
  }
  err_clear();
}

/* --- layouts ---------------------------------------------------------------------------------- */

static void make_layout(state *s) {
  static const char *const text[] = {"(2,2)(dp,tp)",        "(2,2)(dp,tp)(tp,None)",
                                     "(2)(dp)(dp)+sum:dp",  "(",
                                     "(8,8,8)(a,b,c)(a,b)", "(0)(x)",
                                     "(2)(dp)@1,0",         ""};
  static const char *const axis[] = {"dp", "tp", "", "dp", NULL, "x", "y", "z"};
  int64_t size[8], rank[64];
  const char *names[8];
  hp_layout *made = NULL, *from = layout(s);
  for (int i = 0; i < 8; i++) {
    size[i] = rarely(s) ? -1 : 1 + below(s, 2);
    names[i] = axis[rarely(s) ? below(s, 8) : i % 4];
  }
  for (int i = 0; i < 64; i++) rank[i] = i;
  hp_status st = HP_OK;
  switch (below(s, 4)) {
  case 0: {
    const int64_t *ranks = byte(s) % 2 ? rank : NULL;
    st = hp_layout_create(OR_NULL(s, size), OR_NULL(s, names), rarely(s) ? -1 : below(s, 5), ranks,
                          number(s), OR_NULL(s, &made));
    break;
  }
  case 1: st = hp_layout_parse(OR_NULL(s, text[below(s, 8)]), OR_NULL(s, &made)); break;
  case 2: st = hp_layout_call(from, OR_NULL(s, "(tp,dp)"), OR_NULL(s, &made)); break;
  default: {
    static const char *const place[] = {"S(0)", "R", "P(sum)", "S(9)", NULL, "", "S(1)", "R"};
    st = hp_layout_place(from, OR_NULL(s, place + below(s, 6)), below(s, 3), count(s), &made);
  }
  }
  told(st);
  if (!made) return;
  int i = below(s, LAYOUTS);
  hp_layout_free(s->l[i]);
  s->l[i] = made;
}

static void use_layout(state *s) {
  hp_layout *l = layout(s);
  int64_t a[64], b[HP_MAX_RANK], n;
  hp_shape t;
  char *text = NULL;
  switch (below(s, 6)) {
  case 0: text_told(hp_layout_print(l, OR_NULL(s, &text)), &text); break;
  case 1: told(hp_layout_set_partial(l, OR_NULL(s, "dp"), OR_NULL(s, "sum"))); break;
  case 2: told(hp_layout_repeat(l, OR_NULL(s, &n))); break;
  case 3: told(hp_layout_slice(l, shape(s), number(s), OR_NULL(s, a), OR_NULL(s, b))); break;
  case 4: told(hp_layout_global(l, shape(s), OR_NULL(s, &t))); break;
  default:
    told(hp_layout_group(l, OR_NULL(s, "tp"), number(s), OR_NULL(s, a), below(s, 8),
                         OR_NULL(s, &n)));
  }
}

/* --- devices ---------------------------------------------------------------------------------- */

/* Small: what is too large for it is refused, not taken from the machine. */
static void open_device(state *s, int i) {
  static const hp_layout_rule rule[] = {{"x", "(dp,None)"},
                                        {"w*", "(dp)"},
                                        {NULL, "(dp)"},
                                        {"q", "("}};
  hp_device_options o = {.threads = rarely(s) ? count(s) : 1,
                         .interpret = true,
                         .memory_limit = 8 << 20};
  if (byte(s) % 2) o.mesh = rarely(s) ? "(2" : "(2)(dp)";
  o.no_partial_sums = byte(s) % 4 == 0;
  o.plan_only = rarely(s);
  if (rarely(s)) o.engine = name(s);
  if (rarely(s)) o.backend = name(s);
  if (rarely(s)) memset(o.offload, byte(s) % 5, sizeof o.offload);
  if (byte(s) % 4 == 0) o.layouts = rule, o.n_layouts = rarely(s) ? -below(s, 9) : below(s, 4);
  if (o.threads > 4) o.threads = 4;
  told(hp_device_open(&o, &s->d[i]));
}

static void free_program(state *s, int i) {
  hp_program_free(s->p[i]);
  s->p[i] = NULL;
}

static void replace_device(state *s) {
  int i = below(s, DEVICES);
  for (int k = 0; k < PROGRAMS; k++)
    if (s->p[k] && s->of[k] == s->d[i]) free_program(s, k);
  hp_device_close(s->d[i]);
  s->d[i] = NULL;
  open_device(s, i);
}

static void use_device(state *s) {
  hp_device *d = device(s);
  char *text = NULL;
  switch (below(s, 10)) {
  case 8:
    told(hp_device_stage_layout(d, (int)(byte(s) % 4) - 1, name(s), "(dp)", byte(s) % 2));
    break;
  case 7: told(hp_device_home(d, name(s), (int)(byte(s) % 6) - 1)); break;
  case 0: (void)strlen(hp_device_describe(d)); break;
  case 1: HP_ASSERT(hp_device_threads(d) >= 0); break;
  case 2: (void)strlen(hp_device_engine(d)); break;
  case 3: text_told(hp_device_tuning(d, OR_NULL(s, &text)), &text); break;
  case 4:
    told(hp_device_set_engine(d, OR_NULL(s, byte(s) % 2 ? "packed" : "none"), name(s)));
    break;
  case 5: (void)hp_device_param_bytes(d); break;
  case 6: told(hp_device_layout(d, name(s), OR_NULL(s, "(dp)"), byte(s) % 2)); break;
  default: replace_device(s);
  }
  err_clear();
}

static hp_status fill(void *context, int64_t first, int64_t n, void *to) {
  (void)first, (void)n, (void)to;
  return context ? HP_OK : err_set(HP_ERR_NUMERIC, __FILE__, __LINE__, "not today");
}

static void use_params(state *s) {
  hp_device *d = device(s);
  const char *names[] = {"w", "x", name(s), "w", "w", "x", "w", "w"}, *found;
  hp_dtype t;
  hp_shape of;
  char path[256];
  snprintf(path, sizeof path, "%s/p", folder_fresh());
  size_t bytes = rarely(s) ? SIZE_MAX : (size_t)(byte(s) * 4 % ROOM);
  switch (below(s, 9)) {
  case 0: told(hp_param_create(d, name(s), dtype(s), shape(s))); break;
  case 1: told(hp_write(d, name(s), OR_NULL(s, s->data), bytes)); break;
  case 2: told(hp_read(d, name(s), OR_NULL(s, s->data), bytes)); break;
  case 3: told(hp_fill(d, name(s), OR_NULL(s, fill), OR_NULL(s, s))); break;
  case 4: HP_ASSERT(hp_param_count(d) >= 0); break;
  case 5:
    told(hp_param_info(d, count(s), OR_NULL(s, &found), OR_NULL(s, &t), OR_NULL(s, &of)));
    break;
  case 6: told(hp_param_find(d, name(s), OR_NULL(s, &t), OR_NULL(s, &of))); break;
  case 7: told(hp_params_save(d, OR_NULL(s, path), OR_NULL(s, names), count(s))); break;
  default:
    if (!told(hp_params_save(d, path, NULL, 0))) told(hp_params_load(d, path, names, count(s)));
  }
  err_clear();
}

/* --- programs --------------------------------------------------------------------------------- */

static hp_compile_options options(state *s) {
  hp_compile_options o = {.remat = byte(s) % 2, .serial = byte(s) % 2};
  if (rarely(s)) o.chunk_bytes = (uint64_t)number(s);
  if (rarely(s)) o.prefetch = (uint64_t)number(s);
  if (rarely(s)) o.reserve_bytes = (uint64_t)number(s);
  return o;
}

static void compile(state *s) {
  static const char *const what[] = {"memory",      "ops",       "comm",         "layouts",
                                     "layouts.svg", "",          "schedule",     "ops.json",
                                     "memory.json", "comm.json", "layouts.json", "schedule.json"};
  hp_graph *g = graph(s);
  hp_device *d = device(s);
  hp_compile_options o = options(s);
  hp_program *p = NULL;
  hp_program_stats stats;
  char *text = NULL;
  switch (below(s, 4)) {
  case 0: told(hp_plan(g, d, OR_NULL(s, &o), OR_NULL(s, &stats))); return;
  case 1:
    text_told(hp_plan_explain(g, d, &o, OR_NULL(s, what[below(s, 12)]), OR_NULL(s, &text)), &text);
    return;
  default:
    if (told(hp_compile(g, d, OR_NULL(s, &o), OR_NULL(s, &p)))) return;
  }
  int i = below(s, PROGRAMS);
  free_program(s, i);
  s->p[i] = p;
  s->of[i] = d;
}

static void run(state *s) {
  static const char *const what[] = {"memory",       "ops",      "comm",        "",
                                     "schedule",     "ops.json", "memory.json", "comm.json",
                                     "schedule.json"};
  hp_program *p = program(s);
  hp_io io[4];
  uint64_t live[8];
  hp_program_stats stats;
  hp_op_time *times = NULL;
  char *text = NULL, path[256];
  int n;
  for (int i = 0; i < 4; i++) {
    size_t bytes = rarely(s) ? SIZE_MAX : (size_t)(byte(s) * 4 % ROOM);
    io[i] = (hp_io){name(s), OR_NULL(s, s->data), bytes};
  }
  switch (below(s, 7)) {
  case 0: told(hp_program_stats_get(p, OR_NULL(s, &stats))); break;
  case 1: text_told(hp_program_print(p, OR_NULL(s, &text)), &text); break;
  case 2: text_told(hp_explain(p, OR_NULL(s, what[below(s, 9)]), OR_NULL(s, &text)), &text); break;
  case 3:
    if (!told(hp_program_times(p, OR_NULL(s, &times), &n))) hp_free(times);
    break;
  case 4: hp_program_timeline(p, OR_NULL(s, live), byte(s) % 10 - 1); break;
  case 5:
    snprintf(path, sizeof path, "%s/trace", folder_fresh());
    told(hp_trace(p, OR_NULL(s, path)));
    break;
  default: told(hp_run(p, OR_NULL(s, io), rarely(s) ? -1 : below(s, 4)));
  }
  err_clear();
}

/* --- all of it -------------------------------------------------------------------------------- */

/* A graph that can be run, so that the calls after it have something to misuse. */
static void begin(state *s) {
  for (int i = 0; i < GRAPHS; i++) HP_ASSERT(!hp_graph_create(&s->g[i]));
  for (int i = 0; i < DEVICES; i++) open_device(s, i);
  for (int i = 0; i < GRAPHS; i++) {
    hp_graph *g = s->g[i];
    hp_tensor x = keep(s, hp_input(g, "x", HP_F32, (hp_shape){2, {2, 3}}));
    hp_tensor w = keep(s, hp_param(g, "w", HP_F32, (hp_shape){2, {2, 3}}));
    keep(s, hp_const(g, HP_I64, 1));
    keep(s, hp_input(g, "i", HP_I32, (hp_shape){2, {2, 3}}));
    if (byte(s) % 2) hp_output(g, "y", hp_mul(g, x, w));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  static void (*const act[])(state *) = {build_leaf,  build_map,   build_shape,  build_layer,
                                         build_map,   build_shape, build_effect, use_graph,
                                         make_layout, use_layout,  use_device,   use_params,
                                         compile,     compile,     run,          run};
  state *s = calloc(1, sizeof *s);
  HP_ASSERT(s);
  log_set_level(LOG_QUIET);
  s->at = bytes;
  s->end = bytes + n;
  begin(s);
  for (int i = 0; i < CALLS && s->at < s->end; i++) act[below(s, 16)](s);
  for (int i = 0; i < PROGRAMS; i++) hp_program_free(s->p[i]);
  for (int i = 0; i < DEVICES; i++) hp_device_close(s->d[i]);
  for (int i = 0; i < GRAPHS; i++) hp_graph_free(s->g[i]);
  for (int i = 0; i < LAYOUTS; i++) hp_layout_free(s->l[i]);
  err_clear();
  free(s);
  return 0;
}
