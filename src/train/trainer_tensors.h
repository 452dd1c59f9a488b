/* The tensors of a run, on the device and in the files of a checkpoint.
 *
 * One device writes the global tensors: "model.safetensors", which Transformers reads, and
 * "optimizer.safetensors".  Several write them as shards (hp_params_save), under the same names
 * before the dot.  Either is read on any number of devices. */
#ifndef TRAIN_TRAINER_TENSORS_H
#define TRAIN_TRAINER_TENSORS_H

#include "base/safetensors.h"
#include "train/trainer_state.h"

/* A tensor of the device.  In files it may be several, one behind the other: a stack. */
typedef struct {
  const char *name;
  hp_shape shape;
  size_t tensors, done; /* of the files; of these written or read */
  float *held;          /* while some of them are */
} device_tensor;

/* Checkpoints have all in one file; exports have the value head of a reward model in one of its
 * own, as trl names it. */
typedef enum { TENSORS_ALL, TENSORS_OF_MODEL, TENSORS_OF_VALUE_HEAD } tensors_part;

typedef struct {
  hp_device *d;
  tensors_part part;
  bool writes;             /* files of global tensors */
  bool is_model;           /* else an adapter, or states of the optimizer */
  bool adapter;            /* names of tensors in files are peft's */
  const char *kind, *file; /* "model", "model.safetensors" */
  bool sharded;            /* when they are saved */
  device_tensor *on;       /* on the device */
  size_t n_on;
  st_tensor *tensor; /* in files of global tensors */
  struct {
    size_t on, at; /* which, and the first element in it */
  } * place;
  size_t n;
  arena mem;
} trainer_tensors;

/* Parameters of the model, or of its adapter; states of the optimizer, which may be none. */
hp_status trainer_tensors_model(const train_config *c, const run_job *job, const run_model *m,
                                tensors_part part, trainer_tensors *out);
hp_status trainer_tensors_states(const train_config *c, const run_job *job, const run_model *m,
                                 trainer_tensors *out);
void trainer_tensors_free(trainer_tensors *x);

hp_status trainer_tensors_save(trainer_tensors *x, const char *dir);
/* Creates them on the device and reads them.  The checkpoint must hold these and no others. */
hp_status trainer_tensors_load(trainer_tensors *x, const char *dir);
/* Exports are of type `by` (train_config.export_dtype); with EXPORT_AUTO each tensor of the type
 * that the files of the model m, from which it started, hold it in.  Returns the type of most
 * numbers. */
hp_dtype trainer_tensors_cast(trainer_tensors *x, const lm *m, int by);
/* Whole, as Transformers saves a model, whatever the devices: a tensor at a time. */
hp_status trainer_tensors_export(trainer_tensors *x, const char *dir);

#endif
