#include "ir/einsum_eq.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* The equation as messages quote it: cut to a length that fits any message. */
enum { QUOTE = 60 };

/* Reads the letters of one operand up to a character that is none; `what` names it in messages. */
static hp_status read_letters(const char *text, const char **at, const char *what,
                              char out[HP_MAX_RANK + 1]) {
  int n = 0;
  for (; is_letter(**at) || **at == ' '; (*at)++) {
    if (**at == ' ') continue;
    if (n == HP_MAX_RANK)
      HP_FAIL(HP_ERR_ARG,
              "einsum \"%.*s\": %s has more than %d letters; a tensor has at most %d dims", QUOTE,
              text, what, HP_MAX_RANK, HP_MAX_RANK);
    if (memchr(out, **at, (size_t)n))
      HP_FAIL(HP_ERR_ARG,
              "einsum \"%.*s\": letter '%c' occurs twice in %s; a diagonal is not an einsum here, "
              "give each dim its own letter",
              QUOTE, text, **at, what);
    out[n++] = **at;
  }
  out[n] = 0;
  return HP_OK;
}

static hp_status refuse_text(const char *text, const char *at, const char *expected) {
  char got[] = "'?'";
  if (isprint((unsigned char)*at)) got[1] = *at;
  HP_FAIL(HP_ERR_ARG,
          "einsum \"%.*s\": at character %d there is %s, expected %s; write two operands and the "
          "result, as in \"mk,kn->mn\"",
          QUOTE, text, (int)(at - text) + 1, *at ? got : "the end", expected);
}

static hp_status check_result(const char *text, const einsum_eq *eq) {
  for (const char *c = eq->out; *c; c++)
    if (!strchr(eq->a, *c) && !strchr(eq->b, *c))
      HP_FAIL(HP_ERR_ARG,
              "einsum \"%.*s\": letter '%c' of the result is in neither operand (\"%s\", \"%s\"); "
              "its size is unknown",
              QUOTE, text, *c, eq->a, eq->b);
  return HP_OK;
}

hp_status einsum_parse(const char *text, einsum_eq *out) {
  einsum_eq eq = {0};
  const char *at = text;
  HP_TRY(read_letters(text, &at, "the first operand", eq.a));
  if (*at != ',') return refuse_text(text, at, "a letter or ','");
  at++;
  HP_TRY(read_letters(text, &at, "the second operand", eq.b));
  if (strncmp(at, "->", 2) != 0) return refuse_text(text, at, "a letter or \"->\"");
  at += 2;
  HP_TRY(read_letters(text, &at, "the result", eq.out));
  if (*at) return refuse_text(text, at, "a letter or the end");
  HP_TRY(check_result(text, &eq));
  *out = eq;
  return HP_OK;
}

char *einsum_print(const einsum_eq *eq, char text[EINSUM_TEXT_MAX]) {
  snprintf(text, EINSUM_TEXT_MAX, "%s,%s->%s", eq->a, eq->b, eq->out);
  return text;
}

einsum_role einsum_letter_role(const einsum_eq *eq, char letter) {
  if (!is_letter(letter)) return EINSUM_NONE;
  bool a = strchr(eq->a, letter), b = strchr(eq->b, letter), out = strchr(eq->out, letter);
  if (a && b) return out ? EINSUM_BATCH : EINSUM_INNER;
  if (a) return out ? EINSUM_ROW : EINSUM_SUM_A;
  if (b) return out ? EINSUM_COL : EINSUM_SUM_B;
  return EINSUM_NONE;
}

int einsum_letters(const einsum_eq *eq, einsum_role role, char letters[EINSUM_LETTERS_MAX + 1]) {
  int n = 0;
  for (const char *c = eq->a; *c; c++)
    if (einsum_letter_role(eq, *c) == role) letters[n++] = *c;
  for (const char *c = eq->b; *c; c++)
    if (!strchr(eq->a, *c) && einsum_letter_role(eq, *c) == role) letters[n++] = *c;
  letters[n] = 0;
  return n;
}

/* Adds an operand's letters and sizes to the table, or compares where they are known. */
static hp_status bind_operand(const einsum_eq *eq, const char *what, const char *letters,
                              const hp_shape *shape, einsum_sizes *s) {
  char text[EINSUM_TEXT_MAX];
  if (shape->rank != (int)strlen(letters))
    HP_FAIL(HP_ERR_SHAPE,
            "einsum \"%s\": %s \"%s\" has %d dims, its tensor has %d; give one letter to "
            "each dim",
            einsum_print(eq, text), what, letters, (int)strlen(letters), shape->rank);
  for (int i = 0; i < shape->rank; i++) {
    int64_t size = shape->dim[i];
    if (size < 0)
      HP_FAIL(HP_ERR_SHAPE, "einsum \"%s\": letter '%c' of %s has size %lld; sizes are 0 or more",
              einsum_print(eq, text), letters[i], what, (long long)size);
    char *known = strchr(s->letter, letters[i]);
    if (!known) {
      size_t n = strlen(s->letter);
      s->letter[n] = letters[i];
      s->size[n] = size;
    } else if (s->size[known - s->letter] != size) {
      HP_FAIL(
          HP_ERR_SHAPE,
          "einsum \"%s\": letter '%c' is %lld in the first operand and %lld in the second; they "
          "must be equal",
          einsum_print(eq, text), letters[i], (long long)s->size[known - s->letter],
          (long long)size);
    }
  }
  return HP_OK;
}

hp_status einsum_bind(const einsum_eq *eq, const hp_shape *a, const hp_shape *b,
                      einsum_sizes *out) {
  einsum_sizes s = {0};
  HP_TRY(bind_operand(eq, "the first operand", eq->a, a, &s));
  HP_TRY(bind_operand(eq, "the second operand", eq->b, b, &s));
  *out = s;
  return HP_OK;
}

int64_t einsum_size(const einsum_sizes *s, char letter) {
  const char *at = letter ? strchr(s->letter, letter) : NULL;
  return at ? s->size[at - s->letter] : 1;
}

hp_status einsum_out_shape(const einsum_eq *eq, const hp_shape *a, const hp_shape *b,
                           hp_shape *out) {
  einsum_sizes s;
  HP_TRY(einsum_bind(eq, a, b, &s));
  hp_shape r = {.rank = (int)strlen(eq->out)};
  int64_t elements = 1;
  for (int i = 0; i < r.rank; i++) {
    r.dim[i] = einsum_size(&s, eq->out[i]);
    if (__builtin_mul_overflow(elements, r.dim[i] ? r.dim[i] : 1, &elements) ||
        elements > INT64_MAX / 8) {
      char text[EINSUM_TEXT_MAX];
      HP_FAIL(HP_ERR_SHAPE, "einsum \"%s\": the result has more elements than any memory can hold",
              einsum_print(eq, text));
    }
  }
  *out = r;
  return HP_OK;
}

void einsum_grad_of(const einsum_eq *eq, int operand, einsum_grad *out) {
  const char *own = operand ? eq->b : eq->a;
  einsum_role alone = operand ? EINSUM_SUM_B : EINSUM_SUM_A;
  einsum_grad g = {0};
  memcpy(operand ? g.eq.b : g.eq.a, eq->out, sizeof eq->out);
  memcpy(operand ? g.eq.a : g.eq.b, operand ? eq->a : eq->b, sizeof eq->a);
  int kept = 0, missing = 0;
  for (const char *c = own; *c; c++) {
    if (einsum_letter_role(eq, *c) == alone) g.missing[missing++] = *c;
    else g.eq.out[kept++] = *c;
  }
  *out = g;
}
