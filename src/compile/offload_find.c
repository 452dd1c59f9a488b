#include "compile/offload_find.h"

#include "compile/offload_fit.h"
#include "compile/offload_reserve.h"
#include "sim/predict.h"

#include <string.h>

static offload_options offload_options_of(const stage_state *s) {
  return (offload_options){.cluster = s->t->cluster,
                           .mesh = s->t->mesh,
                           .workspace = s->workspace,
                           .times = s->times,
                           .mode = s->t->offload ? s->mode : NULL,
                           .policy = s->t->offload_policy,
                           .kept = s->t->offloads,
                           .home = s->t->home,
                           .rule = s->t->rule,
                           .context = s->t->context};
}

bool offload_may(const stage_state *s) {
  offload_options o = offload_options_of(s);
  for (size_t b = 0; s->t->offload && b < s->p->buffers.len; b++)
    if (offload_mode_of(s->p, &o, &s->p->buffers.at[b]) == HP_OFFLOAD_AUTO) return true;
  return false;
}

bool offload_must(const stage_state *s) {
  offload_options o = offload_options_of(s);
  for (size_t b = 0; s->t->offload && b < s->p->buffers.len; b++) {
    const prog_buffer *f = &s->p->buffers.at[b];
    if (f->root != b || f->flags & BUFFER_WORKSPACE || f->tier != TIER_DEVICE) continue;
    if (offload_mode_of(s->p, &o, f) > HP_OFFLOAD_AUTO) return true;
    if (f->place == PLACE_STATE && s->t->home(s->t->context, program_str(s->p, f->name)) > 0)
      return true;
  }
  return false;
}

/* Bytes of the device that named tensors take which do not leave it, and that are reserved. */
static uint64_t kept_bytes(const stage_state *s) {
  uint64_t bytes = add_bytes(s->t->locked_bytes(s->t->context), s->offload_reserve);
  offload_options o = offload_options_of(s);
  for (size_t b = 0; b < s->p->buffers.len; b++) {
    const prog_buffer *f = &s->p->buffers.at[b];
    if (f->root != b || f->place != PLACE_STATE || f->tier != TIER_DEVICE) continue;
    if (offload_mode_of(s->p, &o, f) != HP_OFFLOAD_NONE) continue;
    if (s->t->home(s->t->context, program_str(s->p, f->name)) < 0)
      bytes = add_bytes(bytes, (f->bytes + 255) & ~(uint64_t)255);
  }
  return bytes;
}

/* A refusal that names what would be enough, and for what. */
static hp_status too_small_to_offload(const stage_state *s, uint64_t kept, uint64_t work,
                                      uint32_t at) {
  const prog_inst *n = program_inst(s->p, at);
  const char *place = program_str(s->p, n->loc);
  HP_FAIL(HP_ERR_OOM,
          "memory limit %llu bytes is too small, also with offloading: %s%s%s%s needs %llu bytes "
          "for its operands, results and workspace, besides %llu that stay on the device; set "
          "memory_limit to %llu bytes or more",
          (unsigned long long)s->t->limit[TIER_DEVICE], op_table[n->op].name, *place ? " \"" : "",
          place, *place ? "\"" : "", (unsigned long long)work, (unsigned long long)kept,
          (unsigned long long)add_bytes(kept, work));
}

/* Programs that are tried, and the one that is kept, with the texts of its stages. */
typedef struct {
  stage_state *s;
  program *present, *kept;
  uint64_t floor;
  double bound_s; /* of the first one: of the limit itself, not of a lower cap */
  str text[STAGES];
} fitted;

