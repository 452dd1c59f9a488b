/* The safetensors container: read by mapping, written as a stream.
 *
 * A file is u64 N, N bytes of JSON {name: {dtype, shape, data_offsets}}, then the data.  The reader
 * holds to the format's hard rules, so that a damaged or hostile file is refused before any of its
 * data is touched: N at most 100 MB and inside the file; the JSON starts with '{'; no key twice;
 * sizes are dtype times shape, computed without overflow; the tensors cover the data exactly, with
 * no overlap and no hole.  Empty tensors (a dim of 0) and scalars (rank 0) are legal.
 * Views point into the mapped file: they live until st_close and need not be aligned. */
#ifndef BASE_SAFETENSORS_H
#define BASE_SAFETENSORS_H

#include "base/arena.h"
#include "base/io.h"

/* Element types of the format, in its own order: files are sorted by it. */
typedef enum {
  ST_BOOL,
  ST_F4,
  ST_F6_E2M3,
  ST_F6_E3M2,
  ST_U8,
  ST_I8,
  ST_F8_E5M2,
  ST_F8_E4M3,
  ST_F8_E8M0,
  ST_F8_E4M3FNUZ,
  ST_F8_E5M2FNUZ,
  ST_I16,
  ST_U16,
  ST_F16,
  ST_BF16,
  ST_I32,
  ST_U32,
  ST_F32,
  ST_C64,
  ST_F64,
  ST_I64,
  ST_U64,
  ST_DTYPE_COUNT
} st_dtype;

const char *st_dtype_name(st_dtype t); /* "BF16" */
unsigned st_dtype_bits(st_dtype t);    /* of one element */
/* From and to our types; false if the other side has no such type. */
bool st_dtype_to_hp(st_dtype t, hp_dtype *out);
st_dtype st_dtype_from_hp(hp_dtype t);

enum { ST_RANK_MAX = 64 };

typedef struct {
  const char *name;
  const int64_t *dim; /* rank of them, last one fastest */
  const unsigned char *data;
  size_t bytes;
  int rank;
  st_dtype dtype;
} st_tensor;

typedef struct {
  const char *key, *value;
} st_pair;

typedef struct {
  const char *path;
  st_tensor *tensor; /* in the order of their data */
  size_t n;
  st_pair *metadata; /* of "__metadata__" */
  size_t n_metadata;
  file_map map; /* from here on: private */
  arena mem;
  uint32_t *slot;
  size_t slots;
} st_file;

/* Opens and checks a file.  After a failure there is nothing to close. */
hp_status st_open(const char *path, st_file *out);
/* The same over bytes in memory, which must outlive the file. */
hp_status st_parse(const void *bytes, size_t len, const char *name, st_file *out);
void st_close(st_file *f);

/* A tensor by name; NULL when there is none. */
const st_tensor *st_find(const st_file *f, const char *name);

/* --- writing -------------------------------------------------------------------------- */

/* Writes tensors (all fields set) as one file, atomically and byte for byte as the Hugging Face
 * library does: sorted by dtype, widest first, then by name; header padded with spaces to 8. */
hp_status st_save(const char *path, const st_tensor *tensor, size_t n, const st_pair *metadata,
                  size_t n_metadata);

/* The same as a stream, for tensors that are not in memory: after opening, write the data of
 * order[0], order[1], ... in pieces of any size, then commit or abort. */
typedef struct {
  uint32_t *order; /* n numbers of the tensors given, as their data must follow */
  file_writer out;
  uint64_t total; /* bytes of the finished file */
} st_writer;
/* `data` of the tensors is not used; `bytes` neither, it follows from dtype and dims. */
hp_status st_writer_open(const char *path, const st_tensor *tensor, size_t n,
                         const st_pair *metadata, size_t n_metadata, st_writer *w);
hp_status st_writer_write(st_writer *w, const void *bytes, size_t len);
hp_status st_writer_commit(st_writer *w); /* closes w, also on failure */
void st_writer_abort(st_writer *w);

/* Bytes of a tensor of this dtype and shape; false if they overflow, or are not a full number of
 * bytes. */
bool st_size(st_dtype t, int rank, const int64_t *dim, uint64_t *out);

#endif
