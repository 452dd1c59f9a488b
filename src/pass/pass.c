#include "pass/pass.h"

const pass_row pass_table[] = {
#define PASS(name, doc) {#name, pass_##name, doc},
#include "pass/pass.def"
#undef PASS
    {NULL, NULL, NULL}};
