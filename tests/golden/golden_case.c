#include "golden/golden_case.h"

#include "base/io.h"
#include "base/json.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

static lm_tokens read_ids(const tree_node *list) {
  CHECK_OK(tree_expect(list, TREE_LIST));
  lm_tokens t = {mem_calloc(list->len, sizeof *t.ids), list->len};
  CHECK(t.ids);
  for (uint32_t i = 0; i < list->len; i++) {
    int64_t id;
    CHECK_OK(tree_as_int(list->child[i], &id));
    t.ids[i] = (int32_t)id;
  }
  return t;
}

void golden_open(const char *path, golden_case *c) {
  char file[600];
  const tree_node *two, *noise, *greedy;
  *c = (golden_case){0};
  snprintf(c->path, sizeof c->path, "%s", path);
  snprintf(file, sizeof file, "%s/tokens.json", path);
  CHECK_OK(json_load(file, 0, &c->tokens));
  CHECK_OK(tree_need_list(c->tokens.root, "sequences", &two));
  CHECK_EQ(two->len, 2);
  for (int i = 0; i < 2; i++) c->sequence[i] = read_ids(two->child[i]);
  CHECK_OK(tree_need_list(c->tokens.root, "greedy", &greedy));
  c->greedy = read_ids(greedy);
  CHECK_OK(tree_need_map(c->tokens.root, "bfloat16_noise", &noise));
  CHECK_OK(tree_need_double(noise, "logits_rel", &c->bf16_logits));
  CHECK_OK(tree_need_double(noise, "grad_rel", &c->bf16_grad));
  snprintf(file, sizeof file, "%s/expect.safetensors", path);
  CHECK_OK(st_open(file, &c->expect));
}

int golden_close(golden_case *c) {
  for (int i = 0; i < 2; i++) mem_free(c->sequence[i].ids);
  mem_free(c->greedy.ids);
  tree_free(&c->tokens);
  st_close(&c->expect);
  return c->failures;
}

bool golden_is_zero(const golden_case *c, const char *param) {
  const tree_node *list;
  CHECK_OK(tree_need_list(c->tokens.root, "zero_gradient", &list));
  for (uint32_t i = 0; i < list->len; i++)
    if (!strcmp(list->child[i]->string, param)) return true;
  return false;
}

static float element(const st_tensor *t, size_t i) {
  float x;
  memcpy(&x, t->data + i * sizeof x, sizeof x);
  return x;
}

double golden_largest(const st_tensor *t) {
  double m = 0;
  for (size_t i = 0; i < t->bytes / sizeof(float); i++) m = fmax(m, fabs((double)element(t, i)));
  return m;
}

double golden_error(const float *got, const st_tensor *want, double largest) {
  double worst = 0;
  for (size_t i = 0; i < want->bytes / sizeof *got; i++) {
    double d = fabs((double)got[i] - (double)element(want, i));
    if (!(d <= worst)) worst = d; /* a NaN stays */
    if (isnan(worst)) return INFINITY;
  }
  if (largest == 0) largest = golden_largest(want);
  return worst == 0 ? 0 : worst / largest;
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

void golden_find(const char *root, const char *prefix, golden_list *out) {
  DIR *d = opendir(root);
  if (!d) test_fail(__FILE__, __LINE__, "cannot open the folder %s", root);
  out->n = 0;
  for (struct dirent *e; (e = readdir(d));) {
    char file[600];
    snprintf(file, sizeof file, "%s/%s/tokens.json", root, e->d_name);
    if (strncmp(e->d_name, prefix, strlen(prefix)) || !file_exists(file)) continue;
    CHECK(out->n < GOLDEN_MAX);
    snprintf(out->path[out->n++], sizeof out->path[0], "%s/%s", root, e->d_name);
  }
  closedir(d);
  qsort(out->path, (size_t)out->n, sizeof out->path[0], by_name);
}
