/* The picture of who holds what: sound XML, each tensor's parts once, in the colours of their
 * devices. */
#include "base/str.h"
#include "step_case.h"
#include "test.h"

#include <stdlib.h>

/* --- a strict reader of XML ------------------------------------------------------------------- */

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static const char *read_reference(const char *at) {
  static const char *const known[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
  for (size_t i = 0; i < 4; i++)
    if (!strncmp(at, known[i], strlen(known[i]))) return at + strlen(known[i]);
  test_fail(__FILE__, __LINE__, "\"%.20s\" is no reference", at);
}

/* Attributes up to > or />; *empty: the element has no content. */
static const char *read_attributes(const char *at, bool *empty) {
  while (*at == ' ') {
    const char *name = ++at;
    while (is_name(*at) || *at == '-') at++;
    if (at == name || at[0] != '=' || at[1] != '"')
      test_fail(__FILE__, __LINE__, "no attribute at \"%.20s\"", name);
    for (at += 2; *at != '"';) {
      CHECK(*at && *at != '<');
      at = *at == '&' ? read_reference(at) : at + 1;
    }
    at++;
  }
  *empty = *at == '/';
  at += *empty;
  if (*at != '>') test_fail(__FILE__, __LINE__, "expected > at \"%.20s\"", at);
  return at + 1;
}

/* Reads one element with all in it; returns what follows. */
static const char *read_element(const char *at, int *elements) {
  char name[32] = "";
  bool empty;
  CHECK(*at == '<');
  for (size_t n = 0; is_name(*++at);) {
    CHECK(n + 1 < sizeof name);
    name[n++] = *at;
  }
  ++*elements;
  CHECK(*name && strcmp(name, "script"));
  at = read_attributes(at, &empty);
  while (!empty) {
    CHECK(*at);
    if (*at == '&') at = read_reference(at);
    else if (*at != '<') at++;
    else if (at[1] != '/') at = read_element(at, elements);
    else {
      size_t n = strlen(name);
      if (strncmp(at + 2, name, n) || at[n + 2] != '>')
        test_fail(__FILE__, __LINE__, "<%s> ends with \"%.20s\"", name, at);
      return at + n + 3;
    }
  }
  return at;
}

/* --- words ------------------------------------------------------------------------------------ */

typedef struct {
  double left, right, top, bottom;
  const char *words;
} extent;

static double number_after(const char *at, const char *name) {
  const char *found = strstr(at, name);
  CHECK(found);
  return strtod(found + strlen(name), NULL);
}

/* Characters up to the end of a text, entities as one, a tip not counted. */
static double characters(const char *at) {
  double n = 0;
  if (!strncmp(at, "<title>", 7)) at = strstr(at, "</title>") + 8;
  for (; *at != '<'; at++) {
    if (*at == '&') at = strchr(at, ';');
    n += ((unsigned char)*at & 0xc0) != 0x80;
  }
  return n;
}

/* What a text takes: characters of 12 pixels have one width, the widest of the usual fonts 0.602 of
 * it. */
static extent extent_of(const char *text) {
  double x = number_after(text, " x=\""), y = number_after(text, " y=\"");
  const char *content = strchr(text, '>') + 1;
  double width = 12 * 0.602 * characters(content);
  const char *is_middle = strstr(text, "\"middle\""), *is_end = strstr(text, "\"end\"");
  bool middle = is_middle && is_middle < content, end = is_end && is_end < content;
  double left = end ? x - width : middle ? x - width / 2 : x;
  return (extent){left, left + width, y - 10, y + 3, content};
}

/* No words run into others, nor over the edge of the picture. */
static void check_words(const char *svg) {
  static extent all[4096];
  size_t n = 0;
  double width = strtod(strstr(svg, "viewBox=\"0 0 ") + 13, NULL);
  double height = strtod(strchr(strstr(svg, "viewBox=\"0 0 ") + 13, ' '), NULL);
  for (const char *at = svg; (at = strstr(at, "<text ")); at++) {
    CHECK(n < 4096);
    all[n++] = extent_of(at);
  }
  CHECK(n > 0);
  for (size_t i = 0; i < n; i++) {
    const extent *a = &all[i];
    if (a->left < -0.5 || a->right > width + 0.5 || a->top < 0 || a->bottom > height)
      test_fail(__FILE__, __LINE__, "over the edge: %.60s", a->words);
    for (size_t k = 0; k < i; k++) {
      const extent *b = &all[k];
      if (a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom)
        test_fail(__FILE__, __LINE__, "\"%.40s\" runs into \"%.40s\"", a->words, b->words);
    }
  }
}

/* --- pictures --------------------------------------------------------------------------------- */

/* The picture of a graph on a mesh, checked; freed by the caller. */
static char *draw_what(hp_graph *g, const char *mesh, const hp_layout_rule *rule, int rules,
                       const char *what) {
  hp_device *d;
  char *text;
  int elements = 0;
  hp_device_options o = {.mesh = mesh,
                         .layouts = rule,
                         .n_layouts = rules,
                         .threads = 1,
                         .interpret = true,
                         .plan_only = true};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan_explain(g, d, NULL, what, &text));
  CHECK_STR(read_element(text, &elements), "\n");
  CHECK(elements > 5);
  check_words(text);
  CHECK(strstr(text, "prefers-color-scheme:dark"));
  hp_device_close(d);
  return text;
}

