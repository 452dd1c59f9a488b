#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void adapter_free(adapter *a) {
  if (!a) return;
  for (size_t i = 0; i < a->starts.len; i++) {
    mem_free(a->starts.at[i].A);
    mem_free(a->starts.at[i].B);
  }
  vec_free(&a->starts);
  vec_free(&a->modules);
  map_free(&a->module_of);
  vec_free(&a->whole);
  if (a->config.root) tree_free(&a->config);
  arena_free(&a->mem);
  mem_free(a);
}

const adapter_module *adapter_find(const adapter *a, const char *module) {
  uint32_t i;
  return map_get(&a->module_of, module, strlen(module), &i) ? &a->modules.at[i] : NULL;
}

double adapter_scale(const adapter *a, const adapter_module *m) {
  return m->alpha / (a->o.rslora ? sqrt((double)m->rank) : (double)m->rank);
}

bool adapter_drops(const adapter *a) { return a && a->o.dropout > 0; }

hp_status adapter_add_module(adapter *a, const char *module, int64_t rank, double alpha) {
  adapter_module m = {.rank = rank, .alpha = alpha};
  uint32_t i;
  size_t n = strlen(module);
  if (map_get(&a->module_of, module, n, &i)) return HP_OK;
  snprintf(m.name, sizeof m.name, "%s", module);
  HP_TRY(map_set(&a->module_of, module, n, (uint32_t)a->modules.len));
  return vec_push(&a->modules, m) ? HP_OK : HP_ERR_OOM;
}

hp_status adapter_add_whole(adapter *a, const char *param) {
  for (size_t i = 0; i < a->whole.len; i++)
    if (!strcmp(a->whole.at[i], param)) return HP_OK;
  const char *copy = arena_strdup(&a->mem, param);
  HP_TRY_MEM(copy);
  return vec_push(&a->whole, copy) ? HP_OK : HP_ERR_OOM;
}

/* --- names ------------------------------------------------------------------------------------ */

static bool ends_with(const char *name, size_t n, const char *end) {
  size_t k = strlen(end);
  return n >= k && !memcmp(name + n - k, end, k);
}

bool adapter_is_named(const char *module, const char *end) {
  size_t n = strlen(module), k = strlen(end);
  return ends_with(module, n, end) && (n == k || module[n - k - 1] == '.');
}

static bool is_head(const adapter_subject *s, const model_linear *l) {
  size_t n = strlen(l->name);
  return !strncmp(s->head, l->name, n) && !strcmp(s->head + n, ".weight");
}

/* The last components of the names of linear layers, each once. */
static void print_linears(const adapter_subject *s, str *out) {
  for (size_t i = 0; i < s->linears; i++) {
    const char *dot = strrchr(s->linear[i].name, '.'), *last = dot ? dot + 1 : s->linear[i].name;
    bool before = false;
    for (size_t k = 0; k < i && !before; k++) before = adapter_is_named(s->linear[k].name, last);
    if (!before) str_printf(out, "%s%s", out->len ? ", " : "", last);
  }
}

static hp_status refuse_target(const adapter_subject *s, const char *target) {
  str names = {0};
  bool experts = false;
  for (size_t i = 0; i < s->params && !experts; i++) {
    const char *star = strchr(s->param[i].name, '*');
    size_t n = strlen(s->param[i].name);
    experts = star && (strstr(star, target) || ends_with(s->param[i].name, n, target) ||
                       !strcmp(target, "experts") || !strcmp(target, "gate_up_proj"));
  }
  print_linears(s, &names);
  hp_status st =
      err_set(HP_ERR_ARG, __FILE__, __LINE__,
              "lora_target \"%s\" matches no linear layer of %s%s; it has: %s", target, s->path,
              experts ? " (experts are one stacked tensor, for which adapters are not built)" : "",
              names.at ? names.at : "none");
  str_free(&names);
  return st;
}

static hp_status add_linear(adapter *a, const adapter_subject *s, const model_linear *l) {
  int64_t least = l->in < l->out ? l->in : l->out;
  if (a->o.rank > least)
    HP_FAIL(HP_ERR_ARG,
            "lora_rank %lld is above the dims of \"%s\" in %s, [%lld,%lld]; write %lld or less, or "
            "another lora_target",
            (long long)a->o.rank, l->name, s->path, (long long)l->out, (long long)l->in,
            (long long)least);
  return adapter_add_module(a, l->name, a->o.rank, a->o.alpha);
}

