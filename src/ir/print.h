/* Text form of a graph, one node a line, printed and parsed; ids are stable across the round trip.
 *
 *   %3:f32[64,2048] = mul %1, %2 @"model.layers.0" block=1 phase=backward
 *   %5:f32[4,8,2,16], %6:f32[4,2,8] = attention %2, %3, %4 {scale=0.25, causal=1, window=0}
 *   output %5 {name="logits"}
 *
 * Attributes are written in the order of the op's row.  '#' starts a comment. */
#ifndef IR_PRINT_H
#define IR_PRINT_H

#include "ir/graph.h"

hp_status graph_print(const hp_graph *g, str *out);
/* Reads the text form; `name` is for messages, which name line and column.  Checks the structure
 * (ids, order, arity, attribute keys and kinds); shapes are checked by ops_verify. */
hp_status graph_parse(const char *text, size_t n, const char *name, hp_graph **out);
/* The same, then `check`, which says the node that is wrong: the message gets its line. */
typedef hp_status (*graph_check)(const hp_graph *g, uint32_t *node);
hp_status graph_parse_checked(const char *text, size_t n, const char *name, graph_check check,
                              hp_graph **out);
/* Attributes of a node as "{key=value, ...}", nothing when it has none. */
void graph_print_attrs(const hp_graph *g, const ir_node *n, str *out);
/* A quoted string with JSON escapes. */
void graph_print_string(const char *s, str *out);

#endif
