/* `hyper run`: a program read back from its text, with tensors from files. */
#include "base/dtype.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/safetensors.h"
#include "base/vec.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MOST = 16 };

typedef struct {
  const char *program, *in, *out;
  int64_t threads, times;
  uint64_t memory_limit;
  bool states, json;
} args;

/* An input or output of the program, or a tensor of the device. */
typedef struct {
  const char *name;
  hp_dtype type;
  hp_shape shape;
  size_t bytes;
  void *data; /* of an output, or of a state after the run */
} tensor;

typedef struct {
  const args *a;
  hp_device *d;
  hp_program *p;
  st_file file[FILES_MOST];
  int files;
  VEC(tensor) inputs, outputs, states;
  VEC(double) seconds;
} run_state;

/* --- files ----------------------------------------------------------------------------------- */

/* --in names files, with commas between. */
static hp_status open_files(run_state *r) {
  for (const char *at = r->a->in; at && *at;) {
    str path = {0};
    size_t n = strcspn(at, ",");
    if (r->files == FILES_MOST) HP_FAIL(HP_ERR_ARG, "--in names more than %d files", FILES_MOST);
    str_add_n(&path, at, n);
    hp_status st = str_status(&path);
    if (!st) st = st_open(path.at, &r->file[r->files]);
    if (!st) r->files++;
    str_free(&path);
    HP_TRY(st);
    at += n + (at[n] == ',');
  }
  return HP_OK;
}

static void print_type(hp_dtype t, const hp_shape *s, str *out) {
  str_printf(out, "%s[", dtype_name(t));
  for (int i = 0; i < s->rank; i++) str_printf(out, "%s%lld", i ? "," : "", (long long)s->dim[i]);
  str_add(out, "]");
}

/* The tensor x must be as the program has it. */
static hp_status check_tensor(const char *path, const st_tensor *x, const tensor *t) {
  hp_dtype have;
  hp_shape s = {.rank = x->rank};
  bool known = st_dtype_to_hp(x->dtype, &have) && x->rank <= HP_MAX_RANK;
  for (int i = 0; known && i < x->rank; i++) s.dim[i] = x->dim[i];
  bool same = known && have == t->type && s.rank == t->shape.rank;
  for (int i = 0; same && i < s.rank; i++) same = s.dim[i] == t->shape.dim[i];
  if (same) return HP_OK;
  str a = {0}, b = {0};
  if (known) print_type(have, &s, &a);
  else str_printf(&a, "%s of %d dims", st_dtype_name(x->dtype), x->rank);
  print_type(t->type, &t->shape, &b);
  hp_status st =
      err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%s: tensor \"%s\" is %s; the program expects %s",
              path, t->name, a.at ? a.at : "?", b.at ? b.at : "?");
  str_free(&a);
  str_free(&b);
  return st;
}

/* The tensor of that name in the files; NULL: there is none. */
static hp_status find_tensor(const run_state *r, const tensor *t, const st_tensor **out) {
  *out = NULL;
  for (int i = 0; i < r->files && !*out; i++) {
    *out = st_find(&r->file[i], t->name);
    if (*out) HP_TRY(check_tensor(r->file[i].path, *out, t));
  }
  return HP_OK;
}

/* --- the program ----------------------------------------------------------------------------- */

static size_t bytes_of(hp_dtype t, const hp_shape *s) {
  size_t n = dtype_size(t);
  for (int i = 0; i < s->rank; i++) n *= (size_t)s->dim[i];
  return n;
}

static hp_status load(run_state *r) {
  const args *a = r->a;
  hp_device_options o = {.threads = (int)a->threads, .memory_limit = a->memory_limit};
  char *text;
  size_t n;
  if (a->threads < 0 || a->threads > 1024)
    HP_FAIL(HP_ERR_ARG, "--threads %lld: expected 1 to 1024", (long long)a->threads);
  HP_TRY(hp_device_open(&o, &r->d));
  HP_TRY(file_read(a->program, 0, &text, &n));
  hp_status st = HP_OK;
  if (n && memchr(text, 0, n))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: holds a byte 0 and is no program; expected text as --dump writes it",
                 a->program);
  if (!st) st = hp_program_parse(text, a->program, r->d, &r->p);
  mem_free(text);
  return st;
}

