#include "train/step_pieces.h"

#include "base/str.h"
#include "base/thread.h"

#include <stdio.h>

/* Instructions of the pieces that are kept, besides those of the step at hand; each takes about 1
 * KB with its graphs. */
enum { INSTS = 1 << 18 };

void step_pieces_free(step_pieces *s) {
  for (size_t i = 0; i < s->kept.len; i++) hp_piece_free(s->kept.at[i].p);
  vec_free(&s->kept);
}

void step_pieces_set_options(step_pieces *s, const hp_compile_options *o) {
  step_pieces_free(s);
  s->o.compile = *o;
}

/* What it runs, forward F, backward B and W, update U, and its sizes: "FBW_2x512", and
 * "FBW_add_2x512" where gradients are added to those of the micro-batches before; halves of the
 * update "U_norm" and "U_apply". */
static const char *name_piece(const step_place *v, char name[STEP_NAME]) {
  static const char *const of[] = {"FBWU", "FBW", "FBW_add", "U", "U_norm", "U_apply"};
  if (!step_part_is_micro(v->part)) snprintf(name, STEP_NAME, "%s", of[v->part]);
  else snprintf(name, STEP_NAME, "%s_%lldx%lld", of[v->part], (long long)v->B, (long long)v->T);
  return name;
}

static hp_status compile(step_pieces *s, const step_place *v, hp_piece **out) {
  model_build b;
  double start = time_now_s();
  char name[STEP_NAME];
  hp_compile_options o = s->o.compile;
  if (v->part != STEP_ALONE) o.dump_name = name_piece(v, name);
  if (!s->plan && !s->quiet && !s->told) s->told = step_graph_tell(s->m, &s->o, v);
  hp_status st = step_graph_begin(s->m, &s->o, v, &b);
  if (!st && !s->plan && step_part_is_micro(v->part)) st = lm_make_buffers(s->m, &b, v->T);
  if (!st) st = hp_piece_compile(b.g, s->d, &o, out);
  lm_graph_end(&b);
  s->compile_s += time_now_s() - start;
  return st;
}

static bool same_place(const step_place *a, const step_place *b) {
  return a->part == b->part && a->B == b->B && a->T == b->T && a->head_sum == b->head_sum &&
         a->ahead == b->ahead;
}

static bool has_room(const step_pieces *s) {
  return (s->kept.len + 1) * (uint64_t)s->insts <= INSTS;
}

/* Makes room for one more: pieces that were not used for longest go, but those of the step at hand,
 * which began at `step`. */
static hp_status make_room(step_pieces *s, uint64_t step) {
  while (s->kept.len && !has_room(s)) {
    size_t oldest = 0;
    for (size_t i = 1; i < s->kept.len; i++)
      if (s->kept.at[i].used < s->kept.at[oldest].used) oldest = i;
    if (s->kept.at[oldest].used >= step) break;
    hp_piece_free(s->kept.at[oldest].p);
    s->kept.at[oldest] = s->kept.at[--s->kept.len];
  }
  return vec_reserve(&s->kept, 1) ? HP_OK : HP_ERR_OOM;
}

static hp_status find_piece(step_pieces *s, const step_place *v, uint64_t step, hp_piece **out) {
  for (size_t i = 0; i < s->kept.len; i++) {
    if (!same_place(&s->kept.at[i].place, v)) continue;
    s->kept.at[i].used = ++s->clock;
    *out = s->kept.at[i].p;
    return HP_OK;
  }
  HP_TRY(make_room(s, step));
  HP_TRY(compile(s, v, out));
  s->kept.at[s->kept.len++] = (step_piece){.place = *v, .p = *out, .used = ++s->clock};
  return HP_OK;
}

static int add_piece(step_link *l, hp_piece *p, const step_place *v, bool again) {
  for (int i = 0; i < l->n; i++)
    if (l->piece[i] == p) return i;
  l->action[l->n] = name_piece(v, l->names[l->n]);
  if (again && step_part_is_micro(v->part)) l->names[l->n][0] = 'R';
  l->piece[l->n] = p;
  return l->n++;
}

static hp_status add_row(step_pieces *s, const step_place *v, int64_t micro, uint64_t step,
                         step_link *l, str *rows) {
  hp_piece *p;
  HP_TRY(find_piece(s, v, step, &p));
  str_printf(rows, "* %s %lld\n", l->names[add_piece(l, p, v, s->again)], (long long)micro);
  return HP_OK;
}

static step_place place_of(const step_spec *spec, int64_t micro, bool head_sum) {
  const micro_shape *m = &spec->shape[micro];
  bool alone = spec->n == 1 && !spec->leaves;
  return (step_place){.part = micro   ? STEP_NEXT
                              : alone ? STEP_ALONE
                                      : STEP_FIRST,
                      .B = m->B,
                      .T = m->T,
                      .head_sum = head_sum};
}

bool step_pieces_look_ahead(const step_pieces *s, int64_t n) {
  return s->o.ahead && n > 1 && hp_device_runs_ahead(s->d);
}

static hp_status add_rows(step_pieces *s, const step_spec *spec, step_link *l, str *rows) {
  uint64_t step = s->clock + 1;
  int64_t last = spec->n ? spec->n - 1 : 0;
  bool sum = spec->n > 1 && lm_tied_param(s->m);
  if (spec->applies) HP_TRY(add_row(s, &(step_place){.part = STEP_APPLY}, 0, step, l, rows));
  for (int64_t i = 0; i < spec->n; i++) {
    const step_place place = place_of(spec, i, sum);
    HP_TRY(add_row(s, &place, i, step, l, rows));
  }
  bool ahead = step_pieces_look_ahead(s, spec->n);
  step_place update = {.part = spec->leaves ? STEP_NORM : STEP_UPDATE,
                       .head_sum = sum,
                       .ahead = ahead};
  if (spec->leaves || spec->n > 1) HP_TRY(add_row(s, &update, last, step, l, rows));
  for (int64_t i = 0; ahead && i < spec->n; i++) {
    const step_place place = place_of(spec, i, sum);
    HP_TRY(add_row(s, &place, spec->n + i, step, l, rows));
  }
  return str_status(rows);
}

hp_status step_pieces_link(step_pieces *s, const step_spec *spec, step_link *out) {
  str rows = {0};
  size_t most = (size_t)spec->n + 2; /* pieces: those of the next step are the same */
  *out = (step_link){.piece = mem_calloc(most, sizeof *out->piece),
                     .action = mem_calloc(most, sizeof *out->action),
                     .names = mem_calloc(most, sizeof *out->names)};
  hp_status st = out->piece && out->action && out->names ? HP_OK : HP_ERR_OOM;
  if (!st) st = add_rows(s, spec, out, &rows);
  if (st) str_free(&rows);
  out->rows = rows.at;
  return st;
}

void step_pieces_linked(step_pieces *s, int64_t n, const hp_program_stats *linked) {
  s->insts = (uint32_t)(linked->instructions / n);
}

void step_link_free(step_link *l) {
  mem_free(l->piece);
  mem_free(l->action);
  mem_free(l->names);
  mem_free(l->rows);
}
