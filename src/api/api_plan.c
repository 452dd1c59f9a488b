/* What would be compiled for a mesh, without taking memory of the device. */
#include "api/api_program.h"
#include "base/thread.h"
#include "rt/explain.h"
#include "rt/explain_layouts.h"
#include "rt/explain_rows.h"
#include "rt/explain_svg.h"

#include <string.h>

static void free_plan(const hp_device *d, compiled *c) {
  if (c->kernels) d->member[0]->backend->release(c->kernels);
  program_free(c->p);
}

/* --- plans as text ----------------------------------------------------------------------------
 */

/* Who holds what, in its three forms. */
static hp_status print_layouts(const device_mesh *d, const graph_layouts *g, size_t n, str *out) {
  HP_TRY(explain_layouts(d, g, n, out));
  return explain_rows(d, g[0].graph, g[0].layouts, out);
}
static hp_status put_layouts(const device_mesh *d, const graph_layouts *g, size_t n, str *out) {
  json_writer w = {.out = out};
  json_open_map(&w);
  HP_TRY(explain_layouts_json(d, g, n, &w));
  hp_status st = explain_rows_json(d, g[0].graph, g[0].layouts, &w);
  json_close(&w);
  str_add_char(out, '\n');
  return st;
}
static hp_status draw_layouts(const device_mesh *d, const graph_layouts *g, size_t n, str *out) {
  (void)n; /* the first graph has the activations, which is what the picture is for */
  explain_layouts_svg(d, g[0].graph, g[0].layouts->of, out);
  return HP_OK;
}

/* Layouts are known before a program is made. */
typedef hp_status (*layout_view)(const device_mesh *d, const graph_layouts *g, size_t n, str *out);
static layout_view find_layout_view(const char *what) {
  static const struct {
    const char *what;
    layout_view print;
  } views[] = {{"layouts", print_layouts},
               {"layouts.json", put_layouts},
               {"layouts.svg", draw_layouts}};
  for (size_t i = 0; i < sizeof views / sizeof *views; i++)
    if (!strcmp(what, views[i].what)) return views[i].print;
  return NULL;
}

static hp_status print_view(const plan_view *v, const compiled *made, const hp_memory *memory,
                            hp_device *d) {
  layout_view view = find_layout_view(v->what);
  if (view) return view(d, v->graph, v->graphs, v->text);
  bool counts = !strncmp(v->what, "memory.", 7); /* "memory" stands behind a summary that has it */
  return explain_print(made->p, d->member[0], NULL, counts ? memory : NULL, v->what, v->text);
}

hp_status api_plan(compilation *c, hp_device *d, double start, const plan_view *v,
                   hp_program_stats *out) {
  hp_program_stats s = {0};
  compiled made;
  hp_status st = api_make_program(c, d, 0, &made, &s.memory);
  if (st == HP_ERR_OOM && s.memory.limit_bytes && s.memory.planned_bytes) out->memory = s.memory;
  HP_TRY(st);
  st = api_count(d->member[0], made.p, &s);
  s.compile_s = time_now_s() - start;
  if (!st && v) st = print_view(v, &made, &s.memory, d);
  if (!st) *out = s;
  free_plan(d, &made);
  return st;
}

hp_status api_plan_explain(compilation *c, hp_device *d, const plan_view *v) {
  compiled made = {0};
  hp_memory memory = {0};
  bool is_planned = !find_layout_view(v->what);
  if (is_planned) HP_TRY(api_make_program(c, d, 0, &made, &memory));
  hp_status st = print_view(v, &made, &memory, d);
  if (is_planned) free_plan(d, &made);
  return st;
}
