/* Reports what a strategy leaves idle: words without effect on a model, devices without a shard
 * of it or of the batch, and the share of padding if a degree does not divide. */
#include "model/strategy.h"

#include "base/log.h"

#include <stdio.h>

/* Words without effect. */
static void tell_words(const strategy *s, const lm *m) {
  int64_t rows = (s->zero_dp ? s->zero_dp : s->dp) * s->cp;
  if ((s->ep > 1 || s->etp > 1) && !m->c.moe.experts)
    log_warn("strategy: ep and etp have no effect: model_type %s has no experts (dp is %lld)",
             m->c.model_type, (long long)s->dp);
  if (s->sp && s->tp == 1) log_warn("strategy: sp has no effect: it shards over tp, and tp is 1");
  if (s->zero && rows == 1)
    log_warn("strategy: zero=%d has no effect: it shards over dp and cp, and %s", s->zero,
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
static void tell_units(const char *what, const char *by, int64_t units, int64_t parts) {
  char empty[64] = "", advice[64] = "";
  if (parts < 2 || units < 1) return;
  uneven u = count_idle(units, parts);
  if (u.padded < 0.01) return;
  if (u.empty)
    snprintf(empty, sizeof empty, "%lld of %lld %s none and ", (long long)u.empty, (long long)parts,
             u.empty == 1 ? "has" : "have");
  add_advice(units, parts, advice, sizeof advice);
  log_warn("strategy: %lld %s over %lld devices (%s): %s%.0f %% of the work on them is padding%s",
           (long long)units, what, (long long)parts, by, empty, 100 * u.padded, advice);
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

void strategy_tell_idle(const strategy *s, const lm *m) {
  const model_config *c = &m->c;
  bool cuts_experts = s->ep > 1 || s->etp > 1;
  const char *by;
  int64_t parts = count_head_shards(s, &by);
  tell_words(s, m);
  /* query heads stay with their key heads, as long as every device can have a key head */
  if (c->kv_heads >= parts) tell_units("heads of keys and values", by, c->kv_heads, parts);
  else tell_units("heads", by, c->heads, parts);
  if (c->moe.experts) tell_units("experts", "ep", c->moe.experts, s->ep);
  if (c->moe.experts && cuts_experts)
    tell_units("dims of an expert's MLP", "etp", c->moe.ffn, s->etp);
  else tell_units("dims of the MLP", "tp", c->moe.experts ? c->moe.ffn : c->ffn, s->tp);
  tell_units("ids of the vocabulary", "tp", c->vocab, s->tp);
}

void strategy_tell_tokens(const strategy *s, int64_t tokens) {
  tell_units("tokens", "cp", tokens, s->cp);
}

void strategy_tell_rows(const strategy *s, int64_t rows, int64_t tokens) {
  int64_t all = strategy_devices(s);
  uneven u = count_idle(rows < 1 ? 1 : rows, s->dp);
  if (s->dp > 1 && u.empty)
    log_warn("strategy: %lld of %lld devices %s no rows: %lld sequence%s at a time for dp=%lld; "
             "give %lld at a time, or share each by tp or cp",
             (long long)(u.empty * (all / s->dp)), (long long)all,
             u.empty * (all / s->dp) == 1 ? "has" : "have", (long long)rows, rows == 1 ? "" : "s",
             (long long)s->dp, (long long)s->dp);
  else if (s->dp > 1 && u.padded > 0)
    log_warn("strategy: %lld sequences over dp=%lld are padded to %lld: %.0f %% of the rows are "
             "idle; a multiple of %lld is not padded",
             (long long)rows, (long long)s->dp, (long long)(u.each * s->dp), 100 * u.padded,
             (long long)s->dp);
  if (tokens > 0 && tokens < s->cp)
    log_warn("strategy: %lld of %lld devices of cp=%lld %s no tokens while there %s %lld at a "
             "time, as in decoding; tp shares the work of a token",
             (long long)(s->cp - tokens), (long long)s->cp, (long long)s->cp,
             s->cp - tokens == 1 ? "has" : "have", tokens == 1 ? "is" : "are", (long long)tokens);
  else strategy_tell_tokens(s, tokens);
}
