/* MANIFEST.json of a checkpoint: the names, sizes and hashes (XXH3-128) of its files.
 *
 *   {"format": 1, "step": N, "state": {...}, "files": {NAME: {"bytes": n, "xxh3_128": hex}}}
 *   the hash of all before, in hex (base/sealed.h)
 *
 * A folder with a manifest is complete if every file is as the manifest says, and no other file
 * exists; names that begin with a dot, and folders, are ignored.  HP_ERR_INPUT names the file. */
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H

#include "base/hash.h"
#include "base/tree.h"

#define MANIFEST_NAME "MANIFEST.json"

/* Is there one?  HP_ERR_IO if the system cannot say, since a folder with one must be verified. */
hp_status manifest_find(const char *dir, bool *there);
/* May other files be written to the folder?  HP_ERR_INPUT if it has a manifest, which they would
 * invalidate. */
hp_status manifest_check_target(const char *dir);
/* Reads it and checks its own hash; "files" is not verified yet. */
hp_status manifest_read(const char *dir, tree *out);
/* Verifies every file of the folder. */
hp_status manifest_verify(const char *dir, const tree *manifest);
/* Verifies the manifest itself, names and sizes of all files, and all files but .safetensors.
 * Call it before a file of the folder is read; HP_OK without a manifest. */
hp_status manifest_verify_texts(const char *dir);

/* --- besides loading ---------------------------------------------------------------------------
 */

/* Verifies a folder while its tensors are loaded: a loader that reads a file from front to back
 * claims it and provides its hash; a thread hashes the other files. */
typedef struct manifest_check manifest_check;
/* Does the work of manifest_verify_texts; *out is NULL without a manifest, which the following
 * functions accept. */
hp_status manifest_check_begin(const char *dir, manifest_check **out);
void manifest_check_claim(manifest_check *c, const char *path);
/* Starts on the files that are not claimed. */
hp_status manifest_check_start(manifest_check *c);
hp_status manifest_check_give(manifest_check *c, const char *path, hash128 hash);
/* Ends it, after a load with this result: a damaged file is reported instead of its consequences
 * for the load.  Files that were claimed but not hashed are read now. */
hp_status manifest_check_end(manifest_check *c, hp_status loaded);

#endif
