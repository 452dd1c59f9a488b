#include "cli/bench.h"

#include "base/dtype.h"
#include "base/io.h"

#include <stdio.h>

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

hp_status bench_write_cluster(const bench_args *a, const cluster *c) {
  str text = {0};
  cluster_print(c, &text);
  hp_status st = str_status(&text);
  if (!st && a->write) st = file_write(a->write, text.at, text.len);
  if (!st && a->write && !a->m.json) printf("\nwritten: %s\n", a->write);
  if (!st && !a->write && !a->m.json) printf("\n%s", text.at);
  str_free(&text);
  return st;
}
