/* Chunks in which tokens are fed to a model. */
#include "base/io.h"
#include "serve/session.h"
#include "test.h"

enum { VOCAB = 32, TOKENS = 256, MOST = 16 };

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 16, "
                             "\"intermediate_size\": 16, \"num_attention_heads\": 2, "
                             "\"num_key_value_heads\": 2, \"num_hidden_layers\": 1, "
                             "\"vocab_size\": 32, \"max_position_embeddings\": 512}";

/* Tokens of each sequence in the last chunk, when 256 are fed to each of so many. */
static int64_t chunk_length(int64_t sequences) {
  static int32_t ids[MOST][TOKENS];
  static float logits[MOST * VOCAB];
  session_tokens fed[MOST];
  int64_t T = 0;
  char path[512];
  hp_device *d;
  lm *m;
  session *s;
  snprintf(path, sizeof path, "%s/config.json", test_dir());
  CHECK_OK(file_write(path, config, sizeof config - 1));
  CHECK_OK(hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
  CHECK_OK(lm_create(path, d, &(lm_options){.compute = HP_F32, .weights = HP_F32}, &m));
  CHECK_OK(lm_init(m, 5));
  CHECK_OK(session_create(m, &(session_options){.sequences = sequences, .tokens = TOKENS}, &s));
  for (int i = 0; i < (int)sequences; i++) {
    ids[i][0] = i; /* equal beginnings would be shared */
    fed[i] = (session_tokens){0, ids[i], TOKENS};
    CHECK_OK(session_add(s, &fed[i].sequence));
  }
  CHECK_OK(session_feed(s, fed, sequences, logits));
  const hp_program *p = session_program(s);
  for (int i = 0; i < hp_program_io_count(p); i++) {
    const char *name;
    hp_dtype t;
    hp_shape shape;
    bool is_output;
    CHECK_OK(hp_program_io_info(p, i, &name, &t, &shape, &is_output));
    if (!strcmp(name, "ids")) T = shape.dim[1];
  }
  session_free(s);
  lm_free(m);
  hp_device_close(d);
  return T;
}

TEST(a_chunk_has_at_most_2048_rows) {
  CHECK_EQ(chunk_length(1), 256);
  CHECK_EQ(chunk_length(8), 256);
  CHECK_EQ(chunk_length(9), 64);
}
