#include "test.h"

#include "base/dtype.h"
#include "base/log.h"
#include "ckpt/weights.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

static const int64_t d3[] = {3}, d22[] = {2, 2}, d0[] = {0, 5};
static const float fa[] = {1, 2, 3}, fb[] = {4, 5, 6, 7};
static const uint16_t hc[] = {0x3f80, 0xc000, 0x7f80};
static const double gd[] = {0.1, -1e300, 3};

/* a 12 bytes, b 16, c 6, d 24, e 0 */
static const st_tensor sample[] = {
    {"model.a", d3, (const unsigned char *)fa, 12, 1, ST_F32},
    {"model.b", d22, (const unsigned char *)fb, 16, 2, ST_F32},
    {"model.c", d3, (const unsigned char *)hc, 6, 1, ST_BF16},
    {"model.d", d3, (const unsigned char *)gd, 24, 1, ST_F64},
    {"model.e", d0, NULL, 0, 2, ST_I64},
};
enum { N = sizeof sample / sizeof *sample };

static const char *in_dir(const char *name) {
  static char path[4][512];
  static int next;
  char *p = path[next++ % 4];
  snprintf(p, sizeof path[0], "%s%s%s", test_dir(), *name ? "/" : "", name);
  return p;
}

static void put(const char *name, const char *text, size_t n) {
  CHECK_OK(file_write(in_dir(name), text, n));
}

/* all tensors of the sample are there, and nothing else */
static void check_sample(const weights *w) {
  CHECK_EQ(weights_count(w), N);
  for (int i = 0; i < N; i++) {
    const st_tensor *t = weights_find(w, sample[i].name);
    CHECK(t);
    CHECK_EQ(t->dtype, sample[i].dtype);
    CHECK_EQ(t->rank, sample[i].rank);
    CHECK_EQ(t->bytes, sample[i].bytes);
    CHECK(!t->bytes || !memcmp(t->data, sample[i].data, t->bytes));
  }
}

static void check_dir(const char *dir) {
  weights *w;
  CHECK_OK(weights_open(dir, &w));
  check_sample(w);
  weights_free(w);
}

TEST(weights_are_saved_and_read_as_one_file) {
  weights *w;
  const st_tensor *t;
  CHECK_OK(weights_save(in_dir("m"), sample, N, NULL));
  check_dir(in_dir("m"));
  CHECK(!file_exists(in_dir("m/model.safetensors.index.json")));
  CHECK_OK(weights_open(in_dir("m/model.safetensors"), &w));
  check_sample(w);
  CHECK_OK(weights_need_shape(w, "model.b", 2, d22, &t));
  CHECK(t == weights_find(w, "model.b"));
  CHECK(!weights_find(w, "nothing"));
  CHECK_FAILS(weights_need(w, "model.bb", &t),
              "has no tensor \"model.bb\"; the nearest is \"model.b\"");
  CHECK_FAILS(weights_need(w, "lm_head.weight", &t), "has no tensor \"lm_head.weight\"");
  CHECK_FAILS(weights_need_shape(w, "model.b", 1, d3, &t),
              "tensor \"model.b\" is [2, 2], expected [3]");
  CHECK_FAILS(weights_need_shape(w, "model.e", 2, d22, &t), "is [0, 5], expected [2, 2]");
  weights_free(w);
}

TEST(weights_are_converted_while_reading) {
  weights *w;
  float f[3];
  uint16_t h[3];
  int32_t n[1];
  CHECK_OK(weights_save(in_dir("m"), sample, N, NULL));
  CHECK_OK(weights_open(in_dir("m"), &w));
  const st_tensor *c = weights_find(w, "model.c"), *d = weights_find(w, "model.d");
  CHECK_OK(weights_read(c, 0, 3, HP_F32, f));
  CHECK(f[0] == 1 && f[1] == -2 && isinf(f[2]));
  CHECK_OK(weights_read(c, 1, 1, HP_F16, h));
  CHECK_EQ(h[0], 0xc000);
  CHECK_OK(weights_read(d, 0, 3, HP_F32, f));
  CHECK(f[0] == 0.1f && isinf(f[1]) && f[2] == 3);
  CHECK_OK(weights_read(d, 2, 1, HP_BF16, h));
  CHECK_EQ(h[0], 0x4040);
  CHECK_OK(weights_read(weights_find(w, "model.a"), 1, 2, HP_BF16, h));
  CHECK(h[0] == 0x4000 && h[1] == 0x4040);
  CHECK_OK(weights_read(c, 3, 0, HP_F32, f));
  CHECK_FAILS(weights_read(c, 2, 2, HP_F32, f), "2 elements from 2 on are not in it");
  CHECK_FAILS(weights_read(c, SIZE_MAX, 2, HP_F32, f), "are not in it");
  CHECK_FAILS(weights_read(c, 0, 1, HP_I32, n), "is BF16, which cannot be read as i32");
  CHECK_FAILS(weights_read(d, 0, 1, HP_I32, n), "is F64, which cannot be read as i32");
  CHECK_FAILS(weights_read(weights_find(w, "model.e"), 0, 0, HP_F32, f),
              "is I64, which cannot be read as f32");
  weights_free(w);
}

