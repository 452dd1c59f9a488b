#include "prog/program.h"

#include "base/dtype.h"
#include "ir/print.h"

#include <string.h>

hp_status program_create(const hp_graph *like, program **out) {
  program *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  hp_status st = graph_create(like, &p->names);
  /* arrays that are pointed into, even where a program has no instruction */
  if (!st && !(vec_reserve(&p->args, 1) && vec_reserve(&p->insts, 1))) st = HP_ERR_OOM;
  if (st) {
    program_free(p);
    return st;
  }
  *out = p;
  return HP_OK;
}

void program_free(program *p) {
  if (!p) return;
  graph_free(p->names);
  vec_free(&p->buffers);
  vec_free(&p->insts);
  vec_free(&p->args);
  vec_free(&p->waits);
  str_free(&p->notes);
  mem_free(p);
}

hp_status program_copy(const program *p, program **out) {
  program *q;
  HP_TRY(program_create(p->names, &q));
  bool room = vec_reserve(&q->buffers, p->buffers.len) && vec_reserve(&q->insts, p->insts.len) &&
              vec_reserve(&q->args, p->args.len) && vec_reserve(&q->waits, p->waits.len);
  if (p->notes.at) str_add_n(&q->notes, p->notes.at, p->notes.len);
  if (!room || q->notes.failed) {
    program_free(q);
    return HP_ERR_OOM;
  }
#define COPY(what)                                                                                 \
  if (p->what.len) memcpy(q->what.at, p->what.at, p->what.len * sizeof *p->what.at);               \
  q->what.len = p->what.len
  COPY(buffers);
  COPY(insts);
  COPY(args);
  COPY(waits);
#undef COPY
  memcpy(q->arena, p->arena, sizeof p->arena);
  memcpy(q->bound, p->bound, sizeof p->bound);
  memcpy(q->bound_at, p->bound_at, sizeof p->bound_at);
  q->kernels = p->kernels;
  q->order = p->order;
  q->bound_s = p->bound_s;
  *out = q;
  return HP_OK;
}

bool program_has_rendezvous(const program *p) {
  for (size_t i = 0; i < p->insts.len; i++)
    if (op_flags((op_id)p->insts.at[i].op) & OPF_RENDEZVOUS) return true;
  return false;
}

bool program_has_one_stream(const program *p) {
  for (size_t i = 1; i < p->insts.len; i++)
    if (p->insts.at[i].stream != p->insts.at[0].stream) return false;
  return true;
}

hp_status program_clock(const program *p, uint32_t streams, vclock *out) {
  size_t n = p->insts.len;
  uint8_t *stream = mem_calloc(n, 1);
  uint32_t *wait0 = mem_calloc(n + 1, sizeof *wait0);
  hp_status st = stream && wait0 ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && i < n; i++) {
    stream[i] = p->insts.at[i].stream;
    wait0[i] = p->insts.at[i].wait0;
  }
  if (!st) {
    wait0[n] = (uint32_t)p->waits.len;
    st = vclock_build(&(vclock_program){n, streams, stream, wait0, p->waits.at}, out);
  }
  mem_free(stream);
  mem_free(wait0);
  return st;
}

const char *program_str(const program *p, uint32_t id) { return graph_str(p->names, id); }

static ir_node as_node(const prog_inst *n) { return (ir_node){.op = n->op, .attr = n->attr}; }

int64_t inst_int(const program *p, const prog_inst *n, const char *key) {
  ir_node d = as_node(n);
  return attr_int(p->names, &d, key);
}
double inst_float(const program *p, const prog_inst *n, const char *key) {
  ir_node d = as_node(n);
  return attr_float(p->names, &d, key);
}
const char *inst_str(const program *p, const prog_inst *n, const char *key) {
  ir_node d = as_node(n);
  return attr_str(p->names, &d, key);
}
int inst_list(const program *p, const prog_inst *n, const char *key, int64_t out[ATTR_LIST_MAX]) {
  ir_node d = as_node(n);
  return attr_list(p->names, &d, key, out);
}

