/* The share of its own limits that a device reaches, by kind of work: the key `costs` of a cluster
 * file, with optional keys.
 *
 *   costs:
 *     flops_bf16: 2e12               # left out: those of the device
 *     launch_us: 3                   # of every instruction, before its work begins
 *     cache_mb: 32                   # work on fewer bytes has the cache's bandwidth
 *     cache_bandwidth_gb_s: 200
 *     efficiency:                    # share of the limit; below: for work smaller than this
 *     - {op: product, dtype: f32, below: 64, of_limit: 0.4}
 *     - {op: product, dtype: f32, of_limit: 0.9}
 *
 * The size of work is the smallest of the three dims of a product, the queries per sequence of
 * attention, and bytes for all other work.  Work that is larger than all rows of its kind uses
 * the last one. */
#ifndef TOPO_COST_TABLE_H
#define TOPO_COST_TABLE_H

#include "base/str.h"
#include "base/tree.h"

typedef enum {
  COST_PRODUCT,
  COST_GROUPED, /* products of experts */
  COST_CONV,
  COST_ATTENTION,
  COST_ATTENTION_GRAD,
  COST_EMBEDDING,
  COST_LOSS,     /* cross entropy and its gradient */
  COST_LOOP_MAP, /* fused loops, by their kind */
  COST_LOOP_ROW,
  COST_LOOP_COL,
  COST_COPY,     /* on the device */
  COST_TRANSFER, /* between device and host */
  COST_FLASH,    /* to and from flash */
  COST_OTHER,
  COST_CLASSES
} cost_class;

enum { COST_ROWS = 256 };

typedef struct {
  uint8_t op; /* cost_class */
  bool bf16;
  double below; /* INFINITY: of any size */
  double of_limit;
} cost_entry;

typedef struct {
  double flops_bf16, launch_us, cache_mb, cache_gb_s; /* 0: not given */
  int rows;                                           /* sorted */
  cost_entry row[COST_ROWS];
} cost_table;

/* Work, the key of the table.  Bytes of a copy between tiers are those that are moved. */
typedef struct {
  cost_class op;
  bool bf16;
  double flops, bytes, size;
  int from, to;    /* of a copy: tiers, */
  int64_t devices; /* and how many of a node copy at once; 0: one */
} cost_work;

/* n NULL: an empty table.  HP_ERR_INPUT with file, line and key. */
hp_status cost_table_read(const tree_node *n, cost_table *out);
/* The key of the file; nothing for an empty table. */
void cost_table_print(const cost_table *t, str *out);
/* The share of the limit that work reaches; 1 if no row has its kind. */
double cost_table_find(const cost_table *t, const cost_work *w);
/* Sets the row of this kind and `below`, replacing an existing one; false if the table is full. */
bool cost_table_set(cost_table *t, cost_entry row);
/* The row of this kind and `below`, or NULL. */
const cost_entry *cost_table_row(const cost_table *t, cost_class op, bool bf16, double below);

#endif
