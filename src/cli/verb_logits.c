/* `hyper logits` and `hyper grads`: exact numbers, to compare with another framework. */
#include "base/io.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "cli/cli.h"
#include "model/lm_eval.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  model_options m;
  const char *tokens, *batch, *out;
} args;

/* One sequence, or the list of sequences of a JSON file. */
typedef struct {
  VEC(lm_tokens) seq;
} sequences;

static void sequences_free(sequences *s) {
  for (size_t i = 0; i < s->seq.len; i++) mem_free(s->seq.at[i].ids);
  vec_free(&s->seq);
}

static hp_status read_list(const tree_node *list, lm_tokens *out) {
  HP_TRY(tree_expect(list, TREE_LIST));
  if (!list->len) TREE_FAIL(list, "is empty; at least one id is needed");
  int32_t *ids = mem_calloc(list->len, sizeof *ids);
  HP_TRY_MEM(ids);
  for (uint32_t i = 0; i < list->len; i++) {
    int64_t id;
    hp_status st = tree_as_int(list->child[i], &id);
    if (!st && (id < 0 || id > INT32_MAX))
      st = tree_error(list->child[i], __FILE__, __LINE__, "%lld is not a token id", (long long)id);
    if (st) {
      mem_free(ids);
      return st;
    }
    ids[i] = (int32_t)id;
  }
  *out = (lm_tokens){ids, list->len};
  return HP_OK;
}

static hp_status read_batch(const char *path, sequences *s) {
  tree t;
  HP_TRY(json_load(path, 0, &t));
  hp_status st = tree_expect(t.root, TREE_LIST);
  for (uint32_t i = 0; !st && i < t.root->len; i++) {
    lm_tokens x = {0};
    st = read_list(t.root->child[i], &x);
    if (!st && !vec_push(&s->seq, x)) st = HP_ERR_OOM;
  }
  if (!st && !t.root->len)
    st = tree_error(t.root, __FILE__, __LINE__,
                    "holds no sequences; expected a list of lists of ids");
  tree_free(&t);
  return st;
}

static hp_status read_sequences(const args *a, sequences *s) {
  if (a->batch) return read_batch(a->batch, s);
  lm_tokens x;
  HP_TRY(cli_parse_ids(a->tokens, &x.ids, &x.n));
  if (vec_push(&s->seq, x)) return HP_OK;
  mem_free(x.ids);
  return HP_ERR_OOM;
}

/* An f32 tensor of a file to be written. */
static st_tensor make_f32_tensor(const char *name, const hp_shape *s, const float *data) {
  size_t n = sizeof *data;
  for (int i = 0; i < s->rank; i++) n *= (size_t)s->dim[i];
  return (st_tensor){.name = name,
                     .dim = s->dim,
                     .rank = s->rank,
                     .dtype = ST_F32,
                     .bytes = n,
                     .data = (const unsigned char *)data};
}

/* Every id of a batch, by its place in the file, before anything is computed. */
static hp_status check_batch(const lm *m, const char *path, const sequences *s) {
  for (size_t i = 0; i < s->seq.len; i++)
    for (int64_t k = 0; k < s->seq.at[i].n; k++)
      if (s->seq.at[i].ids[k] >= m->c.vocab)
        HP_FAIL(HP_ERR_INPUT,
                "%s: [%zu][%lld]: token id %d is not in 0..%lld, the vocabulary of %s", path, i,
                (long long)k, s->seq.at[i].ids[k], (long long)m->c.vocab - 1, m->path);
  return HP_OK;
}

static hp_status write_logits(lm *m, const args *a, const sequences *s) {
  size_t n = s->seq.len;
  if (a->batch) HP_TRY(check_batch(m, a->batch, s));
  st_tensor *t = mem_calloc(n, sizeof *t);
  hp_shape *shape = mem_calloc(n, sizeof *shape);
  float **logits = mem_calloc(n, sizeof *logits);
  char(*name)[32] = mem_calloc(n, sizeof *name);
  hp_status st = t && shape && logits && name ? HP_OK : HP_ERR_OOM;
  for (size_t i = 0; !st && i < n; i++) {
    const lm_tokens *x = &s->seq.at[i];
    snprintf(name[i], sizeof name[i], a->batch ? "logits.%zu" : "logits", i);
    shape[i] = (hp_shape){2, {x->n, m->c.vocab}};
    logits[i] = mem_calloc((size_t)x->n, (size_t)m->c.vocab * sizeof **logits);
    st = logits[i] ? lm_logits(m, x, logits[i]) : HP_ERR_OOM;
    t[i] = make_f32_tensor(name[i], &shape[i], logits[i]);
  }
  if (!st) st = st_save(a->out, t, n, NULL, 0);
  for (size_t i = 0; logits && i < n; i++) mem_free(logits[i]);
  mem_free(logits);
  mem_free(shape);
  mem_free(name);
  mem_free(t);
  return st;
}

