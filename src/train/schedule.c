#include "train/schedule.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(id, name) name,
    SCHEDULE_KINDS(X)
#undef X
};

const char *schedule_name(schedule_kind k) { return names[k]; }

schedule_kind schedule_find(const char *name) {
  for (int k = 0; k < SCHEDULE_COUNT; k++)
    if (!strcmp(names[k], name)) return (schedule_kind)k;
  return SCHEDULE_COUNT;
}

bool schedule_follows_metric(schedule_kind k) {
  return k == SCHEDULE_REDUCE_LR_ON_PLATEAU || k == SCHEDULE_GREEDY;
}

int64_t schedule_warmup_steps(double given, int64_t total) {
  double steps = given >= 1 ? trunc(given) : ceil((double)total * given);
  return steps < 9e15 ? (int64_t)steps : INT64_C(9000000000000000);
}

/* --- arguments: one row per kind and key ------------------------------------------------------ */

typedef enum { ARG_NUMBER, ARG_COUNT, ARG_FLAG, ARG_CURVE, ARG_MODE, ARG_THRESHOLD } arg_type;
typedef struct {
  schedule_kind kind;
  const char *key;
  arg_type type;
  size_t offset;
  double otherwise; /* the default; NAN: none */
  double least, most;
  bool open_end; /* most itself is out of range */
} arg_row;

#define AT(field) offsetof(schedule, field)
static const arg_row rows[] = {
    {SCHEDULE_COSINE, "num_cycles", ARG_NUMBER, AT(num_cycles), 0.5, -1e9, 1e9, false},
    {SCHEDULE_COSINE_WITH_RESTARTS, "num_cycles", ARG_NUMBER, AT(num_cycles), 1, 0, 1e9, false},
    {SCHEDULE_POLYNOMIAL, "lr_end", ARG_NUMBER, AT(lr_end), 1e-7, 0, 1e9, false},
    {SCHEDULE_POLYNOMIAL, "power", ARG_NUMBER, AT(power), 1, 0, 1e9, false},
    {SCHEDULE_INVERSE_SQRT, "timescale", ARG_COUNT, AT(timescale), NAN, 1, 1e15, false},
    {SCHEDULE_COSINE_WITH_MIN_LR, "num_cycles", ARG_NUMBER, AT(num_cycles), 0.5, -1e9, 1e9, false},
    {SCHEDULE_COSINE_WITH_MIN_LR, "min_lr", ARG_NUMBER, AT(min_lr), NAN, 0, 1e9, false},
    {SCHEDULE_COSINE_WITH_MIN_LR, "min_lr_rate", ARG_NUMBER, AT(min_lr_rate), NAN, 0, 1e9, false},
    {SCHEDULE_COSINE_WARMUP_WITH_MIN_LR, "num_cycles", ARG_NUMBER, AT(num_cycles), 0.5, -1e9, 1e9,
     false},
    {SCHEDULE_COSINE_WARMUP_WITH_MIN_LR, "min_lr", ARG_NUMBER, AT(min_lr), NAN, 0, 1e9, false},
    {SCHEDULE_COSINE_WARMUP_WITH_MIN_LR, "min_lr_rate", ARG_NUMBER, AT(min_lr_rate), NAN, 0, 1e9,
     false},
    {SCHEDULE_COSINE_WARMUP_WITH_MIN_LR, "warmup_lr_rate", ARG_NUMBER, AT(warmup_lr_rate), NAN, 0,
     1e9, false},
    {SCHEDULE_WARMUP_STABLE_DECAY, "num_decay_steps", ARG_COUNT, AT(num_decay_steps), NAN, 0, 1e15,
     false},
    {SCHEDULE_WARMUP_STABLE_DECAY, "num_stable_steps", ARG_COUNT, AT(num_stable_steps), NAN, 0,
     1e15, false},
    {SCHEDULE_WARMUP_STABLE_DECAY, "warmup_type", ARG_CURVE, AT(warmup_type), CURVE_LINEAR, 0, 0,
     false},
    {SCHEDULE_WARMUP_STABLE_DECAY, "decay_type", ARG_CURVE, AT(decay_type), CURVE_COSINE, 0, 0,
     false},
    {SCHEDULE_WARMUP_STABLE_DECAY, "min_lr_ratio", ARG_NUMBER, AT(min_lr_ratio), 0, 0, 1e9, false},
    {SCHEDULE_WARMUP_STABLE_DECAY, "num_cycles", ARG_NUMBER, AT(num_cycles), 0.5, -1e9, 1e9, false},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "mode", ARG_MODE, AT(maximize), 0, 0, 0, false},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "factor", ARG_NUMBER, AT(factor), 0.1, 0, 1, true},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "patience", ARG_COUNT, AT(patience), 10, 0, 1e15, false},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "threshold", ARG_NUMBER, AT(threshold), 1e-4, -1e9, 1e9, false},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "threshold_mode", ARG_THRESHOLD, AT(absolute), 0, 0, 0, false},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "cooldown", ARG_COUNT, AT(cooldown), 0, 0, 1e15, false},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "min_lr", ARG_NUMBER, AT(min_lr), 0, 0, 1e9, false},
    {SCHEDULE_REDUCE_LR_ON_PLATEAU, "eps", ARG_NUMBER, AT(eps), 1e-8, 0, 1e9, false},
    {SCHEDULE_GREEDY, "mode", ARG_MODE, AT(maximize), 0, 0, 0, false},
    {SCHEDULE_GREEDY, "factor", ARG_NUMBER, AT(factor), 0.95, 1e-9, 1, true},
    {SCHEDULE_GREEDY, "patience", ARG_COUNT, AT(patience), 10, 0, 1e15, false},
    {SCHEDULE_GREEDY, "threshold", ARG_NUMBER, AT(threshold), 1e-6, -1e9, 1e9, false},
    {SCHEDULE_GREEDY, "threshold_mode", ARG_THRESHOLD, AT(absolute), 1, 0, 0, false},
    {SCHEDULE_GREEDY, "cooldown", ARG_COUNT, AT(cooldown), 0, 0, 1e15, false},
    {SCHEDULE_GREEDY, "warmup", ARG_COUNT, AT(rest), 0, 0, 1e15, false},
    {SCHEDULE_GREEDY, "min_lr", ARG_NUMBER, AT(min_lr), 1e-3, 0, 1e9, false},
    {SCHEDULE_GREEDY, "max_lr", ARG_NUMBER, AT(max_lr), 1, 0, 1e9, false},
    {SCHEDULE_GREEDY, "eps", ARG_NUMBER, AT(eps), 1e-8, 0, 1e9, false},
    {SCHEDULE_GREEDY, "smooth", ARG_FLAG, AT(smooth), 0, 0, 1, false},
    {SCHEDULE_GREEDY, "window_size", ARG_COUNT, AT(window_size), 50, 1, 1e6, false},
    {SCHEDULE_GREEDY, "reset_start", ARG_COUNT, AT(reset_start), 500, -1e15, 1e15, false},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* The words of an argument that is a text; a word's place is its value. */
