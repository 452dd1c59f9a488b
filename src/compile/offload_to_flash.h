/* Internal to the offload stage: what goes to flash where the host has no room.  Decided before the
 * plan, by bytes, links and touches alone, so that all devices of a mesh decide alike. */
#ifndef COMPILE_OFFLOAD_TO_FLASH_H
#define COMPILE_OFFLOAD_TO_FLASH_H

#include "compile/offload_items.h"

/* Sends items of `bytes` in all that may be on either tier to flash. */
hp_status offload_to_flash(offload_items *x, uint64_t bytes);

#endif
