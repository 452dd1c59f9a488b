#include "compile/pipeline_check.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

/* A transfer of a micro-batch, and where its ends are. */
typedef struct {
  int mesh[2]; /* that receives, that sends; -1: there is none */
  size_t row[2];
} ends;

typedef struct {
  const mesh_rows *mesh;
  int meshes;
  map of; /* transfer and micro-batch -> place in `all` */
  VEC(ends) all;
  size_t *next; /* [meshes] the row that each is at */
} checker;

enum { ROW_TEXT = 160 };

static const link_transfer *transfer_of(const checker *c, int on, size_t row) {
  const link_row *r = &c->mesh[on].row.at[row];
  return r->transfer ? &c->mesh[on].transfer.at[r->transfer - 1] : NULL;
}

/* "row 12 of mesh 0, which sends stage0.value7 of micro-batch 3 from stage 0" */
static const char *name_row(const checker *c, int on, size_t row, char text[ROW_TEXT]) {
  const link_row *r = &c->mesh[on].row.at[row];
  const link_transfer *t = transfer_of(c, on, row);
  snprintf(text, ROW_TEXT, "row %zu of mesh %d, which %s \"%.60s\" of stage %u, micro-batch %u",
           row + 1, on, t->sends ? "sends" : "receives", t->name, r->stage, r->microbatch);
  return text;
}

static hp_status find_ends(checker *c, int on, size_t row, ends **out) {
  const uint32_t key[] = {transfer_of(c, on, row)->id, c->mesh[on].row.at[row].microbatch};
  uint32_t i = (uint32_t)c->all.len;
  if (!map_get(&c->of, key, sizeof key, &i)) {
    HP_TRY(map_set(&c->of, key, sizeof key, i));
    if (!vec_push(&c->all, ((ends){.mesh = {-1, -1}}))) return HP_ERR_OOM;
  }
  *out = &c->all.at[i];
  return HP_OK;
}

static hp_status list_ends(checker *c) {
  char text[ROW_TEXT], other[ROW_TEXT];
  for (int m = 0; m < c->meshes; m++)
    for (size_t i = 0; i < c->mesh[m].row.len; i++) {
      const link_transfer *t = transfer_of(c, m, i);
      ends *x;
      if (!t) continue;
      HP_TRY(find_ends(c, m, i, &x));
      if (x->mesh[t->sends] >= 0)
        HP_FAIL(HP_ERR_INTERNAL, "pipeline: %s, does what %s, has done", name_row(c, m, i, text),
                name_row(c, x->mesh[t->sends], x->row[t->sends], other));
      x->mesh[t->sends] = m;
      x->row[t->sends] = i;
    }
  return HP_OK;
}

static hp_status check_pairs(const checker *c) {
  char text[ROW_TEXT];
  for (size_t i = 0; i < c->all.len; i++)
    for (int sends = 0; sends < 2; sends++) {
      const ends *x = &c->all.at[i];
      if (x->mesh[sends] < 0)
        HP_FAIL(HP_ERR_INTERNAL, "pipeline: %s, waits for a row that %s it, and there is none",
                name_row(c, x->mesh[!sends], x->row[!sends], text), sends ? "sends" : "receives");
      if (x->mesh[0] == x->mesh[1])
        HP_FAIL(HP_ERR_INTERNAL, "pipeline: %s, exchanges with its own mesh",
                name_row(c, x->mesh[0], x->row[0], text));
    }
  return HP_OK;
}

/* The other end of the transfer at which the mesh is. */
static const ends *at_ends(checker *c, int on) {
  ends *x = NULL;
  return find_ends(c, on, c->next[on], &x) ? NULL : x;
}

static void skip_work(checker *c, int m) {
  while (c->next[m] < c->mesh[m].row.len && !transfer_of(c, m, c->next[m])) c->next[m]++;
}

static bool has_ended(const checker *c, int m) { return c->next[m] == c->mesh[m].row.len; }

/* Runs the transfers of a mesh as far as their other ends are there; true: there was one. */
static bool advance(checker *c, int m) {
  bool any = false;
  for (; !has_ended(c, m); any = true) {
    const ends *x = at_ends(c, m);
    int other = x->mesh[x->mesh[0] == m];
    if (c->next[other] != x->row[x->mesh[0] == m]) break;
    c->next[m]++;
    c->next[other]++;
    skip_work(c, m);
    skip_work(c, other);
  }
  return any;
}

/* Each mesh waits for another: a way along them ends in a circle. */
static hp_status refuse_circle(checker *c, int m) {
  char text[ROW_TEXT], behind[ROW_TEXT];
  for (int i = 0; i < c->meshes; i++) {
    const ends *x = at_ends(c, m);
    m = x->mesh[x->mesh[0] == m];
  }
  const ends *x = at_ends(c, m);
  int other = x->mesh[x->mesh[0] == m];
  HP_FAIL(HP_ERR_INTERNAL,
          "pipeline: meshes wait for each other: %s, waits for mesh %d, which is at %s",
          name_row(c, m, c->next[m], text), other, name_row(c, other, c->next[other], behind));
}

static hp_status follow(checker *c) {
  for (int m = 0; m < c->meshes; m++) skip_work(c, m);
  for (bool any = true; any;) {
    any = false;
    for (int m = 0; m < c->meshes; m++) any |= advance(c, m);
  }
  for (int m = 0; m < c->meshes; m++)
    if (!has_ended(c, m)) return refuse_circle(c, m);
  return HP_OK;
}

hp_status pipeline_check(const mesh_rows *rows, int meshes) {
  checker c = {.mesh = rows, .meshes = meshes, .next = mem_calloc((size_t)meshes, sizeof *c.next)};
  hp_status st = c.next ? list_ends(&c) : HP_ERR_OOM;
  if (!st) st = check_pairs(&c);
  if (!st) st = follow(&c);
  map_free(&c.of);
  vec_free(&c.all);
  mem_free(c.next);
  return st;
}
