/* An adapter's two files, adapter_config.json and, behind a byte 0xFF, adapter_model.safetensors,
 * for a small model: an adapter that is accepted has the tensors of its modules, is printed as a
 * configuration that reads back, gives the model as many params, and merges into any element. */
#include "folder.h"
#include "fuzz.h"

#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "model/adapter_files.h"
#include "model/lm.h"

#include <stdio.h>
#include <string.h>

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 8, "
                             "\"intermediate_size\": 12, \"num_attention_heads\": 2, "
                             "\"num_key_value_heads\": 1, \"num_hidden_layers\": 1, "
                             "\"vocab_size\": 16, \"max_position_embeddings\": 16, "
                             "\"tie_word_embeddings\": false}";

static hp_status read_zeros(void *ctx, size_t first, size_t n, float *x) {
  (void)ctx, (void)first;
  memset(x, 0, n * sizeof *x);
  return HP_OK;
}

static void check_config(const adapter *a) {
  str text = {0};
  tree again = {0};
  if (!adapter_print_config(a, "base", false, &text)) {
    HP_ASSERT(!json_parse(text.at, text.len, "again", &again));
    HP_ASSERT(tree_get(again.root, "peft_type"));
    tree_free(&again);
  }
  str_free(&text);
}

/* Every weight of the model, in pieces. */
static void merge(const lm *m, adapter_file *f) {
  float x[7];
  for (size_t i = 0; i < m->tensors.len; i++) {
    const lm_tensor *t = &m->tensors.at[i];
    size_t n = 1;
    for (int d = 0; d < t->shape.rank; d++) n *= (size_t)t->shape.dim[d];
    if (!adapter_file_changes(f, t->name)) continue;
    HP_ASSERT(!adapter_file_measure(f, t->name, read_zeros, NULL));
    for (size_t at = 0; at < n; at += 7) {
      memset(x, 0, sizeof x);
      (void)adapter_file_merge(f, t->name, at, n - at < 7 ? n - at : 7, x);
    }
  }
}

static void use(lm *m, adapter_file *f) {
  size_t before = m->params.len, modules = f->a->modules.len;
  int each = f->a->o.dora ? 3 : 2;
  check_config(f->a);
  merge(m, f);
  if (lm_set_adapter_file(m, f)) return;
  HP_ASSERT(m->params.len == before + (size_t)each * modules);
  HP_ASSERT(m->trained == (size_t)each * modules + m->adapter->whole.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  const uint8_t *at = bytes, *end = bytes + n;
  const char *dir = folder_fresh();
  char path[512];
  lm *m = NULL;
  adapter_file *f;
  log_set_level(LOG_ERROR);
  str first = folder_part(&at, end);
  folder_write(ADAPTER_CONFIG, first.at ? first.at : "", first.len);
  folder_write(ADAPTER_WEIGHTS, at, (size_t)(end - at));
  folder_write("config.json", config, sizeof config - 1);
  str_free(&first);
  snprintf(path, sizeof path, "%s/config.json", dir);
  lm_options o = {.compute = HP_F32, .weights = HP_F32};
  HP_ASSERT(!lm_create(path, NULL, &o, &m));
  adapter_subject s = lm_subject(m);
  if (!adapter_file_open(dir, &s, &f)) use(m, f);
  lm_free(m);
  err_clear();
  return 0;
}
