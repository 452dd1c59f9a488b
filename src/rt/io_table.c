#include "rt/io_table.h"

#include <string.h>

hp_status io_table_add(io_table *t, const char *name, uint32_t *row) {
  if (!vec_push(&t->given, NULL)) return HP_ERR_OOM;
  if (map_get(&t->rows, name, strlen(name), row)) return HP_OK;
  *row = (uint32_t)t->given.len - 1;
  return map_set(&t->rows, name, strlen(name), *row);
}

hp_status io_table_match(io_table *t, const hp_io *io, int n) {
  for (size_t row = 0; row < t->given.len; row++) t->given.at[row] = NULL;
  /* Checks no more entries than a program can have, for any n. */
  if ((size_t)n > t->given.len)
    HP_FAIL(HP_ERR_ARG, "%d inputs and outputs are given, the program has %zu", n, t->given.len);
  for (int i = 0; i < n; i++) {
    if (!io[i].name || (!io[i].data && io[i].bytes))
      HP_FAIL(HP_ERR_ARG, "io %d of the run: its name or data is NULL", i);
    uint32_t row;
    if (!map_get(&t->rows, io[i].name, strlen(io[i].name), &row))
      HP_FAIL(HP_ERR_ARG, "the program has no input or output \"%s\"", io[i].name);
    if (t->given.at[row])
      HP_FAIL(HP_ERR_ARG, "io %d and io %d of the run are both \"%s\"; give it once",
              (int)(t->given.at[row] - io), i, io[i].name);
    t->given.at[row] = &io[i];
  }
  return HP_OK;
}

void io_table_free(io_table *t) {
  map_free(&t->rows);
  vec_free(&t->given);
}
