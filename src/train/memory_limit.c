#include "train/memory_limit.h"

#include "base/log.h"
#include "base/str.h"

#include <string.h>

bool memory_size_parse(const char *text, uint64_t *out) {
  static const struct {
    const char *name;
    double bytes;
  } unit[] = {{"", 1},
              {"B", 1},
              {"K", 1024.0},
              {"KB", 1e3},
              {"KiB", 1024.0},
              {"M", 1048576.0},
              {"MB", 1e6},
              {"MiB", 1048576.0},
              {"G", 1073741824.0},
              {"GB", 1e9},
              {"GiB", 1073741824.0},
              {"T", 1099511627776.0},
              {"TB", 1e12},
              {"TiB", 1099511627776.0}};
  size_t n = strspn(text, "0123456789.");
  char number[32];
  if (!n || n >= sizeof number) return false;
  memcpy(number, text, n);
  number[n] = 0;
  double x;
  if (!str_to_f64(number, &x)) return false;
  const char *rest = text + n + strspn(text + n, " ");
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (!strcmp(rest, unit[i].name)) {
      double bytes = x * unit[i].bytes;
      if (!(bytes >= 1 && bytes < 9e18)) return false;
      *out = (uint64_t)bytes;
      return true;
    }
  return false;
}

/* A share is in parts of a million; limits in bytes are below 9e18, and so below SHARE. */
#define SHARE (UINT64_C(1) << 63)
enum { PER_PERCENT = 10000 };

bool memory_limit_parse(const char *text, uint64_t *out) {
  size_t n = strspn(text, "0123456789."), rest = n + strspn(text + n, " ");
  char number[32];
  double percent;
  if (strcmp(text + rest, "%")) return memory_size_parse(text, out);
  if (!n || n >= sizeof number) return false;
  memcpy(number, text, n);
  number[n] = 0;
  if (!str_to_f64(number, &percent) || !(percent >= 1 && percent <= 100)) return false;
  *out = SHARE | (uint64_t)(percent * PER_PERCENT + 0.5);
  return true;
}

bool memory_limit_is_share(uint64_t limit) { return limit & SHARE; }

uint64_t memory_limit_bytes(uint64_t limit) { return memory_limit_is_share(limit) ? 0 : limit; }

double memory_limit_percent(uint64_t limit) { return (double)(limit & ~SHARE) / PER_PERCENT; }

uint64_t memory_limit_resolve(uint64_t limit, uint64_t resident) {
  enum { ALL = 100 * PER_PERCENT };
  uint64_t parts = limit & ~SHARE;
  uint64_t bytes = resident / ALL * parts + resident % ALL * parts / ALL;
  if (!bytes) bytes = 1; /* 0 would be none */
  log_info("memory_limit: %g%% of %llu resident bytes are %llu bytes", memory_limit_percent(limit),
           (unsigned long long)resident, (unsigned long long)bytes);
  return bytes;
}
