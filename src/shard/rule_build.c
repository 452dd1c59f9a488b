/* Rules from text and from shapes. */
#include "shard/rule.h"

#include <ctype.h>
#include <string.h>

void rule_begin(rule *r, op_linearity linearity) {
  memset(r, 0, sizeof *r);
  r->linearity = linearity;
}

int rule_factor(rule *r, int64_t size) {
  HP_ASSERT(r->factors < RULE_FACTORS);
  r->factor[r->factors].size = size;
  return r->factors++;
}

static rule_tensor *tensor(rule_tensor *list, int *n, int rank) {
  HP_ASSERT(*n < RULE_TENSORS && rank <= LAYOUT_DIMS);
  rule_tensor *t = &list[(*n)++];
  if (rank < 0) t->absent = true;
  else t->rank = rank;
  return t;
}
rule_tensor *rule_in(rule *r, int rank) { return tensor(r->in, &r->n_in, rank); }
rule_tensor *rule_out(rule *r, int rank) { return tensor(r->out, &r->n_out, rank); }

void rule_dim(rule_tensor *t, int dim, int factor) {
  HP_ASSERT(t->n[dim] < RULE_DIM_FACTORS);
  t->factor[dim][t->n[dim]++] = (uint8_t)factor;
}

int rule_find(const rule *r, int factor, int *dim) {
  for (int i = 0; i < r->n_in + r->n_out; i++) {
    const rule_tensor *t = i < r->n_in ? &r->in[i] : &r->out[i - r->n_in];
    for (*dim = 0; *dim < t->rank; ++*dim)
      if (t->n[*dim] == 1 && t->factor[*dim][0] == factor) return i;
  }
  return -1;
}

bool rule_has(const rule_tensor *t, int factor) {
  for (int dim = 0; dim < t->rank; dim++)
    if (memchr(t->factor[dim], factor, t->n[dim])) return true;
  return false;
}

int64_t rule_dim_size(const rule *r, const rule_tensor *t, int dim) {
  int64_t size = 1;
  for (int i = 0; i < t->n[dim]; i++) size *= r->factor[t->factor[dim][i]].size;
  return size;
}

/* --- text ------------------------------------------------------------------------------------- */

enum { TERMS_MAX = 16, TERM_LEN = 24 };

typedef struct {
  char term[TERMS_MAX][TERM_LEN]; /* letters of a tensor, '.' for "..." */
  int n_in, n_out;
  int letter[128];        /* factor of a letter, -1: none yet */
  int batch[LAYOUT_DIMS]; /* factors of "...", from the right */
  int n_batch;
} text_rule;

static hp_status bad_text(const char *text) {
  HP_FAIL(HP_ERR_INTERNAL, "rule \"%s\" is not one", text);
}

/* "ab,...->c;j=rep" into terms; *flags is what follows them. */
static hp_status read_terms(const char *text, text_rule *t, const char **flags) {
  const char *at = text;
  bool out = false;
  int len = 0, *n = &t->n_in;
  for (;; at++) {
    int term = t->n_in + t->n_out;
    if (term >= TERMS_MAX || len >= TERM_LEN - 1) return bad_text(text);
    if (!strncmp(at, "...", 3)) t->term[term][len++] = '.', at += 2;
    else if (isalpha((unsigned char)*at)) t->term[term][len++] = *at;
    else {
      ++*n;
      len = 0;
      if (*at == ';' || !*at) break;
      if (*at == ',') continue;
      if (out || at[0] != '-' || at[1] != '>') return bad_text(text);
      out = true;
      n = &t->n_out;
      at++;
    }
  }
  *flags = at;
  return HP_OK;
}

/* The number of dims of "..." in a term of that rank. */
static int batch_dims(const char *term, int rank) { return rank - (int)strlen(term) + 1; }

/* Sizes of letters and of the broadcast dims, from the operands. */
static hp_status bind(text_rule *t, const dims *in, rule *r) {
  int64_t size[LAYOUT_DIMS] = {0};
  for (int i = 0; i < t->n_in; i++) {
    int rank = in[i].rank, dim = 0, batch = batch_dims(t->term[i], rank);
    if (rank < 0) continue;
    if (strchr(t->term[i], '.') ? batch < 0 : (int)strlen(t->term[i]) != rank)
      HP_FAIL(HP_ERR_LAYOUT, "operand %d has %d dims, the op expects another number", i, rank);
    for (const char *c = t->term[i]; *c; c++) {
      if (*c != '.') {
        int *f = &t->letter[(int)*c];
        if (*f < 0) *f = rule_factor(r, in[i].dim[dim]);
        dim++;
        continue;
      }
      for (int k = batch - 1; k >= 0; k--, dim++)
        if (in[i].dim[dim] > size[k] || !size[k]) size[k] = in[i].dim[dim];
      if (batch > t->n_batch) t->n_batch = batch;
    }
  }
  for (int k = 0; k < t->n_batch; k++) t->batch[k] = rule_factor(r, size[k]);
  return HP_OK;
}

