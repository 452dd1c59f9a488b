/* Memory limits as users write them. */
#include "train/memory_limit.h"

#include "test.h"

TEST(a_memory_limit_is_bytes_or_a_share) {
  static const struct {
    const char *text;
    double percent; /* 0: bytes */
    uint64_t bytes; /* of 12345678901 resident ones */
  } good[] = {{"1", 0, 1},
              {"4GiB", 0, UINT64_C(4) << 30},
              {"1%", 1, 123456789},
              {"50%", 50, 6172839450},
              {"12.5 %", 12.5, 1543209862},
              {"99.9999%", 99.9999, 12345666555},
              {"100%", 100, 12345678901}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    uint64_t x = 0;
    CHECK(memory_limit_parse(good[i].text, &x));
    CHECK_EQ(memory_limit_is_share(x), good[i].percent > 0);
    if (!good[i].percent) {
      CHECK_EQ(memory_limit_bytes(x), good[i].bytes);
      continue;
    }
    CHECK_EQ(memory_limit_bytes(x), 0);
    CHECK(memory_limit_percent(x) == good[i].percent);
    CHECK_EQ(memory_limit_resolve(x, 12345678901), good[i].bytes);
  }
}

TEST(what_is_no_memory_limit_is_refused) {
  static const char *const bad[] = {"",      "%",    "0%",
                                    "0.5%",  "101%", "100.001%",
                                    "50 %%", "50%%", "x%",
                                    "-50%",  "50%x", "5.0.0%",
                                    "50% 1", "1e1%", " 50%",
                                    "0",     "-1",   "16 GiX",
                                    "nan%",  "inf%", "0000000000000000000000000000000050%"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    uint64_t x = 7;
    if (memory_limit_parse(bad[i], &x)) test_fail(__FILE__, __LINE__, "\"%s\" is one", bad[i]);
    CHECK_EQ(x, 7);
  }
}

/* No share of few bytes is 0, which would be no limit; none of many overflows. */
TEST(a_share_of_any_size_is_a_limit) {
  uint64_t x;
  CHECK(memory_limit_parse("1%", &x));
  CHECK_EQ(memory_limit_resolve(x, 0), 1);
  CHECK_EQ(memory_limit_resolve(x, 99), 1);
  CHECK_EQ(memory_limit_resolve(x, 200), 2);
  CHECK(memory_limit_parse("100%", &x));
  CHECK_EQ(memory_limit_resolve(x, INT64_MAX), INT64_MAX);
  CHECK(memory_limit_parse("50%", &x));
  CHECK_EQ(memory_limit_resolve(x, INT64_MAX), INT64_MAX / 2);
}
