#include "model/config.h"

#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "ckpt/manifest.h"
#include "model/family.h"

#include <stdio.h>
#include <string.h>

enum { SIZE_LIMIT = INT32_MAX, LAYERS_MAX = 4096, HEAD_DIM_MAX = 512 };

static hp_status check_size(const tree_node *m, const char *key, int64_t v) {
  if (v >= 1 && v <= SIZE_LIMIT) return HP_OK;
  TREE_FAIL(tree_get(m, key), "%lld is out of range, expected 1 to %d", (long long)v, SIZE_LIMIT);
}

hp_status config_need_size(const tree_node *m, const char *key, int64_t *out) {
  HP_TRY(tree_need_int(m, key, out));
  return check_size(m, key, *out);
}

hp_status config_opt_size(const tree_node *m, const char *key, int64_t absent, int64_t *out) {
  HP_TRY(tree_opt_int(m, key, absent, out));
  return *out == absent ? HP_OK : check_size(m, key, *out);
}

hp_status config_read_size(const tree_node *root, const char *key, int64_t missing, int64_t null,
                           int64_t *out) {
  return config_opt_size(root, key, tree_get(root, key) || !missing ? null : missing, out);
}

hp_status config_opt_count(const tree_node *m, const char *key, int64_t absent, int64_t *out) {
  HP_TRY(tree_opt_int(m, key, absent, out));
  if (*out >= 0 && *out <= SIZE_LIMIT) return HP_OK;
  TREE_FAIL(tree_get(m, key), "%lld is out of range, expected 0 to %d", (long long)*out,
            SIZE_LIMIT);
}

hp_status config_opt_either(const tree_node *root, const char *key, const char *other,
                            int64_t absent, int64_t *out) {
  int64_t second;
  HP_TRY(config_opt_size(root, key, absent, out));
  HP_TRY(config_opt_size(root, other, *out, &second));
  const tree_node *a = tree_get(root, key), *b = tree_get(root, other);
  if (a && b && *out != second)
    TREE_FAIL(b, "%lld is not what %s says, which is another name of it: %lld", (long long)second,
              key, (long long)*out);
  *out = second;
  return HP_OK;
}

hp_status config_read_eps(const tree_node *root, const char *key, double absent, model_config *c) {
  HP_TRY(tree_opt_double(root, key, absent, &c->norm_eps));
  if (c->norm_eps >= 0 && c->norm_eps < 1e9) return HP_OK;
  TREE_FAIL(tree_get(root, key), "%g is out of range, expected a small number", c->norm_eps);
}

hp_status config_read_dropout(const tree_node *root, const char *key, double absent, double *out) {
  HP_TRY(tree_opt_double(root, key, absent, out));
  if (*out >= 0 && *out < 1) return HP_OK;
  TREE_FAIL(tree_get(root, key), "%g is out of range, expected 0 or more and below 1", *out);
}

hp_status config_read_activation(const tree_node *root, const char *key, const char *absent,
                                 model_config *c) {
  static const struct {
    const char *name, *op;
  } row[] = {{"silu", "silu"},
             {"swish", "silu"},
             {"gelu", "gelu"},
             {"gelu_new", "gelu_tanh"},
             {"gelu_pytorch_tanh", "gelu_tanh"},
             {"gelu_fast", "gelu_tanh"},
             {"relu", "relu"},
             {"tanh", "tanh"}};
  const char *name;
  HP_TRY(tree_opt_string(root, key, absent, &name));
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (!strcmp(row[i].name, name)) {
      snprintf(c->activation, sizeof c->activation, "%s", row[i].op);
      return HP_OK;
    }
  TREE_FAIL(tree_get(root, key),
            "activation \"%s\" is not built; expected silu, gelu, gelu_new, relu or tanh", name);
}

/* --- rotary embedding ------------------------------------------------------------------------- */

