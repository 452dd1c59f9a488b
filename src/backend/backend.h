/* What a device backend offers.  One row a backend in backend_table; "cpu" is the reference.
 *
 * A backend loads a program in steps: choose writes engines into it; prepare chooses kernels and
 * says how much workspace each instruction needs (before memory is planned); launch runs one
 * instruction on bound addresses.  Nothing may allocate in launch. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "prog/program.h"

/* In place of an engine's name: of each product the one that is measured to be the fastest. */
#define ENGINE_FASTEST "fastest"

typedef struct {
  int threads;        /* 0: all cores */
  bool shared;        /* the cores are other devices' too: threads are not bound to them */
  bool interpret;     /* loops are interpreted, never compiled */
  const char *engine; /* of products, or "fastest"; NULL: packed */
} backend_options;

typedef struct {
  const char *name;
  hp_status (*open)(const backend_options *o, void **dev);
  void (*close)(void *dev);
  /* Writes the engines of products into the instructions that name none, where they are not the
   * device's own. */
  hp_status (*choose)(void *dev, program *p);
  /* Chooses kernels; workspace[i] = bytes that instruction i needs. */
  hp_status (*prepare)(void *dev, program *p, uint64_t *workspace, void **loaded);
  void (*release)(void *loaded);
  /* Runs instruction i: at[k] is the address of its k-th operand or result. */
  hp_status (*launch)(void *loaded, uint32_t i, void *const *at, void *workspace);
  /* Memory of a tier, zeroed; NULL with a failure recorded. */
  void *(*alloc)(void *dev, int tier, uint64_t bytes);
  void (*free)(void *dev, int tier, void *at, uint64_t bytes);
  hp_status (*copy)(void *dev, void *to, const void *from, uint64_t bytes); /* host <-> device */
  /* Writes a tensor of that type at `at` by `fill`, called from the device's threads side by side,
   * each for a run of rows. */
  hp_status (*fill)(void *dev, void *at, const ir_value *type, hp_fill_fn fill, void *context);
  /* One line about the device for people: cores, instruction set. */
  const char *(*describe)(void *dev);
  int (*threads)(void *dev);
  /* The engine of products; set changes it for programs that are chosen for from now on. */
  const char *(*engine)(void *dev);
  hp_status (*set_engine)(void *dev, const char *name);
  /* True where that engine multiplies operands of one type alone; else an operand of f32 beside
   * one of bf16 is rounded as it is read. */
  bool (*one_type)(void *dev);
  /* What "fastest" has found so far, a line a product; set adds such lines, which count more. */
  void (*tuning)(void *dev, str *out);
  hp_status (*set_tuning)(void *dev, const char *text);
  hp_status (*measure)(void *dev, hp_limits *out); /* what the device can do */
} backend_iface;

extern const backend_iface backend_cpu;
/* The backend of that name, or NULL. */
const backend_iface *backend_find(const char *name);

#endif
