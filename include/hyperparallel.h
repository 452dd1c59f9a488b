/* hyperparallel.h - write a model as if the supernode were one computer: build a tensor graph,
 * compile it to a flat program with a static memory plan, run it.  This is the whole public API.
 *
 *   errors     a call that can fail returns hp_status; HP_OK is 0.  hp_last_error() of the thread
 *              gives the reason: what, where, what was expected, what to do.  On failure outputs
 *              are untouched.  A builder of ops that fails returns HP_NONE and poisons its graph:
 *              hp_compile (or hp_graph_status) reports the FIRST error, so models need no checks.
 *              A NULL pointer gives HP_ERR_ARG, unless its description gives NULL a meaning.
 *   ownership  create/free pair up; free accepts NULL.  A graph owns its tensors.  A device owns
 *              the params and the work memory that its programs share; close it after them.
 *              `const char *` results live as long as their object; `char **` go to hp_free.
 *   threads    use a graph, or a device and its programs, from one thread at a time.
 *   bits       same graph, seed and layout: the same bits on every run.  In f32 on CPU they
 *              do not depend on threads or on the instruction set. */
#ifndef HYPERPARALLEL_H
#define HYPERPARALLEL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define HP_MAX_RANK 6 /* dims of a tensor */
typedef enum {
  HP_OK,
  HP_ERR_ARG,         /* an invalid call, flag or configuration value                   */
  HP_ERR_INPUT,       /* a file or request that is damaged or of the wrong kind         */
  HP_ERR_SHAPE,       /* shapes of an op's operands do not fit                          */
  HP_ERR_LAYOUT,      /* an impossible layout or strategy                               */
  HP_ERR_OOM,         /* a memory limit, or the machine's memory, is too small          */
  HP_ERR_IO,          /* the operating system refused: no such file, disk full, ...     */
  HP_ERR_COMM,        /* a peer or a link failed                                        */
  HP_ERR_DEVICE,      /* the device failed                                              */
  HP_ERR_NUMERIC,     /* a value that must be finite is not                             */
  HP_ERR_UNSUPPORTED, /* known, but not built                                           */
  HP_ERR_INTERNAL     /* a bug of this library                                          */
} hp_status;
typedef enum { HP_F32, HP_BF16, HP_F16, HP_I32, HP_I64, HP_U8, HP_BOOL, HP_DTYPE_COUNT } hp_dtype;
typedef struct {
  int rank;
  int64_t dim[HP_MAX_RANK];
} hp_shape;
typedef struct hp_graph hp_graph;     /* SSA tensor graph                                  */
typedef struct hp_device hp_device;   /* memory, threads, and tensors that outlive a run   */
typedef struct hp_program hp_program; /* flat instruction list with its memory plan        */
typedef uint32_t hp_tensor;           /* a value of one graph; HP_NONE: no value          */
#define HP_NONE ((hp_tensor)0)
/* Why this thread's last call failed; "" if it did not; these, free and close calls keep it. */
const char *hp_last_error(void);
const char *hp_error_trace(void); /* the same line and a back trace */
const char *hp_status_name(hp_status s);
const char *hp_version(void);
void hp_free(void *p);
/* --- the graph: what to compute ---------------------------------------------------------- */
hp_status hp_graph_create(hp_graph **out); /* at most 1,023 graphs exist at a time */
void hp_graph_free(hp_graph *g);
hp_status hp_graph_status(const hp_graph *g); /* HP_OK, or the first failure of a builder */
/* Text form, one op per line; parse reads it back (`name` is for messages). */
hp_status hp_graph_print(const hp_graph *g, char **text);
hp_status hp_graph_parse(const char *text, const char *name, hp_graph **out);
hp_shape hp_shape_of(const hp_graph *g, hp_tensor x);
hp_dtype hp_dtype_of(const hp_graph *g, hp_tensor x);
/* The input, else the param, else the value of the output with that name; HP_NONE: none. */
hp_tensor hp_graph_find(const hp_graph *g, const char *name);
/* For the ops that follow: their place in the model (for messages, explain and trace; NULL or "":
 * none), the repeated block (layer, from 1; 0: none) and the pipeline stage that they belong to. */
