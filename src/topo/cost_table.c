#include "topo/cost_table.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const names[COST_CLASSES] = {"product",        "grouped",   "conv", "attention",
                                                "attention_grad", "embedding", "loss", "loop_map",
                                                "loop_row",       "loop_col",  "copy", "transfer",
                                                "flash",          "other"};
static const double LEAST = 1e-9, MOST = 1e9; /* of a share of the limit */

/* --- rows ------------------------------------------------------------------------------------- */

/* Negative: a stands before b. */
static int compare(const cost_entry *a, const cost_entry *b) {
  if (a->op != b->op) return a->op < b->op ? -1 : 1;
  if (a->bf16 != b->bf16) return a->bf16 ? 1 : -1;
  return (a->below > b->below) - (a->below < b->below);
}

bool cost_table_set(cost_table *t, cost_entry row) {
  int i = 0;
  while (i < t->rows && compare(&t->row[i], &row) < 0) i++;
  if (i < t->rows && !compare(&t->row[i], &row)) {
    t->row[i] = row;
    return true;
  }
  if (t->rows == COST_ROWS) return false;
  memmove(&t->row[i + 1], &t->row[i], sizeof row * (size_t)(t->rows - i));
  t->row[i] = row;
  t->rows++;
  return true;
}

const cost_entry *cost_table_row(const cost_table *t, cost_class op, bool bf16, double below) {
  const cost_entry asked = {.op = (uint8_t)op, .bf16 = bf16, .below = below};
  for (int i = 0; i < t->rows; i++)
    if (!compare(&t->row[i], &asked)) return &t->row[i];
  return NULL;
}

double cost_table_find(const cost_table *t, const cost_work *w) {
  double share = 1;
  for (int i = 0; i < t->rows; i++) {
    const cost_entry *r = &t->row[i];
    if (r->op != w->op || r->bf16 != w->bf16) continue;
    share = r->of_limit;
    if (w->size < r->below) break;
  }
  return share;
}

/* --- reading ---------------------------------------------------------------------------------- */

static hp_status read_class(const tree_node *m, uint8_t *out) {
  const char *name;
  HP_TRY(tree_need_string(m, "op", &name));
  for (int i = 0; i < COST_CLASSES; i++)
    if (!strcmp(name, names[i])) {
      *out = (uint8_t)i;
      return HP_OK;
    }
  const char *near = str_nearest(name, names, COST_CLASSES);
  TREE_FAIL(tree_get(m, "op"), "\"%.100s\" is no kind of work%s%s%s", name,
            near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static hp_status read_row(const tree_node *m, cost_table *t) {
  static const char *const keys[] = {"op", "dtype", "below", "of_limit"};
  cost_entry row = {.below = INFINITY};
  const char *dtype;
  HP_TRY(tree_expect(m, TREE_MAP));
  HP_TRY(tree_check_keys(m, keys, sizeof keys / sizeof *keys));
  HP_TRY(read_class(m, &row.op));
  HP_TRY(tree_need_string(m, "dtype", &dtype));
  row.bf16 = !strcmp(dtype, "bf16");
  if (!row.bf16 && strcmp(dtype, "f32"))
    TREE_FAIL(tree_get(m, "dtype"), "\"%.100s\": expected f32 or bf16", dtype);
  if (tree_get(m, "below")) HP_TRY(tree_need_number(m, "below", LEAST, &row.below));
  HP_TRY(tree_need_number(m, "of_limit", LEAST, &row.of_limit));
  if (row.of_limit > MOST)
    TREE_FAIL(tree_get(m, "of_limit"), "%g is out of range; expected at most %g", row.of_limit,
              MOST);
  if (cost_table_row(t, (cost_class)row.op, row.bf16, row.below))
    TREE_FAIL(m, "there is a row of this op, dtype and size before");
  if (!cost_table_set(t, row)) TREE_FAIL(m, "more than %d rows", COST_ROWS);
  return HP_OK;
}

/* The numbers of a table, by their keys. */
static const struct {
  const char *key;
  size_t at;
} numbers[] = {{"flops_bf16", offsetof(cost_table, flops_bf16)},
               {"launch_us", offsetof(cost_table, launch_us)},
               {"cache_mb", offsetof(cost_table, cache_mb)},
               {"cache_bandwidth_gb_s", offsetof(cost_table, cache_gb_s)}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static double *number_of(const cost_table *t, int i) {
  return (double *)(uintptr_t)((const char *)t + numbers[i].at);
}

hp_status cost_table_read(const tree_node *n, cost_table *out) {
  const char *keys[NUMBERS + 1] = {"efficiency"};
  const tree_node *rows;
  *out = (cost_table){0};
  if (!n) return HP_OK;
  for (int i = 0; i < NUMBERS; i++) keys[i + 1] = numbers[i].key;
  HP_TRY(tree_expect(n, TREE_MAP));
  HP_TRY(tree_check_keys(n, keys, NUMBERS + 1));
  for (int i = 0; i < NUMBERS; i++)
    if (tree_get(n, numbers[i].key))
      HP_TRY(tree_need_number(n, numbers[i].key, LEAST, number_of(out, i)));
  if (!out->cache_mb != !out->cache_gb_s)
    TREE_FAIL(n, "cache_mb and cache_bandwidth_gb_s go together; one of them is missing");
  HP_TRY(tree_opt_list(n, "efficiency", &rows));
  for (uint32_t i = 0; rows && i < rows->len; i++) HP_TRY(read_row(rows->child[i], out));
  return HP_OK;
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_row(const cost_entry *r, str *out) {
  str_printf(out, "  - {op: %s, dtype: %s, ", names[r->op], r->bf16 ? "bf16" : "f32");
  if (isfinite(r->below)) {
    str_add(out, "below: ");
    str_add_double(out, r->below);
    str_add(out, ", ");
  }
  str_add(out, "of_limit: ");
  str_add_double(out, r->of_limit);
  str_add(out, "}\n");
}

void cost_table_print(const cost_table *t, str *out) {
  bool begun = false;
  for (int i = 0; i < NUMBERS; i++) {
    double x = *number_of(t, i);
    if (!(x > 0)) continue;
    str_printf(out, "%s  %s: ", begun ? "" : "costs:\n", numbers[i].key);
    str_add_double(out, x);
    str_add_char(out, '\n');
    begun = true;
  }
  if (t->rows) str_printf(out, "%s  efficiency:\n", begun ? "" : "costs:\n");
  for (int i = 0; i < t->rows; i++) print_row(&t->row[i], out);
}
