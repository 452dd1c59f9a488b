#include "test.h"

#include "base/io.h"
#include "base/json.h"
#include "base/yaml.h"

#include <math.h>
#include <stdlib.h>

#include "yaml_scalar_cases.h"

enum { N_SCALARS = sizeof scalars / sizeof *scalars };

static hp_status parse(const char *text, tree *out) {
  return yaml_parse(text, strlen(text), "f.yaml", out);
}

static void check_scalar(const tree_node *n, size_t i) {
  if (n->kind != scalars[i].kind)
    test_fail(__FILE__, __LINE__, "%s is read as %s", scalars[i].text, tree_what(n).text);
  double x = scalars[i].number;
  if (n->kind == TREE_BOOL) CHECK_EQ(n->boolean, scalars[i].integer);
  if (n->kind == TREE_INT) CHECK_EQ(n->integer, scalars[i].integer);
  if (n->kind == TREE_STRING) CHECK_STR(n->string, scalars[i].text);
  if (n->kind == TREE_FLOAT)
    CHECK(isnan(x) ? isnan(n->number) : n->number == x && !signbit(n->number) == !signbit(x));
}

TEST(plain_scalars_mean_what_omegaconf_says) {
  CHECK(N_SCALARS > 300);
  for (size_t i = 0; i < N_SCALARS; i++) {
    tree t;
    str s = {0};
    str_printf(&s, "k: %s\nl: [%s]\n", scalars[i].text, scalars[i].text);
    CHECK_OK(parse(s.at, &t));
    check_scalar(tree_get(t.root, "k"), i);
    check_scalar(tree_get(t.root, "l")->child[0], i);
    tree_free(&t);
    str_clear(&s);
    str_printf(&s, "a: ['%s', \"%s\"]\n", scalars[i].text, scalars[i].text);
    CHECK_OK(parse(s.at, &t));
    for (int k = 0; k < 2; k++) CHECK_STR(tree_get(t.root, "a")->child[k]->string, scalars[i].text);
    tree_free(&t);
    str_free(&s);
  }
}

static const char *as_json(const tree_node *n) {
  static char buf[4096];
  str s = {0};
  json_writer w = {.out = &s};
  json_put_tree(&w, n);
  CHECK_OK(str_status(&s));
  snprintf(buf, sizeof buf, "%s", s.at);
  str_free(&s);
  return buf;
}

TEST(yaml_documents_become_trees) {
  static const struct {
    const char *text, *want;
  } row[] = {
      {"", "null"},
      {"# only a comment\n", "null"},
      {"---\n", "null"},
      {"a:\nb: ~\nc: ''\n", "{\"a\": null, \"b\": null, \"c\": \"\"}"},
      {"- 1\n- [a, {b: c}]\n- - x\n", "[1, [\"a\", {\"b\": \"c\"}], [\"x\"]]"},
      {"a: |\n  x\n  y\nb: >\n  x\n  y\n", "{\"a\": \"x\\ny\\n\", \"b\": \"x y\\n\"}"},
      {"1: a\ntrue: b\n2.50: c\n", "{\"1\": \"a\", \"true\": \"b\", \"2.50\": \"c\"}"},
      {"{\"a\": [1, 2.5, true, null, \"x\"]}", "{\"a\": [1, 2.5, true, null, \"x\"]}"},
      {"a: \"\\u00e9\\n\\x00\"", "{\"a\": \"\\u00e9\\n\\u0000\"}"},
      {"%YAML 1.1\n---\na: on\n...\n", "{\"a\": true}"},
      {"a: !!str 5\nb: !!int \"012\"\nc: !!float 012\nd: !!bool 'no'\ne: !!null x\nf: ! 5\n"
       "g: !!seq [1]\nh: !!map {}\n",
       "{\"a\": \"5\", \"b\": 10, \"c\": 12.0, \"d\": false, \"e\": null, \"f\": 5, \"g\": [1], "
       "\"h\": {}}"},
      {"a: &x 5\nb: *x\nc: [*x, *x]\n", "{\"a\": 5, \"b\": 5, \"c\": [5, 5]}"},
      {"a: &x {p: [1]}\nb: *x\nx: &x 2\ny: *x",
       "{\"a\": {\"p\": [1]}, \"b\": {\"p\": [1]}, \"x\": 2, \"y\": 2}"},
      {"a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\n",
       "{\"a\": {\"p\": 1, \"q\": 2}, \"b\": {\"q\": 3, \"p\": 1}}"},
      {"a: {<<: [{p: 1, q: 2}, {q: 3, r: 4}], r: 5}\n", "{\"a\": {\"r\": 5, \"p\": 1, \"q\": 2}}"},
      {"a: {\"<<\": 1}\n", "{\"a\": {\"<<\": 1}}"},
      {"\xef\xbb\xbf"
       "a: 1\n",
       "{\"a\": 1}"},
      {"a: b:c\nu: http://h:1/\n", "{\"a\": \"b:c\", \"u\": \"http://h:1/\"}"},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tree t;
    CHECK_OK(parse(row[i].text, &t));
    CHECK_STR(as_json(t.root), row[i].want);
    tree_free(&t);
  }
}

