#include "comm/comm.h"

#include "base/hash.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

comm_call comm_call_of(const char *text, const char *place) {
  comm_call c = {.signature = hash_bytes(text, strlen(text))};
  bool has_place = place && *place;
  snprintf(c.what, sizeof c.what, "%s%s%s", text, has_place ? " in " : "", has_place ? place : "");
  return c;
}

/* --- ranks ------------------------------------------------------------------------------------ */

hp_status comm_check_ranks(const comm *c, const int64_t *rank, int64_t n) {
  bool taken[COMM_MAX] = {0};
  HP_ASSERT(c->ranks <= COMM_MAX);
  for (int64_t i = 0; i < n; i++) {
    if (rank[i] < 0 || rank[i] >= c->ranks)
      HP_FAIL(HP_ERR_ARG, "rank %lld is not in the job, which has %lld", (long long)rank[i],
              (long long)c->ranks);
    if (taken[rank[i]])
      HP_FAIL(HP_ERR_ARG, "rank %lld is in the communicator twice", (long long)rank[i]);
    taken[rank[i]] = true;
  }
  return HP_OK;
}

uint64_t comm_hash_ranks(const int64_t *rank, int64_t n) {
  return hash_bytes(rank, (size_t)n * sizeof *rank);
}

bool comm_has_ranks(const communicator *c, const int64_t *rank, int64_t n, int64_t me) {
  return c->n == n && c->me == me && !memcmp(c->rank, rank, (size_t)n * sizeof *rank);
}

/* --- what does not match ---------------------------------------------------------------------- */

static void print_ranks(const communicator *c, str *out) {
  enum { SHOWN = 8 };
  str_add(out, "{");
  for (int64_t i = 0; i < c->n && i < SHOWN; i++)
    str_printf(out, i ? ",%lld" : "%lld", (long long)c->rank[i]);
  str_add(out, c->n > SHOWN ? ",...}" : "}");
}

hp_status comm_refuse_calls(const communicator *c, int64_t a, const comm_call *of_a, int64_t b,
                            const comm_call *of_b, uint64_t sequence) {
  str ranks = {0};
  char other[48] = "";
  print_ranks(c, &ranks);
  if (sequence != c->sequence)
    snprintf(other, sizeof other, " (its rendezvous %llu)", (unsigned long long)sequence);
  hp_status st = err_set(
      HP_ERR_ARG, __FILE__, __LINE__,
      "the programs of ranks %lld and %lld do not match: at rendezvous %llu of ranks %s rank %lld "
      "is at %.*s, and rank %lld at %.*s%s",
      (long long)c->rank[a], (long long)c->rank[b], (unsigned long long)c->sequence,
      ranks.at ? ranks.at : "", (long long)c->rank[a], COMM_WHAT - 1, of_a->what,
      (long long)c->rank[b], COMM_WHAT - 1, of_b->what, other);
  str_free(&ranks);
  return st;
}

hp_status comm_check_transfer(const comm *c, const comm_transfer *t) {
  if (t->tag < 0 || t->tag > COMM_TAG_MAX)
    HP_FAIL(HP_ERR_ARG, "tag %lld; expected 0 to %d", (long long)t->tag, COMM_TAG_MAX);
  if (t->peer < 0 || t->peer >= c->ranks || t->peer == t->rank)
    HP_FAIL(HP_ERR_ARG, "rank %lld has no transfer with rank %lld of %lld", (long long)t->rank,
            (long long)t->peer, (long long)c->ranks);
  return HP_OK;
}

hp_status comm_check_theirs(const comm_transfer *t) {
  const comm_header *x = &t->theirs;
  if (x->call.signature == t->call->signature && x->bytes == t->bytes) return HP_OK;
  HP_FAIL(HP_ERR_ARG,
          "the programs of ranks %lld and %lld do not match: with tag %lld rank %lld %s %lld bytes "
          "at %s, and rank %lld %s %lld bytes at %.*s",
          (long long)t->rank, (long long)t->peer, (long long)t->tag, (long long)t->rank,
          t->sends ? "sends" : "receives", (long long)t->bytes, t->call->what, (long long)t->peer,
          t->sends ? "receives" : "sends", (long long)x->bytes, COMM_WHAT - 1, x->call.what);
}
