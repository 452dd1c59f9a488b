#include "cli/placement_options.h"

#include "base/dtype.h"
#include "base/escape.h"
#include "base/str.h"
#include "base/yaml.h"
#include "comm/world.h"
#include "model/lm_adapter.h"
#include "model/tier_options.h"
#include "train/memory_limit.h"
#include "train/train_config.h"

#include <ctype.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_help(const cli_spec *s) {
  printf("usage: %s\n\n%s\n\n", s->usage, s->about);
  for (int i = 0; i < s->n; i++) {
    char left[64];
    const cli_option *o = &s->option[i];
    if (!o->help) continue;
    snprintf(left, sizeof left, "%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    printf("  %-28s %s\n", left, o->help);
  }
  printf("  %-28s %s\n", "--", "ends the options: the words behind it are taken as they are");
  printf("\nexample: %s\n", s->example);
}

void cli_say(hp_status st, const char *fmt, ...) {
  char raw[ERR_MESSAGE_MAX], text[ERR_MESSAGE_MAX];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(raw, sizeof raw, fmt, ap);
  va_end(ap);
  escape_text(text, sizeof text, raw, strlen(raw), true);
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

/* Advice in terms of options and keys, where a message of the library uses names of its header. */
static const char *find_advice(hp_status st) {
  if (st != HP_ERR_OOM) return "";
  return "; what needs less: a smaller batch or cutoff_len, recompute: full, --dtype bf16, or more "
         "devices";
}

int cli_fail(hp_status st) {
  cli_say(st, ": %s%s", *err_message() ? err_message() : err_name(st), find_advice(st));
  const char *trace = getenv("HYPER_TRACE");
  if (trace && *trace == '1') fputs(err_trace(), stderr);
  bool input = st == HP_ERR_ARG || st == HP_ERR_INPUT || st == HP_ERR_SHAPE ||
               st == HP_ERR_LAYOUT || st == HP_ERR_UNSUPPORTED || st == HP_ERR_IO ||
               st == HP_ERR_OOM;
  return input ? 2 : 1;
}

bool cli_output_is_closed(void) {
  struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
  return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

void cli_put_text(const char *text, size_t n) {
  bool terminal = isatty(STDOUT_FILENO);
  if (!terminal) fwrite(text, 1, n, stdout);
  for (size_t i = 0, len; terminal && i < n;) {
    char one[ESCAPE_MAX];
    i += escape_next(text + i, n - i, true, one, &len);
    fwrite(one, 1, len, stdout);
  }
}

/* One value into its place; false when it is not of the option's kind. */
static bool store_value(const cli_option *o, const char *text) {
  int64_t i;
  switch (o->kind) {
  case CLI_FLAG:
    *(bool *)o->to = !strcmp(text, "true");
    return !strcmp(text, "true") || !strcmp(text, "false");
  case CLI_TEXT: *(const char **)o->to = text; return true;
  case CLI_NUM: return str_to_f64(text, o->to);
  case CLI_SIZE: return memory_size_parse(text, o->to);
  case CLI_LIMIT: return memory_limit_parse(text, o->to);
  case CLI_INT:
  case CLI_COUNT:
    if (!str_to_i64(text, &i) || (o->kind == CLI_COUNT && i < 1)) return false;
    *(int64_t *)o->to = i;
    return true;
  }
  return false;
}

static const char *const kind_words[] = {[CLI_FLAG] = "true or false, or nothing",
                                         [CLI_INT] = "a whole number",
                                         [CLI_COUNT] = "a whole number, 1 or more",
                                         [CLI_NUM] = "a number",
                                         [CLI_TEXT] = "text",
                                         [CLI_SIZE] = "bytes, as 500000000 or 4GiB",
                                         [CLI_LIMIT] =
                                             "bytes, as 500000000 or 4GiB, or 1% to 100%"};

static const cli_option *find_option(const cli_spec *s, const char *name) {
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->option[i].name, name)) return &s->option[i];
  return NULL;
}

static int refuse_option(const cli_spec *s, const char *verb, const char *name) {
  const char *names[64];
  int n = 0;
  for (int i = 0; i < s->n && n < 64; i++)
    if (s->option[i].help) names[n++] = s->option[i].name;
  const char *near = str_nearest(name, names, (size_t)n);
  if (near) return cli_usage(verb, "unknown option %s, did you mean %s?", name, near);
  return cli_usage(verb, "unknown option %s", name);
}

/* Names may be spelled with dashes or underscores: replaces both by c. */
static void spell_with(char *name, char c) {
  for (; *name; name++)
    if (*name == '-' || *name == '_') *name = c;
}

/* A word that names an option or a key: "--some-name", "--some_name=value" or "some_name=value";
 * or an option of one letter: "-n" or "-n=value". */
