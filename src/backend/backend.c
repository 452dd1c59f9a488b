#include "backend/backend.h"

#include <string.h>

/* backends.def is made by the Makefile: a row BACKEND(NAME) for each folder src/backend/NAME. */
#define BACKEND(name) extern const backend_iface backend_##name;
#include "backends.def"
#undef BACKEND

static const backend_iface *const table[] = {
#define BACKEND(name) &backend_##name,
#include "backends.def"
#undef BACKEND
};

const backend_iface *backend_find(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i]->name, name)) return table[i];
  return NULL;
}
