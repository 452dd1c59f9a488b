#include "backend/cpu/cpu_kernel.h"

const cpu_kernel cpu_kernels[OP_COUNT] = {
    [OP_FUSED] = {plan_fused, run_fused},
    [OP_EINSUM] = {plan_einsum, run_einsum},
    [OP_ATTENTION] = {plan_attention, run_attention},
    [OP_ATTENTION_GRAD] = {plan_attention_grad, run_attention_grad},
    [OP_COPY] = {NULL, run_copy},
    [OP_FETCH] = {NULL, run_copy},
    [OP_OFFLOAD] = {NULL, run_copy},
    [OP_UPDATE] = {NULL, run_update},
    [OP_PAD] = {NULL, run_pad},
    [OP_CONCAT] = {NULL, run_concat},
    [OP_EMBEDDING] = {NULL, run_embedding},
    [OP_EMBEDDING_GRAD] = {plan_embedding_grad, run_embedding_grad},
    [OP_ROPE] = {NULL, run_rope},
    [OP_CROSS_ENTROPY] = {NULL, run_cross_entropy},
    [OP_CROSS_ENTROPY_GRAD] = {NULL, run_cross_entropy_grad},
    [OP_ARGMAX] = {NULL, run_argmax},
    [OP_SUM_SQ] = {plan_sum_sq, run_sum_sq},
    [OP_UNIFORM] = {NULL, run_random},
    [OP_NORMAL] = {NULL, run_random},
};