/* Linear layers that a target names, in the order of the model. */
static hp_status find_modules(adapter *a, const adapter_subject *s) {
  const adapter_names *t = &a->o.target;
  bool all = t->n == 1 && !strcmp(t->at[0], "all");
  for (size_t k = 0; k < t->n && !all; k++) {
    bool any = false;
    for (size_t i = 0; i < s->linears && !any; i++)
      any = adapter_is_named(s->linear[i].name, t->at[k]);
    if (!any) return refuse_target(s, t->at[k]);
  }
  for (size_t i = 0; i < s->linears; i++) {
    const model_linear *l = &s->linear[i];
    bool named = all && !is_head(s, l);
    for (size_t k = 0; k < t->n && !all && !named; k++) named = adapter_is_named(l->name, t->at[k]);
    if (named) HP_TRY(add_linear(a, s, l));
  }
  return HP_OK;
}

bool adapter_is_of_module(const char *param, const char *end) {
  for (size_t n = strlen(param); n > 0; n--)
    if (param[n] == '.' && ends_with(param, n, end)) return true;
  return false;
}

static hp_status refuse_whole(const adapter_subject *s, const char *name) {
  str names = {0};
  for (size_t i = 0; i < s->params; i++) {
    const char *param = s->param[i].name;
    bool layer = strpbrk(param, "0123456789*") != NULL;
    const char *end = strrchr(param, '.');
    if (!layer && end && s->param[i].kind < PARAM_FIXED)
      str_printf(&names, "%s%.*s", names.len ? ", " : "", (int)(end - param), param);
  }
  hp_status st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                         "additional_target \"%s\" matches no module of %s; outside of its layers "
                         "it has: %s",
                         name, s->path, names.at ? names.at : "none");
  str_free(&names);
  return st;
}

/* Params of modules that are trained whole. */
static hp_status find_whole(adapter *a, const adapter_subject *s) {
  for (size_t k = 0; k < a->o.whole.n; k++) {
    bool any = false;
    for (size_t i = 0; i < s->params; i++) {
      const model_param *p = &s->param[i];
      const char *end = strrchr(p->name, '.');
      char module[sizeof p->name];
      if (p->kind >= PARAM_FIXED || !adapter_is_of_module(p->name, a->o.whole.at[k])) continue;
      any = true;
      snprintf(module, sizeof module, "%.*s", (int)(end - p->name), p->name);
      if (adapter_find(a, module))
        HP_FAIL(
            HP_ERR_ARG,
            "additional_target \"%s\" contains \"%s\", which lora_target names too; leave it out "
            "of one of them",
            a->o.whole.at[k], module);
      HP_TRY(adapter_add_whole(a, p->name));
    }
    if (!any) return refuse_whole(s, a->o.whole.at[k]);
  }
  return HP_OK;
}

/* --- creating --------------------------------------------------------------------------------- */

static hp_status copy_names(arena *mem, const adapter_names *from, adapter_names *to) {
  const char **at = arena_alloc(mem, from->n ? from->n : 1, sizeof *at);
  HP_TRY_MEM(at);
  for (size_t i = 0; i < from->n; i++) {
    at[i] = arena_strdup(mem, from->at[i]);
    HP_TRY_MEM(at[i]);
  }
  *to = (adapter_names){at, from->n};
  return HP_OK;
}

static hp_status fill(const adapter_options *o, const adapter_subject *s, adapter *a) {
  a->o = *o;
  HP_TRY(copy_names(&a->mem, &o->target, &a->o.target));
  HP_TRY(copy_names(&a->mem, &o->whole, &a->o.whole));
  HP_TRY(find_modules(a, s));
  return find_whole(a, s);
}

hp_status adapter_create(const adapter_options *o, const adapter_subject *s, adapter **out) {
  adapter *a = mem_calloc(1, sizeof *a);
  HP_TRY_MEM(a);
  hp_status st = fill(o, s, a);
  if (st) adapter_free(a);
  else *out = a;
  return st;
}
