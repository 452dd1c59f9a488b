/* Lifetimes of values as text and JSON: chains of definitions and uses, what is moved between
 * tiers, and why. */
#ifndef RT_EXPLAIN_CHAIN_H
#define RT_EXPLAIN_CHAIN_H

#include "base/json.h"
#include "rt/device.h"
#include "rt/value_chain.h"

/* The values of a program, with what names them. */
typedef struct {
  const program *p;
  const mesh *on;
  const inst_times *t;
  uint32_t *writer; /* by root buffer: the instruction that writes it first */
  value_chains c;
} chain_view;

/* t: of a run, measured or predicted.  chain_view_free(out), also after a failure. */
hp_status chain_view_make(const program *p, const mesh *on, const inst_times *t, chain_view *out);
void chain_view_free(chain_view *v);
/* Its name: of the named tensor, input or output, or of the instruction that makes it. */
void chain_print_name(const chain_view *v, const value_chain *c, str *out);
/* Where it lives, and in how many of its gaps it is away from the device: "host in 2 of 5 gaps". */
void chain_print_decision(const chain_view *v, const value_chain *c, str *out);

/* The chains of the values of that name, or, if there are none, of all whose name or place in the
 * model matches the pattern, in which * and ? stand for any text and any character.  HP_ERR_ARG
 * with the nearest name if there is none. */
hp_status explain_chains(const program *p, const mesh *on, const inst_times *t, const char *pattern,
                         str *out);
hp_status explain_chains_json(const program *p, const mesh *on, const inst_times *t,
                              const char *pattern, str *out);

#endif
