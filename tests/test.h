/* Unit tests: TEST(sentence_that_holds) { CHECK...; }.  Each runs in a forked child with a time
 * limit, so that a crash or a hang is one failure.
 * `build/test-unit [-v] [-j tests at once] [part of a name or file]...`; what a test prints is
 * shown when it fails, or with -v. */
#ifndef TEST_H
#define TEST_H

#include "base/status.h"

#include <stdio.h>
#include <string.h>

void test_register(const char *file, const char *name, void (*fn)(void));
_Noreturn void test_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void test_skip(const char *why);
/* Path of a file under HYPER_DATA (default ../shared/data); skips the test when it is not there. */
const char *test_data(const char *relative);
/* A fresh folder of this test, removed after it. */
const char *test_dir(void);
/* A folder that all tests of this run share. */
const char *test_shared_dir(void);

#define TEST(name)                                                                                 \
  static void test_##name(void);                                                                   \
  __attribute__((constructor)) static void register_##name(void) {                                 \
    test_register(__FILE__, #name, test_##name);                                                   \
  }                                                                                                \
  static void test_##name(void)

#define CHECK(cond)                                                                                \
  do {                                                                                             \
    if (!(cond)) test_fail(__FILE__, __LINE__, "%s does not hold", #cond);                         \
  } while (0)
#define CHECK_EQ(a, b)                                                                             \
  do {                                                                                             \
    long long a_ = (long long)(a), b_ = (long long)(b);                                            \
    if (a_ != b_) test_fail(__FILE__, __LINE__, "%s = %lld, want %s = %lld", #a, a_, #b, b_);      \
  } while (0)
#define CHECK_STR(a, b)                                                                            \
  do {                                                                                             \
    const char *a_ = (a), *b_ = (b);                                                               \
    if (strcmp(a_, b_))                                                                            \
      test_fail(__FILE__, __LINE__, "%s is\n  \"%s\", want\n  \"%s\"", #a, a_, b_);                \
  } while (0)
/* |a - b| <= tol */
#define CHECK_NEAR(a, b, tol)                                                                      \
  do {                                                                                             \
    double a_ = (double)(a), b_ = (double)(b), t_ = (double)(tol);                                 \
    double d_ = a_ > b_ ? a_ - b_ : b_ - a_;                                                       \
    if (!(d_ <= t_))                                                                               \
      test_fail(__FILE__, __LINE__, "%s = %.9g, want %s = %.9g, off by %.3g > %.3g", #a, a_, #b,   \
                b_, d_, t_);                                                                       \
  } while (0)
#define CHECK_OK(call)                                                                             \
  do {                                                                                             \
    hp_status s_ = (call);                                                                         \
    if (s_) test_fail(__FILE__, __LINE__, "%s: %s\n%s", #call, err_message(), err_trace());        \
  } while (0)
/* call must fail, with `part` in its message; the failure is cleared. */
#define CHECK_FAILS(call, part)                                                                    \
  do {                                                                                             \
    hp_status s_ = (call);                                                                         \
    if (!s_) test_fail(__FILE__, __LINE__, "%s succeeded, want failure \"%s\"", #call, part);      \
    if (!strstr(err_message(), part))                                                              \
      test_fail(__FILE__, __LINE__, "%s says\n  \"%s\", want \"%s\" in it", #call, err_message(),  \
                part);                                                                             \
    err_clear();                                                                                   \
  } while (0)

#endif
