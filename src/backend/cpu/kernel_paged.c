/* A cache of keys and values in blocks: new rows into pools, attention to them. */
#include "backend/cpu/attn/attention.h"
#include "backend/cpu/cpu_kernel.h"
#include "base/dtype.h"
#include "ops/paged.h"

#include <string.h>

_Static_assert(PAGE_TOKENS == (int)ATTN_PAGE, "the kernels' blocks are those of the ops");
_Static_assert(PAGED_STATE == (int)ATTN_STATE, "and so are the states of rows");

/* --- new rows --------------------------------------------------------------------------------- */

typedef struct {
  const cpu_call *c;
  const int32_t *table, *at, *copy;
  int64_t B, T, KV, D, N, M, each; /* each: sequences of a group */
  size_t size;                     /* of an element */
  bool transposed;
  int64_t parts; /* of the heads */
} page_write;

enum { PART_LINES = 2048 };

/* Block i of sequence b, of its head's part; NULL: there is none. */
static char *find_block(const page_write *w, int64_t b, int64_t block, int64_t head) {
  if (block < 0 || block >= w->N) return NULL;
  int64_t index = (b / w->each * w->N + block) * w->KV + head;
  return (char *)w->c->at[5] + (size_t)(index * w->D * PAGE_TOKENS) * w->size;
}
static char *find_page(const page_write *w, int64_t b, int64_t token, int64_t head) {
  bool there = token >= 0 && token / PAGE_TOKENS < w->M;
  return there ? find_block(w, b, w->table[b * w->M + token / PAGE_TOKENS], head) : NULL;
}

static void write_row(const page_write *w, char *page, int64_t slot, const char *row) {
  size_t n = w->size, D = (size_t)w->D;
  if (!w->transposed) {
    memcpy(page + (size_t)slot * D * n, row, D * n);
  } else if (n == sizeof(uint32_t)) {
    uint32_t *to = (uint32_t *)(void *)page + slot;
    const uint32_t *from = (const uint32_t *)(const void *)row;
    for (size_t d = 0; d < D; d++) to[d * PAGE_TOKENS] = from[d];
  } else {
    uint16_t *to = (uint16_t *)(void *)page + slot;
    const uint16_t *from = (const uint16_t *)(const void *)row;
    for (size_t d = 0; d < D; d++) to[d * PAGE_TOKENS] = from[d];
  }
}

/* One head of all sequences: first the copies, whose sources the rows may overwrite. */
static void write_head(const page_write *w, int64_t head) {
  size_t block = (size_t)(w->D * PAGE_TOKENS) * w->size;
  for (int64_t b = 0; b < w->B; b++) {
    const char *from = find_block(w, b, w->copy[b], head);
    char *to = find_page(w, b, w->at[b], head);
    if (from && to && from != to) memcpy(to, from, block);
  }
  for (int64_t b = 0; b < w->B; b++)
    for (int64_t t = 0; t < w->T; t++) {
      int64_t token = w->at[b] + t, row = (b * w->T + t) * w->KV + head;
      char *page = find_page(w, b, token, head);
      if (page)
        write_row(w, page, token % PAGE_TOKENS,
                  (const char *)w->c->at[1] + (size_t)(row * w->D) * w->size);
    }
}

static void write_part(void *ctx, int64_t part) {
  const page_write *w = ctx;
  for (int64_t head = w->KV * part / w->parts; head < w->KV * (part + 1) / w->parts; head++)
    write_head(w, head);
}

