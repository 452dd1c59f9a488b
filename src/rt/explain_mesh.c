/* The mesh as a picture, with the communication over its axes. */
#include "base/units.h"
#include "rt/explain_comm.h"
#include "rt/explain_timeline.h"
#include "rt/svg.h"

#include <stdio.h>
#include <string.h>

enum {
  WIDTH = 1060,
  MARGIN = 12,
  BOX_W = 44,
  BOX_H = 26,
  GAP = 14,        /* between neighbours; larger between blocks of outer axes */
  LINE = 20,       /* of the legend */
  SHOWN_MAX = 64,  /* devices */
  OTHER_COLOR = 7, /* of communication over several axes together */
};

/* Positions of devices: the last axis goes to the right, the one before it downwards, the next
 * ones again to the right and downwards, in blocks with wider gaps. */
typedef struct {
  const mesh *m;
  int64_t shown[MESH_AXES];               /* along each axis */
  double step[MESH_AXES], gap[MESH_AXES]; /* gap: between neighbours, included in the step */
  bool across[MESH_AXES];
  double width, height;
  str *out;
} grid;

static grid grid_make(const mesh *m, str *out) {
  grid g = {.m = m, .out = out, .width = BOX_W + GAP, .height = BOX_H + GAP};
  int64_t all = 1;
  for (int a = 0; a < m->axes; a++) g.shown[a] = m->size[a];
  for (;;) {
    int largest = 0;
    for (int a = 1; a < m->axes; a++)
      if (g.shown[a] > g.shown[largest]) largest = a;
    all = 1;
    for (int a = 0; a < m->axes && all <= SHOWN_MAX; a++) all *= g.shown[a];
    if (all <= SHOWN_MAX || g.shown[largest] <= 2) break;
    g.shown[largest] = (g.shown[largest] + 1) / 2;
  }
  double gap[2] = {GAP, GAP}; /* downwards, across */
  bool taken[2] = {false, false};
  for (int a = m->axes - 1, k = 0; a >= 0; a--) {
    if (m->size[a] < 2) continue;
    g.across[a] = k % 2 == 0;
    double *extent = g.across[a] ? &g.width : &g.height;
    if (g.across[a] && *extent * (double)g.shown[a] > WIDTH - 2 * MARGIN) { /* better downwards */
      g.across[a] = false;
      extent = &g.height;
    }
    bool across = g.across[a];
    if (taken[across]) {
      gap[across] += GAP;
      *extent += GAP;
    }
    taken[across] = true;
    g.gap[a] = gap[across];
    g.step[a] = *extent;
    *extent *= (double)g.shown[a];
    k++;
  }
  return g;
}

static void place_of(const grid *g, const int64_t *at, double *x, double *y) {
  *x = *y = MARGIN;
  for (int a = 0; a < g->m->axes; a++) *(g->across[a] ? x : y) += (double)at[a] * g->step[a];
}

static bool next(const grid *g, int64_t *at) {
  for (int a = g->m->axes; a-- > 0;) {
    if (++at[a] < g->shown[a]) return true;
    at[a] = 0;
  }
  return false;
}

/* Is it the first of its block along axis a? */
static bool begins_block(const grid *g, const int64_t *at, int a) {
  for (int b = a + 1; b < g->m->axes; b++)
    if (g->across[b] == g->across[a] && at[b]) return false;
  return true;
}

/* Lines to the neighbour along each axis, in its colour.  Between blocks one line crosses the
 * gap: lines from box to box would run through the boxes between, and look like a chain. */
static void draw_links(const grid *g, const int64_t *at) {
  for (int a = 0; a < g->m->axes; a++) {
    int64_t next[MESH_AXES];
    double x, y;
    if (at[a] + 1 >= g->shown[a] || !begins_block(g, at, a)) continue;
    memcpy(next, at, sizeof next);
    next[a]++;
    place_of(g, next, &x, &y);
    if (g->across[a])
      svg_line(g->out, x - g->gap[a], y + BOX_H / 2.0, x, y + BOX_H / 2.0, "link", a);
    else svg_line(g->out, x + BOX_W / 2.0, y - g->gap[a], x + BOX_W / 2.0, y, "link", a);
  }
}

static void draw_box(const grid *g, const int64_t *at) {
  double x, y;
  int64_t position = 0;
  char rank[24];
  str tip = {0};
  place_of(g, at, &x, &y);
  for (int a = 0; a < g->m->axes; a++) position += at[a] * mesh_stride(g->m, a);
  snprintf(rank, sizeof rank, "%lld", (long long)mesh_rank(g->m, position));
  str_printf(&tip, "rank %s:", rank);
  for (int a = 0; a < g->m->axes; a++)
    str_printf(&tip, " %s %lld", g->m->name[a], (long long)at[a]);
  svg_box(g->out, x, y, BOX_W, BOX_H, "many", -1, tip.at ? tip.at : "");
  svg_box(g->out, x, y, BOX_W, BOX_H, "part", -1, NULL);
  svg_text(g->out, x + BOX_W / 2.0, y + BOX_H / 2.0 + 4, SVG_MIDDLE, false, BOX_W, rank);
  g->out->failed |= tip.failed;
  str_free(&tip);
}

