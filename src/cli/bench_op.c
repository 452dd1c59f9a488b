/* `hyper bench op`: graphs of one op, as a program has it, on tensors larger than the caches.
 *
 * All tensors are params of the device, so that nothing but the op moves them.  The bound is what
 * must happen: every operand read and every result written once at the bandwidth of memory, or the
 * multiply-adds at their peak; both are measured between the runs. */
#include "backend/cpu/machine_limits.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "cli/bench.h"
#include "model/config.h"

#include <string.h>

enum { WARM_UP = 2, ROUNDS_MAX = 1001, LARGEST = 128 << 20 };

/* A graph being built.  Sizes follow from the model and --size. */
typedef struct {
  hp_graph *g;
  hp_dtype type;
  int64_t size;              /* bytes of the largest tensor */
  int64_t width, ffn, vocab; /* of rows */
  int64_t heads, head_dim, seq;
  double bytes; /* that must be read and written */
} scene;

static int64_t count_bytes(hp_dtype t, const hp_shape *s) {
  int64_t n = (int64_t)dtype_size(t);
  for (int i = 0; i < s->rank; i++) n *= s->dim[i];
  return n;
}

/* A tensor that the op reads. */
static hp_tensor add_input(scene *s, const char *name, hp_dtype t, hp_shape shape) {
  s->bytes += (double)count_bytes(t, &shape);
  return hp_param(s->g, name, t, shape);
}

/* Stores the op's result in a separate tensor. */
static void add_result(scene *s, const char *name, hp_tensor x) {
  if (x) hp_assign(s->g, add_input(s, name, hp_dtype_of(s->g, x), hp_shape_of(s->g, x)), x);
}

static hp_shape make_row_shape(int64_t width) { return (hp_shape){1, {width}}; }
static hp_shape make_rows_shape(const scene *s, int64_t width) {
  int64_t n = s->size / (width * (int64_t)dtype_size(s->type));
  return (hp_shape){2, {n > 0 ? n : 1, width}};
}
/* Sequences of heads: [B,T,H,D]. */
static hp_shape make_heads_shape(const scene *s) {
  int64_t sequence = s->seq * s->heads * s->head_dim * (int64_t)dtype_size(s->type);
  int64_t n = s->size / sequence;
  return (hp_shape){4, {n > 0 ? n : 1, s->seq, s->heads, s->head_dim}};
}

