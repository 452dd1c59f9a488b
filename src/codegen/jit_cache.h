/* Compiled kernels on disk, by content: KEY.so holds the function hp_k_KEY.
 *
 * A file is the shared object followed by a seal (length and hash), so that a damaged or
 * truncated file is detected and rebuilt.  The checks and the loading use one open file, not its
 * name.  Files appear by rename, complete or not at all; several processes may build the same
 * kernel, each keeps its own copy loaded.  Many KEY.so are links to one file, since the kernels
 * of a program are compiled together.  Nothing is ever unloaded. */
#ifndef CODEGEN_JIT_CACHE_H
#define CODEGEN_JIT_CACHE_H

#include "base/hash.h"
#include "base/str.h"

typedef struct {
  char *dir;    /* NULL: there is none */
  char *work;   /* folder for compiling: dir, or a private folder that jit_cache_close removes */
  int lock;     /* fd, -1 = none */
  bool by_name; /* without /proc, where an open file cannot be loaded */
} jit_cache;

/* Opens the folder (`dir`, else $HYPER_CACHE, else $XDG_CACHE_HOME/hyperparallel, else
 * ~/.cache/hyperparallel); a new one is created for the owner alone.  A folder of another user,
 * or one that others may write to or replace, is not used, with one warning. */
hp_status jit_cache_open(const char *dir, jit_cache *out);
void jit_cache_close(jit_cache *c);
/* The file in the default folder for data of this text, "DIR/HASH.end"; empty if there is no
 * folder. */
hp_status jit_cache_file(const str *text, const char *end, str *path);

/* The function of a key, loaded from the folder; NULL if it is missing or damaged. */
void *jit_cache_find(const jit_cache *c, hash128 key);

/* Makes c->work a writable folder, and takes the lock that keeps the processes of a machine from
 * compiling the same.  After lock_ms it continues without: the holder of the lock may hang, and
 * files appear atomically anyway. */
hp_status jit_cache_begin(jit_cache *c, int lock_ms);
/* Seals a compiled object in the work folder, loads it, and adds it to the cache under the keys.
 * fn[i] is the function of key[i].  The object file is removed.  A failure to write to the cache
 * is ignored; a failure to load is HP_ERR_IO. */
hp_status jit_cache_add(const jit_cache *c, const char *object, const hash128 *key, int n,
                        void **fn);

#endif
