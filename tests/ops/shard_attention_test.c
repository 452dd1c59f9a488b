/* Attention on several devices, cut along the sequence: keys gathered, or in a ring, with shards in
 * order or dealt out in zigzag; forward and backward give what one device gives. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  const char *mesh, *queries, *keys; /* layouts of q and of k and v */
  int64_t B, T, S, H, KV, D;
  bool causal, span;
  int64_t window;
  double dropout;
} attention_case;

enum { TENSORS = 8, OUTPUTS = 5 };

typedef struct {
  float *at[TENSORS];
  size_t n[TENSORS];
  int32_t *span;
} numbers;

static const char *const names[TENSORS] = {"q", "k", "v", "w", "o", "dq", "dk", "dv"};

static void sizes_of(const attention_case *c, hp_shape out[TENSORS]) {
  hp_shape q = {4, {c->B, c->T, c->H, c->D}}, k = {4, {c->B, c->S, c->KV, c->D}};
  for (int i = 0; i < TENSORS; i++) out[i] = i % 4 == 1 || i % 4 == 2 ? k : q;
  out[4] = q; /* q k v w, then o dq dk dv */
  out[5] = q, out[6] = out[7] = k;
}

static float noise(uint64_t *state) {
  *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (float)(int32_t)(*state >> 32) / (float)(1U << 31);
}

static void make_numbers(const attention_case *c, numbers *x) {
  hp_shape s[TENSORS];
  uint64_t state = (uint64_t)(c->T * 31 + c->H);
  sizes_of(c, s);
  for (int i = 0; i < TENSORS; i++) {
    x->n[i] = (size_t)(s[i].dim[0] * s[i].dim[1] * s[i].dim[2] * s[i].dim[3]);
    x->at[i] = calloc(x->n[i], sizeof(float));
    for (size_t k = 0; i < 4 && k < x->n[i]; k++) x->at[i][k] = 2 * noise(&state);
  }
  x->span = calloc((size_t)(c->B * c->T * 2), sizeof *x->span);
  for (int64_t t = 0; t < c->B * c->T; t++) { /* packed sequences of 5; every 7th row sees none */
    int32_t at = (int32_t)(t % c->T), first = at - at % 5;
    x->span[2 * t] = first;
    x->span[2 * t + 1] = at % 7 == 6 ? first - 1 : at < c->S ? at : (int32_t)c->S - 1;
  }
}

static void free_numbers(numbers *x) {
  for (int i = 0; i < TENSORS; i++) free(x->at[i]);
  free(x->span);
}

static hp_graph *build(const attention_case *c) {
  hp_graph *g;
  hp_shape s[TENSORS];
  hp_tensor in[4], grad[3];
  sizes_of(c, s);
  CHECK_OK(hp_graph_create(&g));
  for (int i = 0; i < 4; i++) in[i] = hp_input(g, names[i], HP_F32, s[i]);
  hp_attention_options o = {.causal = c->causal, .window = c->window};
  if (c->span) o.span = hp_input(g, "span", HP_I32, (hp_shape){3, {c->B, c->T, 2}});
  if (c->dropout > 0) {
    o.dropout = c->dropout;
    o.seed = hp_input(g, "seed", HP_I64, (hp_shape){0});
    o.stream = 5;
  }
  hp_tensor y = hp_attention(g, in[0], in[1], in[2], &o);
  hp_output(g, "o", y);
  hp_tensor loss = hp_sum(g, hp_mul(g, y, in[3]), (int64_t[]){0, 1, 2, 3}, 4, false);
  CHECK_OK(hp_grad(g, loss, in, 3, grad));
  for (int i = 0; i < 3; i++) hp_output(g, names[5 + i], grad[i]);
  return g;
}

/* Runs the case on the mesh, NULL: on one device.  Returns the program's text. */
static char *run(const attention_case *c, const char *mesh, numbers *x) {
  hp_layout_rule rules[] = {{"q", c->queries}, {"k", c->keys}, {"v", c->keys}};
  hp_device_options o = {.interpret = true, .threads = 1, .mesh = mesh};
  if (mesh) o.layouts = rules, o.n_layouts = 3;
  hp_device *d;
  hp_program *p;
  hp_io io[TENSORS + 2];
  int64_t seed = 77;
  char *text;
  hp_graph *g = build(c);
  for (int i = 0; i < TENSORS; i++) io[i] = (hp_io){names[i], x->at[i], x->n[i] * sizeof *x->at[i]};
  int n = TENSORS;
  if (c->span) io[n++] = (hp_io){"span", x->span, (size_t)(c->B * c->T * 2) * sizeof *x->span};
  if (c->dropout > 0) io[n++] = (hp_io){"seed", &seed, sizeof seed};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_compile(g, d, NULL, &p));
  CHECK_OK(hp_run(p, io, n));
  CHECK_OK(hp_program_print(p, &text));
  hp_program_free(p);
  hp_device_close(d);
  hp_graph_free(g);
  return text;
}

static void check_case(const attention_case *c, const char *uses) {
  numbers one, many;
  make_numbers(c, &one);
  make_numbers(c, &many);
  free(run(c, NULL, &one));
  char *text = run(c, c->mesh, &many);
  if (!strstr(text, uses)) test_fail(__FILE__, __LINE__, "no %s on %s in\n%s", uses, c->mesh, text);
  for (int i = 4; i < TENSORS; i++)
    for (size_t k = 0; k < one.n[i]; k++) {
      double want = (double)one.at[i][k], got = (double)many.at[i][k];
      if (fabs(want - got) <= 2e-6 * (1 + fabs(want))) continue;
      test_fail(__FILE__, __LINE__, "%s on %s, T %lld: element %zu is %.9g, want %.9g", names[i],
                c->mesh, (long long)c->T, k, got, want);
    }
  free(text);
  free_numbers(&one);
  free_numbers(&many);
}

