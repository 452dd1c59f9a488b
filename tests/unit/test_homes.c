/* Homes of named tensors: by the rule for their names, else by their class. */
#include "rt/device_mesh.h"
#include "step_case.h"
#include "test.h"

#include <string.h>
#include <sys/stat.h>

enum { STEPS = 3 };

static const char *disk(void) {
  static char at[512];
  snprintf(at, sizeof at, "%s/disk", test_dir());
  mkdir(at, 0700);
  return at;
}

/* A step with these rules; its device stays open. */
static void run(const hp_device_options *more, const char *const *pattern, const int *offload,
                int n, float *loss, step_case *s) {
  hp_device_options o = *more;
  const char *folder = disk();
  o.threads = 1;
  o.flash = &folder;
  o.n_flash = 1;
  o.flash_limit = 1 << 22;
  hp_device *d;
  CHECK_OK(hp_device_open(&o, &d));
  for (int i = 0; i < n; i++) CHECK_OK(hp_device_home(d, pattern[i], offload[i]));
  step_open_on(d, NULL, HP_F32, s);
  for (int i = 0; i < STEPS; i++) {
    step_run(s);
    loss[i] = s->loss;
  }
}

static int tier_of(const hp_device *d, const char *name) {
  uint32_t i;
  CHECK(device_find(d->member[0], name, &i));
  return d->member[0]->states.at[i].tier;
}

TEST(named_tensors_live_where_their_rules_say) {
  static const char *const pattern[] = {"adam_m.1", "adam_*", "q.*"};
  static const int offload[] = {HP_OFFLOAD_NONE, HP_OFFLOAD_FLASH, HP_OFFLOAD_HOST};
  float whole[STEPS], apart[STEPS];
  step_case s;
  run(&(hp_device_options){0}, NULL, NULL, 0, whole, &s);
  step_close(&s);
  run(&(hp_device_options){0}, pattern, offload, 3, apart, &s);
  CHECK_EQ(memcmp(whole, apart, sizeof whole), 0);
  CHECK_EQ(tier_of(s.d, "adam_m.1"), TIER_DEVICE);
  CHECK_EQ(tier_of(s.d, "adam_v.1"), TIER_FLASH);
  CHECK_EQ(tier_of(s.d, "adam_m.2"), TIER_FLASH);
  CHECK_EQ(tier_of(s.d, "q.0"), TIER_HOST);
  CHECK_EQ(tier_of(s.d, "k.0"), TIER_DEVICE);
  step_close(&s);
}

/* Params and optimizer state are cut as by data parallelism with zero 3, tensor parallelism, and
 * both. */
TEST(so_they_do_on_several_devices) {
  enum { CASES = 3, RULES = 4 };
  static const char *const pattern[] = {"adam_m.*", "adam_v.*", "q.*"};
  static const int offload[] = {HP_OFFLOAD_FLASH, HP_OFFLOAD_HOST, HP_OFFLOAD_HOST};
  static const char *const meshes[CASES] = {"(2)(dp)", "(2)(tp)", "(2,2)(dp,tp)"};
  static const hp_layout_rule rule[CASES][RULES] = {{{"ids", "(dp,None)"},
                                                     {"labels", "(dp,None)"},
                                                     {"q.*", "(dp,None)"},
                                                     {"adam_?.2", "(dp,None)"}},
                                                    {{"q.*", "(tp,None)"},
                                                     {"up.*", "(tp,None)"},
                                                     {"adam_?.2", "(tp,None)"},
                                                     {"adam_?.7", "(tp,None)"}},
                                                    {{"ids", "(dp,None)"},
                                                     {"labels", "(dp,None)"},
                                                     {"q.*", "(tp,dp)"},
                                                     {"adam_?.2", "(tp,dp)"}}};
  for (int k = 0; k < CASES; k++) {
    hp_device_options o = {.mesh = meshes[k], .layouts = rule[k], .n_layouts = RULES};
    float whole[STEPS], apart[STEPS];
    step_case s;
    run(&o, NULL, NULL, 0, whole, &s);
    step_close(&s);
    run(&o, pattern, offload, 3, apart, &s);
    CHECK_EQ(memcmp(whole, apart, sizeof whole), 0);
    CHECK_EQ(tier_of(s.d, "adam_m.2"), TIER_FLASH);
    CHECK_EQ(tier_of(s.d, "adam_v.2"), TIER_HOST);
    CHECK_EQ(tier_of(s.d, "q.0"), TIER_HOST);
    step_close(&s);
  }
}

