/* The command line: verbs, their options, exit codes.
 * Exit 0 success, 1 the run failed, 2 bad usage or bad input. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/arena.h"
#include "base/status.h"
#include "model/lm.h"

typedef struct {
  const char *name;
  int (*run)(int argc, char **argv); /* argv[0] is the verb; returns the exit code */
  const char *about;                 /* one line */
} cli_verb;
#define VERB(name, about) int verb_##name(int argc, char **argv);
#include "cli/verbs.def"
#undef VERB
extern const cli_verb cli_verbs[];

typedef enum { CLI_FLAG, CLI_INT, CLI_COUNT, CLI_NUM, CLI_TEXT, CLI_SIZE, CLI_LIMIT } cli_kind;
typedef struct {
  const char *name; /* with the dashes: "--threads" */
  cli_kind kind;
  void *to;         /* bool, int64_t (two kinds), double, const char *, uint64_t */
  const char *arg;  /* word for the value in the help: "N" */
  const char *help; /* NULL: not in the list, as a second name is not */
} cli_option;

typedef struct {
  const char *usage;   /* "hyper logits --model DIR ..." */
  const char *about;   /* a sentence or two */
  const char *example; /* a whole command */
  const cli_option *option;
  int n;
} cli_spec;

enum { CLI_GO_ON = -1 };
/* Reads options into their places; what is left over is moved to the front of rest (room for argc).
 * An option is spelled alike on all verbs: --some-name VALUE, --some-name=VALUE or some_name=VALUE,
 * with dashes or underscores; one of one letter also -n VALUE; a flag alone, or with true or false.
 * A word with "=" whose name is no option is left over, as all words after "--" are.  Returns
 * CLI_GO_ON, 0 after --help, or 2 after bad usage. */
int cli_parse(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest);
/* The same for a verb whose words are a text: from the first word that is no option on, all are
 * left over, whatever they look like; a flag has true or false behind a "=" only. */
int cli_parse_text(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest);
/* The same for verbs that run a model: a name that is no option is bad usage, and options may also
 * be named as in the block of a training run's configuration, "hyper_parallel.memory_limit=4GiB".
 */
int cli_parse_keys(const cli_spec *s, int argc, char **argv, const char **rest, int *n_rest);

enum { CLI_WORDS = 256 };
/* The words of a verb that reads a CONFIG.yaml: the file, what of it is asked (NULL: all), and keys
 * as key=value, which --some-key VALUE and --some-key=VALUE mean too; of a key that is true or
 * false --some-key alone means true. */
typedef struct {
  const char *file, *what, *name; /* name: a word behind what is asked */
  const char *key[CLI_WORDS];
  int keys;
  arena text;
} cli_config;
/* topics: what may be asked, NULL at its end; NULL when nothing.  After CLI_GO_ON free out->text.
 */
int cli_parse_config(const cli_spec *s, const char *const *topics, int argc, char **argv,
                     cli_config *out);
/* The same for a verb that needs no file; keys are for one that is there. */
int cli_parse_perhaps_config(const cli_spec *s, int argc, char **argv, cli_config *out);
/* The same without a file: options and keys alone. */
int cli_parse_pairs(const cli_spec *s, int argc, char **argv, cli_config *out);

