/* Parser of the graph's text form: one line a node. */
#include "ir/print.h"
#include "ir/scan.h"

#include <string.h>

enum { OPERANDS_MAX = 255 };

typedef struct {
  scanner s;
  hp_graph *g;
  map ids;             /* number in the text -> value */
  VEC(int) lines;      /* by node */
  uint16_t recomputed; /* of the node at hand */
} parser;

/* "%7": the number behind the sign. */
static hp_status parse_id(parser *p, uint32_t *out) {
  uint64_t n;
  HP_TRY(scan_expect(&p->s, '%'));
  HP_TRY(scan_count(&p->s, UINT32_MAX, &n));
  *out = (uint32_t)n;
  return HP_OK;
}

static hp_status parse_phase(parser *p, const char *word) {
  static const char *const name[] = {"forward", "backward", "update"};
  for (int i = 0; i < 3; i++)
    if (!strcmp(word, name[i])) {
      p->g->phase = (uint8_t)i;
      return HP_OK;
    }
  return scan_fail(&p->s, "phase is forward, backward or update");
}

/* key=value of a node's place. */
static hp_status place_key(parser *p, const char *key) {
  char word[SCAN_WORD];
  uint64_t v;
  hp_graph *g = p->g;
  if (!strcmp(key, "phase")) {
    HP_TRY(scan_word(&p->s, word));
    return parse_phase(p, word);
  }
  HP_TRY(scan_count(&p->s, !strcmp(key, "group") ? UINT8_MAX : UINT16_MAX, &v));
  if (!strcmp(key, "block")) g->block = (uint16_t)v;
  else if (!strcmp(key, "stage")) g->stage = (uint16_t)v;
  else if (!strcmp(key, "group")) g->group = (uint8_t)v;
  else if (!strcmp(key, "recomputed")) p->recomputed = (uint16_t)v;
  else return scan_fail(&p->s, "\"%s\" is not known here", key);
  return HP_OK;
}

static void forget_place(hp_graph *g) {
  g->loc = 0;
  g->block = g->stage = 0;
  g->phase = g->group = 0;
}

/* @"place", then key=value pairs. */
static hp_status parse_place(parser *p) {
  char key[SCAN_WORD];
  forget_place(p->g);
  p->recomputed = 0;
  if (scan_accept(&p->s, '@')) {
    HP_TRY(scan_string(&p->s));
    p->g->loc = p->s.text.len ? graph_string(p->g, p->s.text.at) : 0;
  }
  for (scan_blanks(&p->s); scan_is_word(scan_peek(&p->s)); scan_blanks(&p->s)) {
    HP_TRY(scan_word(&p->s, key));
    HP_TRY(scan_expect(&p->s, '='));
    HP_TRY(place_key(p, key));
  }
  return HP_OK;
}

/* Does a list of "%7" begin here? */
static bool is_list(parser *p) {
  scan_blanks(&p->s);
  return scan_peek(&p->s) == '%';
}

static hp_status parse_operands(parser *p, val *in, int *n) {
  *n = 0;
  if (!is_list(p)) return HP_OK;
  do {
    uint32_t number, v;
    HP_TRY(parse_id(p, &number));
    if (!map_get(&p->ids, &number, sizeof number, &v))
      return scan_fail(&p->s, "%%%u is used before it is made", number);
    if (*n == OPERANDS_MAX) return scan_fail(&p->s, "more than %d operands", OPERANDS_MAX);
    in[(*n)++] = v;
  } while (scan_accept(&p->s, ','));
  return HP_OK;
}

static hp_status parse_results(parser *p, uint32_t *numbers, ir_value *out, int *n) {
  *n = 0;
  if (!is_list(p)) return HP_OK;
  do {
    uint32_t have;
    if (*n == OPERANDS_MAX) return scan_fail(&p->s, "more than %d results", OPERANDS_MAX);
    HP_TRY(parse_id(p, &numbers[*n]));
    bool twice = map_get(&p->ids, &numbers[*n], sizeof numbers[0], &have);
    for (int i = 0; i < *n; i++) twice |= numbers[i] == numbers[*n];
    if (twice) return scan_fail(&p->s, "%%%u is made twice", numbers[*n]);
    HP_TRY(scan_expect(&p->s, ':'));
    HP_TRY(scan_type(&p->s, &out[(*n)++]));
  } while (scan_accept(&p->s, ','));
  return scan_expect(&p->s, '=');
}

static hp_status parse_node(parser *p) {
  uint32_t numbers[OPERANDS_MAX], attr;
  ir_value out[OPERANDS_MAX];
  val in[OPERANDS_MAX];
  int n_out, n_in;
  char name[SCAN_WORD];
  HP_TRY(parse_results(p, numbers, out, &n_out));
  HP_TRY(scan_word(&p->s, name));
  op_id op = op_find(name, strlen(name));
  if (!op) return scan_fail(&p->s, "\"%s\" is not an op", name);
  HP_TRY(parse_operands(p, in, &n_in));
  const op_row *row = &op_table[op];
  if (n_in < row->in_min || n_in > row->in_max)
    return scan_fail(&p->s, "%s has %d operands, expects %d to %d", name, n_in, row->in_min,
                     row->in_max);
  int makes = op_results(op, n_in);
  if (makes >= 0 && n_out != makes)
    return scan_fail(&p->s, "%s has %d results, makes %d", name, n_out, makes);
  HP_TRY(scan_attributes(&p->s, p->g, op, &attr));
  HP_TRY(parse_place(p));
  val v = graph_add(p->g, op, in, n_in, attr, out, n_out);
  HP_TRY(graph_status(p->g));
  p->g->nodes.at[p->g->nodes.len - 1].recomputed = p->recomputed & graph_all_results(n_out);
  if (!vec_push(&p->lines, p->s.line)) return HP_ERR_OOM;
  for (int i = 0; i < n_out; i++)
    HP_TRY(map_set(&p->ids, &numbers[i], sizeof numbers[0], v + (val)i));
  return scan_end_of_line(&p->s);
}

static hp_status check_nodes(const parser *p, graph_check check) {
  err_report why;
  uint32_t node = 0;
  hp_status st = check(p->g, &node);
  if (!st) return HP_OK;
  err_take(st, &why);
  err_clear();
  HP_FAIL(st, "%s:%d: %s", p->s.name, node < p->lines.len ? p->lines.at[node] : 0, why.message);
}

hp_status graph_parse_checked(const char *text, size_t n, const char *name, graph_check check,
                              hp_graph **out) {
  parser p = {.s = scan_begin(text, n, name)};
  HP_TRY(graph_create(NULL, &p.g));
  hp_status st = HP_OK;
  while (!st && scan_next_line(&p.s)) st = parse_node(&p);
  if (!st && check) st = check_nodes(&p, check);
  map_free(&p.ids);
  vec_free(&p.lines);
  scan_free(&p.s);
  forget_place(p.g);
  if (st) graph_free(p.g);
  else *out = p.g;
  return st;
}

hp_status graph_parse(const char *text, size_t n, const char *name, hp_graph **out) {
  return graph_parse_checked(text, n, name, NULL, out);
}