TEST(large_weights_are_split_as_transformers_splits_them) {
  char *text;
  size_t len;
  weights_options o = {.max_shard_bytes = 20};
  CHECK_OK(weights_save(in_dir("m"), sample, N, &o));
  check_dir(in_dir("m"));
  CHECK(!file_exists(in_dir("m/model.safetensors")));
  CHECK_OK(file_read(in_dir("m/model.safetensors.index.json"), 0, &text, &len));
  /* 12 | 16 would not fit | 6 neither | 24 is above the limit: a file before the one being filled
   */
  CHECK_STR(text,
            "{\n  \"metadata\": {\n    \"total_parameters\": 13,\n    \"total_size\": 58\n  },\n"
            "  \"weight_map\": {\n"
            "    \"model.a\": \"model-00001-of-00004.safetensors\",\n"
            "    \"model.b\": \"model-00002-of-00004.safetensors\",\n"
            "    \"model.c\": \"model-00004-of-00004.safetensors\",\n"
            "    \"model.d\": \"model-00003-of-00004.safetensors\",\n"
            "    \"model.e\": \"model-00004-of-00004.safetensors\"\n  }\n}\n");
  mem_free(text);
  o = (weights_options){.max_shard_bytes = 40, .parameters = 7};
  CHECK_OK(weights_save(in_dir("m"), sample, N, &o));
  check_dir(in_dir("m"));
  CHECK(file_exists(in_dir("m/model-00002-of-00002.safetensors")));
  CHECK(!file_exists(in_dir("m/model-00001-of-00004.safetensors")));
  CHECK_OK(weights_save(in_dir("m"), sample, N, NULL));
  check_dir(in_dir("m"));
  CHECK(!file_exists(in_dir("m/model-00001-of-00002.safetensors")));
  CHECK(!file_exists(in_dir("m/model.safetensors.index.json")));
  CHECK_OK(weights_save(in_dir("m"), sample, N, &o));
  check_dir(in_dir("m"));
  CHECK(!file_exists(in_dir("m/model.safetensors")));
  CHECK_OK(weights_save(in_dir("none"), NULL, 0, NULL));
}

/* Sum of the bytes of all tensors, in the order of the files, as a load reads them. */
static unsigned read_in_order(weights *w) {
  unsigned sum = 0;
  uint64_t at = 0;
  for (size_t done = 0; done < weights_count(w); done++) {
    const st_tensor *next = NULL;
    for (size_t i = 0; i < weights_count(w); i++) {
      const st_tensor *t = weights_get(w, i);
      bool later = weights_place(w, t) + t->bytes > at;
      if (t->bytes && later && (!next || weights_place(w, t) < weights_place(w, next))) next = t;
    }
    if (!next) break;
    uint64_t begin = weights_place(w, next);
    at = begin + next->bytes;
    weights_move(w, begin, at);
    weights_wait(w, at);
    for (size_t i = 0; i < next->bytes; i++) sum += next->data[i];
  }
  return sum;
}

