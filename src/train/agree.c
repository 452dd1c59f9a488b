#include "train/agree.h"

#include "base/hash.h"
#include "base/io.h"
#include "ckpt/model_files.h"
#include "model/adapter_files.h"
#include "train/file_digests.h"
#include "train/train_tuning.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- comparing -------------------------------------------------------------------------------- */

enum { SHOWN_ALONE = '\v' }; /* what is behind it in a value is shown, but not compared */

/* The texts of all processes, `room` bytes each, with a 0 at the end. */
typedef struct {
  int size;
  size_t room;
  char *all;
} fact_texts;

static const char *text_of(const fact_texts *x, int rank) {
  return x->all + (size_t)rank * x->room;
}

typedef struct {
  const char *at;
  size_t len;
} span;

static span name_in(const char *line) { return (span){line, strcspn(line, "\t\n")}; }
static const char *next_line(const char *line) {
  line += strcspn(line, "\n");
  return line + (*line == '\n');
}

/* The value of that name; "nothing" where the text has none. */
static span value_in(const char *text, span name) {
  for (const char *at = text; *at; at = next_line(at)) {
    span n = name_in(at);
    if (n.len != name.len || memcmp(n.at, name.at, n.len)) continue;
    const char *value = at + n.len + (at[n.len] == '\t');
    return (span){value, strcspn(value, "\n")};
  }
  return (span){"nothing", 7};
}

static size_t compared(span x) {
  const char *end = x.len ? memchr(x.at, SHOWN_ALONE, x.len) : NULL;
  return end ? (size_t)(end - x.at) : x.len;
}

static bool equal(span a, span b) {
  return compared(a) == compared(b) && !memcmp(a.at, b.at, compared(a));
}

/* The two parts of a value, at most so much of it. */
static void show_value(span v, str *out) {
  enum { LENGTH = 120 };
  size_t n = compared(v), rest = v.len > n ? v.len - n - 1 : 0;
  str_printf(out, "%.*s", n < LENGTH ? (int)n : LENGTH, v.at);
  if (rest) str_printf(out, "%.*s", rest < LENGTH ? (int)rest : LENGTH, v.at + n + 1);
}

static bool all_have(const fact_texts *x, span name) {
  for (int i = 1; i < x->size; i++)
    if (!equal(value_in(text_of(x, 0), name), value_in(text_of(x, i), name))) return false;
  return true;
}

/* "0.001 (process 0, 2 and 5 more), 0.002 (process 1)" */
static void show_values(const fact_texts *x, span name, str *out) {
  enum { VALUES_SHOWN = 3, RANKS_SHOWN = 3 };
  int shown = 0;
  for (int i = 0; i < x->size; i++) {
    span v = value_in(text_of(x, i), name);
    int before = 0, n = 0;
    while (before < i && !equal(value_in(text_of(x, before), name), v)) before++;
    if (before < i) continue; /* shown with that one */
    if (shown++ == VALUES_SHOWN) {
      str_add(out, ", ...");
      return;
    }
    if (shown > 1) str_add(out, ", ");
    show_value(v, out);
    str_add(out, " (process ");
    for (int k = i; k < x->size; k++)
      if (equal(value_in(text_of(x, k), name), v) && n++ < RANKS_SHOWN)
        str_printf(out, "%s%d", n > 1 ? ", " : "", k);
    if (n > RANKS_SHOWN) str_printf(out, " and %d more", n - RANKS_SHOWN);
    str_add(out, ")");
  }
}

static void show_all(const fact_texts *x, str *out) {
  enum { SHOWN = 4 };
  int n = 0;
  for (int i = 0; i < x->size; i++)
    for (const char *at = text_of(x, i); *at; at = next_line(at)) {
      span name = name_in(at);
      bool earlier = false;
      for (int k = 0; k < i && !earlier; k++)
        earlier = !equal(value_in(text_of(x, k), name), (span){"nothing", 7});
      if (earlier || all_have(x, name)) continue;
      if (n++ >= SHOWN) continue;
      str_printf(out, "%s%.*s: ", n > 1 ? "; " : "", (int)name.len, name.at);
      show_values(x, name, out);
    }
  if (n > SHOWN) str_printf(out, "; and %d more", n - SHOWN);
}

static hp_status refuse(const fact_texts *x) {
  str shown = {0};
  show_all(x, &shown);
  hp_status st = str_status(&shown);
  if (!st && shown.len)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "the processes differ in %s; all must have the same configuration, model and data",
                 shown.at);
  str_free(&shown);
  return st;
}

