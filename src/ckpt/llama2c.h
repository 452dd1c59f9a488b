/* Checkpoints of llama2.c (version 0, .bin): a Llama model as 7 integers and float32 weights.
 *
 * Tensors get their Hugging Face names.  llama2.c rotates neighbouring pairs of a head (2i, 2i+1),
 * Hugging Face the halves (i, i + D/2): the rows of wq and wk are reordered per head, exactly. */
#ifndef CKPT_LLAMA2C_H
#define CKPT_LLAMA2C_H

#include "base/safetensors.h"

typedef struct {
  int64_t dim, hidden_dim, layers, heads, kv_heads, vocab, seq_len;
  bool tied;         /* no separate head: it is the token embedding */
  st_tensor *tensor; /* in the order of the model; views into the file, or into mem */
  size_t n;
  file_map map; /* private, as is mem */
  arena mem;
} llama2c;

/* Opens a checkpoint; its size must agree with its 7 integers. */
hp_status llama2c_open(const char *path, llama2c *out);
void llama2c_close(llama2c *m);

/* Writes config.json and model.safetensors into a folder, as a Hugging Face model of this type. */
hp_status llama2c_convert(const char *path, const char *dir, hp_dtype type);

#endif
