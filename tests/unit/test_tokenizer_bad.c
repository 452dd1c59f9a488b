/* Damaged and hostile tokenizer files and texts: refused with a message, or bounded. */
#include "test.h"

#include "base/io.h"
#include "tok/tok_llama2c.h"
#include "tok/tok_regex.h"
#include "tok/tokenizer.h"

#include <stdlib.h>

/* ` stands for a double quote. */
static hp_status parse(const char *text, size_t n, tokenizer **out) {
  char *json = mem_calloc(n + 1, 1);
  CHECK(json);
  for (size_t i = 0; i < n; i++) json[i] = text[i] == '`' ? '"' : text[i];
  hp_status st = tokenizer_parse("bad.json", json, n, out);
  mem_free(json);
  return st;
}

static void check_refused(const char *json, const char *part) {
  tokenizer *t = NULL;
  hp_status st = parse(json, strlen(json), &t);
  if (!st) test_fail(__FILE__, __LINE__, "%s was taken, want \"%s\"", json, part);
  if (!strstr(err_message(), part) || !strstr(err_message(), "bad.json"))
    test_fail(__FILE__, __LINE__, "%s gives\n  %s\nwant \"%s\"", json, err_message(), part);
  CHECK(!t);
  err_clear();
}

#define WORDS              "`model`:{`type`:`WordLevel`,`unk_token`:`a`,`vocab`:{`a`:0,`b`:1}}"
#define BPE(vocab, merges) "{`model`:{`type`:`BPE`,`vocab`:" vocab ",`merges`:" merges "}}"

typedef struct {
  const char *json, *part;
} bad_row;

static void check_rows(const bad_row *row, size_t n) {
  for (size_t i = 0; i < n; i++) check_refused(row[i].json, row[i].part);
}

