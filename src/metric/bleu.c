#include "metric/bleu.h"

#include "base/utf8.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ORDERS = 4 };
typedef VEC(uint32_t) characters;
typedef struct {
  uint32_t of[ORDERS]; /* unused ones are 0 */
} gram;

static hp_status read_characters(const str *s, characters *out) {
  for (size_t at = 0, len; at < s->len; at += len ? len : 1) {
    uint32_t c = 0xfffd;
    len = utf8_decode(s->at + at, s->len - at, &c);
    if (!vec_push(out, c)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static int compare(const void *a, const void *b) { return memcmp(a, b, sizeof(gram)); }

/* All of that order, equal ones next to each other; out has room for x->len. */
static size_t list_grams(const characters *x, size_t order, gram *out) {
  size_t n = x->len + 1 > order ? x->len + 1 - order : 0;
  for (size_t i = 0; i < n; i++) {
    out[i] = (gram){{0}};
    memcpy(out[i].of, x->at + i, order * sizeof *x->at);
  }
  if (n) qsort(out, n, sizeof *out, compare);
  return n;
}

/* Those that both have, each as often as the one that has it less often. */
static size_t count_shared(const gram *a, size_t na, const gram *b, size_t nb) {
  size_t shared = 0;
  for (size_t i = 0, k = 0; i < na && k < nb;) {
    int order = compare(&a[i], &b[k]);
    shared += order == 0;
    i += order <= 0;
    k += order >= 0;
  }
  return shared;
}

/* Of an order without a match 1 / 2^k of one, k counting such orders. */
static double precision(size_t shared, size_t all, int *unmatched) {
  double of = all ? (double)all : 1;
  return shared ? (double)shared / of : 1 / (ldexp(1, ++*unmatched) * of);
}

static double brevity_penalty(size_t hypothesis, size_t reference) {
  if (hypothesis > reference) return 1;
  return exp(1 - (double)reference / (double)hypothesis);
}

static double score(const characters *h, const characters *r, gram *a, gram *b) {
  double sum = 0;
  int unmatched = 0;
  for (size_t order = 1; order <= ORDERS; order++) {
    size_t all = list_grams(h, order, a), shared = count_shared(a, all, b, list_grams(r, order, b));
    if (order == 1 && !shared) return 0;
    sum += log(precision(shared, all, &unmatched)) / ORDERS;
  }
  return brevity_penalty(h->len, r->len) * exp(sum);
}

hp_status bleu_compare(const str *hypothesis, const str *reference, double *out) {
  characters h = {0}, r = {0};
  hp_status st = read_characters(hypothesis, &h);
  if (!st) st = read_characters(reference, &r);
  gram *room = st ? NULL : mem_calloc(h.len + r.len + 1, sizeof *room);
  if (!st && !room) st = HP_ERR_OOM;
  if (!st) *out = score(&h, &r, room, room + h.len);
  mem_free(room);
  vec_free(&h);
  vec_free(&r);
  return st;
}
