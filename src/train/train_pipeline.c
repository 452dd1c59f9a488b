#include "train/train_pipeline.h"

#include "base/io.h"
#include "base/log.h"
#include "train/step_graph.h"

#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 1 << 26 /* bytes of a file of rows */, STAGES_MAX = 4096 };

static hp_status read_microbatches(train_config *c, const tree_node *pipe) {
  int64_t n = 0;
  HP_TRY(tree_opt_int(pipe, "microbatches", 0, &n));
  const tree_node *at = tree_get(pipe, "microbatches");
  if (!at) return HP_OK;
  if (n < 1) TREE_FAIL(at, "%lld; expected 1 or more", (long long)n);
  if (c->at[KEY_gradient_accumulation_steps] && c->gradient_accumulation_steps != n)
    TREE_FAIL(at,
              "%lld, and gradient_accumulation_steps is %lld (%s): a step's micro-batches are the "
              "pipeline's; keep one of them",
              (long long)n, (long long)c->gradient_accumulation_steps,
              tree_where(c->at[KEY_gradient_accumulation_steps]).text);
  c->gradient_accumulation_steps = n;
  c->at[KEY_gradient_accumulation_steps] = at;
  return HP_OK;
}

/* [10, 12, 10]: as many stages. */
static hp_status read_cut(train_config *c, const tree_node *pipe) {
  const tree_node *list = tree_get(pipe, "cut"), *stages = tree_get(pipe, "stages");
  if (!list) return HP_OK;
  HP_TRY(tree_expect(list, TREE_LIST));
  int64_t *cut = arena_alloc(&c->mem, list->len + 1, sizeof *cut);
  HP_TRY_MEM(cut);
  if (list->len < 2 || list->len > STAGES_MAX)
    TREE_FAIL(list, "%u stages; expected 2 to %d, the layers of each: [10, 12, 10]", list->len,
              STAGES_MAX);
  for (uint32_t i = 0; i < list->len; i++) {
    HP_TRY(tree_as_int(list->child[i], &cut[i]));
    if (cut[i] < 0) TREE_FAIL(list->child[i], "%lld layers; expected 0 or more", (long long)cut[i]);
  }
  if (stages && c->is.pipe_stages != list->len)
    TREE_FAIL(list, "%u stages, which contradicts %lld (%s)", list->len,
              (long long)c->is.pipe_stages, tree_where(stages).text);
  c->is.pipe_stages = list->len;
  c->is.pipe_cut = cut;
  c->is.pipe_cut_at = list;
  return HP_OK;
}

hp_status train_pipeline_read(train_config *c) {
  static const char *const known[] = {"stages", "schedule", "microbatches", "cut",
                                      "post_validation"};
  const tree_node *pipe = c->parallel.pipeline;
  c->is.post_validation = true;
  if (!pipe) return HP_OK;
  HP_TRY(tree_expect(pipe, TREE_MAP));
  HP_TRY(tree_check_keys(pipe, known, sizeof known / sizeof *known));
  if (tree_get(pipe, "post_validation"))
    HP_TRY(tree_as_bool(tree_get(pipe, "post_validation"), &c->is.post_validation));
  HP_TRY(tree_opt_int(pipe, "stages", 0, &c->is.pipe_stages));
  if (tree_get(pipe, "stages") && (c->is.pipe_stages < 1 || c->is.pipe_stages > STAGES_MAX))
    TREE_FAIL(tree_get(pipe, "stages"), "%lld; expected 1 to %d", (long long)c->is.pipe_stages,
              STAGES_MAX);
  HP_TRY(read_cut(c, pipe));
  if (tree_get(pipe, "schedule"))
    HP_TRY(tree_as_string(tree_get(pipe, "schedule"), &c->is.pipe_schedule));
  return read_microbatches(c, pipe);
}

hp_status train_pipeline_strategy(const train_config *c, const char *base, str *text,
                                  const char **out) {
  *out = base;
  if (c->is.pipe_stages < 2 || (base && strstr(base, "pp="))) return HP_OK;
  str_printf(text, "%s%spp=%lld", base ? base : "", base && *base ? "," : "",
             (long long)c->is.pipe_stages);
  *out = text->at;
  return str_status(text);
}

hp_status train_pipeline_check(train_config *c) {
  const tree_node *pipe = c->parallel.pipeline;
  const tree_node *stages = pipe ? tree_get(pipe, "stages") : NULL;
  const tree_node *named = pipe ? tree_get(pipe, "schedule") : NULL;
  int meshes = placement_meshes(&c->is.place);
  if (named && meshes == 1 && c->is.pipe_stages != 1)
    TREE_FAIL(named, "a schedule without a pipeline; write strategy: pp=2, or stages: 2");
  if (c->is.pipe_stages > 1 && c->is.pipe_stages % meshes)
    TREE_FAIL(stages ? stages : c->is.pipe_cut_at,
              "%lld stages on pp=%d; expected a multiple of it", (long long)c->is.pipe_stages,
              meshes);
  if (c->is.pipe_cut && meshes == 1)
    TREE_FAIL(c->is.pipe_cut_at, "a cut without a pipeline; write strategy: pp=%lld",
              (long long)c->is.pipe_stages);
  c->is.place.cut = c->is.pipe_cut;
  c->is.place.cuts = c->is.pipe_cut ? (int)c->is.pipe_stages : 0;
  return HP_OK;
}

hp_status train_pipeline_check_update(train_config *c) {
  if (placement_meshes(&c->is.place) == 1 || c->parallel.update != UPDATE_NEXT_STEP) return HP_OK;
  TREE_FAIL(c->at[KEY_PARALLEL_update],
            "next_step is not built for pipelines, whose steps end with their update; write "
            "update: end");
}

void train_pipeline_tell(const train_config *c, bool looks_ahead) {
  const tree_node *asked =
      c->parallel.pipeline ? tree_get(c->parallel.pipeline, "post_validation") : NULL;
  if (!asked || !c->is.post_validation || looks_ahead) return;
  log_warn("%s: post_validation is ignored; it takes a schedule of several stages that splits the "
           "backward (zb-h1, zb-2p, zbv, v-half, v-min, or rows), without memory_limit and offload",
           tree_where(asked).text);
}

hp_status train_pipeline_schedule(const train_config *c, str *rows, const char **out) {
  *out = c->is.pipe_schedule;
  if (!c->is.pipe_schedule || !path_exists(c->is.pipe_schedule)) return HP_OK;
  if (dir_exists(c->is.pipe_schedule))
    return HP_OK; /* of an output_dir, say, named as a schedule */
  char *text;
  size_t n;
  HP_TRY(file_read(c->is.pipe_schedule, ROWS_MAX, &text, &n));
  bool binary = memchr(text, 0, n) != NULL;
  str_printf(rows, "# file %s\n%.*s\n", c->is.pipe_schedule, (int)n, text);
  mem_free(text);
  if (binary)
    HP_FAIL(HP_ERR_INPUT, "%s: holds a NUL character; expected rows: stage action microbatch",
            c->is.pipe_schedule);
  *out = rows->at;
  return str_status(rows);
}
