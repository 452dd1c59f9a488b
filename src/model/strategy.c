#include "model/strategy.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { DEGREE_MAX = 1 << 20 };

/* --- words --------------------------------------------------------------------------------------
 */

static const char *const not_built[] = {"tp_y", "sp", "cp", "ep", "etp", "pp"};
static const char *const words[] = {"dp", "tp", "zero", "tp_y", "sp", "cp", "ep", "etp", "pp"};

static hp_status bad_word(const char *text, const char *key) {
  for (size_t i = 0; i < sizeof not_built / sizeof *not_built; i++)
    if (!strcmp(key, not_built[i]))
      HP_FAIL(HP_ERR_UNSUPPORTED, "strategy \"%s\": %s is not built; dp, tp and zero are", text,
              key);
  const char *near = str_nearest(key, words, sizeof words / sizeof *words);
  HP_FAIL(HP_ERR_ARG,
          "strategy \"%s\": \"%s\" is not known%s%s%s; expected dp=N, tp=N or zero=0..3", text, key,
          near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* "tp=2" */
static hp_status read_word(const char *text, const char *word, strategy *s) {
  char key[32];
  int64_t n;
  const char *equals = strchr(word, '=');
  size_t len = equals ? (size_t)(equals - word) : strlen(word);
  snprintf(key, sizeof key, "%.*s", (int)(len < sizeof key ? len : sizeof key - 1), word);
  bool zero = !strcmp(key, "zero"), known = zero || !strcmp(key, "dp") || !strcmp(key, "tp");
  if (!known) return bad_word(text, key);
  if (!equals || !str_to_i64(equals + 1, &n) || n < (zero ? 0 : 1) || n > (zero ? 3 : DEGREE_MAX))
    HP_FAIL(HP_ERR_ARG, "strategy \"%s\": \"%s\" is no degree; expected %s=%s", text, word, key,
            zero ? "0..3" : "1..1048576");
  if (zero) s->zero = (int)n;
  else *(*key == 'd' ? &s->dp : &s->tp) = n;
  return HP_OK;
}

hp_status strategy_parse(const char *text, int64_t devices, strategy *out) {
  strategy s = {.dp = 1, .tp = 1};
  char word[32];
  if (devices < 0 || devices > DEGREE_MAX)
    HP_FAIL(HP_ERR_ARG, "%lld devices; 1 to %d are possible", (long long)devices, DEGREE_MAX);
  if (!text && devices) s.dp = devices;
  for (const char *at = text; at && *at;) {
    size_t n = strcspn(at, ", ");
    if (n >= sizeof word) HP_FAIL(HP_ERR_ARG, "strategy \"%.200s\": a word is too long", text);
    memcpy(word, at, n);
    word[n] = 0;
    if (n) HP_TRY(read_word(text, word, &s));
    at += n + (at[n] != 0);
  }
  if (s.dp * s.tp > DEGREE_MAX || (devices && s.dp * s.tp != devices))
    HP_FAIL(HP_ERR_ARG, "strategy \"%s\": dp x tp is %lld devices, of %lld", text ? text : "",
            (long long)(s.dp * s.tp), (long long)(devices ? devices : DEGREE_MAX));
  *out = s;
  return HP_OK;
}

const char *strategy_mesh(const strategy *s, char text[64]) {
  if (s->dp * s->tp == 1) return NULL;
  snprintf(text, 64, "(%lld,%lld)(dp,tp)", (long long)s->dp, (long long)s->tp);
  return text;
}

/* --- layouts ------------------------------------------------------------------------------------
 */

static bool ends_with(const char *name, const char *end) {
  size_t n = strlen(name), k = strlen(end);
  return n >= k && !strcmp(name + n - k, end);
}

/* The dim of a param that tensor parallelism cuts; -1: none. */
static int tensor_dim(const model_family *f, const model_param *p) {
  for (const tensor_cut *c = f->cuts; c && c->ends; c++)
    if (ends_with(p->name, c->ends) && c->dim < p->shape.rank) return c->dim;
  return -1;
}

/* One entry a dim: tp where the family says so, dp on the first dim that it divides. */
static void entries_of(const strategy *s, const model_param *p, int tensor, bool over_dp,
                       str *out) {
  bool dp_open = over_dp && s->dp > 1;
  str_add(out, "(");
  for (int d = 0; d < p->shape.rank; d++) {
    int64_t left = p->shape.dim[d];
    bool tp = d == tensor && s->tp > 1 && left % s->tp == 0;
    if (tp) left /= s->tp;
    bool dp = dp_open && left % s->dp == 0;
    if (dp) dp_open = false;
    str_printf(out, "%s%s", d ? "," : "", tp && dp ? "(tp,dp)" : tp ? "tp" : dp ? "dp" : "None");
  }
  str_add(out, ")");
}

static hp_status declare(hp_device *d, const char *name, const str *entries) {
  HP_TRY(str_status(entries));
  return hp_device_layout(d, name, entries->at, true);
}

/* A param, and its optimizer state: "m.NAME", "v.NAME", "buffer.NAME". */
static hp_status declare_param(const strategy *s, const lm *m, hp_device *d, const model_param *p) {
  str own = {0}, state = {0}, name = {0};
  int tensor = tensor_dim(m->c.family, p);
  entries_of(s, p, tensor, s->zero >= 3, &own);
  entries_of(s, p, tensor, s->zero >= 1, &state);
  str_printf(&name, "*.%s", p->name);
  hp_status st = declare(d, p->name, &own);
  if (!st) st = str_status(&name);
  if (!st) st = declare(d, name.at, &state);
  str_free(&own);
  str_free(&state);
  str_free(&name);
  return st;
}

hp_status strategy_apply(const strategy *s, const lm *m, hp_device *d) {
  static const char *const rows[] = {"ids", "positions", "labels", "span"};
  if (s->dp * s->tp == 1) return HP_OK;
  for (size_t i = 0; i < m->params.len; i++) HP_TRY(declare_param(s, m, d, &m->params.at[i]));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    HP_TRY(hp_device_layout(d, rows[i], ends_with(rows[i], "span") ? "(dp,None,None)" : "(dp,None)",
                            true));
  return hp_device_layout(d, "cache.*", "(dp,None,tp,None)", true);
}
