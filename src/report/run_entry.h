/* An entry of a run's history: a list of named numbers, in the order of the console line. */
#ifndef REPORT_RUN_ENTRY_H
#define REPORT_RUN_ENTRY_H

#include "base/str.h"

enum { RUN_VALUES_MAX = 28 };

typedef struct {
  const char *key;
  bool whole; /* an integer: .integer, else .number */
  int64_t integer;
  double number;
} run_value;

typedef struct {
  run_value value[RUN_VALUES_MAX];
  int n;
} run_entry;

void run_entry_add(run_entry *e, const char *key, double x);
void run_entry_add_value(run_entry *e, run_value v);
void run_entry_add_int(run_entry *e, const char *key, int64_t x);
const run_value *run_entry_get(const run_entry *e, const char *key); /* NULL: none */
/* The number under a key, NAN when there is none. */
double run_entry_number(const run_entry *e, const char *key);

/* As Python writes str(timedelta(seconds=int(s))). */
void run_print_duration(double s, str *out);

#endif
