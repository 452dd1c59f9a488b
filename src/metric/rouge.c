#include "metric/rouge.h"

#include "base/hash.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "metric/words.h"

#include <stdlib.h>
#include <string.h>

/* --- words ------------------------------------------------------------------------------------ */

typedef VEC(uint32_t) word_ids;

static uint32_t get(const char *s, size_t n, size_t *len) {
  uint32_t c = 0xfffd;
  *len = utf8_decode(s, n, &c);
  if (!*len) *len = 1;
  return c;
}

/* Bytes at s after which a line ends, if a character follows that closes no quotation. */
typedef size_t line_end(const char *s, size_t n);

static size_t find_stop(const char *s, size_t n) {
  size_t len;
  uint32_t c = get(s, n, &len);
  return c == '?' || c == 0xff1f || c == 0xff01 || c == 0x3002 ? len : 0; /* ? ？ ！ 。 */
}

static size_t find_dots(const char *s, size_t n) {
  return n >= 6 && !memcmp(s, "......", 6) ? 6 : 0;
}

/* Text in lines.  (The library's rules for ends before quotation marks never apply, for there is a
 * space between.) */
static void break_lines(const str *text, line_end *find, str *out) {
  const char *s = text->at;
  for (size_t n = text->len, len, next; n; s += len, n -= len) {
    len = find(s, n);
    uint32_t c = len && len < n ? get(s + len, n - len, &next) : 0;
    if (c && c != 0x201d && c != 0x2019) { /* ” ’ */
      str_add_n(out, s, len);
      str_add_char(out, '\n');
      s += len;
      n -= len;
      len = next;
    } else if (!len) {
      get(s, n, &len);
    }
    str_add_n(out, s, len);
  }
}

static hp_status add_word(interner *known, const char *s, size_t n, word_ids *out) {
  uint32_t id = intern(known, s, n);
  return id && vec_push(out, id) ? HP_OK : HP_ERR_OOM;
}

/* Words of a line; of one that is only white space an empty word, as in the library. */
static hp_status add_line(interner *known, const char *s, size_t n, word_ids *out) {
  size_t before = out->len, begin = 0, len;
  for (size_t at = 0; at <= n; at += len) {
    bool space = at == n || words_is_space(get(s + at, n - at, &len));
    if (at == n) len = 1;
    if (!space) continue;
    if (at > begin) HP_TRY(add_word(known, s + begin, at - begin, out));
    begin = at + len;
  }
  return out->len == before ? add_word(known, "", 0, out) : HP_OK;
}

static size_t trim(const char *s, size_t n) {
  size_t end = 0, len;
  for (size_t at = 0; at < n; at += len)
    if (!words_is_space(get(s + at, n - at, &len))) end = at + len;
  return end;
}

/* Lines without any character are left out. */
static hp_status list_words(interner *known, const str *text, word_ids *out) {
  str once = {0}, lines = {0};
  break_lines(text, find_stop, &once);
  break_lines(&once, find_dots, &lines);
  hp_status st = once.failed ? HP_ERR_OOM : str_status(&lines);
  const char *s = lines.at;
  size_t n = !st && s ? trim(s, lines.len) : 0;
  for (size_t at = 0; at < n && !st;) {
    const char *end = memchr(s + at, '\n', n - at);
    size_t len = end ? (size_t)(end - s) - at : n - at;
    if (len) st = add_line(known, s + at, len, out);
    at += len + 1;
  }
  str_free(&once);
  str_free(&lines);
  return st;
}

/* --- scores ----------------------------------------------------------------------------------- */

static double f1(size_t hypothesis, size_t reference, size_t shared) {
  double p = hypothesis ? (double)shared / (double)hypothesis : 0;
  double r = reference ? (double)shared / (double)reference : 0;
  return 2.0 * ((p * r) / (p + r + 1e-8));
}

static int by_value(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* The set of words (n = 1) or of pairs (n = 2), in order; out has room for all. */
static size_t list_grams(const word_ids *w, size_t n, uint64_t *out) {
  size_t all = w->len + 1 > n ? w->len + 1 - n : 0, kept = 0;
  for (size_t i = 0; i < all; i++)
    out[i] = n == 1 ? w->at[i] : (uint64_t)w->at[i] << 32 | w->at[i + 1];
  if (all) qsort(out, all, sizeof *out, by_value);
  for (size_t i = 0; i < all; i++)
    if (!kept || out[kept - 1] != out[i]) out[kept++] = out[i];
  return kept;
}

static hp_status score_grams(const word_ids *h, const word_ids *r, size_t n, double *out) {
  uint64_t *a = mem_calloc(h->len + r->len, sizeof *a);
  HP_TRY_MEM(a);
  uint64_t *b = a + h->len;
  size_t na = list_grams(h, n, a), nb = list_grams(r, n, b), shared = 0;
  for (size_t i = 0, k = 0; i < na && k < nb;) {
    shared += a[i] == b[k];
    bool first = a[i] <= b[k], second = b[k] <= a[i];
    i += first;
    k += second;
  }
  mem_free(a);
  *out = f1(na, nb, shared);
  return HP_OK;
}

static hp_status score_subsequence(const word_ids *h, const word_ids *r, double *out) {
  size_t *row = mem_calloc(h->len + 1, sizeof *row); /* of the words of r so far */
  HP_TRY_MEM(row);
  for (size_t i = 0; i < r->len; i++)
    for (size_t k = 0, diagonal = 0; k < h->len; k++) {
      size_t above = row[k + 1];
      if (r->at[i] == h->at[k]) row[k + 1] = diagonal + 1;
      else if (row[k] > above) row[k + 1] = row[k];
      diagonal = above;
    }
  *out = f1(h->len, r->len, row[h->len]);
  mem_free(row);
  return HP_OK;
}

static bool has_word(const str *s) { return trim(s->at, s->len) > 0; }

hp_status rouge_compare(const str *hypothesis, const str *reference, rouge_scores *out) {
  interner known = {0};
  word_ids h = {0}, r = {0};
  rouge_scores s = {0};
  if (!has_word(hypothesis) || !has_word(reference)) {
    *out = s;
    return HP_OK;
  }
  hp_status st = list_words(&known, hypothesis, &h);
  if (!st) st = list_words(&known, reference, &r);
  if (!st) st = score_grams(&h, &r, 1, &s.one);
  if (!st) st = score_grams(&h, &r, 2, &s.two);
  if (!st) st = score_subsequence(&h, &r, &s.l);
  if (!st) *out = s;
  vec_free(&h);
  vec_free(&r);
  intern_free(&known);
  return st;
}
