#include "pass/pass.h"

#include "base/io.h"
#include "base/milestone.h"
#include "ir/print.h"
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

const pass_row pass_table[] = {
#define PASS(name, doc) {#name, pass_##name, doc},
#include "pass/pass.def"
#undef PASS
    {NULL, NULL, NULL}};

static hp_status dump(const hp_graph *g, const char *dir, int index, const char *name) {
  str path = {0}, text = {0};
  str_printf(&path, "%s/%02d_%s.hp", dir, index, name);
  hp_status st = graph_print(g, &text);
  if (!st) st = str_status(&path);
  if (!st) st = file_write(path.at, text.at ? text.at : "", text.len);
  str_free(&path);
  str_free(&text);
  return st;
}

hp_status pass_run_all(const hp_graph *in, const pass_options *o, hp_graph **out) {
  const hp_graph *g = in;
  hp_graph *made = NULL;
  uint32_t node;
  HP_TRY(graph_status(in));
  HP_TRY(ops_check_names(in, &node));
  if (o->dump_dir) HP_TRY(dump(in, o->dump_dir, 0, "built"));
  for (int i = 0; pass_table[i].name; i++) {
    hp_graph *next;
    milestone_count_work();
    hp_status st = pass_table[i].run(g, o, &next);
    graph_free(made);
    HP_TRY(st);
    g = made = next;
    if (o->dump_dir) {
      st = dump(g, o->dump_dir, i + 1, pass_table[i].name);
      if (st) graph_free(made);
      HP_TRY(st);
    }
  }
  *out = made;
  return HP_OK;
}
