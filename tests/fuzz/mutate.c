#include "mutate.h"

#include <string.h>

uint32_t mutate_next(mutate_rng *r) {
  r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(r->state >> 33);
}

int mutate_below(mutate_rng *r, int n) { return (int)(mutate_next(r) % (uint32_t)n); }

typedef struct {
  const char *at;
  size_t len;
} piece;

/* Line number k of the text, with its end. */
static piece line(const char *text, size_t n, int k) {
  const char *at = text, *end = text + n;
  for (; k > 0; k--) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    at = newline ? newline + 1 : end;
  }
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return (piece){at, (size_t)((newline ? newline + 1 : end) - at)};
}

static int count_lines(const char *text, size_t n) {
  int count = 1;
  for (size_t i = 0; i + 1 < n; i++) count += text[i] == '\n';
  return count;
}

/* A line repeated, moved or dropped. */
static void change_lines(const char *text, size_t n, mutate_rng *r, str *out) {
  int lines = count_lines(text, n), how = mutate_below(r, 3);
  piece from = line(text, n, mutate_below(r, lines)), to = line(text, n, mutate_below(r, lines));
  if (how == 0) to = from;
  for (const char *at = text; at < text + n;) {
    if (how && at == to.at) str_add_n(out, from.at, from.len);
    if (how != 2 && at == from.at) {
      at += from.len;
      continue;
    }
    str_add_char(out, *at++);
  }
}

static bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

/* The next word from `at` on. */
static piece next_word(const char *at, const char *end) {
  while (at < end && !in_word(*at)) at++;
  piece w = {at, 0};
  while (at + w.len < end && in_word(at[w.len])) w.len++;
  return w;
}

static piece pick_word(const char *text, size_t n, mutate_rng *r) {
  piece w = next_word(text + mutate_below(r, (int)n), text + n);
  return w.len ? w : next_word(text, text + n);
}

static bool is_number(piece w) {
  return w.len && ((w.at[0] >= '0' && w.at[0] <= '9') || (w.at[0] == '-' && w.len > 1));
}

static void add_number(mutate_rng *r, str *out) {
  static const char *const odd[] = {"0",    "1",    "2",
                                    "3",    "4",    "5",
                                    "7",    "8",    "16",
                                    "-1",   "31",   "100",
                                    "255",  "256",  "65536",
                                    "0.5",  "-0",   "1e-5",
                                    "nan",  "inf",  "2147483647",
                                    "-2",   "1024", "4294967295",
                                    "1e30", "33",   "4611686018427387904",
                                    "6",    "17",   "-9223372036854775808"};
  str_add(out, odd[mutate_below(r, (int)(sizeof odd / sizeof *odd))]);
}

/* A word replaced, here or wherever it stands, by a number, another of the text or one of `word`.
 */
static void change_word(const char *text, size_t n, mutate_rng *r, const char *const *word,
                        int words, str *out) {
  piece old = pick_word(text, n, r), other = pick_word(text, n, r);
  bool everywhere = mutate_below(r, 2);
  str fresh = {0};
  if (mutate_below(r, 4) == 0) str_add_n(&fresh, other.at, other.len);
  else if (is_number(old) || !words) add_number(r, &fresh);
  else str_add(&fresh, word[mutate_below(r, words)]);
  for (const char *at = text, *end = text + n; at < end;) {
    piece w = next_word(at, end);
    str_add_n(out, at, (size_t)(w.at - at));
    bool named = w.at > text && (w.at[-1] == '%' || w.at[-1] == '"');
    bool same = w.len == old.len && !memcmp(w.at, old.at, w.len);
    if (w.at == old.at || (everywhere && same && !named)) str_add_n(out, fresh.at, fresh.len);
    else str_add_n(out, w.at, w.len);
    at = w.at + w.len;
  }
  str_free(&fresh);
}

size_t mutate_text(uint8_t *text, size_t n, size_t max, mutate_rng *r, const char *const *word,
                   int words) {
  str out = {0};
  int how = mutate_below(r, 8);
  if (!n || how == 0) return LLVMFuzzerMutate(text, n, max);
  if (how < 4) change_lines((const char *)text, n, r, &out);
  else change_word((const char *)text, n, r, word, words, &out);
  if (!out.failed && out.len && out.len <= max) {
    memcpy(text, out.at, out.len);
    n = out.len;
  }
  str_free(&out);
  return n;
}
