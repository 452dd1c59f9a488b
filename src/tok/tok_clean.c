/* Decoded text as Transformers gives it. */
#include "tok/tok_internal.h"

#include <string.h>

/* Replaces all of `from` in s[at..) by the shorter text `to`, from left to right. */
static void replace_all(str *s, size_t at, const char *from, const char *to) {
  size_t n = strlen(from), m = strlen(to), end = at;
  while (at < s->len) {
    if (s->len - at >= n && !memcmp(s->at + at, from, n)) {
      memcpy(s->at + end, to, m);
      at += n;
      end += m;
    } else {
      s->at[end++] = s->at[at++];
    }
  }
  if (s->at) s->at[s->len = end] = 0;
}

hp_status tokenizer_decode_clean(const tokenizer *t, const int32_t *ids, size_t n,
                                 bool skip_special, str *out) {
  static const char *const rule[][2] = {{" .", "."},    {" ?", "?"},   {" !", "!"},
                                        {" ,", ","},    {" ' ", "'"},  {" n't", "n't"},
                                        {" 'm", "'m"},  {" 's", "'s"}, {" 've", "'ve"},
                                        {" 're", "'re"}};
  size_t at = out->len;
  HP_TRY(tokenizer_decode(t, ids, n, skip_special, out));
  HP_TRY(str_status(out));
  for (size_t i = 0; t->cleans_up && i < sizeof rule / sizeof *rule; i++)
    replace_all(out, at, rule[i][0], rule[i][1]);
  return HP_OK;
}