/* By fragmentation the program may need more than its cap. */
static hp_status make_fitted(void *context, const offload_attempt *a, uint64_t *bytes,
                             double *time_s) {
  fitted *f = context;
  stage_state *s = f->s;
  bool first = !f->present && !f->kept;
  double exposed_s;
  program_free(f->present);
  f->present = NULL;
  s->kind = SCHEDULE_OFFLOAD;
  s->fits = true;
  s->offload.cap = a->cap;
  s->offload.reserve = a->reserve;
  s->offload.least = a->least;
  s->how.cap[TIER_DEVICE] = a->cap;
  HP_TRY(program_copy(s->p, &f->present));
  program *in_order_of_graph = s->p;
  s->p = f->present;
  hp_status st = s->run(s, STAGE_ORDER);
  s->p = in_order_of_graph;
  f->present->order =
      s->times ? "computations one after the other, collectives and copies to slower memory "
                 "overlapped"
               : "computations one after the other, and copies to slower memory overlapped";
  s->offload.reserve = NULL;
  s->offload.least = false;
  HP_TRY(st);
  if (first) f->bound_s = s->offloaded.bound_s;
  *bytes = f->present->arena[TIER_DEVICE];
  return predict_totals(s->t->cluster, s->t->mesh, f->present, time_s, &exposed_s);
}

static hp_status withhold(void *context, uint64_t *reserve, bool *more) {
  fitted *f = context;
  uint64_t room = f->s->offload.room;
  return offload_reserve_add(f->present, room, room - f->floor, f->s->p->insts.len, reserve, more);
}

static void swap_texts(fitted *f) {
  str text[STAGES];
  memcpy(text, f->text, sizeof text);
  memcpy(f->text, f->s->text, sizeof text);
  memcpy(f->s->text, text, sizeof text);
}

static void keep_fitted(void *context) {
  fitted *f = context;
  swap_texts(f);
  program_free(f->kept);
  f->kept = f->present;
  f->present = NULL;
}

/* The program within `room` bytes of work memory of the device.  *least: its bytes or, if none
 * fits, those that are enough, whatever the limit; *out is then one that does not. */
static hp_status lower_cap(stage_state *s, uint64_t room, uint64_t floor, program **out,
                           uint64_t *least) {
  fitted f = {.s = s, .floor = floor};
  offload_maker m = {.room = room,
                     .floor = floor,
                     .steps = s->p->insts.len,
                     .context = &f,
                     .make = make_fitted,
                     .withhold = withhold,
                     .keep = keep_fitted};
  bool kept;
  s->offload.room = room;
  hp_status st = offload_fit(&m, &kept, least);
  if (kept) swap_texts(&f);
  program_free(*out);
  *out = kept ? f.kept : f.present;
  program_free(kept ? f.present : f.kept);
  s->fits = true;
  if (!st && kept) *least = (*out)->arena[TIER_DEVICE];
  if (!st) (*out)->bound_s = f.bound_s;
  for (int i = 0; i < STAGES; i++) str_free(&f.text[i]);
  return st;
}

/* A plan under more room may need more than one under less.  What is named as the least, from
 * *least on, is enough, and one byte less is not, as `refused` bytes are not. */
static hp_status confirm_least(stage_state *s, uint64_t refused, uint64_t floor, program **out,
                               uint64_t *least) {
  enum { ROUNDS = 4 };
  uint64_t bytes, room;
  for (int round = 0; round < ROUNDS; round++) { /* upwards, until it is enough */
    HP_TRY(lower_cap(s, *least, floor, out, &bytes));
    if (bytes <= *least) break;
    *least = bytes;
  }
  for (int round = 0; round<ROUNDS && * least> floor && *least - 1 > refused; round++) {
    uint64_t less = *least - 1;
    HP_TRY(lower_cap(s, less, floor, out, &bytes));
    if (bytes > less) break;
    *least = less;
    if (bytes == less) continue;
    HP_TRY(lower_cap(s, bytes, floor, out, &room));
    if (room <= bytes) *least = bytes;
  }
  return HP_OK;
}

/* --- slower tiers -------------------------------------------------------------------------------
 */

/* Bytes that the program needs of a slower tier: named tensors and work memory. */
static uint64_t tier_bytes(const stage_state *s, const program *p, int tier) {
  return add_bytes(s->t->resident_bytes(s->t->context, p, tier), p->arena[tier]);
}