/* They differ: all texts are brought together, to say in what. */
static hp_status compare(const str *facts, int size) {
  int64_t longest;
  fact_texts x = {.size = size};
  size_t bytes;
  HP_TRY(hp_world_max((int64_t)facts->len, &longest));
  x.room = (size_t)longest + 1;
  if (!size_mul(x.room, (size_t)size, &bytes)) return HP_ERR_OOM;
  char *mine = mem_calloc(x.room, 1);
  x.all = mem_calloc(bytes, 1);
  hp_status st = mine && x.all ? HP_OK : HP_ERR_OOM;
  if (!st) {
    memcpy(mine, facts->at, facts->len);
    st = hp_world_gather(mine, x.room, x.all);
  }
  if (!st) st = refuse(&x);
  mem_free(mine);
  mem_free(x.all);
  return st;
}

/* Fails in all of them with HP_ERR_INPUT, and the same message, when the facts differ: it says
 * which, the values and who has them.  facts: lines "NAME\tVALUE\n"; what is behind a '\v' in a
 * value is shown, but not compared. */
static hp_status fail_unless_equal(const str *facts) {
  int rank, size;
  HP_TRY(hp_world(&rank, &size));
  if (size == 1) return HP_OK;
  hash128 mine = hash_bytes128(facts->at, facts->len);
  hash128 *all = mem_calloc((size_t)size, sizeof *all);
  HP_TRY_MEM(all);
  hp_status st = hp_world_gather(&mine, sizeof mine, all);
  bool same = true;
  for (int i = 0; !st && i < size; i++) same &= !memcmp(&all[i], &mine, sizeof mine);
  mem_free(all);
  /* one that is equal to all others sees so, and one that is not sees it too: all go the same way
   */
  bool equal = true;
  if (!st) st = hp_world_agree(same, &equal);
  return equal ? st : compare(facts, size);
}

static hp_status agree_and_free(hp_status st, str *facts) {
  if (!st) st = str_status(facts);
  if (!st) st = fail_unless_equal(facts);
  str_free(facts);
  return st;
}

static bool is_alone(void) {
  int rank, size;
  return !hp_world(&rank, &size) && size == 1;
}

/* --- facts ------------------------------------------------------------------------------------ */

/* Machines may differ in these: what is in the files is compared instead of where they are. */
static bool is_of_machine(int key) {
  static const int keys[] = {KEY_threads,      KEY_model_name_or_path, KEY_dataset,
                             KEY_eval_dataset, KEY_dataset_dir,        KEY_hyper_parallel,
                             KEY_disable_tqdm, KEY_PARALLEL_cluster,   KEY_adapter_name_or_path};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (keys[i] == key) return true;
  return false;
}

/* Costs of a cluster decide which collectives a program has, so it must be one cluster: by its
 * name, or by what is in its file. */
static hp_status add_cluster(const train_config *c, str *facts) {
  const char *name = c->parallel.cluster;
  file_map m = {0};
  char hex[33];
  if (!name) return HP_OK;
  str_add(facts, "hyper_parallel.cluster\t");
  if (file_exists(name)) {
    HP_TRY(file_map_open(name, &m));
    hash_hex(hash_bytes128(m.at, m.len), hex);
    str_printf(facts, "%zu bytes, hash %.16s%c of ", m.len, hex, SHOWN_ALONE);
    file_map_close(&m);
  }
  str_printf(facts, "%s\n", name);
  return HP_OK;
}

hp_status agree_config(const train_config *c) {
  str facts = {0};
  str_printf(&facts, "version of hyper\t%s\n", hp_version());
  for (int k = 0; k < KEY_COUNT; k++) {
    const train_key *key = train_key_get(k);
    if (key->status != TRAIN_USED || is_of_machine(k)) continue;
    str_printf(&facts, "%s%s\t", k >= KEY_TOP_COUNT ? "hyper_parallel." : "", key->name);
    train_config_print_value(c, k, &facts);
    str_add_char(&facts, '\n');
  }
  return agree_and_free(add_cluster(c, &facts), &facts);
}

static hp_status add_samples(const char *what, const train_names *names, const train_data *d,
                             const sample_set *s, str *facts) {
  char hex[33];
  HP_TRY(train_data_digest(d, s, hex));
  str_printf(facts, "%s\t", what);
  str_printf(facts, "%lld samples, hash %.16s%c of", (long long)s->samples, hex, SHOWN_ALONE);
  for (size_t i = 0; i < names->n; i++) str_printf(facts, " %s", names->at[i]);
  str_add_char(facts, '\n');
  return HP_OK;
}

hp_status agree_data(const train_config *c, const train_data *d) {
  str facts = {0};
  hp_status st = HP_OK;
  if (is_alone()) return HP_OK;
  if (d->train.samples) st = add_samples("the training data", &c->is.dataset, d, &d->train, &facts);
  for (int64_t i = 0; !st && i < d->evals; i++)
    st = add_samples(i ? "more evaluation data" : "the evaluation data", &c->is.eval_dataset, d,
                     &d->eval[i], &facts);
  return agree_and_free(st, &facts);
}

