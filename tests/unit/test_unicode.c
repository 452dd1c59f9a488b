#include "test.h"

#include "tok/unicode.h"

static void check_form(unicode_form form, const char *text, const char *want) {
  str out = {0};
  CHECK_OK(unicode_normalize(form, text, strlen(text), &out));
  CHECK_STR(out.at ? out.at : "", want);
  str_free(&out);
}

TEST(normal_forms_of_known_texts) {
  check_form(UNICODE_NFC, "", "");
  check_form(UNICODE_NFC, "abc", "abc");
  check_form(UNICODE_NFC, "e\u0301", "\u00e9");
  check_form(UNICODE_NFD, "\u00e9x\u00e9", "e\u0301xe\u0301");
  check_form(UNICODE_NFC, "\u1e9b\u0323", "\u1e9b\u0323");
  check_form(UNICODE_NFD, "\u1e9b\u0323", "\u017f\u0323\u0307");
  check_form(UNICODE_NFKC, "\u1e9b\u0323", "\u1e69");
  check_form(UNICODE_NFKD, "\u1e9b\u0323", "s\u0323\u0307");
  check_form(UNICODE_NFC, "\u1112\u1161\u11ab", "\ud55c"); /* Hangul */
  check_form(UNICODE_NFC, "\ud558\u11ab", "\ud55c");
  check_form(UNICODE_NFD, "\ud55c", "\u1112\u1161\u11ab");
  check_form(UNICODE_NFC, "\u2126\u212b", "\u03a9\u00c5"); /* singletons */
  check_form(UNICODE_NFC, "\u0958", "\u0915\u093c");       /* excluded from composition */
  check_form(UNICODE_NFKC, "\ufb01\uff21\u2460", "fiA1");
  check_form(UNICODE_NFC, "q\u0307\u0323\u0301", "q\u0323\u0307\u0301"); /* stable order of marks */
  check_form(UNICODE_NFC, "\u4e00\u0301\u4e01", "\u4e00\u0301\u4e01");
  check_form(UNICODE_NFC, "\u304b\u3099\u304b", "\u304c\u304b");
  check_form(UNICODE_NFC, "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0",
             "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0"); /* Unicode 13, not composed by the reference */
}

/* Thousands of marks on one letter are put in order as few are. */
TEST(many_marks_are_ordered_in_linear_time) {
  str text = {0}, out = {0}, want = {0};
  str_add(&text, "a");
  str_add(&want, "a");
  for (int i = 0; i < 200000; i++) str_add(&text, i & 1 ? "\u0323" : "\u0307");
  for (int i = 0; i < 200000; i++) str_add(&want, i < 100000 ? "\u0323" : "\u0307");
  CHECK_OK(unicode_normalize(UNICODE_NFD, text.at, text.len, &out));
  CHECK_EQ(out.len, want.len);
  CHECK(!memcmp(out.at, want.at, out.len));
  str_free(&text);
  str_free(&out);
  str_free(&want);
}

TEST(normalizing_twice_changes_nothing_more) {
  for (int form = 0; form < 4; form++) {
    str text = {0}, once = {0}, twice = {0};
    for (uint32_t cp = 1; cp < 0x30000; cp += 1 + cp % 3)
      if (cp < 0xD800 || cp > 0xDFFF) utf8_add(&text, cp);
    CHECK_OK(unicode_normalize((unicode_form)form, text.at, text.len, &once));
    CHECK_OK(unicode_normalize((unicode_form)form, once.at, once.len, &twice));
    CHECK_STR(twice.at, once.at);
    CHECK_EQ(utf8_valid(once.at, once.len), once.len);
    str_free(&text);
    str_free(&once);
    str_free(&twice);
  }
}

