/* `hyper report`: where the time of a training run went, from what the run has written. */
#include "base/escape.h"
#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "rt/explain_memory.h"
#include "rt/op_times.h"

#include <stdio.h>
#include <string.h>

static hp_status read_text(const tree_node *n, const char *key, size_t size, char *out) {
  const char *text;
  HP_TRY(tree_need_string(n, key, &text));
  snprintf(out, size, "%s", text);
  return HP_OK;
}

static hp_status read_limit(const tree_node *n, const char **out) {
  static const char *const known[] = {"flops", "bytes", "link", "wait"};
  const char *text;
  HP_TRY(tree_need_string(n, "limited_by", &text));
  for (int i = 0; i < 4; i++)
    if (!strcmp(known[i], text)) {
      *out = known[i];
      return HP_OK;
    }
  TREE_FAIL(tree_get(n, "limited_by"), "expected flops, bytes, link or wait");
}

static hp_status read_row(const tree_node *n, hp_op_time *row) {
  int64_t calls;
  HP_TRY(tree_expect(n, TREE_MAP));
  HP_TRY(read_text(n, "kind", sizeof row->kind, row->kind));
  HP_TRY(read_text(n, "shape", sizeof row->shape, row->shape));
  HP_TRY(read_text(n, "where", sizeof row->place, row->place));
  HP_TRY(read_text(n, "engine", sizeof row->engine, row->engine));
  HP_TRY(read_limit(n, &row->limit));
  HP_TRY(tree_need_bool(n, "beside", &row->overlapped));
  HP_TRY(tree_need_int(n, "calls", &calls));
  row->count = (int)calls;
  HP_TRY(tree_need_double(n, "time_s", &row->seconds));
  HP_TRY(tree_need_double(n, "limit_s", &row->limit_s));
  HP_TRY(tree_need_double(n, "gap_s", &row->gap_s));
  HP_TRY(tree_opt_double(n, "predicted_s", 0, &row->predicted_s)); /* older runs have none */
  HP_TRY(tree_need_double(n, "work_flop", &row->flops));
  return tree_need_double(n, "moved_bytes", &row->bytes);
}

static hp_status read_limits(const tree_node *root, hp_limits *out) {
  HP_TRY(tree_need_double(root, "peak_flop_per_s", &out->flops));
  HP_TRY(tree_need_double(root, "peak_bf16_flop_per_s", &out->bf16_flops));
  return tree_need_double(root, "peak_bytes_per_s", &out->bytes);
}

/* Of runs that wrote it. */
static hp_status print_memory(const tree_node *root, str *out) {
  const tree_node *its = tree_get(root, "memory");
  hp_memory m;
  if (!its) return HP_OK;
  HP_TRY(memory_read(its, &m));
  str_add(out, "memory of ");
  memory_print(&m, 0, out);
  str_add_char(out, '\n');
  return HP_OK;
}

static hp_status print_table(const tree_node *root) {
  const tree_node *kinds;
  hp_limits l;
  str text = {0};
  HP_TRY(tree_need_list(root, "kinds", &kinds));
  HP_TRY(read_limits(root, &l));
  hp_op_time *row = mem_calloc(kinds->len, sizeof *row);
  hp_status st = row ? HP_OK : HP_ERR_OOM;
  for (uint32_t i = 0; i < kinds->len && !st; i++) st = read_row(kinds->child[i], &row[i]);
  if (!st) st = print_memory(root, &text);
  if (!st) op_times_print(row, (int)kinds->len, &l, &text);
  if (!st) st = str_status(&text);
  if (!st) escape_print(text.at, stdout);
  mem_free(row);
  str_free(&text);
  return st;
}

static hp_status report_run(const char *dir, bool json) {
  enum { FILE_MAX = 64 << 20 };
  str path = {0};
  char *text = NULL;
  size_t n;
  tree t = {0};
  hp_status st = path_join(&path, dir, "op_times.json");
  if (!st && !file_exists(path.at))
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: there is no such file; expected the output_dir of a training run that ended",
                 path.at);
  if (!st) st = file_read(path.at, FILE_MAX, &text, &n);
  if (!st) st = json_parse(text, n, path.at, &t);
  if (!st && json) fputs(text, stdout);
  else if (!st) st = print_table(t.root);
  tree_free(&t);
  mem_free(text);
  str_free(&path);
  return st;
}

int verb_report(int argc, char **argv) {
  const char *rest[CLI_WORDS];
  bool json = false;
  int n;
  const cli_option option[] = {{"--json", CLI_FLAG, &json, NULL, "one JSON object"}};
  const cli_spec spec = {"hyper report OUTPUT_DIR [--json]",
                         "Where the time of a training run went: its steps by kind of "
                         "work,\neach against its own limit, the widest gaps "
                         "first.  report.html of the folder shows more.",
                         "hyper report build/demo/run", option, 1};
  if (argc > CLI_WORDS) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n != 1) return cli_usage(argv[0], "expected one folder, the output_dir of a run");
  hp_status st = report_run(rest[0], json);
  return st ? cli_fail(st) : 0;
}
