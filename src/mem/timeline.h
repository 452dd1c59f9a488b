/* Live bytes over the positions of a program, per tier and per class: for `explain`, the report
 * and the offload pass.  Same positions as mem/offsets. */
#ifndef MEM_TIMELINE_H
#define MEM_TIMELINE_H

#include "base/status.h"

typedef enum {
  MEM_PARAM,
  MEM_GRAD,
  MEM_OPTIMIZER,
  MEM_ACTIVATION,
  MEM_WORKSPACE,
  MEM_COMM,
  MEM_OTHER,
  MEM_CLASS_COUNT
} mem_class;
/* "parameters", "gradients", ...; "other" for a class that is none. */
const char *mem_class_name(mem_class c);

enum { TIMELINE_TIERS = 8 };

typedef struct {
  uint64_t bytes;
  uint32_t first, last; /* live at both ends and between */
  uint8_t tier;         /* < tiers */
  uint8_t class;        /* mem_class */
} timeline_span;

typedef struct {
  size_t positions;
  uint32_t tiers;
  uint64_t *live;                   /* [tiers][positions] */
  uint64_t peak[TIMELINE_TIERS];    /* greatest live, and the first position */
  uint32_t peak_at[TIMELINE_TIERS]; /* where it is reached */
  uint64_t peak_by_class[TIMELINE_TIERS][MEM_CLASS_COUNT]; /* sums to peak */
} timeline;

/* Spans past the last position, tiers above `tiers` and sums above 2^63 are HP_ERR_ARG (the
 * message names the span).  Free with timeline_free. */
hp_status timeline_build(const timeline_span *span, size_t n, size_t positions, uint32_t tiers,
                         timeline *out);
void timeline_free(timeline *t);

/* The spans live at a position of a tier, largest first (ties by index), at most max of them into
 * id; returns how many were written. */
size_t timeline_largest(const timeline_span *span, size_t n, uint32_t tier, uint32_t position,
                        uint32_t *id, size_t max);

/* bytes[class] live at a position of a tier. */
void timeline_by_class(const timeline_span *span, size_t n, uint32_t tier, uint32_t position,
                       uint64_t bytes[MEM_CLASS_COUNT]);

#endif
