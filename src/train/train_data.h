/* The data of a run: texts or conversations into tokens, tokens into samples, samples into batches.
 *
 * Stage pt with packing: the texts of each group of preprocessing_batch_size samples, each with the
 * end token, are concatenated and split into blocks of cutoff_len; the rest of a group is dropped.
 * Without packing a sample is one text, truncated to cutoff_len.  Stage sft: a sample is one
 * conversation, cut turn by turn; with packing, as many of a group as cutoff_len holds.  A batch is
 * padded on the right to its longest sample.  Tokens, labels, order and batches are those of
 * LlamaFactory 0.9.5 with the same file.  A batch is a pure function of (epoch, number of the
 * micro-batch). */
#ifndef TRAIN_TRAIN_DATA_H
#define TRAIN_TRAIN_DATA_H

#include "base/thread.h"
#include "dataset/dataset.h"
#include "tok/tokenizer.h"
#include "train/length_order.h"
#include "train/train_config.h"

typedef struct {
  sample_set train;
  sample_set *eval; /* evals of them */
  int64_t evals;
  sampler order;      /* of training */
  int64_t replicas;   /* in a batch, each with its own padding */
  int64_t eval_batch; /* samples of an evaluation batch of all replicas */
  bool fills; /* a short batch is filled up, so that all replicas have the same number of samples */
  bool drop_last;   /* or left out */
  int32_t pad, eos; /* pad: fills a batch; has no label anywhere */
  int32_t vocab;    /* one more than the largest id in any sample */
  bool packed;
  length_order by_length;
  struct {
    int64_t epoch; /* epoch whose order is in `of`; -1: none */
    int64_t *of;
  } shuffled;
} train_data;

/* ids, labels: [B, T] row by row, in memory for `most` tokens. */
typedef struct {
  int64_t B, T;
  int32_t *ids, *labels;
  int32_t *lengths;  /* of rows without padding; NULL: not needed */
  int32_t *position; /* of each token; NULL: that in its row, or not needed */
  int32_t *span;     /* first and last token that each sees, [B,T,2]; NULL: not needed */
  float *ref;        /* [B] log-probabilities by the reference model; NULL: not needed */
  bool *good;        /* [B / 2] judgements; NULL: not needed */
  int32_t width;     /* tokens of the longest row that is learned, as a multiple */
  int64_t most;
  int64_t labelled; /* labels that are not LABEL_NONE, including the first of a row */
  int64_t tokens;   /* without padding */
  int64_t padded;   /* with the padding to each replica's longest sample */
} train_batch;

/* Loads, tokenizes (on the threads of p) and splits the data sets of c.  tokenizer_dir is the
 * folder of t.  HP_ERR_INPUT for files that cannot be read, and for too little data for one
 * sample.  Free with train_data_free. */
hp_status train_data_open(const train_config *c, const tokenizer *t, const char *tokenizer_dir,
                          pool *p, train_data *out);
void train_data_free(train_data *d);

/* A digest of the samples of d in order, with the positions of padding tokens in them: equal for
 * equal data. */
hp_status train_data_digest(const train_data *d, const sample_set *s, char hex[33]);
/* Fails if all answers to train on in stage kto are good, or all are bad: nothing is learned of
 * them. Those of an evaluation may be of one kind. */
hp_status train_data_check_judgements(const train_data *d);
/* Fails if an id is not a row of the model's embedding, which has `rows` rows. */
hp_status train_data_check_vocab(const train_data *d, int64_t rows);
/* The first sample, as LlamaFactory shows it before training. */
hp_status train_data_print_example(const train_data *d, const tokenizer *t, str *out);

/* Samples of the largest micro-batch of training, and of an evaluation set's largest batch. */
int64_t train_data_rows(const train_data *d);
int64_t train_data_eval_rows(const train_data *d, const sample_set *s);
/* Tokens of the largest of all batches, including padding: the size of a train_batch. */
int64_t train_data_largest(const train_data *d);

/* Room for a batch of so many tokens of d; train_batch_free, also after a failure. */
hp_status train_batch_create(const train_data *d, int64_t tokens, train_batch *out);
void train_batch_free(train_batch *b);
/* Do samples say which tokens each token sees?  Those of preferences do: the logits of padding are
 * part of what is reported. */
bool train_data_has_spans(const train_data *d);
/* Fills b with micro-batch `micro` of an epoch (see sampler).  width: tokens per row, 0 for the
 * longest sample's; the rest is padding. */
void train_data_batch(train_data *d, int64_t epoch, int64_t micro, int64_t width, train_batch *b);
/* The sizes of micro-batch `micro` of an epoch, without a width. */
void train_data_shape(train_data *d, int64_t epoch, int64_t micro, int64_t *B, int64_t *T);
/* Evaluations of the run that differ in the order of samples, 1 without group_by_length; and the
 * order for one of them, which later calls keep.  Before any, it is that of the set. */
int64_t train_data_evaluations(const train_data *d);
void train_data_order_evaluation(train_data *d, int64_t i);
/* Batches of an evaluation set. */
int64_t train_data_eval_batches(const train_data *d, const sample_set *s);
/* Fills b with batch `i` of an evaluation set, in order. */
void train_data_eval_batch(const train_data *d, const sample_set *s, int64_t i, int64_t width,
                           train_batch *b);
/* The sizes of batch `i`, without a width. */
void train_data_eval_shape(const train_data *d, const sample_set *s, int64_t i, int64_t *B,
                           int64_t *T);

/* --- parts ------------------------------------------------------------------------------------ */

/* How texts become tokens; train_tokens.c. */
typedef struct {
  const tokenizer *tokenizer;
  const char *end; /* appended to every text before it is tokenized */
  int32_t bos;     /* first token of every sample; -1: none */
  int32_t pad, eos;
} token_rules;
/* From template, tokenizer and its tokenizer_config.json, as LlamaFactory fixes them. */
hp_status token_rules_find(const train_config *c, const tokenizer *t, const char *dir,
                           token_rules *out);

#endif
