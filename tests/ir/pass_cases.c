/* Text to text tests of the passes: tests/ir/<pass>.hp holds cases of one pass, written to be read.
 *
 *   # What the pass does, and what this file shows of it.
 *
 *   === a sentence that holds
 *   # why
 *   run: fuse lower memory limit=4096
 *   %1:f32[8] = input {name="x", dtype=f32, shape=[8]}
 *   ---
 *   the whole text that comes out, or the error
 *
 * Steps are the rows of pass.def, `autodiff` (of output "loss" by every param; the gradients become
 * outputs), `chunk piece=N`, `remat full=1 blocks=N places=P`, `narrow one_type=1`, and on programs
 * `lower`, `streams`, `overlap limit=N prefetch=N`, `reorder` and `memory limit=N`.  `overlap` is
 * for two devices that take 1 ns for an operation and for a byte between them.  `shard
 * [no_partial_sums=1]` makes the graph of one device of a mesh, which lines before `run:` name,
 * with the layouts of inputs, params and sharding annotations:
 *
 *   mesh: (2,2)(dp,tp)
 *   x: (dp,None)
 *
 * `dispatch [rows=1]` sends rows of experts in such a graph where that is faster, or always.
 *
 * Loops are written below the node or instruction that runs them; the work of instructions is left
 * out.  HYPER_BLESS=1 writes what comes out into the files, to be reviewed as a change of them. */
#include "base/io.h"
#include "ir/print.h"
#include "ops/ops.h"
#include "pass/autodiff.h"
#include "compile/lower.h"
#include "compile/prog_schedule.h"
#include "pass/pass.h"
#include "compile/streams.h"
#include "ir/shard_step.h"
#include "test.h"

#include <dirent.h>
#include <stdlib.h>

#define DIR_OF_CASES "tests/ir"

/* What the steps work on: a graph, and after `lower` a program. */
typedef struct {
  hp_graph *g;
  program *p;
  uint64_t limit, prefetch, piece, full, one_type, whole, rows, blocks; /* of the step */
  const char *places[2];
  const char *layouts; /* lines "NAME: LAYOUT", the mesh among them */
} subject;

/* --- steps ------------------------------------------------------------------------------------ */

static hp_status run_autodiff(subject *s) {
  val loss = 0, wrt[16] = {0}, grads[16];
  int n = 0;
  for (uint32_t i = 0; i < s->g->nodes.len; i++) {
    const ir_node *d = graph_node(s->g, i);
    if (d->op == OP_OUTPUT && !strcmp(attr_str(s->g, d, "name"), "loss"))
      loss = graph_in(s->g, d)[0];
    if (d->op == OP_PARAM && n < 16) wrt[n++] = d->out0;
  }
  HP_TRY(pass_autodiff(s->g, loss, wrt, n, grads));
  for (int i = 0; i < n; i++) {
    char name[80];
    snprintf(name, sizeof name, "d %s", attr_str(s->g, graph_def(s->g, wrt[i]), "name"));
    ops_output(s->g, name, grads[i]);
  }
  return graph_status(s->g);
}

static hp_status run_lower(subject *s) { return lower_graph(s->g, &s->p); }

static hp_status run_streams(subject *s) { return place_waits(s->p, NULL, 0); }

static hp_status run_schedule(subject *s, schedule_kind kind) {
  static const char pair[] = "device: {flops: 1e9, bandwidth_gb_s: 1000}\n"
                             "links: [{bandwidth_gb_s: 1, latency_us: 0}]\n";
  cluster c;
  mesh m;
  bool fits;
  const char *name = "a";
  HP_TRY(cluster_parse(pair, sizeof pair - 1, "pair", &c));
  HP_TRY(mesh_init(&(int64_t){2}, &name, 1, NULL, 0, &m));
  schedule_options o = {.cluster = &c, .mesh = &m, .cap = {s->limit}, .prefetch = s->prefetch};
  hp_status st = schedule_program(s->p, kind, &o, &fits);
  mesh_free(&m);
  if (st || fits) return st;
  HP_FAIL(HP_ERR_OOM, "no order fits the limit");
}

static hp_status run_overlap(subject *s) { return run_schedule(s, SCHEDULE_FASTEST); }
static hp_status run_serial(subject *s) { return run_schedule(s, SCHEDULE_SERIAL); }
static hp_status run_reorder(subject *s) { return run_schedule(s, SCHEDULE_MINIMUM); }

static hp_status run_memory(subject *s) {
  uint64_t *workspace = mem_calloc(s->p->insts.len, sizeof *workspace);
  HP_TRY_MEM(workspace);
  hp_status st = plan_memory(s->p, workspace, &(memory_options){.limit = s->limit});
  mem_free(workspace);
  if (!st && s->limit && s->p->arena[TIER_DEVICE] > s->limit)
    HP_FAIL(HP_ERR_OOM, "%llu bytes are needed, the limit is %llu",
            (unsigned long long)s->p->arena[TIER_DEVICE], (unsigned long long)s->limit);
  return st;
}

