/* Adapters in the files of peft: adapter_config.json, and adapter_model.safetensors, where tensors
 * have the names of the model's params with "base_model.model." before them. */
#ifndef MODEL_ADAPTER_FILES_H
#define MODEL_ADAPTER_FILES_H

#include "base/safetensors.h"
#include "model/adapter.h"

struct weights; /* ckpt/weights.h */

#define ADAPTER_PREFIX  "base_model.model."
#define ADAPTER_CONFIG  "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"

/* An adapter as it is on disk. */
typedef struct adapter_file {
  adapter *a; /* NULL once a model has it */
  struct weights *w;
  struct adapter_factors *factors; /* for merging; by module of the file's adapter */
  size_t n;
  map factors_of; /* module -> place in factors */
  char path[1024];
} adapter_file;

/* Reads both files of dir and compares them with the model: HP_ERR_INPUT names the file and the key
 * or tensor that does not fit, or that is not built. */
hp_status adapter_file_open(const char *dir, const adapter_subject *s, adapter_file **out);
void adapter_file_close(adapter_file *f);
/* The tensor of a param of the model that has this name there; NULL: none. */
const st_tensor *adapter_file_find(const adapter_file *f, const char *param);

/* n elements of a weight, from `first` on, before the adapter is merged. */
typedef hp_status adapter_reader(void *ctx, size_t first, size_t n, float *x);
/* Of DoRA: finds the factors of the rows of this tensor, before it is merged.  No effect on others.
 */
hp_status adapter_file_measure(adapter_file *f, const char *tensor, adapter_reader *read,
                               void *ctx);

/* Does it change this tensor of the model when it is merged? */
bool adapter_file_changes(const adapter_file *f, const char *tensor);
/* Merges elements first .. first + n - 1 of the tensor, in x: adds its part of scale B A, or puts
 * the file's own values there.  Thread-safe. */
hp_status adapter_file_merge(const adapter_file *f, const char *tensor, size_t first, size_t n,
                             float *x);

/* Options of a from a->config; HP_ERR_INPUT names a key that does not fit, or is not built. */
hp_status adapter_read_config(adapter *a);
/* adapter_config.json, for the base model in the folder `base`: as it was read, or anew. */
hp_status adapter_print_config(const adapter *a, const char *base, bool transposed, str *out);

#endif
