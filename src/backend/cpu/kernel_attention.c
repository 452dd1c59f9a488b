/* Attention: calls the kernel of attention.h for instructions. */
#include "backend/cpu/attn/attention.h"
#include "backend/cpu/cpu_kernel.h"

static attn_view make_view(const ir_value *t, void *at) {
  int64_t head = t->dim[3], token = t->dim[2] * head, sequence = t->dim[1] * token;
  return (attn_view){at, (hp_dtype)t->dtype, sequence, token, head};
}

static attn_spec make_spec(const program *p, const prog_inst *n) {
  const ir_value *q = &program_arg(p, n, 0)->type, *k = &program_arg(p, n, 1)->type;
  const ir_value *v = &program_arg(p, n, 2)->type;
  return (attn_spec){.B = q->dim[0],
                     .Tq = q->dim[1],
                     .H = q->dim[2],
                     .D = q->dim[3],
                     .Tk = k->dim[1],
                     .KV = k->dim[2],
                     .Dv = v->dim[3],
                     .scale = (float)inst_float(p, n, "scale"),
                     .causal = inst_int(p, n, "causal") != 0,
                     .window = inst_int(p, n, "window"),
                     .dropout = {.p = inst_float(p, n, "dropout"),
                                 .stream = (uint64_t)inst_int(p, n, "stream")}};
}

/* The same with the operands of the call: span and seed, from operand `more` on. */
static attn_spec spec_of_call(const cpu_call *c, int more) {
  attn_spec s = make_spec(c->p, c->n);
  int end = c->n->n_in;
  if (s.dropout.p > 0) {
    const uint64_t *seed = c->at[--end];
    s.dropout.seed = seed[0];
    if (call_type(c, end)->rank) s.dropout.first = seed[1], s.dropout.sequence = seed[2];
  }
  if (end > more) s.span = c->at[more];
  return s;
}

hp_status plan_attention(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  attn_spec s = make_spec(l->p, n);
  size_t bytes;
  (void)plan;
  HP_TRY(attn_forward_work(&s, pool_size(l->dev->threads), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_attention(const cpu_call *c) {
  attn_spec s = spec_of_call(c, 3);
  int out = c->n->n_in;
  attn_view q = make_view(call_type(c, 0), c->at[0]), k = make_view(call_type(c, 1), c->at[1]);
  attn_view v = make_view(call_type(c, 2), c->at[2]), o = make_view(call_type(c, out), c->at[out]);
  return attn_forward(c->dev->isa, c->dev->threads, &s, &q, &k, &v, &o, c->at[out + 1], c->work);
}

hp_status plan_attention_grad(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  attn_spec s = make_spec(l->p, n);
  size_t bytes;
  (void)plan;
  HP_TRY(attn_backward_work(&s, pool_size(l->dev->threads), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_attention_grad(const cpu_call *c) {
  attn_spec s = spec_of_call(c, 6);
  int out = c->n->n_in;
  attn_grad g = {.q = make_view(call_type(c, 0), c->at[0]),
                 .k = make_view(call_type(c, 1), c->at[1]),
                 .v = make_view(call_type(c, 2), c->at[2]),
                 .o = make_view(call_type(c, 3), c->at[3]),
                 .d_o = make_view(call_type(c, 5), c->at[5]),
                 .lse = c->at[4],
                 .dq = make_view(call_type(c, out), c->at[out]),
                 .dk = make_view(call_type(c, out + 1), c->at[out + 1]),
                 .dv = make_view(call_type(c, out + 2), c->at[out + 2])};
  return attn_backward(c->dev->isa, c->dev->threads, &s, &g, c->work);
}
