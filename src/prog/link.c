#include "prog/link.h"

#include "base/hash.h"
#include "prog/ahead.h"

#include <string.h>

/* A piece with its strings and attributes in the pool of the linked program. */
typedef struct {
  const program *p;
  prog_inst *inst; /* as they are copied into each row, but for arguments */
  uint8_t *action; /* by instruction */
  uint32_t *name;  /* by buffer */
  uint32_t
      *state;    /* by buffer: of named tensors and views of them, the one of the linked program */
  bool *crosses; /* by buffer: from or to another mesh */
  bool *leaves_out; /* by instruction: it copies a param that is sent as it is */
  uint8_t *part;    /* by instruction of the piece with the update: ahead_parts; NULL: another */
  uint32_t *next;   /* by buffer: in rows of the next step; NULL: `state` */
} adopted;

typedef struct {
  program *p;
  adopted *piece;
  size_t pieces;
  const link_transfer *transfer;
  size_t transfers;
  uint32_t *buffer; /* by transfer: of its piece */
  uint32_t kernels; /* of all pieces */
  bool micros;      /* there are several micro-batches */
  uint32_t row;     /* prog_inst.row of the row at hand */
  VEC(bool) made;   /* by buffer of the linked program: an instruction has written it */
  map io;           /* names of inputs and outputs so far */
  map work_of;      /* piece and micro-batch -> its first buffer of work memory */
  map state_of;     /* name -> buffer of the named tensor */
  map received;     /* name -> buffer of a param that another mesh has */
  map ahead;        /* name of a param -> buffer of its value in rows of the next step */
  VEC(ahead_range) range;
  uint32_t *own; /* of the row at hand: by buffer of the piece, the one of the linked program */
} linker;

static hp_status adopt_insts(linker *l, adopted *a, uint32_t kernel0) {
  a->inst = mem_calloc(a->p->insts.len, sizeof *a->inst);
  a->action = mem_calloc(a->p->insts.len, sizeof *a->action);
  a->leaves_out = mem_calloc(a->p->insts.len, sizeof *a->leaves_out);
  HP_TRY_MEM(a->inst && a->action && a->leaves_out);
  HP_TRY(program_actions(a->p, a->action));
  for (size_t i = 0; i < a->p->insts.len; i++) {
    prog_inst n = *program_inst(a->p, i);
    n.attr = attr_copy(l->p->names, a->p->names, n.op, n.attr);
    n.loc = n.loc ? graph_string(l->p->names, program_str(a->p, n.loc)) : 0;
    n.engine = n.engine ? graph_string(l->p->names, program_str(a->p, n.engine)) : 0;
    n.kernel += kernel0;
    a->inst[i] = n;
  }
  return graph_status(l->p->names);
}

/* The buffer of a named tensor, that of another piece where it has one. */
static hp_status adopt_state(linker *l, adopted *a, uint32_t b) {
  const prog_buffer *f = &a->p->buffers.at[b];
  const char *name = program_str(a->p, f->name);
  if (map_get(&l->state_of, name, strlen(name), &a->state[b])) {
    const prog_buffer *have = &l->p->buffers.at[a->state[b]];
    if (have->type.dtype == f->type.dtype && value_same_shape(&have->type, &f->type)) return HP_OK;
    str is = {0}, was = {0};
    value_print(&f->type, &is);
    value_print(&have->type, &was);
    hp_status st = err_set(HP_ERR_SHAPE, __FILE__, __LINE__,
                           "param \"%s\" is %s in one piece of the step, and %s in another", name,
                           is.at ? is.at : "?", was.at ? was.at : "?");
    str_free(&is);
    str_free(&was);
    return st;
  }
  a->state[b] = (uint32_t)l->p->buffers.len;
  HP_TRY(map_set(&l->state_of, name, strlen(name), a->state[b]));
  prog_buffer own = *f;
  own.root = a->state[b];
  own.name = a->name[b];
  return vec_push(&l->p->buffers, own) ? HP_OK : HP_ERR_OOM;
}

