/* Names and fields of the op table (ops.def): what can be known without the meaning of an op. */
#ifndef IR_OP_H
#define IR_OP_H

#include "base/status.h"
#include "base/tier.h"

/* An index that no row has: of a row that another device holds, or that is left out. */
enum { ID_ELSEWHERE = INT32_MIN };

typedef enum {
  OP_NONE,
#define OP(id, ...) OP_##id,
#include "ir/ops.def"
#undef OP
  OP_COUNT
} op_id;

typedef enum { LIN_NONE, LIN_JOINT, LIN_EACH, LIN_FIRST, LIN_MOVE } op_linearity;
enum {
  OPF_DECOMPOSE = 1,
  OPF_ELEMENTWISE = 2,
  OPF_COLLECTIVE = 4,
  OPF_RENDEZVOUS = 8,
  OPF_TABLES = 16,
  OPF_MOVE = 32,    /* between memory tiers */
  OPF_TRANSFER = 64 /* between meshes */
};

typedef struct {
  const char *name;
  int in_min, in_max, n_out;
  const char *attrs; /* "key:kind key:kind" */
  const char *rule;
  op_linearity linearity;
  const char *flag_text;
  const char *doc;
} op_row;

extern const op_row op_table[OP_COUNT];

op_id op_find(const char *name, size_t n); /* OP_NONE when there is none */
unsigned op_flags(op_id op);
/* Results of a node of this op that has so many operands; -1: any number. */
int op_results(op_id op, int n_in);
/* The operand whose memory result 0 may take, -1: none. */
int op_inplace(op_id op);

#endif