static void add(scene *s) {
  hp_shape x = make_rows_shape(s, s->width);
  add_result(s, "y", hp_add(s->g, add_input(s, "a", s->type, x), add_input(s, "b", s->type, x)));
}
static hp_tensor product(scene *s, hp_tensor xw[2]) {
  xw[0] = add_input(s, "x", s->type, make_rows_shape(s, s->width));
  xw[1] = add_input(s, "w", s->type, (hp_shape){2, {s->ffn, s->width}});
  return hp_einsum(s->g, "tc,fc->tf", xw[0], xw[1]);
}
static void linear(scene *s) {
  hp_tensor xw[2];
  add_result(s, "y", product(s, xw));
}
static hp_tensor gated(scene *s, hp_tensor x[2]) {
  x[0] = add_input(s, "gate", s->type, make_rows_shape(s, s->ffn)),
  x[1] = add_input(s, "up", s->type, make_rows_shape(s, s->ffn));
  return hp_mul(s->g, hp_map(s->g, "silu", x[0], HP_NONE, HP_NONE), x[1]);
}
static void swiglu(scene *s) {
  hp_tensor x[2];
  add_result(s, "y", gated(s, x));
}
static hp_tensor curved(scene *s, hp_tensor *x) {
  *x = add_input(s, "x", s->type, make_rows_shape(s, s->ffn));
  return hp_map(s->g, "gelu_tanh", *x, HP_NONE, HP_NONE);
}
static void gelu(scene *s) {
  hp_tensor x;
  add_result(s, "y", curved(s, &x));
}
static void softmax(scene *s) {
  add_result(s, "y", hp_softmax(s->g, add_input(s, "x", s->type, make_rows_shape(s, s->width))));
}
static hp_tensor rms_normed(scene *s, hp_tensor xw[2]) {
  xw[0] = add_input(s, "x", s->type, make_rows_shape(s, s->width)),
  xw[1] = add_input(s, "w", HP_F32, make_row_shape(s->width));
  return hp_rms_norm(s->g, xw[0], xw[1], 1e-5);
}
static void rms_norm(scene *s) {
  hp_tensor xw[2];
  add_result(s, "y", rms_normed(s, xw));
}
static hp_tensor layer_normed(scene *s, hp_tensor xwb[3]) {
  xwb[0] = add_input(s, "x", s->type, make_rows_shape(s, s->width));
  xwb[1] = add_input(s, "w", HP_F32, make_row_shape(s->width)),
  xwb[2] = add_input(s, "b", HP_F32, make_row_shape(s->width));
  return hp_layer_norm(s->g, xwb[0], xwb[1], xwb[2], 1e-5);
}
static void layer_norm(scene *s) {
  hp_tensor xwb[3];
  add_result(s, "y", layer_normed(s, xwb));
}
static void dropout(scene *s) {
  hp_tensor x = add_input(s, "x", s->type, make_rows_shape(s, s->width));
  hp_tensor seed = add_input(s, "seed", HP_I64, (hp_shape){0});
  add_result(s, "y", hp_dropout(s->g, x, 0.1, seed, 1));
}
static void rope(scene *s) {
  hp_shape x = make_heads_shape(s), table = {2, {s->seq, s->head_dim / 2}};
  hp_tensor v = add_input(s, "x", s->type, x);
  hp_tensor cs = add_input(s, "cos", HP_F32, table), sn = add_input(s, "sin", HP_F32, table);
  hp_tensor at = add_input(s, "positions", HP_I32, (hp_shape){2, {x.dim[0], x.dim[1]}});
  add_result(s, "y", hp_rope(s->g, v, cs, sn, at, false));
}
static hp_tensor look_up(scene *s, hp_tensor *table) {
  *table = hp_param(s->g, "table", s->type, (hp_shape){2, {s->vocab, s->width}});
  hp_tensor ids = add_input(s, "ids", HP_I32, make_row_shape(make_rows_shape(s, s->width).dim[0]));
  return hp_embedding(s->g, *table, ids, -1);
}
static void embedding(scene *s) {
  hp_shape y = make_rows_shape(s, s->width); /* as many are read as are written */
  hp_tensor table;
  s->bytes += (double)count_bytes(s->type, &y);
  add_result(s, "y", look_up(s, &table));
}
static hp_tensor losses(scene *s, hp_tensor *logits) {
  hp_shape x = make_rows_shape(s, s->vocab);
  *logits = add_input(s, "logits", s->type, x);
  return hp_cross_entropy(s->g, *logits, add_input(s, "labels", HP_I32, make_row_shape(x.dim[0])),
                          -100);
}
static void cross_entropy(scene *s) {
  hp_tensor logits;
  add_result(s, "y", losses(s, &logits));
}
/* Appends the gradients of the sum of y, each into a tensor of its own. */
static void add_backward(scene *s, hp_tensor y, const hp_tensor *wrt, int n) {
  static const char *const name[] = {"d0", "d1", "d2"};
  static const int64_t axes[] = {0, 1, 2, 3};
  hp_tensor grad[3];
  hp_tensor loss = hp_sum(s->g, hp_cast(s->g, y, HP_F32), axes, hp_shape_of(s->g, y).rank, false);
  if (hp_grad(s->g, loss, wrt, n, grad)) return;
  for (int i = 0; i < n; i++) add_result(s, name[i], grad[i]);
}
/* The same with the gradient of y given: a tensor like it. */
static void add_backward_from(scene *s, hp_tensor y, const hp_tensor *wrt, int n) {
  add_backward(s, hp_mul(s->g, y, add_input(s, "dy", s->type, hp_shape_of(s->g, y))), wrt, n);
}
static void swiglu_grad(scene *s) {
  hp_tensor x[2], y = gated(s, x);
  add_backward_from(s, y, x, 2);
}
static void linear_grad(scene *s) {
  hp_tensor x[2], y = product(s, x);
  add_backward_from(s, y, x, 2);
}
static void gelu_grad(scene *s) {
  hp_tensor x, y = curved(s, &x);
  add_backward_from(s, y, &x, 1);
}
static void rms_norm_grad(scene *s) {
  hp_tensor xw[2], y = rms_normed(s, xw);
  add_backward_from(s, y, xw, 2);
}
static void layer_norm_grad(scene *s) {
  hp_tensor xwb[3], y = layer_normed(s, xwb);
  add_backward_from(s, y, xwb, 3);
}
static void cross_entropy_grad(scene *s) {
  hp_shape x = make_rows_shape(s, s->vocab);
  hp_tensor logits, y = losses(s, &logits);
  s->bytes += (double)count_bytes(s->type, &x); /* the loss reads them, and its gradient again */
  add_backward(s, y, &logits, 1);
}
static void embedding_grad(scene *s) {
  hp_tensor table, y = look_up(s, &table);
  add_backward_from(s, y, &table, 1);
}
static hp_tensor attend(scene *s, hp_tensor qkv[3]) {
  static const char *const name[] = {"q", "k", "v"};
  for (int i = 0; i < 3; i++) qkv[i] = add_input(s, name[i], s->type, make_heads_shape(s));
  return hp_attention(s->g, qkv[0], qkv[1], qkv[2], &(hp_attention_options){.causal = true});
}
static void attention(scene *s) {
  hp_tensor qkv[3];
  add_result(s, "y", attend(s, qkv));
}
static void attention_grad(scene *s) {
  hp_tensor qkv[3], y = attend(s, qkv);
  add_backward(s, y, qkv, 3);
}
static void sum_sq(scene *s) {
  add_result(s, "y", hp_sum_sq(s->g, add_input(s, "x", s->type, make_rows_shape(s, s->width))));
}
static void adamw(scene *s) {
  static const char *const name[] = {"p", "grad", "m", "v"};
  static const char *const factor[] = {"factor", "lr", "rate", "root"};
  hp_shape x = {1, {s->size / 4}};
  hp_tensor t[4], f[4];
  for (int i = 0; i < 4; i++) t[i] = add_input(s, name[i], HP_F32, x);
  for (int i = 0; i < 4; i++) f[i] = add_input(s, factor[i], HP_F32, (hp_shape){0});
  hp_adamw(s->g, t[0], t[1], t[2], t[3], f[0], f[1], f[2], f[3],
           &(hp_adamw_options){0.9, 0.999, 1e-8, 0.1});
  s->bytes += 3 * (double)count_bytes(HP_F32, &x); /* p, m, v are written */
}

