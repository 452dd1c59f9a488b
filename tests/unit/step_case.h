/* A small training step of two transformer layers, as tests of the whole path need one. */
#ifndef STEP_CASE_H
#define STEP_CASE_H

#include "base/status.h"

enum { STEP_B = 2, STEP_T = 64, STEP_C = 64, STEP_V = 128, STEP_IO = 4 };

typedef struct {
  hp_device *d;
  hp_graph *g;
  hp_program *p;
  int32_t ids[STEP_B * STEP_T], labels[STEP_B * STEP_T];
  float rates[4], loss;
  hp_io io[STEP_IO];
} step_case;

/* The graph alone; `dtype` is of the matrix products, the params are f32. */
hp_graph *step_graph(hp_dtype dtype);
/* Opens a device, fills the params, compiles; checks fail the test. */
void step_open(const hp_device_options *o, const hp_compile_options *c, hp_dtype dtype,
               step_case *out);
/* The same on a device that is open; step_close closes it. */
void step_open_on(hp_device *d, const hp_compile_options *c, hp_dtype dtype, step_case *out);
void step_run(step_case *s);
void step_close(step_case *s);

#endif
