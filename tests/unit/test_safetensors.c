#include "test.h"

#include "base/safetensors.h"
#include "base/str.h"

#include <stdlib.h>
#include <unistd.h>

/* prefix + header + `data` bytes of 0, 1, 2, ...; free() it */
static unsigned char *make(const char *header, size_t header_len, size_t data, size_t *len) {
  *len = 8 + header_len + data;
  unsigned char *p = malloc(*len);
  for (int i = 0; i < 8; i++) p[i] = (unsigned char)((uint64_t)header_len >> (8 * i));
  memcpy(p + 8, header, header_len);
  for (size_t i = 0; i < data; i++) p[8 + header_len + i] = (unsigned char)i;
  return p;
}

#define T(name, dtype, shape, begin, end)                                                          \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end   \
  "]}"

TEST(safetensors_are_read_as_views) {
  size_t len;
  const char *header =
      "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}," T("b", "F32", "[2,3]", 4, 28) "," T(
          "a", "BF16", "[2]", 0, 4) "," T("empty", "F64", "[3,0,2]", 28,
                                          28) "," T("scalar", "U8", "[]", 28,
                                                    29) "," T("f4", "F4", "[1,4]", 29, 31) "}   ";
  unsigned char *p = make(header, strlen(header), 31, &len);
  st_file f;
  CHECK_OK(st_parse(p, len, "m.safetensors", &f));
  CHECK_EQ(f.n, 5);
  CHECK_STR(f.tensor[0].name, "a");
  CHECK_STR(f.tensor[1].name, "b");
  const st_tensor *b = st_find(&f, "b");
  CHECK(b == &f.tensor[1]);
  CHECK_EQ(b->dtype, ST_F32);
  CHECK_EQ(b->rank, 2);
  CHECK_EQ(b->dim[1], 3);
  CHECK_EQ(b->bytes, 24);
  CHECK_EQ(b->data[0], 4);
  CHECK(st_find(&f, "empty")->bytes == 0 && st_find(&f, "empty")->rank == 3);
  CHECK(st_find(&f, "scalar")->rank == 0 && st_find(&f, "scalar")->data[0] == 28);
  CHECK_EQ(st_find(&f, "f4")->bytes, 2);
  CHECK(!st_find(&f, "c") && !st_find(&f, ""));
  CHECK_EQ(f.n_metadata, 2);
  CHECK_STR(f.metadata[1].key, "k");
  CHECK_STR(f.metadata[1].value, "v");
  st_close(&f);
  CHECK(!st_find(&f, "a"));
  free(p);
}

TEST(every_dtype_of_safetensors_is_read) {
  unsigned sum = 0;
  for (int i = 0; i < ST_DTYPE_COUNT; i++) {
    char header[200];
    size_t len, bytes = 8 * st_dtype_bits((st_dtype)i) / 8;
    int n = snprintf(header, sizeof header,
                     "{\"t\":{\"dtype\":\"%s\",\"shape\":[4,2],\"data_offsets\":[0,%zu]}}",
                     st_dtype_name((st_dtype)i), bytes);
    unsigned char *p = make(header, (size_t)n, bytes, &len);
    st_file f;
    CHECK_OK(st_parse(p, len, "t", &f));
    CHECK_EQ(f.tensor[0].dtype, i);
    CHECK_EQ(f.tensor[0].bytes, bytes);
    st_close(&f);
    free(p);
    hp_dtype t;
    if (st_dtype_to_hp((st_dtype)i, &t)) sum++;
  }
  CHECK_EQ(sum, HP_DTYPE_COUNT);
  for (int i = 0; i < HP_DTYPE_COUNT; i++) {
    hp_dtype t;
    CHECK(st_dtype_to_hp(st_dtype_from_hp((hp_dtype)i), &t) && t == (hp_dtype)i);
  }
}

#define BIG "18446744073709551614"