static hp_status save_grads(const lm *m, const lm_gradients *g, const char *path) {
  static const hp_shape one = {1, {1}};
  size_t n = lm_trained_tensors(m);
  st_tensor *t = mem_calloc(n + 1, sizeof *t);
  char(*name)[192] = mem_calloc(n, sizeof *name);
  hp_status st = t && name ? HP_OK : HP_ERR_OOM;
  if (!st) {
    t[0] = make_f32_tensor("loss", &one, &g->loss);
    for (size_t i = 0; i < n; i++) {
      const lm_tensor *x = &m->tensors.at[i];
      snprintf(name[i], sizeof name[i], "grad.%s", x->name);
      t[i + 1] = make_f32_tensor(name[i], &x->shape, g->grad[x->param] + x->at);
    }
    st = st_save(path, t, n + 1, NULL, 0);
  }
  mem_free(t);
  mem_free(name);
  return st;
}

static hp_status write_grads(lm *m, const args *a, const lm_tokens *x) {
  lm_gradients g;
  HP_TRY(lm_grads(m, x, &g));
  hp_status st = save_grads(m, &g, a->out);
  if (!st) printf("{\"loss\": %.9g, \"tokens\": %lld}\n", (double)g.loss, (long long)x->n);
  lm_gradients_free(m, &g);
  return st;
}

typedef struct {
  const sequences *s;
  bool grads;
} planned;

/* Of the longest sequence. */
static hp_status find_resident(const void *context, lm *m, uint64_t *bytes) {
  const planned *p = context;
  int64_t longest = 0;
  hp_program_stats s;
  for (size_t i = 0; i < p->s->seq.len; i++) {
    HP_TRY(lm_check_tokens(m, &p->s->seq.at[i]));
    if (p->s->seq.at[i].n > longest) longest = p->s->seq.at[i].n;
  }
  HP_TRY(p->grads ? lm_grads_plan(m, longest, &s) : lm_logits_plan(m, longest, &s));
  *bytes = s.memory.planned_bytes;
  return HP_OK;
}

static int run_logits(int argc, char **argv, bool grads) {
  args a = {0};
  const char *rest[256];
  int n_rest;
  const cli_option option[] = {MODEL_OPTIONS(a.m),
                               {"--tokens", CLI_TEXT, &a.tokens, "1,2,3",
                                "token ids of the sequence"},
                               {"--out", CLI_TEXT, &a.out, "F.safetensors", "file to write"},
                               {"--batch", CLI_TEXT, &a.batch, "F.json",
                                "a list of id lists instead of --tokens"}};
  const int n_options = sizeof option / sizeof *option - (grads ? 1 : 0);
  const cli_spec logits_spec =
      {"hyper logits --model DIR --tokens 1,2,3 --out F.safetensors",
       "Writes the logits [T, V] in f32 of every position, as tensor \"logits\";\n"
       "with --batch as logits.0, logits.1, ...",
       "hyper logits --model models/tiny --tokens 1,403,407 --out logits.safetensors", option,
       n_options};
  const cli_spec grads_spec =
      {"hyper grads --model DIR --tokens 1,2,3 --out F.safetensors",
       "Writes \"loss\" (mean of the next-token losses) and \"grad.NAME\" of every\n"
       "parameter in f32; tied weights once, under the embedding's name.  With --adapter, of the\n"
       "parameters of the last adapter alone, which is applied and not merged.",
       "hyper grads --model models/tiny --tokens 1,403,407 --out grads.safetensors", option,
       n_options};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse_keys(grads ? &grads_spec : &logits_spec, argc, argv, rest, &n_rest);
  if (code != CLI_GO_ON) return code;
  if (n_rest) return cli_usage(argv[0], "\"%s\" is not expected", rest[0]);
  if (!a.out) return cli_usage(argv[0], "--out F.safetensors is missing");
  if (!a.tokens == !a.batch)
    return cli_usage(argv[0], grads ? "--tokens is missing" : "give --tokens or --batch");
  sequences s = {0};
  hp_device *d = NULL;
  void *opened = NULL;
  const planned p = {&s, grads};
  const cli_work work = {find_resident, &p};
  hp_status st = file_check_target(a.out);
  if (!st) st = read_sequences(&a, &s);
  if (!st) st = cli_open_model(&a.m, grads, &work, &d, &opened);
  if (!st) cli_tell_rows(&a.m, 1, 0);
  lm *m = opened;
  if (!st) st = grads ? write_grads(m, &a, &s.seq.at[0]) : write_logits(m, &a, &s);
  lm_free(m);
  if (opened) hp_device_close(d);
  sequences_free(&s);
  return st ? cli_fail(st) : 0;
}

int verb_logits(int argc, char **argv) { return run_logits(argc, argv, false); }
int verb_grads(int argc, char **argv) { return run_logits(argc, argv, true); }