/* --- legend ----------------------------------------------------------------------------------- */

static void put_kind(const comm_kind *k, str *out) {
  str_printf(out, "%d %s, ", k->count, op_table[k->op].name);
  units_add_bytes(out, k->bytes);
  str_add(out, " received, ");
  units_add_seconds(out, k->time.comm_s);
  if (k->time.comm_s > 0)
    str_printf(out, " (%.0f %% overlapped)", 100 * k->time.overlapped_s / k->time.comm_s);
}

/* Text lines of the collectives over these axes; returns their number. */
static int draw_kinds(const grid *g, const comm_kind *kind, int kinds, const char *axes, double y,
                      bool dry) {
  int lines = 0;
  for (int k = 0; k < kinds; k++) {
    str line = {0};
    if (strcmp(kind[k].axes, axes)) continue;
    put_kind(&kind[k], &line);
    if (!dry)
      svg_text(g->out, MARGIN + 46, y + LINE * lines + 12, SVG_START, true, WIDTH - 2 * MARGIN - 46,
               line.at ? line.at : "");
    g->out->failed |= line.failed;
    str_free(&line);
    lines++;
  }
  return lines;
}

static void draw_head(const grid *g, const cluster *c, int axis, const char *name, bool carries,
                      double y) {
  str line = {0};
  svg_line(g->out, MARGIN, y + 8, MARGIN + 22, y + 8, "link", axis);
  str_add(&line, name);
  if (axis < g->m->axes) {
    uint8_t one = (uint8_t)axis;
    const cluster_link *l = cluster_link_of(c, g->m, &one, 1);
    str_printf(&line, ", %lld devices, link %s of %g GB/s", (long long)g->m->size[axis], l->name,
               l->gb_s);
  }
  if (!carries) str_add(&line, ": carries nothing");
  svg_text(g->out, MARGIN + 30, y + 12, SVG_START, false, WIDTH - 2 * MARGIN - 30,
           line.at ? line.at : "");
  g->out->failed |= line.failed;
  str_free(&line);
}

/* Single axes first, then combinations.  dry: only computes the height. */
static double draw_legend(const grid *g, const cluster *c, const comm_kind *kind, int kinds,
                          double y, bool dry) {
  double top = y;
  for (int a = 0; a < g->m->axes; a++) {
    if (g->m->size[a] < 2) continue;
    int lines = draw_kinds(g, kind, kinds, g->m->name[a], y + LINE, dry);
    if (!dry) draw_head(g, c, a, g->m->name[a], lines > 0, y);
    y += LINE * (1 + lines) + 6;
  }
  for (int k = 0; k < kinds; k++) {
    bool first = strchr(kind[k].axes, ',') != NULL;
    for (int j = 0; j < k && first; j++) first = strcmp(kind[j].axes, kind[k].axes) != 0;
    if (!first) continue;
    if (!dry) draw_head(g, c, MESH_AXES + OTHER_COLOR, kind[k].axes, true, y);
    y += LINE * (1 + draw_kinds(g, kind, kinds, kind[k].axes, y + LINE, dry)) + 6;
  }
  return y - top;
}

/* --- the picture ------------------------------------------------------------------------------ */

static void draw_mesh(grid *g, const cluster *c, const comm_kind *kind, int kinds) {
  int64_t at[MESH_AXES] = {0}, all = 1;
  for (int a = 0; a < g->m->axes; a++) all *= g->shown[a];
  double legend = MARGIN + g->height + (all < g->m->devices ? LINE : 0);
  svg_begin(g->out, WIDTH, legend + draw_legend(g, c, kind, kinds, legend, true) + MARGIN, true);
  do draw_links(g, at);
  while (next(g, at));
  do draw_box(g, at);
  while (next(g, at));
  if (all < g->m->devices) {
    char words[64];
    snprintf(words, sizeof words, "%lld of %lld devices are drawn", (long long)all,
             (long long)g->m->devices);
    svg_text(g->out, MARGIN, MARGIN + g->height + 8, SVG_START, true, WIDTH, words);
  }
  draw_legend(g, c, kind, kinds, legend, false);
  svg_end(g->out);
}

hp_status explain_mesh_svg(const program *p, const mesh *m, const cluster *c, const inst_times *t,
                           str *out) {
  comm_time sum;
  if (!m || m->devices < 2) return HP_OK;
  comm_time *each = mem_calloc(p->insts.len, sizeof *each);
  comm_kind *kind = mem_calloc(COMM_KINDS, sizeof *kind);
  hp_status st = each && kind ? comm_times(p, t, each, &sum) : HP_ERR_OOM;
  if (!st) {
    grid g = grid_make(m, out);
    draw_mesh(&g, c, kind, comm_kinds(p, m, t, each, kind));
  }
  mem_free(each);
  mem_free(kind);
  return st ? st : str_status(out);
}
