/* report.html: one page about a run, with nothing outside it: curves with a shared cursor, memory,
 * where time goes, settings, checkpoints.  Reads well in light and in dark, and without
 * JavaScript.  Parts whose figures are not given are left out. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "hyperparallel.h"
#include "report/run_entry.h"

typedef struct {
  const char *name, *value, *detail; /* detail: a smaller word beside the value, or NULL */
} report_fact;

/* A class of memory (parameters, optimizer, activations, ...) over one step: its bytes at each of
 * the evenly spaced places of the program. */
typedef struct {
  const char *name;
  const double *bytes;
} report_layer;

typedef struct {
  const char *name;                  /* host, HBM, ... */
  uint64_t planned, measured, limit; /* bytes at the peak; 0: not known, or no limit */
} report_tier;

typedef struct {
  const char *name; /* of a file or folder, relative to the page */
  int64_t step;     /* of a checkpoint; < 0: no checkpoint */
  uint64_t bytes;
  const char *note; /* "best", ...; or NULL */
} report_file;

typedef struct {
  const char *name, *value, *help;
  bool given; /* by the user; else at its default */
} report_setting;

typedef struct {
  const char *title;
  const char *status; /* "finished", "stopped at step 40: SIGTERM", ... */
  bool finished;
  const report_fact *head; /* lines under the title: model, data, machine, ... */
  int heads;
  const report_fact *card; /* figures to see at a glance, after loss, speed and time */
  int cards;

  const run_entry *entry; /* log_history */
  size_t entries;
  const double *step, *step_s, *tokens_per_s; /* one a step that was timed; NULL: none */
  size_t steps;

  const hp_op_time *op; /* as hp_program_times gives them: the widest gap first */
  int ops;
  const char *timeline, *mesh; /* pictures as SVG, or NULL: streams over time; what axes carry */

  const report_tier *tier;
  int tiers;
  const report_layer *layer; /* drawn one upon another, the first lowest */
  int layers;
  size_t places;
  double memory_limit; /* of a device; 0: none */
  double
      memory_planned; /* what the plan takes of a device; the rest of it is where layers are not */
  const char *memory_note; /* lines on the whole model and on whether it fits; or NULL */

  const report_setting *setting;
  int settings;
  const report_file *file;
  int files;
} report;

/* The page; a failed str is out of memory. */
void report_print(const report *r, str *out);
/* The page as a file, replaced atomically. */
hp_status report_write(const report *r, const char *path);

/* --- parts ------------------------------------------------------------------------------------ */

/* report_charts.c: the curves and the numbers that the cursor shows. */
void report_print_curves(const report *r, str *out);
void report_print_memory_chart(const report *r, str *out);
/* report_time.c */
void report_print_time(const report *r, str *out);
/* report_page.c */
extern const char *const report_style[]; /* parts, NULL after the last */
extern const char report_script[];

#endif
