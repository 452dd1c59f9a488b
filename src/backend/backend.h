/* What a device backend offers.  Each is a folder here; "cpu" is the reference, "sim"
 * stands for devices that are not here, and makes plans alone.
 *
 * A backend loads a program in steps: choose writes engines into it; prepare chooses kernels and
 * says how much workspace each of them needs (before order and memory are planned); launch runs one
 * instruction on bound addresses.  Nothing may allocate in launch. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "prog/program.h"
#include "topo/capabilities.h"

/* In place of an engine's name: of each product the one that is measured to be the fastest. */
#define ENGINE_FASTEST "fastest"

typedef struct {
  int threads;        /* 0: all cores */
  bool shared;        /* the cores are other devices' too: threads are not bound to them */
  bool interpret;     /* loops are interpreted, never compiled */
  const char *engine; /* of products, or "fastest"; NULL: packed */
} backend_options;

/* What an instruction is run on. */
typedef struct {
  void *const *at; /* addresses of its operands, then of its results */
  void *workspace; /* NULL: it needs none */
  int64_t place;   /* of the device among those along the axes of the instruction; else 0 */
  int stream;      /* prog/vclock.h */
} launch_args;

typedef struct {
  const char *name;
  /* May the host read and write memory of tier device at its addresses?  If not, only the functions
   * of this table and collectives of the device's own communicator (comm/comm.h) use them: whatever
   * else reads or writes such memory does so through memory of tier host, which is the host's. */
  bool host_addressable;
  hp_status (*open)(const backend_options *o, void **dev);
  void (*close)(void *dev);
  /* Writes the engines of products into the instructions that name none, where they are not the
   * device's own. */
  hp_status (*choose)(void *dev, program *p);
  /* Chooses kernels; workspace[prog_inst.kernel] = bytes that the instruction needs. */
  hp_status (*prepare)(void *dev, const program *p, uint64_t *workspace, void **loaded);
  void (*release)(void *loaded);
  /* The caller is a thread that runs a stream other than compute from now on: it may run on cores
   * that the device's own threads leave. */
  void (*join)(void *dev);
  /* Runs instruction n of p, whose kernels are loaded, on a stream.  p may be another order of the
   * program that was prepared. */
  hp_status (*launch)(void *loaded, const program *p, const prog_inst *n, const launch_args *a);
  /* Address space of a tier, without memory; NULL with a failure recorded. */
  void *(*reserve)(void *dev, int tier, uint64_t bytes);
  void (*unreserve)(void *dev, int tier, void *at, uint64_t bytes);
  /* Memory for a range of it, zeroed; and zeros in a range that is not needed any more. */
  hp_status (*commit)(void *dev, int tier, void *at, uint64_t bytes);
  void (*discard)(void *dev, int tier, void *at, uint64_t bytes);
  /* Between any tiers, and memory of the host, on a stream (prog/vclock.h). */
  hp_status (*copy)(void *dev, void *to, const void *from, uint64_t bytes, int stream);
  /* Zeros, on a stream. */
  hp_status (*zero)(void *dev, void *at, uint64_t bytes, int stream);
  /* Writes a tensor of that type at `at`, which may be memory of the host, by `fill`, called from
   * the device's threads side by side, each for a run of rows. */
  hp_status (*fill)(void *dev, void *at, const ir_value *type, hp_fill_fn fill, void *context);
  /* One line about the device for people: cores, instruction set. */
  const char *(*describe)(void *dev);
  int (*threads)(void *dev);
  /* The engine of products; set changes it for programs that are chosen for from now on. */
  const char *(*engine)(void *dev);
  hp_status (*set_engine)(void *dev, const char *name);
  /* What the compiler may count on, with that engine; `planned`: as the cluster file says it. */
  void (*capabilities)(void *dev, const capabilities *planned, capabilities *out);
  /* What "fastest" has found so far, a line a product; set adds such lines, which count more. */
  void (*tuning)(void *dev, str *out);
  hp_status (*set_tuning)(void *dev, const char *text);
  /* What the device can do, measured with so many bytes of memory at most, or few; 0: any. */
  hp_status (*measure)(void *dev, uint64_t most_bytes, hp_limits *out);
} backend_iface;

/* The reference.  The table of the others is made of the folders of src/backend. */
extern const backend_iface backend_cpu;
/* The backend of that name, or NULL. */
const backend_iface *backend_find(const char *name);

#endif
