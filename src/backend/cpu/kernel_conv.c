/* Convolution and pooling: calls the kernels of conv.h and pool2d.h for instructions. */
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/conv/pool2d.h"

static const ir_value *get_type(const program *p, const prog_inst *n, int k) {
  return &program_arg(p, n, k)->type;
}

/* Spatial dims of a tensor, or numbers of an attribute, as a height and a width. */
static void get_spatial_dims(const ir_value *t, int64_t to[2]) {
  to[0] = t->rank == 4 ? t->dim[2] : 1;
  to[1] = t->dim[t->rank - 1];
}
static void read_numbers(const program *p, const prog_inst *n, const char *key, int64_t none,
                         int64_t to[2]) {
  int64_t list[ATTR_LIST_MAX];
  int count = inst_list(p, n, key, list);
  to[0] = count == 2 ? list[0] : none;
  to[1] = list[count - 1];
}

/* --- convolution ------------------------------------------------------------------------------ */

/* x, weights and y among operands and result. */
typedef struct {
  conv_way way;
  int x, w, y;
} roles;

static roles find_roles(const prog_inst *n) {
  if (n->op == OP_CONV) return (roles){CONV_FORWARD, 0, 1, 2};
  return n->op == OP_CONV_DX ? (roles){CONV_DX, 2, 1, 0} : (roles){CONV_DW, 0, 2, 1};
}

static conv_spec make_conv_spec(const program *p, const prog_inst *n) {
  roles r = find_roles(n);
  const ir_value *x = get_type(p, n, r.x), *w = get_type(p, n, r.w), *y = get_type(p, n, r.y);
  conv_spec s = {.batch = x->dim[0],
                 .in = x->dim[1],
                 .out = y->dim[1],
                 .groups = inst_int(p, n, "groups"),
                 .type = (hp_dtype)x->dtype};
  get_spatial_dims(x, s.size);
  get_spatial_dims(w, s.kernel);
  get_spatial_dims(y, s.result);
  read_numbers(p, n, "stride", 1, s.stride);
  read_numbers(p, n, "pad", 0, s.pad);
  read_numbers(p, n, "dilation", 1, s.dilation);
  return s;
}

hp_status plan_conv(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  conv_spec s = make_conv_spec(l->p, n);
  size_t bytes;
  (void)plan;
  HP_TRY(conv_work(l->dev->isa, &s, find_roles(n).way, pool_size(l->dev->threads), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_conv(const cpu_call *c) {
  conv_spec s = make_conv_spec(c->p, c->n);
  conv_run(c->dev->isa, c->dev->threads, &s, find_roles(c->n).way, c->at[0], c->at[1], c->at[2],
           c->work);
  return HP_OK;
}

/* --- pooling ---------------------------------------------------------------------------------- */

static pool_spec make_pool_spec(const program *p, const prog_inst *n) {
  bool max = n->op == OP_MAX_POOL || n->op == OP_MAX_POOL_DX;
  bool forward = n->op == OP_MAX_POOL || n->op == OP_AVG_POOL;
  const ir_value *x = get_type(p, n, forward ? 0 : n->n_in), *y = get_type(p, n, forward ? 1 : 0);
  pool_spec s = {.kind = max       ? forward ? POOL_MAX : POOL_MAX_DX
                         : forward ? POOL_AVG
                                   : POOL_AVG_DX,
                 .planes = x->dim[0] * x->dim[1],
                 .include_pad = !max && inst_int(p, n, "include_pad") != 0,
                 .type = (hp_dtype)x->dtype};
  get_spatial_dims(x, s.size);
  get_spatial_dims(y, s.result);
  read_numbers(p, n, "kernel", 1, s.kernel);
  read_numbers(p, n, "stride", 1, s.stride);
  read_numbers(p, n, "pad", 0, s.pad);
  return s;
}

hp_status plan_pool(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  pool_spec s = make_pool_spec(l->p, n);
  size_t bytes;
  (void)plan;
  HP_TRY(pool_work(&s, pool_size(l->dev->threads), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_pool(const cpu_call *c) {
  pool_spec s = make_pool_spec(c->p, c->n);
  pool_planes(c->dev->isa, c->dev->threads, &s, c->at[0], c->at[1], c->at[c->n->n_in], c->work);
  return HP_OK;
}
