#include "model/lm_adapter.h"

#include "base/io.h"
#include "ckpt/weights.h"
#include "model/adapter_files.h"

#include <stdio.h>
#include <string.h>

/* An adapter that has the embedding or the head of its own unties them. */
static hp_status untie(lm *m, const char *dir) {
  const char *const name[] = {m->c.family->embedding_name, m->c.family->head_name};
  char full[192];
  str path = {0};
  weights *w = NULL;
  bool own = false;
  hp_status st = m->c.tied ? path_join(&path, dir, ADAPTER_WEIGHTS) : HP_OK;
  if (!st && m->c.tied && weights_open(path.at, &w)) err_clear(); /* told when it is read */
  for (int i = 0; w && i < 2; i++) {
    snprintf(full, sizeof full, ADAPTER_PREFIX "%.150s", name[i]);
    own |= weights_find(w, full) != NULL;
  }
  weights_free(w);
  str_free(&path);
  return !st && own ? lm_untie(m) : st;
}

hp_status lm_open_adapters(lm *m, const char *const *dir, size_t n, bool keep) {
  for (size_t i = 0; i < n; i++) {
    adapter_file *f;
    HP_TRY(untie(m, dir[i]));
    adapter_subject s = lm_subject(m);
    HP_TRY(adapter_file_open(dir[i], &s, &f));
    HP_TRY(keep && i + 1 == n ? lm_set_adapter_file(m, f) : lm_merge(m, f));
  }
  return HP_OK;
}

hp_status lm_open_adapter_list(lm *m, const char *list, bool keep) {
  arena mem = {0};
  VEC(const char *) dir = {0};
  hp_status st = HP_OK;
  for (const char *at = list, *end; !st && at; at = *end ? end + 1 : NULL) {
    end = at + strcspn(at, ",");
    const char *one = arena_strndup(&mem, at, (size_t)(end - at));
    if (!one || !vec_push(&dir, one)) st = HP_ERR_OOM;
    else if (!*one)
      st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                   "adapters \"%s\": an empty name; expected folders with commas between", list);
  }
  if (!st) st = lm_open_adapters(m, dir.at, dir.len, keep);
  vec_free(&dir);
  arena_free(&mem);
  return st;
}