hp_status run_paged_update(const cpu_call *c) {
  const ir_value *x = call_type(c, 0), *y = call_type(c, 1);
  page_write w = {.c = c,
                  .table = c->at[2],
                  .at = c->at[3],
                  .copy = c->at[4],
                  .B = y->dim[0],
                  .T = y->dim[1],
                  .KV = y->dim[2],
                  .D = y->dim[3],
                  .N = x->dim[1],
                  .M = call_type(c, 2)->dim[1],
                  .each = y->dim[0] / x->dim[0],
                  .size = dtype_size((hp_dtype)y->dtype),
                  .transposed = inst_int(c->p, c->n, "transposed") != 0};
  cpu_move(c, c->at[5], c->at[0], value_bytes(x));
  double lines = (double)value_bytes(y) / (w.transposed ? (double)w.size : 64);
  w.parts = lines < PART_LINES                  ? 1
            : lines < w.KV * (double)PART_LINES ? (int64_t)(lines / PART_LINES)
                                                : w.KV;
  if (w.parts == 1) write_part(&w, 0);
  else pool_run(c->dev->threads, w.parts, write_part, &w);
  return HP_OK;
}

/* --- attention -------------------------------------------------------------------------------- */

static attn_view view_rows(const ir_value *t, void *at) {
  int64_t head = t->dim[3], token = t->dim[2] * head;
  return (attn_view){at, (hp_dtype)t->dtype, t->dim[1] * token, token, head};
}
/* Steps of a block, of a row in it, of a head. */
static attn_view view_pool(const ir_value *t, void *at) {
  int64_t row = t->dim[4], head = t->dim[3] * row;
  return (attn_view){at, (hp_dtype)t->dtype, t->dim[2] * head, row, head};
}

static attn_spec make_spec(const program *p, const prog_inst *n, attn_pages *g) {
  const ir_value *q = &program_arg(p, n, 0)->type, *k = &program_arg(p, n, 1)->type;
  *g = (attn_pages){.groups = k->dim[0],
                    .blocks = k->dim[1],
                    .width = program_arg(p, n, 3)->type.dim[1]};
  return (attn_spec){.B = q->dim[0],
                     .Tq = q->dim[1],
                     .Tk = g->width * PAGE_TOKENS,
                     .H = q->dim[2],
                     .KV = k->dim[2],
                     .D = q->dim[3],
                     .Dv = program_arg(p, n, 2)->type.dim[4],
                     .scale = (float)inst_float(p, n, "scale"),
                     .window = inst_int(p, n, "window")};
}

hp_status plan_paged_attention(cpu_loading *l, const prog_inst *n, void **plan, uint64_t *work) {
  attn_pages g;
  attn_spec s = make_spec(l->p, n, &g);
  attn_part part = {0};
  size_t bytes;
  (void)plan;
  if (n->op == OP_PAGED_PART) g.part = &part;
  HP_TRY(attn_paged_work(&s, &g, pool_size(l->dev->threads), &bytes));
  *work = bytes;
  return HP_OK;
}

hp_status run_paged_attention(const cpu_call *c) {
  attn_pages g;
  attn_spec s = make_spec(c->p, c->n, &g);
  g.table = c->at[3];
  s.span = c->at[4];
  attn_view q = view_rows(call_type(c, 0), c->at[0]), k = view_pool(call_type(c, 1), c->at[1]);
  attn_view v = view_pool(call_type(c, 2), c->at[2]), o = view_rows(call_type(c, 5), c->at[5]);
  return attn_paged(c->dev->isa, c->dev->threads, &s, &g, &q, &k, &v, &o, c->work);
}

hp_status run_paged_part(const cpu_call *c) {
  attn_pages g;
  attn_spec s = make_spec(c->p, c->n, &g);
  int n_in = c->n->n_in;
  bool end = inst_int(c->p, c->n, "end") != 0;
  attn_part part = {.first = inst_int(c->p, c->n, "first"),
                    .before = n_in > 5 ? c->at[5] : NULL,
                    .after = end ? NULL : c->at[n_in]};
  g.table = c->at[3];
  g.part = &part;
  s.span = c->at[4];
  attn_view q = view_rows(call_type(c, 0), c->at[0]), k = view_pool(call_type(c, 1), c->at[1]);
  attn_view v = view_pool(call_type(c, 2), c->at[2]);
  attn_view o = end ? view_rows(call_type(c, n_in), c->at[n_in]) : q;
  return attn_paged(c->dev->isa, c->dev->threads, &s, &g, &q, &k, &v, &o, c->work);
}