/* The dims of a term; dims of size 1 of an operand (shape given) that are repeated have no
 * factor. */
static void write_term(const text_rule *t, const char *term, const dims *shape, const rule *r,
                       rule_tensor *to) {
  int dim = 0;
  for (const char *c = term; *c; c++) {
    if (*c != '.') {
      rule_dim(to, dim++, t->letter[(int)*c]);
      continue;
    }
    for (int k = batch_dims(term, to->rank) - 1; k >= 0; k--, dim++)
      if (!shape || shape->dim[dim] == r->factor[t->batch[k]].size) rule_dim(to, dim, t->batch[k]);
  }
}

static int out_rank(const text_rule *t, const char *term) {
  int letters = (int)strlen(term);
  return strchr(term, '.') ? letters - 1 + t->n_batch : letters;
}

/* "rep", a reduction, "@1", or "sum@1", for one factor. */
static void note_word(rule *r, int factor, const char *word, size_t n) {
  const char *at = memchr(word, '@', n);
  if (at) r->factor[factor].index = at[1] - '0' + 1;
  if (n == 3 && !memcmp(word, "rep", 3)) r->factor[factor].replicated = true;
  else r->factor[factor].reduce = partial_op_find(word, at ? (size_t)(at - word) : n);
}

/* ";j=rep", ";k=sum", ";...=sum": factors that must be replicated, or are reduced when
 * contracted; ";v=@1": operand 1 holds indices along it. */
static hp_status read_flags(const char *text, const char *at, const text_rule *t, rule *r) {
  while (*at == ';') {
    bool batch = !strncmp(++at, "...", 3);
    const char *word = at + (batch ? 4 : 2);
    size_t n = strcspn(word, ";");
    int f = t->letter[(int)*at & 127];
    if (word[-1] != '=' || (!batch && f < 0)) return bad_text(text);
    for (int k = 0; batch && k < t->n_batch; k++) note_word(r, t->batch[k], word, n);
    if (!batch) note_word(r, f, word, n);
    at = word + n;
  }
  return HP_OK;
}

hp_status rule_from_text(const char *text, op_linearity linearity, const dims *in, int n_in,
                         rule *out) {
  text_rule t = {0};
  const char *flags = NULL;
  rule_begin(out, linearity);
  memset(t.letter, -1, sizeof t.letter);
  HP_TRY(read_terms(text, &t, &flags));
  if (n_in != t.n_in) HP_FAIL(HP_ERR_LAYOUT, "%d operands, the op takes %d", n_in, t.n_in);
  HP_TRY(bind(&t, in, out));
  for (int o = t.n_in; o < t.n_in + t.n_out; o++) /* a letter that no operand has */
    for (const char *c = t.term[o]; *c; c++)
      if (*c != '.' && t.letter[(int)*c] < 0) t.letter[(int)*c] = rule_factor(out, 1);
  HP_TRY(read_flags(text, flags, &t, out));
  for (int i = 0; i < n_in; i++) {
    rule_tensor *to = rule_in(out, in[i].rank);
    if (!to->absent) write_term(&t, t.term[i], &in[i], out, to);
  }
  for (int o = 0; o < t.n_out; o++) {
    const char *term = t.term[t.n_in + o];
    write_term(&t, term, NULL, out, rule_out(out, out_rank(&t, term)));
  }
  return HP_OK;
}

void rule_out_sizes(rule *r, const dims *out) {
  for (int o = 0; o < r->n_out; o++)
    for (int d = 0; d < r->out[o].rank; d++)
      if (r->out[o].n[d] == 1 && r->factor[r->out[o].factor[d][0]].index)
        r->factor[r->out[o].factor[d][0]].size = out[o].dim[d];
}

/* --- shapes ----------------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

typedef struct {
  const dims *shape;
  rule_tensor *t;
  int dim;      /* -1: before the first */
  int64_t left; /* of the dim's size, not yet divided into factors */
} walk;