static const struct {
  const char *name;
  void (*build)(scene *s);
} ops[] = {{"add", add},
           {"linear", linear},
           {"linear_grad", linear_grad},
           {"swiglu", swiglu},
           {"swiglu_grad", swiglu_grad},
           {"gelu_tanh", gelu},
           {"gelu_tanh_grad", gelu_grad},
           {"softmax", softmax},
           {"rms_norm", rms_norm},
           {"rms_norm_grad", rms_norm_grad},
           {"layer_norm", layer_norm},
           {"layer_norm_grad", layer_norm_grad},
           {"dropout", dropout},
           {"rope", rope},
           {"embedding", embedding},
           {"embedding_grad", embedding_grad},
           {"cross_entropy", cross_entropy},
           {"cross_entropy_grad", cross_entropy_grad},
           {"attention", attention},
           {"attention_grad", attention_grad},
           {"sum_sq", sum_sq},
           {"adamw", adamw}};
enum { OPS = sizeof ops / sizeof *ops };

/* --- running ---------------------------------------------------------------------------------- */

typedef struct {
  const bench_args *a;
  bench_machine k;
  hp_device *d;
  double seconds[ROUNDS_MAX], bandwidth[ROUNDS_MAX], peak[ROUNDS_MAX];
  int rounds;
} setting;

/* Numbers in [0, 1), or indices that are in every table. */
static hp_status fill_inputs(hp_device *d, const scene *sizes) {
  for (int i = 0; i < hp_param_count(d); i++) {
    const char *name;
    hp_dtype t;
    hp_shape s;
    HP_TRY(hp_param_info(d, i, &name, &t, &s));
    if (!dtype_is_float(t) && t != HP_I32) continue; /* the seed is 0 */
    int64_t n = count_bytes(t, &s) / (int64_t)dtype_size(t);
    uint32_t below = (uint32_t)(strcmp(name, "positions") ? sizes->vocab : sizes->seq);
    void *x = mem_map((size_t)count_bytes(t, &s));
    HP_TRY_MEM(x);
    for (int64_t k = 0; k < n; k++) {
      uint32_t u = (uint32_t)k * 2654435761u;
      float v = philox_unit(u);
      if (t == HP_I32) ((int32_t *)x)[k] = (int32_t)((u >> 8) % below);
      else if (t == HP_F32) ((float *)x)[k] = v;
      else ((uint16_t *)x)[k] = f32_to_bf16(v);
    }
    hp_status st = hp_write(d, name, x, (size_t)count_bytes(t, &s));
    mem_unmap(x, (size_t)count_bytes(t, &s));
    HP_TRY(st);
  }
  return HP_OK;
}

static hp_status time_runs(setting *s, hp_program *p) {
  for (int i = 0; i < WARM_UP + s->rounds; i++) {
    int r = i < WARM_UP ? 0 : i - WARM_UP;
    double start = time_now_s();
    HP_TRY(hp_run(p, NULL, 0));
    s->seconds[r] = time_now_s() - start;
    if (i < WARM_UP) continue;
    hp_limits k;
    HP_TRY(hp_device_measure(s->d, &k));
    s->peak[r] = k.flops;
    s->bandwidth[r] = k.bytes;
  }
  return HP_OK;
}

