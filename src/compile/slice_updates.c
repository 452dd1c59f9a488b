#include "compile/slice_updates.h"

#include "base/dtype.h"
#include "codegen/loop.h"

#include <string.h>

enum {
  SLICES = 16,  /* at most */
  GRAIN = 1024, /* elements: slices begin at multiples of what a flash file is read by */
  OVERLAPPED = 4,
  NOBODY = 0,
  SEVERAL = UINT32_MAX
};

typedef struct {
  program *p;
  uint32_t *user; /* by root buffer: 1 + the instruction that uses it, NOBODY or SEVERAL */
  uint32_t *seen; /* by root buffer: 1 + the instruction that counted it last */
  VEC(prog_inst) inst;
  uint32_t kernels;
} slicing;

/* Bytes of memory that an instruction needs at once: of tensors that others use, too, and of those
 * that only it uses. */
typedef struct {
  uint64_t shared, own;
} inst_bytes;

static void find_users(slicing *s) {
  for (uint32_t i = 0; i < s->p->insts.len; i++) {
    const prog_inst *n = program_inst(s->p, i);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
      uint32_t *user = &s->user[program_arg(s->p, n, k)->root];
      *user = *user == NOBODY || *user == i + 1 ? i + 1 : SEVERAL;
    }
  }
}

static bool is_own(const slicing *s, uint32_t root, uint32_t i) {
  return s->p->buffers.at[root].place == PLACE_STATE && s->user[root] == i + 1;
}

static inst_bytes count_bytes(slicing *s, uint32_t i) {
  const prog_inst *n = program_inst(s->p, i);
  inst_bytes b = {0};
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    uint32_t root = program_arg(s->p, n, k)->root;
    if (s->seen[root] == i + 1) continue;
    s->seen[root] = i + 1;
    *(is_own(s, root, i) ? &b.own : &b.shared) += s->p->buffers.at[root].bytes;
  }
  return b;
}

/* --- what can be sliced -------------------------------------------------------------------------
 */

/* One element after the other, or one for all. */
static bool is_simple(const loop_access *at, bool store) {
  return !at->offset && (at->stride[0] == 1 || (!store && !at->stride[0]));
}

static bool is_elementwise(const loop *l) {
  bool fits = l->kind == LOOP_MAP && l->space.rank == 1 && l->space.dim[0] > GRAIN;
  uint64_t read[2] = {0}; /* operands that are read as a whole, and scalars */
  for (size_t i = 0; i < l->value.len; i++) {
    const loop_value *v = &l->value.at[i];
    fits &= v->what != LOOP_IOTA && v->what != LOOP_UNIFORM;
    if (v->what != LOOP_IN) continue;
    fits &= is_simple(&v->at, false);
    read[!v->at.stride[0]] |= UINT64_C(1) << v->operand;
  }
  fits &= !(read[0] & read[1]);
  for (size_t i = 0; i < l->store.len; i++)
    fits &= !l->store.at[i].fold && is_simple(&l->store.at[i].at, true);
  return fits;
}

/* An update in place, element by element, of tensors that only it uses among others. */
static bool can_slice(const slicing *s, uint32_t i, loop *l) {
  const prog_inst *n = program_inst(s->p, i);
  *l = (loop){0};
  if (n->op != OP_FUSED || n->phase != PHASE_UPDATE) return false;
  bool owns = false;
  for (int k = 0; k < n->n_out; k++) {
    const prog_buffer *f = program_arg(s->p, n, n->n_in + k);
    if (f->place != PLACE_STATE) return false;
    owns |= is_own(s, f->root, i) && f->root == program_args(s->p, n)[n->n_in + k];
  }
  if (!owns) return false;
  const char *body = inst_str(s->p, n, "body");
  if (loop_parse(body, strlen(body), "loop", l)) {
    err_clear();
    return false;
  }
  return is_elementwise(l);
}

/* --- slices -------------------------------------------------------------------------------------
 */

/* Is the operand or result read or written element by element? */
static bool is_sliced(const loop *l, int k, int n_in) {
  for (size_t i = 0; k >= n_in && i < l->store.len; i++)
    if (l->store.at[i].operand == k - n_in) return true;
  for (size_t i = 0; k < n_in && i < l->value.len; i++)
    if (l->value.at[i].what == LOOP_IN && l->value.at[i].operand == k &&
        l->value.at[i].at.stride[0])
      return true;
  return false;
}

/* Elements [from, from + count) of buffer b. */
static uint32_t add_view(program *p, uint32_t b, int64_t from, int64_t count) {
  prog_buffer f = p->buffers.at[b];
  uint64_t size = (uint64_t)dtype_size((hp_dtype)f.type.dtype);
  f.at += (uint64_t)from * size;
  f.bytes = (uint64_t)count * size;
  f.type.rank = 1;
  f.type.dim[0] = count;
  f.flags = 0;
  return vec_push(&p->buffers, f) ? (uint32_t)p->buffers.len - 1 : PROG_NONE;
}

