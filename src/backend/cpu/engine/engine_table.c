#include "backend/cpu/engine/engine_table.h"

#include "backend/backend.h"
#include "base/str.h"

#include <string.h>

static bool is_always_available(void) { return true; }
static const char *get_own_version(void) { return HP_VERSION; }
static bool any_query(const gemm_query *q) {
  (void)q;
  return true;
}

static size_t get_packed_workspace(const gemm_query *q, int threads) {
  return gemm_packed_workspace(cpu_best_isa(), q, threads);
}
static hp_status packed_run(const gemm_query *q, const gemm_args *args, pool *threads, void *work) {
  gemm_packed_run(cpu_best_isa(), q, args, threads, work);
  return HP_OK;
}
const gemm_engine engine_packed = {
    .name = "packed",
    .about = "our own: one FMA chain per element, the same bits everywhere",
    .exact = true,
    .available = is_always_available,
    .version = get_own_version,
    .supports = any_query,
    .workspace = get_packed_workspace,
    .run = packed_run,
};

static size_t get_scalar_workspace(const gemm_query *q, int threads) {
  (void)q, (void)threads;
  return 0;
}
static hp_status scalar_run(const gemm_query *q, const gemm_args *args, pool *threads, void *work) {
  (void)work;
  gemm_scalar_run(q, args, threads);
  return HP_OK;
}
const gemm_engine engine_scalar = {
    .name = "scalar",
    .about = "a plain loop, the reference for the others",
    .exact = true,
    .available = is_always_available,
    .version = get_own_version,
    .supports = any_query,
    .workspace = get_scalar_workspace,
    .run = scalar_run,
};

static const gemm_engine *const rows[] = {&engine_packed, &engine_onednn, &engine_openblas,
                                          &engine_scalar};
enum { ROWS = sizeof rows / sizeof *rows };

const gemm_engine *const *engine_rows(int *n) {
  *n = ROWS;
  return rows;
}

const gemm_engine *engine_default(void) { return &engine_packed; }

hp_status engine_find(const char *name, const gemm_engine **out) {
  for (int i = 0; i < ROWS; i++) {
    if (strcmp(rows[i]->name, name) != 0) continue;
    if (!rows[i]->available())
      HP_FAIL(HP_ERR_UNSUPPORTED,
              "gemm engine \"%s\" (%s) is not on this machine: install its library, or use \"%s\"",
              name, rows[i]->about, engine_default()->name);
    *out = rows[i];
    return HP_OK;
  }
  str known = {0};
  for (int i = 0; i < ROWS; i++) str_printf(&known, "%s%s", i ? ", " : "", rows[i]->name);
  hp_status s = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                        "no gemm engine is named \"%.60s\"; there are: %s, and " ENGINE_FASTEST
                        ", which measures them for each product",
                        name, known.failed ? "(out of memory)" : known.at);
  str_free(&known);
  return s;
}
