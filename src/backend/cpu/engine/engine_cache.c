/* The tuning record on disk. */
#include "backend/cpu/engine/tuning_record.h"
#include "base/io.h"
#include "base/log.h"
#include "codegen/jit_cache.h"

#include <string.h>

enum { FILE_MOST = 1 << 20 };

/* Everything except the product that a measurement depends on; ends with an empty line. */
static void print_machine(int threads, str *out) {
  char cpu[96];
  int n;
  const gemm_engine *const *row = engine_rows(&n);
  cpu_model_name(cpu);
  str_printf(out, "cpu %s\nisa %s\nthreads %d\n", cpu, cpu_isa_name(cpu_best_isa()), threads);
  for (int i = 0; i < n; i++)
    if (row[i]->available()) str_printf(out, "%s %s\n", row[i]->name, row[i]->version());
  str_add(out, "\n");
}

/* The path of the file, and its first lines; "" if there is no folder for it. */
static hp_status find_file(int threads, str *path, str *machine) {
  print_machine(threads, machine);
  return jit_cache_file(machine, "engines", path);
}

static hp_status read_file(tuning_record *p, const char *path, const str *machine) {
  file_map m;
  HP_TRY(file_map_open(path, &m));
  bool ours =
      m.len >= machine->len && m.len <= FILE_MOST && !memcmp(m.at, machine->at, machine->len);
  hp_status st = HP_OK;
  if (ours)
    st = tuning_record_parse(p, (const char *)m.at + machine->len, m.len - machine->len, path);
  file_map_close(&m);
  return st;
}

void engine_cache_read(tuning_record *p, int threads) {
  str path = {0}, machine = {0};
  hp_status st = find_file(threads, &path, &machine);
  if (!st && path.len && file_exists(path.at)) st = read_file(p, path.at, &machine);
  if (st) {
    log_debug("engines that were measured before are not known: %s", err_message());
    err_clear();
  }
  str_free(&path);
  str_free(&machine);
}

void engine_cache_write(const tuning_record *p, int threads) {
  str path = {0}, text = {0};
  hp_status st = find_file(threads, &path, &text);
  tuning_record_print(p, &text);
  if (!st) st = str_status(&text);
  if (!st && path.len && text.len <= FILE_MOST) st = file_write(path.at, text.at, text.len);
  if (st) {
    log_debug("engines that were measured are not kept: %s", err_message());
    err_clear();
  }
  str_free(&path);
  str_free(&text);
}
