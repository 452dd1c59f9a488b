#include "rt/explain_svg.h"

#include "base/vec.h"
#include "rt/svg.h"
#include "shard/layout_text.h"
#include "shard/slices.h"

#include <stdio.h>
#include <string.h>

enum {
  COLUMNS = 3,
  CARD = 404,  /* width of a card, */
  INNER = 380, /* and of the tensor in it */
  MARGIN = 16,
  HEADER = 57,    /* height of the text above a tensor: three lines */
  ROW = 20,       /* height of a row of shards, */
  FLAT = 24,      /* and of a tensor that is no taller */
  TALL = 60,      /* minimum height of a tensor of several dims */
  PARTS_MAX = 16, /* drawn along one side */
  LEGEND = 300,   /* width of a device in the legend */
  STRIPE = 9,     /* minimum width of a separate stripe for a device */
};

/* Tensors that are drawn as one. */
typedef struct {
  str name;
  uint16_t op;
  ir_value type;
  layout l;
  int count;
} card;

typedef struct {
  const device_mesh *d;
  str *out;
  VEC(card) cards;
} picture;

/* --- what is drawn ---------------------------------------------------------------------------- */

/* "model.layers.3.mlp" as "model.layers.*.mlp". */
static void add_pattern(const char *name, str *out) {
  while (*name) {
    size_t n = strcspn(name, ".");
    bool number = n && strspn(name, "0123456789") == n;
    str_printf(out, "%.*s", number ? 1 : (int)n, number ? "*" : name);
    name += n;
    if (*name) str_add_char(out, *name++);
  }
}

static bool is_alike(const card *a, const card *b) {
  return a->op == b->op && a->type.dtype == b->type.dtype && value_same_shape(&a->type, &b->type) &&
         layout_equal(&a->l, &b->l) && !strcmp(a->name.at, b->name.at);
}

/* Annotations of gradients are left out, as they would double the number. */
static bool is_shown(const hp_graph *g, const ir_node *n) {
  if (n->op == OP_ANNOTATE) return strncmp(attr_str(g, n, "name"), "grad.", 5) != 0;
  return n->op == OP_INPUT || n->op == OP_PARAM || n->op == OP_OUTPUT;
}

static void collect(picture *p, const hp_graph *g, const ir_node *n, const layout *of) {
  if (!is_shown(g, n)) return;
  val v = n->op == OP_OUTPUT ? graph_in(g, n)[0] : n->out0;
  card one = {.op = n->op, .type = *graph_value(g, v), .count = 1};
  one.l = of ? of[v] : (layout){.rank = one.type.rank};
  add_pattern(attr_str(g, n, "name"), &one.name);
  if (str_status(&one.name)) {
    p->out->failed = true;
    return;
  }
  for (size_t i = 0; i < p->cards.len; i++)
    if (is_alike(&p->cards.at[i], &one)) {
      p->cards.at[i].count++;
      str_free(&one.name);
      return;
    }
  if (vec_push(&p->cards, one)) return;
  str_free(&one.name);
  p->out->failed = true;
}

/* --- one tensor ---------------------------------------------------------------------------------
 *
 * The last half of the dims runs to the right, the dims before it downwards. */

static int first_across(const card *c) { return c->l.rank / 2; }

static int64_t shards_along(const mesh *m, const card *c, bool across) {
  int64_t parts = 1;
  int from = across ? first_across(c) : 0, to = across ? c->l.rank : first_across(c);
  for (int d = from; d < to; d++) parts *= layout_shard_count(m, &c->l, d);
  return parts;
}

/* The number of the device's shard along a side. */
static int64_t place_along(const mesh *m, const card *c, bool across, int64_t position) {
  int64_t place = 0;
  int from = across ? first_across(c) : 0, to = across ? c->l.rank : first_across(c);
  for (int d = from; d < to; d++)
    place = place * layout_shard_count(m, &c->l, d) + layout_shard_index(m, &c->l, d, position);
  return place;
}

