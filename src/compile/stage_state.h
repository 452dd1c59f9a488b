/* Internal to the compiler: what its stages read and write. */
#ifndef COMPILE_STAGE_STATE_H
#define COMPILE_STAGE_STATE_H

#include "compile/compile.h"
#include "compile/offload_stage.h"
#include "compile/prog_schedule.h"

enum {
#define STAGE(group, name, reads, writes, doc) ROW_##name,
#define PASS(name, doc)                        ROW_pass_##name,
#include "compile/stages.def"
#undef STAGE
#undef PASS
  STAGES
};

typedef struct step_link step_link; /* of compile.c */

struct stage_state {
  compilation *c;
  const target *t;
  const shard_plan *layouts;
  hp_graph *graph;      /* of a device, from the first pass to `lower`; NULL: still c->local */
  program *p;           /* from `lower` on */
  str notes;            /* of passes */
  uint64_t *workspace;  /* by kernel */
  void *kernels;        /* of the target */
  schedule_options how; /* of the order that is tried */
  schedule_kind kind;
  const inst_times *times;  /* of p, while an order that overlaps collectives is tried */
  uint64_t offload_reserve; /* bytes of the device that offloading leaves to later programs */
  offload_options offload;
  uint8_t mode[HP_MEMORY_CLASSES]; /* offload.mode, by the policy's level */
  offload_summary offloaded;
  bool fits;
  bool goes_on; /* to another level of the policy, if it does not fit */
  const step_link *link;
  hp_status (*run)(stage_state *s, stage_group group); /* the stages of a group */
  str text[STAGES]; /* of the stages of group ORDER, by row, if they are dumped */
};

/* Saturating. */
static inline uint64_t add_bytes(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
