/* The layouts of a family's tensors for a strategy.
 *
 * Layouts are written in letters, an entry per dim, each letter the axes of one use:
 *   D dp   R ring, U heads of cp   C both   X tp   Y tp_y   E ep   F etp   - none
 *   S tp where it shards the sequence between the blocks
 *   d c x y   the same without the axes of experts
 *   ? after the axes of key heads: if there are fewer heads than shards, dims that are not
 *     divided stay replicated; all others are padded */
#include "model/param_state.h"
#include "model/strategy.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  const strategy *s;
  const lm *m;
  hp_device *d;
  int stage; /* on whose mesh; -1: on all */
  strategy_axis axis[STRATEGY_AXES];
  int axes;
} applying;

/* --- layouts from letters --------------------------------------------------------------------- */

/* Without words for experts, tensor parallelism shards within them, too. */
static bool does_cut_within_experts(const applying *a, const strategy_axis *x) {
  if (a->s->ep > 1 || a->s->etp > 1) return x->expert == EXPERT_ETP;
  return x->base == BASE_TP || x->base == BASE_TP_Y;
}

static bool does_serve(const applying *all, const strategy_axis *a, char letter) {
  bool expert = a->expert == EXPERT_EP || does_cut_within_experts(all, a);
  bool is_dp = a->base == BASE_DP || a->base == BASE_REPLICAS;
  switch (letter) {
  case 'D': return is_dp;
  case 'R': return a->base == BASE_RING;
  case 'U': return a->base == BASE_ULYSSES;
  case 'C': return a->base == BASE_RING || a->base == BASE_ULYSSES;
  case 'X': return a->base == BASE_TP;
  case 'S': return a->base == BASE_TP && (all->s->sp || all->s->tp_y > 1);
  case 'Y': return a->base == BASE_TP_Y;
  case 'E': return a->expert == EXPERT_EP;
  case 'F': return does_cut_within_experts(all, a);
  case 'd': return is_dp && !expert;
  case 'c': return (a->base == BASE_RING || a->base == BASE_ULYSSES) && !expert;
  case 'x': return a->base == BASE_TP && !expert;
  case 'y': return a->base == BASE_TP_Y && !expert;
  default: return false;
  }
}

static hp_status declare_layout(const applying *a, const char *name, const char *entries,
                                bool where_divides) {
  if (a->stage < 0) return hp_device_layout(a->d, name, entries, where_divides);
  return hp_device_stage_layout(a->d, a->stage, name, entries, where_divides);
}

/* Axes of one entry, those of the first letter outermost. */
static void put_entry(const applying *a, const char *letters, size_t n, str *out) {
  int found = 0;
  for (size_t k = 0; k < n; k++)
    for (int i = 0; i < a->axes; i++)
      if (does_serve(a, &a->axis[i], letters[k]))
        str_printf(out, "%s%s", found++ ? "," : "(", a->axis[i].name);
  str_add(out, found ? ")" : "None");
}

/* The number of shards of an entry. */
static int64_t count_shards(const applying *a, const char *letters, size_t n) {
  int64_t parts = 1;
  for (size_t k = 0; k < n; k++)
    for (int i = 0; i < a->axes; i++)
      if (does_serve(a, &a->axis[i], letters[k])) parts *= a->axis[i].size;
  return parts;
}

/* A pattern of names, and an entry per dim: "D,CS,Y". */
typedef struct {
  const char *name, *letters;
} annotation_layout;

static hp_status declare_annotation(const applying *a, const annotation_layout *annotation) {
  bool few = false;
  str entries = {0};
  str_add(&entries, "(");
  for (const char *at = annotation->letters; *at;) {
    size_t n = strcspn(at, ",");
    if (at[n - 1] == '?') few = count_shards(a, at, n) > a->m->c.kv_heads;
    put_entry(a, at, n, &entries);
    at += n;
    if (*at) str_add(&entries, ","), at++;
  }
  str_add(&entries, ")");
  hp_status st = str_status(&entries);
  if (!st) st = declare_layout(a, annotation->name, entries.at, few);
  str_free(&entries);
  return st;
}

