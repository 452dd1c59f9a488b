/* The picture of who holds what: sound XML, each tensor's parts once, in the colours of their
 * devices. */
#include "base/str.h"
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

/* --- pictures --------------------------------------------------------------------------------- */

/* The picture of a graph on a mesh, checked; freed by the caller. */
static char *draw(hp_graph *g, const char *mesh, const hp_layout_rule *rule, int rules) {
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
  CHECK_OK(hp_plan_explain(g, d, NULL, "layouts.svg", &text));
  CHECK_STR(read_element(text, &elements), "\n");
  CHECK(elements > 5);
  CHECK(strstr(text, "prefers-color-scheme:dark"));
  hp_device_close(d);
  return text;
}

static int count(const char *text, const char *part) {
  int n = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) n++;
  return n;
}

static hp_graph *new_graph(hp_shape s, const char *const *name, int names) {
  hp_graph *g;
  CHECK_OK(hp_graph_create(&g));
  for (int i = 0; i < names; i++) hp_output(g, "y", hp_param(g, name[i], HP_F32, s));
  CHECK_OK(hp_graph_status(g));
  return g;
}

TEST(parts_are_drawn_once_in_the_colours_of_their_devices) {
  static const char *const name[] = {"w"};
  static const hp_layout_rule rule[] = {{"w", "(tp,None)"}};
  hp_graph *g = new_graph((hp_shape){2, {6, 6}}, name, 1);
  char *text = draw(g, "(2,3)(dp,tp)", rule, 1);
  CHECK(strstr(text, "mesh (2,3)(dp,tp), 6 devices"));
  CHECK(strstr(text, ">3: dp 1 tp 0<"));
  const char *w = strstr(text, ">w<"), *y = strstr(text, ">output y<");
  CHECK(w && y && w < y);
  CHECK(strstr(w, ">f32[6,6] (tp,None), a part f32[2,6]<"));
  static const char *const order[] = {">0<", ">3<", ">1<", ">4<", ">2<", ">5<"};
  for (int i = 0; i < 6; i++) { /* the two that hold a part beside each other, part by part */
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
  CHECK(strstr(text, "; of 1024 x 8 parts"));
  CHECK(strlen(text) < 400000);
  hp_free(text);
  hp_graph_free(g);
}
