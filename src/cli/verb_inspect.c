/* `hyper inspect`: what is in a model folder, a checkpoint of a run, or a safetensors file. */
#include "base/escape.h"
#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "ckpt/manifest.h"
#include "tok/tokenizer.h"
#include "ckpt/weights.h"
#include "model/family.h"
#include "shard/layout_text.h"
#include "ckpt/saved.h"
#include "ckpt/checkpoint.h"

#include <stdio.h>
#include <string.h>

/* A line a tensor: of a long list its beginning and its end, unless all are asked for. */
typedef struct {
  bool all;
  size_t n, at;
} tensor_list;

/* `lies`: its layout; NULL: it is a global tensor. */
static void print_tensor(tensor_list *l, const char *name, const char *dtype, int rank,
                         const int64_t *dim, const char *lies) {
  size_t i = l->at++, room = 0;
  char shape[256] = "";
  if (!l->all && l->n > 24 && i >= 12 && i < l->n - 12) {
    if (i == 12) printf("  ... %zu more, --all shows them\n", l->n - 24);
    return;
  }
  for (int d = 0; d < rank && room + 24 < sizeof shape; d++)
    room += (size_t)snprintf(shape + room, sizeof shape - room, d ? ", %lld" : "%lld",
                             (long long)dim[d]);
  printf("  %-60s %-6s [%s]%s%s\n", escape_name(name).text, dtype, shape, lies ? "  " : "",
         lies ? escape_name(lies).text : "");
}

static hp_status inspect_weights(const char *path, bool all) {
  weights *w;
  HP_TRY(weights_open(path, &w));
  double bytes = 0;
  size_t n = weights_count(w);
  for (size_t i = 0; i < n; i++) bytes += (double)weights_get(w, i)->bytes;
  printf("weights    %zu tensors, %.3f MB\n", n, bytes * 1e-6);
  tensor_list l = {.all = all, .n = n};
  for (size_t i = 0; i < n; i++) {
    const st_tensor *t = weights_get(w, i);
    print_tensor(&l, t->name, st_dtype_name(t->dtype), t->rank, t->dim, NULL);
  }
  weights_free(w);
  return HP_OK;
}

/* Looks at the files of all devices. */
static hp_status check_shards(saved *s, double *bytes) {
  for (size_t k = 0; k < saved_count(s); k++) {
    const saved_tensor *t = saved_get(s, k);
    box global = box_of(t->type.dim, t->type.rank);
    HP_TRY(saved_need(s, k, &global));
    *bytes += (double)value_bytes(&t->type);
  }
  return HP_OK;
}

static hp_status print_shards(saved *s, const char *kind, bool all) {
  double bytes = 0;
  str text = {0};
  HP_TRY(check_shards(s, &bytes));
  size_t n = saved_count(s);
  int64_t devices = 0;
  for (int i = 0; i < saved_meshes(s); i++) {
    if (i) str_add(&text, ";");
    mesh_print(saved_mesh(s, i), &text);
    mesh_print_ranks(saved_mesh(s, i), &text);
    devices += saved_mesh(s, i)->devices;
  }
  printf("%-10s %zu tensors, %.3f MB, sharded: mesh %s, %lld devices\n", kind, n, bytes * 1e-6,
         text.at ? escape_name(text.at).text : "", (long long)devices);
  tensor_list l = {.all = all, .n = n};
  for (size_t k = 0; k < n; k++) {
    const saved_tensor *t = saved_get(s, k);
    str_clear(&text);
    layout_print_on(saved_mesh(s, t->mesh), &t->l, &text);
    print_tensor(&l, t->name, st_dtype_name(st_dtype_from_hp((hp_dtype)t->type.dtype)),
                 t->type.rank, t->type.dim, text.at);
  }
  hp_status st = str_status(&text);
  str_free(&text);
  return st;
}

static hp_status inspect_shards(const char *dir, const char *kind, bool all) {
  str path = {0};
  saved *s = NULL;
  hp_status st = path_join(&path, dir, kind);
  if (!st) st = saved_open(path.at, &s);
  if (!st) st = print_shards(s, kind, all);
  saved_close(s);
  str_free(&path);
  return st;
}

/* bos and eos as config.json has them: a number, a list of them, null, or nothing. */
static hp_status print_ends(const tree_node *root) {
  static const char *const key[] = {"bos_token_id", "eos_token_id"};
  str text = {0};
  for (int i = 0; i < 2; i++) {
    const tree_node *n = tree_get(root, key[i]);
    json_writer w = {.out = &text};
    str_printf(&text, "%s%.3s ", i ? ", " : "", key[i]);
    if (n) json_put_tree(&w, n);
    else str_add(&text, "not given");
  }
  hp_status st = str_status(&text);
  if (!st) printf("           %s\n", text.at);
  str_free(&text);
  return st;
}

