/* A process of a job: what ranks do with each other, without programs or tensors.
 *
 *   ranks CASE     exit code 0 when it went as it should; prints the failures that it met
 *
 * Cases are below; tests/cli/test_ranks.sh runs them. */
#include "base/mem.h"
#include "comm/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAGS = 10, EACH = 2, LARGE = 100000 };

static comm *c;
static int me;

static hp_status expect(bool holds, const char *what) {
  if (!holds) HP_FAIL(HP_ERR_INTERNAL, "rank %d: %s does not hold", me, what);
  return HP_OK;
}
#define EXPECT(x) HP_TRY(expect(x, #x))

/* --- transfers -------------------------------------------------------------------------------- */

static hp_status move(bool sends, int peer, int64_t tag, int64_t bytes, void *data,
                      const comm_call *call, comm_transfer *t) {
  *t = (comm_transfer){.sends = sends,
                       .rank = me,
                       .peer = peer,
                       .tag = tag,
                       .bytes = bytes,
                       .data = data,
                       .call = call};
  return c->iface->post(c, t);
}

/* Rank 0 sends two of each tag, from the first on; rank 1 asks for them from the last on. */
static hp_status transfers(void) {
  static int64_t data[TAGS * EACH][LARGE];
  static comm_transfer t[TAGS * EACH];
  comm_call call = comm_call_of("numbers", NULL);
  for (int i = 0; i < TAGS * EACH; i++) {
    int tag = me ? TAGS - 1 - i / EACH : i % TAGS;
    for (int k = 0; !me && k < LARGE; k++) data[i][k] = (int64_t)tag * LARGE + i / TAGS + k;
    HP_TRY(move(!me, !me, tag, (int64_t)sizeof data[i], data[i], &call, &t[i]));
  }
  for (int i = 0; i < TAGS * EACH; i++) {
    HP_TRY(c->iface->wait(c, &t[i]));
    for (int k = 0; me && k < LARGE; k++)
      EXPECT(data[i][k] == (int64_t)t[i].tag * LARGE + i % EACH + k);
  }
  return HP_OK;
}

static hp_status unlike_transfers(void) {
  int64_t data[2] = {0};
  comm_transfer t;
  comm_call call = comm_call_of(me ? "i32[4]" : "f32[2]", me ? "stage 1" : "stage 0");
  HP_TRY(move(!me, !me, 3, me ? 16 : 8, data, &call, &t));
  HP_TRY(c->iface->wait(c, &t));
  int64_t all; /* the sender may be done, and then learns it here */
  return world_max(0, &all);
}

/* The receiver expects more messages than the sender has. */
static hp_status long_transfer(void) {
  const size_t bytes = ((size_t)1 << 30) + 8;
  comm_transfer t;
  comm_call call = comm_call_of("numbers", NULL);
  char *data = mem_calloc(bytes, 1);
  HP_TRY_MEM(data);
  HP_TRY(move(!me, !me, 3, me ? (int64_t)bytes : 8, data, &call, &t));
  HP_TRY(c->iface->wait(c, &t));
  int64_t all;
  return world_max(0, &all);
}

/* --- rendezvous ------------------------------------------------------------------------------- */

static hp_status gather(const char *what, int n, const int64_t *rank, int64_t *sum) {
  comm_region give[4], take[4];
  comm_view seen[4];
  communicator *g;
  int64_t place = 0, mine = me + 1;
  comm_call call = comm_call_of(what, NULL);
  while (rank[place] != me) place++;
  HP_TRY(c->iface->join(c, rank, n, place, &g));
  for (int i = 0; i < n; i++) give[i] = take[i] = (comm_region){.run = sizeof mine, .n = 1};
  HP_TRY(c->iface->rendezvous(g, &call, &mine, give, take, seen));
  *sum = 0;
  for (int i = 0; i < n; i++) {
    int64_t x;
    memcpy(&x, seen[i].at, sizeof x);
    *sum += x;
  }
  return c->iface->leave(g);
}

/* Of three ranks, rank 0 has another number of rendezvous with each of the others. */
static hp_status communicators(void) {
  int64_t sum;
  for (int k = 0; k < 30; k++) {
    if (me < 2) HP_TRY(gather("sum of 0 and 1", 2, (const int64_t[]){0, 1}, &sum));
    EXPECT(me > 1 || sum == 3);
    if (me != 1 && k % 3 == 0) HP_TRY(gather("sum of 2 and 0", 2, (const int64_t[]){2, 0}, &sum));
    EXPECT(me == 1 || k % 3 || sum == 4);
  }
  HP_TRY(gather("sum of all", 3, (const int64_t[]){2, 1, 0}, &sum));
  EXPECT(sum == 6);
  return HP_OK;
}

static hp_status unlike_calls(void) {
  int64_t sum;
  return gather(me == 1 ? "all_gather f32[4]" : "all_reduce f32[8]", 2, (const int64_t[]){0, 1},
                &sum);
}

/* What rank 1 sends is longer than what rank 0 expects, and is there before rank 0 comes. */
static hp_status longer_data(void) {
  static char data[LARGE];
  const int64_t ranks[] = {0, 1};
  comm_region region[2];
  comm_view seen[2];
  communicator *g;
  comm_call call = comm_call_of(me ? "all_gather f32[25000]" : "all_reduce f32[2]", NULL);
  HP_TRY(c->iface->join(c, ranks, 2, me, &g));
  for (int i = 0; i < 2; i++) region[i] = (comm_region){.run = me ? LARGE : 8, .n = 1};
  if (!me) usleep(300000);
  return c->iface->rendezvous(g, &call, data, region, region, seen);
}

