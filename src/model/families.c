/* The table of model families. */
#include "model/family.h"

#define FAMILY(name) extern const model_family family_##name;
#include "model/families.def"
#undef FAMILY

const model_family *const model_families[] = {
#define FAMILY(name) &family_##name,
#include "model/families.def"
#undef FAMILY
    NULL};