static hp_status declare_all(const applying *a, const annotation_layout *annotations) {
  for (; annotations->name; annotations++) HP_TRY(declare_annotation(a, annotations));
  return HP_OK;
}

/* --- params ----------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end) {
  size_t n = strlen(name), k = strlen(end);
  return n >= k && !strcmp(name + n - k, end);
}

static const tensor_cut *cut_of(const model_family *f, const model_param *p) {
  for (const tensor_cut *c = f->cuts; c && c->ends; c++)
    if (ends_with(p->name, c->ends) && c->dim < p->shape.rank) return c;
  return NULL;
}

/* What shards a dim, and in which units. */
typedef struct {
  char letter;
  cut_unit unit;
} dim_cut;

/* Of dim d of a param: the family's dim by tp and the other one of a matrix by tp_y; of experts
 * [E,n,k] the first by ep, the family's by etp. */
static dim_cut find_cut(const model_family *f, const model_param *p, int d) {
  const tensor_cut *c = cut_of(f, p);
  bool own = c && c->dim == d;
  cut_unit unit = own ? c->unit : CUT_ELEMENTS;
  if (p->shape.rank == 3) return (dim_cut){d == 0 ? 'E' : own ? 'F' : '-', unit};
  return (dim_cut){!c ? '-' : own ? 'X' : 'Y', unit};
}

/* The linear layer that A or B belongs to; its name ends before ".lora_". */
static const model_linear *find_linear(const lm *m, const model_param *p) {
  size_t n = (size_t)(strstr(p->name, ".lora_") - p->name);
  for (size_t i = 0; i < m->linears.len; i++)
    if (!strncmp(m->linears.at[i].name, p->name, n) && !m->linears.at[i].name[n])
      return &m->linears.at[i];
  return NULL;
}

/* A [rank,in], B [out,rank] and sizes [out] are sharded as the weight of their layer is along in
 * and out; the rank never is. */
static dim_cut find_adapter_cut(const lm *m, const model_param *p, int d) {
  const model_linear *l = find_linear(m, p);
  bool in = p->kind == PARAM_LORA_A;
  model_param weight = {.shape = {.rank = 2}};
  if (d != in || !l) return (dim_cut){'-', CUT_ELEMENTS};
  snprintf(weight.name, sizeof weight.name, "%.151s.weight", l->name);
  return find_cut(m->c.family, &weight, in != l->transposed);
}

/* The length of a shard of a dim that consists of units; the last shards may be shorter.  Query
 * heads stay with their key heads, as long as every device can have a key head. */
static int64_t find_shard_size(const model_config *m, cut_unit unit, int64_t size, int64_t parts) {
  bool groups = m->kv_heads >= parts;
  int64_t units = size;
  if (unit == CUT_HEADS) units = groups ? m->kv_heads : m->heads;
  if (unit == CUT_KV_HEADS && groups) units = m->kv_heads;
  return (units + parts - 1) / parts * (size / units);
}

static bool does_share_rows(const applying *a, const strategy_axis *x) {
  return does_serve(a, x, 'D') || does_serve(a, x, 'C');
}

/* Use of the axes that share the rows, dp and cp: none; they shard the tensor too, each the
 * first dim whose shard it divides, with replicas on the rest; a sum is partial over them. */
typedef enum { ROWS_ALIKE, ROWS_CUT, ROWS_PARTIAL } row_axes;

/* The entry of dim d: the axes of the family or of experts, then those that share the rows, as
 * far as they divide a shard. */
static void make_param_entry(const applying *a, const model_param *p, int d, bool cut_rows,
                             bool taken[STRATEGY_AXES], str *out) {
  dim_cut cut =
      model_param_is_adapter(p) ? find_adapter_cut(a->m, p, d) : find_cut(a->m->c.family, p, d);
  char by = cut.letter;
  int64_t size = p->shape.dim[d], parts = count_shards(a, &by, 1);
  int64_t left = find_shard_size(&a->m->c, cut.unit, size, parts);
  bool uneven = left * parts != size;
  int found = 0;
  for (int pass = 0; pass <= cut_rows; pass++)
    for (int i = 0; i < a->axes; i++) {
      const strategy_axis *x = &a->axis[i];
      bool rows = does_share_rows(a, x) && x->base != BASE_REPLICAS && left % x->size == 0;
      if (taken[i] || !(pass ? rows : does_serve(a, x, by))) continue;
      taken[i] = true;
      if (pass) left /= x->size;
      str_printf(out, "%s%s", found++ ? "," : "(", x->name);
    }
  str_add(out, found ? ")" : "None");
  if (uneven) str_printf(out, ":%lld", (long long)left);
}

