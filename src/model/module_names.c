#include "model/module_names.h"

#include "base/place.h"

hp_status module_names_add(module_names *m, const char *name, size_t n) {
  size_t before = m->known.len;
  if (!n) return HP_OK;
  uint32_t id = intern(&m->known, name, n);
  if (!id) return HP_ERR_OOM;
  if (m->known.len == before) return HP_OK;
  return vec_push(&m->at, (const char *)intern_get(&m->known, id, NULL)) ? HP_OK : HP_ERR_OOM;
}

bool module_names_match(const module_names *m, const char *pattern) {
  for (size_t i = 0; i < m->at.len; i++)
    if (place_matches(pattern, m->at.at[i])) return true;
  return false;
}

void module_names_free(module_names *m) {
  intern_free(&m->known);
  vec_free(&m->at);
}
