#include "base/vec.h"
#include "tok/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Normal forms by utf8proc's tables, one segment at a time.
 *
 * An "inert" character is unchanged by the form, is a starter and never the second half of a
 * composition.  Text is copied up to the last inert character of a run; that one and what follows
 * up to the next inert character is a segment: decomposed, ordered, composed.  The ordering is
 * ours because utf8proc's is quadratic in the number of marks on one letter. */
typedef VEC(int32_t) code_points;

static bool is_inert(unicode_form form, uint32_t cp) {
  static const uint32_t composed[][2] = {{0x400, 0x482},   {0x48A, 0x52F},   {0x2010, 0x2027},
                                         {0x3000, 0x3029}, {0x3041, 0x3096}, {0x30A1, 0x30FA},
                                         {0xAC00, 0xD7A3}, {0xFF01, 0xFF5E}};
  if (cp < 0x80 || (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF)) return true;
  if (form != UNICODE_NFC) return false;
  if (cp < 0x300) return true;
  for (size_t i = 0; i < sizeof composed / sizeof *composed; i++)
    if (cp >= composed[i][0] && cp <= composed[i][1]) return true;
  return false;
}

/* A character that the reference's tables do not know: copied, and no base of a composition. */
static bool is_frozen(uint32_t cp) {
  return (unicode_compat(cp) & UNICODE_FROZEN) || unicode_stand_in(cp) != cp;
}

static int get_combining_class(int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

enum { COUNTING_FROM = 32 };

static void order_short(int32_t *mark, size_t n) {
  for (size_t i = 1; i < n; i++) {
    int32_t m = mark[i];
    size_t at = i;
    for (; at && get_combining_class(mark[at - 1]) > get_combining_class(m); at--)
      mark[at] = mark[at - 1];
    mark[at] = m;
  }
}

/* Stable order of n marks by class; by counting when there are many. */
static hp_status order_marks(int32_t *mark, size_t n) {
  if (n < COUNTING_FROM) {
    order_short(mark, n);
    return HP_OK;
  }
  size_t at[257] = {0};
  int32_t *sorted = mem_calloc(n, sizeof *sorted);
  HP_TRY_MEM(sorted);
  for (size_t i = 0; i < n; i++) at[get_combining_class(mark[i]) + 1]++;
  for (int c = 0; c < 256; c++) at[c + 1] += at[c];
  for (size_t i = 0; i < n; i++) sorted[at[get_combining_class(mark[i])]++] = mark[i];
  memcpy(mark, sorted, n * sizeof *mark);
  mem_free(sorted);
  return HP_OK;
}

static hp_status decompose(unicode_form form, const char *s, size_t n, code_points *out) {
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form == UNICODE_NFKC || form == UNICODE_NFKD) options |= UTF8PROC_COMPAT;
  for (size_t at = 0, k; at < n; at += k) {
    int32_t cp = (int32_t)utf8_get(s + at, &k);
    enum { LONGEST = 32 }; /* U+FDFA becomes 18 */
    if (!vec_reserve(out, LONGEST)) return HP_ERR_OOM;
    int boundary = 0;
    ptrdiff_t got = utf8proc_decompose_char(cp, out->at + out->len, LONGEST,
                                            (utf8proc_option_t)options, &boundary);
    HP_ASSERT(got >= 0 && got <= LONGEST);
    out->len += (size_t)got;
  }
  for (size_t i = 0; i < out->len;) {
    if (!get_combining_class(out->at[i])) {
      i++;
      continue;
    }
    size_t end = i;
    while (end < out->len && get_combining_class(out->at[end])) end++;
    HP_TRY(order_marks(out->at + i, end - i));
    i = end;
  }
  return HP_OK;
}

static hp_status normalize_segment(unicode_form form, const char *s, size_t n, code_points *buf,
                                   str *out) {
  buf->len = 0;
  HP_TRY(decompose(form, s, n, buf));
  ptrdiff_t len = (ptrdiff_t)buf->len;
  if (form == UNICODE_NFC || form == UNICODE_NFKC) {
    len = utf8proc_normalize_utf32(buf->at, len, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    HP_ASSERT(len >= 0);
  }
  for (ptrdiff_t i = 0; i < len; i++) utf8_add(out, (uint32_t)buf->at[i]);
  return HP_OK;
}

hp_status unicode_normalize(unicode_form form, const char *s, size_t n, str *out) {
  code_points buf = {0};
  hp_status st = HP_OK;
  size_t done = 0, last = 0; /* copied up to done; start of the last inert character seen */
  for (size_t at = 0, k; at < n;) {
    uint32_t cp = utf8_get(s + at, &k);
    if (is_inert(form, cp) || is_frozen(cp)) {
      last = is_inert(form, cp) ? at : at + k;
      at += k;
      continue;
    }
    str_add_n(out, s + done, last - done);
    do at += k;
    while (at < n && (cp = utf8_get(s + at, &k), !is_inert(form, cp) && !is_frozen(cp)));
    HP_TRY_GOTO(normalize_segment(form, s + last, at - last, &buf, out), st);
    done = last = at;
  }
  str_add_n(out, s + done, n - done);
  HP_TRY_GOTO(str_status(out), st);
done:
  vec_free(&buf);
  return st;
}
