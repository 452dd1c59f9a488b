/* Bytes that are withheld from the steps during which offsets do not fit. */
#include "compile/offload_reserve.h"
#include "test.h"

enum { STEPS = 5, ROOM = 1024 };

static uint32_t add_buffer(program *p, uint64_t offset, uint64_t bytes, uint8_t flags, int tier) {
  prog_buffer b = {.place = PLACE_WORK,
                   .tier = (uint8_t)tier,
                   .flags = flags,
                   .offset = offset,
                   .bytes = bytes,
                   .root = (uint32_t)p->buffers.len};
  CHECK(vec_push(&p->buffers, b));
  return b.root;
}

/* A step or a copy that reads one buffer. */
static void add_inst(program *p, uint32_t buffer, bool copies, uint32_t workspace) {
  prog_inst n = {.arg0 = (uint32_t)p->args.len,
                 .n_in = 1,
                 .kernel = copies ? STEPS : 0,
                 .workspace = workspace};
  CHECK(vec_push(&p->args, buffer));
  CHECK(vec_push(&p->insts, n));
}

TEST(bytes_are_withheld_while_a_buffer_lies_above_the_room) {
  program p = {0};
  uint64_t reserve[STEPS] = {0};
  bool more;
  uint32_t low = add_buffer(&p, 0, ROOM, 0, TIER_DEVICE);
  uint32_t high = add_buffer(&p, 512, 812, 0, TIER_DEVICE); /* 300 bytes above it */
  uint32_t carried = add_buffer(&p, ROOM, 10, BUFFER_CARRIED_OUT, TIER_DEVICE);
  uint32_t host = add_buffer(&p, 1 << 20, 512, 0, TIER_HOST);
  uint32_t workspace = add_buffer(&p, 1000, 1000, BUFFER_WORKSPACE, TIER_DEVICE);
  add_inst(&p, low, false, PROG_NONE);
  add_inst(&p, high, true, PROG_NONE); /* fetched before step 1, last used by step 2 */
  add_inst(&p, low, false, PROG_NONE);
  add_inst(&p, high, false, PROG_NONE);
  add_inst(&p, carried, false, PROG_NONE);
  add_inst(&p, host, false, workspace);
  add_inst(&p, low, true, PROG_NONE);
  CHECK_OK(offload_reserve_add(&p, ROOM, 2048, STEPS, reserve, &more));
  const uint64_t want[STEPS] = {0, 512, 512, 256, 1024}; /* by 256 */
  for (int i = 0; i < STEPS; i++) CHECK_EQ(reserve[i], want[i]);
  CHECK(more);
  CHECK_OK(offload_reserve_add(&p, ROOM, 600, STEPS, reserve, &more)); /* added, up to the most */
  const uint64_t twice[STEPS] = {0, 600, 600, 512, 600};
  for (int i = 0; i < STEPS; i++) CHECK_EQ(reserve[i], twice[i]);
  CHECK_OK(offload_reserve_add(&p, ROOM, 512, STEPS, reserve, &more));
  CHECK(!more);
  CHECK_OK(offload_reserve_add(&p, 4096, 2048, STEPS, reserve, &more)); /* all fit */
  CHECK(!more);
  vec_free(&p.buffers);
  vec_free(&p.args);
  vec_free(&p.insts);
}
