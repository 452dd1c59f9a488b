#include "compile/load.h"

#include "base/log.h"
#include "compile/lower.h"
#include "compile/program_check.h"

#include <stdio.h>

static uint64_t workspace_of(const program *p, const prog_inst *n) {
  return n->workspace == PROG_NONE ? 0 : p->buffers.at[n->workspace].bytes;
}

/* Another instruction set, or more threads, may need more workspace than the text has. */
static hp_status fit_workspaces(program *p, const char *name, const uint64_t *workspace) {
  const prog_inst *first = NULL;
  int more = 0;
  for (size_t i = 0; i < p->insts.len; i++) {
    const prog_inst *n = program_inst(p, i);
    if (workspace[n->kernel] <= workspace_of(p, n)) continue;
    if (!more++) first = n;
  }
  if (!more) return HP_OK;
  char line[320];
  uint64_t before = p->arena[TIER_DEVICE];
  snprintf(line, sizeof line,
           "%.100s: %d instructions need more workspace here than the program has, the first is %s "
           "\"%.60s\" with %llu bytes: offsets are planned again",
           name, more, op_table[first->op].name, program_str(p, first->loc),
           (unsigned long long)workspace[first->kernel]);
  HP_TRY(plan_memory(p, workspace, &(memory_options){0}));
  str_printf(&p->notes, "%s; work memory %llu bytes, was %llu\n", line,
             (unsigned long long)p->arena[TIER_DEVICE], (unsigned long long)before);
  log_info("%s", line);
  return str_status(&p->notes);
}

/* Named tensors and work memory under the limit of each tier. */
static hp_status check_limits(const program *p, const char *name, const target *t) {
  for (int tier = 0; tier < TIER_COUNT; tier++) {
    uint64_t state = tier == TIER_DEVICE ? t->resident_bytes(t->context, p, tier) : 0;
    uint64_t limit = t->limit[tier];
    if (!limit || (state <= limit && p->arena[tier] <= limit - state)) continue;
    HP_FAIL(
        HP_ERR_OOM,
        "%s: memory limit %llu bytes is too small: named tensors take %llu, work memory of tier "
        "%s %llu; compile the program under that limit",
        name, (unsigned long long)limit, (unsigned long long)state, tier_name(tier),
        (unsigned long long)p->arena[tier]);
  }
  return HP_OK;
}

static hp_status load(compiled *c, const char *name, const target *t, uint64_t *workspace) {
  hp_status st = t->prepare(t->context, c->p, workspace, &c->kernels);
  if (st && st != HP_ERR_OOM) {
    char why[512];
    snprintf(why, sizeof why, "%s", err_message());
    err_clear();
    HP_FAIL(st, "%s: %s", name, why);
  }
  HP_TRY(st);
  HP_TRY(fit_workspaces(c->p, name, workspace));
  return check_limits(c->p, name, t);
}

hp_status compile_load(const char *text, size_t n, const char *name, const target *t,
                       compiled *out) {
  program_lines lines = {0};
  compiled c = {0};
  uint64_t *workspace = NULL;
  hp_status st = program_parse_lines(text, n, name, &c.p, &lines);
  if (!st) st = program_check(c.p, name, &lines);
  program_lines_free(&lines);
  if (!st && !(workspace = mem_calloc(c.p->insts.len, sizeof *workspace))) st = HP_ERR_OOM;
  if (!st) st = load(&c, name, t, workspace);
  mem_free(workspace);
  if (st) compile_free(t, &c);
  else *out = c;
  return st;
}
