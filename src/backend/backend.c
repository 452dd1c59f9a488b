#include "backend/backend.h"

#include <string.h>

static const backend_iface *const table[] = {
#define BACKEND(name) &backend_##name,
#include "backend/backend.def"
#undef BACKEND
};

const backend_iface *backend_find(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i]->name, name)) return table[i];
  return NULL;
}