TEST(damaged_models_are_refused_with_a_message) {
  static const bad_row row[] = {
      /* the container */
      {"", "bad.json:1"},
      {"{", "bad.json:1"},
      {"[]", "expected a map"},
      {"null", "expected a map"},
      {"{}", "model"},
      {"{`model`:{`type`:`BPE`", "bad.json:1"},
      {"{`model`:{`type`:`BPE`,`vocab`:{`a`:0},`merges`:[]}} x", "bad.json:1"},
      {"{`model`:1}", "model: expected a map"},
      {"{`model`:{},`model`:{}}", "model"},
      {"{`version`:`2.0`," WORDS "}", "expected \"1.0\""},
      {"{`version`:1," WORDS "}", "version"},
      {"{\n\n`model`:{`type`:`BPE`,`vocab`:{`\xFF`:0},`merges`:[]}}", "bad.json:3"},
      {"{`model`:{`type`:`BPE`,`vocab`:{`\\ud800`:0},`merges`:[]}}", "bad.json:1"},
      {"{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{"
       "`a`:{`a`:"
       "{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{"
       "`a`:{`a`:"
       "{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{"
       "`a`:{`a`:"
       "{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:{`a`:",
       "bad.json:1"},
      /* models */
      {"{`model`:{`type`:`Magic`}}", "model the string \"Magic\" is not supported"},
      {"{`model`:{`type`:3}}", "model.type"},
      {"{`model`:{`type`:`BPE`}}", "vocab"},
      {"{`model`:{`type`:`BPE`,`vocab`:{`a`:0}}}", "merges"},
      {"{`model`:{`type`:`BPE`,`vocab`:[],`merges`:[]}}", "model.vocab"},
      {"{`model`:{`type`:`BPE`,`dropout`:0.1,`vocab`:{},`merges`:[]}}", "random"},
      {BPE("{`a`:-1}", "[]"), "id -1"},
      {BPE("{`a`:0.5}", "[]"), "model.vocab.a"},
      {BPE("{`a`:`0`}", "[]"), "model.vocab.a"},
      {BPE("{`a`:null}", "[]"), "model.vocab.a"},
      {BPE("{`a`:4194304}", "[]"), "id 4194304"},
      {BPE("{`a`:99999999999}", "[]"), "id 99999999999"},
      {BPE("{`a`:1e30}", "[]"), "model.vocab.a"},
      {BPE("{`a`:0,`b`:0}", "[]"), "both have id 0"},
      {BPE("{`a`:0,`a`:1}", "[]"), "bad.json:1"},
      {BPE("{`a`:0}", "{}"), "model.merges"},
      {BPE("{`a`:0}", "[`a`]"), "model.merges[0]: expected a merge"},
      {BPE("{`a`:0}", "[`a a a`]"), "model.merges[0]: expected a merge"},
      {BPE("{`a`:0}", "[[`a`]]"), "model.merges[0]: expected a merge"},
      {BPE("{`a`:0}", "[[`a`,1]]"), "model.merges[0]: expected a merge"},
      {BPE("{`a`:0}", "[3]"), "model.merges[0]: expected a merge"},
      {BPE("{`a`:0,`b`:1}", "[`a b`]"), "the result of merge 0, \"ab\""},
      {BPE("{`a`:0,`ab`:1}", "[`a b`]"), "the right part of merge 0, \"b\""},
      {BPE("{`a`:0,`ba`:1}", "[`b a`]"), "the left part of merge 0, \"b\""},
      {BPE("{`a`:0}", "[` `]"), "the left part of merge 0"},
      {BPE("{`a`:0,`aa`:1}", "[`a a`],`merge_ranks`:[]"), "0 ranks for 1 merges"},
      {BPE("{`a`:0,`aa`:1}", "[`a a`],`merge_ranks`:[-1]"), "merge_ranks[0]"},
      {BPE("{`a`:0,`aa`:1}", "[`a a`],`merge_ranks`:[4294967296]"), "merge_ranks[0]"},
      {"{`model`:{`type`:`BPE`,`vocab`:{`a`:0,`@a`:1,`@`:2},`merges`:[`a a`],"
       "`continuing_subword_prefix`:`@@`}}",
       "does not begin with the prefix"},
      {"{`model`:{`type`:`BPE`,`vocab`:{},`merges`:[],`unk_token`:1}}", "model.unk_token"},
      {"{`model`:{`type`:`BPE`,`vocab`:{},`merges`:[],`fuse_unk`:1}}", "model.fuse_unk"},
      {"{`model`:{`type`:`WordPiece`,`vocab`:{}}}", "unk_token"},
      {"{`model`:{`type`:`WordPiece`,`vocab`:{},`unk_token`:`u`,`continuing_subword_prefix`:`#`,"
       "`max_input_chars_per_word`:-1}}",
       "max_input_chars_per_word"},
      {"{`model`:{`type`:`WordLevel`,`vocab`:{}}}", "unk_token"},
      {"{`model`:{`type`:`Unigram`,`vocab`:{}}}", "model.vocab"},
      {"{`model`:{`type`:`Unigram`,`vocab`:[[`a`]]}}", "model.vocab[0]"},
      {"{`model`:{`type`:`Unigram`,`vocab`:[[1,1]]}}", "model.vocab[0]"},
      {"{`model`:{`type`:`Unigram`,`vocab`:[[`a`,`b`]]}}", "model.vocab[0][1]"},
      {"{`model`:{`type`:`Unigram`,`vocab`:[[`a`,NaN]]}}", "finite"},
      {"{`model`:{`type`:`Unigram`,`vocab`:[[`a`,1e999]]}}", "finite"},
      {"{`model`:{`type`:`Unigram`,`vocab`:[[`a`,0],[`a`,0]]}}", "is there twice"},
      {"{`model`:{`type`:`Unigram`,`unk_id`:1,`vocab`:[[`a`,0]]}}", "unk_id"},
      {"{`model`:{`type`:`Unigram`,`unk_id`:-1,`vocab`:[[`a`,0]]}}", "unk_id"},
      /* added tokens */
      {"{`added_tokens`:{}," WORDS "}", "added_tokens"},
      {"{`added_tokens`:[1]," WORDS "}", "added_tokens[0]"},
      {"{`added_tokens`:[{}]," WORDS "}", "content"},
      {"{`added_tokens`:[{`content`:1}]," WORDS "}", "content"},
      {"{`added_tokens`:[{`content`:`x`}]," WORDS "}", "id"},
      {"{`added_tokens`:[{`content`:`x`,`id`:-1}]," WORDS "}", "added_tokens[0].id"},
      {"{`added_tokens`:[{`content`:`x`,`id`:7}]," WORDS "}", "its place is 2"},
      {"{`added_tokens`:[{`content`:`a`,`id`:1}]," WORDS "}", "its place is 0"},
      {"{`added_tokens`:[{`content`:`x`,`id`:2},{`content`:`y`,`id`:2}]," WORDS "}",
       "its place is 3"},
      {"{`added_tokens`:[{`content`:`x`,`id`:2,`special`:`yes`}]," WORDS "}", "special"},
      {"{`added_tokens`:[{`content`:`x`,`id`:1}],`model`:{`type`:`WordLevel`,`unk_token`:`a`,`"
       "vocab`:{`a`:1}}}",
       "have gaps"},
  };
  check_rows(row, sizeof row / sizeof *row);
}