static hp_status adopt_view(linker *l, adopted *a, uint32_t b) {
  prog_buffer view = a->p->buffers.at[b];
  view.root = a->state[view.root];
  a->state[b] = (uint32_t)l->p->buffers.len;
  return vec_push(&l->p->buffers, view) ? HP_OK : HP_ERR_OOM;
}

static hp_status adopt_buffers(linker *l, adopted *a) {
  size_t n = a->p->buffers.len;
  a->name = mem_calloc(n, sizeof *a->name);
  a->state = mem_calloc(n, sizeof *a->state);
  a->crosses = mem_calloc(n, sizeof *a->crosses);
  if (!a->name || !a->state || !a->crosses) return HP_ERR_OOM;
  for (uint32_t b = 0; b < n; b++) {
    const prog_buffer *f = &a->p->buffers.at[b];
    a->state[b] = PROG_NONE;
    if (f->name) a->name[b] = graph_string(l->p->names, program_str(a->p, f->name));
    if (f->place == PLACE_STATE && f->root == b) HP_TRY(adopt_state(l, a, b));
  }
  for (uint32_t b = 0; b < n; b++) {
    const prog_buffer *f = &a->p->buffers.at[b];
    if (f->place == PLACE_STATE && f->root != b) HP_TRY(adopt_view(l, a, b));
  }
  return graph_status(l->p->names);
}

bool link_copies_state(const program *p, uint32_t inst) {
  const prog_inst *n = program_inst(p, inst);
  return n->op == OP_COPY && program_arg(p, n, 0)->place == PLACE_STATE;
}

bool link_has_micros(const link_rows *r) {
  for (size_t i = 1; i < r->rows; i++)
    if (r->row[i].microbatch != r->row[0].microbatch) return true;
  return false;
}

/* "NAME@3" */
static uint32_t name_in_row(linker *l, uint32_t name, uint32_t microbatch) {
  str s = {0};
  if (!l->micros) return name;
  str_printf(&s, "%s@%u", program_str(l->p, name), microbatch);
  uint32_t id = s.failed ? 0 : graph_string(l->p->names, s.at);
  str_free(&s);
  return id;
}

/* Pieces of a micro-batch have different names: a run gives and takes each once. */
static hp_status add_io(linker *l, uint32_t name, const link_row *row) {
  const char *text = program_str(l->p, name);
  uint32_t before;
  if (map_get(&l->io, text, strlen(text), &before))
    HP_FAIL(
        HP_ERR_ARG,
        "\"%s\" is an input or output of two pieces of micro-batch %u; give each piece names of "
        "its own",
        text, row->microbatch);
  return map_set(&l->io, text, strlen(text), 1);
}

