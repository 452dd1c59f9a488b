#include "test.h"

#include "rt/replicas.h"

#include <stdio.h>
#include <string.h>

static hp_device *opened(const char *text) {
  hp_device *d;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 2, .mesh = text}, &d));
  return d;
}

static void make(hp_device *d, const char *name, int64_t rows, int64_t cols) {
  static float values[4096];
  for (int i = 0; i < rows * cols; i++) values[i] = (float)i * 0.5f;
  CHECK_OK(hp_param_create(d, name, HP_F32, (hp_shape){2, {rows, cols}}));
  CHECK_OK(hp_write(d, name, values, (size_t)(rows * cols) * sizeof *values));
}

/* Flips one bit of what a device holds of the tensor. */
static void flip(hp_device *d, int at_device, const char *name, size_t byte) {
  uint32_t at;
  CHECK(device_find(d->member[at_device], name, &at));
  const state_tensor *t = &d->member[at_device]->states.at[at];
  CHECK(byte < t->bytes);
  ((unsigned char *)device_address(d->member[at_device], t))[byte] ^= 4;
}

TEST(replicas_that_are_equal_pass_and_one_device_has_none) {
  hp_device *d = opened(NULL);
  make(d, "w", 3, 5);
  CHECK_OK(hp_params_verify(d));
  flip(d, 0, "w", 7);
  CHECK_OK(hp_params_verify(d));
  hp_device_close(d);
  d = opened("(2,3)(dp,tp)");
  CHECK_OK(hp_params_verify(d));
  CHECK_OK(hp_device_layout(d, "cut.*", "(tp,None)", false));
  make(d, "w", 3, 5);
  make(d, "cut.w", 7, 5); /* padded */
  CHECK_OK(hp_params_verify(d));
  hp_device_close(d);
  CHECK_FAILS(hp_params_verify(NULL), "NULL");
}

TEST(a_flipped_bit_is_located_by_tensor_and_device) {
  hp_device *d = opened("(3,2)(dp,tp)");
  CHECK_OK(hp_device_layout(d, "cut.*", "(tp,None)", false));
  make(d, "before", 4, 4);
  make(d, "cut.w", 6, 8);
  flip(d, 3, "cut.w", 95); /* of tp 1, which devices 1, 3 and 5 hold */
  CHECK_FAILS(
      hp_params_verify(d),
      "\"cut.w\": device 3 holds other bits than 1, 5, though they are replicas of one shard");
  flip(d, 3, "cut.w", 95);
  CHECK_OK(hp_params_verify(d));
  for (int i = 0; i < 6; i++) {
    char want[64];
    snprintf(want, sizeof want, "\"before\": device %d holds other bits than ", i);
    flip(d, i, "before", 0);
    CHECK_FAILS(hp_params_verify(d), want);
    flip(d, i, "before", 0);
  }
  flip(d, 0, "before", 63);
  flip(d, 0, "cut.w", 0);
  CHECK_FAILS(hp_params_verify(d), "\"before\", and 1 more: device 0 ");
  hp_device_close(d);
}

TEST(of_two_replicas_both_are_named) {
  hp_device *d = opened("(2)(dp)");
  make(d, "w", 4, 4);
  flip(d, 1, "w", 9);
  CHECK(hp_params_verify(d) == HP_ERR_DEVICE);
  CHECK(strstr(hp_last_error(), "device 1 and 0 hold different bits") ||
        strstr(hp_last_error(), "device 0 and 1 hold different bits"));
  CHECK(strstr(hp_last_error(), "replicas of one shard"));
  err_clear();
  hp_device_close(d);
}

/* What is cut over all devices has no replicas: any bits will do. */
TEST(shards_without_replicas_are_not_compared) {
  hp_device *d = opened("(2)(dp)");
  CHECK_OK(hp_device_layout(d, "cut.*", "(dp,None)", false));
  make(d, "cut.w", 4, 4);
  flip(d, 1, "cut.w", 9);
  CHECK_OK(hp_params_verify(d));
  hp_device_close(d);
}