/* A tensor with the dims of p, but for `missing` (-1: none). */
static hp_status declare_as(const applying *a, const model_param *p, const char *name,
                            row_axes rows, int missing) {
  str entries = {0}, unused = {0};
  bool taken[STRATEGY_AXES] = {0};
  str_add(&entries, "(");
  for (int d = 0; d < p->shape.rank; d++) {
    if (d != missing && entries.len > 1) str_add(&entries, ",");
    make_param_entry(a, p, d, rows == ROWS_CUT, taken, d == missing ? &unused : &entries);
  }
  str_add(&entries, ")");
  for (int i = 0; rows == ROWS_PARTIAL && i < a->axes; i++)
    if (!taken[i] && does_share_rows(a, &a->axis[i]))
      str_printf(&entries, "+sum:%s", a->axis[i].name);
  hp_status st = str_status(&entries);
  if (!st) st = declare_layout(a, name, entries.at, false);
  str_free(&entries);
  str_free(&unused);
  return st;
}

/* The sum of the gradients of p, or of its use as a tied head, while micro-batches are accumulated:
 * reduced once a step, unless memory counts more. */
static hp_status declare_sum(const applying *a, const model_param *p, const char *of) {
  char name[STATE_NAME];
  param_state_name(STATE_GRAD, of, name);
  return declare_as(a, p, name, a->s->zero >= 2 ? ROWS_CUT : ROWS_PARTIAL, -1);
}

/* A param; the sum of its gradients; and its optimizer state, with "grad.NAME". */
static hp_status declare_param(const applying *a, const model_param *p) {
  row_axes states = a->s->zero >= 1 ? ROWS_CUT : ROWS_ALIKE;
  char name[STATE_NAME];
  HP_TRY(declare_as(a, p, p->name, a->s->zero >= 3 ? ROWS_CUT : ROWS_ALIKE, -1));
  HP_TRY(declare_sum(a, p, p->name));
  if (p == lm_tied_param(a->m)) HP_TRY(declare_sum(a, p, a->m->c.family->head_name));
  for (param_state s = STATE_M; s < PARAM_STATES; s++) {
    int missing = param_state_missing_dim(s, p->shape.rank);
    param_state_name(s, p->name, name);
    if (missing >= 0) HP_TRY(declare_as(a, p, name, states, missing));
  }
  snprintf(name, sizeof name, "*.%s", p->name);
  return declare_as(a, p, name, states, -1);
}

/* --- activations ------------------------------------------------------------------------------ */

/* Between the blocks activations are sharded along the sequence by tp, and along the width by
 * tp_y.  A block's first product gathers the sequence and leaves a sum over tp_y, its second
 * gathers the width and leaves a sum over tp, so its output has the layout of its input
 * (MindSpeed's tp-2d; with tp_y 1 the sequence parallelism of Megatron-LM).  Gradients take the
 * same path back.  If params are sharded over the axes of rows (zero=3), the layouts keep rows
 * in place, so params are gathered. */
