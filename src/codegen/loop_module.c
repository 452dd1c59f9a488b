/* Kernels of a program: structures with equal C text are shared and compiled together in as many
 * translation units as there are cores, or found in the cache; then they run, part by part. */
#include "base/dtype.h"
#include "base/io.h"
#include "base/log.h"
#include "codegen/jit_cache.h"
#include "codegen/jit_cc.h"
#include "codegen/loop_c.h"
#include "codegen/loop_interp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Change it with the meaning of compiled kernels: parameters, order of a reduction, ... */
#define GENERATOR "loop 6"

enum { FLAGS_MAX = 32, SAID_MAX = 400, RUN_ALONE = 1 << 15, LOCK_MS = 2000 };

/* Kernels of one structure share a function. */
typedef struct {
  char *text; /* C after the function's name; mem_free */
  size_t length;
  hash128 key;
  loop_c_fn fn;
  bool asked; /* a build has tried to get fn */
} structure;

/* What the loop touches of an operand. */
typedef struct {
  int64_t low, high;
  hp_dtype type;
  bool used;
} extent;

struct loop_kernel {
  loop_plan plan;
  loop_params params;
  uint32_t structure;
  loop_c_fn fn; /* NULL: interpreted */
  bool built;
  int inputs, outputs;
  extent *extent; /* of the inputs, then of the outputs */
  int64_t large;  /* bit k: output k does not fit in the caches */
};

struct loop_module {
  _Atomic int owners;
  loop_isa isa;
  bool interpret;
  int jobs, lock_ms;
  char *cc, *cache_dir; /* as in the options; NULL = default */
  map by_text;          /* of C: structures */
  map by_loop;          /* text of a loop: kernels */
  VEC(structure) structure;
  VEC(loop_kernel *) kernel;
  loop_module_stats stats;
};

/* --- creating and adding ---------------------------------------------------------------------- */

static loop_isa find_best_isa(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma"))
    return __builtin_cpu_supports("avx512bf16") ? LOOP_ISA_AVX512_BF16 : LOOP_ISA_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return LOOP_ISA_AVX2;
#endif
  return LOOP_ISA_PLAIN;
}

/* -w: the printed code is plain.  No fast-math: IEEE operations one by one, so that every
 * instruction set gives the same bits. */
static void choose_flags(loop_isa isa, bool clang, const char *flag[FLAGS_MAX]) {
  static const char *const all[] = {"-x",
                                    "c",
                                    "-std=gnu11",
                                    "-O2",
                                    "-w",
                                    "-shared",
                                    "-fPIC",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fno-strict-aliasing",
                                    "-fwrapv"};
  static const char *const avx512[] = {"-mavx512f",  "-mavx512bw", "-mavx512dq",
                                       "-mavx512vl", "-mfma",      "-mprefer-vector-width=512"};
  int n = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) flag[n++] = all[i];
  for (size_t i = 0; isa >= LOOP_ISA_AVX512 && i < sizeof avx512 / sizeof *avx512; i++)
    flag[n++] = avx512[i];
  if (isa == LOOP_ISA_AVX512_BF16) flag[n++] = "-mavx512bf16";
  if (isa == LOOP_ISA_AVX2) flag[n++] = "-mavx2", flag[n++] = "-mfma";
  if (!clang) { /* clang's -O2 vectorises; gcc's -O3 would only compile twice as long */
    flag[n++] = "-ftree-vectorize";
    flag[n++] = "-fvect-cost-model=dynamic";
    flag[n++] = "--param=vect-epilogues-nomask=0"; /* remainders are short: half the code */
    flag[n++] =
        "-fschedule-insns"; /* else the vectors of a group are computed one after the other */
    flag[n++] = "-fsched-pressure";
  }
  flag[n] = NULL;
}

static hp_status copy_text(const char *from, char **to) {
  str s = {0};
  if (!from) return HP_OK;
  str_add(&s, from);
  *to = str_take(&s);
  return *to ? HP_OK : HP_ERR_OOM;
}