TEST(a_rule_goes_before_the_class_of_a_tensor) {
  static const char *const pattern[] = {"up.0", "*"};
  static const int offload[] = {HP_OFFLOAD_HOST, HP_OFFLOAD_NONE};
  hp_device_options o = {.offload = {HP_OFFLOAD_FLASH, 0, HP_OFFLOAD_FLASH}};
  float whole[STEPS], apart[STEPS];
  step_case s;
  run(&(hp_device_options){0}, NULL, NULL, 0, whole, &s);
  step_close(&s);
  run(&o, pattern, offload, 2, apart, &s);
  CHECK_EQ(memcmp(whole, apart, sizeof whole), 0);
  CHECK_EQ(tier_of(s.d, "up.0"), TIER_HOST);
  CHECK_EQ(tier_of(s.d, "up.1"), TIER_DEVICE);
  CHECK_EQ(tier_of(s.d, "adam_m.0"), TIER_DEVICE);
  step_close(&s);
}

/* Under a limit that asks for all that may leave, what may not stays, and is in the refusal. */
TEST(what_a_rule_keeps_is_counted) {
  hp_device_options o = {.threads = 1, .plan_only = true, .memory_limit = 1};
  uint64_t least[2];
  memset(o.offload, HP_OFFLOAD_AUTO, sizeof o.offload);
  for (int k = 0; k < 2; k++) {
    hp_device *d;
    hp_program_stats s = {0};
    hp_graph *g = step_graph(HP_F32);
    CHECK_OK(hp_device_open(&o, &d));
    if (k) CHECK_OK(hp_device_home(d, "adam_*", HP_OFFLOAD_NONE));
    CHECK_EQ(hp_plan(g, d, NULL, &s), HP_ERR_OOM);
    least[k] = s.memory.planned_bytes;
    hp_graph_free(g);
    hp_device_close(d);
  }
  CHECK(least[1] > least[0] + 100000);
}

TEST(a_new_param_goes_to_the_nearest_tier_with_room) {
  hp_device *d;
  const char *folder = disk();
  hp_device_options o = {.threads = 1,
                         .memory_limit = 8192,
                         .host_limit = 8192,
                         .flash = &folder,
                         .n_flash = 1,
                         .flash_limit = 8192};
  static const char *const name[] = {"a", "b", "c", "d", "e", "f"};
  static const int tier[] = {0, 0, 1, 1, 2, 2};
  memset(o.offload, HP_OFFLOAD_AUTO, sizeof o.offload);
  CHECK_OK(hp_device_open(&o, &d));
  for (int i = 0; i < 6; i++) {
    CHECK_OK(hp_param_create(d, name[i], HP_F32, (hp_shape){1, {1024}}));
    CHECK_EQ(tier_of(d, name[i]), tier[i]);
  }
  CHECK_FAILS(hp_param_create(d, "g", HP_F32, (hp_shape){1, {1024}}),
              "on tier flash: the device's part of it has 8192 bytes");
  hp_device_close(d);
}

TEST(rules_for_homes_are_checked) {
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1}, &d));
  CHECK_FAILS(hp_device_home(d, "", HP_OFFLOAD_NONE), "hp_device_home: pattern is empty");
  CHECK_FAILS(hp_device_home(d, "*", 4), "offload is 4");
  CHECK_FAILS(hp_device_home(d, "*", -1), "offload is -1");
  CHECK_FAILS(hp_device_home(d, "*", HP_OFFLOAD_FLASH), "no folders of tier flash");
  hp_device_close(d);
  CHECK_FAILS(hp_device_open(&(hp_device_options){.offload = {9}}, &d), "offload[0] is 9");
  CHECK_FAILS(hp_device_open(&(hp_device_options){.offload = {0, HP_OFFLOAD_FLASH}}, &d),
              "offload[1] is HP_OFFLOAD_FLASH, and flash names no folder");
}
