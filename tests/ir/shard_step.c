/* The step `shard` of text cases: reads the layouts of a case, and cuts its graph. */
#include "ir/shard_step.h"

#include "shard/dispatch.h"
#include "shard/layout_text.h"
#include "shard/shard.h"
#include "test.h"

/* What the line "name: TEXT" of a case says; false: there is none. */
static bool find_line(const char *lines, const char *name, char out[200]) {
  size_t len = strlen(name);
  for (const char *line = lines; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    if (strncmp(line, name, len) || line[len] != ':') continue;
    snprintf(out, 200, "%.*s", (int)(strcspn(line, "\n") - len - 1), line + len + 1);
    return true;
  }
  return false;
}

typedef struct {
  const char *lines;
  const mesh *m;
} declarations;

static bool declared(const void *model, const char *name, const ir_value *type, layout *out) {
  const declarations *d = model;
  char text[200];
  (void)type;
  if (!find_line(d->lines, name, text)) return false;
  CHECK_OK(layout_parse_on(text, d->m, out));
  return true;
}

/* Devices that take 1 ns for a thousand operations, and 0.1 ns for a byte between them. */
static hp_status read_machine(const char *layouts, cluster *c, mesh *m) {
  static const char machine[] = "device: {flops: 1e12, bandwidth_gb_s: 1000}\n"
                                "links: [{bandwidth_gb_s: 10, latency_us: 1}]\n";
  layout none;
  bool called;
  char text[200] = "";
  find_line(layouts, "mesh", text);
  HP_TRY(cluster_parse(machine, sizeof machine - 1, "machine", c));
  return layout_parse(text, m, &none, &called);
}

/* The graph that a step made takes the place of *g. */
static hp_status replace(hp_graph **g, hp_graph *made) {
  if (!made) return HP_OK;
  graph_free(*g);
  *g = made;
  return ops_verify(made);
}

hp_status shard_step_run(hp_graph **g, const char *layouts, bool no_partial_sums) {
  cluster c;
  mesh m;
  sharded out;
  HP_TRY(read_machine(layouts, &c, &m));
  declarations d = {layouts, &m};
  shard_plan plan = {.mesh = &m,
                     .cluster = &c,
                     .declared = declared,
                     .model = &d,
                     .no_partial_sums = no_partial_sums};
  hp_status st = shard_graph(*g, &plan, &out);
  if (!st) {
    st = replace(g, out.graph);
    out.graph = NULL;
    sharded_free(&out);
  }
  mesh_free(&m);
  return st;
}

hp_status dispatch_step_run(hp_graph **g, const char *layouts, hp_dispatch how) {
  cluster c;
  mesh m;
  hp_graph *made;
  HP_TRY(read_machine(layouts, &c, &m));
  hp_status st = shard_dispatch(*g, &m, &c, how, &made);
  if (!st) st = replace(g, made);
  mesh_free(&m);
  return st;
}