TEST(ill_formed_bytes_are_replaced_as_the_standard_says) {
  static const struct {
    const char *bytes, *want;
  } row[] = {{"abc", "abc"},
             {"\x80", "\uFFFD"},
             {"\xC0\x80", "\uFFFD\uFFFD"},
             {"\xE2\x96", "\uFFFD"},
             {"\xE2\x96x", "\uFFFDx"},
             {"\xF0\x9F\x98", "\uFFFD"},
             {"\xF0\x9F\xF0\x9F\x98\x80", "\uFFFD\xF0\x9F\x98\x80"},
             {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
             {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
             {"\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD"},
             {"a\xF1\x80\x80\xE1\x80\xC2"
              "b\x80"
              "c\x80\xBF"
              "d",
              "a\uFFFD\uFFFD\uFFFD"
              "b\uFFFD"
              "c\uFFFD\uFFFD"
              "d"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    str out = {0};
    utf8_add_lossy(&out, row[i].bytes, strlen(row[i].bytes));
    CHECK_STR(out.at, row[i].want);
    str_free(&out);
  }
}

TEST(escaped_bytes_are_well_formed_and_come_back) {
  char all[256 + 3];
  str out = {0};
  for (int i = 0; i < 256; i++) all[i] = (char)i;
  memcpy(all + 256, "\xE2\x96\x81", 3);
  utf8_add_escaped(&out, all, sizeof all);
  size_t at = 0, n = 0;
  for (size_t k; at < out.len; at += k, n++) {
    uint32_t cp = utf8_get(out.at + at, &k);
    if (n < 128) CHECK_EQ(cp, n);
    else if (n < 256) CHECK_EQ(cp, UNICODE_ESCAPE + n);
    else CHECK_EQ(cp, 0x2581);
    CHECK_EQ(unicode_is_escape(cp), n >= 128 && n < 256);
  }
  CHECK_EQ(n, 257);
  CHECK_EQ(utf8_back(out.at, out.len), out.len - 3);
  str_free(&out);
}

TEST(unfinished_characters_are_held_back) {
  CHECK_EQ(utf8_complete("", 0), 0);
  CHECK_EQ(utf8_complete("ab", 2), 2);
  CHECK_EQ(utf8_complete("a\xC3", 2), 1);
  CHECK_EQ(utf8_complete("a\xC3\xA9", 3), 3);
  CHECK_EQ(utf8_complete("a\xE2\x96", 3), 1);
  CHECK_EQ(utf8_complete("a\xF0\x9F\x98", 4), 1);
  CHECK_EQ(utf8_complete("\xF0\x9F\x98\x80", 4), 4);
  CHECK_EQ(utf8_complete("a\x80\x80\x80\x80", 5), 5); /* belongs to nothing */
  CHECK_EQ(utf8_complete("a\xED\xA0", 3), 3);         /* can no more become a character */
}

TEST(characters_have_their_classes) {
  CHECK(unicode_is_space(0x3000) && unicode_is_space('\v') && !unicode_is_space(0x180E));
  CHECK(unicode_is_word('_') && unicode_is_word(0x301) && unicode_is_word(0x24B6));
  CHECK(!unicode_is_word('-') && !unicode_is_word(0xB2));
  CHECK(unicode_is_numeric(0xBD) && unicode_is_numeric(0x11F50) && !unicode_is_numeric('x'));
  CHECK(unicode_is_punctuation('$') && unicode_is_punctuation(0xBF) &&
        !unicode_is_punctuation(0x20AC));
  CHECK(!unicode_is_punctuation(0x2E52)); /* newer than the reference's table */
  CHECK(unicode_is_mark(0x903) && unicode_is_nonspacing(0x301) && !unicode_is_nonspacing(0x903));
  CHECK(unicode_is_other(0x200D) && unicode_is_other(0xE000) && !unicode_is_other(0x378));
  CHECK_EQ(unicode_stand_in('a'), 'a');
  CHECK_EQ(unicode_stand_in(0x31350), 0x20000);
  str s = {0};
  static const uint32_t upper[] = {'A', 0xC9, 0x130, 0x1C89, 0x10D50, 0x4E00};
  for (size_t i = 0; i < sizeof upper / sizeof *upper; i++) unicode_add_lower(&s, upper[i]);
  CHECK_STR(s.at, "a\u00e9i\u0307\u1c8a\xF0\x90\xB5\xB0\u4e00");
  str_free(&s);
}