static char *draw(hp_graph *g, const char *mesh, const hp_layout_rule *rule, int rules) {
  return draw_what(g, mesh, rule, rules, "layouts.svg");
}

static int count(const char *text, const char *part) {
  int n = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) n++;
  return n;
}

static hp_graph *new_graph(hp_shape s, const char *const *name, int names) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  for (int i = 0; i < names; i++) {
    char out[16];
    snprintf(out, sizeof out, i ? "y%d" : "y", i);
    hp_output(g, out, hp_param(g, name[i], HP_F32, s));
  }
  CHECK_OK(hp_graph_status(g));
  return g;
}

TEST(shards_are_drawn_once_in_the_colours_of_their_devices) {
  static const char *const name[] = {"w"};
  static const hp_layout_rule rule[] = {{"w", "(tp,None)"}};
  hp_graph *g = new_graph((hp_shape){2, {6, 6}}, name, 1);
  char *text = draw(g, "(2,3)(dp,tp)", rule, 1);
  CHECK(strstr(text, "mesh (2,3)(dp,tp), 6 devices"));
  CHECK(strstr(text, ">3: dp 1 tp 0<"));
  const char *w = strstr(text, ">w<"), *y = strstr(text, ">output y<");
  CHECK(w && y && w < y);
  CHECK(strstr(w, ">f32[6,6] (tp,None)<") && strstr(w, ">a shard f32[2,6], on 2 devices<"));
  static const char *const order[] = {">0<", ">3<", ">1<", ">4<", ">2<", ">5<"};
  for (int i = 0; i < 6; i++) { /* the two that hold a part next to each other, part by part */
    w = strstr(w, order[i]);
    CHECK(w && w < y);
  }
  CHECK_EQ(count(text, "class=\"part\""), 6); /* three of w, three of y */
  hp_free(text);
  hp_graph_free(g);
}

TEST(layers_that_lie_alike_are_drawn_once_and_names_are_escaped) {
  static const char *const name[] = {"layers.0.a<b>&\"c\"", "layers.1.a<b>&\"c\"",
                                     "layers.10.a<b>&\"c\"", "layers.2.other"};
  static const hp_layout_rule rule[] = {{"layers.1.*", "(None,tp)"}};
  hp_graph *g = new_graph((hp_shape){2, {4, 4}}, name, 4);
  char *text = draw(g, "(2)(tp)", rule, 1);
  CHECK_EQ(count(text, ">layers.*.a&lt;b&gt;&amp;&quot;c&quot; x2<"), 1);
  CHECK_EQ(count(text, ">layers.*.a&lt;b&gt;&amp;&quot;c&quot;<"), 1); /* layer 1 lies otherwise */
  CHECK_EQ(count(text, ">layers.*.other<"), 1);
  hp_free(text);
  hp_graph_free(g);
}

TEST(one_device_and_thousands_are_drawn_too) {
  static const char *const name[] = {"a_name_that_is_much_too_long.for_the_card.that_it_stands_on"};
  static const hp_layout_rule rule[] = {{"a_*", "(dp,tp)"}};
  hp_graph *g = new_graph((hp_shape){2, {4096, 64}}, name, 1);
  char *text = draw(g, NULL, NULL, 0);
  CHECK(strstr(text, ", 1 device;"));
  CHECK(strstr(text, ">...t_is_much_too_long"));
  CHECK_EQ(count(text, "class=\"part\""), 2);
  hp_free(text);
  text = draw(g, "(1024,8,2)(dp,tp,pp)", rule, 1);
  CHECK(strstr(text, "16384 devices"));
  CHECK(strstr(text, "; 1024 x 8 shards in all"));
  CHECK(strlen(text) < 400000);
  hp_free(text);
  hp_graph_free(g);
}

