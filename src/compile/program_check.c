#include "compile/program_check.h"

#include "compile/inplace.h"
#include "compile/lower.h"
#include "ops/ops.h"
#include "prog/tier_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  uint64_t from, to; /* bytes [from, to) of a root buffer */
} range;

typedef struct {
  range bytes;
  uint32_t inst;
  bool write;
} access;

typedef VEC(range) ranges;
typedef VEC(access) accesses;

typedef struct {
  program *p;
  const char *name;
  const program_lines *lines;
  hp_graph *g;     /* buffers as values and instructions as nodes, for the rules of ops */
  val *value;      /* by buffer */
  bool *workspace; /* by buffer: the workspace of an instruction */
  vclock clock;
  bool one_stream;
  ranges *written;   /* by root buffer: sorted and apart */
  accesses *touched; /* by root buffer, in the order of instructions */
} checker;

/* --- failures -------------------------------------------------------------------------------- */

/* line 0: the program as a whole. */
static hp_status refuse(const checker *c, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static hp_status refuse(const checker *c, uint32_t line, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (!line) HP_FAIL(HP_ERR_INPUT, "%s: %s", c->name, text);
  HP_FAIL(HP_ERR_INPUT, "%s:%u: %s", c->name, line, text);
}

static uint32_t line_of(const checker *c, uint32_t inst) { return c->lines->inst.at[inst]; }

/* The current failure again, with its place in the file. */
static hp_status refuse_again(const checker *c, uint32_t line, hp_status st) {
  char why[512];
  if (st == HP_ERR_OOM) return st;
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  return refuse(c, line, "%s", why);
}

/* --- buffers --------------------------------------------------------------------------------- */

/* An input, an output, or a value in between. */
static hp_status check_place(const checker *c, uint32_t b) {
  enum { ALIGN = 256 };
  const prog_buffer *f = &c->p->buffers.at[b];
  uint32_t line = c->lines->buffer.at[b];
  bool io = f->flags & (BUFFER_INPUT | BUFFER_OUTPUT);
  if (io && !*program_str(c->p, f->name))
    return refuse(c, line, "b%u is an input or output without a name", b);
  if (f->flags & BUFFER_INPUT && f->flags & BUFFER_OUTPUT)
    return refuse(c, line, "\"%s\" is both input and output; an output is a buffer of its own",
                  program_str(c->p, f->name));
  if (io && f->tier == TIER_FLASH)
    return refuse(c, line, "\"%s\" is on tier flash, which callers do not reach; copy it",
                  program_str(c->p, f->name));
  uint64_t room = c->p->arena[f->tier], taken = (f->bytes + ALIGN - 1) / ALIGN * ALIGN;
  if (f->offset % ALIGN || taken > room || f->offset > room - taken)
    return refuse(c, line, "b%u takes %llu bytes from a multiple of %d in an arena of %llu", b,
                  (unsigned long long)taken, ALIGN, (unsigned long long)room);
  return HP_OK;
}

/* What a run finds in work memory, and leaves there, of a named tensor: it is copied as a whole. */
static hp_status check_carried(const checker *c, uint32_t b) {
  const prog_buffer *f = &c->p->buffers.at[b], *of;
  const int carried = BUFFER_CARRIED_IN | BUFFER_CARRIED_OUT;
  const int other = BUFFER_INPUT | BUFFER_OUTPUT | BUFFER_WORKSPACE;
  uint32_t line = c->lines->buffer.at[b];
  if (!f->carries && !(f->flags & carried)) return HP_OK;
  of = f->carries && f->carries <= c->p->buffers.len ? &c->p->buffers.at[f->carries - 1] : NULL;
  if (!of || of->place != PLACE_STATE)
    return refuse(c, line, "b%u is carried, but of no named tensor", b);
  if (f->flags & other || f->place != PLACE_WORK || f->tier != TIER_DEVICE)
    return refuse(c, line, "b%u carries b%u and is no plain buffer of the device", b,
                  f->carries - 1);
  if (f->root == b && f->bytes != of->bytes)
    return refuse(c, line, "b%u has %llu bytes, and b%u, which it carries, %llu", b,
                  (unsigned long long)f->bytes, f->carries - 1, (unsigned long long)of->bytes);
  return HP_OK;
}

static hp_status check_buffer(const checker *c, uint32_t b, bool after_workspace) {
  const prog_buffer *f = &c->p->buffers.at[b];
  uint32_t line = c->lines->buffer.at[b];
  bool io = f->flags & (BUFFER_INPUT | BUFFER_OUTPUT), workspace = f->flags & BUFFER_WORKSPACE;
  if (workspace &&
      (f->root != b || f->place != PLACE_WORK || f->tier != TIER_DEVICE || f->name || io))
    return refuse(c, line, "workspace b%u is a plain buffer of the device", b);
  HP_TRY(check_carried(c, b));
  if (after_workspace && !workspace)
    return refuse(c, line, "b%u follows a workspace; workspaces come last", b);
  if (f->root != b || f->place == PLACE_STATE)
    return f->root == b && io ? refuse(c, line, "state b%u is no input or output", b) : HP_OK;
  return check_place(c, b);
}

/* Names of inputs, outputs and tensors of the device are distinct. */
static hp_status check_names(const checker *c) {
  map seen[2] = {{0}, {0}};
  hp_status st = HP_OK;
  for (uint32_t b = 0, first; !st && b < c->p->buffers.len; b++) {
    const prog_buffer *f = &c->p->buffers.at[b];
    bool state = f->place == PLACE_STATE;
    if (f->root != b || !(state || f->flags & (BUFFER_INPUT | BUFFER_OUTPUT))) continue;
    const char *name = program_str(c->p, f->name);
    if (map_get(&seen[state], name, strlen(name), &first))
      st = refuse(c, c->lines->buffer.at[b], "\"%s\" is b%u already", name, first);
    else st = map_set(&seen[state], name, strlen(name), b);
  }
  map_free(&seen[0]);
  map_free(&seen[1]);
  return st;
}

static hp_status check_buffers(const checker *c) {
  bool workspace = false;
  for (uint32_t b = 0; b < c->p->buffers.len; b++) {
    HP_TRY(check_buffer(c, b, workspace));
    workspace |= (c->p->buffers.at[b].flags & BUFFER_WORKSPACE) != 0;
  }
  return check_names(c);
}

/* --- instructions: types --------------------------------------------------------------------- */

/* A node that represents the maker of the buffer, under its name if it has one. */
static hp_status add_value(checker *c, uint32_t b) {
  const prog_buffer *f = &c->p->buffers.at[b];
  attr_record a = {0};
  uint32_t attr = 0;
  if (f->name) {
    attr_put_str(&a, c->g, program_str(c->p, f->name));
    attr_put_int(&a, f->type.dtype);
    attr_put_list(&a, f->type.dim, f->type.rank);
    attr = attr_intern(c->g, &a);
  }
  c->value[b] = graph_add(c->g, f->name ? OP_INPUT : OP_CONST, NULL, 0, attr, &f->type, 1);
  return graph_status(c->g);
}

static bool is_copy(const prog_inst *n) {
  return n->op == OP_COPY || op_flags((op_id)n->op) & OPF_MOVE;
}

/* A loop by the host's processors. */
static bool is_on_host(const prog_inst *n) { return n->stream == STREAM_HOST && n->op == OP_FUSED; }

static hp_status check_operands(const checker *c, uint32_t i) {
  const prog_inst *n = program_inst(c->p, i);
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    const prog_buffer *f = program_arg(c->p, n, k);
    if (f->flags & BUFFER_WORKSPACE)
      return refuse(c, line_of(c, i), "b%u is a workspace, and no operand or result", f->root);
    if (f->tier != (is_on_host(n) ? TIER_HOST : TIER_DEVICE) && !is_copy(n))
      return refuse(c, line_of(c, i), "%s reaches into tier %s; only copies do",
                    op_table[n->op].name, tier_name(f->tier));
  }
  if (is_copy(n) && tier_copy_of(c->p, n).from->tier == TIER_FLASH &&
      tier_copy_of(c->p, n).to->tier == TIER_FLASH)
    return refuse(c, line_of(c, i), "%s copies within tier flash; go through another tier",
                  op_table[n->op].name);
  if (n->workspace == PROG_NONE) return HP_OK;
  if (!(c->p->buffers.at[n->workspace].flags & BUFFER_WORKSPACE) || c->workspace[n->workspace])
    return refuse(c, line_of(c, i), "b%u is no workspace, or another instruction's", n->workspace);
  c->workspace[n->workspace] = true;
  return HP_OK;
}