hp_status loop_module_create(const loop_options *o, loop_module **out) {
  const loop_options none = {0};
  if (!o) o = &none;
  loop_isa best = find_best_isa();
  static const char *const needs[] = {[LOOP_ISA_AVX2] = "AVX2",
                                      [LOOP_ISA_AVX512] = "AVX-512 (f, bw, dq, vl)",
                                      [LOOP_ISA_AVX512_BF16] = "AVX-512 with bf16"};
  if (o->isa > best)
    HP_FAIL(HP_ERR_UNSUPPORTED, "this machine's CPU has no %s; use another isa", needs[o->isa]);
  loop_module *m = mem_calloc(1, sizeof *m);
  HP_TRY_MEM(m);
  m->owners = 1;
  m->isa = o->isa ? o->isa : best;
  m->interpret = o->interpret;
  m->jobs = o->jobs > 0 ? o->jobs : cpu_count();
  m->lock_ms = o->lock_ms > 0 ? o->lock_ms : LOCK_MS;
  if (copy_text(o->cc, &m->cc) || copy_text(o->cache_dir, &m->cache_dir)) {
    loop_module_free(m);
    return HP_ERR_OOM;
  }
  *out = m;
  return HP_OK;
}

static void kernel_free(loop_kernel *k) {
  if (!k) return;
  plan_free(&k->plan);
  vec_free(&k->params);
  mem_free(k->extent);
  mem_free(k);
}

loop_module *loop_module_share(loop_module *m) {
  m->owners++;
  return m;
}

void loop_module_free(loop_module *m) {
  if (!m || --m->owners) return;
  for (size_t i = 0; i < m->structure.len; i++) mem_free(m->structure.at[i].text);
  for (size_t i = 0; i < m->kernel.len; i++) kernel_free(m->kernel.at[i]);
  vec_free(&m->structure);
  vec_free(&m->kernel);
  map_free(&m->by_text);
  map_free(&m->by_loop);
  mem_free(m->cc);
  mem_free(m->cache_dir);
  mem_free(m);
}

/* The structure whose function has this text; a new one takes ownership of the text. */
static hp_status find_structure(loop_module *m, str *text, uint32_t *out) {
  if (map_get(&m->by_text, text->at, text->len, out)) return HP_OK;
  *out = (uint32_t)m->structure.len;
  HP_TRY(map_set(&m->by_text, text->at, text->len, *out));
  structure s = {.length = text->len};
  s.text = str_take(text);
  HP_TRY_MEM(s.text);
  if (vec_push(&m->structure, s)) return HP_OK;
  mem_free(s.text);
  return HP_ERR_OOM;
}

static hp_status find_extents(loop_kernel *k, const loop *l) {
  k->inputs = loop_inputs(l);
  k->outputs = loop_outputs(l);
  k->extent = mem_calloc((size_t)(k->inputs + k->outputs), sizeof *k->extent);
  HP_TRY_MEM(k->extent);
  for (int i = 0; i < k->inputs + k->outputs; i++) {
    extent *x = &k->extent[i];
    bool output = i >= k->inputs;
    int operand = output ? i - k->inputs : i;
    x->used = loop_extent(l, output, operand, &x->type, &x->low, &x->high);
    if (x->used && output && x->high - x->low >= MEM_STREAM_BYTES / (int64_t)dtype_size(x->type))
      k->large |= (int64_t)1 << operand;
  }
  return HP_OK;
}

int loop_kernel_inputs(const loop_kernel *k) { return k->inputs; }
int loop_kernel_outputs(const loop_kernel *k) { return k->outputs; }
bool loop_kernel_extent(const loop_kernel *k, bool output, int operand, hp_dtype *type,
                        int64_t *low, int64_t *high) {
  const extent *x = &k->extent[output ? k->inputs + operand : operand];
  if (operand < 0 || operand >= (output ? k->outputs : k->inputs) || !x->used) return false;
  *type = x->type;
  *low = x->low;
  *high = x->high;
  return true;
}

hp_status loop_module_add(loop_module *m, const loop *l, loop_kernel **out) {
  HP_TRY(loop_status(l));
  str text = {0};
  hp_status st = HP_OK;
  loop_kernel *k = mem_calloc(1, sizeof *k);
  HP_TRY_MEM(k);
  HP_TRY_GOTO(find_extents(k, l), st);
  HP_TRY_GOTO(plan_create(l, &k->plan), st);
  HP_TRY_GOTO(loop_c_params(&k->plan, &k->params), st);
  loop_c_print(&k->plan, &text);
  m->stats.printed++;
  HP_TRY_GOTO(str_status(&text), st);
  HP_TRY_GOTO(find_structure(m, &text, &k->structure), st);
  if (!vec_push(&m->kernel, k)) HP_FAIL_GOTO(st, HP_ERR_OOM, "cannot add a kernel");
  *out = k;
done:
  str_free(&text);
  if (st) kernel_free(k);
  return st;
}