TEST(damaged_components_are_refused_with_a_message) {
  static const bad_row row[] = {
      /* normalizers */
      {"{`normalizer`:1," WORDS "}", "normalizer: expected a normalizer"},
      {"{`normalizer`:{}," WORDS "}", "type"},
      {"{`normalizer`:{`type`:`Precompiled`,`precompiled_charsmap`:`AA==`}," WORDS "}",
       "Precompiled"},
      {"{`normalizer`:{`type`:`Sequence`}," WORDS "}", "normalizers"},
      {"{`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`Xy`}]}," WORDS "}",
       "normalizers[0].type"},
      {"{`normalizer`:{`type`:`Strip`}," WORDS "}", "strip_left"},
      {"{`normalizer`:{`type`:`Prepend`}," WORDS "}", "prepend"},
      {"{`normalizer`:{`type`:`Replace`,`content`:``}," WORDS "}", "pattern"},
      {"{`normalizer`:{`type`:`Replace`,`content`:``,`pattern`:{}}," WORDS "}", "String"},
      {"{`normalizer`:{`type`:`Replace`,`content`:``,`pattern`:{`Regex`:`(`}}," WORDS "}",
       "pattern: bad regular"},
      {"{`normalizer`:{`type`:`BertNormalizer`}," WORDS "}", "clean_text"},
      /* pre-tokenizers */
      {"{`pre_tokenizer`:[]," WORDS "}", "pre_tokenizer"},
      {"{`pre_tokenizer`:{`type`:`UnicodeScripts`}," WORDS "}", "UnicodeScripts"},
      {"{`pre_tokenizer`:{`type`:`Split`}," WORDS "}", "behavior"},
      {"{`pre_tokenizer`:{`type`:`Split`,`behavior`:`Sideways`,`invert`:false,`pattern`:{`String`:`"
       "a`}}," WORDS "}",
       "expected Isolated, Removed"},
      {"{`pre_tokenizer`:{`type`:`Split`,`behavior`:`Removed`,`invert`:false,`pattern`:{`Regex`:`["
       "a&&b]`}}," WORDS "}",
       "an intersection"},
      {"{`pre_tokenizer`:{`type`:`Split`,`behavior`:`Removed`,`invert`:false,`pattern`:{`Regex`:`["
       "a[bc]]`}}," WORDS "}",
       "a class inside a class"},
      {"{`pre_tokenizer`:{`type`:`Split`,`behavior`:`Removed`,`invert`:false,`pattern`:{`Regex`:`(?"
       "x)a`}}," WORDS "}",
       "(?x)"},
      {"{`pre_tokenizer`:{`type`:`Split`,`behavior`:`Removed`,`invert`:false,`pattern`:{`Regex`:`"
       "a\\\\`}}," WORDS "}",
       "a lone backslash"},
      {"{`pre_tokenizer`:{`type`:`Metaspace`}," WORDS "}", "replacement"},
      {"{`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`ab`}," WORDS "}", "one character"},
      {"{`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:``}," WORDS "}", "one character"},
      {"{`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`a`,`prepend_scheme`:`x`}," WORDS "}",
       "first, never or always"},
      {"{`pre_tokenizer`:{`type`:`ByteLevel`}," WORDS "}", "add_prefix_space"},
      {"{`pre_tokenizer`:{`type`:`FixedLength`,`length`:0}," WORDS "}", "length"},
      {"{`pre_tokenizer`:{`type`:`Digits`,`individual_digits`:2}," WORDS "}", "individual_digits"},
      {"{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:{}}," WORDS "}", "pretokenizers"},
      /* post-processors */
      {"{`post_processor`:{`type`:`Xy`}," WORDS "}", "post-processor the string \"Xy\""},
      {"{`post_processor`:{`type`:`TemplateProcessing`}," WORDS "}", "single"},
      {"{`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`Sequence`:{`id`:`B`}}],"
       "`special_tokens`:{}}," WORDS "}",
       "single[0]"},
      {"{`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`SpecialToken`:{`id`:`x`}}],"
       "`special_tokens`:{}}," WORDS "}",
       "not among the \"special_tokens\""},
      {"{`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`SpecialToken`:{`id`:`x`}}],"
       "`special_tokens`:{`x`:{`ids`:[-5]}}}," WORDS "}",
       "expected an id"},
      {"{`post_processor`:{`type`:`BertProcessing`,`cls`:[`a`]}," WORDS "}", "post_processor.cls"},
      {"{`post_processor`:{`type`:`Sequence`,`processors`:[{`type`:`BertProcessing`,`cls`:[`a`,0],`"
       "sep`:[`a`,0]}"
       ",{`type`:`BertProcessing`,`cls`:[`a`,0],`sep`:[`a`,0]}]}," WORDS "}",
       "a second post-processor"},
      {"{`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`Sequence`:{`id`:`A`}},{`"
       "Sequence`:{`id`:"
       "`A`}},{`Sequence`:{`id`:`A`}},{`Sequence`:{`id`:`A`}},{`Sequence`:{`id`:`A`}},{`Sequence`:{"
       "`id`:`A`}},"
       "{`Sequence`:{`id`:`A`}},{`Sequence`:{`id`:`A`}},{`Sequence`:{`id`:`A`}}],`special_tokens`:{"
       "}}," WORDS "}",
       "repeats its text"},
      /* decoders */
      {"{`decoder`:{`type`:`CTC`}," WORDS "}", "decoder the string \"CTC\""},
      {"{`decoder`:3," WORDS "}", "expected a decoder"},
      {"{`decoder`:{`type`:`Strip`,`content`:`ab`,`start`:1,`stop`:0}," WORDS "}", "one character"},
      {"{`decoder`:{`type`:`Strip`,`content`:`a`,`start`:-1,`stop`:0}," WORDS "}", "decoder.start"},
      {"{`decoder`:{`type`:`Replace`,`content`:`a`}," WORDS "}", "pattern"},
      {"{`decoder`:{`type`:`WordPiece`,`prefix`:`a`}," WORDS "}", "cleanup"},
      {"{`decoder`:{`type`:`Sequence`,`decoders`:[{}]}," WORDS "}", "decoders[0]"},
  };
  check_rows(row, sizeof row / sizeof *row);
}