/* The buffers of a micro-batch, in the order of the piece, from the first row of it on. */
static hp_status add_buffers(linker *l, const adopted *a, const link_row *row) {
  for (uint32_t b = 0; b < a->p->buffers.len; b++) {
    prog_buffer f = a->p->buffers.at[b];
    if (a->state[b] != PROG_NONE) continue;
    f.root = l->own[f.root];
    if (a->crosses[b]) {
      f.name = 0;
      f.flags &= (uint8_t) ~(BUFFER_INPUT | BUFFER_OUTPUT);
    }
    f.name = f.name ? name_in_row(l, a->name[b], row->microbatch) : 0;
    if (f.name && f.root == l->own[b]) HP_TRY(add_io(l, f.name, row));
    if (!vec_push(&l->p->buffers, f)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status find_buffers(linker *l, const adopted *a, const link_row *row) {
  const uint64_t key = (uint64_t)row->piece << 32 | row->microbatch;
  uint32_t next = (uint32_t)l->p->buffers.len;
  bool known = map_get(&l->work_of, &key, sizeof key, &next);
  if (!known) HP_TRY(map_set(&l->work_of, &key, sizeof key, next));
  const uint32_t *named = row->ahead == AHEAD_NEXT && a->next ? a->next : a->state;
  for (uint32_t b = 0; b < a->p->buffers.len; b++)
    l->own[b] = a->state[b] != PROG_NONE ? named[b] : next++;
  return known ? HP_OK : add_buffers(l, a, row);
}

/* Rows of stages may be in an order in which a value is read before it is made: then the stages of
 * the graph do not follow each other. */
static hp_status check_made(linker *l, const prog_inst *n, const link_row *row) {
  const uint32_t *arg = &l->p->args.at[n->arg0];
  if (!vec_reserve(&l->made, l->p->buffers.len - l->made.len)) return HP_ERR_OOM;
  while (l->made.len < l->p->buffers.len) l->made.at[l->made.len++] = false;
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    uint32_t root = l->p->buffers.at[arg[k]].root;
    const prog_buffer *f = &l->p->buffers.at[root];
    if (k >= n->n_in) l->made.at[root] = true;
    else if (f->place == PLACE_WORK && !(f->flags & BUFFER_INPUT) && !l->made.at[root])
      HP_FAIL(HP_ERR_ARG,
              "%s \"%s\" of stage %u needs a value before it is made: in the forward a stage reads "
              "values of lower stages, in the backward those of higher ones; see hp_stage",
              op_table[n->op].name, program_str(l->p, n->loc), row->stage);
  }
  return HP_OK;
}

static hp_status add_inst(linker *l, const prog_inst *n, const uint32_t *arg, const link_row *row) {
  prog_inst made = *n;
  made.arg0 = (uint32_t)l->p->args.len;
  for (int k = 0; k < n->n_in + n->n_out; k++)
    if (!vec_push(&l->p->args, l->own[arg[k]])) return HP_ERR_OOM;
  if (l->transfers) HP_TRY(check_made(l, &made, row));
  return vec_push(&l->p->insts, made) ? HP_OK : HP_ERR_OOM;
}

static bool is_in_part(const adopted *a, uint8_t part, size_t i) {
  if (!a->part || part == LINK_ALL) return true;
  return part == LINK_AHEAD ? a->part[i] & AHEAD_PART : a->part[i] == AHEAD_REST;
}

static hp_status add_insts(linker *l, const adopted *a, const link_row *row) {
  size_t end = row->end ? row->end : a->p->insts.len;
  for (size_t i = row->first; i < end; i++) {
    prog_inst n = a->inst[i];
    const uint32_t *arg = program_args(a->p, &n);
    if (!(row->actions & a->action[i]) || (row->of_stage && n.stage != row->stage)) continue;
    if (a->leaves_out[i] || !is_in_part(a, row->part, i)) continue;
    n.stage = row->stage;
    n.ahead = row->ahead;
    if (row->part == LINK_AHEAD && a->part[i] == AHEAD_PART) n.ahead = AHEAD_NEXT;
    n.micro = l->micros ? row->microbatch + 1 : 0;
    n.row = l->row;
    HP_TRY(add_inst(l, &n, arg, row));
  }
  return HP_OK;
}

/* --- transfers --------------------------------------------------------------------------------
 */

static uint32_t transfer_attr(linker *l, const link_transfer *t, const link_row *row,
                              const ir_value *type) {
  attr_record a = {0};
  str name = {0};
  str_printf(&name, l->micros ? "%s@%u" : "%s", t->name, row->microbatch);
  attr_put_str(&a, l->p->names, name.at ? name.at : "");
  attr_put_int(&a, t->id);
  attr_put_int(&a, t->peer);
  if (!t->sends) {
    attr_put_int(&a, type->dtype);
    attr_put_list(&a, type->dim, type->rank);
  }
  uint32_t attr = name.failed ? 0 : attr_intern(l->p->names, &a);
  str_free(&name);
  return attr;
}

/* Transfers are no kernels: they share the number behind those of the pieces. */
static hp_status add_transfer(linker *l, const link_row *row) {
  static const uint8_t phase[] = {[ACTION_FORWARD] = PHASE_FORWARD,
                                  [ACTION_BACKWARD] = PHASE_BACKWARD,
                                  [ACTION_UPDATE] = PHASE_UPDATE};
  const link_transfer *t = &l->transfer[row->transfer - 1];
  const prog_buffer *f = &l->piece[t->piece].p->buffers.at[l->buffer[row->transfer - 1]];
  prog_inst n = {.op = t->sends ? OP_SEND : OP_RECV,
                 .stream = STREAM_COMPUTE,
                 .n_in = t->sends,
                 .n_out = !t->sends,
                 .phase = phase[row->actions],
                 .stage = row->stage,
                 .ahead = row->ahead,
                 .micro = l->micros ? row->microbatch + 1 : 0,
                 .workspace = PROG_NONE,
                 .kernel = l->kernels,
                 .attr = transfer_attr(l, t, row, &f->type),
                 .bytes = (double)f->bytes};
  if (!n.attr) return HP_ERR_OOM;
  return add_inst(l, &n, &l->buffer[row->transfer - 1], row);
}

/* The output is the named tensor itself, and nothing copies it. */
static hp_status send_param(linker *l, size_t transfer) {
  adopted *a = &l->piece[l->transfer[transfer].piece];
  uint32_t out = l->buffer[transfer];
  for (uint32_t i = 0; i < a->p->insts.len; i++) {
    const uint32_t *arg = program_args(a->p, program_inst(a->p, i));
    if (!link_copies_state(a->p, i) || arg[1] != out) continue;
    a->leaves_out[i] = true;
    a->state[out] = a->state[arg[0]];
    return HP_OK;
  }
  HP_FAIL(HP_ERR_INTERNAL, "\"%s\" is no copy of a param", l->transfer[transfer].name);
}

/* The piece's buffer, and views of it, are those of all rows: one for each name in `of`, which is
 * no input or output (flag) of the program. */
static hp_status share_buffer(linker *l, adopted *a, uint32_t root, uint8_t flag, map *of,
                              const char *name) {
  uint32_t shared = (uint32_t)l->p->buffers.len;
  if (!map_get(of, name, strlen(name), &shared)) {
    prog_buffer own = a->p->buffers.at[root];
    own.root = shared;
    own.name = 0;
    own.flags &= (uint8_t)~flag;
    HP_TRY(map_set(of, name, strlen(name), shared));
    if (!vec_push(&l->p->buffers, own)) return HP_ERR_OOM;
  }
  a->state[root] = shared;
  for (uint32_t b = 0; b < a->p->buffers.len; b++)
    if (a->p->buffers.at[b].root == root && b != root) HP_TRY(adopt_view(l, a, b));
  return HP_OK;
}

static hp_status share_param(linker *l, size_t transfer) {
  const link_transfer *t = &l->transfer[transfer];
  return share_buffer(l, &l->piece[t->piece], l->buffer[transfer], BUFFER_INPUT, &l->received,
                      t->param);
}

static hp_status find_transfers(linker *l, const link_rows *r) {
  l->transfer = r->transfer;
  l->transfers = r->transfers;
  l->buffer = mem_calloc(r->transfers, sizeof *l->buffer);
  HP_TRY_MEM(l->buffer);
  for (size_t i = 0; i < r->transfers; i++) {
    const link_transfer *t = &r->transfer[i];
    const adopted *a = &l->piece[t->piece];
    uint8_t flag = t->sends ? BUFFER_OUTPUT : BUFFER_INPUT;
    uint32_t b = 0;
    if (!a->p) continue; /* no row runs the piece */
    while (b < a->p->buffers.len &&
           !(a->p->buffers.at[b].flags & flag &&
             !strcmp(program_str(a->p, a->p->buffers.at[b].name), t->name)))
      b++;
    if (b == a->p->buffers.len)
      HP_FAIL(HP_ERR_INTERNAL, "piece %u has no %s \"%s\"", t->piece, t->sends ? "output" : "input",
              t->name);
    l->buffer[i] = b;
    a->crosses[b] = true;
    if (t->param) HP_TRY(t->sends ? send_param(l, i) : share_param(l, i));
  }
  return HP_OK;
}

/* --- rows of the next step -------------------------------------------------------------------- */

/* Outputs ahead.NAME that something makes; the program has none of the others. */
static hp_status share_all_ahead(linker *l, const link_rows *r) {
  adopted *a = &l->piece[r->update];
  a->part = mem_calloc(a->p->insts.len + 1, 1);
  HP_TRY_MEM(a->part);
  HP_TRY(ahead_parts(a->p, r->ahead, a->part));
  for (uint32_t i = 0; i < a->p->insts.len; i++) {
    const prog_inst *n = program_inst(a->p, i);
    for (int k = n->n_in; k < n->n_in + n->n_out; k++) {
      uint32_t b = program_args(a->p, n)[k];
      const prog_buffer *f = &a->p->buffers.at[b];
      const char *param = f->flags & BUFFER_OUTPUT ? ahead_param(program_str(a->p, f->name)) : NULL;
      if (!param) continue;
      a->crosses[b] = true;
      if (!(a->part[i] & AHEAD_PART)) continue;
      HP_TRY(share_buffer(l, a, b, BUFFER_OUTPUT, &l->ahead, param));
    }
  }
  return HP_OK;
}

/* The named tensors of a piece, and views of them, as rows of the next step read them. */
static hp_status find_next(linker *l, adopted *a) {
  size_t n = a->p->buffers.len;
  if (a->next) return HP_OK;
  a->next = mem_calloc(n, sizeof *a->next);
  HP_TRY_MEM(a->next);
  if (n) memcpy(a->next, a->state, n * sizeof *a->next);
  for (uint32_t b = 0; b < n; b++) {
    const prog_buffer *f = &a->p->buffers.at[b];
    const char *name = f->root == b && f->name ? program_str(a->p, f->name) : "";
    if (f->place == PLACE_STATE) (void)map_get(&l->ahead, name, strlen(name), &a->next[b]);
  }
  for (uint32_t b = 0; b < n; b++) {
    prog_buffer view = a->p->buffers.at[b];
    uint32_t root = view.root;
    if (view.place != PLACE_STATE || root == b || a->next[root] == a->state[root]) continue;
    a->next[b] = (uint32_t)l->p->buffers.len;
    view.place = PLACE_WORK;
    view.root = a->next[root];
    if (!vec_push(&l->p->buffers, view)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status find_ahead(linker *l, const link_rows *r) {
  if (!r->micros) return HP_OK;
  if (l->piece[r->update].p) HP_TRY(share_all_ahead(l, r));
  for (size_t i = 0; i < r->rows; i++) {
    const link_row *row = &r->row[i];
    if (row->ahead == AHEAD_NEXT && !row->transfer) HP_TRY(find_next(l, &l->piece[row->piece]));
  }
  return HP_OK;
}

static uint32_t first_of(const linker *l, uint32_t piece, uint32_t micro) {
  const uint64_t key = (uint64_t)piece << 32 | micro;
  uint32_t first = PROG_NONE;
  (void)map_get(&l->work_of, &key, sizeof key, &first);
  return first;
}

/* The buffers of a micro-batch of the next step, and of the same one of this step. */
static hp_status add_ahead_range(linker *l, const link_row *row, uint32_t micros) {
  const adopted *a = &l->piece[row->piece];
  ahead_range made = {.again = first_of(l, row->piece, row->microbatch - micros),
                      .next = first_of(l, row->piece, row->microbatch)};
  for (size_t i = 0; i < l->range.len; i++)
    if (l->range.at[i].next == made.next) return HP_OK;
  if (made.again == PROG_NONE)
    HP_FAIL(HP_ERR_INTERNAL, "micro-batch %u is of the next step, and this one has it not",
            row->microbatch);
  for (uint32_t b = 0; b < a->p->buffers.len; b++) made.n += a->state[b] == PROG_NONE;
  return vec_push(&l->range, made) ? HP_OK : HP_ERR_OOM;
}

static hp_status carry_ahead(linker *l, const link_rows *r) {
  for (size_t i = 0; i < r->rows; i++)
    if (r->row[i].ahead == AHEAD_NEXT) HP_TRY(add_ahead_range(l, &r->row[i], r->micros));
  return l->range.len ? ahead_carry(l->p, l->range.at, l->range.len) : HP_OK;
}

/* Numbers are 32 bits wide. */
static hp_status check_size(const program *const *piece, const link_rows *r) {
  uint64_t insts = 0, buffers = 0, args = 0;
  for (size_t i = 0; i < r->rows; i++) {
    const program *p = piece[r->row[i].piece];
    insts += p->insts.len;
    buffers += p->buffers.len;
    args += p->args.len;
  }
  if (insts < 1u << 30 && buffers < 1u << 30 && args < 1u << 31) return HP_OK;
  HP_FAIL(HP_ERR_ARG, "a step of %zu rows has %llu instructions; at most 2^30 are possible",
          r->rows, (unsigned long long)insts);
}

/* Pieces that rows run; those of others get no kernels: there are no more than instructions. */
static hp_status adopt_all(linker *l, const program *const *piece, const link_rows *r,
                           uint32_t *kernel0) {
  uint32_t most = 0;
  for (size_t i = 0; i < l->pieces; i++) kernel0[i] = PROG_NONE;
  for (size_t i = 0; i < r->rows; i++) kernel0[r->row[i].piece] = 0;
  for (size_t i = 0; i < l->pieces; i++) {
    adopted *a = &l->piece[i];
    if (kernel0[i] == PROG_NONE) continue;
    a->p = piece[i];
    kernel0[i] = l->kernels;
    HP_TRY(adopt_insts(l, a, l->kernels));
    HP_TRY(adopt_buffers(l, a));
    l->kernels += (uint32_t)a->p->insts.len;
    if (a->p->buffers.len > most) most = (uint32_t)a->p->buffers.len;
    if (a->p->notes.at && !l->p->notes.at) str_add(&l->p->notes, a->p->notes.at);
  }
  l->own = mem_calloc(most + 1, sizeof *l->own);
  return l->own ? str_status(&l->p->notes) : HP_ERR_OOM;
}

static void linker_free(linker *l) {
  for (size_t i = 0; l->piece && i < l->pieces; i++) {
    mem_free(l->piece[i].inst);
    mem_free(l->piece[i].action);
    mem_free(l->piece[i].name);
    mem_free(l->piece[i].state);
    mem_free(l->piece[i].crosses);
    mem_free(l->piece[i].leaves_out);
    mem_free(l->piece[i].part);
    mem_free(l->piece[i].next);
  }
  mem_free(l->piece);
  mem_free(l->buffer);
  vec_free(&l->made);
  mem_free(l->own);
  map_free(&l->state_of);
  map_free(&l->io);
  map_free(&l->work_of);
  map_free(&l->received);
  map_free(&l->ahead);
  vec_free(&l->range);
}

hp_status program_link(const program *const *piece, size_t pieces, const link_rows *r,
                       uint32_t *kernel0, program **out) {
  linker l = {.pieces = pieces,
              .piece = mem_calloc(pieces, sizeof *l.piece),
              .micros = link_has_micros(r)};
  hp_status st = l.piece ? check_size(piece, r) : HP_ERR_OOM;
  if (!st) st = program_create(NULL, &l.p);
  if (!st) st = adopt_all(&l, piece, r, kernel0);
  if (!st) st = find_transfers(&l, r);
  if (!st) st = find_ahead(&l, r);
  bool joined = false; /* the row before overlaps with this one */
  for (size_t i = 0; !st && i < r->rows; i++) {
    const link_row *row = &r->row[i];
    const adopted *a = &l.piece[row->piece];
    if (!row->transfer) {
      l.row += !joined;
      joined = row->with_next;
    }
    st = find_buffers(&l, a, row);
    if (!st) st = row->transfer ? add_transfer(&l, row) : add_insts(&l, a, row);
  }
  if (!st) st = carry_ahead(&l, r);
  if (!st && r->micros) l.p->kernels = l.kernels + 1; /* and that of transfers */
  if (!st) st = graph_status(l.p->names);
  linker_free(&l);
  if (st) program_free(l.p);
  else *out = l.p;
  return st;
}
