/* How the ranks of a job exchange data.
 *
 * A job has one `comm`: a row of a table of implementations, `local` or `mpi`.  A communicator is
 * an ordered set of ranks.  A rendezvous is matched by its communicator and its sequence number
 * there, a point-to-point transfer by the other rank and a tag: ranks that run unlike programs do
 * not disturb each other.  At a rendezvous each rank offers data, says which region of it every
 * member gets, and sees the regions of the others; it leaves when all have what they need.
 * Collectives are operations on buffers of the ranks' devices.  Where these are memory of the host
 * they are made of rendezvous (comm/host_collectives.h), so that `local` and `mpi` give the same
 * bits; another implementation may have its library's.  A rank is in one rendezvous or collective
 * at a time. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/status.h"

enum { COMM_MAX = 1024, COMM_LOCAL_MAX = 64 }; /* ranks of a job; of one process */
enum { COMM_TAG_MAX = 16383 };                 /* of point-to-point transfers, from 0 on */

/* `n` runs of `run` bytes, `stride` apart, from `start` on of what a member offers. */
typedef struct {
  int64_t start, stride, run, n;
} comm_region;

/* Such a region where it can be read: its own stride, for it may have been packed on its way. */
typedef struct {
  const char *at;
  int64_t stride;
} comm_view;

/* The instruction that a rank brings to a rendezvous or a transfer: all that take part must have
 * the same signature. */
enum { COMM_WHAT = 120 };
typedef struct {
  uint64_t signature;
  char what[COMM_WHAT]; /* for people: "all_reduce f32[8] in blk0.ffn" */
} comm_call;
/* The call of a text that must be the same on all ranks, and a place (NULL: none) that need not. */
comm_call comm_call_of(const char *text, const char *place);

typedef struct comm comm;

/* As one of its ranks has it; its memory is the comm's, and lives as long. */
typedef struct {
  comm *of;
  uint64_t id;       /* a hash of its ranks in their order: the same on all of them */
  uint64_t sequence; /* of the last rendezvous that this rank has come to; they begin with 1 */
  int64_t n, me;     /* me: place of this rank among them */
  const int64_t *rank;
} communicator;

/* A request of the transport between processes. */
typedef struct {
  uintptr_t id;
  int peer;
  bool done;
} comm_request;

/* What a message begins with, and what the two ends of a transfer know of each other. */
typedef struct {
  comm_call call;
  uint64_t communicator, sequence; /* of a rendezvous */
  int64_t bytes;                   /* of a transfer */
} comm_header;

/* A point-to-point transfer of one rank.  It stays where it is until comm_iface.wait has returned,
 * or the rank's program has ended; `data` and `call` too. */
enum { COMM_TRANSFER_MESSAGES = 5 };
typedef struct comm_transfer {
  bool sends;
  int64_t rank, peer, tag; /* rank: whose transfer it is */
  int64_t bytes;
  void *data;
  const comm_call *call;
  /* of the implementation */
  struct comm_transfer *next, *other; /* other: the other end, while it is there */
  bool matched, is_read, done;        /* `theirs` is known; `data` are being copied */
  uint64_t failures;                  /* of the peer when it was posted */
  int messages;
  comm_request request[COMM_TRANSFER_MESSAGES];
  comm_header own, theirs;
} comm_transfer;

typedef enum {
  COMM_ALL_GATHER,     /* all tensors joined along a dim, in the order of the communicator */
  COMM_ALL_REDUCE,     /* the reduction of all tensors */
  COMM_REDUCE_SCATTER, /* this member's shard of it along a dim */
  COMM_ALL_TO_ALL,     /* joined along `dim`, and of that this member's shard of `cut` */
  COMM_PERMUTE,        /* the tensor of another member */
  COMM_ZIGZAG, /* of a dim in 2n chunks, of which member i has 2i and 2i + 1: the i-th from the
                  front and the i-th from the back */
  COMM_COLLECTIVES
} comm_collective_kind;

/* How the values of all ranks become one.  In the order of the communicator, in f32 for 16-bit
 * floats, so every rank gets the same bits. */
typedef enum {
  COMM_REDUCE_SUM,
  COMM_REDUCE_AVG,
  COMM_REDUCE_MAX,
  COMM_REDUCE_MIN,
  COMM_REDUCE_PROD,
  COMM_REDUCE_AND
} comm_reduction;

