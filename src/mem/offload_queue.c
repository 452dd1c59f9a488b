#include "mem/offload_queue.h"

/* Equal keys: by item, so that the order depends on nothing else. */
static bool is_before(const offload_entry *a, const offload_entry *b) {
  if (a->key != b->key) return a->key < b->key;
  return a->item != b->item ? a->item < b->item : a->version < b->version;
}

hp_status offload_queue_push(offload_queue *q, double key, uint32_t item, uint32_t version) {
  offload_entry e = {key, item, version};
  if (!vec_push(&q->heap, e)) return HP_ERR_OOM;
  offload_entry *at = q->heap.at;
  size_t i = q->heap.len - 1;
  for (; i && is_before(&e, &at[(i - 1) / 2]); i = (i - 1) / 2) at[i] = at[(i - 1) / 2];
  at[i] = e;
  return HP_OK;
}

const offload_entry *offload_queue_top(const offload_queue *q) {
  return q->heap.len ? q->heap.at : NULL;
}

void offload_queue_pop(offload_queue *q) {
  offload_entry *at = q->heap.at, e = at[--q->heap.len];
  size_t n = q->heap.len, i = 0, child;
  for (; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && is_before(&at[child + 1], &at[child])) child++;
    if (!is_before(&at[child], &e)) break;
    at[i] = at[child];
  }
  at[i] = e;
}