TEST(weights_are_read_ahead_in_the_order_of_their_files) {
  enum { LARGE = 20 << 20 };
  static unsigned char byte[2][LARGE];
  static const int64_t large[] = {LARGE};
  st_tensor two[] = {{"a", large, byte[0], LARGE, 1, ST_U8},
                     {"b", large, byte[1], LARGE, 1, ST_U8}};
  weights_options o = {.max_shard_bytes = LARGE + LARGE / 2};
  weights *w;
  memset(byte, 1, sizeof byte);
  CHECK_OK(weights_save(in_dir("m"), two, 2, &o));
  CHECK_OK(weights_open(in_dir("m"), &w));
  const st_tensor *a = weights_find(w, "a"), *b = weights_find(w, "b");
  CHECK(weights_place(w, a) < 1000);
  CHECK(weights_place(w, b) >= weights_place(w, a) + LARGE);
  CHECK_EQ(read_in_order(w), 2 * LARGE); /* nothing is read ahead yet */
  weights_read_ahead(w, 0);
  CHECK_EQ(read_in_order(w), 2 * LARGE);
  CHECK_EQ(a->data[0] + b->data[LARGE - 1], 2); /* what was passed can still be read */
  weights_free(w);
  CHECK_OK(weights_open(in_dir("m"), &w));
  weights_read_ahead(w, 0); /* and nobody reads */
  weights_free(w);
}

/* Pages of a tensor's data that are in the system's memory, of all that it has. */
static double resident(const st_tensor *t) {
  enum { PAGES = 8192 };
  static unsigned char in[PAGES];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), count = t->bytes / page, n = 0;
  uintptr_t at = (uintptr_t)t->data;
  CHECK(count <= PAGES);
  CHECK_EQ(mincore((void *)(at - at % page), count * page, in), 0);
  for (size_t i = 0; i < count; i++) n += in[i] & 1;
  return (double)n / (double)count;
}

TEST(weights_without_room_leave_memory_as_they_are_passed) {
  enum { LARGE = 20 << 20, TMPFS = 0x01021994 };
  static unsigned char byte[2][LARGE];
  static const int64_t large[] = {LARGE};
  st_tensor two[] = {{"a", large, byte[0], LARGE, 1, ST_U8},
                     {"b", large, byte[1], LARGE, 1, ST_U8}};
  weights *w;
  struct statfs fs;
  memset(byte, 1, sizeof byte);
  CHECK_OK(weights_save(in_dir("m"), two, 2, NULL));
  CHECK_OK(weights_open(in_dir("m"), &w));
  CHECK_EQ(read_in_order(w), 2 * LARGE);
  CHECK(resident(weights_find(w, "a")) > 0.5);
  weights_read_ahead(w, UINT64_MAX);
  CHECK_EQ(read_in_order(w), 2 * LARGE);
  bool on_disk = !statfs(in_dir("m"), &fs) && fs.f_type != TMPFS; /* else it is memory itself */
  if (on_disk) CHECK(resident(weights_find(w, "a")) < 0.5);
  CHECK_EQ(weights_find(w, "a")->data[0], 1); /* and is there again */
  weights_free(w);
}

static hp_status stream(void *ctx, size_t i, st_writer *out) {
  *(int *)ctx += 1;
  for (size_t k = 0; k < sample[i].bytes; k++) HP_TRY(st_writer_write(out, sample[i].data + k, 1));
  return HP_OK;
}
static hp_status stream_fails(void *ctx, size_t i, st_writer *out) {
  (void)ctx;
  (void)out;
  if (i == 2) HP_FAIL(HP_ERR_IO, "no data for %zu", i);
  return stream(&(int){0}, i, out);
}

TEST(weights_may_be_streamed_and_a_failure_leaves_what_was_there) {
  int calls = 0;
  weights_options o = {.max_shard_bytes = 20, .write = stream, .ctx = &calls};
  CHECK_OK(weights_save(in_dir("m"), sample, N, &o));
  CHECK_EQ(calls, N);
  check_dir(in_dir("m"));
  o.write = stream_fails;
  CHECK_FAILS(weights_save(in_dir("m"), sample, N, &o), "no data for 2");
  check_dir(in_dir("m"));
  st_tensor twice[] = {sample[0], sample[1], sample[0]};
  o = (weights_options){.max_shard_bytes = 12};
  CHECK_FAILS(weights_save(in_dir("m"), twice, 3, &o), "two tensors are called \"model.a\"");
  CHECK_FAILS(weights_save(in_dir("m"), twice, 3, NULL), "two tensors are called \"model.a\"");
  check_dir(in_dir("m"));
  CHECK(!file_exists(in_dir("m/model-00001-of-00002.safetensors.new")));
}