/* Every prefix of a good file is refused; every single damaged byte is refused or harmless. */
TEST(cut_and_flipped_files_do_no_harm) {
  static const char good[] = "{`version`:`1.0`,`added_tokens`:[{`id`:5,`content`:`<s>`,`special`:"
                             "true}],`normalizer`:{`type`:`NFC`},"
                             "`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false},`post_"
                             "processor`:null,`decoder`:{`type`:"
                             "`ByteLevel`},`model`:{`type`:`BPE`,`vocab`:{`a`:0,`b`:1,`ab`:2,`c`:3,"
                             "`abc`:4},`merges`:[`a b`,`ab c`]}}";
  tokenizer *t;
  for (size_t n = 0; n < sizeof good - 1; n++) {
    CHECK(parse(good, n, &t));
    CHECK(err_message()[0]);
    err_clear();
  }
  char *bad = mem_calloc(sizeof good, 1);
  CHECK(bad);
  for (size_t i = 0; i < sizeof good - 1; i++)
    for (int flip = 1; flip < 256; flip <<= 1) {
      token_ids ids = {0};
      memcpy(bad, good, sizeof good);
      bad[i] = (char)(bad[i] ^ flip);
      if (parse(bad, sizeof good - 1, &t)) {
        CHECK(err_message()[0]);
        err_clear();
        continue;
      }
      CHECK_OK(tokenizer_encode(t, "abc <s> b", 9, 0, &ids));
      vec_free(&ids);
      tokenizer_free(t);
    }
  mem_free(bad);
}

