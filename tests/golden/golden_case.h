/* A reference case on disk: what golden/README.md calls a model case.  Anything wrong with the
 * files fails the test that reads them. */
#ifndef GOLDEN_CASE_H
#define GOLDEN_CASE_H

#include "base/safetensors.h"
#include "base/tree.h"
#include "model/lm_eval.h"

typedef struct {
  char path[512];
  tree tokens;
  st_file expect;
  lm_tokens sequence[2], greedy;
  double bf16_logits, bf16_grad; /* relative errors of Transformers in bf16 */
  int failures;
} golden_case;

void golden_open(const char *path, golden_case *c);
/* Returns the failures counted. */
int golden_close(golden_case *c);
/* Is this parameter's gradient zero in exact arithmetic? */
bool golden_is_zero(const golden_case *c, const char *param);

/* max |got - want| / largest; largest 0 means max |want|. */
double golden_error(const float *got, const st_tensor *want, double largest);
double golden_largest(const st_tensor *t);

enum { GOLDEN_MAX = 128 };
typedef struct {
  char path[GOLDEN_MAX][512];
  int n;
} golden_list;
/* Folders below root that hold a tokens.json and whose name begins with prefix, sorted. */
void golden_find(const char *root, const char *prefix, golden_list *out);

#endif