TEST(yaml_values_know_their_places) {
  tree t;
  int64_t x;
  CHECK_OK(parse("# c\na: 1\nm:\n  - x\n  - {k: v}\n", &t));
  const tree_node *m = tree_get(t.root, "m");
  CHECK_STR(tree_where(tree_get(t.root, "a")).text, "f.yaml:2:4: a");
  CHECK_STR(tree_where(tree_get(m->child[1], "k")).text, "f.yaml:5:9: m[1].k");
  CHECK_FAILS(tree_need_int(m->child[1], "k", &x),
              "f.yaml:5:9: m[1].k: expected an integer, found the string \"v\"");
  tree_free(&t);
}

TEST(bad_yaml_is_refused_at_its_place) {
  static const struct {
    const char *text, *want;
  } row[] = {
      {"a: 1\nb: 2\na: 3\n", "f.yaml:3:4: a: this key is already set at f.yaml:1:4: a"},
      {"m: {x: 1, \"x\": 2}", "f.yaml:1:16: m.x: this key is already set at f.yaml:1:8"},
      {"1: a\n'1': b\n", "already set"},
      {"a: b: c\n", "f.yaml:1:5: mapping values are not allowed"},
      {"a:\n\tb: 1\n", "f.yaml:2:1: while scanning for the next token"},
      {"a: [1\n", "while parsing a flow sequence: did not find expected ',' or ']'"},
      {"a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document starts here"},
      {"a: !foo x\n", "f.yaml:1:4: the tag !foo is not supported"},
      {"a: !!python/object/apply:os.system ['ls']\n", "not supported"},
      {"a: !!binary aGk=\n", "the tag !!binary is not supported"},
      {"a: !!set {x}\n", "not supported"},
      {"a: !!int x\n", "\"x\" does not fit its tag !!int"},
      {"a: !!float x\n", "does not fit its tag !!float"},
      {"a: !!bool 1\n", "does not fit its tag !!bool"},
      {"a: *x\n", "f.yaml:1:4: the alias *x has no anchor before it"},
      {"a: &x [*x]\n", "the alias *x has no anchor before it"},
      {"? [a, b]\n: 1\n", "expected a word as the key"},
      {"~: 1\n", "null cannot be a key"},
      {"{a: {null: 1}}\n", "null cannot be a key"},
      {"a: =\n", "a meaning of its own"},
      {"a: <<\n", "a meaning of its own"},
      {"a: {<<: 1}\n", "expected a map or a list of maps after <<, found 1"},
      {"a: {<<: [1]}\n", "expected a map of keys, found 1"},
      {"a: {<<: {x: 1}, <<: {y: 1}}\n", "one << key"},
      {"a: 9223372036854775808\n",
       "f.yaml:1:4: \"9223372036854775808\": this integer does not fit"},
      {"a: 0x10000000000000000\n", "does not fit"},
      {"a: 99999999999999999999:00\n", "does not fit"},
      {"a: 0b_\n", "no digits"},
      {"a: @x\n", "cannot start any token"},
      {"a: \"\\q\"\n", "unknown escape character"},
      {"a: \xff\n", "save the file as UTF-8"},
      {"a: \x01\n", "control characters are not allowed; remove them, or write them in double"},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tree t = {0};
    CHECK_FAILS(parse(row[i].text, &t), row[i].want);
    CHECK(!t.root);
  }
}

