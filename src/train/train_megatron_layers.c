#include "train/train_megatron_layers.h"

#include "base/str.h"

#include <string.h>
#include <strings.h>

enum { STAGES_MAX = 4096, LETTERS_MAX = 1 << 20 };

/* --- the layout ------------------------------------------------------------------------------- */

/* A layout as letters: E embedding, t layer, L loss, | the end of a stage. */
typedef struct {
  const tree_node *at;
  const char *text; /* what is parsed */
  str out;
} letters;

static hp_status refuse(const letters *l, const char *where, const char *expected) {
  TREE_FAIL(l->at, "character %zu of \"%.60s\": %s", (size_t)(where - l->text) + 1, l->text,
            expected);
}

/* The n of *n behind an item; 1: there is none. */
static hp_status read_times(const letters *l, const char **at, size_t *times) {
  const char *p = *at;
  *times = 1;
  if (*p != '*') return HP_OK;
  if (p[1] < '0' || p[1] > '9') return refuse(l, p + 1, "expected a number behind *");
  for (*times = 0, p++; *p >= '0' && *p <= '9'; p++) {
    *times = *times * 10 + (size_t)(*p - '0');
    if (*times > LETTERS_MAX) return refuse(l, p, "the number is too large");
  }
  *at = p;
  return HP_OK;
}

/* Repeats what was added behind `from`. */
static hp_status repeat(letters *l, const char *where, size_t from, size_t times) {
  const size_t n = l->out.len - from;
  if (n * times + from > LETTERS_MAX) return refuse(l, where, "the layout is too long");
  if (!times) l->out.len = from;
  for (size_t i = 1; i < times; i++)
    for (size_t k = 0; k < n; k++) str_add_char(&l->out, l->out.at[from + k]);
  return str_status(&l->out);
}

static hp_status read_letter(letters *l, const char *p) {
  if (*p == 'm')
    return refuse(l, p, "layers of multi-token prediction are not trained; leave m out");
  if (!*p || !strchr("EtL|", *p))
    return refuse(l, p, "expected E (embedding), t (layer), L (loss), | or (...)*n");
  str_add_char(&l->out, *p);
  return str_status(&l->out);
}

/* Items up to the end, or the ) of a group, which have no groups inside. */
static hp_status read_items(letters *l, const char **at, bool inside) {
  const char *p = *at;
  while (*p && !(inside && *p == ')')) {
    size_t from = l->out.len, times;
    const char *item = p;
    if (*p == ',' || *p == ' ') {
      p++;
      continue;
    }
    if (*p == '(' && !inside) {
      p++;
      HP_TRY(read_items(l, &p, true));
      if (*p != ')') return refuse(l, item, "this ( has no )");
      if (p[1] != '*') return refuse(l, p, "expected *n behind )");
    } else {
      HP_TRY(read_letter(l, p));
    }
    p++;
    HP_TRY(read_times(l, &p, &times));
    HP_TRY(repeat(l, item, from, times));
  }
  *at = p;
  return HP_OK;
}

/* [[embedding, decoder], [decoder, loss]] */
static hp_status read_lists(letters *l) {
  static const struct {
    const char *name;
    char letter;
  } kinds[] = {{"embedding", 'E'}, {"decoder", 't'}, {"loss", 'L'}};
  for (uint32_t i = 0; i < l->at->len; i++) {
    const tree_node *stage = l->at->child[i];
    HP_TRY(tree_expect(stage, TREE_LIST));
    if (i) str_add_char(&l->out, '|');
    for (uint32_t k = 0; k < stage->len; k++) {
      const char *name;
      size_t kind = 0;
      HP_TRY(tree_as_string(stage->child[k], &name));
      while (kind < 3 && strcasecmp(name, kinds[kind].name)) kind++;
      if (kind == 3)
        TREE_FAIL(stage->child[k], "\"%.40s\"; expected embedding, decoder or loss", name);
      str_add_char(&l->out, kinds[kind].letter);
    }
  }
  return str_status(&l->out);
}

/* Layers of each stage: E begins the first, and L ends the last. */
static hp_status count_layers(train_config *c, const tree_node *at, const str *s) {
  size_t stages = 1;
  for (size_t i = 0; i < s->len; i++) {
    stages += s->at[i] == '|';
    if (s->at[i] == 'E' && i) TREE_FAIL(at, "an embedding that is not at its beginning");
    if (s->at[i] == 'L' && i + 1 < s->len) TREE_FAIL(at, "a loss that is not at its end");
  }
  if (!s->len || s->at[0] != 'E') TREE_FAIL(at, "expected E, the embedding, at its beginning");
  if (s->at[s->len - 1] != 'L') TREE_FAIL(at, "expected L, the loss, at its end");
  if (stages < 2 || stages > STAGES_MAX)
    TREE_FAIL(at, "%zu stages; expected 2 to %d, with | between them", stages, STAGES_MAX);
  int64_t *cut = arena_alloc(&c->mem, stages, sizeof *cut);
  HP_TRY_MEM(cut);
  memset(cut, 0, stages * sizeof *cut);
  for (size_t i = 0, stage = 0; i < s->len; i++) {
    stage += s->at[i] == '|';
    cut[stage] += s->at[i] == 't';
  }
  if (c->is.pipe_stages && c->is.pipe_stages != (int64_t)stages)
    TREE_FAIL(at, "%zu stages, which contradicts %lld (%s)", stages, (long long)c->is.pipe_stages,
              tree_where(c->is.pipe_cut_at ? c->is.pipe_cut_at
                                           : tree_get(c->parallel.pipeline, "stages"))
                  .text);
  if (c->is.pipe_cut && memcmp(c->is.pipe_cut, cut, stages * sizeof *cut))
    TREE_FAIL(at, "contradicts %s; keep one of them", tree_where(c->is.pipe_cut_at).text);
  c->is.pipe_stages = (int64_t)stages;
  c->is.pipe_cut = cut;
  c->is.pipe_cut_at = at;
  return HP_OK;
}

