/* The files of a model's folder, each behind a byte 0xFF in the order below: whatever loads of
 * them can be used.  What a file may be by itself is the matter of other fuzzers; this one is about
 * files that contradict each other. */
#include "folder.h"
#include "fuzz.h"

#include "base/log.h"
#include "tok/tokenizer.h"
#include "ckpt/weights.h"

#include <stdlib.h>
#include <string.h>

static const char *const name[] = {"tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "added_tokens.json",
                                   "tokenizer.json",
                                   "model.safetensors.index.json",
                                   "a.safetensors"};
enum { FILES = sizeof name / sizeof *name };

static void use_tokenizer(const char *dir) {
  static const char text[] = "Hello,  w\xC3\xB6rld 123\n";
  tokenizer *t;
  if (tokenizer_load(dir, &t)) return;
  for (unsigned flags = 0; flags < 4; flags++) {
    token_ids ids = {0};
    str out = {0};
    if (!tokenizer_encode(t, text, sizeof text - 1, flags, &ids))
      (void)tokenizer_decode(t, ids.at, ids.len, flags & 1, &out);
    vec_free(&ids);
    str_free(&out);
  }
  tokenizer_free(t);
}

static void use_weights(const char *dir) {
  weights *w;
  if (weights_open(dir, &w)) return;
  for (size_t i = 0; i < weights_count(w); i++) {
    const st_tensor *t = weights_get(w, i);
    HP_ASSERT(weights_find(w, t->name));
    size_t n = t->bytes * 8 / st_dtype_bits(t->dtype);
    float *x = n < 4096 ? malloc((n + 1) * sizeof *x) : NULL;
    if (x) (void)weights_read(t, 0, n, HP_F32, x);
    free(x);
  }
  weights_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  const uint8_t *at = bytes, *end = bytes + n;
  const char *dir = folder_fresh();
  log_set_level(LOG_ERROR);
  for (int i = 0; i < FILES - 1; i++) {
    str s = folder_part(&at, end);
    if (s.len) folder_write(name[i], s.at, s.len);
    str_free(&s);
  }
  if (at < end) folder_write(name[FILES - 1], at, (size_t)(end - at));
  use_tokenizer(dir);
  err_clear();
  use_weights(dir);
  err_clear();
  return 0;
}