/* Layouts of many axes are wider than a card, and so is what is said of 32 devices. */
TEST(words_of_a_large_mesh_do_not_run_into_their_neighbours) {
  static const char *const name[] = {"model.layers.0.mlp.experts.gate_proj_and_up_proj.weight",
                                     "model.layers.1.self_attn.q_proj.weight", "w", "b"};
  static const hp_layout_rule rule[] = {{"model.layers.0.*",
                                         "((replica,shard),tensor_x,tensor_y,None)"},
                                        {"*q_proj*", "(tensor_x,(shard,tensor_y),replica,None)"},
                                        {"w", "((replica,shard,tensor_x),None,None,tensor_y)"}};
  hp_graph *g = new_graph((hp_shape){4, {4096, 8192, 1048576, 128}}, name, 4);
  char *text = draw(g, "(2,2,4,2)(replica,shard,tensor_x,tensor_y)", rule, 3);
  CHECK(strstr(text, "32 devices"));
  CHECK(strstr(text, "...</text>") && strstr(text, "<title>")); /* cut, and whole in a tip */
  hp_free(text);
  text = draw(g, "(2,2,2,2)(replica,shard,tensor_x,tensor_y)", rule, 3);
  hp_free(text);
  hp_graph_free(g);
}

/* --- of a run --------------------------------------------------------------------------------- */

static const hp_layout_rule step_rules[] = {{"up*", "(tp,None)"}, {"down*", "(None,tp)"}};

TEST(the_timeline_has_a_row_a_stream_and_what_is_exposed) {
  hp_graph *g = step_graph(HP_F32);
  char *text = draw_what(g, NULL, NULL, 0, "timeline.svg");
  CHECK(strstr(text, ">compute<") && !strstr(text, ">exposed<"));
  CHECK(strstr(text, ">forward<") && strstr(text, ">backward<") && strstr(text, ">update<"));
  CHECK(strstr(text, ">predicted: "));
  hp_free(text);
  text = draw_what(g, "(2,2)(dp,tp)", step_rules, 2, "timeline.svg");
  CHECK(strstr(text, ">comm<") && strstr(text, ">exposed<") && strstr(text, ">communication<"));
  CHECK(strstr(text, "overlapped with computation"));
  CHECK(strlen(text) < 400000);
  hp_free(text);
  hp_graph_free(g);
}

/* Memory of a step without and with a run, whose device has half of what it would take. */
static void check_memory(hp_graph *g, uint64_t limit) {
  char *text;
  int elements = 0;
  hp_device *d;
  hp_device_options o = {.memory_limit = limit, .threads = 1, .interpret = true, .plan_only = true};
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan_explain(g, d, NULL, "memory.svg", &text));
  CHECK_STR(read_element(text, &elements), "\n");
  check_words(text);
  CHECK(strstr(text, ">predicted: ") && !strstr(text, ">measured"));
  hp_free(text);
  hp_device_close(d);
  step_case s;
  o.plan_only = false;
  step_open(&o, NULL, HP_F32, &s);
  step_run(&s);
  CHECK_OK(hp_explain(s.p, "memory.svg", &text));
  CHECK_STR(read_element(text, &elements), "\n");
  check_words(text);
  CHECK(strstr(text, ">measured: ") && strstr(text, "; predicted: "));
  CHECK(strstr(text, ">measured<") && count(text, ">predicted<") >= 2);
  CHECK(strstr(text, ">device: at most ") && strstr(text, ">host: at most "));
  CHECK(strstr(text, ">limit<") && strstr(text, ">planned<") && strstr(text, ">exposed<"));
  CHECK(strstr(text, "<title>activations on host: at most "));
  CHECK(count(text, ">copy in<") == 2 && count(text, ">copy out<") == 2);
  CHECK(count(text, "class=\"limit\"") == 2 && count(text, "class=\"expected\"") == 3);
  CHECK(strlen(text) < 400000);
  hp_free(text);
  CHECK_OK(hp_explain(s.p, "timeline.svg", &text));
  check_words(text);
  CHECK(strstr(text, ">copy in<") && strstr(text, "; copies between tiers "));
  hp_free(text);
  step_close(&s);
}

