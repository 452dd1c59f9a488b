/* YAML (and JSON) configuration files into a tree, and `key=value` overrides of it.
 *
 * Plain scalars mean what they mean to OmegaConf, which LlamaFactory reads its files with:
 * yes/no/on/off/true/false are booleans (not y/n); ~, null and nothing are null; None is a string;
 * 1e-5 is a float; 0x10, 0b1, 012 (octal), 1_000 and 1:30 (base 60) are integers; .inf and .nan are
 * floats; dates are strings.  Map keys are always strings.  Anchors, aliases and `<<` merge keys
 * work; aliases are copied, to at most YAML_COPY_MAX nodes.
 * Refused, with file:line:column: a repeated key (both places are named), other tags than the
 * standard scalar ones, several documents, more than TREE_DEPTH_MAX levels, integers beyond 64
 * bits, files above YAML_SIZE_MAX. */
#ifndef BASE_YAML_H
#define BASE_YAML_H

#include "base/tree.h"
#include "base/vec.h"

enum { YAML_SIZE_MAX = 8 << 20, YAML_COPY_MAX = 10000 };

/* Reads text whose root may be any value; an empty one is null.  tree_free(out).
 * `name` is for messages and is copied. */
hp_status yaml_parse(const char *bytes, size_t len, const char *name, tree *out);

/* Values whose key occurs earlier in the same map. */
typedef VEC(const tree_node *) yaml_repeats;

/* Reads a configuration: a name ending in ".json" as JSON, else as YAML.  The root is a map; an
 * empty file is an empty map.  Of a repeated key in YAML the first value counts, and the others
 * are added to `repeats` (vec_free). */
hp_status yaml_load_config(const char *path, tree *out, yaml_repeats *repeats);
/* Fails with the places of a repeated key, and the path of keys to it. */
hp_status yaml_repeat_error(const tree_node *repeat);

/* Applies the command-line argument "a.b=value" to a configuration (its root is a map), like
 * OmegaConf's from_cli and merge: the value is YAML; a map is merged into an existing map,
 * everything else replaces; missing levels are created; `a[b]=1` is `a.b=1`; a backslash before
 * . [ ] or = makes it part of the key.  Messages call the place "argument <number>". */
hp_status yaml_override(tree *t, const char *argument, int number);

/* --- parts -----------------------------------------------------------------------------

 * One value, in memory of the caller, from a source without lines; `source` is not copied.
 * repeats: as above; NULL: a repeated key is a failure. */
hp_status yaml_parse_value(arena *mem, const char *text, const char *source, yaml_repeats *repeats,
                           tree_node **out);

/* Meaning of a plain scalar: sets kind and value of n (boolean, integer, number).  False, with
 * *why set, if it has no representable meaning. */
bool yaml_resolve(const char *text, tree_node *n, const char **why);
/* Value of a scalar with an explicit !!float tag; false when it is no number. */
bool yaml_to_float(const char *text, double *out);

#endif