/* --- large and costly ------------------------------------------------------------------- */

static void add_many(str *s, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) str_add(s, text);
}

TEST(a_token_of_a_megabyte_is_bounded) {
  str json = {0}, text = {0};
  token_ids ids = {0};
  tokenizer *t;
  add_many(&text, "a", 1 << 20);
  str_add(&json, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"");
  add_many(&json, "a", (1 << 20) + 1);
  str_add(&json, "\":1}},\"added_tokens\":[{\"id\":2,\"content\":\"");
  add_many(&json, "a", 1 << 20);
  str_add(&json, "b\"}]}");
  CHECK_OK(tokenizer_parse("big.json", json.at, json.len, &t));
  CHECK_OK(tokenizer_encode(t, text.at, text.len, 0, &ids)); /* one short of every long token */
  CHECK_EQ(ids.len, 1 << 20);
  str_add(&text, "b");
  ids.len = 0;
  CHECK_OK(tokenizer_encode(t, text.at, text.len, 0, &ids));
  CHECK_EQ(ids.len, 1);
  CHECK_EQ(ids.at[0], 2);
  tokenizer_free(t);
  str_clear(&json);
  str_add(&json, "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"");
  add_many(&json, "a", 2000);
  str_add(&json, "\",0]]}}");
  CHECK_FAILS(tokenizer_parse("big.json", json.at, json.len, &t), "a token of 2000 bytes");
  vec_free(&ids);
  str_free(&json);
  str_free(&text);
}

static hp_status encode_with(const char *members, const char *text, size_t n) {
  tokenizer *t;
  token_ids ids = {0};
  CHECK_OK(parse(members, strlen(members), &t));
  hp_status st = tokenizer_encode(t, text, n, 0, &ids);
  CHECK_EQ(ids.len * (st != 0), 0);
  vec_free(&ids);
  tokenizer_free(t);
  return st;
}

TEST(expressions_that_blow_up_are_stopped) {
  str text = {0};
  add_many(&text, "a", 5000);
  CHECK_FAILS(
      encode_with("{`pre_tokenizer`:{`type`:`Split`,`behavior`:`Removed`,`invert`:false,`pattern`:"
                  "{`Regex`:`(a|aa)+[bc]`}}," WORDS "}",
                  text.at, text.len),
      "fails on this text of 5000 bytes: it goes over the same characters again");
  CHECK_FAILS(
      encode_with("{`pre_tokenizer`:{`type`:`Split`,`behavior`:`Removed`,`invert`:false,`pattern`:"
                  "{`Regex`:`(?:(?:a*)*)*[bc]`}}," WORDS "}",
                  text.at, text.len),
      "fails on this text of 5000 bytes: it goes over the same characters again");
  str_free(&text);
}

TEST(stages_that_enlarge_text_are_stopped) {
  str json = {0}, text = {0};
  add_many(&text, "a", 20000);
  str_add(&json, "{`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`a`},`content`:`");
  add_many(&json, "a", 1000);
  str_add(&json, "`}," WORDS "}");
  CHECK_FAILS(encode_with(json.at, text.at, text.len), "the limit is 64 times");
  str_clear(&json);
  str_add(&json, "{`normalizer`:{`type`:`Sequence`,`normalizers`:[");
  for (int i = 0; i < 50; i++)
    str_printf(&json, "%s{`type`:`Replace`,`pattern`:{`String`:`a`},`content`:`aa`}", i ? "," : "");
  str_add(&json, "]}," WORDS "}");
  CHECK_FAILS(encode_with(json.at, text.at, text.len), "the limit is 64 times");
  str_free(&json);
  str_free(&text);
}

TEST(unknown_text_without_an_unknown_token_fails_or_vanishes_as_in_the_reference) {
  CHECK_FAILS(encode_with("{`model`:{`type`:`WordLevel`,`unk_token`:`u`,`vocab`:{`a`:0}}}", "xyz",
                          3),
              "unk_token");
  CHECK_FAILS(encode_with("{`model`:{`type`:`Unigram`,`vocab`:[[`a`,0]]}}", "xyz", 3), "unk_id");
  CHECK_FAILS(encode_with("{`model`:{`type`:`BPE`,`unk_token`:`u`,`vocab`:{`a`:0},`merges`:[]}}",
                          "xyz", 3),
              "unk_token");
  CHECK_OK(encode_with("{`model`:{`type`:`BPE`,`vocab`:{`a`:0},`merges`:[]}}", "xyz", 3));
}

/* --- other files ------------------------------------------------------------------------ */

TEST(damaged_llama2c_files_are_refused) {
  str bin = {0}, json = {0};
  const int32_t huge = INT32_MAX, minus = -1;
  CHECK_FAILS(tok_llama2c_to_json("t.bin", "", 0, &json), "t.bin");
  CHECK_FAILS(tok_llama2c_to_json("t.bin", "\1\0\0", 3, &json), "t.bin");
  CHECK_FAILS(tok_llama2c_to_json("t.bin", "\1\0\0\0", 4, &json), "not a llama2.c tokenizer");
  CHECK_FAILS(tok_llama2c_to_json("t.bin", "\1\0\0\0\0\0", 6, &json), "truncated");
  str_add_n(&bin, "\1\0\0\0\0\0\0\0", 8);
  str_add_n(&bin, (const char *)&huge, 4);
  CHECK_FAILS(tok_llama2c_to_json("t.bin", bin.at, bin.len, &json), "says 2147483647 bytes");
  memcpy(bin.at + 8, &minus, 4);
  CHECK_FAILS(tok_llama2c_to_json("t.bin", bin.at, bin.len, &json), "says -1 bytes");
  memcpy(bin.at + 8, "\1\0\0\0", 4);
  str_add_char(&bin, '\xFF');
  CHECK_FAILS(tok_llama2c_to_json("t.bin", bin.at, bin.len, &json), "not UTF-8");
  bin.at[12] = 'x';
  memcpy(bin.at + 4, "\xFF\xFF\xFF\x7F", 4);
  CHECK_FAILS(tok_llama2c_to_json("t.bin", bin.at, bin.len, &json), "no number");
  memcpy(bin.at + 4, "\0\0\0\0", 4);
  CHECK_FAILS(tok_llama2c_to_json("t.bin", bin.at, bin.len, &json), "<0x00>");
  str_add_n(&bin, "\0\0\0\0\1\0\0\0x", 9); /* bos is named <s>, whatever the file says */
  str_add_n(&bin, "\0\0\0\0\1\0\0\0y", 9);
  str_add_n(&bin, "\0\0\0\0\1\0\0\0x", 9);
  CHECK_FAILS(tok_llama2c_to_json("t.bin", bin.at, bin.len, &json), "is there twice");
  str_free(&bin);
  str_free(&json);
}

static void put_file(const char *name, const char *text) {
  str path = {0};
  CHECK_OK(path_join(&path, test_dir(), name));
  CHECK_OK(file_write(path.at, text, strlen(text)));
  str_free(&path);
}

TEST(damaged_directories_are_refused) {
  tokenizer *t;
  CHECK_FAILS(tokenizer_load("/no/such/place", &t), "/no/such/place");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "no tokenizer there");
  put_file("tokenizer.model", "x");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "SentencePiece");
  put_file("vocab.json", "{\"a\":0,\"b\":1}");
  put_file("tokenizer_config.json", "{\"tokenizer_class\":\"GPT2Tokenizer\"}");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "merges.txt");
  put_file("merges.txt", "#version: 0.2\n\na b\n");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "merges.txt:3: the result of merge 0, \"ab\"");
  put_file("merges.txt", "ab\n");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "merges.txt:1");
  put_file("merges.txt", "a b c\n");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "two tokens with one space");
  put_file("merges.txt", "");
  put_file("vocab.json", "[1]");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "vocab.json");
  put_file("vocab.json", "{\"a\":0}");
  put_file("special_tokens_map.json", "{\"eos_token\": 5}");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "eos_token");
  put_file("special_tokens_map.json", "{\"eos_token\": {\"content\": []}}");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "eos_token.content");
  put_file("tokenizer.json", "{");
  CHECK_FAILS(tokenizer_load(test_dir(), &t), "tokenizer.json:1");
}

