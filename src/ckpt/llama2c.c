#include "ckpt/llama2c.h"

#include "base/dtype.h"
#include "base/json.h"
#include "base/vec.h"
#include "ckpt/weights.h"

#include <string.h>

enum { HEADER_INTS = 7, HEADER_BYTES = 28 };
static const uint32_t versioned_magic = 0x616b3432; /* versions 1 and 2 start with it */

static uint32_t read_u32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static hp_status read_config(const char *path, llama2c *m) {
  int64_t *const field[HEADER_INTS] = {&m->dim,      &m->hidden_dim, &m->layers, &m->heads,
                                       &m->kv_heads, &m->vocab,      &m->seq_len};
  static const char *const name[HEADER_INTS] = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                                "n_kv_heads", "vocab_size", "seq_len"};
  if (m->map.len < HEADER_BYTES)
    HP_FAIL(HP_ERR_INPUT, "%s: %zu bytes are too few for a llama2.c checkpoint", path, m->map.len);
  if (read_u32(m->map.at) == versioned_magic)
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s: a llama2.c checkpoint of version %u; only version 0 is read, which its export.py "
            "writes with --version 0",
            path, (unsigned)read_u32(m->map.at + 4));
  for (int i = 0; i < HEADER_INTS; i++) *field[i] = (int32_t)read_u32(m->map.at + 4 * i);
  m->tied = m->vocab > 0;
  if (m->vocab < 0) m->vocab = -m->vocab;
  for (int i = 0; i < HEADER_INTS; i++)
    if (*field[i] <= 0)
      HP_FAIL(HP_ERR_INPUT, "%s: %s is %lld; this is no llama2.c checkpoint, or it is damaged",
              path, name[i], (long long)*field[i]);
  if (m->dim % m->heads || m->heads % m->kv_heads || m->dim / m->heads % 2)
    HP_FAIL(HP_ERR_INPUT,
            "%s: dim %lld, n_heads %lld and n_kv_heads %lld do not divide each other, or the head "
            "is odd; this is no llama2.c checkpoint, or it is damaged",
            path, (long long)m->dim, (long long)m->heads, (long long)m->kv_heads);
  return HP_OK;
}

/* The sections of the file in order, each for all layers. */
enum { EMBED, RMS_ATT, WQ, WK, WV, WO, RMS_FFN, W1, W2, W3, RMS_FINAL, FREQ, HEAD, PARTS };

typedef struct {
  int64_t layers, rows, cols; /* cols 0: a vector of rows */
  uint64_t offset;            /* in the file */
} part;

static bool add_part(part *p, int64_t layers, int64_t rows, int64_t cols, uint64_t *at) {
  uint64_t bytes;
  const int64_t dim[] = {layers, rows, cols ? cols : 1};
  *p = (part){layers, rows, cols, *at};
  return st_size(ST_F32, 3, dim, &bytes) && !__builtin_add_overflow(*at, bytes, at);
}

static hp_status lay_out(const char *path, const llama2c *m, part p[PARTS]) {
  int64_t head = m->dim / m->heads, kv = head * m->kv_heads, L = m->layers;
  uint64_t at = HEADER_BYTES;
  /* the two tables of rotary angles are not read */
  bool fits =
      add_part(&p[EMBED], 1, m->vocab, m->dim, &at) && add_part(&p[RMS_ATT], L, m->dim, 0, &at) &&
      add_part(&p[WQ], L, m->dim, m->dim, &at) && add_part(&p[WK], L, kv, m->dim, &at) &&
      add_part(&p[WV], L, kv, m->dim, &at) && add_part(&p[WO], L, m->dim, m->dim, &at) &&
      add_part(&p[RMS_FFN], L, m->dim, 0, &at) && add_part(&p[W1], L, m->hidden_dim, m->dim, &at) &&
      add_part(&p[W2], L, m->dim, m->hidden_dim, &at) &&
      add_part(&p[W3], L, m->hidden_dim, m->dim, &at) &&
      add_part(&p[RMS_FINAL], 1, m->dim, 0, &at) &&
      add_part(&p[FREQ], 2, m->seq_len, head / 2, &at) &&
      add_part(&p[HEAD], m->tied ? 0 : 1, m->vocab, m->dim, &at);
  if (!fits || at != m->map.len)
    HP_FAIL(HP_ERR_INPUT,
            "%s: the file has %zu bytes, but its header (dim %lld, hidden_dim %lld, n_layers %lld, "
            "n_heads %lld, n_kv_heads %lld, vocab_size %lld, seq_len %lld) requires %s%llu; it is "
            "truncated, or no llama2.c checkpoint",
            path, m->map.len, (long long)m->dim, (long long)m->hidden_dim, (long long)m->layers,
            (long long)m->heads, (long long)m->kv_heads,
            (long long)(m->tied ? m->vocab : -m->vocab), (long long)m->seq_len,
            fits ? "" : "more than ", (unsigned long long)at);
  return HP_OK;
}

/* Adds one layer of a section under a name; mem of m must have room for the tensor. */
static hp_status add_tensor(llama2c *m, const part *p, int64_t layer, const char *name) {
  st_tensor *t = &m->tensor[m->n];
  int64_t *dim = arena_alloc(&m->mem, 2, sizeof *dim);
  HP_TRY_MEM(dim);
  dim[0] = p->rows;
  dim[1] = p->cols;
  *t = (st_tensor){.name = name, .dim = dim, .rank = p->cols ? 2 : 1, .dtype = ST_F32};
  t->bytes = (size_t)(p->rows * (p->cols ? p->cols : 1)) * sizeof(float);
  t->data = m->map.at + p->offset + (size_t)layer * t->bytes;
  m->n++;
  return HP_OK;
}

