#include "rt/cost_record.h"

#include "backend/cpu/cpu_features.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/sealed.h"
#include "codegen/jit_cache.h"

#include <string.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 18 };

/* Everything besides the program that affects times, as a comment. */
static void print_machine(int threads, str *out) {
  char cpu[96];
  cpu_model_name(cpu);
  for (char *c = cpu; *c; c++)
    if (*c < ' ') *c = ' ';
  str_printf(out, "# %s, %s, %d threads\n", cpu, cpu_isa_name(cpu_best_isa()), threads);
}

/* The path of the file, and its first lines; "" if there is no folder for it. */
static hp_status find_file(int threads, str *path, str *machine) {
  print_machine(threads, machine);
  return jit_cache_file(machine, "costs", path);
}

static hp_status parse(const char *path, const char *text, size_t n, const str *machine,
                       cluster *out) {
  size_t body;
  cluster read;
  HP_TRY(sealed_check(path, text, n, &body));
  if (body < machine->len || memcmp(text, machine->at, machine->len))
    HP_FAIL(HP_ERR_INPUT, "%s: is of another machine", path);
  HP_TRY(cluster_parse(text, body, path, &read));
  out->flops = read.flops;
  out->gb_s = read.gb_s;
  out->costs = read.costs;
  return HP_OK;
}

static hp_status read_file(const char *path, const str *machine, cluster *out) {
  char *text;
  size_t n;
  HP_TRY(file_read(path, FILE_MOST, &text, &n));
  hp_status st = parse(path, text, n, machine, out);
  mem_free(text);
  return st;
}

static void tell(hp_status st, const char *what) {
  if (!st) return;
  log_debug("costs of this machine are not %s: %s", what, err_message());
  err_clear();
}

void cost_record_read(int threads, cluster *c) {
  str path = {0}, machine = {0};
  hp_status st = find_file(threads, &path, &machine);
  if (!st && path.len && file_exists(path.at)) st = read_file(path.at, &machine, c);
  tell(st, "known");
  str_free(&path);
  str_free(&machine);
}

void cost_record_write(int threads, const cluster *c) {
  str path = {0}, text = {0};
  hp_status st = find_file(threads, &path, &text);
  cluster_print(c, &text);
  sealed_close(&text);
  if (!st) st = str_status(&text);
  if (!st && path.len && text.len <= FILE_MOST) st = file_write(path.at, text.at, text.len);
  tell(st, "kept");
  str_free(&path);
  str_free(&text);
}

void cost_record_remove(int threads) {
  str path = {0}, machine = {0};
  tell(find_file(threads, &path, &machine), "forgotten");
  if (path.len) (void)unlink(path.at);
  str_free(&path);
  str_free(&machine);
}
