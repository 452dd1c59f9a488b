/* Control characters in names and texts from files. */
#include "base/escape.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static void check(const char *from, bool lines, const char *want) {
  char to[256];
  escape_text(to, sizeof to, from, strlen(from), lines);
  CHECK_STR(to, want);
}

TEST(control_characters_are_escaped) {
  check("\x1b[2J\x07", false, "\\x1b[2J\\x07");
  check("a\nb\tc\rd\x7f", false, "a\\nb\\tc\\rd\\x7f");
  check("a\nb\tc\rd", true, "a\nb\tc\\rd");
  check("\xc2\x9b"
        "31m \xc2\x85",
        false, "\\x9b31m \\x85"); /* C1: some terminals obey these too */
  check("abc\xe2\x80\xae"
        "fed \xe2\x80\xa8 \xe2\x81\xa6",
        false, "abc\\u202efed \\u2028 \\u2066");
}

TEST(bytes_that_are_no_text_are_escaped) {
  check("\x9b"
        "31m",
        true, "\\x9b31m");
  check("caf\xe9", false, "caf\\xe9");
  check("\xed\xa0\x80", false, "\\xed\\xa0\\x80"); /* a surrogate */
}

TEST(text_of_any_language_stays) {
  const char *text = "gewicht_\xc3\xa4 \xe6\x9d\x83\xe9\x87\x8d \xf0\x9f\x99\x82 a\\b \"c\"";
  check(text, false, text);
}

TEST(an_escape_is_never_cut) {
  char to[8];
  CHECK_EQ(escape_text(to, sizeof to, "abcd\x1b[0m", 8, false), 4);
  CHECK_STR(to, "abcd");
  CHECK_EQ(escape_text(to, sizeof to, "abcdef\xc3\xa4", 8, false), 6);
  CHECK_EQ(escape_text(to, 1, "abc", 3, false), 0);
  CHECK_STR(to, "");
}

TEST(messages_escape_what_comes_from_files) {
  err_set(HP_ERR_INPUT, "f", 1, "tensor \"%s\" is damaged", "a\x1b]0;x\x07\nhyper: all is well");
  CHECK_STR(err_message(), "tensor \"a\\x1b]0;x\\x07\\nhyper: all is well\" is damaged");
  err_clear();
  err_set(HP_ERR_INPUT, "f", 1, "two:\n%s", "1. x\x1b\n2. y");
  CHECK_STR(err_message(), "two:\n1. x\\x1b\n2. y");
  err_clear();
}

TEST(places_in_files_are_escaped) {
  tree t;
  CHECK_OK(json_parse("{\"a\\u001b\": \"b\\u009b\"}", 22, "f\x1b.json", &t));
  CHECK_STR(tree_where(t.root->child[0]).text, "f\\x1b.json:1:13: a\\x1b");
  CHECK_STR(tree_what(t.root->child[0]).text, "the string \"b\\x9b\"");
  tree_free(&t);
}

TEST(logs_escape_what_comes_from_files) {
  char path[512], got[512];
  snprintf(path, sizeof path, "%s/log", test_dir());
  CHECK(freopen(path, "w", stderr) != NULL);
  log_warn("%s: a data set", "x\n\x1b[31mwarning: y");
  log_info("lines:\n%s", "1\n2\x1b");
  fflush(stderr);
  FILE *f = fopen(path, "r");
  CHECK(f != NULL);
  size_t n = fread(got, 1, sizeof got - 1, f);
  got[n] = 0;
  fclose(f);
  CHECK_STR(got, "warning: x\\n\\x1b[31mwarning: y: a data set\nlines:\n1\n2\\x1b\n");
}

TEST(pages_escape_what_comes_from_files) {
  str s = {0};
  str_add_xml(&s, "<a\x1b[0m & \xc2\x9b>");
  CHECK_STR(s.at, "&lt;a\\x1b[0m &amp; \\x9b&gt;");
  str_free(&s);
}
