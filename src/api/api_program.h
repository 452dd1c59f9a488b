/* What the parts of the API that make programs share. */
#ifndef API_API_PROGRAM_H
#define API_API_PROGRAM_H

#include "api/api_call.h"
#include "compile/compile.h"
#include "rt/run.h"

struct hp_program {
  runs r;
  double compile_s;
  uint64_t model[MEM_CLASS_COUNT]; /* bytes of the global model's tensors */
};

/* Begins to compile g for the devices of d; c is to be ended, also after a failure. */
hp_status api_compile_begin(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                            compilation *c);
/* The program of each device of this process, loaded. */
hp_status api_compile_devices(compilation *c, hp_device *d, hp_program *h);

#endif
