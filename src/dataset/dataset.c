#include "dataset/dataset.h"

#include "base/io.h"
#include "base/json.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INFO "dataset_info.json"

void dataset_free(dataset *d) {
  vec_free(&d->sample);
  arena_free(&d->mem);
}

/* --- dataset_info.json ------------------------------------------------------------------------ */

typedef struct {
  const char *path; /* file or folder */
  dataset_columns columns;
  chat_format chats;
  int64_t num_samples; /* < 0: all */
} source;

/* LlamaFactory passes over keys that it does not know; near misses are told. */
static hp_status check_entry(const tree_node *e) {
  static const char *const known[] = {"file_name",       "formatting", "ranking",
                                      "subset",          "split",      "folder",
                                      "num_samples",     "columns",    "tags",
                                      "hf_hub_url",      "ms_hub_url", "om_hub_url",
                                      "cloud_file_name", "script_url"};
  enum { KNOWN = sizeof known / sizeof *known };
  HP_TRY(tree_expect(e, TREE_MAP));
  for (uint32_t i = 0; i < e->len; i++) {
    const char *near = str_nearest(e->child[i]->key, known, KNOWN);
    if (near && strcmp(near, e->child[i]->key))
      TREE_FAIL(e->child[i], "there is no such key; did you mean \"%s\"?", near);
  }
  for (int k = 9; k < KNOWN; k++)
    if (tree_get(e, known[k]))
      TREE_FAIL(tree_get(e, known[k]), "nothing is fetched from a hub or run as a script; download "
                                       "the data, and give its \"file_name\"");
  return HP_OK;
}

static hp_status read_columns(const tree_node *e, source *s) {
  const tree_node *columns;
  HP_TRY(tree_opt_map(e, "columns", &columns));
  s->columns = (dataset_columns){.guess = !columns};
  if (!columns) return HP_OK;
  HP_TRY(tree_opt_string(columns, "prompt", NULL, &s->columns.prompt));
  HP_TRY(tree_opt_string(columns, "query", NULL, &s->columns.query));
  HP_TRY(tree_opt_string(columns, "history", NULL, &s->columns.history));
  HP_TRY(tree_opt_string(columns, "response", NULL, &s->columns.response));
  if (!s->columns.prompt)
    TREE_FAIL(columns, "stage pt needs \"prompt\": the name of the column that holds the text");
  return HP_OK;
}

/* The columns of plain text. */
static hp_status read_text_entry(const tree_node *e, source *s) {
  const char *formatting;
  bool ranking;
  HP_TRY(tree_opt_string(e, "formatting", "alpaca", &formatting));
  if (strcmp(formatting, "alpaca"))
    TREE_FAIL(tree_get(e, "formatting"),
              "%s is for conversations (stage: sft); stage pt takes plain text: "
              "formatting alpaca with \"columns\": {\"prompt\": ...}",
              formatting);
  HP_TRY(tree_opt_bool(e, "ranking", false, &ranking));
  if (ranking) TREE_FAIL(tree_get(e, "ranking"), "true: preference data does not go with stage pt");
  return read_columns(e, s);
}

static hp_status read_chat_entry(const tree_node *e, dataset_kind kind, source *s) {
  HP_TRY(chat_format_read(e, &s->chats));
  if (kind == DATASET_PAIRS && !s->chats.ranking)
    TREE_FAIL(e, "stages rm and dpo need preference data: \"ranking\": true, with columns "
                 "\"chosen\" and \"rejected\"");
  if (kind == DATASET_CHATS && s->chats.ranking)
    TREE_FAIL(tree_get(e, "ranking"), "true: preference data is for stages rm and dpo");
  return HP_OK;
}

static hp_status read_entry(const tree_node *e, const dataset_spec *spec, arena *mem, source *s) {
  const char *file;
  HP_TRY(check_entry(e));
  HP_TRY(tree_opt_int(e, "num_samples", -1, &s->num_samples));
  if (tree_get(e, "num_samples") && s->num_samples < 1)
    TREE_FAIL(tree_get(e, "num_samples"), "expected 1 or more, found %lld",
              (long long)s->num_samples);
  HP_TRY(spec->kind == DATASET_TEXTS ? read_text_entry(e, s) : read_chat_entry(e, spec->kind, s));
  HP_TRY(tree_need_string(e, "file_name", &file));
  s->path = *file == '/' ? file : arena_printf(mem, "%s/%s", spec->dir, file);
  return s->path ? HP_OK : HP_ERR_OOM;
}

