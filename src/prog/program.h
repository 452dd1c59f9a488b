/* The program of one rank: a flat list of instructions over buffers with fixed addresses.
 *
 * The compiler has decided everything: order, stream, waits, offsets, kernel engine.  Run,
 * simulate, trace, explain and print read this list.  A buffer is at a planned offset in the work
 * arena of its tier, or is a named tensor of the device that outlives the run (state).  Strings and
 * attribute records are interned in `names`, which may share its pool with the graph. */
#ifndef PROG_PROGRAM_H
#define PROG_PROGRAM_H

#include "ir/attr.h"
#include "prog/vclock.h"

typedef enum { PLACE_WORK, PLACE_STATE } prog_place;
enum {
  BUFFER_INPUT = 1,
  BUFFER_OUTPUT = 2,
  BUFFER_WORKSPACE = 4,
  BUFFER_CARRIED_IN = 8,  /* holds the content of `carries` when a run begins, */
  BUFFER_CARRIED_OUT = 16 /* and at its end, until the next run */
};
#define PROG_NONE UINT32_MAX

typedef struct {
  uint8_t place, tier, flags, class; /* prog_place, TIER_*, BUFFER_*, mem_class */
  uint32_t name;                     /* interned: of a state tensor, input or output; else 0 */
  uint32_t root;    /* the buffer that owns the memory: itself, or the one that it is a view of */
  uint32_t carries; /* 1 + the named tensor of another tier, or a view of it, that the device keeps
                       here from one run to the next; 0: none.  One buffer, or two with one offset.
                       Of a value that is computed ahead (prog/ahead.h): the first of these two */
  uint64_t at;      /* its first byte in the root */
  uint64_t offset, bytes; /* offset in the tier's work arena */
  ir_value type;          /* dtype and dims */
} prog_buffer;

/* Instructions that not every run of a program has (prog/ahead.h). */
enum {
  AHEAD_AGAIN = 1, /* not if the run goes on with what the one before has done ahead, */
  AHEAD_NEXT = 2   /* not if the run does nothing ahead */
};

typedef struct {
  uint16_t op;
  uint8_t stream, n_in, n_out, phase, group;
  uint8_t ahead; /* AHEAD_*; not in the text form */
  uint16_t block, stage;
  uint32_t micro;     /* 1 + its micro-batch; 0: the program has one */
  uint32_t row;       /* of a linked program, from 1; rows that overlap have one number.  Not in the
                         text form */
  uint32_t arg0;      /* n_in operands, then n_out results: buffer ids in program->args */
  uint32_t workspace; /* buffer id, or PROG_NONE */
  uint32_t kernel;    /* number of its kernel, below program_kernels; copies of an instruction in
                         several rows of a step share one */
  uint32_t attr, loc; /* interned */
  uint32_t wait0;     /* waits in program->waits */
  uint16_t n_wait;
  uint32_t engine;     /* interned name of the kernel engine, 0 = the op's own */
  double flops, bytes; /* work, from the op's cost */
} prog_inst;

typedef struct {
  hp_graph *names; /* an empty graph that holds the pool of strings and attributes */
  VEC(prog_buffer) buffers;
  VEC(prog_inst) insts;
  VEC(uint32_t) args;
  VEC(vclock_wait) waits;
  uint32_t kernels; /* more than the instructions have: some of a linked piece are left out; or 0 */
  uint64_t arena[TIER_COUNT];    /* bytes of work memory per tier */
  uint64_t bound[TIER_COUNT];    /* lower bound of arena: the most bytes live at once */
  uint32_t bound_at[TIER_COUNT]; /* the instruction at which they are */
  double bound_s;    /* of a program with planned copies: no plan is faster; not in the text form */
  const char *order; /* why the order is not the fastest, for people; NULL: it is */
  str notes;         /* lines for people on what passes did or could not do; not in the text form */
} program;

/* Times of an instruction, in seconds since the start of the run.  arrived_s: when the last device
 * arrived at the collective; equal to start_s for other instructions.  received: bytes that the
 * device receives in it; of a dispatch or combine those expected of a prediction, or moved in a
 * run. */
typedef struct {
  double start_s, arrived_s, end_s, received;
} inst_times;

/* The duration of the run: the latest end of its n instructions. */
static inline double inst_times_end(const inst_times *t, size_t n) {
  double end = 0;
  for (size_t i = 0; i < n; i++)
    if (t[i].end_s > end) end = t[i].end_s;
  return end;
}

hp_status program_create(const hp_graph *like, program **out);
void program_free(program *p);
/* A copy that can be changed independently. */
hp_status program_copy(const program *p, program **out);
/* Does an instruction wait for other devices? */
bool program_has_rendezvous(const program *p);
/* Do all instructions run on one stream? */
bool program_has_one_stream(const program *p);
/* The happens-before order given by the first `streams` streams and the waits. */
hp_status program_clock(const program *p, uint32_t streams, vclock *out);

/* Numbers of kernels are below it. */
static inline size_t program_kernels(const program *p) {
  return p->kernels > p->insts.len ? p->kernels : p->insts.len;
}
static inline const prog_inst *program_inst(const program *p, size_t i) { return &p->insts.at[i]; }
/* Buffer ids of an instruction: operands, then results. */
static inline const uint32_t *program_args(const program *p, const prog_inst *n) {
  return &p->args.at[n->arg0];
}
static inline const prog_buffer *program_arg(const program *p, const prog_inst *n, int i) {
  return &p->buffers.at[p->args.at[n->arg0 + (uint32_t)i]];
}
const char *program_str(const program *p, uint32_t id);
/* The attributes of an instruction; they are those of its node. */
int64_t inst_int(const program *p, const prog_inst *n, const char *key);
double inst_float(const program *p, const prog_inst *n, const char *key);
const char *inst_str(const program *p, const prog_inst *n, const char *key);
int inst_list(const program *p, const prog_inst *n, const char *key, int64_t out[ATTR_LIST_MAX]);

/* Text form: one line for each arena, buffer and instruction.  Parsing checks the structure
 * (numbers in range, arity, attributes, buffers inside their arenas), not what the program
 * computes. */
hp_status program_print(const program *p, str *out);
void program_print_inst(const program *p, size_t i, str *out); /* its line */
hp_status program_parse(const char *text, size_t n, const char *name, program **out);
/* The line of each buffer and instruction in a text; the first line is 1. */
typedef struct {
  VEC(uint32_t) buffer, inst;
} program_lines;
/* Parses and also returns the lines.  The caller frees them, also after a failure. */
hp_status program_parse_lines(const char *text, size_t n, const char *name, program **out,
                              program_lines *lines);
void program_lines_free(program_lines *l);

#endif
