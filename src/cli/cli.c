#include "cli/cli.h"

#include "base/dtype.h"
#include "base/str.h"
#include "comm/world.h"
#include "model/lm.h"
#include "model/strategy.h"
#include "train/train_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_print_help(const cli_spec *s) {
  printf("usage: %s\n\n%s\n\n", s->usage, s->about);
  for (int i = 0; i < s->n; i++) {
    char left[64];
    const cli_option *o = &s->option[i];
    snprintf(left, sizeof left, "%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    printf("  %-28s %s\n", left, o->help);
  }
  printf("\nexample: %s\n", s->example);
}

void cli_say(hp_status st, const char *fmt, ...) {
  char text[2048];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (world_get()->size > 1) world_tell(st, text);
  else fprintf(stderr, "hyper%s\n", text);
}

int cli_usage(const char *verb, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  cli_say(HP_ERR_ARG, " %s: %s; see `hyper %s --help`", verb, text, verb);
  return 2;
}

int cli_fail(hp_status st) {
  cli_say(st, ": %s", *err_message() ? err_message() : err_name(st));
  const char *trace = getenv("HYPER_TRACE");
  if (trace && *trace == '1') fputs(err_trace(), stderr);
  bool input = st == HP_ERR_ARG || st == HP_ERR_INPUT || st == HP_ERR_SHAPE ||
               st == HP_ERR_LAYOUT || st == HP_ERR_UNSUPPORTED || st == HP_ERR_IO ||
               st == HP_ERR_OOM;
  return input ? 2 : 1;
}

/* One value into its place; false when it is not of the option's kind. */
static bool store(const cli_option *o, const char *text) {
  int64_t i;
  switch (o->kind) {
  case CLI_FLAG: *(bool *)o->to = true; return true;
  case CLI_TEXT: *(const char **)o->to = text; return true;
  case CLI_NUM: return str_to_f64(text, o->to);
  case CLI_SIZE: return train_parse_size(text, o->to);
  case CLI_INT:
  case CLI_COUNT:
    if (!str_to_i64(text, &i) || (o->kind == CLI_COUNT && i < 1)) return false;
    *(int64_t *)o->to = i;
    return true;
  }
  return false;
}

static const char *const kind_words[] = {[CLI_FLAG] = "nothing",
                                         [CLI_INT] = "a whole number",
                                         [CLI_COUNT] = "a whole number, 1 or more",
                                         [CLI_NUM] = "a number",
                                         [CLI_TEXT] = "text",
                                         [CLI_SIZE] = "bytes, as 500000000 or 4GiB"};

static const cli_option *find(const cli_spec *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->option[i].name, name)) return &s->option[i];
  return NULL;
}

static int unknown(const cli_spec *s, const char *verb, const char *name) {
  const char *names[64];
  int n = s->n < 64 ? s->n : 64;
  for (int i = 0; i < n; i++) names[i] = s->option[i].name;
  const char *near = str_nearest(name, names, (size_t)n);
  if (near) return cli_usage(verb, "unknown option %s, did you mean %s?", name, near);
  return cli_usage(verb, "unknown option %s", name);
}

/* The option a word means: "--name", "--name=value", and with `keys` "name=value" with underscores.
 * The name goes to `name` (cut when too long), the place after '=' to *value.  False: no option. */
static bool read_name(bool keys, const char *word, char name[64], const char **value) {
  const char *eq = strchr(word, '='), *from = word, *const block = "hyper_parallel.";
  bool dashes = !strncmp(word, "--", 2);
  if (!dashes && !(keys && eq)) return false;
  if (!dashes && !strncmp(word, block, strlen(block))) from += strlen(block);
  snprintf(name, 64, "%s%.*s", dashes ? "" : "--", eq ? (int)(eq - from) : 62, from);
  for (char *c = name; !dashes && *c; c++)
    if (*c == '_') *c = '-';
  *value = eq ? eq + 1 : NULL;
  return true;
}

/* --some-key VALUE as the word some_key=VALUE; the exit code when memory is short. */
static int add_key(arena *text, const char *name, const char *value, const char **word) {
  char *key = arena_printf(text, "%s=%s", name + 2, value);
  *word = key;
  for (char *c = key; c && *c != '='; c++)
    if (*c == '-') *c = '_';
  return key ? CLI_GO_ON : cli_fail(HP_ERR_OOM);
}

static int set_option(const cli_option *o, const char *verb, const char *value) {
  if (store(o, value)) return CLI_GO_ON;
  return cli_usage(verb, "%s: expected %s, found \"%s\"", o->name, kind_words[o->kind], value);
}

