#include "ckpt/run_line.h"

#include "base/io.h"
#include "base/json.h"
#include "base/random.h"
#include "base/sealed.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, BYTES_MAX = 16 << 20 };
static const char file_name[] = "run.line";
static const char before_lines[] = "00000000000000000000000000000000";

/* --- lines ------------------------------------------------------------------------------------ */

static hp_status draw_id(char id[RUN_LINE_DIGITS + 1]) {
  unsigned char bits[RUN_LINE_DIGITS / 2];
  HP_TRY(random_bytes(bits, sizeof bits));
  for (size_t i = 0; i < sizeof bits; i++) snprintf(id + 2 * i, 3, "%02x", bits[i]);
  return HP_OK;
}

hp_status run_line_create(run_line *out) {
  run_line l = {0};
  HP_TRY(draw_id(l.id));
  *out = l;
  return HP_OK;
}

/* Where a restart will look for the checkpoint, from any folder. */
static hp_status remember_from(const char *path, int64_t step, bool here, run_line *l) {
  str from = {0};
  char whole[PATH_MAX];
  if (!here && !realpath(path, whole)) HP_FAIL(HP_ERR_IO, "%s: %s", path, strerror(errno));
  if (here) str_printf(&from, "checkpoint-%lld", (long long)step);
  else str_add(&from, whole);
  l->from = str_take(&from);
  return l->from ? HP_OK : HP_ERR_OOM;
}

/* A line of zeros has no identity beyond its folder, so it is no parent elsewhere. */
static hp_status add_parents(const run_line *of, int64_t step, bool here, run_line *l) {
  run_line_parent nearest = {.step = step};
  if (!here && !strcmp(of->id, before_lines)) return HP_OK;
  memcpy(nearest.id, of->id, sizeof nearest.id);
  if (!vec_push(&l->parents, nearest)) return HP_ERR_OOM;
  for (size_t i = 0; i < of->parents.len; i++)
    if (!vec_push(&l->parents, of->parents.at[i])) return HP_ERR_OOM;
  return HP_OK;
}

hp_status run_line_branch(const run_line *of, int64_t step, const char *path, bool here,
                          run_line *out) {
  run_line l = {0};
  hp_status st = draw_id(l.id);
  if (!st) st = add_parents(of, step, here, &l);
  if (!st) st = remember_from(path, step, here, &l);
  if (st) run_line_free(&l);
  else *out = l;
  return st;
}

void run_line_free(run_line *l) {
  vec_free(&l->parents);
  mem_free(l->from);
  *l = (run_line){0};
}

bool run_line_has(const run_line *l, const char *id, int64_t step) {
  if (!strcmp(l->id, id)) return true;
  for (size_t i = 0; i < l->parents.len; i++)
    if (!strcmp(l->parents.at[i].id, id) && step <= l->parents.at[i].step) return true;
  return false;
}

/* --- text ------------------------------------------------------------------------------------- */

void run_line_print(const run_line *l, str *out) {
  str_printf(out, "\"line\": \"%s\", \"parents\": [", l->id);
  for (size_t i = 0; i < l->parents.len; i++)
    str_printf(out, "%s{\"line\": \"%s\", \"step\": %lld}", i ? ", " : "", l->parents.at[i].id,
               (long long)l->parents.at[i].step);
  str_add(out, "],\n");
}

static hp_status read_id(const tree_node *m, char id[RUN_LINE_DIGITS + 1]) {
  const char *text;
  HP_TRY(tree_need_string(m, "line", &text));
  if (strlen(text) != RUN_LINE_DIGITS ||
      strspn(text, "0123456789abcdef") != (size_t)RUN_LINE_DIGITS)
    TREE_FAIL(tree_get(m, "line"), "expected the %d hex digits of a line", RUN_LINE_DIGITS);
  memcpy(id, text, RUN_LINE_DIGITS + 1);
  return HP_OK;
}

static hp_status read_parents(const tree_node *m, run_line *l) {
  const tree_node *list;
  HP_TRY(tree_need_list(m, "parents", &list));
  for (uint32_t i = 0; i < list->len; i++) {
    run_line_parent p;
    HP_TRY(tree_expect(list->child[i], TREE_MAP));
    HP_TRY(read_id(list->child[i], p.id));
    HP_TRY(tree_need_int(list->child[i], "step", &p.step));
    if (!vec_push(&l->parents, p)) return HP_ERR_OOM;
  }
  return HP_OK;
}

hp_status run_line_parse(const tree_node *manifest, run_line *out) {
  run_line l = {0};
  hp_status st = HP_OK;
  if (tree_get(manifest, "line")) {
    st = read_id(manifest, l.id);
    if (!st) st = read_parents(manifest, &l);
  } else {
    memcpy(l.id, before_lines, sizeof l.id);
  }
  if (st) run_line_free(&l);
  else *out = l;
  return st;
}

/* --- the file --------------------------------------------------------------------------------- */

static hp_status copy_text(const char *from, char **out) {
  str s = {0};
  str_add(&s, from);
  *out = str_take(&s);
  return *out ? HP_OK : HP_ERR_OOM;
}

static hp_status read_line(const tree_node *root, run_line *l) {
  int64_t format;
  const char *from, *job;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(tree_need_int(root, "format", &format));
  if (format != FORMAT)
    TREE_FAIL(root, "format %lld; this version reads format %d", (long long)format, FORMAT);
  HP_TRY(read_id(root, l->id));
  HP_TRY(read_parents(root, l));
  HP_TRY(tree_opt_string(root, "job", "", &job));
  if (strlen(job) > RUN_LINE_JOB) TREE_FAIL(tree_get(root, "job"), "is too long");
  memcpy(l->job, job, strlen(job) + 1);
  HP_TRY(tree_opt_string(root, "from", NULL, &from));
  return from ? copy_text(from, &l->from) : HP_OK;
}

hp_status run_line_load(const char *out_dir, run_line *out, bool *found) {
  run_line l = {0};
  str path = {0};
  tree parsed = {0};
  char *text = NULL;
  size_t len, body = 0;
  *found = false;
  bool there = false;
  hp_status st = path_join(&path, out_dir, file_name);
  if (!st) st = path_look(path.at, &there);
  if (there) st = file_read(path.at, BYTES_MAX, &text, &len);
  if (there && !st) st = sealed_check(path.at, text, len, &body);
  if (there && !st) st = json_parse(text, body, path.at, &parsed);
  if (there && !st) st = read_line(parsed.root, &l);
  tree_free(&parsed);
  mem_free(text);
  str_free(&path);
  if (st) run_line_free(&l);
  else if (there) *out = l;
  *found = there && !st;
  return st;
}

hp_status run_line_save(const char *out_dir, const run_line *l) {
  str path = {0}, text = {0};
  json_writer from = {.out = &text}, job = from;
  str_printf(&text, "{\"format\": %d, ", FORMAT);
  run_line_print(l, &text);
  str_add(&text, "\"from\": ");
  if (l->from) json_put_string(&from, l->from);
  else json_put_null(&from);
  str_add(&text, ", \"job\": ");
  json_put_string(&job, l->job);
  str_add(&text, "}\n");
  sealed_close(&text);
  hp_status st = str_status(&text);
  if (!st) st = path_join(&path, out_dir, file_name);
  if (!st) st = file_write(path.at, text.at, text.len);
  str_free(&path);
  str_free(&text);
  return st;
}
