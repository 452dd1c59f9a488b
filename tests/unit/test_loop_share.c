/* Loops that several instructions and programs have in common are made once. */
#include "backend/backend.h"
#include "backend/cpu/cpu_kernel.h"
#include "base/mem.h"
#include "test.h"

#include <string.h>

#define BODY                                                                                       \
  "{body=\"map [64]; %%0 = in 0 f32 [1]; %%1 = const 3; %%2 = mul %%0 %%1; out 0 f32 [1] %%2\"}"

/* Two instructions of the same loop, the second on a tensor of so many elements. */
static program *two_loops(int second) {
  char text[1024];
  program *p;
  snprintf(text, sizeof text,
           "arena device 1024 bound 0 at 0\n"
           "b0 = f32[64] device+0 input \"x\"\nb1 = f32[64] device+256\nb2 = f32[%d] device+512\n"
           "compute: b1 = fused b0 " BODY "\ncompute: b2 = fused b1 " BODY "\n",
           second);
  CHECK_OK(program_parse(text, strlen(text), "text", &p));
  return p;
}

static hp_status load(void *dev, const program *p, void **out) {
  uint64_t workspace[8] = {0};
  *out = NULL;
  return backend_cpu.prepare(dev, p, workspace, out);
}

static int printed(const void *dev) {
  return loop_module_report(((const cpu_device *)dev)->kernels).printed;
}

TEST(programs_of_a_device_share_their_loops) {
  void *dev, *first, *second;
  const backend_options o = {.threads = 1};
  float x[64], y[64] = {0};
  program *p = two_loops(64);
  CHECK_OK(backend_cpu.open(&o, &dev));
  CHECK_OK(load(dev, p, &first));
  CHECK_EQ(printed(dev), 1);
  CHECK_OK(load(dev, p, &second));
  CHECK_EQ(printed(dev), 1);
  backend_cpu.release(first);
  for (int i = 0; i < 64; i++) x[i] = (float)i;
  void *at[] = {x, y};
  const launch_args a = {.at = at};
  CHECK_OK(backend_cpu.launch(second, p, program_inst(p, 0), &a));
  for (int i = 0; i < 64; i++) CHECK_EQ(y[i], 3 * x[i]);
  backend_cpu.close(dev);
  backend_cpu.release(second); /* programs may outlive it */
  program_free(p);
}

/* What a loop touches is compared with the tensors of every instruction that has it. */
TEST(a_loop_that_is_known_is_checked_again) {
  void *dev, *loaded;
  const backend_options o = {.threads = 1, .interpret = true};
  program *p = two_loops(60);
  CHECK_OK(backend_cpu.open(&o, &dev));
  CHECK_FAILS(load(dev, p, &loaded), "out 0 touches elements 0 to 63, its tensor has 60");
  backend_cpu.close(dev);
  program_free(p);
}
