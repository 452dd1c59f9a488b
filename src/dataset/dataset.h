/* Data sets of plain text (stage pt) or of conversations (the other stages), from LlamaFactory's
 * dataset_info.json or from a path.
 *
 * A sample is one text (UTF-8, may hold NULs) or one conversation (dataset/chat.h).  Which samples
 * there are, and their order, are those of LlamaFactory with the same file, seed and keys:
 * num_samples, max_samples, concat and interleave, the split by val_size.  Read: .txt (a line is a
 * sample; \r\n and \r end lines too), .json (a list), .jsonl, .csv (a heading, then rows), or a
 * folder of one of these, by name. A message names the file, the record (from 1), the key. */
#ifndef DATASET_DATASET_H
#define DATASET_DATASET_H

#include "base/json.h"
#include "base/vec.h"
#include "dataset/chat.h"
#include "dataset/dataset_random.h"

/* A text, for stage pt, or a conversation. */
typedef struct {
  dataset_text text;
  const chat *chat;
} dataset_sample;

/* A zeroed data set is empty and ready.  What the samples name lives as long as it does. */
typedef struct {
  VEC(dataset_sample) sample;
  arena mem;
} dataset;
void dataset_free(dataset *d);

typedef enum { DATASET_CONCAT, DATASET_UNDER, DATASET_OVER, DATASET_ONCE } dataset_mix;
/* What the samples are: PAIRS are conversations with a chosen and a rejected response. */
typedef enum { DATASET_TEXTS, DATASET_CHATS, DATASET_PAIRS } dataset_kind;

typedef struct {
  const char *dir;         /* dataset_dir */
  const char *const *name; /* of dataset_info.json, or a path (from here, or from dir) */
  size_t n;
  int64_t max_samples; /* of each data set; < 0: all */
  dataset_kind kind;
  dataset_mix mix;
  const double *probs; /* one a data set, for UNDER and OVER; NULL: in turn */
  uint64_t seed;       /* of a mix by probs */
} dataset_spec;

/* Loads and joins the data sets named.  `global` is NumPy's global generator, seeded once for the
 * run: num_samples draws from it.  HP_ERR_INPUT for anything that cannot be read as asked. */
hp_status dataset_load(const dataset_spec *spec, mt19937 *global, dataset *out);

/* Whether the i-th data set is there to be read: its entry of dataset_info.json is sound, and its
 * file or folder exists.  HP_ERR_INPUT as dataset_load would say it. */
hp_status dataset_check(const dataset_spec *spec, size_t i);

/* Takes `count` samples, or (count 0) the share `share` of them rounded up, out of d into taken, in
 * the order of datasets.train_test_split(seed); the rest stay in d, in its order of them.  Both
 * share d's texts: free d last.  HP_ERR_INPUT when nothing would be left to train on. */
hp_status dataset_split(dataset *d, int64_t count, double share, uint64_t seed, dataset *taken);

/* --- parts ------------------------------------------------------------------------------------ */

/* How a record becomes a text: the values of prompt and query with a line break between, unless
 * one is empty; or the first turn of history.  NULL: no such column. */
typedef struct {
  const char *prompt, *query, *history;
  const char *response; /* is not read: it is counted, and the user is told */
  bool guess;           /* no columns were given: text, or instruction and input */
} dataset_columns;

/* dataset_file.c: appends the samples of a file, by its ending; at most max (< 0: all). */
hp_status dataset_read_file(const char *path, const dataset_columns *c, int64_t max, dataset *d);
/* The same from memory: a list of records, or records one after another. */
hp_status dataset_read_json(const char *bytes, size_t len, const char *path,
                            const dataset_columns *c, int64_t max, dataset *d);

/* Calls each for the records of a list, or for records one after another (JSON lines), behind the
 * opening brace of each; at most max (< 0: all). */
hp_status dataset_each_record(json_reader *in, int64_t max, hp_status (*each)(void *ctx),
                              void *ctx);

/* Fails for a file that is not read, by its ending; chats: of conversations. */
hp_status dataset_check_ending(const char *path, bool chats);
/* chat_read.c: appends the conversations of a file. */
hp_status dataset_read_chats(const char *path, const chat_format *f, int64_t max, dataset *d);

/* dataset_text.c: .txt and .csv, from memory. */
hp_status dataset_read_lines(const char *bytes, size_t len, const char *path, int64_t max,
                             dataset *d);
hp_status dataset_read_csv(const char *bytes, size_t len, const char *path,
                           const dataset_columns *c, int64_t max, dataset *d);
/* Warns that `n` of so many records have a response, which plain text leaves out; n may be 0. */
void dataset_tell_responses(const char *path, const dataset_columns *c, int64_t n, int64_t records);
/* Joins prompt and query as above and appends the sample. */
hp_status dataset_add(dataset *d, dataset_text prompt, dataset_text query);
/* The columns to use for records with these keys, when they were not given. */
hp_status dataset_guess(const char *path, const char *const *key, size_t n, dataset_columns *c);

#endif
