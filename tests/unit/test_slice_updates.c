/* Updates of large params in slices, and tensors that are accessed by slices alone. */
#include "compile/slice_updates.h"
#include "compile/streams.h"
#include "prog/program_slices.h"
#include "test.h"

#include <string.h>

/* --- which updates, and how ---------------------------------------------------------------------
 */

/* p = p + s g, s = s + g, with a norm of g that needs `other` elements: what else there is. */
static program *update_program(int64_t n, int64_t other, const char *body) {
  program *p;
  str text = {0};
  str_printf(&text,
             "arena device 256 bound 0 at 0\n"
             "b0 = f32[%lld] state \"p\"\nb1 = f32[%lld] state \"s\"\n"
             "b2 = f32[%lld] state \"g\"\nb3 = f32[%lld] state \"x\"\nb4 = f32[] device+0\n"
             "b5 = f32[] device+4\n",
             (long long)n, (long long)n, (long long)n, (long long)other);
  str_printf(&text,
             "compute: b4 = sum_sq b2 @\"norm\" phase=update\n"
             "compute: b5 = sum_sq b3 @\"norm\" phase=update\n"
             "compute: b0, b1 = fused b0, b1, b2, b4 {body=\"%s\"} @\"p\" phase=update "
             "flops=%lld bytes=%lld\n",
             body, (long long)n * 2, (long long)n * 20);
  CHECK_OK(str_status(&text));
  CHECK_OK(program_parse(text.at, text.len, "text", &p));
  str_free(&text);
  return p;
}

static char body_text[512];

static const char *body_of(int64_t n, const char *index, const char *stride) {
  snprintf(
      body_text, sizeof body_text,
      "map [%lld]; %%0 = in 0 f32 [1]; %%1 = in 1 f32 [1]; %%2 = in 2 f32 [%s]; %%3 = in 3 f32 "
      "[0]; %%4 = %s; %%5 = mul %%1 %%3; %%6 = add %%0 %%5; %%7 = add %%1 %%2; out 0 f32 [1] "
      "%%6; out 1 f32 [1] %%7",
      (long long)n, stride, index);
  return body_text;
}

static size_t count_sliced(int64_t n, int64_t other, const char *body) {
  program *p = update_program(n, other, body);
  CHECK_OK(slice_updates(p));
  size_t insts = p->insts.len - 2;
  program_free(p);
  return insts;
}

TEST(only_updates_that_need_more_than_all_else_are_sliced) {
  const int64_t n = 100000;
  const char *body = body_of(n, "const 1", "1");
  CHECK_EQ(count_sliced(n, 3 * n, body), 1);     /* 1.2 MB: g is a third of it */
  CHECK_EQ(count_sliced(n, 3 * n - 8, body), 5); /* of the 0.8 MB that g leaves, a quarter each */
  CHECK_EQ(count_sliced(n, 5 * n / 2, body), 6); /* of 0.6 MB */
  CHECK_EQ(count_sliced(n, n, body), 14);        /* 16 at most, in grains of 1024 elements */
  CHECK_EQ(count_sliced(1024, 1, body_of(1024, "const 1", "1")), 1);
  CHECK_EQ(count_sliced(1025, 1, body_of(1025, "const 1", "1")), 2);
}

TEST(updates_that_know_where_an_element_is_are_not_sliced) {
  CHECK_EQ(count_sliced(100000, 1, body_of(100000, "iota 0 +0", "1")), 1);
  CHECK_EQ(count_sliced(100000, 1, body_of(100000, "in 2 f32 [0]", "1")), 1);
}

