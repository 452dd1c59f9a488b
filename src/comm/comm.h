/* How the ranks of a job exchange data.
 *
 * A job has one `comm`, of one of the implementations `local` and `mpi`.  A communicator is an
 * ordered set of ranks, its members.  A rendezvous is matched by communicator and sequence number,
 * a point-to-point transfer by the other rank and a tag, so ranks that run different programs do
 * not disturb each other.  At a rendezvous each rank offers data, says which region of it every
 * member gets, reads the regions of the others, and leaves when all have read.  Collectives are
 * operations on buffers of the ranks' devices and a stream.  In host memory they are built from
 * rendezvous (comm/host_collectives.h), so `local` and `mpi` give the same bits; another
 * implementation may call a library on memory of its devices (`memory_of`).  A rank is in one
 * rendezvous or collective at a time. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "base/status.h"

enum { COMM_MAX = 1024, COMM_LOCAL_MAX = 64 }; /* ranks of a job; of one process */
enum { COMM_TAG_MAX = 16383 };                 /* of point-to-point transfers, from 0 on */

/* A region of the data that a member offers: n runs of `run` bytes, `stride` bytes apart, the first
 * at byte `start`.  row not NULL: run k is at start + row[k] * stride. */
typedef struct {
  int64_t start, stride, run, n;
  const int32_t *row;
} comm_region;

/* Where the region of another member can be read.  Its stride and rows may differ from the
 * region's, because messages are packed. */
typedef struct {
  const char *at;
  int64_t stride;
  const int32_t *row;
} comm_view;

static inline const char *comm_view_run(const comm_view *v, int64_t k) {
  return v->at + (v->row ? v->row[k] : k) * v->stride;
}

/* The instruction that a rank runs at a rendezvous or transfer: all ranks that take part must have
 * the same signature. */
enum { COMM_WHAT = 120 };
typedef struct {
  uint64_t signature;
  char what[COMM_WHAT]; /* for people: "all_reduce f32[8] in blk0.ffn" */
} comm_call;
/* text must be the same on all ranks; place, for people, need not be (NULL: none). */
comm_call comm_call_of(const char *text, const char *place);

typedef struct comm comm;

/* A communicator from the view of one member.  It belongs to the comm and lives as long. */
typedef struct {
  comm *of;
  uint64_t id;       /* a hash of its ranks in their order: the same on all members */
  uint64_t sequence; /* number of the last rendezvous at which this rank arrived; 1 is the first */
  int64_t n, me;     /* members; place of this rank among them */
  const int64_t *rank; /* of each member */
} communicator;

/* A request of the transport between processes. */
typedef struct {
  uintptr_t id;
  int peer;
  bool done, taken; /* taken: whoever waits has seen that it is done */
} comm_request;

/* The start of every message; the two ends of a transfer compare theirs. */
typedef struct {
  comm_call call;
  uint64_t communicator, sequence; /* of a rendezvous */
  int64_t bytes;                   /* of a transfer */
} comm_header;

/* One end of a point-to-point transfer.  The struct, `data` and `call` must stay valid until
 * comm_iface.wait has returned or the rank's program has ended. */
enum { COMM_TRANSFER_MESSAGES = 5 };
typedef struct comm_transfer {
  bool sends;
  int64_t rank, peer, tag; /* this end; the other end */
  int64_t bytes;
  void *data;
  const comm_call *call;
  /* for the implementation */
  struct comm_transfer *next, *other; /* other: the other end, while it exists */
  bool matched, is_read, done;        /* `theirs` is known; `data` are being copied; finished */
  uint64_t failures;                  /* of the peer, at the time of comm_iface.post */
  int messages;
  comm_request request[COMM_TRANSFER_MESSAGES];
  comm_header own, theirs;
} comm_transfer;

typedef enum {
  COMM_ALL_GATHER,     /* the tensors of all members, concatenated along `dim` in their order */
  COMM_ALL_REDUCE,     /* the reduction of the tensors of all members */
  COMM_REDUCE_SCATTER, /* this member's shard of the reduction along `dim` */
  COMM_ALL_TO_ALL,     /* concatenated along `dim`; of the result this member's shard of `cut` */
  COMM_PERMUTE,        /* the tensor of member (me - by) mod n */
  COMM_ZIGZAG,   /* `dim` has 2n chunks, of which member i holds 2i and 2i + 1; afterwards it holds
                    the i-th from the front and the i-th from the back */
  COMM_DISPATCH, /* all_gather of the rows that a member needs; its other rows become 0 */
  COMM_COMBINE,  /* reduce_scatter, by sum, of tensors whose other rows are 0 */
  COMM_COLLECTIVES
} comm_collective_kind;

/* A reduction combines the values in the order of the members, 16-bit floats in f32, so every
 * member gets the same bits. */
typedef enum {
  COMM_REDUCE_SUM,
  COMM_REDUCE_AVG,
  COMM_REDUCE_MAX,
  COMM_REDUCE_MIN,
  COMM_REDUCE_PROD,
  COMM_REDUCE_AND
} comm_reduction;

/* Which rows a member needs: those with an id whose expert it has.  The first dims of a tensor
 * number its rows, and `ids` has all rows along `dim`: of the result of a dispatch, of the operand
 * of a combine.  They are the same on all members, so each knows what every other one sends. */
