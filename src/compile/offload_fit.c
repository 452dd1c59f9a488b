#include "compile/offload_fit.h"

#include "base/mem.h"

typedef struct {
  const offload_maker *m;
  bool kept;
  double kept_s;  /* seconds of the program that is kept */
  uint64_t bytes; /* of the present one */
  double time_s;
  uint64_t *least; /* bytes of attempts that do not depend on the room */
} fitting;

static hp_status attempt(fitting *f, const offload_attempt *a) {
  HP_TRY(f->m->make(f->m->context, a, &f->bytes, &f->time_s));
  if (f->bytes > f->m->room || (f->kept && f->time_s >= f->kept_s)) return HP_OK;
  f->kept = true;
  f->kept_s = f->time_s;
  f->m->keep(f->m->context);
  return HP_OK;
}

/* Withholds bytes from the steps during which offsets do not fit, and more each time, until they
 * do. */
static hp_status try_reserves(fitting *f) {
  enum { ROUNDS = 2 };
  const offload_maker *m = f->m;
  bool more = true;
  uint64_t *reserve = mem_calloc(m->steps, sizeof *reserve);
  HP_TRY_MEM(reserve);
  hp_status st = HP_OK;
  for (int round = 0; !st && f->bytes > m->room && round < ROUNDS; round++) {
    st = m->withhold(m->context, reserve, &more);
    if (st || !more) break;
    st = attempt(f, &(offload_attempt){.cap = m->room, .reserve = reserve});
  }
  mem_free(reserve);
  return st;
}

/* The cap half way between one that fits and the next larger one that was tried and does not, if
 * they are so far apart that it may gain something. */
static hp_status try_between(fitting *f, uint64_t fits, uint64_t above) {
  enum { FAR = 25 }; /* a 25th of the room */
  if (above < fits || above - fits <= f->m->room / FAR) return HP_OK;
  return attempt(f, &(offload_attempt){.cap = fits + (above - fits) / 2});
}

/* Lowers the cap by what the program of a cap of the room is above it, and by a little more each
 * time, until it fits, or takes longer than the one that is kept.  At last the cap is what the
 * largest step needs, and then nothing stays on the device between its uses. */
static hp_status try_caps(fitting *f, uint64_t above) {
  static const double less[] = {0, 0.02, 0.04, 0.08, 0.16, 0.32}; /* of the room */
  enum { LOWER = sizeof less / sizeof *less };
  const offload_maker *m = f->m;
  uint64_t before = m->room;
  for (int round = 0; round < LOWER + 2; round++) {
    double cap = (double)m->room * (1 - less[round < LOWER ? round : 0]) - (double)above;
    bool at_floor = round >= LOWER || cap <= (double)m->floor;
    if (at_floor && round < LOWER) round = LOWER; /* it cannot be lowered further */
    offload_attempt a = {.cap = at_floor ? m->floor : (uint64_t)cap, .least = round == LOWER + 1};
    HP_TRY(attempt(f, &a));
    if (f->bytes <= m->room) return try_between(f, a.cap, before);
    if (f->kept && f->time_s >= f->kept_s) return HP_OK;
    if (round >= LOWER && f->bytes < *f->least) *f->least = f->bytes;
    before = a.cap;
  }
  return HP_OK;
}

hp_status offload_fit(const offload_maker *m, bool *kept, uint64_t *least) {
  fitting f = {.m = m, .least = least};
  *least = UINT64_MAX;
  hp_status st = attempt(&f, &(offload_attempt){.cap = m->room});
  uint64_t above = f.bytes > m->room ? f.bytes - m->room : 0;
  if (!st && above) st = try_reserves(&f);
  if (!st && above) st = try_caps(&f, above);
  *kept = f.kept;
  return st;
}
