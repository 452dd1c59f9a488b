/* Parser of a program's text form. */
#include "ir/scan.h"
#include "prog/program.h"

#include <string.h>

enum { OPERANDS_MAX = 255, BUFFERS_MAX = 1 << 24 };

typedef struct {
  scanner s;
  program *p;
  program_lines *lines; /* NULL: nobody asks */
} parser;

static hp_status tier(parser *q, const char *word, int *out) {
  for (int t = 0; t < TIER_COUNT; t++)
    if (!strcmp(word, tier_name(t))) {
      *out = t;
      return HP_OK;
    }
  return scan_fail(&q->s, "\"%s\" is not device, host or flash", word);
}

static hp_status keyword(parser *q, const char *want) {
  char word[SCAN_WORD];
  HP_TRY(scan_word(&q->s, word));
  if (strcmp(word, want)) return scan_fail(&q->s, "expected %s, found \"%s\"", want, word);
  return HP_OK;
}

/* arena device 4096 bound 4096 at 17: before the buffers that lie in it. */
static hp_status arena_line(parser *q) {
  char word[SCAN_WORD];
  uint64_t at;
  int t = TIER_DEVICE;
  HP_TRY(scan_word(&q->s, word));
  HP_TRY(tier(q, word, &t));
  if (q->p->buffers.len || q->p->arena[t])
    return scan_fail(&q->s, "an arena is described once, before the buffers");
  HP_TRY(scan_count(&q->s, INT64_MAX, &q->p->arena[t]));
  HP_TRY(keyword(q, "bound"));
  HP_TRY(scan_count(&q->s, INT64_MAX, &q->p->bound[t]));
  HP_TRY(keyword(q, "at"));
  HP_TRY(scan_count(&q->s, UINT32_MAX, &at));
  q->p->bound_at[t] = (uint32_t)at;
  return scan_end_of_line(&q->s);
}

/* "b12": a buffer that exists. */
static hp_status buffer_id(parser *q, uint32_t *out) {
  uint64_t n;
  HP_TRY(scan_expect(&q->s, 'b'));
  HP_TRY(scan_count(&q->s, UINT32_MAX, &n));
  if (n >= q->p->buffers.len)
    return scan_fail(&q->s, "b%llu is used before it is described", (unsigned long long)n);
  *out = (uint32_t)n;
  return HP_OK;
}

static hp_status intern_text(parser *q, uint32_t *out) {
  *out = graph_string(q->p->names, q->s.text.at);
  return graph_status(q->p->names);
}

/* "b3", or "b3+1024": a part of it. */
static hp_status buffer_view(parser *q, prog_buffer *b) {
  uint32_t root;
  ir_value type = b->type;
  uint64_t bytes = b->bytes, at = 0;
  HP_TRY(buffer_id(q, &root));
  if (scan_accept(&q->s, '+')) HP_TRY(scan_count(&q->s, INT64_MAX, &at));
  *b = q->p->buffers.at[root];
  if (b->root != root || bytes > b->bytes || at > b->bytes - bytes)
    return scan_fail(&q->s, "a view must be inside its root b%u, and the root must not be a view",
                     root);
  b->type = type;
  b->bytes = bytes;
  b->at = at;
  b->offset += at;
  return HP_OK;
}

/* " state", or with the tier that it stays in: " state flash". */
static hp_status state_tier(parser *q, prog_buffer *b) {
  char word[SCAN_WORD];
  b->place = PLACE_STATE;
  scan_blanks(&q->s);
  const char *start = q->s.at;
  if (!scan_is_word(scan_peek(&q->s))) return HP_OK;
  HP_TRY(scan_word(&q->s, word));
  for (int t = 0; t < TIER_COUNT; t++)
    if (!strcmp(word, tier_name(t))) {
      b->tier = (uint8_t)t;
      return HP_OK;
    }
  q->s.at = start; /* another word of a buffer */
  return HP_OK;
}

/* " view b3", or the place of a buffer of its own. */
static hp_status buffer_place(parser *q, prog_buffer *b) {
  char word[SCAN_WORD];
  int t = TIER_DEVICE;
  HP_TRY(scan_word(&q->s, word));
  if (!strcmp(word, "view")) return buffer_view(q, b);
  if (!strcmp(word, "state")) return state_tier(q, b);
  HP_TRY(tier(q, word, &t));
  b->tier = (uint8_t)t;
  HP_TRY(scan_expect(&q->s, '+'));
  HP_TRY(scan_count(&q->s, INT64_MAX, &b->offset));
  if (b->bytes > q->p->arena[t] || b->offset > q->p->arena[t] - b->bytes)
    return scan_fail(&q->s, "the buffer is not inside its arena of %llu bytes",
                     (unsigned long long)q->p->arena[t]);
  return HP_OK;
}

