/* What goes between devices in a block by 2D tensor parallelism, collective by collective, against
 * the formulas: with x = tp, y = tp_y, h the width, e that of the mlp, an mlp's first product
 * gathers rows over x and scatters sums over y, its second gathers over y and scatters over x. */
#include "ir/op.h"
#include "model/placement.h"
#include "shard/shard.h"
#include "rt/device_mesh.h"
#include "test.h"

#include <stdlib.h>

enum { B = 4, T = 512, H = 512, E = 1536 };

typedef struct {
  const char *model_type, *class_name, *more;
  int first;      /* products side by side at the beginning of the mlp: 2 when gated */
  bool heads_cut; /* by tp; GPT-2's q, k and v are one param */
  const char *norm[2];
} family;

static const family llama = {"llama",
                             "LlamaForCausalLM",
                             "\"hidden_size\": 512, \"intermediate_size\": 1536, "
                             "\"num_hidden_layers\": 1, \"num_attention_heads\": 8, "
                             "\"num_key_value_heads\": 8",
                             2,
                             true,
                             {".input_layernorm", ".post_attention_layernorm"}};
static const family gpt2 =
    {"gpt2",
     "GPT2LMHeadModel",
     "\"n_embd\": 512, \"n_inner\": 1536, \"n_layer\": 1, \"n_head\": 8, \"n_positions\": 512",
     1,
     false,
     {".ln_1", ".ln_2"}};

typedef struct {
  hp_device *d;
  lm *m;
  model_build b;
  sharded s;
} tp_case;

static void write_config(const family *f, const char *dir) {
  char name[300];
  snprintf(name, sizeof name, "%s/config.json", dir);
  FILE *out = fopen(name, "w");
  CHECK(out);
  fprintf(out, "{\"model_type\": \"%s\", \"architectures\": [\"%s\"], \"vocab_size\": 64, %s}",
          f->model_type, f->class_name, f->more);
  CHECK(!fclose(out));
}

/* The graph of loss and gradients, as the strategy lays it out. */
static void begin(const family *f, const char *text, tp_case *j) {
  placement s;
  const char *on;
  str axes = {0};
  hp_tensor wrt[64], grad[64];
  write_config(f, test_dir());
  CHECK_OK(placement_parse(text, 0, &s));
  CHECK_OK(placement_mesh(&s, &axes, &on));
  hp_device_options o = {.threads = 1, .interpret = true, .mesh = on};
  CHECK_OK(hp_device_open(&o, &j->d));
  str_free(&axes);
  CHECK_OK(lm_create(test_dir(), j->d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &j->m));
  CHECK_OK(placement_apply(&s, j->m, j->d));
  CHECK_OK(lm_graph_begin(j->m, B, T, NULL, T, &j->b));
  hp_graph *g = j->b.g;
  hp_tensor labels = hp_input(g, "labels", HP_I32, (hp_shape){2, {B, T}});
  hp_tensor loss = hp_cross_entropy(g, lm_head(&j->b, j->m->c.family->hidden(&j->b)), labels, -100);
  loss = hp_sum(g, loss, (int64_t[]){0, 1}, 2, false);
  size_t n = j->m->trained;
  CHECK(n <= 64);
  for (size_t i = 0; i < n; i++) wrt[i] = build_find_param(&j->b, j->m->params.at[i].name);
  CHECK_OK(hp_grad(g, loss, wrt, (int)n, grad));
  for (size_t i = 0; i < n; i++) hp_output(g, j->m->params.at[i].name, grad[i]);
  shard_plan plan = {.mesh = &j->d->m,
                     .cluster = &j->d->cluster,
                     .declared = device_mesh_declared,
                     .model = j->d};
  CHECK_OK(shard_graph(g, &plan, &j->s));
}

static void end(tp_case *j) {
  sharded_free(&j->s);
  lm_graph_end(&j->b);
  lm_free(j->m);
  hp_device_close(j->d);
}

