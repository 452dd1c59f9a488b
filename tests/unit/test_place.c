/* Places of a model and the patterns that name them (base/place.h). */
#include "base/place.h"

#include "test.h"

#include <string.h>

TEST(a_pattern_names_a_module_or_its_last_components_and_all_inside) {
  CHECK(place_matches("model.layers.0.mlp", "model.layers.0.mlp"));
  CHECK(place_matches("mlp", "model.layers.0.mlp"));
  CHECK(place_matches("0.mlp", "model.layers.0.mlp.down_proj"));
  CHECK(place_matches("layers.1", "model.layers.1.self_attn.q_proj"));
  CHECK(place_matches("model", "model"));
  CHECK(place_matches("model.layers.[0-3]", "model.layers.3.mlp"));
  CHECK(place_matches("*attn", "model.layers.0.self_attn.q_proj"));
  CHECK(place_matches("model.*.mlp", "model.layers.0.mlp"));
  CHECK(place_matches("layers.?", "model.layers.7"));
}

TEST(a_pattern_names_no_part_of_a_component_and_nothing_outside) {
  CHECK(!place_matches("layers.1", "model.layers.10.mlp"));
  CHECK(!place_matches("layers.0", "model.layers.10.mlp"));
  CHECK(!place_matches("1", "model.layers.10"));
  CHECK(!place_matches("0", "model.layers.10"));
  CHECK(!place_matches("self", "model.layers.0.self_attn"));
  CHECK(!place_matches("attn", "model.layers.0.self_attn"));
  CHECK(!place_matches("mlp", "model.layers.0.mlp_norm"));
  CHECK(!place_matches("model.layers.[0-3]", "model.layers.12.mlp"));
  CHECK(!place_matches("layers.?", "model.layers.17"));
  CHECK(!place_matches("mlp.up_proj", "model.layers.0.mlp"));
  CHECK(!place_matches("layers.mlp", "model.layers.0.mlp"));
  CHECK(!place_matches("", "model.layers.0"));
  CHECK(!place_matches("mlp", ""));
}

TEST(one_pattern_of_a_list_is_enough) {
  const char *const list[] = {"mlp", "layers.2", NULL};
  CHECK(place_matches_any(list, "model.layers.0.mlp.up_proj"));
  CHECK(place_matches_any(list, "model.layers.2.self_attn"));
  CHECK(!place_matches_any(list, "model.layers.1.self_attn"));
  CHECK(!place_matches_any(list + 2, "model.layers.0.mlp"));
}

TEST(a_place_of_any_length_is_compared) {
  enum { LENGTH = 400 };
  char place[LENGTH + 1];
  memset(place, 'x', LENGTH);
  place[LENGTH] = 0;
  CHECK(!place_matches("y*", place));
  place[3] = '.';
  CHECK(place_matches("xxx", place));
  CHECK(!place_matches("xx", place));
}
