/* `hyper doctor`: what this machine has, what is missing, and what that costs. */
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/engine/engine_table.h"
#include "base/io.h"
#include "cli/cli.h"
#include "codegen/loop.h"
#include "rt/flash_store.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static void print_line(const char *what, bool good, const char *text) {
  printf("%-4s %-12s %s\n", good ? "ok" : "--", what, text);
}

static void check_cpu(void) {
  char text[256];
  snprintf(text, sizeof text, "%d cores, instruction set %s", cpu_count(),
           cpu_isa_name(cpu_best_isa()));
  print_line("cpu", cpu_best_isa() != ISA_PLAIN, text);
  if (cpu_isa_check()) print_line("HYPER_ISA", false, err_message());
  if (cpu_best_isa() == ISA_PLAIN) puts("     no AVX2: kernels are plain C, many times slower");
}

static void check_memory(void) {
  struct sysinfo s;
  char text[128], *thp = NULL;
  size_t n;
  if (!sysinfo(&s)) {
    snprintf(text, sizeof text, "%.1f GiB, %.1f free",
             (double)s.totalram * s.mem_unit / 1073741824.0,
             (double)s.freeram * s.mem_unit / 1073741824.0);
    print_line("memory", true, text);
  }
  bool never = !file_read("/sys/kernel/mm/transparent_hugepage/enabled", 4096, &thp, &n) &&
               strstr(thp, "[never]");
  err_clear();
  print_line("huge pages", !never,
             never ? "off: memory-bound work is 10-80 % slower; set transparent_hugepage to madvise"
                   : "available");
  mem_free(thp);
}

static void check_compiler(void) {
  loop_module *m = NULL;
  loop_kernel *k;
  loop l = {0};
  hp_shape space = {1, {16}};
  loop_begin(&l, LOOP_MAP, &space);
  int x = loop_in(&l, 0, HP_F32, (int64_t[]){1}, 0);
  loop_out(&l, 0, HP_F32, (int64_t[]){1}, 0, loop_op(&l, "neg", x, -1, -1));
  hp_status st = loop_status(&l);
  if (!st) st = loop_module_create(NULL, &m);
  if (!st) st = loop_module_add(m, &l, &k);
  if (!st) st = loop_module_build(m);
  bool compiled = !st && loop_module_report(m).interpreted == 0;
  err_clear();
  print_line("compiler", compiled,
             compiled
                 ? "loop kernels are compiled and cached"
                 : "none that works (gcc or clang): loop kernels are interpreted, same bits, slow");
  loop_module_free(m);
  loop_free(&l);
}

static void check_engines(void) {
  int n;
  const gemm_engine *const *row = engine_rows(&n);
  for (int i = 0; i < n; i++) {
    char text[256];
    bool there = row[i]->available();
    if (there) snprintf(text, sizeof text, "%s (%s)", row[i]->about, row[i]->version());
    else snprintf(text, sizeof text, "%s (not on this machine; not needed)", row[i]->about);
    print_line(row[i]->name, there, text);
  }
}

static void check_flash(void) {
  char why[128], text[256];
  bool there = flash_has_uring(why);
  snprintf(text, sizeof text, "%s: threads read and write tier flash in its place, same bits", why);
  print_line("io_uring", there, there ? "available for tier flash" : text);
}

int verb_doctor(int argc, char **argv) {
  const char *rest[256];
  int n;
  const cli_spec spec = {"hyper doctor",
                         "Says what this machine has, what is missing and what that costs.",
                         "hyper doctor", NULL, 0};
  if (argc > 256) return cli_usage(argv[0], "too many arguments");
  int code = cli_parse(&spec, argc, argv, rest, &n);
  if (code != CLI_GO_ON) return code;
  if (n) return cli_usage(argv[0], "\"%s\" is not expected", rest[0]);
  printf("hyper %s\n", hp_version());
  check_cpu();
  check_memory();
  check_compiler();
  check_engines();
  check_flash();
  return 0;
}
