/* Internal to the offload stage: updates on the host (compile/host_update.h) as work of the host in
 * the input of mem/offload. */
#ifndef COMPILE_OFFLOAD_HOST_H
#define COMPILE_OFFLOAD_HOST_H

#include "compile/offload_items.h"

/* Sets on_host, before there are items. */
hp_status offload_host_find(offload_items *x, const offload_options *o);
/* Adds the work to the problem, which has items and touches. */
hp_status offload_host_list(offload_items *x, const offload_options *o);

#endif
