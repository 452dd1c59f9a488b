/* Readable names of instructions and buffers: the kind of work and the place in the model.
 * Tables, traces, pictures and lists of buffers all use these names. */
#ifndef RT_INST_NAME_H
#define RT_INST_NAME_H

#include "rt/visible_keys.h"
#include "topo/mesh.h"

/* Kind, shape, place without layer numbers, engine, work.  m: NULL, or the mesh with the names
 * of axes; visible: the visible keys of attention, NULL: all. */
void inst_describe(const program *p, const mesh *m, const prog_inst *n, const visible_keys *visible,
                   hp_op_time *row);
/* "einsum dW model.layers.3.mlp.up_proj", "loop add+rms_norm model.layers.0.input_layernorm" */
void inst_print_name(const program *p, const mesh *m, const prog_inst *n, str *out);
/* The layer in the place in the model, or its block, from 0; -1: none. */
int inst_layer(const program *p, const prog_inst *n);
/* Its layer in words: the number in the place in the model and the word before it ("layers.3");
 * else the declared one ("block 3", as counted by hp_block); "": none. */
enum { PLACE_LAYER = 64 };
void inst_name_layer(const program *p, const prog_inst *n, char out[PLACE_LAYER]);

/* The instruction that writes each root buffer first, or has it as workspace; PROG_NONE: none.
 * mem_free. */
hp_status buffer_makers(const program *p, uint32_t **out);
/* A tensor's own name, or that of the instruction that computes it; a copy has the name of what it
 * is a copy of. */
void buffer_print_name(const program *p, const mesh *m, const uint32_t *maker, uint32_t buffer,
                       str *out);
/* The layer in its own name, or that of the instruction that computes it. */
void buffer_name_layer(const program *p, const uint32_t *maker, uint32_t buffer,
                       char out[PLACE_LAYER]);

#endif
