#include "sched/pipe_events.h"

static bool is_earlier(const pipe_event *a, const pipe_event *b) {
  return a->time_s < b->time_s || (a->time_s == b->time_s && a->device < b->device);
}

hp_status pipe_events_add(pipe_events *e, double time_s, uint32_t device) {
  const pipe_event added = {time_s, device};
  if (!vec_push(e, added)) return HP_ERR_OOM;
  size_t i = e->len - 1;
  for (; i && is_earlier(&added, &e->at[(i - 1) / 2]); i = (i - 1) / 2)
    e->at[i] = e->at[(i - 1) / 2];
  e->at[i] = added;
  return HP_OK;
}

pipe_event pipe_events_take(pipe_events *e) {
  pipe_event *heap = e->at;
  const pipe_event first = heap[0], last = heap[--e->len];
  size_t i = 0;
  for (size_t child = 1; child < e->len; child = 2 * i + 1) {
    if (child + 1 < e->len && is_earlier(&heap[child + 1], &heap[child])) child++;
    if (!is_earlier(&heap[child], &last)) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = last;
  return first;
}