/* header, bytes of data, what the refusal says; "" where it must load */
static const struct {
  const char *header;
  size_t data;
  const char *want;
} rules[] = {
    {"{}", 0, ""},
    {"{}      ", 0, ""},
    {"{}\r \t\n", 0, ""},
    {"{" T("t", "I32", "[2,2]", 0, 16) "}", 16, ""},
    {"{" T("t", "I32", "[]", 0, 4) "}", 4, ""},
    {"{" T("t", "I32", "[2,0]", 0, 0) "}", 0, ""},
    {"{" T("t", "I32", "[0,4294967296,4294967296]", 0, 0) "}", 0, ""},
    {"{" T("a", "I8", "[0]", 0, 0) "," T("b", "I8", "[1]", 0, 1) "," T("c", "I8", "[0]", 1, 1) "}",
     1, ""},
    {"{ \"t\" : {\"shape\": [2], \"data_offsets\" : [0, 8],\n\"dtype\":\"I32\" } }", 8, ""},
    {"{\"t\":{\"dtype\":\"I8\",\"x\":{\"a\":[1,{},[]],\"b\":null},\"shape\":[],\"y\":[],\"z\":1.5,"
     "\"data_offsets\":[0,1]}}",
     1, ""},
    {"{\"__metadata__\":null}", 0, ""},
    {"{\"__metadata__\":{}}", 0, ""},
    {"{\"\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, ""},
    /* the container */
    {"", 0, "does not start with '{'"},
    {" {}", 0, "does not start with '{'"},
    {"\n{}", 0, "does not start with '{'"},
    {"[]", 0, "does not start with '{'"},
    {"PK\x03\x04", 0, "does not start with '{'"},
    {"\xff", 0, "does not start with '{'"},
    {"{", 0, "t: header:1:2: expected a key in double quotes, found the end"},
    {"{}x", 0, "unexpected 'x'"},
    {"{}{}", 0, "nothing but spaces after the header"},
    {"{},", 0, "nothing but spaces after the header"},
    {"{},,,,", 0, "nothing but spaces"},
    {"{\"t\"}", 0, "':' after the key"},
    {"{t:1}", 0, "unexpected 't'"},
    {"{\"t\xff\":1}", 0, "invalid UTF-8"},
    {"{\"a\\u0000b\":1}", 0, "NUL"},
    {"{\"t\":1}", 0, "a map with dtype, shape and data_offsets"},
    {"{\"t\":[]}", 0, "a map with dtype"},
    {"{\"t\":null}", 0, "a map with dtype"},
    {"{\"t\":{}}", 0, "tensor \"t\": dtype is missing"},
    {"{\"t\":{\"dtype\":\"I8\"}}", 0, "shape is missing"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[]}}", 0, "data_offsets is missing"},
    {"{" T("t", "I8", "[]", 0, 1) ",}", 1, "a key in double quotes"},
    {"{" T("t", "I8", "[]", 0, 1) " " T("u", "I8", "[]", 1, 2) "}", 2, "',' or '}'"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "expected a string, found a number"},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "expected a string, found '{'"},
    {"{\"__metadata__\":[]}", 0, "a map of strings"},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, "has \"a\" twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is given twice"},
    /* names and fields twice */
    {"{" T("t", "I8", "[0]", 0, 0) "," T("t", "I8", "[0]", 0, 0) "}", 0,
     "tensor \"t\" is there twice"},
    {"{" T("t", "I8", "[1]", 0, 1) "," T("t", "I8", "[1]", 1, 2) "}", 2,
     "tensor \"t\" is there twice"},
    {"{" T("\\u0074", "I8", "[0]", 0, 0) "," T("t", "I8", "[0]", 0, 0) "}", 0, "is there twice"},
    {"{\"t\":{\"dtype\":\"I8\",\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     "dtype is given twice"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[],\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     "shape is given twice"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[0,1],\"data_offsets\":[0,1]}}", 1,
     "given twice"},
    /* dtypes */
    {"{" T("t", "F128", "[]", 0, 16) "}", 16, "unknown dtype \"F128\""},
    {"{" T("t", "f32", "[]", 0, 4) "}", 4, "unknown dtype \"f32\""},
    {"{" T("t", "", "[]", 0, 4) "}", 4, "unknown dtype \"\""},
    {"{\"t\":{\"dtype\":5,\"shape\":[],\"data_offsets\":[0,1]}}", 1, "a dtype as a string"},
    {"{" T("t", "F4", "[3]", 0, 2) "}", 2, "that 64 bits can hold"},
    {"{" T("t", "F4", "[2]", 0, 2) "}", 2, "F4 and its shape need 1"},
    {"{" T("t", "F6_E2M3", "[2]", 0, 2) "}", 2, "that 64 bits can hold"},
    /* shapes */
    {"{" T("t", "I8", "[-1]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[-0]", 0, 0) "}", 0, "no integer from 0"},
    {"{" T("t", "I8", "[1.0]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[1e0]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[1e400]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[NaN]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[\"1\"]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[null]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[true]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[[1]]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[1,]", 0, 1) "}", 1, "no integer from 0"},
    {"{" T("t", "I8", "[01]", 0, 1) "}", 1, "may not start with 0"},
    {"{" T("t", "I8", "1", 0, 1) "}", 1, "a list of numbers"},
    {"{" T("t", "I8", "null", 0, 1) "}", 1, "a list of numbers"},
    {"{" T("t", "I8", "{}", 0, 1) "}", 1, "a list of numbers"},
    {"{" T("t", "I8", "[1 1]", 0, 1) "}", 1, "',' or ']'"},
    {"{" T("t", "I32", "[2," BIG "]", 0, 16) "}", 16, "no integer from 0"},
    {"{" T("t", "I32", "[2,9223372036854775807]", 0, 16) "}", 16, "that 64 bits can hold"},
    {"{" T("t", "I8", "[4294967296,4294967296]", 0, 0) "}", 0, "that 64 bits can hold"},
    {"{" T("t", "I8", "[4294967296,4294967296,0]", 0, 0) "}", 0, "that 64 bits can hold"},
    {"{" T("t", "F64", "[2305843009213693952]", 0, 0) "}", 0, "that 64 bits can hold"},
    {"{" T("t", "F32", "[4611686018427387904]", 0, 0) "}", 0, "that 64 bits can hold"},
    {"{" T("t", "F64", "[1152921504606846976,2]", 0, 0) "}", 0, "that 64 bits can hold"},
    {"{" T("t", "I8",
           "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
           "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
           0, 1) "}",
     1, "more than 64 numbers"},
    /* offsets */
    {"{" T("t", "I32", "[2,2]", 0, 4) "}", 4,
     "data_offsets give 4 bytes, but I32 and its shape need 16"},
    {"{" T("t", "I32", "[2,2]", 0, 16) "}", 14, "outside the 14 bytes of data"},
    {"{" T("t", "I32", "[2,2]", 0, 16) "}", 17,
     "the tensors need 16 bytes of data, the file has 17"},
    {"{}", 1, "the tensors need 0 bytes of data, the file has 1"},
    {"{" T("t", "I8", "[4]", 4, 0) "}", 4, "outside the 4 bytes of data"},
    {"{" T("t", "I8", "[0]", 1, 0) "}", 1, "outside"},
    {"{" T("t", "I8", "[4]", 0, -4) "}", 4, "no integer from 0"},
    {"{" T("t", "I8", "[4]", -4, 0) "}", 4, "no integer from 0"},
    {"{" T("t", "I8", "[4]", 18446744073709551612, 0) "}", 4, "no integer from 0"},
    {"{" T("t", "I8", "[4]", 9223372036854775803, 9223372036854775807) "}", 4, "outside"},
    {"{" T("t", "I8", "[4]", 0, 18446744073709551615) "}", 4, "no integer from 0"},
    {"{" T("t", "I8", "[4]", 0, 4.0) "}", 4, "no integer from 0"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0]}}", 4, "not [begin, end]"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4,4]}}", 4, "not [begin, end]"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[]}}", 4, "not [begin, end]"},
    {"{\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":\"0,4\"}}", 4, "a list of numbers"},
    {"{" T("a", "I8", "[4]", 0, 4) "," T("b", "I8", "[4]", 2, 6) "}", 6,
     "tensor \"b\": its data starts at 2, but the tensor before it ends at 4"},
    {"{" T("a", "I8", "[4]", 0, 4) "," T("b", "I8", "[4]", 5, 9) "}", 9, "starts at 5"},
    {"{" T("a", "I8", "[4]", 0, 4) "," T("b", "I8", "[4]", 0, 4) "}", 4,
     "starts at 0, but the tensor before it ends at 4"},
    {"{" T("a", "I8", "[4]", 1, 5) "}", 5, "starts at 1, but the tensor before it ends at 0"},
    {"{" T("a", "I8", "[4]", 0, 4) "," T("b", "I8", "[0]", 2, 2) "}", 4, "starts at 2"},
};

