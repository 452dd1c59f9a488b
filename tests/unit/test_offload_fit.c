/* Which attempt at an offloaded program is kept, with programs that are numbers only. */
#include "test.h"

#include "compile/offload_fit.h"

enum { ROOM = 1000, FLOOR = 100, STEPS = 3, MOST = 20 };

/* A program needs `part` of its cap and `extra`, and takes the less time the greater its cap is;
 * one with bytes withheld needs reserved_bytes, of each attempt in turn, and takes reserved_s. */
typedef struct {
  double part, extra;
  const uint64_t *reserved_bytes;
  double reserved_s;
  uint64_t floor_bytes, least_bytes; /* of a cap of the floor; 0: as of any */
  uint64_t cap[MOST];                /* what was tried, */
  bool reserve[MOST], least[MOST];
  int tried, reserved;
  int kept; /* and the attempt that is kept */
} maker;

static hp_status make(void *context, const offload_attempt *a, uint64_t *bytes, double *time_s) {
  maker *m = context;
  CHECK(m->tried < MOST);
  *bytes = (uint64_t)((double)a->cap * m->part + m->extra);
  *time_s = 10 - (double)a->cap / ROOM;
  if (a->reserve) {
    CHECK_EQ(a->reserve[1], m->reserved + 1); /* as withheld */
    *bytes = m->reserved_bytes[m->reserved++];
    *time_s = m->reserved_s;
  }
  if (a->cap == FLOOR && m->floor_bytes) *bytes = m->floor_bytes;
  if (a->least) *bytes = m->least_bytes;
  m->cap[m->tried] = a->cap;
  m->reserve[m->tried] = a->reserve;
  m->least[m->tried++] = a->least;
  return HP_OK;
}

static hp_status withhold(void *context, uint64_t *reserve, bool *more) {
  maker *m = context;
  *more = m->reserved_bytes != NULL;
  reserve[1]++;
  return HP_OK;
}

static void keep(void *context) {
  maker *m = context;
  m->kept = m->tried - 1;
}

static bool fit(maker *m, uint64_t *least) {
  bool kept;
  offload_maker o = {.room = ROOM,
                     .floor = FLOOR,
                     .steps = STEPS,
                     .context = m,
                     .make = make,
                     .withhold = withhold,
                     .keep = keep};
  m->kept = -1;
  CHECK_OK(offload_fit(&o, &kept, least));
  CHECK_EQ(kept, m->kept >= 0);
  return kept;
}

TEST(a_program_that_fits_is_the_only_one) {
  maker m = {.part = 1};
  uint64_t least;
  CHECK(fit(&m, &least));
  CHECK_EQ(m.tried, 1);
  CHECK_EQ(m.cap[0], ROOM);
}

TEST(of_programs_that_fit_the_faster_is_kept) {
  static const uint64_t one[] = {1000}, second[] = {1001, 990}, none[] = {1200, 1100};
  uint64_t least;
  maker fast = {.part = 1.1, .reserved_bytes = one, .reserved_s = 1};
  CHECK(fit(&fast, &least));
  CHECK(fast.reserve[fast.kept]);
  CHECK_EQ(fast.cap[2], ROOM - 100); /* what the first one is above the room: it fits, too */
  CHECK_EQ(fast.tried, 4);           /* and one between them was tried */
  maker more = {.part = 0.5, .extra = 600, .reserved_bytes = one, .reserved_s = 1};
  CHECK(fit(&more, &least));
  CHECK_EQ(more.tried, 3); /* a lower cap does not fit, and takes longer already */
  maker slow = {.part = 1.1, .reserved_bytes = second, .reserved_s = 9.5};
  CHECK(fit(&slow, &least));
  CHECK(slow.reserve[2]);
  CHECK(!slow.reserve[slow.kept]);
  maker only = {.part = 1.1, .reserved_bytes = none, .reserved_s = 1};
  CHECK(fit(&only, &least));
  CHECK(!only.reserve[only.kept]);
}

TEST(caps_are_lowered_until_a_program_fits_and_no_further) {
  maker m = {.part = 1.2};
  uint64_t least;
  CHECK(fit(&m, &least)); /* 1000, 800 * 1.2 fits, and 900 * 1.2 does not */
  CHECK_EQ(m.tried, 3);
  CHECK_EQ(m.cap[1], 800);
  CHECK_EQ(m.cap[2], 900);
  CHECK_EQ(m.kept, 1);
  maker less = {.part = 0.5, .extra = 530};
  CHECK(fit(&less, &least)); /* 1030, 485 + 530 and 475 + 530 are too much, 465 + 530 is not */
  CHECK_EQ(less.tried, 4);   /* and there is little between them */
  CHECK_EQ(less.cap[less.kept], 930);
  maker between = {.part = 0.5, .extra = 590};
  CHECK(fit(&between, &least));
  CHECK_EQ(between.tried, 7); /* by caps 1000, 910, 890, 870, 830, 750, and half way back */
  CHECK_EQ(between.cap[between.kept], 790);
}

TEST(what_is_enough_does_not_depend_on_the_room) {
  maker m = {.part = 20, .floor_bytes = 1500, .least_bytes = 1400};
  uint64_t least;
  CHECK(!fit(&m, &least));
  CHECK_EQ(least, 1400);
  CHECK_EQ(m.cap[m.tried - 2], FLOOR);
  CHECK(!m.least[m.tried - 2]);
  CHECK(m.least[m.tried - 1]);
  maker fits = {.part = 20, .floor_bytes = 1500, .least_bytes = 900};
  CHECK(fit(&fits, &least));
  CHECK(fits.least[fits.kept]);
}
