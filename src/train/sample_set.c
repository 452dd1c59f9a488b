#include "train/sample_set.h"

#include "base/mem.h"

void sample_set_free(sample_set *s) {
  mem_free(s->ids);
  mem_free(s->labels);
  mem_free(s->position);
  mem_free(s->first);
  mem_free(s->good);
  mem_free(s->ref);
  mem_free(s->start);
}

int64_t sample_set_prompt(const sample_set *s, int64_t row) {
  int64_t first = s->start[row], at = first;
  while (at < s->start[row + 1] && s->labels[at] == LABEL_NONE) at++;
  return at - first;
}

bool sample_group_next(sample_group *g) {
  int64_t share = g->n / g->workers, more = g->n % g->workers;
  for (; g->worker < g->workers; g->worker++) {
    int64_t w = g->worker, begin = share * w + (w < more ? w : more);
    int64_t end = begin + share + (w < more);
    g->first = g->last > begin ? g->last : begin;
    if (g->first >= end) continue;
    g->last = end - g->first > g->group ? g->first + g->group : end;
    return true;
  }
  return false;
}

sample_group sample_group_first(const train_config *c, int64_t n) {
  int64_t workers = c->preprocessing_num_workers == TRAIN_NONE ? 1 : c->preprocessing_num_workers;
  return (sample_group){.n = n,
                        .workers = workers < n ? workers : n,
                        .group = c->preprocessing_batch_size};
}
