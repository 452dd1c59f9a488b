#include "compile/inplace.h"

#include "codegen/loop.h"

#include <string.h>

static bool same_access(const loop_access *a, const loop_access *b) {
  return a->offset == b->offset && !memcmp(a->stride, b->stride, sizeof a->stride);
}

static bool parse_inplace(const char *body, int in, int out) {
  loop l = {0};
  if (loop_parse(body, strlen(body), "loop", &l)) {
    err_clear();
    return false;
  }
  bool fits = true;
  const loop_store *store = NULL;
  for (size_t i = 0; i < l.store.len; i++)
    if (l.store.at[i].operand == out) {
      fits &= !store;
      store = &l.store.at[i];
    }
  fits &= store != NULL;
  for (size_t i = 0; fits && i < l.value.len; i++) {
    const loop_value *v = &l.value.at[i];
    if (v->what == LOOP_IN && v->operand == in)
      fits = v->type == store->type && same_access(&v->at, &store->at);
  }
  loop_free(&l);
  return fits;
}

/* --- from the text ------------------------------------------------------------------------------
 *
 * A step has hundreds of thousands of instructions, and to parse each takes a fifth of the time in
 * which it is planned.  Equal accesses of the canonical text (loop_print) are equal texts; any
 * other text is parsed. */

typedef struct {
  const char *at;
  size_t n;
} span;

static bool take_number(const char **at, int *out) {
  const char *s = *at;
  int n = 0;
  if (*s == '0' && s[1] >= '0' && s[1] <= '9') return false;
  for (; *s >= '0' && *s <= '9'; s++) {
    if (n > 9999) return false;
    n = 10 * n + (*s - '0');
  }
  if (s == *at || *s != ' ') return false;
  *at = s + 1;
  *out = n;
  return true;
}

/* "0 f32 [4,1] +16", of which the access is all after the number.  *rest: what follows. */
static bool take_access(const char *at, const char *end, int *operand, span *access,
                        const char **rest) {
  if (!take_number(&at, operand)) return false;
  const char *stop = memchr(at, ']', (size_t)(end - at));
  if (!stop++) return false;
  if (end - stop > 2 && stop[0] == ' ' && stop[1] == '+')
    for (stop += 2; *stop >= '0' && *stop <= '9';) stop++;
  *access = (span){at, (size_t)(stop - at)};
  *rest = stop;
  return true;
}

static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

/* The access of a line: *in of a load, *out of a store; of other lines both are -1. */
static bool scan_line(const char *at, const char *end, int *in, int *out, span *access) {
  const char *rest, *word;
  *in = *out = -1;
  if (!strncmp(at, "out ", 4))
    return take_access(at + 4, end, out, access, &rest) && *rest == ' ' &&
           (rest[1] == '%' || is_lower(rest[1]));
  if (*at++ != '%') return false;
  while (*at >= '0' && *at <= '9') at++;
  if (strncmp(at, " = ", 3)) return false;
  for (word = at += 3; is_lower(*at) || *at == '_' || (*at >= '0' && *at <= '9');) at++;
  if (at == word || *at != ' ') return false;
  if (at - word != 2 || memcmp(word, "in", 2)) return true;
  return take_access(at + 1, end, in, access, &rest) && rest == end;
}

/* False if a line is written in another way: it could hide a load. */
static bool scan_inplace(const char *body, int in, int out, bool *fits) {
  span store = {0}, load[LOOP_VALUES_MAX], access;
  int loads = 0, stores = 0, is_in, is_out;
  for (const char *line = strchr(body, ';'), *end; line; line = *end ? end : NULL) {
    if (line[1] != ' ') return false;
    line += 2;
    end = line + strcspn(line, ";");
    if (!scan_line(line, end, &is_in, &is_out, &access)) return false;
    if (is_in == in && loads == LOOP_VALUES_MAX) return false;
    if (is_in == in) load[loads++] = access;
    if (is_out != out) continue;
    store = access;
    stores++;
  }
  *fits = stores == 1;
  for (int i = 0; i < loads && *fits; i++)
    *fits = load[i].n == store.n && !memcmp(load[i].at, store.at, store.n);
  return true;
}

bool inplace_loop(const char *body, int in, int out) {
  bool fits;
  if (!strchr(body, '\n') && scan_inplace(body, in, out, &fits)) return fits;
  return parse_inplace(body, in, out);
}

bool inplace_op(op_id op, int in, int out) { return out == 0 && in == op_inplace(op); }

bool inplace_inst(const program *p, const prog_inst *n, int in, int out) {
  return n->op == OP_FUSED ? inplace_loop(inst_str(p, n, "body"), in, out)
                           : inplace_op((op_id)n->op, in, out);
}
