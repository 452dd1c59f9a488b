/* `hyper layout`: what each rank holds, and the way from one layout to another. */
#include "cli/cli.h"
#include "cli/layout_answer.h"
#include "shard/layout_text.h"

#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 64 };

typedef struct {
  const char *shape, *to, *batch;
  bool json;
} args;

typedef struct {
  mesh m;
  layout from, to;
  int64_t shape[LAYOUT_DIMS];
} question;

/* "32,784" */
static hp_status parse_shape(const char *text, int rank, int64_t *out) {
  char word[24];
  for (int d = 0; d < rank; d++) {
    size_t n = strcspn(text, ",");
    bool last = d == rank - 1;
    if (n >= sizeof word || !n || (text[n] == 0) != last)
      HP_FAIL(HP_ERR_ARG,
              "--shape: expected %d sizes with commas between, as many as the layout "
              "has dims",
              rank);
    memcpy(word, text, n);
    word[n] = 0;
    if (!str_to_i64(word, &out[d]) || out[d] < 0 || out[d] > (int64_t)1 << 40)
      HP_FAIL(HP_ERR_ARG, "--shape: \"%s\" is not a size", word);
    text += n + !last;
  }
  return HP_OK;
}

/* --- text ------------------------------------------------------------------------------------- */

static void print_slice(const question *q, const layout *l, int64_t position) {
  int64_t start[LAYOUT_DIMS], stop[LAYOUT_DIMS];
  layout_slice(&q->m, l, q->shape, position, start, stop);
  printf("%6lld", (long long)mesh_rank(&q->m, position));
  for (int a = 0; a < q->m.axes; a++)
    printf(" %*lld", (int)strlen(q->m.name[a]) < 3 ? 3 : (int)strlen(q->m.name[a]),
           (long long)mesh_coordinate(&q->m, position, a));
  printf("   [");
  for (int d = 0; d < l->rank; d++)
    printf(d ? ", %lld:%lld" : "%lld:%lld", (long long)start[d], (long long)stop[d]);
  printf("]\n");
}

static void print_layout(const question *q, const layout *l, bool with_shape) {
  int64_t repeat = layout_repeat(&q->m, l);
  bool padded = false;
  printf("%lld devices; every shard is held by %lld\n", (long long)q->m.devices, (long long)repeat);
  if (!with_shape) return;
  printf("a device holds [");
  for (int d = 0; d < l->rank; d++) {
    printf(d ? ",%lld" : "%lld", (long long)layout_shard_size(&q->m, l, d, q->shape[d]));
    padded |= layout_padded_size(&q->m, l, d, q->shape[d]) != q->shape[d];
  }
  printf("]%s\n\n  rank", padded ? ", the last ones padded" : "");
  for (int a = 0; a < q->m.axes; a++) printf(" %3s", q->m.name[a]);
  printf("   slice\n");
  for (int64_t p = 0; p < q->m.devices && p < ROWS_MAX; p++) print_slice(q, l, p);
  if (q->m.devices > ROWS_MAX)
    printf("   ... %lld more, --json shows them\n", (long long)(q->m.devices - ROWS_MAX));
}

static void print_move(const mesh *m, const path_move *move) {
  printf("  %-15s over ", move_name(move->kind));
  for (int i = 0; i < move->n; i++) printf(i ? ",%s" : "%s", m->name[move->axis[i]]);
  if (move->op) printf(" (%s)", partial_op_name(move->op));
  if (move->kind == MOVE_ALL_TO_ALL) printf(", dim %d to dim %d", move->dim, move->to);
  else if (move->kind != MOVE_ALL_REDUCE && move->kind != MOVE_DROP) printf(", dim %d", move->dim);
  str after = {0};
  layout_print_on(m, &move->after, &after);
  printf(": %.0f bytes a rank, then %s\n", move->bytes, after.at ? after.at : "");
  str_free(&after);
}

static void print_path(const mesh *m, const path *p) {
  printf("\n%d step%s, %.0f bytes received a rank; it holds %lld elements before, %lld at most\n",
         p->n, p->n == 1 ? "" : "s", p->bytes, (long long)p->local, (long long)p->peak);
  for (int i = 0; i < p->n; i++) print_move(m, &p->move[i]);
}

