/* What instructions and buffers are called, for people: the kind of work and the place in the
 * model. One name for one thing: tables, traces, pictures and lists of buffers all ask here. */
#ifndef RT_INST_NAME_H
#define RT_INST_NAME_H

#include "rt/visible_keys.h"
#include "topo/mesh.h"

/* Kind, shape, place without the numbers of layers, engine, work.  m: NULL, or names the axes of
 * collectives; visible: what attention saw of its keys, NULL: all. */
void inst_describe(const program *p, const mesh *m, const prog_inst *n, const visible_keys *visible,
                   hp_op_time *row);
/* "einsum dW model.layers.3.mlp.up_proj", "loop add+rms_norm model.layers.0.input_layernorm" */
void inst_print_name(const program *p, const mesh *m, const prog_inst *n, str *out);
/* The layer that the place in the model names, or the repeated part that it is in, from 0; -1:
 * none.
 */
int inst_layer(const program *p, const prog_inst *n);
/* Its layer in words: the number that the place in the model names, with the word before it
 * ("layers.3"); else the declared one ("block 3", counted as hp_block does); "": none. */
enum { PLACE_LAYER = 64 };
void inst_name_layer(const program *p, const prog_inst *n, char out[PLACE_LAYER]);

/* The instruction that writes each root buffer first, or works in it; PROG_NONE: none does.
 * mem_free. */
hp_status buffer_makers(const program *p, uint32_t **out);
/* A tensor's own name, or that of the instruction that makes it. */
void buffer_print_name(const program *p, const mesh *m, const uint32_t *maker, uint32_t buffer,
                       str *out);
/* The layer that its own name tells, or that of the instruction that makes it. */
void buffer_name_layer(const program *p, const uint32_t *maker, uint32_t buffer,
                       char out[PLACE_LAYER]);

#endif