static uint64_t excess_bytes(const stage_state *s, const program *p, int tier) {
  uint64_t limit = s->t->limit[tier], bytes = limit ? tier_bytes(s, p, tier) : 0;
  return bytes > limit ? bytes - limit : 0;
}

/* A refusal with the limits as they were given: of all devices of a machine. */
static hp_status tier_too_small(const stage_state *s, const program *p, int tier) {
  static const char *const key[TIER_COUNT] = {"memory_limit", "host_limit", "flash_limit"};
  bool flash = s->t->limit[TIER_FLASH] > 0;
  uint64_t all = s->t->sharers > 1 ? (uint64_t)s->t->sharers : 1;
  uint64_t needed = tier_bytes(s, p, tier), round = all * 4096; /* of the parts of flash */
  uint64_t least = (needed * all + round - 1) / round * round;
  const char *other = tier == TIER_FLASH ? "" : ", or give folders of disks (flash, flash_limit)";
  if (tier == TIER_HOST && flash) other = "; the rest is on flash already";
  HP_FAIL(HP_ERR_OOM,
          "%s %llu bytes%s is too small: what does not stay on %s takes %llu bytes of tier %s "
          "(named tensors %llu, work memory %llu); set %s to %llu bytes or more%s",
          key[tier], (unsigned long long)(s->t->limit[tier] * all),
          all > 1 ? " of all devices" : "", all > 1 ? "each device" : "the device",
          (unsigned long long)needed, tier_name(tier),
          (unsigned long long)(needed - p->arena[tier]), (unsigned long long)p->arena[tier],
          key[tier], (unsigned long long)least, other);
}

/* The program within the limits of slower tiers, too: as much goes to flash as the host has no room
 * for.  Work values leave to the host or not as the plan has it, so that the bytes are found by
 * plans; each sends away more than the one before. */
static hp_status fit_tiers(stage_state *s, uint64_t room, uint64_t floor, program **out,
                           uint64_t *least) {
  enum { ROUNDS = 8 };
  s->offload.to_flash = 0;
  for (int round = 0;; round++) {
    HP_TRY(lower_cap(s, room, floor, out, least));
    if (*least > room) return HP_OK;
    uint64_t excess = excess_bytes(s, *out, TIER_HOST);
    int tier = excess ? TIER_HOST : TIER_FLASH;
    if (!excess && !excess_bytes(s, *out, TIER_FLASH)) return HP_OK;
    s->fits = false;
    bool all = s->offload.to_flash == UINT64_MAX;
    if (!excess || !s->t->limit[TIER_FLASH] || all) return tier_too_small(s, *out, tier);
    uint64_t more = excess > UINT64_MAX >> ROUNDS ? UINT64_MAX : excess << round;
    s->offload.to_flash = round < ROUNDS ? add_bytes(s->offload.to_flash, more) : UINT64_MAX;
  }
}

/* The program under the limit with what is not in use on other tiers. */
static hp_status offload_as(stage_state *s, bool host, program **out) {
  uint64_t kept = kept_bytes(s), limit = s->t->limit[TIER_DEVICE], floor, least;
  uint32_t at;
  s->offload = offload_options_of(s);
  s->offload.host = host;
  HP_TRY(offload_least(s->p, &s->offload, &floor, &at));
  uint64_t room = !limit ? UINT64_C(1) << 58 : limit > kept ? limit - kept : 0;
  least = floor; /* less is refused without a plan */
  if (room >= floor) HP_TRY(fit_tiers(s, room, floor, out, &least));
  if (least <= room) return HP_OK;
  s->fits = false;
  if (s->goes_on) return too_small_to_offload(s, kept, least, at);
  HP_TRY(confirm_least(s, room, floor, out, &least));
  s->fits = false;
  (*out)->arena[TIER_DEVICE] = least;
  return too_small_to_offload(s, kept, least, at);
}

/* May updates on the host make it faster, by enough to plan it once more?  They need a third of the
 * copies. */
