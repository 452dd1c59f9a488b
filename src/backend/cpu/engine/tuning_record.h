/* The measured choice of engines: a table from the text of a product to a row of engine_table.h.
 *
 * The text form has lines "PRODUCT = ENGINE": checkpoints hold it, processes send it, and the
 * cache on disk keeps it.  A product is only compared, never parsed, so any text is safe: an
 * engine is not used for a product that it cannot run. */
#ifndef TUNING_RECORD_H
#define TUNING_RECORD_H

#include "backend/cpu/engine/engine_table.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"

typedef struct {
  const char *product;
  const gemm_engine *engine;
} engine_tuned;

/* Zeroed = ready. */
typedef struct {
  VEC(engine_tuned) at; /* in the order in which they were added */
  map of;               /* product -> index */
  arena text;
} tuning_record;

void tuning_record_free(tuning_record *p);
/* Types, sizes, strides and fused steps: "f32 1024x768x2048 a 2048,1 b 1,2048 c 768,1". */
void engine_product_print(const gemm_query *q, str *out);
/* NULL: unknown. */
const gemm_engine *tuning_record_find(const tuning_record *p, const char *product);
/* The last entry of a product counts. */
hp_status tuning_record_add(tuning_record *p, const char *product, const gemm_engine *engine);
void tuning_record_print(const tuning_record *p, str *out);
/* Adds the entries of a text, all or none; HP_ERR_INPUT names an invalid line, or a missing
 * engine as engine_find does. */
hp_status tuning_record_parse(tuning_record *p, const char *text, size_t n, const char *name);

/* --- on disk, next to compiled kernels (codegen/jit_cache.h) ------------------------------------
 *
 * A file holds the tuning of one machine: its name is the hash of what speed depends on (processor,
 * instruction set, threads, versions of the engines), its first lines say the same. */

/* Adds the entries of the file; a missing, damaged or foreign file adds nothing. */
void engine_cache_read(tuning_record *p, int threads);
/* Replaces the file.  A failure to write is ignored: the products will be measured again. */
void engine_cache_write(const tuning_record *p, int threads);

#endif