static hp_status check_types(checker *c, uint32_t i) {
  const prog_inst *n = program_inst(c->p, i);
  const uint32_t *arg = program_args(c->p, n);
  val in[255];
  ir_value out[255];
  if (n->op == OP_FUSED) return HP_OK; /* the target checks the accesses of loops */
  for (int k = 0; k < n->n_in; k++) in[k] = c->value[arg[k]];
  for (int k = 0; k < n->n_out; k++) out[k] = c->p->buffers.at[arg[n->n_in + k]].type;
  c->g->loc = n->loc;
  graph_add(c->g, n->op, in, n->n_in, n->attr, out, n->n_out);
  HP_TRY(graph_status(c->g));
  hp_status st = ops_verify_node(c->g, (uint32_t)c->g->nodes.len - 1);
  return st ? refuse_again(c, line_of(c, i), st) : HP_OK;
}

static hp_status check_inst(checker *c, uint32_t i) {
  const prog_inst *n = program_inst(c->p, i);
  if (op_flags((op_id)n->op) & (OPF_COLLECTIVE | OPF_RENDEZVOUS | OPF_TRANSFER))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s:%u: %s is of a program of several devices; one read from text runs on one device: "
            "compile it for one (devices=1)",
            c->name, line_of(c, i), op_table[n->op].name);
  if (n->stream != STREAM_COMPUTE && !is_on_host(n) && !is_copy(n))
    return refuse(c, line_of(c, i), "%s runs on stream compute, not on %s", op_table[n->op].name,
                  stream_name(n->stream));
  HP_TRY(check_operands(c, i));
  return check_types(c, i);
}

