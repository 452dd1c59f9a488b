/* Files of a model's folder that are copied along with its weights: tokenizer, templates. */
#ifndef CKPT_MODEL_FILES_H
#define CKPT_MODEL_FILES_H

#include "base/str.h"
#include "base/tree.h"

/* Paths of the existing ones, in `mem`. */
enum { MODEL_FILES_MAX = 16 };
hp_status model_files_list(const char *dir, arena *mem, const char *path[MODEL_FILES_MAX],
                           size_t *n);
hp_status model_files_copy(const char *from_dir, const char *to_dir);

typedef struct {
  const char *name; /* "tokenizer.json" */
  char *bytes;
  size_t len;
} model_file;
typedef struct {
  model_file file[MODEL_FILES_MAX];
  size_t n;
} model_files;
/* The largest known has 33 MiB. */
enum { MODEL_FILE_BYTES_MAX = 256 << 20 };
/* Reads the existing ones into memory, so that later changes on disk do not matter.
 * HP_ERR_INPUT if one is larger than MODEL_FILE_BYTES_MAX. */
hp_status model_files_read(const char *dir, model_files *out);
void model_files_free(model_files *m);
/* Replaces or adds a file of a name that model_files_read knows; owns bytes (mem_free). */
void model_files_put(model_files *m, const char *name, char *bytes, size_t len);
hp_status model_files_write(const model_files *m, const char *dir);

/* A config.json with another dtype of its weights. */
void model_config_print(const tree_node *root, hp_dtype weights, str *out);
/* The same, from file to folder. */
hp_status model_config_copy(const char *path, hp_dtype weights, const char *dir);
/* Copies a file into a folder, under its own name. */
hp_status model_file_copy(const char *path, const char *dir);

#endif
