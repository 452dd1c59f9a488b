#include "base/tier.h"

const char *tier_name(int tier) {
  static const char *const name[TIER_COUNT] = {"device", "host", "flash"};
  return tier >= 0 && tier < TIER_COUNT ? name[tier] : "?";
}
