#include "report/run_entry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void run_entry_add_value(run_entry *e, run_value v) {
  HP_ASSERT(e->n < RUN_VALUES_MAX);
  e->value[e->n++] = v;
}

void run_entry_add(run_entry *e, const char *key, double x) {
  run_entry_add_value(e, (run_value){.key = key, .number = x});
}

void run_entry_add_int(run_entry *e, const char *key, int64_t x) {
  run_entry_add_value(e, (run_value){.key = key, .whole = true, .integer = x, .number = (double)x});
}

const run_value *run_entry_get(const run_entry *e, const char *key) {
  for (int i = 0; i < e->n; i++)
    if (!strcmp(e->value[i].key, key)) return &e->value[i];
  return NULL;
}

double run_entry_number(const run_entry *e, const char *key) {
  const run_value *v = run_entry_get(e, key);
  return v ? v->number : NAN;
}

void run_print_duration(double s, str *out) {
  int64_t t = s > 0 && s < 9e15 ? (int64_t)s : 0, days = t / 86400;
  if (days) str_printf(out, "%lld day%s, ", (long long)days, days == 1 ? "" : "s");
  t %= 86400;
  str_printf(out, "%lld:%02lld:%02lld", (long long)(t / 3600), (long long)(t / 60 % 60),
             (long long)(t % 60));
}