hp_status train_megatron_layout(train_config *c) {
  letters l = {.at = c->at[KEY_pipeline_model_parallel_layout]};
  hp_status st;
  if (!l.at || l.at->kind == TREE_NULL) return HP_OK;
  if (l.at->kind == TREE_LIST) {
    st = read_lists(&l);
  } else {
    HP_TRY(tree_as_string(l.at, &l.text));
    const char *p = l.text;
    st = read_items(&l, &p, false);
  }
  if (!st) st = count_layers(c, l.at, &l.out);
  str_free(&l.out);
  return st;
}

/* --- against the strategy --------------------------------------------------------------------- */

static int64_t devices_of(const train_config *c) { return c->is.place.group[0].by.pp; }

static hp_status need_pipeline(const train_config *c, int key, const char *what) {
  if (devices_of(c) > 1) return HP_OK;
  TREE_FAIL(c->at[key], "%s without a pipeline; write pipeline_model_parallel_size: 2", what);
}

/* The key or the number of stages that says already how layers are cut; NULL: none does. */
static const tree_node *find_stages(const train_config *c) {
  const tree_node *virtual = c->at[KEY_virtual_pipeline_model_parallel_size];
  if (c->is.pipe_cut_at) return c->is.pipe_cut_at;
  return virtual ? virtual : tree_get(c->parallel.pipeline, "stages");
}

static hp_status contradicts(const tree_node *at, const tree_node *other) {
  TREE_FAIL(at, "contradicts %s; keep one of them", tree_where(other).text);
}

/* Stages of each device in the order of layers: device d has stages d, pp + d, and so on. */
static hp_status decide_uneven(train_config *c) {
  const tree_node *first = c->at[KEY_decoder_first_pipeline_num_layers];
  const tree_node *last = c->at[KEY_decoder_last_pipeline_num_layers], *at = first ? first : last;
  const char *name = c->is.pipe_schedule;
  if (!at) return HP_OK;
  HP_TRY(need_pipeline(c,
                       first ? KEY_decoder_first_pipeline_num_layers
                             : KEY_decoder_last_pipeline_num_layers,
                       "layers of a device of a pipeline"));
  if (c->is.pipe_cut_at) return contradicts(at, c->is.pipe_cut_at);
  static const char *const one[] = {"gpipe", "1f1b", "zb-h1", "zb-2p"};
  bool has_one = !name;
  for (int i = 0; name && i < 4; i++) has_one |= !strcmp(name, one[i]);
  const bool several = name && !strncmp(name, "interleaved", 11);
  if (!has_one && !several)
    TREE_FAIL(at,
              "not with the schedule \"%.60s\", whose devices have stages from both ends of the "
              "model, or any; say the layers of each stage: pipeline: {cut: [...]}",
              name);
  if (!c->is.pipe_stages) c->is.pipe_stages = devices_of(c) * (several ? 2 : 1);
  c->is.pipe_uneven = arena_alloc(&c->mem, (size_t)c->is.pipe_stages, sizeof(int64_t));
  HP_TRY_MEM(c->is.pipe_uneven);
  memset(c->is.pipe_uneven, 0, (size_t)c->is.pipe_stages * sizeof(int64_t));
  c->is.pipe_cut = c->is.pipe_uneven;
  c->is.pipe_cut_at = at;
  return HP_OK;
}

static hp_status check_layers_of_stage(const train_config *c) {
  const int key = KEY_num_layers_per_virtual_pipeline_stage;
  const tree_node *other = find_stages(c);
  if (!c->at[key]) return HP_OK;
  HP_TRY(need_pipeline(c, key, "layers of a stage"));
  if (!other) other = c->at[KEY_decoder_first_pipeline_num_layers];
  if (!other) other = c->at[KEY_decoder_last_pipeline_num_layers];
  return other ? contradicts(c->at[key], other) : HP_OK;
}

