#include "test.h"

#include "base/json.h"
#include "ckpt/llama2c.h"
#include "ckpt/weights.h"

#include <stdlib.h>

/* dim 8, hidden 3, 2 layers, 2 heads, 1 kv head, vocab +-5, seq 3: every weight is its own number
 */
enum { DIM = 8, HIDDEN = 3, LAYERS = 2, HEADS = 2, KV = 4, VOCAB = 5, SEQ = 3, FLOATS_MAX = 1000 };

typedef struct {
  int32_t header[7];
  float w[FLOATS_MAX];
} file;

static size_t make(file *f, bool tied) {
  const int32_t header[] = {DIM, HIDDEN, LAYERS, HEADS, 1, tied ? VOCAB : -VOCAB, SEQ};
  size_t n = VOCAB * DIM + LAYERS * (2 * DIM + 2 * DIM * DIM + 2 * KV * DIM + 3 * HIDDEN * DIM) +
             DIM + 2 * SEQ * 2 + (tied ? 0 : VOCAB * DIM);
  memcpy(f->header, header, sizeof header);
  for (size_t i = 0; i < FLOATS_MAX; i++) f->w[i] = (float)i;
  return sizeof header + n * sizeof(float);
}

static const char *put(const file *f, size_t bytes) {
  static char path[300];
  snprintf(path, sizeof path, "%s/m.bin", test_dir());
  CHECK_OK(file_write(path, f, bytes));
  return path;
}

static const char *out_dir(void) {
  static char path[300];
  snprintf(path, sizeof path, "%s/hf", test_dir());
  return path;
}

static float at(const weights *w, const char *name, int rank, int64_t rows, int64_t cols,
                int64_t i) {
  const st_tensor *t;
  const int64_t dim[] = {rows, cols};
  float x;
  CHECK_OK(weights_need_shape(w, name, rank, dim, &t));
  CHECK_EQ(t->dtype, ST_F32);
  CHECK_OK(weights_read(t, (size_t)i, 1, HP_F32, &x));
  return x;
}

static void check_parts(const weights *w) {
  int64_t base = VOCAB * DIM; /* of the part in the file */
  CHECK(at(w, "model.embed_tokens.weight", 2, VOCAB, DIM, 7) == 7);
  CHECK(at(w, "model.layers.1.input_layernorm.weight", 1, DIM, 0, 2) == base + DIM + 2);
  base += LAYERS * DIM;
  for (int l = 0; l < LAYERS; l++)
    for (int h = 0; h < HEADS; h++)
      for (int r = 0; r < 4; r++) {
        /* a head's rows 0 1 2 3 come from 0 2 1 3 */
        int from = r == 1 ? 2 : r == 2 ? 1 : r;
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.q_proj.weight", l);
        CHECK(at(w, name, 2, DIM, DIM, (h * 4 + r) * DIM + 5) ==
              base + l * DIM * DIM + (h * 4 + from) * DIM + 5);
      }
  base += LAYERS * DIM * DIM;
  CHECK(at(w, "model.layers.1.self_attn.k_proj.weight", 2, KV, DIM, 1 * DIM + 3) ==
        base + KV * DIM + 2 * DIM + 3);
  CHECK(at(w, "model.layers.1.self_attn.k_proj.weight", 2, KV, DIM, 3 * DIM) ==
        base + KV * DIM + 3 * DIM);
  base += LAYERS * KV * DIM;
  CHECK(at(w, "model.layers.1.self_attn.v_proj.weight", 2, KV, DIM, 9) == base + KV * DIM + 9);
  base += LAYERS * KV * DIM;
  CHECK(at(w, "model.layers.1.self_attn.o_proj.weight", 2, DIM, DIM, 9) == base + DIM * DIM + 9);
  base += LAYERS * DIM * DIM;
  CHECK(at(w, "model.layers.0.post_attention_layernorm.weight", 1, DIM, 0, 3) == base + 3);
  base += LAYERS * DIM;
  CHECK(at(w, "model.layers.1.mlp.gate_proj.weight", 2, HIDDEN, DIM, 9) == base + HIDDEN * DIM + 9);
  base += LAYERS * HIDDEN * DIM;
  CHECK(at(w, "model.layers.1.mlp.down_proj.weight", 2, DIM, HIDDEN, 9) == base + HIDDEN * DIM + 9);
  base += LAYERS * HIDDEN * DIM;
  CHECK(at(w, "model.layers.1.mlp.up_proj.weight", 2, HIDDEN, DIM, 9) == base + HIDDEN * DIM + 9);
  base += LAYERS * HIDDEN * DIM;
  CHECK(at(w, "model.norm.weight", 1, DIM, 0, 4) == base + 4);
  base += DIM + 2 * SEQ * 2;
  if (weights_find(w, "lm_head.weight"))
    CHECK(at(w, "lm_head.weight", 2, VOCAB, DIM, 11) == base + 11);
}

