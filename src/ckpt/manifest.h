/* MANIFEST.json of a checkpoint: which files it has, how long they are, and their hashes
 * (XXH3-128).
 *
 *   {"format": 1, "step": N, "state": {...}, "files": {NAME: {"bytes": n, "xxh3_128": hex}}}
 *   the hash of all before, in hex (base/sealed.h)
 *
 * A folder that has one is whole when every file is there as it says, and no other file is; names
 * that begin with a dot, and folders, are not looked at.  HP_ERR_INPUT names the file. */
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H

#include "base/hash.h"
#include "base/tree.h"

#define MANIFEST_NAME "MANIFEST.json"

/* Is there one?  HP_ERR_IO where the system cannot say: a folder that has one must be verified. */
hp_status manifest_find(const char *dir, bool *there);
/* Whether other files may be written to the folder: HP_ERR_INPUT where it has a manifest, by which
 * they would damage what it is of. */
hp_status manifest_check_target(const char *dir);
/* Reads it and checks its own hash; of "files" the caller may rely on nothing yet. */
hp_status manifest_read(const char *dir, tree *out);
/* Every file of the folder by its manifest. */
hp_status manifest_verify(const char *dir, const tree *manifest);
/* The manifest itself, names and sizes of all files, and what is small: all but .safetensors.  To
 * be asked before a file of the folder is read; HP_OK where there is no manifest. */
hp_status manifest_verify_texts(const char *dir);

/* --- beside loading --------------------------------------------------------------------------- */

/* Verifies a folder while its tensors are loaded: who reads a file from front to back anyway claims
 * it and gives its hash, a thread hashes the others. */
typedef struct manifest_check manifest_check;
/* Does what manifest_verify_texts does; *out is NULL where there is no manifest, which all of the
 * following accept. */
hp_status manifest_check_begin(const char *dir, manifest_check **out);
void manifest_check_claim(manifest_check *c, const char *path);
/* Starts on the files that nobody has claimed. */
hp_status manifest_check_start(manifest_check *c);
hp_status manifest_check_give(manifest_check *c, const char *path, hash128 hash);
/* Ends it, after a load that went so: a damaged file is told in place of what it has brought about
 * there.  Files that were claimed and not given are read now. */
hp_status manifest_check_end(manifest_check *c, hp_status loaded);

#endif