static hp_status read_rope_kind(const tree_node *r, rope_kind *out) {
  static const char *const name[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
  const char *word;
  HP_TRY(tree_opt_string(r, "rope_type", NULL, &word));
  if (!word) HP_TRY(tree_opt_string(r, "type", "default", &word)); /* oldest spelling */
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    if (!strcmp(word, name[i])) {
      *out = (rope_kind)i;
      return HP_OK;
    }
  TREE_FAIL(r,
            "rope type \"%s\" is not built; expected default, linear, dynamic, llama3, yarn or "
            "longrope",
            word);
}

static hp_status read_positive(const tree_node *r, const char *key, double *out) {
  HP_TRY(tree_need_double(r, key, out));
  if (!(*out > 0 && *out < 1e18))
    TREE_FAIL(tree_get(r, key), "%g is out of range, expected above 0", *out);
  return HP_OK;
}

static hp_status read_llama3(const tree_node *r, rope_config *o) {
  HP_TRY(read_positive(r, "low_freq_factor", &o->low_freq));
  HP_TRY(read_positive(r, "high_freq_factor", &o->high_freq));
  if (o->low_freq >= o->high_freq) TREE_FAIL(r, "low_freq_factor must be below high_freq_factor");
  return HP_OK;
}

static hp_status read_yarn(const tree_node *r, rope_config *o) {
  HP_TRY(tree_opt_double(r, "beta_fast", 32, &o->beta_fast));
  HP_TRY(tree_opt_double(r, "beta_slow", 1, &o->beta_slow));
  HP_TRY(tree_opt_double(r, "attention_factor", 0, &o->attention_factor));
  HP_TRY(tree_opt_double(r, "mscale", 0, &o->mscale));
  if (!(o->beta_fast > 0 && o->beta_slow > 0))
    TREE_FAIL(r, "beta_fast %g and beta_slow %g must be above 0", o->beta_fast, o->beta_slow);
  return tree_opt_bool(r, "truncate", true, &o->truncate);
}

/* A list of n numbers above 0. */
static hp_status read_stretch(const tree_node *r, const char *key, int64_t n, double **out) {
  const tree_node *list;
  HP_TRY(tree_need_list(r, key, &list));
  if ((int64_t)list->len != n)
    TREE_FAIL(list, "has %u numbers, expected head_dim / 2 = %lld", list->len, (long long)n);
  *out = mem_calloc((size_t)n, sizeof **out);
  HP_TRY_MEM(*out);
  for (int64_t i = 0; i < n; i++) {
    HP_TRY(tree_as_double(list->child[i], &(*out)[i]));
    if (!((*out)[i] > 0 && (*out)[i] < 1e18))
      TREE_FAIL(list->child[i], "%g is out of range, expected above 0", (*out)[i]);
  }
  return HP_OK;
}

static hp_status read_longrope(const tree_node *r, int64_t pairs, rope_config *o) {
  HP_TRY(tree_opt_double(r, "attention_factor", 0, &o->attention_factor));
  HP_TRY(read_stretch(r, "short_factor", pairs, &o->stretch[0]));
  return read_stretch(r, "long_factor", pairs, &o->stretch[1]);
}

/* Transformers rotates complete heads in these families: it ignores the key without scaling, and
 * fails with it. */
static hp_status check_partial(const tree_node *root, const tree_node *r, rope_kind kind) {
  double partial;
  const tree_node *where = r && tree_get(r, "partial_rotary_factor") ? r : root;
  HP_TRY(tree_opt_double(where, "partial_rotary_factor", 1, &partial));
  if (partial == 1) return HP_OK;
  const tree_node *n = tree_get(where, "partial_rotary_factor");
  if (kind != ROPE_DEFAULT) TREE_FAIL(n, "%g is not built for this family; leave it out", partial);
  log_warn("%s: is ignored: this family rotates all dims of a head", tree_where(n).text);
  return HP_OK;
}

/* rope_parameters (new spelling), or rope_theta and rope_scaling (old), which has precedence. */
hp_status config_read_rope(const tree_node *root, model_config *c) {
  rope_config *o = &c->rope;
  const tree_node *r;
  HP_TRY(tree_opt_map(root, "rope_scaling", &r));
  if (!r || !r->len) HP_TRY(tree_opt_map(root, "rope_parameters", &r));
  double theta = c->family->absent.theta;
  HP_TRY(tree_opt_double(root, "rope_theta", theta ? theta : 10000, &o->theta));
  o->factor = 1;
  if (r) {
    HP_TRY(read_rope_kind(r, &o->kind));
    HP_TRY(tree_opt_double(r, "rope_theta", o->theta, &o->theta));
    /* next to the map it has precedence over one inside */
    HP_TRY(tree_opt_double(r, "original_max_position_embeddings", (double)c->max_length,
                           &o->original_length));
    HP_TRY(tree_opt_double(root, "original_max_position_embeddings", o->original_length,
                           &o->original_length));
    if (!(o->original_length >= 1))
      TREE_FAIL(r, "original_max_position_embeddings must be at least 1");
    if (o->kind == ROPE_YARN || o->kind == ROPE_LONGROPE) {
      HP_TRY(tree_opt_double(r, "factor", (double)c->max_length / o->original_length, &o->factor));
      if (!(o->factor > 0 && o->factor < 1e18))
        TREE_FAIL(r, "factor %g is out of range, expected above 0", o->factor);
    } else if (o->kind != ROPE_DEFAULT) {
      HP_TRY(read_positive(r, "factor", &o->factor));
    }
    HP_TRY(tree_opt_double(r, "mscale_all_dim", 0, &o->mscale_all_dim));
    if (o->kind == ROPE_LLAMA3) HP_TRY(read_llama3(r, o));
    if (o->kind == ROPE_YARN) HP_TRY(read_yarn(r, o));
    if (o->kind == ROPE_LONGROPE) HP_TRY(read_longrope(r, o->dims / 2, o));
  }
  if (!(o->theta > 0)) TREE_FAIL(root, "rope_theta %g must be above 0", o->theta);
  if (o->dims % 2)
    TREE_FAIL(root, "head_dim %lld is odd; the rotary embedding turns pairs", (long long)o->dims);
  return check_partial(root, r, o->kind);
}

/* --- sliding window --------------------------------------------------------------------------- */

static hp_status read_layer_types(const tree_node *list, model_config *c) {
  if ((int64_t)list->len != c->layers)
    TREE_FAIL(list, "has %u entries, num_hidden_layers is %lld", list->len, (long long)c->layers);
  for (uint32_t i = 0; i < list->len; i++) {
    const char *kind;
    HP_TRY(tree_as_string(list->child[i], &kind));
    if (!strcmp(kind, "sliding_attention")) c->windowed[i] = true;
    else if (strcmp(kind, "full_attention"))
      TREE_FAIL(list->child[i], "\"%s\" is not built; expected full_attention or sliding_attention",
                kind);
    if (c->windowed[i] && !c->window) TREE_FAIL(list->child[i], "needs sliding_window to be set");
  }
  return HP_OK;
}

/* layer_types decides if it exists (mistral's is then Transformers' ministral).  Otherwise
 * mistral and mixtral: all layers; qwen: only with use_sliding_window, and, except qwen3_moe,
 * from max_window_layers on. */
static hp_status read_window(const tree_node *root, model_config *c) {
  bool use = true;
  const tree_node *types;
  int64_t first = 0;
  c->windowed = mem_calloc((size_t)c->layers, sizeof *c->windowed);
  HP_TRY_MEM(c->windowed);
  window_rule how = c->family->window;
  if (how == WINDOW_NEVER) return HP_OK;
  if (how >= WINDOW_IF_USED) HP_TRY(tree_opt_bool(root, "use_sliding_window", false, &use));
  if (how == WINDOW_FROM_LAYER) HP_TRY(tree_opt_int(root, "max_window_layers", 28, &first));
  if (use)
    HP_TRY(config_read_size(root, "sliding_window", c->family->absent.window, 0, &c->window));
  HP_TRY(tree_opt_list(root, "layer_types", &types));
  if (types) return read_layer_types(types, c);
  for (int64_t i = 0; i < c->layers; i++) c->windowed[i] = c->window && i >= first;
  return HP_OK;
}

/* --- token ids ------------------------------------------------------------------------------- */

hp_status config_read_id(const tree_node *n, int64_t *out) {
  HP_TRY(tree_as_int(n, out));
  if (*out < -1 || *out > INT32_MAX) TREE_FAIL(n, "%lld is not a token id", (long long)*out);
  return HP_OK;
}

/* The row of pad_token_id; as in PyTorch a negative one counts from the end. */
static hp_status read_pad(const tree_node *root, model_config *c) {
  const tree_node *pad = tree_get(root, "pad_token_id");
  if (!c->family->freezes_pad || !pad || pad->kind == TREE_NULL) return HP_OK;
  HP_TRY(tree_as_int(pad, &c->frozen));
  if (c->frozen >= c->vocab || c->frozen < -c->vocab)
    TREE_FAIL(pad, "%lld is not in 0..%lld, the vocabulary", (long long)c->frozen,
              (long long)c->vocab - 1);
  if (c->frozen < 0) c->frozen += c->vocab;
  return HP_OK;
}

static hp_status read_ids(const tree_node *root, model_config *c) {
  const tree_node *eos = tree_get(root, "eos_token_id");
  HP_TRY(tree_opt_int(root, "bos_token_id",
                      tree_get(root, "bos_token_id") ? -1 : c->family->absent.bos, &c->bos));
  HP_TRY(read_pad(root, c));
  if (!eos && c->family->absent.eos >= 0) c->eos[c->n_eos++] = c->family->absent.eos;
  if (!eos || eos->kind == TREE_NULL) return HP_OK;
  bool list = eos->kind == TREE_LIST;
  for (uint32_t i = 0; i < (list ? eos->len : 1); i++) {
    if (c->n_eos == 8) TREE_FAIL(eos, "more than 8 ids");
    HP_TRY(config_read_id(list ? eos->child[i] : eos, &c->eos[c->n_eos++]));
  }
  return HP_OK;
}

/* --- the file -------------------------------------------------------------------------------- */

hp_status config_check_sizes(const tree_node *root, const model_config *c) {
  if (c->layers > LAYERS_MAX)
    TREE_FAIL(root, "%lld layers; at most %d are built", (long long)c->layers, LAYERS_MAX);
  if (c->head_dim > HEAD_DIM_MAX)
    TREE_FAIL(root, "head dim %lld; at most %d is built", (long long)c->head_dim, HEAD_DIM_MAX);
  return HP_OK;
}

hp_status config_read_decoder(const tree_node *root, model_config *c) {
  double eps = c->family->absent.eps;
  HP_TRY(config_need_size(root, "vocab_size", &c->vocab));
  HP_TRY(config_need_size(root, "hidden_size", &c->hidden));
  HP_TRY(config_need_size(root, "intermediate_size", &c->ffn));
  HP_TRY(config_need_size(root, "num_hidden_layers", &c->layers));
  HP_TRY(config_need_size(root, "num_attention_heads", &c->heads));
  HP_TRY(config_read_size(root, "num_key_value_heads", c->family->absent.kv_heads, c->heads,
                          &c->kv_heads));
  HP_TRY(config_opt_size(root, "max_position_embeddings", c->family->absent.positions,
                         &c->max_length));
  HP_TRY(config_read_eps(root, "rms_norm_eps", eps ? eps : 1e-6, c));
  HP_TRY(config_read_activation(root, "hidden_act", "silu", c));
  return config_read_dropout(root, "attention_dropout", 0, &c->dropout.attention);
}

hp_status config_read_llama(const tree_node *root, model_config *c) {
  HP_TRY(config_read_decoder(root, c));
  HP_TRY(config_opt_size(root, "head_dim", c->family->absent.head_dim, &c->head_dim));
  if (!c->head_dim) {
    c->head_dim = c->hidden / c->heads;
    if (c->head_dim < 1 || c->hidden % c->heads)
      TREE_FAIL(root,
                "hidden_size %lld is not a multiple of num_attention_heads %lld; set head_dim",
                (long long)c->hidden, (long long)c->heads);
  }
  if (c->heads % c->kv_heads)
    TREE_FAIL(root, "num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
              (long long)c->heads, (long long)c->kv_heads);
  HP_TRY(config_check_sizes(root, c));
  c->rope.dims = c->head_dim;
  HP_TRY(config_read_rope(root, c));
  return read_window(root, c);
}

static hp_status read_common(const tree_node *root, model_config *c) {
  const char *type;
  HP_TRY(tree_need_string(root, "model_type", &type));
  snprintf(c->model_type, sizeof c->model_type, "%s", type);
  c->family = model_family_find(type);
  if (!c->family) {
    str names = {0};
    model_family_names(&names);
    hp_status st = tree_error(tree_get(root, "model_type"), __FILE__, __LINE__,
                              "model family \"%s\" is not built; built are: %s", type,
                              names.at ? names.at : "");
    str_free(&names);
    return st;
  }
  HP_TRY(tree_opt_bool(root, "tie_word_embeddings", c->family->tied_by_default, &c->tied));
  HP_TRY(tree_opt_double(root, "initializer_range", 0.02, &c->init_range));
  if (!(c->init_range >= 0 && c->init_range < 1e9))
    TREE_FAIL(tree_get(root, "initializer_range"), "%g is out of range", c->init_range);
  HP_TRY(c->family->read(root, c));
  HP_TRY(config_read_dropout(root, "summary_dropout_prob", 0.1, &c->dropout.value_head));
  return read_ids(root, c);
}

/* Reads the parsed file; takes c->source. */
static hp_status read_source(model_config *c, model_config *out) {
  hp_status st = tree_expect(c->source.root, TREE_MAP);
  if (!st) st = read_common(c->source.root, c);
  if (st) model_config_free(c);
  else *out = *c;
  return st;
}

static const model_config unread = {.bos = -1, .frozen = -1};

hp_status model_config_parse(const char *text, size_t n, const char *name, model_config *out) {
  model_config c = unread;
  HP_TRY(json_parse(text, n, name, &c.source));
  return read_source(&c, out);
}

hp_status model_config_load(const char *path, model_config *out) {
  str file = {0};
  model_config c = unread;
  hp_status st = HP_OK;
  bool folder = dir_exists(path);
  if (folder) st = path_join(&file, path, "config.json");
  else str_add(&file, path);
  if (!st && folder) st = manifest_verify_texts(path);
  if (!st) st = str_status(&file);
  if (!st) st = json_load(file.at, 16 << 20, &c.source);
  if (!st) st = read_source(&c, out);
  str_free(&file);
  return st;
}

void model_config_free(model_config *c) {
  mem_free(c->windowed);
  mem_free(c->rope.stretch[0]);
  mem_free(c->rope.stretch[1]);
  mem_free(c->moe.layer);
  tree_free(&c->source);
  *c = (model_config){0};
}

bool model_config_drops(const model_config *c) {
  return c->dropout.embedding > 0 || c->dropout.attention > 0 || c->dropout.residual > 0;
}

double model_config_params(const model_config *c) { return c->family->params(c); }