typedef struct {
  char name[64]; /* "--some-name" or "-n", whatever the spelling; cut when too long */
  const char *value;
  bool dashes;
} named;

/* keys: an option may be called as in the block of a configuration, "hyper_parallel.devices". */
static bool read_name(bool keys, const char *word, named *out) {
  static const char block[] = "hyper_parallel.";
  const char *eq = strchr(word, '=');
  out->dashes = !strncmp(word, "--", 2);
  bool letter = word[0] == '-' && isalpha((unsigned char)word[1]) && (!word[2] || word[2] == '=');
  if (!out->dashes && !letter && !eq) return false;
  const char *from = word + (out->dashes ? 2 : letter);
  if (keys && !strncmp(from, block, strlen(block))) from += strlen(block);
  int n = (int)strcspn(from, "=");
  snprintf(out->name, sizeof out->name, "%s%.*s", n == 1 ? "-" : "--", n < 61 ? n : 61, from);
  spell_with(out->name + (n == 1 ? 1 : 2), '-');
  out->value = eq ? eq + 1 : NULL;
  return true;
}

/* A key and its value as the word some_key=VALUE; only of the path's first names, which are keys
 * and not those of tensors, the spelling is free.  The exit code when memory is short. */
static int add_key(arena *text, const char *name, size_t n, const char *value, const char **word) {
  static const char block[] = "hyper_parallel.";
  char *key = arena_printf(text, "%.*s=%s", (int)n, name, value);
  *word = key;
  if (!key) return cli_fail(HP_ERR_OOM);
  for (int part = 0; part < 2; part++) {
    for (; *key && *key != '=' && *key != '.'; key++)
      if (*key == '-') *key = '_';
    if (*key != '.' || strncmp(*word, block, strlen(block))) break;
    key++;
  }
  return CLI_GO_ON;
}

static int set_option(const cli_option *o, const char *verb, const char *name, const char *value) {
  if (store_value(o, value)) return CLI_GO_ON;
  return cli_usage(verb, "%s: expected %s, found \"%s\"", name, kind_words[o->kind], value);
}

/* What words are that are no options of the spec. */
typedef enum {
  WORDS,       /* of their own */
  TEXT,        /* from the first of them on, all are text */
  OPTIONS_TOO, /* "name=value" must be an option */
  KEYS_TOO     /* names that are no options are keys, which are put together in `text` */
} word_rule;

/* Is it a key of the configuration that is true or false? */
static bool is_bool_key(const char *name) {
  static const char block[] = "hyper_parallel.";
  char key[64];
  snprintf(key, sizeof key, "%.*s", (int)strcspn(name, "="), name);
  spell_with(key, '_');
  bool inside = !strncmp(key, block, strlen(block));
  int k = train_key_find(inside ? key + strlen(block) : key, inside);
  return k >= 0 && (train_key_get(k)->type == TRAIN_BOOL || train_key_get(k)->type == TRAIN_TRI);
}

/* Is the word after a flag, or after a key that is true or false, its value?  If not, the flag or
 * key is true. */
static bool is_truth(const char *word, bool of_key) {
  const char *why;
  tree_node v = {.kind = TREE_STRING};
  if (!of_key) return !strcmp(word, "true") || !strcmp(word, "false");
  return yaml_resolve(word, &v, &why) && v.kind != TREE_STRING;
}

/* Is the word neither an option of the spec nor a key, but one of the verb's own? */
static bool is_own_word(word_rule rule, const cli_option *o, const named *w) {
  if (o) return false;
  return !*w->name || (!w->dashes && (rule == WORDS || rule == TEXT || !w->value));
}

/* argv[*i] and, where it needs one, the word with its value. */
static int take_word(const cli_spec *s, word_rule rule, arena *text, int argc, char **argv, int *i,
                     const char **rest, int *n_rest) {
  named w = {.value = NULL};
  const char *word = argv[*i], *next = *i + 1 < argc ? argv[*i + 1] : NULL;
  const cli_option *o = read_name(rule == OPTIONS_TOO, word, &w) ? find_option(s, w.name) : NULL;
  if (is_own_word(rule, o, &w)) {
    rest[(*n_rest)++] = word;
    return CLI_GO_ON;
  }
  if (!o && rule != KEYS_TOO) return refuse_option(s, argv[0], w.name);
  const char *name = w.dashes ? word + 2 : word, *value = w.value;
  bool flag = o ? o->kind == CLI_FLAG : is_bool_key(name);
  if (!value && next && (!flag || (rule != TEXT && is_truth(next, !o)))) value = argv[++*i];
  if (!value && !flag)
    return cli_usage(argv[0], "%s needs a value (%s)", w.name, o ? o->arg : "a key of the file");
  if (!value) value = "true";
  if (o) return set_option(o, argv[0], w.name, value);
  return add_key(text, name, strcspn(name, "="), value, &rest[(*n_rest)++]);
}

