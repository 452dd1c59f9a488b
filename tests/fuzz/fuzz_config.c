/* config.json of a model: what is accepted makes a graph, or is refused by the shape rules; a small
 * one is planned too, as a step over a few tokens and as a step of generation. */
#include "fuzz.h"

#include "base/log.h"
#include "model/lm.h"

#include <stdlib.h>

enum { LAYERS_MAX = 16, SMALL = 64, ROWS = 8 };

static void check_rope(const model_config *c) {
  float table[2][ROWS * 256];
  if (c->rope.theta > 0 && c->rope.dims <= 512) rope_table(c, ROWS, ROWS, table[0], table[1]);
}

static void build(const model_config *c, hp_device *d, int64_t cache) {
  lm m = {.c = *c, .compute = HP_F32, .weights = HP_F32};
  model_build b;
  hp_program_stats stats;
  const model_cache all = {.blocks = cache, .width = cache};
  HP_ASSERT(!lm_graph_begin(&m, 1, 3, cache ? &all : NULL, ROWS, &b));
  hp_output(b.g, "logits", lm_head(&b, c->family->hidden(&b)));
  HP_ASSERT(!b.failed);
  if (!hp_graph_status(b.g) && d) {
    for (size_t i = 0; i < b.params.len; i++) HP_ASSERT(b.params.at[i].name[0]);
    (void)hp_plan(b.g, d, NULL, &stats);
  }
  lm_graph_end(&b);
  err_clear();
}

static bool is_small(const model_config *c) {
  return c->layers <= 2 && c->hidden <= SMALL && c->ffn <= SMALL && c->vocab <= SMALL &&
         c->moe.experts <= SMALL && c->moe.ffn <= SMALL && c->max_length <= 4 * SMALL &&
         c->heads * c->head_dim <= SMALL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  model_config c;
  hp_device *d = NULL;
  log_set_level(LOG_ERROR);
  if (!model_config_parse((const char *)bytes, n, "config.json", &c)) {
    HP_ASSERT(c.family && model_config_params(&c) > 0 && c.heads % c.kv_heads == 0);
    HP_ASSERT(c.frozen >= -1 && c.frozen < c.vocab);
    check_rope(&c);
    if (is_small(&c))
      HP_ASSERT(!hp_device_open(&(hp_device_options){.threads = 1, .interpret = true}, &d));
    if (c.layers <= LAYERS_MAX) build(&c, d, 0);
    if (c.layers <= LAYERS_MAX) build(&c, d, ROWS);
    hp_device_close(d);
    model_config_free(&c);
  }
  err_clear();
  return 0;
}