/* To print a loop takes as long as a small run of it, and the layers of a model have the same
 * loops, as have the programs of a step of another shape. */
hp_status loop_module_add_text(loop_module *m, const char *text, size_t n, const char *where,
                               loop_kernel **out) {
  loop body = {0};
  uint32_t at;
  if (map_get(&m->by_loop, text, n, &at)) {
    *out = m->kernel.at[at];
    return HP_OK;
  }
  hp_status st = loop_parse(text, n, where, &body);
  if (!st) st = loop_module_add(m, &body, out);
  if (!st) st = map_set(&m->by_loop, text, n, (uint32_t)m->kernel.len - 1);
  loop_free(&body);
  return st;
}

/* --- building --------------------------------------------------------------------------------- */

/* The state of a build. */
typedef struct {
  loop_module *m;
  jit_cc cc;
  jit_cache cache;
  const char *flag[FLAGS_MAX];
  str preamble;
  VEC(uint32_t) missing; /* structures to compile */
} build;

/* Key of every structure: a hash of everything that affects its compiled code. */
static hp_status set_keys(build *b) {
  struct utsname machine;
  str common = {0}, one = {0};
  hp_status st = HP_OK;
  if (uname(&machine)) machine.machine[0] = 0;
  str_printf(&common, GENERATOR "\n%s\n", machine.machine);
  for (size_t i = 0; i < b->cc.word.len; i++) str_printf(&common, "%s\n", b->cc.word.at[i]);
  str_printf(&common, "%s\n", b->cc.version);
  for (int i = 0; b->flag[i]; i++) str_printf(&common, "%s\n", b->flag[i]);
  str_add(&common, b->preamble.at);
  HP_TRY_GOTO(str_status(&common), st);
  hash128 h = hash_bytes128(common.at, common.len);
  for (size_t i = 0; i < b->m->structure.len; i++) {
    structure *s = &b->m->structure.at[i];
    if (s->asked) continue;
    str_clear(&one);
    str_add_n(&one, (const char *)&h, sizeof h);
    str_add_n(&one, s->text, s->length);
    HP_TRY_GOTO(str_status(&one), st);
    s->key = hash_bytes128(one.at, one.len);
  }
done:
  str_free(&common);
  str_free(&one);
  return st;
}