/* --- the verb --------------------------------------------------------------------------------- */

static hp_status find_path(const question *q, path *p) {
  path_request r = {.mesh = &q->m, .shape = q->shape, .element_bytes = 4};
  return path_find(&r, &q->from, &q->to, p);
}

static hp_status answer_json(const args *a, const question *q, const path *p) {
  str out = {0}, text = {0};
  json_writer w = {.out = &out};
  layout_print(&q->m, &q->from, &text);
  json_open_map(&w);
  json_put_key(&w, "layout");
  json_put_string(&w, text.at ? text.at : "");
  answer_tensor_map(&w, &q->m, &q->from);
  hp_status st = answer_layout(&w, &q->m, &q->from, a->shape ? q->shape : NULL);
  if (!st && a->to) st = answer_path(&w, &q->m, p);
  if (!st) json_close(&w);
  if (!st) st = str_status(&out);
  if (!st) puts(out.at);
  str_free(&out);
  str_free(&text);
  return st;
}

static hp_status answer_question(const args *a, question *q) {
  path p = {0};
  if (a->shape) HP_TRY(parse_shape(a->shape, q->from.rank, q->shape));
  int d = layout_short_dim(&q->m, &q->from, q->shape);
  if (d >= 0)
    HP_FAIL(HP_ERR_LAYOUT, "--shape: dim %d of size %lld is more than its shards hold", d,
            (long long)q->shape[d]);
  if (a->to) {
    if (!a->shape) HP_FAIL(HP_ERR_ARG, "--to needs --shape: the path depends on the sizes");
    HP_TRY(layout_parse_on(a->to, &q->m, &q->to));
    HP_TRY(find_path(q, &p));
  }
  if (a->json) return answer_json(a, q, &p);
  print_layout(q, &q->from, a->shape != NULL);
  if (a->to) print_path(&q->m, &p);
  return HP_OK;
}

static hp_status run_layout(const args *a, const char *spec) {
  question q;
  bool called;
  HP_TRY(layout_parse(spec, &q.m, &q.from, &called));
  hp_status st = HP_OK;
  if (!called)
    st = err_set(HP_ERR_LAYOUT, __FILE__, __LINE__,
                 "layout \"%.200s\": is a mesh, not the layout of a tensor; add an entry for every "
                 "dim of one, "
                 "such as (%s,None)",
                 spec, q.m.name[0]);
  if (!st) st = answer_question(a, &q);
  mesh_free(&q.m);
  return st;
}

int verb_layout(int argc, char **argv) {
  args a = {0};
  const cli_option option[] = {
      {"--shape", CLI_TEXT, &a.shape, "32,784", "sizes of the global tensor"},
      {"--to", CLI_TEXT, &a.to, "SPEC", "the entries of another layout: the steps to it"},
      {"--batch", CLI_TEXT, &a.batch, "F.jsonl", "questions, one a line; answers, one a line"},
      {"--json", CLI_FLAG, &a.json, NULL, "one JSON object"},
  };
  const cli_spec spec = {
      "hyper layout SPEC [--shape 32,784] [--to SPEC] [--json]\n"
      "       hyper layout --batch F.jsonl",
      "What each rank holds of a tensor, and the steps and bytes from one layout to another.\n"
      "SPEC is (device matrix)(axis names)(one entry a dim): an axis splits a dim, (a,b) splits "
      "it\n"
      "over two, a outermost, None: not sharded; then +sum:axis for a partial sum, @ranks.",
      "hyper layout '(2,2,2)(dp,sp,mp)(mp,(sp,dp))' --shape 32,784 --to '(None,mp)'",
      option,
      sizeof option / sizeof *option,
  };
  const char *rest[256];
  int n;
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (a.batch) {
    if (n) return cli_usage("layout", "--batch reads its questions from the file alone");
    hp_status st = layout_batch(a.batch);
    return st ? cli_fail(st) : 0;
  }
  if (n != 1) return cli_usage("layout", "expected one layout, such as '(2,2)(dp,mp)(dp,None)'");
  hp_status st = run_layout(&a, rest[0]);
  return st ? cli_fail(st) : 0;
}