static const char *const *words_of(arg_type t, int *n) {
  static const char *const curve[] = {"linear", "cosine", "1-sqrt"};
  static const char *const mode[] = {"min", "max"};
  static const char *const threshold[] = {"rel", "abs"};
  *n = t == ARG_CURVE ? 3 : 2;
  return t == ARG_CURVE ? curve : t == ARG_MODE ? mode : threshold;
}

static bool is_text(arg_type t) { return t >= ARG_CURVE; }

static void store(schedule *s, const arg_row *r, double value) {
  void *at = (char *)s + r->offset;
  if (r->type == ARG_CURVE) *(schedule_curve *)at = (schedule_curve)value;
  else if (is_text(r->type)) *(bool *)at = value != 0;
  else *(double *)at = value;
}

static hp_status unknown_arg(schedule_kind kind, const char *key) {
  const char *known[ROWS];
  size_t n = 0;
  str list = {0};
  for (int i = 0; i < ROWS; i++)
    if (rows[i].kind == kind) {
      known[n++] = rows[i].key;
      str_printf(&list, "%s%s", list.len ? ", " : "", rows[i].key);
    }
  const char *near = str_nearest(key, known, n);
  hp_status st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                         "lr_scheduler_kwargs: schedule %s has no argument \"%s\"%s%s%s; it has %s",
                         names[kind], key, near ? " (did you mean \"" : "", near ? near : "",
                         near ? "\"?)" : "", list.len ? list.at : "none");
  str_free(&list);
  return st;
}

static hp_status set_word(schedule *s, const arg_row *r, const schedule_arg *a) {
  int n;
  const char *const *word = words_of(r->type, &n);
  for (int i = 0; i < n && a->text; i++)
    if (!strcmp(word[i], a->text)) {
      store(s, r, i);
      return HP_OK;
    }
  HP_FAIL(HP_ERR_ARG, "lr_scheduler_kwargs: %s is %s, expected %s%s%s or %s", a->key,
          a->text ? a->text : "a number", word[0], n > 2 ? ", " : "", n > 2 ? word[1] : "",
          word[n - 1]);
}

