/* Layout rules of a device: the first that matches a name counts, be it a name or a pattern. */
#include "rt/device_mesh.h"
#include "test.h"

TEST(the_first_layout_rule_that_matches_a_name_counts) {
  static const hp_layout_rule rule[] = {{"a", "(dp,None)"},   {"x.*.w", "(None,dp)"},
                                        {"*.w", "(tp,None)"}, {"x.1.w", "(None,tp)"},
                                        {"a", "(tp,None)"},   {"*", "(None,None)"},
                                        {"b", "(dp,None)"}};
  /* name; the axis that cuts dim 0 and dim 1: 0 dp, 1 tp, -1 none */
  static const struct {
    const char *name;
    int axis[2];
  } want[] = {{"a", {0, -1}},
              {"x.1.w", {-1, 0}},
              {"y.w", {1, -1}},
              {"b", {-1, -1}},
              {"c", {-1, -1}}};
  hp_device_options o = {.mesh = "(2,2)(dp,tp)",
                         .layouts = rule,
                         .n_layouts = 7,
                         .plan_only = true};
  const ir_value type = {.dtype = HP_F32, .rank = 2, .dim = {8, 8}};
  hp_device *d;
  CHECK_OK(hp_device_open(&o, &d));
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    layout l;
    CHECK(device_mesh_declared(d, want[i].name, &type, &l));
    for (int k = 0; k < 2; k++)
      if ((l.n[k] ? l.axis[k][0] : -1) != want[i].axis[k])
        test_fail(__FILE__, __LINE__, "dim %d of \"%s\"", k, want[i].name);
  }
  hp_device_close(d);
}