static int parse_words(const cli_spec *s, word_rule rule, arena *text, int argc, char **argv,
                       const char **rest, int *n_rest) {
  *n_rest = 0;
  for (int i = 1; i < argc; i++) {
    bool ends = !strcmp(argv[i], "--");
    if (ends || (rule == TEXT && *n_rest)) {
      for (i += ends; i < argc; i++) rest[(*n_rest)++] = argv[i];
      break;
    }
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
      print_help(s);
      return 0;
    }
    int code = take_word(s, rule, text, argc, argv, &i, rest, n_rest);
    if (code != CLI_GO_ON) return code;
  }
  return CLI_GO_ON;
}

int cli_parse(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest) {
  return parse_words(s, WORDS, NULL, argc, argv, rest, n_rest);
}

int cli_parse_text(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest) {
  return parse_words(s, TEXT, NULL, argc, argv, rest, n_rest);
}

int cli_parse_keys(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest) {
  return parse_words(s, OPTIONS_TOO, NULL, argc, argv, rest, n_rest);
}

static bool is_topic(const char *const *topics, const char *word) {
  for (; topics && *topics; topics++)
    if (!strcmp(*topics, word)) return true;
  return false;
}

static int refuse_word(const char *verb, const char *const *topics, const char *word) {
  size_t n = 0;
  while (topics && topics[n]) n++;
  const char *near = str_nearest(word, topics, n);
  return near ? cli_usage(verb, "\"%s\" is not expected; did you mean %s?", word, near)
              : cli_usage(verb, "\"%s\" is not expected", word);
}

static int sort_words(const char *verb, const char *const *topics, const char **rest, int n,
                      cli_config *out) {
  for (int i = 0; i < n; i++) {
    if (strchr(rest[i], '=')) out->key[out->keys++] = rest[i];
    else if (!out->file) out->file = rest[i];
    else if (!out->what && is_topic(topics, rest[i])) out->what = rest[i];
    else if (out->what && !out->name && !is_topic(topics, rest[i])) out->name = rest[i];
    else return refuse_word(verb, out->what ? NULL : topics, rest[i]);
  }
  return CLI_GO_ON;
}

int cli_parse_config(const cli_spec *s, const char *const *topics, int argc, char **argv,
                     cli_config *out) {
  const char *rest[CLI_WORDS];
  int n;
  *out = (cli_config){0};
  if (argc > CLI_WORDS) return cli_usage(argv[0], "too many arguments");
  int code = parse_words(s, KEYS_TOO, &out->text, argc, argv, rest, &n);
  if (code == CLI_GO_ON) code = sort_words(argv[0], topics, rest, n, out);
  if (code == CLI_GO_ON && !out->file)
    code = cli_usage(argv[0], "the configuration file is missing");
  if (code != CLI_GO_ON) arena_free(&out->text);
  return code;
}

int cli_parse_perhaps_config(const cli_spec *s, int argc, char **argv, cli_config *out) {
  const char *rest[CLI_WORDS];
  int n;
  named w;
  *out = (cli_config){0};
  if (argc > CLI_WORDS) return cli_usage(argv[0], "too many arguments");
  int code = parse_words(s, KEYS_TOO, &out->text, argc, argv, rest, &n);
  if (code == CLI_GO_ON) code = sort_words(argv[0], NULL, rest, n, out);
  if (code == CLI_GO_ON && !out->file && out->keys && read_name(false, out->key[0], &w))
    code = refuse_option(s, argv[0], w.name);
  if (code != CLI_GO_ON) arena_free(&out->text);
  return code;
}