/* Saves over older weights, with the n-th allocation failing: old, new, or refused. */
static void torture_save(uint64_t old_limit, uint64_t new_limit) {
  static const float other[] = {9, 8, 7};
  st_tensor changed[N];
  memcpy(changed, sample, sizeof sample);
  changed[0].data = (const unsigned char *)other;
  changed[1] = (st_tensor){"model.b", d3, (const unsigned char *)other, 12, 1, ST_F32};
  int old_seen = 0;
  bool intact = false; /* the old weights are still there */
  hp_status st = HP_ERR_OOM;
  for (uint64_t n = 1; st; n += 2) {
    weights *w;
    weights_options o = {.max_shard_bytes = old_limit};
    if (!intact) CHECK_OK(weights_save(in_dir("t"), sample, N, &o));
    o.max_shard_bytes = new_limit;
    mem_fail_at(n);
    st = weights_save(in_dir("t"), changed, N, &o);
    mem_fail_at(0);
    err_clear();
    intact = false;
    if (weights_open(in_dir("t"), &w)) {
      CHECK(st);
      CHECK(strstr(err_message(), "interrupted"));
      err_clear();
      continue;
    }
    bool a = !memcmp(weights_find(w, "model.a")->data, other, 12);
    bool b = weights_find(w, "model.b")->rank == 1;
    CHECK_EQ(a, b);
    if (!st) CHECK(a);
    intact = !a;
    old_seen += intact;
    weights_free(w);
  }
  CHECK(old_seen > 3);
}

TEST(a_save_that_fails_anywhere_never_leaves_a_mixture) {
  torture_save(20, 20);
  torture_save(0, 20);
  torture_save(20, 0);
}

static void put_index(const char *map) {
  str s = {0};
  str_printf(&s, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": %s}", map);
  put("model.safetensors.index.json", s.at, s.len);
  str_free(&s);
}

TEST(damaged_sharded_checkpoints_are_refused) {
  weights *w;
  const char *dir = test_dir();
  CHECK_OK(st_save(in_dir("s1.safetensors"), sample, 2, NULL, 0));
  CHECK_OK(st_save(in_dir("s2.safetensors"), sample + 2, 3, NULL, 0));
  put_index("{\"model.a\": \"s1.safetensors\", \"model.c\": \"s2.safetensors\"}");
  log_set_level(LOG_QUIET);
  CHECK_OK(weights_open(dir, &w));
  CHECK_EQ(weights_count(w), 2);
  CHECK_STR(weights_get(w, 1)->name, "model.c");
  weights_free(w);
  static const struct {
    const char *map, *want;
  } row[] = {
      {"{\"model.a\": \"s1.safetensors\", \"model.b\": \"s3.safetensors\"}",
       "weight_map.model.b: the shard s3.safetensors is missing"},
      {"{\"model.x\": \"s1.safetensors\"}",
       "weight_map.model.x: the index says that s1.safetensors holds this tensor"},
      {"{\"model.c\": \"s1.safetensors\"}", "but it does not"},
      {"{\"model.a\\u0000\": \"s1.safetensors\"}", "but it does not"},
      {"{\"model.a\": \"../s1.safetensors\"}", "is not the name of a file in this folder"},
      {"{\"model.a\": \"/etc/passwd\"}", "is not the name of a file in this folder"},
      {"{\"model.a\": \"a/../s1.safetensors\"}", "is not the name of a file"},
      {"{\"model.a\": \"..\"}", "is not the name of a file"},
      {"{\"model.a\": \".\"}", "is not the name of a file"},
      {"{\"model.a\": \"\"}", "is not the name of a file"},
      {"{\"model.a\": \"..\\\\s1.safetensors\"}", "is not the name of a file"},
      {"{\"model.a\": \"s1.safetensors\\u0000x\"}", "NUL"},
      {"{\"model.a\": 1}", "weight_map.model.a: expected a string, found 1"},
      {"{\"model.a\": null}", "expected a string, found null"},
      {"[]", "weight_map: expected a map of keys"},
      {"{\"model.a\": \"s1.safetensors\", \"model.a\": \"s1.safetensors\"}", "already set"},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    put_index(row[i].map);
    CHECK_FAILS(weights_open(dir, &w), row[i].want);
  }
  put("model.safetensors.index.json", "{}", 2);
  CHECK_FAILS(weights_open(dir, &w), "the key \"weight_map\" is missing");
  put("model.safetensors.index.json", "[1", 2);
  CHECK_FAILS(weights_open(dir, &w), "model.safetensors.index.json:1:3");
  CHECK_OK(dir_create(in_dir("d.safetensors")));
  put_index("{\"model.a\": \"d.safetensors\"}");
  CHECK_FAILS(weights_open(dir, &w), "is a folder");
  put_index("{}");
  CHECK_OK(weights_open(dir, &w));
  CHECK_EQ(weights_count(w), 0);
  weights_free(w);
}

