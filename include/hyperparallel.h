/* hyperparallel.h - write a model as if the supernode were one computer: build a tensor graph,
 * compile it to a flat program with a static memory plan, run it.  This is the whole public API.
 *
 *   errors     a call that can fail returns hp_status; HP_OK is 0.  The reason, in words, is in
 *              hp_last_error() of the calling thread: what failed, where in the model or file, what
 *              was expected, what to do.  On failure outputs are untouched.  Op builders return a
 *              tensor id; a bad call returns HP_NONE and poisons its graph, so a model is written
 *              without checks and hp_compile (or hp_graph_status) reports the FIRST error.  A
 *              pointer that is NULL is HP_ERR_ARG, unless it is said here what NULL means.
 *   ownership  create/free pair up; free accepts NULL.  A graph owns its tensors.  A device owns
 *              the params and the work memory that its programs share; close it after them.
 *              `const char *` results live as long as their object; `char **` go to hp_free.
 *   threads    a graph, or a device and its programs, is one thread's at a time; a run has more.
 *   bits       same graph, seed and layout: the same bits on every run.  In f32 on CPU they
 *              do not depend on threads or on the instruction set.
 */
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
  HP_ERR_ARG,         /* a call, flag or configuration value that makes no sense        */
  HP_ERR_INPUT,       /* a file or request that is damaged or is not what it should be  */
  HP_ERR_SHAPE,       /* operands of an op do not fit                                   */
  HP_ERR_LAYOUT,      /* a layout or strategy that cannot be                            */
  HP_ERR_OOM,         /* a memory limit, or the machine's memory, is too small          */
  HP_ERR_IO,          /* the operating system refused: no such file, disk full, ...     */
  HP_ERR_COMM,        /* a peer or a link failed                                        */
  HP_ERR_DEVICE,      /* the device failed                                              */
  HP_ERR_NUMERIC,     /* a value that must be finite is not                             */
  HP_ERR_UNSUPPORTED, /* known, but not built                                           */
  HP_ERR_INTERNAL     /* our bug                                                        */
} hp_status;

typedef enum { HP_F32, HP_BF16, HP_F16, HP_I32, HP_I64, HP_U8, HP_BOOL, HP_DTYPE_COUNT } hp_dtype;

typedef struct {
  int rank;
  int64_t dim[HP_MAX_RANK];
} hp_shape;

typedef struct hp_graph hp_graph;     /* SSA tensor graph                                  */
typedef struct hp_device hp_device;   /* memory, threads, and tensors that outlive a run   */
typedef struct hp_program hp_program; /* flat instruction list with its memory plan        */
typedef uint32_t hp_tensor;           /* a value of one graph, of no other; HP_NONE is none */
#define HP_NONE ((hp_tensor)0)

/* --- errors, version ------------------------------------------------------------------ */

/* Why the last call of this thread failed, one line; "" when it succeeded.  A builder of a poisoned
 * graph fails with its first failure.  Calls that free or close, and these five, leave it be. */
const char *hp_last_error(void);
const char *hp_error_trace(void); /* the same line, and the calls that it passed through */
const char *hp_status_name(hp_status s);
const char *hp_version(void);
void hp_free(void *p);

/* --- the graph: what to compute ---------------------------------------------------------- */

hp_status hp_graph_create(hp_graph **out); /* 1,023 may be alive at a time, parsed ones too */
void hp_graph_free(hp_graph *g);
hp_status hp_graph_status(const hp_graph *g); /* HP_OK, or the first failure of a builder */
/* Text form, one op a line; parse reads it back (`name` is for messages). */
hp_status hp_graph_print(const hp_graph *g, char **text);
hp_status hp_graph_parse(const char *text, const char *name, hp_graph **out);
hp_shape hp_shape_of(const hp_graph *g, hp_tensor x);
hp_dtype hp_dtype_of(const hp_graph *g, hp_tensor x);
/* The input, else the param, else what the output of that name is; HP_NONE: there is none. */
hp_tensor hp_graph_find(const hp_graph *g, const char *name);

/* Declarations for ops that follow: where in the model they are (for messages, explain and trace),
 * and which repeated block (layer, from 1; 0 = none) they belong to. */
void hp_at(hp_graph *g, const char *place); /* NULL or "": none */
void hp_block(hp_graph *g, int block);