int cli_parse_pairs(const cli_spec *s, int argc, char **argv, cli_config *out) {
  const char *rest[CLI_WORDS];
  int n;
  *out = (cli_config){0};
  if (argc > CLI_WORDS) return cli_usage(argv[0], "too many arguments");
  int code = parse_words(s, KEYS_TOO, &out->text, argc, argv, rest, &n);
  for (int i = 0; i < n && code == CLI_GO_ON; i++) {
    if (!strchr(rest[i], '=')) code = refuse_word(argv[0], NULL, rest[i]);
    out->key[out->keys++] = rest[i];
  }
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

/* A failure of the option. */
static hp_status name_option(const char *name, hp_status st) {
  char why[ERR_MESSAGE_MAX];
  if (!st || st == HP_ERR_OOM) return st;
  snprintf(why, sizeof why, "%s", err_message());
  err_clear();
  HP_FAIL(st, "%s: %s", name, why);
}

static hp_status read_tiers(const model_options *o, tier_options *t) {
  tier_options_init(t);
  t->flash_limit = o->flash_limit;
  t->host_limit = o->host_limit;
  if (o->offload) HP_TRY(name_option("--offload", tier_options_parse(t, o->offload)));
  if (o->offload_policy)
    HP_TRY(name_option("--offload-policy", tier_options_set_policy(t, o->offload_policy)));
  if (o->flash) HP_TRY(name_option("--flash", tier_options_add_flash(t, o->flash)));
  return name_option(o->offload ? "--offload"
                     : o->flash ? "--flash"
                                : "--flash-limit",
                     tier_options_check(t));
}

hp_status cli_kv_tier(const model_options *o, int *out) {
  tier_options t;
  hp_status st = read_tiers(o, &t);
  if (!st) *out = t.offload[HP_MEMORY_OTHER];
  tier_options_free(&t);
  return st;
}

/* What the options say of the device, but for mesh and tiers. */
static hp_status read_device(const model_options *o, hp_device_options *out) {
  const char *bits = o->deterministic ? o->deterministic : "run";
  if (o->threads < 0 || o->threads > 1024)
    HP_FAIL(HP_ERR_ARG, "--threads %lld: expected 1 to 1024", (long long)o->threads);
  if (strcmp(bits, "run") && strcmp(bits, "layout"))
    HP_FAIL(HP_ERR_ARG, "--deterministic %s: expected run or layout", bits);
  *out = (hp_device_options){.threads = (int)o->threads,
                             .memory_limit = memory_limit_bytes(o->memory_limit),
                             .no_partial_sums = !strcmp(bits, "layout"),
                             .cluster = o->cluster,
                             .may_miss = true, /* a strategy has rules for all kinds of programs */
                             .engine = o->engine};
  return HP_OK;
}

hp_status cli_open_device(const model_options *o, bool plan_only, const placement *p,
                          hp_device **out) {
  str mesh = {0};
  hp_device_options dev;
  tier_options tiers;
  HP_TRY(read_device(o, &dev));
  hp_status st = read_tiers(o, &tiers);
  tier_options_fill(&tiers, &dev);
  dev.plan_only = plan_only;
  if (!st) st = placement_mesh(p, &mesh, &dev.mesh);
  if (!st) st = hp_device_open(&dev, out);
  if (!st) {
    st = tier_options_apply(&tiers, *out);
    if (st) hp_device_close(*out);
  }
  str_free(&mesh);
  tier_options_free(&tiers);
  return st;
}

void cli_tell_rows(const model_options *o, int64_t rows, int64_t tokens) {
  placement_options where;
  if (placement_options_read(o, &where)) {
    err_clear(); /* reported when the device was opened */
    return;
  }
  placement_tell_rows(&where.p, rows, tokens);
  placement_options_free(&where);
}

hp_status cli_resolve_limit(const model_options *o, lm *m, const cli_work *w) {
  uint64_t resident;
  if (!memory_limit_is_share(o->memory_limit)) return HP_OK;
  HP_TRY(w->resident(w->context, m, &resident));
  hp_device_set_memory_limit(m->d, memory_limit_resolve(o->memory_limit, resident));
  return HP_OK;
}

hp_status cli_place_model(const model_options *o, bool training, placement *p, lm *m,
                          hp_device **d) {
  if (o->adapter) HP_TRY(lm_open_adapter_list(m, o->adapter, training));
  HP_TRY(placement_find_layers(p, m));
  HP_TRY(cli_open_device(o, false, p, d));
  m->d = *d;
  m->groups = placement_batch_shards(p);
  hp_status st = placement_apply(p, m, *d);
  if (st) hp_device_close(*d);
  return st;
}

hp_status cli_open_model(const model_options *o, bool training, const cli_work *w, hp_device **d,
                         void **lm_out) {
  hp_dtype t = HP_F32;
  placement_options where;
  lm *m = NULL;
  if (!o->model) HP_FAIL(HP_ERR_ARG, "--model DIR is missing");
  if (o->dtype && (!dtype_parse(o->dtype, &t) || (t != HP_F32 && t != HP_BF16)))
    HP_FAIL(HP_ERR_ARG, "--dtype %s: expected f32 or bf16", o->dtype);
  HP_TRY(placement_options_read(o, &where));
  lm_options lo = {.compute = t,
                   .weights = training ? HP_F32 : t,
                   .packed = !training && placement_devices(&where.p) == 1};
  hp_status st = lm_create(o->model, NULL, &lo, &m);
  if (!st) st = cli_place_model(o, training, &where.p, m, d);
  if (!st) {
    st = cli_resolve_limit(o, m, w);
    if (!st) st = lm_load(m, o->model);
    if (st) hp_device_close(*d);
  }
  placement_options_free(&where);
  if (st) lm_free(m);
  else *lm_out = m;
  return st;
}
