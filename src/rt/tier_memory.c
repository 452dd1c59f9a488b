#include "rt/tier_memory.h"

#include "base/status.h"

#include <string.h>

enum {
  STEP_BYTES = 32 << 20, /* committed at once; pages that are never written take no memory */
  LEAST_HALF = 64 << 20
};

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* For either half as much address space as the machine has memory.  Where the process may not have
 * so much, the arenas of all its devices get half of what is left to it together, for the other
 * half is allocated elsewhere; but no less than what is needed now. */
static uint64_t choose_half(tier_memory *m) {
  uint64_t physical = round_up(mem_physical(), STEP_BYTES), room = mem_address_space();
  uint64_t share = room / (4 * (uint64_t)(m->devices > 1 ? m->devices : 1));
  m->limited = share < physical;
  return m->limited ? share / STEP_BYTES * STEP_BYTES : physical;
}

static bool is_flash(const tier_memory *m) { return m->tier == TIER_FLASH; }

static hp_status check_store(const tier_memory *m) {
  if (m->store) return HP_OK;
  HP_FAIL(HP_ERR_ARG, "tier flash has no memory here: open the device with folders (flash) and "
                      "the bytes to take there (flash_limit)");
}

/* Bytes behind the last tensor. */
static uint64_t count_room(const tier_memory *m) {
  return (is_flash(m) ? tier_memory_work_offset(m) : m->half) - m->end;
}

static bool is_pooled(const tier_memory *m) { return m->pool && host_pool_is_shared(m->pool); }

static char *reserve_space(const tier_memory *m, uint64_t bytes) {
  if (is_pooled(m)) return host_pool_map(m->pool, m->place, bytes);
  return m->backend->reserve(m->dev, m->tier, bytes);
}

static hp_status commit(const tier_memory *m, char *at, uint64_t bytes) {
  return is_pooled(m) ? HP_OK : m->backend->commit(m->dev, m->tier, at, bytes);
}

static hp_status reserve(tier_memory *m, uint64_t needed) {
  uint64_t least = round_up(needed > LEAST_HALF ? needed : LEAST_HALF, STEP_BYTES);
  if (is_flash(m)) return check_store(m);
  if (m->at) return HP_OK;
  for (uint64_t half = choose_half(m);; half = round_up(half / 2, STEP_BYTES)) {
    if (half < least) half = least;
    m->at = reserve_space(m, 2 * half);
    m->half = half;
    if (m->at) break;
    if (half == least) return HP_ERR_OOM;
    err_clear();
  }
  return HP_OK;
}

static hp_status too_large(const tier_memory *m, const char *what, uint64_t bytes) {
  const char *tier = tier_name(m->tier);
  if (is_flash(m))
    HP_FAIL(HP_ERR_OOM,
            "%s of %llu bytes on tier flash: the device's part of it has %llu bytes, of which "
            "params take %llu and work memory %llu; raise flash_limit",
            what, (unsigned long long)bytes, (unsigned long long)m->size,
            (unsigned long long)m->end, (unsigned long long)m->work_bytes);
  if (m->limited)
    HP_FAIL(HP_ERR_OOM,
            "%s of %llu bytes on tier %s: %llu of address space are reserved for it; give the "
            "process more (ulimit -v)",
            what, (unsigned long long)bytes, tier, (unsigned long long)m->half);
  HP_FAIL(HP_ERR_OOM,
          "%s of %llu bytes on tier %s: %llu of address space are reserved for it, as the machine "
          "has memory; more devices or a smaller model take less",
          what, (unsigned long long)bytes, tier, (unsigned long long)m->half);
}

/* Behind the last tensor there is no room; there may be enough in gaps, none of which is alone. */
static hp_status no_room(const tier_memory *m, uint64_t bytes) {
  uint64_t space = count_room(m) + m->end, free = count_room(m), largest = free;
  for (size_t i = 0; i < m->gaps.len; i++) {
    uint64_t gap = m->gaps.at[i].to - m->gaps.at[i].from;
    free += gap;
    if (gap > largest) largest = gap;
  }
  if (free < bytes) return too_large(m, "tensors", space - free + bytes);
  HP_FAIL(HP_ERR_OOM,
          "a tensor of %llu bytes on tier %s: %llu bytes are free, but in gaps between tensors, of "
          "at most %llu bytes; create large tensors before small ones, or free neighbours of a gap",
          (unsigned long long)bytes, tier_name(m->tier), (unsigned long long)free,
          (unsigned long long)largest);
}

/* The first gap that is large enough. */
static bool take_gap(tier_memory *m, uint64_t bytes, uint64_t *offset) {
  for (size_t i = 0; i < m->gaps.len; i++) {
    memory_gap *g = &m->gaps.at[i];
    if (g->to - g->from < bytes) continue;
    *offset = g->from;
    g->from += bytes;
    if (g->from == g->to) {
      m->gaps.len--;
      memmove(g, g + 1, (m->gaps.len - i) * sizeof *g);
    }
    return true;
  }
  return false;
}

