/* What the public API calls a device: one, or a mesh of several that are programmed as one, of this
 * process or one in each of a job (rt/job_devices.h).  A mesh has layouts, named tensors and
 * programs of its own: only its processes take part when something of it is compiled, run, read or
 * saved. Names and shapes are those of global tensors; each device holds its shard by the layout of
 * the name.  Devices have the numbers of their positions on the mesh, which need not be their
 * ranks. */
#ifndef RT_DEVICE_MESH_H
#define RT_DEVICE_MESH_H

#include "shard/shard.h"
#include "rt/job_devices.h"

typedef struct {
  char *pattern, *entries;
  bool where_divides;
  bool expected;   /* warn, once, if no tensor of a program has a name that matches */
  bool is_glob;    /* a general glob; false: a name, or "*" and a suffix */
  const char *end; /* if not is_glob: the name or the suffix, inside pattern */
  size_t end_bytes;
  layout l; /* what the entries say */
} layout_rule;

/* What tensors with matching names do: HP_OFFLOAD_*. */
typedef struct {
  char *pattern;
  uint8_t offload;
} home_rule;

typedef struct {
  uint32_t name; /* place in mesh->names */
  ir_value type; /* of the global tensor */
  layout l;
} device_mesh_state;

struct hp_device {
  job *job;
  int n;                          /* devices of the mesh */
  int own;                        /* those of this process, in the order of their ranks: */
  device *member[COMM_LOCAL_MAX]; /* what they are, */
  int thread[COMM_LOCAL_MAX];     /* and their threads in the job's team */
  bool plan_only;                 /* one stands for all */
  cluster cluster;                /* by which is planned */
  cluster costs;                  /* by which is predicted: rt/learn.h */
  bool has_record, learned;
  mesh m;                 /* of one axis and device when n is 1 */
  VEC(layout_rule) rules; /* the first that matches counts */
  map rule_of;            /* name -> the first rule that is just that name */
  map suffix_rule;        /* suffix -> the first rule that is "*" and this suffix */
  VEC(size_t) suffixes;   /* the lengths of these suffixes, each once */
  VEC(uint32_t) globs;    /* the other rules */
  VEC(home_rule) homes;   /* the first that matches counts */
  VEC(device_mesh_state) states;
  map state_of;
  interner names;
  bool no_partial_sums, may_miss; /* as in hp_device_options */
  /* A pipeline (rt/stage_meshes.h); meshes 0: it is none. */
  int meshes, stages;
  hp_device **stage_mesh; /* [meshes] */
  uint16_t *mesh_of;      /* [stages] */
  char *pipeline;         /* schedule: a name, or rows */
  map stage_of;           /* name of a tensor -> 1 + stage; 0: it is on all */
  char about[160];        /* for people */
};
typedef struct hp_device device_mesh;

/* A mesh of the job of o->job; or a job of its own, and its mesh of all devices; mesh NULL: one. In
 * a job of several processes the mesh may name its ranks, "(2)(dp)@2,3", and has only these. */
hp_status device_mesh_open(const hp_device_options *o, device_mesh **out);
/* A mesh of some ranks of a job, which lives as long as its meshes.  Threads, engine and memory
 * limit are the job's. */
hp_status device_mesh_open_on(job *j, const hp_device_options *o, device_mesh **out);
/* The same of a mesh of a pipeline, which may have no device of this process: own is 0 then.  It
 * has names and layouts, programs are compiled for it by member[0], and there is nothing else. */
hp_status device_mesh_open_stage(job *j, const hp_device_options *o, device_mesh **out);
void device_mesh_close(device_mesh *dm);
hp_status device_mesh_rule(device_mesh *dm, const char *pattern, const char *entries,
                           bool where_divides);
/* A rule for named tensors, whose homes follow from it when a program is compiled. */
hp_status device_mesh_home_rule(device_mesh *dm, const char *pattern, uint8_t offload);
/* HP_OFFLOAD_* of the tensor by the first rule that matches its name; -1: none does. */
int device_mesh_home(const device_mesh *dm, const char *name);
/* HP_ERR_ARG if this mesh, or another mesh with one of its devices, computes with
 * no_partial_sums: then the engine is fixed. */