static hp_status host_may_help(const stage_state *s, const program *p, double *time_s, bool *out) {
  const double worth = 1.02;
  double exposed_s;
  *out = false;
  if (s->offload.to_flash) return HP_OK;
  HP_TRY(predict_totals(s->t->cluster, s->t->mesh, p, time_s, &exposed_s));
  *out = *time_s > (*time_s - exposed_s) * worth;
  return HP_OK;
}

/* Instead of *out, which takes *time_s, if it is faster: with updates on the host, or not, and as
 * s->times says. */
static hp_status try_instead(stage_state *s, bool host, double *time_s, program **out,
                             bool *better) {
  program *other = NULL;
  double other_s, exposed_s;
  bool goes_on = s->goes_on;
  fitted before = {.s = s}; /* holds the texts */
  swap_texts(&before);
  s->goes_on = true;
  hp_status st = offload_as(s, host, &other);
  s->goes_on = goes_on;
  bool fits = !st && s->fits;
  if (st == HP_ERR_OOM && !s->fits) {
    err_clear();
    st = HP_OK;
  }
  if (fits) st = predict_totals(s->t->cluster, s->t->mesh, other, &other_s, &exposed_s);
  *better = fits && !st && other_s < *time_s;
  if (*better) {
    *time_s = other_s;
    program *worse = *out;
    *out = other;
    other = worse;
  } else swap_texts(&before);
  s->fits = true;
  program_free(other);
  for (int i = 0; i < STAGES; i++) str_free(&before.text[i]);
  return st;
}

/* Instead of *out, if it is faster, with collectives that overlap with computation. */
static hp_status try_overlap(stage_state *s, bool host, program **out) {
  schedule_options how = s->how;
  program *in_order_of_graph = s->p, *arranged;
  inst_times *times;
  bool better, usual = !s->t->offload_policy && !s->c->options->serial;
  double time_s, exposed_s;
  if (!usual || !program_has_rendezvous(s->p)) return HP_OK;
  HP_TRY(predict_totals(s->t->cluster, s->t->mesh, *out, &time_s, &exposed_s));
  memset(how.cap, 0, sizeof how.cap); /* what leaves is not known yet */
  HP_TRY(program_copy(s->p, &arranged));
  hp_status st = offload_overlap_order(arranged, &how, &times);
  if (times) {
    s->p = arranged;
    s->times = times;
    st = try_instead(s, host, &time_s, out, &better);
    s->p = in_order_of_graph;
    s->times = NULL;
  }
  program_free(arranged);
  mem_free(times);
  return st;
}

/* One instruction after the other, and updates on the host where that is asked for or faster:
 * *host. */
static hp_status find_serial(stage_state *s, program **out, bool *host) {
  hp_host_update asked = s->c->options->host_update;
  bool both = asked == HP_HOST_UPDATE_AUTO && s->t->cluster->tier[TIER_HOST].update_gb_s > 0;
  bool goes_on = s->goes_on, help;
  *host = asked == HP_HOST_UPDATE_ALWAYS;
  double time_s;
  s->goes_on |= both;
  hp_status st = offload_as(s, *host, out);
  s->goes_on = goes_on;
  if (!both) return st;
  if (st == HP_ERR_OOM && !s->fits) {
    err_clear();
    *host = true;
    return offload_as(s, true, out);
  }
  HP_TRY(st);
  HP_TRY(host_may_help(s, *out, &time_s, &help));
  return help ? try_instead(s, true, &time_s, out, host) : HP_OK;
}

hp_status offload_find(stage_state *s, program **out) {
  bool host;
  HP_TRY(find_serial(s, out, &host));
  return s->fits ? try_overlap(s, host, out) : HP_OK;
}

hp_status offload_find_faster(stage_state *s, program **out) {
  s->offload_reserve = s->c->options->reserve_bytes; /* *out leaves them, too */
  hp_status st = try_overlap(s, s->c->options->host_update == HP_HOST_UPDATE_ALWAYS, out);
  s->offload_reserve = 0;
  return st;
}
