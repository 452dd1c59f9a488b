#include "test.h"

#include "base/mem.h"
#include "mem/timeline.h"

TEST(a_timeline_gives_the_live_bytes_of_every_position) {
  const timeline_span span[] = {{100, 0, 5, 0, MEM_PARAM},     {30, 1, 2, 0, MEM_ACTIVATION},
                                {50, 2, 4, 0, MEM_ACTIVATION}, {20, 2, 2, 0, MEM_WORKSPACE},
                                {7, 3, 3, 1, MEM_GRAD},        {1, 5, 5, 0, 200}};
  timeline t;
  CHECK_OK(timeline_build(span, 6, 6, 2, &t));
  const uint64_t want[] = {100, 130, 200, 150, 150, 101, 0, 0, 0, 7, 0, 0};
  for (int i = 0; i < 12; i++) CHECK_EQ(t.live[i], want[i]);
  CHECK_EQ(t.peak[0], 200);
  CHECK_EQ(t.peak_at[0], 2);
  CHECK_EQ(t.peak_by_class[0][MEM_PARAM], 100);
  CHECK_EQ(t.peak_by_class[0][MEM_ACTIVATION], 80);
  CHECK_EQ(t.peak_by_class[0][MEM_WORKSPACE], 20);
  CHECK_EQ(t.peak_by_class[1][MEM_GRAD], 7);
  timeline_free(&t);
  uint32_t id[3];
  CHECK_EQ(timeline_largest(span, 6, 0, 2, id, 3), 3);
  CHECK(id[0] == 0 && id[1] == 2 && id[2] == 1);
  CHECK_EQ(timeline_largest(span, 6, 0, 5, id, 3), 2);
  uint64_t bytes[MEM_CLASS_COUNT];
  timeline_by_class(span, 6, 0, 5, bytes);
  CHECK_EQ(bytes[MEM_OTHER], 1);
  CHECK_STR(mem_class_name(MEM_OPTIMIZER), "optimizer");
}

TEST(a_timeline_refuses_what_cannot_be) {
  timeline t;
  timeline_span s[] = {{UINT64_C(1) << 62, 0, 0, 0, 0}, {UINT64_C(1) << 62, 1, 1, 0, 0}};
  CHECK_FAILS(timeline_build(s, 2, 2, 1, &t), "span 1 has 4611686018427387904 bytes");
  CHECK_FAILS(timeline_build(s, 1, 0, 1, &t), "span 0 lives from 0 to 0");
  CHECK_FAILS(timeline_build(s, 1, 1, 9, &t), "9 tiers");
  s[0].tier = 3;
  CHECK_FAILS(timeline_build(s, 1, 1, 1, &t), "in tier 3");
  CHECK_OK(timeline_build(s, 0, 0, 1, &t));
  CHECK_EQ(t.peak[0], 0);
  timeline_free(&t);
  mem_fail_at(1);
  CHECK_EQ(timeline_build(s, 0, 0, 1, &t), HP_ERR_OOM);
  err_clear();
}