TEST(safetensors_hold_to_every_hard_rule) {
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    size_t len;
    unsigned char *p = make(rules[i].header, strlen(rules[i].header), rules[i].data, &len);
    st_file f = {0};
    hp_status st = st_parse(p, len, "t", &f);
    if (!*rules[i].want) {
      if (st) test_fail(__FILE__, __LINE__, "%s: %s", rules[i].header, err_message());
      st_close(&f);
    } else {
      if (!st) test_fail(__FILE__, __LINE__, "%s is accepted", rules[i].header);
      if (!strstr(err_message(), rules[i].want))
        test_fail(__FILE__, __LINE__, "%s: %s, want %s", rules[i].header, err_message(),
                  rules[i].want);
      CHECK(!f.tensor);
      err_clear();
    }
    free(p);
  }
}

TEST(the_length_of_a_safetensors_header_is_checked) {
  unsigned char raw[64] = {0};
  st_file f;
  CHECK_FAILS(st_parse(raw, 0, "t", &f), "is empty");
  for (size_t n = 1; n < 8; n++) CHECK_FAILS(st_parse(raw, n, "t", &f), "too few");
  CHECK_FAILS(st_parse(raw, 8, "t", &f), "does not start with '{'");
  raw[0] = 1;
  CHECK_FAILS(st_parse(raw, 8, "t", &f), "should have 1 bytes, but the file ends after 8");
  static const uint64_t lengths[] =
      {57,         100000000,     100000001, 0x7fffffffffffffff, 0x8000000000000000,
       UINT64_MAX, UINT64_MAX - 7};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    memcpy(raw, &lengths[i], 8);
    CHECK_FAILS(st_parse(raw, sizeof raw, "t", &f),
                lengths[i] > 100000000 ? "more than the 100000000" : "truncated");
  }
  memcpy(raw, "\x89PNG\r\n\x1a\n", 8);
  CHECK_FAILS(st_parse(raw, sizeof raw, "t", &f), "no safetensors file");
}

