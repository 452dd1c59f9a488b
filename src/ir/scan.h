/* Characters to words, numbers, strings, types and attributes: what the text forms of graph and
 * program are made of.  Every failure names file, line and column. */
#ifndef IR_SCAN_H
#define IR_SCAN_H

#include "ir/attr.h"

enum { SCAN_WORD = 64 };

typedef struct {
  const char *name, *at, *end, *line_start;
  int line;
  str text; /* of the last string */
} scanner;

scanner scan_begin(const char *text, size_t n, const char *name);
void scan_free(scanner *s);

hp_status scan_fail(const scanner *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The next character as it is; -1 at the end. */
int scan_peek(const scanner *s);
void scan_blanks(scanner *s);
/* After blanks: takes c if it is there. */
bool scan_accept(scanner *s, char c);
hp_status scan_expect(scanner *s, char c);
bool scan_is_word(int c); /* letters, digits, _ */
hp_status scan_word(scanner *s, char out[SCAN_WORD]);
hp_status scan_integer(scanner *s, int64_t *out);
/* An integer of 0 .. most. */
hp_status scan_count(scanner *s, uint64_t most, uint64_t *out);
hp_status scan_number(scanner *s, double *out);
/* A quoted string into s->text. */
hp_status scan_string(scanner *s);
/* "f32[2,3]" */
hp_status scan_type(scanner *s, ir_value *v);
/* The attributes of the op's row in its order; 0 for a row without. */
hp_status scan_attributes(scanner *s, hp_graph *g, op_id op, uint32_t *out);
/* Goes to the next line that is not blank or a comment; false at the end of the text. */
bool scan_next_line(scanner *s);
/* The rest of the line must be blank or a comment. */
hp_status scan_end_of_line(scanner *s);

#endif
