#include "base/place.h"

#include <fnmatch.h>
#include <string.h>

enum { LONGEST = 256 }; /* names of places are shorter: those of tensors have at most 160 */

/* The pattern is the module or its last components. */
static bool names(const char *pattern, const char *module) {
  for (const char *from = module; from; from = strchr(from, '.')) {
    from += *from == '.';
    if (!fnmatch(pattern, from, 0)) return true;
  }
  return false;
}

bool place_matches(const char *pattern, const char *place) {
  char module[LONGEST];
  for (size_t n = 0;; n++) {
    if (n == LONGEST) return false;
    module[n] = place[n];
    if (place[n] && place[n] != '.') continue;
    module[n] = 0;
    if (n && names(pattern, module)) return true;
    if (!place[n]) return false;
    module[n] = '.';
  }
}

bool place_matches_any(const char *const *pattern, const char *place) {
  for (; *pattern; pattern++)
    if (place_matches(*pattern, place)) return true;
  return false;
}
