/* `hyper inspect`: what is in a model folder, a checkpoint of a run, or a safetensors file. */
#include "base/io.h"
#include "cli/cli.h"
#include "data/tokenizer.h"
#include "data/weights.h"
#include "model/family.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

static void print_tensor(const st_tensor *t) {
  char shape[256] = "";
  size_t at = 0;
  for (int i = 0; i < t->rank && at + 24 < sizeof shape; i++)
    at += (size_t)snprintf(shape + at, sizeof shape - at, i ? ", %lld" : "%lld",
                           (long long)t->dim[i]);
  printf("  %-60s %-6s [%s]\n", t->name, st_dtype_name(t->dtype), shape);
}

static hp_status inspect_weights(const char *path, bool all) {
  weights *w;
  HP_TRY(weights_open(path, &w));
  double bytes = 0;
  size_t n = weights_count(w);
  for (size_t i = 0; i < n; i++) bytes += (double)weights_get(w, i)->bytes;
  printf("weights    %zu tensors, %.3f MB\n", n, bytes * 1e-6);
  for (size_t i = 0; i < n; i++) {
    if (!all && n > 24 && i == 12) {
      printf("  ... %zu more, --all shows them\n", n - 24);
      i = n - 12;
    }
    print_tensor(weights_get(w, i));
  }
  weights_free(w);
  return HP_OK;
}

static hp_status inspect_config(const char *path) {
  model_config c;
  HP_TRY(model_config_load(path, &c));
  printf("model      %s (%s), %.3f M parameters%s\n", c.model_type, c.family->architecture,
         model_config_params(&c) * 1e-6, c.tied ? ", output head tied to the embedding" : "");
  printf("           %lld layers, hidden %lld, %lld heads over %lld of %lld dims, mlp %lld, "
         "vocabulary %lld\n",
         (long long)c.layers, (long long)c.hidden, (long long)c.heads, (long long)c.kv_heads,
         (long long)c.head_dim, (long long)c.ffn, (long long)c.vocab);
  printf("           %lld positions%s\n", (long long)c.max_length,
         c.window ? ", sliding window" : "");
  model_config_free(&c);
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
  checkpoint_free(&c);
  return st;
}

/* Is DIR/name there? */
static bool holds(const char *dir, const char *name) {
  str p = {0};
  bool there = !path_join(&p, dir, name) && path_exists(p.at);
  str_free(&p);
  return there;
}

static hp_status inspect_dir(const char *path, bool all) {
  bool known = false;
  if (holds(path, "MANIFEST.json")) {
    known = true;
    HP_TRY(inspect_checkpoint(path));
  }
  if (holds(path, "config.json")) {
    known = true;
    HP_TRY(inspect_config(path));
  }
  if (holds(path, "tokenizer.json") || holds(path, "vocab.json")) {
    tokenizer *t;
    known = true;
    HP_TRY(tokenizer_load(path, &t));
    printf("tokenizer  %zu ids, bos %d, eos %d\n", tokenizer_size(t), tokenizer_role(t, TOKEN_BOS),
           tokenizer_role(t, TOKEN_EOS));
    tokenizer_free(t);
  }
  if (holds(path, "model.safetensors") || holds(path, "model.safetensors.index.json")) {
    known = true;
    HP_TRY(inspect_weights(path, all));
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
       "whether it is whole.",
       "hyper inspect build/demo/run/checkpoint-100", option, 1};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n != 1) return cli_usage(argv[0], "give one path");
  hp_status st = dir_exists(rest[0]) ? inspect_dir(rest[0], all) : inspect_weights(rest[0], all);
  return st ? cli_fail(st) : 0;
}