TEST(llama2c_checkpoints_become_hugging_face_models) {
  static file f;
  for (int tied = 0; tied < 2; tied++) {
    size_t n = make(&f, tied);
    weights *w;
    tree config;
    char path[320];
    int64_t x;
    bool b;
    double d;
    CHECK_OK(llama2c_convert(put(&f, n), out_dir(), HP_F32));
    CHECK_OK(weights_open(out_dir(), &w));
    CHECK_EQ(weights_count(w), LAYERS * 9 + 3 - tied);
    check_parts(w);
    weights_free(w);
    snprintf(path, sizeof path, "%s/config.json", out_dir());
    CHECK_OK(json_load(path, 0, &config));
    static const struct {
      const char *key;
      int64_t want;
    } row[] = {{"hidden_size", DIM},          {"intermediate_size", HIDDEN},
               {"num_hidden_layers", LAYERS}, {"num_attention_heads", HEADS},
               {"num_key_value_heads", 1},    {"head_dim", 4},
               {"vocab_size", VOCAB},         {"max_position_embeddings", SEQ}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
      CHECK_OK(tree_need_int(config.root, row[i].key, &x));
      CHECK_EQ(x, row[i].want);
    }
    CHECK_OK(tree_need_bool(config.root, "tie_word_embeddings", &b));
    CHECK_EQ(b, tied);
    CHECK_OK(tree_need_double(config.root, "rope_theta", &d));
    CHECK(d == 10000);
    CHECK_OK(tree_need_double(config.root, "rms_norm_eps", &d));
    CHECK(d == 1e-5);
    tree_free(&config);
  }
}

TEST(llama2c_files_of_the_wrong_size_or_kind_are_refused) {
  static file f;
  llama2c m;
  size_t n = make(&f, true);
  CHECK_FAILS(llama2c_open(put(&f, n - 1), &m), "it is truncated");
  CHECK_FAILS(llama2c_open(put(&f, n + 1), &m), "requires");
  CHECK_FAILS(llama2c_open(put(&f, 27), &m), "27 bytes are too few");
  CHECK_FAILS(llama2c_open(put(&f, 28), &m), "the file has 28 bytes");
  CHECK_FAILS(llama2c_open(put(&f, 0), &m), "0 bytes are too few");
  static const struct {
    int field;
    int32_t value;
    const char *want;
  } row[] = {{0, 0, "dim is 0"},
             {1, -1, "hidden_dim is -1"},
             {2, 0, "n_layers is 0"},
             {3, 0, "n_heads is 0"},
             {3, 3, "do not divide"},
             {3, 8, "the head is odd"},
             {4, 4, "do not divide"},
             {5, 0, "vocab_size is 0"},
             {5, INT32_MIN, "requires"},
             {6, -5, "seq_len is -5"},
             {5, -VOCAB, "vocab_size -5"},
             {2, INT32_MAX, "n_layers 2147483647"},
             {1, INT32_MAX, "hidden_dim 2147483647"},
             {6, INT32_MAX, "seq_len 2147483647"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    make(&f, true);
    f.header[row[i].field] = row[i].value;
    CHECK_FAILS(llama2c_open(put(&f, n), &m), row[i].want);
  }
  f = (file){.header = {2147483646, INT32_MAX, INT32_MAX, 1, 1, INT32_MAX, INT32_MAX}};
  CHECK_FAILS(llama2c_open(put(&f, n), &m), "requires more than");
  f.header[0] = 0x616b3432;
  f.header[1] = 1;
  CHECK_FAILS(llama2c_open(put(&f, n), &m), "llama2.c checkpoint of version 1");
}

TEST(stories260k_is_read_whole) {
  llama2c m;
  CHECK_OK(llama2c_open(test_data("model/stories260K.bin"), &m));
  CHECK_EQ(m.n, 5 * 9 + 2);
  CHECK(m.tied && m.dim == 64 && m.hidden_dim == 172 && m.heads == 8 && m.kv_heads == 4);
  CHECK(m.vocab == 512 && m.seq_len == 512 && m.layers == 5);
  size_t elements = 0;
  for (size_t i = 0; i < m.n; i++) elements += m.tensor[i].bytes / 4;
  CHECK_EQ(elements, 260032);
  llama2c_close(&m);
}
