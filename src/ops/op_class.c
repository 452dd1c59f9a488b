#include "ops/op_class.h"

/* 1 + the class; 0: ops that are not listed. */
#define CLASS(op, name) [OP_##op] = 1 + COST_##name
static const uint8_t class_of[OP_COUNT] = {CLASS(EINSUM, PRODUCT),
                                           CLASS(EINSUMS, PRODUCT),
                                           CLASS(GROUPED_MATMUL, GROUPED),
                                           CLASS(GROUPED_MATMUL_GRAD, GROUPED),
                                           CLASS(CONV, CONV),
                                           CLASS(CONV_DX, CONV),
                                           CLASS(CONV_DW, CONV),
                                           CLASS(ATTENTION, ATTENTION),
                                           CLASS(ATTENTION_GRAD, ATTENTION_GRAD),
                                           CLASS(PAGED_ATTENTION, ATTENTION),
                                           CLASS(PAGED_PART, ATTENTION),
                                           CLASS(EMBEDDING, EMBEDDING),
                                           CLASS(EMBEDDING_GRAD, EMBEDDING),
                                           CLASS(CROSS_ENTROPY, LOSS),
                                           CLASS(CROSS_ENTROPY_GRAD, LOSS),
                                           CLASS(FUSED, LOOP_MAP),
                                           CLASS(COPY, COPY),
                                           CLASS(UPDATE, COPY),
                                           CLASS(PAGED_UPDATE, COPY),
                                           CLASS(TRANSPOSE, COPY),
                                           CLASS(SLICE, COPY),
                                           CLASS(CONCAT, COPY),
                                           CLASS(FETCH, TRANSFER),
                                           CLASS(OFFLOAD, TRANSFER),
                                           CLASS(PAGED_FETCH, TRANSFER),
                                           CLASS(PAGED_STORE, TRANSFER)};
#undef CLASS

cost_class op_class(op_id op) { return class_of[op] ? (cost_class)(class_of[op] - 1) : COST_OTHER; }
