#include "api/api_stage_pieces.h"

#include <string.h>

/* --- one piece of the parts of several -------------------------------------------------------- */

static bool same_crossings(const hp_piece *a, const hp_piece *b) {
  if (a->crossing.len != b->crossing.len) return false;
  for (size_t i = 0; i < a->crossing.len; i++) {
    const stage_crossing *x = &a->crossing.at[i], *y = &b->crossing.at[i];
    if (x->from != y->from || x->to != y->to || strcmp(x->name, y->name)) return false;
  }
  return true;
}

/* The part that the run has on the mesh of its stage. */
static hp_status take_part(const stage_pieces *p, const piece_run *run, hp_piece *whole,
                           bool *taken) {
  const hp_device *d = whole->d;
  const hp_piece *from = p->all[run->piece];
  if (run->stage >= d->stages)
    HP_FAIL(HP_ERR_ARG, "rows:%d: stage %d; the pipeline has stages 0 to %d", run->line, run->stage,
            d->stages - 1);
  int on = d->mesh_of[run->stage];
  if (!same_crossings(from, whole))
    HP_FAIL(HP_ERR_ARG,
            "rows:%d: \"%s\" of micro-batch %u: stages run pieces of different graphs; expected "
            "those of one graph, which differ in their options",
            run->line, p->action[run->piece], run->microbatch);
  if (taken[on] && whole->part[on] != from->part[on])
    HP_FAIL(HP_ERR_ARG,
            "rows:%d: stage %d runs \"%s\" of micro-batch %u, and another stage of its device "
            "another piece; expected one for both",
            run->line, run->stage, p->action[run->piece], run->microbatch);
  taken[on] = true;
  whole->part[on] = from->part[on];
  return HP_OK;
}

/* Each stage once. */
static hp_status check_stages(const piece_run *run, size_t n, const hp_device *d) {
  for (int s = 0; s < d->stages; s++) {
    int found = 0;
    for (size_t i = 0; i < n; i++) found += run[i].stage == s;
    if (found != 1)
      HP_FAIL(HP_ERR_ARG, "rows:%d: micro-batch %u has %d rows of stage %d; expected 1",
              run[n - 1].line, run->microbatch, found, s);
  }
  return HP_OK;
}

static bool same_parts(const hp_piece *a, const hp_piece *b) {
  if (!same_crossings(a, b)) return false;
  return !memcmp(a->part, b->part, (size_t)a->d->meshes * sizeof *a->part);
}

/* The number of the piece with the parts that the n runs name: one that is there, or a new one. */
static hp_status combine(stage_pieces *p, const piece_run *run, size_t n, uint32_t *out) {
  hp_device *d = p->all[0]->d;
  hp_piece *whole = mem_calloc(1, sizeof *whole);
  bool *taken = mem_calloc((size_t)d->meshes, 1);
  if (whole) {
    *whole = *p->all[run->piece];
    whole->part = mem_calloc((size_t)d->meshes, sizeof(hp_piece *));
  }
  hp_status st = whole && whole->part && taken ? check_stages(run, n, d) : HP_ERR_OOM;
  for (size_t i = 0; !st && i < n; i++) st = take_part(p, &run[i], whole, taken);
  mem_free(taken);
  *out = 0;
  while (!st && *out < (uint32_t)p->s.n && !same_parts(p->all[*out], whole)) ++*out;
  if (!st && *out == (uint32_t)p->s.n) {
    p->all[*out] = whole;
    p->action[*out] = p->action[run->piece];
    p->s.n++;
    return HP_OK;
  }
  if (whole) mem_free(whole->part);
  mem_free(whole);
  return st;
}

/* --- rows ------------------------------------------------------------------------------------- */

static size_t count_runs(const api_rows *rows, size_t i) {
  size_t n = 1;
  const piece_run *first = &rows->run.at[i];
  while (first->stage >= 0 && i + n < rows->run.len && rows->run.at[i + n].stage >= 0 &&
         rows->run.at[i + n].microbatch == first->microbatch)
    n++;
  return n;
}

static hp_status resolve(const step *s, stage_pieces *p) {
  for (size_t i = 0, n; i < s->rows.run.len; i += n) {
    piece_run run = s->rows.run.at[i];
    n = count_runs(&s->rows, i);
    if (run.stage >= 0) HP_TRY(combine(p, &s->rows.run.at[i], n, &run.piece));
    run.stage = -1;
    if (!vec_push(&p->s.rows.run, run)) return HP_ERR_OOM;
  }
  return HP_OK;
}

hp_status stage_pieces_begin(const step *s, stage_pieces *out) {
  size_t most = (size_t)s->n + s->rows.run.len;
  *out = (stage_pieces){.s = *s,
                        .all = mem_calloc(most, sizeof *out->all),
                        .action = mem_calloc(most, sizeof *out->action),
                        .given = s->n};
  memset(&out->s.rows.run, 0, sizeof out->s.rows.run);
  HP_TRY_MEM(out->all && out->action);
  memcpy(out->all, s->piece, (size_t)s->n * sizeof *out->all);
  memcpy(out->action, s->action, (size_t)s->n * sizeof *out->action);
  out->s.piece = out->all;
  out->s.action = out->action;
  return resolve(s, out);
}

void stage_pieces_end(stage_pieces *p) {
  for (int i = p->given; p->all && i < p->s.n; i++) {
    mem_free(p->all[i]->part);
    mem_free(p->all[i]);
  }
  mem_free(p->all);
  mem_free(p->action);
  vec_free(&p->s.rows.run);
}
