/* Compiled kernels on disk, by content: KEY.so holds the function hp_k_KEY.
 *
 * A file is the shared object followed by a seal (length and hash), so that a damaged or cut file
 * is seen and rebuilt.  What is checked is an open file, and that is loaded, not what its name is
 * by then.  Files appear by rename, whole or not at all; several processes may build the same
 * kernel, each keeps its own copy loaded.  Many KEY.so are links to one file: the kernels of a
 * program are compiled together.  Nothing is ever unloaded. */
#ifndef CODEGEN_JIT_CACHE_H
#define CODEGEN_JIT_CACHE_H

#include "base/hash.h"
#include "base/str.h"

typedef struct {
  char *dir;    /* NULL: there is none */
  char *work;   /* where to compile: dir, or a private folder that is removed by jit_cache_close */
  int lock;     /* fd, -1 = none */
  bool by_name; /* without /proc, where an open file cannot be loaded */
} jit_cache;

/* Opens the folder (`dir`, else $HYPER_CACHE, else $XDG_CACHE_HOME/hyperparallel, else
 * ~/.cache/hyperparallel), made for the owner alone when new.  A folder of another user, or one
 * that others may write to or put in the place of ours, is not used, one warning says so. */
hp_status jit_cache_open(const char *dir, jit_cache *out);
void jit_cache_close(jit_cache *c);
/* The file in the usual folder for what belongs to this text, "DIR/HASH.end"; left empty when there
 * is no folder. */
hp_status jit_cache_file(const str *text, const char *end, str *path);

/* The function of a key, loaded from the folder; NULL when it is not there or damaged. */
void *jit_cache_find(const jit_cache *c, hash128 key);

/* Makes c->work a folder that can be written, and takes the lock that keeps the processes of a
 * machine from all compiling the same.  After lock_ms it goes on without: whoever holds the lock
 * may hang, and files appear whole anyway. */
hp_status jit_cache_begin(jit_cache *c, int lock_ms);
/* Seals a compiled object in the work folder, loads it, and gives it to the cache under the keys.
 * fn[i] is the function of key[i].  The object file is gone afterwards.  Failing to write to the
 * cache is no failure; failing to load is HP_ERR_IO. */
hp_status jit_cache_add(const jit_cache *c, const char *object, const hash128 *key, int n,
                        void **fn);

#endif
