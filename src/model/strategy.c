/* Parses strategies. */
#include "model/strategy.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { DEGREE_MAX = 1 << 20 };

static const char *const modes[CP_MODES] = {"ring", "allgather", "ulysses", "hybrid"};

/* A word with a degree, and its field. */
static const struct {
  const char *name;
  size_t at;
} degrees[] = {{"dp", offsetof(strategy, dp)},     {"tp", offsetof(strategy, tp)},
               {"tp_y", offsetof(strategy, tp_y)}, {"cp", offsetof(strategy, cp)},
               {"ep", offsetof(strategy, ep)},     {"etp", offsetof(strategy, etp)},
               {"pp", offsetof(strategy, pp)}};
enum { DEGREES = sizeof degrees / sizeof *degrees };

static const char *const words[] = {"dp", "tp", "tp_y", "cp", "ep", "etp", "zero", "sp", "pp"};
enum { WORDS = sizeof words / sizeof *words };

static hp_status refuse_word(const char *text, const char *key) {
  const char *near = str_nearest(key, words, WORDS);
  HP_FAIL(HP_ERR_ARG,
          "strategy \"%s\": \"%s\" is not known%s%s%s; expected dp=N, tp=N, tp_y=N, sp, "
          "cp=N:ring|allgather|ulysses|hybrid, ep=N, etp=N, pp=N or zero=0..3[:N]",
          text, key, near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static hp_status read_mode(const char *text, const char *word, strategy *s) {
  for (int i = 0; i < CP_MODES; i++)
    if (!strcmp(word, modes[i])) {
      s->mode = (cp_mode)i;
      return HP_OK;
    }
  const char *near = str_nearest(word, modes, CP_MODES);
  HP_FAIL(HP_ERR_ARG,
          "strategy \"%s\": \"%s\" is no mode of cp%s%s%s; expected ring, allgather, ulysses or "
          "hybrid",
          text, word, near ? ", did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static hp_status read_number(const char *text, const char *word, const char *value, int64_t least,
                             int64_t most, int64_t *out) {
  if (!value || !str_to_i64(value, out) || *out < least || *out > most)
    HP_FAIL(HP_ERR_ARG, "strategy \"%s\": \"%s\" is no degree; expected a number, %lld to %lld",
            text, word, (long long)least, (long long)most);
  return HP_OK;
}

/* A known word that has not occurred before: *seen has a bit for each that has. */
static hp_status check_word(const char *text, const char *key, unsigned *seen) {
  int w = 0;
  while (w < WORDS && strcmp(key, words[w])) w++;
  if (w == WORDS) return refuse_word(text, key);
  if (*seen >> w & 1) HP_FAIL(HP_ERR_ARG, "strategy \"%s\": \"%s\" occurs twice", text, key);
  *seen |= 1u << w;
  return HP_OK;
}

/* "tp=2", "cp=2:ring", "sp" */
static hp_status read_word(const char *text, const char *word, strategy *s, unsigned *seen) {
  char key[40], *value, *mode = NULL;
  int64_t n;
  snprintf(key, sizeof key, "%s", word);
  value = strchr(key, '=');
  if (value) *value++ = 0;
  if (value && (!strcmp(key, "cp") || !strcmp(key, "zero"))) mode = strchr(value, ':');
  if (mode) *mode++ = 0;
  HP_TRY(check_word(text, key, seen));
  if (!strcmp(key, "sp")) {
    n = 1;
    if (value) HP_TRY(read_number(text, word, value, 0, 1, &n));
    s->sp = n;
    return HP_OK;
  }
  if (!strcmp(key, "zero")) {
    HP_TRY(read_number(text, word, value, 0, 3, &n));
    s->zero = (int)n;
    return mode ? read_number(text, word, mode, 1, DEGREE_MAX, &s->zero_dp) : HP_OK;
  }
  for (int i = 0; i < DEGREES; i++)
    if (!strcmp(key, degrees[i].name)) {
      HP_TRY(read_number(text, word, value, 1, DEGREE_MAX,
                         (int64_t *)(void *)((char *)s + degrees[i].at)));
      return mode ? read_mode(text, mode, s) : HP_OK;
    }
  return HP_OK;
}

static hp_status read_words(const char *text, strategy *s) {
  char word[40];
  unsigned seen = 0;
  for (const char *at = text; at && *at;) {
    size_t n = strcspn(at, ", ");
    if (n >= sizeof word) HP_FAIL(HP_ERR_ARG, "strategy \"%.200s\": a word is too long", text);
    memcpy(word, at, n);
    word[n] = 0;
    if (n) HP_TRY(read_word(text, word, s, &seen));
    at += n + (at[n] != 0);
  }
  return HP_OK;
}

static int64_t find_common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

static int64_t mesh_devices(const strategy *s) { return s->dp * s->cp * s->tp * s->tp_y; }
int64_t strategy_devices(const strategy *s) { return s->pp * mesh_devices(s); }

/* Products of degrees stay far below 2^63, since each is checked. */
static hp_status check_product(const char *text, const strategy *s, int64_t devices) {
  int64_t n = 1;
  const int64_t each[] = {s->dp, s->cp, s->tp, s->tp_y, s->pp};
  for (int i = 0; i < 5 && n <= DEGREE_MAX; i++) n *= each[i];
  if (n > DEGREE_MAX || s->ep * s->etp > DEGREE_MAX)
    HP_FAIL(HP_ERR_ARG, "strategy \"%s\": more than %d devices", text, DEGREE_MAX);
  if (devices && n != devices)
    HP_FAIL(HP_ERR_ARG, "strategy \"%s\": pp x dp x cp x tp x tp_y is %lld devices, of %lld", text,
            (long long)n, (long long)devices);
  return HP_OK;
}

static hp_status check_axes(const char *text, const strategy *s) {
  strategy_axis axis[STRATEGY_AXES];
  int64_t devices = 1;
  int n = strategy_axes(s, axis);
  for (int i = 0; i < n; i++) devices *= axis[i].size;
  if (devices == mesh_devices(s)) return HP_OK;
  HP_FAIL(HP_ERR_UNSUPPORTED, "strategy \"%s\": needs more than %d axes of a mesh", text,
          STRATEGY_AXES);
}

hp_status strategy_parse(const char *text, int64_t devices, strategy *out) {
  strategy s = {.dp = 1, .tp = 1, .tp_y = 1, .cp = 1, .ep = 1, .etp = 1, .pp = 1};
  if (devices < 0 || devices > DEGREE_MAX)
    HP_FAIL(HP_ERR_ARG, "%lld devices; 1 to %d are possible", (long long)devices, DEGREE_MAX);
  if (!text && devices) s.dp = devices;
  HP_TRY(read_words(text, &s));
  text = text ? text : "";
  HP_TRY(check_product(text, &s, 0));
  int64_t experts = s.ep * s.etp;
  s.dp *= experts / find_common_divisor(experts, mesh_devices(&s));
  HP_TRY(check_product(text, &s, devices));
  if (s.pp > STRATEGY_PIPELINE)
    HP_FAIL(HP_ERR_ARG, "strategy \"%s\": pp=%lld; at most %d are possible", text, (long long)s.pp,
            STRATEGY_PIPELINE);
  if (s.zero_dp && s.dp % s.zero_dp)
    HP_FAIL(HP_ERR_ARG, "strategy \"%s\": dp=%lld is not divided by zero's %lld", text,
            (long long)s.dp, (long long)s.zero_dp);
  HP_TRY(check_axes(text, &s));
  *out = s;
  return HP_OK;
}