/* Leaves.  An input is given to every run; a param lives on the device under its name. */
hp_tensor hp_input(hp_graph *g, const char *name, hp_dtype t, hp_shape s);
hp_tensor hp_param(hp_graph *g, const char *name, hp_dtype t, hp_shape s);
hp_tensor hp_const(hp_graph *g, hp_dtype t, double value); /* scalar; t must hold the value */
/* x under a name for which a layout can be declared; its gradient is "grad.NAME". */
hp_tensor hp_annotate(hp_graph *g, const char *name, hp_tensor x);
/* x, to lie so on the device's mesh, as its gradient: "(dp,None)"; on one device x as it is. */
hp_tensor hp_shard(hp_graph *g, hp_tensor x, const char *entries);
/* Effects.  An output can be read after a run; after a run the param has the value x. */
void hp_output(hp_graph *g, const char *name, hp_tensor x); /* no input's name */
void hp_assign(hp_graph *g, hp_tensor param, hp_tensor x);

/* Elementwise ops broadcast from the right, as NumPy; dtypes of operands must be equal.  hp_map
 * takes any elementwise row of the op table by name; b and c are HP_NONE where it has none. */
hp_tensor hp_map(hp_graph *g, const char *op, hp_tensor a, hp_tensor b, hp_tensor c);
/* The i-th of these names, from 0, NULL past the last; what is asked for beside it. */
const char *hp_map_name(int i, int *operands, const char **meaning);
hp_tensor hp_add(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_sub(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_mul(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_div(hp_graph *g, hp_tensor a, hp_tensor b);
hp_tensor hp_scale(hp_graph *g, hp_tensor x, double factor); /* a factor that x's dtype holds */
hp_tensor hp_cast(hp_graph *g, hp_tensor x, hp_dtype t);
hp_tensor hp_clamp(hp_graph *g, hp_tensor x, double low, double high); /* infinite: no bound */

/* Reductions, over n axes, none where n is 0, and shape.  Axes and perm count from 0. */
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
/* `value` around x: low[d] elements before dim d, high[d] behind it. */
hp_tensor hp_pad(hp_graph *g, hp_tensor x, const int64_t *low, const int64_t *high, double value);
hp_tensor hp_iota(hp_graph *g, hp_dtype t, hp_shape s, int axis); /* the index along one dim */
hp_tensor hp_concat(hp_graph *g, const hp_tensor *x, int n, int axis);
/* x with y in it from index pos on along axis; pos, i32: one number, or one an element of dim 0. */
hp_tensor hp_update(hp_graph *g, hp_tensor x, hp_tensor y, hp_tensor pos, int axis);

/* "btc,nc->btn" sums c, in f32; the result has a's dtype.  f32 beside bf16 is rounded to it. */
hp_tensor hp_einsum(hp_graph *g, const char *equation, hp_tensor a, hp_tensor b);
hp_tensor hp_einsum_to(hp_graph *g, const char *equation, hp_tensor a, hp_tensor b, hp_dtype t);

/* table [V,C], ids [...] i32 or i64 -> [...,C].  Row `skip` gets no gradient; -1 = none. */
hp_tensor hp_embedding(hp_graph *g, hp_tensor table, hp_tensor ids, int64_t skip);
hp_tensor hp_softmax(hp_graph *g, hp_tensor x); /* last dim */
/* Over the last dim; w and b are f32 [C]. */
hp_tensor hp_rms_norm(hp_graph *g, hp_tensor x, hp_tensor w, double eps);
hp_tensor hp_layer_norm(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor b, double eps);
/* x [B,T,H,D], tables f32 [P,R/2], positions i32 [B,T]: the first R of D dims turn, pair
 * (i, i + R/2), or (2i, 2i + 1) when interleaved. */
hp_tensor hp_rope(hp_graph *g, hp_tensor x, hp_tensor cos, hp_tensor sin, hp_tensor positions,
                  bool interleaved);
typedef struct {
  double scale;   /* 0: 1 / sqrt(D) */
  bool causal;    /* ends aligned: query t sees keys up to t + S - T */
  int64_t window; /* a query sees so many keys back, itself counted; 0 = all */
  hp_tensor span; /* i32 [B,T,2]: first and last key of each query, instead of causal; or none */
  double dropout; /* of the weights, as hp_dropout by the index b, h, t, s; 0 = none */
  hp_tensor seed;
  int64_t stream;
} hp_attention_options;
/* q [B,T,H,D], k [B,S,KV,D], v [B,S,KV,Dv] -> [B,T,H,Dv]; H a multiple of KV; o may be NULL. */
hp_tensor hp_attention(hp_graph *g, hp_tensor q, hp_tensor k, hp_tensor v,
                       const hp_attention_options *o);
/* Convolution and pooling as PyTorch has them, of x [N,C,L] or [N,C,H,W]; a number for each spatial
 * dim.  w [O,C/groups,K..]; b [O] or HP_NONE; o may be NULL.  Images are not empty, but there may
 * be none, N = 0.  Pooling has no ceil_mode, dilation or indices. */
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
/* logits [...,V], labels [...]: -log softmax(logits)[label], 0 where the label is `ignore`. */
hp_tensor hp_cross_entropy(hp_graph *g, hp_tensor logits, hp_tensor labels, int64_t ignore);
/* The k largest of the last dim, descending, with their places, i32; x[..., index]; v summed into n
 * places.  An index outside of what it points into is no error: it gives 0, or is left out. */
hp_tensor hp_topk(hp_graph *g, hp_tensor x, int64_t k, hp_tensor *index);
hp_tensor hp_gather(hp_graph *g, hp_tensor x, hp_tensor index);
hp_tensor hp_scatter_add(hp_graph *g, hp_tensor v, hp_tensor index, int64_t n);
/* x [R...,K] or [R...,J,K], w [E,N,K], e i32 [R...,J] -> w[e] x: [R...,J,N]. */
hp_tensor hp_grouped_matmul(hp_graph *g, hp_tensor x, hp_tensor w, hp_tensor e);
/* Numbers by element index, seed (i64 scalar) and stream. */
hp_tensor hp_uniform(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s);
hp_tensor hp_normal(hp_graph *g, hp_tensor seed, int64_t stream, hp_dtype t, hp_shape s);
/* x / (1 - p) where the element's uniform number is at least p, else 0; x itself when p is 0. */
hp_tensor hp_dropout(hp_graph *g, hp_tensor x, double p, hp_tensor seed, int64_t stream);

/* Appends the backward: grads[i] = d loss / d wrt[i]; loss has one element.  Zeros where the loss
 * does not depend on wrt[i]; where it does through ops alone that have no gradient, as argmax and
 * comparisons, HP_ERR_ARG. */
hp_status hp_grad(hp_graph *g, hp_tensor loss, const hp_tensor *wrt, int n, hp_tensor *grads);
void hp_update_phase(hp_graph *g); /* ops that follow are the optimizer's (explain, trace) */
hp_tensor hp_sum_sq(hp_graph *g, hp_tensor x); /* of all elements, f32 scalar */
typedef struct {
  double beta1, beta2, eps, decay;
} hp_adamw_options;
/* One step of PyTorch's AdamW, assigned to params p, m, v.  Scalars f32: factor on the gradient,
 * lr, lr / (1 - beta1^t), sqrt(1 - beta2^t). */
void hp_adamw(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor m, hp_tensor v, hp_tensor factor,
              hp_tensor lr, hp_tensor step, hp_tensor sqrt_bc2, const hp_adamw_options *o);
/* One step of PyTorch's SGD, assigned to p and buffer. */
void hp_sgd(hp_graph *g, hp_tensor p, hp_tensor grad, hp_tensor buffer, hp_tensor factor,
            hp_tensor lr, double momentum, double decay);

/* --- layouts: how a tensor lies on many devices ------------------------------------------ */

/* A mesh of devices with named axes (rank_list NULL: 0, 1, 2, ...) and, once it is called, how a
 * tensor lies on it: for each dim the axes that split it, the first outermost; the other axes hold
 * replicas, or partial results of a reduction.  As text, in YAML and in `hyper layout`:
 * "(2,2,2)(dp,sp,mp)(mp,(sp,dp),None)+sum:dp@0,1,2,3,4,5,6,7"; what follows the names, and what
 * follows the entries, may be missing.  An entry mp:64 gives the length of a part. */
typedef struct hp_layout hp_layout;
hp_status hp_layout_create(const int64_t *device_matrix, const char *const *alias_name, int n_axes,
                           const int64_t *rank_list, int64_t n_ranks, hp_layout **out);
hp_status hp_layout_parse(const char *text, hp_layout **out);
void hp_layout_free(hp_layout *l);
hp_status hp_layout_print(const hp_layout *l, char **text);
/* A tensor on l's mesh, from entries: "(mp,(sp,dp),None)"; or from one placement an axis: "S(0)",
 * "R", "P(sum)", for a tensor of `rank` dims.  op: sum, avg, max, min, prod or all. */
hp_status hp_layout_call(const hp_layout *l, const char *tensor_map, hp_layout **out);
hp_status hp_layout_place(const hp_layout *l, const char *const *placement, int n, int rank,
                          hp_layout **out);
hp_status hp_layout_set_partial(hp_layout *l, const char *axis, const char *op);
hp_status hp_layout_repeat(const hp_layout *l, int64_t *out); /* devices that hold the same shard */
/* The part of a rank: [start, stop) of each dim of a tensor of shape s.  A dim that its axes do not
 * divide is padded: the last parts are shorter, or empty. */
hp_status hp_layout_slice(const hp_layout *l, hp_shape s, int64_t rank, int64_t *start,
                          int64_t *stop);
hp_status hp_layout_global(const hp_layout *l, hp_shape part, hp_shape *out); /* from a part's */
/* Ranks that differ from `rank` along the axis only: as many as its size, to ranks[0..n). */
hp_status hp_layout_group(const hp_layout *l, const char *axis, int64_t rank, int64_t *ranks,
                          int64_t room, int64_t *n);

/* --- the device --------------------------------------------------------------------------- */

/* Names that match the pattern ("*.q_proj.weight") lie as the entries say: "(tp,None)". */
typedef struct {
  const char *pattern, *entries;
} hp_layout_rule;
typedef struct {
  const char *backend;           /* NULL: "cpu" */
  const char *mesh;              /* "(2,2)(dp,tp)": so many devices as one; NULL: one device */
  hp_device *job;                /* in whose job this mesh is: "(2)(dp)@2,3"; NULL: its own */
  const char *cluster;           /* what devices and links cost: a file or a name; NULL: "this" */
  const hp_layout_rule *layouts; /* of inputs and params by name; the first that matches counts, */
  int n_layouts;                 /* what none matches is whole on every device */
  int threads;                   /* 0: all cores that the process may use */
  bool interpret;        /* never call the C compiler: loops are interpreted (slow, same bits) */
  bool no_partial_sums;  /* no sum is cut between devices: the bits of one device on every mesh */
  const char *engine;    /* of products: a name, or "fastest", by measurement; NULL: "packed" */
  uint64_t memory_limit; /* bytes of params and work together a device, hard; 0 = none */
  bool plan_only;        /* for plans alone: one device stands for all, however many they are */
  bool may_miss;         /* layouts for names that a program lacks are not told */
} hp_device_options;
hp_status hp_device_open(const hp_device_options *o, hp_device **out);
void hp_device_close(hp_device *d);
/* One more rule for layouts, after those before it; of params it must come before they are made.
 * The first program that is compiled warns of rules that match none of its names. where_divides:
 * dims that their axes do not divide stay whole, else they are padded. */
hp_status hp_device_layout(hp_device *d, const char *pattern, const char *entries,
                           bool where_divides);
const char *hp_device_describe(const hp_device *d);
int hp_device_threads(const hp_device *d);
const char *hp_device_engine(const hp_device *d);            /* of products, in later programs */
hp_status hp_device_tuning(const hp_device *d, char **text); /* measured for "fastest"; hp_free */
hp_status hp_device_set_engine(hp_device *d, const char *name, const char *tuning); /* or NULL */
uint64_t hp_device_param_bytes(const hp_device *d);
void hp_device_set_memory_limit(hp_device *d, uint64_t bytes); /* of later programs; 0 = none */
/* What the device can do in a second, as measured (takes about 0.1 s). */
typedef struct {
  double flops, bf16_flops, bytes; /* operations in f32, of products of bf16; bytes read */
} hp_limits;
hp_status hp_device_measure(hp_device *d, hp_limits *out);
/* In a job (mpirun, srun, hyper launch) each process has a device; a mesh's make the same calls. */
hp_status hp_world(int *rank, int *size);
hp_status hp_world_max(int64_t mine, int64_t *max);     /* the largest that one of them gives */
hp_status hp_world_agree(bool mine, bool *all);         /* whether all of them say true */
hp_status hp_world_broadcast(void *data, size_t bytes); /* those of process 0 to all */
hp_status hp_world_gather(const void *mine, size_t bytes, void *all); /* those of each, by rank */

/* Params of the device: created here, or by the first program that names them, with zeros; freed
 * and renamed while no program uses them.  Each thread calls a fill for n elements: whole rows. */
hp_status hp_param_create(hp_device *d, const char *name, hp_dtype t, hp_shape s);
hp_status hp_param_free(hp_device *d, const char *name);
hp_status hp_param_rename(hp_device *d, const char *name, const char *to);
hp_status hp_write(hp_device *d, const char *name, const void *data, size_t bytes);
typedef hp_status (*hp_fill_fn)(void *context, int64_t first, int64_t n, void *to);
hp_status hp_fill(hp_device *d, const char *name, hp_fill_fn fill, void *context);
/* In a job every process calls it; data NULL: this one does not want it. */
hp_status hp_read(const hp_device *d, const char *name, void *data, size_t bytes);
int hp_param_count(const hp_device *d);
hp_status hp_param_info(const hp_device *d, int i, const char **name, hp_dtype *t, hp_shape *s);
hp_status hp_param_find(const hp_device *d, const char *name, hp_dtype *t, hp_shape *s);
/* These params (n 0: all) to files PATH-part-* and PATH.parts.json, each device what it holds; and
 * back, on any mesh.  A load of files that hold others, or fewer, or more, changes nothing. */
hp_status hp_params_save(hp_device *d, const char *path, const char *const *name, int n);
hp_status hp_params_load(hp_device *d, const char *path, const char *const *name, int n);
/* Do devices hold the same bits of the same shard?  HP_ERR_DEVICE says which do not: it failed. */
hp_status hp_params_verify(const hp_device *d);

/* --- compile, look, run ------------------------------------------------------------------- */

typedef struct {
  bool remat;             /* recompute forward values of a block in its backward */
  const char *dump_dir;   /* text after every pass goes there; NULL = no */
  bool serial;            /* collectives run between computations, not overlapped; same bits */
  uint64_t prefetch;      /* bytes of params gathered ahead of their use; 0: those of a block */
  uint64_t chunk_bytes;   /* larger values are made in chunks; 0: 64 MiB, more where that pays */
  uint64_t reserve_bytes; /* of the memory limit, for params that other programs will make */
} hp_compile_options;
hp_status hp_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                     hp_program **out);
/* What hp_program_print or dump_dir wrote, for one device: the same bits.  It is checked to be safe
 * to run; where kernels need more memory here, its memory is planned again.  name: for messages. */
hp_status hp_program_parse(const char *text, const char *name, hp_device *d, hp_program **out);
void hp_program_free(hp_program *p);
int hp_program_io_count(const hp_program *p);
hp_status hp_program_io_info(const hp_program *p, int i, const char **name, hp_dtype *t,
                             hp_shape *s, bool *is_output);

/* A step of several graphs as one program: each is compiled once, as a piece, and runs as often as
 * rows say, lines of "stage action microbatch" in their order; action is the name of a piece.
 * Params are one for all rows; of several micro-batches, inputs and outputs of M are called NAME@M.
 * The program does not need its pieces; its options are those of the last row's. */
typedef struct hp_piece hp_piece;
hp_status hp_piece_compile(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                           hp_piece **out);
void hp_piece_free(hp_piece *p);
hp_status hp_link(hp_piece *const *piece, const char *const *action, int n, const char *rows,
                  hp_program **out);

typedef struct {
  const char *name;
  void *data; /* host memory: of an input read before the run, of an output written after it */
  size_t bytes;
} hp_io;
/* Runs once.  Every input must be given, outputs are optional; none is given twice. */
hp_status hp_run(hp_program *p, const hp_io *io, int n);

/* Memory of a program on each device, in bytes.  Classes follow from what reads and assigns
 * tensors: sums of gradients, after hp_grad; the optimizer's state, in the update. */
enum { HP_MEMORY_PARAMS, HP_MEMORY_GRADIENTS, HP_MEMORY_OPTIMIZER, HP_MEMORY_ACTIVATIONS };
enum { HP_MEMORY_WORKSPACE = 4, HP_MEMORY_COMMUNICATION, HP_MEMORY_OTHER, HP_MEMORY_CLASSES };
enum { HP_TIERS = 3, HP_WIDEST_GAPS = 5 }; /* gaps: rows of hp_op_time that reports set apart */
const char *hp_memory_class(int i); /* "parameters", "gradients", "optimizer", "activations", .. */
typedef struct {
  uint64_t state[HP_MEMORY_CLASSES];  /* of tensors that outlive runs, what a device holds, */
  uint64_t model[HP_MEMORY_CLASSES];  /* and the program's of the whole model, each once */
  uint64_t live[HP_MEMORY_CLASSES];   /* of work memory, where most of it is live */
  uint64_t state_bytes, live_bytes;   /* sums of state, of live */
  uint64_t work_bytes, work_bound;    /* work memory planned, and the least that any plan needs */
  uint64_t planned_bytes;             /* state_bytes + work_bytes: what a device takes */
  uint64_t limit_bytes, device_bytes; /* memory limit; what a device has, by the cluster; 0: none */
  struct {
    const char *name;                    /* "device", "host", "flash" */
    uint64_t planned_bytes, moved_bytes; /* moved: by copies from and to it, in a run */
  } tier[HP_TIERS];
  int devices, live_at; /* of the mesh; the instruction where most is live */
} hp_memory;

typedef struct {
  double compile_s, run_s;             /* of the compilation and of the last run */
  double predicted_s, exposed_copy_s;  /* of a run, as hp_op_time's predicted_s */
  hp_memory memory;                    /* of one device */
  double flops, bytes, received;       /* of one run: work; bytes from other devices */
  double comm_s, hideable_s, hidden_s; /* of the last run: hp_explain(p, "comm", ..) sums these */
  int instructions, kernels;           /* kernels: distinct loop kernels */
} hp_program_stats;
/* What hp_compile would plan, without taking any memory of the device: a dry run.  run_s is 0.
 * HP_ERR_OOM where the memory limit is too small: then out->memory, alone, is what would do. */
hp_status hp_plan(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                  hp_program_stats *out);
/* The same plan as text: `what` as for hp_explain, or "layouts", "layouts.json", "layouts.svg". */
hp_status hp_plan_explain(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                          const char *what, char **text);
/* What hp_link would plan: as hp_plan and, where `what` is not NULL, hp_plan_explain. */
hp_status hp_link_plan(hp_piece *const *piece, const char *const *action, int n, const char *rows,
                       hp_program_stats *out, const char *what, char **text);
hp_status hp_program_stats_get(const hp_program *p, hp_program_stats *out);
hp_status hp_program_print(const hp_program *p, char **text);
/* "memory", "memory.totals", "schedule", "ops", "comm": what was decided and why, as text for
 * people; each as "X.json" too, but totals; "timeline.svg", "mesh.svg": pictures of recent runs. */
hp_status hp_explain(const hp_program *p, const char *what, char **text);
/* Where the time of a run goes, the mean of the faster half of the last 8: *n rows, calls of the
 * same work, the widest gap to the limit first; hp_free.  Measures the device when needed. */
typedef struct {
  char kind[48], shape[48], place[80], engine[16]; /* "einsum dW", "1024x768x2048 f32", .. */
  const char *limit; /* "flops", "bytes", "link" between devices, "wait" for others */
  bool overlapped;   /* with computation: its time is no part of the run's */
  int count;
  /* Of all calls.  limit_s: at the device's limits; gap_s: what the run would win there;
   * predicted_s: before any run, by costs of the cluster or of earlier runs on this machine. */
  double seconds, limit_s, gap_s, predicted_s, flops, bytes;
} hp_op_time;
hp_status hp_program_times(const hp_program *p, hp_op_time **out, int *n);
void hp_program_timeline(const hp_program *p, uint64_t *live, int n); /* work, at n points of it */
/* The same of one class, with what outlives runs; all add up to memory.planned_bytes at most. */
hp_status hp_program_memory_over_time(const hp_program *p, int which, uint64_t *bytes, int n);
hp_status hp_trace(const hp_program *p, const char *path); /* the last run, for Chrome, Perfetto */

#ifdef __cplusplus
}
#endif
#endif
