/* hyper_mpi.so, which is loaded only by a process that others were started with: `hyper` itself
 * needs no MPI library. */
#include "base/str.h"
#include "comm/world_parts.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char plugin[] = "hyper_mpi.so";

/* Beside the program, as in a build folder, or in ../lib/hyperparallel, as it is installed. */
static void *load_from(const char *folder, const char *below) {
  str path = {0};
  str_printf(&path, "%s%s/%s", folder, below, plugin);
  bool there = !str_status(&path) && !access(path.at, R_OK);
  void *lib = there ? dlopen(path.at, RTLD_NOW | RTLD_GLOBAL) : NULL;
  str_free(&path);
  return lib;
}

static void *load(void) {
  char exe[4096];
  const char *own = getenv("HYPER_MPI");
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  exe[n > 0 ? n : 0] = 0;
  char *slash = strrchr(exe, '/');
  if (slash) *slash = 0;
  if (own && *own) return dlopen(own, RTLD_NOW | RTLD_GLOBAL);
  void *lib = load_from(exe, "");
  if (!lib) lib = load_from(exe, "/../lib/hyperparallel");
  return lib ? lib : dlopen(plugin, RTLD_NOW | RTLD_GLOBAL);
}

hp_status world_plugin(const transport **out) {
  void *lib = load();
  const transport *t = lib ? dlsym(lib, TRANSPORT_SYMBOL) : NULL;
  if (!t) {
    const char *why = dlerror();
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%d processes were started as one job, and they cannot be joined: %s; install an MPI "
            "library (tools/bootstrap mpi) and run make again",
            world.facts.size, why ? why : "hyper_mpi.so is not there");
  }
  if (t->version != TRANSPORT_VERSION)
    HP_FAIL(HP_ERR_UNSUPPORTED, "hyper_mpi.so is of another version (%d, not %d); run make again",
            t->version, TRANSPORT_VERSION);
  *out = t;
  return HP_OK;
}