/* One line on stderr: why the exit code will not be 0.  Of a job's processes only one says it. */
void cli_say(hp_status st, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Says the failure of this thread and returns the exit code it means. */
int cli_fail(hp_status st);
/* Bad usage: says the message, where to find help, and returns 2. */
int cli_usage(const char *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Has who read stdout, such as `head`, gone away? */
bool cli_output_is_closed(void);
/* Text of a model or a user to stdout: byte for byte, but control characters are escaped where
 * stdout is a terminal. */
void cli_put_text(const char *text, size_t n);

/* How a token is drawn: fields temperature, top_p and repetition_penalty (double), top_k (int64).
 */
#define SAMPLING_OPTIONS(o)                                                                        \
  {"--temperature", CLI_NUM, &(o).temperature, "X",                                                \
   "0 is greedy; default: generation_config.json, else 0"},                                        \
      {"--top-k", CLI_INT, &(o).top_k, "N", "draw from the N likeliest; 0 = off"},                 \
      {"--top-p", CLI_NUM, &(o).top_p, "X", "draw from the likeliest that make up this share"}, {  \
    "--repetition-penalty", CLI_NUM, &(o).repetition_penalty, "X",                                 \
        "above 1: tokens that occurred get less likely"                                            \
  }

/* --- options shared by every verb that runs a model --------------------------------------- */

typedef struct {
  const char *model, *adapter, *dtype, *strategy, *groups, *deterministic, *cluster, *engine,
      *offload, *flash, *offload_policy;
  int64_t threads, devices, seed;
  uint64_t memory_limit, flash_limit, host_limit;
  bool json;
} model_options;
#define MODEL_OPTIONS(o)                                                                           \
  {"--model", CLI_TEXT, &(o).model, "DIR", "Hugging Face checkpoint folder"},                      \
      {"--adapter", CLI_TEXT, &(o).adapter, "DIR,..",                                              \
       "adapters in peft's files, which are merged into the weights"},                             \
      {"--dtype", CLI_TEXT, &(o).dtype, "f32|bf16", "dtype of matrix products (default: f32)"},    \
      {"--threads", CLI_INT, &(o).threads, "N", "threads (default: all cores)"},                   \
      {"--devices", CLI_COUNT, &(o).devices, "N",                                                  \
       "devices, all data parallel without a strategy"},                                           \
      {"--strategy", CLI_TEXT, &(o).strategy, "dp=2,tp=2", "how the devices share the work"},      \
      {"--groups", CLI_TEXT, &(o).groups, "CONFIG.yaml",                                           \
       "a training file, whose hyper_parallel.groups are the devices of the model's modules"},     \
      {"--cluster", CLI_TEXT, &(o).cluster, "C", "what devices and links cost: a file or a name"}, \
      {"--deterministic", CLI_TEXT, &(o).deterministic, "run|layout",                              \
       "layout: the bits of one device with every strategy (default: run)"},                       \
      {"--engine", CLI_TEXT, &(o).engine, "NAME",                                                  \
       "of matrix products: packed, onednn, openblas, or fastest, by measurement (default: "       \
       "packed)"},                                                                                 \
      {"--seed", CLI_INT, &(o).seed, "S", "of random numbers, where there are any (default: 0)"},  \
      {"--memory-limit", CLI_LIMIT, &(o).memory_limit, "BYTES|50%",                                \
       "hard limit of a device, e.g. 4GiB; 50%: of what it would use without a limit"},            \
      {"--offload", CLI_TEXT, &(o).offload, "auto|none|weights=host,kv=flash",                     \
       "what leaves a device's memory (default: auto, what the limit asks for)"},                  \
      {"--offload-policy", CLI_TEXT, &(o).offload_policy,                                          \
       "auto|zero_offload|layer_ahead|full_recompute",                                             \
       "how that is planned: by a rule of other systems, to compare (default: auto)"},             \
      {"--flash", CLI_TEXT, &(o).flash, "DIR,..", "folders of tier flash"},                        \
      {"--flash-limit", CLI_SIZE, &(o).flash_limit, "BYTES", "bytes to take there"},               \
      {"--host-limit", CLI_SIZE, &(o).host_limit, "BYTES",                                         \
       "host memory for what leaves devices (default: no limit)"},                                 \
  {                                                                                                \
    "--json", CLI_FLAG, &(o).json, NULL, "one JSON object a line"                                  \
  }

/* main as a process of the job that it was started in: process 0 alone prints. */
int cli_run_in_job(int (*run)(int argc, char **argv), int argc, char **argv);
/* A mapped file that becomes shorter or cannot be read any more ends the process with a message
 * that names it, and exit code 2. */
void cli_name_file_faults(void);

struct placement;
/* The device of the options, with the meshes of a placement. */
hp_status cli_open_device(const model_options *o, bool plan_only, const struct placement *p,
                          hp_device **out);
/* What a verb runs, for a memory limit that is a share of its bytes. */
typedef struct {
  hp_status (*resident)(const void *context, lm *m, uint64_t *bytes); /* without a limit */
  const void *context;
} cli_work;
/* Sets the limit, if it is a share, before weights are loaded. */
hp_status cli_resolve_limit(const model_options *o, lm *m, const cli_work *w);
/* Opens the device for a model that has none, with adapters and layouts; with groups they get their
 * layers.  After a failure there is no device. */
hp_status cli_place_model(const model_options *o, bool training, struct placement *p, lm *m,
                          hp_device **d);
/* Opens the device and the model, with its weights. */
hp_status cli_open_model(const model_options *o, bool training, const cli_work *w, hp_device **d,
                         void **lm_out);
/* HP_OFFLOAD_* of the cache of keys and values. */
hp_status cli_kv_tier(const model_options *o, int *out);
/* Warns of devices that have none of the sequences computed at a time, or none of their tokens
 * (0: they have many). */
void cli_tell_rows(const model_options *o, int64_t rows, int64_t tokens);
/* "1,2,3" -> ids; HP_ERR_ARG names what is wrong. */
hp_status cli_parse_ids(const char *text, int32_t **ids, int64_t *n);

#endif