/* keys: "name=value" is an option too.  text: options that the spec has not are keys, as words. */
static int parse(const cli_spec *s, bool keys, arena *text, int argc, char **argv,
                 const char **rest, int *n_rest) {
  *n_rest = 0;
  for (int i = 1; i < argc; i++) {
    const char *w = argv[i];
    if (!strcmp(w, "--help") || !strcmp(w, "-h")) {
      cli_print_help(s);
      return 0;
    }
    if (!strcmp(w, "--")) {
      while (++i < argc) rest[(*n_rest)++] = argv[i];
      break;
    }
    char name[64];
    const char *value;
    if (!read_name(keys, w, name, &value)) {
      rest[(*n_rest)++] = w;
      continue;
    }
    const cli_option *o = find(s, name);
    if (!o && !text) return unknown(s, argv[0], name);
    bool flag = o && o->kind == CLI_FLAG;
    if (flag && value) return cli_usage(argv[0], "%s takes no value", o->name);
    if (!flag && !value) value = i + 1 < argc ? argv[++i] : NULL;
    if (!flag && !value)
      return cli_usage(argv[0], "%s needs a value (%s)", name, o ? o->arg : "a key of the file");
    int code = o ? set_option(o, argv[0], value) : add_key(text, name, value, &rest[(*n_rest)++]);
    if (code != CLI_GO_ON) return code;
  }
  return CLI_GO_ON;
}

int cli_parse(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest) {
  return parse(s, false, NULL, argc, argv, rest, n_rest);
}

int cli_parse_keys(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest) {
  return parse(s, true, NULL, argc, argv, rest, n_rest);
}

static bool is_topic(const char *const *topics, const char *word) {
  for (; topics && *topics; topics++)
    if (!strcmp(*topics, word)) return true;
  return false;
}

static int sort_words(const char *verb, const char *const *topics, const char **rest, int n,
                      cli_config *out) {
  for (int i = 0; i < n; i++) {
    if (strchr(rest[i], '=')) out->key[out->keys++] = rest[i];
    else if (!out->file) out->file = rest[i];
    else if (!out->what && is_topic(topics, rest[i])) out->what = rest[i];
    else return cli_usage(verb, "\"%s\" is not expected", rest[i]);
  }
  return out->file ? CLI_GO_ON : cli_usage(verb, "the configuration file is missing");
}

int cli_parse_config(const cli_spec *s, const char *const *topics, int argc, char **argv,
                     cli_config *out) {
  const char *rest[CLI_WORDS];
  int n;
  *out = (cli_config){0};
  if (argc > CLI_WORDS) return cli_usage(argv[0], "too many arguments");
  int code = parse(s, false, &out->text, argc, argv, rest, &n);
  if (code == CLI_GO_ON) code = sort_words(argv[0], topics, rest, n, out);
  if (code != CLI_GO_ON) arena_free(&out->text);
  return code;
}

hp_status cli_parse_ids(const char *text, int32_t **ids, int64_t *n) {
  VEC(int32_t) v = {0};
  const char *p = text;
  while (*p) {
    char *end;
    long long x = strtoll(p, &end, 10);
    if (end == p || x < 0 || x > INT32_MAX || (*end && *end != ',') || (*end && !end[1])) {
      vec_free(&v);
      HP_FAIL(HP_ERR_ARG,
              "--tokens: \"%.20s\" is not an id; expected numbers with commas between, as 1,2,3",
              p);
    }
    if (!vec_push(&v, (int32_t)x)) {
      vec_free(&v);
      return HP_ERR_OOM;
    }
    p = *end ? end + 1 : end;
  }
  if (!v.len)
    HP_FAIL(HP_ERR_ARG, "--tokens: no ids; expected numbers with commas between, as 1,2,3");
  *ids = v.at;
  *n = (int64_t)v.len;
  return HP_OK;
}

hp_status cli_device_options(const model_options *o, strategy *s, char *mesh,
                             hp_device_options *out) {
  const char *bits = o->deterministic ? o->deterministic : "run";
  if (o->threads < 0 || o->threads > 1024)
    HP_FAIL(HP_ERR_ARG, "--threads %lld: expected 1 to 1024", (long long)o->threads);
  if (strcmp(bits, "run") && strcmp(bits, "layout"))
    HP_FAIL(HP_ERR_ARG, "--deterministic %s: expected run or layout", bits);
  HP_TRY(strategy_parse(o->strategy, o->devices, s));
  *out = (hp_device_options){.threads = (int)o->threads,
                             .memory_limit = o->memory_limit,
                             .whole_sums = !strcmp(bits, "layout"),
                             .cluster = o->cluster,
                             .engine = o->engine,
                             .mesh = strategy_mesh(s, mesh)};
  return HP_OK;
}

hp_status cli_open_model(const model_options *o, bool training, hp_device **d, void **lm_out) {
  hp_dtype t = HP_F32;
  if (!o->model) HP_FAIL(HP_ERR_ARG, "--model DIR is missing");
  if (o->dtype && (!dtype_parse(o->dtype, &t) || (t != HP_F32 && t != HP_BF16)))
    HP_FAIL(HP_ERR_ARG, "--dtype %s: expected f32 or bf16", o->dtype);
  strategy s;
  char mesh[STRATEGY_TEXT];
  hp_device_options dev;
  HP_TRY(cli_device_options(o, &s, mesh, &dev));
  lm_options lo = {.compute = t,
                   .weights = training ? HP_F32 : t,
                   .strips = !training && strategy_devices(&s) == 1};
  lm *m;
  HP_TRY(hp_device_open(&dev, d));
  hp_status st = lm_create(o->model, *d, &lo, &m);
  if (!st) {
    st = strategy_apply(&s, m, *d);
    if (!st) st = lm_load(m, o->model);
    if (st) lm_free(m);
  }
  if (st) hp_device_close(*d);
  else *lm_out = m;
  return st;
}
