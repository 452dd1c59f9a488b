/* Values that are too large to be stored whole, in programs: the bits of the whole, and its memory.
 */
#include "prog/program.h"
#include "test.h"

#include <stdlib.h>

enum { B = 4, T = 256, C = 32, V = 512, TOKENS = B * T, OUTPUTS = 4 };

static const uint64_t never = UINT64_MAX, quarter = TOKENS / 4 * V * sizeof(float);

/* A tied embedding, one layer, the loss of all tokens and its gradients. */
static hp_graph *loss_graph(hp_dtype dtype, bool gradients) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  hp_shape tokens = {2, {B, T}};
  hp_tensor ids = hp_input(g, "ids", HP_I32, tokens),
            labels = hp_input(g, "labels", HP_I32, tokens);
  hp_tensor w[2] = {hp_param(g, "table", HP_F32, (hp_shape){2, {V, C}}),
                    hp_param(g, "layer", HP_F32, (hp_shape){2, {C, C}})};
  hp_tensor weight = hp_input(g, "weight", HP_F32, (hp_shape){0, {0}}), grad[2];
  hp_tensor x = hp_cast(g, hp_embedding(g, w[0], ids, -1), dtype);
  x = hp_einsum(g, "btc,dc->btd", x, hp_cast(g, w[1], dtype));
  hp_at(g, "head");
  hp_tensor logits = hp_einsum_to(g, "btc,vc->btv", x, hp_cast(g, w[0], dtype), HP_F32);
  hp_tensor losses = hp_cross_entropy(g, logits, labels, -100);
  hp_tensor loss = hp_mul(g, hp_sum(g, losses, (int64_t[]){0, 1}, 2, false), weight);
  hp_output(g, "losses", losses);
  hp_output(g, "loss", loss);
  if (gradients) {
    CHECK_OK(hp_grad(g, loss, w, 2, grad));
    hp_output(g, "d table", grad[0]);
    hp_output(g, "d layer", grad[1]);
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

static float number(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(int32_t)*state * 0x1p-31f;
}

/* A device with params, and the data of a run. */
typedef struct {
  hp_device *d;
  int32_t ids[TOKENS], labels[TOKENS];
  float weight, losses[TOKENS], loss, table[V * C], layer[C * C];
} subject;

static void open_subject(const hp_device_options *o, subject *s) {
  uint32_t state = 7;
  memset(s, 0, sizeof *s);
  CHECK_OK(hp_device_open(o, &s->d));
  for (int i = 0; i < V * C; i++) s->table[i] = number(&state);
  for (int i = 0; i < C * C; i++) s->layer[i] = number(&state);
  CHECK_OK(hp_param_create(s->d, "table", HP_F32, (hp_shape){2, {V, C}}));
  CHECK_OK(hp_param_create(s->d, "layer", HP_F32, (hp_shape){2, {C, C}}));
  CHECK_OK(hp_write(s->d, "table", s->table, sizeof s->table));
  CHECK_OK(hp_write(s->d, "layer", s->layer, sizeof s->layer));
  s->weight = 1.0f / TOKENS;
  for (int i = 0; i < TOKENS; i++) {
    s->ids[i] = i * 37 % V;
    s->labels[i] = i % 7 ? i * 11 % V : -100;
  }
}

static hp_program *compile(subject *s, const hp_graph *g, uint64_t chunk_bytes) {
  hp_program *p;
  CHECK_OK(hp_compile(g, s->d, &(hp_compile_options){.chunk_bytes = chunk_bytes}, &p));
  return p;
}

static void run(subject *s, hp_program *p, bool gradients) {
  hp_io io[] = {{"ids", s->ids, sizeof s->ids},           {"labels", s->labels, sizeof s->labels},
                {"weight", &s->weight, sizeof s->weight}, {"losses", s->losses, sizeof s->losses},
                {"loss", &s->loss, sizeof s->loss},       {"d table", s->table, sizeof s->table},
                {"d layer", s->layer, sizeof s->layer}};
  CHECK_OK(hp_run(p, io, gradients ? 7 : 5));
}

/* The largest buffer of its work memory: of values, or of what kernels work with. */
static uint64_t largest(const hp_program *h, bool of_kernels) {
  char *text;
  program *p;
  uint64_t most = 0;
  CHECK_OK(hp_program_print(h, &text));
  CHECK_OK(program_parse(text, strlen(text), "program", &p));
  for (size_t b = 0; b < p->buffers.len; b++)
    if (p->buffers.at[b].place == PLACE_WORK && p->buffers.at[b].bytes > most &&
        !(p->buffers.at[b].flags & BUFFER_WORKSPACE) == !of_kernels)
      most = p->buffers.at[b].bytes;
  program_free(p);
  hp_free(text);
  return most;
}

static uint64_t work_bytes(const hp_program *p) {
  hp_program_stats stats;
  CHECK_OK(hp_program_stats_get(p, &stats));
  return stats.memory.work_bytes;
}

static void check_told(const hp_program *p, const char *what) {
  char *text;
  CHECK_OK(hp_explain(p, "memory", &text));
  if (!strstr(text, what)) test_fail(__FILE__, __LINE__, "no \"%s\" in\n%s", what, text);
  hp_free(text);
}

/* The same bits whole and in chunks; memory for a chunk, for what is narrow, and for the sums. */
static void compare(const hp_device_options *o, hp_dtype dtype, bool gradients, const char *told) {
  static subject whole, chunks;
  hp_graph *g = loss_graph(dtype, gradients);
  open_subject(o, &whole);
  open_subject(o, &chunks);
  hp_program *p = compile(&whole, g, never), *q = compile(&chunks, g, quarter);
  run(&whole, p, gradients);
  run(&chunks, q, gradients);
  CHECK(!memcmp(whole.losses, chunks.losses, sizeof whole.losses));
  CHECK(!memcmp(&whole.loss, &chunks.loss, sizeof whole.loss));
  CHECK(!memcmp(whole.table, chunks.table, sizeof whole.table));
  CHECK(!memcmp(whole.layer, chunks.layer, sizeof whole.layer));
  uint64_t narrow = 6 * TOKENS * C * sizeof(float) + 4 * sizeof whole.table;
  CHECK(largest(p, false) > quarter);
  CHECK(largest(q, false) <= quarter);
  CHECK(work_bytes(q) <= quarter + narrow + largest(q, true));
  check_told(q, told);
  hp_program_free(p);
  hp_program_free(q);
  hp_device_close(whole.d);
  hp_device_close(chunks.d);
  hp_graph_free(g);
}

TEST(logits_are_never_whole_and_no_bit_changes) {
  hp_device_options o = {.threads = 2, .interpret = true};
  compare(&o, HP_F32, true,
          "f32[4,256,512] of einsum \"head\" (2.0 MiB): in 4 chunks, never stored");
}

TEST(logits_of_a_loss_alone_are_never_whole) {
  hp_device_options o = {.threads = 2, .interpret = true};
  compare(&o, HP_F32, false, "in 4 chunks, never stored");
}

TEST(logits_of_16_bit_products_are_never_whole) {
  hp_device_options o = {.threads = 2, .interpret = true, .engine = "packed"};
  compare(&o, HP_BF16, true, "in 4 chunks, never stored");
}

TEST(logits_of_data_parallel_devices_are_never_whole) {
  static const hp_layout_rule rules[] = {{"ids", "(dp,None)"},
                                         {"labels", "(dp,None)"},
                                         {"d *", "(None,None)"}};
  hp_device_options o = {.mesh = "(2)(dp)",
                         .layouts = rules,
                         .n_layouts = 3,
                         .threads = 2,
                         .interpret = true};
  compare(&o, HP_F32, true,
          "f32[2,256,512] of einsum \"head\" (1.0 MiB): in 2 chunks, never stored");
}

/* Checks what is said of logits [b, t, v] of products of that dtype. */
static void plan_logits(hp_dtype dtype, int64_t b, int64_t t, int64_t c, int64_t v,
                        const char *told) {
  char *text;
  hp_graph *g;
  hp_device *d;
  CHECK_OK(hp_graph_create(&g));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .plan_only = true}, &d));
  hp_tensor x = hp_input(g, "x", dtype, (hp_shape){3, {b, t, c}}),
            labels = hp_input(g, "labels", HP_I32, (hp_shape){2, {b, t}}),
            table = hp_cast(g, hp_param(g, "table", HP_F32, (hp_shape){2, {v, c}}), dtype);
  hp_at(g, "head");
  hp_tensor logits = hp_einsum_to(g, "btc,vc->btv", x, table, HP_F32);
  hp_output(g, "losses", hp_cross_entropy(g, logits, labels, -100));
  CHECK_OK(hp_plan_explain(g, d, NULL, "memory", &text));
  if (!strstr(text, told)) test_fail(__FILE__, __LINE__, "not %s:\n%s", told, text);
  hp_free(text);
  hp_device_close(d);
  hp_graph_free(g);
}

