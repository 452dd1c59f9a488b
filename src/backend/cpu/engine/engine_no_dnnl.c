/* The oneDNN row if its headers were not found by the build. */
#include "backend/cpu/engine/engine_dnnl.h"
#include "backend/cpu/engine/engine_table.h"

#if !ENGINE_HAS_DNNL

static bool is_available(void) { return false; }
static const char *get_version(void) { return ""; }
static bool supports_query(const gemm_query *q) {
  (void)q;
  return false;
}
static size_t get_no_workspace(const gemm_query *q, int threads) {
  (void)q, (void)threads;
  return 0;
}
static hp_status run_product(const gemm_query *q, const gemm_args *args, pool *threads,
                             void *work) {
  (void)q, (void)args, (void)threads, (void)work;
  HP_FAIL(HP_ERR_UNSUPPORTED, "gemm engine \"onednn\" was not built: install libdnnl-dev and build "
                              "again, or use the engine \"packed\"");
}

const gemm_engine engine_onednn = {
    .name = "onednn",
    .about = "oneDNN, f32 and bf16: built without its headers (libdnnl-dev)",
    .available = is_available,
    .version = get_version,
    .supports = supports_query,
    .workspace = get_no_workspace,
    .run = run_product,
};
#endif
