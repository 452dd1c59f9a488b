#include "cli/bench.h"

#include "base/dtype.h"

#include <stdio.h>

void bench_row_begin(bench_row *r, const bench_args *a, const char *what) {
  r->json = a->m.json;
  r->w = (json_writer){.out = &r->text};
  json_open_map(&r->w);
  json_put_key(&r->w, "bench"), json_put_string(&r->w, what);
}
void bench_row_num(bench_row *r, const char *key, double x) {
  json_put_key(&r->w, key);
  json_put_double(&r->w, x);
}
void bench_row_int(bench_row *r, const char *key, int64_t x) {
  json_put_key(&r->w, key);
  json_put_int(&r->w, x);
}
void bench_row_text(bench_row *r, const char *key, const char *x) {
  json_put_key(&r->w, key);
  json_put_string(&r->w, x);
}
/* People get "key value" pairs, one a line. */
hp_status bench_row_end(bench_row *r) {
  json_close(&r->w);
  hp_status st = str_status(&r->text);
  if (!st && r->json) puts(r->text.at);
  else if (!st) {
    bool inside = false; /* a string */
    for (char *p = r->text.at + 1; p[1]; p++) {
      if (*p == '"') inside = !inside;
      else if (!inside && p[0] == ',' && p[1] == ' ') putchar('\n'), p++;
      else putchar(*p);
    }
    puts("\n");
  }
  str_free(&r->text);
  fflush(stdout);
  return st;
}

hp_status bench_machine_open(const bench_args *a, bench_machine *out) {
  HP_TRY(cpu_isa_check());
  out->isa = cpu_best_isa();
  cpu_model_name(out->name);
  return pool_create((int)a->m.threads, true, &out->threads);
}

void bench_machine_close(bench_machine *k) { pool_free(k->threads); }

void bench_row_machine(bench_row *r, const bench_machine *k) {
  bench_row_text(r, "machine", k->name);
  bench_row_text(r, "isa", cpu_isa_name(k->isa));
  bench_row_int(r, "threads", pool_size(k->threads));
}

hp_status bench_dtypes(const bench_args *a, hp_dtype out[2], int *n) {
  out[0] = HP_F32, out[1] = HP_BF16;
  *n = a->m.dtype ? 1 : 2;
  if (!a->m.dtype || (dtype_parse(a->m.dtype, out) && (*out == HP_F32 || *out == HP_BF16)))
    return HP_OK;
  HP_FAIL(HP_ERR_ARG, "--dtype %s: expected f32 or bf16", a->m.dtype);
}