/* Elements that a device receives by the op over the axis, in a phase, at places that contain
 * `place`; only what has a whole row of activations counts, not what norms exchange. */
static double received(const tp_case *j, op_id op, const char *axis, ir_phase phase,
                       const char *place) {
  const hp_graph *g = j->s.graph;
  double all = 0;
  for (size_t i = 0; i < g->nodes.len; i++) {
    const ir_node *n = graph_node(g, (uint32_t)i);
    int64_t axes[ATTR_LIST_MAX];
    if (n->op != op || n->phase != phase || !strstr(graph_str(g, n->loc), place)) continue;
    int count = attr_list(g, n, "axes", axes);
    if (count != 1 || strcmp(j->d->m.name[axes[0]], axis)) continue;
    const ir_value *x = graph_value(g, graph_in(g, n)[0]);
    if (x->rank < 3 || x->dim[x->rank - 1] == 1 || x->dtype != HP_F32) continue;
    double in = (double)value_elements(x), devices = (double)attr_int(g, n, "n");
    all += op == OP_ALL_GATHER ? in * (devices - 1) : in * (devices - 1) / devices;
  }
  return all;
}

/* Of a part of the block: its input stands at the norm before it. */
typedef struct {
  const char *name, *norm;
} block_part;
static double of_part(const tp_case *j, block_part p, op_id op, const char *axis, ir_phase phase) {
  return received(j, op, axis, phase, p.name) + received(j, op, axis, phase, p.norm);
}

/* Elements of a row: that go in and out, in the middle after the first products and before the
 * last. */
static void check_part(const tp_case *j, block_part p, int x, int y, double wide, double middle) {
  const ir_phase F = PHASE_FORWARD, G = PHASE_BACKWARD;
  double rows = (double)B * T / (x * y), over_x = rows * H * (x - 1), over_y = rows * (y - 1);
  CHECK_EQ(of_part(j, p, OP_ALL_GATHER, "tp", F), over_x);
  CHECK_EQ(of_part(j, p, OP_REDUCE_SCATTER, "tp_y", F), wide * over_y);
  CHECK_EQ(of_part(j, p, OP_ALL_GATHER, "tp_y", F), middle * over_y);
  CHECK_EQ(of_part(j, p, OP_REDUCE_SCATTER, "tp", F), over_x);
  CHECK_EQ(of_part(j, p, OP_ALL_GATHER, "tp", G), over_x);
  CHECK_EQ(of_part(j, p, OP_REDUCE_SCATTER, "tp_y", G), middle * over_y);
  CHECK_EQ(of_part(j, p, OP_ALL_GATHER, "tp_y", G), wide * over_y);
  CHECK_EQ(of_part(j, p, OP_REDUCE_SCATTER, "tp", G), over_x);
  for (int phase = F; phase <= (int)G; phase++)
    for (op_id op = OP_ALL_REDUCE; op <= OP_ALL_TO_ALL; op++) {
      CHECK_EQ(of_part(j, p, op, "tp", (ir_phase)phase), 0);
      CHECK_EQ(of_part(j, p, op, "tp_y", (ir_phase)phase), 0);
    }
}

/* Attention of as many key heads as query heads; by a ring, whose exchange is counted apart. */
static void check_block(const family *f, int x, int y) {
  char text[64];
  tp_case j = {0};
  snprintf(text, sizeof text, "tp=%d,tp_y=%d,sp", x, y);
  begin(f, text, &j);
  check_part(&j, (block_part){".mlp", f->norm[1]}, x, y, f->first * E, E);
  if (f->heads_cut) check_part(&j, (block_part){".self_attn", f->norm[0]}, x, y, 3 * H, H);
  end(&j);
}

TEST(bytes_of_2d_tensor_parallelism_are_those_of_the_formulas) {
  for (int x = 1; x <= 4; x *= 2)
    for (int y = 1; y <= 4; y *= 2) {
      if (x * y == 1) continue;
      check_block(&llama, x, y);
      check_block(&gpt2, x, y);
    }
}