static hp_status run_shard(subject *s) { return shard_step_run(&s->g, s->layouts, s->whole); }

static hp_status run_dispatch(subject *s) {
  return dispatch_step_run(&s->g, s->layouts, s->rows ? HP_DISPATCH_ROWS : HP_DISPATCH_AUTO);
}

static const struct {
  const char *name;
  hp_status (*run)(subject *s);
} steps[] = {{"autodiff", run_autodiff}, {"lower", run_lower},   {"streams", run_streams},
             {"overlap", run_overlap},   {"serial", run_serial}, {"reorder", run_reorder},
             {"memory", run_memory},     {"shard", run_shard},   {"dispatch", run_dispatch}};

static hp_status run_pass(subject *s, const char *name) {
  hp_graph *out;
  for (int i = 0; pass_table[i].name; i++) {
    if (strcmp(pass_table[i].name, name)) continue;
    capabilities can = capabilities_usual();
    can.one_type = s->one_type;
    hp_compile_options options = {.remat = s->full,
                                  .remat_blocks = (int)s->blocks,
                                  .remat_places = s->places[0] ? s->places : NULL,
                                  .chunk_bytes = s->piece};
    pass_options o = {.options = &options, .can = &can};
    HP_TRY(pass_table[i].run(s->g, &o, &out));
    graph_free(s->g);
    s->g = out;
    return ops_verify(s->g);
  }
  HP_FAIL(HP_ERR_ARG, "\"%s\" is not a step", name);
}

/* One word of a `run:` line. */
static hp_status run_step(subject *s, const char *name) {
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (!strcmp(steps[i].name, name)) return steps[i].run(s);
  return run_pass(s, name);
}

/* "limit=4096" */
static bool read_number(const char *word, const char *key, uint64_t *out) {
  size_t n = strlen(key);
  bool is = word && !strncmp(word, key, n) && word[n] == '=';
  if (is) *out = strtoull(word + n + 1, NULL, 10);
  return is;
}

static bool read_text(const char *word, const char *key, const char **out) {
  size_t n = strlen(key);
  bool is = word && !strncmp(word, key, n) && word[n] == '=';
  if (is) *out = word + n + 1;
  return is;
}

/* "fuse lower memory limit=4096": a number is of the step before it. */
static hp_status run_steps(subject *s, char *line) {
  char *at = NULL;
  char *word = strtok_r(line, " ", &at);
  while (word) {
    char *next = strtok_r(NULL, " ", &at);
    s->limit = s->prefetch = s->piece = s->full = s->one_type = s->whole = s->rows = s->blocks = 0;
    s->places[0] = NULL;
    while (read_number(next, "limit", &s->limit) || read_number(next, "prefetch", &s->prefetch) ||
           read_number(next, "piece", &s->piece) || read_number(next, "full", &s->full) ||
           read_number(next, "one_type", &s->one_type) ||
           read_number(next, "no_partial_sums", &s->whole) || read_number(next, "rows", &s->rows) ||
           read_number(next, "blocks", &s->blocks) || read_text(next, "places", &s->places[0]))
      next = strtok_r(NULL, " ", &at);
    HP_TRY(run_step(s, word));
    word = next;
  }
  return HP_OK;
}

/* --- text ------------------------------------------------------------------------------------- */

/* Copies text, with the loops of `fused` as indented lines below the line that holds them. */
static void spread_loops(const char *text, str *out) {
  static const char key[] = " {body=\"";
  while (*text) {
    size_t n = strcspn(text, "\n");
    const char *line = text, *body = strstr(line, key), *end = body ? strstr(body, "\"}") : NULL;
    text += n + (line[n] == '\n');
    if (!end || body > line + n) {
      str_add_n(out, line, n);
      str_add_char(out, '\n');
      continue;
    }
    str_add_n(out, line, (size_t)(body - line));
    str_add_n(out, end + 2, (size_t)(line + n - (end + 2)));
    str_add(out, "\n    ");
    for (body += sizeof key - 1; body < end; body++) {
      bool brk = body[0] == ';' && body[1] == ' ';
      if (brk) str_add(out, "\n    ");
      else str_add_char(out, *body);
      body += brk;
    }
    str_add_char(out, '\n');
  }
}

static hp_status print_subject(subject *s, str *out) {
  str text = {0};
  for (size_t i = 0; s->p && i < s->p->insts.len; i++)
    s->p->insts.at[i].flops = s->p->insts.at[i].bytes = 0;
  hp_status st = s->p ? program_print(s->p, &text) : graph_print(s->g, &text);
  if (!st) spread_loops(text.at ? text.at : "", out);
  str_free(&text);
  return st;
}