/* What a rank brings to a collective, and what becomes of it. */
typedef struct {
  hp_dtype type;
  hp_shape shape;
  int dim; /* along which shards are joined, a reduction is cut, or chunks are dealt out */
  comm_reduction reduction;
  int64_t by;           /* permute: from the member so many places before, round the end */
  bool inverse;         /* zigzag: back again */
  int cut;              /* all_to_all: the dim that is cut, */
  const int64_t *place; /* and of each member: which shard of it is the member's */
} comm_tensor;

/* A collective of this rank's buffers `from` and `to`, which do not overlap, on a stream of its
 * device.  *met_s: when all members had come (time_now_s).  Fails as a rendezvous does. */
typedef hp_status comm_collective(communicator *c, const comm_call *call, const comm_tensor *t,
                                  const void *from, void *to, int stream, double *met_s);

typedef struct {
  const char *name;
  void (*close)(comm *c);
  /* (optional) Rendezvous to come give, and take, at most so many bytes: nothing is to be allocated
   * in them. */
  hp_status (*reserve)(comm *c, int64_t bytes);
  /* (optional) Bytes of the host's memory that it has for messages. */
  uint64_t (*buffer_bytes)(const comm *c);
  /* The communicator of these ranks as rank[me] has it, which is of this process; the same one when
   * it is asked for again.  No other rank takes part. */
  hp_status (*join)(comm *c, const int64_t *rank, int64_t n, int64_t me, communicator **out);
  /* (optional) Room for a rendezvous with these regions, which then asks for no memory; where
   * one member has no room, the others would wait for it. */
  hp_status (*prepare)(communicator *c, const comm_region *give, const comm_region *take);
  /* Before each rank of c that this process has runs a program: forgets their failures.  Between
   * processes a failure is for good, and for all communicators: messages may be under way that
   * nobody takes, so every later wait for what has not come fails with HP_ERR_COMM. */
  void (*begin)(communicator *c);
  /* That program of this rank has ended: those of c that still wait for the rank fail, and its
   * transfers are forgotten.  failed: it could not go on, and nobody who waits for it can. */
  void (*end)(communicator *c, bool failed);
  /* Shows `data` and waits for the others.  To member i goes region give[i] of `data`; seen[i] is
   * region take[i] of what member i shows, until `leave`.  HP_ERR_COMM when a member has failed;
   * HP_ERR_ARG, with both instructions, when the calls of two members differ. */
  hp_status (*rendezvous)(communicator *c, const comm_call *call, const void *data,
                          const comm_region *give, const comm_region *take, comm_view *seen);
  /* Waits until all members have read. */
  hp_status (*leave)(communicator *c);
  comm_collective *collective[COMM_COLLECTIVES];
  /* Begins a transfer.  The k-th send to a rank with a tag goes to its k-th receive from here with
   * that tag, whatever lies between; bytes and signatures must agree, else HP_ERR_ARG. */
  hp_status (*post)(comm *c, comm_transfer *t);
  /* Waits for it: the data of a send may change then, and those of a receive are there. */
  hp_status (*wait)(comm *c, comm_transfer *t);
} comm_iface;

/* An implementation begins with this. */
struct comm {
  const comm_iface *iface;
  int64_t ranks;      /* of the job */
  int64_t first, own; /* those of this process */
};

/* Ranks of one process, a thread each: nothing is copied for a rendezvous. */
hp_status comm_local_open(int64_t ranks, comm **out);

/* --- for implementations ---------------------------------------------------------------------- */

/* HP_ERR_ARG where ranks are none of the job, or come twice. */
hp_status comm_check_ranks(const comm *c, const int64_t *rank, int64_t n);
hp_status comm_check_transfer(const comm *c, const comm_transfer *t);
uint64_t comm_hash_ranks(const int64_t *rank, int64_t n);
bool comm_has_ranks(const communicator *c, const int64_t *rank, int64_t n, int64_t me);
/* The failure of members a and b of c, where b has another call than a, or is at rendezvous
 * `sequence`. */
hp_status comm_refuse_calls(const communicator *c, int64_t a, const comm_call *of_a, int64_t b,
                            const comm_call *of_b, uint64_t sequence);
/* Does a transfer agree with `theirs`, that of the other rank?  HP_ERR_ARG names both. */
hp_status comm_check_theirs(const comm_transfer *t);

#endif
