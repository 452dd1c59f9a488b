#include "model/lm_rows.h"

#include "base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static hp_status measure(const lm *m, const model_linear *l, const model_param *w, char *raw,
                         float *x, float *norm) {
  size_t n = model_param_elements(w);
  HP_TRY(hp_read(m->d, w->name, raw, n * dtype_size(w->dtype)));
  HP_TRY(dtype_convert(HP_F32, x, w->dtype, raw, n));
  for (int64_t o = 0; o < l->out; o++) {
    double sum = 0;
    for (int64_t i = 0; i < l->in; i++) {
      float e = x[l->transposed ? i * l->out + o : o * l->in + i];
      sum += (double)e * (double)e;
    }
    norm[o] = (float)sqrt(sum);
  }
  return HP_OK;
}

static hp_status measure_linear(const lm *m, const model_linear *l) {
  char weight[192], size[192];
  snprintf(weight, sizeof weight, "%s.weight", l->name);
  snprintf(size, sizeof size, "%s.lora_magnitude_vector", l->name);
  const model_param *w = model_param_find(m->params.at, m->params.len, weight);
  if (!w) return HP_OK;
  size_t n = model_param_elements(w);
  char *raw = mem_calloc(n, dtype_size(w->dtype));
  float *x = mem_calloc(n, sizeof *x), *norm = mem_calloc((size_t)l->out, sizeof *norm);
  hp_status st = raw && x && norm ? measure(m, l, w, raw, x, norm) : HP_ERR_OOM;
  if (!st) st = hp_write(m->d, size, norm, (size_t)l->out * sizeof *norm);
  mem_free(raw);
  mem_free(x);
  mem_free(norm);
  return st;
}

hp_status lm_measure_rows(const lm *m) {
  for (size_t i = 0; i < m->linears.len; i++)
    if (adapter_find(m->adapter, m->linears.at[i].name))
      HP_TRY(measure_linear(m, &m->linears.at[i]));
  return HP_OK;
}