/* Reorders the rows of the last tensor: of each head, first the even ones, then the odd ones. */
static hp_status split_pairs(llama2c *m, int64_t heads) {
  st_tensor *t = &m->tensor[m->n - 1];
  size_t row = (size_t)t->dim[1] * sizeof(float);
  int64_t head = t->dim[0] / heads;
  unsigned char *data = arena_alloc(&m->mem, t->bytes, 1);
  HP_TRY_MEM(data);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t i = 0; i < head / 2; i++)
      for (int64_t odd = 0; odd < 2; odd++)
        memcpy(data + (size_t)(h * head + odd * (head / 2) + i) * row,
               t->data + (size_t)(h * head + 2 * i + odd) * row, row);
  t->data = data;
  return HP_OK;
}

static hp_status add_layer(llama2c *m, const part p[PARTS], int64_t layer) {
  static const struct {
    int part;
    const char *name;
  } row[] = {{RMS_ATT, "input_layernorm"}, {WQ, "self_attn.q_proj"},
             {WK, "self_attn.k_proj"},     {WV, "self_attn.v_proj"},
             {WO, "self_attn.o_proj"},     {RMS_FFN, "post_attention_layernorm"},
             {W1, "mlp.gate_proj"},        {W3, "mlp.up_proj"},
             {W2, "mlp.down_proj"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    const char *name =
        arena_printf(&m->mem, "model.layers.%lld.%s.weight", (long long)layer, row[i].name);
    HP_TRY_MEM(name);
    HP_TRY(add_tensor(m, &p[row[i].part], layer, name));
    if (row[i].part == WQ) HP_TRY(split_pairs(m, m->heads));
    if (row[i].part == WK) HP_TRY(split_pairs(m, m->kv_heads));
  }
  return HP_OK;
}

static hp_status read_model(const char *path, llama2c *m) {
  part p[PARTS];
  HP_TRY(read_config(path, m));
  HP_TRY(lay_out(path, m, p));
  m->tensor = arena_alloc(&m->mem, (size_t)m->layers * 9 + 3, sizeof *m->tensor);
  HP_TRY_MEM(m->tensor);
  HP_TRY(add_tensor(m, &p[EMBED], 0, "model.embed_tokens.weight"));
  for (int64_t layer = 0; layer < m->layers; layer++) HP_TRY(add_layer(m, p, layer));
  HP_TRY(add_tensor(m, &p[RMS_FINAL], 0, "model.norm.weight"));
  return m->tied ? HP_OK : add_tensor(m, &p[HEAD], 0, "lm_head.weight");
}

hp_status llama2c_open(const char *path, llama2c *out) {
  llama2c m = {0};
  HP_TRY(file_map_open(path, &m.map));
  hp_status st = read_model(path, &m);
  if (st) llama2c_close(&m);
  else *out = m;
  return st;
}

void llama2c_close(llama2c *m) {
  file_map_close(&m->map);
  arena_free(&m->mem);
  *m = (llama2c){0};
}

/* --- Hugging Face form ---------------------------------------------------------------- */

/* llama2.c has one architecture: what it does not store follows from its code. */
static void print_config(const llama2c *m, hp_dtype type, str *out) {
  json_writer w = {.out = out, .indent = 2};
  const struct {
    const char *key;
    int64_t value;
  } numbers[] = {{"bos_token_id", 1},
                 {"eos_token_id", 2},
                 {"head_dim", m->dim / m->heads},
                 {"hidden_size", m->dim},
                 {"intermediate_size", m->hidden_dim},
                 {"max_position_embeddings", m->seq_len},
                 {"num_attention_heads", m->heads},
                 {"num_hidden_layers", m->layers},
                 {"num_key_value_heads", m->kv_heads},
                 {"vocab_size", m->vocab}};
  json_open_map(&w);
  json_put_key(&w, "architectures");
  json_open_list(&w);
  json_put_string(&w, "LlamaForCausalLM");
  json_close(&w);
  json_put_key(&w, "attention_bias");
  json_put_bool(&w, false);
  json_put_key(&w, "hidden_act");
  json_put_string(&w, "silu");
  json_put_key(&w, "mlp_bias");
  json_put_bool(&w, false);
  json_put_key(&w, "model_type");
  json_put_string(&w, "llama");
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    json_put_key(&w, numbers[i].key);
    json_put_int(&w, numbers[i].value);
  }
  json_put_key(&w, "rms_norm_eps");
  json_put_double(&w, 1e-5);
  json_put_key(&w, "rope_theta");
  json_put_double(&w, 10000);
  json_put_key(&w, "tie_word_embeddings");
  json_put_bool(&w, m->tied);
  json_put_key(&w, "torch_dtype");
  json_put_string(&w, dtype_long_name(type));
  json_close(&w);
  str_add_char(out, '\n');
}

hp_status llama2c_convert(const char *path, const char *dir, hp_dtype type) {
  llama2c m;
  str text = {0}, config = {0};
  hp_status st = HP_OK;
  HP_TRY(llama2c_open(path, &m));
  print_config(&m, type, &text);
  HP_TRY_GOTO(str_status(&text), st);
  HP_TRY_GOTO(path_join(&config, dir, "config.json"), st);
  HP_TRY_GOTO(weights_save_as(dir, m.tensor, m.n, type), st);
  HP_TRY_GOTO(file_write(config.at, text.at, text.len), st);
done:
  str_free(&text);
  str_free(&config);
  llama2c_close(&m);
  return st;
}
