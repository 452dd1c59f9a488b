/* Schedules of programs with copies between tiers: a copy must not cost more memory than it saves.
 */
#include "bare_target.h"
#include "compile/lower.h"
#include "compile/place_updates.h"
#include "compile/streams.h"
#include "hazards.h"
#include "ir/graph.h"
#include "ops/ops.h"
#include "ops/random_graph.h"
#include "test.h"

#include <string.h>

static val product(hp_graph *g, val a, val b) {
  attr_record r = {0};
  attr_put_str(&r, g, "ab,bc->ac");
  attr_put_int(&r, HP_F32);
  return ops_add(g, OP_EINSUM, (val[]){a, b}, 2, &r);
}

/* Eight products one after the other, and the first of them read again at the end; offloaded
 * meanwhile or not. */
static hp_graph *chain(bool copies) {
  enum { N = 512 };
  hp_graph *g;
  CHECK_OK(graph_create(NULL, &g));
  val x = ops_leaf(g, OP_INPUT, "x", HP_F32, (int64_t[]){N, N}, 2);
  val first = product(g, x, x), y = first, kept = first;
  attr_record host = {0};
  attr_put_int(&host, TIER_HOST);
  if (copies) kept = ops_add(g, OP_OFFLOAD, &first, 1, &host);
  for (int i = 1; i < 8; i++) y = product(g, y, x);
  attr_record device = {0};
  attr_put_int(&device, TIER_HOST);
  if (copies) kept = ops_add(g, OP_FETCH, &kept, 1, &device);
  ops_output(g, "y", product(g, y, kept));
  CHECK_OK(graph_status(g));
  return g;
}

TEST(offloading_a_value_between_its_uses_takes_less_device_memory) {
  uint64_t bytes[2];
  for (int copies = 0; copies < 2; copies++) {
    hp_graph *g = chain(copies);
    program *p;
    CHECK_OK(bare_compile(g, NULL, &p));
    bytes[copies] = p->arena[TIER_DEVICE];
    CHECK_EQ(p->arena[TIER_HOST], copies ? 1 << 20 : 0);
    CHECK_EQ(program_has_one_stream(p), !copies);
    program_free(p);
    graph_free(g);
  }
  CHECK_EQ(bytes[0], 4 << 20);
  CHECK_EQ(bytes[1], 3 << 20);
}

static program *lowered(const hp_graph *g) {
  compilation c;
  bare_target b;
  compiled made;
  program *p;
  CHECK_OK(bare_target_init(&b));
  CHECK_OK(compile_begin(g, NULL, NULL, &c));
  CHECK_OK(compile_for(&c, &b.t, &made));
  p = c.lowered;
  c.lowered = NULL;
  compile_free(&b.t, &made);
  compile_end(&c);
  mesh_free(&b.m);
  return p;
}

/* Bytes of the device that the graph's program needs when all of it runs one after the other. */
static uint64_t serial_bytes(const hp_graph *g) {
  program *p = lowered(g);
  uint64_t *workspace = mem_calloc(p->insts.len, sizeof *workspace), bytes;
  CHECK_OK(place_updates(p)); /* as the compiler has them, one after the other */
  for (size_t i = 0; i < p->insts.len; i++) p->insts.at[i].stream = STREAM_COMPUTE;
  CHECK(workspace);
  CHECK_OK(plan_memory(p, workspace, &(memory_options){0}));
  bytes = p->arena[TIER_DEVICE];
  mem_free(workspace);
  program_free(p);
  return bytes;
}

TEST(random_programs_with_copies_take_no_more_than_one_after_the_other) {
  int with_copies = 0;
  for (uint64_t seed = 8000; seed < 8300; seed++) {
    random_graph x;
    program *p;
    random_graph_make(seed, &(random_options){.streams = true}, &x);
    CHECK_OK(bare_compile(x.g, NULL, &p));
    with_copies += !program_has_one_stream(p);
    uint64_t serial = serial_bytes(x.g);
    if (p->arena[TIER_DEVICE] > serial)
      test_fail(__FILE__, __LINE__, "seed %d: %llu bytes, %llu one after the other", (int)seed,
                (unsigned long long)p->arena[TIER_DEVICE], (unsigned long long)serial);
    program_free(p);
    random_graph_free(&x);
  }
  CHECK(with_copies > 200);
}

/* A view of an input carries the input's flags, and must not hide who uses the input. */
TEST(a_copy_into_the_memory_of_an_input_with_views_waits_for_its_last_use) {
  static const char text[] = "arena device 512 bound 512 at 0\n"
                             "arena host 256 bound 256 at 0\n"
                             "b0 = f32[64] device+0 input \"x\"\n"
                             "b1 = f32[8,8] view b0\n"
                             "b2 = f32[64] host+0\n"
                             "b3 = f32[64] device+256 output \"y\"\n"
                             "b4 = f32[64] device+0 output \"z\"\n"
                             "copy_out: b2 = offload b0 {tier=1}\n"
                             "compute: b3 = neg b0\n"
                             "copy_in: b4 = fetch b2 {tier=1}\n";
  char why[HAZARD_TEXT];
  program *p;
  CHECK_OK(program_parse(text, strlen(text), "text", &p));
  p->buffers.at[1].flags |= BUFFER_INPUT;
  CHECK(program_hazard(p, why));
  CHECK_OK(trim_waits(p));
  if (program_hazard(p, why)) test_fail(__FILE__, __LINE__, "%s", why);
  CHECK_EQ(program_inst(p, 2)->n_wait, 2);
  program_free(p);
}
