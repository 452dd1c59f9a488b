#include "test.h"

#include "base/io.h"
#include "base/json.h"
#include "base/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static hp_status parse(const char *text, tree *out) {
  return json_parse(text, strlen(text), "f.json", out);
}

TEST(json_values_are_read_with_their_types_and_places) {
  tree t;
  CHECK_OK(parse("{\n \"a\": [1, -2.5, true, null, \"x\\u00e9\\ud83d\\ude00\\n\"],\n \"b\": "
                 "{\"c\": {}}, \"\": 1e2\n}\n",
                 &t));
  const tree_node *a = tree_get(t.root, "a");
  CHECK_EQ(a->kind, TREE_LIST);
  CHECK_EQ(a->len, 5);
  CHECK_EQ(a->line, 2);
  CHECK_EQ(a->column, 7);
  CHECK_EQ(a->child[0]->kind, TREE_INT);
  CHECK_EQ(a->child[0]->integer, 1);
  CHECK(a->child[1]->kind == TREE_FLOAT && a->child[1]->number == -2.5);
  CHECK(a->child[2]->kind == TREE_BOOL && a->child[2]->boolean);
  CHECK_EQ(a->child[3]->kind, TREE_NULL);
  CHECK_STR(a->child[4]->string, "x\xc3\xa9\xf0\x9f\x98\x80\n");
  CHECK_STR(tree_where(a->child[4]).text, "f.json:2:29: a[4]");
  const tree_node *c = tree_get(tree_get(t.root, "b"), "c");
  CHECK_STR(tree_where(c).text, "f.json:3:13: b.c");
  CHECK_STR(tree_where(t.root).text, "f.json:1:1");
  CHECK(tree_get(t.root, "")->number == 100);
  CHECK(!tree_get(t.root, "z") && !tree_get(a, "z") && !tree_get(NULL, "z"));
  tree_free(&t);
  CHECK_OK(parse(" 7 ", &t));
  CHECK_EQ(t.root->integer, 7);
  tree_free(&t);
  CHECK_OK(json_parse_line("{\"a\":x", 5, "d.jsonl", 12, &t) == HP_OK ? HP_ERR_INTERNAL : HP_OK);
  CHECK(strstr(err_message(), "d.jsonl:12:6: expected a value, found the end"));
}

TEST(json_numbers_follow_python) {
  static const struct {
    const char *text;
    tree_kind kind;
    double want;
  } row[] = {{"0", TREE_INT, 0},
             {"-0", TREE_INT, 0},
             {"9223372036854775807", TREE_INT, 0x1p63},
             {"-9223372036854775808", TREE_INT, -0x1p63},
             {"9223372036854775808", TREE_FLOAT, 0x1p63},
             {"1000000000000000019884624838656", TREE_FLOAT, 1e30},
             {"-0.0", TREE_FLOAT, 0},
             {"1e400", TREE_FLOAT, INFINITY},
             {"1E-400", TREE_FLOAT, 0},
             {"0.1", TREE_FLOAT, 0.1},
             {"1e5", TREE_FLOAT, 1e5},
             {"Infinity", TREE_FLOAT, INFINITY},
             {"-Infinity", TREE_FLOAT, -INFINITY}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tree t;
    double x;
    CHECK_OK(parse(row[i].text, &t));
    CHECK_EQ(t.root->kind, row[i].kind);
    CHECK_OK(tree_as_double(t.root, &x));
    CHECK(x == row[i].want);
    tree_free(&t);
  }
  tree t;
  CHECK_OK(parse("NaN", &t));
  CHECK(isnan(t.root->number));
  tree_free(&t);
}

