/* The engines that can run a gemm_query, as rows of a table: ours, the libraries found on this
 * machine, and the scalar loop last.
 *
 * An engine is chosen by name, and a program's text records the name: nothing here measures
 * (engine_choose.c does), so a choice never changes unnoticed.  Engines with fixed bits
 * (`exact`) compute one FMA chain over k per element and are interchangeable; the others round
 * differently. */
#ifndef ENGINE_TABLE_H
#define ENGINE_TABLE_H

#include "backend/cpu/gemm/gemm.h"

typedef struct {
  const char *name;
  const char *about; /* a few words for `hyper doctor` and the docs */
  bool exact;        /* gives the bits of the scalar loop */
  /* Is the engine usable on this machine: library found, instructions available? */
  bool (*available)(void);
  /* What its speed and its bits depend on besides the CPU; for a usable engine. */
  const char *(*version)(void);
  /* Can the engine run this query? */
  bool (*supports)(const gemm_query *q);
  /* Bytes of work memory, GEMM_ALIGN aligned, for a pool of that many threads. */
  size_t (*workspace)(const gemm_query *q, int threads);
  /* Runs a query that it supports.  One at a time per pool. */
  hp_status (*run)(const gemm_query *q, const gemm_args *args, pool *threads, void *work);
} gemm_engine;

/* The table, best first; *n rows. */
const gemm_engine *const *engine_rows(int *n);
/* The row with that name; HP_ERR_ARG lists the names, HP_ERR_UNSUPPORTED if this machine lacks
 * it. */
hp_status engine_find(const char *name, const gemm_engine **out);
/* The default: the packed engine, for every query. */
const gemm_engine *engine_default(void);

extern const gemm_engine engine_packed, engine_onednn, engine_openblas, engine_scalar;

#endif
