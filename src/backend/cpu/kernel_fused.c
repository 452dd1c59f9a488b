/* Loop kernels. */
#include "backend/cpu/cpu_kernel.h"
#include "base/dtype.h"

#include <string.h>

/* Checks that what the loop touches of operand (result) k is inside its buffer, and has its
 * type: the text of a program may come from any source. */
static hp_status check_operand(const cpu_loading *l, const prog_inst *n, const loop_kernel *body,
                               bool output, int k) {
  const prog_buffer *b = program_arg(l->p, n, output ? n->n_in + k : k);
  hp_dtype type;
  int64_t low, high;
  if (!loop_kernel_extent(body, output, k, &type, &low, &high)) return HP_OK;
  if (type != (hp_dtype)b->type.dtype)
    HP_FAIL(HP_ERR_INPUT, "loop kernel \"%s\": %s %d is %s, its tensor is %s",
            program_str(l->p, n->loc), output ? "out" : "in", k, dtype_name(type),
            dtype_name((hp_dtype)b->type.dtype));
  if (low < 0 || (uint64_t)high >= b->bytes / dtype_size(type))
    HP_FAIL(HP_ERR_INPUT,
            "loop kernel \"%s\": %s %d touches elements %lld to %lld, its tensor has %llu",
            program_str(l->p, n->loc), output ? "out" : "in", k, (long long)low, (long long)high,
            (unsigned long long)(b->bytes / dtype_size(type)));
  return HP_OK;
}

static hp_status check_operands(const cpu_loading *l, const prog_inst *n, const loop_kernel *body) {
  int in = loop_kernel_inputs(body), out = loop_kernel_outputs(body);
  if (in > n->n_in || out > n->n_out)
    HP_FAIL(HP_ERR_INPUT, "loop kernel \"%s\": uses %d inputs and %d outputs, is given %d and %d",
            program_str(l->p, n->loc), in, out, n->n_in, n->n_out);
  for (int k = 0; k < in; k++) HP_TRY(check_operand(l, n, body, false, k));
  for (int k = 0; k < out; k++) HP_TRY(check_operand(l, n, body, true, k));
  return HP_OK;
}

hp_status plan_fused(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  loop_kernel *k;
  const char *text = inst_str(l->p, n, "body");
  (void)work; /* known after the module is built */
  HP_TRY(loop_module_add_text(l->loops, text, strlen(text), "loop kernel", &k));
  HP_TRY(check_operands(l, n, k));
  *plan = k;
  return HP_OK;
}

/* The threads are those of the device's computation; the host has the caller alone. */
hp_status run_fused(const cpu_call *c) {
  pool *threads = c->stream == STREAM_HOST ? NULL : c->dev->threads;
  loop_run(c->plan, (const void *const *)c->at, c->at + c->n->n_in, c->work, threads);
  return HP_OK;
}