/* --- instructions: order and memory ---------------------------------------------------------- */

static bool overlap(range a, range b) { return a.from < b.to && b.from < a.to; }

static range range_of(const prog_buffer *f) { return (range){f->at, f->at + f->bytes}; }

static bool shares_bytes(const prog_buffer *a, const prog_buffer *b) {
  return a->root == b->root && overlap(range_of(a), range_of(b));
}

/* Results of one instruction do not overlap, and overwrite an operand only if the kernel allows
 * it. */
static hp_status check_in_place(const checker *c, uint32_t i) {
  const prog_inst *n = program_inst(c->p, i);
  for (int o = 0; o < n->n_out; o++) {
    const prog_buffer *out = program_arg(c->p, n, n->n_in + o);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      const prog_buffer *f = program_arg(c->p, n, k);
      if (k == n->n_in + o || !shares_bytes(f, out)) continue;
      bool fits = k < n->n_in && f->at == out->at && f->bytes == out->bytes;
      if (!fits || !inplace_inst(c->p, n, k, o))
        return refuse(c, line_of(c, i), "result %d of %s overlaps operand or result %d", o,
                      op_table[n->op].name, k);
    }
  }
  return HP_OK;
}

static hp_status add_written(checker *c, uint32_t root, range x) {
  size_t i = 0, j;
  if (x.from == x.to) return HP_OK;
  if (!vec_reserve(&c->written[root], 1)) return HP_ERR_OOM;
  range *at = c->written[root].at;
  size_t n = c->written[root].len;
  while (i < n && at[i].to < x.from) i++;
  for (j = i; j < n && at[j].from <= x.to; j++) {
    if (at[j].from < x.from) x.from = at[j].from;
    if (at[j].to > x.to) x.to = at[j].to;
  }
  memmove(at + i + 1, at + j, (n - j) * sizeof *at);
  at[i] = x;
  c->written[root].len = n - (j - i) + 1;
  return HP_OK;
}

static bool is_written(const checker *c, uint32_t root, range x) {
  if (x.from == x.to) return true;
  for (size_t i = 0; i < c->written[root].len; i++) {
    range w = c->written[root].at[i];
    if (w.from <= x.from && x.to <= w.to) return true;
  }
  return false;
}

