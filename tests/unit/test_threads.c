/* Every kernel shares its work among all threads, unless it is too small.  The linker puts a
 * function of this file before the thread pool's, which counts the parts of each call: no time is
 * measured. */
#include "base/thread.h"
#include "ops/grid.h"
#include "test.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { THREADS = 3, IO_MAX = 8 };

/* The most parts that a call of a pool had, and those of all calls. */
static _Atomic int64_t most, sum;

void __real_pool_run(pool *p, int64_t parts, void (*fn)(void *ctx, int64_t part), void *ctx);
void __wrap_pool_run(pool *p, int64_t parts, void (*fn)(void *ctx, int64_t part), void *ctx);
void __wrap_pool_run(pool *p, int64_t parts, void (*fn)(void *ctx, int64_t part), void *ctx) {
  if (parts > most) most = parts;
  sum += parts;
  __real_pool_run(p, parts, fn, ctx);
}

static size_t bytes_of(const hp_graph *g, val v) { return (size_t)value_bytes(graph_value(g, v)); }

/* Random data of each leaf: params are written, inputs and outputs added to io; how many. */
static int give_data(grid_graph *x, hp_device *d, hp_io *io) {
  rng r = {.seed = 5};
  int n = 0;
  for (int i = 0; i < x->leaves; i++) {
    const grid_leaf *l = &x->leaf[i];
    size_t bytes = bytes_of(x->g, l->v);
    void *data = malloc(bytes);
    CHECK(data);
    grid_leaf_fill(x, l, &r, data);
    if (graph_def(x->g, l->v)->op == OP_PARAM) {
      CHECK_OK(hp_param_create(d, l->name, hp_dtype_of(x->g, l->v), hp_shape_of(x->g, l->v)));
      CHECK_OK(hp_write(d, l->name, data, bytes));
      free(data);
    } else {
      io[n++] = (hp_io){l->name, data, bytes};
    }
  }
  return n;
}

/* Runs a case of the grid's form, and counts the parts. */
static void count_parts(const hp_device_options *o, op_id op, const char *operands) {
  static grid_graph x;
  grid_row row = {.op = op, .low = 0.1, .high = 1};
  hp_io io[IO_MAX];
  hp_device *d;
  hp_program *p;
  val y;
  x = (grid_graph){0};
  CHECK_OK(graph_create(NULL, &x.g));
  grid_add_case(&x, &row, operands, HP_F32, true, &y);
  CHECK_OK(hp_device_open(o, &d));
  int n = give_data(&x, d, io);
  CHECK_OK(hp_compile(x.g, d, NULL, &p));
  most = sum = 0;
  CHECK_OK(hp_run(p, io, n));
  for (int i = 0; i < n; i++) free(io[i].data);
  hp_program_free(p);
  hp_device_close(d);
  grid_graph_free(&x);
}

/* The most parts of a call, on THREADS threads. */
static int64_t parts_of(op_id op, const char *operands) {
  count_parts(&(hp_device_options){.threads = THREADS, .engine = "packed"}, op, operands);
  return most;
}

TEST(every_kernel_shares_its_work_among_all_threads) {
#define ATTENTION "{scale=0.25, causal=1, window=0, dropout=0, stream=0}"
  static const struct {
    op_id op;
    const char *operands;
  } cases[] = {
      {OP_EINSUM, "f32[64,96] f32[128,96] {eq=\"mk,nk->mn\", dtype=f32}"},
      {OP_EINSUM, "bf16[64,96] bf16[128,96] {eq=\"mk,nk->mn\", dtype=bf16}"},
      {OP_EINSUM, "f32[1,768] f32[4096,768] {eq=\"mk,nk->mn\", dtype=f32}"},
      {OP_EINSUM, "f32[12,32,64] f32[12,32,64] {eq=\"bmk,bnk->bmn\", dtype=f32}"},
      {OP_GROUPED_MATMUL, "f32[48,64] f32[4,64,64] i32[48,2]=0..4 {transposed=0, dtype=f32}"},
      {OP_GROUPED_MATMUL_GRAD, "f32[48,2,64] f32[48,64] i32[48,2]=0..4 {experts=4, dtype=f32}"},
      {OP_ATTENTION, "f32[2,64,4,16] f32[2,64,2,16] f32[2,64,2,16] " ATTENTION},
      {OP_ATTENTION_GRAD, "f32[2,64,4,16] f32[2,64,2,16] f32[2,64,2,16] f32[2,64,4,16] f32[2,4,64] "
                          "f32[2,64,4,16] " ATTENTION},
      {OP_CONV, "f32[4,8,64,64] f32[16,8,3,3] {stride=[1,1], pad=[1,1], dilation=[1,1], groups=1}"},
      {OP_MAX_POOL, "f32[4,8,64,64] {kernel=[2,2], stride=[2,2], pad=[0,0]}"},
      {OP_SOFTMAX, "f32[256,512]"},
      {OP_RMS_NORM, "f32[256,512] f32[512] {eps=0.00001}"},
      {OP_LAYER_NORM, "f32[256,512] f32[512] f32[512] {eps=0.00001}"},
      {OP_CROSS_ENTROPY, "f32[256,512] i32[256]=0..512 {ignore=-100}"},
      {OP_EMBEDDING, "f32[512,64] i32[4096]=0..512 {skip=-1}"},
      {OP_EMBEDDING_GRAD, "f32[4096,64] i32[4096]=0..512 {rows=512}"},
      {OP_EXP, "f32[512,512]"},
      {OP_SUM, "f32[512,512] {axes=[0], keep=0}"},
      {OP_SUM, "f32[512,512] {axes=[1], keep=0}"},
      {OP_SUM_SQ, "f32[512,512]"},
      {OP_TRANSPOSE, "f32[512,512] {perm=[1,0]}"},
      {OP_CONCAT, "f32[512,512] f32[512,512] {axis=1}"},
      {OP_TOPK, "f32[512,512] {k=4}"},
  };
#undef ATTENTION
  int failed = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t parts = parts_of(cases[i].op, cases[i].operands);
    if (parts >= THREADS) continue;
    printf("%s %s: %lld parts for %d threads\n", op_table[cases[i].op].name, cases[i].operands,
           (long long)parts, THREADS);
    failed++;
  }
  CHECK_EQ(failed, 0);
}

/* Waking the others takes longer than the work. */
TEST(what_is_small_runs_on_one_thread) {
  CHECK(parts_of(OP_EXP, "f32[64]") <= 1);
  CHECK(parts_of(OP_EXP, "f32[128,128]") <= 1);
  CHECK(parts_of(OP_EXP, "f32[128,256]") >= THREADS);
  CHECK(parts_of(OP_EINSUM, "f32[4,64] f32[16,64] {eq=\"mk,nk->mn\", dtype=f32}") <= 1);
  CHECK(parts_of(OP_ROPE, "f32[1,1,2,16] f32[4,8] f32[4,8] i32[1,1]=0..4 {inverse=0, "
                          "interleaved=0}") <= 1);
}

TEST(threads_are_one_a_core_unless_told_and_devices_of_a_process_share_them) {
  static const char large[] = "f32[512,512]";
  count_parts(&(hp_device_options){0}, OP_EXP, large);
  CHECK_EQ(most > 1 ? most : 1, cpu_count());
  count_parts(&(hp_device_options){.threads = 5, .mesh = "(2)(dp)"}, OP_EXP, large);
  CHECK_EQ(most, 3);
  CHECK_EQ(sum, 3 + 2);
}
