/* A transfer of the flash store, in pieces that lie in one file each; and what is done to a piece
 * around its read or write: bounce buffers for memory that O_DIRECT does not take, and checksums.
 *
 * The unit of files, checksums and O_DIRECT is a block of 4 KiB.  A block has the XXH3 of what was
 * written, never 0; 0: it was never written, reads as zeros, and is not read at all. */
#ifndef RT_FLASH_PIECE_H
#define RT_FLASH_PIECE_H

#include "rt/flash_file.h"

#include <pthread.h>

enum { FLASH_BLOCK = 4096, FLASH_STRIPE = 1 << 20, FLASH_PATHS = 64 };

/* Where blocks lie: stripes of FLASH_STRIPE bytes in turn on each of the files. */
typedef struct {
  flash_file file[FLASH_PATHS];
  int n;
  uint64_t bytes; /* of the store */
  uint64_t *sum;  /* by block */
} flash_layout;

/* Whole blocks, from or to memory. */
typedef struct flash_transfer {
  const flash_layout *l;
  bool writes;
  bool pads;              /* the rest of the last block is nobody's */
  uint64_t offset, bytes; /* multiples of FLASH_BLOCK */
  char *memory;
  const char *name; /* of the tensor, for messages */
  /* of the engine that runs it */
  uint64_t pieces, next, done; /* of pieces */
  bool failed;
  err_report why;
  struct flash_transfer *behind;
  pthread_cond_t ended;
} flash_transfer;

typedef struct {
  const flash_transfer *t;
  const flash_file *file;
  uint64_t at; /* in the file */
  size_t bytes;
  char *memory;
  uint64_t *sum;
} flash_piece;

uint64_t flash_piece_count(const flash_transfer *t);
/* The i-th, of at most FLASH_STRIPE bytes. */
flash_piece flash_piece_get(const flash_transfer *t, uint64_t i);
/* The memory to read into or to write from: the caller's, or `bounce`, of FLASH_STRIPE bytes at a
 * multiple of FLASH_BLOCK.  NULL: nothing is to be read, the piece is zeros and done. */
char *flash_piece_begin(const flash_piece *p, char *bounce);
/* Reads or writes it with the calls that wait; the failure names tensor, path and place. */
hp_status flash_piece_transfer(const flash_piece *p, char *io);
/* Compares what was read with its checksums. */
hp_status flash_piece_end(const flash_piece *p, const char *io);

/* How pieces are read and written, many at once.  run returns when all are done, or one has failed
 * and none is in flight; it may be called from several threads at once, and allocates nothing. */
typedef struct {
  const char *name;
  hp_status (*open)(const flash_layout *l, void **engine); /* HP_ERR_UNSUPPORTED: not here */
  void (*close)(void *engine);
  hp_status (*run)(void *engine, flash_transfer *t);
} flash_engine;
extern const flash_engine flash_uring, flash_threads;

#endif
