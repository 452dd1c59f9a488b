#include "base/file_record.h"

#include "base/str.h"
#include "base/vec.h"

#include <pthread.h>
#include <string.h>

struct file_record {
  file_record *next;
  char *dir;
  VEC(file_sum) sums;
};

/* Those that have begun, and what guards them and their lists. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static file_record *begun;

/* --- one list --------------------------------------------------------------------------------- */

/* NULL: the path is not of a file in the folder. */
static const char *name_in(const file_record *r, const char *path) {
  size_t n = strlen(r->dir);
  if (strncmp(path, r->dir, n) || path[n] != '/') return NULL;
  const char *name = path + n + 1;
  return *name && *name != '.' && !strchr(name, '/') ? name : NULL;
}

static file_sum *find(const file_record *r, const char *name) {
  for (size_t i = 0; i < r->sums.len; i++)
    if (!strcmp(r->sums.at[i].name, name)) return &r->sums.at[i];
  return NULL;
}

static hp_status copy_text(const char *text, char **out) {
  str s = {0};
  str_add(&s, text);
  *out = str_take(&s);
  return *out ? HP_OK : HP_ERR_OOM;
}

static hp_status put(file_record *r, const char *name, uint64_t bytes, hash128 hash) {
  file_sum *there = find(r, name), s = {.bytes = bytes, .hash = hash};
  if (there) {
    there->bytes = bytes;
    there->hash = hash;
    return HP_OK;
  }
  HP_TRY(copy_text(name, &s.name));
  if (vec_push(&r->sums, s)) return HP_OK;
  mem_free(s.name);
  return HP_ERR_OOM;
}

static void drop(file_record *r, const char *name) {
  file_sum *s = find(r, name);
  if (!s) return;
  mem_free(s->name);
  *s = r->sums.at[--r->sums.len];
}

/* --- beginning and end ------------------------------------------------------------------------ */

hp_status file_record_begin(const char *dir, file_record **out) {
  file_record *r = mem_calloc(1, sizeof *r);
  HP_TRY_MEM(r);
  hp_status st = copy_text(dir, &r->dir);
  if (st) {
    mem_free(r);
    return st;
  }
  pthread_mutex_lock(&lock);
  r->next = begun;
  begun = r;
  pthread_mutex_unlock(&lock);
  *out = r;
  return HP_OK;
}

void file_record_end(file_record *r) {
  if (!r) return;
  pthread_mutex_lock(&lock);
  file_record **at = &begun;
  while (*at != r) at = &(*at)->next;
  *at = r->next;
  pthread_mutex_unlock(&lock);
  for (size_t i = 0; i < r->sums.len; i++) mem_free(r->sums.at[i].name);
  vec_free(&r->sums);
  mem_free(r->dir);
  mem_free(r);
}

const file_sum *file_record_list(const file_record *r, size_t *n) {
  *n = r->sums.len;
  return r->sums.at;
}

const file_sum *file_record_find(const file_record *r, const char *name) { return find(r, name); }
size_t file_record_count(const file_record *r) { return r->sums.len; }

hp_status file_record_note(const char *path, uint64_t bytes, hash128 hash) {
  hp_status st = HP_OK;
  pthread_mutex_lock(&lock);
  for (file_record *r = begun; r && !st; r = r->next) {
    const char *name = name_in(r, path);
    if (name) st = put(r, name, bytes, hash);
  }
  pthread_mutex_unlock(&lock);
  return st;
}

hp_status file_record_rename(const char *from, const char *to) {
  hp_status st = HP_OK;
  pthread_mutex_lock(&lock);
  for (file_record *r = begun; r && !st; r = r->next) {
    const char *old = name_in(r, from), *name = name_in(r, to);
    const file_sum *s = old ? find(r, old) : NULL;
    if (s && name) st = put(r, name, s->bytes, s->hash);
    if (s && !st) drop(r, old);
  }
  pthread_mutex_unlock(&lock);
  return st;
}

hp_status file_record_merge_sum(file_record *r, const file_sum *s, const char *path) {
  hp_status st = HP_OK;
  pthread_mutex_lock(&lock);
  const file_sum *there = find(r, s->name);
  if (!there) st = put(r, s->name, s->bytes, s->hash);
  else if (there->bytes != s->bytes || there->hash.lo != s->hash.lo || there->hash.hi != s->hash.hi)
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: another process has written another %s", path,
                 s->name);
  pthread_mutex_unlock(&lock);
  return st;
}