static bool in_range(const arg_row *r, double x) {
  if (r->type != ARG_NUMBER && x != floor(x)) return false;
  return x >= r->least && x <= r->most && !(r->open_end && x == r->most);
}

static hp_status set_arg(schedule *s, const schedule_arg *a) {
  const arg_row *r = NULL;
  for (int i = 0; i < ROWS && !r; i++)
    if (rows[i].kind == s->kind && !strcmp(rows[i].key, a->key)) r = &rows[i];
  if (!r) return unknown_arg(s->kind, a->key);
  if (is_text(r->type)) return set_word(s, r, a);
  if (a->text)
    HP_FAIL(HP_ERR_ARG, "lr_scheduler_kwargs: %s is \"%s\", expected a number", a->key, a->text);
  if (!in_range(r, a->number))
    HP_FAIL(HP_ERR_ARG, "lr_scheduler_kwargs: %s is %.17g, expected a %snumber from %g to %s%g",
            a->key, a->number, r->type == ARG_NUMBER ? "" : "whole ", r->least,
            r->open_end ? "below " : "", r->most);
  store(s, r, a->number);
  return HP_OK;
}

static hp_status check_together(schedule *s) {
  bool has_min =
      s->kind == SCHEDULE_COSINE_WITH_MIN_LR || s->kind == SCHEDULE_COSINE_WARMUP_WITH_MIN_LR;
  if (has_min && isnan(s->min_lr) == isnan(s->min_lr_rate))
    HP_FAIL(HP_ERR_ARG, "lr_scheduler_kwargs: schedule %s needs one of min_lr and min_lr_rate, %s",
            names[s->kind], isnan(s->min_lr) ? "and has none" : "not both");
  if (has_min && !isnan(s->min_lr)) s->min_lr_rate = s->min_lr / s->lr;
  if (s->kind == SCHEDULE_POLYNOMIAL && !(s->lr > s->lr_end))
    HP_FAIL(HP_ERR_ARG,
            "lr_scheduler_kwargs: lr_end is %g, expected less than learning_rate, which is %g",
            s->lr_end, s->lr);
  return HP_OK;
}

/* What is not given is LlamaFactory's: a third of the steps after the warm-up stable, the rest
 * decay. */
static void fill_stable_decay(schedule *s) {
  double left = (double)(s->total - s->warmup), stable = floor(left / 3);
  if (isnan(s->num_stable_steps)) s->num_stable_steps = stable;
  if (isnan(s->num_decay_steps)) s->num_decay_steps = left - stable;
}

static void reset(schedule *s) {
  s->now = s->lr;
  s->best = s->maximize ? -INFINITY : INFINITY;
  s->good = s->bad = s->cooling = s->resting = 0;
  s->until_reset = (int64_t)s->reset_start;
  s->sum = 0;
  s->window.len = 0;
}

hp_status schedule_create(schedule_kind kind, double lr, int64_t warmup, int64_t total,
                          const schedule_arg *arg, size_t n, schedule *out) {
  schedule s = {.kind = kind, .lr = lr, .warmup = warmup, .total = total};
  for (int i = 0; i < ROWS; i++)
    if (rows[i].kind == kind) store(&s, &rows[i], rows[i].otherwise);
  for (size_t i = 0; i < n; i++) HP_TRY(set_arg(&s, &arg[i]));
  HP_TRY(check_together(&s));
  if (kind == SCHEDULE_INVERSE_SQRT && isnan(s.timescale))
    s.timescale = warmup ? (double)warmup : 10000;
  if (kind == SCHEDULE_WARMUP_STABLE_DECAY) fill_stable_decay(&s);
  reset(&s);
  *out = s;
  return HP_OK;
}

void schedule_free(schedule *s) {
  if (s) vec_free(&s->window);
}

/* --- functions of the step -------------------------------------------------------------------- */

static double at_least_1(double x) { return x > 1 ? x : 1; }
static double not_below_0(double x) { return x > 0 ? x : 0; }

/* 1 - sqrt is what Transformers calls "1-sqrt": rising as 1 - sqrt(1 - x), falling as 1 - sqrt(x).
 */
static double rising(schedule_curve c, double x) {
  return c == CURVE_LINEAR   ? x
         : c == CURVE_COSINE ? 0.5 * (1.0 - cos(M_PI * x))
                             : 1.0 - sqrt(1.0 - x);
}

static double falling(schedule_curve c, double cycles, double x) {
  return c == CURVE_LINEAR   ? 1.0 - x
         : c == CURVE_COSINE ? 0.5 * (1.0 + cos(M_PI * cycles * 2.0 * x))
                             : 1.0 - sqrt(x);
}

