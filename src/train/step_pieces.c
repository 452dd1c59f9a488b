#include "train/step_pieces.h"

#include "base/str.h"
#include "base/thread.h"

#include <stdio.h>

enum { KEPT = 64 }; /* pieces, beside those of the step at hand */

void step_pieces_free(step_pieces *s) {
  for (size_t i = 0; i < s->kept.len; i++) hp_piece_free(s->kept.at[i].p);
  vec_free(&s->kept);
}

void step_pieces_set_options(step_pieces *s, const hp_compile_options *o) {
  step_pieces_free(s);
  s->o.compile = *o;
}

static hp_status compile(step_pieces *s, const step_place *v, hp_piece **out) {
  model_build b;
  double start = time_now_s();
  hp_compile_options o = s->o.compile;
  if (!v->last) o.dump_dir = NULL; /* the last one has all that the others have */
  if (!s->plan) step_graph_tell(s->m, &s->o, v);
  hp_status st = step_graph_begin(s->m, &s->o, v, &b);
  if (!st && !s->plan) st = lm_make_buffers(s->m, &b, v->T);
  if (!st) st = hp_piece_compile(b.g, s->d, &o, out);
  lm_graph_end(&b);
  s->compile_s += time_now_s() - start;
  return st;
}

static bool same_place(const step_place *a, const step_place *b) {
  return a->B == b->B && a->T == b->T && a->first == b->first && a->last == b->last;
}

/* Makes room for one more: pieces that were not used for longest go, but those of the step at hand,
 * which began at `step`. */
static hp_status make_room(step_pieces *s, uint64_t step) {
  while (s->kept.len >= KEPT) {
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

/* FB: forward and backward; FBU: and the update.  The number tells pieces of other shapes apart. */
static int add_piece(step_link *l, hp_piece *p, bool last) {
  for (int i = 0; i < l->n; i++)
    if (l->piece[i] == p) return i;
  snprintf(l->names[l->n], sizeof *l->names, "%s%d", last ? "FBU" : "FB", l->n);
  l->action[l->n] = l->names[l->n];
  l->piece[l->n] = p;
  return l->n++;
}

hp_status step_pieces_link(step_pieces *s, const micro_shape *shape, int64_t n, step_link *out) {
  str rows = {0};
  uint64_t step = s->clock + 1;
  *out = (step_link){.piece = mem_calloc((size_t)n, sizeof *out->piece),
                     .action = mem_calloc((size_t)n, sizeof *out->action),
                     .names = mem_calloc((size_t)n, sizeof *out->names)};
  hp_status st = out->piece && out->action && out->names ? HP_OK : HP_ERR_OOM;
  for (int64_t i = 0; !st && i < n; i++) {
    step_place v = {shape[i].B, shape[i].T, .first = i == 0, .last = i + 1 == n};
    hp_piece *p;
    st = find_piece(s, &v, step, &p);
    if (!st) str_printf(&rows, "0 %s %lld\n", out->names[add_piece(out, p, v.last)], (long long)i);
  }
  if (!st) st = str_status(&rows);
  if (st) str_free(&rows);
  out->rows = rows.at;
  return st;
}

void step_link_free(step_link *l) {
  mem_free(l->piece);
  mem_free(l->action);
  mem_free(l->names);
  mem_free(l->rows);
}
