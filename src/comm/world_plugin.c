/* hyper_mpi.so, which is loaded only by a process that others were started with: `hyper` itself
 * needs no MPI library. */
#include "base/str.h"
#include "comm/world_state.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char plugin[] = "hyper_mpi.so";

/* Next to the program, as in a build folder, or in ../lib/hyperparallel, as it is installed; else
 * the system searches.  HYPER_MPI names another. */
static hp_status find_plugin(str *path) {
  static const char *const below[] = {"", "/../lib/hyperparallel"};
  char exe[4096];
  const char *own = getenv("HYPER_MPI");
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  exe[n > 0 ? n : 0] = 0;
  char *slash = strrchr(exe, '/');
  if (slash) *slash = 0;
  if (own && *own) str_add(path, own);
  for (size_t i = 0; !path->len && i < sizeof below / sizeof *below; i++) {
    str_printf(path, "%s%s/%s", exe, below[i], plugin);
    if (str_status(path) || access(path->at, R_OK)) str_clear(path);
  }
  if (!path->len) str_add(path, plugin);
  return str_status(path);
}

hp_status world_check_plugin(void) {
  str path = {0};
  hp_status st = find_plugin(&path);
  bool searched = !st && !strchr(path.at, '/'), there = !st && !access(path.at, R_OK);
  void *lib = searched ? dlopen(path.at, RTLD_LAZY | RTLD_LOCAL) : NULL;
  if (lib) dlclose(lib);
  if (!st && !lib && (searched || !there))
    st = err_set(HP_ERR_UNSUPPORTED, __FILE__, __LINE__,
                 "several processes join with the plugin hyper_mpi.so, and %s is not there: "
                 "tools/bootstrap mpi installs an MPI library, and make builds the plugin then; or "
                 "use several devices of one process (--devices, --strategy), which need none",
                 path.at);
  str_free(&path);
  return st;
}

hp_status world_plugin(const transport **out) {
  str path = {0};
  hp_status st = find_plugin(&path);
  void *lib = st ? NULL : dlopen(path.at, RTLD_NOW | RTLD_GLOBAL);
  str_free(&path);
  HP_TRY(st);
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