TEST(nested_unknown_values_in_a_header_are_bounded) {
  str s = {0};
  size_t len;
  st_file f;
  str_add(&s, "{\"t\":{\"x\":");
  for (int i = 0; i < 100000; i++) str_add(&s, "[");
  unsigned char *p = make(s.at, s.len, 0, &len);
  CHECK_FAILS(st_parse(p, len, "t", &f), "more than 64 levels");
  free(p);
  str_free(&s);
}

/* What must hold of any file that is accepted: views inside it, side by side. */
static void check_views(const st_file *f, const unsigned char *p, size_t len) {
  const unsigned char *at = f->n ? f->tensor[0].data : p + len;
  for (size_t i = 0; i < f->n; i++) {
    CHECK(f->tensor[i].data == at);
    at += f->tensor[i].bytes;
    CHECK(at <= p + len);
    CHECK(st_find(f, f->tensor[i].name) == &f->tensor[i]);
  }
  CHECK(at == p + len);
}

TEST(no_mutation_or_truncation_of_a_file_gets_past_the_reader) {
  static const char *const headers[] =
      {"{" T("t", "I32", "[2,2]", 0, 16) "}",
       "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F32", "[3]", 0,
                                                  12) "," T("b", "BF16", "[2,1]", 12, 16) "}  ",
       "{" T("z", "U8", "[0]", 0, 0) "," T("y", "U8", "[16]", 0, 16) "," T("x", "U8", "[0]", 16,
                                                                           16) "}"};
  static const int values[] = {0, 0xff, '"', '{', '}', '0', '9', ','};
  for (size_t h = 0; h < 3; h++) {
    size_t len;
    unsigned char *p = make(headers[h], strlen(headers[h]), 16, &len);
    for (size_t i = 0; i < len - 16; i++) {
      unsigned char old = p[i];
      for (int k = 0; k < 10; k++) {
        p[i] = (unsigned char)(k < 8 ? values[k] : k == 8 ? old + 1 : old ^ 0x80);
        st_file f;
        if (!st_parse(p, len, "t", &f)) {
          check_views(&f, p, len);
          st_close(&f);
        }
        err_clear();
      }
      p[i] = old;
    }
    for (size_t n = 0; n < len; n++) {
      unsigned char *cut = malloc(n ? n : 1); /* of the exact size, so that a read beyond is seen */
      memcpy(cut, p, n);
      st_file f;
      CHECK(st_parse(cut, n, "t", &f) == HP_ERR_INPUT);
      err_clear();
      free(cut);
    }
    free(p);
  }
}