TEST(memory_over_a_step_has_its_tiers_its_limit_and_its_copies) {
  hp_graph *g = step_graph(HP_F32);
  hp_device *d;
  hp_program_stats s;
  CHECK_OK(
      hp_device_open(&(hp_device_options){.threads = 1, .interpret = true, .plan_only = true}, &d));
  CHECK_OK(hp_plan(g, d, NULL, &s));
  hp_device_close(d);
  check_memory(g, s.memory.planned_bytes / 2);
  char *text = draw_what(g, NULL, NULL, 0, "memory.svg"); /* all of it on the device */
  CHECK(strstr(text, ">device: at most ") && !strstr(text, ">host") && !strstr(text, ">limit<"));
  hp_free(text);
  hp_graph_free(g);
}

/* What the picture says an axis carries is what `comm` counts. */
/* Ten of 32 ranks have one digit: with room for these alone none is written. */
TEST(ranks_are_written_in_all_stripes_or_in_none) {
  static const char *const name[] = {"w"};
  hp_graph *g = new_graph((hp_shape){1, {8}}, name, 1);
  char *text = draw(g, "(8)(dp)", NULL, 0);
  const char *w = strstr(text, ">w<");
  CHECK(w && strstr(w, ">0<") && strstr(w, ">7<"));
  hp_free(text);
  text = draw(g, "(32)(dp)", NULL, 0);
  w = strstr(text, ">w<");
  CHECK(w && strstr(w, ">a shard f32[8], on 32 devices<"));
  CHECK(!strstr(w, ">0<") && !strstr(w, ">9<"));
  hp_free(text);
  hp_graph_free(g);
}

TEST(the_mesh_shows_what_each_axis_carries) {
  hp_graph *g = step_graph(HP_F32);
  hp_device *d;
  char *comm, op[32], axes[32], head[96];
  int calls;
  char *text = draw_what(g, "(2,2)(dp,tp)", step_rules, 2, "mesh.svg");
  hp_device_options o = {.mesh = "(2,2)(dp,tp)",
                         .layouts = step_rules,
                         .n_layouts = 2,
                         .threads = 1,
                         .interpret = true,
                         .plan_only = true};
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan_explain(g, d, NULL, "comm", &comm));
  const char *row = strchr(comm, '\n') + 1;
  CHECK_EQ(sscanf(row, "%31s %31s %d", op, axes, &calls), 3);
  CHECK_STR(axes, "tp");
  snprintf(head, sizeof head, ">%d %s, ", calls, op);
  if (!strstr(text, head)) test_fail(__FILE__, __LINE__, "no \"%s\" in the picture", head);
  CHECK(strstr(text, ">dp, 2 devices, link memory of 10 GB/s: carries nothing<"));
  for (int q = 0; q < 4; q++) {
    snprintf(head, sizeof head, ">%d</text>", q);
    CHECK_EQ(count(text, head), 1);
  }
  hp_free(comm);
  hp_free(text);
  hp_device_close(d);
  text = draw_what(g, "(4,2,4)(dp,sp,tp)", step_rules, 2, "mesh.svg"); /* 32 devices */
  CHECK_EQ(count(text, ">rank "), 32);
  hp_free(text);
  /* Two blocks side by side: between them a line a row, and none through a box. */
  text = draw_what(g, "(2,2,2)(dp,sp,tp)", step_rules, 2, "mesh.svg");
  const int lines[] = {2, 4, 4};
  for (int a = 0; a < 3; a++) {
    char class[32];
    snprintf(class, sizeof class, "class=\"link l%d\"", a);
    CHECK_EQ(count(text, class), lines[a] + 1); /* and its line in the legend */
  }
  double x0, y0, x1, y1;
  const char *line = strstr(text, "class=\"link l0\"");
  while (strncmp(line, "<path", 5)) line--;
  CHECK_EQ(sscanf(line, "<path d=\"M%lf %lfL%lf %lf", &x0, &y0, &x1, &y1), 4);
  CHECK(x1 - x0 < 44 && y0 == y1); /* shorter than a box is wide */
  hp_free(text);
  text = draw_what(g, "(64,8)(dp,tp)", step_rules, 2, "mesh.svg");
  CHECK(strstr(text, " of 512 devices are drawn"));
  hp_free(text);
  hp_graph_free(g);
}
