/* Tensors that the devices of a mesh have saved: each part once, by one of those that hold it.
 *
 *   DIR/model-part-00000.safetensors   what device 0 has saved, under the names of the tensors;
 *                                      the metadata says which box of each: "[0:16, 4:8]"
 *   DIR/model.parts.json               the mesh, and of each tensor dtype, shape and layout
 *
 * Which device saves a part follows from the layouts, so the index does not grow with the devices.
 * Reading opens only the files that hold something of what is asked for, and touches only that.
 * What reads is not thread-safe, but for saved_read. */
#ifndef CKPT_SAVED_H
#define CKPT_SAVED_H

#include "base/safetensors.h"
#include "ir/graph.h"
#include "shard/box.h"

enum { SAVED_FORMAT = 1 };

typedef struct {
  const char *name;
  ir_value type; /* of the whole */
  layout l;
  int64_t replica; /* which of the devices that hold a part saves it: saved_share_out */
} saved_tensor;

/* Gives each replica a share of the tensors: a row of them, as many bytes as the others'. */
void saved_share_out(const mesh *m, saved_tensor *t, size_t n);

/* --- writing, of tensors that are shared out -------------------------------------------------- */

/* The device that saves the part which `first` is the first to hold. */
int64_t saved_saver(const mesh *m, const saved_tensor *t, int64_t first);
/* Does the device save something of it?  And which box. */
bool saved_by(const mesh *m, const saved_tensor *t, int64_t device, box *part);
/* Of the save `name` ("DIR/model"): DIR/model-part-00003.safetensors and DIR/model.parts.json, in
 * place of what is in out. */
hp_status saved_shard_path(const char *name, int64_t device, str *out);
hp_status saved_index_path(const char *name, str *out);
/* Writes the file of a device: what it saves of n tensors; none when that is nothing.  write(ctx,
 * k, own, out) writes the elements of box `own` of tensor k. */
typedef hp_status saved_write(void *ctx, size_t k, const box *own, st_writer *out);
hp_status saved_write_file(const char *name, const mesh *m, const saved_tensor *t, size_t n,
                           int64_t device, saved_write *write, void *ctx);
/* Writes the index, atomically: to be done when all parts are there. */
hp_status saved_write_index(const char *name, const mesh *m, const saved_tensor *t, size_t n);

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct saved saved;
/* HP_ERR_INPUT names the file, the tensor, and what was expected. */
hp_status saved_open(const char *name, saved **out);
void saved_close(saved *s);

const mesh *saved_mesh(const saved *s);
const char *saved_path(const saved *s); /* of the index, for messages */
size_t saved_count(const saved *s);
/* In the order of the index. */
const saved_tensor *saved_get(const saved *s, size_t k);
/* By name, and its number; NULL when there is none. */
const saved_tensor *saved_find(const saved *s, const char *name, size_t *k);

/* Opens the files that hold something of box b of tensor k, and checks all that they hold. */
hp_status saved_need(saved *s, size_t k, const box *b);
/* Gives the elements of box b, as `type`, to an array that holds the box `to`: put(ctx, at, from,
 * n) takes n of them that belong at `at`.  saved_need has been asked for b; types that are not
 * floating are read as they are. */
typedef hp_status saved_put(void *ctx, int64_t at, const void *from, int64_t n);
hp_status saved_read(const saved *s, size_t k, const box *b, const box *to, hp_dtype type,
                     saved_put *put, void *ctx);

#endif