TEST(other_formats_are_recognised_by_content) {
  static const struct {
    const char *bytes;
    size_t n;
    const char *want;
  } row[] = {
      {"PK\x03\x04xxxxxxxx", 12, "a zip archive, as PyTorch's files are"},
      {"\x80\x02}q\0.xxxxx", 11, "a Python pickle, which can run code"},
      {"\x80\x04\x95\0\0\0\0\0", 9, "save the model as safetensors"},
      {"GGUF\x03\0\0\0", 8, "a GGUF file"},
      {"version https://git-lfs.github.com/spec/v1\n", 43, "git lfs pull"},
      {"\x89HDF\r\n\x1a\n", 8, "HDF5"},
      {"\x93NUMPY\x01\0", 8, "a NumPy array"},
      {"7z\xbc\xaf\x27\x1c\0\0", 8, "7z"},
      {"\x1f\x8b\x08\0", 4, "gzip"},
      {"<!DOCTYPE html><html>", 21, "a web page"},
      {"", 0, "is empty"},
      {"garbage!garbage!", 16, "no safetensors file"},
  };
  weights *w;
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    put("model.safetensors", row[i].bytes, row[i].n);
    CHECK_FAILS(weights_open(in_dir(""), &w), row[i].want);
    CHECK_FAILS(weights_open(in_dir("model.safetensors"), &w), row[i].want);
  }
  unlink(in_dir("model.safetensors"));
  CHECK_FAILS(weights_open(in_dir(""), &w), "no weights there; expected model.safetensors");
  put("pytorch_model.bin", "PK\x03\x04", 4);
  CHECK_FAILS(weights_open(in_dir(""), &w), "pytorch_model.bin is a zip archive");
  put("consolidated.00.pth", "\x80\x02", 2);
  CHECK_FAILS(weights_open(in_dir(""), &w), "consolidated.00.pth is a Python pickle");
  put("a.gguf", "what?", 5);
  CHECK_FAILS(weights_open(in_dir(""), &w), "a.gguf is no safetensors file");
  put("adapter_model.safetensors", "x", 1);
  CHECK_FAILS(weights_open(in_dir(""), &w),
              "there is adapter_model.safetensors, but no model.safetensors");
  CHECK_FAILS(weights_open(in_dir("nothing"), &w), "nothing: cannot open");
}

TEST(checkpoints_of_transformers_are_read) {
  weights *w;
  (void)test_data("golden/llama-sharded/model-00002-of-00002.safetensors");
  CHECK_OK(weights_open(test_data("golden/llama-sharded"), &w));
  CHECK_EQ(weights_count(w), 21);
  const st_tensor *t;
  static const int64_t dim[] = {48};
  CHECK_OK(weights_need_shape(w, "model.norm.weight", 1, dim, &t));
  CHECK(weights_find(w, "lm_head.weight"));
  weights_free(w);
}