/* They cover each element once, in order; the work is divided; all but the last share a kernel. */
TEST(slices_cover_the_tensor) {
  const int64_t n = 100000;
  program *p = update_program(n, n, body_of(n, "const 1", "1"));
  CHECK_OK(slice_updates(p));
  uint64_t at = 0;
  double flops = 0, bytes = 0;
  for (size_t i = 2; i < p->insts.len; i++) {
    const prog_inst *d = program_inst(p, i);
    uint64_t size = program_arg(p, d, 0)->bytes;
    for (int k = 0; k < d->n_in + d->n_out; k++) {
      const prog_buffer *f = program_arg(p, d, k);
      bool scalar = k == 3;
      CHECK_EQ(f->at, scalar ? 0 : at);
      CHECK_EQ(f->bytes, scalar ? 4 : size);
      CHECK_EQ(f->type.dim[0] * 4, scalar ? f->type.dim[0] * 4 : (int64_t)size);
    }
    CHECK(i + 1 == p->insts.len || !(size % 4096));
    CHECK_EQ(d->kernel == program_inst(p, 2)->kernel, i + 1 < p->insts.len);
    CHECK(d->kernel < p->insts.len);
    at += size;
    flops += d->flops;
    bytes += d->bytes;
  }
  CHECK_EQ(at, (uint64_t)n * 4);
  CHECK_NEAR(flops, (double)n * 2, 1);
  CHECK_NEAR(bytes, (double)n * 20, 1);
  program_free(p);
}

/* --- tensors that are accessed by slices alone
 * ----------------------------------------------------
 */

static void check_slices(const char *insts, const uint32_t want[6]) {
  program *p;
  str text = {0};
  uint32_t whole_of[6];
  str_printf(&text,
             "arena device 256 bound 0 at 0\nb0 = f32[8] state \"x\"\n"
             "b1 = f32[4] view b0\nb2 = f32[4] view b0+16\nb3 = f32[4] view b0+16\n"
             "b4 = f32[4] view b0+8\nb5 = f32[] device+0\n%s",
             insts);
  CHECK_OK(program_parse(text.at, text.len, "text", &p));
  CHECK_OK(program_slices(p, whole_of));
  for (int b = 0; b < 6; b++) CHECK_EQ(whole_of[b], want[b]);
  program_free(p);
  str_free(&text);
}

TEST(slices_are_memory_of_their_own_if_nothing_else_touches_them) {
#define SUM(b) "compute: b5 = sum_sq b" b " @\"\"\n"
  check_slices(SUM("1") SUM("2"), (uint32_t[]){0, 1, 2, 0, 0, 5});
  check_slices(SUM("1") SUM("3") SUM("2"), (uint32_t[]){0, 1, 2, 2, 0, 5});
  check_slices(SUM("1") SUM("2") SUM("4"), (uint32_t[]){0, 0, 0, 0, 0, 5});
  check_slices(SUM("1") SUM("2") SUM("0"), (uint32_t[]){0, 0, 0, 0, 0, 5});
  check_slices("", (uint32_t[]){0, 0, 0, 0, 0, 5});
#undef SUM
}

/* Waits of a copy for a loop that writes a slice. */
static int count_waits(const char *copied, const char *last) {
  program *p;
  str text = {0};
  str_printf(&text,
             "arena device 256 bound 0 at 0\nb0 = f32[8] state \"x\"\nb1 = f32[4] view b0\n"
             "b2 = f32[4] view b0+16\nb3 = f32[4] device+0\n"
             "compute: b1 = fused b1 {body=\"\"} @\"\"\ncopy_out: b3 = copy %s @\"\"\n%s",
             copied, last);
  CHECK_OK(program_parse(text.at, text.len, "text", &p));
  CHECK_OK(place_waits(p, NULL, 0));
  int waits = program_inst(p, 1)->n_wait;
  program_free(p);
  str_free(&text);
  return waits;
}

TEST(what_uses_one_slice_does_not_wait_for_another) {
  CHECK_EQ(count_waits("b1", ""), 1);
  CHECK_EQ(count_waits("b2", ""), 0);
  CHECK_EQ(count_waits("b2", "compute: b0 = fused b0 {body=\"\"} @\"\"\n"), 1);
}