static double stable_decay(const schedule *s, double step, double warmup) {
  double lift = 1.0 - s->min_lr_ratio;
  if (step < warmup)
    return not_below_0(rising(s->warmup_type, step / at_least_1(warmup)) * lift + s->min_lr_ratio);
  if (step < warmup + s->num_stable_steps) return 1.0;
  if (step >= warmup + s->num_stable_steps + s->num_decay_steps) return s->min_lr_ratio;
  double x = (step - warmup - s->num_stable_steps) / at_least_1(s->num_decay_steps);
  return not_below_0(falling(s->decay_type, s->num_cycles, x) * lift + s->min_lr_ratio);
}

static double polynomial(const schedule *s, double step, double warmup, double total) {
  if (step > total || total <= warmup) return s->lr_end / s->lr;
  double left = 1 - (step - warmup) / (total - warmup);
  double decay = (s->lr - s->lr_end) * pow(left, s->power) + s->lr_end;
  return decay / s->lr;
}

/* This one starts above 0 and reaches its least at the last step, not after it. */
static double cosine_warmup_min(const schedule *s, double step, double warmup, double total) {
  if (step < warmup && isnan(s->warmup_lr_rate)) return (step + 1.0) / at_least_1(warmup);
  if (step < warmup)
    return s->warmup_lr_rate + (1.0 - s->warmup_lr_rate) * step / at_least_1(warmup - 1);
  double progress = (step - warmup + 1.0) / at_least_1(total - warmup);
  double factor = 0.5 * (1.0 + cos(M_PI * s->num_cycles * 2.0 * progress));
  return not_below_0(factor * (1 - s->min_lr_rate) + s->min_lr_rate);
}

static double multiplier(const schedule *s, int64_t at) {
  double step = (double)at, warmup = (double)s->warmup, total = (double)s->total;
  if (s->kind == SCHEDULE_CONSTANT) return 1;
  if (s->kind == SCHEDULE_WARMUP_STABLE_DECAY) return stable_decay(s, step, warmup);
  if (s->kind == SCHEDULE_COSINE_WARMUP_WITH_MIN_LR)
    return cosine_warmup_min(s, step, warmup, total);
  if (step < warmup) return step / at_least_1(warmup);
  if (s->kind == SCHEDULE_CONSTANT_WITH_WARMUP) return 1;
  if (s->kind == SCHEDULE_LINEAR) return not_below_0((total - step) / at_least_1(total - warmup));
  if (s->kind == SCHEDULE_POLYNOMIAL) return polynomial(s, step, warmup, total);
  if (s->kind == SCHEDULE_INVERSE_SQRT)
    return 1.0 / sqrt((step + (s->timescale - warmup)) / s->timescale);
  double progress = (step - warmup) / at_least_1(total - warmup);
  if (s->kind == SCHEDULE_COSINE_WITH_RESTARTS)
    return progress >= 1.0
               ? 0
               : not_below_0(0.5 * (1.0 + cos(M_PI * fmod(s->num_cycles * progress, 1.0))));
  double factor = 0.5 * (1.0 + cos(M_PI * s->num_cycles * 2.0 * progress));
  if (s->kind == SCHEDULE_COSINE_WITH_MIN_LR)
    factor = factor * (1 - s->min_lr_rate) + s->min_lr_rate;
  return not_below_0(factor);
}

double schedule_lr(const schedule *s, int64_t step) {
  return schedule_follows_metric(s->kind) ? s->now : s->lr * multiplier(s, step);
}

/* --- followers of a metric -------------------------------------------------------------------- */

static bool is_better(const schedule *s, double x) {
  if (s->maximize)
    return x > (s->absolute ? s->best + s->threshold : s->best * (1.0 + s->threshold));
  return x < (s->absolute ? s->best - s->threshold : s->best * (1.0 - s->threshold));
}

static double larger(double a, double b) { return b > a ? b : a; }
static double smaller(double a, double b) { return b < a ? b : a; }

static void observe_plateau(schedule *s, double x) {
  if (is_better(s, x)) {
    s->best = x;
    s->bad = 0;
  } else {
    s->bad++;
  }
  if (s->cooling > 0) {
    s->cooling--;
    s->bad = 0;
  }
  if ((double)s->bad <= s->patience) return;
  double lower = larger(s->now * s->factor, s->min_lr);
  if (s->now - lower > s->eps) s->now = lower;
  s->cooling = (int64_t)s->cooldown;
  s->bad = 0;
}