TEST(many_tensors_are_found_by_name) {
  enum { N = 20000 };
  str s = {0};
  str_add(&s, "{");
  for (int i = N - 1; i >= 0; i--)
    str_printf(&s, "%s\"layer.%d.w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
               i == N - 1 ? "" : ",", i, i, i + 1);
  str_add(&s, "}");
  size_t len;
  unsigned char *p = make(s.at, s.len, N, &len);
  st_file f;
  CHECK_OK(st_parse(p, len, "t", &f));
  CHECK_EQ(f.n, N);
  check_views(&f, p, len);
  CHECK(!st_find(&f, "layer.20000.w"));
  st_close(&f);
  free(p);
  str_free(&s);
}

/* the bytes of safetensors.torch.save of the same tensors */
TEST(safetensors_are_written_as_hugging_face_writes_them) {
  static const int64_t one[] = {1}, two[] = {2}, three[] = {3}, onethree[] = {1, 3},
                       empty[] = {2, 0};
  static const float bw[] = {1.5f, -2.0f}, a2[] = {3.0f};
  static const int64_t a[] = {1, 2, 3};
  static const uint16_t h[] = {0x3c00}, bf[] = {0x3f80, 0x4000, 0x4040};
  static const unsigned char c[] = {1}, u[] = {7};
  static const int32_t e[] = {1};
#define V(x) (const unsigned char *)(x), sizeof(x)
  const st_tensor tensors[] = {
      {"b.w", two, V(bw), 1, ST_F32},
      {"a", onethree, V(a), 2, ST_I64},
      {"c", NULL, V(c), 0, ST_BOOL},
      {"h", one, V(h), 1, ST_F16},
      {"bf", three, V(bf), 1, ST_BF16},
      {"e", empty, NULL, 0, 2, ST_F64},
      {"u", one, V(u), 1, ST_U8},
      {"a2", one, V(a2), 1, ST_F32},
      {"\xc3\xa9\"\n", one, V(e), 1, ST_I32},
  };
  static const char want[] =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"a\":{\"dtype\":\"I64\",\"shape\":[1,3],\"data_offsets\":[0,24]},"
      "\"e\":{\"dtype\":\"F64\",\"shape\":[2,0],\"data_offsets\":[24,24]},"
      "\"a2\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]},"
      "\"b.w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36]},"
      "\"\xc3\xa9\\\"\\n\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[36,40]},"
      "\"bf\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[40,46]},"
      "\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[46,48]},"
      "\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[48,49]},"
      "\"c\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[49,50]}}     ";
  static const unsigned char data[] = {1, 0,   0, 0, 0, 0, 0,   0,  2, 0,  0,  0,  0, 0,   0,  0, 3,
                                       0, 0,   0, 0, 0, 0, 0,   0,  0, 64, 64, 0,  0, 192, 63, 0, 0,
                                       0, 192, 1, 0, 0, 0, 128, 63, 0, 64, 64, 64, 0, 60,  7,  1};
  str path = {0};
  char *text;
  size_t len;
  CHECK_OK(path_join(&path, test_dir(), "x.safetensors"));
  CHECK_OK(st_save(path.at, tensors, 9, &(st_pair){"format", "pt"}, 1));
  CHECK_OK(file_read(path.at, 0, &text, &len));
  CHECK_EQ(len, 8 + sizeof want - 1 + sizeof data);
  CHECK(!memcmp(text, (unsigned char[8]){(sizeof want - 1) & 255, (sizeof want - 1) >> 8}, 8));
  CHECK(!memcmp(text + 8, want, sizeof want - 1));
  CHECK(!memcmp(text + 8 + sizeof want - 1, data, sizeof data));
  mem_free(text);
  CHECK_OK(st_save(path.at, NULL, 0, NULL, 0));
  CHECK_OK(file_read(path.at, 0, &text, &len));
  CHECK_EQ(len, 16);
  CHECK(!memcmp(text, "\x08\0\0\0\0\0\0\0{}      ", 16));
  mem_free(text);
  str_free(&path);
}

