/* Which loops may overwrite an operand with a result. */
#include "compile/inplace.h"
#include "test.h"

#define HEAD "map [4,8]; "

TEST(a_loop_may_overwrite_what_it_reads_only_where_it_writes) {
  static const struct {
    const char *body;
    bool fits[2]; /* input 0, 1 by output 0 */
  } cases[] = {
      {HEAD "%0 = in 0 f32 [8,1]; %1 = in 1 f32 [0,1]; %2 = add %0 %1; out 0 f32 [8,1] %2",
       {true, false}},
      {HEAD "%0 = in 0 f32 [8,1] +16; %1 = in 1 bf16 [8,1]; %2 = add %0 %1; out 0 f32 [8,1] %2",
       {false, false}},
      {HEAD "%0 = in 0 f32 [8,1] +16; %1 = exp %0; out 0 f32 [8,1] +16 %1", {true, true}},
      {HEAD "%0 = in 0 f32 [8,1]; %1 = in 0 f32 [1,4]; %2 = mul %0 %1; out 0 f32 [8,1] %2",
       {false, true}},
      {HEAD "%0 = in 0 f32 [8,1]; out 0 f32 [8,1] %0; out 0 f32 [8,1] +32 %0", {false, false}},
      {HEAD "%0 = in 0 f32 [8,1]; %1 = in 1 f32 [8,1]; %2 = add %0 %1; out 0 f32 [8,1] %2; "
            "out 1 f32 [1,4] %2",
       {true, true}},
      {"row [4,8]; %0 = in 0 f32 [8,1]; %1 = in 1 f32 [0,1]; %2 = mul %0 %1; out 1 f32 [8,1] %2; "
       "out 0 f32 [0,1] sum %2",
       {false, true}},
      {HEAD "%0 = const 3; out 1 f32 [8,1] %0", {false, false}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int in = 0; in < 2; in++)
      if (inplace_loop(cases[i].body, in, 0) != cases[i].fits[in])
        test_fail(__FILE__, __LINE__, "input %d of %s", in, cases[i].body);
}

/* Texts that the parser reads, though no printer writes them: none hides a load from the answer. */
TEST(no_other_way_to_write_a_load_hides_it) {
  static const char *const loads[] = {"; %1 = in 0 f32 [1,4]",      ";%1 = in 0 f32 [1,4]",
                                      ";  %1 = in 0 f32 [1,4]",     "; %1= in 0 f32 [1,4]",
                                      "; %1 =in 0 f32 [1,4]",       "; %1 =  in 0 f32 [1,4]",
                                      "; %1 = in  0 f32 [1,4]",     "; %1 = in\t0 f32 [1,4]",
                                      "; %1 = in 00 f32 [1,4]",     "; %1 = in +0 f32 [1,4]",
                                      "\n%1 = in 0 f32 [1,4]",      "; \n%1 = in 0 f32 [1,4]",
                                      "; % 1 = in 0 f32 [1,4]",     "; %01 = in 0 f32 [1,4]",
                                      "; %1 = in 0 f32 [8,1]  +16", "; %1 = in 0 f32 [8,1]\t+16",
                                      "; %1 = in 0 f32 [8,1] + 16", "; %1 = in 0 f32 [8,1]+16",
                                      "; %1 = in 0  bf16 [8,1]",    "; %1 = in 0 f32 [8,1] +016"};
  for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
    char body[256];
    snprintf(body, sizeof body,
             HEAD "%%0 = in 1 f32 [8,1]%s; %%2 = add %%0 %%1; out 0 f32 [8,1] %%2", loads[i]);
    if (inplace_loop(body, 0, 0)) test_fail(__FILE__, __LINE__, "hidden: %s", body);
  }
  CHECK(!inplace_loop("map [4]", 0, 0));
  CHECK(!inplace_loop("", 0, 0));
  CHECK(!inplace_loop("map [4];", 0, 0));
}
