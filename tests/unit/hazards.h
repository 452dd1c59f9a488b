/* Proof by brute force that nothing in a program meets in memory but in the order of the list. */
#ifndef HAZARDS_H
#define HAZARDS_H

#include "prog/program.h"

enum { HAZARD_TEXT = 300 };

/* Looks at every pair of accesses to overlapping memory: work of a tier, tensors of the device,
 * workspaces, inputs before the first instruction, outputs after the last, and what is carried from
 * run to run at both.  Streams and waits
 * must put both in list order when one writes; a read must find what the writer of its buffer
 * wrote; a result may lie over an operand only where its kernel allows that.  Returns false when
 * all is well, else true with why[HAZARD_TEXT].  Shares no code with the passes but the rules of
 * src/pass/inplace. */
bool program_hazard(const program *p, char *why);

#endif