/* The name of the interleaved schedule, with groups of another size than usual. */
static hp_status name_interleaved(train_config *c) {
  const int key = KEY_microbatch_group_size_per_virtual_pipeline_stage;
  const int64_t n = c->microbatch_group_size_per_virtual_pipeline_stage;
  c->is.pipe_interleaved = "interleaved";
  if (!c->at[key]) return HP_OK;
  HP_TRY(need_pipeline(c, key, "groups of micro-batches"));
  if (n < devices_of(c))
    TREE_FAIL(c->at[key], "%lld; expected at least pp=%lld", (long long)n,
              (long long)devices_of(c));
  if (n == devices_of(c)) return HP_OK;
  c->is.pipe_interleaved = arena_printf(&c->mem, "interleaved:%lld", (long long)n);
  HP_TRY_MEM(c->is.pipe_interleaved);
  return HP_OK;
}

/* Groups are of the interleaved schedule alone. */
static hp_status check_groups(const train_config *c) {
  const tree_node *at = c->at[KEY_microbatch_group_size_per_virtual_pipeline_stage];
  const char *name = c->is.pipe_schedule;
  bool later = !name && c->at[KEY_num_layers_per_virtual_pipeline_stage];
  if (!at || later || (name && !strcmp(name, c->is.pipe_interleaved))) return HP_OK;
  TREE_FAIL(
      at,
      "micro-batches of a group of the interleaved schedule, and the schedule is %.60s; write "
      "virtual_pipeline_model_parallel_size: 2 for two stages a device, or leave it out",
      name ? name : "1f1b");
}

hp_status train_megatron_layers(train_config *c) {
  HP_TRY(check_layers_of_stage(c));
  HP_TRY(name_interleaved(c));
  const bool several = c->is.pipe_stages > placement_meshes(&c->is.place);
  const bool megatron =
      c->at[KEY_virtual_pipeline_model_parallel_size] || c->at[KEY_pipeline_model_parallel_layout];
  if (!c->is.pipe_schedule && several && megatron) c->is.pipe_schedule = c->is.pipe_interleaved;
  else if (c->is.pipe_schedule && !strcmp(c->is.pipe_schedule, "interleaved"))
    c->is.pipe_schedule = c->is.pipe_interleaved;
  HP_TRY(decide_uneven(c));
  return check_groups(c);
}

/* --- with the number of layers ---------------------------------------------------------------- */

static hp_status fit_stages(train_config *c, int64_t layers) {
  const tree_node *at = c->at[KEY_num_layers_per_virtual_pipeline_stage];
  const int64_t pp = devices_of(c), n = c->num_layers_per_virtual_pipeline_stage;
  if (!at) return HP_OK;
  if (layers % pp || layers / pp % n)
    TREE_FAIL(at,
              "%lld layers of a stage: expected a divisor of the layers of a device, and the model "
              "has %lld for pp=%lld",
              (long long)n, (long long)layers, (long long)pp);
  c->is.pipe_stages = layers / n;
  if (c->is.pipe_stages > pp && !c->is.pipe_schedule) c->is.pipe_schedule = c->is.pipe_interleaved;
  return HP_OK;
}

/* Layers of the devices between those that are given. */
static hp_status find_middle(const train_config *c, int64_t layers, int64_t *out) {
  const tree_node *first = c->at[KEY_decoder_first_pipeline_num_layers];
  const tree_node *last = c->at[KEY_decoder_last_pipeline_num_layers];
  const int64_t given = (first ? c->decoder_first_pipeline_num_layers : 0) +
                        (last ? c->decoder_last_pipeline_num_layers : 0);
  const int64_t others = devices_of(c) - !!first - !!last, left = layers - given;
  if (left < others || (others ? left % others : left))
    TREE_FAIL(c->is.pipe_cut_at,
              "%lld of %lld layers are given, and %lld left for %lld other devices of the "
              "pipeline; expected the same number for each of them, at least 1",
              (long long)given, (long long)layers, (long long)left, (long long)others);
  *out = others ? left / others : 0;
  return HP_OK;
}

static hp_status fit_cut(train_config *c, int64_t layers) {
  const int64_t pp = devices_of(c), chunks = c->is.pipe_stages / pp;
  int64_t middle = 0;
  HP_TRY(find_middle(c, layers, &middle));
  for (int64_t d = 0; d < pp; d++) {
    const bool first = !d && c->at[KEY_decoder_first_pipeline_num_layers];
    const bool last = d + 1 == pp && c->at[KEY_decoder_last_pipeline_num_layers];
    const int64_t n = first  ? c->decoder_first_pipeline_num_layers
                      : last ? c->decoder_last_pipeline_num_layers
                             : middle;
    if (n % chunks)
      TREE_FAIL(c->is.pipe_cut_at,
                "%lld layers on device %lld of the pipeline; expected a multiple of its %lld "
                "stages",
                (long long)n, (long long)d, (long long)chunks);
    for (int64_t k = 0; k < chunks; k++) c->is.pipe_uneven[k * pp + d] = n / chunks;
  }
  return HP_OK;
}

hp_status train_megatron_fit(train_config *c, int64_t layers) {
  HP_TRY(fit_stages(c, layers));
  return c->is.pipe_uneven ? fit_cut(c, layers) : HP_OK;
}