static hp_status set_extent(program *p, loop *l, int64_t count, prog_inst *n) {
  str body = {0};
  attr_record a = {0};
  l->space.dim[0] = count;
  loop_print(l, "; ", &body);
  hp_status st = str_status(&body);
  if (!st) attr_put_str(&a, p->names, body.at);
  str_free(&body);
  HP_TRY(st);
  n->attr = attr_intern(p->names, &a);
  return graph_status(p->names);
}

static hp_status add_slice(slicing *s, const prog_inst *whole, loop *l, int64_t from, int64_t count,
                           int64_t all) {
  program *p = s->p;
  prog_inst n = *whole;
  uint32_t arg[510];
  for (int k = 0; k < n.n_in + n.n_out; k++) {
    arg[k] = program_args(p, whole)[k];
    if (is_sliced(l, k, n.n_in)) arg[k] = add_view(p, arg[k], from, count);
    if (arg[k] == PROG_NONE) return HP_ERR_OOM;
  }
  n.arg0 = (uint32_t)p->args.len;
  for (int k = 0; k < n.n_in + n.n_out; k++)
    if (!vec_push(&p->args, arg[k])) return HP_ERR_OOM;
  if (l->space.dim[0] != count) n.kernel = s->kernels++;
  HP_TRY(set_extent(p, l, count, &n));
  n.flops *= (double)count / (double)all;
  n.bytes *= (double)count / (double)all;
  return vec_push(&s->inst, n) ? HP_OK : HP_ERR_OOM;
}

static hp_status slice(slicing *s, uint32_t i, loop *l, int64_t slices) {
  prog_inst whole = *program_inst(s->p, i);
  int64_t all = l->space.dim[0], each = (all + slices - 1) / slices;
  each = (each + GRAIN - 1) / GRAIN * GRAIN;
  l->space.dim[0] = each; /* they share a kernel, but for the last */
  for (int64_t from = 0; from < all; from += each)
    HP_TRY(add_slice(s, &whole, l, from, each < all - from ? each : all - from, all));
  return HP_OK;
}

/* As many as make it need no more than `most` with OVERLAPPED slices on the device at once, so that
 * copies both ways overlap with updates. */
static int64_t count_slices(inst_bytes b, uint64_t most) {
  if (b.shared + b.own <= most) return 1;
  uint64_t room = most > b.shared ? (most - b.shared) / OVERLAPPED : 0;
  return room && b.own / room < SLICES ? (int64_t)((b.own + room - 1) / room) : SLICES;
}

/* What the instruction needs most that can not be sliced. */
static uint64_t find_most(slicing *s, bool *any) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < s->p->insts.len; i++) {
    loop l;
    bool can = can_slice(s, i, &l);
    loop_free(&l);
    *any |= can;
    inst_bytes b = count_bytes(s, i);
    if (!can && b.shared + b.own > most) most = b.shared + b.own;
  }
  return most;
}

static hp_status slice_all(slicing *s) {
  bool any = false;
  uint64_t most = find_most(s, &any);
  if (!any) return HP_OK;
  memset(s->seen, 0, s->p->buffers.len * sizeof *s->seen);
  s->kernels = (uint32_t)program_kernels(s->p);
  for (uint32_t i = 0; i < s->p->insts.len; i++) {
    loop l = {0};
    int64_t slices = count_slices(count_bytes(s, i), most);
    bool sliced = slices > 1 && can_slice(s, i, &l);
    hp_status st = HP_OK;
    if (sliced) st = slice(s, i, &l, slices);
    else if (!vec_push(&s->inst, *program_inst(s->p, i))) st = HP_ERR_OOM;
    loop_free(&l);
    HP_TRY(st);
  }
  if (!vec_reserve(&s->p->insts, s->inst.len - s->p->insts.len)) return HP_ERR_OOM;
  memcpy(s->p->insts.at, s->inst.at, s->inst.len * sizeof *s->inst.at);
  s->p->insts.len = s->inst.len;
  s->p->kernels = s->kernels;
  return HP_OK;
}

hp_status slice_updates(program *p) {
  slicing s = {.p = p,
               .user = mem_calloc(p->buffers.len + 1, sizeof *s.user),
               .seen = mem_calloc(p->buffers.len + 1, sizeof *s.seen)};
  hp_status st = s.user && s.seen ? HP_OK : HP_ERR_OOM;
  if (!st) {
    find_users(&s);
    st = slice_all(&s);
  }
  mem_free(s.user);
  mem_free(s.seen);
  vec_free(&s.inst);
  return st;
}
