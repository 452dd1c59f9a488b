/* Names of a model's modules, each once, in the order in which they are added. */
#ifndef MODEL_MODULE_NAMES_H
#define MODEL_MODULE_NAMES_H

#include "base/hash.h"
#include "base/vec.h"

/* Zeroed: empty.  The names in `at` are copies that end with module_names_free. */
typedef struct {
  interner known;
  VEC(const char *) at;
} module_names;

/* The first n characters of name, if there is no such name yet; n may be 0: nothing. */
hp_status module_names_add(module_names *m, const char *name, size_t n);
/* Does the pattern name one of them, as in base/place.h? */
bool module_names_match(const module_names *m, const char *pattern);
void module_names_free(module_names *m);

#endif
