/* Places of a model: the names of modules, one inside the other, as "model.layers.0.mlp". */
#ifndef BASE_PLACE_H
#define BASE_PLACE_H

#include <stdbool.h>

/* Does the pattern name the module `place`, or one that it is inside of?  A pattern is the name of
 * a module or its last components ("self_attn"), with *, ? and [..] as fnmatch has them. */
bool place_matches(const char *pattern, const char *place);
/* Does one of them?  The list ends with NULL. */
bool place_matches_any(const char *const *pattern, const char *place);

#endif