static hp_status buffer_word(parser *q, prog_buffer *b, const char *word) {
  uint64_t v;
  if (!strcmp(word, "workspace")) b->flags |= BUFFER_WORKSPACE;
  else if (!strcmp(word, "input")) b->flags |= BUFFER_INPUT;
  else if (!strcmp(word, "output")) b->flags |= BUFFER_OUTPUT;
  else if (!strcmp(word, "carried_in")) b->flags |= BUFFER_CARRIED_IN;
  else if (!strcmp(word, "carried_out")) b->flags |= BUFFER_CARRIED_OUT;
  else if (!strcmp(word, "of")) {
    uint32_t state;
    HP_TRY(scan_expect(&q->s, '='));
    HP_TRY(buffer_id(q, &state));
    b->carries = state + 1;
  } else if (!strcmp(word, "class")) {
    HP_TRY(scan_expect(&q->s, '='));
    HP_TRY(scan_count(&q->s, UINT8_MAX, &v));
    b->class = (uint8_t)v;
  } else return scan_fail(&q->s, "\"%s\" is not known of a buffer", word);
  return HP_OK;
}

static hp_status buffer_line(parser *q) {
  char word[SCAN_WORD];
  uint64_t n;
  prog_buffer b = {.root = (uint32_t)q->p->buffers.len};
  HP_TRY(scan_count(&q->s, BUFFERS_MAX, &n));
  if (n != q->p->buffers.len)
    return scan_fail(&q->s, "expected b%zu: buffers are numbered in order", q->p->buffers.len);
  HP_TRY(scan_expect(&q->s, '='));
  HP_TRY(scan_type(&q->s, &b.type));
  b.bytes = (uint64_t)value_bytes(&b.type);
  HP_TRY(buffer_place(q, &b));
  for (scan_blanks(&q->s); b.root == n; scan_blanks(&q->s)) {
    if (scan_peek(&q->s) == '"') {
      HP_TRY(scan_string(&q->s));
      HP_TRY(intern_text(q, &b.name));
    } else if (scan_is_word(scan_peek(&q->s))) {
      HP_TRY(scan_word(&q->s, word));
      HP_TRY(buffer_word(q, &b, word));
    } else break;
  }
  if (b.place == PLACE_STATE && !b.name) return scan_fail(&q->s, "a state buffer needs a name");
  if (!vec_push(&q->p->buffers, b)) return HP_ERR_OOM;
  if (q->lines && !vec_push(&q->lines->buffer, (uint32_t)q->s.line)) return HP_ERR_OOM;
  return scan_end_of_line(&q->s);
}

static hp_status buffer_list(parser *q, uint32_t *id, int *n) {
  *n = 0;
  for (scan_blanks(&q->s); scan_peek(&q->s) == 'b'; scan_blanks(&q->s)) {
    const char *start = q->s.at;
    char word[SCAN_WORD];
    HP_TRY(scan_word(&q->s, word)); /* an op may begin with b too: "broadcast" */
    bool is_id = word[1] >= '0' && word[1] <= '9';
    q->s.at = start;
    if (!is_id) return HP_OK;
    if (*n == OPERANDS_MAX) return scan_fail(&q->s, "more than %d buffers", OPERANDS_MAX);
    HP_TRY(buffer_id(q, &id[(*n)++]));
    if (!scan_accept(&q->s, ',')) return HP_OK;
  }
  return HP_OK;
}

static hp_status wait_word(parser *q, prog_inst *n) {
  char word[SCAN_WORD];
  uint64_t position;
  vclock_wait w = {.stream = STREAM_COUNT};
  HP_TRY(scan_word(&q->s, word));
  for (uint32_t s = 0; s < STREAM_COUNT; s++)
    if (!strcmp(word, stream_name(s))) w.stream = s;
  if (w.stream == STREAM_COUNT) return scan_fail(&q->s, "\"%s\" is not a stream", word);
  HP_TRY(scan_expect(&q->s, ':'));
  HP_TRY(scan_count(&q->s, UINT32_MAX - 1, &position));
  w.position = (uint32_t)position;
  if (n->n_wait == UINT16_MAX) return scan_fail(&q->s, "too many waits");
  n->n_wait++;
  return vec_push(&q->p->waits, w) ? HP_OK : HP_ERR_OOM;
}

static hp_status small(parser *q, uint64_t most, uint16_t *out) {
  uint64_t v;
  HP_TRY(scan_count(&q->s, most, &v));
  *out = (uint16_t)v;
  return HP_OK;
}

static hp_status phase_word(parser *q, prog_inst *n) {
  static const char *const name[] = {"forward", "backward", "update"};
  char word[SCAN_WORD];
  HP_TRY(scan_word(&q->s, word));
  for (int i = 0; i < 3; i++)
    if (!strcmp(word, name[i])) {
      n->phase = (uint8_t)i;
      return HP_OK;
    }
  return scan_fail(&q->s, "phase is forward, backward or update");
}

static hp_status micro_word(parser *q, prog_inst *n) {
  uint64_t v;
  HP_TRY(scan_count(&q->s, UINT32_MAX - 1, &v));
  n->micro = (uint32_t)v + 1;
  return HP_OK;
}