static void check_resaved(const char *path) {
  st_file f;
  str copy = {0};
  char *one, *two;
  size_t n, m;
  CHECK_OK(st_open(path, &f));
  CHECK_OK(path_join(&copy, test_dir(), "again.safetensors"));
  CHECK_OK(st_save(copy.at, f.tensor, f.n, f.metadata, f.n_metadata));
  CHECK_OK(file_read(path, 0, &one, &n));
  CHECK_OK(file_read(copy.at, 0, &two, &m));
  CHECK_EQ(n, m);
  CHECK(!memcmp(one, two, n));
  mem_free(one);
  mem_free(two);
  st_close(&f);
  str_free(&copy);
}

TEST(files_that_hugging_face_wrote_are_saved_again_bit_for_bit) {
  check_resaved(test_data("golden/llama-mha/model.safetensors"));
  check_resaved(test_data("golden/llama-bf16/model.safetensors"));
  check_resaved(test_data("golden/llama-sharded/model-00001-of-00002.safetensors"));
  check_resaved(test_data("golden/deepseekv3-tiny/model.safetensors"));
}

TEST(writing_refuses_what_the_format_cannot_hold) {
  str path = {0};
  CHECK_OK(path_join(&path, test_dir(), "x.safetensors"));
  static const int64_t one[] = {1}, odd[] = {3}, huge[] = {1ll << 62, 4}, negative[] = {-1};
  unsigned char d[4] = {0};
  st_tensor t[2] = {{"a", one, d, 4, 1, ST_F32}, {"a", one, d, 4, 1, ST_F32}};
  CHECK_FAILS(st_save(path.at, t, 2, NULL, 0), "two tensors are called \"a\"");
  t[0] = (st_tensor){"__metadata__", one, d, 4, 1, ST_F32};
  CHECK_FAILS(st_save(path.at, t, 1, NULL, 0), "cannot be called __metadata__");
  t[0] = (st_tensor){"a\xff", one, d, 4, 1, ST_F32};
  CHECK_FAILS(st_save(path.at, t, 1, NULL, 0), "not valid UTF-8");
  t[0] = (st_tensor){"a", one, d, 3, 1, ST_F32};
  CHECK_FAILS(st_save(path.at, t, 1, NULL, 0), "given as 3 bytes");
  t[0] = (st_tensor){"a", odd, d, 2, 1, ST_F4};
  CHECK_FAILS(st_save(path.at, t, 1, NULL, 0), "which its shape is not");
  st_writer w;
  t[0] = (st_tensor){"a", huge, NULL, 0, 2, ST_F32};
  CHECK_FAILS(st_writer_open(path.at, t, 1, NULL, 0, &w), "no possible size");
  t[0] = (st_tensor){"a", negative, NULL, 0, 1, ST_F32};
  CHECK_FAILS(st_writer_open(path.at, t, 1, NULL, 0, &w), "no possible size");
  t[0] = (st_tensor){"a", one, NULL, 0, 1, ST_F32};
  CHECK_OK(st_writer_open(path.at, t, 1, NULL, 0, &w));
  CHECK_FAILS(st_writer_write(&w, d, 5), "more data");
  CHECK_OK(st_writer_write(&w, d, 3));
  CHECK_FAILS(st_writer_commit(&w), "1 bytes of data are missing");
  CHECK(!file_exists(path.at));
  CHECK_OK(st_writer_open(path.at, t, 1, NULL, 0, &w));
  st_writer_abort(&w);
  CHECK(!file_exists(path.at));
  str_free(&path);
}

TEST(every_allocation_that_fails_while_reading_safetensors_is_reported) {
  const char *header = "{\"__metadata__\":{\"f\":\"p\"}," T("a", "I8", "[1,1]", 0, 1) "}";
  size_t len;
  unsigned char *p = make(header, strlen(header), 1, &len);
  for (uint64_t n = 1;; n++) {
    st_file f;
    mem_fail_at(n);
    hp_status st = st_parse(p, len, "t", &f);
    mem_fail_at(0);
    if (!st) {
      st_close(&f);
      CHECK(n > 3);
      break;
    }
    CHECK_EQ(st, HP_ERR_OOM);
    err_clear();
  }
  free(p);
}
