/* The weights of a Hugging Face checkpoint: model.safetensors, or shards and their index.
 *
 * Opening maps the files and checks all of them; views point into the mapping.  A path may be a
 * folder or one .safetensors file.  Other formats (PyTorch pickles, GGUF, Git LFS pointers, ...)
 * are recognised by content and refused, with what to do about it. */
#ifndef CKPT_WEIGHTS_H
#define CKPT_WEIGHTS_H

#include "base/safetensors.h"

typedef struct weights weights;
struct manifest_check; /* ckpt/manifest.h */

/* Does this folder have its tensors of a kind ("model") as sharded files of several devices,
 * with KIND.parts.json?  Then hp_params_load reads them, and weights_open refuses. */
bool weights_are_sharded(const char *dir, const char *kind);
/* The same; HP_ERR_IO if the system cannot say. */
hp_status weights_find_sharded(const char *dir, const char *kind, bool *there);

hp_status weights_open(const char *path, weights **out);
void weights_free(weights *w);

/* For reading the files once, from front to back.  A place counts the bytes of all files in
 * order. */
uint64_t weights_place(const weights *w, const st_tensor *t); /* of its data */
/* Reads the files into memory in the background, from here on.  If the machine has no room for
 * them and for the `made` bytes made from them, pages leave its memory as soon as they were
 * used; a more precise decision would take longer.  Other loading processes are not counted. */
void weights_read_ahead(weights *w, uint64_t made);
/* The files belong to the folder that is verified: their hashes are computed as they are read
 * ahead, and passed on at the end.  NULL: nothing to verify. */
void weights_claim(weights *w, struct manifest_check *c);
hp_status weights_give(weights *w, struct manifest_check *c);
/* The range from `begin` to `end` is next; nothing before it will be read again. */
void weights_move(weights *w, uint64_t begin, uint64_t end);
/* Returns when everything before `place`, at most the last `end`, is in memory; any thread may
 * call it. */
void weights_wait(const weights *w, uint64_t place);

/* Tensors in the order of the file, or of the index; i < weights_count(w). */
size_t weights_count(const weights *w);
const st_tensor *weights_get(const weights *w, size_t i);
/* A tensor by name; NULL when there is none. */
const st_tensor *weights_find(const weights *w, const char *name);
/* The same, but a failure names the nearest tensor. */
hp_status weights_need(const weights *w, const char *name, const st_tensor **out);
/* The same, with a required shape. */
hp_status weights_need_shape(const weights *w, const char *name, int rank, const int64_t *dim,
                             const st_tensor **out);

/* Elements first .. first + n - 1 of t (row major) into dst, of type `to`: floating types (F64,
 * F32, BF16, F16) into f32, bf16 or f16 by the rules of base/dtype.h, other types only into their
 * own.  dst holds n elements. */
hp_status weights_read(const st_tensor *t, size_t first, size_t n, hp_dtype to, void *dst);

/* --- saving --------------------------------------------------------------------------- */

typedef struct {
  uint64_t max_shard_bytes; /* 0: 50 GB, as in Transformers */
  int64_t parameters;       /* "total_parameters" of the index; 0: all elements */
  /* Writes the data of tensor i with st_writer_write; NULL: it is in tensor[i].data. */
  hp_status (*write)(void *ctx, size_t i, st_writer *out);
  void *ctx;
} weights_options;

/* Saves tensors, in the order of the model, into a folder (created if missing) as
 * save_pretrained does: one model.safetensors, or model-0000i-of-0000n.safetensors and the
 * index.  Existing weights are replaced together: if the process dies at any time, the folder
 * has the old weights, the new ones, or weights that weights_open refuses, never a mixture.  `o`
 * may be NULL. */
hp_status weights_save(const char *dir, const st_tensor *tensor, size_t n,
                       const weights_options *o);

/* n numbers of the tensor `name`, written as `to`: f32, bf16 or f16, rounded to nearest.  A
 * number that is too large for the type is refused by name. */
hp_status weights_write_as(st_writer *out, const char *name, const float *x, size_t n, hp_dtype to);
/* weights_save of tensors whose data is in memory, those of floating types as `to`. */
hp_status weights_save_as(const char *dir, const st_tensor *tensor, size_t n, hp_dtype to);

#endif
