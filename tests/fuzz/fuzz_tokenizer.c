/* A tokenizer.json (or llama2.c tokenizer.bin), then, behind a byte 0xFF, a text.
 * Whatever loads must encode, decode and stream the text without a fault. */
#include "fuzz.h"

#include "tok/tok_llama2c.h"
#include "tok/tokenizer.h"

#include <string.h>

static void stream(const tokenizer *t, const token_ids *ids, bool skip) {
  tokenizer_stream s = tokenizer_stream_create(t, skip);
  str out = {0};
  for (size_t i = 0; i < ids->len; i++)
    if (tokenizer_stream_push(&s, ids->at[i], &out)) break;
  (void)tokenizer_stream_flush(&s, &out);
  tokenizer_stream_free(&s);
  str_free(&out);
}

static void use(const tokenizer *t, const char *text, size_t n) {
  for (unsigned flags = 0; flags < 4; flags++) {
    token_ids ids = {0};
    str out = {0};
    if (!tokenizer_encode(t, text, n, flags, &ids)) {
      for (size_t i = 0; i < ids.len; i++) {
        HP_ASSERT(ids.at[i] >= 0);
        (void)tokenizer_token(t, ids.at[i], NULL);
      }
      (void)tokenizer_decode(t, ids.at, ids.len, flags & 1, &out);
      stream(t, &ids, flags & 1);
    }
    vec_free(&ids);
    str_free(&out);
    err_clear();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *cut = size ? memchr(data, 0xFF, size) : NULL;
  const char *json = (const char *)data,
             *text = cut ? (const char *)cut + 1 : "Hello,  w\xC3\xB6rld 123\n";
  size_t json_len = cut ? (size_t)(cut - data) : size;
  size_t text_len = cut ? size - json_len - 1 : strlen(text);
  str converted = {0};
  tokenizer *t;
  if (size && data[0] != '{') { /* a binary file: all of the input */
    if (!tok_llama2c_to_json("fuzz", data, size, &converted)) {
      json = converted.at;
      json_len = converted.len;
      text = "Once upon a time";
      text_len = strlen(text);
    }
  }
  err_clear();
  if (!tokenizer_parse("fuzz", json ? json : "", json_len, &t)) {
    use(t, text, text_len);
    tokenizer_free(t);
  }
  err_clear();
  str_free(&converted);
  return 0;
}
