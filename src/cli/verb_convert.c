/* `hyper convert`: other checkpoints to a Hugging Face folder. */
#include "base/dtype.h"
#include "base/io.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/convert.h"
#include "ckpt/llama2c.h"
#include "ckpt/manifest.h"
#include "tok/tok_llama2c.h"

#include <stdio.h>
#include <string.h>

/* A tokenizer.bin as the text of a tokenizer.json. */
static hp_status read_tokenizer(const char *path, str *json) {
  char *bytes = NULL;
  size_t n;
  HP_TRY(file_read(path, 0, &bytes, &n));
  hp_status st = tok_llama2c_to_json(path, bytes, n, json);
  mem_free(bytes);
  return st;
}

static hp_status write_tokenizer(const str *json, const char *dir) {
  str to = {0};
  hp_status st = path_join(&to, dir, "tokenizer.json");
  if (!st) st = file_write(to.at, json->at, json->len);
  if (!st) st = path_join(&to, dir, "tokenizer_config.json");
  static const char config[] = "{\n  \"add_bos_token\": true,\n  \"add_eos_token\": false,\n"
                               "  \"bos_token\": \"<s>\",\n  \"eos_token\": \"</s>\",\n"
                               "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                               "  \"unk_token\": \"<unk>\"\n}\n";
  if (!st) st = file_write(to.at, config, sizeof config - 1);
  str_free(&to);
  return st;
}

/* The tokenizer is read first. */
static hp_status convert_llama2c(const char *from, const char *dir, const char *tokenizer,
                                 hp_dtype type) {
  str json = {0};
  hp_status st = tokenizer ? read_tokenizer(tokenizer, &json) : HP_OK;
  if (!st) st = llama2c_convert(from, dir, type);
  if (!st && tokenizer) st = write_tokenizer(&json, dir);
  if (!st && !tokenizer)
    log_warn("no --tokenizer: %s gets no tokenizer.json, so it accepts --tokens only", dir);
  str_free(&json);
  return st;
}

/* On failure no incomplete model is left. */
static hp_status convert_model(const char *from, const char *dir, const char *tokenizer,
                               const hp_dtype *type) {
  bool made = !path_exists(dir), folder = dir_exists(from);
  if (folder && tokenizer)
    HP_FAIL(HP_ERR_ARG, "--tokenizer: %s is a folder, which has its tokenizer with it", from);
  if (!folder) HP_TRY(manifest_check_target(dir));
  if (dir_exists(dir)) HP_TRY(dir_remove_leftovers(dir, false));
  hp_status st = folder ? convert_folder(from, dir, type)
                        : convert_llama2c(from, dir, tokenizer, type ? *type : HP_F32);
  if (!st || !made) return st;
  err_report why;
  err_take(st, &why);
  if (dir_remove(dir)) err_clear();
  return err_give(&why);
}

int verb_convert(int argc, char **argv) {
  const char *rest[256], *tokenizer = NULL, *word = NULL;
  hp_dtype type = HP_F32;
  int n;
  const cli_option option[] = {{"--tokenizer", CLI_TEXT, &tokenizer, "FILE.bin",
                                "llama2.c tokenizer to convert too"},
                               {"--dtype", CLI_TEXT, &word, "f32|bf16|f16",
                                "of the weights written (default: as they are)"}};
  const cli_spec spec =
      {"hyper convert FROM TO [--tokenizer FILE.bin] [--dtype f32|bf16|f16]",
       "Writes FROM as a Hugging Face folder TO: config.json, model.safetensors, tokenizer.\n"
       "FROM is a checkpoint of a run, on any number of devices, or a llama2.c checkpoint,\n"
       "whose tokenizer comes with --tokenizer.",
       "hyper convert build/demo/run/checkpoint-100 models/demo", option,
       sizeof option / sizeof *option};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n != 2) return cli_usage(argv[0], "give the checkpoint and the folder to write");
  if (word && (!dtype_parse(word, &type) || !dtype_is_float(type)))
    return cli_usage(argv[0], "--dtype %s: expected f32, bf16 or f16", word);
  hp_status st = convert_model(rest[0], rest[1], tokenizer, word ? &type : NULL);
  if (st) return cli_fail(st);
  printf("%s written\n", rest[1]);
  return 0;
}