/* b4 = f32[8,256] device+4096 input "ids" class=3 */
static void print_buffer(const program *p, size_t i, str *out) {
  const prog_buffer *b = &p->buffers.at[i];
  str_printf(out, "b%zu = ", i);
  value_print(&b->type, out);
  if (b->root != i) {
    str_printf(out, " view b%u", b->root);
    if (b->at) str_printf(out, "+%llu", (unsigned long long)b->at);
    str_add_char(out, '\n');
    return;
  }
  if (b->place == PLACE_STATE) str_add(out, " state");
  if (b->place == PLACE_STATE && b->tier) str_printf(out, " %s", tier_name(b->tier));
  if (b->place == PLACE_WORK)
    str_printf(out, " %s+%llu", tier_name(b->tier), (unsigned long long)b->offset);
  if (b->flags & BUFFER_WORKSPACE) str_add(out, " workspace");
  if (b->flags & BUFFER_INPUT) str_add(out, " input");
  if (b->flags & BUFFER_OUTPUT) str_add(out, " output");
  if (b->flags & BUFFER_CARRIED_IN) str_add(out, " carried_in");
  if (b->flags & BUFFER_CARRIED_OUT) str_add(out, " carried_out");
  if (b->carries) str_printf(out, " of=b%u", b->carries - 1);
  if (b->name) {
    str_add_char(out, ' ');
    graph_print_string(program_str(p, b->name), out);
  }
  if (b->class) str_printf(out, " class=%d", b->class);
  str_add_char(out, '\n');
}

/* compute: b5 = mul b1, b2 workspace=b9 wait=comm:3 @"model.norm" block=1 phase=backward micro=2 */
void program_print_inst(const program *p, size_t i, str *out) {
  static const char *const phase[] = {"forward", "backward", "update"};
  const prog_inst *n = &p->insts.at[i];
  const uint32_t *arg = program_args(p, n);
  str_printf(out, "%s: ", stream_name(n->stream));
  for (int k = 0; k < n->n_out; k++) str_printf(out, k ? ", b%u" : "b%u", arg[n->n_in + k]);
  str_printf(out, n->n_out ? " = %s" : "%s", op_table[n->op].name);
  for (int k = 0; k < n->n_in; k++) str_printf(out, k ? ", b%u" : " b%u", arg[k]);
  ir_node d = as_node(n);
  graph_print_attrs(p->names, &d, out);
  if (n->workspace != PROG_NONE) str_printf(out, " workspace=b%u", n->workspace);
  if (n->engine) str_printf(out, " engine=%s", program_str(p, n->engine));
  for (int k = 0; k < n->n_wait; k++) {
    const vclock_wait *w = &p->waits.at[n->wait0 + (uint32_t)k];
    str_printf(out, " wait=%s:%u", stream_name(w->stream), w->position);
  }
  if (n->loc) {
    str_add(out, " @");
    graph_print_string(program_str(p, n->loc), out);
  }
  if (n->block) str_printf(out, " block=%d", n->block);
  if (n->phase) str_printf(out, " phase=%s", phase[n->phase]);
  if (n->stage) str_printf(out, " stage=%d", n->stage);
  if (n->micro) str_printf(out, " micro=%u", n->micro - 1);
  if (n->group) str_printf(out, " group=%d", n->group);
  if (n->flops > 0) str_printf(out, " flops=%.17g", n->flops);
  if (n->bytes > 0) str_printf(out, " bytes=%.17g", n->bytes);
  str_add_char(out, '\n');
}

hp_status program_print(const program *p, str *out) {
  for (int t = 0; t < TIER_COUNT; t++)
    if (p->arena[t])
      str_printf(out, "arena %s %llu bound %llu at %u\n", tier_name(t),
                 (unsigned long long)p->arena[t], (unsigned long long)p->bound[t], p->bound_at[t]);
  for (size_t i = 0; i < p->buffers.len; i++) print_buffer(p, i, out);
  for (size_t i = 0; i < p->insts.len; i++) program_print_inst(p, i, out);
  return str_status(out);
}
