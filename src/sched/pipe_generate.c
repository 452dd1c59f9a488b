#include "sched/pipe_generate.h"

#include "sched/pipe_check.h"
#include "sched/pipe_index.h"
#include "sched/pipe_kinds.h"
#include "sched/pipe_memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *name, *what;
  uint32_t chunks; /* stages a device; 0: any number from 2 on */
  hp_status (*make)(const pipe_request *q, pipe_rows *out);
  uint32_t (*in_flight)(uint32_t devices); /* the most that a device holds; NULL: what it takes */
  uint32_t micros;                         /* the fewest micro-batches for each device */
} pipe_kind;

static uint32_t one_each(uint32_t p) { return p; }
static uint32_t twice_less_one(uint32_t p) { return 2 * p - 1; }
static uint32_t two_each(uint32_t p) { return 2 * p; }
/* Of two_each, which is the memory of 1f1b: (p + 2) / 2p and 2 (p + 4) / 6p, rounded up. */
static uint32_t half(uint32_t p) { return p > 2 ? p + 2 : 2 * p; }
static uint32_t third(uint32_t p) { return p > 1 ? (p + 6) / 3 * 2 : 2; }

static const pipe_kind kinds[] = {
    {"gpipe", "all forwards, then all backwards", 1, pipe_gpipe, NULL, 0},
    {"1f1b", "one forward, one backward; at most as many in flight as stages", 1, pipe_1f1b,
     one_each, 0},
    {"interleaved", "1f1b with several stages a device: a smaller bubble, more transfers", 0,
     pipe_interleaved, NULL, 0},
    {"zb-h1", "backward split: a third of the bubble of 1f1b, the same memory", 1, pipe_zero_bubble,
     one_each, 0},
    {"zb-2p", "backward split: no bubble between steps, twice the memory", 1, pipe_zero_bubble,
     twice_less_one, 0},
    {"zbv", "two stages a device in a V: no bubble between steps, the memory of 1f1b", 2, pipe_v,
     two_each, 0},
    {"v-half", "as zbv with about half the memory and half the bubble of 1f1b", 2, pipe_v, half, 0},
    {"v-min", "as zbv with about a third of the memory and two thirds of the bubble of 1f1b", 2,
     pipe_v, third, 0},
    {"dualpipe-v", "two stages a device in a V; forwards overlap with backwards", 2,
     pipe_dualpipe_v, NULL, 2},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

bool pipe_schedule_splits(const char *name) {
  const size_t n = strcspn(name, ":");
  for (size_t i = 0; i < KINDS; i++)
    if (!strncmp(kinds[i].name, name, n) && !kinds[i].name[n])
      return kinds[i].make == pipe_zero_bubble || kinds[i].make == pipe_v;
  return true;
}

const char *pipe_schedule_name(size_t i, const char **what) {
  if (i >= KINDS) return NULL;
  *what = kinds[i].what;
  return kinds[i].name;
}

/* The N of interleaved:N. */
static hp_status read_group(const char *name, const char *text, uint32_t *group) {
  char *end;
  long n = strtol(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || n < 1 || n > PIPE_MICROBATCHES)
    HP_FAIL(HP_ERR_ARG,
            "\"%.40s\": expected interleaved:N, with N micro-batches in a group, from 1 to %d",
            name, PIPE_MICROBATCHES);
  *group = (uint32_t)n;
  return HP_OK;
}

static hp_status find_kind(const char *name, const pipe_kind **out, uint32_t *group) {
  const char *names[KINDS];
  *group = 0;
  for (int i = 0; i < KINDS; i++) {
    const size_t len = strlen(kinds[i].name);
    names[i] = kinds[i].name;
    if (strncmp(name, kinds[i].name, len)) continue;
    if (name[len] == ':' && !kinds[i].chunks) HP_TRY(read_group(name, name + len + 1, group));
    else if (name[len]) continue;
    *out = &kinds[i];
    return HP_OK;
  }
  str all = {0};
  for (int i = 0; i < KINDS; i++) str_printf(&all, "%s%s", i ? ", " : "", names[i]);
  const char *near = str_nearest(name, names, KINDS);
  hp_status st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                         "no pipeline schedule, and no file of rows, is called \"%.40s\"%s%s%s "
                         "expected %s",
                         name, near ? ", did you mean " : "", near ? near : "", near ? "?" : ";",
                         all.failed ? "another" : all.at);
  str_free(&all);
  return st;
}

hp_status pipe_schedule_stages(const char *name, uint32_t devices, uint32_t *stages) {
  const pipe_kind *kind;
  uint32_t group;
  HP_TRY(find_kind(name, &kind, &group));
  *stages = (kind->chunks ? kind->chunks : 2) * devices;
  return HP_OK;
}

