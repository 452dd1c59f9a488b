/* hp_fill: what the caller's function says of a failure is what the caller is told. */
#include "test.h"

#include "hyperparallel.h"

#include <string.h>

static const hp_shape rows = {2, {64, 16}};

typedef struct {
  hp_device *d;
  hp_status returns;
  bool looks, recovers, twice; /* for a param that is not there; goes on; and for another */
} script;

static hp_status fill(void *context, int64_t first, int64_t n, void *to) {
  const script *s = context;
  hp_dtype t;
  hp_shape shape;
  (void)first;
  memset(to, 0, (size_t)n * sizeof(float));
  if (s->looks && hp_param_find(s->d, "optional", &t, &shape) && !s->recovers) return HP_ERR_ARG;
  if (s->twice) return hp_param_find(s->d, "second", &t, &shape);
  if (s->recovers && s->returns) (void)hp_param_count(s->d);
  return s->returns;
}

static hp_device *open_with(int threads) {
  hp_device *d = NULL;
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = threads, .interpret = true}, &d));
  CHECK_OK(hp_param_create(d, "w", HP_F32, rows));
  return d;
}

static hp_status run(script s) { return hp_fill(s.d, "w", fill, &s); }

/* Each of the cases after each other: nothing of one is told of the next. */
TEST(a_fill_that_fails_is_told_and_one_that_recovers_is_not) {
  for (int threads = 1; threads <= 4; threads += 3) {
    hp_device *d = open_with(threads);
    for (int again = 0; again < 3; again++) {
      CHECK_EQ(run((script){.d = d, .returns = HP_ERR_INPUT}), HP_ERR_INPUT);
      CHECK(strstr(hp_last_error(), "the fill of param \"w\" returned \"bad input\""));
      CHECK(!strncmp(hp_error_trace(), hp_last_error(), strlen(hp_last_error())));
      err_clear();
      CHECK_EQ(run((script){.d = d, .looks = true, .recovers = true}), HP_OK);
      CHECK_STR(hp_last_error(), "");
      CHECK_STR(hp_error_trace(), "");
      CHECK_STR(err_message(), "");
      CHECK_EQ(run((script){.d = d, .looks = true}), HP_ERR_ARG);
      CHECK_STR(hp_last_error(), "the device has no param \"optional\"");
      err_clear();
      CHECK_EQ(run((script){.d = d, .looks = true, .recovers = true, .twice = true}), HP_ERR_ARG);
      CHECK_STR(hp_last_error(), "the device has no param \"second\"");
      CHECK(!strstr(hp_error_trace(), "optional"));
      err_clear();
      /* as hp_last_error has it: the call before it succeeded */
      CHECK_EQ(run((script){.d = d, .looks = true, .recovers = true, .returns = HP_ERR_ARG}),
               HP_ERR_ARG);
      CHECK(strstr(hp_last_error(), "the fill of param \"w\" returned \"bad argument\""));
      err_clear();
    }
    hp_device_close(d);
  }
}

TEST(a_fill_that_returns_no_status_is_a_bad_argument) {
  hp_device *d = open_with(1);
  CHECK_EQ(run((script){.d = d, .returns = (hp_status)99}), HP_ERR_ARG);
  CHECK_STR(hp_last_error(), "hp_fill: the fill of param \"w\" returned 99, which is no hp_status");
  err_clear();
  CHECK_EQ(run((script){.d = d, .returns = (hp_status)-1}), HP_ERR_ARG);
  CHECK(strstr(hp_last_error(), "returned -1"));
  err_clear();
  CHECK_EQ(run((script){.d = d}), HP_OK);
  CHECK_STR(hp_last_error(), "");
  hp_device_close(d);
}
