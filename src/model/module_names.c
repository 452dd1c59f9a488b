#include "model/module_names.h"

hp_status module_names_add(module_names *m, const char *name, size_t n) {
  size_t before = m->known.len;
  if (!n) return HP_OK;
  uint32_t id = intern(&m->known, name, n);
  if (!id) return HP_ERR_OOM;
  if (m->known.len == before) return HP_OK;
  return vec_push(&m->at, (const char *)intern_get(&m->known, id, NULL)) ? HP_OK : HP_ERR_OOM;
}

void module_names_free(module_names *m) {
  intern_free(&m->known);
  vec_free(&m->at);
}
