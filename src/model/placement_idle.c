/* Reports what the strategy of a group leaves idle: words without effect on its layers, devices
 * without a shard of them or of the batch, and the share of padding if a degree does not divide. */
#include "model/placement.h"

#include "base/log.h"

#include <stdio.h>

/* Does the group have layers with experts, or the last of them without? */
static bool has_layers(const placement_group *g, const lm *m, bool experts) {
  int64_t from = g->at ? g->first : 0, n = g->at ? g->layers : m->c.layers;
  for (int64_t i = from; i < from + n; i++)
    if ((m->c.moe.experts && m->c.moe.layer[i]) == experts) return true;
  return false;
}

/* Words without effect. */
static void tell_words(const placement_group *g, const lm *m) {
  const strategy *s = &g->by;
  int64_t rows = (s->zero_dp ? s->zero_dp : s->dp) * s->cp;
  if ((s->ep > 1 || s->etp > 1) && !m->c.moe.experts)
    log_warn("%s: ep and etp have no effect: model_type %s has no experts (dp is %lld)", g->name,
             m->c.model_type, (long long)s->dp);
  else if ((s->ep > 1 || s->etp > 1) && !has_layers(g, m, true))
    log_warn("%s: ep and etp have no effect: none of its layers has experts (dp is %lld)", g->name,
             (long long)s->dp);
  if (s->sp && s->tp == 1)
    log_warn("%s: sp has no effect: it shards over tp, and tp is 1", g->name);
  if (s->zero && rows == 1)
    log_warn("%s: zero=%d has no effect: it shards over dp and cp, and %s", g->name, s->zero,
             s->zero_dp ? "of dp by 1 device alone" : "both are 1");
}

/* The largest degree up to `parts` that divides `units`. */
static int64_t find_even_degree(int64_t units, int64_t parts) {
  int64_t n = parts < units ? parts : units;
  while (n > 1 && units % n) n--;
  return n;
}

typedef struct {
  int64_t each, empty; /* units per device; devices without any */
  double padded;       /* share of the total work */
} uneven;

static uneven count_idle(int64_t units, int64_t parts) {
  int64_t each = (units + parts - 1) / parts;
  return (uneven){.each = each,
                  .empty = parts - (units + each - 1) / each,
                  .padded = 1 - (double)units / (double)(each * parts)};
}

/* A degree that divides the units evenly, as advice: below `parts`, or the next above if only
 * one device would remain. */
static void add_advice(int64_t units, int64_t parts, char *out, size_t n) {
  int64_t below = find_even_degree(units, parts), above = parts;
  while (above < units && units % above) above++;
  if (above > units || above > 8 * parts) above = 0;
  if (below > 1) snprintf(out, n, "; %lld devices would share them evenly", (long long)below);
  else if (above) snprintf(out, n, "; %lld devices would share them evenly", (long long)above);
}

/* Units of the model, such as heads, over the devices that shard them.  Less than 1 % is not
 * reported. */
static void tell_units(const placement_group *g, const char *what, const char *by, int64_t units,
                       int64_t parts) {
  char empty[64] = "", advice[64] = "";
  if (parts < 2 || units < 1) return;
  uneven u = count_idle(units, parts);
  if (u.padded < 0.01) return;
  if (u.empty)
    snprintf(empty, sizeof empty, "%lld of %lld %s none and ", (long long)u.empty, (long long)parts,
             u.empty == 1 ? "has" : "have");
  add_advice(units, parts, advice, sizeof advice);
  log_warn("%s: %lld %s over %lld devices (%s): %s%.0f %% of the work on them is padding%s",
           g->name, (long long)units, what, (long long)parts, by, empty, 100 * u.padded, advice);
}

