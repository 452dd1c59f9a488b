/* Loop IR text: parser, printers, normal form; small kernels are also interpreted on buffers of
 * exactly the extent that loop_extent tells. */
#include "fuzz.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "codegen/loop_c.h"
#include "codegen/loop_interp.h"

#include <string.h>

enum { ELEMENTS_MAX = 4096 };

static void check_round_trip(const loop *l, const char *sep) {
  str s = {0}, again = {0};
  loop copy = {0};
  loop_print(l, sep, &s);
  HP_ASSERT(!loop_parse(s.at, s.len, "printed", &copy));
  loop_print(&copy, sep, &again);
  HP_ASSERT(again.len == s.len && !memcmp(again.at, s.at, s.len));
  loop_free(&copy);
  str_free(&s);
  str_free(&again);
}

/* A buffer for an operand; false when it would be large. */
static bool make_buffer(const loop *l, bool output, int operand, void **out) {
  hp_dtype type = HP_F32;
  int64_t low, high = 0;
  *out = NULL;
  if (!loop_extent(l, output, operand, &type, &low, &high)) return true;
  if (high >= ELEMENTS_MAX) return false;
  *out = mem_calloc((size_t)high + 1, dtype_size(type));
  HP_ASSERT(*out);
  return true;
}

static void interpret(const loop *l, loop_plan *p) {
  void *in[LOOP_OPERANDS_MAX] = {0}, *out[LOOP_OPERANDS_MAX] = {0};
  double work = 1;
  bool small = true;
  for (int d = 0; d < l->space.rank; d++) work *= l->space.dim[d] > 0 ? (double)l->space.dim[d] : 1;
  small = work <= ELEMENTS_MAX;
  for (int i = 0; i < LOOP_OPERANDS_MAX; i++) {
    if (small) small = make_buffer(l, false, i, &in[i]);
    if (small) small = make_buffer(l, true, i, &out[i]);
  }
  p->split = false;
  void *scratch = mem_calloc(1, small ? plan_scratch(p) : 0);
  for (int phase = 0; small && phase < plan_phases(p); phase++)
    loop_interpret(p, phase, (const void *const *)in, out, scratch, 0, plan_parts(p, phase));
  mem_free(scratch);
  for (int i = 0; i < LOOP_OPERANDS_MAX; i++) {
    mem_free(in[i]);
    mem_free(out[i]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  loop l = {0};
  loop_plan p = {0};
  loop_params params = {0};
  str c = {0};
  double flops, moved;
  if (loop_parse((const char *)bytes, n, "fuzz", &l)) {
    err_clear();
    return 0;
  }
  HP_ASSERT(!loop_status(&l));
  check_round_trip(&l, "\n");
  check_round_trip(&l, "; ");
  loop_cost(&l, &flops, &moved);
  HP_ASSERT(flops >= 0 && moved >= 0);
  HP_ASSERT(!plan_create(&l, &p));
  HP_ASSERT(!loop_c_params(&p, &params));
  loop_c_print(&p, &c);
  HP_ASSERT(!str_status(&c));
  interpret(&l, &p);
  vec_free(&params);
  str_free(&c);
  plan_free(&p);
  loop_free(&l);
  err_clear();
  return 0;
}