typedef struct {
  const int32_t *ids;
  int dims;                    /* that number rows */
  int64_t slots;               /* ids of a row */
  int64_t experts, shards;     /* experts of a shard; shards of the experts */
  const int32_t *shard_group;  /* of each shard of the experts, */
  const int32_t *member_group; /* and the group of shards that a member, or those that it passes the
                                  rows on to, has */
  int32_t *room;               /* scratch, two for each row of `ids`: a run allocates nothing */
  int64_t received;            /* result: bytes of rows that came from other members */
} comm_rows;

/* The tensor that a rank gives to a collective, and the parameters of the collective. */
typedef struct {
  hp_dtype type;
  hp_shape shape;
  int dim; /* along which shards are concatenated, the reduction is split, or chunks are moved */
  comm_reduction reduction;
  int64_t by;           /* permute: receive from member (me - by) mod n */
  bool inverse;         /* zigzag: from zigzag order to natural order */
  int cut;              /* all_to_all: the dim that is split afterwards; */
  const int64_t *place; /* place[i]: the shard of it that member i gets */
  comm_rows *rows;      /* of dispatch and combine */
} comm_tensor;

/* Runs a collective from buffer `from` to buffer `to` of this rank's device, which do not overlap,
 * on that stream of the device.  *arrived_s: the time (time_now_s) at which the last member
 * arrived. Fails as a rendezvous does. */
typedef hp_status comm_collective(communicator *c, const comm_call *call, const comm_tensor *t,
                                  const void *from, void *to, int stream, double *arrived_s);

typedef struct {
  const char *name;
  /* The backend whose memory its collectives take, by addresses of tier device; NULL: they take
   * memory of the host, to which the runtime copies what lies elsewhere.  Rendezvous and transfers
   * are always of memory of the host. */
  const char *memory_of;
  void (*close)(comm *c);
  /* (optional) Later rendezvous send and receive at most so many bytes: allocates the buffers now,
   * so that a rendezvous allocates nothing. */
  hp_status (*reserve)(comm *c, int64_t bytes);
  /* (optional) Bytes of host memory of its message buffers. */
  uint64_t (*buffer_bytes)(const comm *c);
  /* The communicator of these ranks from the view of rank[me], which is of this process.  A second
   * call returns the same one.  Local: no other rank takes part. */
  hp_status (*join)(comm *c, const int64_t *rank, int64_t n, int64_t me, communicator **out);
  /* (optional) Allocates what a rendezvous with these regions needs.  A member that ran out of
   * memory in the rendezvous itself would leave the others waiting. */
  hp_status (*prepare)(communicator *c, const comm_region *give, const comm_region *take);
  /* Called before the ranks of c in this process run a program: clears their failures.  Between
   * processes a failure is permanent and affects all communicators, because messages may remain
   * that nobody receives: every later wait for missing data fails with HP_ERR_COMM. */
  void (*begin)(communicator *c);
  /* Called when the program of this rank has ended: members of c that still wait for this rank
   * fail, and its transfers are dropped.  failed: the program failed, so every rank that waits for
   * this one fails, in any communicator. */
  void (*end)(communicator *c, bool failed);
  /* Offers `data` and waits for all members.  Member i may read region give[i] of it; seen[i] is
   * region take[i] of the data of member i, valid until `leave`.  HP_ERR_COMM if a member has
   * failed; HP_ERR_ARG, naming both instructions, if the calls of two members differ. */
  hp_status (*rendezvous)(communicator *c, const comm_call *call, const void *data,
                          const comm_region *give, const comm_region *take, comm_view *seen);
  /* Waits until all members have read. */
  hp_status (*leave)(communicator *c);
  comm_collective *collective[COMM_COLLECTIVES];
  /* Starts a transfer.  The k-th send to a rank with a tag matches the k-th receive there from this
   * rank with this tag, whatever other transfers are between them.  Their bytes and signatures must
   * agree, else HP_ERR_ARG. */
  hp_status (*post)(comm *c, comm_transfer *t);
  /* Waits until it is complete: then the data of a send may change, and those of a receive are
   * there. */
  hp_status (*wait)(comm *c, comm_transfer *t);
} comm_iface;

/* The first field of every implementation's struct. */
struct comm {
  const comm_iface *iface;
  int64_t ranks;      /* of the job */
  int64_t first, own; /* those of this process */
};

/* The ranks of one process, one thread each; a rendezvous copies nothing. */
hp_status comm_local_open(int64_t ranks, comm **out);

/* --- for implementations ---------------------------------------------------------------------- */

/* HP_ERR_ARG if a rank is not of the job, or occurs twice. */
hp_status comm_check_ranks(const comm *c, const int64_t *rank, int64_t n);
hp_status comm_check_transfer(const comm *c, const comm_transfer *t);
uint64_t comm_hash_ranks(const int64_t *rank, int64_t n);
bool comm_has_ranks(const communicator *c, const int64_t *rank, int64_t n, int64_t me);
/* The failure when the calls of members a and b of c differ.  sequence: the rendezvous at which b
 * is. */
hp_status comm_refuse_calls(const communicator *c, int64_t a, const comm_call *of_a, int64_t b,
                            const comm_call *of_b, uint64_t sequence);
/* HP_ERR_ARG, naming both instructions, if the two ends of a transfer do not agree. */
hp_status comm_check_theirs(const comm_transfer *t);

#endif