/* Earlier users of the same bytes have finished, if one of the uses is a write. */
static hp_status check_race(checker *c, uint32_t root, access a) {
  if (c->one_stream) return HP_OK;
  for (size_t k = 0; k < c->touched[root].len; k++) {
    access b = c->touched[root].at[k];
    if (a.inst == b.inst || !(a.write || b.write) || !overlap(a.bytes, b.bytes)) continue;
    if (!vclock_before(&c->clock, b.inst, a.inst))
      return refuse(c, line_of(c, a.inst), "b%u is used by line %u as well, and nothing waits",
                    root, line_of(c, b.inst));
  }
  return vec_push(&c->touched[root], a) ? HP_OK : HP_ERR_OOM;
}

static hp_status check_accesses(checker *c, uint32_t i) {
  const prog_inst *n = program_inst(c->p, i);
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    const prog_buffer *f = program_arg(c->p, n, k);
    bool write = k >= n->n_in;
    if (write) HP_TRY(add_written(c, f->root, range_of(f)));
    else if (!is_written(c, f->root, range_of(f)))
      return refuse(c, line_of(c, i), "b%u is read before it is written", program_args(c->p, n)[k]);
    HP_TRY(check_race(c, f->root, (access){range_of(f), i, write}));
  }
  return check_in_place(c, i);
}

static hp_status check_order(checker *c) {
  const program *p = c->p;
  hp_status st = program_clock(p, STREAM_COUNT, &c->clock);
  if (st) return refuse_again(c, 0, st);
  for (uint32_t i = 0; i < p->insts.len; i++)
    if (c->clock.rank[i] != i)
      return refuse(c, line_of(c, i), "instructions wait for what is listed behind them");
  c->one_stream = program_has_one_stream(p);
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->root == b && (f->place == PLACE_STATE || f->flags & (BUFFER_INPUT | BUFFER_CARRIED_IN)))
      HP_TRY(add_written(c, b, range_of(f)));
  }
  for (uint32_t i = 0; i < p->insts.len; i++) HP_TRY(check_accesses(c, i));
  for (uint32_t b = 0; b < p->buffers.len; b++) {
    const prog_buffer *f = &p->buffers.at[b];
    if (f->root == b && f->flags & BUFFER_OUTPUT && !is_written(c, b, range_of(f)))
      return refuse(c, c->lines->buffer.at[b], "output \"%s\" is never written",
                    program_str(p, f->name));
    if (f->root == b && f->flags & BUFFER_CARRIED_OUT && !is_written(c, b, range_of(f)))
      return refuse(c, c->lines->buffer.at[b], "b%u is carried to the next run and never written",
                    b);
  }
  st = verify_memory(c->p);
  return st ? refuse_again(c, 0, st) : HP_OK;
}

static void checker_free(checker *c) {
  for (size_t b = 0; b < c->p->buffers.len; b++) {
    if (c->written) vec_free(&c->written[b]);
    if (c->touched) vec_free(&c->touched[b]);
  }
  mem_free(c->written);
  mem_free(c->touched);
  mem_free(c->value);
  mem_free(c->workspace);
  vclock_free(&c->clock);
  graph_free(c->g);
}

hp_status program_check(program *p, const char *name, const program_lines *lines) {
  checker c = {.p = p, .name = name, .lines = lines};
  size_t n = p->buffers.len;
  hp_status st = graph_create(p->names, &c.g);
  c.value = mem_calloc(n, sizeof *c.value);
  c.workspace = mem_calloc(n, sizeof *c.workspace);
  c.written = mem_calloc(n, sizeof *c.written);
  c.touched = mem_calloc(n, sizeof *c.touched);
  if (!c.value || !c.workspace || !c.written || !c.touched) st = HP_ERR_OOM;
  if (!st) st = check_buffers(&c);
  for (uint32_t b = 0; !st && b < n; b++) st = add_value(&c, b);
  for (uint32_t i = 0; !st && i < p->insts.len; i++) st = check_inst(&c, i);
  if (!st) st = check_order(&c);
  checker_free(&c);
  return st;
}
