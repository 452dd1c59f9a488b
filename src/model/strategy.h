/* The short form of a parallel plan, "dp=2,zero=1,tp=2,sp,cp=2:ring", and its meaning: the mesh,
 * and the layouts of a family's params, inputs and annotations. */
#ifndef MODEL_STRATEGY_H
#define MODEL_STRATEGY_H

#include "base/str.h"
#include "model/lm.h"

/* How attention reads keys of other shards of the sequence. */
typedef enum {
  CP_RING,      /* keys and values go round, a shard at a time */
  CP_ALLGATHER, /* every device has all keys and values */
  CP_ULYSSES,   /* heads are sharded instead of the sequence */
  CP_HYBRID,    /* heads by one factor of the degree, a ring of the other */
  CP_MODES
} cp_mode;

/* Degrees, at least 1.  Devices are pp x dp x cp x tp x tp_y: a mesh of all but pp for each device
 * of the pipeline; experts see the same devices as
 * (what is left) x ep x etp. */
typedef struct strategy {
  int64_t dp, tp, tp_y, cp, ep, etp, pp;
  cp_mode mode;
  bool sp;  /* activations between the blocks are sharded along the sequence, by tp */
  int zero; /* 0 to 3: sharded over dp and cp: nothing, optimizer state (1 and 2), also params (3)
             */
  int64_t zero_dp; /* over this many of the dp devices, with replicas on the others; 0: over all */
} strategy;

/* `devices`: 0 = as many as the strategy needs; text NULL: all of them are dp.  ep x etp enlarge
 * dp as far as needed.  HP_ERR_ARG names an invalid word, HP_ERR_UNSUPPORTED one that is not
 * built. */
hp_status strategy_parse(const char *text, int64_t devices, strategy *out);
int64_t strategy_devices(const strategy *s);

/* --- the mesh */

/* The use of an axis.  The axes of attention and the mlp, in the order of the mesh; each may be
 * split further for experts. */
typedef enum {
  BASE_REPLICAS,
  BASE_DP,
  BASE_RING,
  BASE_ULYSSES,
  BASE_TP_Y,
  BASE_TP,
  BASES
} axis_base;
typedef enum { EXPERT_NONE, EXPERT_EP, EXPERT_ETP, EXPERT_PARTS } axis_expert;
typedef struct {
  char name[16];
  int64_t size;
  axis_base base;
  axis_expert expert;
} strategy_axis;
enum { STRATEGY_AXES = 8 }; /* the maximum of a mesh */
/* The axes of more than one device. */
int strategy_axes(const strategy *s, strategy_axis out[STRATEGY_AXES]);

enum { STRATEGY_PIPELINE = 64 /* meshes of a pipeline */ };
/* Adds the mesh of all but pp, "(2,2)(dp,tp)"; that of one device has an axis, too. */
void strategy_add_mesh(const strategy *s, str *out);

/* Declares the layouts of the model's params, their optimizer state, inputs, caches and annotations
 * on the mesh of that stage of the device, -1: on all; dims that the degrees do not divide are
 * padded. */
hp_status strategy_apply(const strategy *s, const lm *m, hp_device *d, int stage);

#endif
