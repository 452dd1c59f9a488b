#include "rt/replicas.h"

#include "base/hash.h"
#include "rt/mover.h"
#include "shard/box.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 18 };

typedef struct {
  const device_mesh *dm;
  size_t n;       /* params */
  uint64_t *mine; /* [own][n] */
  uint64_t *all;  /* [devices][n] */
} comparison;

static const char *name_of(const comparison *c, size_t k) {
  return intern_get(&c->dm->names, c->dm->states.at[k].name, NULL);
}

/* Of a tensor on the device, by blocks that the host is given. */
static hp_status hash_tensor(const device *d, const state_tensor *t, uint64_t *out) {
  uint64_t both[2] = {0};
  char *block = mem_calloc(BLOCK_BYTES, 1);
  hp_status st = block ? HP_OK : HP_ERR_OOM;
  for (uint64_t k = 0; !st && k < t->bytes; k += BLOCK_BYTES) {
    uint64_t n = t->bytes - k < BLOCK_BYTES ? t->bytes - k : BLOCK_BYTES;
    st = mover_read(d, t, k, block, n);
    both[1] = hash_bytes(block, n);
    both[0] = hash_bytes(both, sizeof both);
  }
  mem_free(block);
  *out = both[0];
  return st;
}

static hp_status hash_device(void *context, int i) {
  comparison *c = context;
  const device *d = c->dm->member[i];
  for (size_t k = 0; k < c->n; k++) {
    uint32_t at;
    const char *name = name_of(c, k);
    /* A partial tensor differs between devices. */
    bool counts = !layout_is_partial(&c->dm->states.at[k].l) && device_find(d, name, &at);
    const state_tensor *t = counts ? &d->states.at[at] : NULL;
    if (t) HP_TRY(hash_tensor(d, t, &c->mine[(size_t)i * c->n + k]));
  }
  return HP_OK;
}

/* --- telling ---------------------------------------------------------------------------------- */

typedef struct {
  int64_t first;     /* of the devices that hold the shard */
  int holders, most; /* their number; the number of those that agree */
  uint64_t right;    /* the most frequent hash */
} shard_holders;

static uint64_t hash_at(const comparison *c, int64_t at, size_t k) {
  return c->all[(size_t)at * c->n + k];
}

static bool holds(const comparison *c, int64_t at, size_t k, int64_t first) {
  return layout_first(&c->dm->m, &c->dm->states.at[k].l, at) == first;
}

static shard_holders count(const comparison *c, size_t k, int64_t first) {
  shard_holders p = {.first = first};
  for (int64_t a = first; a < c->dm->n; a++) {
    int same = 0;
    if (!holds(c, a, k, first)) continue;
    p.holders++;
    for (int64_t b = first; b < c->dm->n; b++)
      same += holds(c, b, k, first) && hash_at(c, a, k) == hash_at(c, b, k);
    if (same > p.most) p.most = same, p.right = hash_at(c, a, k);
  }
  return p;
}

/* "device 3 (process 3)" for those that have, or do not have, the most frequent hash. */
static void show_devices(const comparison *c, size_t k, const shard_holders *p, bool odd,
                         str *out) {
  enum { SHOWN = 4 };
  int n = 0;
  for (int64_t a = p->first; a < c->dm->n; a++) {
    if (!holds(c, a, k, p->first) || (hash_at(c, a, k) != p->right) != odd) continue;
    if (n++ < SHOWN) str_printf(out, "%s%lld", n > 1 ? ", " : "", (long long)a);
  }
  if (n > SHOWN) str_printf(out, " and %d more", n - SHOWN);
}

static hp_status refuse(const comparison *c, size_t k, const shard_holders *p, int others) {
  const char *what = c->dm->own < c->dm->n ? "process" : "device";
  str odd = {0}, even = {0}, more = {0};
  bool known = p->most > p->holders / 2;
  show_devices(c, k, p, true, &odd);
  show_devices(c, k, p, false, &even);
  if (others) str_printf(&more, ", and %d more", others);
  hp_status st = HP_ERR_OOM;
  if (!str_status(&odd) && !str_status(&even) && !str_status(&more))
    st =
        err_set(HP_ERR_DEVICE, __FILE__, __LINE__,
                known ? "\"%s\"%s: %s %s holds other bits than %s, though they are replicas of one "
                        "shard: its memory or a computation of it has failed"
                      : "\"%s\"%s: %s %s and %s hold different bits, though they are replicas of "
                        "one shard: memory or a computation of one of them has failed",
                name_of(c, k), more.at ? more.at : "", what, odd.at ? odd.at : "",
                even.at ? even.at : "");
  str_free(&odd);
  str_free(&even);
  str_free(&more);
  return st;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* The first shard of a param whose holders differ; false: none. */
static bool find_odd(const comparison *c, size_t k, shard_holders *out) {
  const layout *l = &c->dm->states.at[k].l;
  for (int64_t a = 0; a < c->dm->n; a++) {
    int64_t first = layout_first(&c->dm->m, l, a);
    if (hash_at(c, a, k) == hash_at(c, first, k)) continue;
    *out = count(c, k, first);
    return true;
  }
  return false;
}

static hp_status compare(const comparison *c) {
  shard_holders p, worst = {0};
  size_t at = 0;
  int n = 0;
  for (size_t k = 0; k < c->n; k++)
    if (find_odd(c, k, &p) && !n++) worst = p, at = k;
  return n ? refuse(c, at, &worst, n - 1) : HP_OK;
}

static hp_status run(comparison *c) {
  const device_mesh *dm = c->dm;
  size_t own;
  if (!size_mul(c->n, (size_t)dm->own, &own)) return HP_ERR_OOM;
  c->mine = mem_calloc(own, sizeof *c->mine);
  HP_TRY_MEM(c->mine);
  HP_TRY(device_mesh_each(dm, &(team_work){NULL, hash_device, c}));
  if (dm->own == dm->n) {
    c->all = c->mine;
    return compare(c);
  }
  c->all = mem_calloc(c->n * (size_t)dm->n, sizeof *c->all);
  HP_TRY_MEM(c->all);
  HP_TRY(device_mesh_gather(dm, c->mine, own * sizeof *c->mine, c->all));
  return compare(c);
}

hp_status replicas_verify(const device_mesh *dm) {
  HP_TRY(device_mesh_settle(dm));
  comparison c = {.dm = dm, .n = dm->states.len};
  if (dm->n == 1 || !c.n || !dm->own) return HP_OK;
  hp_status st = run(&c);
  if (c.all != c.mine) mem_free(c.all);
  mem_free(c.mine);
  return st;
}
