/* llama.cpp as a peer: peer_llama train|prefill|decode MODEL.gguf BATCH SEQ THREADS
 *
 * Every line on standard input asks for that many steps; the answer is their times, one JSON object.
 * A step is what it is in `hyper bench`; but llama.cpp trains one sequence an update, so that a step of
 * a batch of four is four updates. */
#include "ggml-opt.h"
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct {
  struct llama_model *model;
  struct llama_context *ctx;
  int batch, seq, at; /* at: position of the next token of decoding */
  ggml_opt_dataset_t data;
  double loss;
} peer;

static void fail(const char *what) {
  fprintf(stderr, "peer_llama: %s\n", what);
  exit(1);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
  (void)user;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

/* The tokens of `hyper bench`. */
static int32_t token(const peer *p, int64_t i) {
  int64_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(p->model));
  return (int32_t)(((uint32_t)i * 2654435761u >> 8) % (uint32_t)vocab);
}

/* --- training ------------------------------------------------------------------------------------ */

static struct ggml_opt_optimizer_params adamw(void *user) {
  struct ggml_opt_optimizer_params o = ggml_opt_get_default_optimizer_params(user);
  o.adamw.alpha = 1e-4f;
  o.adamw.wd = 0;
  return o;
}

static void prepare_training(peer *p) {
  int64_t n = (int64_t)p->batch * p->seq;
  p->data = ggml_opt_dataset_init(GGML_TYPE_I32, GGML_TYPE_I32, p->seq, p->seq, p->batch, 1);
  int32_t *ids = ggml_opt_dataset_data(p->data)->data, *labels = ggml_opt_dataset_labels(p->data)->data;
  for (int64_t i = 0; i < n; i++) ids[i] = token(p, i), labels[i] = token(p, (i + 1) % n);
  llama_opt_init(p->ctx, p->model,
                 (struct llama_opt_params){.param_filter = llama_opt_param_filter_all,
                                           .get_opt_pars = adamw,
                                           .optimizer_type = GGML_OPT_OPTIMIZER_TYPE_ADAMW});
}

static void train_step(peer *p) {
  ggml_opt_result_t result = ggml_opt_result_init();
  llama_opt_epoch(p->ctx, p->data, result, NULL, p->batch, NULL, NULL);
  ggml_opt_result_loss(result, &p->loss, NULL);
  ggml_opt_result_free(result);
}

/* --- inference ----------------------------------------------------------------------------------- */

/* n tokens of every sequence at position `at`, the logits of the last wanted. */
static void feed(peer *p, int n, int at) {
  struct llama_batch b = llama_batch_init(n * p->batch, 0, 1);
  for (int s = 0; s < p->batch; s++)
    for (int t = 0; t < n; t++) {
      int i = b.n_tokens++;
      b.token[i] = token(p, (int64_t)s * p->seq + at + t);
      b.pos[i] = at + t;
      b.n_seq_id[i] = 1;
      b.seq_id[i][0] = s;
      b.logits[i] = t == n - 1;
    }
  if (llama_decode(p->ctx, b)) fail("llama_decode failed");
  llama_synchronize(p->ctx);
  llama_batch_free(b);
}

static void prefill_step(peer *p) {
  llama_memory_clear(llama_get_memory(p->ctx), true);
  feed(p, p->seq, 0);
}

static void decode_step(peer *p) { feed(p, 1, p->at++); }

/* Every time that steps are asked for, decoding goes on from a prompt of seq tokens. */
static void prepare_decode(peer *p) {
  prefill_step(p);
  p->at = p->seq;
}

/* --- the conversation ---------------------------------------------------------------------------- */

static void answer(peer *p, int n, void (*step)(peer *)) {
  struct rusage u;
  printf("{\"step_s\": [");
  for (int i = 0; i < n; i++) {
    double start = now_s();
    step(p);
    printf("%s%.9g", i ? ", " : "", now_s() - start);
  }
  getrusage(RUSAGE_SELF, &u);
  printf("], \"result\": %.9g, \"rss_bytes\": %.0f}\n", p->loss, (double)u.ru_maxrss * 1024);
  fflush(stdout);
}

int main(int argc, char **argv) {
  enum { DECODED = 1024, ROWS = 2048 };
  if (argc != 6) fail("expected train|prefill|decode MODEL.gguf BATCH SEQ THREADS");
  peer p = {.batch = atoi(argv[3]), .seq = atoi(argv[4])};
  bool train = !strcmp(argv[1], "train"), decode = !strcmp(argv[1], "decode");
  llama_log_set(quiet, NULL);
  llama_backend_init();
  struct llama_model_params mp = llama_model_default_params();
  if (train) mp.load_mode = LLAMA_LOAD_MODE_NONE; /* weights that can be written */
  if (!(p.model = llama_model_load_from_file(argv[2], mp))) fail("the model cannot be read");
  struct llama_context_params cp = llama_context_default_params();
  cp.n_ctx = (uint32_t)(decode ? p.batch * (p.seq + DECODED) : p.seq);
  cp.n_batch = (uint32_t)(train ? p.seq : decode ? p.batch * p.seq : ROWS);
  if (train) cp.n_ubatch = (uint32_t)p.seq, cp.type_k = cp.type_v = GGML_TYPE_F32;
  cp.n_seq_max = (uint32_t)(decode ? p.batch : 1);
  cp.n_threads = cp.n_threads_batch = atoi(argv[5]);
  if (!(p.ctx = llama_init_from_model(p.model, cp))) fail("no context");
  if (train) prepare_training(&p);
  printf("{\"peer\": \"llama.cpp\"}\n");
  fflush(stdout);
  for (int n; scanf("%d", &n) == 1;) {
    if (decode) prepare_decode(&p);
    answer(&p, n, train ? train_step : decode ? decode_step : prefill_step);
  }
  return 0;
}