static const annotation_layout blocks[] = {{"embedded", "D,CS,Y"},
                                           {"layers.*.residual", "D,CS,Y"},
                                           {"layers.*.attn_in", "D,C,Y"},
                                           {"layers.*.attn_mid", "D,C,X"},
                                           {"layers.*.attn_out", "D,CS,Y"},
                                           {"layers.*.mlp_in", "D,C,Y"},
                                           {"layers.*.mlp_act", "D,CY,X"},
                                           {"layers.*.mlp_mid", "D,C,X"},
                                           {"layers.*.mlp_out", "D,CS,Y"},
                                           {"final", "D,C,Y"},
                                           {"logits", "D,CY,X"},
                                           {"grad.embedded", "D,CS,Y"},
                                           {"grad.layers.*.residual", "D,CS,Y"},
                                           {"grad.layers.*.attn_in", "D,CS,Y"},
                                           {"grad.layers.*.attn_mid", "D,CY,X"},
                                           {"grad.layers.*.attn_out", "D,C,Y"},
                                           {"grad.layers.*.mlp_in", "D,CS,Y"},
                                           {"grad.layers.*.mlp_act", "D,C,X"},
                                           {"grad.layers.*.mlp_mid", "D,CY,X"},
                                           {"grad.layers.*.mlp_out", "D,C,Y"},
                                           {"grad.final", "D,CS,Y"},
                                           {"grad.logits", "D,C,X"},
                                           {NULL, NULL}};

/* Queries, keys and values of attention: cp and tp_y shard the sequence, or heads. */
static const char *const queries[CP_MODES] = {[CP_RING] = "D,CY,X,-",
                                              [CP_ALLGATHER] = "D,CY,X,-",
                                              [CP_ULYSSES] = "D,-,XCY,-",
                                              [CP_HYBRID] = "D,R,XUY,-"};
static const char *const keys[CP_MODES] = {[CP_RING] = "D,CY,X?,-",
                                           [CP_ALLGATHER] = "D,-,X?,-",
                                           [CP_ULYSSES] = "D,-,XCY?,-",
                                           [CP_HYBRID] = "D,R,XUY?,-"};

static hp_status declare_attention(const applying *a) {
  const annotation_layout annotations[] = {{"layers.*.q_proj", "D,CY,X,-"},
                                           {"layers.*.[kv]_proj", "D,CY,X?,-"},
                                           {"layers.*.q", queries[a->s->mode]},
                                           {"layers.*.[kv]", keys[a->s->mode]},
                                           {"layers.*.attn_mid", "D,C,X"},
                                           {"grad.layers.*.q_proj", "D,C,X,-"},
                                           {"grad.layers.*.[kv]_proj", "D,C,X?,-"},
                                           {"grad.layers.*.q", "D,CY,X,-"},
                                           {"grad.layers.*.[kv]", "D,CY,X?,-"},
                                           {"grad.layers.*.attn_mid", "D,CY,X"},
                                           {NULL, NULL}};
  return declare_all(a, annotations);
}

/* Experts get the tokens of all devices that share them, with all elements of a token. */
static const annotation_layout experts[] = {{"layers.*.moe_in", "d,cxy,-"},
                                            {"layers.*.moe_ids", "d,cxy,-"},
                                            {"layers.*.moe_weight", "d,cxy,-"},
                                            {"grad.layers.*.moe_out", "d,cxy,-"},
                                            {"layers.*.mlp_out", "D,CS,Y"},
                                            {"grad.layers.*.moe_in", "D,CS,Y"},
                                            {NULL, NULL}};

static const annotation_layout inputs[] =
    {{"ids", "D,C"},      {"positions", "D,C"}, {"labels", "D,C"},
     {"lengths", "D"},    {"span", "D,C,-"},    {"table", "D,-"},
     {"cache_at", "D"},   {"cache_copy", "D"},  {"cache.*", "D,-,X?,-,-"},
     {"kv_fetch", "D,-"}, {"kv_store", "D,-"},  {NULL, NULL}};

hp_status strategy_apply(const strategy *s, const lm *m, hp_device *d, int stage) {
  applying a = {.s = s, .m = m, .d = d, .stage = stage};
  a.axes = strategy_axes(s, a.axis);
  if (!a.axes) return HP_OK;
  for (size_t i = 0; i < m->params.len; i++) HP_TRY(declare_param(&a, &m->params.at[i]));
  HP_TRY(declare_all(&a, inputs));
  if (s->cp > 1 || s->tp_y > 1) HP_TRY(declare_attention(&a));
  if (m->c.moe.experts) HP_TRY(declare_all(&a, experts));
  return s->sp || s->tp_y > 1 || s->zero >= 3 ? declare_all(&a, blocks) : HP_OK;
}