/* A graph must not grow with the batch: 1 TiB of logits is not cut into chunks of a few MiB. */
TEST(logits_of_any_size_are_cut_into_at_most_64_chunks) {
  plan_logits(HP_F32, 1024, 4096, 8192, 65536,
              "of einsum \"head\" (1048576.0 MiB): in 64 chunks, never stored");
}

/* Of 64 rows, 64 MiB, reading the table would take longer than its products. */
TEST(logits_are_cut_into_chunks_that_hide_what_is_read_again) {
  plan_logits(HP_F32, 1, 1024, 64, 262144, "(1024.0 MiB): in 6 chunks, never stored");
  plan_logits(HP_BF16, 1, 1024, 64, 262144, "(1024.0 MiB): in 3 chunks, never stored");
  plan_logits(HP_BF16, 4, 256, 64, 262144, "(1024.0 MiB): in 2 chunks, never stored");
}

/* With the vocabulary cut, what the devices say to each other lies in the region. */
TEST(logits_that_devices_share_are_whole_and_said_to_be) {
  static subject s;
  static const hp_layout_rule rules[] = {{"table", "(tp,None)"}};
  hp_device_options o = {.mesh = "(2)(tp)",
                         .layouts = rules,
                         .n_layouts = 1,
                         .threads = 2,
                         .interpret = true};
  hp_graph *g = loss_graph(HP_F32, true);
  open_subject(&o, &s);
  hp_program *p = compile(&s, g, quarter);
  run(&s, p, true);
  check_told(p, "f32[4,256,256] of einsum \"head\" (1.0 MiB): stored, because all_reduce");
  hp_program_free(p);
  hp_device_close(s.d);
  hp_graph_free(g);
}
