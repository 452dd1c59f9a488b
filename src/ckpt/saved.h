/* Tensors saved by the devices of a mesh, or of the meshes of a pipeline: each shard once, by one
 * of the devices that hold it.  Devices are numbered mesh by mesh.
 *
 *   DIR/model-part-00000.safetensors   the tensors saved by device 0, under their names;
 *                                      the metadata says which box of each: "[0:16, 4:8]"
 *   DIR/model.parts.json               the mesh ("(2)(dp);(3)(dp)" if there are several), and of
 *                                      each tensor dtype, shape, layout and number of its mesh
 *
 * The layouts decide which device saves a shard, so the size of the index does not depend on the
 * number of devices.  Reading opens only files that overlap the requested boxes, and reads only
 * these.  The reading functions are not thread-safe, except saved_read. */
#ifndef CKPT_SAVED_H
#define CKPT_SAVED_H

#include "base/safetensors.h"
#include "ir/graph.h"
#include "shard/box.h"

enum { SAVED_FORMAT = 1 };

typedef struct {
  const char *name;
  ir_value type; /* of the global tensor */
  layout l;
  int64_t replica; /* which of the devices that hold a shard saves it: saved_share_out */
  int mesh;        /* its number */
} saved_tensor;

enum { SAVED_MESHES = 64 };

/* Gives each replica a contiguous share of the tensors of mesh number k, with equal bytes. */
void saved_share_out(const mesh *m, int k, saved_tensor *t, size_t n);

/* --- writing, of tensors that are shared out -------------------------------------------------- */

/* The device that saves the shard whose first holder is `first`. */
int64_t saved_saver(const mesh *m, const saved_tensor *t, int64_t first);
/* Does the device save something of the tensor?  And which box. */
bool saved_by(const mesh *m, const saved_tensor *t, int64_t device, box *shard);
/* For the save `name` ("DIR/model"): DIR/model-part-00003.safetensors and DIR/model.parts.json,
 * replacing out. */
hp_status saved_shard_path(const char *name, int64_t device, str *out);
hp_status saved_index_path(const char *name, str *out);
/* Writes the file of a device of mesh number k, whose first device has the number `first`: its
 * shares of those of n tensors that are on this mesh; no file if that is nothing.  write(ctx, i,
 * own, out) writes the elements of box `own` of tensor i. */
typedef hp_status saved_write(void *ctx, size_t i, const box *own, st_writer *out);
typedef struct {
  const mesh *m;
  int k;
  int64_t first;
} saved_place;
hp_status saved_write_file(const char *name, const saved_place *at, const saved_tensor *t, size_t n,
                           int64_t device, saved_write *write, void *ctx);
/* Writes the index, atomically, after all files. */
hp_status saved_write_index(const char *name, const mesh *const *m, int meshes,
                            const saved_tensor *t, size_t n);

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct saved saved;
/* HP_ERR_INPUT names the file, the tensor, and what was expected. */
hp_status saved_open(const char *name, saved **out);
void saved_close(saved *s);

int saved_meshes(const saved *s);
const mesh *saved_mesh(const saved *s, int k);
const char *saved_path(const saved *s); /* of the index, for messages */
size_t saved_count(const saved *s);
/* In the order of the index. */
const saved_tensor *saved_get(const saved *s, size_t k);
/* By name, and its number; NULL when there is none. */
const saved_tensor *saved_find(const saved *s, const char *name, size_t *k);

/* Opens the files that overlap box b of tensor k, and checks all of their contents. */
hp_status saved_need(saved *s, size_t k, const box *b);
/* Passes the elements of box b, as `type`, to an array that holds the box `to`: put(ctx, at,
 * from, n) gets n elements for position `at`.  saved_need must have been called for b; types
 * that are not floating are not converted. */
typedef hp_status saved_put(void *ctx, int64_t at, const void *from, int64_t n);
hp_status saved_read(const saved *s, size_t k, const box *b, const box *to, hp_dtype type,
                     saved_put *put, void *ctx);

#endif
