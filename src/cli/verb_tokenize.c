/* `hyper tokenize`: text to ids and back. */
#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/tokenize_data.h"
#include "tok/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  const char *model;
  bool decode, no_special, json;
} args;

/* The words of the command line with spaces between, or standard input to its end for "-". */
static hp_status read_text(const char **word, int n, str *out) {
  if (n == 1 && !strcmp(word[0], "-")) {
    char *bytes;
    size_t len;
    HP_TRY(file_read_fd(STDIN_FILENO, "standard input", 0, &bytes, &len));
    str_add_n(out, bytes, len);
    mem_free(bytes);
    return str_status(out);
  }
  str_add(out, "");
  for (int i = 0; i < n; i++) {
    if (i) str_add_char(out, ' ');
    str_add(out, word[i]);
  }
  return str_status(out);
}

static hp_status encode_text(const args *a, const tokenizer *t, const str *text) {
  token_ids ids = {0};
  str out = {0};
  json_writer w = {.out = &out};
  hp_status st =
      tokenizer_encode(t, text->at, text->len, a->no_special ? 0 : TOKENIZE_SPECIAL, &ids);
  if (!st && a->json) {
    json_open_list(&w);
    for (size_t i = 0; i < ids.len; i++) json_put_int(&w, ids.at[i]);
    json_close(&w);
  } else if (!st) {
    str_add(&out, "");
    for (size_t i = 0; i < ids.len; i++) str_printf(&out, i ? " %d" : "%d", ids.at[i]);
  }
  if (!st) st = str_status(&out);
  if (!st) puts(out.at);
  str_free(&out);
  vec_free(&ids);
  return st;
}

/* Ids with blanks, commas or brackets between. */
static hp_status parse_ids(const str *text, token_ids *out) {
  const char *p = text->at;
  while (*(p += strspn(p, " \t\r\n,[]"))) {
    size_t n = strcspn(p, " \t\r\n,[]");
    char word[24];
    int64_t id;
    snprintf(word, sizeof word, "%.*s", (int)(n < 23 ? n : 23), p);
    if (!str_to_i64(word, &id) || id < 0 || id > INT32_MAX)
      HP_FAIL(HP_ERR_ARG,
              "\"%s\" is not a token id; expected numbers with spaces or commas between", word);
    if (!vec_push(out, (int32_t)id)) return HP_ERR_OOM;
    p += n;
  }
  return HP_OK;
}

static hp_status decode_text(const args *a, const tokenizer *t, const str *text) {
  token_ids ids = {0};
  str out = {0}, quoted = {0};
  hp_status st = parse_ids(text, &ids);
  for (size_t i = 0; !st && i < ids.len; i++)
    if ((size_t)ids.at[i] >= tokenizer_size(t))
      st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                   "token id %d at place %zu is not in 0..%zu, the ids of the tokenizer", ids.at[i],
                   i, tokenizer_size(t) - 1);
  if (!st) st = tokenizer_decode(t, ids.at, ids.len, a->no_special, &out);
  if (!st && a->json) {
    json_writer w = {.out = &quoted};
    json_put_string_n(&w, out.at ? out.at : "", out.len);
    st = str_status(&quoted);
  }
  if (!st) {
    const str *s = a->json ? &quoted : &out;
    cli_put_text(s->at ? s->at : "", s->len);
    putchar('\n');
  }
  vec_free(&ids);
  str_free(&out);
  str_free(&quoted);
  return st;
}

int verb_tokenize(int argc, char **argv) {
  args a = {0};
  const char *rest[256];
  int n;
  for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
    if (!strncmp(argv[i], "--dataset", 9)) return tokenize_dataset(argc, argv);
  const cli_option option[] =
      {{"--model", CLI_TEXT, &a.model, "DIR", "model folder, or a tokenizer.json"},
       {"--decode", CLI_FLAG, &a.decode, NULL, "ids to text"},
       {"--no-special", CLI_FLAG, &a.no_special, NULL,
        "without the special tokens that the tokenizer adds; decoding: leave them out"},
       {"--json", CLI_FLAG, &a.json, NULL, "a JSON list (decoding: a JSON string)"}};
  const cli_spec spec =
      {"hyper tokenize --model DIR [--decode] [--no-special] [--json] TEXT|-\n"
       "       hyper tokenize --model DIR --template T --dataset NAME --dataset_dir DIR "
       "[key=value ...]",
       "Ids of a text, with spaces between, as the model's tokenizer makes them; - reads\n"
       "standard input to its end, byte for byte.  From the first word of the text on all words\n"
       "are text, also if they look like a file; put -- before one that looks like an option.\n\n"
       "With --dataset: the samples that hyper train makes of a dataset; see\n"
       "hyper tokenize --dataset NAME --help.",
       "hyper tokenize --model models/tiny \"Hello world\"", option,
       sizeof option / sizeof *option};
  if (argc > 256)
    return cli_usage(argv[0], "too many arguments; give a long text on standard input, with -");
  int code = cli_parse_text(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (!a.model) return cli_usage(argv[0], "--model DIR is missing");
  if (!n) return cli_usage(argv[0], "the text is missing");
  tokenizer *t = NULL;
  str text = {0};
  hp_status st = tokenizer_load(a.model, &t);
  if (!st) st = read_text(rest, n, &text);
  if (!st) st = a.decode ? decode_text(&a, t, &text) : encode_text(&a, t, &text);
  str_free(&text);
  tokenizer_free(t);
  return st ? cli_fail(st) : 0;
}