hp_status tier_memory_take(tier_memory *m, uint64_t bytes, uint64_t *offset) {
  uint64_t taken = tier_memory_pad(m->tier, bytes ? bytes : 1);
  HP_TRY(reserve(m, taken));
  if (take_gap(m, taken, offset)) return HP_OK;
  if (taken > count_room(m)) return no_room(m, taken);
  if (!is_flash(m) && m->end + taken > m->committed) {
    uint64_t more = round_up(m->end + taken - m->committed, STEP_BYTES);
    if (more > m->half - m->committed) more = m->half - m->committed;
    HP_TRY(commit(m, m->at + m->committed, more));
    m->committed += more;
  }
  *offset = m->end;
  m->end += taken;
  return HP_OK;
}

/* Zeros, in what is not needed any more. */
static void discard(const tier_memory *m, uint64_t offset, uint64_t bytes) {
  if (is_flash(m)) flash_clear(m->store, m->from + offset, bytes);
  else if (is_pooled(m)) host_pool_discard(m->at + offset, bytes);
  else m->backend->discard(m->dev, m->tier, m->at + offset, bytes);
}

/* If there is no memory for a gap, its space is lost until the device is closed. */
void tier_memory_give(tier_memory *m, uint64_t offset, uint64_t bytes) {
  memory_gap g = {offset, offset + tier_memory_pad(m->tier, bytes ? bytes : 1)};
  size_t i = 0, merged = 0;
  discard(m, g.from, g.to - g.from);
  while (i < m->gaps.len && m->gaps.at[i].to < g.from) i++;
  for (size_t k = i; k < m->gaps.len && m->gaps.at[k].from <= g.to; k++, merged++) {
    if (m->gaps.at[k].from < g.from) g.from = m->gaps.at[k].from;
    if (m->gaps.at[k].to > g.to) g.to = m->gaps.at[k].to;
  }
  if (!merged && !vec_reserve(&m->gaps, 1)) {
    err_clear();
    return;
  }
  memmove(m->gaps.at + i + 1, m->gaps.at + i + merged, (m->gaps.len - i - merged) * sizeof g);
  m->gaps.at[i] = g;
  m->gaps.len += 1 - merged;
  memory_gap *last = &m->gaps.at[m->gaps.len - 1];
  if (last->to < m->end) return;
  m->end = last->from;
  m->gaps.len--;
}

static hp_status commit_work(tier_memory *m, uint64_t bytes) {
  HP_TRY(reserve(m, bytes));
  if (bytes > (is_flash(m) ? m->size - m->end : m->half)) return too_large(m, "work memory", bytes);
  if (is_flash(m)) return HP_OK;
  uint64_t want = tier_memory_pad(m->tier, bytes), have = m->work_committed;
  if (want <= have) return HP_OK;
  HP_TRY(commit(m, m->at + m->half + have, want - have));
  m->work_committed = want;
  return HP_OK;
}

hp_status tier_memory_add_need(tier_memory *m, uint64_t bytes) {
  if (!bytes) return HP_OK;
  if (!vec_reserve(&m->needs, 1)) return HP_ERR_OOM;
  HP_TRY(commit_work(m, bytes));
  m->needs.at[m->needs.len++] = bytes;
  if (bytes > m->work_bytes) m->work_bytes = bytes;
  return HP_OK;
}

void tier_memory_drop_need(tier_memory *m, uint64_t bytes) {
  uint64_t most = 0;
  size_t i = 0;
  if (!bytes) return;
  while (i < m->needs.len && m->needs.at[i] != bytes) i++;
  HP_ASSERT(i < m->needs.len);
  m->needs.at[i] = m->needs.at[--m->needs.len];
  for (i = 0; i < m->needs.len; i++)
    if (m->needs.at[i] > most) most = m->needs.at[i];
  if (most == m->work_bytes) return;
  if (is_flash(m)) discard(m, tier_memory_work_offset(m), m->size - tier_memory_work_offset(m));
  else discard(m, m->half + most, m->work_bytes - most);
  m->work_bytes = most;
}

hp_status tier_memory_read(const tier_memory *m, uint64_t offset, void *to, uint64_t bytes,
                           const char *name) {
  return flash_read(m->store, m->from + offset, to, bytes, name);
}

hp_status tier_memory_write(const tier_memory *m, uint64_t offset, const void *from, uint64_t bytes,
                            bool ends, const char *name) {
  if (ends) return flash_write_end(m->store, m->from + offset, from, bytes, name);
  return flash_write(m->store, m->from + offset, from, bytes, name);
}

void tier_memory_free(tier_memory *m) {
  if (m->at && is_pooled(m)) host_pool_unmap(m->at, 2 * m->half);
  else if (m->at) m->backend->unreserve(m->dev, m->tier, m->at, 2 * m->half);
  vec_free(&m->gaps);
  vec_free(&m->needs);
  m->at = NULL;
}