static hp_status list_tensors(run_state *r) {
  for (int i = 0; i < hp_program_io_count(r->p); i++) {
    tensor t = {0};
    bool output;
    HP_TRY(hp_program_io_info(r->p, i, &t.name, &t.type, &t.shape, &output));
    t.bytes = bytes_of(t.type, &t.shape);
    if (!(output ? vec_push(&r->outputs, t) : vec_push(&r->inputs, t))) return HP_ERR_OOM;
  }
  for (int i = 0; i < hp_param_count(r->d); i++) {
    tensor t = {0};
    HP_TRY(hp_param_info(r->d, i, &t.name, &t.type, &t.shape));
    t.bytes = bytes_of(t.type, &t.shape);
    if (!vec_push(&r->states, t)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status allocate(tensor *t) {
  if (!t->data) t->data = mem_calloc(t->bytes + 1, 1);
  return t->data ? HP_OK : HP_ERR_OOM;
}

/* States from the files; those that are in none of them are zeros. */
static hp_status write_states(run_state *r) {
  const char *first = NULL;
  int missing = 0;
  for (size_t i = 0; i < r->states.len; i++) {
    const tensor *t = &r->states.at[i];
    const st_tensor *x;
    HP_TRY(find_tensor(r, t, &x));
    if (x) HP_TRY(hp_write(r->d, t->name, x->data, x->bytes));
    else if (!missing++) first = t->name;
  }
  if (missing)
    log_info("%d of %zu states of the program are in no file of --in and begin with zeros, "
             "\"%s\" the first",
             missing, r->states.len, first);
  return HP_OK;
}

static hp_status run_times(run_state *r) {
  VEC(hp_io) io = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < r->inputs.len; i++) {
    const tensor *t = &r->inputs.at[i];
    const st_tensor *x;
    st = find_tensor(r, t, &x);
    if (!st && !x)
      st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                   "%s: input \"%s\" of the program is in no file of --in", r->a->program, t->name);
    if (!st && !vec_push(&io, ((hp_io){t->name, (void *)(uintptr_t)x->data, x->bytes})))
      st = HP_ERR_OOM;
  }
  for (size_t i = 0; !st && i < r->outputs.len; i++) {
    tensor *t = &r->outputs.at[i];
    st = allocate(t);
    if (!st && !vec_push(&io, ((hp_io){t->name, t->data, t->bytes}))) st = HP_ERR_OOM;
  }
  for (int64_t k = 0; !st && k < r->a->times; k++) {
    hp_program_stats s;
    st = hp_run(r->p, io.at, (int)io.len);
    if (!st) st = hp_program_stats_get(r->p, &s);
    if (!st && !vec_push(&r->seconds, s.run_s)) st = HP_ERR_OOM;
  }
  vec_free(&io);
  return st;
}

/* --- what comes out -------------------------------------------------------------------------- */

static st_tensor as_saved(const tensor *t) {
  return (st_tensor){.name = t->name,
                     .dim = t->shape.dim,
                     .rank = t->shape.rank,
                     .dtype = st_dtype_from_hp(t->type),
                     .bytes = t->bytes,
                     .data = t->data};
}

static hp_status save(run_state *r) {
  VEC(st_tensor) all = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; !st && i < r->outputs.len; i++)
    st = vec_push(&all, as_saved(&r->outputs.at[i])) ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && r->a->states && i < r->states.len; i++) {
    tensor *t = &r->states.at[i];
    for (size_t k = 0; !st && k < r->outputs.len; k++)
      if (!strcmp(r->outputs.at[k].name, t->name))
        st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                     "%s: \"%s\" is an output and a state; leave out --states", r->a->program,
                     t->name);
    if (!st) st = allocate(t);
    if (!st) st = hp_read(r->d, t->name, t->data, t->bytes);
    if (!st && !vec_push(&all, as_saved(t))) st = HP_ERR_OOM;
  }
  if (!st) st = st_save(r->a->out, all.at, all.len, NULL, 0);
  vec_free(&all);
  return st;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static hp_status tell(run_state *r) {
  hp_program_stats s;
  HP_TRY(hp_program_stats_get(r->p, &s));
  qsort(r->seconds.at, r->seconds.len, sizeof *r->seconds.at, by_value);
  double median = r->seconds.at[r->seconds.len / 2];
  if (r->a->json)
    printf("{\"times\": %zu, \"run_s\": %.6g, \"load_s\": %.6g, \"instructions\": %d, "
           "\"inputs\": %zu, \"outputs\": %zu, \"states\": %zu, \"state_bytes\": %llu, "
           "\"work_bytes\": %llu}\n",
           r->seconds.len, median, s.compile_s, s.instructions, r->inputs.len, r->outputs.len,
           r->states.len, (unsigned long long)s.memory.state_bytes,
           (unsigned long long)s.memory.work_bytes);
  else
    printf("%d instructions, %zu states of %.3f MB, work memory %.3f MB: run %zu times, median "
           "%.3f ms\n",
           s.instructions, r->states.len, (double)s.memory.state_bytes * 1e-6,
           (double)s.memory.work_bytes * 1e-6, r->seconds.len, median * 1e3);
  return HP_OK;
}

