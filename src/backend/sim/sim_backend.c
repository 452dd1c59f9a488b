/* The sim backend: stands for devices that are not here.  It has no kernels, no C compiler and no
 * memory, so that a plan is that of its cluster file alone; what would run is refused. */
#include "backend/backend.h"

#include "base/mem.h"

#include <string.h>

typedef struct {
  int threads;
} sim_device;

static hp_status sim_open(const backend_options *o, void **out) {
  sim_device *d = mem_calloc(1, sizeof *d);
  HP_TRY_MEM(d);
  d->threads = o->threads;
  *out = d;
  return HP_OK;
}

static void sim_close(void *dev) { mem_free(dev); }

static hp_status sim_choose(void *dev, program *p) {
  (void)dev, (void)p;
  return HP_OK;
}

static hp_status sim_prepare(void *dev, const program *p, uint64_t *workspace, void **loaded) {
  (void)dev, (void)p, (void)workspace;
  *loaded = NULL;
  return HP_OK;
}

static void sim_release(void *loaded) { (void)loaded; }

static hp_status cannot_run(void) {
  HP_FAIL(HP_ERR_UNSUPPORTED,
          "backend \"sim\" represents other machines' devices: it plans, but cannot run; "
          "use backend \"cpu\" to run");
}

static void sim_join(void *dev) { (void)dev; }

static hp_status sim_launch(void *loaded, const program *p, const prog_inst *n,
                            const launch_args *a) {
  (void)loaded, (void)p, (void)n, (void)a;
  return cannot_run();
}

static void *sim_reserve(void *dev, int tier, uint64_t bytes) {
  (void)dev, (void)tier, (void)bytes;
  (void)cannot_run();
  return NULL;
}
static void sim_discard(void *dev, int tier, void *at, uint64_t bytes) {
  (void)dev, (void)tier, (void)at, (void)bytes;
}
static hp_status sim_commit(void *dev, int tier, void *at, uint64_t bytes) {
  (void)dev, (void)tier, (void)at, (void)bytes;
  return cannot_run();
}
static hp_status sim_copy(void *dev, void *to, const void *from, uint64_t bytes, int stream) {
  (void)dev, (void)to, (void)from, (void)bytes, (void)stream;
  return cannot_run();
}
static hp_status sim_zero(void *dev, void *at, uint64_t bytes, int stream) {
  (void)dev, (void)at, (void)bytes, (void)stream;
  return cannot_run();
}
static hp_status sim_fill(void *dev, void *at, const ir_value *type, hp_fill_fn fill,
                          void *context) {
  (void)dev, (void)at, (void)type, (void)fill, (void)context;
  return cannot_run();
}

static const char *sim_describe(void *dev) {
  (void)dev;
  return "sim, a device that is planned for";
}
static int sim_get_threads(void *dev) { return ((sim_device *)dev)->threads; }
static const char *sim_get_engine(void *dev) {
  (void)dev;
  return "sim";
}
static hp_status sim_set_engine(void *dev, const char *name) {
  (void)dev, (void)name;
  return HP_OK; /* engines are of kernels */
}

static void sim_get_capabilities(void *dev, const capabilities *planned, capabilities *out) {
  (void)dev;
  *out = *planned;
}

static void sim_get_tuning(void *dev, str *out) { (void)dev, (void)out; }
static hp_status sim_set_tuning(void *dev, const char *text) {
  (void)dev, (void)text;
  return HP_OK;
}
static hp_status sim_measure(void *dev, uint64_t most_bytes, hp_limits *out) {
  (void)most_bytes;
  (void)dev, (void)out;
  return cannot_run();
}

const backend_iface backend_sim = {.name = "sim",
                                   .open = sim_open,
                                   .close = sim_close,
                                   .choose = sim_choose,
                                   .prepare = sim_prepare,
                                   .release = sim_release,
                                   .join = sim_join,
                                   .launch = sim_launch,
                                   .reserve = sim_reserve,
                                   .unreserve = sim_discard,
                                   .commit = sim_commit,
                                   .discard = sim_discard,
                                   .copy = sim_copy,
                                   .zero = sim_zero,
                                   .fill = sim_fill,
                                   .describe = sim_describe,
                                   .threads = sim_get_threads,
                                   .engine = sim_get_engine,
                                   .set_engine = sim_set_engine,
                                   .capabilities = sim_get_capabilities,
                                   .tuning = sim_get_tuning,
                                   .set_tuning = sim_set_tuning,
                                   .measure = sim_measure};