/* The number of shards of attention heads; by: the words of the strategy that cause it. */
static int64_t count_head_shards(const strategy *s, const char **by) {
  strategy_axis axis[STRATEGY_AXES];
  bool ulysses = s->mode == CP_ULYSSES || s->mode == CP_HYBRID;
  int n = strategy_axes(s, axis);
  int64_t parts = 1;
  for (int i = 0; i < n; i++) {
    axis_base b = axis[i].base;
    if (b == BASE_TP || (ulysses && (b == BASE_ULYSSES || b == BASE_TP_Y))) parts *= axis[i].size;
  }
  *by = parts == s->tp ? "tp" : s->tp_y > 1 ? "tp, tp_y and cp" : s->tp > 1 ? "tp and cp" : "cp";
  return parts;
}

static void tell_layers(const placement_group *g, const lm *m) {
  const strategy *s = &g->by;
  const model_config *c = &m->c;
  bool experts = has_layers(g, m, true), cuts_experts = experts && (s->ep > 1 || s->etp > 1);
  const char *by;
  int64_t parts = count_head_shards(s, &by);
  /* query heads stay with their key heads, as long as every device can have a key head */
  if (c->kv_heads >= parts) tell_units(g, "heads of keys and values", by, c->kv_heads, parts);
  else tell_units(g, "heads", by, c->heads, parts);
  if (experts) tell_units(g, "experts", "ep", c->moe.experts, s->ep);
  if (cuts_experts) tell_units(g, "dims of an expert's MLP", "etp", c->moe.ffn, s->etp);
  else tell_units(g, "dims of the MLP", "tp", experts ? c->moe.ffn : c->ffn, s->tp);
}

void placement_tell_idle(const placement *p, const lm *m) {
  for (int i = 0; i < p->groups; i++) {
    const placement_group *g = &p->group[i];
    bool has_ids = i == 0 || i + 1 == p->groups; /* the embedding or the head */
    tell_words(g, m);
    if (has_layers(g, m, true) || has_layers(g, m, false)) tell_layers(g, m);
    if (has_ids) tell_units(g, "ids of the vocabulary", "tp", m->c.vocab, g->by.tp);
  }
}

void placement_tell_tokens(const placement *p, int64_t tokens) {
  for (int i = 0; i < p->groups; i++)
    tell_units(&p->group[i], "tokens", "cp", tokens, p->group[i].by.cp);
}

static void tell_rows(const placement_group *g, int64_t rows) {
  const strategy *s = &g->by;
  int64_t all = strategy_devices(s);
  uneven u = count_idle(rows < 1 ? 1 : rows, s->dp);
  if (s->dp > 1 && u.empty)
    log_warn("%s: %lld of %lld devices %s no rows: %lld sequence%s at a time for dp=%lld; "
             "give %lld at a time, or share each by tp or cp",
             g->name, (long long)(u.empty * (all / s->dp)), (long long)all,
             u.empty * (all / s->dp) == 1 ? "has" : "have", (long long)rows, rows == 1 ? "" : "s",
             (long long)s->dp, (long long)s->dp);
  else if (s->dp > 1 && u.padded > 0)
    log_warn("%s: %lld sequences over dp=%lld are padded to %lld: %.0f %% of the rows are "
             "idle; a multiple of %lld is not padded",
             g->name, (long long)rows, (long long)s->dp, (long long)(u.each * s->dp),
             100 * u.padded, (long long)s->dp);
}

void placement_tell_rows(const placement *p, int64_t rows, int64_t tokens) {
  for (int i = 0; i < p->groups; i++) {
    const placement_group *g = &p->group[i];
    int64_t cp = g->by.cp;
    tell_rows(g, rows);
    if (tokens > 0 && tokens < cp)
      log_warn("%s: %lld of %lld devices of cp=%lld %s no tokens while there %s %lld at a "
               "time, as in decoding; tp shares the work of a token",
               g->name, (long long)(cp - tokens), (long long)cp, (long long)cp,
               cp - tokens == 1 ? "has" : "have", tokens == 1 ? "is" : "are", (long long)tokens);
    else tell_units(g, "tokens", "cp", tokens, cp);
  }
}