/* Continues with the next dim that is not divided completely; false at the end. */
static bool step(walk *w) {
  while (w->left == 1 && w->dim + 1 < w->shape->rank) w->left = w->shape->dim[++w->dim];
  return w->left != 1;
}

static void put(walk *w, rule *r, int factor) {
  rule_dim(w->t, w->dim, factor);
  w->left /= r->factor[factor].size;
}

/* The rest of the dim must be replicated. */
static int64_t put_replicated(walk *w, rule *r) {
  int64_t size = w->left;
  int f = rule_factor(r, size);
  r->factor[f].replicated = true;
  put(w, r, f);
  return size;
}

/* Dims with no common factor, up to where both have the same number of elements. */
static hp_status put_misfits(walk *a, walk *b, rule *r) {
  int64_t in_a = put_replicated(a, r), in_b = put_replicated(b, r);
  while (in_a != in_b) {
    walk *less = in_a < in_b ? a : b;
    if (!step(less)) HP_FAIL(HP_ERR_LAYOUT, "the shapes have other numbers of elements");
    *(less == a ? &in_a : &in_b) *= put_replicated(less, r);
  }
  return HP_OK;
}

static bool is_empty(const dims *s) {
  for (int d = 0; d < s->rank; d++)
    if (s->dim[d] == 0) return true;
  return false;
}

/* Both shapes from the left: the largest common factor of the rest of the two dims. */
hp_status rule_reshape(const dims *from, const dims *to, rule *out) {
  rule_begin(out, LIN_MOVE);
  if (is_empty(from) || is_empty(to)) HP_FAIL(HP_ERR_LAYOUT, "a tensor without elements");
  walk a = {from, rule_in(out, from->rank), -1, 1}, b = {to, rule_out(out, to->rank), -1, 1};
  for (;;) {
    bool from_left = step(&a), to_left = step(&b); /* call both */
    if (!from_left || !to_left) break;
    int64_t size = gcd(a.left, b.left);
    if (out->factors + 4 > RULE_FACTORS) HP_FAIL(HP_ERR_LAYOUT, "too many factors in a reshape");
    if (size == 1) {
      HP_TRY(put_misfits(&a, &b, out));
      continue;
    }
    int f = rule_factor(out, size);
    put(&a, out, f);
    put(&b, out, f);
  }
  if (a.left != b.left) HP_FAIL(HP_ERR_LAYOUT, "the shapes have other numbers of elements");
  return HP_OK;
}

void rule_map(const dims *from, const dims *to, const int *source, op_linearity linearity,
              rule *out) {
  rule_begin(out, linearity);
  rule_tensor *a = rule_in(out, from->rank), *b = rule_out(out, to->rank);
  bool used[LAYOUT_DIMS] = {false};
  for (int d = 0; d < to->rank; d++) {
    int from_dim = source[d];
    bool same = from_dim >= 0 && from->dim[from_dim] == to->dim[d];
    int f = rule_factor(out, to->dim[d]);
    rule_dim(b, d, f);
    if (same) rule_dim(a, from_dim, f), used[from_dim] = true;
  }
  for (int d = 0; d < from->rank; d++)
    if (!used[d])
      rule_dim(a, d, rule_factor(out, from->dim[d])); /* contracted: must be replicated */
}

void rule_along(const dims *from, const bool *replicated, op_linearity linearity, rule *out) {
  rule_begin(out, linearity);
  rule_tensor *a = rule_in(out, from->rank), *b = rule_out(out, from->rank);
  for (int d = 0; d < from->rank; d++) {
    int f = rule_factor(out, from->dim[d]);
    out->factor[f].replicated = replicated[d];
    rule_dim(a, d, f);
    rule_dim(b, d, f);
  }
}

void rule_reduce(const dims *from, const bool *cut, bool keep, partial_op op, int results,
                 rule *out) {
  int left = 0;
  for (int d = 0; d < from->rank; d++) left += keep || !cut[d];
  rule_begin(out, op == PARTIAL_SUM || op == PARTIAL_AVG ? LIN_JOINT : LIN_NONE);
  rule_tensor *a = rule_in(out, from->rank);
  for (int d = 0; d < from->rank; d++) {
    int f = rule_factor(out, from->dim[d]);
    rule_dim(a, d, f);
    if (cut[d]) out->factor[f].reduce = op;
  }
  for (int k = 0; k < results; k++) {
    rule_tensor *b = rule_out(out, left);
    for (int d = 0, to = 0; d < from->rank; d++)
      if (!cut[d]) rule_dim(b, to++, a->factor[d][0]);
      else if (keep) to++;
  }
}