/* A name that dataset_info.json does not have may be a path. */
static hp_status find_path(const char *name, const char *dir, arena *mem, const char **out) {
  *out = NULL;
  if (path_exists(name)) *out = name;
  const char *inside = arena_printf(mem, "%s/%s", dir, name);
  HP_TRY_MEM(inside);
  if (!*out && path_exists(inside)) *out = inside;
  return HP_OK;
}

static hp_status unknown_name(const tree_node *info, const char *name, const char *dir) {
  if (!info)
    HP_FAIL(HP_ERR_INPUT,
            "dataset \"%s\": there is no file \"%s\" or \"%s/%s\", and no %s/" INFO
            " that could name one",
            name, name, dir, name, dir);
  const char *known[256];
  size_t n = 0;
  for (uint32_t i = 0; i < info->len && n < 256; i++) known[n++] = info->child[i]->key;
  const char *near = str_nearest(name, known, n);
  HP_FAIL(HP_ERR_INPUT,
          "dataset \"%s\": %s/" INFO " has no such name%s%s%s, and there is no such "
          "file",
          name, dir, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

static hp_status find_source(const tree_node *info, const dataset_spec *spec, size_t i, arena *mem,
                             source *s) {
  const tree_node *e = tree_get(info, spec->name[i]);
  if (e) return read_entry(e, spec, mem, s);
  *s = (source){.columns = {.guess = true}, .num_samples = -1};
  HP_TRY(chat_format_read(NULL, &s->chats));
  HP_TRY(find_path(spec->name[i], spec->dir, mem, &s->path));
  return s->path ? HP_OK : unknown_name(info, spec->name[i], spec->dir);
}

/* --- one data set ----------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files of a folder, sorted by name; hidden ones are left out. */
static hp_status list_folder(const char *path, arena *mem, const char ***out, size_t *n) {
  VEC(const char *) list = {0};
  hp_status st = HP_OK;
  DIR *dir = opendir(path);
  if (!dir) HP_FAIL(HP_ERR_IO, "%s: cannot be listed: %s", path, strerror(errno));
  for (struct dirent *e; !st && !(st = dir_next(dir, path, &e)) && e;) {
    if (e->d_name[0] == '.') continue;
    const char *file = arena_printf(mem, "%s/%s", path, e->d_name);
    if (!file || !vec_push(&list, file)) st = HP_ERR_OOM;
  }
  closedir(dir);
  if (list.len) qsort(list.at, list.len, sizeof *list.at, by_name);
  const char **copy = st ? NULL : arena_alloc(mem, list.len ? list.len : 1, sizeof *copy);
  if (copy && list.len) memcpy(copy, list.at, list.len * sizeof *copy);
  *out = copy;
  *n = list.len;
  vec_free(&list);
  return st || copy ? st : HP_ERR_OOM;
}

static hp_status read_file(const source *s, dataset_kind kind, const char *path, int64_t max,
                           dataset *d) {
  return kind == DATASET_TEXTS ? dataset_read_file(path, &s->columns, max, d)
                               : dataset_read_chats(path, &s->chats, max, d);
}

static hp_status read_source(const source *s, dataset_kind kind, int64_t max, arena *mem,
                             dataset *d) {
  if (!dir_exists(s->path)) return read_file(s, kind, s->path, max, d);
  const char **file = NULL;
  size_t n = 0, before = d->sample.len;
  HP_TRY(list_folder(s->path, mem, &file, &n));
  if (!n)
    HP_FAIL(HP_ERR_INPUT, "%s: the folder is empty; expected .txt, .json, .jsonl or .csv files",
            s->path);
  for (size_t i = 0; i < n; i++) {
    int64_t left = max < 0 ? -1 : max - (int64_t)(d->sample.len - before);
    HP_TRY(read_file(s, kind, file[i], left, d));
  }
  return HP_OK;
}

/* num_samples: a random order of the samples from `before` on, cut to so many, filled up with
 * random ones if there are fewer. */
static hp_status resample_part(dataset *d, size_t before, int64_t want, mt19937 *global) {
  int64_t n = (int64_t)(d->sample.len - before), whole = want > n ? want : n;
  int64_t *order = mem_calloc((size_t)whole, sizeof *order);
  dataset_sample *sample = mem_calloc((size_t)want, sizeof *sample);
  bool ok = order && sample && vec_reserve(&d->sample, want);
  if (ok) {
    random_legacy_permutation(global, n, order);
    if (want > n) random_legacy_choice(global, n, want - n, order + n);
    for (int64_t i = 0; i < want; i++) sample[i] = d->sample.at[before + (size_t)order[i]];
    memcpy(d->sample.at + before, sample, (size_t)want * sizeof *sample);
    d->sample.len = before + (size_t)want;
  }
  mem_free(order);
  mem_free(sample);
  return ok ? HP_OK : HP_ERR_OOM;
}

/* Appends the samples of one data set. */
static hp_status load_one(const dataset_spec *spec, const source *s, mt19937 *global, arena *mem,
                          dataset *d) {
  size_t before = d->sample.len;
  int64_t max = s->num_samples < 0 ? spec->max_samples : -1;
  HP_TRY(read_source(s, spec->kind, max, mem, d));
  if (d->sample.len == before) HP_FAIL(HP_ERR_INPUT, "%s: there is no sample in it", s->path);
  if (s->num_samples >= 0) HP_TRY(resample_part(d, before, s->num_samples, global));
  if (spec->max_samples >= 0 && d->sample.len - before > (uint64_t)spec->max_samples)
    d->sample.len = before + (size_t)spec->max_samples;
  return HP_OK;
}

/* --- joining ---------------------------------------------------------------------------------- */

typedef VEC(dataset_sample) sample_list;
typedef struct {
  size_t first, n, next; /* of the samples of all; next: to be taken by shares */
  bool used_up;
  double sum; /* of the shares up to this one */
} part;

/* Draws a data set by its share: NumPy's Generator.choice with p. */
static part *draw_part(pcg64 *p, part *of, size_t n) {
  double u = pcg64_double(p);
  size_t i = 0;
  while (i + 1 < n && of[i].sum <= u) i++;
  return &of[i];
}

/* By shares, until one data set is used up (UNDER) or all are (OVER, the used ones begin anew). */
static hp_status mix_by_probs(const dataset_spec *spec, part *of, const dataset_sample *all,
                              sample_list *out) {
  pcg64 p;
  pcg64_seed(&p, spec->seed);
  for (size_t i = 0; i < spec->n; i++) {
    of[i].sum = (i ? of[i - 1].sum : 0) + spec->probs[i];
    if (spec->mix == DATASET_OVER && !(spec->probs[i] > 0))
      HP_FAIL(HP_ERR_INPUT,
              "interleave_over: dataset \"%s\" has the share 0 and would never be used up",
              spec->name[i]);
  }
  for (size_t i = 0; i < spec->n; i++) of[i].sum /= of[spec->n - 1].sum;
  for (size_t left = spec->n; spec->mix == DATASET_OVER ? left > 0 : left == spec->n;) {
    part *x = draw_part(&p, of, spec->n);
    if (!vec_push(out, all[x->first + x->next])) return HP_ERR_OOM;
    if (++x->next < x->n) continue;
    x->next = 0;
    left -= !x->used_up;
    x->used_up = true;
  }
  return HP_OK;
}

static hp_status mix_in_turn(const dataset_spec *spec, const part *of, const dataset_sample *all,
                             sample_list *out) {
  size_t rounds = of[0].n;
  for (size_t i = 1; i < spec->n; i++)
    if ((of[i].n > rounds) == (spec->mix == DATASET_OVER)) rounds = of[i].n;
  for (size_t k = 0; k < rounds; k++)
    for (size_t i = 0; i < spec->n; i++)
      if (!vec_push(out, all[of[i].first + k % of[i].n])) return HP_ERR_OOM;
  return HP_OK;
}

static hp_status mix_parts(const dataset_spec *spec, part *of, dataset *d) {
  sample_list out = {0};
  hp_status st = spec->probs ? mix_by_probs(spec, of, d->sample.at, &out)
                             : mix_in_turn(spec, of, d->sample.at, &out);
  if (st) {
    vec_free(&out);
    return st;
  }
  vec_free(&d->sample);
  d->sample.at = out.at;
  d->sample.len = out.len;
  d->sample.cap = out.cap;
  return HP_OK;
}

/* dataset_info.json, if it is there: without it, names are paths. */
static hp_status load_info(const dataset_spec *spec, arena *mem, tree *info) {
  *info = (tree){0};
  const char *path = arena_printf(mem, "%s/" INFO, spec->dir);
  HP_TRY_MEM(path);
  if (!path_exists(path)) return HP_OK;
  HP_TRY(json_load(path, 0, info));
  hp_status st = tree_expect(info->root, TREE_MAP);
  if (st) tree_free(info);
  return st;
}

static hp_status load_all(const dataset_spec *spec, const tree *info, mt19937 *global, arena *mem,
                          dataset *d) {
  part *of = arena_alloc(mem, spec->n, sizeof *of);
  HP_TRY_MEM(of);
  for (size_t i = 0; i < spec->n; i++) {
    source s;
    HP_TRY(find_source(info->root, spec, i, mem, &s));
    of[i].first = d->sample.len;
    HP_TRY(load_one(spec, &s, global, mem, d));
    of[i].n = d->sample.len - of[i].first;
    log_info("dataset %s: %zu samples from %s", spec->name[i], of[i].n, s.path);
  }
  return spec->n > 1 && spec->mix != DATASET_CONCAT ? mix_parts(spec, of, d) : HP_OK;
}

hp_status dataset_load(const dataset_spec *spec, mt19937 *global, dataset *out) {
  arena mem = {0};
  tree info = {0};
  dataset d = {0};
  hp_status st = load_info(spec, &mem, &info);
  if (!st) st = load_all(spec, &info, global, &mem, &d);
  if (st) dataset_free(&d);
  else *out = d;
  tree_free(&info);
  arena_free(&mem);
  return st;
}

static hp_status check_source(const tree_node *info, const dataset_spec *spec, size_t i,
                              arena *mem) {
  source s;
  HP_TRY(find_source(info, spec, i, mem, &s));
  if (path_exists(s.path)) return HP_OK;
  HP_FAIL(HP_ERR_INPUT,
          "dataset \"%s\": %s/" INFO " names the file \"%s\", which does not exist; write its "
          "\"file_name\" as it is in that folder, or the whole path",
          spec->name[i], spec->dir, s.path);
}

hp_status dataset_check(const dataset_spec *spec, size_t i) {
  arena mem = {0};
  tree info = {0};
  hp_status st = load_info(spec, &mem, &info);
  if (!st) st = check_source(info.root, spec, i, &mem);
  tree_free(&info);
  arena_free(&mem);
  return st;
}

hp_status dataset_split(dataset *d, int64_t count, double share, uint64_t seed, dataset *taken) {
  int64_t n = (int64_t)d->sample.len, k = count ? count : (int64_t)ceil(share * (double)n);
  if (k < 1 || k >= n)
    HP_FAIL(HP_ERR_INPUT,
            "val_size takes %lld of %lld samples and leaves none to train on; lower it",
            (long long)k, (long long)n);
  dataset rest = {.mem = d->mem}, eval = {0};
  int64_t *order = mem_calloc((size_t)n, sizeof *order);
  bool ok = order && vec_reserve(&rest.sample, n - k) && vec_reserve(&eval.sample, k);
  if (ok) {
    pcg64 p;
    pcg64_seed(&p, seed);
    pcg64_permutation(&p, n, order);
    for (int64_t i = 0; i < n; i++) {
      dataset *to = i < k ? &eval : &rest;
      to->sample.at[to->sample.len++] = d->sample.at[order[i]];
    }
    vec_free(&d->sample);
    *d = rest;
    *taken = eval;
  } else {
    vec_free(&rest.sample);
    vec_free(&eval.sample);
  }
  mem_free(order);
  return ok ? HP_OK : HP_ERR_OOM;
}
