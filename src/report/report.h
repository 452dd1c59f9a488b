/* report.html: one self-contained page about a run: curves with a shared cursor, memory, where the
 * time goes, settings, checkpoints.  It has a light and a dark style and works without JavaScript.
 * Sections without data are left out. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "hyperparallel.h"
#include "report/run_entry.h"

typedef struct {
  const char *name, *value, *detail; /* detail: in small print after the value, or NULL */
} report_fact;

/* A class of memory (parameters, optimizer, activations, ...) during one step: its bytes at
 * `places` evenly spaced points of the program. */
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
  const report_fact *card; /* key figures, shown after loss, speed and time */
  int cards;

  const run_entry *entry; /* log_history */
  size_t entries;
  const double *step, *step_s, *tokens_per_s; /* one per timed step; NULL: none */
  size_t steps;

  const hp_op_time *op; /* from hp_program_times: the widest gap first */
  int ops;
  const char *timeline, *mesh; /* SVG or NULL: streams over time; traffic of each mesh axis */

  const report_tier *tier;
  int tiers;
  const report_layer *layer; /* stacked, the first at the bottom */
  int layers;
  size_t places;
  double memory_limit;        /* bytes of a device; 0: none */
  double memory_planned;      /* bytes of a device in the plan; above the layers they are unused */
  const char *memory_picture; /* SVG: tiers over a step, in place of a chart of the layers; NULL */
  const char
      *memory_note; /* lines on the memory of the global model and whether it fits; or NULL */

  const report_setting *setting;
  int settings;
  const report_file *file;
  int files;
} report;

/* Appends the page; out->failed when out of memory. */
void report_print(const report *r, str *out);
/* Writes the page to a file, which is replaced atomically. */
hp_status report_write(const report *r, const char *path);

/* --- sections --------------------------------------------------------------------------------- */

/* report_charts.c: the curves, and the numbers at the cursor */
void report_print_curves(const report *r, str *out);
void report_print_memory_chart(const report *r, str *out);
/* report_time.c */
void report_print_time(const report *r, str *out);
void report_print_copies(const report *r, str *out); /* between tiers; nothing if there are none */
/* report_page.c */
extern const char *const report_style[]; /* CSS in several strings, NULL after the last */
extern const char report_script[];

#endif