/* Saving the tensors of a sharded checkpoint in its model's order gives its own files. */
TEST(a_sharded_checkpoint_is_saved_as_transformers_saved_it) {
  static const char *const layer[] = {"self_attn.q_proj",        "self_attn.k_proj",
                                      "self_attn.v_proj",        "self_attn.o_proj",
                                      "mlp.gate_proj",           "mlp.up_proj",
                                      "mlp.down_proj",           "input_layernorm",
                                      "post_attention_layernorm"};
  static const char *const files[] = {"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "model.safetensors.index.json"};
  weights *w;
  st_tensor list[21];
  char name[100], path[300];
  const char *dir = test_data("golden/llama-sharded");
  CHECK_OK(weights_open(dir, &w));
  list[0] = *weights_find(w, "model.embed_tokens.weight");
  for (int l = 0; l < 2; l++)
    for (int i = 0; i < 9; i++) {
      snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, layer[i]);
      list[1 + 9 * l + i] = *weights_find(w, name);
    }
  list[19] = *weights_find(w, "model.norm.weight");
  list[20] = *weights_find(w, "lm_head.weight");
  weights_options o = {.max_shard_bytes = 180000};
  CHECK_OK(weights_save(in_dir("again"), list, 21, &o));
  for (int i = 0; i < 3; i++) {
    char *one, *two;
    size_t n, m;
    snprintf(path, sizeof path, "golden/llama-sharded/%s", files[i]);
    CHECK_OK(file_read(test_data(path), 0, &one, &n));
    snprintf(path, sizeof path, "again/%s", files[i]);
    CHECK_OK(file_read(in_dir(path), 0, &two, &m));
    CHECK_EQ(n, m);
    CHECK(!memcmp(one, two, n));
    mem_free(one);
    mem_free(two);
  }
  weights_free(w);
}

TEST(a_cast_rounds_floats_and_leaves_the_rest) {
  static const int64_t ids[] = {1, -7, 1LL << 40};
  static const float x[] = {1, 1.0f + 0x1p-8f, 1.0f + 0x1p-8f + 0x1p-20f};
  static const st_tensor list[] = {
      {"a", d3, (const unsigned char *)x, 12, 1, ST_F32},
      {"c", d3, (const unsigned char *)hc, 6, 1, ST_BF16},
      {"n", d3, (const unsigned char *)ids, 24, 1, ST_I64},
      {"z", d0, NULL, 0, 2, ST_F32},
  };
  weights *w;
  uint16_t half[3];
  float back[3];
  CHECK_OK(weights_save_as(in_dir("m"), list, 4, HP_BF16));
  CHECK_OK(weights_open(in_dir("m"), &w));
  CHECK_EQ(weights_find(w, "a")->dtype, ST_BF16);
  CHECK_EQ(weights_find(w, "z")->dtype, ST_BF16);
  CHECK_EQ(weights_find(w, "n")->dtype, ST_I64);
  CHECK(!memcmp(weights_find(w, "n")->data, ids, sizeof ids));
  CHECK_OK(weights_read(weights_find(w, "a"), 0, 3, HP_BF16, half));
  CHECK(half[0] == 0x3f80 && half[1] == 0x3f80 && half[2] == 0x3f81); /* to even, and up */
  weights_free(w);
  CHECK_OK(weights_save_as(in_dir("m"), list, 4, HP_F32));
  CHECK_OK(weights_open(in_dir("m"), &w));
  CHECK_OK(weights_read(weights_find(w, "c"), 0, 3, HP_F32, back));
  CHECK(back[0] == 1 && back[1] == -2 && isinf(back[2])); /* what is infinite stays so */
  weights_free(w);
}

TEST(a_number_too_large_for_a_type_is_refused_by_name) {
  static const float x[] = {1, -65504, -65520};
  static const float y[] = {1, 3.4e38f, 2};
  const st_tensor f16 = {"model.big", d3, (const unsigned char *)x, 12, 1, ST_F32};
  const st_tensor bf16 = {"model.huge", d3, (const unsigned char *)y, 12, 1, ST_F32};
  CHECK_FAILS(weights_save_as(in_dir("m"), &f16, 1, HP_F16),
              "tensor \"model.big\": its value -65520 is too large for f16");
  CHECK_OK(weights_save_as(in_dir("m"), &f16, 1, HP_BF16));
  CHECK_FAILS(weights_save_as(in_dir("m"), &bf16, 1, HP_BF16), "too large for bf16");
  CHECK_OK(weights_save_as(in_dir("m"), &bf16, 1, HP_F32));
}

TEST(types_that_are_not_read_are_not_cast) {
  static const unsigned char eight[3] = {1, 2, 3};
  const st_tensor f8 = {"q", d3, eight, 3, 1, ST_F8_E4M3};
  CHECK_FAILS(weights_save_as(in_dir("m"), &f8, 1, HP_BF16), "cannot be read as f32");
}
