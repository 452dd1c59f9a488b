/* What `hyper layout` answers about layouts and ways between them, as JSON. */
#ifndef CLI_LAYOUT_ANSWER_H
#define CLI_LAYOUT_ANSWER_H

#include "base/json.h"
#include "shard/path.h"

/* Keys of an open map: repeat_num, placements; with shape (NULL: none) also shard_shape, slices of
 * every rank, and replica_groups. */
hp_status answer_layout(json_writer *w, const mesh *m, const layout *l, const int64_t *shape);
/* ops, groups_of_last_rank, local_elements, peak_elements, bytes_per_rank. */
hp_status answer_path(json_writer *w, const mesh *m, const path *p);
/* "layout": one entry a dim, as declared; "tensor_map"; "partial" where the tensor is partial. */
void answer_entries(json_writer *w, const mesh *m, const layout *l);
void answer_tensor_map(json_writer *w, const mesh *m, const layout *l);

/* Answers every line of a file of questions with one line. */
hp_status layout_batch(const char *file);

#endif