/* Each waits for the next: none of the three comes to where the one before it is. */
static hp_status waits_in_circle(void) {
  const int64_t pair[] = {me, (me + 1) % 3};
  char what[32];
  int64_t sum;
  snprintf(what, sizeof what, "sum of %d and its next", me);
  return gather(what, 2, pair, &sum);
}

/* Rank 0 is with rank 1 where rank 1 waits for a call of all. */
static hp_status waits_for_all(void) {
  int64_t sum;
  if (me) return world_max(me, &sum);
  return gather("sum of 0 and 1", 2, (const int64_t[]){0, 1}, &sum);
}

/* The second of the two instructions of rank 0 is none of rank 1's, which has ended. */
static hp_status one_ends(void) {
  int64_t sum;
  HP_TRY(gather("sum of 0 and 1", 2, (const int64_t[]){0, 1}, &sum));
  return me ? HP_OK : gather("sum of 0 and 1 again", 2, (const int64_t[]){0, 1}, &sum);
}

/* The same, and both leave by exit, as programs do that know of no world. */
static hp_status one_exits(void) {
  hp_status st = one_ends();
  if (st) printf("rank %d: %s\n", me, err_message());
  exit(st != HP_OK);
}

/* Rank 2 waits for rank 0, which has nothing for it in another instruction. */
static hp_status no_exchange(void) {
  comm_region give[3] = {{0}}, take[3] = {{0}};
  comm_view seen[3];
  communicator *g;
  const int64_t ranks[] = {0, 1, 2};
  int64_t mine = me;
  comm_call call = comm_call_of(me == 2 ? "permute by 1" : "permute by 2", NULL);
  if (me == 1) sleep(5);
  HP_TRY(c->iface->join(c, ranks, 3, me, &g));
  give[me == 0].run = give[me == 0].n = take[me == 0].run = take[me == 0].n = 1;
  return c->iface->rendezvous(g, &call, &mine, give, take, seen);
}

/* Rank 1 is late, and has the others wait for it: long, but not for ever. */
static hp_status late_rank(void) {
  int64_t sum;
  if (me == 1) sleep(9);
  if (me != 2) HP_TRY(gather("sum of 0 and 1", 2, (const int64_t[]){0, 1}, &sum));
  if (me != 1) HP_TRY(gather("sum of 0 and 2", 2, (const int64_t[]){0, 2}, &sum));
  return world_max(0, &sum);
}

/* Rank 2 fails: rank 0 then waits for rank 1 alone, which does not come, and is not left waiting.
 */
static hp_status failure_stays(void) {
  int64_t sum;
  if (me == 2) HP_FAIL(HP_ERR_DEVICE, "broken, and the others cannot go on without it");
  EXPECT(gather("sum of all", 3, (const int64_t[]){0, 1, 2}, &sum) == HP_ERR_COMM);
  err_clear();
  communicator *low;
  HP_TRY(c->iface->join(c, (const int64_t[]){0, 1}, 2, me, &low));
  c->iface->begin(low);
  return me ? HP_OK : gather("sum of 0 and 1", 2, (const int64_t[]){0, 1}, &sum);
}

/* --- all processes ---------------------------------------------------------------------------- */

static hp_status world_calls(void) {
  static char text[LARGE];
  int64_t max;
  bool all;
  HP_TRY(world_max(me * 10, &max));
  EXPECT(max == 20);
  HP_TRY(world_max(-me, &max));
  EXPECT(max == 0);
  HP_TRY(world_agree(true, &all));
  EXPECT(all);
  HP_TRY(world_agree(me != 1, &all));
  EXPECT(!all);
  int64_t number = me + 7;
  HP_TRY(world_broadcast(&number, sizeof number));
  EXPECT(number == 7);
  memset(text, 'a' + me, sizeof text);
  HP_TRY(world_broadcast(text, sizeof text));
  EXPECT(text[0] == 'a' && text[LARGE - 1] == 'a');
  return world_broadcast(NULL, 0);
}

static hp_status run_case(const char *name) {
  static const struct {
    const char *name;
    hp_status (*run)(void);
  } cases[] = {{"transfers", transfers},         {"unlike_transfers", unlike_transfers},
               {"long_transfer", long_transfer}, {"failure_stays", failure_stays},
               {"communicators", communicators}, {"unlike_calls", unlike_calls},
               {"longer_data", longer_data},     {"waits_in_circle", waits_in_circle},
               {"waits_for_all", waits_for_all}, {"one_ends", one_ends},
               {"one_exits", one_exits},         {"no_exchange", no_exchange},
               {"late_rank", late_rank},         {"world", world_calls}};
  HP_TRY(world_begin());
  me = world_get()->rank;
  HP_TRY(comm_world_open(&c));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(cases[i].name, name)) return cases[i].run();
  HP_FAIL(HP_ERR_ARG, "no case %s", name);
}

int main(int argc, char **argv) {
  const char *told;
  if (argc != 2) return 2;
  hp_status st = run_case(argv[1]);
  if (st) printf("rank %d: %s\n", me, err_message());
  fflush(stdout);
  if (st) world_fail();
  int code = world_end(st != HP_OK, &told);
  if (c) c->iface->close(c);
  world_leave();
  return code;
}