static void close_all(run_state *r) {
  for (size_t i = 0; i < r->outputs.len; i++) mem_free(r->outputs.at[i].data);
  for (size_t i = 0; i < r->states.len; i++) mem_free(r->states.at[i].data);
  vec_free(&r->inputs);
  vec_free(&r->outputs);
  vec_free(&r->states);
  vec_free(&r->seconds);
  for (int i = 0; i < r->files; i++) st_close(&r->file[i]);
  hp_program_free(r->p);
  hp_device_close(r->d);
}

static hp_status run(const args *a) {
  run_state r = {.a = a};
  hp_status st = a->out ? file_check_target(a->out) : HP_OK;
  if (!st) st = open_files(&r);
  if (!st) st = load(&r);
  if (!st) st = list_tensors(&r);
  if (!st) st = write_states(&r);
  if (!st) st = run_times(&r);
  if (!st && a->out) st = save(&r);
  if (!st) st = tell(&r);
  close_all(&r);
  return st;
}

int verb_run(int argc, char **argv) {
  args a = {.times = 1};
  const char *rest[256];
  int n;
  const cli_option option[] =
      {{"--in", CLI_TEXT, &a.in, "F.safetensors,...", "inputs, and states to begin with, by name"},
       {"--out", CLI_TEXT, &a.out, "F.safetensors", "file to write the outputs to"},
       {"--states", CLI_FLAG, &a.states, NULL, "write the states after the run to --out as well"},
       {"--times", CLI_COUNT, &a.times, "N", "runs with the same inputs (default: 1)"},
       {"--threads", CLI_INT, &a.threads, "N", "threads (default: all cores)"},
       {"--memory-limit", CLI_SIZE, &a.memory_limit, "BYTES", "hard limit, e.g. 4GiB"},
       {"--json", CLI_FLAG, &a.json, NULL, "one JSON object"}};
  const cli_spec spec =
      {"hyper run PROGRAM --in F.safetensors --out F.safetensors",
       "Runs a compiled program from its text, as `hyper explain CONFIG --dump DIR` writes it to\n"
       "DIR/NN_trim.txt, with the bits that it has in training.  States are the tensors that\n"
       "outlive a run, weights and optimizer state; those in no file begin with zeros.",
       "hyper run dump/*_trim.txt --in batch.safetensors,model.safetensors --out loss.safetensors",
       option, sizeof option / sizeof *option};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n != 1) return cli_usage(argv[0], "give one program");
  if (a.states && !a.out) return cli_usage(argv[0], "--states needs --out F.safetensors");
  a.program = rest[0];
  hp_status st = run(&a);
  return st ? cli_fail(st) : 0;
}