/* Mean of the last window_size values, from a running sum as Transformers keeps it. */
static hp_status smoothed(schedule *s, double *x) {
  if (!vec_push(&s->window, *x)) return HP_ERR_OOM;
  s->sum += *x;
  if ((double)s->window.len > s->window_size) {
    s->sum -= s->window.at[0];
    s->window.len--;
    memmove(s->window.at, s->window.at + 1, s->window.len * sizeof *s->window.at);
  }
  *x = s->sum / (double)s->window.len;
  return HP_OK;
}

static void greedy_down(schedule *s) {
  double lower = larger(s->now * s->factor, s->min_lr);
  if (s->now - lower > s->eps) s->now = lower;
  s->cooling = (int64_t)s->cooldown;
  if (s->now <= s->min_lr && --s->until_reset <= 0) {
    reset(s);
    s->cooling = (int64_t)s->cooldown; /* set after the reset by Transformers too */
  }
  s->bad = 0;
}

static void greedy_up(schedule *s) {
  double higher = smaller(s->now / s->factor, s->max_lr);
  if (higher - s->now > s->eps) s->now = higher;
  s->until_reset = (int64_t)s->reset_start;
  s->resting = (int64_t)s->rest;
  s->good = 0;
}

static void observe_greedy(schedule *s, double x) {
  if (s->cooling > 0 || s->resting > 0) {
    if (s->cooling > 0) s->cooling--;
    else s->resting--;
    s->bad = s->good = 0;
    return;
  }
  if (is_better(s, x)) {
    s->best = x;
    s->bad = 0;
    s->good++;
  } else {
    s->bad++;
    s->good = 0;
  }
  if ((double)s->good > s->patience) greedy_up(s);
  else if ((double)s->bad > s->patience) greedy_down(s);
}

hp_status schedule_observe(schedule *s, double metric) {
  if (s->kind == SCHEDULE_REDUCE_LR_ON_PLATEAU) observe_plateau(s, metric);
  if (s->kind != SCHEDULE_GREEDY) return HP_OK;
  if (s->smooth != 0) HP_TRY(smoothed(s, &metric));
  observe_greedy(s, metric);
  return HP_OK;
}

/* --- state ------------------------------------------------------------------------------------ */

void schedule_print_state(const schedule *s, str *out) {
  str_add(out, names[s->kind]);
  if (!schedule_follows_metric(s->kind)) return;
  str_printf(out, " %a %a %a %lld %lld %lld %lld %lld %zu", s->now, s->best, s->sum,
             (long long)s->good, (long long)s->bad, (long long)s->cooling, (long long)s->resting,
             (long long)s->until_reset, s->window.len);
  for (size_t i = 0; i < s->window.len; i++) str_printf(out, " %a", s->window.at[i]);
}

static bool take_double(const char **p, double *out) {
  char *end;
  *out = strtod(*p, &end);
  bool ok = end != *p;
  *p = end;
  return ok;
}

static bool take_int(const char **p, int64_t *out) {
  char *end;
  *out = strtoll(*p, &end, 10);
  bool ok = end != *p;
  *p = end;
  return ok;
}

static hp_status parse_numbers(schedule *s, const char *p) {
  int64_t n;
  bool ok = take_double(&p, &s->now) && take_double(&p, &s->best) && take_double(&p, &s->sum) &&
            take_int(&p, &s->good) && take_int(&p, &s->bad) && take_int(&p, &s->cooling) &&
            take_int(&p, &s->resting) && take_int(&p, &s->until_reset) && take_int(&p, &n) &&
            n >= 0 && n <= (s->kind == SCHEDULE_GREEDY ? (int64_t)s->window_size : 0);
  if (!ok) HP_FAIL(HP_ERR_INPUT, "the state of schedule %s is damaged", names[s->kind]);
  s->window.len = 0;
  for (double x; n > 0; n--) {
    if (!take_double(&p, &x))
      HP_FAIL(HP_ERR_INPUT, "the state of schedule %s is truncated", names[s->kind]);
    if (!vec_push(&s->window, x)) return HP_ERR_OOM;
  }
  if (*p) HP_FAIL(HP_ERR_INPUT, "the state of schedule %s has data after its end", names[s->kind]);
  return HP_OK;
}

hp_status schedule_parse_state(schedule *s, const char *text) {
  size_t n = strlen(names[s->kind]);
  bool follows = schedule_follows_metric(s->kind);
  if (strncmp(text, names[s->kind], n) || text[n] != (follows ? ' ' : 0))
    HP_FAIL(HP_ERR_INPUT, "the state is of another schedule than %s: \"%.40s\"", names[s->kind],
            text);
  return follows ? parse_numbers(s, text + n) : HP_OK;
}
