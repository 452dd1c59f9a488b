#include "train/file_digests.h"

#include "base/hash.h"
#include "base/io.h"
#include "ckpt/manifest.h"
#include "ckpt/weights.h"
#include "hyperparallel.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* --- one file --------------------------------------------------------------------------------- */

static hp_status hash_file(const char *path, char hex[33]) {
  file_map m;
  hash_stream *s;
  HP_TRY(file_map_open(path, &m));
  hp_status st = hash_stream_create(&s);
  if (!st) {
    hash_stream_add(s, m.at, m.len);
    hash_hex(hash_stream_get(s), hex);
    hash_stream_free(s);
  }
  file_map_close(&m);
  return st;
}

/* What tells a file from all others, and from itself when it changes; without what names the
 * machine, of this process alone. */
static hp_status identify(const char *path, int rank, const str *machine, file_digest *file,
                          hash128 *out) {
  struct stat s;
  if (stat(path, &s)) HP_FAIL(HP_ERR_IO, "%s: cannot be looked at: %s", path, strerror(errno));
  file->bytes = (uint64_t)s.st_size;
  str text = {0};
  file_print_stamp(&s, &text);
  if (machine->len) str_printf(&text, " on %s", machine->at);
  else str_printf(&text, " of process %d", rank);
  hp_status st = str_status(&text);
  if (!st) *out = hash_bytes128(text.at, text.len);
  str_free(&text);
  return st;
}

/* --- what a manifest has ---------------------------------------------------------------------- */

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Its hash in the list of a manifest, when the file is as long as that says. */
static bool is_listed(const tree_node *files, const file_digest *file, const char **hex) {
  int64_t bytes;
  const tree_node *f = tree_get(files, name_of(file->path));
  bool listed = f && f->kind == TREE_MAP && !tree_need_int(f, "bytes", &bytes) &&
                !tree_need_string(f, "xxh3_128", hex) && (uint64_t)bytes == file->bytes &&
                strlen(*hex) == sizeof file->hex - 1;
  if (!listed) err_clear();
  return listed;
}

/* Of shards of several devices only process 0 verifies all, so those are hashed.  A manifest that
 * cannot be read is refused where the model is loaded. */
static void take_listed(const char *dir, file_digest *file, size_t n) {
  tree manifest;
  bool there;
  const tree_node *files;
  const char *hex;
  if (weights_are_sharded(dir, "model")) return;
  if (manifest_find(dir, &there) || (there && manifest_read(dir, &manifest))) err_clear();
  else if (there) {
    if (manifest.root->kind == TREE_MAP && !tree_need_map(manifest.root, "files", &files))
      for (size_t i = 0; i < n; i++)
        if (is_listed(files, &file[i], &hex)) memcpy(file[i].hex, hex, sizeof file[i].hex);
    err_clear();
    tree_free(&manifest);
  }
}

/* --- sharing ---------------------------------------------------------------------------------- */

typedef struct {
  int rank, size;
  size_t room;  /* files of a process, at most */
  hash128 *ids; /* of all files of all processes; 0: none, or its hash is known */
  char (*hex)[33];
} shared_files;

static bool is_nothing(hash128 h) { return !h.lo && !h.hi; }

/* The first of all that are the same file. */
static size_t find_first(const shared_files *s, hash128 id) {
  size_t i = 0;
  while (s->ids[i].lo != id.lo || s->ids[i].hi != id.hi) i++;
  return i;
}

/* Each process hashes the files that it has first, and takes the hashes of the others. */
static hp_status hash_own(const shared_files *s, file_digest *file, size_t n) {
  size_t begin = (size_t)s->rank * s->room;
  char(*mine)[33] = mem_calloc(s->room, sizeof *mine);
  HP_TRY_MEM(mine);
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < n; i++)
    if (!is_nothing(s->ids[begin + i]) && find_first(s, s->ids[begin + i]) == begin + i)
      st = hash_file(file[i].path, mine[i]);
  if (!st) st = hp_world_gather(mine, s->room * sizeof *mine, s->hex);
  for (size_t i = 0; !st && i < n; i++)
    if (!is_nothing(s->ids[begin + i]))
      memcpy(file[i].hex, s->hex[find_first(s, s->ids[begin + i])], sizeof file[i].hex);
  mem_free(mine);
  return st;
}

static hp_status identify_all(const char *dir, int rank, file_digest *file, size_t n,
                              hash128 *own) {
  str machine = {0};
  char *boot = NULL;
  size_t len = 0;
  hp_status st = HP_OK;
  if (file_read("/proc/sys/kernel/random/boot_id", 256, &boot, &len)) err_clear();
  else str_add_n(&machine, boot, len);
  for (size_t i = 0; !st && i < n; i++)
    st = identify(file[i].path, rank, &machine, &file[i], &own[i]);
  if (!st) take_listed(dir, file, n);
  for (size_t i = 0; !st && i < n; i++)
    if (file[i].hex[0]) own[i] = (hash128){0};
  mem_free(boot);
  str_free(&machine);
  return st;
}

hp_status file_digests_share(const char *dir, file_digest *file, size_t n) {
  shared_files s = {0};
  int64_t most;
  HP_TRY(hp_world(&s.rank, &s.size));
  HP_TRY(hp_world_max((int64_t)n, &most));
  s.room = (size_t)most;
  if (!s.room) return HP_OK;
  size_t all;
  if (!size_mul(s.room, (size_t)s.size, &all)) return HP_ERR_OOM;
  hash128 *own = mem_calloc(s.room, sizeof *own);
  s.ids = mem_calloc(all, sizeof *s.ids);
  s.hex = mem_calloc(all, sizeof *s.hex);
  hp_status st = own && s.ids && s.hex ? HP_OK : HP_ERR_OOM;
  if (!st) st = identify_all(dir, s.rank, file, n, own);
  if (!st) st = hp_world_gather(own, s.room * sizeof *own, s.ids);
  if (!st) st = hash_own(&s, file, n);
  mem_free(own);
  mem_free(s.ids);
  mem_free(s.hex);
  return st;
}