void hp_at(hp_graph *g, const char *place);
void hp_block(hp_graph *g, int block);
void hp_stage(hp_graph *g, int stage);
/* Leaves.  Every run is given its inputs; a param stays on the device under its name. */
hp_tensor hp_input(hp_graph *g, const char *name, hp_dtype t, hp_shape s);
hp_tensor hp_param(hp_graph *g, const char *name, hp_dtype t, hp_shape s);
hp_tensor hp_const(hp_graph *g, hp_dtype t, double value); /* scalar; t must hold the value */
/* A sharding annotation: x under a name that layouts refer to; its gradient is "grad.NAME". */
hp_tensor hp_annotate(hp_graph *g, const char *name, hp_tensor x);
/* x with this layout on the device's mesh, e.g. "(dp,None)", and so its gradient; one device: x. */
hp_tensor hp_shard(hp_graph *g, hp_tensor x, const char *entries);
/* Effects.  A run writes its outputs to the caller; at its end an assigned param has value x. */
void hp_output(hp_graph *g, const char *name, hp_tensor x); /* a name that no input has */
void hp_assign(hp_graph *g, hp_tensor param, hp_tensor x);
/* Elementwise ops broadcast from the right, as NumPy; dtypes of operands must be equal.  hp_map
 * takes the name of any elementwise op; operands that it does not have are HP_NONE. */