/* What comes out of a case. */
static void run_case(const char *title, const char *layouts, char *run, const char *graph, size_t n,
                     str *out) {
  subject s = {.layouts = layouts};
  hp_status st = graph_parse(graph, n, title, &s.g);
  if (!st) st = ops_verify(s.g);
  if (!st) st = run_steps(&s, run);
  if (!st) st = print_subject(&s, out);
  if (st) str_printf(out, "error: %s\n", err_message());
  err_clear();
  program_free(s.p);
  graph_free(s.g);
}

/* --- files ------------------------------------------------------------------------------------ */

/* The next line of *at, which moves behind it; false at the end. */
static bool next_line(const char **at, const char **line, size_t *n) {
  if (!**at) return false;
  *line = *at;
  *n = strcspn(*at, "\n");
  *at += *n + ((*at)[*n] == '\n');
  return true;
}

static bool is(const char *line, size_t n, const char *begin) {
  size_t len = strlen(begin);
  return n >= len && !memcmp(line, begin, len);
}

/* One case at *at, which moves behind it; what is before its expectation is copied to `file`, and
 * what comes out instead of the expectation.  Returns whether they agree. */
static bool check_case(const char *path, const char **at, str *file) {
  const char *line = "", *graph = NULL, *start = *at;
  char title[600] = "", run[200] = "";
  size_t n = 0, len;
  str want = {0}, got = {0}, layouts = {0};
  str_add(&layouts, "");
  while (next_line(at, &line, &n)) {
    if (is(line, n, "=== ")) snprintf(title, sizeof title, "%s: %.*s", path, (int)n - 4, line + 4);
    if (is(line, n, "---")) break;
    if (is(line, n, "run: ")) {
      snprintf(run, sizeof run, "%.*s", (int)n - 5, line + 5);
      graph = *at;
    }
    if (!graph && n && !strchr("#=", *line)) str_printf(&layouts, "%.*s\n", (int)n, line);
  }
  if (!graph || !is(line, n, "---"))
    test_fail(path, 0, "case \"%s\" lacks its `run:` or `---`", title);
  len = (size_t)(line - graph);
  str_add_n(file, start, (size_t)(*at - start));
  while (**at && !is(*at, strlen(*at), "=== ")) {
    (void)next_line(at, &line, &n);
    str_add_n(&want, line, (size_t)(*at - line));
  }
  while (want.len && want.at[want.len - 1] == '\n' && want.len > 1 && want.at[want.len - 2] == '\n')
    want.at[--want.len] = 0;
  run_case(title, layouts.at ? layouts.at : "", run, graph, len, &got);
  bool same = want.at && got.at && !strcmp(want.at, got.at);
  if (!same) printf("%s\nis\n%s\nwant\n%s\n", title, got.at, want.at ? want.at : "");
  str_add(file, got.at);
  if (**at) str_add_char(file, '\n');
  str_free(&layouts);
  str_free(&want);
  str_free(&got);
  return same;
}

/* Runs the cases of a file; returns how many fail. */
static int check_file(const char *name) {
  char path[300], *text;
  size_t n;
  int failed = 0;
  str file = {0};
  snprintf(path, sizeof path, DIR_OF_CASES "/%s", name);
  CHECK_OK(file_read(path, 0, &text, &n));
  const char *at = strstr(text, "=== ");
  if (!at) test_fail(path, 0, "no case");
  str_add_n(&file, text, (size_t)(at - text));
  while (*at) failed += !check_case(path, &at, &file);
  if (getenv("HYPER_BLESS")) CHECK_OK(file_write(path, file.at, file.len));
  str_free(&file);
  mem_free(text);
  return failed;
}

TEST(passes_turn_the_text_of_their_cases_into_the_text_expected) {
  int files = 0, failed = 0;
  DIR *d = opendir(DIR_OF_CASES);
  CHECK(d);
  for (struct dirent *e; (e = readdir(d));) {
    size_t n = strlen(e->d_name);
    if (n < 4 || strcmp(e->d_name + n - 3, ".hp")) continue;
    files++;
    failed += check_file(e->d_name);
  }
  closedir(d);
  CHECK(files > 0);
  if (failed)
    test_fail(__FILE__, __LINE__,
              "%d cases give another text; if that is right, write it with HYPER_BLESS=1", failed);
}

TEST(every_pass_has_text_cases) {
  char path[300];
  for (int i = 0; pass_table[i].name; i++) {
    snprintf(path, sizeof path, DIR_OF_CASES "/%s.hp", pass_table[i].name);
    if (!file_exists(path)) test_fail(__FILE__, __LINE__, "%s is missing", path);
  }
}
