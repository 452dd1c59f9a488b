/* Memory tiers, near to far: attribute of fetch and offload, place of a program's buffers. */
#ifndef BASE_TIER_H
#define BASE_TIER_H

enum { TIER_DEVICE, TIER_HOST, TIER_FLASH, TIER_COUNT };
/* "device", "host", "flash". */
const char *tier_name(int tier);

#endif