hp_tensor hp_map(hp_graph *g, const char *op, hp_tensor a, hp_tensor b, hp_tensor c);
/* The i-th of these names, from 0, NULL past the last; the other outputs may be NULL. */
const char *hp_map_name(int i, int *operands, const char **meaning);
hp_tensor hp_add(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_sub(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_mul(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_div(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_scale(hp_graph *g, hp_tensor x, double factor); /* x's dtype must hold it */
hp_tensor hp_cast(hp_graph *g, hp_tensor x, hp_dtype t);
hp_tensor hp_clamp(hp_graph *g, hp_tensor x, double low, double high); /* infinite: no bound */
/* Reductions over n axes (n = 0: none), and shape ops.  Axes and perm count from 0. */
hp_tensor hp_sum(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep);
hp_tensor hp_amax(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep);
hp_tensor hp_mean(hp_graph *g, hp_tensor x, const int64_t *axes, int n, bool keep); /* in f32 */
hp_tensor hp_argmax(hp_graph *g, hp_tensor x); /* last dim, i32 */
hp_tensor hp_reshape(hp_graph *g, hp_tensor x, hp_shape s);
hp_tensor hp_broadcast(hp_graph *g, hp_tensor x, hp_shape s);
hp_tensor hp_transpose(hp_graph *g, hp_tensor x, const int64_t *perm);
hp_tensor hp_slice(hp_graph *g, hp_tensor x, int axis, int64_t start, int64_t stop);
hp_tensor hp_slice_step(hp_graph *g, hp_tensor x, int axis, int64_t start, int64_t stop,
                        int64_t step); /* every step-th element of [start, stop) */
/* Pads x with `value`: low[d] elements before dim d, high[d] after it. */
hp_tensor hp_pad(hp_graph *g, hp_tensor x, const int64_t *low, const int64_t *high, double value);
hp_tensor hp_iota(hp_graph *g, hp_dtype t, hp_shape s, int axis); /* the index along one dim */
hp_tensor hp_concat(hp_graph *g, const hp_tensor *x, int n, int axis);
/* x's copy on tier HP_OFFLOAD_HOST or HP_OFFLOAD_FLASH, which only hp_fetch and hp_output read; the
 * value there, on the device again; and x as fetched from its copy on the host. */
hp_tensor hp_offload(hp_graph *g, hp_tensor x, int tier);
hp_tensor hp_fetch(hp_graph *g, hp_tensor x);
hp_tensor hp_detach(hp_graph *g, hp_tensor x);
/* x, overwritten by y from index pos on along axis; pos, i32: a scalar, or one per row of dim 0. */
hp_tensor hp_update(hp_graph *g, hp_tensor x, hp_tensor y, hp_tensor pos, int axis);
/* "btc,nc->btn" sums c, in f32; the result has a's dtype.  With bf16, an f32 operand is rounded. */
hp_tensor hp_einsum(hp_graph *g, const char *equation, hp_tensor a, hp_tensor b);
hp_tensor hp_einsum_to(hp_graph *g, const char *equation, hp_tensor a, hp_tensor b, hp_dtype t);
/* table [V,C], ids [...] i32 or i64 -> [...,C].  Row `skip` gets no gradient; -1 = none. */
hp_tensor hp_embedding(hp_graph *g, hp_tensor table, hp_tensor ids, int64_t skip);
hp_tensor hp_softmax(hp_graph *g, hp_tensor x); /* last dim, as norms; their w and b: f32 [C] */
hp_tensor hp_rms_norm(hp_graph *g, hp_tensor x, hp_tensor w, double eps);
hp_tensor hp_layer_norm(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b, double eps);
/* x [B,T,H,D], tables f32 [P,R/2], positions i32 [B,T]: rotates the first R of D dims, as
 * pairs (i, i + R/2), or (2i, 2i + 1) if interleaved. */
hp_tensor hp_rope(hp_graph *g, hp_tensor x, hp_tensor cos, hp_tensor sin, hp_tensor positions,
                  bool interleaved);
typedef struct {
  double scale;   /* 0: 1 / sqrt(D) */
  bool causal;    /* ends aligned: query t sees keys up to t + S - T */
  int64_t window; /* keys visible to a query, back from itself, inclusive; 0 = all */
  hp_tensor span; /* i32 [B,T,2]: first, last visible key of a query, not causal; or none */
  double dropout; /* of the weights, as hp_dropout, by index (b, h, t, s); 0 = none */
  hp_tensor seed;
  int64_t stream;
  hp_tensor table; /* with a span: k and v are pools, and these their blocks of each sequence */
} hp_attention_options;
/* q [B,T,H,D], k [B,S,KV,D], v [B,S,KV,Dv] -> [B,T,H,Dv]; H a multiple of KV; o may be NULL. */
hp_tensor hp_attention(hp_graph *g, hp_tensor q, hp_tensor k, hp_tensor v,
                       const hp_attention_options *o);
/* A cache in blocks of 32 tokens: pools of values [G,N,KV,32,D] and transposed keys [G,N,KV,D,32],
 * N blocks for each of G groups of sequences.  Rows x [B,T,KV,D] become tokens at[b].. of sequence
 * b, in the blocks of row b of table [B,M]; the first one starts as block copy[b], if any. */
hp_tensor hp_paged_update(hp_graph *g, hp_tensor cache, hp_tensor x, hp_tensor table, hp_tensor at,
                          hp_tensor copy, bool transposed);
/* The cache on a tier, HP_OFFLOAD_HOST or _FLASH: blocks list[g,first..] as slots on the device
 * (split: heads of blocks, block KV + head, as [G,slots,1,..]); and with slot i as block list[g,i],
 * to assign.  Attention to what o->table names as first.., as the next part's state or the end. */
hp_tensor hp_paged_fetch(hp_graph *g, hp_tensor cache, hp_tensor list, int tier, int64_t first,
                         int64_t slots, bool split);
hp_tensor hp_paged_store(hp_graph *g, hp_tensor cache, hp_tensor slots, hp_tensor list, int tier);
hp_tensor hp_paged_part(hp_graph *g, hp_tensor q, hp_tensor k, hp_tensor v,
                        const hp_attention_options *o, int64_t first, bool end, hp_tensor state);
/* Bounds [G,N,KV,2,D] of the keys of blocks; by them the n heads of blocks that q [B,1,H,D] attends
 * to, which one is written, and where the last token is there.  slots: to fetch, copy[b] last. */
hp_tensor hp_paged_bounds(hp_graph *g, hp_tensor bounds, hp_tensor x, hp_tensor table, hp_tensor at,
                          hp_tensor copy, hp_tensor span);
hp_tensor hp_paged_select(hp_graph *g, hp_tensor q, hp_tensor bounds, hp_tensor table, hp_tensor at,
                          hp_tensor copy, int64_t n, bool slots, hp_tensor *store, hp_tensor *last);
/* As in PyTorch, of x [N,C,L] or [N,C,H,W], where only N may be 0; options per spatial dim, o may
 * be NULL.  w [O,C/groups,K..]; b [O] or HP_NONE.  Pooling has no ceil_mode, dilation, indices. */
typedef struct {
  int64_t stride[2], pad[2], dilation[2]; /* 0: a stride or dilation of 1 */
  int64_t groups;                         /* 0: 1 */
} hp_conv_options;
hp_tensor hp_conv(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b, const hp_conv_options *o);
typedef struct {
  int64_t kernel[2], stride[2], pad[2]; /* stride 0: the kernel's size */
  bool exclude_pad;                     /* averages do not count the padding */
} hp_pool_options;
hp_tensor hp_max_pool(hp_graph *g, hp_tensor x, const hp_pool_options *o);
hp_tensor hp_avg_pool(hp_graph *g, hp_tensor x, const hp_pool_options *o);
/* logits [...,V], labels [...]: -log softmax(logits)[label]; 0 if the label is `ignore`. */
hp_tensor hp_cross_entropy(hp_graph *g, hp_tensor logits, hp_tensor labels, int64_t ignore);
/* The k largest of the last dim, descending, and their indices (i32); x[..., index]; v added to n
 * zeros by index.  An index out of range is no error: gather gives 0, scatter_add ignores it. */
hp_tensor hp_topk(hp_graph *g, hp_tensor x, int64_t k, hp_tensor *index);
hp_tensor hp_gather(hp_graph *g, hp_tensor x, hp_tensor index);
hp_tensor hp_scatter_add(hp_graph *g, hp_tensor v, hp_tensor index, int64_t n);
/* x [R...,K] or [R...,J,K], w [E,N,K], e i32 [R...,J] -> w[e] x: [R...,J,N]. */
hp_tensor hp_grouped_matmul(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor e);
/* Random numbers, functions of element index, seed (i64 scalar) and stream. */
hp_tensor hp_uniform(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s);
hp_tensor hp_normal(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s);
/* x / (1 - p) if the element's uniform number is at least p, else 0; x itself if p is 0. */
hp_tensor hp_dropout(hp_graph *g, hp_tensor x, double p, hp_tensor seed, int64_t stream);
/* Appends the backward: grads[i] = d loss / d wrt[i]; loss has one element.  Zeros if it does not
 * depend on wrt[i], HP_ERR_ARG if only through ops without a gradient: argmax, comparisons. */
hp_status hp_grad(hp_graph *g, hp_tensor loss, const hp_tensor *wrt, int n, hp_tensor *grads);
void hp_update_phase(hp_graph *g);             /* the ops that follow belong to the optimizer */
hp_tensor hp_sum_sq(hp_graph *g, hp_tensor x); /* of all elements, f32 scalar */
typedef struct {
  double beta1, beta2, eps, decay;
} hp_adamw_options;
/* One step of PyTorch's AdamW, assigned to params p, m, v.  Scalars f32: factor on the gradient,
 * lr, lr / (1 - beta1^t), sqrt(1 - beta2^t). */
void hp_adamw(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor m, hp_tensor v, hp_tensor factor,
              hp_tensor lr, hp_tensor step, hp_tensor sqrt_bc2, const hp_adamw_options *o);
void hp_sgd(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor buffer, hp_tensor factor,
            hp_tensor lr, double momentum, double decay); /* PyTorch's, to p and buffer */
/* The same, but they return the new p and assign nothing. */
hp_tensor hp_adamw_param(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor m, hp_tensor v,
                         hp_tensor factor, hp_tensor lr, hp_tensor step, hp_tensor sqrt_bc2,
                         const hp_adamw_options *o);
hp_tensor hp_sgd_param(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor buffer, hp_tensor factor,
                       hp_tensor lr, double momentum, double decay);
/* --- layouts: how a tensor is sharded over devices --------------------------------------- */
/* A mesh of devices with named axes (rank_list NULL: 0, 1, 2, ...) and, after hp_layout_call, the
 * sharding of a tensor: for each dim the axes that shard it, the first outermost; the other axes
 * hold replicas, or partial results of a reduction.  As text, in YAML and in `hyper layout`:
 * "(2,2,2)(dp,sp,mp)(mp,(sp,dp),None)+sum:dp@0,1,2,3,4,5,6,7"; everything after the names, partial
 * states and ranks are optional.  An entry mp:64 gives the length of a shard. */
typedef struct hp_layout hp_layout;
hp_status hp_layout_create(const int64_t *device_matrix, const char *const *alias_name, int n_axes,
                           const int64_t *rank_list, int64_t n_ranks, hp_layout **out);
hp_status hp_layout_parse(const char *text, hp_layout **out);
void hp_layout_free(hp_layout *l);
hp_status hp_layout_print(const hp_layout *l, char **text);
/* A tensor on l's mesh, by entries: "(mp,(sp,dp),None)"; or by one placement per axis: "S(0)",
 * "R", "P(sum)", for a tensor of `rank` dims.  op: sum, avg, max, min, prod or all. */
hp_status hp_layout_call(const hp_layout *l, const char *tensor_map, hp_layout **out);
hp_status hp_layout_place(const hp_layout *l, const char *const *placement, int n, int rank,
                          hp_layout **out);
hp_status hp_layout_set_partial(hp_layout *l, const char *axis, const char *op);
hp_status hp_layout_repeat(const hp_layout *l, int64_t *out); /* devices that hold the same shard */
/* The shard of a rank: [start, stop) of each dim of a tensor of shape s.  A dim that its axes do
 * not divide is padded: the last shards are shorter, or empty. */
hp_status hp_layout_slice(const hp_layout *l, hp_shape s, int64_t rank, int64_t *start,
                          int64_t *stop);
hp_status hp_layout_global(const hp_layout *l, hp_shape shard, hp_shape *out); /* global shape */
/* Ranks that differ from `rank` only along the axis, to ranks[0..n); n is the axis's size. */
hp_status hp_layout_group(const hp_layout *l, const char *axis, int64_t rank, int64_t *ranks,
                          int64_t room, int64_t *n);
/* --- the device --------------------------------------------------------------------------- */
/* Classes of memory; that of a tensor follows from the ops that read and assign it. */
enum { HP_MEMORY_PARAMS, HP_MEMORY_GRADIENTS, HP_MEMORY_OPTIMIZER, HP_MEMORY_ACTIVATIONS };
enum { HP_MEMORY_WORKSPACE = 4, HP_MEMORY_COMMUNICATION, HP_MEMORY_OTHER, HP_MEMORY_CLASSES };
/* What is not in use stays on the device, leaves it under the limit, or always; by which plan. */
enum { HP_OFFLOAD_NONE, HP_OFFLOAD_AUTO, HP_OFFLOAD_HOST, HP_OFFLOAD_FLASH };
enum { HP_PLAN_BEST, HP_PLAN_ZERO_OFFLOAD, HP_PLAN_LAYER_AHEAD, HP_PLAN_FULL_RECOMPUTE };
typedef struct {
  const char *pattern, *entries; /* of names, "*.q_proj.weight", and their layout, "(tp,None)" */
} hp_layout_rule;
typedef struct {
  const char *backend;           /* NULL: "cpu" */
  const char *mesh;              /* "(2,2)(dp,tp)": devices used as one; NULL: one device.  Of a */
  const char *pipeline;          /* pipeline "(2)(dp);(1)(dp)", and its schedule: a name or rows, */
                                 /* after a line "# file NAME" those of a file, for errors */
  hp_device *job;                /* this mesh joins its job: "(2)(dp)@2,3"; NULL: a new job */
  const char *cluster;           /* speed of devices and links: a file or a name; NULL: "this" */
  const hp_layout_rule *layouts; /* of inputs and params by name; the first match counts; */
  int n_layouts;                 /* a tensor without a match is replicated */
  int threads;                   /* 0: all cores that the process may use */
  bool interpret;                /* never call the C compiler, interpret loops (slow, same bits) */
  bool no_partial_sums;  /* no sum is split over devices: the bits of one device on any mesh */
  const char *engine;    /* of matrix products: a name, or "fastest" (measured); NULL: "packed" */
  uint64_t memory_limit; /* of params and work memory, per device, hard; 0 = none */
  uint8_t offload[HP_MEMORY_CLASSES]; /* what leaves the device, by class: HP_OFFLOAD_NONE, .. */
  bool plan_only;           /* only for plans: one device represents all, for any number of them */
  bool may_miss;            /* no warning for layouts of names that a program lacks */
  const char *const *flash; /* folders of tier flash, on different disks; NULL: no such tier */
  int n_flash, offload_policy, stages; /* HP_PLAN_*; of the pipeline, 0: the schedule's */
  uint64_t flash_limit, host_limit; /* of tiers, for all devices of a machine; host 0: no limit */
} hp_device_options;
hp_status hp_device_open(const hp_device_options *o, hp_device **out);
void hp_device_close(hp_device *d);
/* Appends a layout rule, for params before they are created; the first program warns of rules that
 * match none of its names.  Dims that axes do not divide: padded, or, if_divides, replicated. */
hp_status hp_device_layout(hp_device *d, const char *pattern, const char *entries, bool if_divides);
/* The same for the mesh of one stage of a pipeline alone. */
hp_status hp_device_stage_layout(hp_device *d, int stage, const char *pattern, const char *entries,
                                 bool if_divides);
/* For named tensors with matching names an HP_OFFLOAD_* in place of their class's, in programs that
 * are compiled from now on; the first rule that matches counts. */
hp_status hp_device_home(hp_device *d, const char *pattern, int offload);
/* A param of that name will be on this stage of the pipeline, -1: on all; 1 stage: it is none. */
hp_status hp_device_stage(hp_device *d, const char *name, int stage);
int hp_device_stages(const hp_device *d);
/* HP_ERR_ARG, or HP_ERR_INPUT for rows, if the schedule has no training step of so many
 * micro-batches, which linking them would refuse. */
hp_status hp_device_check_microbatches(const hp_device *d, int64_t n);
const char *hp_device_describe(const hp_device *d);
int hp_device_threads(const hp_device *d);
const char *hp_device_engine(const hp_device *d);            /* of products, in later programs */
hp_status hp_device_tuning(const hp_device *d, char **text); /* measured for "fastest"; hp_free */
hp_status hp_device_set_engine(hp_device *d, const char *name, const char *tuning); /* or NULL */
uint64_t hp_device_param_bytes(const hp_device *d);
uint64_t hp_device_memory_limit(const hp_device *d);
/* Is there any use in rows of hp_link behind an update?  On a pipeline by a schedule that splits
 * the backward, without a memory limit, and if no tensors are told to leave the device. */
bool hp_device_runs_ahead(const hp_device *d);
void hp_device_set_memory_limit(hp_device *d, uint64_t bytes); /* of later programs; 0 = none */
/* The measured speed of the device, per second (takes below 0.1 s). */
typedef struct {
  double flops, bf16_flops, bytes; /* operations in f32, in bf16 products; bytes read */
} hp_limits;
hp_status hp_device_measure(hp_device *d, hp_limits *out);
/* In a job (mpirun, srun, hyper launch) each process has a device; all of a mesh make each call. */
hp_status hp_world(int *rank, int *size);
hp_status hp_world_max(int64_t mine, int64_t *max);     /* the maximum over all processes */
hp_status hp_world_agree(bool mine, bool *all);         /* whether `mine` is true on all */
hp_status hp_world_broadcast(void *data, size_t bytes); /* from process 0 to all */
hp_status hp_world_gather(const void *mine, size_t bytes, void *all); /* of all, by rank */
/* Params of the device: created here, or by the first program that names them, as zeros; freed
 * and renamed while no program uses them.  Each thread calls a fill for n elements: full rows. */
hp_status hp_param_create(hp_device *d, const char *name, hp_dtype t, hp_shape s);
hp_status hp_param_free(hp_device *d, const char *name);
hp_status hp_param_rename(hp_device *d, const char *name, const char *to);
hp_status hp_write(hp_device *d, const char *name, const void *data, size_t bytes);
typedef hp_status (*hp_fill_fn)(void *context, int64_t first, int64_t n, void *to);
hp_status hp_fill(hp_device *d, const char *name, hp_fill_fn fill, void *context);
/* In a job every process calls it; data NULL: this process needs no data. */
hp_status hp_read(const hp_device *d, const char *name, void *data, size_t bytes);
int hp_param_count(const hp_device *d);
hp_status hp_param_info(const hp_device *d, int i, const char **name, hp_dtype *t, hp_shape *s);
hp_status hp_param_find(const hp_device *d, const char *name, hp_dtype *t, hp_shape *s);
/* Saves these params (n 0: all) to files PATH-part-* and PATH.parts.json, each device its shards;
 * loads them on any mesh.  If the files do not hold exactly these, a load changes nothing. */
hp_status hp_params_save(hp_device *d, const char *path, const char *const *name, int n);
hp_status hp_params_load(hp_device *d, const char *path, const char *const *name, int n);
hp_status hp_params_verify(const hp_device *d); /* HP_ERR_DEVICE: copies of a shard differ */
/* --- compile, inspect, run ---------------------------------------------------------------- */
/* Tokens of sharded experts go to devices that need them, to all, or as is faster; same bits. */
typedef enum { HP_DISPATCH_AUTO, HP_DISPATCH_ROWS, HP_DISPATCH_ALL } hp_dispatch;
/* Optimizer state on tier host is updated there, by the host's processors, if the cluster file says
 * how fast (update_gb_s) and that is faster; or never; or wherever it can be. */
typedef enum { HP_HOST_UPDATE_AUTO, HP_HOST_UPDATE_NEVER, HP_HOST_UPDATE_ALWAYS } hp_host_update;
typedef struct {
  bool remat; /* recompute forward values of a block in its backward: of all blocks, or of the */
  int remat_blocks;                 /* first so many of each stage (0: all), and of all places, */
  const char *const *remat_places;  /* or of modules that match a name of a list that ends NULL */
  const char *dump_dir, *dump_name; /* folder for texts after stages; of a piece, in their names */
  bool serial;            /* collectives run between computations, not overlapped; same bits */
  uint64_t prefetch;      /* bytes of params gathered ahead of use; 0: those of a block */
  uint64_t chunk_bytes;   /* larger values are made in chunks; 0: 64 MiB, or more if faster */
  uint64_t reserve_bytes; /* of the memory limit, for params of later programs */
  hp_dispatch dispatch;
  hp_host_update host_update;
} hp_compile_options;
hp_status hp_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                     hp_program **out);
/* Loads the text of hp_program_print or dump_dir, for one device, checked; name: for messages. */
hp_status hp_program_parse(const char *text, const char *name, hp_device *d, hp_program **out);
void hp_program_free(hp_program *p);
int hp_program_io_count(const hp_program *p);
hp_status hp_program_io_info(const hp_program *p, int i, const char **name, hp_dtype *t,
                             hp_shape *s, bool *is_output);
/* A step of several graphs as one program: each graph is compiled once, as a piece; rows are lines
 * "stage action microbatch", stage * for all.  An action is a piece, or NAME:FB for some of it: F
 * forward, B backward, W backward to the gradient of one param, U update.  Rows share params;
 * inputs and outputs of micro-batch M, if there are several, are NAME@M.  The options are those of
 * the first row's piece.  On a pipeline the rows of N micro-batches and their update may be
 * followed by the same N as micro-batches N to 2N - 1, those of the next step: see hp_run_step.
 * Outputs ahead.PARAM of the update are what these read as PARAM. */
typedef struct hp_piece hp_piece;
hp_status hp_piece_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                           hp_piece **out);
void hp_piece_free(hp_piece *p);
hp_status hp_link(hp_piece *const *piece, const char *const *action, int n, const char *rows,
                  hp_program **out);
/* Rows of unlike cost: order[k] is the micro-batch to run k-th, so that a pipeline is least idle by
 * its plan; one mesh: k.  Call it before the step: gradients are added in the order of the rows. */
hp_status hp_link_order(hp_piece *const *piece, const char *const *action, int n, const char *rows,
                        int *order);
typedef struct {
  const char *name;
  void *data; /* host memory: an input is read before the run, an output written after it */
  size_t bytes;
} hp_io;
hp_status hp_run(hp_program *p, const hp_io *io, int n); /* all inputs, any outputs, each once */
/* The same of a pipeline's step whose rows go on behind the update (hp_link), with the inputs of
 * all of them; outputs of those behind it are not written.  ahead: runs forwards of the next step
 * before the update.  continues: goes on with those of the run before, if no other program has run
 * since, and no param was read or written. */
hp_status hp_run_step(hp_program *p, const hp_io *io, int n, bool continues, bool ahead);
enum { HP_TIERS = 3, HP_WIDEST_GAPS = 5 }; /* gaps: rows of hp_op_time that reports show first */
const char *hp_memory_class(int i);  /* "parameters", "gradients", "optimizer", "activations", .. */
typedef struct {                     /* memory of a program on each device, in bytes */
  uint64_t state[HP_MEMORY_CLASSES]; /* tensors that outlive runs, on a device, */
  uint64_t model[HP_MEMORY_CLASSES]; /* and in the global model, each counted once */
  uint64_t live[HP_MEMORY_CLASSES];  /* work memory, at its peak */
  uint64_t state_bytes, live_bytes;  /* sums of state and of live */
  uint64_t work_bytes, work_bound;   /* planned work memory, and a lower bound of any plan */
  uint64_t planned_bytes;            /* state_bytes + work_bytes */
  uint64_t limit_bytes, device_bytes; /* memory limit; a device's memory, by the cluster; 0: none */
  struct {
    const char *name;                                              /* "device", "host", "flash" */
    uint64_t planned_bytes, moved_bytes, state[HP_MEMORY_CLASSES]; /* moved: copied, in a run */
  } tier[HP_TIERS];
  int devices, live_at; /* of the mesh; the instruction at the peak */
} hp_memory;
typedef struct {
  double compile_s, run_s;            /* of the compilation and of the last run */
  double predicted_s, exposed_copy_s; /* of a run; see hp_op_time's predicted_s */
  double bound_s;   /* no plan under the memory limit is predicted to be faster; 0: not known */
  hp_memory memory; /* of one device */
  double flops, bytes, received;              /* of one run; received: from other devices */
  double comm_s, can_overlap_s, overlapped_s; /* of collectives of the last run */
  int instructions, kernels, host_updates; /* kernels: distinct loop kernels; updates on the host */
  int ahead; /* micro-batches of the next step with forwards that run before the update */
} hp_program_stats;
/* The plan of hp_compile, without taking any memory of the device: a dry run.  run_s is 0.
 * HP_ERR_OOM if the memory limit is too small: then only out->memory is set, to what is needed. */
hp_status hp_plan(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                  hp_program_stats *out);
/* The same plan as text: `what` as for hp_explain, or "layouts", "layouts.json", "layouts.svg". */
hp_status hp_plan_explain(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                          const char *what, char **text);
/* The plan of hp_link: as hp_plan and, if `what` is not NULL, as hp_plan_explain. */
hp_status hp_link_plan(hp_piece *const *piece, const char *const *action, int n, const char *rows,
                       hp_program_stats *out, const char *what, char **text);
hp_status hp_program_stats_get(const hp_program *p, hp_program_stats *out);
hp_status hp_program_print(const hp_program *p, char **text);
/* "memory", "memory.totals", "schedule", "ops", "comm": decisions and their reasons, as text for
 * people; all but totals also as "X.json"; "timeline.svg", "mesh.svg": pictures of recent runs. */
hp_status hp_explain(const hp_program *p, const char *what, char **text);
/* Time of a run, mean of the faster half of the last 8: *n rows, the widest gap first; hp_free. */
typedef struct {
  char kind[48], shape[48], place[80], engine[16]; /* "einsum dW", "1024x768x2048 f32", .. */
  const char *limit; /* "flops", "bytes", "link" between devices, "wait" for others */
  bool overlapped;   /* with computation, so its time does not add to the run's */
  int count;
  /* Sums over the calls.  limit_s: at the device's limits; gap_s: what the run would save there;
   * predicted_s: from the costs of the cluster, or of earlier runs on this machine. */
  double seconds, limit_s, gap_s, predicted_s, flops, bytes;
} hp_op_time;
hp_status hp_program_times(const hp_program *p, hp_op_time **out, int *n);
void hp_program_timeline(const hp_program *p, uint64_t *live, int n); /* work memory, at n points */
/* The same for one class, with tensors that outlive runs; the sum is at most planned_bytes. */
hp_status hp_program_memory_over_time(const hp_program *p, int which, uint64_t *bytes, int n);
hp_status hp_trace(const hp_program *p, const char *path); /* of the last run; Chrome, Perfetto */
#ifdef __cplusplus
}
#endif
#endif