static int drawn(int64_t parts) { return parts < PARTS_MAX ? (int)parts : PARTS_MAX; }

static int height_of(const mesh *m, const card *c) {
  int rows = drawn(shards_along(m, c, false)) * ROW, least = c->l.rank < 2 ? FLAT : TALL;
  return rows < least ? least : rows;
}

/* Characters of the longest rank. */
static size_t rank_width(const mesh *m) {
  size_t most = 0;
  char words[24];
  for (int64_t q = 0; q < m->devices; q++) {
    size_t n = (size_t)snprintf(words, sizeof words, "%lld", (long long)mesh_rank(m, q));
    if (n > most) most = n;
  }
  return most;
}

/* One shard, with a stripe for each device that holds it, and their ranks if there is room; if
 * the stripes would be too thin, the number of devices. */
static void draw_part(picture *p, const card *c, int64_t row, int64_t col, double x, double y,
                      double w, double h) {
  const mesh *m = &p->d->m;
  int64_t holders = layout_repeat(m, &c->l), seen = 0;
  double stripe = w / (double)holders;
  char words[48];
  if (stripe < STRIPE) {
    svg_box(p->out, x, y, w, h, "many", -1, NULL);
    snprintf(words, sizeof words, "%lld devices", (long long)holders);
    if (w > SVG_CHAR * (double)strlen(words))
      svg_text(p->out, x + w / 2, y + h / 2 + 4, SVG_MIDDLE, false, w, words);
  }
  bool ranks = stripe >= STRIPE && stripe > SVG_CHAR * (double)rank_width(m);
  for (int64_t q = 0; q < m->devices && stripe >= STRIPE; q++) {
    if (place_along(m, c, false, q) != row || place_along(m, c, true, q) != col) continue;
    double left = x + stripe * (double)seen++;
    snprintf(words, sizeof words, "%lld", (long long)mesh_rank(m, q));
    svg_box(p->out, left, y, stripe, h, "d", (int)q, NULL);
    if (ranks) svg_text(p->out, left + stripe / 2, y + h / 2 + 4, SVG_MIDDLE, false, stripe, words);
  }
  svg_box(p->out, x, y, w, h, "part", -1, NULL);
}

static void draw_tensor(picture *p, const card *c, double x, double y) {
  const mesh *m = &p->d->m;
  int rows = drawn(shards_along(m, c, false)), cols = drawn(shards_along(m, c, true));
  double h = (double)height_of(m, c) / rows, w = (double)INNER / cols;
  for (int row = 0; row < rows; row++)
    for (int col = 0; col < cols; col++) draw_part(p, c, row, col, x + w * col, y + h * row, w, h);
}

/* The tensor, its layout, and the shard of a device. */
static void describe(const mesh *m, const card *c, str *global, str *held) {
  ir_value shard = c->type;
  for (int d = 0; d < shard.rank; d++) shard.dim[d] = layout_shard_size(m, &c->l, d, shard.dim[d]);
  value_print(&c->type, global);
  str_add_char(global, ' ');
  layout_print_on(m, &c->l, global);
  str_add(held, "a shard ");
  value_print(&shard, held);
  if (layout_repeat(m, &c->l) > 1)
    str_printf(held, ", on %lld devices", (long long)layout_repeat(m, &c->l));
  int64_t down = shards_along(m, c, false), across = shards_along(m, c, true);
  if (down > PARTS_MAX || across > PARTS_MAX)
    str_printf(held, "; %lld x %lld shards in all", (long long)down, (long long)across);
}

/* A long name keeps its end, which distinguishes tensors. */
static void name_card(const card *c, str *out) {
  char times[24] = "";
  if (c->op != OP_PARAM) str_printf(out, "%s ", op_table[c->op].name);
  if (c->count > 1) snprintf(times, sizeof times, " x%d", c->count);
  size_t room = (size_t)(INNER / SVG_CHAR) - out->len - strlen(times), len = strlen(c->name.at);
  if (len > room) str_printf(out, "...%s", c->name.at + (len - room + 3));
  else str_add(out, c->name.at);
  str_add(out, times);
}

