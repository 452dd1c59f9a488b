/* Loop kernels. */
#include "backend/cpu/cpu_kernel.h"

#include <string.h>

hp_status plan_fused(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  loop body = {0};
  loop_kernel *k;
  const char *text = inst_str(l->p, n, "body");
  (void)work; /* known after the module is built */
  hp_status st = loop_parse(text, strlen(text), "loop kernel", &body);
  if (!st && (loop_inputs(&body) > n->n_in || loop_outputs(&body) > n->n_out))
    st = err_set(HP_ERR_INTERNAL, __FILE__, __LINE__,
                 "loop kernel has more operands than its instruction");
  if (!st) st = loop_module_add(l->loops, &body, &k);
  loop_free(&body);
  if (!st) *plan = k;
  return st;
}

hp_status run_fused(const cpu_call *c) {
  loop_run(c->plan, (const void *const *)c->at, c->at + c->n->n_in, c->work, c->dev->threads);
  return HP_OK;
}
