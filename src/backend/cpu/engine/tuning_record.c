#include "backend/cpu/engine/tuning_record.h"

#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

static const char between[] = " = ";

void tuning_record_free(tuning_record *p) {
  vec_free(&p->at);
  map_free(&p->of);
  arena_free(&p->text);
}

static void print_strides(const char *name, int64_t row, int64_t col, str *out) {
  str_printf(out, " %s %lld,%lld", name, (long long)row, (long long)col);
}

void engine_product_print(const gemm_query *q, str *out) {
  str_add(out, dtype_name(q->a_type));
  if (q->b_type != q->a_type) str_printf(out, "*%s", dtype_name(q->b_type));
  if (q->c_type != q->a_type) str_printf(out, "->%s", dtype_name(q->c_type));
  str_printf(out, " %lldx%lldx%lld", (long long)q->m, (long long)q->n, (long long)q->k);
  print_strides("a", q->a_m, q->a_k, out);
  print_strides("b", q->b_k, q->b_n, out);
  print_strides("c", q->c_m, q->c_n, out);
  if (q->b_pack) str_printf(out, " strips %lld", (long long)q->b_pack);
  for (int i = 0; i < q->n_batch; i++) {
    const gemm_batch *b = &q->batch[i];
    str_printf(out, " batch %lld:%lld,%lld,%lld", (long long)b->size, (long long)b->a,
               (long long)b->b, (long long)b->c);
  }
  if (q->accumulate) str_add(out, " add");
  if (q->bias) str_add(out, " bias");
  if (q->alpha != 1) {
    str_add(out, " alpha ");
    str_add_float(out, q->alpha);
  }
}

const gemm_engine *tuning_record_find(const tuning_record *p, const char *product) {
  uint32_t i;
  return map_get(&p->of, product, strlen(product), &i) ? p->at.at[i].engine : NULL;
}

static hp_status add_engine(tuning_record *p, const char *product, size_t n,
                            const gemm_engine *engine) {
  uint32_t i;
  if (map_get(&p->of, product, n, &i)) {
    p->at.at[i].engine = engine;
    return HP_OK;
  }
  engine_tuned one = {arena_strndup(&p->text, product, n), engine};
  HP_TRY_MEM(one.product);
  HP_TRY(map_set(&p->of, product, n, (uint32_t)p->at.len));
  return vec_push(&p->at, one) ? HP_OK : HP_ERR_OOM;
}

hp_status tuning_record_add(tuning_record *p, const char *product, const gemm_engine *engine) {
  return add_engine(p, product, strlen(product), engine);
}

void tuning_record_print(const tuning_record *p, str *out) {
  for (size_t i = 0; i < p->at.len; i++)
    str_printf(out, "%s%s%s\n", p->at.at[i].product, between, p->at.at[i].engine->name);
}

/* One line, without its end. */
static hp_status parse_line(const char *line, size_t n, const char *name, int number,
                            engine_tuned *out, size_t *product) {
  enum { NAME = 32 };
  char engine[NAME];
  size_t at = n < sizeof between ? 0 : n - sizeof between;
  while (at && memcmp(line + at, between, sizeof between - 1)) at--;
  size_t start = at + sizeof between - 1;
  if (!at || n - start >= NAME || memchr(line, 0, n))
    HP_FAIL(HP_ERR_INPUT, "%s, line %d: expected a product and its engine, \"PRODUCT = ENGINE\"",
            name, number);
  snprintf(engine, sizeof engine, "%.*s", (int)(n - start), line + start);
  *product = at;
  *out = (engine_tuned){.product = line};
  return engine_find(engine, &out->engine);
}

/* Adds them to p or, if it is NULL, only checks them. */
static hp_status parse_record(tuning_record *p, const char *text, size_t n, const char *name) {
  int number = 1;
  for (const char *line = text, *end; line < text + n; line = end + 1, number++) {
    engine_tuned one;
    size_t product = 0;
    end = memchr(line, '\n', (size_t)(text + n - line));
    if (!end) end = text + n;
    HP_TRY(parse_line(line, (size_t)(end - line), name, number, &one, &product));
    if (p) HP_TRY(add_engine(p, one.product, product, one.engine));
  }
  return HP_OK;
}

hp_status tuning_record_parse(tuning_record *p, const char *text, size_t n, const char *name) {
  HP_TRY(parse_record(NULL, text, n, name));
  return parse_record(p, text, n, name);
}
