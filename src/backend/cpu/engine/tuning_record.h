/* Which engine runs which product, as it was measured: a table from the text of a product to a row
 * of engine_table.h.
 *
 * The text form, "PRODUCT = ENGINE" a line, is what checkpoints hold, what processes tell one
 * another and what the cache on disk keeps.  A product is only ever compared, never read back: any
 * text is harmless, as an engine that cannot run a product is not asked to. */
#ifndef TUNING_RECORD_H
#define TUNING_RECORD_H

#include "backend/cpu/engine/engine_table.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"

typedef struct {
  const char *product;
  const gemm_engine *engine;
} engine_pick;

/* Zeroed = ready. */
typedef struct {
  VEC(engine_pick) at; /* in the order in which they came */
  map of;              /* product -> index */
  arena text;
} tuning_record;

void tuning_record_free(tuning_record *p);
/* Types, sizes, strides and what is done beside: "f32 1024x768x2048 a 2048,1 b 1,2048 c 768,1". */
void engine_product_print(const gemm_query *q, str *out);
/* NULL: not known. */
const gemm_engine *tuning_record_find(const tuning_record *p, const char *product);
/* The last word on a product counts. */
hp_status tuning_record_add(tuning_record *p, const char *product, const gemm_engine *engine);
void tuning_record_print(const tuning_record *p, str *out);
/* Adds those of a text, all or none; HP_ERR_INPUT names the line that is none, as engine_find does
 * the engine that is not there. */
hp_status tuning_record_parse(tuning_record *p, const char *text, size_t n, const char *name);

/* --- on disk, beside compiled kernels (codegen/jit_cache.h) ------------------------------------
 *
 * A file holds the tuning of one machine: its name is the hash of what speed depends on (processor,
 * instruction set, threads, versions of the engines), its first lines say the same. */

/* Adds what is there; what is missing, damaged or of another machine adds nothing. */
void engine_cache_read(tuning_record *p, int threads);
/* Replaces the file.  One that cannot be written is no failure: it will be measured again. */
void engine_cache_write(const tuning_record *p, int threads);

#endif