/* Loads what is in the cache; b->missing gets the rest. */
static hp_status find_cached(build *b) {
  b->missing.len = 0;
  for (size_t i = 0; i < b->m->structure.len; i++) {
    structure *s = &b->m->structure.at[i];
    if (s->asked || s->fn) continue;
    void *fn = jit_cache_find(&b->cache, s->key);
    memcpy(&s->fn, &fn, sizeof fn); /* ISO C has no cast from object to function pointer */
    if (s->fn) b->m->stats.cached++;
    else if (!vec_push(&b->missing, (uint32_t)i)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* Translation unit u of n: every n-th missing structure, so that all have about the same size. */
static hp_status write_unit(const build *b, int u, int n, const char *path) {
  str s = {0};
  char hex[33];
  str_add_n(&s, b->preamble.at, b->preamble.len);
  for (size_t i = (size_t)u; i < b->missing.len; i += (size_t)n) {
    const structure *x = &b->m->structure.at[b->missing.at[i]];
    hash_hex(x->key, hex);
    str_printf(&s, "__attribute__((visibility(\"default\"))) void hp_k_%s", hex);
    str_add_n(&s, x->text, x->length);
  }
  hp_status st = str_status(&s);
  FILE *f = st ? NULL : fopen(path, "we");
  bool ok = f && fwrite(s.at, 1, s.len, f) == s.len;
  if (f && fclose(f)) ok = false;
  str_free(&s);
  if (!st && !ok) HP_FAIL(HP_ERR_IO, "%s: cannot write", path);
  return st;
}

/* One warning with the beginning of the compiler's messages. */
static void warn_of_compiler(const build *b, const char *path) {
  char *said = NULL;
  size_t n = 0;
  if (file_read(path, 0, &said, &n)) err_clear();
  log_warn(
      "%s cannot compile fused kernels; they are interpreted (same results, slow). It says: %.*s",
      b->cc.word.at[0], (int)(n < SAID_MAX ? n : SAID_MAX), n ? said : "nothing");
  mem_free(said);
}

/* Loads unit u of n and sets its functions. */
static hp_status load_unit(build *b, int u, int n, const char *object) {
  size_t count = (b->missing.len - (size_t)u + (size_t)n - 1) / (size_t)n, at = 0;
  hash128 *key = mem_calloc(count, sizeof *key);
  void **fn = mem_calloc(count, sizeof *fn);
  hp_status st = key && fn ? HP_OK : HP_ERR_OOM;
  for (size_t i = (size_t)u; !st && i < b->missing.len; i += (size_t)n)
    key[at++] = b->m->structure.at[b->missing.at[i]].key;
  if (!st) st = jit_cache_add(&b->cache, object, key, (int)count, fn);
  at = 0;
  for (size_t i = (size_t)u; !st && i < b->missing.len; i += (size_t)n, at++)
    memcpy(&b->m->structure.at[b->missing.at[i]].fn, &fn[at], sizeof fn[at]);
  if (!st) b->m->stats.compiled += (int)count;
  mem_free(key);
  mem_free(fn);
  return st;
}

/* Unique names in the work folder: BASE.c, BASE.so, BASE.txt. */
static hp_status name_unit(const build *b, int u, arena *names, jit_unit *unit) {
  uint64_t mark[4] = {(uint64_t)getpid(), (uint64_t)u, (uint64_t)(time_now_s() * 1e9),
                      (uint64_t)(uintptr_t)b->m};
  const char *base = arena_printf(names, "%s/unit.%ld.%016llx", b->cache.work, (long)getpid(),
                                  (unsigned long long)hash_bytes(mark, sizeof mark));
  HP_TRY_MEM(base);
  unit->source = arena_printf(names, "%s.c", base);
  unit->object = arena_printf(names, "%s.so", base);
  unit->words = arena_printf(names, "%s.txt", base);
  return unit->source && unit->object && unit->words ? HP_OK : HP_ERR_OOM;
}

static hp_status compile_units(build *b, jit_unit *unit, int n, arena *names) {
  for (int u = 0; u < n; u++) {
    HP_TRY(name_unit(b, u, names, &unit[u]));
    HP_TRY(write_unit(b, u, n, unit[u].source));
  }
  HP_TRY(jit_cc_compile(&b->cc, b->flag, unit, n, b->m->jobs));
  bool warned = false;
  for (int u = 0; u < n; u++) {
    if (unit[u].done) {
      HP_TRY(load_unit(b, u, n, unit[u].object));
    } else if (!warned) {
      warn_of_compiler(b, unit[u].words);
      warned = true;
    }
  }
  return HP_OK;
}

static hp_status compile_missing(build *b) {
  int n = b->m->jobs;
  if ((size_t)n > b->missing.len) n = (int)b->missing.len;
  arena names = {0};
  jit_unit *unit = mem_calloc((size_t)n, sizeof *unit);
  hp_status st = unit ? compile_units(b, unit, n, &names) : HP_ERR_OOM;
  for (int u = 0; unit && u < n && unit[u].words; u++) {
    unlink(unit[u].source);
    unlink(unit[u].object);
    unlink(unit[u].words);
  }
  mem_free(unit);
  arena_free(&names);
  return st;
}

static hp_status build_code(build *b) {
  HP_TRY(jit_cc_find(b->m->cc, &b->cc));
  loop_c_preamble(&b->preamble);
  HP_TRY(str_status(&b->preamble));
  choose_flags(b->m->isa, strstr(b->cc.version, "clang") != NULL, b->flag);
  HP_TRY(set_keys(b));
  HP_TRY(jit_cache_open(b->m->cache_dir, &b->cache));
  HP_TRY(find_cached(b));
  if (!b->missing.len) return HP_OK;
  HP_TRY(jit_cache_begin(&b->cache, b->m->lock_ms));
  HP_TRY(find_cached(b)); /* another process may have built them while this one waited */
  if (b->missing.len) HP_TRY(compile_missing(b));
  return HP_OK;
}

/* Sets the functions of the kernels and frees memory that only the interpreter needs. */
static void assign_functions(loop_module *m) {
  for (size_t i = 0; i < m->structure.len; i++) m->structure.at[i].asked = true;
  for (size_t i = 0; i < m->kernel.len; i++) {
    loop_kernel *k = m->kernel.at[i];
    if (k->built) continue;
    k->built = true;
    k->fn = m->structure.at[k->structure].fn;
    m->stats.kernels++;
    if (k->fn) {
      mem_free(k->plan.value);
      mem_free(k->plan.store);
      k->plan.value = NULL;
      k->plan.store = NULL;
    } else {
      k->plan.split = false;
      m->stats.interpreted++;
    }
  }
  m->stats.structures = (int)m->structure.len;
}

hp_status loop_module_build(loop_module *m) {
  build b = {.m = m, .cache = {.lock = -1}};
  double start = time_now_s();
  hp_status st = HP_OK;
  bool open = false;
  for (size_t i = 0; i < m->structure.len; i++) open |= !m->structure.at[i].asked;
  if (open && !m->interpret) st = build_code(&b);
  if (st && st != HP_ERR_OOM) {
    log_warn("fused kernels are interpreted (same results, slow): %s", err_message());
    err_clear();
    st = HP_OK;
  }
  jit_cache_close(&b.cache);
  jit_cc_free(&b.cc);
  str_free(&b.preamble);
  vec_free(&b.missing);
  if (!st) assign_functions(m);
  m->stats.compile_s += time_now_s() - start;
  return st;
}

loop_module_stats loop_module_report(const loop_module *m) { return m->stats; }

/* --- running ---------------------------------------------------------------------------------- */

int loop_phases(const loop_kernel *k) { return plan_phases(&k->plan); }

int64_t loop_parts(const loop_kernel *k, int phase) { return plan_parts(&k->plan, phase); }

size_t loop_scratch(const loop_kernel *k) { return plan_scratch(&k->plan); }

/* The outputs stored past the caches: large ones, except those that overwrite an input, whose
 * lines are in cache. */
static int64_t choose_streamed_outputs(const loop_kernel *k, const void *const *in,
                                       void *const *out) {
  int64_t bits = k->large;
  for (int o = 0; bits >> o; o++)
    for (int i = 0; i < k->inputs; i++)
      if (in[i] == out[o]) bits &= ~((int64_t)1 << o);
  return bits;
}

void loop_run_parts(const loop_kernel *k, int phase, const void *const *in, void *const *out,
                    void *scratch, int64_t from, int64_t to) {
  HP_ASSERT(k->built);
  if (k->fn)
    k->fn(in, out, k->params.at, scratch, phase, choose_streamed_outputs(k, in, out), from, to);
  else loop_interpret(&k->plan, phase, in, out, scratch, from, to);
}

/* A run on a pool: the parts of a phase, a range for each thread. */
typedef struct {
  const loop_kernel *k;
  const void *const *in;
  void *const *out;
  void *scratch;
  int phase;
  int64_t parts, chunks;
} pool_run_of;

static int64_t start_of(const pool_run_of *r, int64_t chunk) {
  int64_t more = r->parts % r->chunks;
  return r->parts / r->chunks * chunk + (chunk < more ? chunk : more);
}

static void run_chunk(void *ctx, int64_t chunk) {
  const pool_run_of *r = ctx;
  loop_run_parts(r->k, r->phase, r->in, r->out, r->scratch, start_of(r, chunk),
                 start_of(r, chunk + 1));
}

void loop_run(const loop_kernel *k, const void *const *in, void *const *out, void *scratch,
              pool *p) {
  const loop_plan *plan = &k->plan;
  int64_t elements = plan->outer_count * plan->inner * (plan->kind == LOOP_COL ? plan->reduced : 1);
  for (int phase = 0; phase < loop_phases(k); phase++) {
    if (plan->folds && phase) elements /= PLAN_COL_BLOCK; /* the results of blocks of rows */
    pool_run_of r = {k, in, out, scratch, phase, loop_parts(k, phase), 1};
    if (p && elements >= RUN_ALONE) r.chunks = pool_size(p);
    if (r.chunks > r.parts) r.chunks = r.parts;
    if (r.chunks > 1) pool_run(p, r.chunks, run_chunk, &r);
    else if (r.parts) loop_run_parts(k, phase, in, out, scratch, 0, r.parts);
  }
}