hp_status device_mesh_set_engine(device_mesh *dm, const char *name);
/* Layout of a tensor by the first rule that matches its name; replicated, and false, when none
 * does. */
bool device_mesh_declared(const void *dm, const char *name, const ir_value *type, layout *out);
/* HP_ERR_LAYOUT when what hp_shard was given in the graph is no layout on the mesh. */
hp_status device_mesh_check_annotations(const device_mesh *dm, const hp_graph *graph);
/* Warns, once each, of rules that match no name of the graphs of a program and no param. */
void device_mesh_warn_unused(device_mesh *dm, const hp_graph *const *graph, size_t graphs);
/* The device at the mesh's first position; NULL: it is another process's. */
device *device_mesh_first(const device_mesh *dm);
/* Writes engines into the program that the i-th device of this process was given.  All devices get
 * those of the first: it measures, where anything is to be measured, and tells the others. */
hp_status device_mesh_choose(device_mesh *dm, int i, program *p);
/* The params of a graph of global tensors. */
hp_status device_mesh_params(device_mesh *dm, const hp_graph *graph);
/* The param of that name; a new one is created in that tier, with zeros; on the device only if no
 * rule for its home and no limit is against it. */
hp_status device_mesh_state_of(device_mesh *dm, const char *name, const ir_value *type, int tier,
                               uint32_t *index);
/* Gives its memory back, or calls it `to`.  HP_ERR_ARG, by name, when a loaded program uses it. */
hp_status device_mesh_free_state(device_mesh *dm, const char *name);
hp_status device_mesh_rename_state(device_mesh *dm, const char *name, const char *to);
/* Named tensors that programs carry from one run to the next are at home. */
hp_status device_mesh_settle(const device_mesh *dm);
/* Bytes of the global tensor to all devices, and from those that hold its shards first; of several
 * processes all read, each with room for it or with NULL. */
hp_status device_mesh_write(device_mesh *dm, uint32_t state, const void *data);
hp_status device_mesh_fill(device_mesh *dm, uint32_t state, hp_fill_fn fill, void *context);
hp_status device_mesh_read(const device_mesh *dm, uint32_t state, void *data);
/* The shards of all processes into `global`, for those that want it; shard: what this one holds, in
 * memory of the host, NULL: it cannot be read, and all fail. */
hp_status device_mesh_fetch(const device_mesh *dm, const ir_value *type, const layout *l,
                            const void *shard, void *global);
/* What each process of the mesh gives, `bytes` of it, to all, in the order of positions. */
hp_status device_mesh_gather(const device_mesh *dm, const void *mine, size_t bytes, void *all);
/* The bytes of `data` of the process at position `from`, into those of each position that wants
 * them; all processes call it with the same wants[n]. */
hp_status device_mesh_send(const device_mesh *dm, int64_t from, const char *wants, void *data,
                           size_t bytes);
/* Takes its own devices until they are let go: meshes that share one of them wait.  A thread may
 * hold what it holds already.  Whoever changes a device, or exchanges data between processes, holds
 * them; between processes meshes that share one must be used in the same order by all. */
const device_mesh *device_mesh_hold(const device_mesh *dm);
void device_mesh_let_go(const device_mesh *dm);
/* To the end of the block. */
#define DEVICE_MESH_HOLD(dm)                                                                       \
  const device_mesh *held_ __attribute__((cleanup(device_mesh_end_hold), unused)) =                \
      device_mesh_hold(dm)
static inline void device_mesh_end_hold(const device_mesh *const *dm) { device_mesh_let_go(*dm); }
/* Does that work on each own device, which it holds; the first failure is returned. */
hp_status device_mesh_each(const device_mesh *dm, const team_work *w);
/* Is the device the first of those that hold the same shard? */
bool holds_first(const device_mesh *dm, int at, const layout *l);

#endif