TEST(bad_json_is_refused_at_its_place) {
  static const struct {
    const char *text, *want;
  } row[] = {
      {"", "f.json:1:1: expected a value, found the end of the text"},
      {"{\n\"a\" 1}", "f.json:2:5: expected ':' after the key, found a number"},
      {"[1,]", "f.json:1:4: expected a value after the comma, found ']'"},
      {"{\"a\":1,}", "expected a value after the comma"},
      {"[1 2]", "f.json:1:4: expected ',' or ']'"},
      {"{\"a\":1 \"b\":2}", "expected ',' or '}'"},
      {"{a:1}", "unexpected 'a'"},
      {"{1:1}", "expected a key in double quotes, found a number"},
      {"[1]]", "expected the end of the text after the value, found ']'"},
      {"1 2", "expected the end of the text"},
      {"\"abc", "f.json:1:1: a string that starts here does not end"},
      {"\"a\tb\"", "control character (code 9)"},
      {"\"\\x\"", "unknown escape"},
      {"\"\\u12g4\"", "four hexadecimal digits"},
      {"\"\\ud800\"", "half a surrogate pair"},
      {"\"\\udc00\"", "half a surrogate pair"},
      {"\"\\ud800\\u0041\"", "half a surrogate pair"},
      {"\"\xff\"", "invalid UTF-8 (byte 0xff)"},
      {"\"\xc0\x80\"", "invalid UTF-8"},
      {"\"\xed\xa0\x80\"", "invalid UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "invalid UTF-8"},
      {"\"\xe2\x82", "invalid UTF-8"},
      {"\xef\xbb\xbf{}", "byte order mark"},
      {"01", "may not start with 0"},
      {"-", "a digit was expected"},
      {"+1", "unexpected '+'"},
      {"1.", "after the decimal point"},
      {".5", "unexpected '.'"},
      {"1e", "in the exponent"},
      {"1e+", "in the exponent"},
      {"nan", "unexpected 'n'"},
      {"tru", "unexpected 't'"},
      {"'a'", "unexpected '''"},
      {"// x\n1", "unexpected '/'"},
      {"\x01", "unexpected byte 0x01"},
      {"{\"a\":1,\n\"b\":2,\n\"a\":3}", "f.json:3:5: a: this key is already set at f.json:1:6: a"},
      {"}", "expected a value, found '}'"},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    tree t = {0};
    CHECK_FAILS(parse(row[i].text, &t), row[i].want);
    CHECK(!t.root);
  }
  tree t;
  CHECK_FAILS(json_parse("1\0", 2, "f", &t), "unexpected byte 0x00");
}

TEST(deep_json_is_refused_without_recursing_far) {
  enum { N = 100000 };
  char *text = malloc(N);
  tree t;
  memset(text, '[', N);
  CHECK_FAILS(json_parse(text, N, "deep", &t), "more than 64");
  memset(text + 64, ']', 64);
  CHECK_OK(json_parse(text, 128, "deep", &t));
  str s = {0};
  json_writer w = {.out = &s};
  json_put_tree(&w, t.root);
  CHECK(s.len == 128 && !memcmp(s.at, text, 128));
  str_free(&s);
  tree_free(&t);
  for (int i = 0; i < N - 5; i += 5) memcpy(text + i, "{\"\":", 5);
  CHECK_FAILS(json_parse(text, 4, "deep", &t), "end of the text");
  free(text);
}

TEST(large_maps_find_every_key_and_refuse_a_repeated_one) {
  str s = {0};
  str_add(&s, "{");
  for (int i = 0; i < 5000; i++) str_printf(&s, "\"k%d\": %d, ", i, i);
  size_t n = s.len;
  str_add(&s, "\"last\": 0}");
  tree t;
  CHECK_OK(json_parse(s.at, s.len, "f", &t));
  CHECK_EQ(t.root->len, 5001);
  for (int i = 0; i < 5000; i++) {
    char key[16];
    int64_t x;
    snprintf(key, sizeof key, "k%d", i);
    CHECK_OK(tree_need_int(t.root, key, &x));
    CHECK_EQ(x, i);
  }
  CHECK(!tree_get(t.root, "k5000"));
  tree_free(&t);
  s.len = n;
  str_add(&s, "\"k4321\": 0}");
  CHECK_FAILS(json_parse(s.at, s.len, "f", &t), "already set");
  str_free(&s);
}

TEST(getters_say_where_what_was_expected_and_what_is_there) {
  tree t;
  const char *s;
  int64_t i;
  double d;
  bool b;
  const tree_node *n;
  CHECK_OK(parse("{\"s\": \"x\", \"i\": 3, \"f\": 2.5, \"whole\": 1e3, \"big\": 1e30, \"n\": null, "
                 "\"b\": false,\n"
                 "\"m\": {\"l\": [1, {\"z\": 1}]}, \"nul\": \"a\\u0000b\", \"nan\": NaN}",
                 &t));
  CHECK_OK(tree_need_int(t.root, "i", &i));
  CHECK_EQ(i, 3);
  CHECK_OK(tree_need_int(t.root, "whole", &i));
  CHECK_EQ(i, 1000);
  CHECK_OK(tree_need_double(t.root, "i", &d));
  CHECK(d == 3);
  CHECK_OK(tree_need_bool(t.root, "b", &b));
  CHECK(!b);
  CHECK_FAILS(tree_need_int(t.root, "s", &i),
              "f.json:1:7: s: expected an integer, found the string \"x\"");
  CHECK_FAILS(tree_need_int(t.root, "f", &i), "expected an integer of 64 bits, found 2.5");
  CHECK_FAILS(tree_need_int(t.root, "big", &i), "found 1e+30");
  CHECK_FAILS(tree_need_int(t.root, "nan", &i), "found nan");
  CHECK_FAILS(tree_need_int(t.root, "n", &i), "expected an integer, found null");
  CHECK_FAILS(tree_need_int(t.root, "hidden_size", &i),
              "f.json:1:1: the key \"hidden_size\" is missing");
  CHECK_FAILS(tree_need_double(t.root, "b", &d), "expected a number, found false");
  CHECK_FAILS(tree_need_bool(t.root, "i", &b), "expected true or false, found 3");
  CHECK_FAILS(tree_need_string(t.root, "m", &s), "expected a string, found a map of 1 keys");
  CHECK_FAILS(tree_need_string(t.root, "nul", &s), "NUL");
  CHECK_OK(tree_need_map(t.root, "m", &n));
  CHECK_FAILS(tree_need_map(n, "l", &n),
              "f.json:2:12: m.l: expected a map of keys, found a list of 2");
  CHECK_OK(tree_need_list(n, "l", &n));
  CHECK_FAILS(tree_as_string(tree_get(n->child[1], "z"), &s), "m.l[1].z: expected a string");
  CHECK_FAILS(tree_need_int(n, "x", &i), "expected a map of keys, found a list");
  CHECK_OK(tree_opt_int(t.root, "none", 7, &i));
  CHECK_EQ(i, 7);
  CHECK_OK(tree_opt_int(t.root, "n", 8, &i));
  CHECK_EQ(i, 8);
  CHECK_FAILS(tree_opt_int(t.root, "s", 8, &i), "expected an integer");
  CHECK_OK(tree_opt_string(t.root, "none", "dflt", &s));
  CHECK_STR(s, "dflt");
  CHECK_OK(tree_opt_list(t.root, "none", &n));
  CHECK(!n);
  CHECK_FAILS(tree_opt_list(t.root, "i", &n), "expected a list, found 3");
  static const char *const known[] = {"s", "i", "f", "whole", "big", "n", "b", "m", "null", "nan"};
  CHECK_FAILS(tree_check_keys(t.root, known, 10),
              "f.json:2:35: nul: unknown key; did you mean \"null\"?");
  CHECK_FAILS(tree_check_keys(t.root, known, 1), "unknown key");
  tree_free(&t);
}

static void write_sample(json_writer *w) {
  json_open_map(w);
  json_put_key(w, "a");
  json_put_int(w, -5);
  json_put_key(w, "list");
  json_open_list(w);
  json_put_double(w, 1e-5);
  json_put_double(w, 1);
  json_put_double(w, NAN);
  json_put_double(w, -INFINITY);
  json_put_float(w, 0.1f);
  json_open_list(w);
  json_close(w);
  json_close(w);
  json_put_key(w, "empty");
  json_open_map(w);
  json_close(w);
  json_put_key(w, "s\"\xc3\xa9");
  json_put_string(w, "\b\f\n\r\t\x01\x7f\\/\"\xe2\x82\xac\xf0\x9f\x98\x80");
  json_put_key(w, "z");
  json_put_null(w);
  json_put_key(w, "y");
  json_put_bool(w, true);
  json_close(w);
}

/* the expected texts are what Python's json.dumps gives */
TEST(json_is_written_as_python_writes_it) {
  str s = {0};
  json_writer w = {.out = &s};
  write_sample(&w);
  CHECK_STR(
      s.at,
      "{\"a\": -5, \"list\": [1e-05, 1.0, NaN, -Infinity, 0.1, []], \"empty\": {}, "
      "\"s\\\"\\u00e9\": "
      "\"\\b\\f\\n\\r\\t\\u0001\x7f\\\\/\\\"\\u20ac\\ud83d\\ude00\", \"z\": null, \"y\": true}");
  tree t;
  CHECK_OK(json_parse(s.at, s.len, "again", &t));
  str two = {0};
  json_writer v = {.out = &two};
  json_put_tree(&v, t.root);
  CHECK_STR(two.at, s.at);
  tree_free(&t);
  str_clear(&s);
  w = (json_writer){.out = &s, .indent = 2, .utf8 = true};
  write_sample(&w);
  CHECK_STR(s.at, "{\n  \"a\": -5,\n  \"list\": [\n    1e-05,\n    1.0,\n    NaN,\n    "
                  "-Infinity,\n    0.1,\n    []\n  ],\n"
                  "  \"empty\": {},\n  \"s\\\"\xc3\xa9\": "
                  "\"\\b\\f\\n\\r\\t\\u0001\x7f\\\\/\\\"\xe2\x82\xac\xf0\x9f\x98\x80\",\n"
                  "  \"z\": null,\n  \"y\": true\n}");
  str_clear(&s);
  w = (json_writer){.out = &s, .compact = true};
  json_open_list(&w);
  json_put_int(&w, 1);
  json_put_string_n(&w, "a\0\xff", 3);
  json_open_map(&w);
  json_put_key(&w, "k");
  json_put_int(&w, INT64_MIN);
  json_close(&w);
  json_close(&w);
  CHECK_STR(s.at, "[1,\"a\\u0000\\ufffd\",{\"k\":-9223372036854775808}]");
  str_free(&s);
  str_free(&two);
}

TEST(files_of_json_are_bounded_and_named) {
  str path = {0};
  tree t;
  CHECK_OK(path_join(&path, test_dir(), "x.json"));
  CHECK_FAILS(json_load(path.at, 0, &t), "x.json: cannot open");
  CHECK_OK(file_write(path.at, "{\"a\":\n?}", 8));
  CHECK_FAILS(json_load(path.at, 0, &t), "x.json:2:1: unexpected '?'");
  CHECK_FAILS(json_load(path.at, 4, &t), "larger than");
  CHECK_OK(file_write(path.at, "{\"a\":\n1}", 8));
  CHECK_OK(json_load(path.at, 100, &t));
  tree_free(&t);
  str_free(&path);
}

TEST(every_allocation_that_fails_while_reading_json_is_reported) {
  const char *text = "{\"a\": [1, 2.5, \"x\\n\"], "
                     "\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,\"9\":1}";
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
    CHECK(!t.root);
    err_clear();
  }
}