static hp_status check_shape(const pipe_kind *kind, const pipe_request *q) {
  if (!q->stages || !q->devices || !q->microbatches || q->stages > PIPE_STAGES ||
      q->microbatches > PIPE_MICROBATCHES || (uint64_t)q->stages * q->microbatches > PIPE_CELLS)
    HP_FAIL(HP_ERR_ARG,
            "%s of %u stages on %u devices with %u micro-batches: expected at least 1 of each, at "
            "most %d stages, %d micro-batches and %d of both together",
            kind->name, q->stages, q->devices, q->microbatches, PIPE_STAGES, PIPE_MICROBATCHES,
            PIPE_CELLS);
  const uint64_t stages = (uint64_t)kind->chunks * q->devices;
  if (kind->chunks && stages != q->stages)
    HP_FAIL(HP_ERR_ARG, "%s has %u stage%s a device: expected %llu stages on %u devices, not %u",
            kind->name, kind->chunks, kind->chunks > 1 ? "s" : "", (unsigned long long)stages,
            q->devices, q->stages);
  if (!kind->chunks && (q->stages % q->devices || q->stages == q->devices))
    HP_FAIL(
        HP_ERR_ARG,
        "%s has two stages a device, or a larger number: expected a multiple of %u stages on %u "
        "devices, not %u; take 1f1b for one stage a device",
        kind->name, q->devices, q->devices, q->stages);
  if (q->group && q->group < q->devices)
    HP_FAIL(HP_ERR_ARG,
            "%s:%u: expected groups of at least as many micro-batches as devices, %u: a device "
            "would wait for a group that waits for it",
            kind->name, q->group, q->devices);
  if (q->microbatches < (uint64_t)kind->micros * q->devices)
    HP_FAIL(HP_ERR_ARG,
            "%s needs at least %u micro-batches a step on %u devices, not %u; take more of them "
            "(gradient accumulation), or zbv, which needs no more than one",
            kind->name, kind->micros * q->devices, q->devices, q->microbatches);
  return HP_OK;
}

static hp_status check_index(const char *name, const pipe_index *x, const pipe_request *q) {
  const pipe_limits most = q->limits;
  for (uint32_t d = 0; d < q->devices; d++) {
    pipe_peak peak;
    HP_TRY(pipe_memory(x, d, q->costs, (pipe_limits){0}, &peak));
    if (most.in_flight && peak.in_flight > most.in_flight)
      HP_FAIL(HP_ERR_OOM,
              "%s holds %u micro-batches of a stage in flight on device %u, and the limit is %u; "
              "take 1f1b, zb-h1 or v-min, or fewer micro-batches",
              name, peak.in_flight, d, most.in_flight);
    if (most.bytes && peak.bytes > most.bytes)
      HP_FAIL(HP_ERR_OOM,
              "%s holds %llu bytes of micro-batches in flight on device %u, and the limit is %llu; "
              "take 1f1b, zb-h1 or v-min, recomputation, or smaller micro-batches",
              name, (unsigned long long)peak.bytes, d, (unsigned long long)most.bytes);
  }
  return HP_OK;
}

static hp_status check_memory(const char *name, const pipe_request *q, const pipe_rows *p) {
  pipe_index x;
  if (!p->row)
    HP_FAIL(HP_ERR_OOM,
            "%s does not fit under the limit of %u micro-batches of a stage in flight and %llu "
            "bytes (0: none) on each device, even with one micro-batch at a time; raise the limit, "
            "or take smaller micro-batches",
            name, q->limits.in_flight, (unsigned long long)q->limits.bytes);
  HP_TRY(pipe_index_build(p, name, q->costs, &x));
  hp_status st = check_index(name, &x, q);
  pipe_index_free(&x);
  return st;
}

hp_status pipe_generate(const char *name, const pipe_request *request, pipe_rows *out) {
  static const pipe_costs usual = {0};
  const pipe_kind *kind = NULL;
  pipe_request q = *request;
  pipe_rows made = {0};
  if (!q.costs) q.costs = &usual;
  HP_TRY(find_kind(name, &kind, &q.group));
  HP_TRY(check_shape(kind, &q));
  HP_TRY(pipe_costs_check(q.costs, q.stages, q.microbatches));
  if (!q.limits.in_flight && kind->in_flight) q.limits.in_flight = kind->in_flight(q.devices);
  hp_status st = kind->make(&q, &made);
  if (!st) st = check_memory(name, &q, &made);
  if (st) pipe_rows_free(&made);
  else *out = made;
  return st;
}
