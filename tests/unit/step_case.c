#include "step_case.h"

#include "base/philox.h"
#include "test.h"

#include <stdlib.h>

typedef struct {
  hp_graph *g;
  hp_dtype dtype;
  hp_tensor param[32], w[32];
  int n;
} model;

static hp_tensor weight(model *m, const char *name, int layer, int rank, int64_t a, int64_t b) {
  char full[40];
  snprintf(full, sizeof full, "%s.%d", name, layer);
  hp_tensor p = hp_param(m->g, full, HP_F32, (hp_shape){rank, {a, b}});
  m->param[m->n] = p;
  return m->w[m->n++] = p;
}

static hp_tensor product(model *m, const char *eq, hp_tensor x, hp_tensor w) {
  return hp_einsum(m->g, eq, hp_cast(m->g, x, m->dtype), hp_cast(m->g, w, m->dtype));
}

static hp_tensor layer(model *m, hp_tensor x, int i) {
  enum { H = 4, D = STEP_C / H, F = 2 * STEP_C };
  hp_graph *g = m->g;
  hp_shape heads = {4, {STEP_B, STEP_T, H, D}}, flat = {3, {STEP_B, STEP_T, STEP_C}};
  hp_tensor part[3];
  hp_at(g, "layer");
  hp_block(g, i + 1);
  hp_tensor y = hp_rms_norm(g, x, weight(m, "norm1", i, 1, STEP_C, 0), 1e-6);
  for (int k = 0; k < 3; k++) {
    static const char *const name[] = {"q", "k", "v"};
    hp_tensor w = weight(m, name[k], i, 2, STEP_C, STEP_C);
    part[k] = hp_reshape(g, product(m, "btc,nc->btn", y, w), heads);
  }
  y = hp_attention(g, part[0], part[1], part[2], &(hp_attention_options){.causal = true});
  y = product(m, "btc,nc->btn", hp_reshape(g, y, flat), weight(m, "o", i, 2, STEP_C, STEP_C));
  x = hp_add(g, x, hp_cast(g, y, HP_F32));
  y = hp_rms_norm(g, x, weight(m, "norm2", i, 1, STEP_C, 0), 1e-6);
  y = product(m, "btc,nc->btn", y, weight(m, "up", i, 2, F, STEP_C));
  y = hp_map(g, "silu", y, HP_NONE, HP_NONE);
  y = product(m, "btc,nc->btn", y, weight(m, "down", i, 2, STEP_C, F));
  y = hp_add(g, x, hp_cast(g, y, HP_F32));
  hp_block(g, 0);
  return y;
}

static void update(model *m, const hp_tensor *grad) {
  hp_graph *g = m->g;
  hp_tensor rate = hp_input(g, "rates", HP_F32, (hp_shape){1, {4}}), scalar[4];
  hp_update_phase(g);
  for (int k = 0; k < 4; k++)
    scalar[k] = hp_reshape(g, hp_slice(g, rate, 0, k, k + 1), (hp_shape){0, {0}});
  for (int i = 0; i < m->n; i++) {
    char name[2][32];
    hp_tensor s[2];
    for (int k = 0; k < 2; k++) {
      snprintf(name[k], sizeof name[k], "adam_%c.%d", "mv"[k], i);
      s[k] = hp_param(g, name[k], HP_F32, hp_shape_of(g, m->param[i]));
    }
    hp_adamw(g, m->param[i], grad[i], s[0], s[1], scalar[0], scalar[1], scalar[2], scalar[3],
             &(hp_adamw_options){0.9, 0.999, 1e-8, 0.1});
  }
}

hp_graph *step_graph(hp_dtype dtype) {
  model m = {.dtype = dtype};
  hp_tensor grad[32];
  CHECK_OK(hp_graph_create(&m.g));
  hp_graph *g = m.g;
  hp_shape tokens = {2, {STEP_B, STEP_T}};
  hp_tensor ids = hp_input(g, "ids", HP_I32, tokens),
            labels = hp_input(g, "labels", HP_I32, tokens);
  hp_tensor table = weight(&m, "table", 0, 2, STEP_V, STEP_C);
  hp_tensor x = hp_embedding(g, table, ids, -1);
  for (int i = 0; i < 2; i++) x = layer(&m, x, i);
  hp_tensor logits = hp_cast(g, product(&m, "btc,nc->btn", x, table), HP_F32);
  hp_tensor loss = hp_cross_entropy(g, logits, labels, -100);
  loss = hp_scale(g, hp_sum(g, loss, (int64_t[]){0, 1}, 2, false), 1.0 / (STEP_B * STEP_T));
  CHECK_OK(hp_grad(g, loss, m.param, m.n, grad));
  update(&m, grad);
  hp_output(g, "loss", loss);
  CHECK_OK(hp_graph_status(g));
  return g;
}

/* Numbers in [-0.1, 0.1), around 1 for norms, 0 for what the optimizer remembers. */
static void fill_params(hp_device *d) {
  for (int i = 0; i < hp_param_count(d); i++) {
    const char *name;
    hp_dtype t;
    hp_shape s;
    CHECK_OK(hp_param_info(d, i, &name, &t, &s));
    size_t n = 1;
    for (int k = 0; k < s.rank; k++) n *= (size_t)s.dim[k];
    float *x = calloc(n, sizeof *x);
    bool zero = !strncmp(name, "adam", 4);
    for (size_t k = 0; k < n && !zero; k++) {
      float u = (float)philox_u32(9, (uint64_t)i, k) * 0x1p-32f;
      x[k] = (u - 0.5f) * 0.2f + (strstr(name, "norm") ? 1 : 0);
    }
    CHECK_OK(hp_write(d, name, x, n * sizeof *x));
    free(x);
  }
}

void step_open(const hp_device_options *o, const hp_compile_options *c, hp_dtype dtype,
               step_case *s) {
  hp_device *d;
  CHECK_OK(hp_device_open(o, &d));
  step_open_on(d, c, dtype, s);
}

void step_open_on(hp_device *d, const hp_compile_options *c, hp_dtype dtype, step_case *s) {
  *s = (step_case){.d = d, .rates = {1, 1e-3f, 1e-3f, 1}};
  s->g = step_graph(dtype);
  CHECK_OK(hp_compile(s->g, s->d, c, &s->p));
  fill_params(s->d);
  for (int i = 0; i < STEP_B * STEP_T; i++) {
    s->ids[i] = (int32_t)(philox_u32(1, 2, (uint64_t)i) % STEP_V);
    s->labels[i] = i % 7 ? (int32_t)(philox_u32(1, 3, (uint64_t)i) % STEP_V) : -100;
  }
  s->io[0] = (hp_io){"ids", s->ids, sizeof s->ids};
  s->io[1] = (hp_io){"labels", s->labels, sizeof s->labels};
  s->io[2] = (hp_io){"rates", s->rates, sizeof s->rates};
  s->io[3] = (hp_io){"loss", &s->loss, sizeof s->loss};
}

void step_run(step_case *s) { CHECK_OK(hp_run(s->p, s->io, STEP_IO)); }

void step_close(step_case *s) {
  hp_program_free(s->p);
  hp_device_close(s->d);
  hp_graph_free(s->g);
}