/* Verdict of another parser, where the two are meant to agree. */
static bool jansson_accepts(const char *text, size_t n) {
  json_t *j = json_loadb(text, n,
                         JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL |
                             JSON_DECODE_INT_AS_REAL,
                         NULL);
  json_decref(j);
  return j != NULL;
}

TEST(verdicts_agree_with_another_parser_on_mutated_texts) {
  static const char seed[] = "{\"a\": [1, -2.5e+3, true, false, null, \"x\\u00e9\\n\xc3\xa9\"], "
                             "\"b\": {\"c\": {}, \"d\": []}}";
  static const char alphabet[] = "{}[],:\"\\0123456789+-.eEtrufalsn \n\xc3\xa9\x80x";
  unsigned rnd = 7;
  int accepted = 0;
  for (int i = 0; i < 40000; i++) {
    char text[sizeof seed];
    size_t n = sizeof seed - 1;
    memcpy(text, seed, n);
    for (int k = 0; k <= i % 3; k++)
      text[(size_t)rand_r(&rnd) % n] = alphabet[(size_t)rand_r(&rnd) % (sizeof alphabet - 1)];
    if (i % 7 == 0) n = (size_t)rand_r(&rnd) % n;
    tree t;
    bool ours = !json_parse(text, n, "f", &t);
    if (ours) tree_free(&t);
    bool theirs = jansson_accepts(text, n);
    /* numbers out of the range of double are accepted here, as in Python */
    if (ours != theirs && !strpbrk(text, "eE"))
      test_fail(__FILE__, __LINE__, "%d, not %d: %.*s: %s", ours, theirs, (int)n, text,
                err_message());
    accepted += ours;
    err_clear();
  }
  CHECK(accepted > 1000);
}

TEST(utf8_decoding_and_encoding_agree_on_every_character) {
  for (uint32_t c = 1; c <= 0x10ffff; c++) {
    char buf[4];
    uint32_t back;
    if (c >= 0xd800 && c < 0xe000) continue;
    size_t n = utf8_encode(c, buf);
    CHECK(utf8_decode(buf, n, &back) == n && back == c);
    if (n > 1) CHECK(!utf8_decode(buf, n - 1, &back));
  }
}
