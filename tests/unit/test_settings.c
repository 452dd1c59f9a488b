#include "test.h"

#include "train/settings.h"

#include <string.h>

/* The settings of a run, of which only some are given. */
static void have(run_settings *s, const char *name, const char *value, setting_kind kind) {
  CHECK(vec_push(&s->all, ((run_setting){name, value, kind})));
}

static tree parsed(const char *text) {
  tree t;
  CHECK_OK(json_parse(text, strlen(text), "MANIFEST.json", &t));
  return t;
}

TEST(a_manifest_without_settings_is_taken_to_be_the_same) {
  run_settings now = {0};
  train_config c = {0};
  tree state = parsed("{\"samples\": 3}"), model = parsed("{\"hidden_size\": 8}");
  have(&now, "learning_rate", "0.1", SETTING_NUMBER);
  CHECK_OK(settings_match(&now, &c, state.root, model.root, model.root, 5));
  CHECK_EQ(now.changes.len, 0);
  CHECK_OK(settings_match(&now, &c, state.root, NULL, model.root, 5));
  settings_free(&now);
  tree_free(&state);
  tree_free(&model);
}

TEST(what_differs_is_refused_told_or_noted) {
  static const char *const names[] = {"learning_rate", "model"};
  run_settings now = {0};
  train_config c = {0};
  tree state =
      parsed("{\"settings\": {\"learning_rate\": \"0.1\", \"seed\": \"1\", \"mesh\": \"a\"},"
             " \"changes\": [{\"step\": 2, \"name\": \"seed\", \"then\": \"0\", \"now\": \"1\"}]}");
  tree then = parsed("{\"eps\": 1e-5, \"dtype\": \"bfloat16\", \"gone\": null}");
  tree model = parsed("{\"eps\": 1e-6, \"dtype\": \"float32\"}");
  have(&now, "learning_rate", "0.2", SETTING_NUMBER);
  have(&now, "seed", "1", SETTING_NUMBER);
  have(&now, "mesh", "b", SETTING_TOLD);
  have(&now, "newer", "x", SETTING_NUMBER);
  CHECK_FAILS(settings_match(&now, &c, state.root, then.root, model.root, 5),
              "learning_rate 0.1 -> 0.2");
  c.is.resume_override = (train_names){names, 2};
  now.changes.len = 0;
  CHECK_OK(settings_match(&now, &c, state.root, then.root, model.root, 5));
  CHECK_EQ(now.changes.len, 4);
  CHECK_STR(now.changes.at[0].name, "seed");
  CHECK(settings_changed(&now, 5, "eps"));
  CHECK(settings_changed(&now, 5, "learning_rate"));
  CHECK(settings_changed(&now, 5, "mesh"));
  CHECK(!settings_changed(&now, 5, "seed"));
  str out = {0};
  json_writer w = {.out = &out};
  json_open_map(&w);
  settings_print(&now, &w);
  json_close(&w);
  CHECK(strstr(out.at, "\"learning_rate\": \"0.2\""));
  CHECK(strstr(out.at, "\"then\": \"0.1\""));
  str_free(&out);
  settings_free(&now);
  tree_free(&state);
  tree_free(&then);
  tree_free(&model);
}

TEST(damaged_changes_are_refused) {
  static const char *const bad[] = {"{\"changes\": 1}", "{\"changes\": [1]}",
                                    "{\"changes\": [{\"step\": 1}]}", "{\"settings\": []}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    run_settings now = {0};
    train_config c = {0};
    tree state = parsed(bad[i]);
    CHECK(settings_match(&now, &c, state.root, NULL, state.root, 5) == HP_ERR_INPUT);
    err_clear();
    settings_free(&now);
    tree_free(&state);
  }
}
