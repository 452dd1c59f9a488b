/* Collectives over the rendezvous of a communicator, of buffers that are memory of the host: what
 * each rank does with the regions that it sees. */
#ifndef COMM_HOST_COLLECTIVES_H
#define COMM_HOST_COLLECTIVES_H

#include "comm/comm.h"

comm_collective host_all_gather, host_all_reduce, host_reduce_scatter, host_all_to_all,
    host_permute, host_zigzag, host_dispatch, host_combine;
/* All of them, for a comm_iface. */
#define HOST_COLLECTIVES                                                                           \
  {                                                                                                \
    [COMM_ALL_GATHER] = host_all_gather, [COMM_ALL_REDUCE] = host_all_reduce,                      \
    [COMM_REDUCE_SCATTER] = host_reduce_scatter, [COMM_ALL_TO_ALL] = host_all_to_all,              \
    [COMM_PERMUTE] = host_permute, [COMM_ZIGZAG] = host_zigzag, [COMM_DISPATCH] = host_dispatch,   \
    [COMM_COMBINE] = host_combine                                                                  \
  }

#endif
