/* Where the instructions of the update are in the order of a step. */
#include "compile/place_updates.h"
#include "test.h"

#include <string.h>

/* The places in the model of all instructions, in their order. */
static void order_of(const char *text, char *out, size_t n) {
  program *p;
  size_t at = 0;
  CHECK_OK(program_parse(text, strlen(text), "text", &p));
  CHECK_OK(place_updates(p));
  out[0] = 0;
  for (size_t i = 0; i < p->insts.len; i++)
    at += (size_t)snprintf(out + at, n - at, "%s%s", i ? " " : "",
                           program_str(p, program_inst(p, i)->loc));
  program_free(p);
}

TEST(a_gradients_norm_is_taken_right_after_the_gradient) {
  static const char text[] = "arena device 4096 bound 0 at 0\n"
                             "b0 = f32[128] device+0 input \"x\"\n"
                             "b1 = f32[128] device+512\n"
                             "b2 = f32[128] device+1024\n"
                             "b3 = f32[] device+1536\n"
                             "b4 = f32[] device+1792\n"
                             "b5 = f32[] device+2048 output \"norm\"\n"
                             "b6 = f32[128] device+2304 output \"y\"\n"
                             "compute: b1 = exp b0 @\"grad1\" phase=backward\n"
                             "compute: b2 = exp b1 @\"grad2\" phase=backward\n"
                             "compute: b3 = sum_sq b1 @\"norm1\" phase=update\n"
                             "compute: b4 = sum_sq b2 @\"norm2\" phase=update\n"
                             "compute: b5 = add b3, b4 @\"all\" phase=update\n"
                             "compute: b6 = add b1, b2 @\"apply\" phase=update\n";
  char order[256];
  order_of(text, order, sizeof order);
  CHECK_STR(order, "grad1 norm1 grad2 norm2 all apply");
}

/* Two params: their updates come first, and what reads them; q is read by the last instruction
 * only, and `old` reads its gradient before that is overwritten. */
static const char left[] = "arena device 4096 bound 0 at 0\n"
                           "b0 = f32[128] device+0 input \"x\"\n"
                           "b1 = f32[128] state \"p\"\n"
                           "b2 = f32[128] state \"q\"\n"
                           "b3 = f32[128] state \"g.q\"\n"
                           "b4 = f32[128] device+512\n"
                           "b5 = f32[128] device+1024\n"
                           "b6 = f32[128] device+1536 output \"y\"\n"
                           "b7 = f32[128] device+2048\n"
                           "compute: b7 = neg b3 @\"scale_q\" phase=update\n"
                           "compute: b2 = add b2, b7 @\"apply_q\" phase=update\n"
                           "compute: b1 = neg b1 @\"apply_p\" phase=update\n"
                           "compute: b4 = exp b0 @\"embed\"\n"
                           "compute: b5 = mul b4, b1 @\"layer_p\"\n"
                           "compute: b6 = mul b5, b2 @\"layer_q\"\n"
                           "compute: b3 = exp b6 @\"new_grad\" phase=backward\n";

TEST(an_update_that_was_left_runs_just_before_its_param_is_used) {
  char order[256];
  order_of(left, order, sizeof order);
  CHECK_STR(order, "embed apply_p layer_p scale_q apply_q layer_q new_grad");
}

/* What an update reads is not overwritten before it. */
TEST(an_update_runs_before_its_gradient_is_replaced) {
  static const char text[] = "arena device 4096 bound 0 at 0\n"
                             "b0 = f32[128] device+0 input \"x\"\n"
                             "b1 = f32[128] state \"p\"\n"
                             "b2 = f32[128] state \"g\"\n"
                             "b3 = f32[128] device+512\n"
                             "b4 = f32[128] device+1024 output \"y\"\n"
                             "compute: b1 = add b1, b2 @\"apply\" phase=update\n"
                             "compute: b3 = exp b0 @\"embed\"\n"
                             "compute: b2 = exp b3 @\"new_grad\" phase=backward\n"
                             "compute: b4 = mul b3, b1 @\"use\" phase=backward\n";
  char order[256];
  order_of(text, order, sizeof order);
  CHECK_STR(order, "embed apply new_grad use");
}