static void add_fact(const char *path, uint64_t bytes, const char *hex, str *facts) {
  const char *slash = strrchr(path, '/');
  str_printf(facts, "%s\t%llu bytes, hash %.16s\n", slash ? slash + 1 : path,
             (unsigned long long)bytes, hex);
}

static hp_status add_file(const char *path, str *facts) {
  file_map m;
  char hex[33];
  HP_TRY(file_map_open(path, &m));
  hash_hex(hash_bytes128(m.at, m.len), hex);
  add_fact(path, m.len, hex, facts);
  file_map_close(&m);
  return HP_OK;
}

static hp_status add_checkpoint(const checkpoint *c, str *facts) {
  str path = {0};
  file_map m;
  char hex[33], room[PATH_MAX];
  const char *whole = realpath(c->path, room);
  hp_status st = path_join(&path, c->path, "MANIFEST.json");
  if (!st) st = file_map_open(path.at, &m);
  str_free(&path);
  if (!st) {
    hash_hex(hash_bytes128(m.at, m.len), hex);
    str_printf(facts,
               "the checkpoint to go on from\tstep %lld, MANIFEST.json with hash %.16s%c in %s\n",
               (long long)c->step, hex, SHOWN_ALONE, whole ? whole : c->path);
    file_map_close(&m);
  }
  return st;
}

hp_status agree_checkpoint(const checkpoint *c) {
  str facts = {0};
  if (is_alone()) return HP_OK;
  return agree_and_free(add_checkpoint(c, &facts), &facts);
}

static bool holds_weights(const char *name) {
  static const char *const ends[] = {".safetensors", ".safetensors.index.json", ".parts.json"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    size_t n = strlen(name), k = strlen(ends[i]);
    if (n >= k && !strcmp(name + n - k, ends[i])) return true;
  }
  return false;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef VEC(char *) path_list;

/* Those of the folder that hold weights, in the order of their names. */
static hp_status list_weights(const char *dir, arena *mem, path_list *out) {
  DIR *d = opendir(dir);
  hp_status st = HP_OK;
  if (!d) return HP_OK; /* what is wrong with it is said where it is loaded */
  for (struct dirent *e; !st && !(st = dir_next(d, dir, &e)) && e;) {
    char *path = holds_weights(e->d_name) ? arena_printf(mem, "%s/%s", dir, e->d_name) : NULL;
    if (holds_weights(e->d_name) && (!path || !vec_push(out, path))) st = HP_ERR_OOM;
  }
  closedir(d);
  if (out->len) qsort(out->at, out->len, sizeof *out->at, by_name);
  return st;
}

/* Gigabytes, which not every process reads for itself. */
static hp_status add_weights(const char *dir, arena *mem, str *facts) {
  path_list path = {0};
  hp_status st = list_weights(dir, mem, &path);
  file_digest *file = st ? NULL : mem_calloc(path.len + 1, sizeof *file);
  if (!st && !file) st = HP_ERR_OOM;
  for (size_t i = 0; !st && i < path.len; i++) file[i].path = path.at[i];
  if (!st) st = file_digests_share(dir, file, path.len);
  for (size_t i = 0; !st && i < path.len; i++)
    add_fact(path.at[i], file[i].bytes, file[i].hex, facts);
  mem_free(file);
  vec_free(&path);
  return st;
}

static hp_status add_adapter(const train_config *c, size_t i, str *facts) {
  static const char *const file[] = {ADAPTER_CONFIG, ADAPTER_WEIGHTS};
  str dir = {0}, path = {0};
  hp_status st = train_tuning_folder(c, i, &dir);
  for (size_t k = 0; !st && k < sizeof file / sizeof *file; k++) {
    st = path_join(&path, dir.at, file[k]);
    if (!st) st = add_file(path.at, facts);
  }
  str_free(&dir);
  str_free(&path);
  return st;
}

static hp_status add_model(const train_config *c, bool weights, arena *mem, str *facts) {
  const char *file[MODEL_FILES_MAX], *dir = c->model_name_or_path;
  size_t n = 0;
  HP_TRY(add_file(arena_printf(mem, "%s/config.json", dir), facts));
  HP_TRY(model_files_list(dir, mem, file, &n));
  for (size_t i = 0; i < n; i++) HP_TRY(add_file(file[i], facts));
  for (size_t i = 0; i < c->is.adapters.n; i++) HP_TRY(add_adapter(c, i, facts));
  return weights ? add_weights(dir, mem, facts) : HP_OK;
}

hp_status agree_model(const train_config *c, bool weights) {
  arena mem = {0};
  str facts = {0};
  if (is_alone()) return HP_OK;
  hp_status st = add_model(c, weights, &mem, &facts);
  st = agree_and_free(st, &facts);
  arena_free(&mem);
  return st;
}