static hp_status inspect_config(const char *path) {
  model_config c;
  HP_TRY(model_config_load(path, &c));
  printf("model      %s (%s), %.3f M parameters%s\n", escape_name(c.model_type).text,
         c.family->architecture, model_config_params(&c) * 1e-6,
         c.tied ? ", output head tied to the embedding" : "");
  printf("           %lld layers, hidden %lld, %lld heads over %lld of %lld dims, mlp %lld, "
         "vocabulary %lld\n",
         (long long)c.layers, (long long)c.hidden, (long long)c.heads, (long long)c.kv_heads,
         (long long)c.head_dim, (long long)c.ffn, (long long)c.vocab);
  printf("           %lld positions%s\n", (long long)c.max_length,
         c.window ? ", sliding window" : "");
  hp_status st = print_ends(c.source.root);
  model_config_free(&c);
  return st;
}

/* The line that a checkpoint belongs to, and where that began. */
static hp_status inspect_line(const checkpoint *c) {
  run_line l;
  HP_TRY(run_line_parse(c->manifest.root, &l));
  printf("line       %s", l.id);
  for (size_t i = 0; i < l.parents.len; i++)
    printf(", from step %lld of %s", (long long)l.parents.at[i].step, l.parents.at[i].id);
  putchar('\n');
  run_line_free(&l);
  return HP_OK;
}

static hp_status inspect_checkpoint(const char *path) {
  checkpoint c;
  const tree_node *files;
  HP_TRY(checkpoint_verify(path, &c));
  hp_status st = tree_need_map(c.manifest.root, "files", &files);
  if (!st)
    printf("checkpoint step %lld, %u files, every size and hash agrees\n", (long long)c.step,
           files->len);
  if (!st) st = inspect_line(&c);
  for (uint32_t i = 0; !st && i < files->len; i++) {
    int64_t bytes;
    st = tree_need_int(files->child[i], "bytes", &bytes);
    if (!st)
      printf("  %-60s %.3f MB\n", escape_name(files->child[i]->key).text, (double)bytes * 1e-6);
  }
  checkpoint_free(&c);
  return st;
}

static void print_role(const tokenizer *t, const char *name, token_role role) {
  int32_t id = tokenizer_role(t, role);
  if (id < 0) printf(", no %s", name);
  else printf(", %s %d", name, (int)id);
}

/* Is DIR/name there? */
static bool has_file(const char *dir, const char *name) {
  str p = {0};
  bool there = !path_join(&p, dir, name) && path_exists(p.at);
  str_free(&p);
  return there;
}

static hp_status inspect_dir(const char *path, bool all) {
  bool known;
  HP_TRY(manifest_find(path, &known));
  if (known) HP_TRY(inspect_checkpoint(path));
  if (has_file(path, "config.json")) {
    known = true;
    HP_TRY(inspect_config(path));
  }
  if (tokenizer_is_in(path)) {
    tokenizer *t;
    known = true;
    HP_TRY(tokenizer_load(path, &t));
    printf("tokenizer  %zu ids", tokenizer_size(t));
    print_role(t, "bos", TOKEN_BOS);
    print_role(t, "eos", TOKEN_EOS);
    putchar('\n');
    tokenizer_free(t);
  }
  if (has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json")) {
    known = true;
    HP_TRY(inspect_weights(path, all));
  }
  static const char *const kind[] = {"model", "optimizer"};
  for (int i = 0; i < 2; i++) {
    if (!weights_are_sharded(path, kind[i])) continue;
    known = true;
    HP_TRY(inspect_shards(path, kind[i], all));
  }
  if (!known)
    HP_FAIL(HP_ERR_INPUT,
            "%s: holds no config.json, tokenizer.json, model.safetensors or MANIFEST.json; "
            "expected a model folder or a checkpoint",
            path);
  return HP_OK;
}

int verb_inspect(int argc, char **argv) {
  const char *rest[256];
  bool all = false;
  int n;
  const cli_option option[] = {{"--all", CLI_FLAG, &all, NULL, "every tensor"}};
  const cli_spec spec =
      {"hyper inspect PATH [--all]",
       "Says what a model folder, a checkpoint of a run or a safetensors file holds, and\n"
       "whether it is complete.",
       "hyper inspect build/demo/run/checkpoint-100", option, 1};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n != 1) return cli_usage(argv[0], "give one path");
  hp_status st = dir_exists(rest[0]) ? inspect_dir(rest[0], all) : inspect_weights(rest[0], all);
  return st ? cli_fail(st) : 0;
}