static hp_status print_op(setting *s, const scene *x, const char *name, const hp_program *p) {
  hp_program_stats stats;
  bench_row r;
  HP_TRY(hp_program_stats_get(p, &stats));
  double t = measured_median(s->seconds, s->rounds), peak = measured_median(s->peak, s->rounds);
  double bandwidth = measured_median(s->bandwidth, s->rounds);
  double move = x->bytes / bandwidth, work = stats.flops / peak, limit = move > work ? move : work;
  bench_line_begin(&r, s->a, "op");
  bench_row_text(&r, "op", name);
  bench_row_machine(&r, &s->k);
  bench_row_text(&r, "dtype", dtype_name(x->type));
  bench_row_int(&r, "bytes", (int64_t)x->bytes);
  bench_row_int(&r, "flops", (int64_t)stats.flops);
  bench_row_int(&r, "instructions", stats.instructions);
  bench_row_num(&r, "read_bytes_per_s", bandwidth);
  bench_row_num(&r, "peak_flops", peak);
  bench_row_num(&r, "bytes_per_s", x->bytes / t);
  bench_row_num(&r, "step_s", t);
  bench_row_num(&r, "limit_s", limit);
  bench_row_num(&r, "of_limit", limit / t);
  return bench_row_end(&r);
}

static hp_status run_op(setting *s, const scene *sizes, int i) {
  scene x = *sizes;
  hp_program *p = NULL;
  hp_device_options o = {.threads = pool_size(s->k.threads)};
  HP_TRY(hp_graph_create(&x.g));
  ops[i].build(&x);
  hp_status st = hp_graph_status(x.g);
  if (!st) st = hp_device_open(&o, &s->d);
  if (st) {
    hp_graph_free(x.g);
    return st;
  }
  st = hp_compile(x.g, s->d, NULL, &p);
  if (!st) st = fill_inputs(s->d, &x);
  if (!st) st = time_runs(s, p);
  if (!st) st = print_op(s, &x, ops[i].name, p);
  hp_program_free(p);
  hp_device_close(s->d);
  hp_graph_free(x.g);
  return st;
}

static hp_status check_names(const bench_args *a) {
  const char *known[OPS];
  for (int i = 0; i < OPS; i++) known[i] = ops[i].name;
  for (int k = 0; k < a->names; k++) {
    int i = 0;
    while (i < OPS && strcmp(a->name[k], known[i])) i++;
    const char *near = str_nearest(a->name[k], known, OPS);
    if (i == OPS)
      HP_FAIL(HP_ERR_ARG, "bench op: \"%s\" is not among the ops that are measured%s%s%s",
              a->name[k], near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
  }
  return HP_OK;
}

static bool is_asked(const bench_args *a, int i) {
  bool asked = !a->names;
  for (int k = 0; k < a->names; k++) asked |= !strcmp(a->name[k], ops[i].name);
  return asked;
}

/* Sizes of --model, or those of a model of 7 billion. */
static hp_status take_sizes(const bench_args *a, scene *s) {
  model_config c;
  *s = (scene){.size = (int64_t)bench_size(a, LARGEST),
               .width = 4096,
               .ffn = 11008,
               .vocab = 32000,
               .heads = 32,
               .head_dim = 128,
               .seq = a->seq};
  if (a->width) {
    s->width = a->width, s->ffn = 4 * a->width, s->head_dim = 64, s->heads = a->width / 64;
    s->vocab = 4 * a->width;
  }
  if (!a->m.model) return HP_OK;
  HP_TRY(model_config_load(a->m.model, &c));
  s->width = c.hidden, s->ffn = c.ffn, s->vocab = c.vocab;
  s->heads = c.heads, s->head_dim = c.head_dim;
  model_config_free(&c);
  return HP_OK;
}

hp_status bench_op(const bench_args *a) {
  setting s = {.a = a, .rounds = a->steps < ROUNDS_MAX ? (int)a->steps : ROUNDS_MAX};
  hp_dtype type[2];
  int types;
  scene sizes;
  HP_TRY(check_names(a));
  HP_TRY(bench_dtypes(a, type, &types));
  HP_TRY(take_sizes(a, &sizes));
  HP_TRY(bench_machine_open(a, &s.k));
  pool_bind_caller(s.k.threads, false); /* each device binds the caller for its own threads */
  hp_status st = HP_OK;
  for (int k = 0; k < types; k++)
    for (int i = 0; !st && i < OPS; i++) {
      sizes.type = type[k];
      if (is_asked(a, i)) st = run_op(&s, &sizes, i);
    }
  bench_machine_close(&s.k);
  return st;
}