static void draw_card(picture *p, const card *c, double x, double y) {
  str name = {0}, global = {0}, held = {0};
  name_card(c, &name);
  describe(&p->d->m, c, &global, &held);
  if (!str_status(&name) && !str_status(&global) && !str_status(&held)) {
    svg_text(p->out, x, y + 12, SVG_START, false, INNER, name.at);
    svg_text(p->out, x, y + 29, SVG_START, true, INNER, global.at);
    svg_text(p->out, x, y + 46, SVG_START, true, INNER, held.at);
  } else {
    p->out->failed = true;
  }
  draw_tensor(p, c, x, y + HEADER);
  str_free(&name);
  str_free(&global);
  str_free(&held);
}

/* --- the page --------------------------------------------------------------------------------- */

/* The legend: colour, device, and its position on the mesh.  Returns the height. */
static int draw_legend(picture *p, int y) {
  const mesh *m = &p->d->m;
  str line = {0};
  str_add(&line, "mesh ");
  mesh_print(m, &line);
  str_printf(&line, ", %lld device%s; a box is a shard, its stripes the devices that hold it",
             (long long)m->devices, m->devices == 1 ? "" : "s");
  if (!str_status(&line))
    svg_text(p->out, MARGIN, y + 12, SVG_START, false, COLUMNS * CARD, line.at);
  int64_t shown = m->devices < 2 * SVG_COLORS ? m->devices : 0;
  for (int64_t q = 0; q < shown; q++) {
    double x = MARGIN + (double)(q % 4) * LEGEND, top = y + 24 + (double)(q / 4) * ROW;
    str_clear(&line);
    str_printf(&line, "%lld:", (long long)mesh_rank(m, q));
    for (int a = 0; a < m->axes; a++)
      str_printf(&line, " %s %lld", m->name[a], (long long)mesh_coordinate(m, q, a));
    svg_box(p->out, x, top, 14, 14, "d", (int)q, NULL);
    if (!str_status(&line))
      svg_text(p->out, x + 20, top + 11, SVG_START, false, LEGEND - 28, line.at);
  }
  p->out->failed |= line.failed;
  str_free(&line);
  return 24 + (int)((shown + 3) / 4) * ROW + MARGIN;
}

/* Height of the row of cards that begins with card i. */
static int row_height(const picture *p, size_t i) {
  int most = 0;
  for (size_t k = i; k < p->cards.len && k < i + COLUMNS; k++) {
    int h = height_of(&p->d->m, &p->cards.at[k]);
    if (h > most) most = h;
  }
  return HEADER + most + MARGIN;
}

void explain_layouts_svg(const device_mesh *d, const hp_graph *g, const layout *of, str *out) {
  str body = {0};
  picture p = {.d = d, .out = &body};
  for (uint32_t i = 0; i < g->nodes.len; i++) collect(&p, g, graph_node(g, i), of);
  int y = MARGIN + draw_legend(&p, MARGIN);
  for (size_t i = 0; i < p.cards.len; i += COLUMNS) {
    for (size_t k = i; k < p.cards.len && k < i + COLUMNS; k++)
      draw_card(&p, &p.cards.at[k], MARGIN + (double)(k - i) * CARD, y);
    y += row_height(&p, i);
  }
  int width = 2 * MARGIN + COLUMNS * CARD;
  svg_begin(out, width, y, false);
  if (!str_status(&body)) str_add(out, body.at);
  svg_end(out);
  out->failed |= body.failed;
  for (size_t i = 0; i < p.cards.len; i++) str_free(&p.cards.at[i].name);
  vec_free(&p.cards);
  str_free(&body);
}
