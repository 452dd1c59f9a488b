/* The engines that can run a gemm_query, as rows of a table: ours, the libraries found on this
 * machine, and the scalar loop last.
 *
 * An engine is chosen by name, and the name is what a program's text records: nothing here measures
 * or guesses (engine_choose.c does), so a choice never changes behind a run.  Engines whose bits
 * are fixed (`exact`) give one FMA chain over k per element and are interchangeable; the others
 * round in their own way. */
#ifndef ENGINE_TABLE_H
#define ENGINE_TABLE_H

#include "backend/cpu/gemm/gemm.h"

typedef struct {
  const char *name;
  const char *about; /* a few words for `hyper doctor` and the docs */
  bool exact;        /* gives the bits of the scalar loop */
  /* The engine can be used on this machine: library found, instructions there. */
  bool (*available)(void);
  /* Of an engine that can be used: what its speed and its bits depend on beside the CPU. */
  const char *(*version)(void);
  /* The engine can run this query. */
  bool (*supports)(const gemm_query *q);
  /* Bytes of work memory, GEMM_ALIGN aligned, for a pool of that many threads. */
  size_t (*workspace)(const gemm_query *q, int threads);
  /* Runs a query that it supports.  One at a time per pool. */
  hp_status (*run)(const gemm_query *q, const gemm_args *args, pool *threads, void *work);
} gemm_engine;

/* The table, best first; *n rows. */
const gemm_engine *const *engine_rows(int *n);
/* The row with that name; HP_ERR_ARG lists the names, HP_ERR_UNSUPPORTED when this machine lacks
 * it. */
hp_status engine_find(const char *name, const gemm_engine **out);
/* What is used unless a program names another: the packed engine, for every query. */
const gemm_engine *engine_default(void);

extern const gemm_engine engine_packed, engine_onednn, engine_openblas, engine_scalar;

#endif