/* --- expressions ------------------------------------------------------------------------ */

TEST(ruby_expressions_are_translated) {
  static const struct {
    const char *ruby, *pcre;
  } row[] = {{"", ""},
             {"a{,3}b", "a{0,3}b"},
             {"a{2}+", "(?:a{2})+"},
             {"(?:ab){1,2}+c", "(?:(?:ab){1,2})+c"},
             {"[a-z]{2}?", "(?:[a-z]{2})?"},
             {"[a-z]{2,}?", "[a-z]{2,}?"},
             {"\\p{L}{1,3}+", "(?:\\p{L}{1,3})+"},
             {"\\x41{2}+", "(?:\\x41{2})+"},
             {"{x}", "{x}"},
             {"\\Qa+\\E", "Qa+E"},
             {"(?mi:.)", "(?si:.)"},
             {"(?<name>a)\\k<name>", "(?<name>a)\\k<name>"},
             {"(?<!a)b(?=c)", "(?<!a)b(?=c)"},
             {"a(?#note)b", "ab"},
             {"\\h[\\h]\\H", "[0-9a-fA-F][0-9a-fA-F][^0-9a-fA-F]"},
             {"\\u00e9\\v", "\\x{00e9}\\x0B"},
             {"[]a]", "[\\]a]"},
             {"[^]a]", "[^\\]a]"},
             {"[[:digit:]\\]]", "[\\p{Nd}\\]]"},
             {"\xC3\xA9{2}+", "(?:\xC3\xA9{2})+"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    str out = {0};
    CHECK_OK(tok_regex_translate(row[i].ruby, strlen(row[i].ruby), "test", false, &out));
    CHECK_STR(out.at, row[i].pcre);
    str_free(&out);
  }
  static const char *const bad[] = {"[a",    "\\",      "[\\W]", "\\u12",
                                    "(?~a)", "(*FAIL)", "(?#",   "[a[:nope:]]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    str out = {0};
    CHECK_FAILS(tok_regex_translate(bad[i], strlen(bad[i]), "test", false, &out),
                "test: the regular expression has");
    str_free(&out);
  }
}

/* Where work can be repeated it is counted, and the expression means what it did. */
TEST(expressions_count_their_work) {
  static const struct {
    const char *ruby, *pcre;
  } row[] = {{"ab?c", "ab?c"},
             {"\\s+(?!\\S)|\\s+", "\\s+(?C1)(?!\\S)|\\s+(?C1)"},
             {"a*?b++", "a*?(?C1)b++(?C1)"},
             {"a{2,3}?b", "a{2,3}?(?C1)b"},
             {"a{2}+", "(?:a{2})+(?C1)"},
             {"a{70}", "(?C22)a{70}(?C1)"},
             {"(?i:'s|'t)|x", "(?i:'s|'t)(?C1)|x"},
             {"(a|b)?c", "(a|b)?(?C1)c"},
             {"(?:a*b)*", "(?C2)(?:(?C2)a*(?C1)b)*(?C1)"},
             {"(a(?R)?)b|a", "(a(?C1)(?R)?(?C1))b|a"},
             {"(?<n>a)\\g<n>", "(?<n>a)(?C1)\\g<n>(?C1)"},
             {"(a)\\1", "(a)(?C3)\\1"},
             {"a?b?c?d?e?f?g?h?i?j?", "a?b?c?d?e?f?g?h?i?(?C1)j?(?C1)"},
             {"[*+]\\*x", "[*+]\\*x"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    str out = {0};
    CHECK_OK(tok_regex_translate(row[i].ruby, strlen(row[i].ruby), "test", true, &out));
    CHECK_STR(out.at, row[i].pcre);
    str_free(&out);
  }
}

/* Splits `times` copies of `text`, in pieces of `piece` bytes (0: at once). */
static hp_status split_many(const char *pattern, const char *text, size_t times, size_t piece,
                            tok_spans *out) {
  tok_regex *re;
  tok_matcher m = {0};
  str all = {0};
  add_many(&all, text, times);
  CHECK_OK(tok_regex_compile(pattern, strlen(pattern), "test", &re));
  hp_status st = HP_OK;
  for (size_t at = 0; at < all.len && !st; at += piece ? piece : all.len) {
    size_t n = !piece || piece > all.len - at ? all.len - at : piece;
    st = tok_regex_split(re, &m, all.at + at, n, out);
  }
  tok_matcher_free(&m);
  tok_regex_free(re);
  str_free(&all);
  return st;
}

TEST(work_on_a_text_grows_with_its_length) {
  static const char *const squares[] = {"(a(?R)?)b|a",          "a+[bc]|a",
                                        "(?=a*[xy]?)a",         "(a)(?=a*)\\1?[bc]|a",
                                        "(?:(?=a*[xy]?)a)*",    "a*a*a*[bc]|a",
                                        "(?:a|b|ab)*[xy]|a",    "(?<n>a\\g<n>?)b|a",
                                        "((?:aa|a)+)\\1[bc]|a", "(?:a?){40}[bc]|a",
                                        "a{30000}[bc]|a"};
  tok_spans spans = {0};
  for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) {
    char says[64];
    snprintf(says, sizeof says, "\"%s\" fails on this text of 16384 bytes", squares[i]);
    CHECK_FAILS(split_many(squares[i], "a", 16384, 0, &spans), says);
  }
  /* what pieces of a text take is counted together */
  CHECK_OK(split_many("a+[bc]|a", "a", 4096, 0, &spans));
  CHECK_FAILS(split_many("a+[bc]|a", "a", 1 << 20, 4096, &spans), "fails on this text");
  vec_free(&spans);
}

/* The words of GPT-2, of Llama 3, of GPT-4o, of Qwen 2, and numbers cut from their end. */
static const char *const real_words[] =
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:"
     "'s|'"
     "t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{"
     "Lm}"
     "\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};

TEST(expressions_of_real_tokenizers_split_any_megabyte) {
  static const char *const text[] = {"a",        " ",     "\xf0\x9f\x99\x82",
                                     "A",        "7",     "\n",
                                     "\r\n",     " \n",   "a ",
                                     "a  b ",    "it's ", "\xe6\x9d\x83",
                                     "\xcc\x81", "!?",    "Ab1 ",
                                     "\t x"};
  tok_spans spans = {0};
  for (size_t i = 0; i < sizeof real_words / sizeof *real_words; i++)
    for (size_t k = 0; k < sizeof text / sizeof *text; k++) {
      size_t times = (i ? 1 << 20 : 1 << 18) / strlen(text[k]);
      CHECK_OK(split_many(real_words[i], text[k], times, 0, &spans));
      CHECK(spans.len > 0 && spans.at[spans.len - 1].end == times * strlen(text[k]));
    }
  /* looks ahead to the end of the number at every third digit */
  CHECK_OK(split_many("\\p{N}{1,3}(?=(?:\\p{N}{3})*(?:\\P{N}|$))", "7", 3001, 0, &spans));
  CHECK_EQ(spans.at[0].end, 1);
  vec_free(&spans);
}
