/* Point-to-point transfers between processes: a header, and the data behind it. */
#include "comm/world_state.h"

static hp_status post_next(comm_transfer *t, void *data, int64_t bytes) {
  return world_post(t->sends, data, bytes, t->peer, TAG_TRANSFER + (int)t->tag,
                    &t->request[t->messages++]);
}

hp_status world_post_transfer(comm *c, comm_transfer *t) {
  const int64_t most = (int64_t)TRANSPORT_BYTES_MAX * (COMM_TRANSFER_MESSAGES - 1);
  HP_TRY(comm_check_transfer(c, t));
  if (t->bytes > most)
    HP_FAIL(HP_ERR_ARG, "a transfer of %lld bytes; at most %lld are possible", (long long)t->bytes,
            (long long)most);
  t->own = (comm_header){.call = *t->call, .bytes = t->bytes};
  t->messages = 0;
  HP_TRY(post_next(t, t->sends ? &t->own : &t->theirs, sizeof t->own));
  for (int64_t k = 0; k < t->bytes; k += TRANSPORT_BYTES_MAX) {
    int64_t n = t->bytes - k < TRANSPORT_BYTES_MAX ? t->bytes - k : TRANSPORT_BYTES_MAX;
    HP_TRY(post_next(t, (char *)t->data + k, n));
  }
  return HP_OK;
}

/* Only the receiver knows both: a sender learns from its failure that the transfer does not match.
 */
hp_status world_wait_transfer(comm *c, comm_transfer *t) {
  (void)c;
  if (!t->sends) {
    const wait_place at = {.kind = WAIT_TRANSFER, .id = (uint64_t)t->tag, .call = *t->call};
    HP_TRY(world_wait(&at, t->request, 1)); /* the data may be more messages or fewer */
    HP_TRY(comm_check_theirs(t));
  }
  return world_wait(NULL, t->request, t->messages);
}