static hp_status inst_key(parser *q, prog_inst *n, const char *key) {
  char word[SCAN_WORD];
  uint16_t v;
  if (!strcmp(key, "workspace")) return buffer_id(q, &n->workspace);
  if (!strcmp(key, "wait")) return wait_word(q, n);
  if (!strcmp(key, "phase")) return phase_word(q, n);
  if (!strcmp(key, "micro")) return micro_word(q, n);
  if (!strcmp(key, "block")) return small(q, UINT16_MAX, &n->block);
  if (!strcmp(key, "stage")) return small(q, UINT16_MAX, &n->stage);
  if (!strcmp(key, "flops")) return scan_number(&q->s, &n->flops);
  if (!strcmp(key, "bytes")) return scan_number(&q->s, &n->bytes);
  if (!strcmp(key, "engine")) {
    HP_TRY(scan_word(&q->s, word));
    n->engine = graph_string(q->p->names, word);
    return graph_status(q->p->names);
  }
  if (strcmp(key, "group")) return scan_fail(&q->s, "\"%s\" is not known of an instruction", key);
  HP_TRY(small(q, UINT8_MAX, &v));
  n->group = (uint8_t)v;
  return HP_OK;
}

/* What follows the operands: attributes, keys, place. */
static hp_status inst_rest(parser *q, prog_inst *n) {
  char key[SCAN_WORD];
  HP_TRY(scan_attributes(&q->s, q->p->names, (op_id)n->op, &n->attr));
  for (scan_blanks(&q->s);; scan_blanks(&q->s)) {
    if (scan_accept(&q->s, '@')) {
      HP_TRY(scan_string(&q->s));
      HP_TRY(intern_text(q, &n->loc));
    } else if (scan_is_word(scan_peek(&q->s))) {
      HP_TRY(scan_word(&q->s, key));
      HP_TRY(scan_expect(&q->s, '='));
      HP_TRY(inst_key(q, n, key));
    } else return scan_end_of_line(&q->s);
  }
}

static hp_status inst_line(parser *q, uint32_t stream) {
  uint32_t out[OPERANDS_MAX], in[OPERANDS_MAX];
  int n_out, n_in;
  char word[SCAN_WORD];
  program *p = q->p;
  prog_inst n = {.stream = (uint8_t)stream,
                 .arg0 = (uint32_t)p->args.len,
                 .workspace = PROG_NONE,
                 .kernel = (uint32_t)p->insts.len,
                 .wait0 = (uint32_t)p->waits.len};
  HP_TRY(scan_expect(&q->s, ':'));
  HP_TRY(buffer_list(q, out, &n_out));
  if (n_out) HP_TRY(scan_expect(&q->s, '='));
  HP_TRY(scan_word(&q->s, word));
  op_id op = op_find(word, strlen(word));
  if (!op) return scan_fail(&q->s, "\"%s\" is not an op", word);
  HP_TRY(buffer_list(q, in, &n_in));
  const op_row *row = &op_table[op];
  int makes = op_results(op, n_in);
  if (n_in < row->in_min || n_in > row->in_max || (makes >= 0 && n_out != makes))
    return scan_fail(&q->s, "%s has %d operands and %d results", word, n_in, n_out);
  n.op = (uint16_t)op;
  n.n_in = (uint8_t)n_in;
  n.n_out = (uint8_t)n_out;
  for (int i = 0; i < n_in + n_out; i++)
    if (!vec_push(&p->args, i < n_in ? in[i] : out[i - n_in])) return HP_ERR_OOM;
  HP_TRY(inst_rest(q, &n));
  if (q->lines && !vec_push(&q->lines->inst, (uint32_t)q->s.line)) return HP_ERR_OOM;
  return vec_push(&p->insts, n) ? HP_OK : HP_ERR_OOM;
}

static hp_status line(parser *q) {
  char word[SCAN_WORD];
  if (scan_peek(&q->s) == 'b' && q->s.end - q->s.at > 1 && q->s.at[1] >= '0' && q->s.at[1] <= '9') {
    q->s.at++;
    return buffer_line(q);
  }
  HP_TRY(scan_word(&q->s, word));
  if (!strcmp(word, "arena")) return arena_line(q);
  for (uint32_t s = 0; s < STREAM_COUNT; s++)
    if (!strcmp(word, stream_name(s))) return inst_line(q, s);
  return scan_fail(&q->s, "\"%s\" is not arena, a buffer or a stream", word);
}

hp_status program_parse_lines(const char *text, size_t n, const char *name, program **out,
                              program_lines *lines) {
  parser q = {.s = scan_begin(text, n, name), .lines = lines};
  HP_TRY(program_create(NULL, &q.p));
  hp_status st = HP_OK;
  while (!st && scan_next_line(&q.s)) st = line(&q);
  scan_free(&q.s);
  if (st) program_free(q.p);
  else *out = q.p;
  return st;
}

hp_status program_parse(const char *text, size_t n, const char *name, program **out) {
  return program_parse_lines(text, n, name, out, NULL);
}

void program_lines_free(program_lines *l) {
  vec_free(&l->buffer);
  vec_free(&l->inst);
}