#define SEQ "(None,a,None,None)"
TEST(keys_go_round_in_a_ring) {
  static const attention_case dealt[] = {
      {"(2)(a)", SEQ, SEQ, 1, 8, 8, 2, 2, 4, .causal = true},
      {"(3)(a)", SEQ, SEQ, 2, 12, 12, 4, 2, 8, .causal = true},
      {"(4)(a)", SEQ, SEQ, 1, 32, 32, 2, 1, 4, .causal = true, .window = 7},
      {"(5)(a)", SEQ, SEQ, 1, 30, 30, 3, 3, 4, .causal = true},
      {"(2,2)(a,b)", "(b,a,None,None)", "(b,a,None,None)", 2, 16, 16, 2, 2, 4, .causal = true},
      {"(2,2)(a,b)", "(None,(a,b),None,None)", "(None,(a,b),None,None)", 1, 16, 16, 2, 2, 4,
       .causal = true},
      {"(2,2)(a,b)", "(None,a,b,None)", "(None,a,b,None)", 1, 16, 16, 4, 2, 4, .causal = true},
      {"(2,2)(a,b)", "(None,a,b,None)", SEQ, 1, 16, 16, 4, 1, 4, .causal = true},
      {"(2,2,2)(a,b,c)", "(c,(b,a),None,None)", "(c,(b,a),None,None)", 2, 24, 24, 2, 2, 4,
       .causal = true},
  };
  static const attention_case in_order[] = {
      {"(2)(a)", SEQ, SEQ, 1, 10, 10, 2, 2, 4, .causal = true},
      {"(3)(a)", SEQ, SEQ, 2, 9, 9, 4, 2, 8, .causal = true, .window = 4},
      {"(3)(a)", SEQ, SEQ, 1, 12, 12, 2, 2, 4, .causal = false},
      {"(4)(a)", SEQ, SEQ, 2, 20, 20, 2, 1, 4, .span = true},
      {"(2)(a)", SEQ, SEQ, 1, 6, 14, 2, 2, 4, .causal = true},
      {"(2)(a)", SEQ, SEQ, 1, 14, 6, 2, 2, 4, .span = true},
  };
  for (size_t i = 0; i < sizeof dealt / sizeof *dealt; i++) check_case(&dealt[i], "zigzag");
  for (size_t i = 0; i < sizeof in_order / sizeof *in_order; i++)
    check_case(&in_order[i], "permute");
}

TEST(queries_are_cut_and_keys_are_replicated) {
  static const attention_case c[] = {
      {"(2)(a)", SEQ, "(None,None,None,None)", 1, 8, 8, 2, 2, 4, .causal = true},
      {"(3)(a)", SEQ, "(None,None,None,None)", 2, 9, 15, 4, 2, 4, .causal = true, .window = 4},
      {"(2,2)(a,b)", "(None,a,b,None)", "(None,None,b,None)", 1, 8, 8, 4, 2, 4, .causal = true},
      {"(2,2)(a,b)", "(None,a,b,None)", "(b,None,None,None)", 2, 8, 8, 4, 2, 4, .causal = true},
      {"(2,2)(a,b)", "(None,(a,b),None,None)", "(None,a,None,None)", 1, 8, 8, 2, 2, 4,
       .causal = true},
      {"(2)(a)", SEQ, "(None,None,None,None)", 1, 8, 8, 2, 2, 4, .span = true},
  };
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) check_case(&c[i], "attention_grad");
}

TEST(dropout_of_sequences_and_heads_is_that_of_the_global_tensor) {
  static const struct {
    attention_case c;
    const char *shard; /* of q that a device attends with */
  } x[] = {
      {{"(2)(a)", "(a,None,None,None)", "(a,None,None,None)", 4, 8, 8, 4, 2, 4, .causal = true},
       "f32[2,8,4,4]"},
      {{"(2)(a)", "(None,None,a,None)", "(None,None,a,None)", 3, 8, 8, 4, 2, 4, .causal = true},
       "f32[3,8,2,4]"},
      {{"(2,2)(a,b)", "(a,None,b,None)", "(a,None,b,None)", 2, 6, 9, 4, 4, 4, .causal = false},
       "f32[1,6,2,4]"},
      {{"(2,2)(a,b)", "((b,a),None,None,None)", "((b,a),None,None,None)", 4, 8, 8, 2, 2, 4,
        .span = true},
       "f32[1,8,2,4]"},
      /* sequences that devices do not share evenly are padded; heads are not, which would count
       * others */
      {{"(2)(a)", "(a,None,None,None)", "(a,None,None,None)", 3, 8, 8, 4, 2, 4, .causal = true},
       "f32[2,8,4,4]"},
      {{"(2)(a)", "(None,None,a,None)", "(None,None,a,None)", 2, 8, 8, 3, 3, 4, .causal = true},
       "f32[2,8,3,4]"},
      {{"(2)(a)", SEQ, SEQ, 2, 8, 8, 2, 2, 4, .causal = true}, "f32[2,8,2,4]"},
  };
  for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
    attention_case c = x[i].c;
    c.dropout = 0.3;
    check_case(&c, x[i].shard);
  }
}