TEST(deep_yaml_and_alias_bombs_are_refused_quickly) {
  enum { N = 50000 };
  char *text = malloc(N);
  tree t;
  memset(text, '[', N);
  CHECK_FAILS(yaml_parse(text, N, "f", &t), "more than 64 lists and maps");
  memset(text, '{', N);
  CHECK_FAILS(yaml_parse(text, N, "f", &t), "expected a word as the key");
  for (int i = 0; i < N; i += 2) memcpy(text + i, "- ", 2);
  CHECK_FAILS(yaml_parse(text, N, "f", &t), "more than 64");
  free(text);
  str s = {0};
  str_add(&s, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
  for (int i = 1; i < 30; i++) {
    str_printf(&s, "a%d: &a%d [", i, i);
    for (int k = 0; k < 10; k++) str_printf(&s, "*a%d%s", i - 1, k < 9 ? ", " : "]\n");
  }
  CHECK_FAILS(yaml_parse(s.at, s.len, "bomb", &t), "aliases would copy more than 10000");
  str_clear(&s);
  str_add(&s, "a0: &a0 [x]\n");
  for (int i = 1; i < 80; i++) str_printf(&s, "a%d: &a%d [*a%d]\n", i, i, i - 1);
  CHECK_FAILS(yaml_parse(s.at, s.len, "deep", &t), "aliases give more than 64");
  str_clear(&s);
  str_add(&s, "a: ");
  for (int i = 0; i < YAML_SIZE_MAX; i += 16) str_add_n(&s, "xxxxxxxxxxxxxxxx", 16);
  CHECK_FAILS(yaml_parse(s.at, s.len, "big", &t), "more than 8388608 bytes");
  str_free(&s);
}

/* want: what OmegaConf.merge(file, OmegaConf.from_cli(args)) gives */
TEST(overrides_follow_omegaconf) {
  static const char base[] = "a: 1\nm: {x: 1, y: [1, 2]}\n";
  static const struct {
    const char *args[3];
    const char *want;
  } row[] = {
      {{"a.b=3"}, "{\"a\": {\"b\": 3}, \"m\": {\"x\": 1, \"y\": [1, 2]}}"},
      {{"m.x=5", "m.z=6"}, "{\"a\": 1, \"m\": {\"x\": 5, \"y\": [1, 2], \"z\": 6}}"},
      {{"m.y=[7]"}, "{\"a\": 1, \"m\": {\"x\": 1, \"y\": [7]}}"},
      {{"m[x]=4"}, "{\"a\": 1, \"m\": {\"x\": 4, \"y\": [1, 2]}}"},
      {{"[m].x=4"}, "{\"a\": 1, \"m\": {\"x\": 4, \"y\": [1, 2]}}"},
      {{"[m][x]=4"}, "{\"a\": 1, \"m\": {\"x\": 4, \"y\": [1, 2]}}"},
      {{"m={q: 1}"}, "{\"a\": 1, \"m\": {\"x\": 1, \"y\": [1, 2], \"q\": 1}}"},
      {{"m={x: {z: 1}}"}, "{\"a\": 1, \"m\": {\"x\": {\"z\": 1}, \"y\": [1, 2]}}"},
      {{"m=1"}, "{\"a\": 1, \"m\": 1}"},
      {{"m="}, "{\"a\": 1, \"m\": null}"},
      {{"m.x.y=1"}, "{\"a\": 1, \"m\": {\"x\": {\"y\": 1}, \"y\": [1, 2]}}"},
      {{"a=5", "a.b=2"}, "{\"a\": {\"b\": 2}, \"m\": {\"x\": 1, \"y\": [1, 2]}}"},
      {{"a=", "m=~"}, "{\"a\": null, \"m\": null}"},
      {{"a=\"1e-5\"", "m='x'"}, "{\"a\": \"1e-5\", \"m\": \"x\"}"},
      {{"a=1e-5", "m=no"}, "{\"a\": 1e-05, \"m\": false}"},
      {{"a=[1,2e-3,foo]", "m=1"}, "{\"a\": [1, 0.002, \"foo\"], \"m\": 1}"},
      {{"a={p: {q: 1e-3}}", "m=1"}, "{\"a\": {\"p\": {\"q\": 0.001}}, \"m\": 1}"},
      {{"a=b: 1", "m=1"}, "{\"a\": {\"b\": 1}, \"m\": 1}"},
      {{"a=- 1", "m=1"}, "{\"a\": [1], \"m\": 1}"},
      {{"a={a}", "m={b:1}"},
       "{\"a\": {\"a\": null}, \"m\": {\"x\": 1, \"y\": [1, 2], \"b:1\": null}}"},
      {{"a=x=y", "m=1"}, "{\"a\": \"x=y\", \"m\": 1}"},
      {{"a= 5 # c", "m=#c"}, "{\"a\": 5, \"m\": null}"},
      {{"a=http://h:1/", "m=a,b"}, "{\"a\": \"http://h:1/\", \"m\": \"a,b\"}"},
      {{"a\\.b=3", "m=1", "x\\=\\[=2"}, "{\"a\": 1, \"m\": 1, \"a.b\": 3, \"x=[\": 2}"},
      {{"m=1", "a\\b=1"}, "{\"a\": 1, \"m\": 1, \"a\\\\b\": 1}"},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tree t;
    CHECK_OK(parse(base, &t));
    for (int k = 0; k < 3 && row[i].args[k]; k++)
      CHECK_OK(yaml_override(&t, row[i].args[k], k + 1));
    CHECK_STR(as_json(t.root), row[i].want);
    tree_free(&t);
  }
}

TEST(overrides_remember_the_argument_they_came_from) {
  tree t;
  int64_t x;
  CHECK_OK(parse("a: 1\nl: [1]\nm: {x: 1}\n", &t));
  CHECK_OK(yaml_override(&t, "m.lr=abc", 3));
  CHECK_OK(yaml_override(&t, "l=[1,x]", 4));
  CHECK_FAILS(tree_need_int(tree_get(t.root, "m"), "lr", &x),
              "argument 3: m.lr: expected an integer, found the string \"abc\"");
  CHECK_FAILS(tree_as_int(tree_get(t.root, "l")->child[1], &x),
              "argument 4: l[1]: expected an integer");
  CHECK_FAILS(yaml_override(&t, "abc", 5), "argument 5: \"abc\" has no '='; expected KEY=VALUE");
  CHECK_FAILS(yaml_override(&t, "=1", 5), "argument 5: an empty key");
  CHECK_FAILS(yaml_override(&t, ".a=1", 5), "an empty key");
  CHECK_FAILS(yaml_override(&t, "a..b=1", 5), "an empty key");
  CHECK_FAILS(yaml_override(&t, "a.=1", 5), "an empty key");
  CHECK_FAILS(yaml_override(&t, "a[]=1", 5), "an empty key");
  CHECK_FAILS(yaml_override(&t, "a[b=1", 5), "not closed by ']'");
  CHECK_FAILS(yaml_override(&t, "a[b]c=1", 5), "expected '.', '[' or '=' after ']'");
  CHECK_FAILS(yaml_override(&t, "a=[1", 6), "argument 6: while parsing a flow sequence");
  CHECK_FAILS(yaml_override(&t, "a={x: 1, x: 2}", 6), "argument 6: a.x: this key is set twice");
  CHECK_FAILS(yaml_override(&t, "m.n={a: {x: 1, x: 2}}", 6),
              "argument 6: m.n.a.x: this key is set");
  CHECK_FAILS(yaml_override(&t, "l.0=9", 7),
              "argument 7: argument 4: l is a list; give the whole list, as l=[...]");
  str s = {0};
  for (int i = 0; i < 70; i++) str_add(&s, "a.");
  str_add(&s, "b=1");
  CHECK_FAILS(yaml_override(&t, s.at, 8), "more than 64");
  str_clear(&s);
  for (int i = 0; i < 40; i++) str_add(&s, "a.");
  str_add(&s, "b=");
  for (int i = 0; i < 40; i++) str_add(&s, "[");
  for (int i = 0; i < 40; i++) str_add(&s, "]");
  CHECK_FAILS(yaml_override(&t, s.at, 8), "more than 64");
  str_free(&s);
  tree_free(&t);
}

TEST(configurations_are_yaml_or_json_by_name) {
  str path = {0};
  tree t;
  const char *s;
  CHECK_OK(path_join(&path, test_dir(), "c.yaml"));
  CHECK_OK(file_write(path.at, "lr: 1e-5\n", 9));
  CHECK_OK(yaml_load_config(path.at, &t, NULL));
  CHECK_EQ(tree_get(t.root, "lr")->kind, TREE_FLOAT);
  tree_free(&t);
  CHECK_OK(file_write(path.at, "", 0));
  CHECK_OK(yaml_load_config(path.at, &t, NULL));
  CHECK_OK(yaml_override(&t, "a.b=c", 1));
  CHECK_OK(tree_need_string(tree_get(t.root, "a"), "b", &s));
  CHECK_STR(s, "c");
  tree_free(&t);
  CHECK_OK(file_write(path.at, "[1]", 3));
  CHECK_FAILS(yaml_load_config(path.at, &t, NULL),
              "c.yaml:1:1: expected a map of keys, found a list of 1");
  CHECK_OK(path_join(&path, test_dir(), "c.json"));
  CHECK_OK(file_write(path.at, "{\"a\": \"yes\"}", 12));
  CHECK_OK(yaml_load_config(path.at, &t, NULL));
  CHECK_OK(tree_need_string(t.root, "a", &s));
  tree_free(&t);
  CHECK_OK(file_write(path.at, "{a: yes}", 8));
  CHECK_FAILS(yaml_load_config(path.at, &t, NULL), "c.json:1:2: unexpected 'a'");
  CHECK_OK(file_write(path.at, "null", 4));
  CHECK_FAILS(yaml_load_config(path.at, &t, NULL), "expected a map of keys, found null");
  str_free(&path);
}

/* In a map and in maps inside it; behind the first value the rest is read. */
TEST(repeated_keys_of_a_configuration_are_all_found) {
  static const char text[] = "a: 1\nb: {c: 2, c: 3, d: 4}\na: {e: 5}\na: 6\nf: 7\n";
  static const char *const says[] = {":2:14: b.c: this key is already set at ",
                                     ":3:4: a: this key is already set at ", ":4:4: a: this key"};
  str path = {0};
  tree t;
  yaml_repeats all = {0};
  int64_t x;
  CHECK_OK(path_join(&path, test_dir(), "c.yaml"));
  CHECK_OK(file_write(path.at, text, strlen(text)));
  CHECK_FAILS(yaml_load_config(path.at, &t, NULL), ":2:14: b.c: this key is already set at ");
  CHECK_OK(yaml_load_config(path.at, &t, &all));
  CHECK_EQ(all.len, 3);
  for (size_t i = 0; i < all.len && i < 3; i++) CHECK_FAILS(yaml_repeat_error(all.at[i]), says[i]);
  CHECK_OK(tree_need_int(t.root, "a", &x));
  CHECK_EQ(x, 1);
  CHECK_OK(tree_need_int(t.root, "f", &x));
  CHECK_EQ(x, 7);
  CHECK_OK(tree_need_int(tree_get(t.root, "b"), "c", &x));
  CHECK_EQ(x, 2);
  CHECK_EQ(tree_get(t.root, "b")->len, 2);
  vec_free(&all);
  tree_free(&t);
  str_free(&path);
}

TEST(every_allocation_that_fails_while_reading_yaml_is_reported) {
  const char *text = "a: &x {p: [1, 2], q: z}\nb: {<<: *x, q: !!int 3}\nc: *x\n";
  for (uint64_t n = 1;; n++) {
    tree t = {0};
    mem_fail_at(n);
    hp_status st = parse(text, &t);
    mem_fail_at(0);
    if (!st) {
      tree_free(&t);
      CHECK(n > 3);
      break;
    }
    CHECK_EQ(st, HP_ERR_OOM);
    err_clear();
  }
}
