#include "shard/crossmesh.h"

/* Every device of the first mesh holds one shard, so the groups of devices that hold the same
 * shard are disjoint: the requests for a shard are divided among its holders independently of
 * other shards. */
typedef struct {
  const mesh *from, *to;
  const layout *a, *b;
  const int64_t *shape;
  int64_t replicas;     /* of a shard of the first mesh */
  int64_t *asked;       /* elements of a shard that other devices need, by its first holder */
  int64_t *sent, *turn; /* elements assigned to senders so far, and the current sender */
  crossings *out;
} crossing_plan;

static hp_status check_layout(const mesh *m, const layout *l) {
  for (int x = 0; x < m->axes; x++)
    if (l->partial[x])
      HP_FAIL(HP_ERR_LAYOUT,
              "between meshes: the tensor is partial over %s; it is to be done before", m->name[x]);
  return HP_OK;
}

static hp_status check(const crossing_plan *p) {
  int64_t all = 1;
  if (p->a->rank != p->b->rank)
    HP_FAIL(HP_ERR_LAYOUT, "between meshes: from %d dims to %d; both layouts are of one tensor",
            p->a->rank, p->b->rank);
  HP_TRY(check_layout(p->from, p->a));
  HP_TRY(check_layout(p->to, p->b));
  for (int d = 0; d < p->a->rank; d++) {
    int64_t n = p->shape[d];
    if (n < 0 || __builtin_mul_overflow(all, n ? n : 1, &all))
      HP_FAIL(HP_ERR_SHAPE, "between meshes: dim %d of size %lld makes no tensor", d, (long long)n);
  }
  return HP_OK;
}

static hp_status add(crossing_plan *p, int64_t from, int64_t to, const box *b) {
  crossing x = {from, to, *b};
  return vec_push(p->out, x) ? HP_OK : HP_ERR_OOM;
}

static int longest_dim(const box *b) {
  int longest = 0;
  for (int d = 1; d < b->rank; d++)
    if (b->stop[d] - b->start[d] > b->stop[longest] - b->start[longest]) longest = d;
  return longest;
}

/* Splits off the beginning of b, as close to n elements as its longest dim allows. */
static box cut_off(box *b, int64_t n) {
  box head = *b;
  int d = longest_dim(b);
  int64_t slice = box_elements(b) / (b->stop[d] - b->start[d]);
  head.stop[d] = b->start[d] = b->start[d] + (n + slice / 2) / slice;
  return head;
}

/* Sends one box of a shard to a receiver that does not hold it: from the current sender until it
 * has sent its share, then from the next. */
static hp_status share_out(crossing_plan *p, int64_t first, int64_t to, box rest) {
  int64_t share = p->asked[first] / p->replicas + (p->asked[first] % p->replicas != 0);
  for (int64_t n; (n = box_elements(&rest)) > 0;) {
    int64_t k = p->turn[first], room = share * (k + 1) - p->sent[first];
    bool all = k == p->replicas - 1 || n <= room;
    if (!all) p->turn[first]++;
    if (!all && room <= 0) continue;
    box head = all ? rest : cut_off(&rest, room);
    p->sent[first] += box_elements(&head);
    if (box_elements(&head))
      HP_TRY(add(p, mesh_rank(p->from, layout_replica(p->from, p->a, first, k)), to, &head));
    if (all) break;
  }
  return HP_OK;
}

/* Visits what the device at `position` of the second mesh needs: first counts the elements
 * needed of each shard; in a second pass assigns them to senders. */
static hp_status visit(crossing_plan *p, int64_t position, bool counting) {
  overlapping_shards shard;
  int64_t rank = mesh_rank(p->to, position), here = mesh_position(p->from, rank);
  int64_t own = here < 0 ? -1 : layout_first(p->from, p->a, here);
  box needed = box_of_shard(p->to, p->b, p->shape, position);
  shards_begin(&shard, p->from, p->a, p->shape, &needed);
  for (; shard.more; shards_next(&shard)) {
    if (counting) {
      if (shard.first != own) p->asked[shard.first] += box_elements(&shard.common);
    } else if (shard.first == own) {
      HP_TRY(add(p, rank, rank, &shard.common));
    } else {
      HP_TRY(share_out(p, shard.first, rank, shard.common));
    }
  }
  return HP_OK;
}

hp_status crossmesh_find(const int64_t *shape, const mesh *from, const layout *a, const mesh *to,
                         const layout *b, crossings *out) {
  crossing_plan p = {.from = from, .to = to, .a = a, .b = b, .shape = shape, .out = out};
  HP_TRY(check(&p));
  size_t n = (size_t)from->devices;
  p.replicas = layout_repeat(from, a);
  p.asked = mem_calloc(3 * n, sizeof *p.asked);
  HP_TRY_MEM(p.asked);
  p.sent = p.asked + n;
  p.turn = p.sent + n;
  hp_status st = HP_OK;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t i = 0; i < to->devices && !st; i++) st = visit(&p, i, pass == 0);
  mem_free(p.asked);
  return st;
}
